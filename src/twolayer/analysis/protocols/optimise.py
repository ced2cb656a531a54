"""`optimise`: the best learning rate, batch or weight decay for a run of a given
length.

    minimise F(X(S)) or ∫ℓ ds over γ(s):    dX/ds = γ f₁(X) + γ² f₂(X)/n_b
    one order parameter:  greedy is optimal.    Linear student:  γ* = ε/(ε + Δ/2),
        ε = Δ/(2W(x₀ e^{x₀ + s})) → Δ/(2s)

Found by gradients through the dynamics (controlled_motion.py) from several first
guesses (search.py), and certified by the best constant, by the best of each schedule
with a name, and by a run of the method itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from twolayer.analysis.protocols.contest import (
    Contest,
    contest_of,
    measured,
    objective_of,
)
from twolayer.analysis.protocols.controlled_motion import (
    CLOCKS,
    ControlledRun,
    Objective,
    course_of,
)
from twolayer.analysis.protocols.search import Found, Search, Spent
from twolayer.analysis.protocols.shapes import NAMED, CurveForm, constant, free, named
from twolayer.gaussian.moments import check_start
from twolayer.methods.chain import Chain
from twolayer.methods.ode import ODE
from twolayer.numerics.arguments import Listener, Options, Progress
from twolayer.numerics.errors import (
    InputError,
    Interrupted,
    choice,
    finite_number,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.html import card, curves
from twolayer.numerics.precision import float64
from twolayer.numerics.random import check_seed
from twolayer.running.progress import listener_for
from twolayer.running.solve import DivergenceWarning, solve
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.method import Method
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling

__all__ = ["Optimum", "Protocol", "optimise"]

OVER = ("lr", "batch", "weight_decay")
KINDS = ("free", "constant", *NAMED)
SHOWN = 9  # points of a free function, where it is printed
STEPS = 8  # of the integrator, for each interval of a free function
FINER = (4, 16)  # times as many, where these are too few
LEAST = (
    1e-9  # of the rate that is given: where standing still is best, laws stay positive
)
AGREE = 1e-3  # how far the method's own run may be from the search, of the value


@dataclass(frozen=True, eq=False)
class Protocol:
    """An algorithm and the value of the objective that it reaches."""

    name: str
    algorithm: SGD
    value: float

    @property
    def lr(self) -> Scaling:
        """Its learning rate."""
        return self.algorithm.lr

    def __repr__(self) -> str:
        return f"Protocol({self.name}, lr={self.lr:.5g}, value={self.value:.6g})"


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best protocol that was found. Made by `optimise`.

    Attributes
    ----------
    value : float
        The objective reached, from a run of the method with this protocol.
    schedule : Scaling, float or dict
        The law of the control, or of each of several.
    algorithm : SGD
        The algorithm with it, for any method.
    constant : Protocol
        The best constant.
    named : dict of str to Protocol
        The best of each schedule with a name.
    paths : dict of str to Dataset
        Runs of the method: with this protocol, with the best constant and with the best
        named schedule.
    certified : bool
        Whether no constant and no named schedule is better, and the method's own run
        agrees with the search.
    restarts : list of float
        Values reached from different first guesses, before the refinement.
    pieces : int
        Intervals of a free function.
    refinement : float
        Relative change of the value when their number was doubled last; nan where there
        was nothing to double.
    evaluations : int
        Runs and gradients that the search took.
    complete : bool
        False where the budget ended it or it was interrupted.
    """

    value: float
    schedule: Any
    algorithm: SGD
    constant: Protocol
    named: dict[str, Protocol]
    paths: dict[str, xr.Dataset]
    certified: bool
    restarts: list[float]
    pieces: int
    refinement: float
    evaluations: int
    complete: bool
    problem: Problem
    start: Overlaps
    method: Method
    objective: str
    horizon: float
    clock: str
    _goal: Objective

    @property
    def path(self) -> xr.Dataset:
        """The run of the method with this protocol."""
        return self.paths["optimum"]

    @property
    def best_named(self) -> Protocol | None:
        """The best of the schedules with a name."""
        pick = max if self._goal.large else min
        return pick(self.named.values(), key=lambda x: x.value) if self.named else None

    @float64
    def compare(
        self, dim: int, seeds: int = 64, seed: int = 0, progress: Progress = None
    ) -> Contest:
        """Run optimum, best constant and best named schedule by the exact chain at a
        finite d, and say who wins.

        All protocols have the same random numbers, and differences are taken seed by
        seed. ``dim`` is d; ``seeds`` are the runs of each protocol, where there are
        several starts as many as these; ``seed`` and ``progress`` are those of `solve`.
        """
        dim = positive_integer("dim", dim)
        seeds = positive_integer("seeds", seeds, 2)
        protocols = {"optimum": self.algorithm, "constant": self.constant.algorithm}
        if self.best_named is not None:
            protocols[self.best_named.name] = self.best_named.algorithm
        start = Overlaps(self.start.Q, self.start.M, self.start.P, self.start.a)
        save = 200 if self.objective == "integrated_risk" else 1
        many = None if start.batch else seeds
        runs = {
            name: solve(
                self.problem,
                algorithm,
                Chain(dim),
                start,
                **length_of(self.clock, self.horizon),
                save=save,
                seeds=many,
                seed=seed,
                progress=progress,
            )
            for name, algorithm in protocols.items()
        }
        return contest_of(self._goal, self.problem, runs, dim, self.clock)

    def __str__(self) -> str:
        known = (
            self._goal.positive and self.constant.value > 0
        )  # what may be negative has no share
        share = (
            f"   ({self.value / self.constant.value:.4g} of the best constant's)"
            if known
            else ""
        )
        lines = [
            *self._protocol(),
            f"{self.objective:<18} {self.value:.7g}{share}",
            (
                f"best constant      {self.constant.value:.7g}  "
                f" {_told(self.constant.algorithm)}"
            ),
        ]
        if self.best_named is not None:
            lines.append(
                f"best named         {self.best_named.value:.7g}  "
                f" {_told(self.best_named.algorithm)}"
            )
        state = "certified" if self.certified else "not certified"
        lines.append(
            f"{state}, {self.evaluations} runs"
            + ("" if self.complete else ", not complete")
        )
        return "\n".join(lines)

    def _protocol(self) -> list[str]:
        """The law of every control, a free function by some of its points."""
        several = isinstance(self.schedule, dict)
        laws = self.schedule if several else {"schedule": self.schedule}
        lines = []
        for name, law in laws.items():
            points = _points(law)
            if not points:
                lines.append(f"{name:<18} {law:.5g}")
                continue
            power = str(Scaling(1.0, law.exponent))
            law_of_d = power[1:] if power.startswith("1") else f"*{power}"
            word = {"alpha": "α"}.get(self.clock, self.clock)
            for i, (at, value) in enumerate(points):
                label = name if i == 0 else ""
                lines.append(f"{label:<18} {word} = {at:<8.4g} {value:.5g}{law_of_d}")
        return lines

    def __repr__(self) -> str:
        return (
            f"Optimum({self.objective} {self.value:.6g}, best constant"
            f" {self.constant.value:.6g})"
        )

    def _repr_html_(self) -> str:
        rows = [
            (self.objective, f"{self.value:.6g}"),
            ("best constant", f"{self.constant.value:.6g}"),
            *(
                [
                    (
                        "best named",
                        f"{self.best_named.value:.6g} ({self.best_named.name})",
                    )
                ]
                if self.best_named
                else []
            ),
            ("certified", "yes" if self.certified else "no"),
        ]
        picture = curves(
            self.path[self.clock].values, [self.path.lr.values], (self.clock, "lr")
        )
        return card("Optimal protocol", "", rows, picture)


