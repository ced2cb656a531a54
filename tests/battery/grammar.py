"""Tasks and points, drawn at random: what the package averages, and the same for the brute force.

target := ridge | ridge ± ridge | ridge·ridge | teacher | singular | singular + tanh(z2)/2
ridge  := f(z_i) | f(z_i + c z_j)
point: rows w_j of the student from their angles to the target, to each other, and their lengths
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import twolayer as tl

from .functions import ACTIVATIONS, PARTS, SINGULAR, Array, Function

LOSSES = (
    "correlation",
    "logistic",
    "hinge",
    "exponential",
    "huber(0.5)",
    "huber",
    "quantile_of_battery",
)
RULES = (
    "clip(0.4)",
    "normalised()",
    "formula('g/(1 + norm)')",
    "formula('g*exp(-e**2)')",
    "polyak(0.5)",
    "lookahead(0.5/d)",
    "two_step()",
    "private(0.5, 0.4)",
    "private(0.5)",
    "label_noise(0.3)",
    "adagrad_norm(0.7)",
    "adam()",
    "sign()",
    "hebb_of_battery()",
)
PLAIN_RULES = (None, "private(0.5)", "label_noise(0.3)", "adagrad_norm(0.7)", "adam()")
LAWS = ("laplace", "uniform", "student(5)", "student(1.5)", "cauchy")
HEAVY = ("student(1.5)", "cauchy")
FLAT = ("huber", "huber(0.5)", "quantile_of_battery")  # far out, in y − f
RATE = 0.7  # γ of the rules that look ahead


@tl.extend.register_loss("quantile_of_battery", kinks=(0,))
def _quantile(y: Any, f: Any) -> Any:
    return jnp.where(y > f, 0.9, -0.1)


@tl.extend.register_rule("hebb_of_battery")
def _hebb(x: Any) -> Any:
    return x.e[..., None] * jnp.tanh(x.fields)


@dataclass(frozen=True)
class Target:
    """h as text or teacher for the package, and in NumPy: ``value`` takes λ* (…, k), of
    whose first column ``singular`` has been taken off where there is such a place.
    """

    text: str
    given: Any
    value: Callable[[Array], Array]
    k: int
    kinds: tuple[str, ...]
    growth: float
    degree: int | None
    kinks: tuple[float, ...] = ()  # of a target of one direction
    singular: float | None = None


@dataclass(frozen=True)
class Task:
    """All that is static in compiled code."""

    target: Target
    sigma: Function
    p: int
    loss: str
    rule: str | None
    law: str
    noisy: bool
    flips: float
    normalisation: str
    gram: np.ndarray
    engine: str
    log2_points: int

    @property
    def N(self) -> float:
        """What the sum over neurons is divided by."""
        return {"mean": float(self.p), "sum": 1.0, "sqrt": self.p**0.5}[
            self.normalisation
        ]

    @property
    def linear(self) -> float | None:
        """S where e = y − s f and gradients are as they are."""
        plain = self.rule in PLAIN_RULES
        return {"squared": 1.0, "correlation": 0.0}.get(self.loss) if plain else None

    @property
    def text(self) -> str:
        """In one line."""
        parts = [self.target.text, self.sigma.text, f"p={self.p}", self.loss]
        parts += [self.rule] if self.rule else []
        parts += [f"{self.law} noise"] if self.noisy else []
        parts += [f"flips {self.flips:g}"] if self.flips else []
        parts += [self.normalisation] if self.normalisation != "mean" else []
        parts += (
            [f"P={self.gram.round(3).tolist()}"]
            if not np.array_equal(self.gram, np.eye(self.target.k))
            else []
        )
        return ", ".join([*parts, self.engine])

    @property
    def algorithm(self) -> tl.SGD:
        """The algorithm whose gradients are averaged."""
        return tl.SGD(lr=RATE / tl.d, loss=self.loss, rule=self.rule)

    def problem(self, noise: float) -> tl.Problem:
        """The package's description."""
        return tl.Problem(
            self.target.given,
            self.sigma.text,
            width=self.p,
            noise=noise,
            gram=self.gram,
            directions=None
            if isinstance(self.target.given, tl.extend.Target)
            else self.target.k,
            normalisation=self.normalisation,
            noise_law=self.law,
            flips=self.flips,
        )


