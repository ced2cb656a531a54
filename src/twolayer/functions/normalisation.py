"""What a sum over neurons is divided by.

f = (1/N) Σ_j a_j σ(λ_j),    N = p ("mean"), 1 ("sum"), √p ("sqrt")

No other file knows which N goes with which word. The gradient of f has the same factor,
so that a step of length lr on the weights is one of lr/N in units of g = a σ' e, and
takes the time lr/N.
"""

from __future__ import annotations

__all__ = ["NORMALISATIONS", "divisor"]

NORMALISATIONS = {"mean": 1.0, "sum": 0.0, "sqrt": 0.5}
"""The power of the number of neurons that N is."""


def divisor(normalisation: str, p: int) -> float:
    """N for p neurons."""
    return float(p) ** NORMALISATIONS[normalisation]
