"""Runs in stages: each seed goes on from its own end, with clocks of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import twolayer as tl
from twolayer import d
from twolayer.cli import main
from twolayer.running.stages import SPREAD

PROBLEM = tl.Problem("h2(z1)", "h2")
FIRST = tl.SGD(lr=0.5 / d, batch=4, loss="correlation", geometry="projected")
SECOND = FIRST.replace(loss="squared", lr=0.05 / d)
START = tl.Overlaps([[1.0]], [[0.3]], dim=60)


@pytest.fixture(scope="module")
def staged():  # type: ignore[no-untyped-def]
    stages = [tl.Stage(FIRST, steps=400, until=tl.Until("overlap", 0.6), save=20), tl.Stage(SECOND, steps=50, save=5)]
    return tl.solve_stages(PROBLEM, stages, tl.Chain(60), START, seeds=6, seed=3)


def test_the_first_stage_is_the_run_itself_and_the_second_begins_at_its_end(staged) -> None:  # type: ignore[no-untyped-def]
    alone = tl.solve(
        PROBLEM, FIRST, tl.Chain(60), START, steps=400, until=tl.Until("overlap", 0.6), save=20, seeds=6, seed=3
    )
    n = alone.sizes["time"]  # the run ends at the first save point at which all seeds have left
    np.testing.assert_array_equal(staged.M.values[:, :n], alone.M.values)
    ends = tl.Overlaps(alone.Q.values[:, -1], alone.M.values[:, -1], a=alone.a.values[:, -1])
    assert staged.stage.values.tolist() == [1] * n + [2] * 5
    second = tl.solve(PROBLEM, SECOND, tl.Chain(60), ends, steps=50, save=5, seed=(3 + SPREAD) % 2**64)
    np.testing.assert_array_equal(staged.M.values[:, n:], second.M.values[:, 1:])
    assert (alone.outcome == "reached").all()
    # every seed has its own clock
    stop = np.ceil(alone.stop_step.values)
    assert len(set(stop)) > 2
    np.testing.assert_allclose(staged.step.values[:, n - 1], stop)
    np.testing.assert_allclose(staged.step.values[:, -1], stop + 50)
    np.testing.assert_allclose(staged.sample.values[:, -1], 4 * (stop + 50))
    np.testing.assert_allclose(staged.time.values[:, -1], (0.5 * stop + 0.05 * 50) / 60)
    assert (np.diff(staged.step.values, axis=1) >= 0).all()


def test_later_stages_draw_new_numbers() -> None:
    stages = [tl.Stage(FIRST, steps=10, save=1)] * 2
    run = tl.solve_stages(PROBLEM, stages, tl.Chain(60), START, seeds=64, seed=1)
    moves = np.diff(run.M.values[:, :, 0, 0], axis=1)
    # with the same numbers the two moves would be nearly equal; 64 pairs of independent ones correlate by 1/8
    assert abs(np.corrcoef(moves.T)[0, 1]) < 0.6


def test_stages_of_the_limit_join_smoothly_and_come_back_from_a_file(tmp_path: Path) -> None:
    stages = [tl.Stage(FIRST, time=1.0, until=tl.Until("overlap", 0.6)), tl.Stage(SECOND, time=0.5)]
    run = tl.solve_stages(PROBLEM, stages, tl.ODE(), START)
    at = int((run.stage == 1).sum()) - 1
    assert float(run.M[0, at, 0, 0]) == pytest.approx(0.6, abs=1e-8)
    assert float(run.M[0, -1, 0, 0]) > 0.6
    assert float(run.time[0, -1]) == pytest.approx(float(run.time[0, at]) + 0.5)
    again = tl.load(tl.save(run, tmp_path / "staged.nc"))
    np.testing.assert_array_equal(again.M.values, run.M.values)
    assert tl.rerun(again).equals(again)


def test_staged_results_are_run_again(staged, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    path = tl.save(staged, tmp_path / "staged.nc")
    assert tl.rerun(tl.load(path)).equals(tl.load(path))
    assert not np.array_equal(tl.rerun(staged, seed=4).M, staged.M)
    assert main(["rerun", str(path)]) == 0
    assert "the same numbers" in capsys.readouterr().out
    assert main(["rerun", str(path), "--seed", "4", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert not values["same"] and values["outcomes"] == {"ok": 6}
    with pytest.raises(tl.InputError, match="made in stages"):
        tl.layers.layerwise(staged)


def test_stages_are_drawn_seed_by_seed(staged, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Each seed along its own clock, a mark where it goes on to the next stage, and both algorithms in the title."""
    figure = tl.plot.trajectory(staged)
    left, right = figure.axes
    lines = [line for line in left.get_lines() if len(line.get_xdata()) == staged.sizes["point"]]
    assert len(lines) == 6
    for i, line in enumerate(lines):
        np.testing.assert_array_equal(line.get_xdata(), staged.time[i])
        np.testing.assert_array_equal(line.get_ydata(), staged.risk[i])
    at = int((staged.stage == 1).sum()) - 1
    (marks,) = left.collections
    np.testing.assert_allclose(marks.get_offsets(), np.stack([staged.time[:, at], staged.risk[:, at]], 1))
    assert len([line for line in right.get_lines() if len(line.get_xdata()) == staged.sizes["point"]]) == 6
    title = figure.get_suptitle()
    assert "lr = 0.5/d" in title and "lr = 0.05/d" in title and "correlation loss" in title
    assert tl.plot.save_figure(figure, tmp_path / "staged.png").exists()


