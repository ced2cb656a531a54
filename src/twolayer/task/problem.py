"""The task: what is to be learned, by which network.

y = ± h(W* z) + √Δ ξ,    f(z) = (1/N) Σ_j a_j σ(w_j · z),    z ~ N(0, I_d),    P = W*
W*ᵀ

N is p, 1 or √p (functions/normalisation.py); the sign and the law of ξ are in
labels.py. Inputs with other covariances than I are in inputs.py; P is that of the
fields λ* = W* z whatever they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twolayer.functions.activation import Activation, ActivationLike
from twolayer.functions.normalisation import NORMALISATIONS, divisor
from twolayer.functions.target import Target, TargetLike
from twolayer.numerics.arguments import Array, Json, finite_array
from twolayer.numerics.errors import (
    InputError,
    choice,
    finite_number,
    positive_integer,
    require,
    short,
)
from twolayer.task.inputs import Inputs
from twolayer.task.labels import LabelNoise

__all__ = ["Problem", "check_gram"]

SECOND_LAYERS = ("ones", "signs", "gaussian")


@dataclass(frozen=True)
class Problem:
    """A target, a student network and a noise level.

    Parameters
    ----------
    target : str, callable, Target or dict
        A formula in z1, z2, … (``"z1 + z1*z2"``), a JAX function of a vector (give
        ``directions``), or a `Teacher`.
    activation : str, callable or Activation
        Name (``"erf"``, ``"relu"``, ``"He3"``), formula in z (``"tanh(z + 0.7)"``) or
        elementwise JAX function.
    width : int
        p, the number of student neurons.
    noise : float
        Δ, the variance of the label noise; of laws without a variance, the square of
        their scale.
    gram : array (k, k), optional
        P, the covariance of the fields λ* = W* z; the identity by default.
    second_layer : str or array (p,)
        ``"ones"``, ``"signs"`` (±1 with equal chance), ``"gaussian"``, or the values of
        a.
    directions : int, optional
        k; needed for a callable target.
    normalisation : str
        What the sum over the neurons is divided by: p (``"mean"``), 1 (``"sum"``, as in
        committees) or √p (``"sqrt"``).
    noise_law : str
        ``"gaussian"``, ``"laplace"``, ``"uniform"``, ``"student(5)"`` with any number
        of degrees of freedom, or ``"cauchy"``.
    flips : float
        q, the probability that the sign of the target is turned, in [0, 1/2].
    inputs : Inputs, optional
        The law of the inputs z: ``Inputs.blocks(…)`` and the like; N(0, I) by default.

    Examples
    --------
    >>> Problem(target="He2(z1)", activation="He2", width=4, noise=0.1)
    Problem(target='He2(z1)', activation='He2', width=4, noise=0.1)
    """

    target: Target
    activation: Activation
    width: int
    noise: float
    gram: tuple[tuple[float, ...], ...]
    second_layer: str | tuple[float, ...]
    normalisation: str
    labels: LabelNoise
    inputs: Inputs

    def __init__(
        self,
        target: TargetLike,
        activation: ActivationLike,
        width: int = 1,
        noise: float = 0.0,
        gram: Array | None = None,
        second_layer: str | Sequence[float] | np.ndarray = "ones",
        directions: int | None = None,
        normalisation: str = "mean",
        noise_law: str = "gaussian",
        flips: float = 0.0,
        inputs: Inputs | Json | None = None,
    ) -> None:
        width = positive_integer("width", width)
        noise = finite_number(
            "noise", noise, minimum=0.0, accepted="a finite variance Δ ≥ 0"
        )
        if not isinstance(second_layer, str):
            a = finite_array("second_layer", second_layer).ravel()
            require(
                a.size == width,
                "second_layer",
                second_layer,
                f"{width} numbers, one for each neuron",
            )
            layer: str | tuple[float, ...] = tuple(a.tolist())
        else:
            layer = choice("second_layer", second_layer, SECOND_LAYERS)
        sigma = Activation.of(activation)
        h = Target.of(target, directions)
        P = check_gram(gram, h.directions)
        for name, value in {
            "target": h,
            "activation": sigma,
            "width": width,
            "noise": noise,
            "gram": tuple(map(tuple, P.tolist())),
            "second_layer": layer,
            "normalisation": choice("normalisation", normalisation, NORMALISATIONS),
            "labels": LabelNoise.of(noise_law, flips),
            "inputs": Inputs.of(inputs),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def p(self) -> int:
        """Number of student neurons."""
        return self.width

    @property
    def divisor(self) -> float:
        """N in f = (1/N) Σ_j a_j σ(λ_j)."""
        return divisor(self.normalisation, self.p)

    @property
    def k(self) -> int:
        """Number of target directions."""
        return self.target.directions

    @property
    def P(self) -> np.ndarray:
        """Gram matrix of the target directions, (k, k)."""
        return np.asarray(self.gram, dtype=float)

    def a(self, seed: int = 0, run: int | np.ndarray = 0) -> np.ndarray:
        """The second layer (p,); random ones are drawn with the ``seed``.

        ``run`` is the number of the run; for an array of numbers the layers of all of
        them, (runs, p).

        Examples
        --------
        >>> Problem("z1", "relu", width=3, second_layer=[1, -1, 2]).a().tolist()
        [1.0, -1.0, 2.0]
        """
        if not isinstance(self.second_layer, str):
            return np.broadcast_to(
                np.asarray(self.second_layer, dtype=float), (*np.shape(run), self.p)
            ).copy()
        if self.second_layer == "ones":
            return np.ones((*np.shape(run), self.p))
        from twolayer.numerics import random

        draws = random.host_normal(seed, random.Role.SECOND_LAYER, self.p, run)
        return (
            draws
            if self.second_layer == "gaussian"
            else np.where(draws >= 0, 1.0, -1.0)
        )

    def require_isotropic(self, what: str) -> None:
        """Refuse inputs other than N(0, I) for ``what``, formulas that hold for these
        alone.
        """
        if not self.inputs.plain:
            raise InputError(
                f"{what} holds for inputs N(0, I), but the problem has {self.inputs}:"
                f" their effective dimension is {self.inputs.effective_fraction:.3g} d,"
                " and what is reached when is measured with solve(…, until=…)."
            )

    def replace(self, **changes: object) -> Problem:
        """The same problem with some arguments changed, by name (``changes``).

        Another target keeps the directions z1, z2, … and their Gram matrix. One over
        more directions needs its own matrix, unless those there are are orthonormal.

        Examples
        --------
        >>> Problem("z1", "relu").replace(width=2).width
        2
        >>> Problem("z1*z2", "relu", gram=[[1, 0.5], [0.5, 1]]).replace(
        ...     target="z1 + z2"
        ... ).gram
        ((1.0, 0.5), (0.5, 1.0))
        """
        known = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        labels = known.pop("labels")
        known |= {"noise_law": labels.law, "flips": labels.flips}
        if "target" in changes and "gram" not in changes:
            new: Any = changes["target"], changes.get("directions")
            known["gram"] = self._gram_of(Target.of(*new).directions)
        for name in changes:
            choice("changes", name, [*known, "gram", "directions"])
        return Problem(**{**known, **changes})

    def _gram_of(self, k: int) -> np.ndarray:
        """The Gram matrix of k directions, the first of which are those that
        there are.
        """
        if k <= self.k:
            return self.P[:k, :k]
        if np.array_equal(self.P, np.eye(self.k)):
            return np.eye(k)
        raise InputError(
            f"Argument `gram` must be given with a target over {k} directions, "
            f"but that of the problem is for {self.k}: {short(self.P.tolist())}."
        )

    def _repr_html_(self) -> str:
        from twolayer.task.notebook import problem_html

        return problem_html(self)

    def __repr__(self) -> str:
        parts = {
            "target": repr(self.target.name),
            "activation": repr(self.activation.name),
            "width": str(self.width),
            "noise": f"{self.noise:g}",
            "gram": (
                "" if np.array_equal(self.P, np.eye(self.k)) else str(self.P.tolist())
            ),
            "second_layer": (
                "" if self.second_layer == "ones" else repr(self.second_layer)
            ),
            "normalisation": (
                "" if self.normalisation == "mean" else repr(self.normalisation)
            ),
            "noise_law": (
                "" if self.labels.law.name == "gaussian" else repr(self.labels.law.name)
            ),
            "flips": f"{self.labels.flips:g}" if self.labels.flips else "",
            "inputs": "" if self.inputs.plain else repr(self.inputs),
        }
        named = [f"{name}={text}" for name, text in parts.items() if text]
        return f"Problem({', '.join(named)})"


def check_gram(gram: object, k: int) -> np.ndarray:
    """P from the argument `gram`: the identity if it is left out."""
    if gram is None:
        return np.eye(k)
    P = finite_array("gram", gram)
    require(
        P.shape == (k, k),
        "gram",
        gram,
        f"a {k} × {k} matrix, one row for each direction of the target",
    )
    require(np.allclose(P, P.T, atol=1e-10), "gram", gram, "symmetric")
    lowest = float(np.linalg.eigvalsh(P)[0])
    if lowest < -1e-10 * max(1.0, float(np.abs(P).max())):
        raise InputError(
            "Argument `gram` must be positive semidefinite, but its smallest"
            f" eigenvalue is {lowest:.3g}."
        )
    return (P + P.T) / 2
