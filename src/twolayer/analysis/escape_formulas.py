"""The formulas of escape alone: nothing is integrated in time, and the width may be
anything up to infinity.

    c = 4 (1 − ρ C_p),   C_p = 1 + 1/p + 4/p² + Δ/2,   ρ = d·lr/(p n_b),
        steps = t d/(ρ n_b)
    annealed  t = log{ (p+1)(T d + 1 − T)/(2p) } / (2c)
    exact     p = 1:  t = E log{ u_T (u∞ − u0) / [u0 (u∞ − u_T)] } / (2c),   u = m²,
              u∞ = 1 − ρΔ/(2(1 − 6ρ))
    quenched  t = E log{ (1−T)(1 + b/S) } / (2c),   S = Σ_j m_j²,
              b = [T p(p+1) d − (1−T) τ0]/(2 p d (1−T))
              E log(1 + b/S) = ∫ φ(x)^p (1 − e^{−bx}) dx/x,   φ(x) = E e^{−x m²},
                  m² ~ Beta(½, (d−1)/2)
    noisy     p = 1:  t = (2/c) E ∫_{x0}^{xT} D(w) dw,   x² = c d m²/(ρ V_1),
              D Dawson's function
              and from m = 0 with x0 = 0
              p ≥ 2:  2u − (1 − 1/p) v = (1 + 1/p)(T d + 1 − T),
                      u = (1 + s) e^{2ct} − s,   s = ρ V_p/(2c),
                      v = e^{−2ht} + ρ W_p (1 − e^{−2ht})/(2h),   h = (8/p)(1 − 8ρ/p)

The noise of single samples adds s to the variance of the start of each overlap by and
by, and W_p is the variance that it gives to the overlaps between the neurons, which
raise the risk: the last form has both at any T d. For one neuron it is exact near m =
0, for the mean exit time of an expansive Ornstein–Uhlenbeck process is known; for
several it is the time at which the mean of the risk passes the level, to which the
spread of the start is added where it is known. As T d → ∞ it becomes t − log(1 +
s)/(2c).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from twolayer.analysis.escape_result import EscapeTime
from twolayer.numerics.errors import (
    InputError,
    finite_number,
    positive_integer,
    require,
)

__all__ = [
    "ALL",
    "FOLD",
    "LINEAR",
    "LINEARISED",
    "RESOLVED",
    "SMALL",
    "FollowedStarts",
    "annealed_time",
    "bent",
    "check_threshold",
    "contraction_of",
    "cross_noise_of",
    "exact_time",
    "exit_of_one",
    "followed_noise",
    "formulas",
    "growth_of",
    "least_threshold",
    "noise_strength_of",
    "quenched_time",
    "retrieval_result",
    "retrieval_times",
    "too_noisy",
    "unresolved",
]

LINEAR = 10.0  # the linearised formulas are given for p ≥ 2 where T d is at least this
RESOLVED = {
    "one": 10.0,
    "several": 50.0,
}  # and the correction where it is this many times 1 + s
SMALL = 0.3  # T up to which growth counts as linear where the noise is followed
DEFAULTS = (0.01, 0.03)  # between which T lies where none is asked for
FOLD = 1.0  # e-folds of m² by which the ODE may be slower than linear growth
ALL = 0.99  # of the starts have to reach the threshold for a mean to be corrected
INFINITE = 1e6  # neurons that stand for infinitely many in the ODE
LINEARISED = ("annealed", "quenched", "quenched_error")
STUCK = (
    "the ODE does not reach the threshold: neurons align before they learn, and their"
    " risk then stops falling"
)
# of the integrals on logarithmic scales, which converge geometrically in 1/STEP
STEP = 0.06


def check_threshold(threshold: object) -> float:
    """The level at which a start counts as left, or a direction as found: a number in
    (0, 1).
    """
    level = finite_number("threshold", threshold, accepted="a number in (0, 1)")
    require(0 < level < 1, "threshold", threshold, "a number in (0, 1)")
    return level


def contraction_of(p: float, noise: float) -> float:
    """C_p, for a width that may be infinite."""
    return 1 + 1 / p + 4 / p**2 + noise / 2


def growth_of(p: float, noise: float, rho: float) -> float:
    """c, the rate at which overlaps grow."""
    return 4 * (1 - rho * contraction_of(p, noise))


def noise_strength_of(p: float, noise: float) -> float:
    """V_p = 4 (10 − 6/p + 8/p² + Δ): variance of the increments of one m_j at m = 0, in
    units of lr/p.
    """
    return 4 * (10 - 6 / p + 8 / p**2 + noise)


def cross_noise_of(p: float, noise: float, rho: float) -> float:
    """W_p = 16 E[λ_j² λ_l² (e + ρ e²)²] at m = 0, Q = I: variance of the increments of
    one Q_jl, in units of lr/p.

    From E[λ_j² λ_l² e^{se}] = (1 − 2s)^{−½} (1 + 2s/p)^{−p/2−2} e^{Δs²/2}.
    """
    logarithm = [0.0] * 5
    for n in range(1, 5):
        several = (
            (-1.0 if n == 1 else 0.0)
            if math.isinf(p)
            else (p / 2 + 2) * (-2 / p) ** n / n
        )
        logarithm[n] = 2.0 ** (n - 1) / n + several
    logarithm[2] += noise / 2
    series = [1.0, 0.0, 0.0, 0.0, 0.0]
    for n in range(1, 5):
        series[n] = sum(j * logarithm[j] * series[n - j] for j in range(1, n + 1)) / n
    second, third, fourth = (math.factorial(n) * series[n] for n in (2, 3, 4))
    return 16 * (second + 2 * rho * third + rho**2 * fourth)


def _density(omega: float | np.ndarray, dim: float) -> np.ndarray:
    """cos^{d−2} ω, of which the cosine rounds to 1 where d is large."""
    return np.exp((dim - 2) / 2 * np.log1p(-(np.sin(omega) ** 2)))


def _laplace(x: np.ndarray, dim: float) -> np.ndarray:
    """φ at x: E e^{−x m²} for the overlap m of two uniform unit vectors, m = sin ω,
    density ∝ cos^{d−2} ω.
    """
    # ω from far below any scale of e^{−xω²} up to 12 standard deviations, on a
    # logarithmic scale
    last = min(12 / math.sqrt(dim), math.pi / 2 * (1 - 1e-9))
    scale = np.arange(0.0, 45.0, STEP)
    omega = last / np.sqrt(
        1 + np.exp(2 * scale[::-1] - 8)
    )  # ends smoothly at the last, as a trapezoidal rule needs
    edge = 1 - (omega / last) ** 2  # dω = ω · edge · d(scale)
    weight = omega * edge * _density(omega, dim)
    weight /= weight.sum()
    return np.asarray(np.exp(-np.multiply.outer(x, np.sin(omega) ** 2)) @ weight)


def quenched_time(p: float, dim: int, T: float, c: float) -> float:
    """The quenched formula; the spread of τ0, of relative size 2/(p T d), to second
    order. Cost: milliseconds.
    """
    if math.isinf(p):
        return annealed_time(p, dim, T, c)
    tau, spread = p * (p - 1), 4 * p * (p - 1) * (dim - 1) / (dim + 2)
    b = (T * p * (p + 1) * dim - (1 - T) * tau) / (2 * p * dim * (1 - T))
    x = np.exp(
        np.arange(math.log(1e-17 / b), math.log(dim) + min(74.0, 74.0 / p + 12.0), STEP)
    )
    mean = float((_laplace(x, dim) ** p * -np.expm1(-b * x)).sum()) * STEP
    # at the mean of S the argument is (b + S), of which τ0 moves b
    curvature = spread * ((1 - T) / (2 * p * dim * (1 - T)) / (b + p / dim)) ** 2 / 2
    return (math.log1p(-T) + mean - curvature) / (2 * c)


def annealed_time(p: float, dim: int, T: float, c: float) -> float:
    """The annealed formula."""
    return math.log((1 + 1 / p) * (T * dim + 1 - T) / 2) / (2 * c)


def exact_time(dim: int, T: float, rho: float, noise: float) -> tuple[float, float]:
    """The mean time of the ODE of one neuron over random starts, and the share of those
    that reach the threshold.
    """
    c, limit = growth_of(1, noise, rho), 1 - rho * noise / (2 * (1 - 6 * rho))
    if limit <= T:
        raise InputError(
            f"Argument `threshold` must be below {max(limit, 0):.4g}, where the ODE"
            f" settles with d·lr/(p·n_b) = {rho:.4g}, but got {T}."
        )

    def time(u: float) -> float:
        # starts already beyond what can be reached count as the last ones
        end = min(T + (1 - T) * u, limit * (1 - 1e-12))
        start = min(u, end)
        return math.log(end * (limit - start) / (start * (limit - end))) / (2 * c)

    return _over_start(time, dim), _over_start(
        lambda u: float(T + (1 - T) * u < limit), dim
    )


def _over_start(function: Callable[[float], float], dim: int) -> float:
    """E f(u) over u = m², m the overlap of two uniform unit vectors: m = sin ω, density
    ∝ cos^{d−2} ω.
    """
    from scipy import integrate, special

    log_norm = float(special.betaln(0.5, (dim - 1) / 2)) - math.log(2)
    root = math.sqrt(dim)

    def integrand(y: float) -> float:
        omega = y / root
        return (
            function(math.sin(omega) ** 2)
            * float(_density(omega, dim))
            * math.exp(-log_norm)
            / root
        )

    end = root * math.pi / 2
    cuts = [
        0.0,
        *(x for x in (0.01, 1.0, 4.0, 12.0) if x < end),
        *([end] if end <= 12 else []),
    ]
    return float(
        sum(
            integrate.quad(integrand, a, b, limit=200, epsabs=1e-13)[0]
            for a, b in itertools.pairwise(cuts)
        )
    )


def exit_of_one(
    dim: int, T: float, c: float, kick: float, reach: float = 1.0
) -> tuple[float, float]:
    """Mean exit times of one neuron with the noise of samples, averaged over random
    starts and from a start exactly at m = 0, which the ODE never leaves.

    Its overlap is an expansive Ornstein–Uhlenbeck process, dm = c m dt + √(kick/d) dB,
    and the risk is proportional to reach − m².
    """
    from scipy import integrate, special

    if kick == 0:
        return _one_neuron(dim, T, c, 1e-12, reach), math.inf
    x = math.sqrt(c * T * reach * dim / kick)
    zero = float(2 / c * integrate.quad(special.dawsn, 0, x, limit=200)[0])
    return _one_neuron(dim, T, c, kick, reach), zero


def noisy_time(
    p: float,
    dim: int,
    T: float,
    rho: float,
    noise: float,
    quenched: float | None = None,
) -> float:
    """The form with the noise of single samples at any T d; ``quenched`` adds the
    spread of the start, p ≥ 2.
    """
    c = growth_of(p, noise, rho)
    if p == 1:
        return exit_of_one(dim, T, c, rho * noise_strength_of(1, noise))[0]
    noisy = _mean_path(p, dim, T, c, rho, noise)
    return noisy if quenched is None else quenched + noisy - annealed_time(p, dim, T, c)


def followed_noise(
    p: float, dim: int, T: float, rho: float, noise: float, quenched: float | None
) -> tuple[float | None, float | None, dict[str, str]]:
    """The forms ``noisy`` and ``from_zero``, and why one of them is not given: growth
    must be linear up to T.
    """
    missing = {} if p == 1 else {"from_zero": "it is known for one neuron only"}
    if T > SMALL:
        why = f"T = {T:g} is above {SMALL:g}, where growth is no longer linear in m"
        return None, None, {"noisy": why, "from_zero": why} | missing
    if p == 1:
        kick = rho * noise_strength_of(1, noise)
        noisy, from_zero = exit_of_one(dim, T, growth_of(1, noise, rho), kick)
        return noisy, from_zero, missing
    return noisy_time(p, dim, T, rho, noise, quenched), None, missing


def _one_neuron(dim: int, T: float, c: float, kick: float, reach: float) -> float:
    """Mean exit time from ±√(T·reach + (1−T) m²), averaged over the start."""
    from scipy import special

    def integral(x: np.ndarray) -> np.ndarray:
        """∫_0^x D(w) dw = (x²/2) ₂F₂(1, 1; 3/2, 2; −x²), by Gauss–Legendre on pieces of
        a logarithmic scale.
        """
        node, weight = np.polynomial.legendre.leggauss(24)
        edges = np.concatenate(
            [[0.0], np.geomspace(1e-3, max(float(x.max()), 2e-3), 60)]
        )
        half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        pieces = (
            half[:, None]
            * weight
            * special.dawsn(middle[:, None] + half[:, None] * node)
        ).sum(1)
        known = np.concatenate([[0.0], np.cumsum(pieces)])
        at = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(half) - 1)
        rest = (x - edges[at]) / 2
        inner = special.dawsn(edges[at][:, None] + rest[:, None] * (1 + node))
        return np.asarray(known[at] + rest * (inner @ weight))

    node, weight = np.polynomial.legendre.leggauss(200)
    last = min(12.0, math.sqrt(dim) * math.pi / 2)
    omega = last * (1 + node) / 2 / math.sqrt(dim)
    density = weight * _density(omega, dim)
    density /= density.sum()
    u, unit = np.sin(omega) ** 2, c * dim / kick
    end = T * reach + (1 - T) * u
    ends = integral(np.concatenate([np.sqrt(unit * u), np.sqrt(unit * end)]))
    return float(2 / c * density @ (ends[len(u) :] - ends[: len(u)]))


def _mean_path(
    p: float, dim: int, T: float, c: float, rho: float, noise: float
) -> float:
    """When the mean of the risk passes the level, with the noise of samples."""
    from scipy import optimize

    gain = rho * noise_strength_of(p, noise) / (2 * c)
    share = 1 - 1 / p
    fade = 8 / p * (1 - 8 * rho / p)
    kick = rho * cross_noise_of(p, noise, rho)
    level = (1 + 1 / p) * (T * dim + 1 - T)

    def beyond(t: float) -> float:
        lasting = math.exp(-2 * fade * t)
        made = t if abs(fade * t) < 1e-9 else -math.expm1(-2 * fade * t) / (2 * fade)
        return (
            2 * ((1 + gain) * math.exp(2 * c * t) - gain)
            - share * (lasting + kick * made)
            - level
        )

    end = 1.0 / c
    while beyond(end) < 0:
        end *= 2
    # the risk may first rise: the last passage of its mean, not an earlier touch
    return float(optimize.brentq(beyond, 0.0, end, xtol=1e-12))


class Times(NamedTuple):
    """The times of phase retrieval, in its own units, with what is missing; ``ode`` is
    infinite where the threshold is not reached.
    """

    annealed: float | None
    quenched: float | None
    ode: float | None
    ode_error: float | None
    corrected: float | None
    noisy: float | None
    from_zero: float | None
    reached: float | None
    missing: dict[str, str]


class FollowedStarts(NamedTuple):
    """The ODE from random starts: its mean time with the error, and the share of the
    starts that reach the threshold.
    """

    time: float
    error: float
    reached: float


def retrieval_times(
    p: float,
    dim: int,
    T: float,
    rho: float,
    noise: float,
    integrated: FollowedStarts | None = None,
) -> Times:
    """All times of phase retrieval; ``integrated`` is the ODE from random starts, where
    it was followed, in the place of that from a typical one.
    """
    c = growth_of(p, noise, rho)
    annealed: float | None = None
    quenched: float | None = None
    missing: dict[str, str] = {}
    if p == 1 or T * dim >= LINEAR:
        annealed, quenched = annealed_time(p, dim, T, c), quenched_time(p, dim, T, c)
    else:
        missing = dict.fromkeys(LINEARISED, unresolved(T * dim))
    noisy, from_zero, unknown = followed_noise(p, dim, T, rho, noise, quenched)
    if integrated is None and quenched is None:
        # a typical start has no overlaps between neurons, which count here
        missing |= dict.fromkeys(("ode", "ode_error"), missing["quenched"])
        s = rho * noise_strength_of(p, noise) / (2 * c)
        noisier = too_noisy(T * dim, s, p) or missing["quenched"]
        missing |= unknown | {"corrected": noisier}
        return Times(None, None, None, None, None, noisy, None, None, missing)
    if integrated is None:
        integrated = _followed(p, dim, T, rho, noise, quenched)
    ode, error, reached = integrated
    if not math.isfinite(ode):
        why = dict.fromkeys(
            (*LINEARISED, "ode", "ode_error", "corrected", "noisy", "from_zero"), STUCK
        )
        return Times(None, None, ode, error, None, None, None, reached, why)
    s = rho * noise_strength_of(p, noise) / (2 * c)
    corrected, why_not = _corrected(ode, c, s, T * dim, reached, p)
    missing = missing | unknown
    if why_not is not None:
        missing["corrected"] = why_not
    if quenched is not None and 2 * c * (ode - quenched) > FOLD:
        annealed = quenched = None
        missing |= dict.fromkeys(LINEARISED, bent(T))
        if p > 1:
            noisy = None
            missing["noisy"] = bent(T)
    return Times(
        annealed,
        quenched,
        ode,
        error,
        corrected,
        noisy,
        from_zero,
        reached,
        missing,
    )


def _followed(
    p: float, dim: int, T: float, rho: float, noise: float, quenched: float | None
) -> FollowedStarts:
    """The ODE: the mean over random starts for one neuron, a typical start for several,
    to which the spread of the start is added by the linearised formula.
    """
    from twolayer.analysis.alike_neurons import FOLLOWED, Alike, typical

    if p == 1:
        time, reached = exact_time(dim, T, rho, noise)
        return FollowedStarts(time, 0.0, reached)
    p = min(p, INFINITE)
    sizes, m = typical(p, dim)
    c = growth_of(p, noise, rho)
    linear = math.log((T * (p + 1) * dim + 2 * p * (1 - T)) / (2 * p)) / (2 * c)
    found = Alike(sizes, rho, noise).passage(m, T, FOLLOWED * (linear + 1 / c))
    if not math.isfinite(found):
        return FollowedStarts(math.inf, 0.0, 0.0)
    spread = 0.0 if quenched is None else quenched - linear
    return FollowedStarts(found + spread, 0.0, 1.0)


def _corrected(
    ode: float, c: float, s: float, scale: float, reached: float, p: float
) -> tuple[float | None, str | None]:
    """The time of SGD, or None and why the formula does not hold; ``scale`` is T d."""
    why = too_noisy(scale, s, p)
    if why is not None:
        return None, why
    if reached < ALL:
        return None, f"only {reached:.0%} of the random starts reach the threshold"
    return float(ode - np.log1p(s) / (2 * c)), None


def formulas(
    width: float = 1,
    dim: int = 10_000,
    threshold: float | None = 0.1,
    *,
    noise: float = 0.0,
    rho: float | None = None,
    batch: int = 1,
) -> EscapeTime:
    """Escape of phase retrieval from a random start, R = (1 − T) R(0), by formulas
    alone.

    Parameters
    ----------
    width : int or inf
        p.
    dim : int
        d.
    threshold : float, optional
        T in (0, 1). None: the least for which the noise of samples is known, from 0.01
        to 0.03.
    noise : float
        Δ.
    rho : float, optional
        d·lr/(p n_b); by default the value with the fewest steps, 1/(2 C_p).
    batch : int
        n_b.

    Returns
    -------
    EscapeTime
        ``.ode`` is the mean over random starts for one neuron; for several it is that
        of a start with typical overlaps, in which neurons of the same overlap are one
        group.

    Examples
    --------
    >>> found = formulas(width=10_000, dim=100_000, threshold=0.01)
    >>> round(found.quenched, 3), round(found.corrected, 3), round(found.noisy, 3)
    (1.554, 1.169, 1.16)
    >>> round(formulas(width=math.inf, dim=100_000, threshold=0.01).gain, 2)
    6.0
    """
    endless = isinstance(width, float) and width == math.inf
    p: float = math.inf if endless else positive_integer("width", width)
    d, n_b = positive_integer("dim", dim, 2), positive_integer("batch", batch)
    delta = finite_number(
        "noise", noise, minimum=0.0, accepted="a finite variance Δ ≥ 0"
    )
    largest = 1 / contraction_of(p, delta)
    if rho is not None:
        accepted = f"a number in (0, {largest:.4g}), where the overlap grows"
        rho = finite_number("rho", rho, accepted=accepted)
        require(0 < rho < largest, "rho", rho, accepted)
    value = largest / 2 if rho is None else rho
    T = (
        least_threshold(p, d, value, delta)
        if threshold is None
        else check_threshold(threshold)
    )
    return retrieval_result(
        retrieval_times(p, d, T, value, delta), p, d, T, value, delta, n_b
    )


def retrieval_result(
    times: Times,
    p: float,
    dim: int,
    T: float,
    rho: float,
    noise: float,
    batch: float,
    unit: float = 1.0,
    divisor: float | None = None,
) -> EscapeTime:
    """The times of phase retrieval as a result, where ρ and t are ``unit`` times those
    of the problem and N is another one than p.
    """
    largest = 1 / contraction_of(p, noise)

    def own(value: float | None) -> float | None:
        return None if value is None or math.isinf(value) else value / unit

    return EscapeTime(
        annealed=own(times.annealed),
        quenched=own(times.quenched),
        quenched_error=None if times.quenched is None else 0.0,
        ode=own(times.ode),
        ode_error=None if own(times.ode) is None else own(times.ode_error),
        corrected=own(times.corrected),
        noisy=own(times.noisy),
        from_zero=own(times.from_zero),
        reached=times.reached,
        missing=times.missing,
        per_time=dim * unit / (rho * batch),
        width=p,
        dim=dim,
        threshold=T,
        rate=growth_of(p, noise, rho) * unit,
        rho=rho / unit,
        best_rho=largest / 2 / unit,
        largest_rho=largest / unit,
        gain=contraction_of(1, noise) / contraction_of(p, noise),
        scale=(p if divisor is None else divisor) * batch,
        retrieval=(noise, unit),
    )


def least_threshold(p: float, dim: int, rho: float, noise: float) -> float:
    """The smallest T, from 0.01 to 0.03, at which the correction by the noise of
    samples is given: at the best rate wide networks lose 4 % of their risk at most.

    Examples
    --------
    >>> least_threshold(10, 10_000, 1 / (2 * contraction_of(10, 0.0)), 0.0)
    0.026
    """
    low, high = DEFAULTS
    c = growth_of(p, noise, rho)
    if c <= 0:
        return low
    s = rho * noise_strength_of(p, noise) / (2 * c)
    least = RESOLVED["one" if p == 1 else "several"] * (1 + s) / dim
    return min(max(math.ceil(1000 * least) / 1000, low), high)


def bent(T: float) -> str:
    """Why the linearised formulas are not given where the ODE is much slower."""
    return (
        f"growth is no longer linear where T = {T:g} is passed: the ODE takes more"
        " than an e-fold of the squared overlap longer"
    )


def unresolved(scale: float) -> str:
    """Why the linearised formulas of several neurons are not given at T d."""
    return (
        f"T·d = {scale:.3g} is below {LINEAR:g}: the overlaps between the neurons of a"
        " random start alone change its risk by a fraction 1/d"
    )


def too_noisy(scale: float, s: float, p: float) -> str | None:
    """Why the limit of the correction is not given at T d, or None where it is."""
    least = RESOLVED["one" if p == 1 else "several"]
    if scale >= least * (1 + s):
        return None
    return (
        f"T·d = {scale:.3g} is below {least:g}·(1 + s) = {least * (1 + s):.3g}: the"
        f" noise of single samples, s = {s:.3g}, is still at work when the threshold is"
        " passed"
    )
