"""Commands whose writes are made to fail, with small input, and what each of them leaves.

    Scenario(name, call, prepare)      call(folder, again) gives exit code and what was said

They run in this process, one after the other: JAX compiles once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.cli import compare as comparing
from twolayer.cli import main
from twolayer.explorer import solving
from twolayer.explorer.speaking import Voice
from twolayer.explorer.worker import answer
from twolayer.gallery.shared import registry
from twolayer.gallery.shared.judging import Verdict
from twolayer.gallery.shared.parts import part
from twolayer.loops.checkpoint import Checkpoint
from twolayer.numerics import compilation

TASK = """\
[problem]
target = "He2(z1)"
activation = "He2"
[algorithm]
lr = "0.1/d"
geometry = "projected"
[start]
Q = [[1.0]]
M = [[0.5]]
[run]
dim = 100
steps = 20
save = 4
seeds = 2
methods = ["map", "chain"]
"""
OLD = "what was there before"


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    said: str


Call = Callable[[Path, bool], Ended]


class Scenario(NamedTuple):
    """A command: how it is called, for the first time or again, and what lies there before."""

    name: str
    call: Call
    prepare: Callable[[Path], None]


def command(*words: str, again: tuple[str, ...] = ()) -> Call:
    """A command line, with what is added when it is given again."""

    def call(folder: Path, repeated: bool) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(
                [*words, *(again if repeated and (folder / "x.zarr").exists() else ())]
            )
        return Ended(code, err.getvalue())

    return call


def with_task(*old: str) -> Callable[[Path], None]:
    """The task file, and old files of these names."""

    def prepare(folder: Path) -> None:
        (folder / "task.toml").write_text(TASK, encoding="utf-8")
        for name in old:
            (folder / name).write_text(OLD, encoding="utf-8")

    return prepare


def _stored(folder: Path) -> None:
    """A store of half of the sweep, and one of other cells."""
    with_task()(folder)
    half = ("task.toml", "--method", "chain", "--set", "run.seeds=1")
    command("sweep", *half, "--set", "sweep.method.dim=[100]", "--out", "x.zarr")(
        folder, False
    )
    command("sweep", *half, "--set", "sweep.method.dim=[200]", "--out", "y.zarr")(
        folder, False
    )


def _parts(*, seed: int = 0, size: int = 3) -> Any:
    """A figure of two pieces that come from runs."""
    pieces = [
        part(
            f"n={n}",
            lambda n=n: {"x": np.random.default_rng(n + seed).normal(size=size)},
        )
        for n in (1, 2)
    ]  # type: ignore[misc]
    data = xr.Dataset(
        {f"x{n}": ("i", piece.x.values) for n, piece in enumerate(pieces)}
    )
    return registry.Finding(data, Verdict("it has two pieces", ()), "no task")


def _drawn(_: object) -> Figure:
    """A figure that takes no time."""
    return Figure(figsize=(1, 1))


def _gallery(folder: Path, again: bool) -> Ended:
    entry = dataclasses.replace(
        registry.figures()["mediocrity"],
        compute=_parts,
        quick={},
        draw=_drawn,
        animate=None,
    )
    with mock.patch.dict(registry._ENTRIES, {"mediocrity": entry}):
        return command("gallery", "run", "mediocrity", "--out", "made")(folder, again)


def _download(folder: Path, again: bool) -> Ended:
    """The explorer's worker writes a file for the server."""
    tables = {
        "problem": {"target": "He2(z1)", "activation": "He2"},
        "algorithm": {"lr": "0.1/d", "geometry": "projected"},
        "start": {"Q": [[1.0]], "M": [[0.5]]},
        "run": {"dim": 100, "steps": 20, "save": 4, "seeds": 2},
    }
    with (
        mock.patch.object(tempfile, "tempdir", str(folder)),
        mock.patch.object(solving.secrets, "token_hex", lambda n: "0" * 2 * n),
    ):
        event, data = answer(
            "netcdf", tables, {"method": "chain"}, Voice(lambda *_: None)
        )
    return Ended(0, "") if event == "done" else Ended(1, f"twolayer: {data['error']}\n")  # type: ignore[index]


@contextlib.contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """Compiled code is kept in a folder, as in a process that has just begun."""
    names = (
        "dir",
        "persistent_cache_min_compile_time_secs",
        "persistent_cache_min_entry_size_bytes",
    )
    flags = [
        f"jax_compilation_cache_{names[0]}",
        *(f"jax_{name}" for name in names[1:]),
    ]
    before = {name: getattr(jax.config, name) for name in flags}
    from jax._src import compilation_cache

    compilation_cache.reset_cache()
    jax.clear_caches()
    jax.config.update(flags[0], None)
    with (
        mock.patch.dict(os.environ, {compilation.SETTING: str(folder)}),
        mock.patch.object(compilation, "_kept", False),
        mock.patch.object(compilation, "_expected", True),
    ):
        try:
            yield
        finally:
            compilation_cache.reset_cache()
            for name, value in before.items():
                jax.config.update(name, value)


