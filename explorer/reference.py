"""Reference numbers for the TypeScript engine, made by the Python package: `uv run
python explorer/reference.py`.

    ode.json       trajectories of the limit,
                   at tolerances far below the 1e-6 to which they are compared
    averages.json  the averages that drive it, at points where a closed form is delicate
    chain.json     runs of the chain: a few followed step by step from given rows,
                   and samples of many
    random.json    normals, χ² quantiles and random starts

Each case holds the description of its task as the engine reads it, so that no number is
written twice.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import twolayer as tl
from twolayer import d
from twolayer.equations.orthogonal import embed
from twolayer.gaussian.nodes import target_frame
from twolayer.numerics import random
from twolayer.numerics.wishart import chi_square_quantile

FOLDER = Path(__file__).parent / "tests" / "reference"

Description = dict[str, Any]


def describe(activation: str, p: int, k: int, **more: Any) -> Description:
    """A task as the engine reads it, with its defaults."""
    task = {
        "activation": activation,
        "p": p,
        "k": k,
        "target": {"kind": "committee", "weights": [1.0] * k},
        "P": np.eye(k).tolist(),
        "noise": 0.0,
        "gamma": 1.0,
        "batch": 1,
        "geometry": "free",
        "loss": "squared",
        "trained": False,
    }
    assert set(more) <= set(task)
    return task | more


def formula(H: list[list[float]], h0: float) -> str:
    """λᵀ H λ + h0 as text."""
    terms = [
        f"({x!r})*z{r + 1}*z{s + 1}"
        for r, row in enumerate(H)
        for s, x in enumerate(row)
        if x
    ]
    return " + ".join([*terms, f"({h0!r})"])


def problem_of(task: Description, a: list[float]) -> tl.Problem:
    """The same task for Python."""
    target = task["target"]
    if target["kind"] == "committee":
        h: Any = tl.Teacher(task["activation"], k=task["k"], weights=target["weights"])
    else:
        h = formula(target["H"], target["h0"])
    return tl.Problem(
        h,
        task["activation"],
        task["p"],
        task["noise"],
        task["P"],
        a,
        directions=task["k"],
    )


def algorithm_of(task: Description) -> tl.SGD:
    """Its steps."""
    return tl.SGD(
        lr=task["gamma"] / d,
        batch=task["batch"],
        loss=task["loss"],
        geometry=task["geometry"],
        train_second_layer=task["trained"],
    )


def start_of(
    task: Description,
    seed: int,
    a: list[float],
    aligned: float = 0.0,
    size: float = 1.0,
) -> tl.Overlaps:
    """Overlaps of weights drawn with a seed, in eleven dimensions, drawn towards the
    target directions.
    """
    rng = np.random.default_rng(seed)
    L = np.linalg.cholesky(np.asarray(task["P"]))
    W_star = np.concatenate([L, np.zeros((task["k"], 11 - task["k"]))], axis=1)
    W = rng.normal(size=(task["p"], 11))
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    W = W + aligned * W_star[np.arange(task["p"]) % task["k"]]
    W = size * W / np.linalg.norm(W, axis=1, keepdims=True)
    Q = W @ W.T
    return tl.Overlaps((Q + Q.T) / 2, W @ W_star.T, task["P"], a)


def signs(p: int) -> list[float]:
    """A second layer of both signs and several sizes."""
    return [(-1.0) ** j * (1 + 0.25 * j) for j in range(p)]


CORRELATED = [[1.0, 0.3], [0.3, 1.2]]
INDEFINITE = {"kind": "quadratic", "H": [[0.7, 0.4], [0.4, -0.5]], "h0": 0.2}

ODE_CASES: dict[str, tuple[Description, dict[str, Any], float]] = {
    "erf, Saad–Solla": (
        describe("erf", 2, 2, gamma=0.8, noise=0.01),
        {"seed": 1},
        40.0,
    ),
    "erf, all its options": (
        describe(
            "erf",
            3,
            2,
            target={"kind": "committee", "weights": [1.0, -0.6]},
            P=CORRELATED,
            gamma=0.9,
            batch=3,
            noise=0.2,
            trained=True,
        ),
        {"seed": 2, "a": signs(3), "size": 1.3},
        12.0,
    ),
    "erf, correlation loss on the sphere": (
        describe(
            "erf", 4, 3, gamma=0.7, noise=0.1, loss="correlation", geometry="spherical"
        ),
        {"seed": 3},
        6.0,
    ),
    "square, phase retrieval": (
        describe("square", 1, 1, gamma=0.08, noise=0.3, geometry="projected"),
        {"seed": 4},
        6.0,
    ),
    "square, free": (
        describe("square", 3, 2, gamma=0.05, P=CORRELATED, noise=0.05),
        {"seed": 5, "size": 0.7},
        4.0,
    ),
    "He2, four neurons": (
        describe("He2", 4, 1, gamma=0.2, noise=0.1, geometry="projected", batch=4),
        {"seed": 6},
        8.0,
    ),
    "He2, quadratic form": (
        describe(
            "He2",
            3,
            2,
            target=INDEFINITE,
            P=CORRELATED,
            gamma=0.1,
            noise=0.1,
            trained=True,
        ),
        {"seed": 7, "a": signs(3), "size": 0.8},
        2.0,
    ),
    "He2, correlation loss": (
        describe("He2", 2, 2, gamma=0.1, loss="correlation", geometry="projected"),
        {"seed": 8},
        4.0,
    ),
    "relu, two and two": (
        describe("relu", 2, 2, gamma=0.5, noise=0.02),
        {"seed": 9},
        20.0,
    ),
    "relu, four and four": (
        describe("relu", 4, 4, gamma=0.8, geometry="projected"),
        {"seed": 10, "aligned": 0.3},
        15.0,
    ),
    "relu, all its options": (
        describe(
            "relu",
            3,
            2,
            target={"kind": "committee", "weights": [1.0, -0.8]},
            P=CORRELATED,
            gamma=0.6,
            batch=2,
            noise=0.1,
            trained=True,
        ),
        {"seed": 11, "a": signs(3), "size": 1.2},
        8.0,
    ),
    "relu, correlation loss on the sphere": (
        describe(
            "relu", 3, 2, gamma=0.5, noise=0.1, loss="correlation", geometry="spherical"
        ),
        {"seed": 12},
        5.0,
    ),
}


def layers(start: tl.Overlaps) -> dict[str, Any]:
    """A start as the engine reads it."""
    assert start.a is not None
    return {"Q": start.Q.tolist(), "M": start.M.tolist(), "a": start.a.tolist()}


def ode() -> list[Description]:
    """Trajectories at 21 times."""
    out = []
    for name, (task, setting, end) in ODE_CASES.items():
        a = setting.get("a", [1.0] * task["p"])
        start = start_of(
            task,
            setting["seed"],
            a,
            setting.get("aligned", 0.0),
            setting.get("size", 1.0),
        )
        method = tl.ODE(rtol=1e-10, tolerance=1e-8)
        result = tl.solve(
            problem_of(task, a), algorithm_of(task), method, start, time=end, save=20
        )
        assert set(result.outcome.values) == {"ok"}, name
        print(f"ode: {name}", flush=True)
        out.append(
            {
                "name": name,
                "task": task,
                "start": layers(start),
                "time": result.time.values.tolist(),
                "M": result.M.values[0].tolist(),
                "Q": result.Q.values[0].tolist(),
                "a": result.a.values[0].tolist(),
                "excess": result.excess_risk.values[0].tolist(),
            }
        )
    return out


def averages() -> list[Description]:
    """Averages at starts of every kind, and where neurons nearly coincide with the
    target and with each other.
    """
    out = []
    for name, (task, setting, _) in ODE_CASES.items():
        a = setting.get("a", [1.0] * task["p"])
        for aligned in (0.0, 1.0, 30.0):
            start = start_of(
                task, setting["seed"], a, aligned, setting.get("size", 1.0)
            )
            m = tl.moments(problem_of(task, a), start, task["loss"], tolerance=1e-11)
            values = {
                word: np.asarray(getattr(m, word)).tolist()
                for word in ("psi", "phi", "chi", "second")
            }
            here = {
                "name": f"{name}, aligned {aligned:g}",
                "task": task,
                "start": layers(start),
            }
            out.append(here | values | {"excess": float(m.excess_risk)})
    return out


PATHS: dict[str, tuple[Description, int, dict[str, Any]]] = {
    "He2, one neuron": (
        describe("He2", 1, 1, gamma=0.1, noise=0.1, geometry="projected"),
        1000,
        {"seed": 21},
    ),
    "erf, both layers, many dimensions": (
        describe(
            "erf",
            3,
            2,
            target={"kind": "committee", "weights": [1.0, -0.6]},
            gamma=0.9,
            batch=7,
            noise=0.2,
            trained=True,
        ),
        100_000_000,
        {"seed": 22, "a": signs(3)},
    ),
    "relu, few dimensions": (
        describe("relu", 4, 2, gamma=0.5, batch=2, geometry="spherical"),
        15,
        {"seed": 23},
    ),
    "square, quadratic form, correlation loss": (
        describe(
            "square",
            2,
            2,
            target=INDEFINITE,
            gamma=0.2,
            noise=0.3,
            loss="correlation",
            geometry="projected",
        ),
        120,
        {"seed": 24},
    ),
}

SAMPLES: dict[str, tuple[Description, int, int]] = {
    "He2, d = 12": (
        describe("He2", 2, 1, gamma=0.4, noise=0.1, geometry="projected"),
        12,
        60,
    ),
    "erf, d = 12, both layers": (
        describe("erf", 2, 2, gamma=10.0, noise=0.5, trained=True),
        12,
        4,
    ),
    "relu, d = 200, batch 5": (
        describe("relu", 3, 2, gamma=20.0, batch=5, geometry="spherical"),
        200,
        40,
    ),
}
RUNS = 1500


def chain() -> Description:
    """Runs from given rows with a given seed, and samples of final overlaps and
    risks.
    """
    paths, samples = [], []
    for name, (task, dim, setting) in PATHS.items():
        a = setting.get("a", [1.0] * task["p"])
        start = start_of(task, setting["seed"], a)
        rows = np.concatenate(
            embed(start.Q, start.M, target_frame(np.asarray(task["P"]))[1], task["p"]),
            axis=-1,
        )
        save, seed = [0, 1, 2, 10, 100], 2**40 + setting["seed"]
        run = {"steps": 100, "save": save, "seeds": 3, "seed": seed}
        result = tl.solve(
            problem_of(task, a), algorithm_of(task), tl.Chain(dim), start, **run
        )
        paths.append(
            {
                "name": name,
                "task": task,
                "dim": dim,
                "rows": rows.tolist(),
                "a": a,
                "seed": seed,
                "steps": save,
            }
            | {
                "M": result.M.values.tolist(),
                "Q": result.Q.values.tolist(),
                "layer": result.a.values.tolist(),
            }
        )
    for name, (task, dim, steps) in SAMPLES.items():
        a = [1.0] * task["p"]
        start = start_of(task, 31, a, aligned=0.5)
        run = {"steps": steps, "save": 1, "seeds": RUNS, "seed": 77}
        last = tl.solve(
            problem_of(task, a), algorithm_of(task), tl.Chain(dim), start, **run
        ).isel(time=-1)
        seen = {
            "M11": last.M[:, 0, 0],
            "Q11": last.Q[:, 0, 0],
            "Q12": last.Q[:, 0, 1],
            "excess": last.excess_risk,
        }
        if task["geometry"] != "free":
            del seen["Q11"]  # one, up to rounding
        rounded = {
            word: [float(f"{x:.6g}") for x in values.values]
            for word, values in seen.items()
        }
        samples.append(
            {
                "name": name,
                "task": task,
                "dim": dim,
                "start": layers(start),
                "steps": steps,
                "seen": rounded,
            }
        )
    return {"paths": paths, "samples": samples}


def numbers() -> Description:
    """Normals, χ² quantiles and starts."""
    points = np.linspace(-8.2, 8.2, 9)
    starts = []
    for law in ("sphere", "hemisphere", "gaussian"):
        for p, k, dim in (
            (1, 1, 1000),
            (3, 2, 10_000),
            (4, 4, 10),
            (2, 1, 1_000_000_000),
            (4, 3, 70),
        ):
            problem = tl.Problem(tl.Teacher("erf", k=k), "erf", p)
            start = tl.Overlaps.random(problem, dim, seed=3, law=law, size=2)
            starts.append(
                {
                    "p": p,
                    "k": k,
                    "dim": dim,
                    "law": law,
                    "Q": start.Q.tolist(),
                    "M": start.M.tolist(),
                }
            )
    normals = [
        {
            "seed": seed,
            "role": int(role),
            "values": random.host_normal(seed, role, 200, np.arange(2)).tolist(),
        }
        for seed in (0, 5, 2**40 + 3)
        for role in (random.Role.FIELDS, random.Role.ORTHOGONAL)
    ]
    quantiles = [
        {
            "n": n,
            "x": points.tolist(),
            "values": chi_square_quantile(n, points).tolist(),
        }
        for n in (64, 65, 100, 999, 9_999, 10_000, 123_456, 10**9)
    ]
    return {"normals": normals, "quantiles": quantiles, "starts": starts}


def write(name: str, content: Any) -> None:
    """One file."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / name).write_text(text + "\n", encoding="utf-8")
    print(f"{name}: {len(text) / 1000:.0f} kB", flush=True)


FILES = {"random": numbers, "chain": chain, "averages": averages, "ode": ode}


def main() -> None:
    """Write the files named on the command line, or all."""
    warnings.simplefilter("error")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or FILES:
        write(f"{name}.json", FILES[name]())


if __name__ == "__main__":
    main()