@dataclass(frozen=True)
class Point:
    """Overlaps of rows w_j = Σ_r A_jr ξ*_r + Σ_i B_ji ξ⊥_i, λ* = L ξ*, and what else is data."""

    A: Array
    B: Array
    L: Array
    a: Array
    noise: float

    @property
    def overlaps(self) -> tl.Overlaps:
        """For the package."""
        Q = self.A @ self.A.T + self.B @ self.B.T
        return tl.Overlaps(
            Q=(Q + Q.T) / 2, M=self.A @ self.L.T, P=self.L @ self.L.T, a=self.a
        )


def _argument(
    rng: np.random.Generator, k: int, first: int
) -> tuple[str, np.ndarray, str]:
    """One of the fields, or an oblique combination of two."""
    v = np.zeros(k)
    v[first] = 1.0
    if k == 1 or rng.random() < 0.7:
        return f"z{first + 1}", v, ""
    other = int(rng.choice([i for i in range(k) if i != first]))
    v[other] = float(rng.choice([0.3, -0.5, 1.0]))
    return f"(z{first + 1} + {v[other]:g}*z{other + 1})", v, "oblique"


def _ridge(
    rng: np.random.Generator, k: int, first: int
) -> tuple[str, Callable[[Array], Array], Function, str]:
    f = PARTS[rng.integers(len(PARTS))]
    text, v, oblique = _argument(rng, k, first)
    return f.text.replace("{x}", text), lambda u: f.value(u @ v), f, oblique


def _sum_degree(
    degrees: list[int | None], combine: Callable[[list[int]], int]
) -> int | None:
    known = [x for x in degrees if x is not None]
    return combine(known) if len(known) == len(degrees) else None


def target(rng: np.random.Generator) -> Target:
    """A target of the grammar."""
    form = rng.choice(
        ["one", "sum", "product", "teacher", "singular"], p=[0.3, 0.27, 0.2, 0.18, 0.05]
    )
    if form == "singular":
        f = SINGULAR[rng.integers(len(SINGULAR))]
        if f.growth and rng.random() < 0.3:
            return Target(
                f"{f.text} + 0.5*tanh(z2)",
                f"{f.text} + 0.5*tanh(z2)",
                lambda u: f.value(u[..., 0]) + 0.5 * np.tanh(u[..., 1]),
                2,
                (f.kind, "sum"),
                f.growth,
                None,
                (),
                f.singular,
            )
        return Target(
            f.text,
            f.text,
            lambda u: f.value(u[..., 0]),
            1,
            (f.kind,),
            f.growth,
            None,
            f.kinks,
            f.singular,
        )
    k = 1 if form == "one" else int(rng.choice([1, 2, 3], p=[0.25, 0.5, 0.25]))
    if form == "teacher":
        f = ACTIVATIONS[rng.integers(len(ACTIVATIONS))]
        weights = np.round(rng.normal(size=k), 2)
        given = tl.Teacher(f.text, k=k, weights=weights)
        kinks = f.kinks if k == 1 else ()
        growth, degree = f.growth, f.degree
        return Target(
            given.name,
            given,
            lambda u: f.value(u) @ weights / k,
            k,
            (f.kind, "teacher"),
            growth,
            degree,
            kinks,
        )
    if form == "one":
        text, value, f, _ = _ridge(rng, 1, 0)
        return Target(text, text, value, 1, (f.kind,), f.growth, f.degree, f.kinks)
    # every direction occurs, so that k is the number of directions
    pieces = [_ridge(rng, k, i % k) for i in range(max(k, 2))]
    kinds = tuple(
        sorted({x.kind for *_, x, _ in pieces} | {o for *_, o in pieces if o})
    )
    kinks = tuple(sorted({c for *_, f, _ in pieces for c in f.kinks}))
    values = [x for _, x, *_ in pieces]
    growths, degrees = (
        [f.growth for *_, f, _ in pieces],
        [f.degree for *_, f, _ in pieces],
    )
    if form == "sum":
        c = [1.0, *(float(rng.choice([1.0, -0.5, 2.0])) for _ in pieces[1:])]
        text = " + ".join(
            f"{x:g}*{piece[0]}" for x, piece in zip(c, pieces, strict=True)
        ).replace("+ -", "- ")
        value = lambda u: sum(x * f(u) for x, f in zip(c, values, strict=True))  # noqa: E731
        return Target(
            text,
            text,
            value,
            k,
            (*kinds, "sum"),
            max(growths),
            _sum_degree(degrees, max),
            kinks,
        )
    text = "*".join(piece[0] for piece in pieces)
    value = lambda u: np.prod([f(u) for f in values], axis=0)  # noqa: E731
    return Target(
        text,
        text,
        value,
        k,
        (*kinds, "product"),
        sum(growths),
        _sum_degree(degrees, sum),
        kinks,
    )


