"""What every registered method owes its users: one schema, one set of clocks, and a result or a reason.

A method is here by being registered: the battery asks the registry for the words, builds each method at a small
dimension, finds a regime that it accepts, and runs it over geometry × loss × second layer × noise (every pair of values
occurs), thresholds on both sides of the start, forms of save points, seeds, stages and sweeps. The last tests hold all
methods that treat the same case against each other.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import xarray as xr
from chance import sigmas
from cost import sized

import twolayer as tl
from twolayer import d
from twolayer.running.solve import make_task, method_by_name
from twolayer.task.algorithm import GEOMETRIES
from twolayer.task.method import HOMES, METHODS, QUANTITIES, RISING, Outcome

DIM, SEEDS = 60, 3
REGIMES = {
    "small steps": tl.SGD(0.5 / d, batch=2),
    "giant steps": tl.SGD(0.5, batch=4 * d),
    "reused samples": tl.SGD(0.3, batch=2 * d, dataset=2 * d),
}
NOISES = (0.0, 0.2)
# an orthogonal array of nine rows: every value of a column meets every value of every other
ROWS = [
    (g, loss, (g + loss) % 3 % 2, (g + 2 * loss) % 3 % 2)
    for g in range(3)
    for loss in range(3)
]
DIMS = {
    "M": ("seed", "time", "neuron", "direction"),
    "Q": ("seed", "time", "neuron", "neuron_"),
    "a": ("seed", "time", "neuron"),
    "risk": ("seed", "time"),
    "excess_risk": ("seed", "time"),
    "outcome": ("seed",),
    "stop_step": ("seed",),
    "stop_time": ("seed",),
}
WORDS = tuple(METHODS)
TREATED = {
    "small steps": {"chain", "map", "meanfield", "ode", "population", "sde", "vectors"},
    "giant steps": {"chain", "giantsteps", "map", "population", "vectors"},
    "reused samples": {"dmft", "vectors"},
}
"""The methods of the package by the regimes that they accept; those of others answer for themselves."""
REFUSED = {("meanfield", "half")}
"""Methods and losses that do not go together."""


@pytest.fixture(scope="module", autouse=True)
def registered_loss() -> None:
    """A loss that is not the package's: the residual of the squared loss, half as large."""
    tl.extend.register_loss("half")(lambda y, f: 0.5 * (y - f))


def problem(noise: float = 0.1, width: int = 2) -> tl.Problem:
    return tl.Problem("z1 + He2(z1)/2", "erf", width=width, noise=noise)


def start(width: int = 2) -> tl.Overlaps:
    Q, M = np.array([[1.0, 0.2], [0.2, 1.0]]), np.array([[0.3], [-0.1]])
    return tl.Overlaps(
        Q[:width, :width], M[:width], a=np.array([1.0, 0.7])[:width], dim=DIM
    )


@functools.cache
def beginning(noise: float) -> xr.Dataset:
    """The start as every method has to report it."""
    return tl.solve(
        problem(noise), REGIMES["small steps"], tl.Chain(DIM), start(), steps=1, save=1
    )


CHEAP: dict[str, dict[str, Any]] = {
    "dmft": {"averages": tl.Averages(accuracy=0.1, points=2**9)}
}


def build(word: str) -> tl.extend.Method:
    return method_by_name(word, DIM, CHEAP.get(word, {}))


def regime_of(word: str) -> tl.SGD:
    """The first regime that a method accepts."""
    for algorithm in REGIMES.values():
        if build(word).refusal(problem(), algorithm) is None:
            return algorithm
    raise AssertionError(f"{word} refuses every regime")


def run(
    word: str, algorithm: tl.SGD, task: tl.Problem | None = None, **knobs: Any
) -> xr.Dataset:
    if build(word).stochastic:
        knobs.setdefault("seeds", SEEDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tl.errors.DivergenceWarning)
        return tl.solve(task or problem(), algorithm, build(word), start(), **knobs)


def same(one: xr.Dataset, two: xr.Dataset) -> None:
    for name in set(DIMS) & set(one):
        np.testing.assert_array_equal(one[name].values, two[name].values, err_msg=name)


