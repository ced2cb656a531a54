"""Result files and stores of strangers: good ones with bytes flipped, parts cut off and numbers exchanged."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.running.comparison import Comparison

from . import Begun, Case
from .arguments import algorithm, problem, start
from .values import NUMBERS, TEXTS


@functools.cache
def originals() -> Path:
    """A run, a run in stages, a comparison, a mean field and a sweep on disk."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    tl.save(
        tl.solve(
            problem(), algorithm(), tl.Chain(50), start(), steps=8, save=4, seeds=2
        ),
        folder / "run.nc",
    )
    stages = [tl.Stage(algorithm(), steps=3, save=2)] * 2
    tl.save(
        tl.solve_stages(problem(), stages, tl.Chain(50), start(), seeds=2),
        folder / "stages.nc",
    )
    both = tl.compare(
        problem(),
        algorithm(),
        [tl.Chain(50), tl.Map(50)],
        start(),
        steps=8,
        save=4,
        seeds=4,
    )
    tl.save(both, folder / "compare.nc")
    over = {"method.dim": [20, 40]}
    tl.sweep(
        problem(),
        algorithm(),
        tl.Chain(20),
        over,
        steps=4,
        seeds=2,
        store=folder / "sweep.zarr",
        progress=False,
    )
    return folder


def _leaf(rnd: Random) -> Any:
    """Some value of JSON."""
    pool = (
        *(x for x in NUMBERS if isinstance(x, int | float)),
        *(x for x in TEXTS if isinstance(x, str)),
    )
    return rnd.choice(
        (
            None,
            [],
            {},
            [1],
            {"a": 1},
            "<function f>",
            rnd.choice(pool),
            rnd.choice(pool),
        )
    )


def spoil_json(rnd: Random, tree: Any) -> Any:
    """The same tree with one of its branches exchanged, gone or new."""
    if isinstance(tree, dict) and tree and rnd.random() < 0.85:
        key = rnd.choice(sorted(tree))
        kind = rnd.randrange(8)
        if kind == 0:
            return {k: v for k, v in tree.items() if k != key}
        if kind == 1:
            return {
                **tree,
                rnd.choice(("extra", "name", "dim", "__class__")): _leaf(rnd),
            }
        return {**tree, key: spoil_json(rnd, tree[key])}
    if isinstance(tree, list) and tree and rnd.random() < 0.7:
        i = rnd.randrange(len(tree))
        return [*tree[:i], spoil_json(rnd, tree[i]), *tree[i + 1 :]]
    return _leaf(rnd)


def _spoil_variables(rnd: Random, dataset: xr.Dataset) -> xr.Dataset:
    """One variable gone, renamed, cut, of another kind or full of nothing."""
    name = rnd.choice(sorted(map(str, dataset.variables)))
    kind = rnd.randrange(6)
    if kind == 0:
        return dataset.drop_vars(name)
    if kind == 1 and dataset[name].dims:
        return dataset.isel({dataset[name].dims[0]: slice(0, rnd.randrange(2))})
    if kind == 2:
        return (
            dataset.assign({name: ((), rnd.choice((1.0, "x", 3)))})
            if name not in dataset.dims
            else dataset
        )
    if kind == 3 and dataset[name].dtype.kind == "f":
        return dataset.assign(
            {name: dataset[name] * rnd.choice((np.nan, np.inf, -1.0, 1e200))}
        )
    if kind == 4 and dataset[name].dims and name not in dataset.dims:
        return dataset.assign(
            {name: (dataset[name].dims[::-1], dataset[name].values.T)}
        )
    return (
        dataset.assign({name: dataset[name].astype(str)})
        if name not in dataset.dims
        else dataset
    )


def _semantic(rnd: Random, source: Path, target: Path) -> None:
    """A file that netCDF reads, with other contents."""
    with xr.open_datatree(source, engine="h5netcdf") as tree:
        tree.load()
    groups = [tree, *tree.children.values()]
    node = rnd.choice(groups)
    dataset = node.to_dataset()
    attrs = dict(dataset.attrs)
    if attrs and rnd.random() < 0.7:
        key = rnd.choice(sorted(attrs))
        text = attrs[key]
        kind = rnd.randrange(5)
        if kind == 0:
            del attrs[key]
        elif kind == 1:
            attrs[key] = rnd.choice(
                (
                    "",
                    "{",
                    "[]",
                    "null",
                    "3",
                    '"x"',
                    "twolayer/2",
                    "twolayer/99",
                    3,
                    0.5,
                    [1, 2],
                )
            )
        else:
            try:
                attrs[key] = json.dumps(spoil_json(rnd, json.loads(text)))
            except (ValueError, TypeError):
                attrs[key] = "x"
        dataset.attrs = attrs
    elif dataset.variables:
        dataset = _spoil_variables(rnd, dataset)
    node.dataset = dataset
    tree.to_netcdf(target, engine="h5netcdf")


