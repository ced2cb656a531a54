"""``twolayer sweep sweep.toml --out results.zarr``."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

from twolayer.cli.common import CHANGE, add_common, add_dry_run, idle, task_of

EXAMPLES = (
    ("twolayer sweep sweep.toml --dry-run", "cells, runs and what they will take"),
    ("twolayer sweep sweep.toml --out s.zarr", "run the grid into a store"),
    ("twolayer sweep sweep.toml --out s.zarr --resume", "go on after an interruption"),
    ("twolayer sweep sweep.toml --executor processes:2", "on two processes"),
    ("twolayer plot s.zarr", "draw what the store holds"),
)
MOST = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task with its [sweep] table, the store and where to run."""
    parser.add_argument(
        "task", metavar="TASK.toml", help="the task file with a [sweep] table"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with a store that exists"
    )
    parser.add_argument(
        "--executor",
        metavar="WHERE",
        help="local (default), processes, processes:N or dask://HOST:PORT",
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="chain, vectors, ode, …; the first of the file by default",
    )
    parser.add_argument(
        "--dim", type=int, metavar="D", help="dimension, instead of the file's"
    )
    parser.add_argument(
        "--reduce",
        default="final",
        metavar="NAME",
        help="final (default), exit_time or trajectory",
    )
    parser.add_argument(
        "--target-se",
        type=float,
        metavar="X",
        help="add seeds until this standard error",
    )
    parser.add_argument(
        "--max-seeds",
        type=int,
        metavar="N",
        help=f"but no more than these (default {MOST})",
    )
    parser.add_argument(
        "--merge",
        action="append",
        default=[],
        metavar="STORE",
        help="copy another store's runs first",
    )
    add_dry_run(parser)
    add_common(
        parser,
        "the store, PATH.zarr (default: results/TASK.zarr)",
        "instead of the file's run.seed",
        CHANGE,
    )


def run(args: argparse.Namespace) -> int:
    """Sweep into a store; exit code 1 if a cell failed."""
    if args.target_se is None:
        idle(args, "without --target-se", "--max-seeds")
    if args.dry_run:
        idle(
            args,
            "with --dry-run, which runs nothing",
            "--resume",
            "--executor",
            "--target-se",
            "--merge",
        )
    task = task_of(args, dim="run.dim", seed="run.seed")
    from twolayer.numerics.errors import Interrupted
    from twolayer.running.progress import Events
    from twolayer.sweeps.api import SweepWarning, plan_sweep, sweep
    from twolayer.sweeps.files import merge_sweeps

    arguments = task.sweep_arguments(None if args.method is None else [args.method])
    arguments["reduce"] = args.reduce
    events = Events()
    if args.dry_run:
        plan = plan_sweep(**arguments, store=args.out)
        if args.json:
            events.emit("plan", **vars(plan))
        else:
            print(plan)
        return 0
    plan_sweep(**arguments)  # bad input is told before the default folder is made
    store = args.out
    if store is None:
        store = str(Path("results") / f"{Path(args.task).stem}.zarr")
        Path("results").mkdir(exist_ok=True)
    for other in args.merge:
        merge_sweeps(store, other)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SweepWarning)
            result = sweep(
                **arguments,
                target_se=args.target_se,
                max_seeds=MOST if args.max_seeds is None else args.max_seeds,
                store=store,
                resume=args.resume or bool(args.merge),
                executor=args.executor or "local",
                progress=events if args.json else True,
            )
    except Interrupted:
        print(
            f"interrupted; finished cells are in {store}: go on with --resume",
            file=sys.stderr,
        )
        return 1
    failures, advice = (
        json.loads(result.attrs[name]) for name in ("failures", "advice")
    )
    if args.json:
        events.emit(
            "result",
            store=store,
            runs=int(result.runs.sum()),
            failures=failures,
            advice=advice,
        )
        return int(bool(failures))
    print(f"{int(result.runs.sum())} runs of {result.runs.size} cells in {store}")
    for outcome, text in advice.items():
        print(f"{int((result.outcome == outcome).sum())} {outcome}: {text}")
    for failure in failures:
        where = ", ".join(f"{k} = {v}" for k, v in failure["cell"].items())
        print(f"failed  {where}: {failure['error']}")
    print(
        f"draw it with 'twolayer plot {store}'"
        if not failures
        else "failed cells are run again with --resume"
    )
    return int(bool(failures))
