"""``twolayer gallery list`` and ``twolayer gallery run NAME``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from twolayer.cli.common import add_common, emit, one_line_warnings
from twolayer.numerics.errors import InputError
from twolayer.numerics.writing import check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, the figure and its settings."""
    parser.add_argument("action", choices=("list", "run"), help="list the figures, or run one")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the figure to run")
    parser.add_argument("--quick", action="store_true", help="a smaller version that takes seconds")
    parser.add_argument("--record", metavar="FILE.json", help="put the verdict, settings and data hash into this file")
    add_common(
        parser,
        "folder for NAME.png and NAME.nc (default: results)",
        "seed of all random numbers (default 0)",
        "change a setting, such as dims=100,1000",
    )


def run(args: argparse.Namespace) -> int:
    """List the figures, or make one; exit code 1 if measurement and theory differ."""
    import time

    from twolayer.gallery.shared.records import read, record
    from twolayer.gallery.shared.registry import figures, files_of, read_setting
    from twolayer.gallery.shared.registry import run as make
    from twolayer.numerics.errors import choice

    known = figures()
    if args.action == "list":
        if args.json:
            emit({n: {"group": e.group, "title": e.title, "settings": e.settings} for n, e in known.items()})
        else:
            for name, entry in known.items():
                print(f"{name:<{max(map(len, known))}}  {entry.group:<13}  {entry.title}")
        return 0
    if args.name is None:
        raise InputError(f"twolayer gallery run needs a NAME; figures are {', '.join(known)}.")
    entry = known[choice("name", args.name, known)]
    settings = dict(read_setting(text, entry.settings) for text in args.set)
    if args.record is not None:
        check_writable(Path(args.record), "--record")
        if args.set:
            raise InputError("--record takes the full or the quick version as it is, but --set changes it.")
        read(args.record)  # refused now if it holds something else
    folder, began = _folder(args.out), time.process_time()
    with one_line_warnings():
        plate = make(args.name, quick=args.quick, seed=args.seed or 0, out=folder, **settings)
    files, found = [str(path) for path in files_of(plate, folder)], plate.verdict
    if args.record is not None:
        cost = f"{time.process_time() - began:.0f} s of CPU"
        record(plate, args.record, "quick" if args.quick else "full", cost)
        files.append(args.record)
    if args.json:
        checks = [check._asdict() for check in found.checks]
        told = {"outcome": found.outcome, "agrees": found.agrees, "claim": found.claim, "checks": checks}
        emit({"name": args.name, **told, "note": found.note, "verdict": found.text, "files": files})
    else:
        print(f"{found.outcome if found.outcome != 'differs' else 'DIFFERS'}: {found.claim}")
        for check in found.checks:
            print(f"  [{check.outcome}] {check.text}")
        if found.note:
            print(f"  {found.note}")
        for file in files:
            print(f"wrote {file}")
    return 1 if found.outcome == "differs" else 0


def _folder(out: str | None) -> Path:
    """The folder for the files, made if it is missing, writable before any work is done."""
    folder = Path(out or "results")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out must be a folder, but {str(folder)!r} cannot be one ({error.strerror}).") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"--out must be a writable folder, but {str(folder)!r} is not.")
    return folder