def _gram(rng: np.random.Generator, k: int) -> np.ndarray:
    """The identity, correlated rows, or rows that are nearly or wholly dependent."""
    if rng.random() < 0.6 or k == 1:
        return np.eye(k) * (
            1.0 if rng.random() < 0.8 else float(rng.choice([0.25, 2.0]))
        )
    V = rng.normal(size=(k, k))
    if rng.random() < 0.3:
        V[-1] = V[0] + float(rng.choice([0.0, 1e-4])) * V[-1]
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    P = V @ V.T
    return (P + P.T) / 2


def task(rng: np.random.Generator) -> Task:
    """A task of which averages exist and can be taken by brute force."""
    while True:
        found = _any_task(rng)
        if found is not None:
            return found


def _any_task(rng: np.random.Generator) -> Task | None:
    h = target(rng)
    sigma = ACTIVATIONS[rng.integers(len(ACTIVATIONS))]
    p = int(rng.choice([1, 2, 3, 4, 5, 6], p=[0.4, 0.25, 0.15, 0.08, 0.06, 0.06]))
    loss, rule = "squared", None
    dice = rng.random()
    if dice < 0.12:
        loss = "correlation"
    elif dice < 0.3:
        loss = str(rng.choice(LOSSES[1:]))
    elif dice < 0.5:
        rule = str(rng.choice(RULES))
        loss = str(rng.choice(["squared", "squared", "huber(0.5)", "correlation"]))
        loss = "squared" if rule.startswith("polyak") else loss
    noisy = bool(rng.random() < 0.6)
    law = str(rng.choice(LAWS)) if noisy and rng.random() < 0.4 else "gaussian"
    flips = float(rng.choice([0.1, 0.4])) if rng.random() < 0.15 else 0.0
    engine = str(rng.choice(["auto", "quadrature", "sobol"], p=[0.86, 0.07, 0.07]))
    if h.singular is not None:
        p, engine = min(p, 2), "auto"
    found = Task(
        h,
        sigma,
        p,
        loss,
        rule,
        law,
        noisy,
        flips,
        str(rng.choice(["mean", "sum", "sqrt"], p=[0.7, 0.15, 0.15])),
        np.eye(h.k) if h.singular is not None else _gram(rng, h.k),
        engine,
        12,
    )
    return found if _within_reach(found) else None


