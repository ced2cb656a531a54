"""How accurate runs are: the worst of all starts counts, noise is not chased, and what was reached is told."""

from __future__ import annotations

import io
import json
import sys
import time as wall
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import twolayer as tl
from twolayer import d
from twolayer.loops import windows
from twolayer.loops.host_loop import follow
from twolayer.running import progress
from twolayer.running.dataset import method_of
from twolayer.running.progress import Silent
from twolayer.running.solve import make_task

# a ReLU student of a target that is no ridge: chi is sampled
SAMPLED = tl.Problem("z1 + z1*z2", "relu", width=3)
START = tl.Overlaps.random(SAMPLED, 30, seed=1)
FREE = tl.SGD(lr=0.2 / d)


def followed(method: tl.ODE) -> Any:
    """The evolution of the sampled task after its run."""
    with jax.enable_x64(True):
        task = make_task(SAMPLED, FREE, method, START, time=2, save=2)
        evolution = method.prepare(task)
        follow(lambda: evolution, task.points, "ode", Silent())
    return evolution


@pytest.mark.usefixtures("x64")
def test_averages_are_as_fine_as_the_worst_start_needs() -> None:
    """Of two starts the second is the hard one: its rows are long, so tanh is steep in units of their fields."""
    problem = tl.Problem("tanh(z1)", "tanh")
    Q, M = np.array([[[0.25]], [[4.0]]]), np.array([[[0.1]], [[0.5]]])

    def order(*which: int) -> int:
        start = tl.Overlaps(Q[list(which)], M[list(which)])
        evolution: Any = tl.ODE().prepare(
            make_task(problem, FREE, tl.ODE(), start, time=1, save=2)
        )
        return int(evolution.motion.averaging.order)

    easy, hard = order(0), order(1)
    assert easy < hard
    assert order(0, 1) == order(1, 0) == hard


@pytest.mark.long
def test_the_integrator_does_not_chase_the_noise_of_sampled_averages() -> None:
    """At few points a tolerance below their noise costs several times the steps, and changes nothing."""
    usual, chasing = (
        followed(tl.ODE(averages=tl.Averages(points=2**10))),
        followed(tl.ODE(rtol=1e-6, averages=tl.Averages(points=2**10))),
    )
    assert usual.pace.evaluations < 0.4 * chasing.pace.evaluations
    assert float(usual.pace.control.rtol) == tl.ODE().accuracy / 5
    error = usual.notes()["engine_error"]
    assert error == pytest.approx(chasing.notes()["engine_error"], rel=0.2)


@pytest.mark.long
def test_an_error_larger_than_asked_for_is_told() -> None:
    coarse = tl.ODE(averages=tl.Averages(points=2**6))
    with pytest.warns(
        tl.errors.AccuracyWarning,
        match=r"leave an error of 0\.001, more than the 0\.0001.*points \(now 64\)",
    ):
        result = tl.solve(SAMPLED, FREE, coarse, START, time=2, save=2)
    notes = json.loads(result.attrs["notes"])
    assert notes["engine_error"] > 1e-4
    with pytest.warns(tl.errors.AccuracyWarning, match=r"raise effort \(now 0\)"):
        tl.solve(
            SAMPLED,
            FREE,
            tl.ODE(averages=tl.Averages(effort=0, accuracy=1e-8)),
            START,
            time=0.1,
            save=1,
        )
    tl.solve(
        SAMPLED,
        FREE,
        tl.ODE(averages=tl.Averages(points=2**6, accuracy=0.01)),
        START,
        time=2,
        save=2,
    )  # no warning: it was accepted


@pytest.mark.slow
def test_effort_buys_accuracy() -> None:
    """Points are added until the accuracy is reached: then no warning is given."""
    result = tl.solve(
        SAMPLED,
        FREE,
        tl.ODE(averages=tl.Averages(accuracy=3e-5)),
        START,
        time=2,
        save=2,
    )
    assert json.loads(result.attrs["notes"])["engine_error"] < 3e-5


@pytest.mark.slow
def test_what_takes_long_is_told_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "LONG", -1.0)
    monkeypatch.setattr(windows, "JUDGED", -1.0)
    with pytest.warns(
        tl.errors.CostWarning,
        match=r"will take about .* min: averages by .*Sobol.* take .* s each",
    ) as caught:
        tl.solve(
            SAMPLED,
            FREE,
            tl.ODE(averages=tl.Averages(points=2**6, accuracy=0.01)),
            START,
            time=2,
            save=2,
        )
    assert (
        sum(w.category is tl.errors.CostWarning for w in caught) == 1
    )  # once for the run, not for the one that goes along


