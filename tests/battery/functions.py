"""Functions of one variable for both sides: as a text for the package, and in NumPy for the brute force."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

Array = np.ndarray
Real = Callable[[Array], Array]


@dataclass(frozen=True)
class Function:
    """f and f' with what brute force has to know about them.

    ``text`` has the argument as ``{x}``; ``kinks`` are places where f or f' jumps; ``growth`` is the power with which
    |f| grows (math.inf: exponentially); ``degree`` is that of a polynomial, or None; ``singular`` a place where f is
    infinite, near which ``value`` takes the distance from it; ``kind`` is a word for the report.
    """

    text: str
    value: Real
    slope: Real | None
    kind: str
    kinks: tuple[float, ...] = ()
    growth: float = 0.0
    degree: int | None = None
    singular: float | None = None


def _sigmoid(x: Array) -> Array:
    return special.expit(x)


def _gauss(x: Array) -> Array:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _hermite(n: int) -> tuple[Real, Real]:
    c = np.zeros(n + 1)
    c[n] = 1.0
    slope = n * c[1:]
    return (
        lambda x: np.polynomial.hermite_e.hermeval(x, c),
        lambda x: np.polynomial.hermite_e.hermeval(x, slope),
    )


def _step(x: Array) -> Array:
    return (x > 0).astype(float)


SQRT2 = math.sqrt(2)

ACTIVATIONS = [
    Function("linear", lambda x: x, np.ones_like, "smooth", growth=1, degree=1),
    Function("square", lambda x: x**2, lambda x: 2 * x, "even", growth=2, degree=2),
    Function("erf", lambda x: special.erf(x / SQRT2), lambda x: 2 * _gauss(x), "odd"),
    Function("relu", lambda x: np.maximum(x, 0), _step, "kinked", (0.0,), 1),
    Function(
        "leaky_relu",
        lambda x: np.where(x > 0, x, 0.01 * x),
        lambda x: np.where(x > 0, 1, 0.01),
        "kinked",
        (0.0,),
        1,
    ),
    Function("abs", np.abs, np.sign, "kinked", (0.0,), 1),
    Function("tanh", np.tanh, lambda x: 1 - np.tanh(x) ** 2, "odd"),
    Function("sigmoid", _sigmoid, lambda x: _sigmoid(x) * _sigmoid(-x), "smooth"),
    Function("softplus", lambda x: np.logaddexp(0, x), _sigmoid, "smooth", growth=1),
    Function(
        "gelu",
        lambda x: x * special.ndtr(x),
        lambda x: special.ndtr(x) + x * _gauss(x),
        "smooth",
        growth=1,
    ),
    Function(
        "swish",
        lambda x: x * _sigmoid(x),
        lambda x: _sigmoid(x) * (1 + x * _sigmoid(-x)),
        "smooth",
        growth=1,
    ),
    Function("sin", np.sin, np.cos, "odd"),
    Function("cos", np.cos, lambda x: -np.sin(x), "even"),
    Function("He2", *_hermite(2), "even", growth=2, degree=2),
    Function("He3", *_hermite(3), "odd", growth=3, degree=3),
    Function("He4", *_hermite(4), "growing", growth=4, degree=4),
    Function("He8", *_hermite(8), "growing", growth=8, degree=8),
    Function(
        "tanh(z + 0.7)",
        lambda x: np.tanh(x + 0.7),
        lambda x: 1 - np.tanh(x + 0.7) ** 2,
        "smooth",
    ),
    Function(
        "relu(z - 0.5)",
        lambda x: np.maximum(x - 0.5, 0),
        lambda x: _step(x - 0.5),
        "kinked",
        (0.5,),
        1,
    ),
    Function(
        "relu(z - 20)",
        lambda x: np.maximum(x - 20, 0),
        lambda x: _step(x - 20),
        "flat",
        (20.0,),
        1,
    ),
    Function(
        "z*exp(-z**2/2)",
        lambda x: x * np.exp(-(x**2) / 2),
        lambda x: (1 - x**2) * np.exp(-(x**2) / 2),
        "odd",
    ),
    Function(
        "sin(5*z)", lambda x: np.sin(5 * x), lambda x: 5 * np.cos(5 * x), "oscillating"
    ),
    Function(
        "z*abs(z)",
        lambda x: x * np.abs(x),
        lambda x: 2 * np.abs(x),
        "kinked",
        (0.0,),
        2,
    ),
    Function(
        "log(1 + z**2)", lambda x: np.log1p(x**2), lambda x: 2 * x / (1 + x**2), "even"
    ),
    Function(
        "abs(z - 1) - abs(z + 1)",
        lambda x: np.abs(x - 1) - np.abs(x + 1),
        lambda x: np.sign(x - 1) - np.sign(x + 1),
        "kinked",
        (-1.0, 1.0),
    ),
    Function(
        "z - z**3/6",
        lambda x: x - x**3 / 6,
        lambda x: 1 - x**2 / 2,
        "odd",
        growth=3,
        degree=3,
    ),
]


def _target(
    text: str,
    value: Real,
    kind: str,
    kinks: tuple[float, ...] = (),
    growth: float = 0,
    degree: int | None = None,
    singular: float | None = None,
) -> Function:
    return Function(text, value, None, kind, kinks, growth, degree, singular)


PARTS = [
    _target("{x}", lambda x: x, "smooth", growth=1, degree=1),
    _target("tanh({x})", np.tanh, "odd"),
    _target("erf({x})", special.erf, "odd"),
    _target("sigmoid(2*{x})", lambda x: _sigmoid(2 * x), "smooth"),
    _target("exp(-{x}**2)", lambda x: np.exp(-(x**2)), "even"),
    _target("{x}/(1 + {x}**2)", lambda x: x / (1 + x**2), "odd"),
    _target("sign({x})", np.sign, "jumping", (0.0,)),
    _target("sign({x} - 0.7)", lambda x: np.sign(x - 0.7), "jumping", (0.7,)),
    _target("abs({x})", np.abs, "kinked", (0.0,), 1),
    _target("relu({x})", lambda x: np.maximum(x, 0), "kinked", (0.0,), 1),
    _target("relu({x} + 0.4)", lambda x: np.maximum(x + 0.4, 0), "kinked", (-0.4,), 1),
    _target("sin(6*{x})", lambda x: np.sin(6 * x), "oscillating"),
    _target("cos(3*{x})", lambda x: np.cos(3 * x), "oscillating"),
    _target("He2({x})", _hermite(2)[0], "even", growth=2, degree=2),
    _target("He3({x})", _hermite(3)[0], "odd", growth=3, degree=3),
    _target(
        "He4({x})/5", lambda x: _hermite(4)[0](x) / 5, "growing", growth=4, degree=4
    ),
    _target("{x}**8/100", lambda x: x**8 / 100, "growing", growth=8, degree=8),
    _target(
        "He8({x})/200", lambda x: _hermite(8)[0](x) / 200, "growing", growth=8, degree=8
    ),
    _target("{x}*abs({x})", lambda x: x * np.abs(x), "kinked", (0.0,), 2),
    _target("exp({x}/2)", lambda x: np.exp(x / 2), "growing", growth=math.inf),
    _target("sqrt(abs({x}))", lambda x: np.sqrt(np.abs(x)), "kinked", (0.0,), 1),
]

SINGULAR = [
    _target(
        "log(abs(z1 - 3))",
        lambda r: np.log(np.abs(r)),
        "singular",
        (3.0,),
        1,
        None,
        3.0,
    ),
    _target(
        "log((z1 - 1)**2)",
        lambda r: 2 * np.log(np.abs(r)),
        "singular",
        (1.0,),
        1,
        None,
        1.0,
    ),
    _target(
        "abs(z1 - 3)**-0.4",
        lambda r: np.abs(r) ** -0.4,
        "singular",
        (3.0,),
        0,
        None,
        3.0,
    ),
    _target(
        "abs(z1)**-0.3", lambda r: np.abs(r) ** -0.3, "singular", (0.0,), 0, None, 0.0
    ),
]
