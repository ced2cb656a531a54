"""Recorded verdicts: what a figure said, with which settings, seed and versions, and the fingerprint of its data.

    docs/gallery.json   one entry for each figure
    docs/gallery.md     Verdict (cost): outcome. text        the line of each section, written from its entry

`record` puts a figure into the file, and its line into the page of the same name beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twolayer.numerics.errors import InputError
from twolayer.numerics.writing import write_atomically

if TYPE_CHECKING:
    import xarray as xr

    from twolayer.gallery.shared.registry import Plate

__all__ = ["RULES", "fingerprint", "line_of", "read", "record"]

RULES = 2
"""Edition of the tests behind the verdicts: 1 had two outcomes, 2 has three and states what each test resolves."""


def fingerprint(data: xr.Dataset) -> str:
    """SHA-256 of the names, dimensions and values of all variables, whatever their order.

    Examples
    --------
    >>> import xarray as xr
    >>> one, two = (xr.Dataset({"x": ("i", [1.0, value])}) for value in (2.0, 2.0 + 1e-15))
    >>> fingerprint(one) == fingerprint(one.copy()), fingerprint(one) == fingerprint(two)
    (True, False)
    """
    found = hashlib.sha256()
    for name in sorted(map(str, data.variables)):
        values = np.asarray(data[name].values)
        found.update(json.dumps([name, list(map(str, data[name].dims)), list(values.shape)]).encode())
        if values.dtype.kind in "OUSM":
            found.update(json.dumps([str(x) for x in values.ravel()]).encode())
        else:
            kind = "<f8" if values.dtype.kind == "f" else "<i8"  # integers and truth values alike
            found.update(np.ascontiguousarray(values).astype(kind).tobytes())
    return f"sha256:{found.hexdigest()}"


def line_of(entry: dict[str, Any]) -> str:
    """The line of a page."""
    rules = "" if entry["rules"] == RULES else "first rules, "
    return f"Verdict ({rules}{entry['cost']}): {entry['outcome']}. {entry['text']}"


def read(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """The entries of a file by figure; none where there is no file yet."""
    source = Path(path)
    if not source.exists():
        return {}
    try:
        found = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"A file of verdicts must be JSON, but {str(path)!r} is not ({error}).") from None
    return dict(found)


def record(plate: Plate, path: str | os.PathLike[str], cost: str) -> dict[str, Any]:
    """Put a figure into a file of verdicts, and its line into the page beside it.

    Parameters
    ----------
    plate : Plate
        From `run`.
    path : path
        A JSON file, made if it is not there; NAME.md beside NAME.json is the page.
    cost : str
        What it took, in words.
    """
    attributes = plate.data.attrs
    name, settings = attributes["gallery"], json.loads(attributes["settings"])
    entry = {
        "settings": {key: value for key, value in settings.items() if key != "seed"},
        "seed": settings["seed"],
        "versions": json.loads(attributes["versions"]),
        "rules": RULES,
        "cost": cost,
        "outcome": plate.verdict.outcome,
        "text": plate.verdict.text,
        "data": fingerprint(plate.data),
    }
    entries = {**read(path), name: entry}
    text = json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))
    page = Path(path).with_suffix(".md")
    if page.exists():
        source = page.read_text(encoding="utf-8")
        section = re.compile(rf"(?ms)(^## {re.escape(name)}$.*?^)Verdict \(.*?$")
        new = section.sub(lambda found: found[1] + line_of(entry), source, count=1)
        write_atomically(page, lambda file: file.write_text(new, encoding="utf-8"))
    return entry
