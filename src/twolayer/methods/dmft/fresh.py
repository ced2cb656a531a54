"""First-order methods on fresh batches: every step has samples that nothing has seen.

    v = f(fields, 0, y),    Γ = (lr/N) (E[v h̃*ᵀ], E[v xᵀ], α^(−1/2) root of E[v vᵀ])

This is one visit of the samples of a DMFT, begun anew with each step from all rows that
the method remembers. Averages are means over points; the result has their standard
errors.
"""

from __future__ import annotations

import numpy as np

from twolayer.methods.dmft.method import DMFT, DMFTEvolution, check_task
from twolayer.numerics.arguments import Notes
from twolayer.task.averages import Averages
from twolayer.task.method import Evolution, Snapshot, Task

__all__ = ["fresh_steps"]


class FreshSteps(DMFTEvolution):
    """A DMFT without a past of its samples, of which there is no training risk."""

    def _snapshots(self, points: np.ndarray) -> Snapshot:
        return super()._snapshots(points)._replace(train_risk=None)

    def notes(self) -> Notes:
        """As those of a DMFT; its errors are held against its own accuracy."""
        notes = super().notes()
        if notes["engine_error"] <= self.method.tolerance:
            notes["sampling_error"] = notes.pop("engine_error")
        return notes

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Standard errors of the overlaps and the risk."""
        found = super().extras()
        kept = ("Q_error", "M_error", "risk_error")
        return {name: found[name] for name in kept}


def fresh_steps(task: Task, averages: Averages) -> Evolution:
    """The steps of a first-order method on fresh batches."""
    check_task(task)
    return FreshSteps(task, DMFT(averages=Averages(points=averages.points)))
