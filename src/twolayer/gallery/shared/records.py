"""Recorded verdicts: what a figure said, with which settings, seed and versions, and
the fingerprint of its data.

    docs/gallery.json   for each figure its quick version and, where it was run,
                        the full one
    docs/gallery.md     Verdict (version, cost): outcome. text
                        lines of each section, written from the entries
    docs/images/gallery pictures, and what they show

`record` puts a figure into the file, its line into the page of the same name beside it,
and its picture into the folder of pictures if there is one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twolayer.gallery.shared import pictures
from twolayer.gallery.shared.registry import Entry, Plate, figures
from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import InputError, choice, expect, path_of
from twolayer.numerics.writing import write_atomically

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["VERSIONS", "fingerprint", "line_of", "read", "record", "settings_of"]

VERSIONS = ("full", "quick")


def fingerprint(data: xr.Dataset) -> str:
    """SHA-256 of the names, dimensions and values of all variables, whatever their
    order.
    """
    found = hashlib.sha256()
    for name in sorted(map(str, data.variables)):
        values = np.asarray(data[name].values)
        found.update(
            json.dumps(
                [name, list(map(str, data[name].dims)), list(values.shape)]
            ).encode()
        )
        if values.dtype.kind in "OUSM":
            found.update(json.dumps([str(x) for x in values.ravel()]).encode())
        else:
            kind = (
                "<f8" if values.dtype.kind == "f" else "<i8"
            )  # integers and truth values alike
            found.update(np.ascontiguousarray(values).astype(kind).tobytes())
    return f"sha256:{found.hexdigest()}"


def settings_of(entry: Entry, version: str) -> Json:
    """Settings of a version of a figure, as JSON has them."""
    known: Json = json.loads(
        json.dumps({**entry.settings, **(entry.quick if version == "quick" else {})})
    )
    return known


def line_of(version: str, entry: Json) -> str:
    """The line of a page."""
    return f"Verdict ({version}, {entry['cost']}): {entry['outcome']}. {entry['text']}"


def read(path: str | os.PathLike[str]) -> dict[str, Json]:
    """The entries of a file by figure and version; none where there is no file yet."""
    source = Path(path)
    if not source.exists():
        return {}
    try:
        found = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"A file of verdicts must be JSON, but {str(path)!r} is not ({error})."
        ) from None
    return dict(found)


def record(plate: Plate, path: str | os.PathLike[str], version: str, cost: str) -> Json:
    """Put a figure into a file of verdicts, its line into the page and its picture into
    the folder beside it.

    Parameters
    ----------
    plate : Plate
        From `run`.
    path : path
        A JSON file, made if it is not there; NAME.md beside NAME.json is the page,
        images/gallery the folder of pictures. Neither is made.
    version : str
        ``"full"`` or ``"quick"``, with the settings of that version.
    cost : str
        What it took, in words.

    Examples
    --------
    >>> import tempfile
    >>> from twolayer.gallery.shared.registry import run
    >>> entry = record(
    ...     run("mediocrity", quick=True),
    ...     f"{tempfile.mkdtemp()}/gallery.json",
    ...     "quick",
    ...     "2 s on 2 cores",
    ... )
    >>> line_of("quick", entry)[:39]
    'Verdict (quick, 2 s on 2 cores): agree.'
    """
    attributes = expect(Plate, "plate", plate).data.attrs
    path_of("path", path)
    name, settings = attributes["gallery"], json.loads(attributes["settings"])
    seed = settings.pop("seed")
    if settings != settings_of(figures()[name], choice("version", version, VERSIONS)):
        raise InputError(
            f"Only the {version} version of {name} can be recorded as such, but its"
            " settings were changed."
        )
    entry = {
        "settings": settings,
        "seed": seed,
        "versions": json.loads(attributes["versions"]),
        "cost": cost,
        "outcome": plate.verdict.outcome,
        "text": plate.verdict.text,
        "data": fingerprint(plate.data),
    }
    known = read(path)
    known[name] = {**known.get(name, {}), version: entry}
    text = json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, text)
    page = Path(path).with_suffix(".md")
    if page.exists():
        new = _with_lines(page.read_text(encoding="utf-8"), name, known[name])
        write_atomically(page, new)
    folder = Path(path).parent / pictures.FOLDER
    if folder.is_dir():
        shown = {
            "version": version,
            **{key: entry[key] for key in ("settings", "seed", "data")},
        }
        pictures.keep(plate, folder, shown, settings_of(figures()[name], "full"))
    return entry


def _with_lines(page: str, name: str, entries: Json) -> str:
    """A page with the verdicts of a figure where its old ones were, or at the end of
    its section.
    """
    lines = "".join(
        f"{line_of(version, entries[version])}\n\n"
        for version in VERSIONS
        if version in entries
    )

    def written(section: re.Match[str]) -> str:
        parts = re.split(r"(?m)^Verdict \(.*\n+", section[0])
        first = parts[0] if len(parts) > 1 else parts[0].rstrip("\n") + "\n\n"
        return first + lines + "".join(parts[1:])

    return (
        re.sub(
            rf"(?ms)^## {re.escape(name)}$.*?(?=^##? |\Z)", written, page, count=1
        ).rstrip("\n")
        + "\n"
    )
