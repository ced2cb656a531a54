"""The law of y given the directions that enter the target.

y = h(B λ*) + √Δ ξ,    rows of B: an orthonormal basis of the directions that h depends
on

Directions that do not enter are never learned and change nothing, so everything below
is computed on the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twolayer.analysis.directions import complement
from twolayer.analysis.exponents import analyse
from twolayer.analysis.target_coordinates import framed
from twolayer.functions.kinks import find_kinks
from twolayer.functions.target import Target, TargetLike
from twolayer.numerics.arguments import Array, ArrayFunction
from twolayer.numerics.errors import InputError, finite_number, reject
from twolayer.numerics.precision import float64
from twolayer.numerics.quadrature_rules import draw_sobol_normals
from twolayer.task.problem import Problem

__all__ = ["LabelLaw", "law_of"]

# share of the samples that have the same label, from which on this label is an atom
REPEATED = 1e-3
TINY = 1e-30
ALIKE = 1e-9  # labels closer than this, in standard deviations, are the same


@dataclass(frozen=True, eq=False)
class LabelLaw:
    """A target as a function of the directions that enter, with the noise of its
    labels.
    """

    target: Target
    noise: float  # Δ
    basis: np.ndarray  # orthonormal rows (k, number of coordinates of the target)
    frame: np.ndarray  # L of λ* = L u, where the coordinates u are not the fields

    @property
    def k(self) -> int:
        """Number of directions that enter."""
        return len(self.basis)

    @property
    def function(self) -> ArrayFunction:
        """h as a JAX function of (..., k)."""
        import jax.numpy as jnp

        basis = jnp.asarray(self.basis)
        return lambda fields: self.target(fields @ basis)

    @cached_property
    def _compiled(self) -> tuple[ArrayFunction, ArrayFunction]:
        import jax
        import jax.numpy as jnp

        def slope(z: Any) -> Any:
            return jax.jvp(self.function, (z,), (jnp.ones_like(z),))[1]

        return jax.jit(self.function), jax.jit(slope)

    @float64
    def _padded(self, function: ArrayFunction, z: np.ndarray) -> np.ndarray:
        """One compiled shape per power of two."""
        import jax.numpy as jnp

        flat = z.reshape(-1, self.k)
        size = 1 << max(10, (len(flat) - 1).bit_length())
        full = np.zeros((size, self.k))
        full[: len(flat)] = flat
        return np.asarray(function(jnp.asarray(full)))[: len(flat)].reshape(
            z.shape[:-1]
        )

    def labels(self, z: np.ndarray) -> np.ndarray:
        """h at points (..., k), without noise; of formulas and teachers without JAX."""
        return (
            self.target.on_host(z @ self.basis)
            if self.target.light
            else self._padded(self._compiled[0], z)
        )

    def line(self, z: np.ndarray) -> np.ndarray:
        """h of the single direction, at numbers."""
        return self.labels(z[..., None])

    def slope(self, z: np.ndarray) -> np.ndarray:
        """h' of the single direction, at numbers; of polynomials by an imaginary step,
        without JAX.
        """
        if self.target.light and self.target.polynomial is not None:
            return (
                np.imag(self.target.on_host((z[..., None] + 1j * TINY) @ self.basis))
                / TINY
            )
        return self._padded(self._compiled[1], z[..., None])

    @cached_property
    def variance(self) -> float:
        """Var[h], roughly: a scale."""
        return float(np.var(self._sample))

    @cached_property
    def _sample(self) -> np.ndarray:
        return self.labels(draw_sobol_normals(self.k, 14))

    @cached_property
    def atoms(self) -> tuple[float, ...]:
        """Labels without noise that occur with positive probability, found because they
        repeat.
        """
        ordered = np.sort(self._sample)
        ends = np.flatnonzero(np.diff(ordered) > ALIKE * np.sqrt(self.variance))
        groups = np.split(ordered, ends + 1)
        return tuple(
            float(np.median(g)) for g in groups if len(g) >= REPEATED * len(ordered)
        )

    @cached_property
    def kinks(self) -> tuple[float, ...]:
        """Where h of the single direction jumps or bends."""
        if self.target.smooth:
            return ()
        return find_kinks(lambda x: self.function(x[..., None]))[0]


def law_of(
    target: TargetLike | Problem,
    noise: object = None,
    directions: int | None = None,
    gram: Array | None = None,
) -> LabelLaw:
    """Check a target and its noise, and leave out the directions that do not enter.

    Of a problem these are its own; noise that is left out is none.

    Examples
    --------
    >>> law_of("(z1 + z2)**2", 0.1).basis.round(3).tolist()
    [[0.707, 0.707]]
    """
    given = framed(target, directions, gram, noise=noise)
    target = given.target
    if given.problem is not None:
        noise = _noise_of(given.problem)
    delta = finite_number(
        "noise",
        0.0 if noise is None else noise,
        minimum=0.0,
        accepted="a variance: a finite number, zero or more",
    )
    enters = complement(
        analyse(target).unused, target.directions
    )  # along coordinate axes wherever possible
    if not len(enters):
        raise InputError(
            "Argument `target` must vary with the inputs, for nothing can be learned"
            f" from labels that are all the same, but {target.name} is constant."
        )
    law = LabelLaw(target, delta, enters, given.frame)
    if not delta < 1e12 * law.variance:
        raise InputError(
            "Argument `noise` must leave something of the target to see, but"
            f" {delta:.3g} is more than 10^12 times the variance of {target.name}."
        )
    return law


def _noise_of(problem: Problem) -> float:
    """Δ of a problem whose labels and inputs the theory covers."""
    problem.require_isotropic("thresholds")
    labels = problem.labels
    if labels.flips or (problem.noise > 0 and labels.law.name != "gaussian"):
        accepted = "one with Gaussian noise on the labels, or none"
        reject("target", problem, accepted)
    return problem.noise
