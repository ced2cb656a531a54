"""How accurate runs are: the worst of all starts counts, noise is not chased, and what was reached is told."""

from __future__ import annotations

import io
import json
import sys
import time as wall
from typing import Any

import jax
import numpy as np
import pytest

import twolayer as tl
from twolayer import d
from twolayer.loops import windows
from twolayer.loops.host_loop import follow
from twolayer.running import progress
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
        followed(tl.ODE(log2_points=10)),
        followed(tl.ODE(log2_points=10, rtol=1e-6)),
    )
    assert usual.pace.evaluations < 0.4 * chasing.pace.evaluations
    assert float(usual.pace.control.rtol) == tl.ODE().accuracy / 5
    error = usual.notes()["engine_error"]
    assert error == pytest.approx(chasing.notes()["engine_error"], rel=0.2)


@pytest.mark.long
def test_an_error_larger_than_asked_for_is_told() -> None:
    coarse = tl.ODE(log2_points=6)
    with pytest.warns(
        tl.errors.AccuracyWarning,
        match=r"leave an error of 0\.001, more than the 0\.0001.*log2_points \(now 6\)",
    ):
        result = tl.solve(SAMPLED, FREE, coarse, START, time=2, save=2)
    notes = json.loads(result.attrs["notes"])
    assert notes["engine_error"] > 1e-4
    with pytest.warns(tl.errors.AccuracyWarning, match=r"raise effort \(now 0\)"):
        tl.solve(
            SAMPLED, FREE, tl.ODE(effort=0, accuracy=1e-8), START, time=0.1, save=1
        )
    tl.solve(
        SAMPLED, FREE, tl.ODE(log2_points=6, accuracy=0.01), START, time=2, save=2
    )  # no warning: it was accepted


@pytest.mark.slow
def test_effort_buys_accuracy() -> None:
    """Points are added until the accuracy is reached: then no warning is given."""
    result = tl.solve(SAMPLED, FREE, tl.ODE(accuracy=3e-5), START, time=2, save=2)
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
            SAMPLED, FREE, tl.ODE(log2_points=6, accuracy=0.01), START, time=2, save=2
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
    assert (
        "not resolved"
        in tl.plot.trajectory(long).axes[0].get_legend_handles_labels()[1]
    )
    assert (
        "not resolved"
        not in tl.plot.trajectory(short).axes[0].get_legend_handles_labels()[1]
    )


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
    assert screen.getvalue().startswith("ode: preparing, 0 s")
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
    method = tl.GiantSteps(log2_points=12, accuracy=0.1)
    result = tl.solve(problem, algorithm, method, start, steps=1)
    notes, wrong = json.loads(result.attrs["notes"]), float(abs(result.M).max())
    assert (
        wrong > 1e-3 > 10 * notes["engine_error"]
    )  # a case in which the error of the risk does not tell it
    assert notes["overlap_error"] > wrong / 3