def _points(law: Any) -> list[tuple[float, float]]:
    """Where a free function is, and its values, at nine of its points at most; nothing
    for a law with a name.
    """
    schedule = law.schedule if isinstance(law, Scaling) else None
    factors = [] if schedule is None else list(schedule.factors)
    if len(factors) != 1 or factors[0].name != "table":
        return []
    places: Any = dict(factors[0].lengths)["at"]
    values: Any = dict(factors[0].numbers)["values"]
    # both ends are among them: how a rate ends is what a reader looks for
    chosen = sorted({round(i) for i in np.linspace(0, len(places) - 1, SHOWN)})
    return [(float(places[i].coefficient), law.coefficient * values[i]) for i in chosen]


def _told(algorithm: SGD) -> str:
    parts = [f"lr = {algorithm.lr:.5g}"]
    parts += [f"batch = {algorithm.batch:.5g}"] if str(algorithm.batch) != "1" else []
    return ", ".join(
        parts
        + (
            [f"weight_decay = {algorithm.weight_decay:.5g}"]
            if algorithm.weight_decay
            else []
        )
    )


def length_of(clock: str, horizon: float) -> Options:
    """The argument of `solve` that ends a run."""
    return {"steps": round(horizon)} if clock == "step" else {clock: horizon}


@float64
def optimise(
    problem: Problem,
    algorithm: SGD,
    start: Overlaps,
    over: str | Mapping[str, str] | tuple[str, ...] | list[str] | set[str] = "lr",
    *,
    horizon: float,
    clock: str | None = None,
    objective: str | Callable[[Overlaps], Any] = "excess_risk",
    form: str = "free",
    bounds: object = None,
    method: Method | None = None,
    pieces: int = 32,
    restarts: int = 3,
    budget: int = 2000,
    seed: int = 0,
    progress: Progress = None,
) -> Optimum:
    """The best learning rate, batch or weight decay for a run of a given length.

    Parameters
    ----------
    problem : Problem
        The task.
    algorithm : SGD
        Without a schedule; its lr and batch fix the powers of d, and where the search
        begins.
    start : Overlaps
        One start, or several, over which the objective is averaged.
    over : str, or several
        ``"lr"``, ``"batch"``, ``"weight_decay"``, a set of them, or a mapping to their
        forms.
    horizon : float
        How long the run is, in units of the clock.
    clock : str
        ``"alpha"`` (samples/d, the default), ``"time"`` or ``"step"`` (the default, and
        the only one, where the method takes steps).
    objective : str or callable
        ``"excess_risk"`` at the end, ``"integrated_risk"`` (its mean over the clock),
        ``"overlap"`` (which is made large), or a JAX function of the final `Overlaps`
        (which is made small).
    form : str
        ``"free"``, ``"constant"`` or the name of a schedule: ``"cosine"``,
        ``"linear"``, ``"power"``, ``"inverse"``. Weight decay is always constant.
    bounds : pair, or mapping of controls to pairs, optional
        Lowest and highest value of each control, as laws: ``(0.01 / d, 1 / d)``.
    method : Method
        ``ODE()`` (the default), ``GiantSteps()`` or ``Map(dim)``.
    pieces : int
        Intervals of a free function, whose values are joined by straight lines.
    restarts : int
        First guesses: the best constant, the best named schedule, and random ones.
    budget : int
        Runs and gradients that the search may take, at most.
    seed : int
        Of random first guesses.
    progress : bool, optional
        As in `solve`.

    Returns
    -------
    Optimum
        Interrupted, what was found so far is in ``Interrupted.result``.

    Examples
    --------
    >>> import twolayer as tl
    >>> from twolayer import d
    >>> problem, start = (
    ...     tl.Problem("z1", "linear", noise=0.2),
    ...     tl.Overlaps([[0.0]], [[0.0]]),
    ... )
    >>> best = tl.optimise(
    ...     problem, tl.SGD(lr=0.2 / d), start, form="constant", horizon=10
    ... )
    >>> f"{best.constant.lr:.4f}", round(best.value, 6)
    ('0.2700/d', 0.020142)
    """
    check_description(problem, algorithm)
    algorithm.check_gradient_steps("tl.optimise")
    problem.require_isotropic("optimise")
    algorithm.check_constant("optimise")
    forms = _forms(over, form)
    method = ODE() if method is None else method
    require(
        isinstance(method, Method), "method", method, "ODE(), GiantSteps() or Map(dim)"
    )
    clock = choice(
        "clock",
        ("step" if method.stepwise else "alpha") if clock is None else clock,
        CLOCKS,
    )
    horizon = finite_number(
        "horizon", horizon, minimum=0.0, accepted="a positive number"
    )
    require(horizon > 0, "horizon", horizon, "a positive number")
    require(
        clock != "step" or horizon == round(horizon),
        "horizon",
        horizon,
        "a whole number of steps",
    )
    seed = check_seed(seed)
    require(
        isinstance(start, Overlaps),
        "start",
        start,
        "Overlaps, such as Overlaps.random(problem, dim=1000)",
    )
    check_start(problem, start)
    goal = objective_of(objective, start)
    limits = _bounds(algorithm, forms, bounds)
    pieces, restarts = (
        positive_integer("pieces", pieces),
        positive_integer("restarts", restarts),
    )
    budget = positive_integer("budget", budget, 50)
    task = _Task(
        problem,
        algorithm,
        method,
        start,
        horizon,
        clock,
        goal,
        forms,
        limits,
        pieces,
        restarts,
        seed,
    )
    monitor = listener_for(progress)
    monitor.begin("optimise", float(budget))
    try:
        return task.search(budget, monitor)
    finally:
        monitor.finish()


