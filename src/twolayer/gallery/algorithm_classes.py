"""What giant steps learn, algorithm by algorithm: the class theorem as a table of
targets and algorithms.

    fresh samples, push linear in y:      E[y z_V | z_U] ≠ 0        the staircase
    push not linear in y (loss, rule), or samples that come back:
        E[T(y) z_V | z_U] ≠ 0 for a T that the push makes of y      generative order one

For every target and algorithm `learnable` says from averages of the push at which step
each direction moves. The map of the limit (`GiantSteps`, `DMFT`) is run beside it from
rows that know nothing, and the two classes themselves come from Hermite moments of the
target alone (`analyse`), which know no algorithm.
"""

from __future__ import annotations

import json

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, told
from twolayer.gallery.shared.judging import Verdict, holds, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.stepping import orthogonal, strength
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import InputError, choice, positive_integer

TARGETS = (
    "tanh(z1)",
    "z1 + z1*z2",
    "z1 + h2(z1)*z2",
    "z1 + sign(z1*z2)",
    "z1 + z1*z2 + z1*z2*z3",
    "z1 + h3(z2)",
    "h3(z1)",
    "h2(z1)*z2",
    "h2(z1)",
    "h4(z1)",
    "z1*z2",
    "z1*z2*z3",
)
LINEAR, BENT, REUSED = "fresh, linear in y", "fresh, not linear in y", "reused"
KINDS = (LINEAR, BENT, REUSED)
WAYS: dict[str, tuple[str, Options]] = {
    "squared": (LINEAR, {}),
    "correlation": (LINEAR, {"loss": "correlation"}),
    "momentum": (LINEAR, {"momentum": 0.5}),
    "huber": (BENT, {"loss": "huber(0.5)"}),
    "logistic": (BENT, {"loss": "logistic"}),
    "hinge": (BENT, {"loss": "hinge"}),
    "clip": (BENT, {"rule": "clip(0.5)"}),
    "normalised": (BENT, {"rule": "normalised()"}),
    "same batch": (REUSED, {}),
    "each twice": (REUSED, {"repeat": 2}),
}
"""Algorithms by name: the kind of their push, and what they add to plain SGD."""

SEEN, LEARNED = 5e-4, 3e-3  # overlaps at the step of discovery, and at the last one
FAINT = 0.01  # of the overlaps of a row
LITTLE = 1e-4  # overlap at the step that is foretold, if it grows
SURE = 5.0  # standard errors of the map
SAME = 0.02  # sines between subspaces that count as one
LEAST = 1e-6  # overlaps below this are drawn at it


@figure(
    "algorithm-classes",
    "which directions of twelve targets ten algorithms learn in giant steps, foretold"
    " and by the map",
    quick={
        "targets": ("tanh(z1)", "h3(z1)", "h2(z1)"),
        "algorithms": ("squared", "huber", "same batch"),
        "steps": 2,
        "accuracy": 3e-3,
    },
    fixed={"geometry": "directions are found by the push, whatever divides the rows"},
    group="giant-steps",
)
def algorithm_classes(
    *,
    seed: int = 0,
    targets: tuple[str, ...] = TARGETS,
    algorithms: tuple[str, ...] = tuple(WAYS),
    activation: str = "tanh(z + 0.7)",
    alpha: float = 3.0,
    lr: float = 2.0,
    steps: int = 4,
    accuracy: float = 1e-3,
) -> Finding:
    """One neuron that starts orthogonal to the target.

    One is enough, because a direction is found where the push of a row has an average
    along it, whatever other rows do.
    """
    positive_integer("steps", steps, 2)
    for name in algorithms:
        choice("algorithms", name, WAYS)
    if "squared" not in algorithms:
        raise InputError(
            "Argument `algorithms` must contain squared, whose class the others are"
            f" compared with, but got {', '.join(algorithms)}."
        )
    every = {target: tl.analyse(target) for target in targets}
    most = max(len(found.directions) + 3 for found in every.values())
    cells = [
        [
            part(
                f"{target}-{name}",
                lambda target=target, name=name: _cell(
                    tl.Problem(target, activation),
                    _algorithm(name, lr, alpha),
                    steps,
                    accuracy,
                    seed,
                    most,
                ),
            )
            for name in algorithms
        ]
        for target in targets
    ]
    data = xr.concat([xr.concat(row, "algorithm") for row in cells], "target")
    data = data.assign_coords(target=list(targets), algorithm=list(algorithms))
    data["leap"] = "target", [float(every[t].leap or np.nan) for t in targets]
    data["generative_leap"] = (
        "target",
        [float(every[t].generative_leap or np.nan) for t in targets],
    )
    data = data.dropna("direction", how="all", subset=["predicted"])
    data = data.isel(axis=slice(data.sizes["direction"]))
    task = (
        f"targets as named; one neuron, {activation}; lr {lr:g}, batch {alpha:g} d,"
        " orthogonal start"
    )
    return Finding(data, _verdict(data, every, activation), task)


