"""``python -m tests.mutations``: plant one error after the other and see which tests notice.

Every error is planted in a copy of the source in a scratch folder, and a fresh process runs the tests there, forked
from one that has loaded the libraries. A test that kills is run once on the right source too, where it has to pass.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time as wall
import warnings
from pathlib import Path
from typing import Any

from . import ROOT, Mutant, all_mutants, stale

COPIED = ("src", "tests")
PATIENCE = 900  # seconds after which the tests of one error count as hanging
FOLDER = ROOT / "build" / "mutations"
FAILED, PASSED, EMPTY = 1, 0, 5  # exit codes of pytest
LIBRARIES = (
    "beartype",
    "diffrax",
    "h5netcdf",
    "hypothesis",
    "jax",
    "jaxtyping",
    "llvmlite.binding",
    "matplotlib.pyplot",
    "pytest",
    "scipy.integrate",
    "scipy.optimize",
    "scipy.special",
    "xarray",
)


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description=__doc__
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="errors whose file or name contains one of these",
    )
    parser.add_argument(
        "--share",
        default="1/1",
        metavar="I/N",
        help="the i-th of n shares, every n-th error",
    )
    parser.add_argument(
        "--list", action="store_true", help="show what is planted, and run nothing"
    )
    parser.add_argument(
        "--again", action="store_true", help="run what has an outcome too"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="where outcomes are kept (%(default)s)",
    )
    return parser.parse_args()


def chosen(given: argparse.Namespace) -> list[Mutant]:
    """The errors asked for."""
    part, parts = map(int, given.share.split("/"))
    assert 1 <= part <= parts, "--share is I/N with I from 1 to N"
    found = all_mutants()
    if given.only:
        found = [
            mutant
            for mutant in found
            if any(word in f"{mutant.file} {mutant.name}" for word in given.only)
        ]
    return found[part - 1 :: parts]


class Scratch:
    """A copy of the source and the tests, in which one error at a time is planted."""

    def __init__(self, folder: Path, kept: Path) -> None:
        self.root = folder
        for name in COPIED:
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for entry in ROOT.iterdir():
            if (
                entry.name not in COPIED
                and not entry.name.startswith(".")
                and entry.name != "build"
            ):
                (folder / entry.name).symlink_to(entry)
        # written before anything is loaded: processes that are forked later inherit it
        os.environ["PYTHONPATH"] = str(folder / "src")
        # entries are named after the program that is compiled, so that none answers for another
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(kept)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        os.environ.setdefault(
            "XLA_FLAGS",
            "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        )  # as in tests/conftest.py
        self.marked, self.warm = wall.time() + 10_000.0, False

    def plant(self, mutant: Mutant) -> None:
        """Write the error; a time of change of its own, so that no bytecode of another text is taken for it."""
        path = self.root / mutant.path
        text = mutant.planted(path.read_text(encoding="utf-8"))
        ast.parse(text)  # what is no program would be killed by everything
        path.write_text(text, encoding="utf-8")
        self.marked += 2.0
        os.utime(path, (self.marked, self.marked))

    def warmed(self) -> None:
        """Once: bytecode of the right source, by a run of little."""
        if not self.warm:
            self.warm = True
            self.run(["tests/test_statistics.py"], keep_bytecode=True)

    def mend(self, mutant: Mutant) -> None:
        """The right text again."""
        shutil.copy2(ROOT / mutant.path, self.root / mutant.path)

    def run(
        self, tests: list[str], keep_bytecode: bool = False
    ) -> tuple[int, str, float]:
        """Exit code of pytest (None for a hanging one is that of a failure), what it wrote, and seconds."""
        begin, out = wall.monotonic(), self.root / "out.txt"
        pid = os.fork()
        if pid == 0:
            os.setsid()
            child(self.root, tests, out, keep_bytecode)
        code = waited(pid, begin + PATIENCE)
        return (
            code,
            out.read_text(encoding="utf-8", errors="replace"),
            wall.monotonic() - begin,
        )


def child(root: Path, tests: list[str], out: Path, keep_bytecode: bool) -> None:
    """The forked process: pytest on some tests of the scratch folder; it never returns."""
    handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    code = 3
    try:
        os.chdir(root)
        sys.path[:] = [
            str(root / "src"),
            *(x for x in sys.path if x not in ("", str(ROOT), str(ROOT / "src"))),
        ]
        sys.dont_write_bytecode = not keep_bytecode
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        import pytest

        options = [
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "-x",
            "-q",
            "--tb=line",
            "-m",
            "not long",
        ]
        plain = [
            "-o",
            "addopts=--doctest-modules --import-mode=prepend",
            "--rootdir",
            str(root),
        ]
        code = int(pytest.main([*plain, *options, *tests]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def waited(pid: int, until: float) -> int:
    """The exit code of a process, which is ended with all of its children when its time is up."""
    while wall.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        wall.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return FAILED


def killer(text: str) -> str:
    """The test that failed, as pytest names it."""
    lines = [
        line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))
    ]
    return lines[0].split(" ", 1)[1].split(" - ")[0].strip() if lines else ""


def outcome(scratch: Scratch, mutant: Mutant, sound: dict[str, bool]) -> dict[str, Any]:
    """Plant, run, mend; the verdict and what it rests on."""
    scratch.warmed()
    scratch.plant(mutant)
    try:
        code, text, seconds = scratch.run(list(mutant.tests))
    finally:
        scratch.mend(mutant)
    found: dict[str, Any] = {
        "seconds": round(seconds, 1),
        "fingerprint": mutant.fingerprint(),
    }
    if code in (PASSED, EMPTY):
        return {"verdict": "explained" if mutant.explained else "survived", **found}
    by = killer(text)
    if not by:  # a crash, or nothing collected: never a kill by assertion
        return {
            "verdict": "killed" if code < 0 else "broken",
            "by": text[-800:],
            **found,
        }
    if by not in sound:
        sound[by] = scratch.run([by])[0] == PASSED
    return {"verdict": "killed" if sound[by] else "unsound", "by": by, **found}


def read(log: Path) -> dict[str, Any]:
    """The last outcome of every error."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return {line.pop("name"): line for line in map(json.loads, lines)}


