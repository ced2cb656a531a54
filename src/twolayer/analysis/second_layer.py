"""Layer-wise training: the second layer fitted by ridge regression after the first
layer took its steps.

    ĉ = argmin (1/2n₂) Σ_ν (y^ν − c·φ^ν)² + (τ/2)‖c‖²,    c = a/N,  φ = σ(λ),  τ = ρ N²
    n₂ → ∞:   c = H⁻¹ b,    H = K + τ I,   K = E[φ φᵀ],   b = E[y φ],
        risk = ½ (E[h²] + Δ − 2 c·b + cᵀ K c)
    n₂ ≫ p:   risk + (1/n₂) { ½ tr(K H⁻¹ V H⁻¹) + τ cᵀ H⁻¹ E[φ φᵀ H⁻¹ s] },
              s = (y − c·φ) φ − τ c,   V = E[s sᵀ]

The fit sees its samples through the fields alone, so everything is an average over (λ,
λ*) ~ N(0, Ω), and at given overlaps it holds for every d. With overlaps from a limit d
→ ∞ the width must stay finite: for p of the order of d the random part of the weights
acts as a kernel that Ω does not show.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from twolayer.gaussian.engines import Engine, select
from twolayer.gaussian.moments import check_start
from twolayer.gaussian.risk import irreducible
from twolayer.numerics import random
from twolayer.numerics.arguments import Variables
from twolayer.numerics.errors import (
    InputError,
    expect,
    finite_number,
    flag,
    positive_integer,
    require,
)
from twolayer.numerics.html import field_summary
from twolayer.numerics.precision import float64
from twolayer.numerics.quadrature_rules import Nodes, hermite_rule, sobol_normals
from twolayer.numerics.random import check_seed
from twolayer.numerics.types import Real, Tree
from twolayer.running.dataset import check_result, unpack
from twolayer.running.long_names import with_meanings
from twolayer.running.work_bounds import check_estimate
from twolayer.task.heavy_tails import infinite
from twolayer.task.losses import Loss
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["SecondLayer", "fit_second_layer", "layerwise", "simulate_second_layer"]

COST = 5e-8  # seconds for each number of a sample
# for the part of order 1/n₂
HERMITE_NODES = 40  # along each axis, where activation and target are smooth
MOST_AXES = 3  # up to which the product of such rules is taken
LOG2_POINTS = 17  # everywhere else
LARGEST = 1e300  # ρN², which is added to numbers of order one
CUTOFF = 1e-12  # relative size below which a direction of K carries no feature


@dataclass(frozen=True, eq=False)
class SecondLayer:
    """A fitted second layer; arrays have the leading axes of the overlaps.

    Attributes
    ----------
    a : array (..., p)
        The fit to infinitely many samples.
    risk, excess_risk : arrays (...)
        Its test risk ½ E[(y − f)²], and the same without Δ/2.
    excess_per_sample : array (...)
        What a fit to n₂ samples adds to the risk, times n₂, to first order in 1/n₂.

    Examples
    --------
    >>> fitted = SecondLayer(
    ...     np.array([1.0]), np.array(0.15), np.array(0.1), np.array(0.2)
    ... )
    >>> round(float(fitted.risk_at(100)), 6)
    0.152
    """

    a: np.ndarray
    risk: np.ndarray
    excess_risk: np.ndarray
    excess_per_sample: np.ndarray

    def __repr__(self) -> str:
        return field_summary(self, ("a", "risk", "excess_risk", "excess_per_sample"))

    def risk_at(self, samples: int) -> np.ndarray:
        """Mean test risk of a fit to n₂ = ``samples``, to first order in 1/n₂."""
        n = positive_integer("samples", samples)
        require(
            n > self.a.shape[-1],
            "samples",
            n,
            f"more than the width {self.a.shape[-1]}",
        )
        return np.asarray(self.risk + self.excess_per_sample / n)


@eqx.filter_jit
def _linear(engine: Engine, Q: Real, M: Real, layers: Real) -> Tree:
    """E[e σ] for the given second layers, and the excess risk of the first of them."""

    def at(point: tuple[jax.Array, jax.Array]) -> tuple[Real, Real]:
        averages = jax.vmap(lambda a: engine(point[0], point[1], a, 0.0))(layers)
        return averages.second, averages.excess_risk[0]

    return jax.lax.map(at, (Q, M))


def _checked(problem: Problem, start: Overlaps, ridge: float) -> tuple[Overlaps, float]:
    """The overlaps of the fields, and ρ."""
    expect(Problem, "problem", problem)
    expect(Overlaps, "start", start)
    check_start(problem, start)
    why = infinite(problem, Loss.of("squared"), 2)
    if why is not None:
        raise InputError(f"Argument `problem` has no ridge fit of finite risk: {why}.")
    accepted = f"a number ≥ 0 and ≤ {LARGEST:g}/N², N the divisor of the network"
    rho = finite_number("ridge", ridge, minimum=0.0, accepted=accepted)
    require(rho * problem.divisor**2 <= LARGEST, "ridge", ridge, accepted)
    return start.fields(problem.inputs), rho


def _statistics(
    problem: Problem, Q: np.ndarray, M: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """K (n, p, p), b (n, p) and E[h²] (n,), from the averages that move a second layer:
    E[e φ] = b − K a/N.
    """
    p = problem.p
    layers = np.concatenate([np.zeros((1, p)), problem.divisor * np.eye(p)])
    second, excess = map(
        np.asarray,
        _linear(select(problem, "squared").engine, *map(jnp.asarray, (Q, M, layers))),
    )
    b = second[:, 0]
    K = b[:, None, :] - second[:, 1:]
    return (K + K.transpose(0, 2, 1)) / 2, b, 2 * excess


@float64
def fit_second_layer(
    problem: Problem, start: Overlaps, ridge: float = 0.0
) -> SecondLayer:
    """The second layer that ridge regression on many fresh samples finds, and its test
    risk.

    Parameters
    ----------
    problem : Problem
        Its own second layer plays no role.
    start : Overlaps
        The first layer; leading axes hold several.
    ridge : float
        ρ, the weight of ‖a‖²/2 beside the mean loss.

    Examples
    --------
    >>> problem = Problem("z1**2", "square", noise=0.1)
    >>> fit = fit_second_layer(problem, Overlaps([[1.0]], [[0.8]]))
    >>> (
    ...     fit.a.round(4).tolist(),
    ...     round(float(fit.risk), 4),
    ...     round(float(fit.risk_at(1000)), 4),
    ... )
    ([0.76], 0.6836, 0.6862)
    """
    start, rho = _checked(problem, start, ridge)
    lead, p = start.batch, problem.p
    Q, M = start.Q.reshape(-1, p, p), start.M.reshape(-1, p, problem.k)
    K, b, square = _statistics(problem, Q, M)
    tau = rho * problem.divisor**2
    H = K + tau * np.eye(p)
    inverse = np.linalg.pinv(H, rcond=CUTOFF, hermitian=True)
    c = (inverse @ b[..., None])[..., 0]
    excess = (square - 2 * (c * b).sum(-1) + np.einsum("nj,njl,nl->n", c, K, c)) / 2
    points = zip(Q, M, K, c, inverse, strict=True)
    extra = np.array(
        [
            _excess_per_sample(problem, Overlaps(q, m, problem.P), k, x, i, tau)
            for q, m, k, x, i in points
        ]
    )
    found = (problem.divisor * c, excess + irreducible(problem), excess, extra)
    return SecondLayer(*(x.reshape((*lead, *x.shape[1:])) for x in found))


def _fields(
    problem: Problem, start: Overlaps, normals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Features φ (n, p) and targets h (n,) from normals (n, rank + p)."""
    L, A, B = start.factors()
    star, own = normals[:, : L.shape[1]], normals[:, L.shape[1] :]
    phi = problem.activation(jnp.asarray(star @ A.T + own @ B.T))
    return np.asarray(phi), np.asarray(problem.target(jnp.asarray(star @ L.T)))


