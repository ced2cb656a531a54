"""The standard figures of results: trajectories, comparisons, analyses, moments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twolayer.comparison import quantities
from twolayer.errors import InputError, reject
from twolayer.functions.exponents import Analysis
from twolayer.gaussian.moments import Moments
from twolayer.methods.base import METHODS
from twolayer.plot.style import COLOURS, DIRECTIONS, house_style
from twolayer.results import write_atomically

__all__ = ["analysis", "compare", "moments", "save_figure", "trajectory"]

STOCHASTIC = tuple(name for name, cls in METHODS.items() if cls.stochastic)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure, all or nothing; the format follows the name (.png, .pdf, .svg)."""
    suffix = Path(path).suffix
    if suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"Argument `path` must end in .png, .pdf or .svg, but got {str(path)!r}.")
    return write_atomically(path, suffix, figure.savefig)


def _title(description: dict[str, Any]) -> str:
    problem, algorithm = description["problem"], description["algorithm"]
    target = problem["target"]
    if isinstance(target, dict):
        target = f"teacher {target['teacher']}, k={target['k']}"
    parts = [f"target {target}", f"{problem['activation']}, p = {problem['width']}"]
    if problem["noise"]:
        parts.append(f"Δ = {problem['noise']:g}")
    parts.append(f"lr = {algorithm['lr']}, batch {algorithm['batch']}, {algorithm['geometry']}")
    if algorithm["loss"] != "squared":
        parts.append(f"{algorithm['loss']} loss")
    return "   ".join(parts)


def _time_label(dataset: xr.Dataset) -> str:
    unit = dataset.time.attrs.get("units", "")
    power = unit.removeprefix("d**")
    return "time  $t = \\mathrm{lr}\\cdot\\mathrm{step}/p$" + (f"   [$d^{{{power}}}$]" if unit else "")


def _band(ax: Axes, times: np.ndarray, values: np.ndarray, colour: str, label: str | None) -> None:
    """Mean over seeds with the central 80 % of them."""
    ax.plot(times, values.mean(axis=0), color=colour, label=label, lw=1.3)
    if values.shape[0] > 1:
        low, high = np.quantile(values, [0.1, 0.9], axis=0)
        ax.fill_between(times, low, high, color=colour, alpha=0.22, lw=0)


def trajectory(dataset: xr.Dataset, figure: Figure | None = None) -> Figure:
    """Risk and overlaps of one result against time.

    Parameters
    ----------
    dataset : xarray.Dataset
        From `solve`.
    figure : matplotlib Figure, optional
        Where to draw.
    """
    if not isinstance(dataset, xr.Dataset) or "risk" not in dataset:
        reject("dataset", type(dataset).__name__, "a result of solve")
    description = json.loads(dataset.attrs["description"])
    with house_style():
        figure = figure or Figure(figsize=(8.4, 3.4))
        left, right = figure.subplots(1, 2)
        times, name = dataset.time.values, description["method"]["name"]
        _band(left, times, dataset.risk.values, COLOURS.get(name, COLOURS["other"]), name)
        left.set(xlabel=_time_label(dataset), ylabel="risk", yscale="log")
        many = dataset.sizes["neuron"] * dataset.sizes["direction"] > 8
        for r in range(dataset.sizes["direction"]):
            for j in range(dataset.sizes["neuron"]):
                label = f"$M_{{j{r + 1}}}$" if j == 0 else None
                values = dataset.M.values[:, :, j, r]
                if many:
                    right.plot(times, values.mean(axis=0), color=DIRECTIONS[r % 8], lw=0.8, label=label)
                else:
                    _band(right, times, values, DIRECTIONS[r % 8], label)
        right.set(xlabel=_time_label(dataset), ylabel="overlap $M_{jr}$")
        right.legend()
        figure.suptitle(_title(description), fontsize=9.5, x=0.01, ha="left")
    return figure


