"""The (μ, δ) plane of batch size and learning rate: lr = γ0 d^(−δ), n_b = n0 d^μ, weak
recovery after T ~ d^θ steps.

    correlation, spherical   m' = (m + γ c m^{ℓ−1}) / √(1 + x),
        x = γ² s² d/n_b
    squared, projected       m' = ((1 − γκ) m + γ c m^{ℓ−1}) / √((1 − γκ)² + x),
        m_0 ~ d^{−1/2}
    θ = ℓ/2 − 1 + δ   where  δ ≥ ℓ/2 − μ (drift beats noise)
        and, with the self-interaction κ,  δ ≥ 0

One neuron, information exponent ℓ. The drift grows m by its own size in 1/(γ c
m_0^{ℓ−2}) steps, the noise shrinks it in 1/x of them; both lines follow. Without
self-interaction a batch of more than d^{ℓ−1} samples learns at any larger rate, in a
constant number of steps. ℓ = 1 is apart: its drift does not vanish at m = 0, so the
noise decides at m ~ 1 instead of m_0, and θ = δ. Prefactors are in recovery_steps.py,
measurements in weak_recovery.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from twolayer.analysis.exponents import analyse
from twolayer.analysis.phase_text import picture, window
from twolayer.analysis.small_overlap import Expansion, expansion
from twolayer.analysis.target_coordinates import framed
from twolayer.functions.activation import ActivationLike
from twolayer.functions.target import Target, TargetLike
from twolayer.numerics.arguments import Array
from twolayer.numerics.errors import (
    InputError,
    choice,
    finite_number,
    positive_integer,
    require,
)
from twolayer.numerics.html import card, escaped
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem
from twolayer.task.regimes import TOLERANCE, regime_of
from twolayer.task.scaling import Scaling

__all__ = ["Line", "Phase", "PhaseDiagram", "phase_diagram"]

DYNAMICS = {
    "gradient flow": "gradient flow, dM = psi, dQ = phi + phiᵀ in t = lr·step/p (ODE)",
    "Saad–Solla": "dM = psi, dQ = phi + phiᵀ + γ0/(p n0) chi in t = lr·step/p (ODE)",
    "pure noise": "dM = 0, dQ = γ0/(p n0) chi, in t·d^(1−μ−δ) (ODE)",
    "noise map": (
        "discrete: M' = M, Q' = Q + γ0²/(p² n0) chi, then projection (Map, Chain)"
    ),
    "giant steps": "discrete: giant steps with α = n0 (GiantSteps)",
    "blow-up": (
        "no limit without projection: in one step the norms grow beyond bounds and the"
        " new direction is noise and gradient (Map, Chain)"
    ),
}
BATCH = "a number ≥ 0 (a batch has at least one sample)"
SCATTERED = (
    "random as d → ∞: the noise of a step is at least as long as the weights, and"
    " batches of O(1) samples do not average it, so that no map of means describes a"
    " run (Chain)"
)
POPULATION = (
    "discrete: gradient descent on the risk with steps of order one, chi dropped"
    " (GiantSteps, Map)"
)


@dataclass(frozen=True)
class Line:
    """A boundary δ = intercept + slope·μ for μ from ``start`` to ``end``.

    Attributes
    ----------
    equation : str
        As text.
    source : str
        ``"derived"``, or ``"published"`` for the validity line as it is drawn in the
        source.
    """

    name: str
    equation: str
    intercept: float
    slope: float
    start: float
    end: float
    source: str = "derived"

    def delta(self, mu: Any) -> Any:
        """δ on the line."""
        return self.intercept + self.slope * mu


@dataclass(frozen=True)
class Phase:
    """What happens at one point of the plane. Made by `phase_diagram`.

    Attributes
    ----------
    learns : bool
        Whether weak recovery takes a power of d in steps, or fewer.
    theta : float or None
        T ~ d^θ, up to the logarithms in ``growth``.
    growth : str or None
        How T grows: ``"d^0.5"``, ``"d^0.5 log d"``, ``"log d"``, ``"log log d"``,
        ``"constant"``.
    steps : int or None
        The number of steps after which m = O(1), where that is a constant.
    regime : str
        Name of the region.
    dynamics : str
        What the overlaps follow as d → ∞, and the method that computes it.
    theta_wrong_sign : float or None
        θ of a neuron that starts with m < 0, for odd ℓ ≥ 3.
    expandable : bool
        Whether x → 0, so that the norm of a step can be expanded: δ > (1 − μ)/2.
    note : str
        What the exponents alone do not say.
    """

    mu: float
    delta: float
    learns: bool
    theta: float | None
    growth: str | None
    steps: int | None
    regime: str
    dynamics: str
    theta_wrong_sign: float | None
    expandable: bool
    note: str

    def _repr_html_(self) -> str:
        rows = [
            ("regime", escaped(self.regime)),
            ("learns", "yes" if self.learns else "no"),
        ]
        if self.theta is not None:
            rows.append(("steps", f"T ~ {escaped(self.growth)}"))
        rows.append(("dynamics", escaped(self.dynamics)))
        return card(f"μ = {self.mu:g}, δ = {self.delta:g}", "", rows, note=self.note)

    def __str__(self) -> str:
        rows = [("regime", self.regime), ("learns", "yes" if self.learns else "no")]
        if self.theta is not None:
            rows.append(("theta", f"{self.theta:g}   T ~ {self.growth}"))
        if self.steps is not None:
            rows.append(("steps", str(self.steps)))
        if self.theta_wrong_sign is not None and self.theta_wrong_sign != self.theta:
            rows.append(("m0 < 0", f"theta {self.theta_wrong_sign:.4g}"))
        rows += [
            ("dynamics", self.dynamics),
            *([("note", self.note)] if self.note else []),
        ]
        return "\n".join(f"{name:<10}{text}" for name, text in rows)


@dataclass(frozen=True)
class PhaseDiagram:
    """The plane of one algorithm for one information exponent. Made by `phase_diagram`.

    Attributes
    ----------
    ell : int
        Order at which drift begins.
    loss, geometry : str
    self_interaction : str
        What the part of the gradient along a neuron itself does after projection.
        ``"contracting"`` (squared loss): rates γκ > 1 flip the neuron. ``"saturating"``
        (κ < 0): larger rates stop helping. ``"none"``: correlation loss and spherical
        gradients. ``"neighbours"``: removed by the tangent projection for the neuron
        itself, but not for the others.
    caveat : str
        What holds for every point, or nothing.
    """

    ell: int
    loss: str
    geometry: str
    self_interaction: str
    kappa: float | None = None
    caveat: str = ""

    @property
    def free(self) -> bool:
        """Whether rates may grow with d: no self-interaction."""
        return self.self_interaction == "none"

    @property
    def noise_order(self) -> float:
        """ℓ/2, or 1 for ℓ = 1: drift beats noise for δ ≥ noise_order − μ."""
        return max(self.ell / 2, 1.0)

    @property
    def optimal_mu(self) -> float:
        """μ beyond which larger batches need no fewer steps, up to logarithms."""
        return max(self.ell - 1.0, 1.0) if self.free else self.noise_order

    def optimal_delta(self, mu: float) -> float:
        """The largest δ that learns in the fewest steps with n_b ~ d^μ, μ = ``mu``, up
        to logarithms.

        Examples
        --------
        >>> phase_diagram(ell=3).optimal_delta(1.0)
        0.5
        """
        return self.noise_order - min(_mu(mu), self.optimal_mu)

    def lowest_delta(self, mu: float) -> float:
        """The smallest δ that learns with n_b ~ d^μ, μ = ``mu``; −∞ where all do.

        Examples
        --------
        >>> (
        ...     phase_diagram(ell=3).lowest_delta(2.0),
        ...     phase_diagram(ell=3, loss="correlation").lowest_delta(2.0),
        ... )
        (0.0, -inf)
        """
        unlimited = self.free or self.ell == 1 or self.self_interaction == "saturating"
        return (
            -math.inf
            if unlimited and _mu(mu) >= self.optimal_mu - TOLERANCE
            else self.optimal_delta(mu)
        )

    def theta_min(self, mu: float) -> float:
        """θ of the fewest steps with n_b ~ d^μ, μ = ``mu``.

        Examples
        --------
        >>> (
        ...     phase_diagram(ell=3).theta_min(1.0),
        ...     phase_diagram(ell=3, loss="correlation").theta_min(2.5),
        ... )
        (1.0, 0.0)
        """
        return max(0.0, self._theta(self.optimal_delta(mu)))

    def samples(self, mu: float) -> float:
        """Exponent θ_min + μ of the number of samples n_b T that the fewest steps take,
        with μ = ``mu``.
        """
        return self.theta_min(mu) + mu

    def _theta(self, delta: float) -> float:
        return delta if self.ell == 1 else self.ell / 2 - 1 + delta

    @property
    def lines(self) -> dict[str, Line]:
        """The boundaries by name."""
        n, ell, end = self.noise_order, self.ell, self.optimal_mu
        lines = [
            Line("noise", f"δ = {_fraction(n)} − μ", n, -1.0, 0.0, end),
            Line("expansion", "δ = (1 − μ)/2", 0.5, -0.5, 0.0, math.inf),
            Line(
                "expansion (published)",
                "δ = 1/4 − μ/2",
                0.25,
                -0.5,
                0.0,
                math.inf,
                "published",
            ),
        ]
        if self.free:
            for name, delta, first in (
                ("theta = 0", 1 - n, end),
                ("one step", (1 - ell) / 2, float(ell)),
            ):
                lines.append(
                    Line(name, f"δ = {_fraction(delta)}", delta, 0.0, first, math.inf)
                )
        elif ell > 1:
            lines.append(Line("self-interaction", "δ = 0", 0.0, 0.0, end, math.inf))
        return {line.name: line for line in lines}

    @property
    def points(self) -> dict[str, tuple[float, float]]:
        """Special points (μ, δ) by name."""
        points = {
            "single samples": (0.0, self.noise_order),
            "optimum": (self.optimal_mu, self.optimal_delta(math.inf)),
        }
        if self.free:
            points["one step"] = (float(self.ell), (1 - self.ell) / 2)
        return points

    def at(self, mu: float, delta: float) -> Phase:
        """What happens with lr = γ0 d^(−δ) and n_b = n0 d^μ: μ = ``mu``, δ = ``delta``.

        Examples
        --------
        >>> point = phase_diagram(ell=3, loss="correlation").at(mu=2, delta=-0.2)
        >>> point.learns, round(point.theta, 3), point.regime
        (True, 0.3, 'correlation-loss learning')
        >>> phase_diagram(ell=3, loss="correlation").at(mu=3, delta=-1).steps
        1
        """
        mu = finite_number("mu", mu, minimum=0.0, accepted=BATCH)
        delta = finite_number("delta", delta, accepted="a finite number")
        # a saturating self-interaction makes all rates beyond order one alike
        rate = (
            max(delta, 0.0)
            if self.self_interaction == "saturating" and self.ell > 1
            else delta
        )
        learns = delta >= self.lowest_delta(mu) - TOLERANCE
        noise = rate - (self.noise_order - mu)  # ≥ 0: drift beats noise
        expandable = delta > (1 - mu) / 2 + TOLERANCE
        theta = max(0.0, self._theta(rate)) if learns else None
        steps = self._constant_steps(mu, delta) if learns else None
        regime, growth = self._region(delta, theta, steps, expandable)
        notes = [self._boundary_note(mu, delta, noise, learns), self.caveat]
        return Phase(
            mu,
            delta,
            learns,
            theta,
            growth,
            steps,
            regime,
            dynamics(mu, delta),
            self._wrong_sign(mu, rate, theta),
            expandable,
            " ".join(note for note in notes if note),
        )

    def _region(
        self, delta: float, theta: float | None, steps: int | None, expandable: bool
    ) -> tuple[str, str | None]:
        """Name of the region, and how T grows in it."""
        if theta is None:
            return (
                (
                    "not learning"
                    if expandable
                    else "not learning (expansion not defined)"
                ),
                None,
            )
        if steps is not None:
            return "one step" if steps == 1 else "constant number of steps", "constant"
        if theta < TOLERANCE:
            return "polylogarithmic", "log d" if self.ell == 2 else "log log d"
        return (
            "SGD learning" if delta > -TOLERANCE else "correlation-loss learning",
            f"d^{theta:.4g}" + (" log d" if self.ell == 2 else ""),
        )

    def _constant_steps(self, mu: float, delta: float) -> int | None:
        """Steps until m = O(1), where each step multiplies m_0 by a power d^ε of its
        own.
        """
        if self.ell == 1:
            return 1 if delta < TOLERANCE and mu > 1 - TOLERANCE else None
        gain = min(-delta, (mu - 1) / 2) - (self.ell / 2 - 1)
        if not self.free or gain < TOLERANCE:
            return None
        if self.ell == 2:
            return max(1, math.ceil(1 / (2 * gain) - TOLERANCE))
        return max(
            1,
            math.ceil(
                math.log(1 + (self.ell - 2) / (2 * gain), self.ell - 1) - TOLERANCE
            ),
        )

    def _wrong_sign(self, mu: float, rate: float, theta: float | None) -> float | None:
        """θ from m_0 < 0: the drift m^{ℓ−1} leads to 0 and noise must carry m across,
        unless one step jumps over.
        """
        if self.ell % 2 == 0 or self.ell == 1 or theta is None:
            return None
        if theta < TOLERANCE:
            return theta
        return max(theta, ((self.ell - 2) * mu + 2 * (self.ell - 1) * rate) / self.ell)

    def _boundary_note(
        self, mu: float, delta: float, noise: float, learns: bool
    ) -> str:
        if not learns and delta < -TOLERANCE and self.self_interaction == "contracting":
            return (
                "The gradient along the neuron itself, γκ > 1, flips the neuron at"
                " every step."
            )
        shallow = max(
            delta, (1 - mu) / 2
        )  # where norms cannot be expanded only the direction of the noise counts
        power = (
            2 * (self.ell / 2 - mu - shallow) / (self.ell - 2) if self.ell > 2 else 0.0
        )
        rare = (
            power > TOLERANCE and self.self_interaction != "neighbours"
        )  # else it is not noise that forbids learning
        if not learns and rare and shallow >= 1 - mu - TOLERANCE:
            return f"Rare fluctuations need a time of order exp(d^{power:.3g})."
        marginal = (
            self.free
            and self.ell > 1
            and abs(mu - self.optimal_mu) < TOLERANCE
            and noise < TOLERANCE
        )
        if learns and (abs(noise) < TOLERANCE or marginal):
            return (
                "On this line γ0 and n0 decide whether runs learn, and T/d^θ is random."
            )
        if (
            learns
            and abs(delta) < TOLERANCE
            and self.self_interaction == "contracting"
            and self.ell > 1
        ):
            value = "" if self.kappa is None else f" (κ = {self.kappa:.4g})"
            return f"Learns for γ0 κ < 1 only{value}."
        return ""

    def _repr_html_(self) -> str:
        rows = [
            (name, escaped(f"{line.equation}, μ from {line.start:g}"))
            for name, line in self.lines.items()
        ]
        rows += [
            (name, f"μ = {mu:g}, δ = {delta:g}")
            for name, (mu, delta) in self.points.items()
        ]
        _, top, floor = window(self)
        note = f"δ from {floor:g} to {top:g}. {self.caveat}".strip()
        title = f"Phase diagram, ℓ = {self.ell}, {self.loss} loss, {self.geometry}"
        return card(title, "", rows, picture(self), note)

    def __str__(self) -> str:
        points = ", ".join(
            f"{name} μ = {mu:g}, δ = {delta:g}"
            for name, (mu, delta) in self.points.items()
        )
        lines = "\n".join(
            f"  {line.name:<22} {line.equation:<16} μ from {line.start:g}"
            + (f" to {line.end:g}" if math.isfinite(line.end) else "")
            for line in self.lines.values()
        )
        rest = f"\n{self.caveat}" if self.caveat else ""
        return (
            f"ℓ = {self.ell}, {self.loss} loss, {self.geometry}\nlines\n{lines}\npoints"
            f"  {points}{rest}"
        )


def dynamics(mu: float, delta: float) -> str:
    """What the overlaps follow as d → ∞ at a point of the plane, whatever the target.

    Examples
    --------
    >>> dynamics(0, 1)
    'dM = psi, dQ = phi + phiᵀ + γ0/(p n0) chi in t = lr·step/p (ODE)'
    >>> dynamics(0, 0.5)[:14]
    'random as d → '
    """
    name = regime_of(SGD(lr=Scaling(1.0, -delta), batch=Scaling(1.0, mu))).name
    if name in ("noise map", "blow-up") and mu < TOLERANCE:
        return SCATTERED
    return (
        POPULATION if name == "giant steps" and mu > 1 + TOLERANCE else DYNAMICS[name]
    )


def phase_diagram(
    target: TargetLike | Problem | None = None,
    *,
    ell: int | None = None,
    loss: str = "squared",
    geometry: str = "projected",
    activation: ActivationLike | None = None,
    width: int | None = None,
    directions: int | None = None,
    gram: Array | None = None,
) -> PhaseDiagram:
    """Where SGD with lr = γ0 d^(−δ) and batches of n0 d^μ weakly recovers a target, and
    in how many steps.

    Parameters
    ----------
    target : str, callable, Target or Problem, optional
        What is learned; or give its information exponent as ``ell``. A problem has its
        own activation, width and Gram matrix.
    ell : int, optional
        ℓ ≥ 1, where there is no target.
    loss : str
        ``"squared"`` or ``"correlation"``.
    geometry : str
        ``"projected"`` or ``"spherical"``.
    activation : str, callable or Activation, optional
        None stands for one with the component He_ℓ and nothing of lower order, such as
        He_ℓ itself.
    width : int
        Neurons, one by default; more matter for the squared loss with components of σ
        below order ℓ.
    directions : int, optional
        k, for a callable target.
    gram : array (k, k), optional
        P, the identity by default. Directions that overlap may show more: z1*He2(z2)
        has ℓ = 3 where they are orthogonal, and ℓ = 1 where they are not.

    Returns
    -------
    PhaseDiagram
        ``.at(mu, delta)``, ``.lines``, ``.points``, ``.theta_min(mu)``.

    Examples
    --------
    >>> diagram = phase_diagram("He3(z1)", loss="squared")
    >>> diagram.ell, diagram.points["optimum"], diagram.theta_min(1.5)
    (3, (1.5, 0.0), 0.5)
    """
    choice("loss", loss, ("squared", "correlation"))
    choice("geometry", geometry, ("projected", "spherical"))
    if (target is None) == (ell is None):
        raise InputError(
            "Give either `target` or `ell`, but got"
            f" {'neither' if target is None else 'both'}."
        )
    if ell is not None and activation is not None:
        raise InputError(
            "Argument `activation` needs a target to be compared with, but only `ell`"
            " is given."
        )
    found: Expansion | None = None
    if target is None:
        ell = positive_integer("ell", ell)
        require(gram is None, "gram", gram, "left out where there is no target")
    else:
        given = framed(target, directions, gram, activation=activation, width=width)
        if given.problem is not None:
            given.problem.require_isotropic("phase_diagram")
            activation, width = given.problem.activation, given.problem.p
        if activation is None:
            ell = _information(given.target)
        else:
            found = expansion(given.target, activation)
            ell = found.ell
    width = positive_integer("width", 1 if width is None else width)
    return PhaseDiagram(
        ell, loss, geometry, *_self_interaction(found, loss, geometry, width)
    )


def _self_interaction(
    found: Expansion | None, loss: str, geometry: str, width: int
) -> tuple[str, float | None, str]:
    """Kind and size of the self-interaction, and the caveat for several neurons."""
    if geometry == "spherical":
        generic = "for several neurons only if σ has no component below order ℓ"
        if loss == "correlation" or width == 1:
            return "none", None, ""
        if found is None:
            return "none", None, f"With the squared loss δ < 0 learns {generic}."
        if found.lower:
            orders = ", ".join(f"He{q}" for q in found.lower)
            return "neighbours", None, f"σ contains {orders}: δ < 0 learns {generic}."
        return "none", None, ""
    if found is None:
        return ("contracting" if loss == "squared" else "none"), None, ""
    kappa = found.self_interaction(loss)
    if abs(kappa) < 1e-9:
        return "none", None, ""
    caveat = (
        ""
        if loss == "squared"
        else f"E[y] ≠ 0 gives the correlation loss a self-interaction κ = {kappa:.3g}."
    )
    return ("contracting" if kappa > 0 else "saturating"), kappa, caveat


def _information(target: Target) -> int:
    result = analyse(target)
    if result.information is None:
        raise InputError(
            "Argument `target` must have a Hermite component of order 1 or more, but"
            f" {result.target.name!r} has none."
        )
    return result.information


def _fraction(number: float) -> str:
    return str(Fraction(number)).replace("-", "−")


def _mu(mu: float) -> float:
    if mu == math.inf:
        return mu
    return finite_number("mu", mu, minimum=0.0, accepted=BATCH)