def _within_reach(x: Task) -> bool:
    """Whether averages exist, and brute force of a second has a standard error that can be trusted."""
    fields = x.p + x.target.k
    linear, nonlinear = x.linear is not None, x.linear is None
    growing = max(x.sigma.growth, x.target.growth)
    exact = linear and x.sigma.degree is not None and x.target.degree is not None
    if exact:
        # a product rule of all fields, exact for psi, phi and chi
        return exact_nodes(x) ** fields <= 400_000
    panels = linear and x.p == x.target.k == 1
    if x.target.singular is not None:
        # of a power the lattice knows no standard error: h⁴ has no mean
        known = panels or x.target.growth > 0
        if not known or x.sigma.growth > 1:
            return False
    if x.sigma.growth > 4 and not panels:
        return False
    if x.loss == "exponential":
        bounded = x.target.growth == 0 and x.sigma.growth <= 1
        if x.noisy or not bounded or (x.sigma.growth and x.p > 2):
            return False
    cut = x.rule in (
        "clip(0.4)",
        "normalised()",
        "private(0.5, 0.4)",
        "sign()",
    )
    cut = cut or x.loss in FLAT
    if x.law in HEAVY and not (x.loss in FLAT and x.rule is None):
        return False
    if nonlinear and x.law == "student(5)" and not cut:
        return False
    if x.rule in ("lookahead(0.5/d)", "two_step()") and growing > 1:
        return False
    if x.rule == "label_noise(0.3)" and x.law != "gaussian":
        return False
    if x.engine == "quadrature" and fields > 3:
        return False
    if x.engine == "sobol" and growing > 2:
        return False
    if (
        nonlinear
        and x.p + x.target.k + x.noisy == 3
        and x.engine != "sobol"
        and x.rule is not None
        and x.flips
    ):
        return False  # quadratures of minutes
    if growing > 4 and fields > 3:
        return False
    return not (x.sigma.growth > 2 and fields > 4)


def exact_nodes(x: Task) -> int:
    """Nodes in each direction with which polynomials are averaged exactly."""
    D, E = x.sigma.degree or 0, x.target.degree or 0
    highest = max(2 * (D - 1) + 2 * max(D, E), D + E, 2 * E, 2 * D)
    return highest // 2 + 1


def point(rng: np.random.Generator, x: Task) -> Point:
    """A point of a task: ordinary, tiny, large, aligned or degenerate rows."""
    p, k = x.p, x.target.k
    value, vector = np.linalg.eigh(x.gram)
    keep = value > 1e-10 * value.max()
    L = vector[:, keep] * np.sqrt(value[keep])
    L = np.linalg.cholesky(x.gram) if keep.all() else L
    r = L.shape[1]
    rows = rng.normal(size=(p, r + p))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for j in range(p):
        dice = rng.random()
        if dice < 0.2:  # nearly along the target, or wholly
            size = 0.0 if rng.random() < 0.2 else 10 ** -rng.uniform(0.5, 6)
            along = (
                rng.normal(size=r)
                if rng.random() < 0.5
                else L[rng.integers(k)] * rng.choice([-1, 1])
            )
            rows[j, :r] = along / np.linalg.norm(along)
            rows[j, r:] *= size
        elif dice < 0.3:  # next to nothing known about the target
            rows[j, :r] *= 10 ** -rng.uniform(2, 8)
        elif dice < 0.4 and j:  # nearly the same as another neuron, or the same
            size = 0.0 if rng.random() < 0.2 else 10 ** -rng.uniform(0.5, 6)
            rows[j] = rows[j - 1] * rng.choice([-1, 1]) + size * rows[j]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    largest = 2.0 if x.loss == "exponential" and x.sigma.growth else 100.0
    largest = 4.0 if x.rule in ("lookahead(0.5/d)", "two_step()") else largest
    sizes = np.where(
        rng.random(p) < 0.6,
        rng.uniform(0.2, 2.0, p),
        10 ** rng.uniform(-6, np.log10(largest), p),
    )
    rows *= np.sqrt(sizes)[:, None]
    a = rng.normal(size=p) if rng.random() < 0.7 else rng.choice([-1.0, 1.0], size=p)
    noise = float(rng.choice([0.01, 0.1, 0.5, 4.0])) if x.noisy else 0.0
    return Point(rows[:, :r], rows[:, r:], L, a, noise)


def smaller(x: Task, **changes: Any) -> Task:
    """The same with some parts changed."""
    return replace(x, **changes)
