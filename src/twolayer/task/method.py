"""What every method has in common: when it refuses, and how it hands its evolution to
the host loop.

    Method.refusal(problem, algorithm)   the mathematical reason why not, or None
    method.prepare(task)                 an Evolution: state at the save points, one
                                         advance at a time
    method.prepare_stack(pairs)          the same for tasks with equal stack_key, their
                                         seeds side by side
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from twolayer.numerics.arguments import End, Json, Notes, Save
from twolayer.numerics.errors import choice, finite_number, reject
from twolayer.numerics.keywords import explained
from twolayer.task.algorithm import SGD
from twolayer.task.averages import ACCURACY, Averages
from twolayer.task.clocks import Clocks, save_steps, save_times, without_passes
from twolayer.task.inputs import Inputs
from twolayer.task.overlaps import Overlaps
from twolayer.task.particles import Particles
from twolayer.task.problem import Problem

__all__ = [
    "METHODS",
    "Accountable",
    "Claim",
    "Evolution",
    "Handover",
    "Measure",
    "Method",
    "Outcome",
    "RefinedMethod",
    "Snapshot",
    "Stackable",
    "Stand",
    "Task",
    "Until",
    "from_start",
    "register_method",
]


Registered = TypeVar("Registered", bound="Method")
"""A method of its own class, so that editors and checkers keep its constructor."""


class Outcome:
    """How a run ended, with the advice that goes with it.

    Examples
    --------
    >>> Outcome.CODES.index(Outcome.DIVERGED)
    2
    >>> print(Outcome.ADVICE["reached"])
    the run stopped where the requested threshold was reached
    """

    OK = "ok"
    REACHED = "reached"
    DIVERGED = "diverged"
    MAX_STEPS = "max_steps"
    INTERRUPTED = "interrupted"
    NOT_FINITE = "not_finite"

    CODES: ClassVar[tuple[str, ...]] = (
        OK,
        REACHED,
        DIVERGED,
        MAX_STEPS,
        INTERRUPTED,
        NOT_FINITE,
    )
    ADVICE: ClassVar[dict[str, str]] = {
        OK: "the run got to its last save point",
        REACHED: "the run stopped where the requested threshold was reached",
        DIVERGED: (
            "the weights grow without bound: use a smaller lr, a larger batch, or"
            " geometry='projected'"
        ),
        MAX_STEPS: (
            "the integrator used up its steps: raise max_steps, loosen rtol, or shorten"
            " the time"
        ),
        INTERRUPTED: "the run was interrupted; what was finished is kept",
        NOT_FINITE: (
            "numbers of the run are too large or too small for double precision: change"
            " the scales of the task"
        ),
    }


RISING = ("overlap", "alignment")
QUANTITIES = (*RISING, "risk", "excess_risk")


@dataclass(frozen=True)
class Until:
    """Stop each seed where a quantity reaches a value.

    Parameters
    ----------
    quantity : str
        ``"overlap"``: ‖M‖_F from below, of p neurons also where particles stand for
        them; ``"alignment"``: M_11 with its sign, from below; ``"risk"`` or
        ``"excess_risk"``: from above.
    value : float
        The level, ≥ 0; a fraction of the start's with ``relative``.
    relative : bool
        Whether the value is a fraction of the start's.

    Examples
    --------
    >>> Until("excess_risk", 0.9, relative=True)
    Until(quantity='excess_risk', value=0.9, relative=True)
    """

    quantity: str
    value: float
    relative: bool = False

    def __post_init__(self) -> None:
        choice("quantity", self.quantity, QUANTITIES)
        finite_number("value", self.value, minimum=0.0, accepted="a number ≥ 0")

    @property
    def sign(self) -> float:
        """+1 for a quantity that falls to its value, −1 for one that rises to it."""
        return -1.0 if self.quantity in RISING else 1.0


class Snapshot(NamedTuple):
    """Overlaps and second layer at the save points that a method has passed.

    Attributes
    ----------
    Q, M, a : arrays (seeds, n, p, p), (seeds, n, p, k), (seeds, n, p)
        Overlaps and second layer at n save points; of the fields where inputs have
        blocks.
    train_risk : array (seeds, n), optional
        The risk on the samples, where they are reused.
    Q_average, M_average, a_average, train_risk_average : arrays, optional
        The same of the average of the iterates, where it is followed.
    Q_block, M_block : arrays (seeds, n, blocks, p, p or k), optional
        Overlaps of the rows in each block of the inputs.

    Examples
    --------
    >>> one = Snapshot(
    ...     Q=np.ones((4, 1, 1, 1)), M=np.zeros((4, 1, 1, 1)), a=np.ones((4, 1, 1))
    ... )
    >>> one.M.shape, one.train_risk is None
    ((4, 1, 1, 1), True)
    """

    Q: np.ndarray
    M: np.ndarray
    a: np.ndarray
    train_risk: np.ndarray | None = None
    Q_average: np.ndarray | None = None
    M_average: np.ndarray | None = None
    a_average: np.ndarray | None = None
    train_risk_average: np.ndarray | None = None
    Q_block: np.ndarray | None = None
    M_block: np.ndarray | None = None

    @classmethod
    def in_blocks(
        cls, inputs: Inputs, Q: np.ndarray, M: np.ndarray, a: np.ndarray
    ) -> Snapshot:
        """From overlaps in blocks, ``Q`` and ``M``, weighed by the variances of the
        ``inputs``; and the layer ``a``.
        """
        one, other = (
            np.einsum("i,...ijl->...jl", np.asarray(inputs.variances), x)
            for x in (Q, M)
        )
        return cls(one, other, a, Q_block=Q, M_block=M)


class Measure(NamedTuple):
    """Particles at save points: M (seeds, n, particles, k), q and a (seeds, n,
    particles), excess_risk (seeds, n).

    With inputs in blocks these are of the fields; of the rows in each block, M_block
    (seeds, n, blocks, particles, k) and q_block (seeds, n, blocks, particles).
    """

    M: np.ndarray
    q: np.ndarray
    a: np.ndarray
    excess_risk: np.ndarray
    M_block: np.ndarray | None = None
    q_block: np.ndarray | None = None


class Claim(NamedTuple):
    """Averages that a method relies on at one point, for their witness
    (running/witness.py).

    Attributes
    ----------
    kind : str
        ``"flow"``, ``"noise"``, ``"drift"``, ``"step"``, ``"covariance"`` or
        ``"risk"``.
    values : dict
        Arrays by what they move: ``"M"``, ``"Q"``, ``"a"``; or ``"Σ"``, ``"risk"``.
    error : float
        The error that the method states, relative to averages without cancellations.
    numbers : dict
        What the averages are multiplied by, as far as only the method knows it.
    errors : dict
        More of the error, as it is, by the same names as the values.
    rule : str
        What averages are taken by, where these are random points whose error the method
        does not know.
    """

    kind: str
    values: dict[str, np.ndarray]
    error: float
    numbers: dict[str, float]
    errors: dict[str, float] | None = None
    rule: str = ""


class Stand(NamedTuple):
    """A point that a method has passed, Q, M and a of one run (in blocks where inputs
    have some, with their P), and what it claims there.
    """

    Q: np.ndarray
    M: np.ndarray
    a: np.ndarray
    claims: list[Claim]
    P: Any = None


class Handover(NamedTuple):
    """What one stage of a run leaves to the next, beyond the overlaps: of every seed,
    its weights and their history.

    ``state`` belongs to the method; ``steps`` (seeds,) have been taken on the fixed set
    so far.
    """

    state: Any
    steps: np.ndarray


@dataclass(frozen=True, eq=False)
class Task:
    """One run as a method sees it.

    Attributes
    ----------
    problem, algorithm : Problem, SGD
        As they were given.
    start : Overlaps or Particles
        One for all seeds, or one for each on a leading axis.
    points : array (n,)
        Save points on the method's own clock, from 0 on, where every run begins.
    clocks : Clocks
        What converts between steps, samples and time.
    seeds, seed : int
        How many runs, and what their random streams come from.
    until : Until, optional
        Where a seed stops.
    first : int
        Number of the first run; runs are numbered so that each has its own stream in
        any company.
    hidden : int
        1 where the point 0 was not asked for and is left out of the result, else 0.
    after : Handover, optional
        What an earlier stage left.

    Examples
    --------
    >>> problem, algorithm = Problem("z1", "linear", width=2), SGD(lr="0.1/d")
    >>> start = Overlaps(Q=np.eye(2), M=[[0.5], [0.0]])
    >>> task = Task(
    ...     problem,
    ...     algorithm,
    ...     start,
    ...     np.array([0, 10]),
    ...     Clocks(problem, algorithm, 100),
    ...     seeds=3,
    ...     seed=0,
    ... )
    >>> [x.shape for x in task.starts()], task.runs.tolist()
    ([(3, 2, 2), (3, 2, 1), (3, 2)], [0, 1, 2])
    """

    problem: Problem
    algorithm: SGD
    start: Overlaps | Particles
    points: np.ndarray
    clocks: Clocks
    seeds: int
    seed: int
    until: Until | None = None
    first: int = 0
    hidden: int = 0
    after: Handover | None = None

    @property
    def saved(self) -> np.ndarray:
        """The save points that were asked for."""
        return self.points[self.hidden :]

    @property
    def runs(self) -> np.ndarray:
        """Numbers of the runs, on which their random streams depend: ``seeds`` of them
        from ``first`` on.
        """
        return np.arange(self.first, self.first + self.seeds)

    @property
    def as_trained(self) -> Task:
        """The same with the label noise that gradients see, which has that of the
        algorithm's own besides.
        """
        rule = self.algorithm.rule
        if rule is None or not rule.relabels:
            return self
        return dataclasses.replace(
            self, problem=self.problem.replace(noise=self.problem.noise + rule.relabels)
        )

    def starts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q and M of the fields and a of every seed, with a leading seed axis."""
        assert isinstance(self.start, Overlaps)
        start = self.start.fields(self.problem.inputs)
        a = self.problem.a(self.seed) if start.a is None else start.a
        whole = ((start.Q, 2), (start.M, 2), (a, 1))
        Q, M, a = (
            np.broadcast_to(x, (self.seeds, *x.shape[-axes:])).copy()
            for x, axes in whole
        )
        return Q, M, a

    def block_starts(self) -> tuple[np.ndarray, np.ndarray]:
        """Q (n, blocks, p, p) and M (n, blocks, p, k) of the rows in each block, of
        every seed.
        """
        assert isinstance(self.start, Overlaps)
        Q, M = (
            np.broadcast_to(x, (self.seeds, *x.shape[-3:])).copy()
            for x in (self.start.Q, self.start.M)
        )
        return Q, M


