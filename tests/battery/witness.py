"""Brute force: the averages of a task at a point in NumPy, with a standard error, by the rule that fits.

    exact     polynomials and a loss that is linear: a product of Gauss–Hermite rules over all fields
    panels    one neuron, one direction, linear loss: Gauss–Legendre panels in both fields, split at every kink; towards
              a singularity by r = w t^25. The error is the change against rules of three quarters of the order
    lattice   all else, label noise included: a Korobov lattice, shifted at random 32 times. Means of the shifts are
              independent and unbiased, whatever the integrand is, and their spread is the standard error

    psi_jr = E[ĝ_j λ*_r],  phi_jl = E[ĝ_j λ_l],  chi_jl = E[ĝ_j ĝ_l],  second_j = E[e σ(λ_j)],  risk = ½ E[((1−2q) h − f)²]

Where tails are heavy the lattice is drawn out by a factor, and its points are weighted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import special

from .functions import Array
from .grammar import RATE, Point, Task, exact_nodes

NAMES = ("psi", "phi", "chi", "second", "excess_risk")
SHIFTS = 32
POINTS, GENERATOR = 8191, 5130  # of the first look
MORE, MORE_GENERATOR = 65521, 8950  # where that finds something
COLUMNS = 11
REACH = 12.0
ROUNDING = 1e-13
RARE = 20.0  # times 1/points: an event that none of them shows, with chance 1e-9
SINGULAR_POWER = 25


class Means(NamedTuple):
    """The averages, or what stands for each of them."""

    psi: Array
    phi: Array
    chi: Array
    second: Array
    excess_risk: Array


@dataclass(frozen=True)
class Witness:
    """Values and their standard errors, what rounding may add, and degrees of freedom (infinite: a bound)."""

    rule: str
    value: Means
    error: Means
    rounding: Means
    freedom: float


def witness(task: Task, point: Point, more: int = 0) -> Witness:
    """The averages by brute force; ``more`` > 0 asks for a lattice of more points and other shifts."""
    linear = task.linear is not None
    if linear and task.sigma.degree is not None and task.target.degree is not None:
        return _exact(task, point)
    if linear and task.p == task.target.k == 1:
        return _panels(task, point)
    return _lattice(task, point, more)


def _signs(task: Task) -> list[tuple[float, float]]:
    return [(1 - task.flips, 1.0), (task.flips, -1.0)] if task.flips else [(1.0, 1.0)]


def _sums(
    task: Task, at: Array, star: Array, h: Array, w: Array, noise: float, a: Array
) -> tuple[Means, Means]:
    """Σ w F over nodes (…, n), and Σ w |F|, of a linear loss, with e and e² averaged over labels by hand."""
    s, keep = task.linear, 1 - 2 * task.flips
    assert s is not None and task.sigma.slope is not None
    sigma, slope = task.sigma.value(at), a * task.sigma.slope(at)
    f = sigma @ a / task.N
    e = keep * h - s * f
    square = (
        sum(chance * (sign * h - s * f) ** 2 for chance, sign in _signs(task)) + noise
    )
    return _means(w, e, square, slope, sigma, star, at, keep * h - f)


def _means(
    w: Array,
    e: Array,
    square: Array,
    slope: Array,
    sigma: Array,
    star: Array,
    at: Array,
    rest: Array,
) -> tuple[Means, Means]:
    """All averages of a push e·slope."""

    def dot(x: Array, y: Array) -> Array:
        return np.swapaxes(x, -1, -2) @ y

    def averages(
        weighted: Array, weighted_square: Array, *fields: Array
    ) -> tuple[Array, ...]:
        slope, sigma, star, at = fields
        first = weighted[..., None] * slope
        return (
            dot(first, star),
            dot(first, at),
            dot(weighted_square[..., None] * slope, slope),
            (weighted[..., None] * sigma).sum(-2),
        )

    risk = (w * rest**2).sum(-1) / 2
    value = Means(*averages(w * e, w * square, slope, sigma, star, at), risk)
    size = Means(
        *averages(
            *(abs(w) * abs(x) for x in (e, square)), *map(abs, (slope, sigma, star, at))
        ),
        abs(risk),
    )
    return value, size


def _exact(task: Task, point: Point) -> Witness:
    x, w = np.polynomial.hermite_e.hermegauss(exact_nodes(task))
    w = w / w.sum()
    r, p = point.L.shape[1], task.p
    grid = np.stack([g.ravel() for g in np.meshgrid(*[x] * (r + p), indexing="ij")], -1)
    weights = np.prod(
        np.stack([g.ravel() for g in np.meshgrid(*[w] * (r + p), indexing="ij")], -1),
        -1,
    )
    star, at = (
        grid[:, :r] @ point.L.T,
        grid[:, :r] @ point.A.T + grid[:, r:] @ point.B.T,
    )
    value, size = _sums(
        task, at, star, task.target.value(star), weights, point.noise, point.a
    )
    nothing = Means(*(0 * v for v in value))
    return Witness(
        "exact", value, nothing, Means(*(ROUNDING * v for v in size)), math.inf
    )


def _legendre(edges: Array, order: int) -> tuple[Array, Array]:
    """Nodes and weights between sorted edges (…, e), without the Gaussian."""
    t, v = np.polynomial.legendre.leggauss(order)
    half = np.diff(edges, axis=-1)[..., None] / 2
    middle = (edges[..., 1:] + edges[..., :-1])[..., None] / 2
    shape = (*edges.shape[:-1], -1)
    return (middle + half * t).reshape(shape), (half * v).reshape(shape)


def _gauss(x: Array) -> Array:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _outer(task: Task, point: Point, order: int) -> tuple[Array, Array, Array]:
    """Nodes ξ*, weights, and what the target takes there: λ*, or the distance from where it is infinite."""
    A, B, L = point.A[0, 0], float(np.linalg.norm(point.B)), point.L[0, 0]
    step = min(0.5, 1.5 / max(math.hypot(A, B), L, 1e-3))
    ends = [
        *np.linspace(-REACH, REACH, 2 * math.ceil(REACH / step) + 1),
        *(c / L for c in task.target.kinks),
    ]
    for kink in task.sigma.kinks:
        if abs(A) > 1e-12:
            spread = min(B / abs(A), 3.0)
            around = np.array([0, 0.1, 0.25, 0.5, 1, 2, 4, 8]) * spread
            ends += [kink / A + side * x for x in around for side in (-1, 1)]
    edges = np.unique(np.clip(ends, -REACH, REACH))
    singular = task.target.singular
    if singular is None:
        x, w = _legendre(edges, order)
        return x, w * _gauss(x), L * x
    distances, weights = [], []
    for low, high in pairwise(edges - singular / L):
        if (low >= 0 and low < 1e-9) or (high <= 0 and high > -1e-9):
            t, v = _legendre(np.linspace(0, 1, 9), order)
            far = high if low >= 0 else low
            distances.append(far * t**SINGULAR_POWER)
            weights.append(v * abs(far) * SINGULAR_POWER * t ** (SINGULAR_POWER - 1))
        else:
            x, w = _legendre(np.array([low, high]), order)
            distances.append(x)
            weights.append(w)
    r, w = np.concatenate(distances), np.concatenate(weights)
    x = r + singular / L
    return x, w * _gauss(x), L * r


def _panel_sums(task: Task, point: Point, order: int) -> tuple[Means, Means]:
    A, B = point.A[0, 0], float(np.linalg.norm(point.B))
    x, w, argument = _outer(task, point, order)
    h, star = task.target.value(argument[:, None]), x * point.L[0, 0]
    step = min(1.0, 1.5 / max(B, 1e-3))
    fixed = np.linspace(-REACH, REACH, 2 * math.ceil(REACH / step) + 1)
    ends = np.broadcast_to(fixed, (len(x), len(fixed)))
    if B > 0:
        cuts = [np.clip((kink - A * x) / B, -REACH, REACH) for kink in task.sigma.kinks]
        ends = np.sort(
            np.concatenate([ends, *(c[:, None] for c in cuts)], axis=1), axis=1
        )
    eta, v = _legendre(ends, order)
    v = v * _gauss(eta)
    at = (A * x[:, None] + B * eta)[..., None]
    wide = np.broadcast_to
    return _sums(
        task,
        at.reshape(-1, 1),
        wide(star[:, None, None], at.shape).reshape(-1, 1),
        wide(h[:, None], eta.shape).ravel(),
        (w[:, None] * v).ravel(),
        point.noise,
        point.a,
    )


def _panels(task: Task, point: Point) -> Witness:
    value, size = _panel_sums(task, point, 12)
    coarse, _ = _panel_sums(task, point, 9)
    error = Means(*(abs(x - y) for x, y in zip(value, coarse, strict=True)))
    return Witness(
        "panels", value, error, Means(*(ROUNDING * x for x in size)), math.inf
    )


@lru_cache(maxsize=4)
def _cube(points: int, generator: int, shift: int) -> Array:
    """A Korobov lattice (points, COLUMNS), shifted at random; the second half of each axis is folded back."""
    rng = np.random.default_rng([2027, points, shift])
    powers = [1]
    for _ in range(COLUMNS - 1):
        powers.append(powers[-1] * generator % points)
    u = (
        np.arange(points)[:, None] * np.array(powers) % points / points
        + rng.random(COLUMNS)
    ) % 1.0
    return np.clip(1 - np.abs(2 * u - 1), 1e-300, 1 - 1e-16)


@lru_cache(maxsize=160)
def _normals(points: int, generator: int, shift: int) -> Array:
    return special.ndtri(_cube(points, generator, shift))[:, 1:]


@lru_cache(maxsize=320)
def _noise(law: str, points: int, generator: int, shift: int) -> Array:
    """ξ of the label noise, by its quantile, from the first column."""
    u = _cube(points, generator, shift)[:, 0]
    if law == "gaussian":
        return special.ndtri(u)
    if law == "uniform":
        return math.sqrt(3) * (2 * u - 1)
    if law == "laplace":
        low = np.minimum(u, 1 - u)
        return np.sign(u - 0.5) * -np.log(2 * low) / math.sqrt(2)
    nu = 1.0 if law == "cauchy" else float(law[8:-1])
    scale = math.sqrt((nu - 2) / nu) if nu > 2 else 1.0
    return scale * special.stdtrit(nu, u)


def _widths(task: Task, r: int) -> Array:
    """By how much the lattice is drawn out along every ξ."""
    both, own = max(task.target.growth, task.sigma.growth), task.sigma.growth
    steep = task.loss == "exponential" and task.sigma.growth > 0
    inside = 1.8 if both > 1 or steep else 1.0
    outside = 1.6 if own > 1 or steep else 1.0
    return np.array([inside] * r + [outside] * task.p)


def residual(loss: str) -> Callable[[Array, Array], Array]:
    """E of labels and outputs, −∂ℓ/∂f."""
    table: dict[str, Callable[[Array, Array], Array]] = {
        "squared": lambda y, f: y - f,
        "correlation": lambda y, f: y + 0 * f,
        "logistic": lambda y, f: y * special.expit(-y * f),
        "hinge": lambda y, f: np.where(y * f < 1, y, 0.0),
        "exponential": lambda y, f: y * np.exp(-y * f),
        "huber": lambda y, f: np.clip(y - f, -1, 1),
        "huber(0.5)": lambda y, f: np.clip(y - f, -0.5, 0.5),
        "quantile_of_battery": lambda y, f: np.where(y > f, 0.9, -0.1),
    }
    return table[loss]


def _ruled(task: Task, g: Array, e: Array, at: Array, y: Array, a: Array) -> Array:
    """What a rule makes of the gradients g (n, p) of single samples as d → ∞."""
    if task.rule is None:
        return g
    norm = np.linalg.norm(g, axis=-1, keepdims=True)
    safe = np.where(norm > 0, norm, 1.0)

    def ahead(factor: float) -> Array:
        moved = at + factor / task.N * g
        f = task.sigma.value(moved) @ a / task.N
        assert task.sigma.slope is not None
        return a * task.sigma.slope(moved) * residual(task.loss)(y, f)[..., None]

    if task.rule in ("clip(0.4)", "private(0.5, 0.4)"):
        return g * np.minimum(1.0, 0.4 / safe)
    if task.rule == "normalised()":
        return np.where(norm > 0, g / safe, 0.0)
    if task.rule == "sign()":
        return np.sign(g)
    if task.rule == "hebb_of_battery()":
        return e[..., None] * np.tanh(at)
    if task.rule == "formula('g/(1 + norm)')":
        return g / (1 + norm)
    if task.rule == "formula('g*exp(-e**2)')":
        return g * np.exp(-(e[..., None] ** 2))
    if task.rule == "polyak(0.5)":
        return g * np.minimum(1.0, task.N**2 * e[..., None] ** 2 / (RATE * safe**2))
    if task.rule == "lookahead(0.5/d)":
        return ahead(0.5)
    if task.rule == "two_step()":
        return g + ahead(RATE)
    return g


def _beside(task: Task, star: Array) -> Array:
    """λ*, whose first column is counted from the place where the target is infinite."""
    if task.target.singular is None:
        return star
    return star - task.target.singular * np.eye(task.target.k)[0]


def _one_shift(task: Task, point: Point, lattice: tuple[int, int, int]) -> Means:
    r, p = point.L.shape[1], task.p
    widths = _widths(task, r)
    x = _normals(*lattice)[:, : r + p]
    weights = np.full(len(x), 1 / len(x))
    if (widths > 1).any():
        weights = weights * np.prod(widths) * np.exp(-(x**2) @ (widths**2 - 1) / 2)
        x = x * widths
    star, at = x[:, :r] @ point.L.T, x[:, :r] @ point.A.T + x[:, r:] @ point.B.T
    h, a = task.target.value(_beside(task, star)), point.a
    if task.linear is not None:
        return _sums(task, at, star, h, weights, point.noise, a)[0]
    assert task.sigma.slope is not None
    shift = math.sqrt(point.noise) * _noise(task.law, *lattice) if task.noisy else 0.0
    sigma, slope = task.sigma.value(at), a * task.sigma.slope(at)
    f, total = sigma @ a / task.N, None
    for chance, sign in _signs(task):
        y = sign * h + shift
        e = residual(task.loss)(y, f)
        push = _ruled(task, slope * e[..., None], e, at, y, a)
        w = chance * weights
        # the push itself is the slope of a residual 1, so that its averages are those of one
        ones = np.ones_like(e)
        value, _ = _means(
            w, ones, ones, push, sigma, star, at, (1 - 2 * task.flips) * h - f
        )
        value = value._replace(second=(w * e) @ sigma)
        if task.rule == "sign()":
            # E[sign(g x + x')] of a coordinate x among many is √(2/π) g x / |x'|
            factor = math.sqrt(2 / math.pi)
            value = value._replace(psi=factor * value.psi, phi=factor * value.phi)
        total = (
            value
            if total is None
            else Means(*(t + v for t, v in zip(total, value, strict=True)))
        )
    assert total is not None
    return total


def _lattice(task: Task, point: Point, more: int) -> Witness:
    size = (MORE, MORE_GENERATOR) if more else (POINTS, GENERATOR)
    first = SHIFTS * more
    parts = [_one_shift(task, point, (*size, first + i)) for i in range(SHIFTS)]
    stacked = [
        np.stack([np.asarray(x) for x in column]) for column in zip(*parts, strict=True)
    ]
    value = Means(*(x.mean(0) for x in stacked))
    error = Means(*(x.std(0, ddof=1) / math.sqrt(SHIFTS) for x in stacked))
    rare = _unseen(point, value, SHIFTS * size[0])
    # where every point finds nothing, what happens at fewer than one of them is unknown
    rounding = Means(
        *(
            ROUNDING * abs(x).max(0) + np.where((x == 0).all(0), unseen, 0.0)
            for x, unseen in zip(stacked, rare, strict=True)
        )
    )
    return Witness("lattice", value, error, rounding, SHIFTS - 1)


def _unseen(point: Point, value: Means, points: int) -> Means:
    """What an event at one of so many points adds, with fields, labels and slopes of
    their usual sizes.
    """
    e = math.sqrt(2 * float(value.excess_risk) + point.noise)
    own = np.sqrt((point.A**2).sum(1) + (point.B**2).sum(1))
    star = np.sqrt((point.L**2).sum(1))
    a = abs(point.a)
    sizes = (
        e * np.outer(a, star),
        e * np.outer(a, own),
        e**2 * np.outer(a, a),
        e * own,
        np.asarray(e**2),
    )
    return Means(*(RARE * x / points for x in sizes))