def _algorithm(name: str, lr: float, alpha: float) -> tl.SGD:
    """An algorithm of the table."""
    more = dict(WAYS[name][1])
    if name == "same batch":
        more["dataset"] = alpha * tl.d
    return tl.SGD(lr=lr, batch=alpha * tl.d, **more)


def _cell(
    problem: tl.Problem,
    algorithm: tl.SGD,
    steps: int,
    accuracy: float,
    seed: int,
    most: int,
) -> xr.Dataset:
    """What is foretold of one algorithm and one target, and what the map does.

    Directions that the target does not have are NaN, up to ``most`` of them.
    """
    foretold = tl.learnable(problem, algorithm)
    method = (
        tl.DMFT(tolerance=accuracy)
        if algorithm.reused
        else tl.GiantSteps(accuracy=accuracy)
    )
    start = orthogonal(problem)
    run = tl.solve(
        problem, algorithm, method, start, steps=steps, save=steps, seed=seed
    )
    n = len(foretold.steps)
    predicted = np.full(most, np.nan)
    predicted[:n] = [np.inf if step is None else step for step in foretold.steps]
    directions = np.full((most, most), np.nan)
    directions[:n, : problem.k] = foretold.directions
    overlap = np.full((steps + 1, most), np.nan)
    overlap[:, :n] = strength(run.M.values[0] @ foretold.directions.T)
    error = np.full((steps + 1, most), np.nan)
    error[:, :n] = _error_of(run) @ np.abs(foretold.directions.T)
    return xr.Dataset(
        {
            "predicted": ("direction", predicted),
            "rows": (("direction", "axis"), directions),
            "overlap": (("step", "direction"), overlap),
            "error": (("step", "direction"), error),
        },
        {"step": np.arange(steps + 1)},
    )


def _error_of(run: xr.Dataset) -> np.ndarray:
    """How far the overlaps of a map may be off by its own account, (step, k)."""
    if "M_error" in run:
        return np.sqrt((run.M_error.values[0] ** 2).mean(axis=1))
    notes = json.loads(run.attrs["notes"])
    return np.full(
        (run.sizes["time"], run.sizes["direction"]), notes.get("overlap_error", 0.0)
    )


def _moved(data: xr.Dataset) -> np.ndarray:
    """First step at which the map has moved along a direction, (target, algorithm,
    direction); infinite where it has not at the end.

    Directions foretold for one step count together: one neuron moves along one line of
    their span.
    """
    predicted = data.predicted.transpose("target", "algorithm", "direction").values
    dims = ("target", "algorithm", "direction", "step")
    overlap = data.overlap.transpose(*dims).values
    error = data.error.transpose(*dims).values
    moved = np.full(predicted.shape, np.nan)
    for i, j in np.ndindex(predicted.shape[:2]):
        for step in np.unique(predicted[i, j][~np.isnan(predicted[i, j])]):
            own = predicted[i, j] == step
            size = np.linalg.norm(overlap[i, j, own], axis=0)
            noise = SURE * np.linalg.norm(error[i, j, own], axis=0)
            length = np.sqrt(np.nansum(overlap[i, j] ** 2, axis=0))
            # `learnable` lets what is fainter wait for a later step
            floor = np.maximum(np.maximum(SEEN, FAINT * length), noise)
            moved[i, j, own] = _first(step, size, floor, noise)
    return moved


