"""What happens to runs that are killed, and to machines without disk, home or terminal: nothing finished is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time as wall
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twolayer as tl
from twolayer.cli import compare, main
from twolayer.explorer.pool import Pool
from twolayer.loops import checkpoint as module
from twolayer.loops.checkpoint import Checkpoint
from twolayer.numerics.writing import write_atomically
from twolayer.running.plan import Plan

PROBLEM, START = tl.Problem("He2(z1)", "He2", noise=0.1), tl.Overlaps([[1.0]], [[0.5]])
ALGORITHM = tl.SGD("0.05/d", geometry="projected")


class Killed(Exception):
    """Stands for a kill in the middle of a run."""


def kept(monkeypatch: pytest.MonkeyPatch, die_at: int | None = None) -> list[int]:
    """A checkpoint at every save point; the run dies after number ``die_at``."""
    monkeypatch.setattr(module, "EVERY", 0.0)
    monkeypatch.setattr(Checkpoint.__init__, "__defaults__", (0.0,))
    written: list[int] = []
    write = Checkpoint.write

    def counted(self: Checkpoint, point: Any) -> None:
        write(self, point)
        written.append(point.at)
        if point.at == die_at:
            raise Killed

    monkeypatch.setattr(Checkpoint, "write", counted)
    return written


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [tl.Chain(50), tl.Chain(50, engine="jax"), tl.Vectors(20), tl.SDE(400)],
    ids=["compiled", "jax", "vectors", "sde"],
)
def test_a_killed_run_goes_on_bit_by_bit(
    method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: dict[str, Any] = {"time": 0.4, "save": 5, "seeds": 3, "seed": 4}
    expected = tl.solve(PROBLEM, ALGORITHM, method, START, **run)
    path = tmp_path / "run.npz"
    kept(monkeypatch, die_at=2)
    with pytest.raises(Killed):
        tl.solve(PROBLEM, ALGORITHM, method, START, **run, checkpoint=path)
    assert [x.name for x in tmp_path.iterdir()] == ["run.npz"]
    monkeypatch.undo()
    written = kept(monkeypatch)
    found = tl.solve(PROBLEM, ALGORITHM, method, START, **run, checkpoint=path)
    assert written == [3, 4, 5]  # the first two were not computed again
    for name in ("M", "Q", "a", "risk", "stop_step"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert [x.name for x in tmp_path.iterdir()] == [
        "run.npz"
    ]  # nobody has saved the result yet
    tl.save(found, tmp_path / "run.nc")
    assert [x.name for x in tmp_path.iterdir()] == ["run.nc"]


@pytest.mark.slow
def test_a_checkpoint_belongs_to_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, run = tmp_path / "run.npz", {"steps": 10, "save": 5, "seeds": 2}
    kept(monkeypatch, die_at=1)
    with pytest.raises(Killed):
        tl.solve(PROBLEM, ALGORITHM, tl.Chain(50), START, **run, checkpoint=path)
    for other in ({"seed": 1}, {"steps": 11}):
        with pytest.raises(tl.InputError, match="belongs to another run"):
            tl.solve(
                PROBLEM,
                ALGORITHM,
                tl.Chain(50),
                START,
                **{**run, **other},
                checkpoint=path,
            )
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(tl.InputError, match="damaged or foreign"):
        tl.solve(PROBLEM, ALGORITHM, tl.Chain(50), START, **run, checkpoint=path)
    np.savez(path, format="twolayer-checkpoint/9", key="x")
    with pytest.raises(tl.InputError, match="update twolayer"):
        tl.solve(PROBLEM, ALGORITHM, tl.Chain(50), START, **run, checkpoint=path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "algorithm", "path", "message"),
    [
        (tl.ODE(), ALGORITHM, "x.npz", "cannot be taken up again"),
        (
            tl.Chain(50),
            tl.SGD("0.1/d", rule="adagrad_norm(1)"),
            "x.npz",
            "cannot be taken up again",
        ),
        (tl.Chain(50), ALGORITHM, "x.nc", "must end in .npz"),
        (tl.Chain(50), ALGORITHM, 3, "`checkpoint` must be a path"),
        (tl.Chain(50), ALGORITHM, "nowhere/x.npz", "must lie in an existing folder"),
    ],
)
def test_runs_that_have_no_checkpoint(
    method: Any, algorithm: Any, path: Any, message: str, tmp_path: Path
) -> None:
    name = tmp_path / path if isinstance(path, str) else path
    end: dict[str, Any] = {"time": 1.0} if isinstance(method, tl.ODE) else {"steps": 4}
    with pytest.raises(tl.InputError, match=message):
        tl.solve(PROBLEM, algorithm, method, START, **end, checkpoint=name)


# -- the command line in bad surroundings -----------------------------------------------------------------------------

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
dim = 50
steps = 20
save = 4
seeds = 2
methods = ["chain"]
"""
TWOLAYER = [sys.executable, "-m", "twolayer"]


