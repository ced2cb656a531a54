"""Shapes that a control may have, as functions of a few numbers, and the laws that they
stand for.

    constant    θ₀
    named       θ₀ × cosine, linear, power or inverse with their own numbers
                (task/schedules.py)
    free        straight lines between N + 1 values

All are functions of the position x on the clock, relative to the reference value of the
control.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from twolayer.task.scaling import Scaling
from twolayer.task.schedules import FORMS, MAKERS, table

__all__ = ["NAMED", "CurveForm", "constant", "free", "named"]

DIFFERENCE = 1e-6  # relative, of the numbers of schedules with a name
NAMED = ("cosine", "linear", "power", "inverse")


@dataclass(frozen=True, eq=False)
class CurveForm:
    """A control as a function of numbers θ (n,), with where to begin and their
    bounds.
    """

    name: str
    values: Callable[
        [np.ndarray, np.ndarray], np.ndarray
    ]  # (θ, x) → values at positions x (G,)
    first: np.ndarray
    low: np.ndarray
    high: np.ndarray
    law: Callable[
        [np.ndarray, Scaling], Scaling
    ]  # (θ, reference law) → the law that a method can run

    def at(self, theta: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (G,) and their derivatives (G, n), by central differences: linear
        shapes have exact ones.
        """
        steps = np.diag(DIFFERENCE * np.maximum(np.abs(theta), 1e-3))
        if self.name == "free":
            slopes = [self.values(e, x) for e in np.eye(len(theta))]
        else:
            slopes = [
                (self.values(theta + h, x) - self.values(theta - h, x)) / (2 * h.max())
                for h in steps
            ]
        return self.values(theta, x), np.stack(slopes, axis=1)


def constant(first: float, bounds: tuple[float, float]) -> CurveForm:
    """A number."""
    return CurveForm(
        "constant",
        lambda theta, x: theta[0] * np.ones_like(x),
        np.array([first]),
        np.array([bounds[0]]),
        np.array([bounds[1]]),
        lambda theta, law: float(theta[0]) * law,
    )


def named(
    name: str, first: float, bounds: tuple[float, float], horizon: float, clock: str
) -> CurveForm:
    """One of the schedules with a name, between the bounds."""
    words: tuple[str, ...]
    scale = ([first], [bounds[0]], [bounds[1]])
    if name in ("cosine", "linear"):
        words, own = (
            ("horizon", "floor"),
            ([horizon, 0.1], [horizon / 50, 0.0], [horizon, 1.0]),
        )
    elif name == "power":
        words, own = (
            ("exponent", "scale"),
            ([0.5, horizon / 4], [-3.0, horizon / 1000], [3.0, 10 * horizon]),
        )
    else:
        words, own = ("scale",), ([horizon / 4], [horizon / 1000], [100 * horizon])
    fixed = {"after": 0.0} | ({"exponent": 1.0} if name == "inverse" else {})

    def values(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        return theta[0] * FORMS[name](
            x, **dict(zip(words, theta[1:], strict=True)), **fixed
        )

    def law(theta: np.ndarray, reference: Scaling) -> Scaling:
        numbers = {word: float(x) for word, x in zip(words, theta[1:], strict=True)}
        return float(theta[0]) * reference * MAKERS[name](**numbers, clock=clock)

    start, low, high = (np.concatenate(pair) for pair in zip(scale, own, strict=True))
    return CurveForm(name, values, start, low, high, law)


def free(
    at: np.ndarray, first: np.ndarray, bounds: tuple[float, float], clock: str
) -> CurveForm:
    """Straight lines between the values at places ``at``."""
    low, high = (np.full(len(at), x) for x in bounds)

    def law(theta: np.ndarray, reference: Scaling) -> Scaling:
        top = float(theta.max())
        if len(at) == 1 or np.ptp(theta) == 0:
            return top * reference
        return top * reference * table(at.tolist(), (theta / top).tolist(), clock=clock)

    return CurveForm(
        "free", lambda theta, x: np.interp(x, at, theta), first, low, high, law
    )
