"""A witness of averages: the mean of what the simulation's own step does, from random
samples.

    fields u = (λ, λ*) ~ N(0, Ω),    y = ± h(λ*) + √Δ ξ,    f = (1/N) Σ_j a_j σ(λ_j)
    g_j = a_j σ'(λ_j) e(y, f),    ĝ = rule(g)
    psi = E[ĝ λ*],  phi = E[ĝ λ],  chi = E[ĝ ĝᵀ],  second = E[e σ],
        risk = ½ E[(E[y|z] − f)²]
    Σ = Cov(ĝ_j λ*_r, ĝ_j λ_l + ĝ_l λ_j + ρ ĝ_j ĝ_l, e σ_j)
    dM = psi,  dQ = phi + phiᵀ + (lr d/(N n_b)) chi,  da = second     and the geometry

What a method relies on, a `Claim`, is compared with these means. Nothing here knows an
engine, a closed form or a node: formulas are evaluated at points that are drawn, in
NumPy, slopes are differences, and the weights of a limit are read off the powers of d.
So an error in the averages of a method is not repeated here.

Points come in sets, each of them one sequence of Kronecker with a shift of its own.
Every mean is unbiased, and the sets tell its standard error. Half of the points are
drawn from a wider law and weighted, so that tails are seen. Where a deviation is
suspicious, eight times as many new points have to confirm it: heavy tails do not look
alike twice.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from twolayer.functions.activation import Activation
from twolayer.functions.expression import parse
from twolayer.loops.host_loop import Record
from twolayer.numerics.precision import float64
from twolayer.numerics.significance import limit_of
from twolayer.numerics.types import Number, Real
from twolayer.task.algorithm import SGD
from twolayer.task.labels import Law
from twolayer.task.losses import Loss, LossFunction
from twolayer.task.method import Claim, Stand, Task
from twolayer.task.problem import Problem
from twolayer.task.rules import Rule, Sight

__all__ = [
    "SETTING",
    "Testimony",
    "WitnessWarning",
    "heard",
    "testimony_on",
    "wanted",
]

SETTING = "TWOLAYER_WITNESS"
"""The environment variable that switches the witness off."""

SETS = 32  # of points, each with its own shift
POINTS = 2048  # in a set
NUMBERS = 2**19  # that are drawn at most, but for FEWEST points in a set
FEWEST = 320
AGAIN = 8  # times as many points confirm a suspicion
SUSPICION, CERTAINTY = 5e-2, 1e-5  # chances of false alarms, of all entries together
LEAST = 5.0  # standard errors, whatever the chances are
ROUNDING = 1e-8  # relative to averages without cancellations
SAME = 1e-9  # difference of powers of d that counts as none
STEP = 1e-3  # of the differences that are slopes
FLAT = 1e-13  # eigenvalues of Ω below this fraction of the largest are none


class WitnessWarning(UserWarning):
    """An average of a method is not that of samples; the message names it, and results
    should not be trusted.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter(
    ...         "error", WitnessWarning
    ...     )  # averages that are refuted raise inside this block
    """


def wanted() -> bool:
    """Whether the witness is heard: TWOLAYER_WITNESS is not "off"."""
    return os.environ.get(SETTING) != "off"


class Estimate(NamedTuple):
    """An average from every set (sets, …), and its size without cancellations."""

    sets: np.ndarray
    size: float

    @property
    def mean(self) -> np.ndarray:
        """Over all sets."""
        return self.sets.mean(0)

    @property
    def error(self) -> np.ndarray:
        """Standard error of the mean."""
        return self.sets.std(0, ddof=1) / math.sqrt(len(self.sets))


@dataclass(frozen=True)
class Testimony:
    """What the witness has to say.

    Attributes
    ----------
    deviation : float
        The largest one, in standard errors, beyond the error that is stated.
    average : str
        Where it is.
    entries, samples : int
        Numbers compared, and samples drawn for each of them.
    refuted : dict
        By name of the average what the method has, what samples say and the standard
        error, where they contradict.
    """

    deviation: float
    average: str
    entries: int
    samples: int
    refuted: dict[str, tuple[float, float, float]]

    @property
    def notes(self) -> dict[str, object]:
        """As it stands in the notes of a result."""
        told = {
            "deviation": round(self.deviation, 2),
            "average": self.average,
            "entries": self.entries,
            "samples": self.samples,
        }
        return {**told, "refuted": list(self.refuted)} if self.refuted else told

    @property
    def sentence(self) -> str:
        """What is refuted, for a warning."""
        parts = [
            f"{name} is {value:.6g} by the method and {mean:.6g} ± {error:.1g} by"
            " samples"
            for name, (value, mean, error) in self.refuted.items()
        ]
        return "; ".join(parts)


def _irrational(count: int) -> np.ndarray:
    """Fractional parts of the roots of so many primes."""
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found if prime * prime <= number):
            found.append(number)
        number += 1
    return np.sqrt(found) % 1.0


def _root(omega: np.ndarray) -> tuple[np.ndarray, float]:
    """L (n, rank) with L Lᵀ = Ω, and by how much Ω fails to be a covariance."""
    values, vectors = np.linalg.eigh((omega + omega.T) / 2)
    top = max(float(values[-1]), 1e-300)
    kept = values > FLAT * top
    return vectors[:, kept] * np.sqrt(values[kept]), max(0.0, -float(values[0])) / top


def _differences(sigma: Activation, x: np.ndarray) -> np.ndarray:
    """σ' at x by differences of fourth order, on one side of a kink."""
    at = sigma.on_host
    first, second = at(x + STEP) - at(x - STEP), at(x + 2 * STEP) - at(x - 2 * STEP)
    slope = np.asarray(8 * first - second) / (12 * STEP)
    if not sigma.kinks:
        return slope
    apart = x[..., None] - np.asarray(sigma.kinks)
    nearest = np.take_along_axis(apart, np.abs(apart).argmin(-1)[..., None], -1)[..., 0]
    close = np.abs(nearest) < 4 * STEP
    here, away = x[close], np.where(nearest[close] >= 0, STEP, -STEP) / 8
    weights = (-25 / 12, 4.0, -3.0, 4 / 3, -1 / 4)
    slope[close] = sum(w * at(here + i * away) for i, w in enumerate(weights)) / away
    return slope


