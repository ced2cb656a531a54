"""The search: constants on a grid and refined, then shapes by L-BFGS-B with the
gradient of the whole run.

    minimise  log J(θ)    (−log of what has to be large;
              J itself of a function that may be negative)
    ∂J/∂θ = Σ_g ∂J/∂f(x_g) · ∂f(x_g; θ)/∂θ
        x_g the grid of the dynamics: one compiled gradient for all shapes

Free functions are refined: N intervals, then 2N from the interpolated optimum, and so
on. Of piecewise linear controls the value is above the optimum by O(N⁻⁴) where that is
smooth.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from twolayer.analysis.protocols.controlled_motion import ControlledRun, Controls
from twolayer.analysis.protocols.shapes import CurveForm
from twolayer.numerics.arguments import Listener

__all__ = ["Found", "Search", "Spent"]

WORST = 50.0  # added to the logarithm where a run blows up
SCAN = np.geomspace(
    1e-3, 1e2, 26
)  # constants that are tried, relative to the reference


class Spent(Exception):
    """The budget of gradients is used up."""


@dataclass(frozen=True, eq=False)
class Found:
    """Numbers of each control, of which some have shapes, and the value reached."""

    shapes: dict[str, CurveForm]
    numbers: dict[str, np.ndarray]
    value: float

    def at(self, name: str, x: np.ndarray) -> np.ndarray:
        """Values of a control at places."""
        return self.shapes[name].at(self.numbers[name], x)[0]


class Search:
    """Counts gradients, remembers the best, and stops when the budget is spent."""

    def __init__(
        self,
        course: ControlledRun,
        scanned: ControlledRun,
        budget: int,
        monitor: Listener,
        decay: float,
    ) -> None:
        self.course, self.scanned, self.budget, self.monitor, self.decay = (
            course,
            scanned,
            budget,
            monitor,
            decay,
        )
        self.count, self.spent = 0, False
        self.constant: Found | None = None  # the best that scans have seen

    def controls(
        self,
        shapes: dict[str, CurveForm],
        numbers: dict[str, np.ndarray],
        course: ControlledRun | None = None,
    ) -> Controls:
        """The controls on the grid."""
        grid = (course or self.course).grid
        at = {name: shape.at(numbers[name], grid)[0] for name, shape in shapes.items()}
        decay = (
            float(numbers["weight_decay"][0])
            if "weight_decay" in shapes
            else self.decay
        )
        return Controls(at.get("lr", 1.0), at.get("batch", 1.0), decay)

    def spend(self) -> None:
        """Count an evaluation."""
        if self.count >= self.budget:
            self.spent = True
            raise Spent
        self.count += 1
        self.monitor.update(float(self.count))

    def value(
        self, shapes: dict[str, CurveForm], numbers: dict[str, np.ndarray]
    ) -> float:
        """The objective alone, by the finer integration: steps too long for a high rate
        would rule it out.
        """
        self.spend()
        return self.scanned.value(self.controls(shapes, numbers, self.scanned))

    def sees(self, found: Found) -> float:
        """The objective of a find by the integration that gradients go through."""
        self.spend()
        return self.course(self.controls(found.shapes, found.numbers))[0]

    def loss(self, value: float) -> tuple[float, float]:
        """What is minimised, and its derivative with respect to the value."""
        objective = self.course.objective
        if not objective.positive:
            return value, 1.0
        sign, safe = (-1.0 if objective.large else 1.0), max(value, 1e-280)
        return sign * math.log(safe), sign / safe

    def scan(
        self, shapes: dict[str, CurveForm], name: str, numbers: dict[str, np.ndarray]
    ) -> Found:
        """The best constant of one control, the others as they are: on a grid, then
        between its neighbours.
        """
        shape, objective = shapes[name], self.course.objective
        low, high = float(shape.low[0]), float(shape.high[0])
        points = SCAN * float(shape.first[0] or 1.0)
        points = np.unique(
            np.clip(points, max(low, points[0] * 1e-3 if low == 0 else low), high)
        )

        def at(value: float) -> float:
            new = {**numbers, name: np.array([value])}
            found, best = Found(shapes, new, self.value(shapes, new)), self.constant
            if math.isfinite(found.value) and (
                best is None or objective.better(found.value, best.value)
            ):
                self.constant = found
            return found.value

        if name == "weight_decay" and low == 0:
            at(0.0)
        values = [at(x) for x in points.tolist()]
        losses = [self.loss(v)[0] if math.isfinite(v) else math.inf for v in values]
        i = int(np.argmin(losses))
        if math.isfinite(losses[i]) and len(points) > 1:
            edges = np.log(points[[max(i - 1, 0), min(i + 1, len(points) - 1)]])

            def wrapped(x: float) -> float:
                value = at(math.exp(x))
                return self.loss(value)[0] if math.isfinite(value) else WORST

            scipy.optimize.minimize_scalar(
                wrapped, bounds=tuple(edges), method="bounded", options={"xatol": 1e-7}
            )
        return self.constant or Found(shapes, numbers, math.inf)

    def descend(
        self,
        shapes: dict[str, CurveForm],
        numbers: dict[str, np.ndarray],
        iterations: int = 200,
    ) -> Found:
        """The best numbers from a first guess, as far as the budget goes."""
        names, objective = list(shapes), self.course.objective
        low, high = (
            np.concatenate([getattr(shapes[n], side) for n in names])
            for side in ("low", "high")
        )
        first = np.clip(np.concatenate([numbers[n] for n in names]), low, high)
        unit = np.where(first != 0, np.abs(first), 1.0)
        cuts = np.cumsum([len(shapes[n].low) for n in names])[:-1]
        best: list[Found] = []
        level = [0.0]

        def split(x: np.ndarray) -> dict[str, np.ndarray]:
            return dict(
                zip(names, np.split(np.clip(x * unit, low, high), cuts), strict=True)
            )

        def both(x: np.ndarray) -> tuple[float, np.ndarray]:
            self.spend()
            now = split(x)
            value, slope = self.course(self.controls(shapes, now))
            loss, outer = self.loss(value)
            parts = []
            for name in names:
                if name == "weight_decay":
                    parts.append(np.array([float(slope.decay)]))
                else:
                    parts.append(
                        getattr(slope, name)
                        @ shapes[name].at(now[name], self.course.grid)[1]
                    )
            gradient = outer * np.concatenate(parts) * unit
            if not (math.isfinite(loss) and np.isfinite(gradient).all()):
                return level[0] + WORST, np.zeros_like(x)
            level[0] = loss if not best else min(level[0], loss)
            if not best or objective.better(value, best[-1].value):
                best.append(Found(shapes, now, value))
            return loss, gradient

        with contextlib.suppress(Spent):
            scipy.optimize.minimize(
                both,
                first / unit,
                jac=True,
                method="L-BFGS-B",
                bounds=list(zip(low / unit, high / unit, strict=True)),
                options={
                    "maxiter": iterations,
                    "ftol": 1e-13,
                    "gtol": 1e-8,
                    "maxcor": 20,
                },
            )
        return best[-1] if best else Found(shapes, dict(numbers), math.inf)
