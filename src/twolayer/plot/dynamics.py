"""Figures of runs: the risk (or loss, or error) on the left, the overlaps on the right, against the time t.

Theory is a black line. A simulation is the mean over its seeds with a band that holds the central 80 % of them. Runs in
stages have no common clock: their seeds are drawn one by one (staged.py).
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

from twolayer.numerics.errors import InputError, choice, reject
from twolayer.plot.canvas import canvas
from twolayer.plot.staged import draw_stages, is_staged
from twolayer.plot.style import COLOURS, DIRECTIONS, GREY, TITLE, house_style
from twolayer.running.comparison import Comparison
from twolayer.running.dataset import quantities
from twolayer.task.method import METHODS, Outcome

__all__ = ["compare", "trajectory"]

BAND = (0.1, 0.9)
QUANTITIES = ("risk", "excess_risk", "loss", "error")
MANY = 8  # more overlaps than this are drawn as thin lines without bands
LINES = ("-", "--", ":", "-.")
THEORY_LINES = ("--", ":", "-.")
SIMULATION_LINES = ("-", "-.", ":")


def _told(dataset: xr.Dataset) -> dict[str, Any]:
    """The description of a result; of a run in stages, that of the first."""
    told: dict[str, Any] = json.loads(dataset.attrs["description"])
    return told["stages"][0] if "stages" in told else told


def _random(dataset: xr.Dataset) -> bool:
    """Whether a result is a simulation; of a method not known here, the number of seeds tells."""
    word = _word(dataset)
    return METHODS[word].stochastic if word in METHODS else dataset.sizes["seed"] > 1


def _word(dataset: xr.Dataset) -> str:
    return str(_told(dataset)["method"]["name"])


def _label(dataset: xr.Dataset) -> str:
    """A result in the legend: method, dimension, seeds."""
    method, word = _told(dataset)["method"], _word(dataset)
    parts = [METHODS[word].__name__ if word in METHODS else word]
    if "dim" in method:
        size = "∞" if method["dim"] == "inf" else f"{method['dim']:,}".replace(",", "\u2009")
        parts.append(f"d = {size}")
    seeds = dataset.sizes["seed"]
    if _random(dataset):
        parts.append(f"{seeds} seed{'s' if seeds > 1 else ''}")
    diverged = int((dataset.outcome.values == Outcome.DIVERGED).reshape(seeds, -1).any(1).sum())
    return ", ".join(parts) + (f" ({diverged} diverged)" if diverged else "")


def _title(dataset: xr.Dataset, width: int) -> str:
    """Problem and algorithm, in lines of about ``width`` characters."""
    problem, whole = _told(dataset)["problem"], json.loads(dataset.attrs["description"])
    target = problem["target"]
    if isinstance(target, dict):
        target = f"teacher {target['teacher']}, k = {target['k']}"
    parts = [f"target {target if len(target) < 70 else target[:69] + '…'}"]
    parts.append(f"{problem['activation']}, p = {problem['width']}")
    if problem["noise"]:
        law = problem.get("noise_law", "gaussian")
        parts.append(f"Δ = {problem['noise']:g}" + ("" if law == "gaussian" else f" ({law})"))
    if problem.get("flips"):
        parts.append(f"{problem['flips']:.0%} flipped")
    if problem.get("normalisation", "mean") != "mean":
        parts.append(str(problem["normalisation"]))
    stages = whole.get("stages", [whole])
    for number, stage in enumerate(stages):
        algorithm = stage["algorithm"]
        said = f"lr = {algorithm['lr']}, batch {algorithm['batch']}, {algorithm['geometry']}"
        if algorithm["loss"] != "squared":
            said += f", {algorithm['loss']} loss"
        parts.append(said if len(stages) == 1 else f"stage {number + 1}: {said}")
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) > width:
            lines.append(part)
        else:
            lines[-1] += f"   {part}"
    return "\n".join(lines)


def _time_axis(ax: Axes, dataset: xr.Dataset) -> None:
    unit = dataset.time.attrs.get("units", "")
    power = f"   [$d^{{{unit.removeprefix('d**')}}}$]" if unit else ""
    divisor = "p" if _told(dataset)["problem"].get("normalisation", "mean") == "mean" else "N"
    ax.set_xlabel(f"time  $t = \\mathrm{{lr}}\\cdot\\mathrm{{step}}\\,/\\,{divisor}$" + power)


def _check_quantity(quantity: str, datasets: Iterable[xr.Dataset]) -> None:
    """Refuse what results do not hold."""
    choice("quantity", quantity, QUANTITIES)
    for dataset in datasets:
        if quantity not in dataset:
            held = ", ".join(name for name in QUANTITIES if name in dataset)
            raise InputError(f"Argument `quantity`: {_label(dataset)} has no {quantity!r}, but {held}.")


def _risk_axis(ax: Axes, dataset: xr.Dataset, quantity: str) -> None:
    """A logarithmic axis where that helps, and the level Δ/2 that no network gets below."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in ax.get_lines()])
    positive = drawn[drawn > 0]
    floor = _told(dataset)["problem"]["noise"] / 2 if quantity == "risk" else 0.0
    if floor and not any(line.get_gid() == f"floor {floor}" for line in ax.get_lines()):
        ax.axhline(floor, color=GREY, lw=0.8, ls=":", gid=f"floor {floor}")
        place: Any = ("axes fraction", "data")
        ax.annotate("Δ/2", (1.01, floor), xycoords=place, va="center", ha="left", color=GREY, fontsize=8)
    if positive.size and positive.max() > 3 * positive.min():
        ax.set_yscale("log")
        if quantity in ("risk", "excess_risk"):
            _unresolved(ax, positive.min(), dataset)
    ax.set_ylabel(quantity.replace("_", " "))
    bands = any(isinstance(collection, PolyCollection) for collection in ax.collections)
    notes = [f"bands: {BAND[1] - BAND[0]:.0%} of the seeds"] if bands else []
    if is_staged(dataset):
        notes.append("dots: the end of a stage")
    ax.legend(title="\n".join(notes) or None, title_fontsize=8, alignment="left")


