"""When n = αd samples show anything at all of a target, and of which directions:
`thresholds`.

    trivial directions     learned at every α > 0
    α_c = 1/ρ(E[G ⊗ G])    above it Bayes-optimal message passing, or any good
                           first-order method, leaves q = 0
    staircase              directions that start later, helped by those already
                           learned; ∞: not with n = O(d)
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twolayer.analysis.target_coordinates import told_frame
from twolayer.analysis.thresholds.amp import MessagePassing, simulate
from twolayer.analysis.thresholds.label_law import LabelLaw, law_of
from twolayer.analysis.thresholds.one_direction import INVISIBLE, channel_of
from twolayer.analysis.thresholds.staircase import Stair, climb, first_look
from twolayer.functions.target import Target, TargetLike
from twolayer.numerics.arguments import Array, Listener, Progress
from twolayer.numerics.errors import Interrupted
from twolayer.running.progress import listener_for
from twolayer.task.problem import Problem

__all__ = ["Thresholds", "thresholds", "written"]

DIGITS = 1e-9  # of quadrature at its best
ROUNDED = 1e-5  # relative errors below this do not show in what is printed


@dataclass(frozen=True, eq=False)
class Thresholds:
    """What n = αd samples can show of a target. Made by `thresholds`.

    Attributes
    ----------
    target : Target
    noise : float
        Δ.
    trivial : array (n, k)
        Directions that are learned at every α > 0, as orthonormal rows.
    alpha : float
        α_c of weak recovery: 0 with trivial directions, infinite if the generative
        exponent exceeds 2.
    error : float
        Of alpha: where averages are sampled a standard error and what bins leave out,
        the change between two resolutions for one direction.
    operator : array
        E[G ⊗ G], as a matrix on the matrices of the directions that enter.
    eigenvectors : array (n, k)
        Directions that start at 1/ρ of the operator, where no trivial ones lead the
        way.
    rho : float
        Largest eigenvalue of the operator.
    staircase : list of Stair
        Directions that start together, with their order and threshold.
    """

    target: Target
    noise: float
    trivial: np.ndarray
    alpha: float
    error: float
    operator: np.ndarray
    eigenvectors: np.ndarray
    rho: float
    staircase: list[Stair]
    law: LabelLaw = field(repr=False)

    @property
    def frame(self) -> np.ndarray:
        """L of λ* = L u: ``target`` and all directions are in the coordinates u, which
        are the fields where P is the identity.
        """
        return self.law.frame

    def simulate(
        self,
        alpha: float,
        dim: int = 1000,
        seeds: int = 4,
        seed: int = 0,
        **options: Any,
    ) -> MessagePassing:
        """Message passing on explicit data with this target and noise: ``seeds`` runs
        at dimension ``dim`` with ``alpha`` ·d samples, numbered from ``seed`` on.

        ``options`` are those of `twolayer.analysis.thresholds.amp.simulate`.
        """
        return simulate(self.law, alpha, dim, seeds, seed, **options)

    def __str__(self) -> str:
        error = (
            f" ± {self.error:.1g}" if self.error > 0 and np.isfinite(self.alpha) else ""
        )
        lines = [
            f"target            {self.target.name}"
            + (f", noise {self.noise:g}" if self.noise else ""),
            f"weak recovery     α_c = {_number(self.alpha)}{error}   (n = αd samples)",
        ]
        if len(self.trivial):
            lines.append(f"at every α > 0    {written(self.trivial)}")
        for step in self.staircase[len(self.trivial) > 0 :]:
            lines.append(f"{_when(step) + '  ':<18}{written(step.directions)}")
        if told := told_frame(self.frame):
            lines.append(f"coordinates       {told}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{_number(s.alpha)}</td><td>{s.order or '–'}</td>"
            f"<td>{written(s.directions)}</td></tr>"
            for s in self.staircase
        )
        return (
            f"<p>{html.escape(self.target.name)}, noise {self.noise:g}: α<sub>c</sub> ="
            f" {_number(self.alpha)}</p>"
            f"<table><tr><th>α</th><th>order</th><th>directions</th></tr>{rows}</table>"
        )


def _number(value: float) -> str:
    return "∞" if not np.isfinite(value) else f"{value:.6g}"


def _when(step: Stair) -> str:
    error = f" ± {step.error:.1g}" if step.error > ROUNDED * step.alpha else ""
    return "never" if step.order is None else f"from α = {step.alpha:.4g}{error}"


def written(rows: np.ndarray) -> str:
    """Directions as they are printed."""
    return "; ".join(
        "(" + ", ".join(f"{x:.4g}" for x in row.round(4) + 0.0) + ")" for row in rows
    )


def thresholds(
    target: TargetLike | Problem,
    noise: float | None = None,
    *,
    directions: int | None = None,
    gram: Array | None = None,
    progress: Progress = None,
) -> Thresholds:
    """Trivial directions, weak-recovery threshold and staircase of a target, for n = αd
    samples.

    One direction is treated by quadrature, to nine digits; several by sampling, to
    about three. Cost: a second for one direction, ten to sixty for more.

    Parameters
    ----------
    target : str or callable or Target or Problem
        As for `Problem`; or a problem, with its noise and its Gram matrix.
    noise : float, optional
        Δ, the variance of the labels' noise; none by default.
    directions : int, optional
        k, for a callable.
    gram : array (k, k), optional
        P, the identity by default; everything is told in the frame of `analyse`.
    progress : bool, optional
        As in `solve`.

    Examples
    --------
    >>> import twolayer as tl
    >>> round(tl.thresholds("z1**2").alpha, 6)
    0.5
    >>> print(tl.thresholds("z1**2 * exp(-z1**2)"))
    target            z1**2*exp(-z1**2)
    weak recovery     α_c = ∞   (n = αd samples)
    never             (1)
    """
    law = law_of(target, noise, directions, gram)
    monitor = listener_for(progress)
    monitor.begin("thresholds", 1.0)
    try:
        return _one_direction(law) if law.k == 1 else _several(law, monitor)
    finally:
        monitor.finish()


def _one_direction(law: LabelLaw) -> Thresholds:
    first, second = channel_of(law).visible()
    coarse = channel_of(law, order=6).visible()[1]
    trivial, seen = first > INVISIBLE, second > INVISIBLE
    alpha = 0.0 if trivial else 1 / second if seen else np.inf
    error = (
        abs(1 / second - 1 / coarse) + DIGITS / second if seen and not trivial else 0.0
    )
    step = Stair(law.basis, 1 if trivial else 2 if seen else None, alpha, error)
    none = law.basis[:0]
    return Thresholds(
        law.target,
        law.noise,
        law.basis if trivial else none,
        alpha,
        error,
        np.array([[second]]),
        law.basis if seen else none,
        second,
        [step],
        law,
    )


def _several(law: LabelLaw, monitor: Listener) -> Thresholds:
    trivial, growth = first_look(law, lambda share: monitor.update(0.3 * share))
    seen = np.isfinite(growth.alpha)
    alpha, error = (0.0, 0.0) if len(trivial) else (growth.alpha, growth.alpha_error)
    steps: list[Stair] = []

    def result() -> Thresholds:
        return Thresholds(
            law.target,
            law.noise,
            trivial @ law.basis,
            alpha,
            error,
            growth.operator,
            (growth.directions if seen else growth.directions[:0]) @ law.basis,
            growth.rho,
            steps,
            law,
        )

    try:
        for step in climb(
            law, trivial, growth, lambda share: monitor.update(0.3 + 0.7 * share)
        ):
            steps.append(
                Stair(step.directions @ law.basis, step.order, step.alpha, step.error)
            )
    except KeyboardInterrupt:
        raise Interrupted(result()) from None
    return result()
