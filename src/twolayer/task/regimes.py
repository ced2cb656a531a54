"""Which dynamics survives as d → ∞ with lr = γ0 d^(−δ) and batch = n0 d^μ.

region                            clock           limit
δ > max(0, 1−μ)                   t = lr·step/p   gradient flow:
                                                  dM = psi, dQ = phi + phiᵀ
δ = 1−μ > 0  (Saad–Solla line)    t               the same + (γ0/(p n0)) chi in dQ
(1−μ)/2 < δ < 1−μ                 t·d^(1−μ−δ)     pure noise:
                                                  dM = 0, dQ = (γ0/(p n0)) chi
δ = (1−μ)/2, μ < 1                step            noise map, one step at a time
δ = 0, μ ≥ 1                      step            giant steps
below                             –               the norms blow up in one step
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twolayer.task.algorithm import SGD

__all__ = [
    "Regime",
    "has_memory_theory",
    "instead_of_memory",
    "layers_apart",
    "memory_beyond",
    "regime_of",
    "small_batches",
]

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Regime:
    """A row of the table: its name, and whether the limit is a differential equation.

    ``flow`` and ``noise`` are the weights of the gradient-flow part and of the chi part
    (without γ0/(p n0)); the clock runs in units of d^unit of the time t.
    """

    name: str
    flow: float
    noise: float
    unit: float
    continuous: bool


def regime_of(algorithm: SGD) -> Regime:
    """The limiting dynamics of an algorithm.

    >>> from twolayer.task.algorithm import SGD
    >>> regime_of(SGD(lr="0.1/d")).name
    'Saad–Solla'
    >>> regime_of(SGD(lr="0.1/d", batch="d**0.5")).name
    'gradient flow'
    >>> regime_of(SGD(lr="0.1*d**-0.75")).name
    'pure noise'
    >>> regime_of(SGD(lr=0.1, batch="4*d")).name
    'giant steps'
    """
    mu, delta = algorithm.mu, algorithm.delta
    line = 1 - mu
    if abs(delta) < TOLERANCE and mu > 1 - TOLERANCE:
        return Regime("giant steps", 1.0, 1.0, 0.0, False)
    if delta > TOLERANCE:
        if delta > line + TOLERANCE:
            return Regime("gradient flow", 1.0, 0.0, 0.0, True)
        if abs(delta - line) <= TOLERANCE:
            return Regime("Saad–Solla", 1.0, 1.0, 0.0, True)
        if delta > line / 2 + TOLERANCE:
            return Regime("pure noise", 0.0, 1.0, delta - line, True)
        if abs(delta - line / 2) <= TOLERANCE:
            return Regime("noise map", 0.0, 1.0, 0.0, False)
    return Regime("blow-up", 0.0, 0.0, 0.0, False)


def layers_apart(algorithm: SGD) -> str | None:
    """Why the two layers have no common limit, or None if they have.

    >>> from twolayer.task.algorithm import SGD
    >>> layers_apart(SGD(lr="1/d", train_second_layer=True, second_lr=0.1))
    'lr = 1/d and second_lr = 0.1 are different powers of d, so that one layer is done
    before the other has moved'
    """
    second = algorithm.second_lr
    if second is None or abs(second.exponent - algorithm.lr.exponent) < TOLERANCE:
        return None
    return (
        f"lr = {algorithm.lr} and second_lr = {second} are different powers of d, so"
        " that one layer is done before the other has moved"
    )


def memory_beyond(algorithm: SGD) -> str | None:
    """Why the present overlaps do not say what an average of the iterates is, or None
    if none is asked for.

    >>> from twolayer.task.algorithm import SGD
    >>> memory_beyond(SGD(lr="1/d", average=0.1))[:55]
    'the average of the iterates (average = 0.1) depends on '
    """
    if algorithm.average is None:
        return None
    return (
        f"the average of the iterates (average = {algorithm.average}) depends on how"
        " rows of all times overlap, and this method knows those of one time"
    )


def has_memory_theory(algorithm: SGD) -> bool:
    """Whether reused samples have a limit of finitely many steps: lr of order one,
    batch and dataset of order d.

    >>> from twolayer.task.algorithm import SGD
    >>> (
    ...     has_memory_theory(SGD(lr=0.2, batch="d", dataset="2*d")),
    ...     has_memory_theory(SGD(lr="0.2/d", dataset="2*d")),
    ... )
    (True, False)
    """
    samples = algorithm.batch if algorithm.dataset is None else algorithm.dataset
    return (algorithm.lr.exponent, algorithm.batch.exponent, samples.exponent) == (
        0,
        1,
        1,
    )


def small_batches(algorithm: SGD) -> bool:
    """Whether batches of o(d) samples are drawn from a set of order d, at a rate at
    which a pass moves the weights by order one.

    >>> from twolayer.task.algorithm import SGD
    >>> small_batches(SGD(lr="1/d", dataset="2*d"))
    True
    >>> small_batches(SGD(lr=0.5, batch="d", dataset="2*d"))
    False
    """
    data = algorithm.dataset
    return (
        data is not None
        and abs(data.exponent - 1) < TOLERANCE
        and algorithm.mu < 1 - TOLERANCE
        and regime_of(algorithm).name == "Saad–Solla"
    )


def instead_of_memory(algorithm: SGD) -> str:
    """Which method follows reused samples, for the refusals of those that know fresh
    ones only.

    >>> from twolayer.task.algorithm import SGD
    >>> instead_of_memory(SGD(lr="0.2/d", dataset="2*d"))
    'DMFT is the theory of small batches from a set of order d, in slices'
    >>> instead_of_memory(SGD(lr="0.2/d", dataset=500))
    'Vectors simulates it at a finite d'
    """
    if has_memory_theory(algorithm):
        return "DMFT is the theory of reused batches of order d with lr of order one"
    if small_batches(algorithm):
        return "DMFT is the theory of small batches from a set of order d, in slices"
    return "Vectors simulates it at a finite d"