def compare(tree: xr.DataTree, figure: Figure | None = None) -> Figure:
    """Risk and overlaps of all methods of a comparison: theory as lines, simulations with their seed bands.

    Parameters
    ----------
    tree : xarray.DataTree
        From `compare`.
    """
    if not isinstance(tree, xr.DataTree) or "reference" not in tree.attrs:
        reject("tree", type(tree).__name__, "a result of compare")
    results = {name: child.to_dataset() for name, child in tree.children.items()}
    reference = results[tree.attrs["reference"]]
    description = json.loads(reference.attrs["description"])
    names = [n for n in quantities(reference) if n != "risk"]
    with house_style():
        figure = figure or Figure(figsize=(9.2, 3.6))
        left, right = figure.subplots(1, 2)
        for name, dataset in results.items():
            method = json.loads(dataset.attrs["description"])["method"]
            times, values, word = dataset.time.values, quantities(dataset), method["name"]
            if word in STOCHASTIC:
                size = f"{method['dim']:,}".replace(",", "\u2009")
                label = f"{word}, d = {size}, {dataset.sizes['seed']} seeds"
                colour = COLOURS.get(word, COLOURS["other"])
                _band(left, times, values["risk"], colour, label)
                for r, quantity in enumerate(names):
                    _band(right, times, values[quantity], colour if len(names) == 1 else DIRECTIONS[r % 8], None)
            else:
                line: dict[str, Any] = {"color": COLOURS["theory"], "ls": "--", "lw": 1.4, "zorder": 5}
                left.plot(times, values["risk"][0], label=name.upper(), **line)
                for quantity in names:
                    right.plot(times, values[quantity][0], **line)
        floor = description["problem"]["noise"] / 2
        if floor:
            left.axhline(floor, color="#999999", lw=0.8, ls=":")
            place: Any = ("axes fraction", "data")
            left.annotate("Δ/2", (0.01, floor), xycoords=place, va="bottom", ha="left", color="#777777", fontsize=8)
        left.set(xlabel=_time_label(reference), ylabel="risk", yscale="log")
        left.legend()
        if len(names) > 1:
            for r, quantity in enumerate(names):
                right.plot([], [], color=DIRECTIONS[r % 8], label=f"$m_{{{quantity[1:]}}}$")
            right.plot([], [], color=COLOURS["theory"], ls="--", label="theory")
            right.legend()
        right.set(xlabel=_time_label(reference), ylabel="overlap  $m_r = (\\overline{M_{jr}^2})^{1/2}$")
        figure.suptitle(_title(description), fontsize=9.5, x=0.01, ha="left")
    return figure


def analysis(result: Analysis, figure: Figure | None = None) -> Figure:
    """Hermite coefficients of a target by order, with its exponents.

    Parameters
    ----------
    result : Analysis
        From `analyse`.
    """
    if not isinstance(result, Analysis):
        reject("result", type(result).__name__, "a result of analyse")
    coefficients = {alpha: c for alpha, c in result.hermite.items() if any(alpha)}
    with house_style():
        figure = figure or Figure(figsize=(6.4, 3.2))
        ax = figure.subplots()
        for i, (alpha, c) in enumerate(coefficients.items()):
            ax.bar(i, c, color=DIRECTIONS[(sum(alpha) - 1) % 8], width=0.7)
        labels = ["".join(f"$h_{{{n}}}(z_{{{r + 1}}})$" for r, n in enumerate(alpha) if n) for alpha in coefficients]
        ax.set_xticks(range(len(labels)), labels, rotation=0 if len(labels) < 8 else 60)
        ax.axhline(0, color="#888888", lw=0.8)
        ax.set(ylabel="Hermite coefficient")
        ax.set_title(
            f"{result.target.name}    information {result.information}, leap {result.leap}, "
            f"generative {result.generative}"
        )
    return figure


def moments(result: Moments, figure: Figure | None = None) -> Figure:
    """The averages psi, phi and chi as matrices.

    Parameters
    ----------
    result : Moments
        From `moments`.
    """
    if not isinstance(result, Moments):
        reject("result", type(result).__name__, "a result of moments")
    with house_style():
        figure = figure or Figure(figsize=(8.0, 2.8))
        for ax, name in zip(figure.subplots(1, 3), ("psi", "phi", "chi"), strict=True):
            matrix = getattr(result, name)
            bound = float(np.abs(matrix).max()) or 1.0
            image = ax.imshow(matrix, cmap="RdBu_r", vmin=-bound, vmax=bound, aspect="auto")
            ax.grid(False)
            ax.set(title=name, xlabel="direction" if name == "psi" else "neuron", ylabel="neuron")
            ax.set_xticks(range(matrix.shape[1]), range(1, matrix.shape[1] + 1))
            ax.set_yticks(range(matrix.shape[0]), range(1, matrix.shape[0] + 1))
            figure.colorbar(image, ax=ax)
        figure.suptitle(f"{result.engine}, error {result.error:.1e}", fontsize=9.5, x=0.01, ha="left")
    return figure
