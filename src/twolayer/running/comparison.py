"""The result of `compare`: what every method gave, the verdicts, and a table that
explains itself.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import reject
from twolayer.numerics.html import card, curves, escaped, table
from twolayer.numerics.significance import LEVEL
from twolayer.running import dataset as storage
from twolayer.running.finite_size import LEVELS
from twolayer.running.judging import SHARE, Judgement
from twolayer.running.long_names import with_meanings

__all__ = ["Comparison", "tree_of"]

COLUMNS = {f.name: f.type for f in dataclasses.fields(Judgement)}
HEADER = (
    "method",
    "entry",
    "reference",
    "mean (s.e.)",
    "worst",
    "at t",
    "verdict",
)
LEFT = ("method", "entry", "verdict")
WIDTH = 79
COLOURS = {
    "agree": "#1b7f3b",
    "differ": "#c0392b",
    "undecided": "#b8860b",
    "suspect": "#8e44ad",
}


class Comparison:
    """Several methods on one description, with verdicts. Made by `compare`; prints
    itself.

    Attributes
    ----------
    tree : xarray.DataTree
        What `save` writes: a group for each method, the table of verdicts at the root.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2"),
    ...     tl.SGD(lr="0.1/d", geometry="projected"),
    ... )
    >>> start, methods = tl.Overlaps([[1.0]], [[0.5]]), [tl.ODE(), tl.Chain(400)]
    >>> both = tl.compare(
    ...     problem, algorithm, methods, start, time=0.5, save=5, seeds=16
    ... )
    >>> both.reference, list(both.results), [row.quantity for row in both.verdicts]
    ('ode', ['ode', 'chain'], ['risk', 'M1'])
    """

    def __init__(self, tree: xr.DataTree) -> None:
        if not isinstance(tree, xr.DataTree) or "reference" not in tree.attrs:
            reject("tree", type(tree).__name__, "a result of compare")
        self.tree = tree

    @property
    def reference(self) -> str:
        """The method that the others are compared with."""
        return str(self.tree.attrs["reference"])

    @cached_property
    def results(self) -> dict[str, xr.Dataset]:
        """The result of every method."""
        return {name: child.to_dataset() for name, child in self.tree.children.items()}

    @cached_property
    def verdicts(self) -> list[Judgement]:
        """One row for each method and quantity."""
        root = self.tree.to_dataset()
        known = [name for name in COLUMNS if name in root]
        rows = [
            {name: root[name].values[i] for name in known}
            for i in range(root.sizes.get("row", 0))
        ]
        return [
            Judgement(
                **{name: _plain(value, COLUMNS[name]) for name, value in row.items()}
            )
            for row in rows
        ]

    @property
    def skipped(self) -> dict[str, str]:
        """Methods that were asked for and refused, with the reason."""
        return dict(json.loads(self.tree.attrs["skipped"]))

    @property
    def universality(self) -> list[str]:
        """How far runs over data are from their Gaussian surrogate, in words; empty
        without data.
        """
        return list(json.loads(self.tree.attrs.get("universality", "[]")))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [*self._head(), *self._table(), *self._notes()]
        return "\n".join(lines)

    def _head(self) -> list[str]:
        known = self.results[self.reference]
        method = json.loads(known.attrs["description"]).get("method", {})
        dim = method.get("dim", "inf")
        limit = "as d → ∞ " if dim == "inf" or dim is None else ""
        there = "" if limit else f" at d = {dim}"
        end = f"{float(known.time[-1]):.4g}"
        return [
            *_wrap(
                "claim  ",
                f"{limit}the mean over runs is that of {self.reference}{there}, from t"
                f" = 0 to {end}",
            ),
            "",
        ]

    def _table(self) -> list[str]:
        rows = [_cells(row) for row in self.verdicts]
        if not rows:
            return []
        shown = [
            ("", *row[1:]) if i and row[0] == rows[i - 1][0] else row
            for i, row in enumerate(rows)
        ]
        every = [HEADER, *shown]
        widths = [max(len(row[i]) for row in every) for i in range(len(HEADER))]
        return [
            " ".join(map(_aligned, range(len(HEADER)), row, widths)).rstrip()
            for row in every
        ] + [""]

    def _notes(self) -> list[str]:
        limits = sorted(
            {round(row.limit, 1) for row in self.verdicts if np.isfinite(row.limit)}
        )
        lines: list[str] = []
        if limits:
            factor = (
                " or ".join(f"{x:g}" for x in limits)
                if len(limits) < 3
                else f"{limits[0]:g} to {limits[-1]:g}"
            )
            fractions = " and ".join(f"d/{level}" for level in LEVELS)
            lines += _wrap(
                "test   ",
                f"every entry at every time: |mean − {self.reference}| ≤ tolerance ="
                f" what finite size adds (measured at {fractions}) + {factor} standard"
                f" errors, so that in all there is a chance of {LEVEL:g} of a false"
                " alarm. Shown is the worst entry at the end of the run",
            )
            lines += _wrap(
                "worst  ",
                "largest deviation over its tolerance, and when; above 1 they differ",
            )
            lines += _wrap(
                "figure ",
                f"with that confidence {self.reference} is nowhere off by more than"
                f" this part of its range: up to {self._share():.3g}% the two agree,"
                " beyond it is undecided",
            )
        reasons: dict[
            str, dict[str, list[str]]
        ] = {}  # each is said once, for all methods and quantities that have it
        for row in self.verdicts:
            if row.reason:
                reasons.setdefault(f"{row.verdict}, {row.reason}", {}).setdefault(
                    row.method, []
                ).append(row.quantity)
        for reason, rows in reasons.items():
            whose = "; ".join(
                ", ".join([method, *quantities]) for method, quantities in rows.items()
            )
            lines += _wrap(f"{whose}: ", reason, hang=2)
        for line in self.universality:
            lines += _wrap("data   ", line)
        for name, why in self.skipped.items():
            lines += _wrap(f"skipped {name}: ", why, hang=2)
        if not json.loads(self.tree.attrs.get("complete", "true")):
            lines.append("interrupted: not all methods were run")
        return lines

    def _share(self) -> float:
        """The resolution that was asked for, in per cent."""
        asked = json.loads(self.tree.attrs.get("run", "{}"))
        return 100 * float(asked.get("resolution", SHARE))

    def _repr_html_(self) -> str:
        rows = [_cells(row) for row in self.verdicts]
        claim, notes = (
            " ".join(" ".join(self._head()).split()[1:]),
            escaped("\n".join(self._notes())),
        )
        explained = (
            '<pre style="font-size:11px;opacity:.75;white-space:pre-wrap;'
            f'max-width:52em">{notes}</pre>'
        )
        return (
            card(
                "Comparison",
                escaped(claim) + table(HEADER, rows, COLOURS),
                (),
                self._picture(),
            )
            + explained
        )

    def _picture(self) -> str:
        """The mean risks of all methods against time."""
        every = {
            name: result
            for name, result in self.results.items()
            if "stage" not in result.coords
        }
        times = [result.time.values for result in every.values()]
        grid = np.linspace(max(t[0] for t in times), min(t[-1] for t in times), 100)
        risks = [
            np.interp(grid, r.time.values, r.risk.values.mean(axis=0))
            for r in every.values()
        ]
        return curves(grid, risks, ("t", "risk"), list(every))


def tree_of(
    names: list[str],
    results: dict[str, xr.Dataset],
    rows: list[Judgement],
    skipped: dict[str, str],
    run: Options,
    complete: bool = True,
    universality: Sequence[str] = (),
) -> xr.DataTree:
    """The tree of a comparison; ``run`` holds the methods asked for and the arguments
    of `compare`, as plain values.
    """
    table = {}
    if rows:
        for name, kind in COLUMNS.items():
            values = np.array(
                [getattr(row, name) for row in rows],
                dtype=object if kind == "str" else float,
            )
            table[name] = ("row", values)
    root = with_meanings(xr.Dataset(table))
    root.attrs = {
        "schema": storage.SCHEMA,
        "reference": names[0],
        "skipped": json.dumps(skipped),
        "run": json.dumps(run),
        "versions": json.dumps(storage.versions()),
        "complete": json.dumps(complete),
        **({"universality": json.dumps(list(universality))} if universality else {}),
        "papers": "[]",
    }
    return xr.DataTree.from_dict(
        {"/": root, **{f"/{name}": results[name] for name in names}}
    )


def _plain(value: Any, kind: Any) -> Any:
    return {"str": str, "int": int, "float": float}[kind](value)


def _cells(row: Judgement) -> tuple[str, ...]:
    """A row of the table as text."""
    name = row.entry or row.quantity
    if not np.isfinite(row.worst_ratio):
        ends = [f"{x:.4g}" if np.isfinite(x) else "" for x in (row.reference, row.mean)]
        return row.method, name, *ends, "", "", row.words
    error = row.standard_error
    digits = int(np.clip(1 - np.floor(np.log10(error)), 2, 7)) if error > 0 else 5
    mean = f"{row.mean:.{digits}f}" + (
        f"({max(error, 10**-digits) * 10**digits:.0f})" if error > 0 else ""
    )
    worst = (
        f"{row.worst_ratio:.2f}" if row.worst_ratio < 99.5 else f"{row.worst_ratio:.0f}"
    )
    return (
        row.method,
        name,
        f"{row.reference:.{digits}f}",
        mean,
        worst,
        f"{row.worst_time:.3g}",
        row.words,
    )


def _aligned(column: int, cell: str, width: int) -> str:
    return cell.ljust(width) if HEADER[column] in LEFT else cell.rjust(width)


def _wrap(label: str, text: str, hang: int | None = None) -> list[str]:
    indent = " " * (len(label) if hang is None else hang)
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=label,
        subsequent_indent=indent,
        break_long_words=False,
    )
