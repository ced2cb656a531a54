"""What a figure of the gallery is, where figures are found, and how one is run, drawn
and written.

    @figure("name", "what it shows", quick={…}, fixed={…})
    compute(*, seed, settings…) → Finding(data, verdict, task)
    draw(data) → Figure                                            and, where it moves,
        animate(data) → Animation

A figure is a file with these functions. Settings are the keyword arguments of the
first; ``quick`` holds those of a smaller version that takes seconds, ``fixed`` the
reason why target, activation or geometry is none of them. Settings, task and verdict
are kept among the attributes of the data, so that a figure is drawn from its file as
from its computation. Figures of one source form a group.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import json
import math
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr
from matplotlib.animation import Animation, PillowWriter
from matplotlib.figure import Figure

from twolayer.gallery.shared.judging import Check, Verdict
from twolayer.gallery.shared.parts import keeping
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import (
    InputError,
    choice,
    closest,
    expect,
    path_of,
    reject,
    short,
)

__all__ = [
    "Entry",
    "Finding",
    "Plate",
    "draw",
    "figure",
    "figures",
    "files_of",
    "read_setting",
    "run",
    "verdict_of",
    "write",
]

WORDS = {"agrees": "agree", "differs": "differ"}  # of older data

GROUPS = {
    "escape": ("arnaboldi2023escaping",),
    "mean-field": ("arnaboldi2023dimensionless",),
    "recovery": ("benarous2021", "xu2023"),
    "phase-diagram": ("arnaboldi2024",),
    "giant-steps": ("dandi2023", "dandi2024"),
    "inputs": ("saad1995", "goldt2019"),
}
"""Groups of figures, with the papers behind them."""

FRAMES_PER_SECOND = 12


class Finding(NamedTuple):
    """What a figure computes: its data, the verdict on them, and the task in one or two
    lines.

    Attributes
    ----------
    data : Dataset
        Everything that is drawn.
    verdict : Verdict
        What was claimed, and what came of it.
    task : str
        What was solved, for the attributes of the data.

    Examples
    --------
    >>> found = Finding(
    ...     xr.Dataset({"x": ("i", [1.0])}),
    ...     Verdict("it is one", (Check("agree", "x = 1"),)),
    ...     "no task",
    ... )
    >>> found.verdict.outcome
    'agree'
    """

    data: xr.Dataset
    verdict: Verdict
    task: str


class Plate(NamedTuple):
    """A finished figure with its data, its verdict and, where it moves, its animation.

    Attributes
    ----------
    figure : Figure
        Of matplotlib.
    data : Dataset
        What it is drawn from, with settings, verdict and versions as attributes.
    verdict : Verdict
        What was claimed, and what came of it.
    animation : Animation, optional
        Of figures that move.

    Examples
    --------
    >>> plate = Plate(Figure(), xr.Dataset(), Verdict("nothing", ()))
    >>> plate.verdict.outcome, plate.animation is None
    ('undecided', True)
    """

    figure: Figure
    data: xr.Dataset
    verdict: Verdict
    animation: Animation | None = None


@dataclass(frozen=True)
class Entry:
    """A figure of the gallery."""

    name: str
    title: str
    compute: Callable[..., Finding]
    draw: Callable[[xr.Dataset], Figure]
    quick: Mapping[str, object]
    fixed: Mapping[str, str] = field(default_factory=dict)
    group: str = "escape"
    papers: tuple[str, ...] = GROUPS["escape"]
    animate: Callable[[xr.Dataset], Animation] | None = None

    @property
    def settings(self) -> Options:
        """Names and values of the settings of the full version."""
        parameters = inspect.signature(self.compute).parameters.values()
        return {p.name: p.default for p in parameters if p.name != "seed"}


_ENTRIES: dict[str, Entry] = {}


def figure(
    name: str,
    title: str,
    *,
    quick: Mapping[str, object],
    fixed: Mapping[str, str] | None = None,
    group: str = "escape",
    papers: tuple[str, ...] | None = None,
    moves: bool = False,
) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Decorator: put a figure into the gallery, to be drawn by ``draw`` (and
    ``animate``) of the same file.

    Parameters
    ----------
    name, title : str
        What it is called on the command line, and what it shows.
    quick : mapping
        Settings of the smaller version.
    fixed : mapping, optional
        Of target, activation and geometry those that are no settings, with the reason
        in half a sentence.
    group : str
        One of `GROUPS`.
    papers : tuple of str, optional
        Keys of the papers behind it, where they are not those of the group.
    moves : bool
        Whether the file has an ``animate`` too.

    Examples
    --------
    The whole of a file is such a function and its ``draw``::

        @figure("ones", "nothing but ones", quick={"size": 3})
        def ones(*, seed: int = 0, size: int = 100) -> Finding:
            data = xr.Dataset({"x": ("i", np.ones(size))})
            return Finding(data, Verdict("they are ones", ()), "no task")

    >>> figures()["mediocrity"].quick["dims"]
    (4, 8, 16)
    """
    behind = GROUPS[choice("group", group, GROUPS)] if papers is None else papers

    def register(compute: Callable[..., Finding]) -> Callable[..., Finding]:
        def of_file(word: str) -> Callable[[xr.Dataset], Any]:
            """A function that stands further down in the same file."""
            return lambda data: getattr(sys.modules[compute.__module__], word)(data)

        moving = of_file("animate") if moves else None
        _ENTRIES[name] = Entry(
            name,
            title,
            compute,
            of_file("draw"),
            dict(quick),
            dict(fixed or {}),
            group,
            behind,
            moving,
        )
        return compute

    return register


