"""Figures: what is drawn is what the results hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import twolayer as tl
from twolayer import plot
from twolayer.analysis.protocols.contest import Contest
from twolayer.analysis.thresholds.amp import MessagePassing
from twolayer.analysis.weak_recovery import WeakRecovery
from twolayer.plot.style import COLOURS, DIRECTIONS
from twolayer.plot.target import MOST
from twolayer.running.comparison import Comparison
from twolayer.running.dataset import quantities

PANELS = {
    "trajectory": 2,
    "compare": 2,
    "analysis": 1,
    "moments": 3,
    "landscape": 2,
    "weak_recovery": 1,
    "contest": 1,
    "message_passing": 1,
}
"""Figures of a single result, and how many panels they have."""

PROBLEM = tl.Problem("He2(z1) + He2(z2)", "He2", width=2, noise=0.2)
ALGORITHM = tl.SGD(lr="0.1/d", geometry="projected")
START = tl.Overlaps([[1.0, 0.1], [0.1, 1.0]], [[0.5, 0.1], [0.2, 0.4]])


def calm(dataset: xr.Dataset) -> xr.Dataset:
    """The same means with a tenth of the scatter, so that runs are one group."""
    mean = dataset.mean("seed", keep_attrs=True)
    near = {
        name: mean[name] + 0.1 * (dataset[name] - mean[name])
        for name in ("M", "Q", "risk", "excess_risk")
    }
    return dataset.assign(
        {name: x.transpose(*dataset[name].dims) for name, x in near.items()}
    )


@pytest.fixture(scope="module")
def tree() -> xr.DataTree:
    """A theory and two simulations; at such d there is no pilot run."""
    methods = [tl.ODE(), tl.Chain(12), tl.Chain(15)]
    both = tl.compare(PROBLEM, ALGORITHM, methods, START, time=3, save=6, seeds=4)
    parts = {f"/{name}": calm(result) for name, result in both.results.items()}
    return xr.DataTree.from_dict({"/": both.tree.to_dataset(), **parts})


@pytest.fixture(scope="module")
def chain(tree: xr.DataTree) -> xr.Dataset:
    return tree["chain_15"].to_dataset()


@pytest.fixture(scope="module")
def single(tree: xr.DataTree) -> xr.DataTree:
    """The same results seen along the first direction only."""
    parts = {
        f"/{name}": child.to_dataset().isel(direction=[0])
        for name, child in tree.children.items()
    }
    return xr.DataTree.from_dict({"/": tree.to_dataset(), **parts})


def curves(ax: Axes) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        tuple(np.asarray(x, dtype=float) for x in line.get_data())
        for line in ax.get_lines()
    ]  # type: ignore[misc]


def legend(ax: Axes) -> list[str]:
    return (
        [text.get_text() for text in ax.get_legend().get_texts()]
        if ax.get_legend()
        else []
    )


def holds(ax: Axes, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the window shows all of a curve."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    return bool(
        left <= x.min() and x.max() <= right and bottom <= y.min() and y.max() <= top
    )


def replaced(dataset: xr.Dataset, **changes: Any) -> xr.Dataset:
    """The dataset with another description."""
    description = json.loads(dataset.attrs["description"])
    for part, values in changes.items():
        description[part] |= values
    return dataset.assign_attrs(description=json.dumps(description))


# -- one result -------------------------------------------------------------------------------------------------------


def test_trajectory_of_a_simulation(chain: xr.Dataset) -> None:
    figure = plot.trajectory(chain)
    left, right = figure.axes
    times = chain.time.values
    (risk, floor) = curves(left)
    np.testing.assert_array_equal(risk, [times, chain.risk.mean("seed")])
    np.testing.assert_array_equal(floor[1], PROBLEM.noise / 2)
    assert holds(left, *risk)
    assert left.get_ylim()[0] < PROBLEM.noise / 2
    (band,) = left.collections
    low, high = np.quantile(chain.risk.values, [0.1, 0.9], axis=0)
    outline = band.get_paths()[0].vertices
    np.testing.assert_allclose(
        [outline[:, 1].min(), outline[:, 1].max()], [low.min(), high.max()]
    )
    assert legend(left) == ["Chain, d = 15, 4 seeds"]
    assert left.get_legend().get_title().get_text() == "bands: 80% of the seeds"
    expected = [chain.M.values[:, :, j, r].mean(0) for r in range(2) for j in range(2)]
    assert len(right.collections) == 4
    for (x, y), mean in zip(curves(right), expected, strict=True):
        np.testing.assert_array_equal(x, times)
        np.testing.assert_array_equal(y, mean)
        assert holds(right, x, y)
    assert [to_hex(line.get_color()) for line in right.get_lines()] == list(DIRECTIONS)[
        :4
    ]
    assert legend(right) == ["$M_{11}$", "$M_{21}$", "$M_{12}$", "$M_{22}$"]
    for ax in (left, right):
        assert ax.get_xlabel().startswith("time")
    assert (left.get_ylabel(), right.get_ylabel()) == ("risk", "overlap $M_{jr}$")
    title = figure.get_suptitle()
    for word in (
        "He2(z1) + He2(z2)",
        "He2, p = 2",
        "Δ = 0.2",
        "lr = 0.1/d",
        "projected",
    ):
        assert word in title


def test_trajectory_of_a_theory(tree: xr.DataTree) -> None:
    ode = tree["ode"].to_dataset()
    left, right = plot.trajectory(ode).axes
    np.testing.assert_array_equal(curves(left)[0][1], ode.risk.values[0])
    assert not left.collections
    assert not right.collections
    assert left.get_legend().get_title().get_text() == ""
    assert legend(left) == ["ODE"]


def test_headings_of_legends_follow_the_style(chain: xr.Dataset) -> None:
    sizes = {}
    for name in ("paper", "house", "talk"):
        with plot.style(name):
            sizes[name] = (
                plot.trajectory(chain).axes[0].get_legend().get_title().get_fontsize()
            )
    assert sizes["paper"] < sizes["house"] < sizes["talk"]


def test_a_single_overlap_needs_no_legend(single: xr.DataTree) -> None:
    chain = single["chain_15"].to_dataset()
    right = plot.trajectory(chain).axes[1]
    assert legend(right) == ["$M_{11}$", "$M_{21}$"]
    assert right.get_ylabel() == "overlap $M_{j1}$"
    alone = plot.trajectory(chain, entries="M21").axes[1]
    assert legend(alone) == [] and alone.get_ylabel() == "overlap $M_{21}$"
    assert to_hex(alone.get_lines()[0].get_color()) == COLOURS["chain"]


def test_many_overlaps_are_thin_lines(chain: xr.Dataset) -> None:
    many = chain.isel(neuron=[0, 1, 0, 1, 0])
    right = plot.trajectory(many).axes[1]
    assert len(right.get_lines()) == 10
    assert not right.collections
    assert {line.get_linewidth() for line in right.get_lines()} == {0.8}
    # more entries than colours: neurons of a direction share one on purpose
    assert legend(right) == ["all $M_{j1}$", "all $M_{j2}$"]


@pytest.mark.parametrize(("factor", "scale"), [(1.0, "linear"), (1e-3, "log")])
def test_the_risk_axis_is_logarithmic_where_that_helps(
    chain: xr.Dataset, factor: float, scale: str
) -> None:
    risk = xr.zeros_like(chain.risk) + 1.0
    risk[:, -1] = 0.5 * factor
    left = plot.trajectory(
        replaced(chain.assign(risk=risk), problem={"noise": 0.0})
    ).axes[0]
    assert left.get_yscale() == scale
    assert len(left.get_lines()) == 1  # without noise there is no floor


def test_what_did_not_go_well_is_shown(chain: xr.Dataset) -> None:
    outcome = chain.outcome.copy()
    outcome[:2] = "diverged"
    assert legend(plot.trajectory(chain.assign(outcome=outcome)).axes[0]) == [
        "Chain, d = 15, 4 seeds (2 diverged)"
    ]
    begun = chain.isel(time=[0])  # interrupted before the first save point
    assert len(curves(plot.trajectory(begun).axes[0])[0][0]) == 1
    alone = chain.isel(seed=[0])
    assert not plot.trajectory(alone).axes[0].collections
    assert legend(plot.trajectory(alone).axes[0]) == ["Chain, d = 15, 1 seed"]


def test_titles_and_labels(chain: xr.Dataset) -> None:
    def title(**changes: Any) -> str:
        return str(plot.trajectory(replaced(chain, **changes)).get_suptitle())

    assert "teacher erf, k = 3" in title(problem={"target": {"teacher": "erf", "k": 3}})
    assert "correlation loss" in title(algorithm={"loss": "correlation"})
    long = title(problem={"target": " + ".join(f"z{i}" for i in range(1, 40))})
    assert "…" in long
    assert long.count("\n") == 1  # the task, and the algorithm
    big = legend(plot.trajectory(replaced(chain, method={"dim": 1_000_000})).axes[0])
    assert big == ["Chain, d = 1\u2009000\u2009000, 4 seeds"]
    field = tl.MeanField().describe()
    assert legend(plot.trajectory(replaced(chain, method=field)).axes[0]) == [
        "MeanField, d = ∞"
    ]
    limit = chain.copy()
    limit.time.attrs["units"] = "d**0.5"
    assert "[$d^{0.5}$]" in plot.trajectory(limit).axes[0].get_xlabel()


def test_methods_of_others_are_drawn_by_their_seeds(chain: xr.Dataset) -> None:
    foreign = replaced(chain, method={"name": "martian"})
    left = plot.trajectory(foreign).axes[0]
    assert legend(left) == ["martian, d = 15, 4 seeds"]
    assert to_hex(left.get_lines()[0].get_color()) == COLOURS["other"]


# -- comparisons ------------------------------------------------------------------------------------------------------


def test_comparison_along_one_direction(single: xr.DataTree) -> None:
    left, right = plot.compare(single).axes
    assert legend(left) == [
        "Chain, d = 12, 4 seeds: undecided",
        "Chain, d = 15, 4 seeds: undecided",
        "ODE",
    ]
    assert len(left.collections) == 2 and len(right.collections) == 4
    small, large, theory, floor = left.get_lines()
    ode = single["ode"].to_dataset()
    np.testing.assert_array_equal(theory.get_data(), [ode.time, ode.risk[0]])
    np.testing.assert_array_equal(
        large.get_ydata(), single["chain_15"].risk.mean("seed")
    )
    assert to_hex(theory.get_color()) == COLOURS["theory"]
    assert theory.get_linestyle() == "--"
    assert to_hex(small.get_color()) == COLOURS["chain"]
    assert to_hex(large.get_color()) not in (COLOURS["chain"], COLOURS["theory"])
    assert floor.get_ydata()[0] == PROBLEM.noise / 2
    assert legend(right) == ["ODE", "$M_{11}$", "$M_{21}$"]
    for j in range(2):
        np.testing.assert_array_equal(curves(right)[4 + j][1], ode.M[0, :, j, 0])
    assert all(holds(left, x, y) for x, y in curves(left)[:3])
    assert all(holds(right, x, y) for x, y in curves(right)[:6])


def test_comparison_along_two_directions(tree: xr.DataTree) -> None:
    right = plot.compare(tree, entries="m").axes[1]
    assert legend(right) == ["ODE", "$m_{1}$", "$m_{2}$"]
    assert right.get_legend().get_title().get_text() == "bands: two standard errors"
    lines = [line for line in right.get_lines() if line.get_gid() != "note"]
    assert len(lines) == 3 * 2 + 2  # and two that are only in the legend
    for i, name in enumerate(("chain_12", "chain_15", "ode")):
        dataset = tree[name].to_dataset()
        M, n = dataset.M.values, dataset.sizes["seed"]
        for r in range(2):
            square = M[..., r].mean(0) ** 2
            if n > 1:
                square -= M[..., r].var(0, ddof=1) / n
            expected = np.sqrt(np.maximum(square.mean(-1), 0))
            np.testing.assert_allclose(
                lines[2 * i + r].get_ydata(), expected, atol=1e-7
            )
    assert [line.get_linestyle() for line in lines[:6]] == [
        "-",
        "-",
        "-.",
        "-.",
        "--",
        "--",
    ]


@pytest.mark.parametrize("clock", ["time", "step", "sample", "alpha"])
def test_every_entry_is_drawn_on_request_against_any_clock(
    tree: xr.DataTree, clock: str
) -> None:
    left, right = plot.compare(tree, entries=["M", "Q12"], clock=clock).axes
    ode = tree["ode"].to_dataset()
    np.testing.assert_array_equal(left.get_lines()[2].get_xdata(), ode[clock])
    drawn = right.get_lines()
    assert len(drawn) == 3 * 5 + 5
    theory = [line.get_ydata() for line in drawn[10:15]]
    expected = [ode.M[0, :, j, r] for r in range(2) for j in range(2)] + [
        ode.Q[0, :, 0, 1]
    ]
    np.testing.assert_allclose(theory, expected, rtol=1e-15)
    # the legend has the colours of the lines, and theory its own entry
    assert legend(right) == [
        "ODE",
        "$M_{11}$",
        "$M_{21}$",
        "$M_{12}$",
        "$M_{22}$",
        "$Q_{12}$",
    ]
    named = {text.get_text(): to_hex(h.get_color()) for text, h in zip(right.get_legend().get_texts(), right.get_legend().legend_handles, strict=True)}  # fmt: skip
    assert list(named.values())[1:] == [to_hex(line.get_color()) for line in drawn[:5]]
    # dash and marker tell the two simulations apart
    looks = {(line.get_linestyle(), line.get_marker()) for line in drawn[:10]}
    assert len(looks) == 2
    assert len({mark for _, mark in looks}) == 2
    with pytest.raises(tl.InputError, match="Argument `clock`"):
        plot.compare(tree, clock="epoch")


def test_training_risks_and_logarithmic_clocks_are_drawn(
    chain: xr.Dataset, tree: xr.DataTree
) -> None:
    training = chain.assign(train_risk=0.5 * chain.risk)
    left = plot.trajectory(training).axes[0]
    assert legend(left) == [
        "Chain, d = 15, 4 seeds",
        "Chain, d = 15, 4 seeds: training",
    ]
    np.testing.assert_array_equal(
        left.get_lines()[1].get_ydata(), training.train_risk.mean("seed")
    )
    both = xr.DataTree.from_dict(
        {
            "/": tree.to_dataset(),
            "/ode": tree["ode"].to_dataset(),
            "/chain_15": training,
        }
    )
    assert "Chain, d = 15, 4 seeds: training" in legend(plot.compare(both).axes[0])
    assert {ax.get_xscale() for ax in plot.trajectory(chain).axes} == {"linear"}
    many = chain.isel(time=np.zeros(20, dtype=int)).assign_coords(
        time=np.geomspace(1e-3, 1e3, 20)
    )
    assert {ax.get_xscale() for ax in plot.trajectory(many).axes} == {"log"}


def test_a_risk_of_zero_is_a_gap_and_no_slope(chain: xr.Dataset) -> None:
    risk = chain.risk.copy()
    risk[:, -1], risk[:, -2] = 0.0, 1e-6
    drawn = plot.trajectory(chain.assign(risk=risk)).axes[0].get_lines()[0].get_ydata()
    assert np.isnan(drawn[-1])
    assert np.isfinite(drawn[:-1]).all()


def test_equal_methods_are_told_apart(tree: xr.DataTree) -> None:
    parts = {"/": tree.to_dataset(), "/ode": tree["ode"].to_dataset()}
    parts |= {f"/chain_15_{i}": tree["chain_15"].to_dataset() for i in (1, 2)}
    left = plot.compare(xr.DataTree.from_dict(parts)).axes[0]
    assert legend(left)[:2] == [
        f"Chain, d = 15, 4 seeds (chain_15_{i})" for i in (1, 2)
    ]


# -- figures that do not mislead --------------------------------------------------------------------------------------


def many_runs(chain: xr.Dataset, seeds: int, M: np.ndarray) -> xr.Dataset:
    """A simulation whose first overlap is what is given, (seed, time), and the others
    zero.
    """
    repeated = chain.isel(seed=np.arange(seeds) % chain.sizes["seed"])
    repeated = repeated.assign_coords(seed=np.arange(seeds)).copy(deep=True)
    repeated.M[:] = 0.0
    repeated.M[:, :, 0, 0] = M
    repeated.risk[:] = 1.0 + np.linspace(1, 0, chain.sizes["time"])
    return repeated


def noise(chain: xr.Dataset, seeds: int, dim: int) -> np.ndarray:
    """What single runs have of a direction that they do not learn."""
    generator = np.random.default_rng(7)
    return generator.standard_normal((seeds, chain.sizes["time"])) / np.sqrt(dim)


def test_nothing_learned_is_drawn_at_zero(chain: xr.Dataset) -> None:
    """The root mean square of single runs would be d^(−1/2) = 0.07."""
    runs = many_runs(chain, 64, noise(chain, 64, 200))
    assert quantities(runs)["m1"].mean() > 0.03
    line = plot.trajectory(runs, entries="m").axes[1].get_lines()[0]
    # 0.07/√2 of one neuron in two, and what is left of it after 64 seeds
    assert np.all(line.get_ydata() < 0.015)


def test_m_is_what_seeds_have_in_common(chain: xr.Dataset) -> None:
    """√⟨(E M)²⟩ = 0.2 with a band that says how well it is known."""
    signal = 0.2 * np.sqrt(2)
    runs = many_runs(chain, 64, signal + noise(chain, 64, 200))
    right = plot.trajectory(runs, entries="m1").axes[1]
    (line,) = (x for x in right.get_lines() if x.get_gid() != "note")
    assert np.all(np.abs(line.get_ydata() - 0.2) < 5 * 0.2**0.5 * 0.07 / 8)
    (band,) = right.collections
    height = band.get_paths()[0].vertices[:, 1]
    error = 0.0707 / 8 / np.sqrt(2)  # of the mean of one neuron, over √2 in m
    assert 2 * error < np.ptp(height) < 2 * 5 * error
    assert "m_r" in right.get_ylabel()


def test_one_default_of_entries(chain: xr.Dataset, tree: xr.DataTree) -> None:
    """Trajectories and comparisons show the same: M, and m where overlaps are many."""
    for figure in (plot.trajectory(chain), plot.compare(tree)):
        assert figure.axes[1].get_ylabel() == "overlap $M_{jr}$"
    wide = {"neuron": np.arange(10) % 2, "neuron_": np.arange(10) % 2}
    parts = {f"/{k}": tree[k].to_dataset().isel(wide) for k in tree.children}
    many = xr.DataTree.from_dict({"/": tree.to_dataset(), **parts})
    for figure in (plot.trajectory(chain.isel(wide)), plot.compare(many)):
        assert "m_r" in figure.axes[1].get_ylabel()


def test_runs_in_two_groups_are_drawn_one_by_one(
    chain: xr.Dataset, tree: xr.DataTree
) -> None:
    """Twelve runs go to −1 and twenty to +1: their mean 0.25 is none of them."""
    sign = np.where(np.arange(32) < 12, -1.0, 1.0)[:, None]
    path = np.linspace(0, 1, chain.sizes["time"])
    runs = many_runs(chain, 32, sign * path + 0.2 * noise(chain, 32, 400))
    right = plot.trajectory(runs).axes[1]
    first = [
        x
        for x in right.get_lines()
        if to_hex(x.get_color()) == DIRECTIONS[0] and x.get_gid() != "note"
    ]
    assert len(first) == 32
    ends = np.array([line.get_ydata()[-1] for line in first])
    assert np.all(np.abs(np.abs(ends) - 1) < 0.1) and (ends < 0).sum() == 12
    assert len(right.collections) == 3  # the other entries, with bands
    assert right.get_legend().get_title().get_text() == "thin lines: single runs"
    # colours in the legend are seen, however faint the runs are
    assert {handle.get_alpha() for handle in right.get_legend().legend_handles} == {1.0}
    # a comparison marks the mean as well, for it is what the table judges
    parts = {
        "/": tree.to_dataset(),
        "/ode": tree["ode"].to_dataset(),
        "/chain_15": runs,
    }
    right = plot.compare(xr.DataTree.from_dict(parts), entries="M11").axes[1]
    marked = [
        x
        for x in right.get_lines()
        if x.get_linestyle() == "None" and x.get_gid() != "note"
    ]
    np.testing.assert_allclose(marked[0].get_ydata(), runs.M[:, :, 0, 0].mean("seed"))
    # one group, however small or wide, keeps its mean and its band
    for size in (1.0, 0.1, 1e-3):
        one = many_runs(chain, 32, 0.5 * path + size * 4 * noise(chain, 32, 400))
        assert len(plot.trajectory(one).axes[1].collections) == 4


def test_legends_say_what_differs(chain: xr.Dataset) -> None:
    fresh = replaced(chain, algorithm={"lr": "0.1/d"})
    reused = replaced(chain, algorithm={"dataset": "3*d"})
    large = replaced(reused, algorithm={"dataset": "9*d"})
    figure = plot.trajectory(fresh)
    assert "fresh samples" in figure.get_suptitle()
    for other in (reused, large):
        figure = plot.trajectory(other, figure=figure)
    left = figure.axes[0]
    assert legend(left) == [
        "batch 1, fresh samples",
        "batch 1 of the same 3*d samples",
        "batch 1 of the same 9*d samples",
    ]
    title = figure.get_suptitle()
    assert "samples" not in title and "Chain, d = 15, 4 seeds" in title
    assert "lr = 0.1/d" in title and "He2(z1)" in title
    risks = [x for x in left.get_lines() if not str(x.get_gid()).startswith("floor")]
    assert len({to_hex(x.get_color()) for x in risks}) == 3
    assert len({x.get_linestyle() for x in risks}) == 3
    # results of one description are told apart by their seed
    figure = plot.trajectory(replaced(chain, run={"seed": 0}))
    figure = plot.trajectory(replaced(chain, run={"seed": 5}), figure=figure)
    assert legend(figure.axes[0]) == [
        f"Chain, d = 15, 4 seeds, seed {i}" for i in (0, 5)
    ]


def overlaps_curves(ax: Axes) -> bool:
    """Whether the legend lies on a line: by its points, at 1000 places each."""
    ax.figure.draw_without_rendering()
    box = ax.get_legend().get_window_extent()
    for line in ax.get_lines():
        x, y = (np.asarray(v, dtype=float) for v in line.get_data())
        if len(x) < 2 or line.get_gid() == "note":
            continue
        fine = np.linspace(0, len(x) - 1, 1000)
        at = np.stack([np.interp(fine, np.arange(len(x)), v) for v in (x, y)], 1)
        if box.count_contains(line.get_transform().transform(at)):
            return True
    return False


def test_legends_hide_no_curve(chain: xr.Dataset) -> None:
    """Fifteen overlaps that fill their panel: p = 5, k = 3."""
    path = np.linspace(-1, 1, chain.sizes["time"])
    full = chain.isel(neuron=[0, 1, 0, 1, 0], direction=[0, 1, 0], seed=[0]).copy(
        deep=True
    )
    slopes = np.linspace(-1, 1, 15).reshape(5, 3)
    full.M[:] = (path[:, None, None] * slopes)[None]
    for size in ((9.2, 3.6), (5.0, 2.4)):
        own = Figure(figsize=size, layout="constrained")
        right = plot.trajectory(full, figure=own, entries="M").axes[1]
        assert legend(right) == ["all $M_{j1}$", "all $M_{j2}$", "all $M_{j3}$"]
        assert not overlaps_curves(right)


def test_axes_end_where_risks_are_resolved(chain: xr.Dataset) -> None:
    notes = json.dumps({"risk_resolution": 1e-7})
    exact = replaced(chain, problem={"noise": 0.0}).assign_attrs(notes=notes)
    exact.attrs["description"] = replaced(chain, problem={"noise": 0.0}).attrs[
        "description"
    ]
    risk = exact.risk.copy()
    risk[:] = np.geomspace(1.0, 1e-14, chain.sizes["time"])
    left = plot.trajectory(exact.assign(risk=risk)).axes[0]
    assert left.get_ylim()[0] == 1e-7
    assert "not resolved below 1e-7" in left.get_legend().get_title().get_text()
    risk[:] = np.geomspace(1.0, 1e-5, chain.sizes["time"])
    left = plot.trajectory(exact.assign(risk=risk)).axes[0]
    assert 1e-7 < left.get_ylim()[0] < 1e-5
    assert left.get_legend().get_title().get_text() == "bands: 80% of the seeds"


def test_short_axes_have_plain_numbers(chain: xr.Dataset) -> None:
    risk = chain.risk.copy()
    risk[:] = np.geomspace(0.6, 0.15, chain.sizes["time"])
    figure = plot.trajectory(replaced(chain.assign(risk=risk), problem={"noise": 0.0}))
    figure.draw_without_rendering()
    left = figure.axes[0]
    low, high = left.get_ylim()
    shown = [
        t.get_text()
        for y, t in zip(left.get_yticks(), left.get_yticklabels(), strict=True)
        if low <= y <= high
    ]
    assert left.get_yscale() == "log" and len(shown) > 2
    assert all("10" not in text and float(text) < 1 for text in shown)


def test_figures_and_tables_say_the_same(tree: xr.DataTree) -> None:
    """The legend has the verdicts, and means are those that the table judges."""
    known = Comparison(tree)
    labels = legend(plot.compare(known).axes[0])
    for name in ("chain_12", "chain_15"):
        words = {row.verdict for row in known.verdicts if row.method == name}
        said = next(text for text in labels if f"d = {name[-2:]}" in text)
        assert said.endswith(
            "differs"
            if "differ" in words
            else "undecided"
            if "undecided" in words
            else "agrees"
        )
    # of runs that part the mean is drawn too, for it is what the table judges
    rows = [row for row in known.verdicts if row.quantity.startswith("M")]
    drawn = plot.compare(known).axes[1].get_lines()
    ends = [line.get_ydata()[-1] for line in drawn if len(line.get_ydata())]
    for row in rows:
        assert np.abs(np.array(ends) - row.mean).min() < 1e-12


# -- targets and averages ---------------------------------------------------------------------------------------------


def test_analysis_shows_the_coefficients() -> None:
    result = tl.analyse("2*z1 - z1*z2 + He3(z2)")
    figure = plot.analysis(result)
    (ax,) = figure.axes
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, [2, -1, np.sqrt(6)], rtol=1e-12)
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        "$z_{1}$",
        "$z_{1}\\,z_{2}$",
        "$h_{3}(z_{2})$",
    ]
    assert legend(ax) == ["order 1", "order 2", "order 3"]
    title = ax.get_title(loc="left")
    assert title.splitlines()[0] == result.target.name
    assert (
        title.splitlines()[1]
        == f"information 1, leap 1, generative {result.generative}"
    )
    assert ax.get_ylim()[0] < -1
    assert ax.get_ylim()[1] > np.sqrt(6)


def test_analysis_of_a_target_with_many_coefficients() -> None:
    text = "(1 + z1)*(2 + z2)*(3 + z3)*(4 + z4)*(5 + z5) + z1**3"
    result = tl.analyse(text)
    (ax,) = plot.analysis(result).axes
    sizes = sorted(
        (abs(c) for alpha, c in result.hermite.items() if any(alpha)), reverse=True
    )
    assert len(sizes) > MOST == len(ax.patches)
    assert (
        sorted((abs(bar.get_height()) for bar in ax.patches), reverse=True)
        == sizes[:MOST]
    )
    assert ax.get_ylabel() == f"coefficients: the {MOST} largest of {len(sizes)}"


def test_analysis_of_nothing() -> None:
    (ax,) = plot.analysis(tl.analyse("z1 - z1")).axes
    assert not ax.patches


def test_moments_are_shown_with_their_numbers() -> None:
    result = tl.moments(PROBLEM, START)
    figure = plot.moments(result)
    for ax, name in zip(figure.axes, ("psi", "phi", "chi"), strict=False):
        matrix = getattr(result, name)
        (image,) = ax.get_images()
        np.testing.assert_array_equal(image.get_array(), matrix)
        assert image.get_clim() == (-np.abs(matrix).max(), np.abs(matrix).max())
        assert ax.get_title(loc="left").startswith(name)
        assert [text.get_text() for text in ax.texts] == [
            f"{x:.2g}" for x in matrix.ravel()
        ]
        assert [t.get_position() for t in ax.texts] == [(1, 1), (2, 1), (1, 2), (2, 2)]
        assert {1, 2} <= set(ax.get_xticks())
    assert figure.axes[0].get_xlabel() == "direction $r$"
    assert result.engine in figure.get_suptitle()
    assert len(figure.axes) == 6  # three matrices and their colour bars


def test_moments_of_many_neurons_and_of_zeros() -> None:
    many = tl.Problem("z1", "linear", width=7)
    figure = plot.moments(tl.moments(many, tl.Overlaps(np.eye(7), np.zeros((7, 1)))))
    assert not figure.axes[1].texts
    nothing = tl.Problem("z1", "linear", second_layer=[0.0])
    image = (
        plot.moments(tl.moments(nothing, tl.Overlaps([[1.0]], [[0.0]])))
        .axes[0]
        .get_images()[0]
    )
    assert image.get_clim() == (-1, 1)


# -- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PANELS)
def test_figures_refuse_what_is_not_theirs(name: str) -> None:
    for wrong in (None, 3, xr.Dataset(), xr.DataTree()):
        with pytest.raises(
            tl.InputError, match=r"must be a (result of|Dataset from solve)"
        ):
            getattr(plot, name)(wrong)


def measured() -> WeakRecovery:
    """T = 10 d^½ in the middle, and one run of each dimension that was given up."""
    steps = np.array([10.0, 20.0])[:, None] * np.array(
        [10.0, 9.0, 8.0, 11.0, 12.0, 10.0, np.inf]
    )
    algorithm = tl.SGD("0.1/d", geometry="projected")
    return WeakRecovery(
        tl.Problem("h3(z1)", "h3"),
        algorithm,
        0.5,
        (100, 400),
        steps,
        (300, 600),
        ("exact",) * 2,
        None,
    )


def test_weak_recovery_shows_its_runs_and_its_law() -> None:
    (panel,) = plot.weak_recovery(measured()).axes
    shown = legend(panel)
    assert shown[::3] == ["runs", "given up"] and shown[2].startswith(
        "$T$ ~ $d^\\theta$, $\\theta = 0.50 \\pm 0.1"
    )
    runs, *bars, medians, law, lost, _ = curves(panel)
    assert runs[1].size == 12 and len(bars) == 2
    np.testing.assert_array_equal(medians, [[100, 400], [100, 200]])
    np.testing.assert_allclose(law[1][[0, -1]], [100, 200], rtol=0.05)
    np.testing.assert_array_equal(lost, [[100], [300]])


def test_the_landscape_is_drawn_with_its_flow(drawings: dict[str, Any]) -> None:
    left, right = plot.landscape(drawings["landscape"], step=0.5).axes
    (m, phi), (_, flow) = curves(left)[0], curves(right)[0]
    np.testing.assert_allclose(
        phi - phi[len(m) // 2], -(m**3) + m[len(m) // 2] ** 3, atol=1e-6
    )
    np.testing.assert_allclose(flow, 3 * m**2 * (1 - m**2), atol=1e-6)
    assert (curves(right)[1][1] < flow)[
        m > 0
    ].all()  # steps of finite length pull m towards zero


def test_a_contest_names_who_is_beaten(drawings: dict[str, Any]) -> None:
    (panel,) = plot.contest(drawings["contest"]).axes
    assert [x.get_text() for x in panel.get_yticklabels()] == [
        "optimum",
        "constant: undecided",
    ]
    apart = {
        "optimum": np.full(9, 0.1),
        "constant": 0.2 + 0.001 * np.arange(9),
        "cosine": 0.05 + 0.001 * np.arange(9),
    }
    (panel,) = plot.contest(Contest(500, 9, "excess_risk", apart)).axes
    assert [x.get_text() for x in panel.get_yticklabels()] == [
        "optimum",
        "constant: beaten",
        "cosine: better",
    ]


@pytest.fixture(scope="module")
def drawings(tree: xr.DataTree, chain: xr.Dataset) -> dict[str, Any]:
    return {
        "trajectory": chain,
        "compare": tree,
        "analysis": tl.analyse("z1 + z1*z2"),
        "moments": tl.moments(PROBLEM, START),
        "landscape": tl.single_index.population_loss(tl.Problem("h3(z1)", "h3")),
        "weak_recovery": measured(),
        "contest": Contest(
            500,
            3,
            "excess_risk",
            {"optimum": np.full(3, 0.1), "constant": np.array([0.2, 0.3, 0.25])},
        ),
        "message_passing": MessagePassing(
            1.0, 300, np.linspace(0, 1, 24).reshape(2, 6, 2)
        ),
    }


@pytest.mark.parametrize("name", PANELS)
def test_every_figure_is_written_and_leaves_the_settings_alone(
    name: str, drawings: dict[str, Any], tmp_path: Path
) -> None:
    before = dict(mpl.rcParams)
    given = Figure(figsize=(5, 3))
    figure = getattr(plot, name)(drawings[name], figure=given)
    assert figure is given
    path = plot.save_figure(
        getattr(plot, name)(drawings[name]), tmp_path / f"{name}.png"
    )
    assert dict(mpl.rcParams) == before
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width = int.from_bytes(header[16:20], "big")
    assert width > 800  # sharp enough for a column
    assert [p.name for p in tmp_path.iterdir()] == [f"{name}.png"]


def test_results_are_added_to_a_figure(tree: xr.DataTree, chain: xr.Dataset) -> None:
    """One trajectory after the other: two panels, two results, one floor, one legend."""
    figure = plot.trajectory(chain)
    panels = list(figure.axes)
    ode = tree["ode"].to_dataset()
    assert plot.trajectory(ode, figure=figure) is figure
    assert figure.axes == panels
    left, right = panels
    assert legend(left) == ["Chain, d = 15, 4 seeds", "ODE"]
    first, floor, second = left.get_lines()
    np.testing.assert_array_equal(first.get_ydata(), chain.risk.mean("seed"))
    np.testing.assert_array_equal(second.get_ydata(), ode.risk[0])
    assert floor.get_ydata()[0] == PROBLEM.noise / 2
    assert (first.get_linestyle(), second.get_linestyle()) == ("-", "--")
    assert len(right.get_lines()) == 8
    assert legend(right) == ["$M_{11}$", "$M_{21}$", "$M_{12}$", "$M_{22}$"]
    assert holds(left, *curves(left)[2])


def test_figures_are_drawn_into_given_axes(drawings: dict[str, Any]) -> None:
    for name, count in PANELS.items():
        own = Figure()
        mine, *panels = own.subplots(1, count + 1)
        mine.plot([0, 1])
        given = panels if count > 1 else panels[0]
        assert getattr(plot, name)(drawings[name], ax=given) is own
        assert len(mine.get_lines()) == 1 and own.get_suptitle() == ""
        assert all(panel.has_data() for panel in panels)
        assert (
            len([ax for ax in own.axes if ax.get_label() != "<colorbar>"]) == count + 1
        )
        for wrong in (panels[0] if count > 1 else panels * 2, "axes", [None] * count):
            with pytest.raises(tl.InputError, match="`ax` must be"):
                getattr(plot, name)(drawings[name], ax=wrong)
        with pytest.raises(tl.InputError, match="without `figure`"):
            getattr(plot, name)(drawings[name], figure=own, ax=given)
        taken = Figure()
        taken.subplots(1, 4)
        with pytest.raises(tl.InputError, match="`figure` must be an empty figure"):
            getattr(plot, name)(drawings[name], figure=taken)
        with pytest.raises(tl.InputError, match="a matplotlib Figure"):
            getattr(plot, name)(drawings[name], figure=panels[0])
        part = Figure().subfigures(1, 2)[1]
        assert getattr(plot, name)(drawings[name], figure=part) is part


def test_figures_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    figure = Figure()
    figure.subplots().plot([0, 1])
    for suffix, start in ((".pdf", b"%PDF"), (".svg", b"<?xml"), (".png", b"\x89PNG")):
        assert (
            plot.save_figure(figure, tmp_path / f"x{suffix}")
            .read_bytes()
            .startswith(start)
        )
    old = (tmp_path / "x.png").read_bytes()

    class Broken(Figure):
        def savefig(self, file: Any, **_: Any) -> None:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plot.save_figure(Broken(), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes() == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.pdf", "x.png", "x.svg"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x.gif", "end in .png, .pdf or .svg, but got 'x.gif'"),
        ("no/x.png", "existing folder"),
    ],
)
def test_places_for_figures(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tl.InputError, match=message):
        plot.save_figure(Figure(), path)
    assert not list(tmp_path.iterdir())
