"""Every average of the named engines against an integral over the fields in NumPy, to many digits.

    E over (λ, λ*) = E over λ [ E over λ* given λ ]:    polar coordinates for two student fields, whose kinks are rays
    through the origin; panels that end at the kinks, or Gauss–Hermite, for the target field given these

No engine, no closed form and no rule of the package is used, and noise enters as E[e² σ'σ'] gains Δ E[σ'σ'].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest
from cost import sized
from scipy.special import erf

import twolayer as tl
from twolayer.gaussian.engines import adapt

ROOT2 = np.sqrt(2.0)
Q = np.array([[0.9, 0.35], [0.35, 1.3]])
ONE = np.array([[0.5], [-0.3]])
TWO = np.array([[0.5, 0.2], [-0.3, 0.4]])
P2 = np.array([[1.0, 0.3], [0.3, 0.8]])
A = np.array([1.2, -0.7])


def bell(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


STUDENTS: dict[str, Any] = {
    "erf": (lambda x: erf(x / ROOT2), lambda x: 2 * bell(x)),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "relu": (lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0)),
    "abs(z)": (np.abs, np.sign),
    "relu(z) - 0.3*relu(-z)": (
        lambda x: np.where(x > 0, x, 0.3 * x),
        lambda x: np.where(x > 0, 1, 0.3),
    ),
    "square": (lambda x: x**2, lambda x: 2 * x),
    "He2": (lambda x: x**2 - 1, lambda x: 2 * x),
    "He3": (lambda x: x**3 - 3 * x, lambda x: 3 * x**2 - 3),
    "z**3 - 0.5*z**2 + 0.2": (
        lambda x: x**3 - 0.5 * x**2 + 0.2,
        lambda x: 3 * x**2 - x,
    ),
    "softplus": (lambda x: np.logaddexp(0, x), lambda x: 1 / (1 + np.exp(-x))),
    "gelu": (
        lambda x: x * (1 + erf(x / ROOT2)) / 2,
        lambda x: (1 + erf(x / ROOT2)) / 2 + x * bell(x),
    ),
}
"""Value and slope of every student activation."""

RESIDUALS: dict[str, Any] = {
    "squared": lambda y, f: y - f,
    "correlation": lambda y, f: y + 0 * f,
    "logistic": lambda y, f: y / (1 + np.exp(y * f)),
    "exponential": lambda y, f: y * np.exp(-y * f),
}


class Case(NamedTuple):
    """A task, its target in NumPy, and what the error is allowed to be of the size of each average."""

    activation: str
    target: Any
    h: Any
    directions: int = 1
    loss: str = "squared"
    noise: float = 0.3
    within: float = 2e-6
    flips: float = 0.0


CASES = {
    "erf teacher": Case("erf", tl.Teacher("erf", 1), lambda z: erf(z / ROOT2)),
    "erf committee": Case(
        "erf",
        tl.Teacher("erf", 2, [1.0, 2.0]),
        lambda z, t: (erf(z / ROOT2) + 2 * erf(t / ROOT2)) / 2,
        2,
    ),
    "erf at nodes": Case(
        "erf", "tanh(z1) + 0.5*z1**2", lambda z: np.tanh(z) + 0.5 * z**2
    ),
    "erf, product": Case("erf", "z1*z2 - z1", lambda z, t: z * t - z, 2),
    "erf, correlation": Case(
        "erf", "z1 + z1*z2", lambda z, t: z + z * t, 2, "correlation"
    ),
    "relu teacher": Case("relu", tl.Teacher("relu", 1), lambda z: np.maximum(z, 0)),
    "relu, signed ridges": Case(
        "relu", "relu(z1) - 0.5*relu(-z1)", lambda z: np.where(z > 0, z, 0.5 * z)
    ),
    "leaky student, relu teacher": Case(
        "relu(z) - 0.3*relu(-z)",
        tl.Teacher("relu", 1, [1.5]),
        lambda z: 1.5 * np.maximum(z, 0),
    ),
    "leaky both": Case(
        "relu(z) - 0.3*relu(-z)",
        tl.Teacher("relu(z) - 0.3*relu(-z)", 1),
        lambda z: np.where(z > 0, z, 0.3 * z),
        within=1e-3,
    ),
    "absolute values": Case("abs(z)", tl.Teacher("abs(z)", 1), np.abs, within=1e-3),
    "relu, polynomial": Case(
        "relu", "He2(z1) + z1", lambda z: z**2 - 1 + z, within=1e-3
    ),
    "quadratic form": Case(
        "square", "z1**2 + 0.4*z1*z2 - 0.2", lambda z, t: z**2 + 0.4 * z * t - 0.2, 2
    ),
    "quadratic, correlation": Case(
        "He2", "z1*z2 + z2**2", lambda z, t: z * t + t**2, 2, "correlation"
    ),
    "cubic ridges": Case(
        "He3", tl.Teacher("He3", 1, [0.5]), lambda z: 0.5 * (z**3 - 3 * z)
    ),
    "cubic, product": Case(
        "z**3 - 0.5*z**2 + 0.2", "z1 + z1*z2**2", lambda z, t: z + z * t**2, 2
    ),
    "cubic at nodes": Case("He3", "tanh(z1)", np.tanh),
    "tanh teacher": Case("tanh", tl.Teacher("tanh", 1), np.tanh, within=2e-3),
    "softplus": Case(
        "softplus", "erf(z1/sqrt(2))", lambda z: erf(z / ROOT2), within=2e-3
    ),
    "gelu, correlation": Case(
        "gelu", "relu(z1)", lambda z: np.maximum(z, 0), 1, "correlation", within=2e-3
    ),
    "logistic": Case(
        "erf", "tanh(2*z1)", lambda z: np.tanh(2 * z), 1, "logistic", 0.0, 2e-3
    ),
    "exponential": Case(
        "tanh", "tanh(2*z1)", lambda z: np.tanh(2 * z), 1, "exponential", 0.0, 2e-3
    ),
    "flipped labels": Case(
        "erf", "tanh(2*z1)", lambda z: np.tanh(2 * z), 1, "logistic", 0.0, 2e-3, 0.2
    ),
    "flipped, squared": Case(
        "erf", "tanh(2*z1)", lambda z: np.tanh(2 * z), 1, "squared", 0.2, 2e-3, 0.2
    ),
}


def legendre(edges: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on the panels between edges (…, n + 1), in one last axis."""
    x, w = np.polynomial.legendre.leggauss(order)
    half = np.diff(edges, axis=-1)[..., None] / 2
    nodes = edges[..., :-1, None] + half * (1 + x)
    return nodes.reshape(*edges.shape[:-1], -1), (half * w).reshape(
        *edges.shape[:-1], -1
    )


