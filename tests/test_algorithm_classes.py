"""What ten algorithms learn of twelve targets: `learnable` against the limit of giant steps in plain NumPy.

The witness knows one neuron tanh(z + 0.7) only. Fresh batches: M and Q (and the row of the step before, with momentum) from
averages at scrambled Sobol points, each with all signs. Samples that come back: rows in a growing orthonormal frame, whose
fields are a fresh normal plus the push of that visit over √α (Bolthausen's conditioning).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

import twolayer as tl
from twolayer import d

LR, ALPHA, STEPS, REPEATS = 3.0, 3.0, 4, 4
TARGETS = (
    "tanh(z1)",
    "z1 + z1*z2",
    "z1 + h2(z1)*z2",
    "z1 + sign(z1*z2)",
    "z1 + z1*z2 + z1*z2*z3",
    "z1 + h3(z2)",
    "h3(z1)",
    "h2(z1)*z2",
    "h2(z1)",
    "h4(z1)",
    "z1*z2",
    "z1*z2*z3",
)
FUNCTIONS = {
    "tanh": np.tanh,
    "sign": np.sign,
    "h2": lambda x: (x**2 - 1) / np.sqrt(2),
    "h3": lambda x: (x**3 - 3 * x) / np.sqrt(6),
    "h4": lambda x: (x**4 - 6 * x**2 + 3) / np.sqrt(24),
}
RESIDUALS = {
    "correlation": lambda y, f: y,
    "huber": lambda y, f: np.clip(y - f, -0.5, 0.5),
    "logistic": lambda y, f: y / (1 + np.exp(np.clip(y * f, -700, 700))),
    "hinge": lambda y, f: y * (y * f < 1),
}
UNRESOLVED = {("z1 + h3(z2)", "hinge")}  # tails of y, and a movement of a few 1e-3
OPTIONS: dict[str, dict[str, Any]] = {
    "squared": {},
    "correlation": {"loss": "correlation"},
    "momentum": {"momentum": 0.5},
    "huber": {"loss": "huber(0.5)"},
    "logistic": {"loss": "logistic"},
    "hinge": {"loss": "hinge"},
    "clip": {"rule": "clip(0.5)"},
    "normalised": {"rule": "normalised()"},
    "same batch": {"dataset": ALPHA * d},
    "each twice": {"repeat": 2},
}


def label(target: str, z: np.ndarray) -> np.ndarray:
    names = {f"z{i + 1}": z[:, i] for i in range(z.shape[1])}
    return np.asarray(eval(target, {"__builtins__": {}}, FUNCTIONS | names))


def push(algorithm: str, field: np.ndarray, y: np.ndarray) -> np.ndarray:
    f = np.tanh(field + 0.7)
    residual = RESIDUALS.get(algorithm, lambda y, f: y - f)
    g = (1 - f**2) * residual(y, f)
    if algorithm == "clip":
        return g * np.minimum(1.0, 0.5 / np.maximum(np.abs(g), 1e-300))
    return np.sign(g) if algorithm == "normalised" else g


def on_fresh_batches(target: str, k: int, algorithm: str, seed: int) -> np.ndarray:
    """M after every step, (STEPS, k)."""
    u = stats.qmc.Sobol(k + 1, seed=seed).random_base2(14)
    normals = stats.norm.ppf(np.clip(u, 1e-12, 1 - 1e-12))
    signs = itertools.product((1.0, -1.0), repeat=k + 1)
    x = np.concatenate([normals * np.array(sign) for sign in signs])
    z, y = x[:, :k], label(target, x[:, :k])
    row, before = np.append(np.zeros(k), 1.0), None
    steps = []
    for _ in range(STEPS):
        length = np.linalg.norm(row[k:])
        g = push(algorithm, z @ row[:k] + length * x[:, k], y)
        along = (g * x[:, k]).mean() / length
        new = np.concatenate(
            [
                row[:k] + LR * (g @ z) / len(z),
                (1 + LR * along) * row[k:],
                [LR * np.sqrt((g**2).mean() / ALPHA)],  # orthogonal to all before
            ]
        )
        row = np.append(row, 0.0)
        if algorithm == "momentum" and before is not None:
            new += 0.5 * (row - np.append(before, np.zeros(len(row) - len(before))))
        before, row = row, new
        steps.append(row[:k])
    return np.array(steps)


def on_reused_batches(target: str, k: int, visits: int, seed: int) -> np.ndarray:
    """M after every step, each sample seen ``visits`` times, (STEPS, k)."""
    rng, half = np.random.default_rng(seed), 2**16
    m, rest = np.zeros(k), np.ones(1)
    steps = []
    for step in range(STEPS):
        if step % visits == 0:
            z = rng.normal(size=(half, k))
            z = np.concatenate([z, -z])
            y = label(target, z)
            own = rng.normal(size=half)
            columns = np.concatenate([own, -own])[:, None]
            rest, units = np.array([np.linalg.norm(rest)]), []
        g = push("squared", z @ m + columns @ rest, y)
        left = g.copy()
        for _ in range(2):
            for unit in units:
                left = left - (left * unit).mean() * unit
        units.append(left / np.sqrt((left**2).mean()))
        gain = np.append(ALPHA * (g @ columns), np.sqrt(ALPHA) * (g @ units[-1]))
        m = m + LR * (g @ z) / len(g)
        rest = np.append(rest, 0.0) + LR / ALPHA * gain / len(g)
        own = rng.normal(size=half)
        new = np.concatenate([own, -own]) + units[-1] / np.sqrt(ALPHA)
        columns = np.concatenate([columns, new[:, None]], axis=1)
        steps.append(m)
    return np.array(steps)


def followed(target: str, k: int, algorithm: str, seed: int) -> np.ndarray:
    if algorithm == "same batch":
        return on_reused_batches(target, k, STEPS, seed)
    if algorithm == "each twice":
        return on_reused_batches(target, k, 2, seed)
    return on_fresh_batches(target, k, algorithm, seed)


def check(target: str, algorithm: str) -> None:
    """Directions move in NumPy at the step that is foretold, or never."""
    k = max(int(digit) for digit in "123" if f"z{digit}" in target)
    problem = tl.Problem(target, "tanh(z + 0.7)")
    found = tl.learnable(problem, tl.SGD(LR, batch=ALPHA * d, **OPTIONS[algorithm]))
    runs = np.stack([followed(target, k, algorithm, seed) for seed in range(REPEATS)])
    along = runs @ found.directions.T
    mean = np.abs(along.mean(axis=0))
    error = along.std(axis=0, ddof=1) / np.sqrt(REPEATS)
    # directions of one step together: one neuron moves along one line of their span
    for step in set(found.steps):
        own = [s == step for s in found.steps]
        size = np.linalg.norm(mean[:, own], axis=1)
        floor = np.linalg.norm(error[:, own], axis=1)
        # fixed seeds; three degrees of freedom pass eight standard errors once in 500
        # what is fainter than a hundredth waits for a later step
        noise = np.maximum(5e-4, 8 * floor) + 0.01 * np.linalg.norm(mean, axis=1)
        told = (target, algorithm, step, size, floor)
        if step is None:
            assert size[-1] < max(3e-3, 8 * floor[-1]), told
            continue
        assert (size[: step - 1] < noise[: step - 1]).all(), told
        if (target, algorithm) not in UNRESOLVED:
            assert size[step - 1] > max(2e-4, 5 * floor[step - 1]), told


@pytest.mark.parametrize(
    ("target", "algorithm"),
    [
        ("h3(z1)", "huber"),
        ("h3(z1)", "each twice"),
        pytest.param("h3(z1)", "squared", marks=pytest.mark.slow),
    ],
)
def test_one_direction(target: str, algorithm: str) -> None:
    check(target, algorithm)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", OPTIONS)
def test_the_table_of_targets_and_algorithms(algorithm: str) -> None:
    for target in TARGETS:
        check(target, algorithm)
