"""What analyses have found, in a notebook: numbers, and a small picture where there is something to see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from twolayer.numerics.html import card, cells, curves, escaped, table

if TYPE_CHECKING:
    from twolayer.analysis.escape import EscapeTime
    from twolayer.analysis.passage_times import Passage
    from twolayer.analysis.phases import Phase, PhaseDiagram
    from twolayer.analysis.population_loss import PopulationLoss
    from twolayer.analysis.recovery import Recovery
    from twolayer.analysis.weak_recovery import WeakRecovery

__all__ = [
    "diagram_html",
    "escape_html",
    "landscape_html",
    "passage_html",
    "phase_html",
    "recovery_html",
    "weak_html",
]

COLOURS = {"#": "#7cbf7a", "l": "#333333", "c": "#c6dbef", "1": "#1f77b4", ".": "#dddddd", "*": "#d95f02"}
TIMES = ("annealed", "quenched", "ode", "corrected", "noisy", "from_zero")


def diagram_html(diagram: PhaseDiagram) -> str:
    """Lines and special points, and the plane in colours."""
    from twolayer.analysis.phase_text import LEGEND, plane, window

    rows = [(name, escaped(f"{line.equation}, μ from {line.start:g}")) for name, line in diagram.lines.items()]
    rows += [(name, f"μ = {mu:g}, δ = {delta:g}") for name, (mu, delta) in diagram.points.items()]
    codes = plane(diagram, columns=64)
    right, top, floor = window(diagram)
    names = (f"μ from 0 to {right:g}", f"{top:g} … {floor:g}")
    used = [mark for mark in LEGEND if mark in COLOURS and any(mark in row for row in codes)]
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="color:{COLOURS[m]}">■</span> {escaped(LEGEND[m])}</span>'
        for m in used
    )
    picture = cells(codes, COLOURS, (names[0], "δ"), edge=5, tall=10) + f'<div style="max-width:340px">{legend}</div>'
    note = f"δ from {floor:g} to {top:g}. {diagram.caveat}".strip()
    return card(f"Phase diagram, ℓ = {diagram.ell}, {diagram.loss} loss, {diagram.geometry}", "", rows, picture, note)


def phase_html(phase: Phase) -> str:
    """A point of the plane."""
    rows = [("regime", escaped(phase.regime)), ("learns", "yes" if phase.learns else "no")]
    if phase.theta is not None:
        rows.append(("steps", f"T ~ {escaped(phase.growth)}"))
    rows.append(("dynamics", escaped(phase.dynamics)))
    return card(f"μ = {phase.mu:g}, δ = {phase.delta:g}", "", rows, note=phase.note)


def escape_html(times: EscapeTime) -> str:
    """Times and steps, and why a number is missing."""
    rows = []
    for name in TIMES:
        value, word = getattr(times, name), name.replace("_", " ")
        if value is None:
            rows.append((word, "", times.missing.get(name, "")))
        else:
            rows.append((word, f"{value:.5g}", f"{value * times.per_time:.5g}"))
    return card("Escape times", table(("", "t = lr·step/p", "steps"), rows))


def passage_html(found: Passage) -> str:
    """Mean and median, and the fraction that has crossed against time."""
    times, share = found.distribution()
    rows = [
        ("mean", f"{found.mean:.4g} ± {found.standard_error:.2g}"),
        ("median", f"{found.median:.4g}"),
        ("runs", f"{len(found.times)}, {found.censored} censored, {found.diverged} diverged"),
    ]
    return card("First passages", "", rows, _steps([times], [share], ("t", ""), ()))


def recovery_html(found: Recovery) -> str:
    """Medians and probabilities, and the fraction of runs beyond each level."""
    rows = [(f"m ≥ {level:g}", escaped(line.split(": ", 1)[1])) for level, line in
            zip(found.thresholds, str(found).splitlines(), strict=False)]  # fmt: skip
    rows.append(("descent", escaped(str(found).splitlines()[-1].split(": ", 1)[1])))
    every = [np.sort(row[np.isfinite(row)]) for row in (found.weak, found.strong)]
    shares = [np.arange(1, len(row) + 1) / len(found.weak) for row in every]
    return card("Recovery", "", rows, _steps(every, shares, ("samples", ""), ("weak", "strong")))


def _steps(every: list[np.ndarray], shares: list[np.ndarray], names: tuple[str, str], labels: tuple[str, ...]) -> str:
    """Distribution functions over common points."""
    if not any(len(x) for x in every):
        return ""
    grid = np.linspace(0.0, max(float(x[-1]) for x in every if len(x)), 160)
    lines = [
        np.concatenate([[0.0], share])[np.searchsorted(at, grid, side="right")]
        for at, share in zip(every, shares, strict=True)
    ]
    return curves(grid, lines, names, labels, (0.0, 1.0))


def weak_html(found: WeakRecovery) -> str:
    """Medians at each dimension, and the exponent."""
    rows = [(f"d = {d}", f"T = {m.value:.5g} (95 %: {m.low:.5g} to {m.high:.5g})")
            for d, m in zip(found.dims, found.medians, strict=True)]  # fmt: skip
    if found.theta is not None:
        rows.append(("θ", f"{found.theta:.3g} ± {found.theta_error:.2g}"))
    known = [(d, m.value) for d, m in zip(found.dims, found.medians, strict=True) if math.isfinite(m.value)]
    picture = ""
    if len(known) > 1:
        at, medians = np.log10(np.array(known)).T
        picture = curves(at, [medians], ("log₁₀ d", "log₁₀ T"), marks=list(zip(at, medians, strict=True)))
    return card(f"Weak recovery at m = {found.threshold:g}", "", rows, picture)


def landscape_html(landscape: PopulationLoss) -> str:
    """Exponent and growth, and φ against m."""
    m = np.linspace(0.0, 0.995, 60)
    rows = [("information exponent", str(landscape.information)), ("growth", f"{landscape.growth:.4g}")]
    rows.append(("descends to m = 1", "yes" if landscape.descends else "no"))
    return card("Population loss", "", rows, curves(m, [landscape.phi(m, "series")], ("m", "φ")))