def check_schema(
    result: xr.Dataset, word: str, algorithm: tl.SGD, noise: float
) -> None:
    """The variables, their dimensions, the clocks, and that what is reported of a run is consistent."""
    particles = "q" in result
    for name, dims in DIMS.items():
        if particles and name in ("Q", "M", "a"):
            continue  # a measure has weighted particles instead of neurons
        assert result[name].dims == dims, name
    assert set(result.outcome.values.tolist()) <= set(Outcome.CODES)
    fine = result.outcome.values == Outcome.OK
    for name in ("M", "a", "risk", "excess_risk"):
        assert np.isfinite(result[name].values[fine]).all(), name
    np.testing.assert_allclose(
        result.risk - result.excess_risk, noise / 2, rtol=0, atol=1e-9
    )
    assert ("train_risk" in result) == (algorithm.dataset is not None)
    steps = result.time.values * 2 / algorithm.lr(DIM)  # t = lr·step/p
    np.testing.assert_allclose(result.step, steps, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        result.sample, steps * algorithm.batch_at(DIM), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(result.alpha, result.sample / DIM, rtol=1e-9, atol=1e-9)
    description = json.loads(result.attrs["description"])
    assert description["method"]["name"] == word and json.loads(
        result.attrs["complete"]
    )
    if not particles and algorithm.geometry != "free":
        norms = np.diagonal(result.Q.values, axis1=2, axis2=3)[fine]
        np.testing.assert_allclose(norms, 1.0, atol=1e-6)
        assert np.abs(result.M.values[fine]).max(initial=0.0) <= 1 + 1e-9


def quantity(result: xr.Dataset, name: str) -> np.ndarray:
    """The watched quantity along a run: (seed, time)."""
    if name == "overlap":
        return np.asarray(np.sqrt((result.M.values**2).sum(axis=(2, 3))))
    return np.asarray(
        result.M.values[..., 0, 0] if name == "alignment" else result[name].values
    )


def check_stop(result: xr.Dataset, until: tl.Until) -> None:
    """A run stops at the first save interval whose end has crossed the level, and nowhere else."""
    path = -until.sign * (
        quantity(result, until.quantity) - until.value
    )  # ≥ 0 beyond the level
    for seed, outcome in enumerate(result.outcome.values):
        crossed = path[seed] > -1e-6
        if outcome != Outcome.REACHED:
            assert not crossed[:-1].any(), f"seed {seed} is {outcome} and has crossed"
            continue
        assert crossed.any(), f"seed {seed} stopped short of the level"
        first = int(np.argmax(crossed))
        stop = float(result.stop_time[seed])
        assert stop <= result.time.values[first] * (1 + 1e-6)
        assert first == 0 or stop >= result.time.values[first - 1] * (1 - 1e-6)


ALWAYS = {("chain", ROWS[1]), ("ode", ROWS[3]), ("vectors", ROWS[7])}
"""Cases that are always run: every geometry, two losses, and second layer and noise with and without."""
QUICKER = {(word, row) for word in ("chain", "dmft") for row in ROWS} - ALWAYS
EVERY = [(word, row) for word in WORDS for row in ROWS]


@pytest.mark.parametrize(
    ("word", "row"),
    sized(EVERY, slow=QUICKER, long={*EVERY} - ALWAYS - QUICKER),
    ids=lambda value: value if isinstance(value, str) else "".join(map(str, value)),
)
def test_a_result_of_the_schema_or_a_reason(
    word: str, row: tuple[int, int, int, int]
) -> None:
    """Geometry, loss, second layer and noise, each with a threshold ahead of the start, and with one behind it."""
    losses = ("squared", "correlation", "half")
    geometry, loss, second, noise = (
        GEOMETRIES[row[0]],
        losses[row[1]],
        bool(row[2]),
        NOISES[row[3]],
    )
    algorithm = regime_of(word).replace(
        loss=loss, geometry=geometry, train_second_layer=second
    )
    reason = build(word).objection(problem(noise), algorithm)
    assert (reason is not None) == ((word, loss) in REFUSED) or word not in HOMES, (
        reason
    )
    if reason is not None:
        assert reason[0].islower() and len(reason) > 20, (
            "a refusal is a sentence that goes on from 'because'"
        )
        with pytest.raises(tl.errors.Refused, match="cannot"):
            run(word, algorithm, problem(noise), steps=4, save=2)
        return
    name = QUANTITIES[(row[0] + row[1]) % len(QUANTITIES)]
    begin = float(quantity(beginning(noise), name)[0, 0])
    until = tl.Until(name, begin * (1.05 if name in RISING else 0.9))
    result = run(word, algorithm, problem(noise), steps=6, save=6, until=until)
    check_schema(result, word, algorithm, noise)
    check_stop(result, until)
    if not second and "q" not in result:
        np.testing.assert_array_equal(
            result.a, np.broadcast_to(start().a, result.a.shape)
        )
    same(tl.rerun(result), result)
    behind = tl.Until(name, begin * (0.95 if name in RISING else 1.1))
    there = run(word, algorithm, problem(noise), steps=6, save=6, until=behind)
    assert set(there.outcome.values.tolist()) == {Outcome.REACHED}
    np.testing.assert_array_equal(there.stop_time, 0.0)


@pytest.mark.parametrize("regime", REGIMES)
def test_who_treats_what(regime: str) -> None:
    """A method that begins to refuse would pass all that follows."""
    assert TREATED[regime] == {
        word
        for word in HOMES
        if build(word).refusal(problem(), REGIMES[regime]) is None
    }


@pytest.mark.long
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("word", WORDS)
def test_every_regime_is_treated_or_refused_with_methods_that_do_treat_it(
    word: str, regime: str
) -> None:
    algorithm = REGIMES[regime]
    if build(word).refusal(problem(), algorithm) is None:
        check_schema(run(word, algorithm, steps=2, save=1), word, algorithm, 0.1)
        return
    with pytest.raises(tl.errors.Refused) as refused:
        run(word, algorithm, steps=2, save=1)
    for other in set(WORDS) - {word}:
        if re.search(rf"\b{METHODS[other].__name__}\b", str(refused.value)):
            assert build(other).refusal(problem(), algorithm) is None, (
                f"{word} names {other}, which refuses too"
            )


FORMS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "a number": ({"steps": 6, "save": 3}, [0, 2, 4, 6]),
    "a sequence": ({"steps": [2, 6]}, [2, 6]),
    "a sequence of saves": ({"steps": 6, "save": [0, 4, 6]}, [0, 4, 6]),
}