def _bytes(rnd: Random, source: Path, target: Path) -> None:
    """A file with bytes flipped, or cut, or of another kind."""
    data = bytearray(source.read_bytes())
    kind = rnd.randrange(5)
    if kind == 0:
        data = data[: rnd.randrange(len(data))]
    elif kind == 1:
        data = bytearray(
            rnd.choice(
                (
                    b"",
                    b"\x89HDF\r\n\x1a\n",
                    b"CDF\x01",
                    b"\x80\x04K\x01.",
                    b"PK\x03\x04" * 9,
                )
            )
        )
    else:
        for _ in range(rnd.choice((1, 3, 30))):
            data[rnd.randrange(len(data))] = rnd.randrange(256)
    target.write_bytes(data)


def use(found: Any, which: int) -> None:
    """What people do with a file once it is read."""
    compared = isinstance(found, Comparison)
    if which == 0:
        tl.rerun(found)
    elif which == 1:
        (tl.plot.compare if compared else tl.plot.trajectory)(found)
    elif which == 2:
        tl.cite(found)
        str(found)
    elif which == 3 and not compared:
        tl.layers.layerwise(found)
    elif which == 4 and not compared:
        tl.escape.first_passage(found)
    elif which == 5 and not compared:
        tl.mean_field.measure_moments(found)


def result(rnd: Random) -> Case:
    """A result file from somewhere, and one thing done with it."""
    name = rnd.choice(("run.nc", "run.nc", "stages.nc", "compare.nc"))
    state, way, which, source = (
        rnd.getrandbits(64),
        rnd.random() < 0.7,
        rnd.randrange(6),
        originals() / name,
    )

    def call() -> None:
        own = Random(state)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.nc"
            try:
                (_semantic if way else _bytes)(own, source, path)
            except Exception:  # netCDF itself does not write this
                return
            use(tl.load(path), which)

    return Case(f"{name} {'contents' if way else 'bytes'} then use {which}", call)


def store(rnd: Random) -> Case:
    """A store of a sweep from somewhere: read, resumed or merged."""
    state, which, source = (
        rnd.getrandbits(64),
        rnd.randrange(3),
        originals() / "sweep.zarr",
    )

    def call() -> None:
        own = Random(state)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.zarr"
            shutil.copytree(source, path)
            for _ in range(own.choice((1, 1, 2))):
                _spoil_store(own, path)
            if which == 0:
                tl.load(path)
            elif which == 1:
                over = {"method.dim": [20, 40]}
                tl.sweep(
                    problem(),
                    algorithm(),
                    tl.Chain(20),
                    over,
                    steps=4,
                    seeds=3,
                    store=path,
                    progress=False,
                )
                raise Begun
            else:
                tl.sweeps.merge_sweeps(Path(folder) / "y.zarr", path)

    return Case(f"a spoilt store, {('read', 'resumed', 'merged')[which]}", call)


def _spoil_store(rnd: Random, path: Path) -> None:
    files = sorted(x for x in path.rglob("*") if x.is_file())
    file = rnd.choice(files)
    kind = rnd.randrange(6)
    if kind == 0:
        file.unlink()
    elif kind == 1:
        file.write_bytes(b"")
    elif kind == 2:
        data = bytearray(file.read_bytes() or b"x")
        for _ in range(rnd.choice((1, 5))):
            data[rnd.randrange(len(data))] = rnd.randrange(256)
        file.write_bytes(data)
    elif kind == 3:
        shutil.rmtree(file.parent) if file.parent != path else file.unlink()
    else:
        texts = [x for x in files if x.suffix == ".json"]
        file = rnd.choice(texts)
        try:
            file.write_text(json.dumps(spoil_json(rnd, json.loads(file.read_text()))))
        except ValueError:
            file.write_text("{")
