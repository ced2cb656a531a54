"""The (μ, δ) plane of a phase diagram in text: one character for what happens at each
point, or in colours.

#  learned in d^θ steps     l  in polylogarithmically many     c  in a constant number
1  in one step .  not learned              *  the optimum                     o  points
asked for
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from twolayer.numerics.html import cells, escaped

if TYPE_CHECKING:
    from twolayer.analysis.phases import Phase, PhaseDiagram

__all__ = ["picture", "sketch", "window"]

WIDTH, MOST = 61, 24  # columns, and rows at most
LEGEND = {
    "#": "learned in d^θ steps",
    "l": "in log d steps or fewer",
    "c": "in a constant number",
    "1": "in one step",
    ".": "not learned",
    "*": "optimum",
    "o": "your points",
}
COLOURS = {
    "#": "#7cbf7a",
    "l": "#333333",
    "c": "#c6dbef",
    "1": "#1f77b4",
    ".": "#dddddd",
    "*": "#d95f02",
}


def window(diagram: PhaseDiagram) -> tuple[float, float, float]:
    """Largest μ, largest and smallest δ of a figure: room around the lines."""
    return (
        diagram.ell + 1.0,
        diagram.noise_order + 0.25,
        min((1 - diagram.ell) / 2, 0.0) - 0.5,
    )


def letter(phase: Phase) -> str:
    """The character of a point."""
    if not phase.learns:
        return "."
    if phase.steps is not None:
        return "1" if phase.steps == 1 else "c"
    return "l" if phase.regime == "polylogarithmic" else "#"


def _deltas(diagram: PhaseDiagram) -> np.ndarray:
    """Rows of the plane, at multiples of a quarter or a half, where the lines lie."""
    _, top, floor = window(diagram)
    step = 0.25 if top - floor < 0.25 * MOST else 0.5
    return np.arange(top, floor - step / 2, -step)


def plane(diagram: PhaseDiagram, columns: int) -> list[list[str]]:
    """The characters of all points, rows of falling δ."""
    right, _, _ = window(diagram)
    mus = np.linspace(0.0, right, columns)
    return [
        [letter(diagram.at(float(mu), float(delta))) for mu in mus]
        for delta in _deltas(diagram)
    ]


def sketch(diagram: PhaseDiagram, points: Iterable[tuple[float, float]] = ()) -> str:
    """A phase diagram as text, μ to the right and δ upwards, with given points (μ, δ).

    Examples
    --------
    >>> from twolayer.analysis.phases import PhaseDiagram
    >>> print(
    ...     sketch(PhaseDiagram(2, "squared", "projected", "contracting")).splitlines()[
    ...         1
    ...     ][:30]
    ... )
      1.25 |######################
    """
    right, top, floor = window(diagram)
    mus, deltas = np.linspace(0.0, right, WIDTH), _deltas(diagram)
    rows = plane(diagram, WIDTH)
    marks = [
        (*diagram.points["optimum"], "*"),
        *((mu, delta, "o") for mu, delta in points),
    ]
    for mu, delta, mark in marks:
        if 0 <= mu <= right and floor <= delta <= top:
            rows[int(np.abs(deltas - delta).argmin())][
                int(np.abs(mus - mu).argmin())
            ] = mark
    lines = ["   δ   (learning rate γ0·d^(−δ))"]
    lines += [
        f"{delta:6.2f} |{''.join(row)}" for delta, row in zip(deltas, rows, strict=True)
    ]
    ticks = [" "] * (WIDTH + 8)
    for mu in range(int(right) + 1):
        ticks[8 + round(mu / right * (WIDTH - 1))] = str(mu)
    lines += [
        " " * 7 + "+" + "-" * WIDTH,
        "".join(ticks).rstrip(),
        " " * 8 + "μ   (batch n0·d^μ)",
    ]
    used = [mark for mark in LEGEND if any(mark in row for row in rows)]
    words = [f"{mark} {LEGEND[mark]}" for mark in used]
    lines += ["   ".join(words[i : i + 3]) for i in range(0, len(words), 3)]
    return "\n".join(lines)


def picture(diagram: PhaseDiagram) -> str:
    """The plane in colours, as notebooks show it, with what they mean below."""
    codes = plane(diagram, columns=64)
    used = [
        mark for mark in LEGEND if mark in COLOURS and any(mark in row for row in codes)
    ]
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="color:{COLOURS[m]}">■</span>'
        f" {escaped(LEGEND[m])}</span>"
        for m in used
    )
    names = (f"μ from 0 to {window(diagram)[0]:g}", "δ")
    return (
        cells(codes, COLOURS, names, edge=5, tall=10)
        + f'<div style="max-width:340px">{legend}</div>'
    )