def _first(
    foretold: float, size: np.ndarray, floor: np.ndarray, noise: np.ndarray
) -> float:
    """The step at which overlaps ``size`` (step,) begin: the foretold one, unless they
    contradict it.

    Examples
    --------
    >>> size, floor = np.array([0.0, 0.0, 4e-4, 0.01]), np.full(4, 5e-4)
    >>> _first(2.0, size, floor, 0 * size), _first(1.0, size, floor, 0 * size)
    (2.0, 3.0)
    """
    if size[-1] <= max(LEARNED, noise[-1]):
        return np.inf
    seen = size > floor
    if np.isfinite(foretold):
        step = int(foretold)
        on_time = step < len(size) and size[step] > max(LITTLE, noise[step])
        if on_time and not seen[:step].any():
            return foretold
    return float(np.argmax(seen))


def _span(cell: xr.Dataset, step: float) -> np.ndarray:
    """Projector on the directions of a cell that are learned by a step."""
    rows = cell.rows.values[cell.predicted.values <= step]
    rows = np.nan_to_num(rows)
    return rows.T @ rows


def _verdict(
    data: xr.Dataset, every: dict[str, tl.types.Analysis], activation: str
) -> Verdict:
    predicted, moved = data.predicted.values, _moved(data)
    n = data.sizes["axis"]
    there = ~np.isnan(predicted)
    right = predicted[there] == moved[there]
    wrong = [
        f"{target} by {name}"
        for i, target in enumerate(data.target.values)
        for j, name in enumerate(data.algorithm.values)
        if not np.array_equal(predicted[i, j], moved[i, j], equal_nan=True)
    ]
    others = f": not {', '.join(wrong)}" if wrong else ""
    climbing, outside, beyond = [], [], []
    for target in data.target.values:
        stairs = every[target].staircase(activation)
        generative = _order_one(every[target], n)
        for name in data.algorithm.values:
            cell = data.sel(target=target, algorithm=name)
            last = _span(cell, float(data.step[-1]))
            if WAYS[name][0] == LINEAR:
                for step in range(1, data.sizes["step"]):
                    known = [s is not None and s <= step for s in stairs]
                    exact = _padded(stairs.directions[known], n)
                    gap = np.abs(_span(cell, step) - exact).max()
                    climbing.append(bool(gap < SAME))
                continue
            outside.append(np.linalg.norm(last - generative @ last, ord=2))
            squared = data.sel(target=target, algorithm="squared")
            plain = _span(squared, float(data.step[-1]))
            if np.trace(last) > np.trace(plain) + 0.5:
                beyond.append(f"{target} by {name}")
    checks = [
        holds(
            right.all(),
            f"{int(right.sum())} of {right.size} directions move in the map at the step"
            f" that is foretold, or never as foretold{others}, all expected",
        ),
        holds(
            all(climbing),
            f"{sum(climbing)} of {len(climbing)} steps on fresh samples by pushes"
            " linear in y learn exactly the staircase of the target, all expected",
        ),
        holds(
            max(outside, default=0.0) < SAME,
            "what the others learn lies in the directions of generative order one:"
            f" largest sine of an angle to them {max(outside, default=0.0):.2g}, {SAME}"
            " allowed",
        ),
        holds(
            len(beyond) > 0,
            f"{len(beyond)} of {len(outside)} pushes not linear in y, or on reused"
            " samples, learn more than the plain gradient on fresh ones, one at least",
        ),
    ]
    return verdict(
        "fresh samples and a push linear in y learn the staircase; other losses and"
        " rules, and samples that come back, learn what has generative order one",
        checks,
    )


def _padded(rows: np.ndarray, n: int) -> np.ndarray:
    """The projector on some directions, in a space of ``n`` axes."""
    whole = np.zeros((n, n))
    k = rows.shape[1]
    whole[:k, :k] = rows.T @ rows
    return whole


def _order_one(found: tl.types.Analysis, n: int) -> np.ndarray:
    """The projector on the directions that the generative chain finds at order one
    before it has to take a larger one.
    """
    count = 0
    for order, new in found.generative_chain:
        if order > 1:
            break
        count += new
    return _padded(found.generative_directions[:count], n)