def _unresolved(ax: Axes, least: float, dataset: xr.Dataset) -> None:
    """Shade the risks that are smaller than the errors of their parts."""
    resolution = json.loads(dataset.attrs.get("notes", "{}")).get("risk_resolution", 0.0)
    if least < resolution:
        ax.axhspan(least, resolution, color=GREY, alpha=0.15, lw=0, label="not resolved")


def _band(ax: Axes, times: np.ndarray, values: np.ndarray, colour: str, label: str | None, **line: Any) -> None:
    """Mean over seeds with the central 80 % of them."""
    ax.plot(times, values.mean(axis=0), color=colour, label=label, **{"lw": 1.3, **line})
    if values.shape[0] > 1:
        low, high = np.quantile(values, BAND, axis=0)
        ax.fill_between(times, low, high, color=colour, alpha=0.22, lw=0)


def trajectory(
    dataset: xr.Dataset,
    figure: Figure | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    quantity: str = "risk",
) -> Figure:
    """Risk and overlaps M_jr of one result against time.

    Parameters
    ----------
    dataset : xarray.Dataset
        From `solve` or `solve_stages`.
    figure : matplotlib Figure, optional
        Where to draw: an empty figure, or one made by this function, to which the result is added.
    ax : pair of Axes, optional
        The panels for risk and overlaps, in a figure of your own.
    quantity : str
        What is drawn on the left: ``"risk"``, ``"excess_risk"``, ``"loss"`` or, for labels ±1, ``"error"``.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = tl.Problem("He2(z1)", "He2"), tl.SGD(lr="0.1/d", geometry="projected")
    >>> run = tl.solve(problem, algorithm, tl.Chain(100), tl.Overlaps([[1.0]], [[0.5]]), time=0.1, save=2, seeds=3)
    >>> trajectory(run).axes[0].get_legend_handles_labels()[1]
    ['Chain, d = 100, 3 seeds']
    """
    if not isinstance(dataset, xr.Dataset) or "risk" not in dataset:
        reject("dataset", type(dataset).__name__, "a result of solve")
    _check_quantity(quantity, [dataset])
    with house_style():
        figure, (left, right), whole = canvas(2, (8.4, 3.4), figure, ax, overlay=True)
        colour, k = COLOURS.get(_word(dataset), COLOURS["other"]), dataset.sizes["direction"]
        # colours tell the directions on the right, so the lines have to tell the results
        style: Any = {"ls": LINES[len(left.get_legend_handles_labels()[1]) % len(LINES)]}
        if is_staged(dataset):
            draw_stages(left, right, dataset, colour, _label(dataset), style, quantity)
        else:
            _band(left, dataset.time.values, dataset[quantity].values, colour, _label(dataset), **style)
            _overlaps(right, dataset, style)
        _risk_axis(left, dataset, quantity)
        right.set_ylabel("overlap $M_{jr}$" if k > 1 else "overlap $M_{j1}$")
        if k > 1:
            named: dict[str, Any] = {}
            for handle, name in zip(*right.get_legend_handles_labels(), strict=True):
                named.setdefault(name, handle)  # of several results, the first stands for the direction
            right.legend(named.values(), named)
        for panel in (left, right):
            _time_axis(panel, dataset)
        if whole:
            figure.suptitle(_title(dataset, 110), **TITLE)
    return figure


