"""Making figures of the gallery: one with its verdict in full, or several with a line
each.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from twolayer.cli.common import emit, fold, one_line_warnings, wrote
from twolayer.files.catalogue import gallery
from twolayer.numerics.errors import InputError, RunFailed, choice
from twolayer.numerics.writing import PLACE, check_writable

if TYPE_CHECKING:
    from twolayer.gallery.shared.registry import Plate
    from twolayer.numerics.arguments import Options

__all__ = ["make_many", "make_one"]


def make_one(args: argparse.Namespace, name: str) -> int:
    """Make a figure, print its verdict; exit code 1 if measurement and theory
    differ.
    """
    from twolayer.gallery.shared.registry import figures, read_setting
    from twolayer.numerics.verdict import AGREE, DIFFER

    known = figures()
    entry = known[choice("name", name, known)]
    settings = dict(read_setting(text, entry.settings) for text in args.set)
    _check_record(args)
    folder = _folder(args.out)
    plate, files = _made(args, name, folder, settings)
    found = plate.verdict
    if args.json:
        checks = [check._asdict() for check in found.checks]
        told = {
            "outcome": found.outcome,
            "agrees": found.agrees,
            "claim": found.claim,
            "checks": checks,
        }
        emit(
            {
                "name": name,
                **told,
                "note": found.note,
                "verdict": found.text,
                "files": files,
            }
        )
    else:
        word = found.outcome.upper() if found.outcome == DIFFER else found.outcome
        print(fold(f"{word}: {found.claim}", then="    "))
        for check in found.checks:
            print(fold(f"[{check.outcome}] {check.text}", "  ", "    "))
        if found.note:
            print(fold(found.note, "  ", "    "))
        if found.outcome != AGREE and args.quick:
            print("The full version, without --quick, resolves more.")
        wrote(files)
    return int(found.outcome == DIFFER)


def make_many(args: argparse.Namespace, names: list[str]) -> int:
    """Make figures: a line when one begins and one when it is done; exit code 1 if one
    differs or fails.
    """
    from twolayer.numerics.verdict import DIFFER, OUTCOMES

    listed = gallery()
    for name in names:
        choice("name", name, listed)
    _check_record(args)
    folder, width = _folder(args.out), max(map(len, names))
    outcomes: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        expected = listed[name].quick if args.quick else listed[name].full
        print(
            f"[{number}/{len(names)}] {name}, about {expected}",
            file=sys.stderr,
            flush=True,
        )
        began = time.monotonic()
        try:
            outcomes[name] = _made(args, name, folder, {})[0].verdict.outcome
        except (InputError, RunFailed) as error:
            outcomes[name] = "failed"
            print(f"twolayer: {name}: {error}", file=sys.stderr)
        if not args.json:
            print(
                f"{name:<{width}}  {outcomes[name]:<9} "
                f" {time.monotonic() - began:6.0f} s",
                flush=True,
            )
    words = list(outcomes.values())
    counts = {
        word: words.count(word)
        for word in (*reversed(OUTCOMES), "failed")
        if word in words
    }
    if args.json:
        emit({"outcomes": outcomes, "counts": counts, "folder": str(folder)})
    else:
        told = ", ".join(f"{word} {n}" for word, n in counts.items())
        print(f"{len(words)} figures: {told}; with their data in {folder}")
    return int(DIFFER in words or "failed" in words)


def _made(
    args: argparse.Namespace, name: str, folder: Path, settings: Options
) -> tuple[Plate, list[str]]:
    """The figure and its files, put on record if asked for."""
    from twolayer.gallery.shared.records import record
    from twolayer.gallery.shared.registry import files_of, run

    began = time.monotonic()
    with one_line_warnings():
        plate = run(name, quick=args.quick, seed=args.seed or 0, out=folder, **settings)
    files = [str(path) for path in files_of(plate, folder)]
    if args.record is not None:
        cost = f"{time.monotonic() - began:.0f} s {_where()}"
        record(plate, args.record, "quick" if args.quick else "full", cost)
        files.append(args.record)
    return plate, files


def _where() -> str:
    """On what a figure was made."""
    import jax

    if jax.default_backend() != "cpu":
        return "GPU"
    cores = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    return f"on {cores} core{'s' if cores > 1 else ''}"


def _check_record(args: argparse.Namespace) -> None:
    if args.record is None:
        return
    from twolayer.gallery.shared.records import read

    check_writable(Path(args.record), "--record")
    if args.set:
        raise InputError(
            "--record takes the full or the quick version as it is, but --set"
            " changes it."
        )
    read(args.record)  # refused now if it holds something else


def _folder(out: str | None) -> Path:
    """The folder for the files, made if it is missing, writable before any work is
    done.
    """
    folder = Path(out or "results")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in (*PLACE, errno.EEXIST):
            raise
        raise InputError(
            f"--out must be a folder, but {str(folder)!r} cannot be one"
            f" ({error.strerror})."
        ) from None
    if not os.access(folder, os.W_OK):
        raise InputError(
            f"--out must be a writable folder, but {str(folder)!r} is not."
        )
    return folder
