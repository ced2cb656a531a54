"""Escaping mediocrity: how long projected SGD needs to leave a random start of phase retrieval.

    (EXT)      R(t_ext) = (1 − T) R(0),    excess risk,   steps = t p/lr
    quenched   t = E log{ [T p(p+1) d + (2p μ0 − τ0)(1−T)] / (2p μ0) } / (2c),   μ0 = d Σ m_j²,   τ0 = d Σ_{j≠l} Q_jl²
    annealed   t = log{ (p+1)(T d + 1 − T)/(2p) } / (2c)
    exact      p = 1:  t = E log{ u_T (u∞ − u0) / [u0 (u∞ − u_T)] } / (2c),   u = m²,   u∞ = 1 − ρΔ/(2(1 − 6ρ))
    corrected  t_ODE − log(1 + s)/(2c),   s = ρ V_p/(2c)
    from zero  p = 1, m = 0:  t = (2/c) ∫_0^x D(w) dw,   x² = cTd/(ρ V_1),   D Dawson's function

c, ρ, C_p, V_p: mediocrity.py. Quenched and annealed times are those of the linearised equations. The ODE integrated
from random starts tells what they leave out, and whether the threshold is reached at all: at the rate that is best
for the linear escape, wide networks never lose more than a few percent of their risk. The correction is what the
noise of single samples does to the start.

Where they hold: quenched and annealed, for p ≥ 2, where T d ≫ 1, for the overlaps between neurons alone change the risk
of a random start by a fraction 1/d; the correction where T d ≫ 1 + s, for the noise moves these overlaps too. A formula
that does not hold is not evaluated, and ``missing`` says why.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import integrate, special

from twolayer.analysis.mediocrity import noise_gain, noise_ratio, noise_strength, require_growth
from twolayer.analysis.passage import Passage, first_passage
from twolayer.methods.ode import ODE
from twolayer.numerics.errors import InputError, finite_number, positive_integer, reject
from twolayer.running.solve import solve
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.method import Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.regimes import regime_of

__all__ = ["EscapeTime", "escape_time", "passage_law", "resolved_threshold"]

ODE_STARTS = 32
LINEAR = 10.0  # the linearised formulas are given for p ≥ 2 where T d is at least this,
RESOLVED = {"one": 10.0, "several": 50.0}  # and the correction where it is this many times 1 + s
SMALL = 0.3  # T up to which a start at m = 0 is followed by its linear growth
ALL = 0.99  # fraction of the starts that have to reach the threshold for a mean to be corrected


@dataclass(frozen=True)
class EscapeTime:
    """Escape times in units of t = lr·step/p, or in steps.

    Attributes
    ----------
    annealed, quenched : float or None
        Linearised formulas at the mean of the random start, and averaged over it.
    quenched_error : float or None
        Standard error of the sampled average; 0 where it is an integral.
    ode, ode_error : float
        Mean over random starts of the ODE: the exact integral for p = 1, integrated from sampled starts for p ≥ 2,
        over those that reach the threshold.
    corrected : float or None
        ``ode`` with the shift due to the noise of single samples.
    from_zero : float or None
        Mean exit time of a start exactly at m = 0, which the ODE never leaves (p = 1).
    reached : float
        Fraction of the random starts from which the ODE reaches the threshold.
    missing : dict
        For each number that is None, why its formula does not hold here.
    """

    annealed: float | None
    quenched: float | None
    quenched_error: float | None
    ode: float
    ode_error: float
    corrected: float | None
    from_zero: float | None
    reached: float
    missing: dict[str, str]
    per_time: float = dataclasses.field(repr=False)

    def _repr_html_(self) -> str:
        from twolayer.analysis.showing import escape_html

        return escape_html(self)

    @property
    def steps(self) -> EscapeTime:
        """The same in steps of SGD."""
        scaled: dict[str, Any] = {
            f.name: None if getattr(self, f.name) is None else getattr(self, f.name) * self.per_time
            for f in dataclasses.fields(self)
            if f.name not in ("reached", "missing", "per_time")
        }
        return dataclasses.replace(self, **scaled, per_time=1.0)


def escape_time(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float = 0.1,
    *,
    samples: int = 20_000,
    seed: int = 0,
) -> EscapeTime:
    """When the excess risk has fallen to (1 − threshold) of its start, from a random start on the sphere.

    Parameters
    ----------
    problem : Problem
        Phase retrieval: ``Problem("z1**2", "square", width=p, noise=Δ)``.
    algorithm : SGD
        Projected or spherical.
    dim : int
        d.
    threshold : float
        T in (0, 1).
    samples : int
        Random starts for the quenched average, p ≥ 2.
    seed : int

    Returns
    -------
    EscapeTime
        ``.annealed``, ``.quenched``, ``.corrected``, … in time; ``.steps`` has the same in steps. What lies outside
        the range of its formula is None, and ``.missing`` says why.

    Notes
    -----
    Cost: one integral for p = 1; for p ≥ 2 O(samples · p²) and the ODE from 32 starts.

    Examples
    --------
    >>> problem = Problem("z1**2", "square")
    >>> times = escape_time(problem, SGD(lr="0.0833/d", geometry="projected"), dim=1000, threshold=0.1)
    >>> round(times.annealed, 3), round(times.quenched, 3), round(times.corrected, 2)
    (1.153, 1.47, 1.32)
    """
    check_description(problem, algorithm)
    algorithm.check_plain("escape_time")
    dim = positive_integer("dim", dim, 2)
    T = finite_number("threshold", threshold, minimum=0.0, accepted="a number in (0, 1)")
    if not 0 < T < 1:
        reject("threshold", threshold, "a number in (0, 1)")
    rho = noise_ratio(problem, algorithm, dim)
    if not regime_of(algorithm).continuous:
        raise InputError(f"The formulas of escape need steps that vanish as d grows, but got {algorithm!r}.")
    c = require_growth(problem, algorithm, rho)
    p = problem.p
    missing: dict[str, str] = {}
    annealed: float | None = None
    quenched: float | None = None
    from_zero: float | None = None
    if p == 1 or T * dim >= LINEAR:
        annealed = float(np.log((p + 1) * (T * dim + 1 - T) / (2 * p)) / (2 * c))
    else:
        reason = (
            f"T·d = {T * dim:.3g} is below {LINEAR:g}: the overlaps between the neurons of a random start alone change "
            "its risk by a fraction 1/d"
        )
        missing = dict.fromkeys(("annealed", "quenched", "quenched_error"), reason)
    errors: tuple[float | None, float]
    if p == 1:
        limit = 1 - rho * problem.noise / (2 * (1 - 6 * rho))
        _check_reachable(T, limit, algorithm)
        quenched = _over_start(lambda u: np.log((T + (1 - T) * u) / u) / (2 * c), dim)
        ode = _over_start(lambda u: _exact(u, T, limit, c), dim)
        errors, reached = (0.0, 0.0), _over_start(lambda u: np.where(T + (1 - T) * u < limit, 1.0, 0.0), dim)
        x = float(np.sqrt(c * T * dim / (rho * noise_strength(problem))))
        if T <= SMALL:
            from_zero = 2 / c * integrate.quad(special.dawsn, 0, x, limit=200)[0]
        else:
            missing["from_zero"] = f"T = {T:g} is above {SMALL:g}, where growth is no longer linear in m"
    else:
        missing["from_zero"] = "it is known for one neuron only"
        positive_integer("samples", samples, ODE_STARTS)
        passage = _integrated(problem, algorithm, dim, T, seed, annealed or 0.0, c)
        crossed = np.isfinite(passage.times)
        reached = float(crossed.mean())
        if reached < 0.5:
            raise InputError(
                f"Argument `threshold` must be reached by the ODE, but from {ODE_STARTS} random starts at d = {dim} "
                f"only {passage.reached.size} reach {T} with {algorithm.lr}: neurons align before they learn, and "
                "their risk then stops falling. Use a smaller threshold, or d·lr/(p·n_b) < 1/6."
            )
        if annealed is None:
            own = passage.reached
            ode, errors = float(own.mean()), (None, float(own.std(ddof=1) / np.sqrt(len(own))))
        else:
            values = _linear(problem, dim, T, seed, samples, c)
            # start by start the ODE is close to the formula: only their difference is averaged over the few
            beyond, quenched = (passage.times - values[:ODE_STARTS])[crossed], float(values.mean())
            ode, error = quenched + float(beyond.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
            errors = (error, float(np.hypot(error, beyond.std(ddof=1) / np.sqrt(len(beyond)))))
    corrected, why = _corrected(ode, c, noise_gain(problem, rho), T * dim, reached, p)
    return EscapeTime(
        annealed=annealed,
        quenched=quenched,
        quenched_error=errors[0],
        ode=ode,
        ode_error=errors[1],
        corrected=corrected,
        from_zero=from_zero,
        reached=reached,
        missing=missing | ({} if why is None else {"corrected": why}),
        per_time=p / algorithm.lr(dim),
    )


def passage_law(
    problem: Problem, algorithm: SGD, dim: int, threshold: float = 0.1, *, samples: int = 20_000, seed: int = 0
) -> np.ndarray:
    """The quenched formula at random starts: the law of escape times that the start alone brings about.

    Its mean is ``escape_time(…).quenched``, up to the error of sampling.

    Examples
    --------
    >>> problem, algorithm = Problem("z1**2", "square"), SGD(lr="0.0833/d", geometry="projected")
    >>> float(passage_law(problem, algorithm, 1000).mean().round(1))
    1.5
    """
    dim = positive_integer("dim", dim, 2)
    c = require_growth(problem, algorithm, noise_ratio(problem, algorithm, dim))
    T = finite_number("threshold", threshold, minimum=0.0, accepted="a number in (0, 1)")
    return _linear(problem, dim, T, seed, positive_integer("samples", samples), c)


def _linear(problem: Problem, dim: int, T: float, seed: int, samples: int, c: float) -> np.ndarray:
    """The quenched formula at sampled starts, the first of which are those of the ODE."""
    starts, p = Overlaps.random(problem, dim, seed, size=samples), problem.p
    mu = dim * (starts.M**2).sum((1, 2))
    tau = dim * ((starts.Q**2).sum((1, 2)) - p)
    return np.log((T * p * (p + 1) * dim + (2 * p * mu - tau) * (1 - T)) / (2 * p * mu)) / (2 * c)


def resolved_threshold(problem: Problem, algorithm: SGD, dim: int) -> float:
    """The smallest T at which the correction by the noise of samples is given.

    Examples
    --------
    >>> round(resolved_threshold(Problem("z1**2", "square"), SGD(lr="0.08333/d", geometry="projected"), 10_000), 4)
    0.002
    """
    rho = noise_ratio(problem, algorithm, dim)
    require_growth(problem, algorithm, rho)
    return RESOLVED["one" if problem.p == 1 else "several"] * (1 + noise_gain(problem, rho)) / dim


def _corrected(ode: float, c: float, s: float, scale: float, reached: float, p: int) -> tuple[float | None, str | None]:
    """The time of SGD, or None and why the formula does not hold; ``scale`` is T d."""
    least = RESOLVED["one" if p == 1 else "several"]
    if scale < least * (1 + s):
        return None, (
            f"T·d = {scale:.3g} is below {least:g}·(1 + s) = {least * (1 + s):.3g}: the noise of single samples, "
            f"s = {s:.3g}, is still at work when the threshold is passed"
        )
    if reached < ALL:
        return None, f"only {reached:.0%} of the random starts reach the threshold"
    return float(ode - np.log1p(s) / (2 * c)), None


def _over_start(function: Callable[[np.ndarray], np.ndarray], dim: int) -> float:
    """E f(u) over u = m², m the overlap of two uniform unit vectors: m = sin φ, density ∝ cos^{d−2} φ."""
    log_norm = special.betaln(0.5, (dim - 1) / 2) - np.log(2)

    def integrand(y: float) -> float:
        phi = y / np.sqrt(dim)
        return float(function(np.sin(phi) ** 2) * np.exp((dim - 2) * np.log(np.cos(phi)) - log_norm) / np.sqrt(dim))

    end = np.sqrt(dim) * np.pi / 2
    cuts = [0.0, *(x for x in (0.01, 1.0, 4.0, 12.0) if x < end), *([end] if end <= 12 else [])]
    return float(sum(integrate.quad(integrand, a, b, limit=200, epsabs=1e-13)[0] for a, b in itertools.pairwise(cuts)))


def _exact(u: np.ndarray, T: float, limit: float, c: float) -> np.ndarray:
    """Time from u to u_T along the logistic law; starts already beyond what can be reached count as the last ones."""
    end = np.minimum(T + (1 - T) * u, limit * (1 - 1e-12))
    start = np.minimum(u, end)
    return np.log(end * (limit - start) / (start * (limit - end))) / (2 * c)


def _check_reachable(T: float, limit: float, algorithm: SGD) -> None:
    if limit <= T:
        raise InputError(
            f"Argument `threshold` must be below {max(limit, 0):.4g}, where the ODE settles with {algorithm.lr}, "
            f"but got {T}."
        )


def _integrated(problem: Problem, algorithm: SGD, dim: int, T: float, seed: int, expected: float, c: float) -> Passage:
    """First passages of the ODE from random starts, followed for much longer than the linear formula says."""
    starts = Overlaps.random(problem, dim, seed, size=ODE_STARTS)
    until = Until("excess_risk", 1 - T, relative=True)
    end = 3 * expected + 40 / c
    return first_passage(solve(problem, algorithm, ODE(), starts, time=end, save=20, until=until, throw=False))