def test_stages_are_no_algorithm() -> None:
    stages = [tl.Stage(FIRST, steps=3)]
    for methods in (None, [tl.ODE(), tl.Chain(60)]):
        with pytest.raises(tl.InputError, match=r"`algorithm` must be an SGD \(stages are run with solve_stages\)"):
            tl.compare(PROBLEM, stages, methods, START, steps=3)  # type: ignore[arg-type]
    with pytest.raises(tl.InputError, match="`algorithm` must be an SGD"):
        tl.solve(PROBLEM, stages, tl.ODE(), START, steps=3)  # type: ignore[arg-type]


def test_stages_from_a_random_start() -> None:
    stages = [tl.Stage(FIRST, steps=3, save=1)]
    run = tl.solve_stages(PROBLEM, stages, tl.Chain(60), "random", seeds=3, seed=5)
    drawn = tl.Overlaps.random(PROBLEM, 60, seed=5, size=3)
    assert run.equals(tl.solve_stages(PROBLEM, stages, tl.Chain(60), drawn, seed=5))
    with pytest.raises(tl.InputError, match="ODE has none"):
        tl.solve_stages(PROBLEM, stages, tl.ODE(), "random")


def test_what_stages_refuse() -> None:
    with pytest.raises(tl.InputError, match="at least one Stage"):
        tl.solve_stages(PROBLEM, [], tl.ODE(), START)
    with pytest.raises(tl.InputError, match="do not know the last step"):
        tl.Stage(FIRST.replace(momentum=0.5), steps=3)
    with pytest.raises(tl.InputError, match="a sequence of Stage"):
        tl.solve_stages(PROBLEM, [FIRST], tl.ODE(), START)  # type: ignore[list-item]
    with pytest.raises(tl.InputError, match="power of d"):
        limits = tl.Overlaps([[1.0]], [[0.3]])
        other = tl.SGD(lr=0.5 * d**-0.75, batch=1, geometry="projected")
        tl.solve_stages(PROBLEM, [tl.Stage(FIRST, time=0.1), tl.Stage(other, time=0.1)], tl.ODE(), limits)


REUSED = tl.SGD(lr=0.4, batch=80, dataset=160)


def test_stages_on_reused_samples_are_one_run_on_one_set() -> None:
    """The same samples, in the same sequence of batches, with the weights as they were: four steps are two and two."""
    problem, start = tl.Problem("tanh(z1)", "erf", width=2, noise=0.1), tl.Overlaps(np.eye(2), [[0.3], [0.1]])
    for algorithm in (REUSED, REUSED.replace(batch=160), REUSED.replace(sampling="replacement")):
        whole = tl.solve(problem, algorithm, tl.Vectors(80), start, steps=5, save=5, seeds=3, seed=2)
        stages = [tl.Stage(algorithm, steps=n, save=n) for n in (1, 2, 2)]
        parts = tl.solve_stages(problem, stages, tl.Vectors(80), start, seeds=3, seed=2)
        for name in ("M", "Q", "risk", "train_risk"):
            np.testing.assert_allclose(parts[name].values, whole[name].values, rtol=1e-12, atol=1e-13, err_msg=name)
        np.testing.assert_allclose(parts.step.values, np.broadcast_to(np.arange(6), (3, 6)))
        assert tl.rerun(parts).equals(parts)


def test_seeds_that_leave_at_their_own_step_go_on_in_the_sequence_of_batches() -> None:
    """A stage left at a threshold, and the same algorithm after it: the run that knew no threshold."""
    problem, start = tl.Problem("tanh(z1)", "erf", noise=0.1), tl.Overlaps([[1.0]], [[0.3]])
    whole = tl.solve(problem, REUSED, tl.Vectors(80), start, steps=24, save=24, seeds=5, seed=2)
    until = tl.Until("overlap", 0.5)
    stages = [tl.Stage(REUSED, steps=24, save=24, until=until), tl.Stage(REUSED, steps=6, save=6)]
    parts = tl.solve_stages(problem, stages, tl.Vectors(80), start, seeds=5, seed=2)
    assert len(set(parts.step.values[:, -1])) > 1 and (parts.outcome.values[:, 0] == "reached").all()
    for seed in range(5):
        at = np.rint(parts.step.values[seed, -6:]).astype(int)
        inside = at <= 24
        np.testing.assert_allclose(parts.M.values[seed, -6:][inside], whole.M.values[seed, at[inside]], rtol=1e-12)


def test_fresh_samples_after_reused_ones_have_no_training_risk() -> None:
    problem, start = tl.Problem("tanh(z1)", "erf", noise=0.1), tl.Overlaps([[1.0]], [[0.3]])
    stages = [tl.Stage(REUSED, steps=2, save=2), tl.Stage(tl.SGD(lr=0.4, batch=80), steps=2, save=2)]
    parts = tl.solve_stages(problem, stages, tl.Vectors(80), start, seeds=2)
    assert np.isfinite(parts.train_risk.values[:, :3]).all() and np.isnan(parts.train_risk.values[:, 3:]).all()


def test_what_stages_on_reused_samples_refuse() -> None:
    stages = [tl.Stage(REUSED, steps=2), tl.Stage(REUSED.replace(dataset=320), steps=2)]
    with pytest.raises(tl.InputError, match="the same samples in the same batches"):
        tl.solve_stages(PROBLEM, stages, tl.Vectors(80), START)
    limit = tl.SGD(lr=0.4, batch=2 * d, dataset=2 * d)
    with pytest.raises(tl.errors.Refused, match=r"weights that remember them.*Methods that can: Vectors"):
        tl.solve_stages(PROBLEM, [tl.Stage(limit, steps=2)] * 2, tl.DMFT(), START)
    assert "train_risk" in tl.solve_stages(
        PROBLEM, [tl.Stage(limit, steps=1)], tl.DMFT(log2_points=8, tolerance=1), START
    )
