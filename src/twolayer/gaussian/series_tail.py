"""What Mehler's sum leaves out: a bound, from how much of a function its Hermite
coefficients hold.

    E[f' g'] = Σ_n ρⁿ f'_n g'_n,    |Σ_{n ≥ N} ρⁿ f'_n g'_n|  ≤  |ρ|^N √(R_f R_g),
        R_f = E[f'²] − Σ_{n < N} f'_n²

A sum of more terms and one of fewer agree where both have hardly begun, as for sin(5z)
of a field of variance 100, whose coefficients are those of n ≈ 2500. Their difference
would then tell nothing about the error; R does.
"""

from __future__ import annotations

import math
from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Engine, Expectations
from twolayer.functions.activation import Activation
from twolayer.functions.hermite import hermite_table
from twolayer.gaussian.by_parts import FittedEngine, PartsEngine
from twolayer.gaussian.rescaled_students import AdaptedEngine
from twolayer.gaussian.targets import RidgeTarget
from twolayer.gaussian.two_point import TERMS_PER_ORDER, NumericForms, Pair

__all__ = ["left_out"]

NODES, REACH = (
    2801,
    14.0,
)  # for R: a hundred on a standard deviation, as far as h_n counts
STEPS = 4  # per factor two of the variances at which R is known
TINY_VARIANCE, NOISE = 1e-30, 1e-13


@lru_cache(maxsize=8)
def _table(terms: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, √w, and √w h_n there, (nodes, terms)."""
    x = np.linspace(-REACH, REACH, NODES)
    w = np.exp(-(x**2) / 2)
    half = np.sqrt(w / w.sum())
    return x, half, half[:, None] * hermite_table(terms - 1, x).T


@lru_cache(maxsize=1024)
def _missing_at(f: Activation, step: int, terms: int) -> float:
    """√R of f at a field of the variance 2^(step/STEPS)."""
    x, half, table = _table(terms)
    slope = np.asarray(f.slope(jnp.asarray(2.0 ** (step / STEPS / 2) * x))) * half
    total = float(slope @ slope)
    rest = total - float(((slope @ table) ** 2).sum())
    # what rounding leaves of the difference is no tail
    return math.sqrt(rest) if rest > NOISE * total else 0.0


def _missing(f: Activation, variance: np.ndarray, terms: int) -> np.ndarray:
    """√R of f, at variances rounded up to those at which it is kept: it grows with
    them.
    """
    steps = np.ceil(STEPS * np.log2(np.maximum(variance, TINY_VARIANCE))).astype(int)
    return np.array([_missing_at(f, int(step), terms) for step in steps])


def _bounds(
    f: np.ndarray,
    g: np.ndarray,
    c11: np.ndarray,
    c12: np.ndarray,
    c22: np.ndarray,
    terms: int,
) -> Pair:
    """Bounds of what is left out of E[f g], E[f' g'] and E[f'' g], for √R of both."""
    width, other = np.sqrt(c11)[:, None], np.sqrt(c22)[None, :]
    product = width * other
    rho = np.minimum(np.abs(c12) / np.where(product > 0, product, 1.0), 1.0)
    slopes = rho**terms * f[:, None] * g[None, :]
    bend = slopes * other / np.where(width > 0, width, 1.0)
    return Pair(np.abs(c12) * slopes / (terms + 1), slopes, bend)


def left_out(
    engine: Engine, Q: np.ndarray, M: np.ndarray, a: np.ndarray, noise: float
) -> Expectations:
    """Bounds of the errors that the averages of an engine have by sums that end too
    early.

    Cost O((p + ridges) · nodes · terms).
    """
    nothing = Expectations(*(np.zeros(np.shape(x)) for x in (M, Q, Q, a, 0.0)))
    if isinstance(engine, AdaptedEngine):
        inner = left_out(engine.inner, Q, M, engine.scale * a, noise)
        powers = (1, 1, 2, 0, 0)
        return Expectations(
            *(x / engine.scale**n for x, n in zip(inner, powers, strict=True))
        )
    if isinstance(engine, FittedEngine):
        alpha, beta = (abs(float(x)) for x in engine.fit(Q, M, a, noise))
    elif isinstance(engine, PartsEngine):
        alpha, beta = 1.0, engine.student
    else:
        return nothing
    forms, target = engine.forms, engine.target
    own, weight = np.diagonal(Q), np.abs(a) / len(a)
    psi, phi, chi, second, risk = (np.asarray(x) for x in nothing)
    if isinstance(forms, NumericForms) and not forms.activation.kinks:
        terms = TERMS_PER_ORDER * forms.order
        missing = _missing(forms.activation, own, terms)
        pair = _bounds(missing, missing, own, Q, own, terms)
        slopes, bend = pair.dd * weight, (pair.hd * weight).sum(1)[:, None]
        psi = psi + beta * (slopes @ np.abs(M) + bend * np.abs(M))
        phi = phi + beta * (slopes @ np.abs(Q) + bend * np.abs(Q))
        if isinstance(engine, PartsEngine):
            chi = chi + noise * pair.dd
        second = second + beta * pair.ff @ weight
        risk = risk + weight @ pair.ff @ weight / 2
    if isinstance(target, RidgeTarget) and not target.closed and not target.ridge.kinks:
        terms = TERMS_PER_ORDER * target.order
        cross, gram = M @ target.V.T, target.V @ target.P @ target.V.T
        star, c = np.diagonal(gram), np.abs(target.c)
        ridges = _missing(target.ridge, star, terms)
        pair = _bounds(
            _missing(target.activation, own, terms), ridges, own, cross, star, terms
        )
        slopes, bend = pair.dd * c, (pair.hd * c).sum(1)[:, None]
        psi = psi + alpha * (slopes @ np.abs(target.V @ target.P) + bend * np.abs(M))
        phi = phi + alpha * (slopes @ np.abs(cross.T) + bend * np.abs(Q))
        second = second + alpha * pair.ff @ c
        risk = (
            risk
            + weight @ pair.ff @ c
            + c @ _bounds(ridges, ridges, star, gram, star, terms).ff @ c / 2
        )
    size = np.abs(a)[:, None]
    return Expectations(size * psi, size * phi, size * size.T * chi, second, risk)
