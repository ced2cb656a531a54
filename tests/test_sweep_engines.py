"""Engines: processes and a real Dask cluster give the same bits, and nothing is lost with a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep_tasks import Counts, kills_its_worker, same, spread, task

import twolayer as tl

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def reference() -> Any:
    return tl.sweep(**task())


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes find the reductions of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def test_a_process_of_its_own_gives_the_same_bits(
    tmp_path: Path, importable: None
) -> None:
    """Two cells, and every one of them was computed there."""
    small = task(over={"method.dim": [80, 160]}, seeds=2, time=0.1)
    counts = Counts()
    elsewhere = tl.sweep(
        **small, executor="processes:1", store=tmp_path / "s.zarr", progress=counts
    )
    assert same(elsewhere, tl.sweep(**small))
    assert len(counts.units) == 2 and counts.errors == []
    assert not same(elsewhere, tl.sweep(**{**small, "seed": 1}))


@pytest.mark.long
def test_processes_give_the_same_bits(
    reference: Any, tmp_path: Path, importable: None
) -> None:
    assert same(
        tl.sweep(
            **task(), executor="processes:2", store=tmp_path / "s.zarr", memory=2000
        ),
        reference,
    )


@pytest.mark.slow
def test_a_unit_that_kills_its_worker_is_found(importable: None) -> None:
    arguments = task(method=tl.Map(80), over={"method.dim": [80, 160]}, seeds=1)
    with pytest.warns(
        tl.errors.SweepWarning, match="method.dim = 160: The worker died"
    ):
        result = tl.sweep(**arguments, reduce=kills_its_worker, executor="processes:1")
    assert result.runs.values.tolist() == [1, 0]


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.file = folder / "scheduler.json"
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        quiet = {
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            "env": environment,
        }
        module = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
        options = [
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(self.file),
        ]
        self.processes = [subprocess.Popen([*module, *options], **quiet)]  # type: ignore[call-overload]
        for _ in range(600):
            if self.file.exists() and self.file.stat().st_size:
                break
            time.sleep(0.1)
        self.address = json.loads(self.file.read_text())["address"].replace(
            "tcp://", "dask://"
        )
        module = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            self.address.replace("dask://", "tcp://"),
        ]
        options = [
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--local-directory",
            str(folder),
        ]
        for _ in range(workers):
            self.processes.append(subprocess.Popen([*module, *options], **quiet))  # type: ignore[call-overload]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, 2)
    yield found
    found.close()


@pytest.mark.long
def test_dask_loses_nothing_with_a_worker(
    cluster: Cluster, reference: Any, tmp_path: Path
) -> None:
    class Killer(Counts):
        def update(self, position: float) -> None:
            if cluster.processes[1].poll() is None:
                os.kill(cluster.processes[1].pid, signal.SIGKILL)

    killer = Killer()
    result = tl.sweep(
        **task(),
        executor=cluster.address,
        store=tmp_path / "s.zarr",
        memory=1,
        progress=killer,
    )
    assert cluster.processes[1].wait() == -signal.SIGKILL
    assert len(set(killer.units)) == len(killer.units) == 18 and killer.errors == []
    assert same(result, reference)
    # an object with submit, and a reduction of the user's
    from distributed import Client

    with Client(
        cluster.address.replace("dask://", "tcp://"), set_as_default=False
    ) as client:
        small = task(over={"method.dim": [80]}, seeds=2)
        assert same(
            tl.sweep(**small, executor=client, reduce=spread),
            tl.sweep(**small, reduce=spread),
        )


@pytest.mark.long
def test_a_scheduler_that_goes_away(
    cluster: Cluster, reference: Any, tmp_path: Path
) -> None:
    """The sweep ends in a sentence; what was finished is in the store, and is not computed again."""

    class Killer(Counts):
        def update(self, position: float) -> None:
            cluster.processes[0].kill()

    path, killer, rest = tmp_path / "s.zarr", Killer(), Counts()
    with pytest.raises(tl.errors.RunFailed, match="scheduler went away"):
        tl.sweep(
            **task(), executor=cluster.address, store=path, memory=1, progress=killer
        )
    assert 0 < len(killer.units) < 18
    assert same(tl.sweep(**task(), store=path, progress=rest), reference)
    assert len(rest.units) == 18 - len(killer.units) and not {*rest.units} & {
        *killer.units
    }
