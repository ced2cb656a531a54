"""The landscape of a single-index task: how the population loss depends on the overlap
m of student and target.

    φ(m) = E ℓ = const − Σ_l c_l(aσ) c_l(h) m^l
        squared and correlation loss, unit student and target
    information exponent
        k = min { l ≥ 1 : φ^(l)(0) ≠ 0 } = min { l ≥ 1 : c_l(σ) c_l(h) ≠ 0 }
    spherical flow, τ = (δ/N)·steps:   ṁ = −φ'(m)(1 − m²) − ½ δ V(m) m ≈ C m^{k−1},
        C = −φ^(k)(0)/(k−1)!
    α_c(N, k) = 1, log N, N^{k−2}      for k = 1, 2, ≥ 3:
        recovery takes of the order of α_c N samples
    strong recovery is proved for α ≫ 1, log² N, N^{k−2} log² N, and excluded,
        as weak recovery is, for α ≪ α_c
    steps:  δ < 2 C m0^{k−2}/V(0),  m0 = N^{−1/2},  V = a² E[σ'² e²]

The last line is what the normalisation of each step costs: it pulls m back at the rate
½ δ V m, and near a random start only steps below it leave the growth C m^{k−1} the
stronger one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from twolayer.functions.hermite import gauss_panels, hermite_coefficients
from twolayer.gaussian.engines import Engine, select
from twolayer.gaussian.nodes import vanishes
from twolayer.numerics.arguments import Array, finite_array
from twolayer.numerics.errors import (
    InputError,
    choice,
    expect,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.html import card, curves, field_summary
from twolayer.numerics.precision import float64
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem

__all__ = [
    "PopulationLoss",
    "critical_alpha",
    "population_loss",
    "require_single_index",
    "sufficient_alpha",
]

DEGREE = 100  # of the series of activations that are no polynomials
ZERO = (
    1e-9  # products of coefficients below this, relative to the largest, count as zero
)
ORDER = 24  # nodes per panel of the averages
RADIUS, POINTS = 0.7, 40  # interpolation of the averages, for their higher derivatives
ROUTES = ("series", "averages")


def critical_alpha(dim: int, ell: int) -> float:
    """α_c(N, ℓ): 1, log N or N^{ℓ−2}, the samples per dimension that recovery takes
    with information exponent ℓ.

    Parameters
    ----------
    dim, ell : int
        N ≥ 2, the dimension, and ℓ ≥ 1, the information exponent.

    Examples
    --------
    >>> (
    ...     critical_alpha(1000, 1),
    ...     round(critical_alpha(1000, 2), 3),
    ...     critical_alpha(1000, 4),
    ... )
    (1.0, 6.908, 1000000.0)
    """
    n, ell = positive_integer("dim", dim, 2), positive_integer("ell", ell)
    return math.log(n) if ell == 2 else float(n) ** max(ell - 2, 0)


def sufficient_alpha(dim: int, ell: int) -> float:
    """1, log² N or N^{ℓ−2} log² N: samples per dimension far beyond which strong
    recovery is proved.

    They exceed `critical_alpha`, far below which even weak recovery is excluded, by a
    logarithm for ℓ = 2 and by two for ℓ ≥ 3; what is needed lies in between.

    Parameters
    ----------
    dim, ell : int
        As for `critical_alpha`.

    Examples
    --------
    >>> [
    ...     round(sufficient_alpha(1000, ell) / critical_alpha(1000, ell), 3)
    ...     for ell in (1, 2, 3)
    ... ]
    [1.0, 6.908, 47.717]
    """
    n, ell = positive_integer("dim", dim, 2), positive_integer("ell", ell)
    return 1.0 if ell == 1 else float(n) ** (ell - 2) * math.log(n) ** 2


def require_single_index(problem: Problem) -> float:
    """Refuse what is not one neuron and one unit direction; the second layer of that
    neuron.
    """
    expect(Problem, "problem", problem)
    problem.require_isotropic("The theory of recovery")
    if problem.p != 1 or problem.k != 1:
        raise InputError(
            "Argument `problem` must be a single-index task, one neuron and one"
            f" direction, but has {problem.p} and {problem.k}."
        )
    if abs(problem.P[0, 0] - 1) > 1e-12:
        raise InputError(
            "Argument `problem` must have a target direction of norm 1, but has"
            f" {problem.P[0, 0]:g}."
        )
    if isinstance(problem.second_layer, str) and problem.second_layer != "ones":
        reject(
            "second_layer",
            problem.second_layer,
            "a given number, not a random one, for a population loss",
        )
    return float(problem.a()[0])


@eqx.filter_jit
def _averages(engine: Engine, m: Array, a: Real) -> Tree:
    def one(m: jax.Array) -> tuple[jax.Array, jax.Array]:
        gradient = engine.gradient(jnp.ones((1, 1)), m.reshape(1, 1), a, 0.0)
        return a[0] * gradient.second[0], gradient.star[0, 0]

    return jax.lax.map(one, m)


@eqx.filter_jit
def _noises(engine: Engine, m: Real, a: Real, noise: Number) -> jax.Array:
    return jax.lax.map(
        lambda m: engine(jnp.ones((1, 1)), m.reshape(1, 1), a, noise).chi[0, 0], m
    )


@dataclass(frozen=True, eq=False)
class PopulationLoss:
    """φ(m) of a single-index task, by two routes: its Hermite series, and Gaussian
    averages at m.

    Attributes
    ----------
    problem : Problem
        One neuron, one direction.
    loss : Loss
        Squared or correlation.
    products : array
        c_l(aσ) c_l(h), l = 0, 1, …
    constant : float
        φ + Σ_l products_l m^l, which does not depend on m.
    engine : Engine
        Takes the averages.

    Examples
    --------
    >>> landscape = population_loss(Problem("h3(z1)", "h3"))
    >>> landscape.information, landscape.even, round(landscape.growth, 6)
    (3, False, 3.0)
    """

    problem: Problem
    loss: Loss
    products: np.ndarray
    constant: float
    engine: Engine

    def __repr__(self) -> str:
        return field_summary(self, ("problem", "information", "growth"))

    def _repr_html_(self) -> str:
        m = np.linspace(0.0, 0.995, 60)
        rows = [
            ("information exponent", str(self.information)),
            ("growth", f"{self.growth:.4g}"),
        ]
        rows.append(("descends to m = 1", "yes" if self.descends else "no"))
        return card(
            "Population loss", "", rows, curves(m, [self.phi(m, "series")], ("m", "φ"))
        )

    @staticmethod
    def _checked(m: Array) -> np.ndarray:
        x = finite_array("m", m)
        require(bool((np.abs(x) <= 1).all()), "m", m, "an overlap, from −1 to 1")
        return x

    def _at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E[h aσ] and its derivative by averages."""
        value, slope = float64(_averages)(self.engine, x.reshape(-1), self.problem.a())
        return np.asarray(value).reshape(x.shape), np.asarray(slope).reshape(x.shape)

    def phi(self, m: Array, route: str = "averages") -> np.ndarray:
        """φ at ``m``, by a ``route`` as for `derivative`.

        By its series it is precise away from |m| = 1 only, unless σ or h is a
        polynomial.
        """
        return self.derivative(m, 0, route)

    def derivative(self, m: Array, n: int = 1, route: str = "averages") -> np.ndarray:
        """The n-th derivative of φ at m; by averages and for n ≥ 2 from an
        interpolation, for |m| ≤ ½.

        Parameters
        ----------
        m : float or array
            Overlaps, from −1 to 1.
        n : int
            Order ≥ 0.
        route : str
            ``"averages"`` or ``"series"``.
        """
        n, series = (
            positive_integer("n", n, 0),
            choice("route", route, ROUTES) == "series",
        )
        x = self._checked(m)
        if series:
            return np.asarray(
                (0.0 if n else self.constant) - Polynomial(self.products).deriv(n)(x)
            )
        if n >= 2:
            require(
                bool((np.abs(x) <= 0.5).all()),
                "m",
                m,
                "an overlap from −½ to ½ for n ≥ 2",
            )
            return np.asarray(self._interpolation.deriv(n - 1)(x))
        value, slope = self._at(x)
        return np.asarray(-slope if n else self.constant - value)

    @cached_property
    def _interpolation(self) -> Chebyshev:
        """φ' on |m| ≤ RADIUS."""
        return Chebyshev.interpolate(
            lambda x: -self._at(x)[1], POINTS, domain=[-RADIUS, RADIUS]
        )

    def information_by(self, route: str) -> int:
        """The information exponent from the derivatives of φ at 0, by either
        ``route``.
        """
        if choice("route", route, ROUTES) == "series":
            terms = self.products[1:]
        else:
            terms = np.array(
                [
                    -float(self.derivative(0.0, n, route)) / math.factorial(n)
                    for n in range(1, 9)
                ]
            )
        # interpolation loses digits with every derivative
        floor = (
            ZERO
            * np.abs(self.products[1:]).max(initial=0.0)
            * (1.0 if route == "series" else 1e3)
        )
        found = np.flatnonzero(np.abs(terms) > max(floor, 1e-12))
        if not found.size:
            raise InputError(
                "Argument `problem` must have a loss that depends on the overlap, but"
                f" {self.problem.activation.name} and {self.problem.target.name} have"
                " no Hermite polynomial in common."
            )
        return int(found[0]) + 1

    @property
    def information(self) -> int:
        """The information exponent k."""
        return self.information_by("series")

    @property
    def even(self) -> bool:
        """Whether φ(−m) = φ(m): the target is then recovered up to its sign."""
        odd = self.products[1::2]
        return bool(
            np.abs(odd).max(initial=0.0)
            <= ZERO * np.abs(self.products[1:]).max(initial=0.0)
        )

    @property
    def growth(self) -> float:
        """C in ṁ ≈ C m^{k−1}; negative where m = 0 repels no positive overlap."""
        k = self.information
        return float(k * self.products[k])

    @property
    def descends(self) -> bool:
        """Whether φ' < 0 on (0, 1), the assumption under which weak recovery leads to
        strong recovery.
        """
        m = np.linspace(0.0, 1.0, 401)[1:-1]
        return bool((self.derivative(m) < 0).all())

    def flow(self, m: Array, step: float = 0.0) -> np.ndarray:
        """ṁ at ``m``, per unit of τ = (δ/N)·steps as N → ∞; ``step`` is δ = N·lr, 0 for
        the limit of small steps.
        """
        x = self._checked(m)
        free = -self.derivative(x) * (1 - x**2)
        return np.asarray(free - step / 2 * self.noise(x) * x if step else free)

    def time(self, start: float, end: float, step: float = 0.0) -> float:
        """The τ that the flow takes from overlap ``start`` to ``end`` > start inside
        (−1, 1); ``step`` as for `flow`.

        Examples
        --------
        >>> loss = population_loss(Problem("h2(z1)", "h2"))
        >>> round(loss.time(0.1, 0.5) / (0.25 * math.log(0.25 / 0.75 * 0.99 / 0.01)), 9)
        1.0
        """
        require(
            -1 < start < end < 1,
            "start",
            start,
            f"an overlap below the end, {end}, both inside (−1, 1)",
        )
        m = np.linspace(start, end, 401)
        grows = self.flow(m, step) > 0
        if not grows.all():
            stuck = float(m[np.argmin(grows)])
            raise InputError(
                "Argument `start` must be below the end along the flow, but m does not"
                f" grow at {stuck:.3g}."
            )
        # the speed spans orders of magnitude near a random start: equal parts of log m
        points, weights = np.polynomial.legendre.leggauss(20)
        edges = (
            np.geomspace(start, end, 65) if start > 0 else np.linspace(start, end, 257)
        )
        half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        speed = self.flow(
            (middle[:, None] + half[:, None] * points).ravel(), step
        ).reshape(len(half), -1)
        return float((half[:, None] * weights / speed).sum())

    def noise(self, m: Array = 0.0) -> np.ndarray:
        """V(m) = a² E[σ'² e²] at overlaps ``m``, label noise included; 0 is a random
        start.
        """
        x = self._checked(m)
        engine = select(self.problem, self.loss, order=ORDER).engine
        values = float64(_noises)(
            engine, x.reshape(-1), self.problem.a(), self.problem.noise
        )
        return np.asarray(values).reshape(x.shape)

    def largest_step(self, dim: int) -> float:
        """δ up to which m grows from N^{−1/2} against the pull of the normalisation;
        infinite for k = 1.

        Refused where m does not grow at all, `growth` < 0; ``dim`` is N.

        Examples
        --------
        >>> round(population_loss(Problem("z1**2", "square")).largest_step(1000), 6)
        0.166667
        """
        k, n = self.information, positive_integer("dim", dim, 2)
        if self.growth < 0:
            raise InputError(
                "Argument `problem` must have an overlap that grows from a random"
                f" start, but the loss rises there: ṁ ≈ {self.growth:.4g}·m^{k - 1}"
                " whatever the step."
            )
        return (
            float("inf")
            if k == 1
            else float(2 * self.growth * n ** (-(k - 2) / 2) / self.noise())
        )