def _overlaps(ax: Axes, dataset: xr.Dataset, style: dict[str, Any]) -> None:
    """Every M_jr: bands of a few, thin lines of many."""
    times, (p, k) = dataset.time.values, dataset.M.shape[2:]
    for r in range(k):
        for j in range(p):
            name = f"$M_{{j{r + 1}}}$" if j == 0 else None
            values = dataset.M.values[:, :, j, r]
            if p * k > MANY:
                ax.plot(times, values.mean(axis=0), color=DIRECTIONS[r % 8], lw=0.8, label=name, **style)
            else:
                _band(ax, times, values, DIRECTIONS[r % 8], name, **style)


def _distinct(labels: dict[str, str]) -> dict[str, str]:
    """Labels, with the name in the tree where two would be the same."""
    texts = list(labels.values())
    return {name: f"{text} ({name})" if texts.count(text) > 1 else text for name, text in labels.items()}


def _colours(words: dict[str, str]) -> dict[str, str]:
    """A colour for each simulation: that of its method, or another one if that is taken."""
    wishes = {name: COLOURS.get(word, COLOURS["other"]) for name, word in words.items()}
    out: dict[str, str] = {}
    for name, wish in wishes.items():
        free = [colour for colour in DIRECTIONS if colour not in wishes.values() and colour not in out.values()]
        out[name] = wish if wish not in out.values() or not free else free[0]
    return out


def compare(
    comparison: Comparison | xr.DataTree,
    figure: Figure | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    quantity: str = "risk",
) -> Figure:
    """Risk and overlaps of all methods of a comparison: theory as lines, simulations with their seed bands.

    Parameters
    ----------
    comparison : Comparison or xarray.DataTree
        From `compare`.
    figure : matplotlib Figure, optional
        Where to draw: an empty figure.
    ax : pair of Axes, optional
        The panels for risk and overlaps, in a figure of your own.
    quantity : str
        What is drawn on the left: ``"risk"``, ``"excess_risk"``, ``"loss"`` or, for labels ±1, ``"error"``.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = tl.Problem("He2(z1)", "He2"), tl.SGD(lr="0.1/d", geometry="projected")
    >>> start, methods = tl.Overlaps([[1.0]], [[0.5]]), [tl.Chain(10), tl.Chain(15)]
    >>> both = tl.compare(problem, algorithm, methods, start, time=0.1, save=2, seeds=3)
    >>> compare(both).axes[0].get_legend_handles_labels()[1]
    ['Chain, d = 10, 3 seeds', 'Chain, d = 15, 3 seeds']
    """
    known = comparison if isinstance(comparison, Comparison) else Comparison(comparison)
    results = known.results
    _check_quantity(quantity, results.values())
    reference = results[known.reference]
    names = [n for n in quantities(reference) if n != "risk"]
    labels = _distinct({name: _label(dataset) for name, dataset in results.items()})
    simulations = [name for name, dataset in results.items() if _random(dataset)]
    theories = [name for name in results if name not in simulations]
    colours = _colours({name: _word(results[name]) for name in simulations})
    with house_style():
        figure, (left, right), whole = canvas(2, (9.2, 3.6), figure, ax)
        for i, name in enumerate(simulations):
            times, values = results[name].time.values, quantities(results[name])
            _band(left, times, results[name][quantity].values, colours[name], labels[name])
            for r, overlap in enumerate(names):
                if len(names) == 1:
                    _band(right, times, values[overlap], colours[name], None)
                else:  # colours tell the directions here, so the lines have to tell the simulations
                    _band(right, times, values[overlap], DIRECTIONS[r % 8], None, ls=SIMULATION_LINES[i % 3])
        for i, name in enumerate(theories):
            times, values = results[name].time.values, quantities(results[name])
            line: Any = {"color": COLOURS["theory"], "ls": THEORY_LINES[i % 3], "lw": 1.4, "zorder": 5}
            left.plot(times, results[name][quantity].values.mean(axis=0), label=labels[name], **line)
            for overlap in names:
                right.plot(times, values[overlap].mean(axis=0), **line)
        _risk_axis(left, reference, quantity)
        if len(names) > 1:
            for r, overlap in enumerate(names):
                right.plot([], [], color=DIRECTIONS[r % 8], label=f"$m_{{{overlap[1:]}}}$")
            right.legend()
        right.set_ylabel("overlap  $m_r = \\langle M_{jr}^2 \\rangle_j^{1/2}$")
        for panel in (left, right):
            _time_axis(panel, reference)
        if whole:
            figure.suptitle(_title(reference, 120), **TITLE)
    return figure
