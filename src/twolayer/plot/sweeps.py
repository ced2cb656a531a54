"""Figures of sweeps: the mean over seeds along one axis as curves, over two axes as a
heat map.

Laws such as 0.1/d are drawn at their values where the sweep has one dimension d, and by
their text where it has many.
"""

from __future__ import annotations

import json

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from twolayer.numerics.errors import InputError, choice, reject, require
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.panels import clear_legends, headed_legend, plain_ticks
from twolayer.plot.style import DIRECTIONS
from twolayer.plot.titles import problem_line

__all__ = ["heatmap", "swept"]

SCHEMA = "twolayer-sweep/2"
MAIN = ("exit_time", "excess_risk", "risk")
# ratio of the largest to the smallest from which an axis or a colour is logarithmic
WIDE = 8.0
MEAN = "mean, two standard errors"
WORDS = {
    "run.dim": "dimension $d$",
    "method.dim": "dimension $d$",
    "run.time": "time $t$ at the end",
    "run.steps": "steps",
    "run.alpha": r"samples over dimension $\alpha$",
    "run.save": "save points",
    "run.seed": "seed",
    "run.until.value": "threshold",
    "algorithm.lr": "learning rate",
    "algorithm.batch": "batch size $n_b$",
    "algorithm.dataset": "samples that are reused",
    "algorithm.second_lr": "learning rate of the second layer",
    "problem.noise": r"noise $\Delta$",
    "problem.width": "width $p$",
    "problem.flips": "fraction of flipped labels",
    "risk": "risk",
    "excess_risk": "excess risk",
    "overlap": r"overlap $\|M\|_F$",
    "exit_time": "time $t$ at which the threshold is reached",
    "exit_step": "step at which the threshold is reached",
    "time": "time $t$ at the end",
    "step": "steps at the end",
    "alpha": r"$\alpha = $ samples$\,/\,d$ at the end",
}
"""Axes and variables of a sweep in words."""
FEW = 3  # values of an axis from which two of them make a map
MARKS = "os^Dv<>P"


def words_of(name: str) -> str:
    """An axis or a variable as a reader of the figure knows it.

    Examples
    --------
    >>> words_of("run.dim"), words_of("algorithm.weight_decay")
    ('dimension $d$', 'weight decay')
    """
    return WORDS.get(name, name.rpartition(".")[2].replace("_", " "))


@in_house_style
def swept(
    dataset: xr.Dataset,
    of: str | None = None,
    figure: Figure | None = None,
    ax: Axes | None = None,
) -> Figure:
    """A sweep as it is best seen: curves along one axis, or a heat map of two.

    Parameters
    ----------
    dataset : xarray.Dataset
        From `sweep`, or a store read by `load`. Of three axes or more some have to be
        chosen first, by ``.sel``.
    of : str, optional
        The variable; by default exit time or excess risk.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2"),
    ...     tl.SGD(lr="0.1/d", geometry="projected"),
    ... )
    >>> result = tl.sweep(
    ...     problem,
    ...     algorithm,
    ...     tl.Chain(100),
    ...     {"method.dim": [100, 200]},
    ...     time=0.1,
    ...     seeds=3,
    ... )
    >>> swept(result).axes[0].get_xlabel(), swept(result).axes[0].get_ylabel()
    ('dimension $d$', 'excess risk')
    """
    values, axes = _chosen(dataset, of)
    along = "save_point" in values.dims
    if len(axes) == 2 and not along and min(values.sizes[axis] for axis in axes) >= FEW:
        return heatmap(dataset, str(values.name), figure=figure, ax=ax)
    if len(axes) > (1 if along else 2):
        raise InputError(
            "Argument `dataset` must be cut to fewer axes by .sel, but has"
            f" {', '.join(axes)}."
        )
    grow = figure is None and ax is None
    figure, (ax,), _ = canvas(1, (5.6, 3.6), figure, ax)
    if along:
        _trajectories(ax, dataset, values, axes)
    elif axes:
        _curves(ax, dataset, values, axes)
    else:
        raise InputError("Argument `dataset` must have an axis of two values or more.")
    ax.set_ylabel(words_of(str(values.name)))
    ax.set_title(_task(dataset))
    positive = values.values[values.values > 0]
    if positive.size == np.isfinite(values.values).sum() and _wide(positive):
        ax.set_yscale("log")
        plain_ticks(ax.yaxis)
    several = len(ax.get_legend_handles_labels()[1]) > 1
    heading = [words_of(axes[-1])] if several else []
    if several and not along:
        heading.append(MEAN)
    headed_legend(ax, *ax.get_legend_handles_labels(), heading=heading)
    clear_legends(figure, [ax], grow)
    return figure