def call(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    (folder / "task.toml").write_text(TASK, encoding="utf-8")
    return subprocess.run(
        [*TWOLAYER, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.mark.long
def test_without_home_terminal_or_language(tmp_path: Path) -> None:
    names = {
        "HOME",
        "TERM",
        "LANG",
        "LC_ALL",
        "MPLCONFIGDIR",
        "XDG_CONFIG_HOME",
        "PYTHONUTF8",
        "PYTHONIOENCODING",
    }
    bare = {name: value for name, value in os.environ.items() if name not in names}
    done = call(
        tmp_path,
        "solve",
        "task.toml",
        "--out",
        "x",
        env={**bare, "TERM": "dumb", "LANG": "C"},
    )
    assert (done.returncode, (tmp_path / "x.nc").exists()) == (0, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_reader_that_leaves_and_a_disk_that_is_full(tmp_path: Path) -> None:
    code = f"{' '.join(TWOLAYER)} help | head -c 10 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    full = Path("/dev/full")
    if full.exists():
        with full.open("w") as device:
            done = subprocess.run(
                [*TWOLAYER, "help"],
                stdout=device,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
            )
        assert done.returncode == 1
        assert "No space left" in done.stderr
        assert "Traceback" not in done.stderr


def small_files() -> None:
    """No file beyond 16 kB: what a full disk looks like to a process."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, 2**14))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["solve", "compare", "sweep"])
def test_a_disk_that_fills_up_ends_in_a_sentence(command: str, tmp_path: Path) -> None:
    """HDF5 brings the process down with it; what was there under the name stays."""
    more = {
        "solve": ["--checkpoint", "ck.npz"],
        "compare": ["--methods", "map,chain"],
        "sweep": [],
    }[command]
    out = "x.zarr" if command == "sweep" else "x"
    if command == "sweep":
        more = ["--set", "sweep.run.seed=[1,2]", "--reduce", "trajectory"]
    else:
        (tmp_path / "x.nc").write_text("old")
    wide = ["--set", "run.save=20", "--set", "run.seeds=400"]
    # Python and JAX do not look whether what they keep of compiled code was written whole
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TWOLAYER_CACHE": "off"}
    done = call(
        tmp_path,
        command,
        "task.toml",
        "--out",
        out,
        *more,
        *wide,
        preexec_fn=small_files,
        env=own,
    )
    assert done.returncode == 1, done.stderr
    (said,) = (
        line for line in done.stderr.splitlines() if line.startswith("twolayer: ")
    )
    assert (
        "could not be written (File too large)" in said
        and "Traceback" not in done.stderr
    )
    assert "-tl" not in said  # the name that was given, not that of a draft
    assert {x.name for x in tmp_path.iterdir()} == {
        "task.toml",
        "x.zarr" if command == "sweep" else "x.nc",
    }
    assert command == "sweep" or (tmp_path / "x.nc").read_text() == "old"


WRITES_WHEN_ASKED = """
import time
from twolayer.cli.stopping import listen
from twolayer.numerics.writing import write_atomically
listen()
try:
    print("busy", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    write_atomically("x.txt", "what is finished")
"""


@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_a_request_to_end_that_comes_twice_is_one(pause: float, tmp_path: Path) -> None:
    """As `timeout` of GNU sends it: the file is written."""
    code = [sys.executable, "-c", WRITES_WHEN_ASKED]
    process = subprocess.Popen(
        code, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGTERM)
    wall.sleep(pause)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert (tmp_path / "x.txt").read_text() == "what is finished"


@pytest.mark.slow
def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"cd {gone} && rmdir {gone} && {' '.join(TWOLAYER)} help tasks >/dev/null && {' '.join(TWOLAYER)} solve x.toml"
    environment = {**os.environ, "PYTHONPATH": str(Path(tl.__file__).parent.parent)}
    done = subprocess.run(
        ["bash", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("twolayer: The task file must exist")


LONG = TASK.replace("steps = 20", "steps = 2000000000").replace(
    "seeds = 2", "seeds = 4000"
)


SHOWING = """
import sys
from twolayer.running import progress
progress.in_notebook = lambda: True  # which shows progress without a terminal
from twolayer.cli import script
sys.exit(script())
"""


def begun(folder: Path) -> subprocess.Popen[str]:
    """A command that takes years, once it has taken some steps."""
    (folder / "task.toml").write_text(LONG, encoding="utf-8")
    command = [
        sys.executable,
        "-c",
        SHOWING,
        "solve",
        "task.toml",
        "--force",
        "--out",
        "x",
    ]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    seen = ""
    while "% after" not in seen:
        piece = process.stderr.read(1)
        assert piece, seen
        seen += piece
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interruptions_end_in_a_sentence(number: int, tmp_path: Path) -> None:
    process = begun(tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "interrupted; the finished part is in x.nc" in out + err
    assert "Traceback" not in err
    assert {x.name for x in tmp_path.iterdir()} == {"task.toml", "x.nc"}
    assert set(tl.load(tmp_path / "x.nc").outcome.values) == {"interrupted"}


DROPPED = """
import gc, time
from twolayer.cli.stopping import listen
listen()
gc.callbacks.append(lambda phase, counts: None)
until = time.monotonic() + 30
try:
    print("busy", flush=True)
    while time.monotonic() < until:
        {place}
except KeyboardInterrupt:
    print("asked", flush=True)
while time.monotonic() < until:
    {place}
print("not ended")
"""
PLACES = {
    "the garbage collector": "gc.collect()",
    "a deletion": "type('Held', (), {'__del__': lambda self: sum(range(10**6))})()",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_request_is_heard_where_python_drops_exceptions(place: str) -> None:
    """Once, and the next one ends the program; a callback of the garbage collector is what JAX has."""
    code = [sys.executable, "-c", DROPPED.format(place=PLACES[place])]
    process = subprocess.Popen(
        code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", ENDED)


ENDED = (
    "twolayer: interrupted twice, ended at once; what was written before is whole.\n"
)
BUSY = """
import sys, time
from pathlib import Path
from twolayer.cli.stopping import listen
from twolayer.numerics.temporary_files import draft_of, passing
listen()
def stubborn(path):
    path.write_text("half of a file")
    while True:
        try:
            print("busy", flush=True)
            {work}
        except KeyboardInterrupt:
            print("asked", flush=True)
with passing(draft_of(Path("x.nc"))) as draft:
    stubborn(draft)
"""
COMPILING = """
            import jax, jax.numpy as jnp
            jax.config.update("jax_enable_compilation_cache", False)
            def slow(x):
                for i in range(200):
                    x = jnp.sort(x * i)[::-1] + jnp.roll(x, i)
                return x
            lowered = jax.jit(slow).lower(jnp.ones(1000))
            print("busy", flush=True)
            lowered.compile()
"""
WORK = {
    "sleep": "time.sleep(60)",
    "python": "\n            while True: pass",
    "numpy": "import numpy as np; [np.sort(np.random.default_rng(0).random(10**7)) for _ in range(99)]",
    "compiling": COMPILING.strip(),
}


@pytest.mark.parametrize(
    ("work", "number"),
    [
        pytest.param("sleep", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("python", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("numpy", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("compiling", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("sleep", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_the_second_ctrl_c_ends_at_once(work: str, number: int, tmp_path: Path) -> None:
    """Whatever the process is doing, and although it does not listen to the first."""
    code = [sys.executable, "-c", BUSY.format(work=WORK[work])]
    process = subprocess.Popen(
        code, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    assert work != "compiling" or process.stdout.readline() == "busy\n"
    (draft,) = tmp_path.iterdir()
    process.send_signal(number)
    wall.sleep(
        1.5 if number == signal.SIGTERM else 0.2
    )  # SIGTERM twice within a second is one
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, ENDED)
    assert not draft.exists()


@pytest.mark.long
def test_the_second_ctrl_c_ends_a_command(tmp_path: Path) -> None:
    process = begun(tmp_path)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        wall.sleep(0.05)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith(ENDED) and "Traceback" not in err
    assert {x.name for x in tmp_path.iterdir()} == {"task.toml"}


@pytest.mark.slow
def test_what_a_kill_has_left_goes_with_the_next_file(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", BUSY.format(work="time.sleep(60)")], cwd=tmp_path,
                               stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    (draft,) = tmp_path.iterdir()
    write_atomically(tmp_path / "y.txt", "y")
    assert draft.exists()  # its process lives
    process.kill()
    process.wait()
    process.stdout.close()
    write_atomically(tmp_path / "y.txt", "y")
    assert [x.name for x in tmp_path.iterdir()] == ["y.txt"]


@pytest.mark.long
def test_a_kill_leaves_no_stray_files(tmp_path: Path) -> None:
    process = begun(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    assert {x.name for x in tmp_path.iterdir()} == {"task.toml"}


@pytest.mark.long
def test_a_killed_comparison_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "task.toml"
    task.write_text(TASK.replace('["chain"]', '["map", "chain"]'), encoding="utf-8")
    solve = Plan.solve

    def killed(self: Plan, method: Any, *arguments: Any, **options: Any) -> Any:
        if method.name == "chain":
            raise Killed
        return solve(self, method, *arguments, **options)

    monkeypatch.setattr(compare, "PATIENCE", 0.0)
    with monkeypatch.context() as during:
        during.setattr(Plan, "solve", killed)
        with pytest.raises(Killed):
            main(["compare", str(task), "--out", str(tmp_path / "x")])
    assert {x.name for x in tmp_path.iterdir()} == {"task.toml", "x.part.nc"}
    assert list(tl.load(tmp_path / "x.part.nc").results) == ["map"]
    assert main(["compare", str(task), "--out", str(tmp_path / "x")]) == 0
    assert {x.name for x in tmp_path.iterdir()} == {"task.toml", "x.nc", "x.png"}


@pytest.mark.slow
def test_bounds_are_told_with_the_estimate(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(LONG, encoding="utf-8")
    done = subprocess.run(
        [*TWOLAYER, "solve", "task.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "h of one core" in done.stderr
    assert "--force" in done.stderr
    assert json.dumps(done.stdout) == '""'


def children(session: int) -> list[int]:
    """Processes of a session, of those that are not about to be collected."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.parent.name))
    return found


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 2, 9])
def test_a_pool_of_processes_is_interrupted_and_killed(
    times: int, tmp_path: Path
) -> None:
    """Ctrl-C reaches all processes of a terminal; nine times stand for a kill. No process and no file is left over."""
    (tmp_path / "task.toml").write_text(
        LONG + '[sweep]\n"algorithm.lr" = ["0.05/d", "0.1/d", "0.2/d"]\n',
        encoding="utf-8",
    )
    command = [
        *TWOLAYER,
        "sweep",
        "task.toml",
        "--out",
        "s.zarr",
        "--executor",
        "processes:2",
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = wall.monotonic() + 60
    while (
        len(children(process.pid)) < 4 and wall.monotonic() < until
    ):  # itself, two of the pool, and their accountant
        wall.sleep(0.1)
    wall.sleep(6)
    if times == 9:
        process.kill()
    for _ in range(times % 9):
        os.killpg(process.pid, signal.SIGINT)
        wall.sleep(0.05)
    _, err = process.communicate(timeout=60)
    assert process.returncode == {1: 1, 2: 130, 9: -signal.SIGKILL}[times]
    assert "Traceback" not in err
    until = wall.monotonic() + 10
    while children(process.pid) and wall.monotonic() < until:
        wall.sleep(0.1)
    assert children(process.pid) == []
    assert [x.name for x in tmp_path.rglob("*") if x.name.startswith(".")] == []


def below(pid: int) -> list[int]:
    """Processes that a process has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.parent.name))
    return found


@pytest.mark.long
def test_a_killed_explorer_takes_its_workers_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end when their input does; the folder of compiled code goes when the next explorer begins."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*TWOLAYER, "explore", "--no-browser"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert "explorer at" in process.stdout.readline()
    workers = below(process.pid)
    assert workers
    process.kill()
    process.communicate(timeout=60)
    until = wall.monotonic() + 60  # a worker listens once it has loaded JAX
    while (
        any(Path(f"/proc/{pid}").exists() for pid in workers)
        and wall.monotonic() < until
    ):
        wall.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert len(list(tmp_path.iterdir())) == 1

    async def nothing(*_: Any) -> None:
        pass

    async def another() -> None:
        pool = Pool()
        await pool.start()
        await pool.close()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Pool, "_launch", nothing)
    asyncio.run(another())
    assert list(tmp_path.iterdir()) == []
