"""The grid, the numbers, the reductions, and what is refused."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweep_tasks import OVER, Counts, end, fails_at_160, same, spread, task

import twolayer as tl
from twolayer.cli import main
from twolayer.numerics.errors import InputError
from twolayer.sweeps import planning
from twolayer.sweeps.coordinates import law_values


@pytest.fixture(scope="module")
def reference() -> Any:
    return tl.sweep(**task())


@pytest.mark.long
def test_runs_end_at_an_alpha_with_their_loss_and_error() -> None:
    """Every cell is what solve gives, with its classification error, whatever else is in the batch."""
    problem, algorithm = (
        tl.Problem("sign(z1)", "erf", second_layer=[2.0]),
        tl.SGD(lr="0.5/d"),
    )
    start, method = tl.Overlaps([[1.0]], [[0.5]]), tl.Chain(40)
    over = {"algorithm.loss": ["squared", "hinge"], "run.alpha": [0.5, 1.0]}
    result = tl.sweep(
        problem, algorithm, method, over, start=start, seeds=2, seed=3, streams="common"
    )
    for loss, alpha in itertools.product(*over.values()):
        own = algorithm.replace(loss=loss)
        run = tl.solve(
            problem, own, method, start, alpha=alpha, save=1, seeds=2, seed=3
        ).isel(time=-1)
        cell = result.sel({"algorithm.loss": loss, "run.alpha": alpha})
        np.testing.assert_allclose(cell.alpha, alpha)
        for name in ("M", "loss", "error", "risk"):
            np.testing.assert_allclose(
                cell[name].values.squeeze(), run[name].values.squeeze(), rtol=1e-6
            )
    plain = tl.sweep(
        tl.Problem("z1", "erf"),
        algorithm,
        method,
        {"run.seed": [1]},
        start=start,
        alpha=0.5,
    )
    assert "error" not in plain and "loss" in plain
    with pytest.raises(
        tl.InputError,
        match="Give one of `time`, `steps`, `alpha` and `passes`, but got 2",
    ):
        tl.sweep(
            problem,
            algorithm,
            method,
            over={"run.seed": [1]},
            start=start,
            alpha=1,
            time=1,
        )


def test_swept_names_are_dimensions(reference: Any) -> None:
    assert reference.risk.dims == (
        "algorithm.lr",
        "method.dim",
        "problem.noise",
        "seed",
    )
    assert reference["algorithm.lr"].values.tolist() == OVER["algorithm.lr"]
    assert reference["method.dim"].values.tolist() == [80, 160, 240]
    assert reference.M.shape == (3, 3, 2, 3, 1, 1)
    assert (reference.runs == 3).all() and set(reference.outcome.values.ravel()) == {
        "ok"
    }
    assert len(np.unique(reference.cell_seed)) == 18
    assert np.allclose(
        reference.risk - reference.excess_risk, np.array([0.0, 0.1])[:, None]
    )


def test_laws_have_their_values_at_each_dimension_beside_the_text(
    reference: Any, tmp_path: Path
) -> None:
    assert reference.lr.dims == ("algorithm.lr", "method.dim")
    assert np.allclose(
        reference.lr,
        np.array([0.1, 0.2, 0.3])[:, None] / np.array([80, 160, 240]),
        rtol=1e-15,
    )
    assert (
        reference["algorithm.lr"].dtype.kind in "UO"
        and reference.lr.attrs["long_name"] == "learning rate"
    )
    assert all(
        {"long_name", "units"} <= set(v.attrs) for v in reference.variables.values()
    )
    one = law_values({"algorithm.batch": ["d", "2*d"]}, {"method": {"dim": 50}})
    assert one["batch"][0] == ("algorithm.batch",) and one["batch"][1].tolist() == [
        50.0,
        100.0,
    ]
    assert (
        law_values({"algorithm.lr": ["1/d"]}, {"method": {"name": "ode"}}) == {}
    )  # at no dimension
    over = {key: OVER[key] for key in ("algorithm.lr", "method.dim")}
    stored = tl.sweep(**task(over=over), store=tmp_path / "s.zarr")
    loaded = tl.load(tmp_path / "s.zarr")
    assert loaded.lr.equals(stored.lr) and loaded.risk.equals(stored.risk)
    assert tl.cite(loaded) == tl.cite(tl.Chain(80))
    tl.plot.save_figure(tl.plot.swept(loaded), tmp_path / "s.svg")
    assert main(["plot", str(tmp_path / "s.zarr"), "--of", "overlap"]) == 0
    assert (tmp_path / "s.png").stat().st_size > 1000
    assert main(["plot", str(tmp_path / "s.zarr"), "--of", "M"]) == 2


def test_figures_show_the_means_of_the_cells(reference: Any) -> None:
    part = reference.sel({"problem.noise": 0.2})
    (mesh,) = tl.plot.heatmap(part, "risk").axes[0].collections
    assert np.allclose(
        np.asarray(mesh.get_array()).reshape(3, 3), part.risk.mean("seed")
    )
    turned = tl.plot.heatmap(part, "risk", x="algorithm.lr").axes[0]
    assert (turned.get_xlabel(), turned.get_ylabel()) == (
        "learning rate",
        "dimension $d$",
    )
    assert np.allclose(
        np.asarray(turned.collections[0].get_array()).reshape(3, 3),
        part.risk.mean("seed").T,
    )
    curves = tl.plot.swept(part.isel({"algorithm.lr": [0, 2]}), "risk").axes[0]
    names = [t.get_text() for t in curves.get_legend().get_texts()]
    assert names == ["0.1/d", "0.3/d"] and curves.get_xlabel() == "dimension $d$"
    heading = curves.get_legend().get_title().get_text()
    assert heading == "learning rate\nmean, two standard errors"
    drawn = [container.lines[0].get_ydata() for container in curves.containers]
    assert np.allclose(drawn, part.risk.mean("seed").isel({"algorithm.lr": [0, 2]}))
    single = tl.plot.swept(part.isel({"method.dim": [1]})).axes[0]
    assert (
        single.get_xlabel() == "learning rate" and single.get_ylabel() == "excess risk"
    )
    assert [t.get_text() for t in single.get_legend().get_texts()] == [
        "mean, two standard errors"
    ]
    for wrong in ({"of": "M"}, {"of": "outcome"}, {"of": "nothing"}):
        with pytest.raises(InputError, match="`of` must be a number of each run"):
            tl.plot.swept(part, **wrong)
    with pytest.raises(InputError, match="fewer axes"):
        tl.plot.swept(reference)
    with pytest.raises(InputError, match="two axes"):
        tl.plot.heatmap(part.isel({"method.dim": 0}))
    with pytest.raises(InputError, match="result of sweep"):
        tl.plot.swept(tl.load)


def test_cells_are_what_solve_computes(reference: Any) -> None:
    for lr, dim, noise in (("0.1/d", 240, 0.2), ("0.3/d", 80, 0.0)):
        cell = reference.sel(
            {"algorithm.lr": lr, "method.dim": dim, "problem.noise": noise}
        )
        problem, seed = tl.Problem("He2(z1)", "He2", noise=noise), int(cell.cell_seed)
        start = tl.Overlaps.random(problem, dim, seed, size=3)
        algorithm = tl.SGD(lr=lr, geometry="projected")
        single = tl.solve(
            problem, algorithm, tl.Chain(dim), start, time=0.5, save=1, seed=seed
        )
        assert np.array_equal(single.M.values[:, -1], cell.M.values)
        assert np.array_equal(single.risk.values[:, -1], cell.risk.values)
        assert (single.step.values[-1] == cell.step.values).all()


def test_batching_and_order_change_no_bit(
    reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert same(tl.sweep(**task(), memory=1), reference)
    backwards = {key: OVER[key][::-1] for key in reversed(OVER)}
    other = tl.sweep(**task(over=backwards), memory=2000)
    assert same(
        other.transpose(*reference.risk.dims, ...).reindex_like(reference), reference
    )
    assert same(
        tl.sweep(**task(seeds=5)).isel(seed=slice(0, 3)).drop_vars("runs"),
        reference.drop_vars("runs"),
    )


@pytest.mark.long
def test_lanes_keep_their_bits_in_any_company() -> None:
    """Vectorised transcendental functions treat the remainder of a group differently: places must not move."""
    arguments = task(
        problem=tl.Problem("tanh(z1)", "tanh", width=3),
        over={
            "algorithm.lr": [f"{x}/d" for x in (0.1, 0.15, 0.2, 0.25, 0.3)],
            "method.dim": [80, 160],
        },
        reduce=end,
        time=0.1,
        seeds=4,
    )
    together = tl.sweep(**arguments)
    few = tl.sweep(
        **{**arguments, "over": {**arguments["over"], "algorithm.lr": ["0.2/d"]}},
        memory=1,
    )
    assert same(together.sel({"algorithm.lr": ["0.2/d"]}), few)


@pytest.mark.long
def test_shapes_that_differ_share_an_array() -> None:
    result = tl.sweep(
        **task(over={"problem.width": [1, 3], "run.dim": [60, 90]}, seeds=2),
        reduce="trajectory",
        save=4,
    )
    assert result.M.dims[-3:] == (
        "save_point",
        "neuron",
        "direction",
    ) and result.M.shape[-3:] == (5, 3, 1)
    assert (
        np.isnan(result.M.values[0, ..., 1:, :]).all()
        and np.isfinite(result.M.values[1]).all()
    )
    assert np.allclose(
        result.overlap.values[1], np.sqrt((result.M.values[1] ** 2).sum((-1, -2)))
    )


def test_limits_from_random_starts() -> None:
    """A deterministic method follows each of its random starts; the clock, the noise and the threshold are swept."""
    arguments = {
        **task(
            method=tl.ODE(),
            time=None,
            over={"run.dim": [1000], "run.until.value": [0.5, 0.2]},
            seeds=2,
        ),
        "until": tl.Until("excess_risk", 0.9, relative=True),
        "time": 40,
        "reduce": "exit_time",
    }
    result = tl.sweep(**arguments)
    assert set(result.outcome.values.ravel()) == {"reached"}
    assert (result.exit_time[..., 1, :] > result.exit_time[..., 0, :]).all()
    problem, seed = arguments["problem"], int(result.cell_seed[0, 1])
    start = tl.Overlaps.random(problem, 1000, seed, size=1, first=1)
    until = tl.Until("excess_risk", 0.2, relative=True)
    single = tl.solve(
        problem, arguments["algorithm"], tl.ODE(), start, time=40, save=1, until=until
    )
    assert float(single.stop_time[0]) == float(result.exit_time[0, 1, 1])


def test_own_reduction_and_fixed_start() -> None:
    start = tl.Overlaps(Q=[[1.0]], M=[[0.5]])
    result = tl.sweep(
        **task(over={"algorithm.lr": [0.001, 0.002]}, start=start, steps=30, time=None),
        reduce=spread,
    )
    assert (
        result["range"].dims == ("algorithm.lr", "seed")
        and result.layer.dims[-1] == "neuron"
    )
    assert (result["range"] > 0).all() and (result.layer == 1).all()


def test_a_failing_cell_is_recorded_and_the_sweep_goes_on() -> None:
    with pytest.warns(
        tl.errors.SweepWarning,
        match="3 cells failed, the first at .*160.*ZeroDivisionError: no number",
    ):
        result = tl.sweep(
            **task(over={**OVER, "problem.noise": [0.2]}, steps=100, time=None),
            reduce=fails_at_160,
        )
    failures = json.loads(result.attrs["failures"])
    assert {f["cell"]["method.dim"] for f in failures} == {160}
    assert (
        result.risk.isnull().sum() == 9
        and (result.runs.sel({"method.dim": 160}) == 0).all()
    )


def test_target_se_adds_seeds_where_needed() -> None:
    arguments = task(over={"problem.noise": [0.0, 0.5], "method.dim": [80]}, seeds=4)
    target = {"overlap": 0.03}
    result = tl.sweep(**arguments, target_se=target, max_seeds=200)
    for i in range(2):
        n = int(result.runs[i, 0])
        values = result.overlap.values[i, 0, :n]
        assert values.std(ddof=1) / np.sqrt(n) <= 0.03 and n > 4
        assert np.isnan(result.overlap.values[i, 0, n:]).all()
    plain = tl.sweep(**arguments)
    assert np.array_equal(result.overlap.values[..., :4], plain.overlap.values)
    capped = tl.sweep(**arguments, target_se=1e-9, max_seeds=9)
    assert (capped.runs == 9).all()


def test_plan_counts_and_bounds() -> None:
    plan = tl.sweeps.plan_sweep(**task())
    assert (plan.cells, plan.runs, plan.finished) == (18, 54, 0)
    assert plan.seconds > 0 and plan.memory > 0
    assert tl.sweeps.plan_sweep(**task(), memory=1).batches == 18
    assert "18 cells, 54 runs" in str(plan)


def test_batches_respect_memory() -> None:
    from twolayer.sweeps.grid import Grid, Run
    from twolayer.sweeps.reductions import reduction_of
    from twolayer.sweeps.table import ResultTable

    t = task()
    reduction = reduction_of("final")
    grid = Grid(t["problem"], t["algorithm"], t["method"], Run(time=0.5), OVER, "final")
    outlines = planning.Outlines(grid, reduction)
    units = planning.missing(ResultTable(grid, 20), dict.fromkeys(grid, 20))
    assert len(units) == 36 and {u.high - u.low for u in units} == {16, 4}
    room = 40 * outlines[0, 0, 0].bytes
    for batch in planning.batches(units, outlines, 1, room):
        assert sum((u.high - u.low) * outlines[u.index].bytes for u in batch) <= room
        assert len({outlines[u.index].key for u in batch}) == 1


BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"over": {"algorithm.learning": ["1/d"]}},
        "Unknown swept key 'algorithm.learning'",
    ),
    ({"over": {"algoritm.lr": ["1/d"]}}, "did you mean 'algorithm.lr'"),
    ({"over": {"algorithm.lr": []}}, "at least one value"),
    ({"over": {"algorithm.lr": ["1/d", 0.1]}}, "mixes numbers and texts"),
    ({"over": {"method.dim": [100, 100]}}, "occurs twice"),
    ({"over": {"problem.width": [1, 0]}}, "problem.width = 0.*positive integer"),
    ({"over": {"algorithm.lr": ["1/d", "-1/d"]}}, "algorithm.lr = '-1/d'"),
    (
        {"over": {"method.dim": [10], "run.dim": [10]}},
        "either `method.dim` or `run.dim`",
    ),
    ({"over": {}}, "`over`"),
    ({"reduce": "finl"}, "did you mean 'final'"),
    ({"reduce": "exit_time"}, "needs a threshold"),
    ({"executor": "threads"}, "'processes:N'"),
    ({"executor": "dask://127.0.0.1:9"}, "No Dask scheduler answers"),
    ({"seeds": 0}, "`seeds`"),
    ({"time": None}, "one of `time`, `steps`, `alpha` and `passes`, but got none"),
    ({"target_se": -1.0}, "positive"),
    ({"start": "uniform"}, "`start`"),
    (
        {"method": tl.ODE(), "over": {"problem.noise": [0.1]}},
        "random start needs a dimension",
    ),
    (
        {"reduce": lambda run: {"x": 1.0}, "executor": "processes:1"},
        "put it into a module",
    ),
]


@pytest.mark.parametrize(
    ("changes", "words"), BAD, ids=[words[:24] for _, words in BAD]
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        tl.sweep(**{**task(), "store": tmp_path / "s.zarr", **changes})
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []


TOML = """
[problem]
target = "He2(z1)"
activation = "He2"
[algorithm]
lr = "0.2/d"
geometry = "projected"
[run]
time = 0.5
seeds = 3
methods = ["chain"]
[sweep]
"algorithm.lr" = ["0.1/d", "0.2/d"]
"run.dim" = [80, 160]
"""


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "results.zarr"
    file.write_text(TOML)
    assert main(["sweep", str(file), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["event"], plan["cells"], plan["runs"]) == (
        "plan",
        4,
        12,
    ) and not out.exists()
    assert main(["sweep", str(file), "--out", str(out), "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [e["event"] for e in events].count("cell") == 4 and events[-1][
        "failures"
    ] == []
    assert main(["sweep", str(file), "--out", str(out)]) == 2
    assert "exists already: go on with it (--resume" in capsys.readouterr().err
    assert main(["sweep", str(file), "--out", str(out), "--resume"]) == 0
    assert "12 runs of 4 cells" in capsys.readouterr().out
    bad = ["--set", "algorithm.momentum=0.9", "--set", 'sweep."run.until.value"=[0.1]']
    assert main(["sweep", str(file), "--out", str(tmp_path / "b.zarr"), *bad]) == 2
    # cells that a method refuses are failures: the others are there, and the exit code says so
    law = [
        "--set",
        'sweep={"algorithm.lr" = ["0.1/d", "0.1"]}',
        "--set",
        "run.dim=50",
        "--method",
        "ode",
    ]
    assert main(["sweep", str(file), "--out", str(tmp_path / "c.zarr"), *law]) == 1
    shown = capsys.readouterr()
    assert (
        "failed  algorithm.lr = 0.1: ODE cannot do this" in shown.out
        and "failed: " in shown.err
    )
    assert int(tl.sweeps.load_sweep(tmp_path / "c.zarr").runs.sum()) == 3


def test_store_without_zarr_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(InputError, match=r"pip install 'twolayer\[sweep\]'"):
        tl.sweep(**task(), store=tmp_path / "s.zarr")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'twolayer\[cluster\]'"):
        tl.sweep(**task(), executor="dask://127.0.0.1:8786")
    assert list(tmp_path.iterdir()) == []


def test_interruption_keeps_what_is_done(tmp_path: Path) -> None:
    class Stop(Counts):
        def update(self, position: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(tl.errors.Interrupted) as caught, warnings.catch_warnings():
        tl.sweep(**task(), store=tmp_path / "s.zarr", memory=1, progress=Stop())
    assert int(caught.value.result.runs.sum()) == 3
    assert int(tl.sweeps.load_sweep(tmp_path / "s.zarr").runs.sum()) == 3


@pytest.mark.long
def test_plans_look_at_no_start_of_their_own() -> None:
    """Batches beyond 2¹⁷ are summed by what the start says of their tails, and mean fields cost by their particles."""
    problem, algorithm = (
        tl.Problem("He2(z1)", "He2"),
        tl.SGD(0.01, batch=2**17 + 1, geometry="projected"),
    )
    over = {"method.dim": [50, 60]}
    assert (
        tl.sweeps.plan_sweep(problem, algorithm, tl.Chain(50), over, steps=2).cells == 2
    )
    start = tl.Overlaps([[1.0]], [[0.5]])
    result = tl.sweep(
        problem, algorithm, tl.Chain(50), over, start=start, steps=2, seeds=2
    )
    alone = tl.solve(
        problem,
        algorithm,
        tl.Chain(60),
        start,
        steps=2,
        save=1,
        seeds=2,
        seed=int(result.cell_seed[1]),
    )
    np.testing.assert_array_equal(result.M.values[1], alone.M.values[:, -1])
    wide = tl.sweeps.plan_sweep(
        problem,
        tl.SGD("0.1/d"),
        tl.MeanField(50),
        {"problem.noise": [0.0, 0.1]},
        time=1,
    )
    assert wide.runs == 2 and wide.seconds > 0