def student_fields() -> tuple[np.ndarray, np.ndarray]:
    """λ (n, 2) and weights: polar coordinates of the whitened fields, cut where λ_1 or λ_2 is zero."""
    C = np.linalg.cholesky(Q)
    turns = np.sort(
        [
            (np.arctan2(-row[0], row[1]) + shift) % (2 * np.pi)
            for row in C
            for shift in (0, np.pi)
        ]
    )
    angle, weight = legendre(np.append(turns, turns[0] + 2 * np.pi), 24)
    radius, heavy = legendre(np.linspace(0, 10, 6), 14)
    heavy = heavy * radius * np.exp(-(radius**2) / 2) / (2 * np.pi)
    ring = np.stack([np.cos(angle), np.sin(angle)], -1) @ C.T
    fields = radius[:, None, None] * ring
    return fields.reshape(-1, 2), np.outer(heavy, weight).ravel()


def target_fields(
    case: Case, fields: np.ndarray, M: np.ndarray, P: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """λ* given λ (n, m, k), and weights (n, m)."""
    back = np.linalg.solve(Q, M)
    mean, spread = fields @ back, np.linalg.cholesky(P - M.T @ back)
    if case.directions == 2:  # smooth ones
        x, w = np.polynomial.hermite_e.hermegauss(14)
        grid = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
        weights = np.outer(w, w).ravel() / (2 * np.pi)
        return mean[:, None] + grid @ spread.T, np.broadcast_to(
            weights, (len(fields), len(weights))
        )
    s = spread[0, 0]
    kink = np.clip(-mean / s, -9.5, 9.5)
    edges = np.concatenate(
        [
            np.full_like(kink, -10),
            kink / 2 - 5,
            kink,
            kink / 2 + 5,
            np.full_like(kink, 10),
        ],
        axis=1,
    )
    x, w = legendre(edges, 14)
    return (mean + s * x)[:, :, None], w * bell(x)


def brute(case: Case) -> dict[str, np.ndarray]:
    """The averages from their definitions."""
    M, P = (TWO, P2) if case.directions == 2 else (ONE, np.eye(1))
    value, slope = STUDENTS[case.activation]
    fields, weights = student_fields()
    out = {"psi": 0.0, "phi": 0.0, "chi": 0.0, "second": 0.0, "excess_risk": 0.0}
    star, inner = target_fields(case, fields, M, P)
    sigma, moves = value(fields), A * slope(fields)
    f = (sigma @ A / 2)[:, None]
    clean = case.h(*np.moveaxis(star, -1, 0))
    q = case.flips
    for sign, chance in ((1.0, 1 - q), (-1.0, q)):
        y = sign * clean
        e = RESIDUALS[case.loss](y, f)
        w = chance * weights[:, None] * inner
        first, second = (w * e).sum(1), (w * e**2).sum(1)
        extra = (
            chance
            * weights
            * inner.sum(1)
            * (case.noise if case.loss in ("squared", "correlation") else 0.0)
        )
        out["psi"] += np.einsum("nj,nmr,nm->jr", moves, star, w * e)
        out["phi"] += np.einsum("nj,nl,n->jl", moves, fields, first)
        out["chi"] += np.einsum("nj,nl,n->jl", moves, moves, second + extra)
        out["second"] += sigma.T @ first
    out["excess_risk"] = (
        weights[:, None] * inner * ((1 - 2 * q) * clean - f) ** 2
    ).sum() / 2
    return out


def task_of(case: Case) -> tuple[tl.Problem, tl.Overlaps]:
    P = P2 if case.directions == 2 else np.eye(1)
    problem = tl.Problem(
        case.target,
        case.activation,
        width=2,
        noise=case.noise,
        gram=P,
        flips=case.flips,
    )
    return problem, tl.Overlaps(Q, TWO if case.directions == 2 else ONE, P, a=A)


@pytest.mark.parametrize(
    "name",
    sized(
        CASES,
        slow=[
            "leaky student, relu teacher",
            "absolute values",
            "tanh teacher",
            "softplus",
            "gelu, correlation",
            "logistic",
            "exponential",
            "flipped, squared",
        ],
    ),
)
def test_averages_are_integrals_over_the_fields(name: str) -> None:
    """psi, phi, chi, E[e σ] and the risk; and the gradient as a combination of rows has these very overlaps."""
    case = CASES[name]
    problem, start = task_of(case)
    found, expected = tl.moments(problem, start, case.loss), brute(case)
    size = np.sqrt(np.abs(expected["chi"]).max())
    for entry, true in expected.items():
        scale = np.abs(true).max() + (0.01 * size if case.within > 1e-5 else 0.0)
        np.testing.assert_allclose(
            getattr(found, entry), true, atol=case.within * scale, rtol=0, err_msg=entry
        )
    with jax.enable_x64(True):
        engine = adapt(problem, case.loss, start.Q, start.M, A)[0].engine
        rows = eqx.filter_jit(lambda e: e.gradient(start.Q, start.M, A, case.noise))(
            engine
        )
    rows = type(rows)(*map(np.asarray, rows))
    psi = rows.own @ start.M + rows.star @ start.P
    phi = rows.own @ start.Q + rows.star @ start.M.T
    for entry, made in (("psi", psi), ("phi", phi), ("second", rows.second)):
        scale = np.abs(expected[entry]).max() + 0.01 * size
        np.testing.assert_allclose(
            made,
            expected[entry],
            atol=2 * case.within * scale,
            rtol=0,
            err_msg=f"rows: {entry}",
        )