def from_start(points: np.ndarray) -> tuple[np.ndarray, int]:
    """Save points with 0, and whether that was not among them: ``points`` and
    ``hidden`` of a `Task`.
    """
    hidden = int(points[0] > 0)
    return (
        np.concatenate([np.zeros(1, points.dtype), points]) if hidden else points
    ), hidden


class Evolution(abc.ABC):
    """A method set up for one run. States are opaque to the host loop.

    Examples
    --------
    >>> class Still(Evolution):
    ...     def __init__(self, task):
    ...         self.task = task
    ...
    ...     def initial(self):
    ...         return self.task.starts()
    ...
    ...     def snapshot(self, state):
    ...         return Snapshot(*(x[:, None] for x in state))
    ...
    ...     def advance(self, state, first, tick):
    ...         return state, self.snapshot(state)
    ...
    ...     def stopped(self, state):
    ...         return np.zeros(self.task.seeds, int), np.full(self.task.seeds, np.nan)
    >>> Still.notes(None)
    {}
    """

    @abc.abstractmethod
    def initial(self) -> Any:
        """State at the first save point."""

    @abc.abstractmethod
    def snapshot(self, state: Any) -> Snapshot | Measure:
        """Overlaps of a ``state``, as one save point."""

    @abc.abstractmethod
    def advance(
        self, state: Any, first: int, tick: Callable[[float], None]
    ) -> tuple[Any, Snapshot | Measure]:
        """Go on with a ``state`` from save point number ``first``: the new state, and
        snapshots of the points passed.

        ``tick(x)`` reports the position x on the method's clock from time to time.
        """

    @abc.abstractmethod
    def stopped(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Per seed of a ``state``, the outcome code (0 while running) and where on the
        clock it stopped.
        """

    def left(self, state: Any) -> Any:
        """What the next stage needs to know of a ``state`` beyond the overlaps; None
        where they say everything.
        """
        return None

    def notes(self) -> Notes:
        """What the result should record about the numerics, after the run; ``advice``
        by outcome is shown with it.
        """
        return {}

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """More variables of the result, after the run: dimensions and values by
        name.
        """
        return {}


class Accountable(Evolution):
    """A method set up for one run that can be asked what averages it relies on."""

    @abc.abstractmethod
    def claims(self, state: Any) -> list[Stand]:
        """What the run relied on at its start and at its end, the ``state``, beside
        the risk.
        """


@dataclass(frozen=True)
class Method(abc.ABC):
    """A lens. Subclasses are frozen dataclasses; their fields are the knobs of that
    method alone.

    ``stepwise`` methods have the clock of the algorithm's steps, others that of time.
    `refusal` and `prepare` are all that one needs; the rest has answers that serve.

    Examples
    --------
    >>> import twolayer as tl
    >>> tl.ODE.refusal(tl.Problem("z1", "linear"), tl.SGD(lr="0.1/d")) is None
    True
    >>> tl.ODE().name, tl.Chain(1000).dimension, tl.Chain.stochastic
    ('ode', 1000, True)
    """

    stochastic: ClassVar[bool] = False
    stepwise: ClassVar[bool] = False
    papers: ClassVar[tuple[str, ...]] = ()
    takes_particles: ClassVar[bool] = False
    hands_over: ClassVar[bool] = (
        False  # whether a stage goes on from all that the one before it left
    )
    resumes: ClassVar[bool] = (
        False  # whether a state and the steps to come are all that a run is
    )
    in_comparisons: ClassVar[bool] = (
        True  # whether `compare` includes it without being asked
    )

    own_points: ClassVar[bool] = (
        False  # whether save points are the method's own choice, near those asked for
    )

    @property
    def name(self) -> str:
        """The word used in files and flags."""
        return type(self).__name__.lower()

    def suited(self, algorithm: SGD) -> Method:
        """The method with what an ``algorithm`` needs of its knobs, where they were
        left open.
        """
        return self

    @property
    def dimension(self) -> int | None:
        """d, for a method at finite dimension."""
        return getattr(self, "dim", None)

    @property
    def largest_error(self) -> float:
        """The error of its averages beyond which a result comes with a warning."""
        return 0.01

    @property
    def mending(self) -> str:
        """What would make averages more accurate, as the end of a sentence."""
        return ""

    @classmethod
    @abc.abstractmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Why this method cannot treat ``problem`` and ``algorithm``, whatever its
        knobs, or None if it can.
        """

    def objection(self, problem: Problem, algorithm: SGD) -> str | None:
        """Why not, for ``problem`` with its inputs, ``algorithm`` and the knobs that
        this one has; or None.
        """
        return self.answer(problem, algorithm)

    @classmethod
    def answer(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Why not, for the inputs of ``problem`` or for anything else of it and of
        ``algorithm``; or None.
        """
        if algorithm.first_order:
            reason = cls.first_order_refusal(problem, algorithm)
            if reason is None and not problem.inputs.plain:
                reason = (
                    f"the inputs are {problem.inputs}, and the fields and steps of"
                    " first-order methods are known for inputs N(0, I)"
                )
            if reason is not None:
                return reason
        return (
            None if problem.inputs.plain else cls.structure(problem, algorithm)
        ) or cls.refusal(problem, algorithm)

    @classmethod
    def first_order_refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Why not, where ``algorithm`` is a general first-order method on ``problem``;
        or None, which methods say that follow rows and samples.
        """
        return (
            "a general first-order method makes a step of several iterates and of what"
            " samples were at each of them, and this method follows the overlaps of one"
            " iterate under its gradient"
        )

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Why not, where the inputs of ``problem`` have another covariance than I, and
        for ``algorithm``; or None.
        """
        return (
            f"the inputs are {problem.inputs}, and this method knows inputs N(0, I)"
            " only"
        )

    @classmethod
    def at(cls, dim: int | None) -> Method | None:
        """The method at ``dim``, its other knobs as they come; None where it needs a
        dimension and there is none.
        """
        if all(
            f.name != "dim" or f.default is not dataclasses.MISSING
            for f in dataclasses.fields(cls)
        ):
            return cls()
        return None if dim is None else cls(dim=dim)  # type: ignore[call-arg]

    @abc.abstractmethod
    def prepare(self, task: Task) -> Evolution:
        """Set up one run, the ``task``."""

    def stack_key(self, task: Task) -> Hashable | None:
        """A key: each ``task`` with the same one can run beside it (`prepare_stack`);
        None: it runs alone.
        """
        return None

    def cost(self, task: Task) -> float:
        """Seconds of one run of a ``task`` on one core once its code is compiled, as an
        order of magnitude.
        """
        return 0.3

    def compilation(self, task: Task) -> float:
        """Seconds that the code of a ``task`` takes to compile on one core, once for
        all runs that share it.
        """
        return 6.0

    def footprint(self, task: Task) -> int:
        """Bytes that one run of a ``task`` occupies, most of it for the overlaps at the
        save points.
        """
        p, k = task.problem.p, task.problem.k
        return 24 * len(task.points) * (p * p + p * k + p + 4)

    def unit(self, algorithm: SGD) -> float:
        """Exponent x such that this method's clock runs in units of d^x of the time t
        of an ``algorithm``.
        """
        return 0.0

    def save_points(
        self, clocks: Clocks, time: End, steps: End, save: Save, alpha: End = None
    ) -> np.ndarray:
        """Save points on this method's clock: integer steps, or times (τ where there is
        a schedule).

        ``clocks`` are those of the run, ``time``, ``steps``, ``alpha`` and ``save``
        what was given to `solve`.
        """
        if self.stepwise:
            return save_steps(clocks, time, steps, save, alpha)
        return save_times(clocks, time, steps, save, self.unit(clocks.algorithm), alpha)

    def points_for(
        self, clocks: Clocks, ends: Mapping[str, End], save: Save
    ) -> np.ndarray:
        """Save points on this method's clock: ``clocks`` are those of the run, ``ends``
        hold the end by the name of its clock, passes among them, and ``save`` is what
        was given to `solve`.
        """
        given = without_passes(clocks, ends, save, self.stepwise)
        return self.save_points(
            clocks, given.get("time"), given.get("steps"), save, given.get("alpha")
        )

    def describe(self) -> Json:
        """The knobs as plain values."""
        return {
            "name": self.name,
            **{
                f.name: value.describe() if isinstance(value, Averages) else value
                for f in dataclasses.fields(self)
                for value in [getattr(self, f.name)]
            },
        }


class RefinedMethod(Method):
    """A method whose averages are refined along the run until they are as accurate as
    its ``averages`` ask for.
    """

    averages: Averages

    @property
    def accuracy(self) -> float:
        """The error that is aimed at."""
        return self.averages.accuracy or ACCURACY

    @property
    def largest_error(self) -> float:
        """The accuracy: beyond it a result comes with a warning."""
        return self.accuracy

    @property
    def mending(self) -> str:
        """What would make averages more accurate, as the end of a sentence."""
        more = f"effort (now {self.averages.effort:g})"
        if self.averages.points is not None:
            more = f"points (now {self.averages.points}), or leave them to the method"
        return f"; raise {more}, or accept a larger accuracy"


class Stackable(Method):
    """A method that runs tasks of one compiled form side by side, their seeds in one
    row; one task is such a row.
    """

    @abc.abstractmethod
    def prepare_stack(self, pairs: Sequence[tuple[Any, Task]]) -> Evolution:
        """Set up several ``pairs`` (method, task) of equal `stack_key` side by side."""

    def prepare(self, task: Task) -> Evolution:
        """Set up one run."""
        return self.prepare_stack([(self, task)])


HOMES = {
    "chain": ("chain", "Chain"),
    "dmft": ("dmft.method", "DMFT"),
    "giantsteps": ("giant", "GiantSteps"),
    "map": ("map", "Map"),
    "meanfield": ("meanfield", "MeanField"),
    "ode": ("ode", "ODE"),
    "population": ("population", "Population"),
    "sde": ("sde", "SDE"),
    "vectors": ("vectors", "Vectors"),
}
"""The methods of the package by the word used in files and flags: module of
`twolayer.methods`, and class.
"""


class Registry(Mapping[str, type[Method]]):
    """Methods by their word: those of the package, imported when one is asked for, then
    those registered by users.
    """

    def __init__(self) -> None:
        self.own: dict[str, type[Method]] = {}

    def __getitem__(self, word: str) -> type[Method]:
        if word not in HOMES:
            return self.own[word]
        module, name = HOMES[word]
        found: type[Method] = getattr(
            importlib.import_module(f"twolayer.methods.{module}"), name
        )
        return found

    def __contains__(self, word: object) -> bool:
        return word in HOMES or word in self.own

    def __iter__(self) -> Iterator[str]:
        return iter((*HOMES, *self.own))

    def __len__(self) -> int:
        return len(HOMES) + len(self.own)


METHODS = Registry()
"""Methods by the word used in files and flags."""


def register_method(cls: type[Registered]) -> type[Registered]:
    """Class decorator: make a method known to `support`, `compare`, files and flags.

    A class of the same name that was registered before is replaced; the names of the
    package's own methods are taken.

    Examples
    --------
    >>> from twolayer.methods.ode import ODE  # which is registered in this way itself
    >>> register_method(ODE) is METHODS["ode"]
    True
    """
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        reject("cls", cls, "a subclass of Method")
    word = cls.__name__.lower()
    if word not in HOMES:
        METHODS.own[word] = explained(cls)
    elif cls.__module__ != f"twolayer.methods.{HOMES[word][0]}":
        reject(
            "cls",
            cls.__name__,
            "a class of another name: this one is a method of the package",
        )
    return cls
