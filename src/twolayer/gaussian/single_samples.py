"""What single samples do at given overlaps, and how finely it is known.

    λ* = L ξ*,    λ = A ξ* + B ξ⊥,    A = M L⁺ᵀ,    B Bᵀ = Q − A Aᵀ
    x = (g_j ξ_a, g_j g_l, e σ(λ_j)),    as uncorrelated parts (sample_parts.py)

closed     polynomials (hermite_samples.py), erf (erf_samples.py)
nodes      over (ξ*, ξ⊥, ξ), ξ the label noise: E[F] = Σ_ν w_ν F_ν. Exact for
           polynomials in few dimensions, quadrature where all is smooth, Sobol points
           otherwise

Covariances of increments and sums over large batches follow from x. Rules are taken
from the cheapest on, until all variances of x are within a tolerance: by the next order
of quadrature, or by the spread over scramblings of the points.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.equations.increment_kernel import Kernel, Sample, kernel_of
from twolayer.equations.state import Overlap
from twolayer.gaussian.erf_samples import ErfSamples
from twolayer.gaussian.hermite_samples import HermiteSamples
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.quadrature import nested_rule
from twolayer.gaussian.sample_parts import FieldRows, Parts, SampleMean
from twolayer.numerics.quadrature_rules import Nodes, hermite_rule, wide_sobol
from twolayer.numerics.special import symmetric_root
from twolayer.numerics.types import Cross, Gram, Layer, Numbers, Real, Scalar
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem

__all__ = [
    "CHECKED",
    "LOG2_POINTS",
    "TOLERANCE",
    "Choice",
    "NodeSamples",
    "Place",
    "Samples",
    "TaskSamples",
    "choose",
    "choose_for",
    "error_near",
    "place_at",
    "rows_of",
    "typical_rows",
]

MAX_NODES = 30_000
MAX_CHECKED = 200_000  # nodes of the finer quadrature that tells the error of another
LOG2_POINTS = 13  # that most tasks take
FEWEST, MOST = 12, 17  # Sobol points, as powers of two
SCRAMBLINGS = 4  # whose spread is the error
CHUNK = 2**12  # nodes at once where errors are measured
TOLERANCE = 0.02  # of variances: one percent of a standard deviation
ORDER, FINER = 6, 8  # points per panel
CHECKED = 4  # runs at whose ends the error of a rule is measured
VANISHING = 1e-12  # variances below this, relative to the largest, count as zero


def rows_of(Q: Gram, M: Cross, inverse: Numbers) -> tuple[Numbers, Numbers]:
    """A (p, r) and B (p, p): the rows of the student in the frame of the target and
    beyond.
    """
    A = M @ inverse.T
    return A, symmetric_root(Q - A @ A.T)


class NodeSamples(eqx.Module):
    """Parts of one sample at nodes over (ξ, ζ), ζ the label noise: what it does at
    each, less its mean. Cost O(nodes · p (p + n)).
    """

    kernel: Kernel = eqx.field(static=True)
    nodes: Nodes
    label: str = eqx.field(static=True)

    def values(
        self, rows: FieldRows, a: Layer, noise: Scalar
    ) -> tuple[Real, Real, Real]:
        """g_j ξ_a (N, p, n), g_j g_l (N, p, p) and e σ(λ_j) (N, p) at the nodes."""
        n = rows.own.shape[1]
        xi, spoilt = self.nodes.xi[:, :n], self.nodes.xi[:, -1]
        fields = xi @ rows.own.T, xi @ rows.star.T
        sample = Sample(*fields, self.kernel.labels.spoil(spoilt, noise))
        push = self.kernel.push(sample, a)
        g = push.first
        pull = g[:, :, None] * xi[:, None, :]
        return pull, g[:, :, None] * g[:, None, :], push.second

    def __call__(self, rows: FieldRows, a: Layer, noise: Scalar) -> Parts:
        """The parts at some rows."""
        w = self.nodes.weights
        values = self.values(rows, a, noise)
        mean = SampleMean(*(jnp.tensordot(w, x, 1) for x in values))
        pull, pair, second = values
        return Parts(w, pull - mean.pull, pair - mean.pair, second - mean.second, mean)


Samples: TypeAlias = NodeSamples | HermiteSamples | ErfSamples
"""FieldRows, second layer, Δ → the parts of one sample."""


class Place(NamedTuple):
    """Where single samples are looked at: the rows (A, B) of the student in the frame
    of the target and beyond, the second layer, and Δ.
    """

    A: Numbers
    B: Numbers
    a: Layer
    noise: Scalar


def typical_rows(
    p: int, rank: int, columns: int, a: Layer, noise: Scalar
) -> list[Place]:
    """Neurons of norm one that know nothing of the target, and such that know part of
    it.
    """
    apart = np.eye(p, columns)
    towards = np.eye(rank)[np.arange(p) % rank]
    return [
        Place(np.zeros((p, rank)), apart, a, noise),
        Place(0.6 * towards, 0.8 * apart, a, noise),
    ]


def _families(
    kernel: Kernel, L: np.ndarray, p: int, columns: int, noisy: bool, both: bool
) -> Iterator[tuple[Samples, ...]]:
    """Rules for one sample, from the cheapest on: the one that is used, with others
    that tell its error.
    """
    closed = HermiteSamples.of(kernel, L, columns, noisy) or ErfSamples.of(
        kernel, L, p, both
    )
    if closed is not None:
        yield (closed,)
        return
    sigma, h = kernel.activation.polynomial, kernel.target.polynomial
    fields = L.shape[1] + columns
    noise_points = 3 if noisy else 1
    # three points average what is linear in e over Gaussian noise; nothing splits where
    # labels flip or a loss bends
    simple = kernel.labels.plain and (
        kernel.loss.student is not None or not (noisy or kernel.loss.kinks)
    )
    linear = kernel.loss.student is not None and kernel.rule is None
    if sigma is not None and h is not None and simple and linear:
        D, E = len(sigma) - 1, max(len(sigma) - 1, max(map(sum, h), default=0))
        n = 2 * (D - 1 + E) + 1
        if n**fields * noise_points <= MAX_NODES:
            rule = hermite_rule([n] * fields + [noise_points])
            yield (NodeSamples(kernel, rule, "exact"),)
            return
    # the columns of B are coordinates, not fields: kinks are not on the axes, so
    # nothing is split
    smooth = (
        simple
        and kernel.rule is None
        and not kernel.activation.kinks
        and kernel.target.smooth
    )
    few = (4 * ORDER) ** fields * noise_points <= MAX_NODES
    checked = (4 * FINER) ** fields * noise_points <= MAX_CHECKED
    if smooth and few and checked:
        rules = (_quadrature(n, fields, noise_points) for n in (ORDER, FINER))
        yield tuple(NodeSamples(kernel, rule, "quadrature") for rule in rules)
    for log2_points in range(FEWEST, MOST + 1):
        label = f"2^{log2_points} Sobol points"
        rules = (wide_sobol(fields + 1, log2_points, i) for i in range(SCRAMBLINGS))
        yield tuple(NodeSamples(kernel, rule, label) for rule in rules)


def _quadrature(order: int, fields: int, noise_points: int) -> Nodes:
    """Panels over the fields, and Gauss–Hermite nodes over the label noise."""
    points, weights, _ = nested_rule(
        np.eye(fields), [()] * fields, order, np.eye(fields, dtype=bool)
    )
    noise, w = hermite_rule([noise_points])
    xi = np.concatenate(
        [np.repeat(points, len(noise), axis=0), np.tile(noise, (len(points), 1))],
        axis=1,
    )
    return Nodes(xi, np.repeat(weights, len(w)) * np.tile(w, len(weights)))


@eqx.filter_jit
def _moments(samples: NodeSamples, L: Numbers, place: Place) -> tuple[Real, Real]:
    """Sums of x over some of the nodes, and of its squares."""
    rows = FieldRows.of(place.A, place.B, L)
    pull, pair, second = samples.values(rows, place.a, place.noise)
    j, l = np.triu_indices(pair.shape[1])
    parts = [pull.reshape(len(pull), -1), pair[:, j, l], second]
    X = jnp.concatenate(parts, axis=1)
    return samples.nodes.weights @ X, samples.nodes.weights @ X**2


def _variances(samples: Samples, L: Numbers, place: Place) -> np.ndarray:
    """Variances by one rule, in chunks of one size: one compilation serves all."""
    assert isinstance(samples, NodeSamples)
    nodes = samples.nodes
    total = len(nodes.weights)
    more = -total % CHUNK
    xi = np.pad(nodes.xi, ((0, more), (0, 0)), mode="edge")
    weights = np.pad(nodes.weights, (0, more))
    mean, square = np.zeros(()), np.zeros(())
    for start in range(0, total, CHUNK):
        here = slice(start, start + CHUNK)
        some = NodeSamples(samples.kernel, Nodes(xi[here], weights[here]), "")
        first, second = _moments(some, L, place)
        mean, square = mean + np.asarray(first), square + np.asarray(second)
    return np.asarray(square - mean**2)


@dataclass(frozen=True, eq=False)
class Choice:
    """A rule for one sample of a task, and how good it is.

    ``rules`` are the one that is used and others of its kind; ``error`` is the largest
    relative error of a variance where it was chosen.
    """

    L: np.ndarray
    rules: tuple[Samples, ...]
    error: float = 0.0

    @property
    def samples(self) -> Samples:
        """The rule that is used."""
        return self.rules[0]

    @property
    def label(self) -> str:
        """What it is called, for reports."""
        return self.samples.label

    def error_at(self, places: Iterable[Place]) -> float:
        """Largest relative error of a variance at other rows. Cost O(nodes · F), F = p
        (r + p) + p (p + 1)/2 + p, for each of the rules; none where they are closed.
        """
        return max((self._error(place) for place in places), default=0.0)

    def _error(self, place: Place) -> float:
        if len(self.rules) == 1:
            return 0.0
        found = np.array([_variances(rule, self.L, place) for rule in self.rules])
        apart = np.ptp(found, axis=0) if len(found) == 2 else found.std(0, ddof=1)
        size = found.mean(0)
        seen = ~(size <= VANISHING * size.max())
        return float((apart[seen] / size[seen]).max(initial=0.0))


def choose(
    kernel: Kernel,
    L: np.ndarray,
    places: Sequence[Place],
    noisy: bool,
    tolerance: float = TOLERANCE,
    both: bool = True,
) -> Choice:
    """The cheapest rule whose variances are within the tolerance at some rows, or the
    finest there is; ``both``: whether e σ(λ) is asked for too.
    """
    p, columns = np.shape(places[0].B)
    for rules in _families(kernel, L, p, columns, noisy, both):
        found = Choice(L, rules)
        error = found.error_at(places)
        if not error > tolerance:
            break
    return dataclasses.replace(found, error=error)


def choose_for(
    problem: Problem,
    algorithm: SGD,
    tolerance: float = TOLERANCE,
    starts: Iterable[Overlap] = (),
) -> Choice:
    """A rule that fits a task, at typical rows and at those of given overlaps."""
    L, inverse = target_frame(problem.P)
    a, p = problem.a(), problem.p
    noise = np.asarray(problem.noise, float)
    places = typical_rows(p, L.shape[1], p, a, noise)
    places += [place_at(y, inverse, noise) for y in starts]
    kernel = kernel_of(problem, algorithm)
    both = algorithm.train_second_layer
    return choose(kernel, L, places, problem.noise > 0, tolerance, both)


def place_at(y: Overlap, inverse: Numbers, noise: Scalar) -> Place:
    """The rows of a network with these overlaps."""
    return Place(*rows_of(y.Q, y.M, inverse), y.a, noise)


def error_near(
    choice: Choice | None, problem: Problem, states: Iterable[Overlap]
) -> float:
    """Largest relative error of a variance by a rule at overlaps that are finite;
    nothing where no rule was asked for.
    """
    if choice is None:
        return 0.0
    inverse = target_frame(problem.P)[1]
    noise = np.asarray(problem.noise, float)
    finite = [y for y in states if all(np.isfinite(x).all() for x in y)]
    return choice.error_at(place_at(y, inverse, noise) for y in finite)


class TaskSamples(eqx.Module):
    """What single samples of a task do, and the frame of its target."""

    samples: Samples
    L: np.ndarray
    inverse: np.ndarray

    @classmethod
    def build(
        cls,
        problem: Problem,
        algorithm: SGD,
        choice: Choice | None = None,
        **more: bool,
    ) -> Self:
        """A rule that fits the problem, or that was chosen before, with ``more`` that a
        subclass has to know.
        """
        inverse = target_frame(problem.P)[1]
        chosen = choice or choose_for(problem, algorithm)
        return cls(chosen.samples, chosen.L, inverse, **more)

    @property
    def label(self) -> str:
        """What the rule is called, for reports."""
        return self.samples.label

    def rows(self, y: Overlap) -> FieldRows:
        """The rows of the fields with these overlaps."""
        return FieldRows.of(*rows_of(y.Q, y.M, self.inverse), self.L)

    def parts(self, y: Overlap, noise: Scalar) -> Parts:
        """What one sample does there."""
        return self.samples(self.rows(y), y.a, noise)
