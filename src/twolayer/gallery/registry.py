"""What a figure of the gallery is, where figures are found, and how one is run and written.

    @figure("name", "what it shows", quick={…})   on   f(*, seed, settings…) → Plate(figure, data, verdict)

Settings are the keyword arguments of the function; ``quick`` holds those of a smaller version that takes seconds.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr
from matplotlib.figure import Figure

from twolayer.errors import InputError, choice, closest, reject, short

__all__ = ["Entry", "Plate", "Verdict", "figure", "figures", "read_setting", "run", "write"]

PAPERS = ("arnaboldi2023escaping",)


class Verdict(NamedTuple):
    """Whether measurement and theory agree, and the numbers that say so in one line."""

    agrees: bool
    text: str


class Plate(NamedTuple):
    """A finished figure with its data and its verdict."""

    figure: Figure
    data: xr.Dataset
    verdict: Verdict


@dataclass(frozen=True)
class Entry:
    """A figure of the gallery."""

    name: str
    title: str
    draw: Callable[..., Plate]
    quick: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """Names and values of the settings of the full version."""
        parameters = inspect.signature(self.draw).parameters.values()
        return {p.name: p.default for p in parameters if p.name != "seed"}


_ENTRIES: dict[str, Entry] = {}


def figure(
    name: str, title: str, *, quick: Mapping[str, Any]
) -> Callable[[Callable[..., Plate]], Callable[..., Plate]]:
    """Decorator: put a figure into the gallery.

    Parameters
    ----------
    name, title : str
        What it is called on the command line, and what it shows.
    quick : mapping
        Settings of the smaller version.
    """

    def register(draw: Callable[..., Plate]) -> Callable[..., Plate]:
        _ENTRIES[name] = Entry(name, title, draw, dict(quick))
        return draw

    return register


def figures() -> dict[str, Entry]:
    """All figures by name.

    Examples
    --------
    >>> "mediocrity" in figures()
    True
    """
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"twolayer.gallery.{module.name}")
    return dict(sorted(_ENTRIES.items()))


def read_setting(text: str, settings: Mapping[str, Any]) -> tuple[str, Any]:
    """``key=value`` as a setting of the type it has by default; ``a,b,c`` is a sequence.

    Examples
    --------
    >>> read_setting("dims=100,1000", {"dims": (10,)})
    ('dims', (100, 1000))
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set must be KEY=VALUE, but got {short(text)}.")
    if key not in settings:
        raise InputError(f"Unknown setting {key!r}{closest(key, settings)}; settings are {', '.join(settings)}.")
    try:
        given = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        reject(key, value, "a number, or numbers with commas between them")
    return key, _like(key, given, settings[key])


def _like(key: str, value: Any, default: Any) -> Any:
    """The value, checked to be of the kind of the default: an integer, a number, or a sequence of either."""
    if isinstance(default, tuple):
        items = value if isinstance(value, list | tuple) else (value,)
        if not items:
            reject(key, value, "at least one number")
        return tuple(_like(key, item, default[0]) for item in items)
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if isinstance(default, int) and not (number and value == int(value) and value > 0):
        reject(key, value, "a positive integer")
    if isinstance(default, float) and not (number and value >= 0):
        reject(key, value, "a number ≥ 0")
    return type(default)(value)


def run(name: str, *, quick: bool = False, seed: int = 0, **settings: Any) -> Plate:
    """Make a figure.

    Parameters
    ----------
    name : str
        One of `figures`.
    quick : bool
        The smaller version.
    seed : int
        Seed of all random numbers.
    **settings
        Settings of the figure to change.

    Returns
    -------
    Plate
        ``.figure`` (matplotlib), ``.data`` (xarray) and ``.verdict`` (``.agrees``, ``.text``).

    Examples
    --------
    >>> plate = run("mediocrity", quick=True)
    >>> plate.verdict.agrees
    True
    """
    known = figures()
    entry = known[choice("name", name, known)]
    from twolayer.plot.style import house_style
    from twolayer.random import check_seed
    from twolayer.results import SCHEMA, versions

    check_seed(seed)
    every = entry.settings
    for key in settings:
        choice("settings", key, every)
    chosen = {**(entry.quick if quick else {}), **{k: _like(k, v, every[k]) for k, v in settings.items()}}
    with house_style():
        plate = entry.draw(seed=seed, **chosen)
    plate.data.attrs |= {
        "schema": SCHEMA,
        "gallery": name,
        "settings": json.dumps({**every, **chosen, "seed": seed}),
        "verdict": plate.verdict.text,
        "agrees": json.dumps(plate.verdict.agrees),
        "versions": json.dumps(versions()),
        "papers": json.dumps(PAPERS),
    }
    return plate


def write(plate: Plate, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write NAME.png and NAME.nc into an existing folder, each all or nothing."""
    from twolayer.plot import save_figure
    from twolayer.plot.style import house_style
    from twolayer.results import save

    base = Path(folder) / plate.data.attrs["gallery"]
    with house_style():
        drawn = save_figure(plate.figure, base.with_suffix(".png"))
    return drawn, save(plate.data, base.with_suffix(".nc"))