@float64
def population_loss(problem: Problem, loss: str | Loss = "squared") -> PopulationLoss:
    """The population loss of a single-index task as a function of the overlap.

    Parameters
    ----------
    problem : Problem
        One neuron, one direction of norm 1.
    loss : str or Loss
        ``"squared"`` or ``"correlation"``.

    Examples
    --------
    >>> loss = population_loss(Problem("h3(z1)", "h3"))
    >>> loss.information, loss.phi([0.0, 0.5, 0.8]).round(6).tolist()
    (3, [1.0, 0.875, 0.488])
    """
    a = require_single_index(problem)
    loss = Loss.of(loss)
    if loss.student is None:
        raise InputError(
            f"Argument `loss` must be 'squared' or 'correlation', but {loss.name!r} is"
            " known by its slope."
        )
    sigma, target = problem.activation, problem.target
    if vanishes(target, problem.P):
        raise InputError(
            "Argument `target` must not be zero, for there is no direction to learn,"
            f" but got {target.name}."
        )
    kinks = target.kinks[0] if target.kinks is not None else ()

    def h(x: Array) -> np.ndarray:
        return np.asarray(target(jnp.asarray(x)[..., None]))

    degrees = [len(sigma.polynomial) - 1 if sigma.polynomial is not None else DEGREE]
    degrees += [
        max(map(sum, target.polynomial)) if target.polynomial is not None else DEGREE
    ]
    products = (
        a * sigma.hermite(min(degrees)) * hermite_coefficients(h, min(degrees), kinks)
    )
    constant = 0.0
    if loss.student:
        x, w = gauss_panels((*kinks, *sigma.kinks))
        constant = (
            float(
                w @ (h(x) ** 2 + (a * np.asarray(sigma(jnp.asarray(x)))) ** 2)
                + problem.noise
            )
            / 2
        )
    engine = select(problem, "correlation", order=ORDER).engine
    return PopulationLoss(problem, loss, products, constant, engine)
