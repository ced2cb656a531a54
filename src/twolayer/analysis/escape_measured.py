"""An escape measured by the exact chain, and whether the formulas say the same.

    |mean over runs − prediction| ≤ tolerance = c · standard error + allowance
    differ     the deviation exceeds the tolerance
    agree      it does not, and deviation + tolerance ≤ a fifth of the time
    undecided  otherwise, and where runs do not cross or no formula has the noise in it

c leaves a chance of 10⁻⁴ of a false alarm. The allowance is what the formula leaves
out by its own account: corrections of the order (1 + s)/(T d) inside its logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twolayer.analysis.escape_words import counted, told
from twolayer.numerics.arguments import Json, Progress
from twolayer.numerics.significance import limit_of

if TYPE_CHECKING:
    from twolayer.analysis.escape_result import EscapeTime
    from twolayer.analysis.escape_setting import FlatSetting
    from twolayer.analysis.passage_times import Passage
    from twolayer.running.cost import Cost
    from twolayer.task.overlaps import Overlaps

__all__ = ["MeasuredEscape", "foreseen_escape", "judge_escape", "measure_escape"]

SHARE = 0.2  # of the time: what agreement has to tell apart
PATIENCE = 4.0  # times the predicted mean after which runs are given up


@dataclass(frozen=True)
class MeasuredEscape:
    """First passages of the chain, and the verdict on a formula.

    Attributes
    ----------
    passage : Passage
        Of all runs.
    verdict : str
        ``"agree"``, ``"differ"`` or ``"undecided"``.
    against : str or None
        The number that was judged.
    reason : str
        What the verdict rests on.

    Examples
    --------
    >>> import numpy as np
    >>> from twolayer.escape import Passage
    >>> times = np.array([1.0, 1.2, 1.1])
    >>> passage = Passage(times, 1000 * times, censored=0, diverged=0, end=5.0)
    >>> MeasuredEscape(passage, "undecided", None, "too few runs").mean_steps
    1100.0
    """

    passage: Passage
    verdict: str
    against: str | None
    reason: str

    @property
    def mean_steps(self) -> float:
        """Mean of the steps over the runs that crossed."""
        return self.passage.mean_steps

    def values(self) -> Json:
        """Everything as plain values.

        Examples
        --------
        >>> import numpy as np
        >>> from twolayer.escape import Passage
        >>> passage = Passage(np.ones(4), np.ones(4), censored=0, diverged=0, end=5.0)
        >>> MeasuredEscape(passage, "agree", "corrected", "").values()["mean"]
        1.0
        """
        names = ("mean", "standard_error", "median", "mean_steps")
        found: Json = {name: getattr(self.passage, name) for name in names}
        found |= {
            name: getattr(self.passage, name) for name in ("censored", "diverged")
        }
        return found | {
            "verdict": self.verdict,
            "against": self.against,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        passage = self.passage
        lost = f", {passage.censored} censored" if passage.censored else ""
        lost += f", {passage.diverged} diverged" if passage.diverged else ""
        time = told(passage.mean, passage.standard_error)
        text = f"t = {time:<12} steps {counted(self.mean_steps)}"
        runs = f"{len(passage.times)} runs{lost}"
        return f"{text} ({runs}): {self.verdict}, {self.reason}"


def _starts_and_end(
    setting: FlatSetting, times: EscapeTime, runs: int, seed: int
) -> tuple[Overlaps, float]:
    from twolayer.task.overlaps import Overlaps

    starts = Overlaps.random(setting.problem, times.dim, seed, size=runs)
    name = times.quoted
    predicted = 0.0 if name is None else float(getattr(times, name))
    longest = max(predicted, times.ode or 0.0)
    return starts, PATIENCE * longest + 5 / times.rate


def measure_escape(
    setting: FlatSetting, times: EscapeTime, runs: int, seed: int, progress: Progress
) -> MeasuredEscape:
    """Runs of the chain from random starts, until the risk has fallen."""
    from twolayer.analysis.passage_times import first_passage
    from twolayer.methods.chain import Chain
    from twolayer.running.solve import solve
    from twolayer.task.method import Until

    starts, end = _starts_and_end(setting, times, runs, seed)
    result = solve(
        setting.problem,
        setting.algorithm,
        Chain(times.dim),
        starts,
        time=end,
        save=64,
        seed=seed,
        until=Until("excess_risk", 1 - times.threshold, relative=True),
        throw=False,
        progress=progress,
    )
    return judge_escape(times, first_passage(result))


def foreseen_escape(
    setting: FlatSetting, times: EscapeTime, runs: int, seed: int
) -> Cost:
    """What the measurement would take: the last runs cross at about twice the mean."""
    from twolayer.methods.chain import Chain
    from twolayer.running.cost import cost_of

    starts, end = _starts_and_end(setting, times, runs, seed)
    return cost_of(
        setting.problem,
        setting.algorithm,
        Chain(times.dim),
        starts,
        time=end / 2,
        save=1,
        seed=seed,
    )


def judge_escape(times: EscapeTime, passage: Passage) -> MeasuredEscape:
    """Whether the mean of measured passages is what the formulas say."""
    runs = len(passage.times)
    lost = passage.censored + passage.diverged
    if lost > 0.01 * runs:
        why = f"{lost} of {runs} runs have not crossed, so that their mean is not known"
        return MeasuredEscape(passage, "undecided", None, why)
    name = times.quoted
    if name not in ("corrected", "noisy"):
        why = "no formula with the noise of samples holds here"
        return MeasuredEscape(passage, "undecided", name, why)
    predicted = float(getattr(times, name))
    error = math.hypot(passage.standard_error, times.ode_error or 0.0)
    tolerance = limit_of(freedom=runs - 1) * error + _allowance(times, name)
    deviation = abs(passage.mean - predicted)
    numbers = f"{deviation:.2g} from {name}, tolerance {tolerance:.2g}"
    if deviation > tolerance:
        return MeasuredEscape(passage, "differ", name, numbers)
    if deviation + tolerance <= SHARE * predicted:
        return MeasuredEscape(passage, "agree", name, numbers)
    why = f"{numbers}, too coarse for a fifth of the time"
    return MeasuredEscape(passage, "undecided", name, why)


def _allowance(times: EscapeTime, name: str) -> float:
    """What the formula leaves out by its own account.

    The shift by the noise is good to a fifth where it is first given, and better as
    T d grows; the form at any T d to a third of the time at T d = 3, to a tenth at 30.
    """
    predicted = float(getattr(times, name))
    scale = times.threshold * times.dim
    if name == "noisy":
        return predicted / max(3.0, scale / 3)
    assert times.ode is not None
    return 0.2 * abs(times.ode - predicted) + 0.02 * predicted