def _cache(folder: Path, again: bool) -> Ended:
    """Something is compiled, and kept."""
    with _cache_in(folder / "cache"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compilation.keep()
        with jax.enable_x64(True):
            found = jax.jit(lambda x: x * x + 1)(jax.numpy.arange(3.0)).tolist()
    assert found == [1.0, 2.0, 5.0] and not any(
        issubclass(w.category, compilation.CacheWarning) for w in told
    )
    return Ended(0, "")


def solve_with(*words: str) -> Call:
    """A run of one method, with a checkpoint."""
    return command("solve", "task.toml", "--out", "x", "--checkpoint", "ck.npz", *words)


SWEEP = (
    "sweep",
    "task.toml",
    "--method",
    "chain",
    "--set",
    "sweep.method.dim=[100,200]",
    "--out",
    "x.zarr",
)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("solve", solve_with("--method", "chain"), with_task("x.nc")),
        Scenario(
            "solve-jax",
            solve_with("--method", "chain", "--set", "method.chain.engine=jax"),
            with_task(),
        ),
        Scenario(
            "solve-vectors",
            solve_with("--method", "vectors", "--dim", "20"),
            with_task(),
        ),
        Scenario("solve-sde", solve_with("--method", "sde"), with_task()),
        Scenario(
            "compare",
            command("compare", "task.toml", "--out", "x", "--methods", "chain,vectors"),
            with_task("x.nc", "x.png"),
        ),
        Scenario("sweep", command(*SWEEP, again=("--resume",)), with_task()),
        Scenario("sweep-grown", command(*SWEEP, "--resume"), _stored),
        Scenario(
            "sweep-merged", command(*SWEEP, "--resume", "--merge", "y.zarr"), _stored
        ),
        Scenario("gallery", _gallery, with_task()),
        Scenario("download", _download, with_task()),
        Scenario("cache", _cache, with_task()),
    )
}


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """A folder to work in; checkpoints at every save point, parts of a comparison from the first method on, and
    figures with nothing in them.
    """
    before = os.getcwd()
    os.chdir(folder)
    try:
        with (
            mock.patch.object(Checkpoint.__init__, "__defaults__", (0.0,)),
            mock.patch.object(comparing, "PATIENCE", -1.0),
            mock.patch.object(tl.plot, "trajectory", _drawn),
            mock.patch.object(tl.plot, "compare", _drawn),
        ):
            yield
    finally:
        os.chdir(before)


def _digest(path: Path) -> Any:
    """What a file of ours holds, read without the package; an error where it is not whole."""
    if path.suffix == ".nc":
        with xr.open_datatree(path, engine="h5netcdf", decode_timedelta=False) as tree:
            return {
                f"{node.path}/{name}": (
                    x.dims,
                    np.asarray(x.values).tolist()
                    if x.dtype == object
                    else x.values.tobytes(),
                )
                for node in tree.subtree
                for name, x in node.to_dataset().variables.items()
            }
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files}
    if path.suffix == ".png":
        from PIL import Image

        with Image.open(path) as image:
            return image.size, image.convert("RGB").tobytes()
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    if path.name.endswith("-cache"):
        from jax._src import compilation_cache

        return len(compilation_cache.decompress_executable(path.read_bytes())) > 0
    return path.read_bytes()


def _store(path: Path) -> Any:
    """What a store holds: the arrays as Zarr reads them, and how often the journal says that a unit is done."""
    import zarr

    units: dict[str, int] = {}
    for file in path.glob("journal/[0-9]*.json"):
        for unit in json.loads(file.read_text(encoding="utf-8"))["units"]:
            name = f"{unit['key']} {unit['low']} {unit.get('high', 'failed')}"
            units[name] = units.get(name, 0) + 1
    group = zarr.open_group(path, mode="r")
    arrays = {name: np.asarray(array[...]) for name, array in group.arrays()}
    known = tl.sweeps.load_sweep(path)
    return {
        "units": units,
        "arrays": {
            name: x.tobytes() if x.dtype.kind in "fiub" else x.tolist()
            for name, x in arrays.items()
        },
        "read": {
            str(name): x.values.tobytes()
            for name, x in known.variables.items()
            if x.dtype.kind in "fiub"
        },
    }


def held(folder: Path) -> dict[str, Any]:
    """Everything with a final name in a folder, each whole, or an error."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder).parts
        if path.name.endswith(".zarr") and not path.name.startswith("."):
            found[path.name] = _store(path)
        elif path.is_file() and not any(
            x.endswith(".zarr") or "-tl" in x for x in inner
        ):
            old = (
                path.stat().st_size == len(OLD)
                and path.read_text(errors="replace") == OLD
            )
            # the name of compiled code depends on the folder where it is kept
            name = (
                inner[-1].partition("-")[0] + "-cache"
                if path.name.endswith("-cache")
                else "/".join(inner)
            )
            found[name] = OLD if old else _digest(path)
    return found


def drafts(folder: Path) -> list[str]:
    """What is left of files that were being written."""
    return [
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if "-tl" in p.name or p.suffix == ".partial"
    ]


def left_open(folder: Path) -> list[str]:
    """Files of a folder that this process has open."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{entry}")
            if path.startswith(str(folder)):
                found.append(path[len(str(folder)) :])
    return found
