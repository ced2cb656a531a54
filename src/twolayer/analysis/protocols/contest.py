"""The objective read off runs, and a contest between protocols at finite d.

    excess_risk       at the end                         overlap
                      ((1/(pk)) Σ_jr M_jr²/(Q_jj P_rr))^{1/2} at the end
    integrated_risk   mean excess risk over the clock
                      a function of the overlaps at the end

One protocol wins against another if the mean of their differences, seed by seed with
the same random numbers, is further from zero than its standard error allows: if a trial
(numerics/verdict.py) says that it differs from zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from twolayer.analysis.protocols.controlled_motion import Objective
from twolayer.numerics.errors import choice, reject
from twolayer.numerics.html import card, table
from twolayer.numerics.significance import limit_of
from twolayer.numerics.statistics import standard_error
from twolayer.numerics.verdict import DIFFER, UNDECIDED, Trial
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["Contest", "contest_of", "measured", "objective_of"]

OBJECTIVES = ("excess_risk", "overlap", "integrated_risk")


def objective_of(objective: object, start: Overlaps) -> Objective:
    """An objective by its name, or a function of the overlaps at the end."""
    if callable(objective):
        name = getattr(objective, "__name__", "objective")
        one = start[0] if start.batch else start
        try:
            found = jax.eval_shape(
                objective, Overlaps.unchecked(one.Q, one.M, one.P, np.ones(len(one.Q)))
            )
        except (
            TypeError
        ):  # what JAX says of a float() or an if on a number that is still unknown
            found = None
        if getattr(found, "shape", None) != ():
            reject(
                "objective",
                name,
                "a JAX function of the final Overlaps that gives one number",
            )
        return Objective(name, objective)
    return Objective(choice("objective", objective, OBJECTIVES))


def measured(
    objective: Objective, problem: Problem, run: xr.Dataset, clock: str
) -> np.ndarray:
    """The objective of each run (seed,)."""
    if objective.name == "integrated_risk":
        x, risk = run[clock].values, run.excess_risk.values
        return np.asarray(
            ((risk[:, 1:] + risk[:, :-1]) / 2 * np.diff(x)).sum(-1) / (x[-1] - x[0])
        )
    end = run.isel(time=-1)
    if objective.name == "excess_risk":
        return np.asarray(end.excess_risk.values)
    Q, M = end.Q.values, end.M.values
    if objective.function is None:
        norms = np.diagonal(Q, axis1=-2, axis2=-1)[..., None] * np.diagonal(problem.P)
        return np.asarray(np.sqrt((M**2 / norms).mean((-1, -2))))
    with jax.enable_x64(True):
        found = [
            float(
                objective.function(
                    Overlaps.unchecked(
                        jnp.asarray(q), jnp.asarray(m), problem.P, jnp.asarray(a)
                    )
                )
            )
            for q, m, a in zip(Q, M, end.a.values, strict=True)
        ]
    return np.array(found)


@dataclass(frozen=True, eq=False)
class Contest:
    """Protocols against each other at finite d. Made by `Optimum.compare`.

    Attributes
    ----------
    dim, seeds : int
        d, and the runs of each protocol.
    objective : str
        What they were to make small, or large.
    values : dict
        What every run reached, (seeds,), by the name of the protocol; the optimum
        first.
    large : bool
        Whether large values win.

    Examples
    --------
    >>> runs = {
    ...     "optimum": np.array([0.10, 0.12, 0.11]),
    ...     "constant": np.array([0.15, 0.16, 0.17]),
    ... }
    >>> print(Contest(dim=500, seeds=3, objective="excess_risk", values=runs))
    excess_risk at d = 500, 3 runs
    optimum    0.11 ± 0.0058
    constant   0.16 ± 0.0058   optimum undecided
    """

    dim: int
    seeds: int
    objective: str
    values: dict[str, np.ndarray]
    large: bool = False

    @property
    def means(self) -> dict[str, tuple[float, float]]:
        """Mean and standard error of each."""
        return {
            name: (float(x.mean()), float(standard_error(x)))
            for name, x in self.values.items()
        }

    @property
    def gains(self) -> dict[str, tuple[float, float]]:
        """By how much the optimum is better than each of the others, with the standard
        error; negative if worse.
        """
        first, *others = self.values
        sign = -1.0 if self.large else 1.0
        apart = {
            name: sign * (self.values[name] - self.values[first]) for name in others
        }
        return {
            name: (float(x.mean()), float(standard_error(x)))
            for name, x in apart.items()
        }

    @property
    def verdicts(self) -> dict[str, str]:
        """Against each of the others: "wins", "loses" or "undecided"."""
        allowed = limit_of(len(self.gains), max(1, self.seeds - 1))
        found = {}
        for name, (gain, error) in self.gains.items():
            trial = Trial(gain, 0.0, error, resolution=0.0, limit=allowed)
            found[name] = UNDECIDED
            if trial.verdict == DIFFER:
                found[name] = "wins" if gain > 0 else "loses"
        return found

    @property
    def wins(self) -> bool | str:
        """Whether the optimum wins against all others; "undecided" where some
        differences are within their errors.
        """
        said = set(self.verdicts.values())
        return False if "loses" in said else True if said == {"wins"} else "undecided"

    def __str__(self) -> str:
        lines = [f"{self.objective} at d = {self.dim}, {self.seeds} runs"]
        for name, (mean, error) in self.means.items():
            said = f"   optimum {self.verdicts[name]}" if name in self.verdicts else ""
            lines.append(f"{name:<10} {mean:.5g} ± {error:.2g}{said}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Contest(dim={self.dim}, seeds={self.seeds}, wins={self.wins!r})"

    def _repr_html_(self) -> str:
        rows = [
            (name, f"{mean:.5g} ± {error:.2g}", self.verdicts.get(name, ""))
            for name, (mean, error) in self.means.items()
        ]
        return card(
            f"{self.objective} at d = {self.dim}",
            table(("protocol", "mean", "optimum"), rows),
        )


def contest_of(
    objective: Objective,
    problem: Problem,
    runs: dict[str, xr.Dataset],
    dim: int,
    clock: str,
) -> Contest:
    """A contest from the runs of each protocol."""
    values = {
        name: measured(objective, problem, run, clock) for name, run in runs.items()
    }
    return Contest(
        dim, len(next(iter(values.values()))), objective.name, values, objective.large
    )
