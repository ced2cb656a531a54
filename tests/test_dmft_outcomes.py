"""How runs of the dynamical mean-field theory end: thresholds, tolerances, interruption, divergence, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twolayer as tl
from twolayer import d

PROBLEM = tl.Problem("z1", "relu", second_layer=[1.0])
ALGORITHM = tl.SGD(lr=0.5, batch=4 * d, dataset=4 * d)
QUICK = tl.DMFT(replicates=1, averages=tl.Averages(points=2**9))
BOTH = tl.Overlaps([[[1.0]], [[1.0]]], [[[0.1]], [[0.5]]])


@pytest.mark.long
def test_starts_clocks_and_files(tmp_path: Path) -> None:
    run = tl.solve(PROBLEM, ALGORITHM, QUICK, BOTH, time=3.0, save=[1.0, 3.0])
    assert run.step.values.tolist() == [2.0, 6.0] and run.time.values.tolist() == [
        1.0,
        3.0,
    ]
    assert run.sample.attrs["units"] == "d**1" and run.alpha.values[-1] == 24.0
    assert "M_error" not in run and "R_F" not in run
    again = tl.rerun(tl.load(tl.save(run, tmp_path / "run.nc")))
    for name in ("M", "train_risk", "C_theta", "C_F"):
        np.testing.assert_array_equal(again[name], run[name])
    alone = tl.solve(
        PROBLEM,
        ALGORITHM,
        QUICK,
        tl.Overlaps([[1.0]], [[0.5]]),
        time=3.0,
        save=[1.0, 3.0],
    )
    np.testing.assert_allclose(alone.M[0], run.M[1], rtol=1e-12)
    shorter = tl.solve(PROBLEM, ALGORITHM, QUICK, BOTH, steps=2, save=1)
    np.testing.assert_allclose(shorter.M[:, -1], run.M[:, 0], rtol=1e-10)


QUANTITIES = {"overlap": -1, "alignment": -1, "risk": 1, "excess_risk": 1}
"""Whether each falls (1) or rises (−1) to its level."""


def watched(run: Any, quantity: str) -> np.ndarray:
    """(seed, time)"""
    if quantity in ("risk", "excess_risk"):
        return np.asarray(run[quantity].values)
    return np.asarray(run.M.values[:, :, 0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("relative", [False, True])
def test_a_run_stops_where_its_quantity_crosses(quantity: str, relative: bool) -> None:
    """On the way, where a start is past the level already, and never if it does not get there."""
    noisy = PROBLEM.replace(noise=0.1)
    free = tl.solve(noisy, ALGORITHM, QUICK, BOTH, steps=6, save=6)
    values, sign = watched(free, quantity), QUANTITIES[quantity]
    assert (sign * np.diff(values) < 0).all()
    level = (
        values[0, 3] + values[0, 4]
    ) / 2  # start 0 passes it in step 4, start 1 is past it or will be sooner
    if relative:
        level = level / values[0, 0]
    run = tl.solve(
        noisy,
        ALGORITHM,
        QUICK,
        BOTH,
        steps=6,
        save=6,
        until=tl.Until(quantity, level, relative),
    )
    for i in range(2):
        goal = level * (values[i, 0] if relative else 1.0)
        past = sign * (values[i] - goal) <= 0
        if not past.any():
            assert run.outcome.values[i] == "ok" and np.isnan(run.stop_step[i])
            continue
        at = int(np.argmax(past))
        expected = (
            0.0
            if at == 0
            else at
            - 1
            + (goal - values[i, at - 1]) / (values[i, at] - values[i, at - 1])
        )
        assert run.outcome.values[i] == "reached"
        assert float(run.stop_step[i]) == pytest.approx(expected, abs=1e-9)
        np.testing.assert_allclose(run.M[i, -1], free.M[i, at], rtol=1e-10)
    assert float(run.stop_step[0]) == pytest.approx(3.5, abs=0.05)


@pytest.mark.slow
def test_levels_beyond_reach_are_not_reached() -> None:
    """Rising quantities below their level, falling ones above it: the run goes on to its end."""
    for until in (
        tl.Until("alignment", 0.99),
        tl.Until("overlap", 0.99),
        tl.Until("risk", 1e-3),
    ):
        run = tl.solve(
            PROBLEM,
            ALGORITHM,
            QUICK,
            tl.Overlaps([[1.0]], [[0.1]]),
            steps=3,
            save=3,
            until=until,
        )
        assert run.outcome.values.tolist() == ["ok"] and run.sizes["time"] == 4
    run = tl.solve(
        PROBLEM,
        ALGORITHM,
        QUICK,
        BOTH,
        steps=3,
        save=3,
        until=tl.Until("alignment", 0.05),
    )
    assert run.stop_step.values.tolist() == [0.0, 0.0] and run.sizes["time"] == 1


class Impatient:
    """A monitor that presses Ctrl-C."""

    def __init__(self, at: float) -> None:
        self.at = at

    def begin(self, label: str, end: float) -> None:
        pass

    def update(self, position: float) -> None:
        if position >= self.at:
            raise KeyboardInterrupt

    def note(self, text: str, **about: Any) -> None:
        pass

    def finish(self) -> None:
        pass


@pytest.mark.slow
def test_finished_steps_are_kept_when_interrupted() -> None:
    whole = tl.solve(PROBLEM, ALGORITHM, QUICK, BOTH, steps=6, save=6)
    with pytest.raises(tl.errors.Interrupted) as stopped:
        tl.solve(
            PROBLEM, ALGORITHM, QUICK, BOTH, steps=6, save=6, progress=Impatient(4.0)
        )
    part = stopped.value.result
    assert part.step.values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0] and set(
        part.outcome.values
    ) == {"interrupted"}
    np.testing.assert_array_equal(part.M, whole.M[:, :5])
    np.testing.assert_array_equal(part.train_risk, whole.train_risk[:, :5])
    with pytest.raises(tl.errors.Interrupted) as stopped:
        tl.solve(
            PROBLEM, ALGORITHM, QUICK, BOTH, steps=6, save=2, progress=Impatient(1.0)
        )
    assert stopped.value.result.step.values.tolist() == [0.0]


@pytest.mark.slow
@pytest.mark.parametrize("throw", [True, False])
def test_divergence_is_an_outcome(throw: bool) -> None:
    wild = tl.SGD(lr=200.0, batch=d, dataset=d)
    start = tl.Overlaps([[1.0]], [[0.1]])
    with pytest.warns(
        tl.errors.DivergenceWarning,
        match=r"1 of 1 runs diverged, the first at step 2.*heavy tails",
    ):
        lost = tl.solve(
            tl.Problem("z1", "square"), wild, QUICK, start, steps=3, save=3, throw=throw
        )
    assert lost.outcome.values.tolist() == [
        "diverged"
    ] and lost.stop_step.values.tolist() == [2.0]
    assert np.isfinite(lost.M).all() and lost.sizes["time"] == 3
    with pytest.warns(
        tl.errors.DivergenceWarning, match="use a smaller lr or geometry='projected'.$"
    ):
        tl.solve(
            tl.Problem("z1", "z"),
            tl.SGD(lr=20, batch=d, dataset=d),
            QUICK,
            start,
            steps=20,
            throw=throw,
        )


@pytest.mark.slow
def test_heavy_tails_are_told_and_not_thrown() -> None:
    """A cubic student on reused samples: no average to speak of, and the result says so."""
    cubic, start = (
        tl.Problem("He3(z1)", "He3", second_layer=[0.3]),
        tl.Overlaps([[1.0]], [[0.3]]),
    )
    algorithm = tl.SGD(lr=0.02, batch=2 * d, dataset=2 * d)
    with (
        pytest.warns(tl.errors.HeavyTailWarning),
        pytest.warns(tl.errors.AccuracyWarning, match="raise max_log2_points"),
    ):
        run = tl.solve(
            cubic,
            algorithm,
            tl.DMFT(max_log2_points=10, averages=tl.Averages(points=2**8)),
            start,
            steps=2,
            save=2,
            throw=False,
        )
    assert run.outcome.values.tolist() == ["ok"] and np.isfinite(run.M).all()
    assert float(run.Q_error.max()) > 1e-3


@pytest.mark.long
def test_points_are_added_until_the_error_meets_the_tolerance() -> None:
    """Labels He3 have long tails: 2⁸ points are not enough, and a bound on them is told."""
    problem, start = (
        tl.Problem("He3(z1)", "erf"),
        tl.Overlaps([[[1.0]], [[1.0]]], [[[0.0]], [[0.9]]]),
    )
    algorithm = tl.SGD(lr=0.6, batch=3 * d, dataset=3 * d)
    coarse = tl.solve(
        problem,
        algorithm,
        tl.DMFT(averages=tl.Averages(points=2**8, accuracy=1.0)),
        start,
        steps=3,
        save=3,
    )
    assert json.loads(coarse.attrs["notes"])["engine"] == "4 × 256 Sobol points"
    fine = tl.solve(
        problem,
        algorithm,
        tl.DMFT(averages=tl.Averages(points=2**8, accuracy=4e-3)),
        start,
        steps=3,
        save=3,
    )
    notes = json.loads(fine.attrs["notes"])
    points = int(notes["engine"].split()[2])
    assert (
        points in (1024, 4096, 16384)
        and notes["engine_error"] <= 4e-3 == notes["tolerance"]
    )
    worst = [
        float((fine[f"{x}_error"] / np.maximum(1, np.abs(fine[x]))).max())
        for x in ("M", "Q")
    ]
    assert max(worst) == pytest.approx(notes["engine_error"])
    assert float(coarse.Q_error.max()) > 4e-3
    # as if the points had been there from the beginning
    whole = tl.solve(
        problem,
        algorithm,
        tl.DMFT(averages=tl.Averages(points=points, accuracy=1.0)),
        start,
        steps=3,
        save=3,
    )
    assert any(np.allclose(fine.M[i], whole.M[i], rtol=1e-12) for i in range(2))
    assert not any(np.allclose(fine.M[i], coarse.M[i], rtol=1e-12) for i in range(2))
    with pytest.warns(
        tl.errors.AccuracyWarning,
        match=r"4 × 1024 .* an error of 0\.0.* more than the 1e-05 asked for; raise max_log2",
    ):
        tl.solve(
            problem,
            algorithm,
            tl.DMFT(
                max_log2_points=10, averages=tl.Averages(points=2**8, accuracy=1e-5)
            ),
            start,
            steps=3,
            save=3,
        )


@pytest.mark.long
def test_few_points_for_many_neurons_or_many_steps() -> None:
    """More neurons than points asked for, and more directions than points: poor numbers, with an error that says so."""
    wide, start = (
        tl.Problem("z1", "erf", width=20),
        tl.Overlaps(np.eye(20), np.zeros((20, 1))),
    )
    run = tl.solve(
        wide,
        ALGORITHM,
        tl.DMFT(averages=tl.Averages(points=2**4, accuracy=10.0)),
        start,
        steps=1,
        save=1,
    )
    assert json.loads(run.attrs["notes"])["engine"] == "4 × 256 Sobol points"
    few = tl.DMFT(max_log2_points=5, averages=tl.Averages(points=2**5, accuracy=1e-3))
    with pytest.warns(tl.errors.AccuracyWarning):
        long = tl.solve(
            PROBLEM, ALGORITHM, few, tl.Overlaps([[1.0]], [[0.1]]), steps=50, save=5
        )
    assert np.isfinite(long.M).all() and float(long.M_error[0, -1].max()) > 1e-3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(lr=0.5, batch=2 * d), "GiantSteps"),
        (dict(lr=0.5 / d, batch=2 * d, dataset=2 * d), "order one"),
        (dict(lr=0.5, batch=10, dataset=2 * d), "proportional to d"),
        (dict(lr=0.5, batch=2 * d**1.5, dataset=2 * d**1.5), "proportional to d"),
    ],
)
def test_what_it_cannot_do_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tl.errors.Refused, match="DMFT cannot do this") as no:
        tl.solve(
            PROBLEM,
            tl.SGD(**settings),
            tl.DMFT(),
            tl.Overlaps([[1.0]], [[0.1]]),
            steps=2,
        )
    assert words in str(no.value)


def word_of(knobs: dict[str, Any]) -> str:
    """The knob that is wrong, also where it is one of the averages."""
    word, value = next(iter(knobs.items()))
    return next(iter(value)) if isinstance(value, dict) else word


@pytest.mark.parametrize(
    "knobs",
    [
        {"averages": {"points": 8}},
        {"averages": {"points": 1000}},
        {"averages": {"engine": "sobol"}},
        {"replicates": 0},
        {"averages": {"accuracy": 0.0}},
        {"averages": {"accuracy": float("nan")}},
        {"averages": 3},
        {"max_log2_points": 2.5},
        {"points": "sobl"},
        {"responses": 1},
    ],
)
def test_bad_knobs_are_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(tl.InputError, match=word_of(knobs)):
        tl.DMFT(**knobs)
