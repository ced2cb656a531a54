"""An analysis of a target in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twolayer.functions.mathml import displayed, of_text
from twolayer.numerics.html import bars, card, escaped

if TYPE_CHECKING:
    from twolayer.analysis.exponents import Analysis

__all__ = ["analysis_html"]

MOST = 12  # coefficients in the picture


def analysis_html(found: Analysis) -> str:
    """Exponents, staircases and the largest Hermite coefficients."""
    shown = sorted(
        ((a, c) for a, c in found.hermite.items() if any(a)),
        key=lambda item: -abs(item[1]),
    )[:MOST]
    shown.sort(key=lambda item: (sum(item[0]), [-n for n in item[0]]))
    rows = [
        ("information exponent", str(found.information)),
        ("leap", f"{found.leap}, chain {escaped(found.chain)}"),
        ("generative exponent", f"{found.generative}, leap {found.generative_leap}"),
        ("fresh batches", escaped(found.staircase())),
        ("reused batches", escaped(found.staircase(reuse=True))),
    ]
    labels = [
        "·".join(
            f"h{n}(z{r + 1})" if n > 1 else f"z{r + 1}" for r, n in enumerate(a) if n
        )
        for a, _ in shown
    ]
    picture = (
        bars(labels, [c for _, c in shown], "Hermite coefficients") if shown else ""
    )
    return card(
        "Analysis",
        displayed(f"<mi>h</mi><mo>=</mo>{of_text(found.target.name)}"),
        rows,
        picture,
    )