RESIDUALS: dict[str, LossFunction] = {
    "squared": lambda y, f: y - f,
    "correlation": lambda y, f: y + 0.0 * f,
    "logistic": lambda y, f: y * special.expit(-y * f),
    "hinge": lambda y, f: y * (y * f < 1),
    "exponential": lambda y, f: y * np.exp(-y * f),
}
"""e(y, f) of the losses of the package; huber has a number of its own."""


def _residual(loss: Loss, y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """e(y, f)."""
    if not loss.registered and loss.name in RESIDUALS:
        return np.asarray(RESIDUALS[loss.name](y, f))
    if not loss.registered and loss.name.startswith("huber"):
        delta = max(loss.kinks)
        return np.clip(y - f, -delta, delta)
    import jax.numpy as jnp

    return np.asarray(loss.residual(jnp.asarray(y), jnp.asarray(f)))


def _noise(law: Law, x: np.ndarray) -> np.ndarray:
    """ξ from standard normals: the quantile of its law at Φ(x)."""
    size, side = np.abs(x), np.sign(x)
    if law.name == "laplace":
        return -side * (math.log(2) + special.log_ndtr(-size)) / math.sqrt(2)
    if law.name == "uniform":
        return math.sqrt(12) * (special.ndtr(x) - 0.5)
    if law.nu == math.inf:
        return x
    scale = math.sqrt((law.nu - 2) / law.nu) if law.nu > 2 else 1.0
    return -scale * side * special.stdtrit(law.nu, special.ndtr(-size))


class Samples:
    """Fields, labels and what they push, at one point: arrays (sets, points, …)."""

    def __init__(
        self,
        problem: Problem,
        algorithm: SGD,
        at: Stand,
        rng: np.random.Generator,
        more: int = 1,
    ) -> None:
        self.problem, self.algorithm = problem, algorithm
        rule = algorithm.rule
        added = 0.0 if rule is None else rule.relabels
        self.in_blocks = blocks = at.Q.ndim == 3
        self.variances = np.asarray(problem.inputs.variances) if blocks else np.ones(1)
        Q, M = (x if blocks else x[None] for x in (at.Q, at.M))
        P = at.P if blocks else np.asarray(problem.P)[None]
        roots = [
            _root(np.block([[q, m], [m.T, p]])) for q, m, p in zip(Q, M, P, strict=True)
        ]
        self.Q, self.M, self.a = Q, M, at.a
        self.clipped = max(x for _, x in roots)
        ranks = [L.shape[1] for L, _ in roots]
        noisy, flips = problem.noise > 0, problem.labels.flips
        normals = sum(ranks) + noisy + (added > 0)
        x, self.w = self._drawn(normals, flips > 0, rng, more)
        self.count = self.w.size
        ends = np.cumsum([0, *ranks])
        self.parts = [
            math.sqrt(s) * x[..., i:j] @ L.T
            for s, i, j, (L, _) in zip(
                self.variances, ends[:-1], ends[1:], roots, strict=True
            )
        ]
        fields = np.sum(self.parts, axis=0)
        p = problem.p
        self.student, self.target = fields[..., :p], fields[..., p:]
        self._label(x, int(ends[-1]), noisy, added)

    def _drawn(
        self, normals: int, turned: bool, rng: np.random.Generator, more: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (sets, points, normals), with a uniform one at last where labels
        are turned, and weights.
        """
        width = normals + turned
        points = int(np.clip(NUMBERS // (SETS * width), FEWEST, POINTS)) * more
        steps = np.arange(points)[:, None] * _irrational(width)
        u = (steps + rng.random((SETS, 1, width))) % 1.0
        # there and back, so that the ends of the unit interval are no jump
        u = np.clip(1 - np.abs(2 * u - 1), 1e-16, 1 - 1e-16)
        x = np.array(u)
        x[..., :normals] = special.ndtri(u[..., :normals])
        wide = math.sqrt(1 + 2.8 / math.sqrt(normals))
        x[:, ::2, :normals] *= wide
        square = (x[..., :normals] ** 2).sum(-1)
        odds = np.exp(square / 2 * (1 - wide**-2) - normals * math.log(wide))
        return x, 2 / (1 + odds)

    def _label(self, x: np.ndarray, at: int, noisy: bool, added: float) -> None:
        """Labels and outputs."""
        problem = self.problem
        q = problem.labels.flips
        h = problem.target.on_host(self.target)
        y = np.where(x[..., -1] < q, -h, h) if q else h
        if noisy:
            y = y + math.sqrt(problem.noise) * _noise(problem.labels.law, x[..., at])
        if added:
            y = y + math.sqrt(added) * x[..., at + noisy]
        self.y, self.h = y, h
        self.sigma = problem.activation.on_host(self.student)
        self.f = self._output(self.sigma)
        self.excess = ((1 - 2 * q) * h - self.f) ** 2 / 2

    @cached_property
    def e(self) -> np.ndarray:
        """Residuals."""
        return _residual(self.algorithm.loss, self.y, self.f)

    @cached_property
    def plain(self) -> np.ndarray:
        """G, before any rule."""
        return self.slope * self.e[..., None]

    @cached_property
    def slope(self) -> np.ndarray:
        """a σ'."""
        return self.a * _differences(self.problem.activation, self.student)

    @cached_property
    def g(self) -> np.ndarray:
        """ĝ."""
        rule = self.algorithm.rule
        return self.plain if rule is None else self._ruled(rule)

    def _output(self, sigma: np.ndarray) -> np.ndarray:
        """f of every sample."""
        return (sigma * self.a).sum(-1) / self.problem.divisor

    def _ahead(self, rate: float) -> np.ndarray:
        """g after a step of this rate on the sample itself."""
        own = rate / (self.problem.divisor * self.algorithm.batch.coefficient)
        fields = self.student + own * self.plain
        sigma = self.problem.activation.on_host(fields)
        e = _residual(self.algorithm.loss, self.y, self._output(sigma))
        return self.a * _differences(self.problem.activation, fields) * e[..., None]

    def _ruled(self, rule: Rule) -> np.ndarray:
        """ĝ of every sample as d → ∞, where |z|² = d."""
        g, name, numbers = self.plain, rule.name, dict(rule.arguments)
        norm = np.sqrt((g**2).sum(-1, keepdims=True))
        safe = np.maximum(norm, 1e-300)
        if name in ("label_noise", "adagrad_norm", "adam"):
            return g
        if name == "clip":
            return g * np.minimum(1.0, numbers["threshold"] / safe)
        if name == "private":
            most = numbers.get("threshold")
            return g if most is None else g * np.minimum(1.0, most / safe)
        if name == "normalised":
            return np.where(norm > 0, g / safe, 0.0)
        if name == "polyak":
            rate = 2 * numbers["c"] * self.algorithm.lr.coefficient
            wish = (self.problem.divisor * self.e[..., None]) ** 2
            return g * np.minimum(1.0, wish / np.maximum(rate * norm**2, 1e-300))
        if name == "lookahead":
            return self._ahead(numbers["lr"].coefficient)
        if name == "two_step":
            return g + self._ahead(self.algorithm.lr.coefficient)
        if name == "sign":
            return np.sign(g)
        if name == "formula":
            names = ("norm", "g", "e", "r", "p")
            values = (norm, g, self.e[..., None], 1.0, float(self.problem.divisor))
            formula = parse(numbers["text"], names, "rule")
            return formula(**dict(zip(names, values, strict=True))) * np.ones_like(g)
        return self._registered(rule)

    def _registered(self, rule: Rule) -> np.ndarray:
        """What a function of the user's makes of the samples."""
        if rule.push is None:
            return self.plain
        import jax.numpy as jnp

        shape = self.plain.shape
        N, batch = self.problem.divisor, self.algorithm.batch.coefficient

        def flat(x: np.ndarray) -> Real:
            return jnp.asarray(x.reshape(-1, *x.shape[2:]))

        def shift(g: Real, rate: Number) -> Real:
            return rate / (N * batch) * g

        def at(fields: Real) -> Real:
            there = np.asarray(fields).reshape(shape)
            f = self._output(self.problem.activation.on_host(there))
            e = _residual(self.algorithm.loss, self.y, f)
            slope = _differences(self.problem.activation, there)
            return flat(self.a * slope * e[..., None])

        seen = Sight(
            flat(self.plain),
            flat(self.student),
            flat(self.e),
            1.0,
            shift,
            at,
            N,
            batch,
            self.algorithm.lr.coefficient,
        )
        return np.asarray(rule.push(seen)).reshape(shape)

    def average(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """E[x yᵀ] from each set."""
        return np.matmul((self.w[..., None] * x).swapaxes(1, 2), y) / x.shape[1]

    def size(self, *factors: np.ndarray) -> float:
        """The product of the root mean squares of the largest components."""
        total = 1.0
        for x in factors:
            square = (x * x).reshape(*self.w.shape, -1)
            total *= math.sqrt(float((self.w[..., None] * square).mean((0, 1)).max()))
        return total

    @cached_property
    def labels(self) -> np.ndarray:
        """y and f apart, which no good fit makes small, and e."""
        return np.stack([self.y, self.f, self.e], axis=-1)

    @cached_property
    def natural(self) -> float:
        """The size of ĝ where nothing cancels."""
        if self.algorithm.rule is not None:
            return max(self.size(self.g), 1e-300)
        return self.size(self.slope) * self.size(self.labels)

    def spread(self, rho: float, trained: bool) -> Estimate:
        """Σ from each set, of the increments of M, the upper triangle of Q, and a."""
        p = self.g.shape[-1]
        rows, columns = np.triu_indices(p)
        g, u = self.g, self.student
        M = g[..., :, None] * self.target[..., None, :]
        Q = g[..., rows] * u[..., columns] + u[..., rows] * g[..., columns]
        Q = Q + rho * g[..., rows] * g[..., columns]
        parts = [M.reshape(*M.shape[:2], -1), Q]
        parts += [self.e[..., None] * self.sigma] if trained else []
        X = np.concatenate(parts, axis=-1)
        X = X - (self.w[..., None] * X).mean((0, 1))
        return Estimate(self.average(X, X), self.size(X * X))


class Compared(NamedTuple):
    """An average by its name: what a method has, what samples say, and the error that
    is stated.
    """

    name: str
    value: np.ndarray
    estimate: Estimate
    stated: float


class ClockWeights(NamedTuple):
    """Of flow, decay, noise, second layer and jitter per unit of the clock, and of the
    sum that AdaGrad follows.
    """

    flow: float
    decay: float
    noise: float
    second: float
    jitter: float
    growth: float

    @classmethod
    def of(
        cls, problem: Problem, algorithm: SGD, numbers: Mapping[str, float]
    ) -> ClockWeights:
        """Read off the powers of d in a step and in its noise; ``numbers`` are the
        factors of schedules, what AdaGrad has seen, and d where it is finite.
        """
        N, rule, dim = problem.divisor, algorithm.rule, numbers.get("dim")
        f, b = numbers.get("rate", 1.0), numbers.get("batch", 1.0)
        # a sample lasts lr/N, and a step gives the norms (lr/N)² d/n_b: this much noise
        # in a unit of time
        lr, batch = algorithm.lr, algorithm.batch
        power = 1 + lr.exponent - batch.exponent
        flow, noise = float(power < SAME), float(power > -SAME)
        if "noise" in numbers:
            flow, noise = 1.0, numbers["noise"]
        elif dim is None:
            noise *= lr.coefficient / (N * batch.coefficient)
        else:
            flow, noise = 1.0, lr(int(dim)) * dim / (N * round(batch(int(dim))))
        gained = 1 / (1 - algorithm.momentum)
        second = algorithm.second_lr or lr
        ratio = second.coefficient / lr.coefficient
        if dim is not None:
            ratio = second(int(dim)) / lr(int(dim))
        small, jitter, growth = 1.0, 0.0, 0.0
        if rule is not None and rule.adapts is not None:
            small = 1 / math.sqrt(rule.adapts**2 + numbers.get("seen", 0.0))
            growth = 1 / (N * batch.coefficient * b * lr.coefficient)
        if rule is not None and abs(lr.exponent + 1) < SAME:
            jitter = (gained * f * rule.jitter) ** 2 * lr.coefficient / N
        moves = float(algorithm.train_first_layer)
        return cls(
            flow=moves * flow * gained * f * small,
            decay=moves * flow * gained * f * small * N * algorithm.weight_decay,
            noise=moves * noise * (gained * f * small) ** 2 / b,
            second=flow * gained * f * ratio,
            jitter=moves * jitter,
            growth=growth,
        )


class Witness:
    """Averages at one point, by samples."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.algorithm, self.problem = samples.algorithm, samples.problem
        self.normalises = (
            self.algorithm.geometry != "free" and self.algorithm.train_first_layer
        )

    @cached_property
    def _first(self) -> list[np.ndarray]:
        """Psi and phi of every block (sets, blocks, …)."""
        rule, samples, p = self.algorithm.rule, self.samples, self.problem.p
        # the sign of a coordinate knows its field by this much
        drift = (
            math.sqrt(2 / math.pi) if rule is not None and rule.name == "sign" else 1
        )
        g = drift * samples.g
        return [
            np.stack([samples.average(g, part[..., cut]) for part in samples.parts], 1)
            for cut in (slice(p, None), slice(p))
        ]

    @property
    def psi(self) -> np.ndarray:
        """E[ĝ λ*]."""
        return self._first[0]

    @property
    def phi(self) -> np.ndarray:
        """E[ĝ λ]."""
        return self._first[1]

    @cached_property
    def chi(self) -> np.ndarray:
        """E[ĝ ĝᵀ]."""
        return self.samples.average(self.samples.g, self.samples.g)

    @cached_property
    def second(self) -> np.ndarray:
        """E[e σ]."""
        samples = self.samples
        return samples.average(samples.e[..., None], samples.sigma)[:, 0]

    @cached_property
    def sizes(self) -> dict[str, float]:
        """Of the averages where nothing cancels."""
        samples, one = self.samples, self.samples.natural
        return {
            "M": one * samples.size(samples.target),
            "Q": one * samples.size(samples.student),
            "a": samples.size(samples.sigma) * samples.size(samples.labels),
            "chi": one**2,
        }

    def found(self, claim: Claim) -> list[Compared]:
        """The averages of a claim; where the method follows other numbers than the
        laws at d → ∞, those are among its own.
        """
        kinds = {
            "flow": self._flow,
            "noise": self._noise,
            "drift": self._drift,
            "step": self._step,
            "covariance": self._covariance,
            "risk": self._risk,
        }
        expected = kinds[claim.kind](claim)
        room = ROUNDING + 10 * self.samples.clipped + claim.error + _scatter(claim.rule)
        more = claim.errors or {}
        return [
            Compared(
                name,
                np.asarray(claim.values[key]),
                estimate,
                room * estimate.size + more.get(key, 0.0),
            )
            for key, (name, estimate) in expected.items()
            if key in claim.values
        ]

    def _factors(self, numbers: Mapping[str, float]) -> tuple[float, float, float]:
        """By which schedules and AdaGrad change flow, noise and the second layer."""
        rate, rule = numbers.get("rate", 1.0), self.algorithm.rule
        own = 1.0
        if rule is not None and rule.adapts is not None:
            own = 1 / math.sqrt(rule.adapts**2 + numbers.get("seen", 0.0))
        return rate * own, (rate * own) ** 2 / numbers.get("batch", 1.0), rate

    def _tangent(self, dQ: np.ndarray, dM: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is left where rows keep their norms."""
        if not self.normalises:
            return dQ, dM
        Q, M = self.samples.Q, self.samples.M
        change = np.diagonal(dQ.sum(1), axis1=1, axis2=2)
        own = change / (2 * np.diagonal(Q.sum(0)))
        pairs = own[:, :, None] + own[:, None, :]
        return dQ - Q * pairs[:, None], dM - M * own[:, None, :, None]

    def _shaped(self, x: np.ndarray) -> np.ndarray:
        """Without the axis of blocks where there are none."""
        return x if self.samples.in_blocks else x[:, 0]

    def _chi(self) -> np.ndarray:
        """Chi of every block."""
        samples = self.samples
        share = np.ones(1)
        if samples.in_blocks:
            share = samples.variances * np.asarray(self.problem.inputs.fractions)
        return share[:, None, None] * self.chi[:, None]

    def _flow(self, claim: Claim) -> dict[str, tuple[str, Estimate]]:
        """Psi, phi + phiᵀ and second, times the factor of the rate."""
        f, _, second = self._factors(claim.numbers)
        dQ, dM = self._tangent(self.phi + self.phi.swapaxes(-1, -2), self.psi)
        mixed = "psi, phi" if self.normalises else "psi"
        return {
            "M": (mixed, Estimate(f * self._shaped(dM), f * self.sizes["M"])),
            "Q": ("phi", Estimate(f * self._shaped(dQ), 2 * f * self.sizes["Q"])),
            "a": ("second", Estimate(second * self.second, second * self.sizes["a"])),
        }

    def _noise(self, claim: Claim) -> dict[str, tuple[str, Estimate]]:
        """Chi, times the factor of the noise."""
        _, f, _ = self._factors(claim.numbers)
        dQ, dM = self._tangent(self._chi(), 0.0 * self.psi)
        size = f * self.sizes["chi"]
        return {
            "M": ("chi", Estimate(f * self._shaped(dM), size)),
            "Q": ("chi", Estimate(f * self._shaped(dQ), size)),
        }

    def _drift(self, claim: Claim) -> dict[str, tuple[str, Estimate]]:
        """The right-hand side."""
        x = ClockWeights.of(self.problem, self.algorithm, claim.numbers)
        samples = self.samples
        dM = x.flow * self.psi - x.decay * samples.M
        dQ = x.flow * (self.phi + self.phi.swapaxes(-1, -2)) - 2 * x.decay * samples.Q
        dQ = dQ + x.noise * self._chi()
        if x.jitter:
            share = np.ones(1)
            if samples.in_blocks:
                share = np.asarray(self.problem.inputs.fractions)
            dQ = dQ + x.jitter * share[:, None, None] * np.eye(self.problem.p)
        dQ, dM = self._tangent(dQ, dM)
        moved = {
            name: size + x.decay * float(np.abs(start).max(initial=0.0))
            for name, size, start in (
                ("M", x.flow * self.sizes["M"], samples.M),
                (
                    "Q",
                    2 * x.flow * self.sizes["Q"] + x.noise * self.sizes["chi"],
                    samples.Q,
                ),
            )
        }
        trace = np.trace(self.chi, axis1=1, axis2=2)
        return {
            "M": ("dM/dt", Estimate(self._shaped(dM), moved["M"])),
            "Q": ("dQ/dt", Estimate(self._shaped(dQ), moved["Q"])),
            "a": (
                "da/dt",
                Estimate(x.second * self.second, x.second * self.sizes["a"]),
            ),
            "seen": (
                "the sum of squared gradients",
                Estimate(
                    x.growth * trace, x.growth * self.problem.p * self.sizes["chi"]
                ),
            ),
        }

    def _step(self, claim: Claim) -> dict[str, tuple[str, Estimate]]:
        """One step of free rows at the numbers of a dimension, or of giant steps."""
        samples, numbers, algorithm = self.samples, claim.numbers, self.algorithm
        dim = int(numbers.get("dim", 1))  # as d → ∞ giant steps do not know it
        lr, second_lr = algorithm.lr(dim), (algorithm.second_lr or algorithm.lr)(dim)
        eta = lr / self.problem.divisor * algorithm.train_first_layer
        keep = 1 - lr * algorithm.weight_decay * algorithm.train_first_layer
        single = 1 / round(algorithm.batch(dim)) if "dim" in numbers else 0.0
        # giant steps have batches of α d, and larger ones no noise
        norm = (
            dim * single or float(algorithm.mu < 1 + SAME) / algorithm.batch.coefficient
        )
        norm *= numbers["norm"]
        second = second_lr / self.problem.divisor
        psi, phi, (Q, M) = self.psi[:, 0], self.phi[:, 0], (samples.Q[0], samples.M[0])
        v = np.concatenate([phi, psi], axis=-1)
        omega = np.block([[Q, M], [M.T, np.asarray(self.problem.P)]])
        inverse = np.linalg.pinv(omega, rcond=FLAT, hermitian=True)
        # of a product of means, about the mean of all sets
        middle = v.mean(0)
        apart = (v - middle) @ inverse @ middle.T
        pairs = middle @ inverse @ middle.T + apart + apart.swapaxes(-1, -2)
        new = keep**2 * Q + keep * eta * (phi + phi.swapaxes(-1, -2))
        new = new + eta**2 * (norm * self.chi + numbers["pairs"] * (1 - single) * pairs)
        if numbers["dimension"]:
            g, u = samples.g, np.concatenate([samples.student, samples.target], axis=-1)
            inside = np.einsum("rna,ab,rnb->rn", u, inverse, u)[..., None]
            rank = np.linalg.matrix_rank(omega, tol=FLAT, hermitian=True)
            new = new + eta**2 * single * samples.average((inside - rank) * g, g)
        size = (
            2 * eta * self.sizes["Q"]
            + eta**2 * (norm + 1) * self.sizes["chi"]
            + float(np.abs(Q).max())
        )
        return {
            "M": (
                "the mean step of M",
                Estimate(keep * M + eta * psi, eta * self.sizes["M"] + np.abs(M).max()),
            ),
            "Q": ("the mean step of Q", Estimate(new, size)),
            "a": (
                "the mean step of a",
                Estimate(
                    samples.a + second * self.second,
                    second * self.sizes["a"] + np.abs(samples.a).max(),
                ),
            ),
        }

    def _covariance(self, claim: Claim) -> dict[str, tuple[str, Estimate]]:
        """Σ of single samples."""
        trained = self.algorithm.train_second_layer
        return {"Σ": ("Σ", self.samples.spread(claim.numbers["rho"], trained))}

    def _risk(self, claim: Claim) -> dict[str, tuple[str, Estimate]]:
        """The excess risk."""
        samples = self.samples
        means = (samples.w * samples.excess).mean(1)
        size = samples.size(np.stack([samples.h, samples.f], axis=-1)) ** 2
        return {"risk": ("risk", Estimate(means, size))}


def _compared(
    problem: Problem, algorithm: SGD, points: Sequence[Stand], seed: int, more: int = 1
) -> tuple[list[Compared], int]:
    """All averages at all points, and how many samples were drawn at each."""
    found: list[Compared] = []
    count = 0
    for number, stand in enumerate(points):
        rng = np.random.default_rng([seed, number])
        with np.errstate(all="ignore"):
            samples = Samples(problem, algorithm, stand, rng, more)
            witness = Witness(samples)
            count = samples.count
            for claim in stand.claims:
                found += witness.found(claim)
    return found, count


def _deviations(found: Compared) -> np.ndarray:
    """Beyond the error that is stated, in standard errors; 0 where samples have no
    mean.
    """
    mean, error = found.estimate.mean, found.estimate.error
    beyond = np.maximum(np.abs(found.value - mean) - found.stated, 0.0)
    known = np.isfinite(mean) & np.isfinite(error)
    scale = np.where(known & (error > 0), error, 1e-300)
    return np.where(known, np.minimum(beyond / scale, 1e6), 0.0)


@float64
def heard(
    problem: Problem, algorithm: SGD, points: Sequence[Stand]
) -> Testimony | None:
    """What samples say of the claims at some points; None where there are none."""
    points = [stand for stand in points if _finite(stand)]
    found, count = _compared(problem, algorithm, points, 0)
    entries = sum(x.value.size for x in found)
    if not entries:
        return None
    worst = [float(_deviations(x).max(initial=0.0)) for x in found]
    freedom = SETS - 1
    refuted: dict[str, tuple[float, float, float]] = {}
    if max(worst) > limit_of(entries, freedom, SUSPICION):
        suspects = [x > limit_of(entries, freedom, SUSPICION) for x in worst]
        found, count = _compared(problem, algorithm, points, 1, AGAIN)
        again = [float(_deviations(x).max(initial=0.0)) for x in found]
        certain = max(LEAST, limit_of(entries, freedom, CERTAINTY))
        for x, suspect, size in zip(found, suspects, again, strict=True):
            if suspect and size > certain:
                refuted.setdefault(x.name, _told(x))
        worst = again
    place = int(np.argmax(worst))
    return Testimony(worst[place], found[place].name, entries, count, refuted)


def _told(found: Compared) -> tuple[float, float, float]:
    """The entry that is furthest off: what the method has, the mean, its error."""
    at = np.unravel_index(int(np.argmax(_deviations(found))), found.value.shape)
    mean, error = found.estimate.mean, found.estimate.error
    return float(found.value[at]), float(mean[at]), float(error[at])


def _finite(stand: Stand) -> bool:
    """Whether a point is one, with a claim."""
    return bool(stand.claims) and all(
        np.isfinite(x).all() and np.abs(x).max(initial=0.0) < 1e8
        for x in (stand.Q, stand.M, stand.a)
    )


@float64
def testimony_on(task: Task, record: Record, dataset: xr.Dataset) -> Testimony | None:
    """What samples say of the averages of a run and of its risks; None where nothing
    can be compared.
    """
    problem, algorithm = task.problem, task.algorithm
    stands = list(record.claims())
    if "Q" in dataset and "weight" not in dataset:
        rule = str(json.loads(dataset.attrs["notes"])["risk"])
        for time in (0, -1):
            risk = {"risk": dataset.excess_risk.values[0, time]}
            claim = Claim("risk", risk, 0.0, {}, rule=rule)
            Q, M, a = (dataset[name].values[0, time] for name in ("Q", "M", "a"))
            here = Stand(Q, M, a, [])
            same = [i for i, other in enumerate(stands) if _equal(here, other)]
            if not same:
                stands.append(here)
            stands[same[0] if same else -1].claims.append(claim)
    return heard(problem, algorithm, stands)


def _scatter(rule: str) -> float:
    """The relative error of averages over random points, where a rule has some."""
    found = re.search(r"2\^(\d+) Sobol", rule)
    return 0.0 if found is None else 2 ** (-int(found[1]) / 2) / 2


def _equal(one: Stand, other: Stand) -> bool:
    """Whether two points are the same."""
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("Q", "M", "a")
    )
