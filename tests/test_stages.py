"""Runs in stages: each seed goes on from its own end, with clocks of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from chance import sigmas

import twolayer as tl
from twolayer import d
from twolayer.cli import main
from twolayer.running.stages import SPREAD, in_common

PROBLEM = tl.Problem("h2(z1)", "h2")
FIRST = tl.SGD(lr=0.5 / d, batch=4, loss="correlation", geometry="projected")
SECOND = FIRST.replace(loss="squared", lr=0.05 / d)
START = tl.Overlaps([[1.0]], [[0.3]], dim=60)


@pytest.fixture(scope="module")
def staged():  # type: ignore[no-untyped-def]
    stages = [
        tl.Stage(FIRST, steps=400, until=tl.Until("overlap", 0.6), save=20),
        tl.Stage(SECOND, steps=50, save=5),
    ]
    return tl.solve_stages(PROBLEM, stages, tl.Chain(60), START, seeds=6, seed=3)


def test_the_first_stage_is_the_run_itself_and_the_second_begins_at_its_end(
    staged,
) -> None:  # type: ignore[no-untyped-def]
    alone = tl.solve(
        PROBLEM,
        FIRST,
        tl.Chain(60),
        START,
        steps=400,
        until=tl.Until("overlap", 0.6),
        save=20,
        seeds=6,
        seed=3,
    )
    n = alone.sizes[
        "time"
    ]  # the run ends at the first save point at which all seeds have left
    np.testing.assert_array_equal(staged.M.values[:, :n], alone.M.values)
    ends = tl.Overlaps(
        alone.Q.values[:, -1], alone.M.values[:, -1], a=alone.a.values[:, -1]
    )
    assert staged.stage.values.tolist() == [1] * n + [2] * 5
    second = tl.solve(
        PROBLEM, SECOND, tl.Chain(60), ends, steps=50, save=5, seed=(3 + SPREAD) % 2**64
    )
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


def test_stages_of_the_limit_join_smoothly_and_come_back_from_a_file(
    tmp_path: Path,
) -> None:
    stages = [
        tl.Stage(FIRST, time=1.0, until=tl.Until("overlap", 0.6)),
        tl.Stage(SECOND, time=0.5),
    ]
    run = tl.solve_stages(PROBLEM, stages, tl.ODE(), START)
    at = int((run.stage == 1).sum()) - 1
    assert float(run.M[0, at, 0, 0]) == pytest.approx(0.6, abs=1e-8)
    assert float(run.M[0, -1, 0, 0]) > 0.6
    assert float(run.time[0, -1]) == pytest.approx(float(run.time[0, at]) + 0.5)
    again = tl.load(tl.save(run, tmp_path / "staged.nc"))
    np.testing.assert_array_equal(again.M.values, run.M.values)
    assert tl.rerun(again).equals(again)


def test_staged_results_are_run_again(
    staged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # type: ignore[no-untyped-def]
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
    lines = [
        line
        for line in left.get_lines()
        if len(line.get_xdata()) == staged.sizes["point"]
    ]
    assert len(lines) == 6
    for i, line in enumerate(lines):
        np.testing.assert_array_equal(line.get_xdata(), staged.time[i])
        np.testing.assert_array_equal(line.get_ydata(), staged.risk[i])
    at = int((staged.stage == 1).sum()) - 1
    (marks,) = left.collections
    np.testing.assert_allclose(
        marks.get_offsets(), np.stack([staged.time[:, at], staged.risk[:, at]], 1)
    )
    assert (
        len(
            [
                line
                for line in right.get_lines()
                if len(line.get_xdata()) == staged.sizes["point"]
            ]
        )
        == 6
    )
    norms = tl.plot.trajectory(staged, entries="Q11").axes[
        1
    ]  # what was asked for, not M under its name
    for i, line in enumerate(norms.get_lines()):
        np.testing.assert_array_equal(line.get_ydata(), staged.Q[i, :, 0, 0])
    assert len(norms.get_lines()) == 6 and norms.get_ylabel() == "overlap $Q_{11}$"
    title = figure.get_suptitle()
    assert (
        "lr = 0.5/d" in title and "lr = 0.05/d" in title and "correlation loss" in title
    )
    assert tl.plot.save_figure(figure, tmp_path / "staged.png").exists()


SMOOTH = tl.Problem("tanh(z1)", "erf", noise=0.1)
TWO = [
    tl.Stage(tl.SGD(lr=1.0 / d), time=1.0, save=4),
    tl.Stage(
        tl.SGD(lr=0.4 / d),
        time=1.0,
        save=2,
        problem=SMOOTH.replace(target="-tanh(z1)/2"),
    ),
]


@pytest.mark.long
def test_stages_are_compared_and_drawn(tmp_path: Path) -> None:
    """Methods agree on stages as on one algorithm; where one has another last stage they do not."""
    start = tl.Overlaps([[1.0]], [[0.3]])
    done = tl.compare(SMOOTH, TWO, [tl.ODE(), tl.Chain(256)], start, seeds=64)
    assert {row.verdict for row in done.verdicts} <= {
        "agree",
        "undecided",
    } and done.reference == "ode"
    assert any(row.verdict == "agree" for row in done.verdicts)
    theory, runs = done.results["ode"], done.results["chain"]
    np.testing.assert_allclose(theory.time.values, runs.time.values, rtol=1e-12)
    assert runs.sizes["time"] == 7 and float(runs.time[-1]) == pytest.approx(
        2.0, rel=0.01
    )
    alone = in_common(tl.solve_stages(SMOOTH, TWO, tl.Chain(256), start, seeds=64))
    np.testing.assert_array_equal(runs.M.values, alone.M.values)
    assert tl.plot.save_figure(tl.plot.compare(done), tmp_path / "both.png").exists()
    assert tl.load(tl.save(done, tmp_path / "both.nc")).reference == "ode"
    other = [TWO[0], tl.Stage(TWO[1].algorithm, time=1.0, save=2)]
    wrong = in_common(tl.solve_stages(SMOOTH, other, tl.ODE(), start))
    assert abs(float(wrong.M[0, -1, 0, 0]) - float(theory.M[0, -1, 0, 0])) > 0.05


def test_what_comparisons_of_stages_refuse() -> None:
    with pytest.raises(
        tl.InputError, match="`steps` must be left out where stages are compared"
    ):
        tl.compare(SMOOTH, TWO, [tl.ODE()], START, steps=3)
    until = [tl.Stage(FIRST, steps=3, until=tl.Until("overlap", 0.5))]
    with pytest.raises(tl.InputError, match="must have no thresholds in a comparison"):
        tl.compare(PROBLEM, until, [tl.ODE()], START)
    with pytest.raises(tl.InputError, match="at least one Stage"):
        tl.compare(PROBLEM, [], [tl.ODE()], START)
    with pytest.raises(tl.InputError, match="`algorithm` must be an SGD"):
        tl.solve(PROBLEM, TWO, tl.ODE(), START, steps=3)  # type: ignore[arg-type]


FILE = """
[problem]
target = "tanh(z1)"
activation = "erf"
noise = 0.1
[algorithm]
lr = "1.0/d"
[start]
Q = [[1.0]]
M = [[0.3]]
[run]
dim = 64
seeds = 4
methods = ["chain"]
[[stages]]
steps = 8
save = 2
until = { quantity = "overlap", value = 0.31 }
[[stages]]
steps = 6
save = 3
algorithm.loss = "correlation"
algorithm.geometry = "projected"
problem.noise = 0.4
"""


@pytest.mark.slow
def test_stages_in_task_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, base = tmp_path / "staged.toml", tmp_path / "out"
    file.write_text(FILE)
    assert main(["solve", str(file), "--out", str(base)]) == 0
    run = tl.load(base.with_suffix(".nc"))
    first, second = (
        stage["algorithm"] for stage in json.loads(run.attrs["description"])["stages"]
    )
    assert (first["loss"], second["loss"], second["geometry"], second["lr"]) == (
        "squared",
        "correlation",
        "projected",
        "1/d",
    )
    stages = [
        tl.Stage(tl.SGD(lr=1 / d), steps=8, save=2, until=tl.Until("overlap", 0.31)),
        tl.Stage(
            tl.SGD(lr=1 / d, loss="correlation", geometry="projected"),
            6,
            save=3,
            problem=SMOOTH.replace(noise=0.4),
        ),
    ]
    alone = tl.solve_stages(
        SMOOTH, stages, tl.Chain(64), tl.Overlaps([[1.0]], [[0.3]], dim=64), seeds=4
    )
    np.testing.assert_array_equal(run.M.values, alone.M.values)
    assert (
        main(["rerun", str(base.with_suffix(".nc"))]) == 0
        and "the same numbers" in capsys.readouterr().out
    )
    file.write_text(
        FILE.replace('until = { quantity = "overlap", value = 0.31 }\n', "")
    )
    assert main(["compare", str(file), "--methods", "chain", "--out", str(base)]) == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "save = 3",
            "savee = 3",
            "unknown key 'stages[1].savee' (did you mean 'save'?)",
        ),
        (
            "steps = 6",
            "steps = 6\ntime = 1.0",
            "stages[1] needs one of `time`, `steps`, `alpha` and `passes`",
        ),
        (
            "algorithm.loss",
            "algorithm.los",
            "unknown key 'stages[1].algorithm.los' (did you mean 'loss'?)",
        ),
        (
            "problem.noise = 0.4",
            "problem.noise = 'x'",
            "`stages[1].problem.noise` must be a number",
        ),
        ("dim = 64", "dim = 64\ntime = 3.0", "[run] takes no `time` with [[stages]]"),
        (
            "value = 0.31",
            "value = 0.31, valu = 1",
            "unknown key 'stages[0].until.valu'",
        ),
    ],
)
def test_bad_stages_in_task_files(
    old: str, new: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "staged.toml"
    file.write_text(FILE.replace(old, new))
    assert main(["solve", str(file), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


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
    with pytest.raises(tl.InputError, match="`problem` must be a Problem"):
        tl.Stage(FIRST, steps=3, problem="z1")  # type: ignore[arg-type]
    for other in (
        tl.Problem("h2(z1) + z2", "h2"),
        tl.Problem("h2(z1)", "h2", width=2),
        tl.Problem("h2(z1)", "relu"),
    ):
        with pytest.raises(
            tl.InputError, match="the same neurons over the same directions"
        ):
            tl.solve_stages(
                PROBLEM,
                [tl.Stage(FIRST, steps=3), tl.Stage(FIRST, steps=3, problem=other)],
                tl.ODE(),
                START,
            )
    for layer in ([2.0], "signs", "gaussian"):
        stages = [
            tl.Stage(FIRST, steps=3),
            tl.Stage(FIRST, steps=3, problem=PROBLEM.replace(second_layer=layer)),
        ]
        with pytest.raises(
            tl.InputError,
            match="second_layer = 'ones', that of the run, which every stage goes on",
        ):
            tl.solve_stages(PROBLEM, stages, tl.ODE(), START)
    with pytest.raises(
        tl.errors.Refused, match="depends on how rows of all times overlap"
    ):
        stages = [
            tl.Stage(tl.SGD(lr=0.1, batch=2 * d), steps=1),
            tl.Stage(tl.SGD(lr=0.1, batch=2 * d, average=0.1), steps=1),
        ]
        tl.solve_stages(PROBLEM, stages, tl.GiantSteps(), START)
    with pytest.raises(tl.InputError, match="a sequence of Stage"):
        tl.solve_stages(PROBLEM, [FIRST], tl.ODE(), START)  # type: ignore[list-item]
    with pytest.raises(tl.InputError, match="power of d"):
        limits = tl.Overlaps([[1.0]], [[0.3]])
        other = tl.SGD(lr=0.5 * d**-0.75, batch=1, geometry="projected")
        tl.solve_stages(
            PROBLEM,
            [tl.Stage(FIRST, time=0.1), tl.Stage(other, time=0.1)],
            tl.ODE(),
            limits,
        )


REUSED = tl.SGD(lr=0.4, batch=80, dataset=160)


CARRIED = REUSED.replace(
    sampling="reshuffled",
    momentum=0.5,
    average="uniform",
    train_second_layer=True,
    second_lr=0.2,
)


@pytest.mark.long
def test_stages_on_reused_samples_are_one_run_on_one_set() -> None:
    """The same samples, in the same sequence of batches, with the weights as they were: four steps are two and two."""
    problem, start = (
        tl.Problem("tanh(z1)", "erf", width=2, noise=0.1),
        tl.Overlaps(np.eye(2), [[0.3], [0.1]]),
    )
    for algorithm in (
        REUSED,
        REUSED.replace(batch=160),
        REUSED.replace(sampling="replacement"),
        CARRIED,
    ):
        whole = tl.solve(
            problem, algorithm, tl.Vectors(80), start, steps=5, save=5, seeds=3, seed=2
        )
        stages = [tl.Stage(algorithm, steps=n, save=n) for n in (1, 2, 2)]
        parts = tl.solve_stages(problem, stages, tl.Vectors(80), start, seeds=3, seed=2)
        names = ["M", "Q", "risk", "train_risk"]
        names += ["a", "M_average", "train_risk_average"] if algorithm.average else []
        for name in names:
            np.testing.assert_allclose(
                parts[name].values,
                whole[name].values,
                rtol=1e-12,
                atol=1e-13,
                err_msg=name,
            )
        np.testing.assert_allclose(
            parts.step.values, np.broadcast_to(np.arange(6), (3, 6))
        )
        assert tl.rerun(parts).equals(parts)


@pytest.mark.slow
def test_seeds_that_leave_at_their_own_step_go_on_in_the_sequence_of_batches() -> None:
    """A stage left at a threshold, and the same algorithm after it: the run that knew no threshold."""
    problem, start = (
        tl.Problem("tanh(z1)", "erf", noise=0.1),
        tl.Overlaps([[1.0]], [[0.3]]),
    )
    whole = tl.solve(
        problem, REUSED, tl.Vectors(80), start, steps=24, save=24, seeds=5, seed=2
    )
    until = tl.Until("overlap", 0.5)
    stages = [
        tl.Stage(REUSED, steps=24, save=24, until=until),
        tl.Stage(REUSED, steps=6, save=6),
    ]
    parts = tl.solve_stages(problem, stages, tl.Vectors(80), start, seeds=5, seed=2)
    assert (
        len(set(parts.step.values[:, -1])) > 1
        and (parts.outcome.values[:, 0] == "reached").all()
    )
    for seed in range(5):
        at = np.rint(parts.step.values[seed, -6:]).astype(int)
        inside = at <= 24
        np.testing.assert_allclose(
            parts.M.values[seed, -6:][inside],
            whole.M.values[seed, at[inside]],
            rtol=1e-12,
        )


LIMIT = tl.SGD(
    lr=0.4, batch=d, dataset=2 * d, sampling="reshuffled", momentum=0.5, average=0.3
)
POINTS = tl.DMFT(averages=tl.Averages(points=2**10, accuracy=1.0))


@pytest.mark.long
def test_stages_of_the_theory_of_reused_samples_are_one_run() -> None:
    """Weights, samples and what they owe to each other go on, also where a batch is used a few times only."""
    problem, start = (
        tl.Problem("tanh(z1)", "erf", noise=0.1),
        tl.Overlaps([[1.0]], [[0.3]]),
    )
    whole = tl.solve(problem, LIMIT, POINTS, start, steps=5, save=5)
    stages = [tl.Stage(LIMIT, steps=n, save=n) for n in (1, 2, 2)]
    parts = tl.solve_stages(problem, stages, POINTS, start)
    for name in ("M", "Q", "risk", "train_risk", "M_average", "train_risk_average"):
        np.testing.assert_allclose(
            parts[name].values, whole[name].values, atol=1e-9, err_msg=name
        )
    assert tl.rerun(parts).equals(parts)
    again = LIMIT.replace(dataset=None, sampling="sequence", repeat=2)
    whole = tl.solve(problem, again, POINTS, start, steps=4, save=4)
    parts = tl.solve_stages(
        problem, [tl.Stage(again, steps=2, save=2)] * 2, POINTS, start
    )
    np.testing.assert_allclose(parts.Q.values, whole.Q.values, atol=1e-9)
    # finer points are taken for all stages where a later one needs them
    finer = tl.solve_stages(
        problem,
        stages,
        tl.DMFT(averages=tl.Averages(points=2**6, accuracy=2e-3)),
        start,
    )
    assert json.loads(finer.attrs["notes"])["engine"] != "4 × 64 Sobol points"
    np.testing.assert_allclose(
        finer.M.values[:, -1],
        tl.solve(problem, LIMIT, tl.DMFT(), start, steps=5).M[:, -1],
        atol=0.02,
    )


OTHER = tl.Problem("tanh(z1) - z1**2/2", "erf", noise=0.4)


@pytest.mark.long
def test_another_target_and_noise_on_the_same_samples() -> None:
    """New labels for inputs that the weights remember: theory and runs agree, and fresh inputs would not."""
    problem, start = tl.Problem("tanh(z1)", "erf"), tl.Overlaps([[1.0]], [[0.3]])
    algorithm = tl.SGD(lr=1.5, batch=2 * d, dataset=2 * d)
    stages = [
        tl.Stage(algorithm, steps=4, save=4),
        tl.Stage(algorithm, steps=4, save=4, problem=OTHER),
    ]
    theory = tl.solve_stages(
        problem,
        stages,
        tl.DMFT(averages=tl.Averages(points=2**13, accuracy=1.0)),
        start,
    )
    runs = tl.solve_stages(problem, stages, tl.Vectors(200), start, seeds=48)
    assert (
        tl.rerun(runs).equals(runs)
        and json.loads(runs.attrs["description"])["stages"][1]["problem"]["noise"]
        == 0.4
    )
    mean, se = (
        np.squeeze(x)
        for x in (
            runs.train_risk.values.mean(0),
            runs.train_risk.values.std(0) / np.sqrt(47),
        )
    )
    gap = np.abs(mean - theory.train_risk.values[0])
    assert (gap[1:] < sigmas(16, 47) * se[1:] + 2e-3).all(), gap / se
    M = runs.M.values[:, :, 0, 0]
    gap = np.abs(M.mean(0) - theory.M.values[0, :, 0, 0])[1:]
    assert (gap < sigmas(16, 47) * M.std(0)[1:] / np.sqrt(47) + 2e-3).all()
    assert abs(float(theory.train_risk[0, -1] - theory.risk[0, -1])) > 20 * float(
        se[-1]
    )


@pytest.mark.slow
def test_momentum_goes_on_from_the_last_step_of_a_stage() -> None:
    """With a rate of almost nothing the first step of the next stage is β times the last one, in law and in the limit."""
    first = tl.SGD(lr=0.2, batch=2 * d, momentum=0.5)
    stages = [
        tl.Stage(first, steps=3, save=3),
        tl.Stage(first.replace(lr=1e-9), steps=1, save=1),
    ]
    for method in (tl.Chain(60), tl.Vectors(60), tl.GiantSteps(), tl.Population()):
        run = tl.solve_stages(
            PROBLEM, stages, method, START, seeds=3 if method.stochastic else None
        )
        step = np.diff(run.M.values[:, :, 0, 0], axis=1)
        assert (np.abs(step[:, 2]) > 1e-3).all()
        np.testing.assert_allclose(step[:, 3], 0.5 * step[:, 2], atol=1e-7)
        Q = run.Q.values[:, :, 0, 0]
        assert (np.abs(Q[:, -1] - Q[:, -2]) > 1e-4).all()
    without = [
        stages[0],
        tl.Stage(first.replace(lr=1e-9, momentum=0.0), steps=1, save=1),
    ]
    run = tl.solve_stages(PROBLEM, without, tl.Chain(60), START, seeds=3)
    np.testing.assert_allclose(run.Q.values[:, -1], run.Q.values[:, -2], atol=1e-7)


@pytest.mark.slow
def test_a_schedule_counts_from_the_beginning_of_its_stage() -> None:
    """The rate in force and the clocks, of steps and of the flow; and the stage is the scheduled run from there."""
    plain = tl.SGD(lr=0.5 / d, geometry="projected")
    slower = plain.replace(lr=0.5 / d * tl.schedules.inverse(scale=5, clock="step"))
    stages = [tl.Stage(plain, steps=4, save=4), tl.Stage(slower, steps=4, save=4)]
    run = tl.solve_stages(PROBLEM, stages, tl.Chain(60), START, seeds=2, seed=3)
    factor, one = 1 / (1 + np.arange(5) / 5), 0.5 / 60
    np.testing.assert_allclose(
        run.lr.values,
        np.tile(one * np.append(np.ones(5), factor[1:]), (2, 1)),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        run.time.values[:, -1], one * (4 + factor[:4].sum()), rtol=1e-12
    )
    np.testing.assert_allclose(run.step.values[:, -1], 8)
    there = tl.Overlaps(run.Q.values[:, 4], run.M.values[:, 4], a=run.a.values[:, 4])
    alone = tl.solve(
        PROBLEM, slower, tl.Chain(60), there, steps=4, save=4, seed=(3 + SPREAD) % 2**64
    )
    np.testing.assert_array_equal(run.M.values[:, 5:], alone.M.values[:, 1:])
    assert tl.rerun(run).equals(run)


@pytest.mark.slow
def test_another_target_for_the_limit_is_a_run_from_there() -> None:
    problem, other = tl.Problem("tanh(z1)", "erf"), OTHER
    algorithm = tl.SGD(lr=0.5 / d)
    stages = [
        tl.Stage(algorithm, time=1.0, save=2),
        tl.Stage(algorithm, time=1.0, save=2, problem=other),
    ]
    run = tl.solve_stages(problem, stages, tl.ODE(), START)
    there = tl.Overlaps(
        run.Q.values[0, 2], run.M.values[0, 2], a=run.a.values[0, 2], dim=60
    )
    alone = tl.solve(other, algorithm, tl.ODE(), there, time=1.0, save=2)
    np.testing.assert_allclose(
        run.risk.values[0, 3:], alone.risk.values[0, 1:], rtol=1e-6
    )


SPOILT = tl.Problem("tanh(z1)", "erf", width=2, noise=0.3, flips=0.1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"normalisation": "sqrt"}, marks=pytest.mark.slow),
        pytest.param({"flips": 0.3}, marks=pytest.mark.slow),
        {"noise_law": "laplace"},
    ],
    ids=str,
)
def test_whatever_the_problem_of_a_stage_says_is_done(
    change: dict[str, object],
) -> None:
    """A stage is the run of its own problem from there, with the same numbers where they are drawn."""
    algorithm, other = (
        tl.SGD(lr=0.5 / d, train_second_layer=True),
        SPOILT.replace(**change),
    )
    stages = [
        tl.Stage(algorithm, steps=6, save=1),
        tl.Stage(algorithm, steps=6, save=1, problem=other),
    ]
    start = tl.Overlaps(np.eye(2), [[0.3], [0.1]], a=[1.0, -0.5], dim=60)
    run = tl.solve_stages(SPOILT, stages, tl.Chain(60), start, seeds=3, seed=3)
    there = tl.Overlaps(
        run.Q.values[:, 1], run.M.values[:, 1], a=run.a.values[:, 1], dim=60
    )
    alone, same = (
        tl.solve(
            problem,
            algorithm,
            tl.Chain(60),
            there,
            steps=6,
            save=1,
            seed=(3 + SPREAD) % 2**64,
        )
        for problem in (other, SPOILT)
    )
    # rows are drawn anew from their overlaps, in a frame that is turned by rounding alone
    np.testing.assert_allclose(run.a.values[:, -1], alone.a.values[:, -1], rtol=1e-9)
    np.testing.assert_allclose(
        run.risk.values[:, -1], alone.risk.values[:, -1], rtol=1e-7
    )
    assert (np.abs(same.a.values[:, -1] - alone.a.values[:, -1]) > 1e-6).all()


@pytest.mark.long
def test_fresh_samples_after_reused_ones_have_no_training_risk() -> None:
    problem, start = (
        tl.Problem("tanh(z1)", "erf", noise=0.1),
        tl.Overlaps([[1.0]], [[0.3]]),
    )
    stages = [
        tl.Stage(REUSED, steps=2, save=2),
        tl.Stage(tl.SGD(lr=0.4, batch=80), steps=2, save=2),
    ]
    parts = tl.solve_stages(problem, stages, tl.Vectors(80), start, seeds=2)
    assert (
        np.isfinite(parts.train_risk.values[:, :3]).all()
        and np.isnan(parts.train_risk.values[:, 3:]).all()
    )


def test_what_stages_on_reused_samples_refuse() -> None:
    stages = [tl.Stage(REUSED, steps=2), tl.Stage(REUSED.replace(dataset=320), steps=2)]
    with pytest.raises(tl.InputError, match="the same samples in the same batches"):
        tl.solve_stages(PROBLEM, stages, tl.Vectors(80), START)
    limit = tl.SGD(lr=0.4, batch=2 * d, dataset=2 * d)
    between = [
        tl.Stage(limit, steps=1),
        tl.Stage(tl.SGD(lr=0.4, batch=2 * d, repeat=2), steps=2),
        tl.Stage(limit, steps=1),
    ]
    with pytest.raises(
        tl.errors.Refused,
        match=r"does not come back to a set that it has left.*Methods that can: .*Vectors",
    ):
        tl.solve_stages(PROBLEM, between, tl.DMFT(), START)
    assert "train_risk" in tl.solve_stages(
        PROBLEM,
        [tl.Stage(limit, steps=1)],
        tl.DMFT(averages=tl.Averages(points=2**8, accuracy=1)),
        START,
    )
