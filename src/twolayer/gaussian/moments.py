"""`moments`: the five averages at a given point, with engine and error.

psi_jr = a_j E[σ'(λ_j) λ*_r e]
phi_jl = a_j E[σ'(λ_j) λ_l e]
chi_jl = a_j a_l E[σ'(λ_j) σ'(λ_l) e²]
second_j = E[e σ(λ_j)]
risk = ½ E[(y − f)²],    excess_risk = risk − ½ E Var(y|z)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twolayer.gaussian.engines import LOG2_POINTS, adapt, relative_error, select
from twolayer.gaussian.risk import irreducible
from twolayer.numerics.errors import InputError, expect
from twolayer.numerics.html import card, cells, escaped, field_summary, matrix
from twolayer.numerics.precision import float64
from twolayer.task.averages import ACCURACY, USUAL, Averages, read_averages
from twolayer.task.heavy_tails import infinite
from twolayer.task.losses import Loss
from twolayer.task.overlaps import Overlaps, check_target
from twolayer.task.particles import Particles
from twolayer.task.problem import Problem

__all__ = ["Moments", "check_point", "check_start", "moments"]

POOR = 1e-2  # relative error of a quadrature beyond which points are tried


@dataclass(frozen=True, eq=False)
class Moments:
    """The averages at one point. Made by `moments`.

    Attributes
    ----------
    psi, phi, chi, second : arrays (p, k), (p, p), (p, p), (p,)
    risk, excess_risk : float
    error : float
        Largest estimated error of any average, relative to the size it can have by
        Cauchy–Schwarz.
    errors : dict
        Largest estimated absolute error by name.
    engine : str
        How the averages were taken.
    """

    psi: np.ndarray
    phi: np.ndarray
    chi: np.ndarray
    second: np.ndarray
    risk: float
    excess_risk: float
    error: float
    errors: dict[str, float]
    engine: str

    def __repr__(self) -> str:
        return field_summary(
            self,
            ("psi", "phi", "chi", "second", "risk", "excess_risk", "error", "engine"),
        )

    def __str__(self) -> str:
        lines = []
        for name in ("psi", "phi", "chi", "second"):
            rows = str(getattr(self, name).round(6)).splitlines()
            lines += [f"{name:<7}{rows[0]}", *(" " * 7 + row for row in rows[1:])]
        lines.append(f"risk   {self.risk:.8g}   excess {self.excess_risk:.8g}")
        lines.append(f"engine {self.engine}   error {self.error:.1e}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (name, matrix(getattr(self, name)))
            for name in ("psi", "phi", "chi", "second")
        ]
        rows += [("risk", f"{self.risk:.6g}, excess {self.excess_risk:.6g}")]
        rows += [("engine", f"{escaped(self.engine)}, error {self.error:.1e}")]
        return card("Moments", "", rows, cells(self.chi, names=("chi", "")))


def check_start(problem: Problem, start: Overlaps | Particles) -> None:
    """Refuse overlaps or particles that do not belong to the problem."""
    if isinstance(start, Particles):
        _check_particles(problem, start)
        norms = start.norms
    else:
        if (start.p, start.k) != (problem.p, problem.k):
            raise InputError(
                f"Argument `start` must have {problem.p} neurons and {problem.k}"
                f" directions like the problem, but has {start.p} and {start.k}."
            )
        _check_blocks(problem, start)
        start = start.fields(problem.inputs)
        norms = np.diagonal(start.Q, axis1=-2, axis2=-1)
    if not np.allclose(start.P, problem.P, atol=1e-8):
        raise InputError(
            f"Argument `start` must have P = {problem.P.tolist()} like the problem, but"
            " has another P."
        )
    if problem.activation.kinks and norms.min() < 1e-14:
        raise InputError(
            "Argument `start` must have neurons of positive norm, for"
            f" {problem.activation.name} has no slope at its kink, but has Q_jj ="
            f" {norms.min():.3g}."
        )


def _check_blocks(problem: Problem, start: Overlaps) -> None:
    """Refuse overlaps in other blocks than those of the inputs, or that a target of the
    problem does not have.
    """
    inputs = problem.inputs
    if inputs.plain and start.blocks is None:
        return
    if inputs.plain:
        raise InputError(
            "Argument `start` must be plain Overlaps for inputs N(0, I), but is in"
            f" {start.blocks} blocks: give the problem its `inputs`."
        )
    if start.blocks != inputs.count:
        found = "has no blocks" if start.blocks is None else f"has {start.blocks}"
        raise InputError(
            f"Argument `start` must be overlaps in the {inputs.count} blocks of the"
            f" inputs, from Overlaps.in_blocks or Overlaps.random, but {found}."
        )
    check_target("start", problem, start.P)


def check_point(problem: Problem, start: Any) -> None:
    """Refuse what is not one point (Q, M, P, a) of the problem."""
    expect(Problem, "problem", problem)
    expect(Overlaps, "start", start, ", one point (Q, M) at which averages are taken")
    check_start(problem, start)
    if start.batch:
        raise InputError(
            f"Argument `start` must be a single point, but holds {start.batch[0]}"
            " starts."
        )


def _check_particles(problem: Problem, start: Particles) -> None:
    if not problem.inputs.plain:
        raise InputError(
            f"Argument `start` must be overlaps in the {problem.inputs.count} blocks of"
            " the inputs, from Overlaps.in_blocks or Overlaps.random, but is"
            " Particles, which have none."
        )
    if start.k != problem.k:
        raise InputError(
            f"Argument `start` must have {problem.k} directions like the problem, but"
            f" its particles have {start.k}."
        )
    if (
        start.a is None
        and not isinstance(problem.second_layer, str)
        and start.n != problem.p
    ):
        raise InputError(
            f"Argument `start` must have its own a, for the problem has {problem.p}"
            f" second-layer weights, but it holds {start.n} particles without any."
        )


@float64
def moments(
    problem: Problem,
    start: Overlaps,
    loss: str | Loss = "squared",
    averages: Averages | None = None,
) -> Moments:
    """The averages that drive the dynamics at one point, with the engine used and its
    error.

    Parameters
    ----------
    problem : Problem
        Target, activation and noise to average over.
    start : Overlaps
        A single point (Q, M, P, a).
    loss : str or Loss
        ``"squared"`` by default; also ``"correlation"``, ``"logistic"``, ``"hinge"``,
        ``"huber"``, or one of your own.
    averages : Averages, optional
        How they are taken. Quadratures are refined until every average is a hundred
        times as accurate as asked (1e-4); 2¹⁸ Sobol points are used where neither
        closed forms nor quadrature apply. There is no effort.

    Examples
    --------
    >>> problem = Problem("He2(z1)", "He2", noise=0.1)
    >>> m = moments(problem, Overlaps(Q=[[1.0]], M=[[0.5]]))
    >>> m.psi.round(6).tolist(), round(m.excess_risk, 6), m.engine
    ([[0.0]], 1.5, 'closed form (quadratic)')
    """
    check_point(problem, start)
    wanted = read_averages(
        USUAL if averages is None else averages,
        "moments",
        ("engine", "accuracy", "points"),
    )
    engine = wanted.engine
    log2_points = wanted.log2_points or LOG2_POINTS
    start = start.fields(problem.inputs)
    why = infinite(problem, Loss.of(loss), 2)
    if why is not None:
        raise InputError(f"Argument `loss` has no averages here: {why}.")
    a = problem.a() if start.a is None else start.a
    point = (start.Q, start.M, np.asarray(a))
    chosen, *_ = adapt(
        problem,
        loss,
        *point,
        engine=engine,
        tolerance=(wanted.accuracy or ACCURACY) / 100,
        log2_points=log2_points,
    )
    values, absolute = chosen.measure(*point, problem.noise)
    relative = relative_error(chosen, absolute, problem, *point)
    truncated = relative
    if relative > POOR and chosen.sampled:
        missing = chosen.truncation(*point, problem.noise)
        truncated = relative_error(chosen, missing, problem, *point)
    if engine == "auto" and truncated > POOR:
        # no order of the quadrature was fine enough; points do not mind how fast fields
        # turn
        other = select(problem, loss, "sobol", log2_points=log2_points)
        found = other.measure(*point, problem.noise)
        points_error = relative_error(other, found[1], problem, *point)
        if points_error < relative:
            chosen, relative = other, points_error
            values, absolute = found
    errors = {name: float(np.max(x)) for name, x in absolute._asdict().items()}
    excess = float(values.excess_risk)
    return Moments(
        np.asarray(values.psi),
        np.asarray(values.phi),
        np.asarray(values.chi),
        np.asarray(values.second),
        excess + irreducible(problem),
        excess,
        float(relative),
        errors,
        chosen.label,
    )
