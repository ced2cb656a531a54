"""Escaping mediocrity: how long projected SGD needs to leave a random start of phase retrieval.

    (EXT)      R(t_ext) = (1 − T) R(0),    excess risk,   steps = t p/lr
    quenched   t = E log{ [T p(p+1) d + (2p μ0 − τ0)(1−T)] / (2p μ0) } / (2c),   μ0 = d Σ m_j²,   τ0 = d Σ_{j≠l} Q_jl²
    annealed   t = log{ (p+1)(T d + 1 − T)/(2p) } / (2c)
    exact      p = 1:  t = E log{ u_T (u∞ − u0) / [u0 (u∞ − u_T)] } / (2c),   u = m²,   u∞ = 1 − ρΔ/(2(1 − 6ρ))
    corrected  t_ODE − log(1 + s)/(2c),   s = ρ V_p/(2c)
    from zero  p = 1, m = 0:  t = (2/c) ∫_0^x D(w) dw,   x² = cTd/(ρ V_1),   D Dawson's function
    noisy      with the noise of samples at any T d (escape_formulas.py)

c, ρ, C_p, V_p: optimal_lr.py. Quenched and annealed times are those of the linearised equations. The ODE integrated
from random starts tells what they leave out, and whether the threshold is reached at all: at the rate that is best
for the linear escape, wide networks never lose more than a few percent of their risk. The correction is what the
noise of single samples does to the start.

Where they hold: quenched and annealed, for p ≥ 2, where T d ≫ 1, for the overlaps between neurons alone change the risk
of a random start by a fraction 1/d; the correction where T d ≫ 1 + s, for the noise moves these overlaps too. A formula
that does not hold is not evaluated, and ``missing`` says why.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from twolayer.analysis.escape_formulas import (
    LINEAR,
    RESOLVED,
    annealed_time,
    check_threshold,
    exact_time,
    followed_noise,
    quenched_time,
    too_noisy,
    unresolved,
)
from twolayer.analysis.optimal_lr import noise_gain, noise_ratio, require_growth
from twolayer.analysis.passage_times import Passage, first_passage
from twolayer.methods.ode import ODE
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import InputError, positive_integer
from twolayer.numerics.html import card, table
from twolayer.numerics.statistics import standard_error
from twolayer.running.solve import solve
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.method import Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.regimes import regime_of

__all__ = ["EscapeTime", "escape_time", "passage_law", "resolved_threshold"]

ODE_STARTS = 32
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
        ``ode`` with the shift due to the noise of single samples, where T d ≫ 1 + s.
    noisy : float or None
        With the noise of single samples at any T d, as long as growth is linear.
    from_zero : float or None
        Mean exit time of a start exactly at m = 0, which the ODE never leaves (p = 1).
    reached : float
        Fraction of the random starts from which the ODE reaches the threshold.
    missing : dict
        For each number that is None, why its formula does not hold here.
    per_time : float
        Steps in a unit of time; 1 where the numbers are in steps.

    Examples
    --------
    >>> times = escape_time(
    ...     Problem("z1**2", "square"),
    ...     SGD(lr="0.0833/d", geometry="projected"),
    ...     dim=1000,
    ... )
    >>> round(times.annealed, 3), round(times.steps.annealed)
    (1.153, 13842)
    """

    annealed: float | None
    quenched: float | None
    quenched_error: float | None
    ode: float
    ode_error: float
    corrected: float | None
    noisy: float | None
    from_zero: float | None
    reached: float
    missing: dict[str, str]
    per_time: float = dataclasses.field(repr=False)

    def _repr_html_(self) -> str:
        rows = []
        for name in ("annealed", "quenched", "ode", "corrected", "noisy", "from_zero"):
            value, word = getattr(self, name), name.replace("_", " ")
            if value is None:
                rows.append((word, "", self.missing.get(name, "")))
            else:
                rows.append((word, f"{value:.5g}", f"{value * self.per_time:.5g}"))
        return card("Escape times", table(("", "t = lr·step/p", "steps"), rows))

    @property
    def steps(self) -> EscapeTime:
        """The same in steps of SGD."""
        scaled: Options = {
            f.name: None
            if getattr(self, f.name) is None
            else getattr(self, f.name) * self.per_time
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
        Of the random starts, p ≥ 2.

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
    >>> times = escape_time(
    ...     problem, SGD(lr="0.0833/d", geometry="projected"), dim=1000, threshold=0.1
    ... )
    >>> round(times.annealed, 3), round(times.quenched, 3), round(times.corrected, 2)
    (1.153, 1.47, 1.32)
    """
    check_description(problem, algorithm)
    algorithm.check_plain("escape_time")
    dim = positive_integer("dim", dim, 2)
    T = check_threshold(threshold)
    rho = noise_ratio(problem, algorithm, dim)
    if not regime_of(algorithm).continuous:
        raise InputError(
            f"The formulas of escape need steps that vanish as d grows, but got {algorithm!r}."
        )
    c = require_growth(problem, algorithm, rho)
    p = problem.p
    missing: dict[str, str] = {}
    annealed: float | None = None
    quenched: float | None = None
    if p == 1 or T * dim >= LINEAR:
        annealed = annealed_time(p, dim, T, c)
    else:
        missing = dict.fromkeys(
            ("annealed", "quenched", "quenched_error"), unresolved(T * dim)
        )
    errors: tuple[float | None, float]
    if p == 1:
        quenched, errors = quenched_time(p, dim, T, c), (0.0, 0.0)
        ode, reached = exact_time(dim, T, rho, problem.noise)
    else:
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
            ode, errors = float(own.mean()), (None, float(standard_error(own)))
        else:
            values = _linear(problem, dim, T, seed, samples, c)
            # start by start the ODE is close to the formula: only their difference is averaged over the few
            beyond, quenched = (
                (passage.times - values[:ODE_STARTS])[crossed],
                float(values.mean()),
            )
            ode, error = quenched + float(beyond.mean()), float(standard_error(values))
            errors = (error, float(np.hypot(error, standard_error(beyond))))
    noisy, from_zero, unknown = followed_noise(p, dim, T, rho, problem.noise, quenched)
    corrected, why = _corrected(ode, c, noise_gain(problem, rho), T * dim, reached, p)
    return EscapeTime(
        annealed=annealed,
        quenched=quenched,
        quenched_error=errors[0],
        ode=ode,
        ode_error=errors[1],
        corrected=corrected,
        noisy=noisy,
        from_zero=from_zero,
        reached=reached,
        missing=missing | unknown | ({} if why is None else {"corrected": why}),
        per_time=p / algorithm.lr(dim),
    )


def passage_law(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float = 0.1,
    *,
    samples: int = 20_000,
    seed: int = 0,
) -> np.ndarray:
    """The quenched formula at random starts: the law of escape times that the start alone brings about.

    Its mean is ``escape_time(…).quenched``, up to the error of sampling.

    Parameters
    ----------
    problem, algorithm, dim, threshold
        As for `escape_time`.
    samples : int
        How many starts are drawn.
    seed : int
        Of these starts.

    Examples
    --------
    >>> problem, algorithm = (
    ...     Problem("z1**2", "square"),
    ...     SGD(lr="0.0833/d", geometry="projected"),
    ... )
    >>> float(passage_law(problem, algorithm, 1000).mean().round(1))
    1.5
    """
    dim = positive_integer("dim", dim, 2)
    c = require_growth(problem, algorithm, noise_ratio(problem, algorithm, dim))
    T = check_threshold(threshold)
    return _linear(problem, dim, T, seed, positive_integer("samples", samples), c)


def _linear(
    problem: Problem, dim: int, T: float, seed: int, samples: int, c: float
) -> np.ndarray:
    """The quenched formula at sampled starts, the first of which are those of the ODE."""
    starts, p = Overlaps.random(problem, dim, seed, size=samples), problem.p
    mu = dim * (starts.M**2).sum((1, 2))
    tau = dim * ((starts.Q**2).sum((1, 2)) - p)
    return np.log(
        (T * p * (p + 1) * dim + (2 * p * mu - tau) * (1 - T)) / (2 * p * mu)
    ) / (2 * c)


def resolved_threshold(problem: Problem, algorithm: SGD, dim: int) -> float:
    """The smallest T at which the correction by the noise of samples is given."""
    rho = noise_ratio(problem, algorithm, dim)
    require_growth(problem, algorithm, rho)
    return (
        RESOLVED["one" if problem.p == 1 else "several"]
        * (1 + noise_gain(problem, rho))
        / dim
    )


def _corrected(
    ode: float, c: float, s: float, scale: float, reached: float, p: int
) -> tuple[float | None, str | None]:
    """The time of SGD, or None and why the formula does not hold; ``scale`` is T d."""
    why = too_noisy(scale, s, p)
    if why is not None:
        return None, why
    if reached < ALL:
        return None, f"only {reached:.0%} of the random starts reach the threshold"
    return float(ode - np.log1p(s) / (2 * c)), None


def _integrated(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    T: float,
    seed: int,
    expected: float,
    c: float,
) -> Passage:
    """First passages of the ODE from random starts, followed for much longer than the linear formula says."""
    starts = Overlaps.random(problem, dim, seed, size=ODE_STARTS)
    until = Until("excess_risk", 1 - T, relative=True)
    end = 3 * expected + 40 / c
    return first_passage(
        solve(
            problem,
            algorithm,
            ODE(),
            starts,
            time=end,
            save=20,
            until=until,
            throw=False,
        )
    )