def _forms(over: object, form: str) -> dict[str, str]:
    """The form of each control."""
    choice("form", form, KINDS)
    names = (
        [over]
        if isinstance(over, str)
        else list(over)
        if isinstance(over, Mapping | tuple | list | set)
        else None
    )
    if not names:
        reject("over", over, f"one of {', '.join(map(repr, OVER))}, or several")
    found = {choice("over", name, OVER): form for name in names}
    if isinstance(over, Mapping):
        found = {name: choice("over", kind, KINDS) for name, kind in over.items()}
    return {
        name: "constant" if name == "weight_decay" else found[name]
        for name in OVER
        if name in found
    }


def _bounds(
    algorithm: SGD, forms: dict[str, str], bounds: object
) -> dict[str, tuple[float, float]]:
    """Bounds of each control relative to its reference; those that were not given are
    wide.
    """
    n = algorithm.batch
    one = 1 / n.coefficient if n.exponent == 0 else LEAST
    wide = {
        "lr": (LEAST, math.inf),
        "batch": (one, math.inf),
        "weight_decay": (0.0, 10.0),
    }
    found = {name: wide[name] for name in forms}
    if bounds is None:
        return found
    given = bounds if isinstance(bounds, Mapping) else dict.fromkeys(forms, bounds)
    for name, pair in given.items():
        choice("bounds", name, forms)
        if isinstance(pair, str) or not np.iterable(pair) or len(tuple(pair)) != 2:
            reject("bounds", pair, f"the lowest and the highest {name}")
        reference = Scaling(1.0) if name == "weight_decay" else getattr(algorithm, name)
        low, high = (_relative(name, x, reference) for x in pair)
        require(low < high, "bounds", pair, f"the lowest {name}, then the highest")
        found[name] = (max(low, found[name][0]), high)
    return found


