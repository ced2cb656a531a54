"""Problems, algorithms, schedules and overlaps in a notebook: formulas, numbers and a
small picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twolayer.functions.activation import BUILT_IN
from twolayer.functions.mathml import displayed, of_text
from twolayer.numerics.html import card, cells, curves, escaped, matrix
from twolayer.numerics.precision import float64
from twolayer.task.regimes import regime_of

if TYPE_CHECKING:
    from twolayer.task.algorithm import SGD
    from twolayer.task.overlaps import Overlaps
    from twolayer.task.problem import Problem
    from twolayer.task.scaling import Scaling
    from twolayer.task.schedules import Schedule

__all__ = ["overlaps_html", "problem_html", "schedule_html", "sgd_html"]

SUM = (
    "<munderover><mo>∑</mo><mrow><mi>j</mi><mo>=</mo><mn>1</mn></mrow><mi>p</mi></munderover>"
    "<msub><mi>a</mi><mi>j</mi></msub><mi>σ</mi><mo>(</mo><msub><mi>w</mi><mi>j</mi></msub><mo>·</mo><mi>z</mi>"
    "<mo>)</mo>"
)
STUDENT = f"<mi>f</mi><mo>=</mo><mfrac><mn>1</mn><mi>p</mi></mfrac>{SUM}"
NOISE = "<mo>+</mo><msqrt><mi>Δ</mi></msqrt><mi>ξ</mi>"
STEP = (
    "<mi>w</mi><mo>←</mo><mi>w</mi><mo>+</mo><mfrac><mi>lr</mi><mrow><mi>p</mi><msub><mi>n</mi><mi>b</mi></msub></mrow>"
    "</mfrac><munder><mo>∑</mo><mi>ν</mi></munder><msup><mi>g</mi><mi>ν</mi></msup><msup><mi>z</mi><mi>ν</mi></msup>"
)
FIRST_ORDER = (
    "<mi>W</mi><mo>←</mo><mi>g</mi><mo>(</mo><mi>W</mi><mo>,</mo><mo>…</mo><mo>,</mo>"
    "<mi>Γ</mi><mo>,</mo><mo>…</mo><mo>)</mo>"
)
THEN = {
    "free": "",
    "projected": ", then divided by its norm",
    "spherical": " along the sphere, then divided by its norm",
}
RANGE = 3.0
SHAPES = {
    "cosine": "φ + (1 − φ)(1 + cos πs)/2, s = (x − after)/horizon from 0 to 1",
    "linear": "1 − (1 − φ) s, s = (x − after)/horizon from 0 to 1",
    "warmup": "φ + (1 − φ) x/horizon up to 1",
    "power": "(1 + (x − after)/scale)^(−exponent)",
    "inverse": "1/(1 + (x − after)/scale)",
    "piecewise": "constant between the points",
    "table": "straight lines between the points",
    "custom": "a function of yours",
}
DIM = 1000  # where lengths that are laws in d are drawn


def problem_html(problem: Problem) -> str:
    """Target and student as formulas, the numbers, and the functions drawn."""
    sigma = problem.activation.name
    target = of_text(problem.target.name)
    formula = displayed(f"<mi>y</mi><mo>=</mo>{target}{NOISE if problem.noise else ''}")
    formula += f'<span style="padding:0 1em"></span>{displayed(STUDENT)}'
    named = displayed(
        f"<mi>σ</mi><mo>(</mo><mi>z</mi><mo>)</mo><mo>=</mo>{of_text(sigma, 'z')}"
    )
    layer = problem.second_layer
    rows = [
        ("activation", escaped(sigma) if sigma in BUILT_IN else named),
        ("neurons", f"p = {problem.p}, directions k = {problem.k}"),
        ("noise", f"Δ = {problem.noise:g}"),
        ("second layer", escaped(layer) if isinstance(layer, str) else matrix(layer)),
    ]
    if not np.array_equal(problem.P, np.eye(problem.k)):
        rows.append(("P", matrix(problem.P)))
    if not problem.inputs.plain:
        rows.append(("inputs", escaped(repr(problem.inputs))))
    return card("Problem", formula, rows, _functions(problem))


@float64
def _functions(problem: Problem) -> str:
    """σ, and the target where it has one direction."""
    z = np.linspace(-RANGE, RANGE, 121)
    lines, labels = [np.asarray(problem.activation(z), dtype=float)], ["σ(z)"]
    if problem.k == 1:
        lines.append(np.asarray(problem.target(z[:, None]), dtype=float))
        labels.append("h(z)")
    return curves(z, lines, ("z", ""), labels)


def sgd_html(algorithm: SGD) -> str:
    """The step as a formula, what is not at its default, and the place in the plane of
    batch and rate.
    """
    known = algorithm.describe()
    rows = [
        ("lr", escaped(f"{algorithm.lr:.6g}")),
        ("batch", escaped(f"{algorithm.batch:.6g}")),
    ]
    rows += [
        ("loss", escaped(known["loss"])),
        ("geometry", escaped(known["geometry"] + THEN[known["geometry"]])),
    ]
    for name in ("f", "g", "memory"):
        if known.get(name):
            rows.append((name, escaped(known[name])))
    for name in ("momentum", "weight_decay", "dataset", "train_second_layer"):
        if known[name]:
            rows.append((name.replace("_", " "), escaped(known[name])))
    rows.append(("limit", escaped(regime_of(algorithm).name)))
    if algorithm.first_order:
        return card("FirstOrder", displayed(FIRST_ORDER), rows)
    return card("SGD", displayed(STEP), rows, _plane(algorithm.mu, algorithm.delta))


def _plane(mu: float, delta: float) -> str:
    """The line δ = 1 − μ, on which noise and drift are of one order, and where the
    algorithm lies.
    """
    right, low, top = max(2.0, mu + 0.3), min(0.0, delta - 0.2), max(1.5, delta + 0.3)
    grid = np.linspace(0.0, right, 41)
    line = np.where(1 - grid >= low, 1 - grid, np.nan)
    return curves(
        grid,
        [line],
        ("μ   (batch d^μ, rate d^−δ)", "δ"),
        ["δ = 1 − μ"],
        (low, top),
        [(mu, delta)],
    )


def schedule_html(schedule: Schedule) -> str:
    """Every factor with its formula, and their product against the clock where they
    share one.
    """
    rows = [
        ("factor", escaped(f"{factor:.6g}: {SHAPES[factor.name]}"))
        for factor in schedule.factors
    ]
    return card(
        "Schedule",
        "",
        rows,
        _course(schedule),
        note="multiplied onto a law: x is the clock before a step",
    )


@float64
def _course(schedule: Schedule) -> str:
    """The product of the factors, to beyond the last of their bends."""
    clocks = {factor.clock for factor in schedule.factors}
    known = [{k: _length(v) for k, v in factor.lengths} for factor in schedule.factors]
    every = zip(schedule.factors, known, strict=True)
    ends = [
        x
        for factor, own in every
        for x in (*factor.breaks(own), 5 * own.get("scale", 0.0))
    ]
    if len(clocks) > 1 or not any(ends):
        return ""
    x = np.linspace(0.0, 1.2 * max(ends), 121)
    parts = [
        [float(factor.form(at, **own, **dict(factor.numbers))) for at in x]
        for factor, own in zip(schedule.factors, known, strict=True)
    ]
    laws = any(
        getattr(v, "exponent", 0)
        for factor in schedule.factors
        for _, v in factor.lengths
    )
    name = clocks.pop() + (f" at d = {DIM}" if laws else "")
    return curves(x, [np.prod(parts, axis=0)], (name, ""), ["factor"])


def _length(value: Scaling | tuple[Scaling, ...]) -> Any:
    return tuple(x(DIM) for x in value) if isinstance(value, tuple) else value(DIM)


def overlaps_html(start: Overlaps) -> str:
    """Q and M as numbers and colours; of several starts the first, and how far they
    spread.
    """
    first = start[0] if start.batch else start
    if start.blocks:
        rows = [
            (
                "neurons",
                (
                    f"p = {start.p}, directions k = {start.k}, in {start.blocks} blocks"
                    " of the inputs"
                ),
            )
        ]
        rows += [
            (f"{name} in block {i + 1}", matrix(x))
            for i in range(min(start.blocks, 4))
            for name, x in (("M", first.M[i]), ("Q", first.Q[i]))
        ]
        return card("Overlaps", "", rows)
    rows = [("neurons", f"p = {start.p}, directions k = {start.k}")]
    if start.dim:
        rows.append(("dimension", f"d = {start.dim}"))
    if start.batch:
        spread = (
            f"|M| {np.abs(start.M).mean():.3g} on average, {np.abs(start.M).max():.3g}"
            " at most"
        )
        rows.append(("starts", f"{start.batch[0]}: {spread}; the first of them"))
    rows += [("M", matrix(first.M)), ("Q", matrix(first.Q))]
    if first.a is not None:
        rows.append(("a", matrix(first.a)))
    shown = min(start.p, 24)
    both = np.concatenate([first.M[:shown], first.Q[:shown, :shown]], axis=1)
    return card("Overlaps", "", rows, cells(both, names=("M and Q", "")))