def _nodes(problem: Problem, rank: int) -> Nodes:
    """Points (n, rank + p) and weights for averages of fourth powers of fields."""
    axes = rank + problem.p
    kinks = problem.target.kinks
    smooth = kinks is not None and not any(kinks) and not problem.activation.kinks
    if smooth and axes <= MOST_AXES:
        return hermite_rule([HERMITE_NODES] * axes)
    points = sobol_normals(axes, LOG2_POINTS)
    return Nodes(points, np.full(len(points), 1 / len(points)))


def _excess_per_sample(
    problem: Problem,
    start: Overlaps,
    K: np.ndarray,
    c: np.ndarray,
    inverse: np.ndarray,
    tau: float,
) -> float:
    """½ tr(K H⁻¹ V H⁻¹) + τ cᵀ H⁻¹ E[φ φᵀ H⁻¹ s].

    By Gauss–Hermite nodes for few smooth fields, whose eighth moments points cannot
    follow, and by Sobol points for others.
    """
    points, weights = _nodes(problem, start.factors()[0].shape[1])
    phi, h = _fields(problem, start, points)
    weighted = weights[:, None] * phi
    keep = problem.labels.keep
    residual = keep * h - phi @ c
    s = residual[:, None] * phi - tau * c
    V = (
        (weights[:, None] * s).T @ s
        + problem.noise * K
        + weighted.T @ ((1 - keep**2) * h[:, None] ** 2 * phi)
    )
    drag = weighted.T @ ((phi @ inverse) * s).sum(1)
    return float(np.trace(K @ inverse @ V @ inverse) / 2 + tau * c @ inverse @ drag)