def figures() -> dict[str, Entry]:
    """All figures by name, group after group.

    Examples
    --------
    >>> "mediocrity" in figures()
    True
    """
    for module in pkgutil.iter_modules([str(Path(__file__).parent.parent)]):
        if not module.ispkg:  # the package holds what figures share
            importlib.import_module(f"twolayer.gallery.{module.name}")
    order = list(GROUPS)
    return {
        entry.name: entry
        for entry in sorted(
            _ENTRIES.values(), key=lambda e: (order.index(e.group), e.name)
        )
    }


def read_setting(text: str, settings: Mapping[str, Any]) -> tuple[str, Any]:
    """``key=value`` as a setting of the type it has by default; ``a,b,c`` is a
    sequence.

    Examples
    --------
    >>> read_setting("dims=100,1000", {"dims": (10,)})
    ('dims', (100, 1000))
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set must be KEY=VALUE, but got {short(text)}.")
    if key not in settings:
        raise InputError(
            f"Unknown setting {short(key)}{closest(key, settings)}; settings are"
            f" {', '.join(settings)}."
        )
    default = settings[key]
    if isinstance(default[0] if isinstance(default, tuple) else default, str):
        return key, tuple(value.split(",")) if isinstance(default, tuple) else value
    try:
        given = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        reject(key, value, "a number, or numbers with commas between them")
    return key, _like(key, given, default)


def _like(key: str, value: Any, default: Any) -> Any:
    """The value, checked to be of the kind of the default: an integer, a number, text,
    or a sequence of these.
    """
    if isinstance(default, tuple):
        items = value if isinstance(value, list | tuple) else (value,)
        if not items:
            reject(key, value, "at least one number")
        return tuple(_like(key, item, default[0]) for item in items)
    if isinstance(default, bool) and not isinstance(value, bool):
        reject(key, value, "True or False")
    if isinstance(default, str) and not isinstance(value, str):
        reject(key, value, "text")
    if isinstance(default, bool | str):
        return value
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if number and not math.isfinite(value):
        reject(key, value, "a finite number")
    if isinstance(default, int) and not (number and value == int(value) and value > 0):
        reject(key, value, "a positive integer")
    if isinstance(default, float) and not (number and value >= 0):
        reject(key, value, "a number ≥ 0")
    return type(default)(value)


def run(
    name: str,
    *,
    quick: bool = False,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    **settings: object,
) -> Plate:
    """Make a figure.

    Parameters
    ----------
    name : str
        One of `figures`.
    quick : bool
        The smaller version.
    seed : int
        Seed of all random numbers.
    out : path, optional
        A folder to write into. Finished pieces are kept there until the figure is
        written, so that the same call after an interruption goes on where it stopped.
    **settings
        Settings of the figure to change.

    Returns
    -------
    Plate
        ``.figure`` (matplotlib), ``.data`` (xarray) and ``.verdict`` (``.outcome``,
        ``.claim``, ``.checks``).

    Examples
    --------
    >>> plate = run("mediocrity", quick=True)
    >>> plate.verdict.outcome
    'agree'
    """
    known = figures()
    entry = known[choice("name", name, known)]
    from twolayer.numerics.random import check_seed
    from twolayer.running.dataset import SCHEMA, versions

    check_seed(seed)
    every = entry.settings
    for key in settings:
        choice("settings", key, every)
    chosen = {
        **(entry.quick if quick else {}),
        **{k: _like(k, v, every[k]) for k, v in settings.items()},
    }
    described = {**every, **chosen, "seed": seed}
    folder = None if out is None else Path(out)
    with keeping(folder, name, {**described, **versions()}) as forget:
        data, found, task = entry.compute(seed=seed, **chosen)
        data.attrs |= {
            "schema": SCHEMA,
            "gallery": name,
            "settings": json.dumps(described),
            "task": task,
            "claim": found.claim,
            "checks": json.dumps(found.checks, ensure_ascii=False),
            "note": found.note,
            "verdict": found.text,
            "outcome": found.outcome,
            "agrees": json.dumps(found.agrees),
            "versions": json.dumps(versions()),
            "papers": json.dumps(entry.papers),
        }
        plate = draw(data)
        if folder is not None:
            write(plate, folder)
            forget()
    return plate


def verdict_of(data: xr.Dataset) -> Verdict:
    """The verdict that the data of a figure carry."""
    stored = json.loads(data.attrs["checks"])
    checks = tuple(Check(WORDS.get(word, word), text) for word, text in stored)
    return Verdict(data.attrs["claim"], checks, data.attrs["note"])


def draw(data: xr.Dataset) -> Plate:
    """Draw a figure from its data, without computing anything again.

    Parameters
    ----------
    data : xarray.Dataset
        ``.data`` of a plate, or NAME.nc as `load` reads it.

    Examples
    --------
    >>> plate = run("mediocrity", quick=True)
    >>> draw(plate.data).verdict == plate.verdict
    True
    """
    from twolayer.plot.style import house_style

    if not isinstance(data, xr.Dataset) or "gallery" not in data.attrs:
        reject("data", type(data).__name__, "the data of a figure of the gallery")
    known = figures()
    entry = known[choice("data", data.attrs["gallery"], known)]
    with house_style():
        drawn = entry.draw(data)
        moving = None if entry.animate is None else entry.animate(data)
    return Plate(drawn, data, verdict_of(data), moving)


def files_of(plate: Plate, folder: str | os.PathLike[str]) -> list[Path]:
    """NAME.png, NAME.nc and, where it moves, NAME.gif."""
    name = expect(Plate, "plate", plate).data.attrs["gallery"]
    base = path_of("folder", folder) / name
    suffixes = (".png", ".nc") if plate.animation is None else (".png", ".nc", ".gif")
    return [base.with_suffix(suffix) for suffix in suffixes]


class Frames(PillowWriter):
    """An animation as GIF in memory."""

    image: io.BytesIO
    _frames: list[Any]

    def finish(self) -> None:
        """Put the frames together, as its parent does in a file."""
        self.image = io.BytesIO()
        first, *others = self._frames
        wait = int(1000 / self.fps)
        first.save(
            self.image,
            "gif",
            save_all=True,
            append_images=others,
            duration=wait,
            loop=0,
        )


def write(plate: Plate, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the files of a figure into an existing folder, each all or nothing.

    Parameters
    ----------
    plate : Plate
        From `run` or `draw`.
    folder : path
        One that exists.

    Examples
    --------
    >>> import tempfile
    >>> data = xr.Dataset({"x": ("i", [1.0])}, attrs={"gallery": "ones"})
    >>> [
    ...     file.name
    ...     for file in write(
    ...         Plate(Figure(), data, Verdict("it is one", ())), tempfile.mkdtemp()
    ...     )
    ... ]
    ['ones.png', 'ones.nc']
    """
    from twolayer.files.results import save
    from twolayer.numerics.writing import write_atomically
    from twolayer.plot import save_figure
    from twolayer.plot.style import house_style

    files = files_of(plate, folder)
    moving = plate.animation
    with house_style():
        save_figure(plate.figure, files[0])
        save(plate.data, files[1])
        if moving is not None:
            frames = Frames(fps=FRAMES_PER_SECOND)
            moving.save(files[2], writer=frames)
            write_atomically(files[2], frames.image.getbuffer())
    return files
