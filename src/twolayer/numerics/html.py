"""How objects show themselves in notebooks: a card of formulas, numbers and a small
picture, as plain HTML and SVG.

    card(name, formula, rows, picture)
        curves, bars, cells: pictures of a few kilobytes

Nothing is loaded from elsewhere, so that notebooks show it offline; text and axes take
the colour of the page, light or dark.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from twolayer.numerics.arguments import Array

__all__ = [
    "BLUE",
    "ORANGE",
    "bars",
    "card",
    "cells",
    "curves",
    "escaped",
    "field_summary",
    "matrix",
    "table",
]

BLUE = "#1f77b4"
ORANGE = "#d95f02"
COLOURS = (BLUE, ORANGE, "#1b9e77", "#7570b3", "#e7298a", "#66a61e")
SIZE = (230, 120)
MARGIN = 26
MOST = 8  # rows and columns of a matrix that are written out


def escaped(value: object) -> str:
    """Text for a page."""
    return html.escape(str(value), quote=False)


def card(
    name: str,
    formula: str = "",
    rows: Iterable[tuple[str, str]] = (),
    picture: str = "",
    note: str = "",
) -> str:
    """Name, formula and rows on the left, a picture on the right; rows and formula are
    HTML already.
    """
    style = (
        "padding:1px 10px 1px"
        " 0;text-align:left;vertical-align:top;background:none;border:none"
    )
    body = "".join(
        '<tr style="background:none"><td'
        f' style="{style};opacity:.65;white-space:nowrap">{escaped(key)}</td><td'
        f' style="{style}">{value}</td></tr>'
        for key, value in rows
    )
    parts = [f"<b>{escaped(name)}</b>"]
    parts += (
        [f'<div style="margin:4px 0;font-size:115%">{formula}</div>'] if formula else []
    )
    frame = "border:none;border-collapse:collapse;margin:2px 0;font-size:inherit"
    parts += [f'<table style="{frame}">{body}</table>'] if body else []
    parts += (
        [f'<div style="opacity:.65;max-width:44em">{escaped(note)}</div>']
        if note
        else []
    )
    aside = f'<div style="flex:none">{picture}</div>' if picture else ""
    whole = (
        "display:flex;flex-wrap:wrap;gap:1.6em;align-items:flex-start;"
        "font-size:13px;line-height:1.4"
    )
    return f'<div style="{whole}"><div>{"".join(parts)}</div>{aside}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    colour: dict[str, str] | None = None,
) -> str:
    """A table with a line of names; cells that begin with one of the words of
    ``colour`` have that colour.
    """
    tint, style = colour or {}, "text-align:right;padding:1px 8px"
    top = "".join(f'<th style="{style}">{escaped(word)}</th>' for word in head)

    def cell_html(cell: str) -> str:
        word = cell.partition(" ")[0]
        strong = f";color:{tint[word]};font-weight:bold" if word in tint else ""
        return f'<td style="{style}{strong}">{escaped(cell)}</td>'

    body = "".join(f"<tr>{''.join(map(cell_html, row))}</tr>" for row in rows)
    return (
        f'<table style="font-size:13px"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def matrix(values: Array) -> str:
    """A matrix or a vector as a table in brackets; of a large one its first rows and
    columns.
    """
    array = np.atleast_2d(np.asarray(values, dtype=float))
    cut = array[:MOST, :MOST]
    style = "padding:0 6px;text-align:right;background:none;border:none"
    rows = []
    for row in cut:
        more = f'<td style="{style}">…</td>' if array.shape[1] > MOST else ""
        written = "".join(f'<td style="{style}">{x + 0.0:.3g}</td>' for x in row)
        rows.append(f'<tr style="background:none">{written}{more}</tr>')
    below = (
        f"<div>… {array.shape[0]} × {array.shape[1]}</div>"
        if max(array.shape) > MOST
        else ""
    )
    edge = (
        "border-left:1px solid currentColor;border-right:1px solid"
        " currentColor;border-radius:4px"
    )
    whole = f"border-collapse:collapse;font-size:inherit;{edge};display:inline-table"
    return f'<table style="{whole}">{"".join(rows)}</table>{below}'


def _svg(inside: str, label: str, size: tuple[int, int] = SIZE) -> str:
    width, height = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}"'
        f' font-size="9" fill="currentColor">{inside}</svg>'
    )


def _frame(
    low: Sequence[float],
    high: Sequence[float],
    names: Sequence[str],
    size: tuple[int, int],
) -> str:
    """Two axes with their ends."""
    (width, height), m = size, MARGIN
    line = (
        f'<path d="M{m} 6V{height - m}H{width - 6}" fill="none" stroke="currentColor"'
        ' stroke-width="0.7"/>'
    )
    texts = [
        (m, height - m + 11, "start", f"{low[0]:.3g}"),
        (width - 6, height - m + 11, "end", f"{high[0]:.3g}"),
        ((m + width) / 2, height - m + 20, "middle", names[0]),
        (m - 3, height - m, "end", f"{low[1]:.2g}"),
        (m - 3, 12, "end", f"{high[1]:.2g}"),
        (m - 3, (height - m) / 2 + 8, "end", names[1]),
    ]
    return line + "".join(
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escaped(text)}</text>'
        for x, y, anchor, text in texts
    )


def curves(
    x: Array,
    ys: Sequence[Array],
    names: Sequence[str] = ("", ""),
    labels: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
    marks: Sequence[tuple[float, float]] = (),
) -> str:
    """Lines over common points, with labels beside them and marks; what is not finite
    is left out.
    """
    at, lines = np.asarray(x, dtype=float), [np.asarray(y, dtype=float) for y in ys]
    every = np.concatenate([y[np.isfinite(y)] for y in lines])
    low, high = limits or (
        (float(every.min()), float(every.max())) if every.size else (0.0, 1.0)
    )
    high = high if high > low else low + 1.0
    (width, height), m = SIZE, MARGIN

    def across(value: object) -> Any:
        return m + (value - at[0]) / ((at[-1] - at[0]) or 1.0) * (width - m - 6)

    def up(value: Any) -> Any:
        return height - m - (value - low) / (high - low) * (height - m - 8)

    found = [_frame((at[0], low), (at[-1], high), names, SIZE)]
    for i, y in enumerate(lines):
        points = " ".join(
            f"{a:.1f},{b:.1f}"
            for a, b in zip(across(at), up(y), strict=True)
            if np.isfinite(b)
        )
        colour = COLOURS[i % len(COLOURS)]
        found.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}"'
            ' stroke-width="1.4"/>'
        )
        if i < len(labels):
            found.append(
                f'<text x="{width}" y="{14 + 11 * i}"'
                f' fill="{colour}">{escaped(labels[i])}</text>'
            )
    found += [
        f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="4" fill="{ORANGE}"/>'
        for a, b in marks
    ]
    room = 7 * max(map(len, labels), default=0)
    return _svg(
        "".join(found), f"{names[1]} against {names[0]}", (width + room, height)
    )


def bars(labels: Sequence[str], values: Array, name: str) -> str:
    """A bar for each value, from zero, with its label below."""
    heights = np.asarray(values, dtype=float)
    top, bottom = (
        max(0.0, float(heights.max(initial=0.0))),
        min(0.0, float(heights.min(initial=0.0))),
    )
    span = (top - bottom) or 1.0
    width, height = SIZE
    room, step = height - 34, (width - 12) / max(len(heights), 1)
    zero = 8 + top / span * room
    found = [
        f'<path d="M6 {zero:.1f}H{width - 6}" stroke="currentColor"'
        ' stroke-width="0.7"/>'
    ]
    for i, (label, value) in enumerate(zip(labels, heights, strict=True)):
        tall, left = abs(value) / span * room, 6 + i * step
        y = zero - tall if value > 0 else zero
        box = (
            f'x="{left + 0.15 * step:.1f}" y="{y:.1f}" width="{0.7 * step:.1f}"'
            f' height="{tall:.1f}"'
        )
        found.append(
            f'<rect {box} fill="{BLUE}"><title>{escaped(label)}:'
            f" {value:.4g}</title></rect>"
        )
        if len(heights) <= 6:
            middle = left + step / 2
            found.append(
                f'<text x="{middle:.1f}" y="{height - 14}"'
                f' text-anchor="middle">{escaped(label)}</text>'
            )
    found.append(
        f'<text x="{width / 2:.0f}" y="{height - 2}"'
        f' text-anchor="middle">{escaped(name)}</text>'
    )
    return _svg("".join(found), name)


def cells(
    values: Array,
    colours: dict[str, str] | None = None,
    names: Sequence[str] = ("", ""),
    edge: int = 14,
    tall: int = 14,
) -> str:
    """A matrix as coloured squares: blue below zero, red above; or characters by the
    colours given for them.
    """
    array = np.asarray(values)
    rows, columns = array.shape
    if colours is None:
        numbers = array.astype(float)
        bound = float(np.abs(numbers).max()) or 1.0
        paint = [[_tint(x / bound) for x in row] for row in numbers]
    else:
        paint = [[colours[x] for x in row] for row in array]
    found = []
    for i, row in enumerate(paint):
        j = 0
        while j < columns:  # neighbours of one colour are one rectangle
            n = next((k for k in range(j, columns) if row[k] != row[j]), columns) - j
            box = (
                f'x="{MARGIN + j * edge}" y="{4 + i * tall}" width="{n * edge}"'
                f' height="{tall}"'
            )
            found.append(f'<rect {box} fill="{row[j]}"/>')
            j += n
    size = (MARGIN + columns * edge + 8, rows * tall + 22)
    found.append(
        f'<text x="{(MARGIN + size[0]) / 2:.0f}" y="{size[1] - 5}"'
        f' text-anchor="middle">{escaped(names[0])}</text>'
    )
    found.append(
        f'<text x="{MARGIN - 6}" y="{size[1] / 2 - 4:.0f}"'
        f' text-anchor="end">{escaped(names[1])}</text>'
    )
    return _svg("".join(found), f"{names[1]} against {names[0]}", size)


def _tint(share: float) -> str:
    """Blue for −1, red for 1, white between."""
    full, rest = (
        ((178, 24, 43) if share > 0 else (33, 102, 172)),
        1 - min(abs(share), 1.0),
    )
    return "#" + "".join(f"{round(c + (247 - c) * rest):02x}" for c in full)


def field_summary(thing: object, names: Iterable[str]) -> str:
    """A repr of one line: fields by name, arrays by their shape.

    >>> from types import SimpleNamespace
    >>> field_summary(SimpleNamespace(times=np.zeros(3), end=2.0), ("times", "end"))
    'SimpleNamespace(times=<3>, end=2)'
    """

    def written(value: object) -> str:
        if isinstance(value, np.ndarray) and value.ndim:
            return f"<{' × '.join(map(str, value.shape))}>"
        if isinstance(value, float | np.floating):
            return f"{float(value):.6g}"
        return repr(value)

    fields = [f"{name}={written(getattr(thing, name))}" for name in names]
    return f"{type(thing).__name__}({', '.join(fields)})"