def table(outcomes: dict[str, Any], mutants: list[Mutant]) -> str:
    """Verdicts by room, and all that are not kills by name."""
    rooms: dict[str, dict[str, int]] = {}
    for mutant in mutants:
        verdict = outcomes.get(mutant.name, {}).get("verdict", "not run")
        row = rooms.setdefault(mutant.file.split("/")[0], {})
        row[verdict] = row.get(verdict, 0) + 1
    kinds = sorted({kind for row in rooms.values() for kind in row})
    lines = [
        "".join(
            [f"{'room':12}", *(f"{kind:>12}" for kind in kinds), f"{'planted':>12}"]
        )
    ]
    for room, row in rooms.items():
        cells = [f"{row.get(kind, 0):12}" for kind in kinds]
        lines.append("".join([f"{room:12}", *cells, f"{sum(row.values()):12}"]))
    total = {kind: sum(row.get(kind, 0) for row in rooms.values()) for kind in kinds}
    lines.append(
        "".join(
            [
                f"{'all':12}",
                *(f"{total[kind]:12}" for kind in kinds),
                f"{len(mutants):12}",
            ]
        )
    )
    for mutant in mutants:
        verdict = outcomes.get(mutant.name, {}).get("verdict", "not run")
        if verdict not in ("killed", "not run"):
            lines.append(f"{verdict}: {mutant.name} ({mutant.file}): {mutant.meaning}")
            lines += [f"    {mutant.explained}"] if mutant.explained else []
    return "\n".join(lines)


def main() -> int:
    """Run what is asked for; the exit code says whether anything survived."""
    given = arguments()
    mutants = chosen(given)
    if given.list:
        for mutant in mutants:
            print(f"{mutant.name:40} {mutant.file:44} {mutant.meaning}")
        print(len(mutants))
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    log = given.folder / "outcomes.jsonl"  # several shares may append to it at once
    outcomes = read(log)
    with tempfile.TemporaryDirectory(prefix="mutations") as folder:
        scratch = Scratch(Path(folder), given.folder / "jax")
        load()
        sound: dict[str, bool] = {}
        for i, mutant in enumerate(mutants):
            if (
                not given.again
                and outcomes.get(mutant.name, {}).get("fingerprint")
                == mutant.fingerprint()
            ):
                continue
            why = stale(mutant)
            found = (
                {"verdict": "stale", "by": why}
                if why is not None
                else outcome(scratch, mutant, sound)
            )
            outcomes[mutant.name] = found
            told = f"{found['verdict']:10} {found.get('seconds', 0):6}s  {mutant.name:32} {found.get('by', '')[:110]}"
            print(f"{i + 1:4}/{len(mutants)} {told}", flush=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"name": mutant.name, **found}) + "\n")
    every = read(log)
    known = {
        mutant.name: every[mutant.name]
        for mutant in all_mutants()
        if mutant.name in every
    }
    (given.folder / "outcomes.json").write_text(
        json.dumps(known, indent=1), encoding="utf-8"
    )
    print(table(outcomes, mutants))
    return int(
        any(
            outcomes[mutant.name]["verdict"] not in ("killed", "explained")
            for mutant in mutants
        )
    )


def load() -> None:
    """Libraries, but nothing of the package and no backend of JAX: what is forked has no threads yet."""
    warnings.filterwarnings("ignore", message=".*os.fork.*")
    for name in LIBRARIES:
        importlib.import_module(name)


if __name__ == "__main__":
    sys.exit(main())
