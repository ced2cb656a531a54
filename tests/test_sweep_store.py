"""The store: killed, shared, damaged, foreign, extended and merged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from sweep_tasks import OVER, Counts, fails_at_160, same, task

import twolayer as tl
from twolayer.numerics.errors import InputError, RunFailed
from twolayer.numerics.temporary_files import mark
from twolayer.sweeps import api
from twolayer.sweeps import store as store_module
from twolayer.sweeps.grid import Run

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def reference() -> Any:
    return tl.sweep(**task())


def child(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "sweep_tasks.py"), str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def journal(path: Path) -> Counter[tuple[str, int]]:
    """How often each unit is entered as done."""
    files = list((path / "journal").glob("[0-9]*.json"))
    units = [
        unit
        for f in files
        for unit in json.loads(f.read_text())["units"]
        if "error" not in unit
    ]
    return Counter((unit["key"], unit["low"]) for unit in units)


@pytest.mark.long
def test_kill_and_resume(tmp_path: Path, reference: Any) -> None:
    path = tmp_path / "s.zarr"
    process = child(path)
    assert process.stdout is not None
    seen = 0
    while seen < 4:
        seen += json.loads(process.stdout.readline())["event"] == "cell"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    kept = len(journal(path))
    assert 4 <= kept < 18
    counts = Counts()
    result = tl.sweep(**task(), store=path, progress=counts)
    assert len(counts.units) == 18 - kept
    assert set(journal(path).values()) == {1} and len(journal(path)) == 18
    assert same(result, reference)
    assert same(tl.sweeps.load_sweep(path), reference)


@pytest.mark.long
def test_two_processes_share_a_store(tmp_path: Path, reference: Any) -> None:
    path = tmp_path / "s.zarr"
    both = [child(path), child(path)]
    events = [
        [json.loads(line) for line in p.communicate()[0].splitlines()] for p in both
    ]
    assert [p.returncode for p in both] == [0, 0]
    cells = [e["cell"] for stream in events for e in stream if e["event"] == "cell"]
    assert len(cells) == 18 and len(set(cells)) == 18
    assert same(tl.sweeps.load_sweep(path), reference)


def test_damage_is_noticed_and_mended(tmp_path: Path, reference: Any) -> None:
    """A chunk that did not reach the disk, whole or in part, is computed again; nothing else is."""
    path = tmp_path / "s.zarr"
    tl.sweep(**task(), store=path)
    (path / "risk" / "c.0.1.0.0").unlink()
    chunk = path / "M" / "c.2.2.1.0.0.0"
    chunk.write_bytes(chunk.read_bytes()[:-8] + bytes(8))
    cut = path / "overlap" / "c.1.0.1.0"
    cut.write_bytes(cut.read_bytes()[:24])
    spoilt = path / "time" / "c.1.1.1.0"
    spoilt.write_bytes(b"\xff" * len(spoilt.read_bytes()))
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = (
        path
        / "risk"
        / f".c.0.0.0-{mark().replace(str(os.getpid()), str(gone.pid))}-0.0"
    )
    for stray in (left, path / "risk" / "zarr.0.partial"):  # ours and Zarr's
        stray.write_bytes(b"left by a killed process")
    counts = Counts()
    result = tl.sweep(**task(), store=path, progress=counts)
    assert (
        len(counts.units) == 3
    )  # the bytes changed in M belong to seeds that were never asked for
    assert same(result, reference) and same(tl.sweeps.load_sweep(path), reference)
    assert not left.exists() and not list(path.rglob("*.partial"))


def test_full_disk_stops_cleanly(
    tmp_path: Path, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace, calls = tmp_path / "s.zarr", os.replace, 0

    def full(a: Any, b: Any) -> None:
        nonlocal calls
        calls += "c." in Path(b).name
        if calls > 40:
            raise OSError(28, "No space left on device")
        replace(a, b)

    monkeypatch.setattr(store_module.os, "replace", full)
    with pytest.raises(RunFailed, match=r"No space left on device.*resume"):
        tl.sweep(**task(), store=path, memory=1)
    monkeypatch.undo()
    kept = len(journal(path))
    assert 0 < kept < 18
    counts = Counts()
    assert same(tl.sweep(**task(), store=path, progress=counts), reference)
    assert len(counts.units) == 18 - kept
    assert not list(path.rglob(".*"))


def test_another_sweep_or_no_sweep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    tl.sweep(**task(over={"method.dim": [80]}), store=path)
    before = {f: f.stat().st_mtime_ns for f in path.rglob("*")}
    for changes, words in (
        ({"time": 0.6}, "its `run.time` is 0.5, not 0.6"),
        ({"seed": 1}, "its `run.seed` is 0, not 1"),
        ({"problem": tl.Problem("He3(z1)", "He2")}, "problem.target"),
        ({"reduce": "trajectory"}, "`reduce`"),
        ({"over": {"method.dim": [80], "problem.noise": [0.0]}}, "holds another sweep"),
    ):
        with pytest.raises(InputError, match=words):
            tl.sweep(**{**task(over={"method.dim": [80]}), **changes}, store=path)
    with pytest.raises(InputError, match="exists already"):
        tl.sweep(**task(over={"method.dim": [80]}), store=path, resume=False)
    assert {f: f.stat().st_mtime_ns for f in path.rglob("*")} == before
    foreign = tmp_path / "other.zarr"
    xr.Dataset({"x": ("y", np.arange(3.0))}).to_zarr(foreign, consolidated=False)
    for wrong in (foreign, tmp_path):
        with pytest.raises(
            InputError, match=r"must be a sweep of twolayer|must end in .zarr"
        ):
            tl.sweep(**task(), store=wrong)
    with pytest.raises(InputError, match="must be a sweep of twolayer"):
        tl.sweeps.load_sweep(foreign)
    with pytest.raises(InputError, match="writable folder"):
        tl.sweep(**task(), store=tmp_path / "nowhere" / "s.zarr")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.zarr", "s.zarr"]


@pytest.mark.long
def test_more_seeds_and_points_compute_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    small = task(over={"method.dim": [160], "problem.width": [1]}, seeds=3)
    first = tl.sweep(**small, store=path)
    old = {f.name: f.read_bytes() for f in (path / "journal").glob("[0-9]*.json")}
    counts = Counts()
    wider = {
        **small,
        "over": {"method.dim": [80, 160], "problem.width": [2, 1]},
        "seeds": 20,
    }
    grown = tl.sweep(**wider, store=path, progress=counts)
    assert sorted(low for _, low in counts.units) == [0, 0, 0, 3, 16, 16, 16, 16]
    kept = grown.sel({"method.dim": [160], "problem.width": [1]}).isel(
        seed=slice(0, 3), neuron=slice(0, 1)
    )
    assert same(kept.drop_vars("runs"), first.drop_vars("runs"))
    assert {
        f.name: f.read_bytes()
        for f in (path / "journal").glob("[0-9]*.json")
        if f.name in old
    } == old
    assert same(grown, tl.sweep(**wider))
    again = Counts()
    assert (
        same(tl.sweep(**small, store=path, progress=again), first) and again.units == []
    )
    opened = xr.open_zarr(path, consolidated=False)
    assert opened.risk.sizes == {"method.dim": 2, "problem.width": 2, "seed": 20}
    chosen = opened.sel({"method.dim": 160, "problem.width": 1}).risk.values[:3]
    assert np.array_equal(chosen, first.risk.values[0, 0])


def test_merging(tmp_path: Path, reference: Any) -> None:
    a, b, c = (tmp_path / f"{x}.zarr" for x in "abc")
    tl.sweep(**task(over={**OVER, "method.dim": [80, 160]}), store=a)
    tl.sweep(**task(over={**OVER, "method.dim": [240]}, seeds=2), store=b)
    tl.sweep(**task(over={**OVER, "method.dim": [160, 240]}), store=b)
    merged = tl.sweeps.merge_sweeps(c, a, b)
    assert same(merged, reference)
    counts = Counts()
    assert (
        same(tl.sweep(**task(), store=c, progress=counts), reference)
        and counts.units == []
    )
    assert same(tl.sweeps.merge_sweeps(a, b), reference)
    other = tmp_path / "other.zarr"
    tl.sweep(**task(over={"method.dim": [80]}), store=other)
    with pytest.raises(InputError, match="must hold the same sweep"):
        tl.sweeps.merge_sweeps(a, other)


def test_failures_are_kept_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    arguments = {
        **task(over={"method.dim": [80, 160]}, steps=50, time=None),
        "reduce": fails_at_160,
        "store": path,
    }
    for _ in range(2):
        counts = Counts()
        with pytest.warns(tl.errors.SweepWarning, match="ZeroDivisionError"):
            result = tl.sweep(**arguments, progress=counts)
        assert (result.runs.values == [3, 0]).all()
    assert counts.units == [("method.dim = 160", 0)]
    stored = tl.sweeps.load_sweep(path)
    assert json.loads(stored.attrs["failures"])[0]["cell"] == {"method.dim": 160}


def test_journal_says_where_numbers_come_from(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    result = tl.sweep(**task(over={"method.dim": [80]}), store=path)
    (file,) = (path / "journal").glob("[0-9]*.json")
    record = json.loads(file.read_text())
    assert record["units"][0]["seed"] == int(result.cell_seed[0])
    assert record["versions"]["jax"] == json.loads(result.attrs["versions"])["jax"]
    header = json.loads((path / "zarr.json").read_text())["attributes"]["twolayer"]
    assert (
        header["description"]["problem"]["target"] == "He2(z1)"
        and header["hash"] == result.attrs["hash"]
    )


def test_target_se_resumes_without_new_runs(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    arguments = {
        **task(over={"method.dim": [80, 160]}),
        "target_se": {"overlap": 0.04},
        "store": path,
    }
    first, counts = tl.sweep(**arguments), Counts()
    assert int(first.runs.max()) > 3
    assert same(tl.sweep(**arguments, progress=counts), first) and counts.units == []


CLAIM = """
import sys
from pathlib import Path
from twolayer.sweeps.locks import Locks
print(Locks.of(Path(sys.argv[1])).claim(int(sys.argv[2])))
"""


def free(path: Path, byte: int) -> bool:
    """Whether another process can take a byte."""
    command = [sys.executable, "-c", CLAIM, str(path / "journal" / "lock"), str(byte)]
    return {"True\n": True, "False\n": False}[
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ]


@pytest.mark.long
def test_reading_a_store_drops_no_claim(tmp_path: Path) -> None:
    """Closing any descriptor of the lock file would give back all that this process has claimed."""
    path = tmp_path / "s.zarr"
    arguments = task(over={"method.dim": [80, 160]})
    tl.sweep(**arguments, store=path)
    prepared = {**arguments, "run": Run(time=arguments["time"])}
    del prepared["time"]
    grid = api._prepared(**prepared)[0]
    first, second = (store_module.Store.open(path, grid, 3) for _ in range(2))
    byte = first._byte((0,), 0)
    assert free(path, byte)
    assert first.claim((0,), 0) and not free(path, byte)
    tl.sweeps.load_sweep(path)
    tl.sweeps.plan_sweep(**arguments, store=path)
    assert not free(path, byte)
    # another store of this process is as far from it as another process is
    assert not second.claim((0,), 0) and second.claim((1,), 0)
    second.close()
    assert not free(path, byte) and free(path, first._byte((1,), 0))
    first.release((0,), 0)
    assert free(path, byte)
    assert first.claim((0,), 0)
    first.close()
    assert free(path, byte)
    (path / "journal" / "lock").unlink()  # a reader needs none
    assert tl.sweeps.load_sweep(path).runs.values.tolist() == [3, 3]
