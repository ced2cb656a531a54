"""What the equations of motion need from the fields: five averages.

psi_jr = a_j E[σ'(λ_j) λ*_r e]    phi_jl = a_j E[σ'(λ_j) λ_l e]    chi_jl = a_j a_l E[σ'(λ_j) σ'(λ_l) e²]
second_j = E[e σ(λ_j)]            excess_risk = ½ E[(h − f)²]

and, for those who carry the rows themselves, the mean gradient as a combination of them (Stein):

a_j E[σ'(λ_j) e z] = Σ_l own_jl w_l + Σ_r star_jr w*_r
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Averages", "Gradient"]


class Averages(NamedTuple):
    """The averages at one point (Q, M, a), as arrays (p, k), (p, p), (p, p), (p,), ()."""

    psi: Any
    phi: Any
    chi: Any
    second: Any
    excess_risk: Any


class Gradient(NamedTuple):
    """Coefficients (p, p) and (p, k) of the mean gradient in the rows of student and target, and second (p,)."""

    own: Any
    star: Any
    second: Any
