"""``twolayer escape --width 2 --dim 10000 --threshold 0.1``."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from twolayer.cli.common import (
    DATA,
    add_common,
    add_dry_run,
    check_report,
    drawn,
    fold,
    idle,
    one_line_warnings,
    wrapped,
)
from twolayer.cli.solve import told
from twolayer.numerics.errors import InputError, finite_number, short

if TYPE_CHECKING:
    from twolayer.numerics.arguments import Json
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem

EXAMPLES = (
    (
        "twolayer escape --width 4 --noise 0.1",
        "formulas, at the rate with the fewest steps",
    ),
    ("twolayer escape --width inf --dim 100000", "of infinitely many neurons"),
    ("twolayer escape --dim 1000 --lr 0.05/d --measure 32", "and 32 runs beside them"),
    (
        "twolayer escape --dim 1000 --measure 32 --out escape.png",
        "passage times with the formulas, drawn",
    ),
    (
        "twolayer escape --dim 100000 --measure 256 --dry-run",
        "what the runs would take",
    ),
)
LEAST, MOST = (
    0.01,
    0.03,
)  # thresholds taken by default: at the best rate wide networks lose 4 % of their risk at most
LEARNT = 0.99  # of the risk is gone when the target counts as learned
ROWS = ("annealed", "quenched", "ode", "corrected", "noisy", "from_zero")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Phase retrieval in a few numbers, the dimension and the threshold."""
    parser.add_argument(
        "--width", default="1", metavar="P", help="neurons, or inf (default 1)"
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.0,
        metavar="Δ",
        help="variance of the labels' noise (default 0)",
    )
    parser.add_argument(
        "--lr",
        metavar="LAW",
        help="learning rate such as 0.05/d (default: the fewest steps)",
    )
    parser.add_argument(
        "--rho",
        type=float,
        metavar="R",
        help="d·lr/(p·batch) instead, which infinite widths have too",
    )
    parser.add_argument(
        "--batch", type=int, default=1, metavar="N", help="batch size (default 1)"
    )
    parser.add_argument(
        "--dim", type=int, default=10_000, metavar="D", help="dimension (default 10000)"
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="T",
        help="T in R = (1 − T) R(0) (default: from 0.01 to 0.03, the least for which the noise of samples is known)",
    )
    parser.add_argument(
        "--ode",
        action="store_true",
        help="also integrate the ODE from 32 random starts",
    )
    parser.add_argument(
        "--measure",
        type=int,
        metavar="N",
        help="also measure N runs of the exact chain",
    )
    add_dry_run(parser)
    add_common(
        parser,
        "draw passage times (.png, .pdf, .svg), or write what is printed (.txt, .json)",
        "of starts and runs",
    )