@in_house_style
def heatmap(
    dataset: xr.Dataset,
    of: str | None = None,
    x: str | None = None,
    y: str | None = None,
    figure: Figure | None = None,
    ax: Axes | None = None,
) -> Figure:
    """The mean over seeds of a variable of a sweep over two axes, as colour.

    Parameters
    ----------
    dataset, of
        As for `swept`.
    x, y : str, optional
        The axes; by default the last and the first one of the sweep that have several
        values.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2"),
    ...     tl.SGD(lr="0.1/d", geometry="projected"),
    ... )
    >>> over = {"algorithm.lr": ["0.05/d", "0.1/d"], "method.dim": [100, 200]}
    >>> result = tl.sweep(problem, algorithm, tl.Chain(100), over, time=0.1, seeds=3)
    >>> [label.get_text() for label in heatmap(result).axes[0].get_yticklabels()]
    ['0.05/d', '0.1/d']
    """
    values, axes = _chosen(dataset, of)
    if len(axes) != 2 or "save_point" in values.dims:
        raise InputError(
            "Argument `dataset` must have two axes with several values, but has"
            f" {axes or 'none'}."
        )
    for name, axis in (("x", x), ("y", y)):
        if axis is not None:
            choice(name, axis, axes)
    x, y = (
        x or (axes[0] if y == axes[1] else axes[1]),
        y or (axes[1] if x == axes[0] else axes[0]),
    )
    require(
        {x, y} == set(axes), "x", (x, y), f"the axes of the sweep, {' and '.join(axes)}"
    )
    mean = _mean(values).transpose(y, x).values
    figure, (ax,), _ = canvas(1, (5.6, 4.2), figure, ax)
    columns, rows = _Axis(dataset, x), _Axis(dataset, y)
    picture = ax.pcolormesh(
        columns.edges, rows.edges, mean, norm=_norm(mean), cmap="viridis"
    )
    columns.label(ax, "x")
    rows.label(ax, "y")
    ax.minorticks_off()
    ax.grid(False)
    lost = int(np.isnan(mean).sum())
    said = f"{words_of(str(values.name))}, mean over seeds"
    if lost:
        said += f"  ({lost} cells without a value are white)"
    figure.colorbar(picture, ax=ax, label=said)
    ax.set_title(_task(dataset))
    return figure


def _task(dataset: xr.Dataset) -> str:
    """What all cells have in common of the task, in a line; what is swept is on the
    axes.
    """
    problem = json.loads(dataset.attrs["description"])["problem"]
    if not {"target", "activation", "width"} <= set(problem):
        return ""
    return problem_line({"noise": 0.0, **problem})


class _Axis:
    """Where the values of an axis lie, and how they are written: numbers to scale,
    texts side by side.
    """

    def __init__(self, dataset: xr.Dataset, name: str) -> None:
        self.key = name
        own, short_name = dataset[name].values, name.removeprefix("algorithm.")
        law = (
            dataset[short_name]
            if short_name != name and short_name in dataset.coords
            else None
        )
        if law is not None and law.ndim == 1:
            own = law.values
        self.numeric = own.dtype.kind in "iuf" and len(set(own.tolist())) == len(own)
        self.texts = [f"{v:.3g}" if own.dtype.kind == "f" else str(v) for v in own]
        self.at = (
            np.asarray(own, dtype=float)
            if self.numeric
            else np.arange(len(own), dtype=float)
        )
        self.log = bool(
            self.numeric
            and self.at.min() > 0
            and (_wide(self.at) or _geometric(self.at))
        )

    @property
    def edges(self) -> np.ndarray:
        """Borders of the cells, half way between their centres, in the logarithm where
        the axis has one.
        """
        at = np.log(self.at) if self.log else self.at
        middle = (at[1:] + at[:-1]) / 2
        ends = np.concatenate(
            [[2 * at[0] - middle[0]], middle, [2 * at[-1] - middle[-1]]]
        )
        return np.exp(ends) if self.log else ends

    def label(self, ax: Axes, letter: str) -> None:
        """Write the scale, the values and the name along x or y."""
        if self.log:
            ax.set(**{f"{letter}scale": "log"})
        axis = ax.xaxis if letter == "x" else ax.yaxis
        axis.set_ticks(self.at, self.texts)
        axis.set_label_text(words_of(self.key))


