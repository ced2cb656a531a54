"""Pictures of the gallery that are small enough to be kept, each with what it shows,
and its data.

    images/gallery/NAME.webp         1200 pixels wide, at most 80 kB
    images/gallery/NAME.nc
        the data it is drawn from, where they take at most 2.5 MB
    images/gallery/pictures.json
        NAME: version, settings, seed and fingerprint of the data; hash of the picture

A picture of a full version stays until its settings are no longer those of the figure.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path

import xarray as xr

from twolayer.files.results import load, save
from twolayer.gallery.shared.registry import Plate, draw
from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import reject
from twolayer.numerics.writing import write_atomically

__all__ = ["FOLDER", "keep", "known", "redraw"]

FOLDER = Path("images", "gallery")
"""Where pictures are, beside a file of verdicts."""

WIDTH = 1200
LARGEST = 80_000
LARGEST_DATA = 2_500_000


def known(folder: str | os.PathLike[str]) -> dict[str, Json]:
    """What the pictures of a folder show, by figure."""
    file = Path(folder) / "pictures.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def keep(
    plate: Plate, folder: str | os.PathLike[str], shown: Json, full: Json
) -> Path | None:
    """Put the picture of a figure and its data into a folder; None where those of the
    full version stay.

    Parameters
    ----------
    plate : Plate
        The figure.
    folder : path
        Where pictures are kept.
    shown : dict
        What it shows: version, settings, seed and fingerprint of the data.
    full : dict
        Settings of the full version of the figure as they are today.
    """
    name, every = plate.data.attrs["gallery"], known(folder)
    old = every.get(name, {})
    if (
        shown["version"] == "quick"
        and old.get("version") == "full"
        and old["settings"] == full
    ):
        return None
    data = Path(folder) / f"{name}.nc"
    save(plate.data, data)
    if data.stat().st_size > LARGEST_DATA:
        data.unlink()
    return _put(plate, Path(folder), every, shown)


def redraw(name: str, folder: str | os.PathLike[str]) -> Path:
    """Draw a picture again from the data beside it, where the drawing has changed and
    the numbers have not.
    """
    every, data = known(folder), load(Path(folder) / f"{name}.nc")
    if not isinstance(data, xr.Dataset):
        reject("name", name, "a figure whose data are kept")
    return _put(draw(data), Path(folder), every, every[name])


def _put(plate: Plate, folder: Path, every: dict[str, Json], shown: Json) -> Path:
    name, picture = plate.data.attrs["gallery"], _small(plate)
    every[name] = {**shown, "picture": f"sha256:{hashlib.sha256(picture).hexdigest()}"}
    text = json.dumps(dict(sorted(every.items())), indent=1, ensure_ascii=False) + "\n"
    path = folder / f"{name}.webp"
    write_atomically(path, picture)
    write_atomically(folder / "pictures.json", text)
    return path


def _small(plate: Plate) -> bytes:
    """The figure as WebP, as good as fits."""
    from PIL import Image

    from twolayer.plot.style import house_style

    drawn = io.BytesIO()
    with house_style():
        plate.figure.savefig(
            drawn, format="png", dpi=2 * WIDTH / plate.figure.get_figwidth()
        )
    large = Image.open(drawn).convert("RGB")
    image = large.resize(
        (WIDTH, round(large.height * WIDTH / large.width)), Image.Resampling.LANCZOS
    )
    for quality in range(90, 10, -5):
        written = io.BytesIO()
        image.save(written, format="webp", quality=quality, method=6)
        if written.tell() <= LARGEST:
            break
    return written.getvalue()
