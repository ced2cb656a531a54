"""``twolayer optimise task.toml --horizon 40``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from twolayer.cli.common import (
    CHANGE,
    add_common,
    check_figure,
    drawn,
    folded,
    one_line_warnings,
    task_of,
)
from twolayer.numerics.errors import InputError, choice, short

if TYPE_CHECKING:
    from twolayer.numerics.arguments import Json
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem

EXAMPLES = (
    ("twolayer optimise task.toml", "the best rate for the samples of the task's run"),
    (
        "twolayer optimise task.toml --horizon 40 --out best.png",
        "over 40 d samples; rates and risks drawn",
    ),
    (
        "twolayer optimise task.toml --form constant --low 0.01/d --high 1/d",
        "the best constant within bounds",
    ),
    (
        "twolayer optimise task.toml --compare 32",
        "and whether it wins at the file's run.dim, in 32 runs",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task, what may be changed, and for how long."""
    parser.add_argument(
        "task", metavar="TASK.toml", help="the task file (see 'twolayer help tasks')"
    )
    parser.add_argument(
        "--over",
        default="lr",
        metavar="NAMES",
        help="lr (default), batch, weight_decay, or lr,batch",
    )
    parser.add_argument(
        "--form",
        default="free",
        metavar="NAME",
        help="free, constant, cosine, linear, power, inverse",
    )
    parser.add_argument(
        "--horizon",
        type=float,
        metavar="S",
        help="length (default: the samples of the file's run)",
    )
    parser.add_argument(
        "--clock",
        metavar="NAME",
        help="of the horizon: alpha (samples/d, default), time or step",
    )
    parser.add_argument(
        "--objective",
        default="excess_risk",
        metavar="NAME",
        help="excess_risk, integrated_risk, overlap",
    )
    parser.add_argument(
        "--method",
        default="ode",
        metavar="NAME",
        help="ode (default), giantsteps or map",
    )
    parser.add_argument(
        "--low", metavar="LAW", help="lowest value, such as 0.01/d; with --high"
    )
    parser.add_argument(
        "--high", metavar="LAW", help="highest value, such as 1/d; with --low"
    )
    parser.add_argument(
        "--pieces",
        type=int,
        default=32,
        metavar="N",
        help="intervals of a free function (default 32)",
    )
    parser.add_argument(
        "--restarts", type=int, default=3, metavar="N", help="first guesses (default 3)"
    )
    parser.add_argument(
        "--budget",
        type=int,
        default=2000,
        metavar="N",
        help="runs and gradients at most (default 2000)",
    )
    parser.add_argument(
        "--compare",
        type=int,
        metavar="N",
        help="also N runs of the exact chain with each protocol",
    )
    add_common(
        parser,
        "draw rates and risks into this .png, .pdf or .svg",
        "of guesses and of --compare, instead of run.seed",
        CHANGE,
    )


def run(args: argparse.Namespace) -> int:
    """Search, print, and say whether the optimum wins at finite d if asked for."""
    task = task_of(args, seed="run.seed")
    check_figure(args.out)
    if task.table.stages:
        raise InputError(
            f"{task.name}: a protocol is sought for one algorithm, but the file has"
            " [[stages]]."
        )
    if args.clock is not None and args.horizon is None:
        raise InputError("--clock says how --horizon counts: give both, or neither.")
    if (args.low is None) != (args.high is None):
        raise InputError(
            "--low and --high are the two ends of one interval: give both, or neither."
        )
    choice("method", args.method, ("ode", "giantsteps", "map"))
    dim = task.table.run.dim
    if args.compare is not None and dim is None:
        raise InputError(
            f"--compare {args.compare} needs a dimension, but {task.name} has no"
            " `run.dim`."
        )
    from twolayer.analysis.protocols.optimise import optimise
    from twolayer.numerics.errors import Interrupted

    problem, algorithm = task.problem(), task.algorithm()
    (method,) = task.methods([args.method])
    clock, horizon = _length(args, task, problem, algorithm, method.stepwise)
    complete = True
    try:
        with one_line_warnings():
            best = optimise(
                problem,
                algorithm,
                task.start(problem),
                [word.strip() for word in args.over.split(",")],
                horizon=horizon,
                clock=clock,
                objective=args.objective,
                form=args.form,
                method=method,
                bounds=None if args.low is None else (args.low, args.high),
                pieces=args.pieces,
                restarts=args.restarts,
                budget=args.budget,
                seed=task.table.run.seed,
            )
    except Interrupted as stop:
        best, complete = stop.result, False
    text = [str(best)]
    values: Json = {
        "objective": best.objective,
        "value": best.value,
        "schedule": _written(best.schedule),
        "constant": {"value": best.constant.value, "lr": str(best.constant.lr)},
        "named": {
            name: {"value": x.value, "lr": str(x.lr)} for name, x in best.named.items()
        },
        "horizon": best.horizon,
        "clock": best.clock,
        "certified": best.certified,
        "complete": best.complete,
        "evaluations": best.evaluations,
        "refinement": best.refinement,
    }
    if args.compare is not None and dim is not None and complete:
        contest = best.compare(dim, args.compare, task.table.run.seed)
        text.append(f"\n{contest}")
        values["contest"] = {
            "dim": contest.dim,
            "seeds": contest.seeds,
            "means": contest.means,
            "gains": contest.gains,
            "verdicts": contest.verdicts,
            "wins": contest.wins,
        }
    drawn(
        args, folded("\n".join(text), " " * 19), values, lambda plot: plot.optimum(best)
    )
    return 0 if complete else 1


def _length(
    args: argparse.Namespace,
    task: Any,
    problem: Problem,
    algorithm: SGD,
    stepwise: bool,
) -> tuple[str | None, float]:
    """Clock and horizon: those given, or as many samples, or steps, as the task's run
    takes at its own rate.

    Per unit of time a vanishing rate, with no end of steps, would be the best.
    """
    from twolayer.numerics.arguments import ENDS

    if args.horizon is not None:
        return args.clock, args.horizon
    run, lr, batch = task.table.run, algorithm.lr, algorithm.batch
    for name in ENDS:
        if isinstance(getattr(run, name), list):
            raise InputError(
                f"{task.name}: `run.{name}` must be one number here, but got"
                f" {short(getattr(run, name))}."
            )
    if stepwise and run.steps is not None:
        return "step", float(run.steps)
    if not stepwise and run.alpha is not None:
        return "alpha", float(run.alpha)
    power = batch.exponent - lr.exponent - 1  # of d, in alpha per unit of time
    if not stepwise and run.time is not None and (run.dim is not None or not power):
        ratio = problem.divisor * batch.coefficient / lr.coefficient
        return "alpha", run.time * ratio * (run.dim or 1) ** power
    if not stepwise and run.steps is not None and run.dim is not None:
        return "alpha", run.steps * batch(run.dim) / run.dim
    word = "steps" if stepwise else "alpha"
    raise InputError(
        f"--horizon is missing, and [run] of {task.name} has no `{word}` that would"
        " say it."
    )


def _written(schedule: object) -> Any:
    if isinstance(schedule, dict):
        return {name: _written(law) for name, law in schedule.items()}
    return schedule if isinstance(schedule, float) else str(schedule)