@pytest.mark.slow
def test_the_level_below_which_risks_are_not_resolved() -> None:
    """A much finer integration differs by less than that, and by no less than a thousandth of it."""
    problem, start = (
        tl.Problem(tl.Teacher("erf", 1), "erf"),
        tl.Overlaps([[0.5]], [[0.3]]),
    )
    usual, fine = (
        tl.solve(problem, FREE, method, start, time=60, save=30)
        for method in (tl.ODE(), tl.ODE(rtol=1e-13))
    )
    level, better = (
        json.loads(x.attrs["notes"])["risk_resolution"] for x in (usual, fine)
    )
    off = np.abs(usual.excess_risk.values - fine.excess_risk.values).max()
    assert level / 1000 < off < level
    assert better < 1e-4 * level


@pytest.mark.slow
def test_risks_that_are_not_resolved_are_drawn_as_such() -> None:
    problem, start = tl.Problem("z1", "linear"), tl.Overlaps([[0.5]], [[0.3]])
    long, short = (
        tl.solve(problem, FREE, tl.ODE(), start, time=time, save=20) for time in (60, 3)
    )
    resolved = json.loads(long.attrs["notes"])["risk_resolution"]
    left = tl.plot.trajectory(long).axes[0]
    assert left.get_ylim()[0] == resolved
    assert "not resolved below" in left.get_legend().get_title().get_text()
    left = tl.plot.trajectory(short).axes[0]
    assert left.get_ylim()[0] > resolved
    assert "not resolved" not in left.get_legend().get_title().get_text()


