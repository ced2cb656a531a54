"""`solve`: the schema, the clocks, what must not change a number, ends of a run, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import twolayer as tl
from twolayer import d
from twolayer.loops import stepwise

PROBLEM = tl.Problem(tl.Teacher("erf", 2), "erf", width=3, noise=0.1)
ALGORITHM = tl.SGD(1 / d, batch=2)
START = tl.Overlaps.random(PROBLEM, 40, seed=3)
METHODS = [tl.Chain(40), tl.Vectors(40)]
SLOW_VECTORS = [tl.Chain(40), pytest.param(tl.Vectors(40), marks=pytest.mark.slow)]


def same(one: xr.Dataset, two: xr.Dataset) -> None:
    for name in (
        "M",
        "Q",
        "a",
        "risk",
        "excess_risk",
        "stop_step",
        "stop_time",
        "outcome",
    ):
        np.testing.assert_array_equal(one[name].values, two[name].values, err_msg=name)


def test_schema_and_clocks() -> None:
    result = tl.solve(
        PROBLEM, ALGORITHM, tl.Chain(40), START, steps=60, save=6, seeds=2
    )
    assert dict(result.sizes) | {"start": 0} == {
        "seed": 2, "time": 7, "neuron": 3, "neuron_": 3, "direction": 2, "start": 0,
    }  # fmt: skip
    assert result.M.dims == ("seed", "time", "neuron", "direction")
    assert result.Q.dims == ("seed", "time", "neuron", "neuron_")
    np.testing.assert_array_equal(result.step, [0, 10, 20, 30, 40, 50, 60])
    np.testing.assert_allclose(result.sample, 2 * result.step)
    np.testing.assert_allclose(result.alpha, result.sample / 40)
    np.testing.assert_allclose(result.time, result.step * (1 / 40) / 3)
    np.testing.assert_allclose(result.risk - result.excess_risk, 0.05)
    np.testing.assert_array_equal(result.M[0, 0], START.M)
    description = json.loads(result.attrs["description"])
    assert description["method"] == {
        "name": "chain",
        "dim": 40,
        "batch_sums": "auto",
        "engine": "auto",
    }
    assert description["problem"]["width"] == 3
    assert json.loads(result.attrs["versions"])["jax"]
    assert json.loads(result.attrs["complete"]) is True
    assert np.isnan(result.stop_step).all()


def test_risk_is_that_of_the_overlaps() -> None:
    result = tl.solve(PROBLEM, ALGORITHM, tl.Chain(40), START, steps=60, save=2)
    end = tl.Overlaps(
        result.Q.values[0, -1], result.M.values[0, -1], a=result.a.values[0, -1]
    )
    assert tl.moments(PROBLEM, end).risk == pytest.approx(
        float(result.risk[0, -1]), rel=1e-12
    )


FORMS: list[tuple[dict[str, Any], list[float]]] = [
    ({"steps": [20, 70]}, [20, 70]),
    ({"steps": [0, 20, 70]}, [0, 20, 70]),
    ({"steps": [30]}, [30]),
    ({"steps": 40, "save": [10, 40]}, [10, 40]),
    ({"steps": 40, "save": 4}, [0, 10, 20, 30, 40]),
]


@pytest.mark.long
@pytest.mark.parametrize(
    "method", [tl.Chain(40), tl.ODE(), tl.SDE(40, dt=1e-3)], ids=lambda m: m.name
)
@pytest.mark.parametrize(("form", "steps"), FORMS, ids=str)
def test_a_result_holds_the_save_points_asked_for(
    method: tl.extend.Method, form: Any, steps: list[float]
) -> None:
    start = tl.Overlaps(START.Q, START.M, dim=40)
    run = tl.solve(PROBLEM, ALGORITHM, method, start, **form)
    np.testing.assert_allclose(run.step, steps, rtol=1e-12)
    assert run.risk.shape == (1, len(steps)) and run.save_point.shape == (len(steps),)
    whole = tl.solve(PROBLEM, ALGORITHM, method, start, steps=70, save=7)
    np.testing.assert_allclose(
        run.M, whole.M[:, [round(step / 10) for step in steps]], rtol=1e-6
    )
    same(tl.rerun(run), run)


@pytest.mark.long
def test_random_starts_are_drawn_at_the_dimension_of_the_method() -> None:
    arguments: dict[str, Any] = {"steps": 5, "save": 1, "seed": 7}
    run = tl.solve(PROBLEM, ALGORITHM, tl.Chain(40), "random", seeds=3, **arguments)
    same(
        run,
        tl.solve(
            PROBLEM,
            ALGORITHM,
            tl.Chain(40),
            tl.Overlaps.random(PROBLEM, 40, seed=7, size=3),
            **arguments,
        ),
    )
    same(
        run.isel(seed=[0]),
        tl.solve(PROBLEM, ALGORITHM, tl.Chain(40), "random", **arguments),
    )
    same(tl.rerun(run), run)
    wild = tl.solve(PROBLEM, ALGORITHM, tl.Chain(40), "gaussian", **arguments)
    assert not np.allclose(wild.Q[0, 0].values.diagonal(), 1.0)
    swept = tl.sweep(PROBLEM, ALGORITHM, tl.Chain(40), {"run.seed": [7]}, start="random", streams="common",
                     steps=5, seeds=3)  # fmt: skip
    np.testing.assert_array_equal(swept.M[0], run.M[:, -1])
    both = tl.compare(
        PROBLEM, ALGORITHM, [tl.ODE(), tl.Chain(40)], "random", seeds=2, **arguments
    )
    one = tl.Overlaps.random(PROBLEM, 40, seed=7)
    np.testing.assert_array_equal(both.results["chain"].M[0, 0], one.M)
    np.testing.assert_array_equal(both.results["ode"].M[0, 0], one.M)
    for method, words in (
        (tl.ODE(), "ODE has none"),
        (tl.MeanField(), "MeanField has none"),
    ):
        with pytest.raises(tl.InputError, match=words):
            tl.solve(PROBLEM, ALGORITHM, method, "random", time=1)
    with pytest.raises(tl.InputError, match="have not one"):
        tl.compare(PROBLEM, ALGORITHM, [tl.Chain(40), tl.Chain(50)], "random", steps=5)
    with pytest.raises(tl.InputError, match="did you mean 'random'"):
        tl.solve(PROBLEM, ALGORITHM, tl.Chain(40), "randon", steps=5)


def test_a_run_that_gets_no_further_than_its_start_holds_the_start() -> None:
    there = tl.Until("overlap", 0.01)
    run = tl.solve(PROBLEM, ALGORITHM, tl.Chain(40), START, steps=[20, 70], until=there)
    assert run.outcome.values.tolist() == ["reached"] and run.step.values.tolist() == [
        0.0
    ]
    assert tl.escape.first_passage(run).times.tolist() == [0.0]


@pytest.mark.slow
def test_everything_takes_results_without_their_start() -> None:
    start = tl.Overlaps(START.Q, START.M, dim=40)
    stages = [
        tl.Stage(ALGORITHM, steps=20, save=[5, 20]),
        tl.Stage(ALGORITHM, steps=20, save=[10, 20]),
    ]
    staged = tl.solve_stages(PROBLEM, stages, tl.Chain(40), START)
    assert staged.step.values.tolist() == [[5.0, 20.0, 30.0, 40.0]]
    points = {"steps": [5, 10, 20, 40]}
    found = tl.compare(
        PROBLEM,
        ALGORITHM,
        [tl.ODE(), tl.Chain(40)],
        start,
        **points,
        seeds=4,
        progress=False,
    )
    for name in ("ode", "chain"):
        np.testing.assert_allclose(found.results[name].step, points["steps"])
    assert (
        tl.plot.compare(found).axes and tl.plot.trajectory(found.results["chain"]).axes
    )
    grid = {"method.dim": [40, 80]}
    swept = tl.sweep(
        PROBLEM,
        ALGORITHM,
        tl.Chain(40),
        grid,
        start=START,
        **points,
        reduce="trajectory",
        seeds=2,
    )
    assert (
        swept.step.values[0, 0].tolist() == points["steps"]
        and swept.risk.sizes["save_point"] == 4
    )
    plain = tl.sweep(PROBLEM, ALGORITHM, tl.Chain(40), grid, start=START, steps=[0, *points["steps"]],
                     reduce="trajectory", seeds=2)  # fmt: skip
    np.testing.assert_array_equal(swept.M, plain.M[..., 1:, :, :])


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_adding_seeds_and_cutting_the_run_change_no_number(
    method: tl.extend.Method, monkeypatch: Any
) -> None:
    few = tl.solve(PROBLEM, ALGORITHM, method, START, steps=70, save=7, seeds=3)
    many = tl.solve(PROBLEM, ALGORITHM, method, START, steps=70, save=7, seeds=37)
    same(few, many.isel(seed=slice(3)))
    # another grid of save points
    sparse = tl.solve(PROBLEM, ALGORITHM, method, START, steps=[20, 70], seeds=3)
    np.testing.assert_array_equal(sparse.Q.values, few.Q.values[:, [2, 7]])
    # compiled calls of one block each
    monkeypatch.setattr(stepwise, "CALL_SECONDS", 0.0)
    same(few, tl.solve(PROBLEM, ALGORITHM, method, START, steps=70, save=7, seeds=3))
    # another seed does change the numbers
    assert not np.array_equal(
        few.Q.values,
        tl.solve(
            PROBLEM, ALGORITHM, method, START, steps=70, save=7, seeds=3, seed=1
        ).Q.values,
    )


@pytest.mark.parametrize("method", SLOW_VECTORS, ids=lambda m: m.name)
def test_a_start_for_each_seed(method: tl.extend.Method) -> None:
    starts = tl.Overlaps.random(PROBLEM, 40, seed=5, size=4)
    together = tl.solve(PROBLEM, ALGORITHM, method, starts, steps=20, save=2)
    assert together.sizes["seed"] == 4
    np.testing.assert_allclose(together.Q.values[:, 0], starts.Q, rtol=0, atol=1e-14)
    # run r draws from stream r whatever its start: the first one alone is the same
    first = tl.Overlaps(
        starts.Q[0], starts.M[0], a=None if starts.a is None else starts.a[0]
    )
    alone = tl.solve(PROBLEM, ALGORITHM, method, first, steps=20, save=2)
    np.testing.assert_array_equal(together.Q.values[0], alone.Q.values[0])


def test_many_starts_of_the_ode_are_one_by_one() -> None:
    starts = tl.Overlaps.random(PROBLEM, 40, seed=5, size=3)
    together = tl.solve(PROBLEM, ALGORITHM, tl.ODE(), starts, time=2, save=4)
    for i in range(3):
        one = tl.Overlaps(starts.Q[i], starts.M[i])
        alone = tl.solve(PROBLEM, ALGORITHM, tl.ODE(), one, time=2, save=4)
        np.testing.assert_allclose(together.Q.values[i], alone.Q.values[0], rtol=1e-6)


@pytest.mark.parametrize("method", [*METHODS, tl.ODE()], ids=lambda m: m.name)
def test_save_load_rerun(method: tl.extend.Method, tmp_path: Path) -> None:
    until = tl.Until("overlap", 100.0)
    result = tl.solve(
        PROBLEM,
        ALGORITHM,
        method,
        START,
        steps=60,
        save=5,
        seeds=3,
        seed=11,
        until=until,
    )
    path = tl.save(result, tmp_path / "run.nc")
    loaded = tl.load(path)
    xr.testing.assert_identical(loaded.drop_attrs(), result.drop_attrs())
    assert loaded.attrs == result.attrs
    again = tl.rerun(loaded)
    same(result, again)
    assert again.attrs == result.attrs
    assert [f.name for f in tmp_path.iterdir()] == ["run.nc"]


def test_a_python_function_cannot_be_read_back(tmp_path: Path) -> None:
    problem = tl.Problem(
        tl.extend.Target.of(lambda z: jnp.tanh(z[0]), directions=1), "tanh"
    )
    result = tl.solve(
        problem, ALGORITHM, tl.Chain(30), tl.Overlaps([[1.0]], [[0.2]]), steps=5, save=1
    )
    with pytest.raises(tl.InputError, match="Python function"):
        tl.rerun(tl.load(tl.save(result, tmp_path / "f.nc")))


@pytest.mark.parametrize("method", SLOW_VECTORS, ids=lambda m: m.name)
def test_divergence_is_an_outcome(method: tl.extend.Method) -> None:
    problem = tl.Problem("He3(z1)", "He3", width=2)
    with pytest.warns(
        tl.errors.DivergenceWarning,
        match=r"of 8 runs diverged, the first at step \d+.*smaller lr",
    ):
        result = tl.solve(
            problem,
            tl.SGD(4 / d),
            method,
            tl.Overlaps.random(problem, 40),
            steps=200,
            seeds=8,
        )
    lost = result.outcome.values == "diverged"
    assert lost.any()
    for name in ("M", "Q", "a", "risk"):
        assert np.isfinite(result[name].values).all()
    assert (result.stop_step.values[lost] >= 1).all() and np.isnan(
        result.stop_step.values[~lost]
    ).all()
    assert "smaller lr" in json.loads(result.attrs["notes"])["advice"]["diverged"]


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_until_interpolates_the_crossing(method: tl.extend.Method) -> None:
    """The stop lies in the step where the saved trajectory crosses the level; afterwards nothing moves."""
    start = tl.Overlaps(np.eye(3), 0.1 * np.ones((3, 2)))
    level = 0.5
    free = tl.solve(PROBLEM, ALGORITHM, method, start, steps=400, save=400, seeds=6)
    stopped = tl.solve(
        PROBLEM,
        ALGORITHM,
        method,
        start,
        steps=400,
        save=400,
        seeds=6,
        until=tl.Until("overlap", level),
    )
    m = np.sqrt((free.M.values**2).sum((2, 3)))
    for i in range(6):
        first = int(np.argmax(m[i] >= level))
        assert stopped.outcome.values[i] == ("reached" if first else "ok")
        if first:
            exact = (
                first - 1 + (level - m[i, first - 1]) / (m[i, first] - m[i, first - 1])
            )
            assert stopped.stop_step.values[i] == pytest.approx(exact, abs=1e-9)
            kept = min(first + 1, stopped.sizes["time"])
            np.testing.assert_array_equal(
                stopped.M.values[i, :kept], free.M.values[i, :kept]
            )
            assert (stopped.M.values[i, first:] == stopped.M.values[i, first]).all()
    assert (stopped.outcome.values == "reached").any()


@pytest.mark.long
def test_until_watches_the_risk() -> None:
    start = tl.Overlaps(np.eye(3), 0.1 * np.ones((3, 2)))
    free = tl.solve(
        PROBLEM, ALGORITHM, tl.Chain(40), start, steps=300, save=300, seeds=4
    )
    for until in (tl.Until("excess_risk", 0.7, relative=True), tl.Until("risk", 0.12)):
        stopped = tl.solve(
            PROBLEM,
            ALGORITHM,
            tl.Chain(40),
            start,
            steps=300,
            save=300,
            seeds=4,
            until=until,
        )
        watched = (
            free.risk.values if until.quantity == "risk" else free.excess_risk.values
        )
        level = until.value * (watched[:, :1] if until.relative else 1.0)
        crossed = (watched <= level).argmax(axis=1)
        for i in range(4):
            if crossed[i]:
                assert crossed[i] - 1 <= stopped.stop_step.values[i] <= crossed[i]
            else:
                assert np.isnan(stopped.stop_step.values[i])
        assert crossed.any()


class Stopper:
    """A monitor that presses Ctrl-C half way."""

    def begin(self, label: str, end: float) -> None:
        self.end = end

    def update(self, position: float) -> None:
        if position >= self.end / 2:
            raise KeyboardInterrupt

    def note(self, text: str, **about: Any) -> None:
        pass

    def finish(self) -> None:
        pass


@pytest.mark.parametrize("method", [*SLOW_VECTORS, tl.ODE()], ids=lambda m: m.name)
def test_an_interrupted_run_keeps_what_it_had(
    method: tl.extend.Method, tmp_path: Path
) -> None:
    run: dict[str, Any] = {"steps": 80, "save": 20, "seeds": 2}
    start = tl.Overlaps(START.Q, START.M, a=START.a, dim=40)
    whole = tl.solve(PROBLEM, ALGORITHM, method, start, **run)
    with pytest.raises(tl.errors.Interrupted) as caught:
        tl.solve(PROBLEM, ALGORITHM, method, start, progress=Stopper(), **run)
    part = caught.value.result
    kept = part.sizes["time"]
    assert 2 <= kept < 21
    np.testing.assert_array_equal(part.Q.values, whole.Q.values[:, :kept])
    assert set(part.outcome.values) == {"interrupted"}
    assert (
        json.loads(tl.load(tl.save(part, tmp_path / "part.nc")).attrs["complete"])
        is False
    )


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "problem": ({"problem": "He2(z1)"}, "`problem`"),
    "algorithm": ({"algorithm": 0.1}, "`algorithm`"),
    "method": ({"method": "chain"}, "`method`"),
    "start": ({"start": [[1.0]]}, "`start`"),
    "neither end": ({"time": None}, "none of them"),
    "both ends": ({"steps": 3}, "`time` and `steps`"),
    "negative time": ({"time": -1.0}, "`time`"),
    "nan time": ({"time": float("nan")}, "`time`"),
    "times out of order": ({"time": [1.0, 0.5]}, "increasing"),
    "seeds": ({"seeds": 0}, "`seeds`"),
    "save": ({"save": 0}, "`save`"),
    "save beyond": ({"save": [0.5, 3.0]}, "`save`"),
    "too many steps": ({"time": 1e12}, "2\\*\\*32"),
    "shape of the start": (
        {"start": tl.Overlaps(np.eye(2), np.zeros((2, 2)))},
        "neuron|width|p =",
    ),
    "dim below k": ({"method": tl.Chain(1)}, "`dim`"),
    "start too large for dim": ({"method": tl.Chain(3)}, "`dim`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_at_once(case: str) -> None:
    change, words = BAD[case]
    good: dict[str, Any] = {
        "problem": PROBLEM, "algorithm": ALGORITHM, "method": tl.Chain(40), "start": START, "time": 1.0,
    }  # fmt: skip
    good |= change
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(tl.InputError, match=words):
            tl.solve(
                good.pop("problem"),
                good.pop("algorithm"),
                good.pop("method"),
                good.pop("start"),
                **good,
            )


def test_a_target_that_returns_nan_is_refused() -> None:
    with pytest.raises(tl.InputError, match="finite"):
        tl.Problem("log(z1)", "tanh")


def test_permuting_neurons_permutes_the_theory() -> None:
    order = [2, 0, 1]
    moved = tl.Overlaps(START.Q[np.ix_(order, order)], START.M[order])
    straight = tl.solve(
        PROBLEM, ALGORITHM, tl.ODE(), tl.Overlaps(START.Q, START.M), time=2, save=3
    )
    permuted = tl.solve(PROBLEM, ALGORITHM, tl.ODE(), moved, time=2, save=3)
    np.testing.assert_allclose(
        permuted.M.values, straight.M.values[:, :, order], rtol=1e-6, atol=1e-9
    )


@pytest.mark.long
def test_the_order_of_methods_does_not_depend_on_what_was_imported_first() -> None:
    code = "import twolayer as tl; tl.SDE; tl.ODE; print(tl.support(tl.Problem('z1', 'erf'), tl.SGD('1/d')).methods)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (
        done.stdout.strip()
        == "('Chain', 'Map', 'MeanField', 'ODE', 'Population', 'SDE', 'Vectors')"
    )
