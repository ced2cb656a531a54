"""Figures of runs: the risk (or loss, or error) on the left, the overlaps on the right,
against any of the clocks.

Theory is a line in ink. A simulation is the mean over its seeds with a band that holds
the central 80 % of them. What is not positive is a gap on a logarithmic axis, and save
points in geometric progression have a logarithmic clock. Seeds of a run in stages leave
them at steps of their own, so that there is no common time at which a mean could be
taken: each is drawn along its own clock, with a mark where it goes on to the next
stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from twolayer.numerics.arguments import Json, Options
from twolayer.numerics.errors import InputError, choice
from twolayer.numerics.foreign_files import reading
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.entries import curves_of, symbol
from twolayer.plot.style import (
    COLOURS,
    DIRECTIONS,
    GREY,
    house_style,
    house_title,
    positive,
)
from twolayer.plot.titles import algorithm_line, problem_line
from twolayer.running.comparison import Comparison
from twolayer.running.dataset import check_result
from twolayer.task.method import METHODS, Outcome

__all__ = ["compare", "trajectory"]

BAND = (0.1, 0.9)
QUANTITIES = ("risk", "excess_risk", "loss", "error")
MANY = 8  # more curves than this are drawn as thin lines without bands
LINES = ("-", "--", ":", "-.")
MARKERS = "os^DvP*"
EVERY = 8  # markers along a simulation
# the last save point over the middle one from which on a clock is logarithmic: 2 where
# they are even
SPAN = 8.0
CLOCKS = {
    "time": r"time  $t = \mathrm{lr}\cdot\mathrm{step}\,/\,p$",
    "step": "step",
    "sample": "samples",
    "alpha": r"$\alpha = $ samples$\,/\,d$",
}
THEORY_LINES = ("--", ":", "-.")
SIMULATION_LINES = ("-", "-.", ":")
# seeds of a run in stages that can be told apart; of more, each is drawn fainter
FAINT = 3.0


def _told(dataset: xr.Dataset) -> Json:
    """The description of a result; of a run in stages, that of the first."""
    told: Json = json.loads(dataset.attrs["description"])
    return told["stages"][0] if "stages" in told else told


def _random(dataset: xr.Dataset) -> bool:
    """Whether a result is a simulation; of a method not known here, the number of seeds
    tells.
    """
    word = _word(dataset)
    return METHODS[word].stochastic if word in METHODS else dataset.sizes["seed"] > 1


def _word(dataset: xr.Dataset) -> str:
    return str(_told(dataset)["method"]["name"])


def _label(dataset: xr.Dataset) -> str:
    """A result in the legend: method, dimension, seeds."""
    method, word = _told(dataset)["method"], _word(dataset)
    parts = [METHODS[word].__name__ if word in METHODS else word]
    if "data" in method:
        parts[0] += " over rows"
    if "dim" in method:
        size = (
            "∞"
            if method["dim"] == "inf"
            else f"{method['dim']:,}".replace(",", "\u2009")
        )
        parts.append(f"d = {size}")
    seeds = dataset.sizes["seed"]
    if _random(dataset):
        parts.append(f"{seeds} seed{'s' if seeds > 1 else ''}")
    diverged = int(
        (dataset.outcome.values == Outcome.DIVERGED).reshape(seeds, -1).any(1).sum()
    )
    return ", ".join(parts) + (f" ({diverged} diverged)" if diverged else "")


def _title(dataset: xr.Dataset) -> list[str]:
    """The task in one line, each algorithm in another."""
    told = json.loads(dataset.attrs["description"])
    stages = told.get("stages", [told])
    with reading("The description of this result"):
        trained = any(stage["algorithm"].get("train_second_layer") for stage in stages)
        lines = [algorithm_line(stage["algorithm"]) for stage in stages]
        if len(lines) > 1:
            lines = [f"stage {i + 1}: {line}" for i, line in enumerate(lines)]
        return [problem_line(stages[0]["problem"], trained), "   ".join(lines)]


def _clock_axis(ax: Axes, dataset: xr.Dataset, clock: str) -> None:
    """The name of the clock, and a logarithmic scale where its save points grow
    geometrically.
    """
    unit = dataset[clock].attrs.get("units", "")
    power = f"   [$d^{{{unit.removeprefix('d**')}}}$]" if unit else ""
    name = CLOCKS[clock]
    if _told(dataset)["problem"].get("normalisation", "mean") != "mean":
        name = name.replace("p$", "N$")
    ax.set_xlabel(name + power)
    drawn = np.unique(dataset[clock].values[dataset[clock].values > 0])
    if drawn.size > EVERY and drawn[-1] > SPAN * drawn[drawn.size // 2]:
        ax.set_xscale("log")


def _check_quantity(quantity: str, datasets: Iterable[xr.Dataset]) -> None:
    """Refuse what results do not hold."""
    choice("quantity", quantity, QUANTITIES)
    for dataset in datasets:
        if quantity not in dataset:
            held = ", ".join(name for name in QUANTITIES if name in dataset)
            raise InputError(
                f"Argument `quantity`: {_label(dataset)} has no {quantity!r}, but"
                f" {held}."
            )


def _risk_axis(ax: Axes, dataset: xr.Dataset, quantity: str) -> None:
    """A logarithmic axis where that helps, and the level Δ/2 that no network gets
    below.
    """
    drawn = np.concatenate(
        [np.asarray(line.get_ydata(), dtype=float) for line in ax.get_lines()]
    )
    seen = drawn[drawn > 0]
    floor = _told(dataset)["problem"]["noise"] / 2 if quantity == "risk" else 0.0
    if floor and not any(line.get_gid() == f"floor {floor}" for line in ax.get_lines()):
        ax.axhline(floor, color=GREY, lw=0.8, ls=":", gid=f"floor {floor}")
        place: Any = ("axes fraction", "data")
        ax.annotate(
            "Δ/2",
            (1.01, floor),
            xycoords=place,
            va="center",
            ha="left",
            color=GREY,
            fontsize=8,
        )
    if seen.size and seen.max() > 3 * seen.min():
        ax.set_yscale("log")
        for line in ax.get_lines():
            line.set_ydata(positive(line.get_ydata()))
        if quantity in ("risk", "excess_risk"):
            _unresolved(ax, seen.min(), dataset)
    ax.set_ylabel(quantity.replace("_", " "))
    bands = any(isinstance(collection, PolyCollection) for collection in ax.collections)
    notes = [f"bands: {BAND[1] - BAND[0]:.0%} of the seeds"] if bands else []
    if "stage" in dataset.coords:
        notes.append("dots: the end of a stage")
    ax.legend(title="\n".join(notes) or None, title_fontsize="small", alignment="left")


def _unresolved(ax: Axes, least: float, dataset: xr.Dataset) -> None:
    """Shade the risks that are smaller than the errors of their parts."""
    resolution = json.loads(dataset.attrs.get("notes", "{}")).get(
        "risk_resolution", 0.0
    )
    if least < resolution:
        ax.axhspan(
            least, resolution, color=GREY, alpha=0.15, lw=0, label="not resolved"
        )


def _band(
    ax: Axes,
    times: np.ndarray,
    values: np.ndarray,
    colour: str,
    label: str | None,
    **line: Any,
) -> None:
    """Mean over seeds with the central 80 % of them."""
    ax.plot(
        times, values.mean(axis=0), color=colour, label=label, **{"lw": 1.3, **line}
    )
    if values.shape[0] > 1:
        low, high = np.quantile(values, BAND, axis=0)
        ax.fill_between(times, low, high, color=colour, alpha=0.22, lw=0)


def _marks(i: int, points: int) -> Options:
    """Dash and marker of the i-th simulation; markers of different simulations stand at
    different places.
    """
    step = max(1, points // EVERY)
    return {
        "ls": SIMULATION_LINES[i % 3],
        "marker": MARKERS[i % len(MARKERS)],
        "ms": 4,
        "markevery": ((1 + 2 * i) * step // 5 % max(1, points), step),
    }


def trajectory(
    dataset: xr.Dataset,
    figure: Figure | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    *,
    entries: str | Sequence[str] = "M",
    clock: str = "time",
    quantity: str = "risk",
) -> Figure:
    """Risk and overlaps of one result against time.

    Parameters
    ----------
    dataset : xarray.Dataset
        From `solve` or `solve_stages`.
    figure : matplotlib Figure, optional
        Where to draw: an empty figure, or one made by this function, to which the
        result is added.
    ax : pair of Axes, optional
        The panels for risk and overlaps, in a figure of your own.
    entries : str or sequence of str
        What the right panel shows: ``"M"``, ``"Q"`` or ``"a"`` with all their entries,
        single ones such as ``"M12"`` (neuron 1, direction 2) or ``"Q11"``, and ``"m"``,
        the root mean square over the neurons.
    clock : str
        ``"time"``, ``"step"``, ``"sample"`` or ``"alpha"``.
    quantity : str
        What is drawn on the left: ``"risk"``, ``"excess_risk"``, ``"loss"`` or, for
        labels ±1, ``"error"``.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2"),
    ...     tl.SGD(lr="0.1/d", geometry="projected"),
    ... )
    >>> run = tl.solve(
    ...     problem,
    ...     algorithm,
    ...     tl.Chain(100),
    ...     tl.Overlaps([[1.0]], [[0.5]]),
    ...     time=0.1,
    ...     save=2,
    ...     seeds=3,
    ... )
    >>> trajectory(run, clock="step").axes[0].get_legend_handles_labels()[1]
    ['Chain, d = 100, 3 seeds']
    """
    check_result(dataset)
    choice("clock", clock, CLOCKS)
    _check_quantity(quantity, [dataset])
    curves = curves_of(dataset, entries)
    with house_style():
        figure, (left, right), whole = canvas(2, (9.2, 3.6), figure, ax, overlay=True)
        colour = COLOURS.get(_word(dataset), COLOURS["other"])
        number = len(
            {
                line.get_gid()
                for line in left.get_lines()
                if str(line.get_gid()).startswith("result")
            }
        )
        style: Options = {"ls": LINES[number % 4]} if number else {}
        if "stage" in dataset.coords:
            _stages(
                left,
                dataset,
                clock,
                [(dataset[quantity].values, colour, _label(dataset))],
                style,
            )
            _stages(right, dataset, clock, _coloured(curves), style)
        else:
            times = dataset[clock].values
            _band(
                left, times, dataset[quantity].values, colour, _label(dataset), **style
            )
            if quantity == "risk":
                _training(left, times, dataset, _label(dataset), color=colour)
            _curves(right, times, curves, style)
        for line in left.get_lines():
            if line.get_gid() is None:
                line.set_gid(f"result {number}")
        _risk_axis(left, dataset, quantity)
        _entry_axis(right, [name for name, _ in curves])
        for panel in (left, right):
            _clock_axis(panel, dataset, clock)
        if whole:
            house_title(figure, *_title(dataset))
    return figure


def _training(
    ax: Axes, times: np.ndarray, dataset: xr.Dataset, label: str, **line: Any
) -> None:
    """The risk on the samples that are trained on, where they are reused."""
    if "train_risk" in dataset:
        look = {"ls": (0, (1, 1)), "lw": 1.4, **line}
        ax.plot(
            times,
            dataset.train_risk.values.mean(axis=0),
            label=f"{label}: training",
            **look,
        )


def _stages(
    ax: Axes,
    dataset: xr.Dataset,
    clock: str,
    curves: list[tuple[np.ndarray, str, str]],
    style: Options,
) -> None:
    """Values, colours and names of curves, every seed along its own clock."""
    times, seeds, stage = (
        dataset[clock].values,
        dataset.sizes["seed"],
        dataset.stage.values,
    )
    ends = np.flatnonzero(
        stage[1:] > stage[:-1]
    )  # last save points of all stages but the last
    line: Options = {"lw": 1.0, "alpha": max(0.15, min(1.0, FAINT / seeds)), **style}
    for values, colour, name in curves:
        for i in range(seeds):
            ax.plot(
                times[i], values[i], color=colour, label=None if i else name, **line
            )
        if len(ends):
            ax.scatter(times[:, ends], values[:, ends], s=14, color=colour, zorder=4)


def _coloured(
    curves: list[tuple[str, np.ndarray]],
) -> list[tuple[np.ndarray, str, str]]:
    """Entries with their colours, one for each direction or for each entry of Q, and
    their symbols.
    """
    return [
        (values, DIRECTIONS[_number(name, i)], symbol(name))
        for i, (name, values) in enumerate(curves)
    ]


def _curves(
    ax: Axes, times: np.ndarray, curves: list[tuple[str, np.ndarray]], style: Options
) -> None:
    """Every entry: bands of a few, thin lines of many."""
    for values, colour, name in _coloured(curves):
        if len(curves) > MANY:
            ax.plot(
                times, values.mean(axis=0), color=colour, lw=0.8, label=name, **style
            )
        else:
            _band(ax, times, values, colour, name, **style)


def _number(name: str, i: int) -> int:
    """Which colour an entry has: that of its direction, or its own."""
    return int(name[1:].split(",")[-1]) - 1 if name[0] in "Mm" else i


def _entry_axis(ax: Axes, names: list[str]) -> None:
    """What the right panel shows, with a legend of colours where there are several."""
    letters = "".join(dict.fromkeys(name[0] for name in names))
    single = len({name[1:].split(",")[-1] for name in names}) == 1
    words = {
        "M": "overlap $M_{j1}$" if single else "overlap $M_{jr}$",
        "Q": "overlap $Q_{jl}$",
        "a": "second layer $a_j$",
        "m": "overlap  $m_r = \\langle M_{jr}^2 \\rangle_j^{1/2}$",
    }
    ax.set_ylabel(
        words[letters] if len(letters) == 1 else "overlaps " + ", ".join(letters)
    )
    named: Options = {}
    for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
        named.setdefault(
            name, handle
        )  # of several neurons or results, the first stands for the direction
    if len(named) > 1 or (letters != "M" and len(names) > 1):
        ax.legend(named.values(), named, ncols=1 + len(named) // 7)


def _distinct(labels: dict[str, str]) -> dict[str, str]:
    """Labels, with the name in the tree where two would be the same."""
    texts = list(labels.values())
    return {
        name: f"{text} ({name})" if texts.count(text) > 1 else text
        for name, text in labels.items()
    }


def _colours(words: dict[str, str]) -> dict[str, str]:
    """A colour for each simulation: that of its method, or another one if that is
    taken.
    """
    wishes = {name: COLOURS.get(word, COLOURS["other"]) for name, word in words.items()}
    out: dict[str, str] = {}
    for name, wish in wishes.items():
        free = [
            colour
            for colour in DIRECTIONS
            if colour not in wishes.values() and colour not in out.values()
        ]
        out[name] = wish if wish not in out.values() or not free else free[0]
    return out


@in_house_style
def compare(
    comparison: Comparison | xr.DataTree,
    figure: Figure | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    *,
    entries: str | Sequence[str] = "m",
    clock: str = "time",
    quantity: str = "risk",
) -> Figure:
    """Risk and overlaps of all methods of a comparison: theory as lines, simulations
    with their seed bands.

    Parameters
    ----------
    comparison : Comparison or xarray.DataTree
        From `compare`.
    entries, clock, quantity : str
        What the right panel shows, the clock, and what is drawn on the left, as for
        `trajectory`.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2"),
    ...     tl.SGD(lr="0.1/d", geometry="projected"),
    ... )
    >>> start, methods = tl.Overlaps([[1.0]], [[0.5]]), [tl.Chain(10), tl.Chain(15)]
    >>> both = tl.compare(problem, algorithm, methods, start, time=0.1, save=2, seeds=3)
    >>> compare(both, entries=["M11", "Q11"]).axes[0].get_legend_handles_labels()[1]
    ['Chain, d = 10, 3 seeds', 'Chain, d = 15, 3 seeds']
    """
    known = comparison if isinstance(comparison, Comparison) else Comparison(comparison)
    choice("clock", clock, CLOCKS)
    results = known.results
    for dataset in results.values():
        check_result(dataset, "comparison")
    _check_quantity(quantity, results.values())
    reference = results[known.reference]
    labels = _distinct({name: _label(dataset) for name, dataset in results.items()})
    simulations = [name for name, dataset in results.items() if _random(dataset)]
    theories = [name for name in results if name not in simulations]
    colours = _colours({name: _word(results[name]) for name in simulations})
    shown = {name: curves_of(dataset, entries) for name, dataset in results.items()}
    count = len(shown[known.reference])
    figure, (left, right), whole = canvas(2, (9.2, 3.6), figure, ax)
    for i, name in enumerate(simulations):
        times, marks = (
            results[name][clock].values,
            _marks(i, results[name].sizes["time"]),
        )
        _band(
            left,
            times,
            results[name][quantity].values,
            colours[name],
            labels[name],
            **marks,
        )
        if quantity == "risk":
            _training(left, times, results[name], labels[name], color=colours[name])
        for r, (entry, values) in enumerate(shown[name]):
            # with several entries colours tell these, so dashes and markers have to
            # tell the simulations
            colour = colours[name] if count == 1 else DIRECTIONS[_number(entry, r)]
            _band(right, times, values, colour, None, **marks)
    for i, name in enumerate(theories):
        times = results[name][clock].values
        line: Options = {
            "color": COLOURS["theory"],
            "ls": THEORY_LINES[i % 3],
            "lw": 1.4,
            "zorder": 5,
        }
        left.plot(
            times,
            results[name][quantity].values.mean(axis=0),
            label=labels[name],
            **line,
        )
        if quantity == "risk":
            _training(left, times, results[name], labels[name], **{**line, "lw": 0.9})
        for j, (_, values) in enumerate(shown[name]):
            right.plot(
                times,
                values.mean(axis=0),
                label=labels[name] if j == 0 and count > 1 else None,
                **line,
            )
    _risk_axis(left, reference, quantity)
    if count > 1:
        for r, (entry, _) in enumerate(shown[known.reference]):
            right.plot([], [], color=DIRECTIONS[_number(entry, r)], label=symbol(entry))
    _entry_axis(right, [name for name, _ in shown[known.reference]])
    for panel in (left, right):
        _clock_axis(panel, reference, clock)
    if whole:
        house_title(figure, *_title(reference))
    return figure