def _width(text: str) -> float:
    """A number of neurons, or infinity."""
    if text == "inf":
        return math.inf
    if not text.strip().isdecimal() or int(text) < 1:
        raise InputError(
            f"Argument `--width` must be a whole number from 1 on or inf, but got {short(text)}."
        )
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print the formulas, and the measurement if asked for."""
    check_report(args.out)
    args.width = _width(args.width)
    finite_number(
        "--noise",
        args.noise,
        minimum=0.0,
        accepted="a variance: a finite number, zero or more",
    )
    draws = args.out is not None and not args.out.endswith(DATA)
    runs = args.ode or args.measure is not None or draws
    if args.measure is None:
        idle(args, "without --measure: formulas are not run", "--dry-run")
    if not runs:
        idle(args, "without --ode and --measure: the formulas are integrals", "--seed")
    from twolayer.analysis.escape_formulas import contraction_of, formulas

    if math.isinf(args.width) and (runs or args.lr is not None):
        flag = (
            "--ode"
            if args.ode
            else "--measure"
            if args.measure is not None
            else "--lr"
            if args.lr
            else "--out"
        )
        raise InputError(
            f"{flag} needs a finite --width: infinitely many neurons have formulas and --rho alone."
        )
    if args.rho is not None:
        finite_number("--rho", args.rho, accepted="a positive number")
    if args.lr is not None and args.rho is not None:
        raise InputError(
            "--lr and --rho are two ways to say one thing: leave one of them out."
        )
    rho = args.rho if args.lr is None else _ratio(args)
    if args.threshold is None:
        args.threshold = _threshold(
            args,
            1 / (2 * contraction_of(args.width, args.noise)) if rho is None else rho,
        )
    known = formulas(
        args.width,
        args.dim,
        args.threshold,
        noise=args.noise,
        rho=rho,
        batch=args.batch,
    )
    times, measured, law = _run(args, known) if runs else (None, None, None)
    if args.dry_run:
        return int(law or 0)
    found = {name: getattr(known, name) for name in ROWS}
    missing, reached = dict(known.missing), 1.0
    if times is not None:
        found |= {
            name: getattr(times, name) for name in ("ode", "ode_error", "corrected")
        }
        missing, reached = times.missing, times.reached
    per = known.steps_per_time
    values: Json = {
        "lr": _law(args, known.rho),
        "optimal_lr": _law(args, known.best_rho),
        "learning_lr": _learning(args),
        "largest_lr": _law(args, known.largest_rho),
        "rho": known.rho,
        "gain": known.gain,
        "threshold": args.threshold,
        "missing": missing,
        "reached": reached,
        "time": found,
        "steps": {
            name: None if value is None else value * per
            for name, value in found.items()
        },
    }
    lines = [
        f"lr         {values['lr']}   (escape below {values['largest_lr']})",
        f"fewest     steps to escape at {values['optimal_lr']}, to learn at {values['learning_lr']}",
        f"threshold  R = (1 − {args.threshold:g}) R(0) at d = {args.dim}",
    ]
    if args.width > 1:
        lines.insert(
            2,
            f"gain       {known.gain:.4g} times fewer steps than one neuron, each at its best rate",
        )
    rows = []
    if found["ode"] is None:
        missing["ode"] = "it is integrated for several neurons; ask with --ode"
    for name in ROWS if args.width == 1 else ROWS[:-1]:
        value = found[name]
        shown = (
            f"not given: {missing.get(name, '')}"
            if value is None
            else f"t = {value:<9.5g} steps {value * per:.5g}"
        )
        rows.append((name.replace("_", " "), shown))
    if measured is not None:
        numbers = (
            "mean",
            "standard_error",
            "median",
            "mean_steps",
            "censored",
            "diverged",
        )
        values["chain"] = {name: getattr(measured, name) for name in numbers}
        rows.append(("chain", f"t = {measured}   steps {measured.mean_steps:.5g}"))
    lines.append(wrapped([(f"{name:<9}", text) for name, text in rows]))
    if reached < 0.995:
        lines.append(
            fold(f"the ODE reaches the threshold from {reached:.0%} of the starts")
        )
    title = _title(args, values["lr"])
    drawn(
        args,
        "\n".join(lines),
        values,
        lambda plot: plot.passage(times, law, measured, title),
    )
    return 0


def _threshold(args: argparse.Namespace, rho: float) -> float:
    """The least threshold for which the correction is known, within bounds."""
    from twolayer.analysis.escape_formulas import RESOLVED, growth_of, noise_strength_of
    from twolayer.numerics.errors import positive_integer

    c = growth_of(args.width, args.noise, rho)
    if c <= 0:
        return LEAST
    s = rho * noise_strength_of(args.width, args.noise) / (2 * c)
    least = (
        RESOLVED["one" if args.width == 1 else "several"]
        * (1 + s)
        / positive_integer("--dim", args.dim, 2)
    )
    return min(max(math.ceil(1000 * least) / 1000, LEAST), MOST)


def _ratio(args: argparse.Namespace) -> float:
    """ρ of a learning rate; refuses one at which nothing grows."""
    from twolayer.analysis.optimal_lr import noise_ratio, require_growth

    problem, algorithm = _task(args)
    rho = noise_ratio(problem, algorithm, args.dim)
    require_growth(problem, algorithm, rho)
    return rho


def _task(args: argparse.Namespace, rho: float | None = None) -> tuple[Problem, SGD]:
    """The problem and the algorithm."""
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem
    from twolayer.task.scaling import Scaling

    problem = Problem("z1**2", "square", args.width, args.noise)
    lr = args.lr if rho is None else Scaling(rho * args.width * args.batch, -1.0)
    return problem, SGD(lr, args.batch, geometry="projected")


def _law(args: argparse.Namespace, rho: float) -> str:
    """A learning rate as it is written, or its ρ for infinitely many neurons."""
    if math.isinf(args.width):
        return f"{rho:.4g}·p·{args.batch}/d" if args.batch > 1 else f"{rho:.4g}·p/d"
    return f"{rho * args.width * args.batch:.4g}/d"


def _learning(args: argparse.Namespace) -> str | None:
    """The rate with the fewest steps to learn; of infinitely many neurons, that of ten thousand."""
    from twolayer.analysis.optimal_lr import learning_lr

    width = 10_000 if math.isinf(args.width) else args.width
    problem, _ = _task(argparse.Namespace(**{**vars(args), "width": width}), 0.01)
    try:
        best = learning_lr(problem, args.dim, LEARNT, args.batch)
    except InputError:  # the noise leaves more than that
        return None
    return _law(args, best.coefficient / (width * args.batch))


def _run(args: argparse.Namespace, known: Any) -> tuple[Any, Any, Any]:
    """The times with the ODE, the passages measured, and the law of the quenched formula; with --dry-run the cost."""
    from twolayer.analysis.escape import escape_time, passage_law
    from twolayer.analysis.passage_times import first_passage
    from twolayer.methods.chain import Chain
    from twolayer.numerics.errors import positive_integer
    from twolayer.running.cost import cost_of
    from twolayer.running.solve import solve
    from twolayer.task.method import Until
    from twolayer.task.overlaps import Overlaps

    problem, algorithm = _task(args, None if args.lr is not None else known.rho)
    seed, measured = args.seed or 0, None
    times = escape_time(problem, algorithm, args.dim, args.threshold, seed=seed)
    if args.measure is not None:
        starts = Overlaps.random(
            problem, args.dim, seed, size=positive_integer("--measure", args.measure)
        )
        method = Chain(args.dim)
        if args.dry_run:  # the last runs cross at about twice the mean
            cost = cost_of(
                problem,
                algorithm,
                method,
                starts,
                time=2 * times.ode,
                save=1,
                seed=seed,
            )
            return times, None, told(args, cost)
        until = Until("excess_risk", 1 - args.threshold, relative=True)
        with one_line_warnings():
            runs = solve(
                problem,
                algorithm,
                method,
                starts,
                time=4 * times.ode,
                save=1,
                seed=seed,
                until=until,
            )
        measured = first_passage(runs)
    return (
        times,
        measured,
        passage_law(problem, algorithm, args.dim, args.threshold, seed=seed),
    )


def _title(args: argparse.Namespace, lr: str) -> str:
    noise = f", Δ = {args.noise:g}" if args.noise else ""
    batch = f", batch {args.batch}" if args.batch > 1 else ""
    return (
        f"Phase retrieval, p = {args.width}{noise}, lr = {lr}{batch}, d = {args.dim}: "
        f"time until R = (1 − {args.threshold:g}) R(0)"
    )