def test_lines_tell_that_a_run_is_being_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a single report of the run, as while code is compiled."""
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monitor = progress.listener_for(True)
    assert isinstance(monitor, progress.Lines)
    monitor.patience = 0.01
    monitor.begin("ode", 5.0)
    while not screen.getvalue():
        wall.sleep(0.01)
    assert screen.getvalue().startswith("ode: preparing, 0 s (a first run compiles")
    for _ in range(3):  # one line of it is enough
        monitor._next = 0.0
        monitor.show()
    assert screen.getvalue().count("preparing") == 1
    monitor._next = 0.0
    monitor.update(2.0)
    monitor.finish()
    assert "ode: 40% after" in screen.getvalue()


def test_a_notebook_shows_one_line_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monitor = progress.listener_for(None)
    assert isinstance(monitor, progress.Lines)
    monitor.patience = 0.0
    monitor.begin("ode", 5.0)
    monitor.update(2.5)
    monitor._next = 0.0
    monitor.update(5.0)
    monitor.finish()
    assert screen.getvalue().count("\n") == 1
    assert "\rode: 100%" in screen.getvalue()


@pytest.mark.long
def test_sampled_overlaps_come_with_their_error() -> None:
    """An overlap that stays zero by symmetry shows what sampling does to overlaps; to the risk it does far less."""
    problem = tl.Problem("sign(z1*z2*z3) + He4(z1)", "erf", second_layer=[1.0])
    algorithm = tl.SGD(lr=4, batch=4 * tl.d, geometry="projected")
    start = tl.Overlaps([[1.0]], [[0.0, 0.0, 0.0]])
    method = tl.GiantSteps(averages=tl.Averages(points=2**12, accuracy=0.1))
    result = tl.solve(problem, algorithm, method, start, steps=1)
    notes, wrong = json.loads(result.attrs["notes"]), float(abs(result.M).max())
    assert (
        wrong > 1e-3 > 10 * notes["engine_error"]
    )  # a case in which the error of the risk does not tell it
    assert notes["overlap_error"] > wrong / 3


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"name": "ode", "engine": "sobol", "accuracy": 1e-3, "effort": 2.0, "rtol": 1e-6, "log2_points": 12, "max_steps": 9},
         tl.ODE(tl.Averages("sobol", 1e-3, 2.0, 2**12), rtol=1e-6, max_steps=9)),
        ({"name": "ode", "engine": "auto", "accuracy": 1e-4, "effort": 1.0, "rtol": None, "log2_points": None, "max_steps": 100_000}, tl.ODE()),
        ({"name": "sde", "dim": 50, "dt": 0.01, "tolerance": 0.1}, tl.SDE(50, averages=tl.Averages(accuracy=0.1))),
        ({"name": "map", "dim": 50, "without": ["norm"], "engine": "auto", "accuracy": 1e-2, "effort": 1.0, "log2_points": None},
         tl.Map(50, ("norm",), tl.Averages(accuracy=1e-2))),
        ({"name": "population", "flow": True, "engine": "auto", "rtol": None, "tolerance": 1e-8, "log2_points": 18, "max_steps": 7},
         tl.Population(True, tl.Averages(accuracy=1e-6), max_steps=7)),
        ({"name": "meanfield", "dim": "inf", "rtol": 1e-7, "tolerance": 1e-4, "log2_points": 10},
         tl.MeanField(averages=tl.Averages(accuracy=1e-2, points=2**10))),
        ({"name": "dmft", "log2_points": 9, "replicates": 2, "tolerance": 0.1, "max_log2_points": 17, "points": "sobol", "responses": False},
         tl.DMFT(tl.Averages(accuracy=0.1, points=2**9), replicates=2)),
        ({"name": "chain", "dim": 50, "batch_sums": "auto", "engine": "jax"}, tl.Chain(50, engine="jax")),
    ],
    ids=lambda x: x["name"] if isinstance(x, dict) else "",
)  # fmt: skip
def test_results_of_before_know_their_accuracy(
    before: dict[str, Any], now: Any
) -> None:
    """Descriptions with the knobs that methods had before `Averages`, and those of today."""
    assert method_of(before) == now
    assert method_of(json.loads(json.dumps(now.describe()))) == now


CLOSED = tl.Problem("z1", "linear")
FROM = tl.Overlaps([[1.0]], [[0.1]])


def test_a_result_of_before_loads_and_runs_again(tmp_path: Path) -> None:
    method = tl.ODE(tl.Averages(accuracy=1e-3))
    run = tl.solve(CLOSED, FREE, method, FROM, time=0.2, save=2)
    description = json.loads(run.attrs["description"])
    knobs = description["method"]
    assert knobs.pop("averages") == {"accuracy": 1e-3}
    knobs |= {"engine": "auto", "accuracy": 1e-3, "effort": 1.0, "log2_points": None}
    before = run.assign_attrs(description=json.dumps(description))
    again = tl.rerun(tl.load(tl.save(before, tmp_path / "old.nc")))
    assert again.M.equals(run.M)
    assert again.attrs["description"] == run.attrs["description"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tl.SDE(9, averages=tl.Averages("sobol")), ["`averages` of SDE has no `engine`", "'accuracy'"]),
        (lambda: tl.MeanField(averages=tl.Averages(effort=2)), ["of MeanField has no `effort`"]),
        (lambda: tl.Population(averages=tl.Averages(effort=2)), ["of Population has no `effort`"]),
        (lambda: tl.ODE(1e-5), ["`averages` must be Averages", "1e-05"]),
        (lambda: tl.ODE({"acuracy": 1e-5}), ["`averages`", "did you mean 'accuracy'"]),
        (lambda: tl.ODE(accuracy=1e-5), ["ODE has no argument `accuracy`"]),
        (lambda: tl.Averages(points=1000), ["`points`", "a power of two"]),
        (lambda: tl.Averages(accuracy=0.0), ["`accuracy`", "1e-10"]),
        (lambda: tl.Averages(effort=float("nan")), ["`effort`"]),
        (lambda: tl.moments(SAMPLED, START, averages=tl.Averages(effort=2)), ["of moments has no `effort`"]),
    ],
)  # fmt: skip
def test_what_a_method_cannot_use_is_refused(make: Any, words: list[str]) -> None:
    with pytest.raises(tl.InputError) as caught:
        make()
    assert all(word in str(caught.value) for word in words), caught.value


def test_accuracy_can_be_swept() -> None:
    over = {"method.averages.accuracy": [1e-3, 1e-2]}
    result = tl.sweep(
        CLOSED, FREE, tl.ODE(), over, start=FROM, time=0.1, save=1, seeds=1
    )
    assert result["method.averages.accuracy"].values.tolist() == [1e-3, 1e-2]
    with pytest.raises(
        tl.InputError, match="`accuracy` must be a number from 1e-10 on"
    ):
        tl.sweep(
            CLOSED,
            FREE,
            tl.ODE(),
            {"method.averages.accuracy": [0.0]},
            start=FROM,
            time=0.1,
        )