def _wide(values: np.ndarray) -> bool:
    return bool(values.max() > WIDE * values.min())


def _geometric(values: np.ndarray) -> bool:
    """Whether the logarithms are equally spaced, but not the values."""
    steps = np.diff(np.log(values))
    return bool(len(values) > 2 and np.ptp(steps) < 0.1 * abs(steps.mean()))


def _chosen(dataset: object, of: str | None) -> tuple[xr.DataArray, list[str]]:
    """The variable, numbers of single runs, and the axes with several values."""
    if not isinstance(dataset, xr.Dataset) or dataset.attrs.get("schema") != SCHEMA:
        reject("dataset", type(dataset).__name__, "a result of sweep")
    inner = {
        str(name): set(map(str, v.dims)) - _swept_dims(dataset)
        for name, v in dataset.data_vars.items()
    }
    able = [
        name
        for name, dims in inner.items()
        if dims <= {"seed", "save_point"}
        and "seed" in dims
        and dataset[name].dtype.kind == "f"
    ]
    chosen = (
        next((name for name in MAIN if name in able), able[0] if able else None)
        if of is None
        else of
    )
    if not isinstance(chosen, str) or chosen not in able:
        reject("of", of, f"a number of each run, {', '.join(able)}")
    values = dataset[chosen]
    axes = [
        axis
        for axis in map(str, values.dims)
        if axis in _swept_dims(dataset) and values.sizes[axis] > 1
    ]
    return (
        values.squeeze(
            [a for a in _swept_dims(dataset) if values.sizes.get(a) == 1], drop=True
        ),
        axes,
    )


def _swept_dims(dataset: xr.Dataset) -> set[str]:
    return set(map(str, dataset.runs.dims))


def _mean(values: xr.DataArray) -> xr.DataArray:
    """Over the seeds that have a value."""
    return values.mean("seed", skipna=True)


def _error(values: xr.DataArray) -> np.ndarray:
    """Standard errors; zero where there is one run."""
    count = values.notnull().sum("seed").values
    return np.where(
        count > 1,
        values.std("seed", ddof=1).values / np.sqrt(np.maximum(count, 1)),
        0.0,
    )


def _curves(
    ax: Axes, dataset: xr.Dataset, values: xr.DataArray, axes: list[str]
) -> None:
    """Means with two standard errors along the longest axis, a curve for each value of
    the other.
    """
    axes.sort(key=lambda name: -values.sizes[name])
    along, *others = axes
    place = _Axis(dataset, along)
    curves = (
        [({}, "")]
        if not others
        else [
            ({others[0]: i}, t) for i, t in enumerate(_Axis(dataset, others[0]).texts)
        ]
    )
    for i, (index, text) in enumerate(curves):
        part = values.isel(index)
        ax.errorbar(
            place.at,
            _mean(part).values,
            2 * np.nan_to_num(_error(part)),
            fmt=f"{MARKS[i % len(MARKS)]}-",
            ms=4,
            lw=1.2,
            capsize=2.5,
            color=DIRECTIONS[i],
            label=text or MEAN,
        )
    place.label(ax, "x")
    ax.minorticks_off()


def _trajectories(
    ax: Axes, dataset: xr.Dataset, values: xr.DataArray, axes: list[str]
) -> None:
    """Means over seeds against time, a curve for each value of the axis."""
    texts = _Axis(dataset, axes[0]).texts if axes else [""]
    time = dataset.time.squeeze(
        [a for a in _swept_dims(dataset) if dataset.sizes.get(a) == 1], drop=True
    )
    for i, text in enumerate(texts):
        part, clock = (x.isel({axes[0]: i}) if axes else x for x in (values, time))
        colour = DIRECTIONS[i]
        ax.plot(
            _mean(clock).values,
            _mean(part).values,
            color=colour,
            lw=1.4,
            label=text or "mean",
        )
    ax.set_xlabel("time  $t = \\mathrm{lr}\\cdot\\mathrm{step}\\,/\\,p$")


def _norm(mean: np.ndarray) -> Normalize:
    known = mean[np.isfinite(mean)]
    if not known.size:
        raise InputError(
            "Argument `dataset` must hold finished runs, but has none yet."
        )
    wide = known.min() > 0 and _wide(known)
    return (
        LogNorm(known.min(), known.max())
        if wide
        else Normalize(known.min(), known.max())
    )
