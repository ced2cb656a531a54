"""``twolayer gallery list``, ``twolayer gallery show NAME`` and ``twolayer gallery run
NAME``.
"""

from __future__ import annotations

import argparse

from twolayer.cli.common import add_common, add_dry_run, emit, fold, idle, wrapped
from twolayer.files.catalogue import Listed, gallery
from twolayer.numerics.durations import lasting
from twolayer.numerics.errors import InputError, choice

EXAMPLES = (
    ("twolayer gallery list", "all figures, with what they take"),
    ("twolayer gallery show escape-dimension", "the settings of one"),
    (
        "twolayer gallery run mediocrity --quick",
        "figure, data and verdict, in results/",
    ),
    (
        "twolayer gallery run mediocrity --set dims=4,8 --set starts=100",
        "with other settings",
    ),
    (
        "twolayer gallery run mediocrity trajectories --quick",
        "two of them, a line each",
    ),
    ("twolayer gallery run all --quick --dry-run", "how long all of them take"),
)
UNKNOWN = "?"  # a duration that has not been recorded
RUN = ("--quick", "--record", "--out", "--seed", "--set", "--dry-run")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, the figure and its settings."""
    parser.add_argument(
        "action",
        choices=("list", "show", "run"),
        help="list all, show the settings of one, or run it",
    )
    parser.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="the figure, or several to run; 'all' stands for all",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smaller version that takes seconds"
    )
    parser.add_argument(
        "--record",
        metavar="FILE.json",
        help="put verdict, settings and data hash into this file",
    )
    add_dry_run(parser)
    add_common(
        parser,
        "folder for NAME.png and NAME.nc (default: results)",
        "seed of all random numbers (default 0)",
        "change a setting, such as dims=100,1000",
    )


def run(args: argparse.Namespace) -> int:
    """List the figures, show one, or make them; exit code 1 if measurement and theory
    differ.
    """
    if args.action == "list":
        if args.name:
            raise InputError(
                "twolayer gallery list takes no name; see 'twolayer gallery show"
                f" {args.name[0]}'."
            )
        idle(args, "on the list", *RUN)
        return _list(args, gallery())
    known = gallery()
    if not args.name:
        raise InputError(
            f"twolayer gallery {args.action} needs a NAME; figures are"
            f" {', '.join(known)}."
        )
    if args.action == "show":
        idle(args, "on what is shown", *RUN)
        if len(args.name) > 1:
            raise InputError(
                f"twolayer gallery show takes one NAME, but got {' '.join(args.name)}."
            )
        return _show(args, args.name[0])
    names = list(known) if args.name == ["all"] else list(args.name)
    if len(names) > 1:
        idle(args, "on several figures, each of which has its own settings", "--set")
    if args.dry_run:
        idle(
            args,
            "with --dry-run, which runs nothing",
            "--record",
            "--out",
            "--seed",
            "--set",
        )
        return _forecast(args, names)
    from twolayer.cli.plates import make_many, make_one

    return make_many(args, names) if len(names) > 1 else make_one(args, names[0])


def _list(args: argparse.Namespace, known: dict[str, Listed]) -> int:
    if args.json:
        emit({name: entry._asdict() for name, entry in known.items()})
        return 0
    width, group = max(map(len, known)) + 2, ""
    print(f"{'':{width + 2}}{'quick':>6} {'full':>12}")
    for name, entry in known.items():
        if entry.group != group:
            group = entry.group
            print(group)
        print(
            f"  {name:<{width}}{entry.quick:>6}"
            f" {entry.full:>12}\n{fold(entry.title, ' ' * 6, ' ' * 6)}"
        )
    print("\nTimes are those of two cores, or of one H200 where it says GPU.")
    print(
        "'twolayer gallery show NAME' tells the settings, 'gallery run NAME' makes it."
    )
    return 0


def _show(args: argparse.Namespace, wanted: str) -> int:
    known = gallery()
    name = choice("name", wanted, known)
    entry = known[name]
    if args.json:
        emit(entry._asdict())
        return 0
    print(fold(f"{name}: {entry.title}", then="  "))
    print(f"takes {entry.full}, with --quick {entry.quick}\n")
    rows = []
    for key, value in entry.settings.items():
        fewer = _written(entry.quick_settings.get(key, value))
        quick = f"   (quick: {fewer})" if fewer != _written(value) else ""
        rows.append((f"  {key}", f"{_written(value)}{quick}"))
    print(wrapped(rows))
    if entry.fixed:
        print("\nno settings:")
        print(wrapped([(f"  {key}", why) for key, why in entry.fixed.items()]))
    first, value = min(entry.settings.items(), key=lambda item: len(_written(item[1])))
    print(f"\nchange them with --set, such as --set {first}={_written(value)}")
    print(f"papers: {', '.join(entry.papers)}")
    return 0


def _written(value: object) -> str:
    """A setting as --set takes it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _seconds(text: str) -> float:
    """What a duration of the list is in seconds; 0 where it has not been measured."""
    if text == UNKNOWN:
        return 0.0
    number, unit = text.split()[:2]
    return float(number) * (60 if unit == "min" else 1)


def _forecast(args: argparse.Namespace, names: list[str]) -> int:
    """How long figures took when they were measured."""
    known = gallery()
    told = {
        name: (
            known[choice("name", name, known)].quick if args.quick else known[name].full
        )
        for name in names
    }
    seconds = sum(map(_seconds, told.values()))
    if args.json:
        emit({"figures": told, "seconds": seconds})
        return 0
    print(
        f"{len(told)} figure{'s' if len(told) > 1 else ''}: about {lasting(seconds)} on"
        " two cores"
    )
    unknown = [name for name, text in told.items() if text == UNKNOWN]
    if unknown:
        print(fold(f"not measured, and not counted: {', '.join(unknown)}"))
    on_gpu = [name for name, text in told.items() if text.endswith("GPU")]
    if on_gpu:
        print(fold(f"measured on a GPU, and longer without one: {', '.join(on_gpu)}"))
    return 0