@pytest.mark.long
@pytest.mark.parametrize("word", WORDS)
def test_forms_of_save_points_are_views_of_one_run(word: str) -> None:
    algorithm = regime_of(word)
    whole = run(word, algorithm, steps=6, save=6)
    known = (
        np.rint(whole.step.values).astype(int).tolist()
    )  # a method may take several steps at once
    for form, (knobs, steps) in FORMS.items():
        part = run(word, algorithm, **knobs)
        np.testing.assert_allclose(part.step, steps, rtol=1e-9, err_msg=form)
        for name in ("M", "a", "excess_risk"):
            there = whole[name].values[:, [known.index(step) for step in steps]]
            np.testing.assert_allclose(
                part[name].values,
                there,
                rtol=1e-5,
                atol=1e-7,
                err_msg=f"{form}: {name}",
            )


@pytest.mark.long
@pytest.mark.parametrize("word", WORDS)
def test_a_run_is_the_same_in_any_company(word: str) -> None:
    """A seed is the same among three and among five, a point of a grid is the same alone and beside others."""
    method, algorithm = build(word), regime_of(word)
    few = run(word, algorithm, steps=4, save=2)
    if method.stochastic:
        many = run(word, algorithm, steps=4, save=2, seeds=SEEDS + 2)
        same(many.isel(seed=slice(SEEDS)), few)
        task = make_task(
            problem(), algorithm, method, start(), steps=4, save=2, seeds=1, first=2
        )
        assert task.runs.tolist() == [2]
    lrs = [algorithm.lr, 0.5 * algorithm.lr]
    alone, together = (
        tl.sweep(
            problem(), algorithm, method, {"algorithm.lr": values}, start=start(), steps=4, save=2,
            seeds=few.sizes["seed"], reduce="trajectory", progress=False,
        )
        for values in (lrs[:1], lrs)
    )  # fmt: skip
    first = together.isel(
        {next(name for name in together.sizes if name.endswith("lr")): slice(1)}
    )
    np.testing.assert_array_equal(alone.excess_risk.values, first.excess_risk.values)
    if not method.stochastic:
        np.testing.assert_array_equal(
            alone.excess_risk.values.ravel(), few.excess_risk.values.ravel()
        )