@float64
def simulate_second_layer(
    problem: Problem,
    start: Overlaps,
    samples: int,
    ridge: float = 0.0,
    seeds: int = 16,
    seed: int = 0,
    *,
    force: bool = False,
) -> np.ndarray:
    """Test risks of second layers fitted to finitely many samples, each seed to its
    own.

    Parameters
    ----------
    problem : Problem
        The task; its second layer is not used.
    start : Overlaps
        A single first layer.
    samples : int
        n₂; more than the width where there is no ridge.
    ridge : float
        ρ.
    seeds, seed : int
        Number of fits, and the seed of their samples.
    force : bool
        As for `solve`.

    Examples
    --------
    >>> risks = simulate_second_layer(
    ...     Problem("z1**2", "square"), Overlaps([[1.0]], [[0.8]]), samples=100, seeds=3
    ... )
    >>> bool(
    ...     (
    ...         risks
    ...         >= fit_second_layer(
    ...             Problem("z1**2", "square"), Overlaps([[1.0]], [[0.8]])
    ...         ).risk
    ...     ).all()
    ... )
    True
    """
    start, rho = _checked(problem, start, ridge)
    if start.batch:
        raise InputError(
            f"Argument `start` must be a single point, but holds {start.batch[0]}."
        )
    n, p = positive_integer("samples", samples), problem.p
    require(rho > 0 or n > p, "samples", n, f"more than the width {p} where ridge = 0")
    seed, seeds = check_seed(seed), positive_integer("seeds", seeds)
    width = start.factors()[0].shape[1] + p + 1
    if not flag("force", force):
        numbers = float(n) * width
        check_estimate(
            seeds * (1e-3 + COST * numbers),
            32 * numbers,
            f"{n} samples of {width} numbers, {seeds} seeds",
        )
    K, b, square = (x[0] for x in _statistics(problem, start.Q[None], start.M[None]))
    risks = []
    for run in range(seeds):
        normals = random.host_normal(seed, random.Role.FIELDS, n * width, run).reshape(
            n, width
        )
        phi, h = _fields(problem, start, normals[:, :-1])
        spoilt = problem.labels.spoil(normals[:, -1], problem.noise)
        y = np.asarray(spoilt.sign) * h + np.asarray(spoilt.shift)
        c = np.linalg.solve(
            phi.T @ phi / n + rho * problem.divisor**2 * np.eye(p), phi.T @ y / n
        )
        risks.append((square - 2 * c @ b + c @ K @ c) / 2 + irreducible(problem))
    return np.array(risks)


@float64
def layerwise(result: xr.Dataset, ridge: float = 0.0) -> xr.Dataset:
    """Test risk after layer-wise training: the second layer fitted at every save point
    of a run.

    Parameters
    ----------
    result : xarray.Dataset
        From `solve`.
    ridge : float
        ρ.

    Returns
    -------
    xarray.Dataset
        ``a`` (seed, time, neuron), ``risk``, ``excess_risk`` and ``excess_per_sample``
        (seed, time), on the clocks of the result.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("z1**2", "square"),
    ...     tl.SGD(lr="0.05/d", geometry="projected"),
    ... )
    >>> run = tl.solve(
    ...     problem,
    ...     algorithm,
    ...     tl.Chain(20),
    ...     tl.Overlaps([[1.0]], [[0.1]]),
    ...     steps=9,
    ...     save=3,
    ... )
    >>> layerwise(run).risk.shape, bool((layerwise(run).risk < run.risk).all())
    ((1, 4), True)
    """
    check_result(result, "result")
    known = unpack(result)
    problem: Problem = known["problem"]
    lead = result.a.shape[:2]
    Q, M = (x.values.reshape(-1, *x.shape[2:]) for x in (result.Q, result.M))
    # overlaps of the fields say everything, whatever the inputs
    fit = fit_second_layer(
        problem.replace(inputs=None), Overlaps(Q, M, problem.P), ridge
    )
    names = ("risk", "excess_risk", "excess_per_sample")
    variables: Variables = {
        name: (("seed", "time"), getattr(fit, name).reshape(lead)) for name in names
    }
    variables["a"] = ("seed", "time", "neuron"), fit.a.reshape(result.a.shape)
    clocks = ("seed", "neuron", "time", "step", "sample", "alpha")
    return with_meanings(
        xr.Dataset(variables, {name: result.coords[name] for name in clocks})
    )
