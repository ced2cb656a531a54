"""``twolayer solve task.toml --method chain --dim 10000``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from twolayer.cli.common import add_common, add_task, emit, output_base, quiet_warnings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task, the method and its dimension."""
    add_task(parser)
    parser.add_argument("--method", default=None, help="chain, vectors, ode, …; the first of the file by default")
    parser.add_argument("--dim", type=int, metavar="D", help="dimension, instead of the file's")
    add_common(parser, "write PATH.nc and PATH.png (default: results/TASK-METHOD)")


def summary(dataset: Any) -> dict[str, Any]:
    """The end of a run in a few numbers."""
    risk = dataset.risk.values[:, -1]
    outcomes = {str(o): int((dataset.outcome.values == o).sum()) for o in sorted(set(dataset.outcome.values))}
    notes = json.loads(dataset.attrs["notes"])
    return {
        "time": float(dataset.time.values[-1]),
        "step": float(dataset.step.values[-1]),
        "risk": float(risk.mean()),
        "risk_standard_error": float(risk.std(ddof=1) / len(risk) ** 0.5) if len(risk) > 1 else None,
        "outcomes": outcomes,
        "notes": notes,
    }


def report(dataset: Any, files: list[str], as_json: bool) -> int:
    """Print the summary; exit code 1 if no seed finished."""
    values = summary(dataset)
    failed = all(o in ("diverged", "max_steps") for o in values["outcomes"])
    if as_json:
        emit({**values, "files": files})
        return int(failed)
    error = values["risk_standard_error"]
    spread = "" if error is None else f" ± {error:.2g}"
    print(f"t = {values['time']:.6g}   step {values['step']:.6g}   risk {values['risk']:.6g}{spread}")
    print("outcome  " + ", ".join(f"{n} {o}" for o, n in values["outcomes"].items()))
    for outcome, advice in values["notes"]["advice"].items():
        if outcome != "ok":
            steps = dataset.stop_step.values[dataset.outcome.values == outcome]
            print(f"{outcome} at step {steps.min():.6g}{' and later' if len(steps) > 1 else ''}: {advice}")
    if "engine" in values["notes"]:
        print(f"averages {values['notes']['engine']} (error {values['notes']['engine_error']:.1e})")
    for file in files:
        print(f"wrote    {file}")
    return int(failed)


def run(args: argparse.Namespace) -> int:
    """Solve, write data and figure, print the end."""
    from twolayer.taskfile import read_task

    task = read_task(args.task, args.set)
    from twolayer import plot
    from twolayer.errors import Interrupted
    from twolayer.results import save
    from twolayer.solving import applicable, solve

    problem, algorithm = task.problem(), task.algorithm()
    names = [args.method] if args.method else (task.table.run.methods or applicable(problem, algorithm))[:1]
    methods = task.methods(names, args.dim)
    assert methods is not None
    method = methods[0]
    base = output_base(args.out, f"{args.task.rsplit('/', 1)[-1].removesuffix('.toml')}-{method.name}")
    try:
        with quiet_warnings():
            dataset = solve(
                problem,
                algorithm,
                method,
                task.start(problem),
                until=task.until(),
                **task.run_arguments(args.seed),
            )
    except Interrupted as stop:
        path = save(stop.result, base.with_suffix(".nc"))
        print(f"interrupted; the finished part is in {path}")
        return 1
    data = save(dataset, base.with_suffix(".nc"))
    figure = plot.save_figure(plot.trajectory(dataset), base.with_suffix(".png"))
    return report(dataset, [str(data), str(figure)], args.json)
