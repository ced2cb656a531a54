"""Figures of runs: the risk (or loss, or error) on the left, the overlaps on the right,
against any of the clocks.

Theory is a line in ink. A simulation is the mean over its seeds with a band that holds
the central 80 % of them, or its single runs where these fall into two groups, as they
do where neurons choose between w* and −w*: the mean is then a curve that no run takes.
What is not positive is a gap on a logarithmic axis, and save points in geometric
progression have a logarithmic clock. Seeds of a run in stages leave them at steps of
their own, so that there is no common time at which a mean could be taken: each is drawn
along its own clock, with a mark where it goes on to the next stage.

The right panel of a comparison shows what its table judges: means of single overlaps.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from twolayer.numerics.arguments import Json, Options
from twolayer.numerics.errors import InputError, choice
from twolayer.numerics.foreign_files import reading
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.entries import (
    BAND,
    EntryCurve,
    curves_of,
    in_groups,
    seed_curve,
    symbol,
)
from twolayer.plot.panels import (
    clear_legends,
    end_where_resolved,
    headed_legend,
    plain_ticks,
)
from twolayer.plot.style import (
    COLOURS,
    DIRECTIONS,
    GREY,
    house_style,
    house_title,
    numbered,
    positive,
)
from twolayer.plot.titles import algorithm_parts, problem_parts
from twolayer.running.comparison import Comparison
from twolayer.running.dataset import check_result
from twolayer.task.method import METHODS, Outcome

__all__ = ["compare", "trajectory"]

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
# runs that can be told apart where each is drawn; of more, each is fainter
FAINT = 6.0
BAND_NOTE = f"bands: {BAND[1] - BAND[0]:.0%} of the seeds"
ERROR_NOTE = "bands: two standard errors"
RUNS_NOTE = "thin lines: single runs"
TRAINING = ": training"
SAID = {"agree": "agrees", "differ": "differs", "undecided": "undecided"}


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


class _Words(NamedTuple):
    """What is said of a result, part by part."""

    label: str
    problem: list[str]
    algorithm: list[str]
    run: list[str]  # what tells results of the same description apart


def _words(dataset: xr.Dataset) -> _Words:
    """The words of a result: method, task and algorithms."""
    told = json.loads(dataset.attrs["description"])
    stages = told.get("stages", [told])
    with reading("The description of this result"):
        trained = any(stage["algorithm"].get("train_second_layer") for stage in stages)
        parts = [algorithm_parts(stage["algorithm"]) for stage in stages]
        if len(parts) > 1:
            algorithm = [
                f"stage {i + 1}: {', '.join(one)}" for i, one in enumerate(parts)
            ]
        else:
            algorithm = parts[0]
        problem = problem_parts(stages[0]["problem"], trained)
    run = [f"seed {stages[0].get('run', {}).get('seed', 0)}"]
    if "start_M" in dataset:
        size = float(np.sqrt((dataset.start_M.values**2).mean()))
        run.append(f"from overlaps of {size:.2g}")
    return _Words(_label(dataset), problem, algorithm, run)


def _title(words: Sequence[_Words]) -> list[str]:
    """What all results have in common: of the task in one line, of the algorithm (and
    the method, where that is the same) in another.
    """
    problem = _common([one.problem for one in words])
    algorithm = _common([one.algorithm for one in words])
    staged = any(part.startswith("stage 1:") for part in algorithm)
    lines = ["   ".join(problem), ("   " if staged else ", ").join(algorithm)]
    if len(words) > 1 and _alike(words):
        lines[1] += f"   {words[0].label}"
    return lines


def _alike(words: Sequence[_Words]) -> bool:
    """Whether results differ in their description, but not in their method."""
    parts = {(*one.problem, *one.algorithm) for one in words}
    return len({one.label for one in words}) == 1 and len(parts) == len(words)


def _common(lists: Sequence[list[str]]) -> list[str]:
    return [part for part in lists[0] if all(part in other for other in lists[1:])]


def _names(words: Sequence[_Words]) -> list[str]:
    """Results in the legend: the method, and what not all of them have in common."""
    if len(words) == 1:
        return [words[0].label]
    common = set(_common([[*one.problem, *one.algorithm] for one in words]))
    names = []
    for one in words:
        parts = [part for part in one.problem + one.algorithm if part not in common]
        label = [] if _alike(words) else [one.label]
        names.append(": ".join([*label, *([", ".join(parts)] if parts else [])]))
    shared = _common([one.run for one in words])
    doubles = [name for name in names if names.count(name) > 1]
    for i, one in enumerate(words):
        if names[i] in doubles:
            parts = [part for part in one.run if part not in shared]
            names[i] = ", ".join([names[i], *parts])
    return names


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


def _risk_axis(
    ax: Axes, dataset: xr.Dataset, quantity: str, notes: Iterable[str]
) -> None:
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
    said = list(dict.fromkeys(notes))
    if seen.size and seen.max() > 3 * seen.min():
        ax.set_yscale("log")
        for line in ax.get_lines():
            line.set_ydata(positive(line.get_ydata()))
        if quantity in ("risk", "excess_risk"):
            end = end_where_resolved(ax, seen.min(), seen.max(), dataset)
            said += [end] if end else []
        plain_ticks(ax.yaxis)
    ax.set_ylabel(quantity.replace("_", " "))
    if "stage" in dataset.coords:
        said.append("dots: the end of a stage")
    headed_legend(ax, *ax.get_legend_handles_labels(), heading=said)


def _drawn(
    ax: Axes,
    times: np.ndarray,
    curve: EntryCurve,
    colour: str,
    label: str | None,
    judged: bool = False,
    **line: Any,
) -> str:
    """Draw the mean over seeds with its band, or all runs where they part; what there
    is to say of it.

    A mean that is ``judged`` is marked among its runs, too.
    """
    if curve.parted:
        seeds = len(curve.values)
        faint = {"lw": 0.8, "alpha": _faint(seeds), "ls": line.get("ls", "-")}
        for i, run in enumerate(curve.values):
            ax.plot(times, run, color=colour, label=None if i else label, **faint)
        if not judged:
            return RUNS_NOTE
        ax.plot(times, curve.mean, color=colour, **{**line, "ls": ""})
        return f"{RUNS_NOTE}, marks: their mean"
    ax.plot(times, curve.mean, color=colour, label=label, **{"lw": 1.3, **line})
    if curve.band is None:
        return ""
    ax.fill_between(times, *curve.band, color=colour, alpha=0.22, lw=0)
    return ERROR_NOTE if curve.name[0] == "m" else BAND_NOTE


def _faint(seeds: int) -> float:
    """How opaque each of so many runs is."""
    return max(0.25, min(1.0, FAINT / seeds))


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
    entries: str | Sequence[str] | None = None,
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
        result is added. The title then keeps what all results have in common, and the
        legend says what differs.
    ax : pair of Axes, optional
        The panels for risk and overlaps, in a figure of your own.
    entries : str or sequence of str, optional
        What the right panel shows: ``"M"``, ``"Q"`` or ``"a"`` with all their entries,
        single ones such as ``"M12"`` (neuron 1, direction 2) or ``"Q11"``, and ``"m"``,
        the root mean square over the neurons of what seeds have in common. By default
        ``"M"``, and ``"m"`` where there are more than 16 overlaps.
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
        grow = figure is None and ax is None
        figure, (left, right), whole = canvas(2, (9.2, 3.6), figure, ax, overlay=True)
        earlier = _results.setdefault(left, [])
        colour = _free_colour(_word(dataset), [one.colour for one in earlier])
        style: Options = {"ls": LINES[len(earlier) % 4]} if earlier else {}
        before = list(left.get_lines())
        notes: set[str] = set()
        if "stage" in dataset.coords:
            name = _label(dataset)
            values = dataset[quantity].values
            _stages(left, dataset, clock, [(values, colour, name)], style)
            every = [(c.values, hue, label) for c, hue, label in _coloured(curves)]
            _stages(right, dataset, clock, every, style)
        else:
            times = dataset[clock].values
            risk = seed_curve(quantity, dataset[quantity].values)
            notes.add(_drawn(left, times, risk, colour, _label(dataset), **style))
            if quantity == "risk":
                _training(left, times, dataset, _label(dataset), color=colour)
            right_notes = _curves(right, times, curves, colour, style)
            # said once, where both panels show the same
            _say(right, right_notes - notes)
        drawn = [line for line in left.get_lines() if line not in before]
        earlier.append(_Result(_words(dataset), colour, drawn, notes - {""}))
        _rename(earlier)
        said = [note for one in earlier for note in sorted(one.notes)]
        _risk_axis(left, dataset, quantity, said)
        _entry_axis(right, [curve.name for curve in curves])
        for panel in (left, right):
            _clock_axis(panel, dataset, clock)
        if whole:
            house_title(figure, *_title([one.words for one in earlier]))
        clear_legends(figure, (left, right), grow)
    return figure


class _Result(NamedTuple):
    """A result that a figure shows."""

    words: _Words
    colour: str
    lines: list[Line2D]
    notes: set[str]


_results: weakref.WeakKeyDictionary[Axes, list[_Result]] = weakref.WeakKeyDictionary()
"""What `trajectory` has drawn, by the left panel, while figures are alive."""


def _rename(results: Sequence[_Result]) -> None:
    """Say in the legend what tells results apart."""
    names = _names([one.words for one in results])
    for one, name in zip(results, names, strict=True):
        for line in one.lines:
            label = str(line.get_label())
            if not label.startswith("_"):
                training = label.endswith(TRAINING)
                line.set_label(name + (TRAINING if training else ""))


def _free_colour(word: str, taken: Sequence[str]) -> str:
    """The colour of a method, or another one if that is taken."""
    wish = COLOURS.get(word, COLOURS["other"])
    free = [colour for colour in (wish, *DIRECTIONS) if colour not in taken]
    return free[0] if free else wish


def _training(
    ax: Axes, times: np.ndarray, dataset: xr.Dataset, label: str, **line: Any
) -> None:
    """The risk on the samples that are trained on, where they are reused."""
    if "train_risk" in dataset:
        look = {"ls": (0, (1, 1)), "lw": 1.4, **line}
        ax.plot(
            times,
            dataset.train_risk.values.mean(axis=0),
            label=f"{label}{TRAINING}",
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
    line: Options = {"lw": 1.0, "alpha": _faint(seeds), **style}
    for values, colour, name in curves:
        for i in range(seeds):
            ax.plot(
                times[i], values[i], color=colour, label=None if i else name, **line
            )
        if len(ends):
            ax.scatter(times[:, ends], values[:, ends], s=14, color=colour, zorder=4)


def _coloured(curves: Sequence[EntryCurve]) -> list[tuple[EntryCurve, str, str]]:
    """Entries with a colour each, or one for all of a kind where they are many, and
    what they are called.
    """
    names = in_groups([curve.name for curve in curves], most=len(list(DIRECTIONS)))
    kinds = list(dict.fromkeys(names))
    colours = dict(zip(kinds, numbered(len(kinds)), strict=True))
    return [
        (curve, colours[name], name) for curve, name in zip(curves, names, strict=True)
    ]


def _curves(
    ax: Axes, times: np.ndarray, curves: list[EntryCurve], colour: str, style: Options
) -> set[str]:
    """Every entry: bands of a few, thin lines of many; what there is to say of them.

    A single one has the colour of its result.
    """
    notes = set()
    for curve, own, name in _coloured(curves):
        hue = colour if len(curves) == 1 else own
        if len(curves) > MANY:
            thin = curve._replace(band=None)
            notes.add(_drawn(ax, times, thin, hue, name, **{"lw": 0.8, **style}))
        else:
            notes.add(_drawn(ax, times, curve, hue, name, **style))
    return notes - {""}


def _say(ax: Axes, notes: Iterable[str]) -> None:
    """Add lines to the heading that the legend of a panel will have."""
    for note in sorted(notes):
        if note not in [line.get_label() for line in ax.get_lines()]:
            ax.plot([], [], " ", label=note, gid="note")


def _entry_axis(ax: Axes, names: list[str]) -> None:
    """What the right panel shows, with a legend of colours where there are several."""
    letters = "".join(dict.fromkeys(name[0] for name in names))
    single = len({name[1:].split(",")[-1] for name in names}) == 1
    words = {
        "M": "overlap $M_{j1}$" if single else "overlap $M_{jr}$",
        "Q": "overlap $Q_{jl}$",
        "a": "second layer $a_j$",
        "m": r"overlap  $m_r = \langle (\mathrm{E} M_{jr})^2 \rangle_j^{1/2}$",
    }
    if len(names) == 1 and letters in "MQ":
        words[letters] = f"overlap {symbol(names[0])}"
    ax.set_ylabel(
        words[letters] if len(letters) == 1 else "overlaps " + ", ".join(letters)
    )
    notes = [str(x.get_label()) for x in ax.get_lines() if x.get_gid() == "note"]
    named: Options = {}
    for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
        # of several neurons or results, the first stands for all of a kind
        if name not in notes:
            named.setdefault(name, handle)
    if len(named) > 1 or notes or (letters != "M" and len(names) > 1):
        columns = 1 + len(named) // 7
        headed_legend(ax, list(named.values()), list(named), notes, columns)


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
    out: dict[str, str] = {}
    for name, word in words.items():
        others = [COLOURS.get(x, COLOURS["other"]) for x in words.values() if x != word]
        out[name] = _free_colour(word, [*out.values(), *others])
    return out


def _with_verdicts(labels: dict[str, str], known: Comparison) -> dict[str, str]:
    """Labels with the verdict of the table, so that figure and table say the same."""
    out = {}
    for name, label in labels.items():
        rows = [row for row in known.verdicts if row.method == name]
        told = [word for word in SAID if any(row.verdict == word for row in rows)]
        worst = next((w for w in ("differ", "undecided", "agree") if w in told), "")
        where = [row.quantity for row in rows if row.verdict == "differ"]
        of = f" in {', '.join(where)}" if where else ""
        out[name] = f"{label}: {SAID[worst]}{of}" if worst else label
    return out


@in_house_style
def compare(
    comparison: Comparison | xr.DataTree,
    figure: Figure | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    *,
    entries: str | Sequence[str] | None = None,
    clock: str = "time",
    quantity: str = "risk",
) -> Figure:
    """Risk and overlaps of all methods of a comparison: theory as lines, simulations
    with their seed bands, and the verdict on each.

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
    ['Chain, d = 10, 3 seeds', 'Chain, d = 15, 3 seeds: undecided']
    """
    known = comparison if isinstance(comparison, Comparison) else Comparison(comparison)
    choice("clock", clock, CLOCKS)
    results = known.results
    for dataset in results.values():
        check_result(dataset, "comparison")
    _check_quantity(quantity, results.values())
    reference = results[known.reference]
    labels = _distinct({name: _label(dataset) for name, dataset in results.items()})
    judged = _with_verdicts(labels, known)
    simulations = [name for name, dataset in results.items() if _random(dataset)]
    theories = [name for name in results if name not in simulations]
    colours = _colours({name: _word(results[name]) for name in simulations})
    shown = {name: curves_of(dataset, entries) for name, dataset in results.items()}
    count = len(shown[known.reference])
    notes: set[str] = set()
    right_notes: set[str] = set()
    grow = figure is None and ax is None
    figure, (left, right), whole = canvas(2, (9.2, 3.6), figure, ax)
    for i, name in enumerate(simulations):
        times = results[name][clock].values
        marks = _marks(i, results[name].sizes["time"])
        risk = seed_curve(quantity, results[name][quantity].values)
        notes.add(_drawn(left, times, risk, colours[name], judged[name], True, **marks))
        if quantity == "risk":
            _training(left, times, results[name], labels[name], color=colours[name])
        for curve, own, _ in _coloured(shown[name]):
            # with several entries colours tell these, so dashes and markers have to
            # tell the simulations
            colour = colours[name] if count == 1 else own
            many = curve._replace(band=None) if count > MANY else curve
            right_notes.add(_drawn(right, times, many, colour, None, True, **marks))
    for i, name in enumerate(theories):
        times = results[name][clock].values
        line: Options = {
            "color": COLOURS["theory"],
            "ls": THEORY_LINES[i % 3],
            "lw": 1.4,
            "zorder": 5,
        }
        mean = results[name][quantity].values.mean(axis=0)
        left.plot(times, mean, label=judged[name], **line)
        if quantity == "risk":
            _training(left, times, results[name], labels[name], **{**line, "lw": 0.9})
        for j, curve in enumerate(shown[name]):
            label = _label(results[name]) if j == 0 and count > 1 else None
            right.plot(times, curve.mean, label=label, **line)
    _risk_axis(left, reference, quantity, sorted(notes - {""}))
    if count > 1:
        kinds = {name: hue for _, hue, name in _coloured(shown[known.reference])}
        for kind, hue in kinds.items():
            right.plot([], [], color=hue, label=kind)
    _say(right, right_notes - notes - {""})
    _entry_axis(right, [curve.name for curve in shown[known.reference]])
    for panel in (left, right):
        _clock_axis(panel, reference, clock)
    if whole:
        house_title(figure, *_title([_words(reference)]))
    clear_legends(figure, (left, right), grow)
    return figure
