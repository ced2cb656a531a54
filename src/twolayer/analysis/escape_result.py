"""Escape times as a value and as a table.

Numbers are in units of t = lr·step/N, and in steps through the steps that a unit takes.
What lies outside the range of its formula is None, with the reason in words.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from twolayer.analysis.escape_words import counted, told
from twolayer.numerics.arguments import Json, Options
from twolayer.numerics.columns import fold, wrapped
from twolayer.numerics.html import card, field_summary, table

if TYPE_CHECKING:
    from twolayer.analysis.escape_measured import MeasuredEscape

__all__ = ["NAMES", "EscapeTime"]

NAMES = ("annealed", "quenched", "ode", "corrected", "noisy", "from_zero")
"""The times, in the order in which they are shown."""

LEARNT = 0.99  # of the risk is gone when the target counts as learned
MANY = 10_000  # neurons that stand for infinitely many where they learn

QUOTED = ("corrected", "noisy", "ode", "quenched", "annealed")
"""Which of them stands for SGD: the first that is there."""

SCALED = (*NAMES, "quenched_error", "ode_error")
ERRORS = {"quenched": "quenched_error", "ode": "ode_error"}


@dataclass(frozen=True)
class EscapeTime:
    """Escape times in units of t = lr·step/N, or in steps. ``print`` shows all of them,
    with what is not given and why.

    Attributes
    ----------
    annealed, quenched : float or None
        Linearised formulas at the mean of the random start, and averaged over it.
    quenched_error : float or None
        Standard error of the sampled average; 0 where it is an integral.
    ode, ode_error : float or None
        Mean over random starts of the ODE: an integral for one neuron of phase
        retrieval, otherwise integrated, over those starts that reach the threshold.
    corrected : float or None
        ``ode`` with the shift due to the noise of single samples, where T d ≫ 1 + s.
    noisy : float or None
        With the noise of single samples at any T d, as long as growth is linear.
    from_zero : float or None
        Mean exit time of a start exactly at m = 0, which the ODE never leaves (one
        neuron).
    reached : float or None
        Fraction of the random starts from which the ODE reaches the threshold.
    missing : dict
        For each number that is None, why its formula does not hold here.
    per_time : float
        Steps in a unit of time; 1 where the numbers are in steps.
    width : float
        p, which may be infinite.
    dim : int
        d.
    threshold : float
        T: the risk has fallen to (1 − T) of its start.
    rate : float
        c, at which overlaps grow at the end of the plateau.
    rho, best_rho, largest_rho : float or None
        ρ = d·lr/(N n_b), the one with the fewest steps of the linear escape, and that
        from which on nothing grows.
    gain : float or None
        How many times fewer steps than one neuron, each at its best rate.
    plateau : float
        Risk of the plateau relative to that of the start: below 1 where norms or the
        second layer move before any overlap does.
    route : str
        Where the rate comes from: a closed form, averages of single neurons, or the
        Jacobian of the averages.
    measured : MeasuredEscape or None
        Runs of the exact chain and the verdict on them, where they were asked for.
    notes : tuple of str
        What else should be known.
    scale : float
        N n_b: lr = ρ·scale/d.
    retrieval : tuple of float or None
        Δ and the factor of ρ in the units of phase retrieval, where it is that.

    Examples
    --------
    >>> from twolayer import SGD, Problem, escape_time
    >>> times = escape_time(
    ...     Problem("z1**2", "square"),
    ...     SGD(lr="0.0833/d", geometry="projected"),
    ...     dim=1000,
    ... )
    >>> round(times.annealed, 3), round(times.steps.annealed)
    (1.153, 13842)
    """

    annealed: float | None
    quenched: float | None
    quenched_error: float | None
    ode: float | None
    ode_error: float | None
    corrected: float | None
    noisy: float | None
    from_zero: float | None
    reached: float | None
    missing: dict[str, str] = field(repr=False)
    per_time: float = field(repr=False)
    width: float
    dim: int
    threshold: float
    rate: float
    rho: float
    best_rho: float | None
    largest_rho: float | None
    gain: float | None
    scale: float = field(repr=False)
    retrieval: tuple[float, float] | None = field(default=None, repr=False)
    plateau: float = 1.0
    route: str = "closed form"
    measured: MeasuredEscape | None = field(default=None, repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def steps(self) -> EscapeTime:
        """The same in steps of SGD."""
        scaled: Options = {
            name: None if value is None else value * self.per_time
            for name in SCALED
            for value in [getattr(self, name)]
        }
        return dataclasses.replace(self, **scaled, per_time=1.0)

    @property
    def quoted(self) -> str | None:
        """The name of the number that stands for SGD at this d: the one that leaves out
        least.
        """
        return next((n for n in QUOTED if getattr(self, n) is not None), None)

    @cached_property
    def learning_rho(self) -> float | None:
        """The ρ with the fewest steps until the target is learned, R = 0.01 R(0), of
        phase retrieval; of infinitely many neurons that of ten thousand. None where
        noise leaves more than that. Takes about a second.
        """
        if self.retrieval is None:
            return None
        from twolayer.analysis.alike_neurons import fewest_to_learn

        noise, unit = self.retrieval
        p = int(min(self.width, MANY))
        largest = (self.largest_rho or 1.0) * unit
        best = fewest_to_learn(p, self.dim, largest, noise, LEARNT)
        return None if best is None else best / unit

    def law(self, rho: float) -> str:
        """The ratio ρ = ``rho`` as the learning rate it is.

        Examples
        --------
        >>> from twolayer.escape import formulas
        >>> times = formulas(width=2)
        >>> times.law(0.2)
        '0.4/d'
        """
        if math.isinf(self.scale):
            return f"{rho:.4g}·p/d"
        return f"{rho * self.scale:.4g}/d"

    def rows(self) -> list[tuple[str, str]]:
        """The table: names with numbers or reasons."""
        shown = []
        known: set[str] = set()
        for name in NAMES:
            value = getattr(self, name)
            if name == "from_zero" and self.width > 1:
                continue
            if value is None:
                reason = self.missing.get(name, "")
                again = reason in known
                text = "for the same reason" if again else reason
                shown.append((name, f"not given: {text}"))
                known.add(reason)
                continue
            error = getattr(self, ERRORS.get(name, ""), None)
            time = f"t = {told(value, error)}"
            shown.append((name, f"{time:<16} steps {counted(value * self.per_time)}"))
        return [(name.replace("_", " "), text) for name, text in shown]

    def title(self, target: str) -> str:
        """What a figure of these times shows, for the formula ``target``.

        Examples
        --------
        >>> from twolayer.escape import formulas
        >>> formulas(width=2).title("z1**2")
        'z1**2, p = 2, lr = 0.4/d, d = 10000: time until R = (1 − 0.1) R(0)'
        """
        return (
            f"{target}, p = {self.width}, lr = {self.law(self.rho)}, d = {self.dim}:"
            f" time until R = (1 − {self.threshold:g}) R(0)"
        )

    def values(self) -> Json:
        """Everything as plain values, as the command prints for programs.

        Examples
        --------
        >>> from twolayer.escape import formulas
        >>> formulas(width=2).values()["lr"]
        '0.4/d'
        """
        numbers = {name: getattr(self, name) for name in SCALED}
        steps = {
            name: None if value is None else value * self.per_time
            for name, value in numbers.items()
        }

        def law(rho: float | None) -> str | None:
            return None if rho is None else self.law(rho)

        found: Json = {
            "lr": law(self.rho),
            "optimal_lr": law(self.best_rho),
            "learning_lr": law(self.learning_rho),
            "largest_lr": law(self.largest_rho),
            "rho": self.rho,
            "rate": self.rate,
            "gain": self.gain,
            "plateau": self.plateau,
            "threshold": self.threshold,
            "missing": self.missing,
            "reached": self.reached,
            "quoted": self.quoted,
            "time": numbers,
            "steps": steps,
        }
        if self.measured is not None:
            found["chain"] = self.measured.values()
        return found

    def __str__(self) -> str:
        lr = f"{self.law(self.rho)}   (ρ = d·lr/(N n_b) = {self.rho:.4g}"
        if self.largest_rho is not None:
            lr += f"; overlaps grow below {self.law(self.largest_rho)}"
        head = [("lr", f"{lr})")]
        if self.best_rho is not None:
            fewest = f"steps to escape at lr = {self.law(self.best_rho)}"
            if self.learning_rho is not None:
                fewest += f", to learn at {self.law(self.learning_rho)}"
            head.append(("fewest", fewest))
        if self.gain is not None and self.width > 1:
            gain = f"{self.gain:.4g} times fewer steps than one neuron"
            head.append(("gain", f"{gain}, each at its best rate"))
        head.append(("rate", f"c = {self.rate:.4g} in m ~ exp(ct)   ({self.route})"))
        if abs(self.plateau - 1) > 1e-9:
            flat = f"R = {self.plateau:.4g} R(0) before any overlap has grown"
            head.append(("plateau", flat))
        level = f"R = (1 − {self.threshold:g}) R(0) at d = {self.dim}"
        head.append(("threshold", f"{level}; t = lr·step/N"))
        rows = head + self.rows()
        if self.measured is not None:
            rows.append(("chain", str(self.measured)))
        name = self.quoted
        if name is not None:
            value = getattr(self, name) * self.per_time
            word = name.replace("_", " ")
            rows.append(("to quote", f"{word}, {counted(value, 3)} steps"))
        lines = [wrapped([(f"{name:<9}", text) for name, text in rows])]
        if self.ode is not None and (self.reached or 0.0) < 0.995:
            share = f"{self.reached:.0%} of the starts"
            lines.append(fold(f"the ODE reaches the threshold from {share}"))
        lines += [fold(note) for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        names = ("width", "dim", "threshold", "rate", "quenched", "ode", "corrected")
        return field_summary(self, names)

    def _repr_html_(self) -> str:
        rows = []
        for name in NAMES:
            value, word = getattr(self, name), name.replace("_", " ")
            if value is not None:
                rows.append((word, f"{value:.5g}", f"{value * self.per_time:.5g}"))
            elif name in self.missing:
                rows.append((word, "", self.missing[name]))
        return card("Escape times", table(("", "t = lr·step/N", "steps"), rows))