def draw(data: xr.Dataset) -> Figure:
    """The table, a square for each direction with its step; below it the overlaps of
    the map at the last step.
    """
    chosen = told(data)
    rows, columns = data.sizes["target"], data.sizes["algorithm"]
    figure, (table, below) = sheet(1, rows=2, width=9.5, height=4.0)
    grid = table.get_subplotspec().get_gridspec()
    grid.set_height_ratios([max(rows, 4), 5])
    _table(table, data)
    _overlaps(below, data)
    for ax in (table, below):
        ax.set_xlim(-0.6, columns - 0.4)
        ax.set_xticks(range(columns), list(data.algorithm.values))
        kinds = [WAYS[name][0] for name in data.algorithm.values]
        for j in range(1, columns):
            if kinds[j] != kinds[j - 1]:
                ax.axvline(j - 0.5, color="0.6", lw=0.8)
    headline(
        figure,
        data,
        "Behind targets: leap | generative leap. Squares: directions with the step at"
        f" which they are learned. Below: overlaps after {chosen.steps} steps of the"
        " map",
    )
    return figure


def _table(ax: Axes, data: xr.Dataset) -> None:
    from matplotlib.patches import Rectangle

    from twolayer.plot.style import DIRECTIONS, GREY

    moved = _moved(data)
    size = 0.22
    for (i, j, r), step in np.ndenumerate(data.predicted.values):
        if np.isnan(step):
            continue
        known = int((~np.isnan(data.predicted.values[i, j])).sum())
        x = j + (r - (known - 1) / 2) * 1.2 * size
        learned = np.isfinite(step)
        face = DIRECTIONS[int(step) - 1] if learned else "none"
        corner = (x - size / 2, i - 1.6 * size)
        ax.add_patch(Rectangle(corner, size, 3.2 * size, fc=face, ec=GREY, lw=0.7))
        if learned:
            ax.text(x, i, f"{int(step)}", ha="center", va="center", c="w", fontsize=8)
        if step != moved[i, j, r]:
            ax.plot([x], [i], "x", color="red", ms=11, mew=2)
    labels = [
        f"{target}   {_leap(leap)} | {_leap(generative)}"
        for target, leap, generative in zip(
            data.target.values,
            data.leap.values,
            data.generative_leap.values,
            strict=True,
        )
    ]
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    kinds = [WAYS[name][0] for name in data.algorithm.values]
    for kind in KINDS:
        if kind in kinds:
            place = np.mean([j for j, other in enumerate(kinds) if other == kind])
            ax.text(place, -0.62, kind, ha="center", va="bottom", fontsize=9)


def _leap(order: float) -> str:
    """An order as it is printed; a dash where a direction was not reached.

    Examples
    --------
    >>> _leap(2.0), _leap(float("nan"))
    ('2', '–')
    """
    return "–" if np.isnan(order) else f"{order:.0f}"


def _overlaps(ax: Axes, data: xr.Dataset) -> None:
    from twolayer.plot.style import DIRECTIONS, GREY

    predicted = data.predicted.values
    last = data.overlap.isel(step=-1)
    last = last.transpose("target", "algorithm", "direction").values
    shift = np.linspace(-0.3, 0.3, max(predicted.shape[0], 2))
    for (i, j, r), step in np.ndenumerate(predicted):
        if np.isnan(step):
            continue
        learned = np.isfinite(step)
        colour = DIRECTIONS[int(step) - 1] if learned else GREY
        height = max(last[i, j, r], LEAST)
        ax.plot(
            [j + shift[i]],
            [height],
            marker="osd"[r % 3] if height > LEAST else "v",
            color=colour,
            mfc=colour if learned else "none",
            ms=4.5,
            clip_on=False,
            ls="none",
        )
    ax.axhline(LEARNED, color=GREY, lw=0.8, ls="--")
    ax.set(yscale="log", ylim=(LEAST, 5), ylabel="overlap, last step")
    ax.set_title("filled: foretold to be learned; open: never; dashed: threshold")
