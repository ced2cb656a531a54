"""``twolayer solve task.toml --method chain --dim 10000``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from twolayer.cli.common import (
    CHANGE,
    add_common,
    add_dry_run,
    add_force,
    add_passes,
    emit,
    idle,
    keep,
    one_line_warnings,
    output_base,
    task_of,
)

if TYPE_CHECKING:
    import xarray as xr

    from twolayer.numerics.arguments import Json

EXAMPLES = (
    (
        "twolayer solve task.toml",
        "the first method of the file; data and figure in results/",
    ),
    (
        "twolayer solve task.toml --method chain --dim 400",
        "another method, at another dimension",
    ),
    (
        "twolayer solve task.toml --set algorithm.lr=0.1/d --out slow",
        "another rate, in slow.nc and slow.png",
    ),
    ("twolayer solve task.toml --method vectors --dry-run", "what it would take"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task, the method and its dimension."""
    parser.add_argument(
        "task", metavar="TASK.toml", help="the task file (see 'twolayer help tasks')"
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="chain, vectors, ode, …; the first of the file by default",
    )
    parser.add_argument(
        "--dim", type=int, metavar="D", help="dimension, instead of the file's run.dim"
    )
    add_passes(parser)
    add_dry_run(parser)
    add_force(parser)
    parser.add_argument(
        "--checkpoint",
        metavar="FILE.npz",
        help="keep the run there, to go on after a kill",
    )
    add_common(
        parser,
        "write PATH.nc and PATH.png (default: results/TASK-METHOD)",
        "instead of the file's run.seed",
        CHANGE,
    )


def summary(dataset: xr.Dataset) -> Json:
    """The end of a run in a few numbers."""
    risk = dataset.risk.values[:, -1]
    # of a run in stages every seed has its own clock, and the last stage tells how it
    # ended
    staged = "stage" in dataset.coords
    end = {
        clock: dataset[clock].values.max() if staged else dataset[clock].values[-1]
        for clock in ("time", "step")
    }
    outcome, stop = (
        dataset[name].values[:, -1] if staged else dataset[name].values
        for name in ("outcome", "stop_step")
    )
    counts = {str(o): int((outcome == o).sum()) for o in sorted(set(outcome))}
    notes = json.loads(dataset.attrs["notes"])
    advice = notes.pop("advice")
    return {
        **end,
        "risk": risk.mean(),
        "risk_standard_error": (
            risk.std(ddof=1) / len(risk) ** 0.5 if len(risk) > 1 else None
        ),
        "outcomes": counts,
        "stopped": {
            o: {"step": stop[outcome == o].min(), "advice": advice[o]}
            for o in counts
            if o != "ok"
        },
        "notes": notes,
    }


def failed(dataset: xr.Dataset) -> bool:
    """Whether no seed got to an end that was asked for."""
    return all(
        o in ("diverged", "max_steps")
        for o in dataset.outcome.values.reshape(dataset.sizes["seed"], -1)[:, -1]
    )


def report(dataset: xr.Dataset, files: list[str], as_json: bool, **more: object) -> int:
    """Print the summary; exit code 1 if no seed finished."""
    values = summary(dataset)
    if as_json:
        emit({**values, **more, "files": files})
        return int(failed(dataset))
    error = values["risk_standard_error"]
    spread = "" if error is None else f" ± {error:.2g}"
    print(
        f"t = {values['time']:.6g}   step {values['step']:.6g}   risk"
        f" {values['risk']:.6g}{spread}"
    )
    print("outcome  " + ", ".join(f"{n} {o}" for o, n in values["outcomes"].items()))
    for outcome, end in values["stopped"].items():
        later = " and later" if values["outcomes"][outcome] > 1 else ""
        print(f"{outcome} at step {end['step']:.6g}{later}: {end['advice']}")
    notes = values["notes"]
    if "engine" in notes:
        known = (
            f" (error {notes['engine_error']:.1e})" if "engine_error" in notes else ""
        )
        print(f"averages {notes['engine']}{known}")
    for file in files:
        print(f"wrote    {file}")
    return int(failed(dataset))


def told(args: argparse.Namespace, cost: object) -> int:
    """What a run would take."""
    if args.json:
        emit(vars(cost))
    else:
        print(cost)
    return 0


def run(args: argparse.Namespace) -> int:
    """Solve, write data and figure, print the end."""
    task = task_of(args, dim="run.dim", seed="run.seed")
    from twolayer.numerics.errors import Interrupted
    from twolayer.running.solve import solve
    from twolayer.running.stages import solve_stages
    from twolayer.running.support import support
    from twolayer.task.method import METHODS

    problem, stages = task.problem(), task.stages()
    algorithm = stages[0].algorithm if stages else task.algorithm()
    named = task.methods(None if args.method is None else [args.method])
    possible = support(problem, algorithm).methods or tuple(
        METHODS
    )  # if none can, let the first say why
    method = (named or task.methods(possible[:1]))[0]
    start, arguments = task.start(problem), task.run_arguments()
    if args.dry_run:
        from twolayer.running.cost import cost_of

        idle(args, "with --dry-run, which writes nothing", "--out")
        return told(args, cost_of(problem, algorithm, method, start, **arguments))
    base = output_base(args.out, f"{Path(args.task).stem}-{method.name}")
    try:
        with one_line_warnings():
            if stages:
                idle(args, "on a run in stages", "--checkpoint")
                dataset = solve_stages(
                    problem, stages, method, start, **arguments, force=args.force
                )
            else:
                more = {"checkpoint": args.checkpoint, "force": args.force}
                dataset = solve(problem, algorithm, method, start, **arguments, **more)
    except Interrupted as stop:
        (path,) = keep(stop.result, base, figure=False)
        print(
            f"interrupted; the finished part is in {path}: draw it with 'twolayer plot"
            f" {path}'"
        )
        return 1
    return report(dataset, keep(dataset, base), args.json)
