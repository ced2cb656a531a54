"""Results as plain xarray datasets: the schema, and where a result came from.

Dimensions ``seed``, ``time``, ``neuron``, ``neuron_``, ``direction``; variables

    M (seed, time, neuron, direction)   Q (seed, time, neuron, neuron_)
        a (seed, time, neuron)
    risk, excess_risk (seed, time)      outcome (seed)   stop_step, stop_time (seed)
    generalisation_gap (seed, time), risk − train_risk;
        passes (time), through the fixed set
    lr (time), the rate in force, of the step that follows; batch (time),
        where it has a schedule
    loss (seed, time), the mean of what is trained, and error (seed, time),
        the chance of a wrong sign, for labels ±1
    train_risk (seed, time), where samples are reused
    M_average, Q_average, a_average, risk_average,
        … where the average of the iterates is followed
    M_block (seed, time, block, neuron, direction), Q_block:
        of the rows in each block of the inputs, where these have
    several; M and Q are then those of the fields, Σ_i s_i M⁽ⁱ⁾ and Σ_i s_i Q⁽ⁱ⁾
    Q_perp (seed, time, neuron, neuron_),
        where the method carries it to more digits than Q and M do

In a mean field a neuron is a particle: q (seed, time, neuron) = |w⊥|² and weight
(neuron) are given too, and Q only where the start had one, as the mean M P⁺ Mᵀ + diag q
over directions of the orthogonal parts.

The clocks ``time``, ``step``, ``sample``, ``alpha`` are coordinates along time
(attribute ``units``: "" or a power of d for limits without a dimension). Attributes are
JSON text: ``description`` (problem, algorithm, method, run), ``notes`` (engine, error,
regime), ``versions``. The start is kept exactly in start_Q, start_M, start_a, so that
loading a file and running it again gives the same numbers; for particles start_q and
weight take the place of start_Q.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Hashable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import xarray as xr

from twolayer.equations.blocks import field_overlaps
from twolayer.gaussian.loss_and_error import readings
from twolayer.gaussian.risk import excess_risks, irreducible
from twolayer.loops.host_loop import Record
from twolayer.numerics import random
from twolayer.numerics.arguments import Json, Options, Variables
from twolayer.numerics.errors import InputError, expect
from twolayer.numerics.foreign_files import check_format, reading
from twolayer.running.long_names import with_meanings
from twolayer.task.algorithm import SGD
from twolayer.task.averages import with_averages
from twolayer.task.method import METHODS, Measure, Method, Outcome, Snapshot, Task
from twolayer.task.overlaps import Overlaps, pseudo_inverse
from twolayer.task.particles import Particles
from twolayer.task.problem import Problem

__all__ = [
    "advice_on",
    "check_result",
    "describe_problem",
    "description_of",
    "known_risks",
    "method_of",
    "parts_of",
    "quantities",
    "scanned",
    "start_of",
    "to_dataset",
    "unpack",
]

SCHEMA = "twolayer/1"
WHERE_IT_STOPPED = ("stop_step", "stop_time", "stop_alpha")
RISKS = ("risk", "risk_average", "loss")
SHAPES = {"M": ("neuron", "direction"), "a": ("neuron",), "risk": (), "excess_risk": ()}
KINDS: dict[str, type] = {
    "notes": dict,
    "versions": dict,
    "papers": list,
    "complete": bool,
}
PACKAGES = (
    "twolayer",
    "jax",
    "jaxlib",
    "diffrax",
    "equinox",
    "numpy",
    "scipy",
    "xarray",
)


@cache  # reading them takes as long as a short run
def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    from twolayer import __version__  # known where it runs from its sources, too

    found = {
        "python": platform.python_version(),
        "random": random.NAME,
        "twolayer": __version__,
    }
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def describe_problem(problem: Problem) -> Json:
    """The arguments as plain values; callables are named but cannot be read back."""
    layer = problem.second_layer
    return {
        "target": problem.target.description or f"<function {problem.target.name}>",
        "activation": (
            problem.activation.name
            if problem.activation.portable
            else f"<function {problem.activation.name}>"
        ),
        "width": problem.width,
        "noise": problem.noise,
        "gram": (
            None if np.array_equal(problem.P, np.eye(problem.k)) else problem.P.tolist()
        ),
        "second_layer": layer if isinstance(layer, str) else list(layer),
        "directions": (
            problem.k if isinstance(problem.target.description, str) else None
        ),
        "normalisation": problem.normalisation,
        "noise_law": problem.labels.law.name,
        "flips": problem.labels.flips,
        **({} if problem.inputs.plain else {"inputs": problem.inputs.describe()}),
    }


def known_risks(record: Record) -> tuple[np.ndarray, str] | None:
    """Excess risks and their rule where the method knows them better than the overlaps
    do, or where there are none.
    """
    rule = str(record.notes.get("engine", "mean field"))
    if isinstance(record.snapshot, Measure):
        return record.snapshot.excess_risk, rule
    return (
        (record.extras["excess_risk"][1], rule)
        if "excess_risk" in record.extras
        else None
    )


def to_dataset(
    task: Task,
    method: Method,
    record: Record,
    risks: tuple[np.ndarray, str] | None = None,
) -> xr.Dataset:
    """Build the dataset of a run; excess risks and their rule may be known already."""
    problem, snapshot = task.problem, record.snapshot
    count = snapshot.a.shape[1]
    unit = method.unit(task.algorithm)
    position = np.asarray(task.points[:count])
    excess, rule = risks or _risks(problem, record)
    clocks = task.clocks.coordinates(position, method.stepwise, unit)
    stops = task.clocks.coordinates(record.stop, method.stepwise, unit)
    along: Variables = {
        name: ("time", values, {"units": units})
        for name, (values, units) in clocks.items()
    }
    coords: Variables = {
        name: along.pop(name) for name in ("time", "step", "sample", "alpha")
    }
    coords |= {"seed": task.runs, "direction": np.arange(1, problem.k + 1)}
    start = task.start
    few = isinstance(start, Overlaps)
    coords |= {
        name: np.arange(1, snapshot.a.shape[2] + 1)
        for name in ("neuron", "neuron_")[: 1 + few]
    }
    if not problem.inputs.plain:
        coords["block"] = np.arange(1, problem.inputs.count + 1)
    # all variables at once: adding one to a dataset takes as long as making it
    more, read = _more(task, snapshot, excess)
    rules = {"risk": rule, **read}
    dataset = xr.Dataset(
        {
            "M": (("seed", "time", "neuron", "direction"), snapshot.M),
            **_orthogonal(task, snapshot),
            "a": (("seed", "time", "neuron"), snapshot.a),
            "risk": (("seed", "time"), excess + irreducible(problem)),
            "excess_risk": (("seed", "time"), excess),
            "outcome": xr.Variable(
                "seed", record.outcome, fastpath=True
            ),  # pandas would read every word
            "stop_step": (("seed",), stops["step"][0], {"units": stops["step"][1]}),
            "stop_time": (("seed",), stops["time"][0], {"units": stops["time"][1]}),
            "save_point": (("time",), position),
            **along,
            **_passes(task, clocks["alpha"][0]),
            **_start(task),
            **more,
        },
        coords,
    )
    if (
        "lr" in record.extras
    ):  # relative to the law: rules that choose their rate have one for every seed
        dims, values = record.extras["lr"]
        dataset["lr"] = dims, values[:, :count] * dataset.lr.values, dataset.lr.attrs
    for name, (dims, values) in record.extras.items():
        if name not in dataset:
            dataset[name] = (
                dims,
                values[
                    tuple(
                        slice(count) if dim == "time" else slice(None) for dim in dims
                    )
                ],
            )
    outcome = scanned(record.outcome, dataset.variables, problem)
    dataset["outcome"] = xr.Variable("seed", outcome, fastpath=True)
    run: Options = {
        "seeds": task.seeds,
        "seed": task.seed,
        "first": task.first,
        "start_dim": start.dim,
    }
    if task.until is not None:
        run["until"] = [task.until.quantity, task.until.value, task.until.relative]
    if (
        count < len(task.points) and not record.interrupted
    ):  # all had stopped: the save points that were not met
        run["points"] = task.saved.tolist()
    description = {
        "problem": describe_problem(problem),
        "algorithm": task.algorithm.describe(),
        "method": method.describe(),
        "run": run,
    }
    advice = {
        o: advice_on(record, o, task.algorithm) for o in sorted(set(outcome.tolist()))
    }
    dataset.attrs = {
        "schema": SCHEMA,
        "description": json.dumps(description),
        "notes": json.dumps({**record.notes, **rules, "advice": advice}),
        "versions": json.dumps(versions()),
        "complete": json.dumps(not record.interrupted),
        "papers": json.dumps(list(method.papers)),
    }
    with_meanings(dataset)
    # a start that was not asked for is no save point, unless the run has got no further
    return (
        dataset.isel(time=slice(task.hidden, None)) if count > task.hidden else dataset
    )


def scanned(
    outcome: np.ndarray, variables: Mapping[Hashable, xr.Variable], problem: Problem
) -> np.ndarray:
    """The outcomes, with one of their own for seeds with a number that is not finite
    although they went on; numbers of all seeds, such as clocks, count for each.

    Steps and times of a stop are missing where there was none, and noise without a
    variance makes risks infinite.
    """
    endless = not np.isfinite(irreducible(problem))
    lost = np.zeros(len(outcome), dtype=bool)
    for name, variable in variables.items():
        if variable.dtype.kind != "f" or str(name) in WHERE_IT_STOPPED:
            continue
        values = variable.values
        fine = np.isfinite(values)
        if endless and str(name) in RISKS:
            fine |= values == np.inf
        if not fine.all():
            along = [i for i, dim in enumerate(variable.dims) if dim != "seed"]
            lost |= ~fine.all(axis=tuple(along))
    return np.where(
        lost & np.isin(outcome, (Outcome.OK, Outcome.REACHED)),
        Outcome.NOT_FINITE,
        outcome,
    )


def advice_on(record: Record, outcome: str, algorithm: SGD) -> str:
    """What goes with an outcome of this algorithm: nothing is recommended that it does
    already.
    """
    text = record.advice(outcome)
    if (
        outcome != Outcome.DIVERGED
        or text != Outcome.ADVICE[outcome]
        or algorithm.geometry == "free"
    ):
        return text
    what = (
        "the second layer grows"
        if algorithm.train_second_layer
        else "the overlaps grow, although rows are normalised,"
    )
    return f"{what} without bound: use a smaller lr or a larger batch"


def _risks(problem: Problem, record: Record) -> tuple[np.ndarray, str]:
    """Excess risks and how they were computed."""
    known, snapshot = known_risks(record), record.snapshot
    if known is not None:
        return known
    assert isinstance(snapshot, Snapshot)
    return excess_risks(problem, snapshot.Q, snapshot.M, snapshot.a)


def _more(
    task: Task, snapshot: Snapshot | Measure, excess: np.ndarray
) -> tuple[Variables, dict[str, str]]:
    """What else is read off overlaps, with the rules of averages."""
    if not isinstance(snapshot, Snapshot):
        return {}, {}
    along, problem = ("seed", "time"), task.problem
    training = {
        name: getattr(snapshot, name) for name in ("train_risk", "train_risk_average")
    }
    read = readings(
        problem, task.algorithm.loss, snapshot.Q, snapshot.M, snapshot.a, excess
    )
    gap = _gap(problem, snapshot, excess)
    variables = {
        **({} if gap is None else {"generalisation_gap": (along, gap)}),
        **{
            name: (along, values)
            for name, values in training.items()
            if values is not None
        },
        **_blocks(problem, snapshot.Q_block, snapshot.M_block),
        **_average(problem, snapshot),
        **{name: (along, values) for name, (values, _) in read.items()},
    }
    return variables, {name: how for name, (_, how) in read.items()}


def _gap(problem: Problem, snapshot: Snapshot, excess: np.ndarray) -> np.ndarray | None:
    """Test less training risk; None where samples are new, or a risk is infinite."""
    train = snapshot.train_risk
    if train is None or not np.isfinite(irreducible(problem)):
        return None
    return np.asarray(excess + irreducible(problem) - train)


def _passes(task: Task, alpha: np.ndarray) -> Variables:
    """Passes through the fixed set of samples, if there is one whose size is known."""
    data = task.algorithm.dataset
    if data is None or (task.clocks.dim is None and abs(data.exponent - 1) > 1e-9):
        return {}
    return {"passes": (("time",), alpha / task.clocks.alpha_in_pass)}


def _average(problem: Problem, snapshot: Snapshot) -> Variables:
    """The average of the iterates, if it was followed."""
    Q, M, a = snapshot.Q_average, snapshot.M_average, snapshot.a_average
    if Q is None or M is None or a is None:
        return {}
    excess, row = excess_risks(problem, Q, M, a)[0], ("seed", "time", "neuron")
    return {
        "M_average": ((*row, "direction"), M),
        "Q_average": ((*row, "neuron_"), Q),
        "a_average": (row, a),
        "risk_average": (row[:2], excess + problem.noise / 2),
        "excess_risk_average": (row[:2], excess),
    }


def _blocks(problem: Problem, Q: np.ndarray | None, M: np.ndarray | None) -> Variables:
    """Overlaps in each block, where there are several; one is a multiple of the
    fields.
    """
    if Q is None or M is None or not problem.inputs.several:
        return {}
    row = ("seed", "time", "block", "neuron")
    return {
        "M_block": ((*row, "direction"), M),
        "Q_block": ((*row, "neuron_"), Q),
        "variance": (("block",), np.asarray(problem.inputs.variances)),
    }


def _orthogonal(task: Task, snapshot: Snapshot | Measure) -> Variables:
    """Q, or what a mean field knows of it."""
    square = ("seed", "time", "neuron", "neuron_")
    if isinstance(snapshot, Snapshot):
        return {"Q": (square, snapshot.Q)}
    start, n = task.start, snapshot.q.shape[2]
    weight = start.weights if isinstance(start, Particles) else np.full(n, 1 / n)
    known: Variables = {
        "q": (("seed", "time", "neuron"), snapshot.q),
        "weight": (("neuron",), weight),
    }
    if (
        isinstance(start, Overlaps)
        and snapshot.M_block is not None
        and snapshot.q_block is not None
    ):
        M, q = snapshot.M_block, snapshot.q_block
        every = [
            M[:, :, i] @ pseudo_inverse(P) @ np.swapaxes(M[:, :, i], -1, -2)
            for i, P in enumerate(start.P)
        ]
        Q = np.stack(every, 2) + q[..., None] * np.eye(n)
        return (
            known
            | {
                "Q": (
                    square,
                    field_overlaps(np.asarray(task.problem.inputs.variances), Q),
                )
            }
            | _blocks(task.problem, Q, M)
        )
    if isinstance(start, Overlaps):
        inside = snapshot.M @ pseudo_inverse(start.P) @ np.swapaxes(snapshot.M, -1, -2)
        known["Q"] = (square, inside + snapshot.q[..., None] * np.eye(n))
    return known


def _start(task: Task) -> Variables:
    """The start, exactly."""
    problem, start = task.problem, task.start
    if isinstance(start, Particles):
        a = problem.replace(width=start.n).a(task.seed) if start.a is None else start.a
        rows = {
            "start_M": (("neuron", "direction"), start.m),
            "start_q": (("neuron",), start.q),
        }
        return {**rows, "start_a": (("neuron",), a)}
    a = problem.a(task.seed) if start.a is None else start.a
    lead = ("start",) if start.batch else ()
    block_rows = (*lead, "block", "neuron") if start.blocks else (*lead, "neuron")
    kept: Variables = {
        "start_Q": ((*block_rows, "neuron_"), start.Q),
        "start_M": ((*block_rows, "direction"), start.M),
        "start_a": ((*lead, "neuron"), np.broadcast_to(a, (*start.batch, problem.p))),
    }
    return (
        {**kept, "start_P": (("block", "direction", "direction_"), start.P)}
        if start.blocks
        else kept
    )


def quantities(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    """What comparisons and figures look at, (seed, time) each: risk and m_1 … m_k, m_r
    = (mean_j M_jr²)^{1/2}.
    """
    weight = dataset.weight.values if "weight" in dataset else None
    m = np.sqrt(np.average(dataset.M.values**2, axis=2, weights=weight))
    # noise without a variance makes every risk infinite, and tells nothing apart
    risk = dataset.risk if np.isfinite(dataset.risk).any() else dataset.excess_risk
    return {"risk": risk.values} | {f"m{r + 1}": m[:, :, r] for r in range(m.shape[2])}


def description_of(dataset: xr.Dataset, name: str = "dataset") -> Json:
    """What a dataset says about itself; argument ``name`` is refused where that is not
    what results say.
    """
    what = f"Argument `{name}`"
    check_format(
        what,
        expect(xr.Dataset, name, dataset, " from solve").attrs.get("schema"),
        SCHEMA,
    )
    with reading(what):
        found: Json = json.loads(dataset.attrs["description"])
        for part in found.get("stages", [found]):
            problem, method = part["problem"], part["method"]
            counts = [
                problem["width"],
                *([method["dim"]] if method.get("dim") not in (None, "inf") else []),
            ]
            if not all(isinstance(n, int) and n > 0 for n in counts):
                raise TypeError("in its description")
            words = (problem["activation"], method["name"], part["algorithm"]["lr"])
            if not (
                isinstance(problem["target"], str | dict)
                and all(isinstance(word, str) for word in words)
            ):
                raise TypeError("in its description")
            float(problem["noise"])
    return found


def check_result(dataset: xr.Dataset, name: str = "dataset") -> Json:
    """Refuse what is not the whole result of a run; its description.

    >>> check_result(xr.Dataset())
    Traceback (most recent call last):
    twolayer.InputError: Argument `dataset` must be a result of twolayer, but has no
    such description.
    """
    found = description_of(dataset, name)
    with reading(f"Argument `{name}`"):
        along = (
            "point" if "stages" in found and "point" in dataset.dims else "time"
        )  # compared, they have one clock
        for variable, dims in SHAPES.items():
            if dataset[variable].dims != ("seed", along, *dims):
                raise ValueError(f"{variable} over {dataset[variable].dims}")
            if dataset[variable].dtype.kind not in "fi":
                raise TypeError(f"{variable} of {dataset[variable].dtype}")
        for clock in ("time", "step", "sample", "alpha"):
            if dataset[clock].dtype.kind not in "fi":
                raise TypeError(f"{clock} of {dataset[clock].dtype}")
        if not {*map(str, dataset.outcome.values.ravel())} <= {*Outcome.CODES}:
            raise ValueError("an outcome")
        if not all(dataset.sizes[dim] for dim in ("seed", along, "neuron")):
            raise ValueError("no runs or save points")
        for text, kind in KINDS.items():
            if not isinstance(
                json.loads(dataset.attrs.get(text, json.dumps(kind()))), kind
            ):
                raise TypeError(text)
    return found


def parts_of(description: Json) -> tuple[Problem, SGD, Method]:
    """Problem, algorithm and method of a description."""
    for part in ("target", "activation"):
        value = description["problem"][part]
        if isinstance(value, str) and value.startswith("<function"):
            raise InputError(
                f"The {part} of this result was a Python function ({value[10:-1]}),"
                " which a file cannot hold: describe it again to run it."
            )
    if "memory" in description["algorithm"]:
        raise InputError(
            "The algorithm of this result was a first-order method with functions of"
            " its own, which a file cannot hold: describe it again to run it."
        )
    with reading("The description of this result"):
        problem = Problem(**description["problem"])
        algorithm = SGD(**description["algorithm"])
        return problem, algorithm, method_of(description["method"])


def method_of(described: Json) -> Method:
    """The method that describes itself so."""
    knobs = dict(described)
    word = knobs.pop("name")
    if word not in METHODS:
        raise InputError(
            f"The method of this result, {word!r}, is not known here: register it to"
            " run it again."
        )
    return METHODS[word](**with_averages(word, knobs))


def start_of(
    dataset: xr.Dataset, problem: Problem, dim: int | None
) -> Overlaps | Particles:
    """The start that a dataset keeps."""
    with reading("The start of this result"):
        M, a = dataset.start_M.values, dataset.start_a.values
        if "start_q" in dataset:
            return Particles(
                M, dataset.start_q.values, dataset.weight.values, problem.P, a, dim
            )
        P = dataset.start_P.values if "start_P" in dataset else problem.P
        return Overlaps(dataset.start_Q.values, M, P, a, dim)


def unpack(dataset: xr.Dataset) -> Options:
    """Problem, algorithm, method, start and run of a dataset, ready to be solved
    again.
    """
    description = description_of(dataset)
    if "stages" in description:
        raise InputError(
            "Argument `dataset` must come from solve, but was made in stages, each with"
            " its algorithm."
        )
    problem, algorithm, method = parts_of(description)
    with reading("The description of this result"):
        run = description["run"]
        points = (
            np.asarray(run.pop("points"))
            if "points" in run
            else dataset.save_point.values
        )
        return {
            "problem": problem,
            "algorithm": algorithm,
            "method": method,
            "start": start_of(dataset, problem, run["start_dim"]),
            "points": points,
            **run,
        }
