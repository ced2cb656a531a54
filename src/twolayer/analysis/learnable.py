"""What giant steps learn, from the push of one sample.

    u = the target's fields in an orthonormal frame,    λ* = L u,  P = L Lᵀ
    U_t = the directions that the rows have an overlap with before step t,    U_1 = {}
    λ_j = κ_j·u_U + ω_j                                      a row that knows U_t and
        nothing else
    U_{t+1} = U_t + span { E[ g_j(λ, y) u ] }
        over generic κ and independent normals ω

Nothing else is needed, because a step moves row j by lr E[g_j z]/N and what it gains
along the target is E[g_j u]. With fresh samples and a push linear in y the averages are
those of E[y u_V | u_U]: order one of the leap chain, the staircase. A push that is not
linear in y (a loss or a rule that bends, samples that come back) sees other functions
of y, hence order one of the generative chain, as far as the push can express it.

A sample that comes back finds its own push in the fields, for W has moved by (lr/(N
n_b)) g zᵀ and |z|² = d:

    λ ← λ + κ·u_U + c g(λ, y)    at every earlier visit,    c = lr/(N α),
        taken of order one here

Averages are taken at scrambled Sobol points with all signs of u and ω, so that what
vanishes by symmetry does so to rounding. Whether another one vanishes is judged by the
scatter over the scramblings, of more points where it is too large to tell; what is
smaller than that stays unseen, and `Learnable.resolution` says how small that is. A
direction that moves by less than a hundredth of the push counts from the step at which
it moves by more, if there is one: two rows that bend alike tell their directions apart
that little long before it matters.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from numpy.polynomial import hermite_e

from twolayer.analysis.directions import complement, sparse_basis, varies, written
from twolayer.analysis.target_coordinates import frame_of
from twolayer.equations.increment_kernel import Kernel, Sample, kernel_of
from twolayer.methods.dmft.method import DMFT
from twolayer.methods.giant import GiantSteps
from twolayer.numerics.errors import InputError, Refused, expect
from twolayer.numerics.precision import float64
from twolayer.numerics.quadrature_rules import draw_sobol_normals
from twolayer.numerics.significance import limit_of
from twolayer.numerics.types import Real
from twolayer.task.algorithm import SGD
from twolayer.task.inputs import Inputs
from twolayer.task.problem import Problem

__all__ = ["Learnable", "learnable"]

REPLICATES = 32
FINENESS = (15, 17, 19)  # log2 of the points of a replicate, with their signs
ENOUGH = 0.01  # of the push: noise, and errors of directions, that need no more points
FAINT = 0.01  # of the push: what moves by less waits for a later step
FEWEST = 10  # log2 of the points of a replicate, which are taken with many signs
MOST_AXES = 4  # up to which every axis has a sign of its own
EXACT = 1e-12  # averages that are zero to rounding
HEAVY = (
    "the push has tails so heavy that single samples make up its mean square, and"
    " averages over samples decide nothing; a loss or a rule whose push is bounded has"
    " them"
)
STUDENTS = 4  # generic sets of rows
LEVEL = 1e-6  # chance that the scatter of one step is taken for a direction
DOMINANT = (
    0.1  # share of one sample in E[g²] from which on samples say nothing about it
)
LEAK = 3.0  # how far an inexact direction may be off, in units of its error
ROUGH = 0.1  # what is farther from coordinate axes is not taken for them
MEMORY = (
    3  # visits of a sample that are followed; more of them bend the push no further
)
LONGEST = (
    16  # steps; a chain of k directions needs at most k, and k ≤ LONGEST / 2 is plenty
)
SEED = 7


@dataclass(frozen=True, eq=False)
class Learnable:
    """At which step an algorithm finds each direction of a target. Made by `learnable`.

    Attributes
    ----------
    steps : list of int or None
        The step at which rows first move along each direction; None: they never do.
    directions : array (n, r)
        Those directions as orthonormal rows in the order learned, in the frame of the
        target: the first coordinate is along w*_1, the second along the part of w*_2
        that is orthogonal to it, and so on. For an orthonormal target (P = I) these are
        the coordinates z1, z2, … themselves.
    sizes : array (n,)
        The largest average along each direction, relative to the root mean square of
        the push: what moves it at its step, or for None what was left in the last step.
    resolution : float
        Averages below this (relative to the push) cannot be told from zero.
    reused : bool
        Whether samples come back.
    """

    steps: list[int | None]
    directions: np.ndarray
    sizes: np.ndarray
    resolution: float
    reused: bool

    @property
    def reasons(self) -> list[str]:
        """For each direction why it is learned then, or never."""
        return [
            self._reason(step, size)
            for step, size in zip(self.steps, self.sizes, strict=True)
        ]

    def _reason(self, step: int | None, size: float) -> str:
        if step is None and size <= EXACT:
            return "E[push · u] vanishes by symmetry, whatever rows know of the others"
        if step is None:
            return (
                f"|E[push · u]| ≤ {max(size, self.resolution):.1g} of the push,"
                " whatever rows know of the others"
            )
        before = (
            "rows that know nothing"
            if step == 1
            else "rows that know the directions before"
        )
        if self.reused and step > 1:
            before += " and samples that have been used"
        return f"|E[push · u]| = {size:.2g} of the push for {before}"

    def __str__(self) -> str:
        """Every direction with its step and the reason."""
        lines = []
        for row, step, reason in zip(
            self.directions, self.steps, self.reasons, strict=True
        ):
            when = "never " if step is None else f"step {step}"
            lines.append(f"{written(row)}  {when}  {reason}")
        return "\n".join(lines) or "no direction"

    def __repr__(self) -> str:
        return (
            f"Learnable(steps={self.steps},"
            f" directions={self.directions.round(4).tolist()})"
        )


class _Setting(NamedTuple):
    """What the averages are taken of: the push, points (replicates, n, …), and the
    signs that are given to them.
    """

    kernel: Kernel
    frame: np.ndarray
    # u, ω, normals of the labels, weights
    points: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    signs: np.ndarray
    noise: float
    a: np.ndarray


@functools.partial(jax.jit, static_argnames="kernel")
def _averages(
    kernel: Kernel,
    frame: Real,
    points: tuple[Real, Real, Real, Real],
    signs: Real,
    noise: float,
    a: Real,
    kappas: Real,
    shifts: Real,
) -> tuple[Real, Real, Real]:
    """E[g_j u] (replicates, students, p, r); E[g_j²] and the largest g_j² of a sample,
    (replicates, students, p).

    ``kappas`` (visits + 1, students, p, r) is what rows know at every visit of the
    samples, ``shifts`` (visits,) is c. Every point is taken with all the signs: what
    vanishes by symmetry then vanishes to rounding, whatever the tails. Cost O(points ·
    signs · students · p · visits).
    """
    r = frame.shape[1]

    def of_points(
        u: Real, omega: Real, normals: Real, weights: Real
    ) -> tuple[Real, Real, Real]:
        target = u @ frame.T
        spoilt = kernel.labels.spoil(normals[:, 0], noise)

        def push(fields: Real, visit: int) -> Real:
            labels = spoilt
            if kernel.labels.more:
                labels = kernel.labels.again(spoilt, normals[:, 1 + visit])
            return kernel.push(Sample(fields, target, labels), a).first

        def student(kappa: Real) -> tuple[Real, Real, Real]:
            fields = omega + u @ kappa[0].T
            for visit in range(len(kappa) - 1):
                own = push(fields, visit)
                fields = fields + shifts[visit] * own + u @ kappa[visit + 1].T
            g = push(fields, len(kappa) - 1)
            return (weights[:, None] * g).T @ u, (g**2).mean(0), (g**2).max(0)

        return jax.vmap(student, in_axes=1)(kappas)

    def replicate(points: tuple[Real, Real, Real, Real]) -> tuple[Real, Real, Real]:
        u, omega, normals, weights = points

        def signed(sign: Real) -> tuple[Real, Real, Real]:
            return of_points(
                u * sign[:r], omega * sign[r], normals * sign[r + 1], weights
            )

        first, square, largest = jax.lax.map(signed, signs)
        return first.mean(0), square.mean(0), largest.max(0)

    return jax.lax.map(replicate, points)


def _setting(
    problem: Problem, algorithm: SGD, frame: np.ndarray, fineness: int
) -> _Setting:
    """Points, and the push that the algorithm makes of a sample."""
    kernel = kernel_of(problem, algorithm)
    r, p = frame.shape[1], problem.p
    # the algorithm's own noise on the labels is new at every visit
    normals = 1 + (MEMORY + 1) * (kernel.labels.more > 0)
    signs = _signs(r)
    log2_points = max(fineness - (len(signs).bit_length() - 1), FEWEST)
    drawn = [
        draw_sobol_normals(r + p + normals, log2_points, seed=[SEED, i])
        for i in range(REPLICATES)
    ]
    parts = np.split(np.stack(drawn), [r, r + p], axis=-1)
    weights = np.stack([_weigh(axes) for axes in parts[0]])
    return _Setting(
        kernel,
        frame,
        (parts[0], parts[1], parts[2], weights),
        signs,
        problem.noise,
        problem.a(),
    )


def _weigh(u: np.ndarray) -> np.ndarray:
    """Weights of points (n, r) that average 1 to one, and He_2(u_i), He_4(u_i) and
    He_2(u_i) He_2(u_j) to zero, as the Gaussian does.

    w = H (HᵀH)⁻¹ (1, 0, …, 0)ᵀ with a first column of ones in H: the regression on H
    taken off every average, which is most of the scatter where labels are polynomials.
    What is odd the signs take off.
    """
    n, r = u.shape
    square = (u**2 - 1) / math.sqrt(2)
    features = [np.ones((n, 1))]
    for m in (2, 4):
        values = hermite_e.hermeval(u, np.eye(m + 1)[m])
        features.append(values / math.sqrt(math.factorial(m)))
    first, second = np.triu_indices(r, 1)
    features.append(square[:, first] * square[:, second])
    every = np.concatenate(features, axis=1)
    means = np.eye(every.shape[1])[0]
    weights, *_ = np.linalg.lstsq(every.T, means, rcond=None)
    return weights


def _signs(r: int) -> np.ndarray:
    """Signs of the r axes, of ω and of the noise: all combinations, of many axes only
    those with one sign.
    """
    alone = r <= MOST_AXES
    count = r if alone else 1
    every = np.array(list(itertools.product((1.0, -1.0), repeat=count + 2)))
    axes = every[:, :count] if alone else np.repeat(every[:, :1], r, axis=1)
    return np.concatenate([axes, every[:, count:]], axis=1)


class _Movement(NamedTuple):
    """E[g_j u] of all generic rows, (replicates, rows, r), each row in units of the
    root mean square of its push.
    """

    each: np.ndarray
    light: bool  # whether no single sample makes up the mean square

    def along(self, basis: np.ndarray) -> tuple[np.ndarray, float]:
        """Means along the rows of ``basis``, (rows, n), and how large the largest
        singular value of their error alone may be.

        For a Gaussian matrix N of any covariance, ‖N‖ exceeds E‖N‖ by more than
        t·max sd(xᵀ N y) over unit vectors only as often as one normal exceeds t
        (Borell and Tsirelson, Ibragimov, Sudakov). Generic rows share their points, so
        the entries of N are anything but independent.
        """
        values = self.each @ basis.T
        mean = values.mean(axis=0)
        if not len(basis):
            return mean, 0.0
        deviations = (values - mean) / math.sqrt(REPLICATES * (REPLICATES - 1))
        norms = np.linalg.norm(deviations, ord=2, axis=(1, 2))
        # xᵀ N y is one of the directions in the space of all entries
        widest = np.linalg.norm(deviations.reshape(REPLICATES, -1), ord=2)
        limit = limit_of(1, REPLICATES - 1, LEVEL)
        return mean, float(np.sqrt((norms**2).sum()) + limit * widest)


class _Rows(NamedTuple):
    """Generic rows: what they know at every visit (visits + 1, students, p, r), and how
    far samples push them at each, (visits,).
    """

    kappas: np.ndarray
    shifts: np.ndarray

    @classmethod
    def draw(cls, known: list[np.ndarray], p: int, rng: np.random.Generator) -> _Rows:
        """Those that know the directions ``known[i]`` at visit number i."""
        kappas = [rng.normal(size=(STUDENTS, p, len(basis))) @ basis for basis in known]
        return cls(np.stack(kappas), rng.uniform(0.6, 1.4, len(known) - 1))


def _move(setting: _Setting, rows: _Rows) -> _Movement:
    """The averages of one step."""
    u = setting.points[0]
    r = u.shape[-1]
    kappas, shifts = rows
    # shifts of the size of the fields, however long the push is
    if len(shifts):
        first_push = _evaluate(setting, kappas[:1], shifts[:0])[1]
        shifts = shifts / np.sqrt(max(float(first_push.mean()), 1e-300))
    first, square, largest = _evaluate(setting, kappas, shifts)
    total = square.mean(axis=0)
    size = np.sqrt(np.where(total > 0, total, 1.0))
    moved = (first / size[..., None]).reshape(REPLICATES, -1, r)
    count = u.shape[0] * u.shape[1] * len(setting.signs)
    share = (largest.max(axis=0) / np.where(total > 0, total * count, 1.0)).max()
    return _Movement(moved, bool(np.isfinite(total).all() and share < DOMINANT))


def _evaluate(
    setting: _Setting, kappas: np.ndarray, shifts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kernel, frame, points, signs, noise, a = setting
    found = _averages(kernel, frame, points, signs, noise, a, kappas, shifts)
    return np.asarray(found[0]), np.asarray(found[1]), np.asarray(found[2])


class _New(NamedTuple):
    """New orthonormal directions, their sizes, what could have been seen, and the error
    of the directions.
    """

    directions: np.ndarray
    sizes: np.ndarray
    noise: float
    error: float


def _new_directions(movement: _Movement, known: np.ndarray, blur: float) -> _New:
    """What has been found beyond the known directions.

    ``blur`` is the error of the known ones: what they move by leaks into the others
    that much.
    """
    hidden = complement(known, movement.each.shape[-1])
    values, noise = movement.along(hidden)
    if np.abs(values).max(initial=0.0) <= EXACT:
        return _New(hidden[:0], np.zeros(0), EXACT, 0.0)
    if not movement.light:
        raise Refused("learnable", HEAVY, [])
    if len(known):
        own = np.linalg.norm(movement.along(known)[0], ord=2)
        noise = max(noise, LEAK * blur * float(own))
    _, sizes, right = np.linalg.svd(values, full_matrices=False)
    clear = sizes > max(noise, FAINT)
    found = clear if clear.any() else sizes > noise
    smallest = sizes[found].min(initial=np.inf)
    return _New(right[found] @ hidden, sizes[found], noise, noise / smallest)


def _snap(known: np.ndarray, blur: float) -> tuple[np.ndarray, float]:
    """The directions, and their error: none where they span coordinate axes, to within
    the error they had.
    """
    projector = known.T @ known
    axes = np.diag(np.diag(projector).round())
    near = min(max(LEAK * blur, 1e-6), ROUGH)
    if len(known) and np.abs(projector - axes).max() <= near:
        return sparse_basis(np.eye(len(axes))[np.diag(axes) > 0]), 0.0
    return known, blur


def _visits(algorithm: SGD, step: int) -> list[int]:
    """Earlier steps in which samples of this one have been used, at least some of
    them.
    """
    if algorithm.dataset is None:
        first = (step - 1) // algorithm.repeat * algorithm.repeat + 1
        return list(range(first, step))
    if algorithm.sampling in ("sequence", "reshuffled"):
        parts = round(algorithm.dataset.coefficient / algorithm.batch.coefficient)
        batch = (step - 1) // algorithm.repeat
        if algorithm.sampling == "sequence":
            return [
                s
                for s in range(1, step)
                if ((s - 1) // algorithm.repeat - batch) % parts == 0
            ]
        # a new cut mixes the batches of the passes before
        start_of_pass = batch // parts * parts * algorithm.repeat
        own = batch * algorithm.repeat
        return [s for s in range(1, step) if s <= start_of_pass or s > own]
    return list(range(1, step))


def _refuse(problem: Problem, algorithm: SGD) -> None:
    """Refuse what is no description, and algorithms without giant steps."""
    expect(Problem, "problem", problem)
    expect(SGD, "algorithm", algorithm)
    algorithm.check_gradient_steps("tl.learnable")
    if not algorithm.train_first_layer:
        raise InputError(
            "Argument `algorithm` must train the first layer, whose rows find"
            " directions, but got train_first_layer = False."
        )
    method = DMFT if algorithm.reused else GiantSteps
    reason = method.answer(problem, algorithm)
    if reason is not None:
        raise Refused("learnable", reason, [])


@float64
def learnable(problem: Problem, algorithm: SGD) -> Learnable:
    """At which giant step an algorithm finds each direction of the target, from an
    orthogonal start, and why.

    The push of a sample is averaged for generic rows that know the directions found
    before; a direction is found where the average does not vanish along it. Any loss,
    rule, noise, width and Gram matrix of the target; samples that are new, or come
    back.

    Parameters
    ----------
    problem : Problem
        Target (with its Gram matrix), student, noise and inputs. In inputs with blocks
        the directions of the target are taken to be spread evenly, as random ones are:
        they are then learned at the same steps as from inputs N(0, I).
    algorithm : SGD
        With steps of order one on batches of order d, such as ``SGD(1.5, batch=3*d,
        rule="clip(0.5)")``, and a ``dataset`` of order d if samples come back.

    Returns
    -------
    Learnable
        ``.steps``, ``.directions`` and ``.reasons``; prints as a table.

    Notes
    -----
    Cost: 2²⁰ samples of 4 generic students for each step, about a second, and up to 16
    times as many where these do not tell.
    Whether rows move is decided, not how far: `GiantSteps` and `DMFT` say that. What
    moves by less than ``resolution`` of the push is not seen.

    Examples
    --------
    >>> from twolayer.task.scaling import d
    >>> problem = Problem("h3(z1)", "tanh(z + 0.7)")
    >>> learnable(problem, SGD(1.5, batch=3 * d)).steps
    [None]
    >>> learnable(problem, SGD(1.5, batch=3 * d, rule="clip(0.5)")).steps
    [1]
    """
    _refuse(problem, algorithm)
    # spread evenly, blocks give M⁽ⁱ⁾ a part of the same span: H_* P⁽ⁱ⁾ ∝ H_* P
    problem = problem.replace(inputs=Inputs.isotropic())
    # samples that come back cost several pushes each
    for fineness in FINENESS[:2] if algorithm.reused else FINENESS:
        found, decided = _climb(problem, algorithm, fineness)
        if decided:
            break
    return found


def _climb(problem: Problem, algorithm: SGD, fineness: int) -> tuple[Learnable, bool]:
    """What is learned as far as so many points show it, and whether they do.

    All steps take the same points: where a direction is known too roughly, what leaks
    from it hides the next one, and more points at that step alone would not help.
    """
    frame = frame_of(problem.P)
    rank = frame.shape[1]
    rng = np.random.default_rng(SEED)
    setting = _setting(problem, algorithm, frame, fineness)
    known = np.zeros((0, rank))
    history = [known]
    steps: list[int | None] = []
    sizes: list[float] = []
    rows: list[np.ndarray] = []
    blur, resolution, left = 0.0, 0.0, np.zeros((1, rank))
    step = 0
    decided = True
    while len(known) < rank and step < LONGEST:
        step += 1
        visited = _visits(algorithm, step)
        seen = [history[s - 1] for s in visited[-MEMORY:]]
        generic = _Rows.draw([*seen, known], problem.p, rng)
        movement = _move(setting, generic)
        new = _new_directions(movement, known, blur)
        complete = len(known) + len(new.sizes) == rank
        decided &= complete or max(new.noise, new.error) <= ENOUGH
        resolution = max(resolution, new.noise)
        if len(new.sizes):
            before = known
            every = np.concatenate([known, new.directions])
            known, blur = _snap(every, max(blur, new.error))
            rows.extend(_added(before, known))
            steps += [step] * len(new.sizes)
            sizes += [float(x) for x in new.sizes]
        history.append(known)
        left = movement.along(complement(known, rank))[0]
        if not len(new.sizes) and _settled(algorithm, history, visited):
            break
    never = _entering(problem, frame, complement(known, rank))
    remaining = np.abs(left).max(initial=0.0)
    directions = np.array([*rows, *never]).reshape(-1, rank)
    all_sizes = np.array([*sizes, *[float(remaining)] * len(never)])
    found = Learnable(
        [*steps, *[None] * len(never)],
        directions,
        all_sizes,
        float(resolution),
        bool(algorithm.reused),
    )
    return found, decided


def _added(before: np.ndarray, after: np.ndarray) -> list[np.ndarray]:
    """The directions that came to those known before, on coordinate axes where they lie
    there.
    """
    hidden = (
        complement(before, after.shape[1]) if len(before) else np.eye(after.shape[1])
    )
    _, values, right = np.linalg.svd(after @ hidden.T, full_matrices=False)
    return list(sparse_basis(right[values > 0.5] @ hidden))


def _settled(algorithm: SGD, history: list[np.ndarray], visited: list[int]) -> bool:
    """Whether later steps see nothing that the last one has not seen.

    Fresh samples: a step that finds nothing is followed by others like it. Samples that
    come back have to be visited twice by rows that know what is known now.
    """
    if not algorithm.reused:
        return True
    same = [s for s in visited if len(history[s - 1]) == len(history[-1])]
    return len(same) >= min(2, algorithm.repeat if algorithm.dataset is None else 2)


def _entering(
    problem: Problem, frame: np.ndarray, hidden: np.ndarray
) -> list[np.ndarray]:
    """The directions not found, without those that do not enter the target."""

    def values(u: np.ndarray) -> np.ndarray:
        return problem.target.on_host(u @ frame.T)

    return [row for row in hidden if varies(values, row[None], 1e-9)]
