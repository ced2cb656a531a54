"""``twolayer compare task.toml``."""

from __future__ import annotations

import argparse
import json

from twolayer.cli.common import add_common, add_task, emit, output_base, quiet_warnings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task and the methods."""
    add_task(parser)
    parser.add_argument("--methods", metavar="A,B", help="methods to compare, instead of the file's")
    parser.add_argument("--dim", type=int, metavar="D", help="dimension, instead of the file's")
    add_common(parser, "write PATH.nc and PATH.png (default: results/TASK)")


def run(args: argparse.Namespace) -> int:
    """Compare, write data and figure, print the table."""
    from twolayer.taskfile import read_task

    task = read_task(args.task, args.set)
    from twolayer.comparison import compare
    from twolayer.errors import Interrupted
    from twolayer.results import save

    problem, algorithm = task.problem(), task.algorithm()
    methods = task.methods(args.methods.split(",") if args.methods else None, args.dim)
    base = output_base(args.out, args.task.rsplit("/", 1)[-1].removesuffix(".toml"))
    try:
        with quiet_warnings():
            tree = compare(
                problem,
                algorithm,
                methods,
                task.start(problem),
                out=base,
                quiet=args.json,
                **task.run_arguments(args.seed),
            )
    except Interrupted as stop:
        path = save(stop.result, base.with_suffix(".nc"))
        name = json.loads(stop.result.attrs["description"])["method"]["name"]
        print(f"interrupted; the finished part of {name} is in {path}")
        return 1
    files = [str(base.with_suffix(suffix)) for suffix in (".nc", ".png")]
    if args.json:
        root = tree.to_dataset()
        rows = [{c: root[c].values[i] for c in root.data_vars} for i in range(root.sizes.get("row", 0))]
        emit(
            {
                "reference": tree.attrs["reference"],
                "skipped": json.loads(tree.attrs["skipped"]),
                "rows": rows,
                "files": files,
            }
        )
    else:
        for file in files:
            print(f"wrote {file}")
    return 0