@pytest.mark.long
@pytest.mark.parametrize("word", WORDS)
def test_stages_go_on_where_they_stopped(word: str) -> None:
    """Two stages of a method without chance are one run; with chance the first stage is what `solve` gives."""
    method, algorithm = build(word), regime_of(word)
    stages = [
        tl.Stage(algorithm, steps=2, save=1),
        tl.Stage(algorithm, steps=2, save=1),
    ]
    staged = tl.solve_stages(
        problem(), stages, method, start(), seeds=SEEDS if method.stochastic else None
    )
    whole = run(word, algorithm, steps=4, save=2)
    assert staged.stage.values.tolist() == [1, 1, 2]
    np.testing.assert_allclose(
        staged.step.values, np.broadcast_to([0, 2, 4], staged.step.shape), rtol=1e-9
    )
    upto = (
        slice(None)
        if not method.stochastic or algorithm.dataset is not None
        else slice(2)
    )
    np.testing.assert_allclose(
        staged.M.values[:, upto], whole.M.values[:, upto], rtol=1e-5, atol=1e-8
    )
    assert ("train_risk" in staged) == ("train_risk" in whole)


# one description, all methods: deviations from theory are O(1/d) here, so that a dimension large for its price is taken
CASES: dict[str, tuple[tl.SGD, int, int, dict[str, Any]]] = {
    "small steps": (tl.SGD(0.5 / d, batch=2), 400, 24, {"time": 0.5, "save": 2}),
    "small steps on the sphere": (
        tl.SGD(0.5 / d, batch=2, geometry="spherical"),
        400,
        24,
        {"time": 0.5, "save": 2},
    ),
    "giant steps": (tl.SGD(0.5, batch=4 * d), 400, 24, {"steps": 2, "save": 2}),
    "reused samples": (
        tl.SGD(0.3, batch=2 * d, dataset=2 * d),
        400,
        24,
        {"steps": 3, "save": 3},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_all_methods_that_treat_a_case_agree(case: str) -> None:
    algorithm, dim, seeds, span = CASES[case]
    begin = tl.Overlaps(start().Q, start().M, a=start().a, dim=dim)
    ends: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for word in WORDS:
        method = method_by_name(word, dim, {})
        # the population's gradient and the mean field are other limits: lr → 0, and infinite width
        if (
            word in ("population", "meanfield")
            or method.refusal(problem(), algorithm) is not None
        ):
            continue
        result = tl.solve(problem(), algorithm, method, begin, seeds=seeds, **span)
        M = result.M.values[:, -1, :, 0]
        error = (
            M.std(axis=0, ddof=1) / np.sqrt(len(M))
            if len(M) > 1
            else np.zeros(M.shape[1])
        )
        ends[word] = (M.mean(axis=0), error)
    assert len(ends) >= 2, ends
    moved = max(float(np.abs(mean - begin.M[:, 0]).max()) for mean, _ in ends.values())
    finite_size = 8 / dim
    assert moved > 4 * finite_size, "the run has to go somewhere to test anything"
    pairs = list(combinations(ends, 2))
    limit = sigmas(2 * len(pairs), seeds - 1)
    for one, two in pairs:
        apart = np.abs(ends[one][0] - ends[two][0])
        allowed = finite_size + limit * np.hypot(ends[one][1], ends[two][1])
        assert (apart < allowed).all(), f"{one} and {two}: {apart} against {allowed}"