def _relative(name: str, value: object, reference: Scaling) -> float:
    law = Scaling.of(value, "bounds")
    same = law.coefficient == 0 or abs(law.exponent - reference.exponent) < 1e-9
    if not same or law.coefficient < 0 or not math.isfinite(law.coefficient):
        raise InputError(
            f"Argument `bounds` must hold laws of the same power as {name} ="
            f" {reference}, from 0 on, but got {law}."
        )
    return float(law.coefficient / reference.coefficient)


def _agree(one: float, other: float) -> bool:
    return math.isfinite(one) and abs(one - other) <= AGREE * abs(one) + 1e-12


@dataclass(frozen=True, eq=False)
class _Task:
    problem: Problem
    algorithm: SGD
    method: Method
    start: Overlaps
    horizon: float
    clock: str
    goal: Objective
    forms: dict[str, str]
    limits: dict[str, tuple[float, float]]
    pieces: int
    restarts: int
    seed: int

    def course(self, finer: int = 1) -> ControlledRun:
        """The dynamics, in so many times as many steps."""
        steps = STEPS * self.pieces * finer
        parts = (
            self.problem,
            self.algorithm,
            self.method,
            self.start,
            self.horizon,
            self.clock,
            self.goal,
        )
        return course_of(*parts, steps)

    def search(self, budget: int, monitor: Listener) -> Optimum:
        """Constants, named schedules, free functions; whatever was found when it
        ends.
        """
        course = self.course()
        scanned = course if self.method.stepwise else self.course(FINER[0])
        search = Search(course, scanned, budget, monitor, self.algorithm.weight_decay)
        state: Options = {"named": {}, "restarts": [], "refinement": math.nan}
        stopped = False
        try:
            with contextlib.suppress(Spent):
                self._stages(search, state)
        except KeyboardInterrupt:
            if search.constant is None:
                raise
            stopped = True
        if (
            "best" not in state and search.constant is not None
        ):  # no scan has come to its end
            state["constant"] = state["best"] = search.constant
        if stopped:
            search.budget = search.count  # nothing more is looked for
            raise Interrupted(self._result(search, state, False))
        if "best" not in state or not math.isfinite(state["best"].value):
            raise InputError(
                "Argument `bounds` must leave room for a run that does not blow up,"
                " but none was found: begin with a smaller lr than"
                f" {self.algorithm.lr}, or give bounds."
            )
        return self._result(search, state, not search.spent)

    def _stages(self, search: Search, state: Options) -> None:
        shapes = {name: constant(1.0, self.limits[name]) for name in self.forms}
        if "weight_decay" in shapes:
            shapes["weight_decay"] = constant(0.1, self.limits["weight_decay"])
        numbers = {
            name: np.array([search.decay if name == "weight_decay" else 1.0])
            for name in shapes
        }
        for name in shapes:
            found = search.scan(shapes, name, numbers)
            numbers = found.numbers
            state["constant"] = state["best"] = found
        if len(shapes) > 1:
            state["constant"] = state["best"] = self._better(
                search.descend(shapes, numbers), state["best"]
            )
        moving = [name for name, kind in self.forms.items() if kind != "constant"]
        if not moving or not math.isfinite(state["best"].value):
            return
        for finer in () if self.method.stepwise else FINER:
            if _agree(state["constant"].value, search.sees(state["constant"])):
                break
            search.course = self.course(finer)
        wanted = {kind for kind in self.forms.values() if kind in NAMED}
        for word in NAMED:
            if wanted and word not in wanted:
                continue
            other = self._named(search, state["constant"], moving, word)
            if other is not None:
                state["named"][word] = other
                state["best"] = self._better(other, state["best"])
        if any(kind == "free" for kind in self.forms.values()):
            self._free(search, state, moving)
        self._polish(search, state)

    def _finish(self, search: Search, state: Options) -> None:
        """Whole batches, where they are numbers; what is best is chosen once more after
        the rounding.
        """
        for key in ("constant", "best"):
            state[key] = self._whole(search, state[key])
        state["named"] = {
            name: self._whole(search, found) for name, found in state["named"].items()
        }
        for rival in (state["constant"], *state["named"].values()):
            state["best"] = self._better(rival, state["best"])

    def _polish(self, search: Search, state: Options) -> None:
        """Go on with shorter steps of the integrator while the method's own run says
        that they are too long.
        """
        for finer in FINER:
            state["run"] = state["best"], *self._protocol("optimum", state["best"])
            if self.method.stepwise or _agree(
                state["run"][1].value, state["best"].value
            ):
                return
            search.course = self.course(finer)
            for key in ("constant", "best"):
                state[key] = search.descend(state[key].shapes, state[key].numbers)

    def _better(self, one: Found, other: Found) -> Found:
        return (
            one
            if math.isfinite(one.value) and self.goal.better(one.value, other.value)
            else other
        )

    def _wide(self, name: str, base: float) -> tuple[float, float]:
        """Bounds of a control that changes: given ones, or up to thirty times the best
        constant.
        """
        low, high = self.limits[name]
        return low, high if math.isfinite(high) else 30 * base

    def _shapes(
        self,
        base: Found,
        moving: list[str],
        make: Callable[[str, float, tuple[float, float]], CurveForm],
    ) -> dict[str, CurveForm]:
        """Shapes of all controls: those that change, and constants."""
        shapes = {}
        for name in self.forms:
            value = float(base.numbers[name][0])
            wide = self._wide(name, value)
            shapes[name] = (
                make(name, value, wide) if name in moving else constant(value, wide)
            )
        return shapes

    def _named(
        self, search: Search, base: Found, moving: list[str], word: str
    ) -> Found | None:
        """The best schedule with a name; None where it leaves the bounds."""
        shapes = self._shapes(
            base,
            moving,
            lambda _, x, wide: named(word, x, wide, self.horizon, self.clock),
        )
        found = search.descend(
            shapes, {name: shape.first for name, shape in shapes.items()}, 60
        )
        for name in moving:
            values, (low, high) = (
                found.at(name, search.course.grid),
                self._wide(name, float(base.numbers[name][0])),
            )
            if values.min() < low - 1e-9 or values.max() > high * (1 + 1e-9):
                return None
        return found if math.isfinite(found.value) else None

    def _places(self, n: int) -> np.ndarray:
        """Ends of n intervals; single steps where there are no more of them."""
        if self.clock == "step" and self.method.stepwise:
            last = round(self.horizon) - 1
            return np.unique(np.round(np.linspace(0, last, min(n, last) + 1)))
        return np.linspace(0.0, self.horizon, n + 1)

    def _free(self, search: Search, state: Options, moving: list[str]) -> None:
        """Free functions from several first guesses, then finer ones."""
        levels = [
            n for n in (self.pieces // 8, self.pieces // 4, self.pieces // 2) if n >= 2
        ] + [self.pieces]
        base, rng = state["constant"], np.random.default_rng(self.seed)

        def refined(n: int, guess: Found, noise: float = 0.0) -> Found:
            at = self._places(n)
            shapes = self._shapes(
                base,
                moving,
                lambda name, x, wide: free(at, np.full(len(at), x), wide, self.clock),
            )
            first = {}
            for name in shapes:
                size = at if name in moving else np.zeros(1)
                first[name] = guess.at(name, size) * np.exp(
                    noise * rng.standard_normal(len(size))
                )
            return search.descend(shapes, first)

        guesses = [(base, 0.0)]
        if state["named"]:
            pick = max if self.goal.large else min
            guesses.append((pick(state["named"].values(), key=lambda x: x.value), 0.0))
        guesses += [(base, 0.7)] * (self.restarts - len(guesses))
        best: Found | None = None
        for guess, noise in guesses[: self.restarts]:
            found = refined(levels[0], guess, noise)
            state["restarts"].append(found.value)
            best = found if best is None else self._better(found, best)
            state["best"] = self._better(found, state["best"])
        assert best is not None
        for n in levels[1:]:
            finer = self._better(refined(n, best), best)
            state["refinement"] = (
                abs(finer.value / best.value - 1) if best.value else math.nan
            )
            best, state["best"] = finer, self._better(finer, state["best"])

    def _laws(self, found: Found) -> Options:
        """The arguments of SGD that a find stands for."""
        laws: Options = {}
        for name, shape in found.shapes.items():
            if name == "weight_decay":
                laws[name] = float(found.numbers[name][0])
            else:
                laws[name] = shape.law(
                    found.numbers[name], getattr(self.algorithm, name)
                )
            if (
                name == "batch" and self._counts
            ):  # its coefficient is a whole number, the rest is in the schedule
                law = laws[name]
                laws[name] = Scaling(
                    float(max(1, round(law.coefficient))), 0.0, law.schedule
                )
        return laws

    @property
    def _counts(self) -> bool:
        """Whether batches are numbers, which are whole, and no powers of d."""
        return self.algorithm.batch.exponent == 0

    def _whole(self, search: Search, found: Found) -> Found:
        """The same with whole batches, to which the other controls adapt."""
        if (
            "batch" not in found.numbers
            or not self._counts
            or not math.isfinite(found.value)
        ):
            return found
        n, numbers = self.algorithm.batch.coefficient, dict(found.numbers)
        first = numbers["batch"] = numbers["batch"].copy()
        sizes = (
            first if found.shapes["batch"].name == "free" else first[:1]
        )  # others have a scale, and numbers beside
        top = float(sizes.max())
        sizes *= max(1, round(top * n)) / (top * n)
        shapes = {
            **found.shapes,
            "batch": dataclasses.replace(found.shapes["batch"], low=first, high=first),
        }
        rounded = Found(
            shapes,
            numbers,
            search.scanned.value(search.controls(shapes, numbers, search.scanned)),
        )
        return (
            rounded
            if len(shapes) == 1
            else self._better(search.descend(shapes, numbers), rounded)
        )

    def _protocol(self, name: str, found: Found) -> tuple[Protocol, xr.Dataset]:
        """A find as an algorithm, with the run of the method itself."""
        algorithm = self.algorithm.replace(**self._laws(found))
        saves = min(400, round(self.horizon)) if self.method.stepwise else 400
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DivergenceWarning
            )  # told by a value that is infinite
            path = solve(
                self.problem,
                algorithm,
                self.method,
                self.start,
                **length_of(self.clock, self.horizon),
                save=saves,
                progress=False,
            )
        value = float(measured(self.goal, self.problem, path, self.clock).mean())
        if (path.outcome == "diverged").any():
            value = -math.inf if self.goal.large else math.inf
        return Protocol(name, algorithm, value), path

    def _result(self, search: Search, state: Options, complete: bool) -> Optimum:
        self._finish(search, state)
        best, laws = state["best"], self._laws(state["best"])
        last = state.get("run", (None,))
        own, path = last[1:] if last[0] is best else self._protocol("optimum", best)
        still, held = self._protocol("constant", state["constant"])
        paths = {"optimum": path, "constant": held}
        known = {
            name: Protocol(
                name, self.algorithm.replace(**self._laws(found)), found.value
            )
            for name, found in state["named"].items()
        }
        if known:  # the best of them by a run of the method itself
            pick = max if self.goal.large else min
            first = pick(known, key=lambda name: known[name].value)
            known[first], paths[first] = self._protocol(first, state["named"][first])
        agrees = _agree(own.value, best.value)
        rivals = [still, *known.values()]
        slack = 1e-6 * abs(own.value)
        ahead = all(
            (
                own.value >= x.value - slack
                if self.goal.large
                else own.value <= x.value + slack
            )
            for x in rivals
        )
        return Optimum(
            own.value,
            next(iter(laws.values())) if len(laws) == 1 else laws,
            own.algorithm,
            still,
            known,
            paths,
            bool(agrees and ahead and complete),
            state["restarts"],
            self.pieces,
            state["refinement"],
            search.count,
            complete,
            self.problem,
            self.start,
            self.method,
            self.goal.name,
            self.horizon,
            self.clock,
            self.goal,
        )
