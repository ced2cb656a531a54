"""Schedules: learning rates and batches that change in the course of a run.

    lr = γ0 d^(−δ) · f(x),    batch = n0 d^μ · f(x),
        x: step, samples, alpha = samples/d or time so far
    cosine   φ + (1 − φ) (1 + cos πs)/2,  s = (x − x0)/H cut to [0, 1]        linear
             1 − (1 − φ) s
    warmup   φ + (1 − φ) x/H up to 1      power   (1 + (x − x0)/c)^(−a)        inverse
             power with a = 1
    piecewise, table, custom
        constant pieces, straight lines between points, any function

A schedule is multiplied onto a scaling law, ``0.2/d * cosine(horizon=5,
clock="alpha")``, and onto other schedules. The step number n uses the values at the
clocks before it, x_n; between jumps f is continuous from the right. Lengths are
measured in the schedule's own clock and may be laws in d themselves. Factors that never
change are part of the coefficient of the law, not of the schedule.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from twolayer.numerics.arguments import Array, ArrayFunction, Options
from twolayer.numerics.errors import (
    InputError,
    choice,
    closest,
    finite_number,
    finite_numbers,
    reject,
    require,
    short,
)
from twolayer.numerics.lazy_modules import Later
from twolayer.numerics.tracing import traced
from twolayer.task.scaling import Scaling, positive_law

if TYPE_CHECKING:
    import jax.numpy as jnp

    from twolayer.numerics.types import Number
else:
    jnp = Later("jax.numpy")

T = TypeVar("T")
CLOCKS = ("step", "sample", "alpha", "time")
MAX_LENGTH = 2000  # characters of a formula
MAX_CALL = 2 * MAX_LENGTH  # of a text with calls, one of which may hold a formula
Length = float | str | Scaling
Law: TypeAlias = "float | str | Scaling | Schedule"
"""A number or a power of d, with a schedule or without, as an object or in words."""


def _namespace(x: object) -> ModuleType:
    """NumPy for numbers of the host, JAX for those of compiled code."""
    return (
        np
        if isinstance(x, float | int | np.ndarray | np.generic) and not traced(x)
        else jnp
    )


def _part(x: Number, after: Number, horizon: Number) -> Number:
    """How much of the way from ``after`` over ``horizon`` is done."""
    return _namespace(x).clip((x - after) / horizon, 0.0, 1.0)


def _cosine(x: Number, horizon: Number, floor: Number, after: Number) -> Number:
    return (
        floor
        + (1 - floor) * (1 + _namespace(x).cos(math.pi * _part(x, after, horizon))) / 2
    )


def _linear(x: Number, horizon: Number, floor: Number, after: Number) -> Number:
    return 1 - (1 - floor) * _part(x, after, horizon)


def _warmup(x: Number, horizon: Number, floor: Number) -> Number:
    return floor + (1 - floor) * _part(x, 0.0, horizon)


def _power(x: Number, exponent: Number, scale: Number, after: Number) -> Number:
    return (1 + _namespace(x).maximum(x - after, 0.0) / scale) ** -exponent


def _piecewise(x: Number, at: Array, values: Array) -> Number:
    xp = _namespace(x)
    return xp.asarray(values)[xp.searchsorted(xp.asarray(at), x, side="right")]


def _table(x: Number, at: Array, values: Array) -> Number:
    xp = _namespace(x)
    return xp.interp(x, xp.asarray(at), xp.asarray(values))


FORMS: dict[str, Callable[..., Number]] = {
    "cosine": _cosine,
    "linear": _linear,
    "warmup": _warmup,
    "power": _power,
    "inverse": _power,
    "piecewise": _piecewise,
    "table": _table,
}


@dataclass(frozen=True)
class Factor:
    """One factor of a schedule: its form, clock, and parameters, of which lengths are
    laws in d.
    """

    name: str
    clock: str
    lengths: tuple[tuple[str, Scaling | tuple[Scaling, ...]], ...]
    numbers: tuple[tuple[str, Any], ...]
    form: Callable[..., Number]
    bends: tuple[float, ...] = ()  # of a custom function

    def breaks(self, lengths: Options) -> list[float]:
        """Where f jumps or bends, in units of the clock, given the values of the
        lengths.
        """
        if self.name in ("piecewise", "table"):
            found = list(lengths["at"])
        elif self.name == "custom":
            found = list(self.bends)
        else:
            after = lengths.get("after", 0.0)
            found = [after] + (
                [after + lengths["horizon"]] if "horizon" in lengths else []
            )
        return sorted({float(x) for x in found if x > 0})

    @property
    def constant(self) -> float | None:
        """The value of a factor that never changes, or None; of a function of the
        user's nothing is known.
        """
        numbers = dict(self.numbers)
        values = numbers.get(
            "values", (1.0, numbers["floor"]) if "floor" in numbers else ()
        )
        if traced(*values) or traced(numbers.get("exponent")):
            return None
        if values and all(x == values[0] for x in values):
            return float(values[0])
        return 1.0 if numbers.get("exponent") == 0 else None

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, spec: str) -> str:
        if self.name == "custom":
            return (
                f"custom(<function {getattr(self.form, '__name__', 'of yours')}>,"
                f" clock={self.clock!r})"
            )
        given = [
            (k, v)
            for k, v in (*self.lengths, *self.numbers)
            if (self.name, k, v) not in DEFAULTS
        ]
        words = [f"{k}={written(v, spec)}" for k, v in given]
        return f"{self.name}({', '.join([*words, f'clock={self.clock!r}'])})"


DEFAULTS = {
    *((name, "floor", 0.0) for name in ("cosine", "linear", "warmup")),
    *(
        (name, "after", Scaling(0.0))
        for name in ("cosine", "linear", "power", "inverse")
    ),
    ("inverse", "exponent", 1.0),
}


def written(value: object, spec: str = "") -> str:
    """A number, a law or a sequence of them, as it is read back."""
    if isinstance(value, tuple):
        numbers = ", ".join(written(x, spec) for x in value)
        return f"({numbers},)" if len(value) == 1 else f"({numbers})"
    return format(value if isinstance(value, Scaling) else Scaling(value), spec)


@dataclass(frozen=True)
class Schedule:
    """A product of factors, each a function of one clock; multiplied onto laws and onto
    other schedules.

    Parameters
    ----------
    factors : tuple
        What is multiplied. Functions of this module make one factor each, and ``*``
        joins them.

    Examples
    --------
    >>> warmup(horizon=1) * inverse(scale=2, after=1)
    Schedule(warmup(horizon=1, clock='alpha') * inverse(scale=2, after=1,
    clock='alpha'))
    """

    factors: tuple[Factor, ...]

    __array_ufunc__ = None  # products with NumPy's numbers are ours

    def __mul__(self, other: object) -> Any:
        if isinstance(other, Schedule):
            return Schedule(self.factors + other.factors)
        if isinstance(other, Scaling):
            known = [(factor, factor.constant) for factor in self.factors]
            scale = math.prod(value for _, value in known if value is not None)
            factors = () if other.schedule is None else other.schedule.factors
            factors += tuple(factor for factor, value in known if value is None)
            return Scaling(
                other.coefficient * scale,
                other.exponent,
                Schedule(factors) if factors else None,
            )
        if isinstance(other, str) or not np.isscalar(other):
            return NotImplemented
        return self * Scaling.of(other)

    __rmul__ = __mul__

    @property
    def portable(self) -> bool:
        """Whether its text says everything: no function of the user's is in it."""
        return all(factor.name != "custom" for factor in self.factors)

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, spec: str) -> str:
        return " * ".join(format(factor, spec) for factor in self.factors)

    def __repr__(self) -> str:
        return f"Schedule({self})"

    def _repr_html_(self) -> str:
        from twolayer.task.notebook import schedule_html

        return schedule_html(self)


def _length(name: str, value: object, positive: bool = True) -> Scaling:
    accepted = (
        f"a {'positive ' if positive else ''}length in the clock: a"
        f" number{'' if positive else ' ≥ 0'} or a law"
    )
    if not positive and isinstance(value, int | float) and value == 0:
        return Scaling(0.0)
    try:
        law = positive_law(value, name)
    except InputError:
        reject(name, value, f"{accepted} such as 5 or 3*d")
    require(law.schedule is None, name, value, accepted)
    return law


def _share(name: str, value: object) -> float:
    return finite_number(
        name,
        value,
        minimum=0.0,
        accepted="a finite number ≥ 0: learning rates and batches are",
    )


def _one(name: str, clock: str, lengths: Options, **numbers: object) -> Schedule:
    """A schedule of one factor; its lengths are checked here, but for the places of
    `_points`.
    """
    laws = {
        k: v if k == "at" else _length(k, v, positive=k != "after")
        for k, v in lengths.items()
    }
    choice("clock", clock, CLOCKS)
    return Schedule(
        (Factor(name, clock, tuple(laws.items()), tuple(numbers.items()), FORMS[name]),)
    )


def cosine(
    horizon: Length, floor: float = 0.0, after: Length = 0.0, clock: str = "alpha"
) -> Schedule:
    """From 1 to ``floor`` along half a period of a cosine, and constant from then on.

    Parameters
    ----------
    horizon, after : float, Scaling or str
        How long the way down takes, in units of the clock, and where it begins.
    floor : float
        The last value, ≥ 0.
    clock : str
        ``"step"``, ``"sample"``, ``"alpha"`` or ``"time"``.

    Examples
    --------
    >>> from twolayer.task.scaling import d
    >>> 0.2 / d * cosine(horizon=5)
    Scaling(0.2/d * cosine(horizon=5, clock='alpha'))
    """
    return _one(
        "cosine",
        clock,
        {"horizon": horizon, "after": after},
        floor=_share("floor", floor),
    )


def linear(
    horizon: Length, floor: float = 0.0, after: Length = 0.0, clock: str = "alpha"
) -> Schedule:
    """From 1 to ``floor`` along a straight line, and constant from then on.

    Parameters
    ----------
    horizon, floor, after, clock
        As for `cosine`.

    Examples
    --------
    >>> linear(horizon="4*d", floor=0.1, clock="step")
    Schedule(linear(horizon=4*d, floor=0.1, clock='step'))
    """
    return _one(
        "linear",
        clock,
        {"horizon": horizon, "after": after},
        floor=_share("floor", floor),
    )


def warmup(horizon: Length, floor: float = 0.0, clock: str = "alpha") -> Schedule:
    """From ``floor`` up to 1 along a straight line, and 1 from then on.

    Parameters
    ----------
    horizon : float, Scaling or str
        How long the way up takes, in units of the clock.
    floor : float
        The first value, ≥ 0.
    clock : str
        What x counts, as for `cosine`.

    Examples
    --------
    >>> warmup(horizon=100, clock="step")
    Schedule(warmup(horizon=100, clock='step'))
    """
    return _one("warmup", clock, {"horizon": horizon}, floor=_share("floor", floor))


def power(
    exponent: float, scale: Length, after: Length = 0.0, clock: str = "alpha"
) -> Schedule:
    """(1 + (x − after)/scale)^(−exponent) from ``after`` on, and 1 before.

    Parameters
    ----------
    exponent : float
        Of the decay; negative ones grow, as batches may.
    scale : float, Scaling or str
        Length after which the factor is 2^(−exponent), in units of the clock.
    after, clock
        Where it begins, and what x counts, as for `cosine`.

    Examples
    --------
    >>> power(0.5, scale=3, after=3)
    Schedule(power(scale=3, after=3, exponent=0.5, clock='alpha'))
    """
    exponent = finite_number("exponent", exponent, accepted="a finite number")
    return _one("power", clock, {"scale": scale, "after": after}, exponent=exponent)


def inverse(scale: Length, after: Length = 0.0, clock: str = "alpha") -> Schedule:
    """1/(1 + (x − after)/scale) from ``after`` on, and 1 before.

    Parameters
    ----------
    scale : float, Scaling or str
        Length after which the factor is ½, in units of the clock.
    after, clock
        Where it begins, and what x counts, as for `cosine`.

    Examples
    --------
    >>> inverse(scale=1)
    Schedule(inverse(scale=1, clock='alpha'))
    """
    return _one("inverse", clock, {"scale": scale, "after": after}, exponent=1.0)


def _points(
    at: Sequence[Length], values: Sequence[float], first: bool
) -> tuple[tuple[Scaling, ...], tuple[float, ...]]:
    """Places that increase, and values ≥ 0; laws are compared where they have the same
    power. ``first`` may be 0.
    """
    for name, given in (("at", at), ("values", values)):
        if isinstance(given, str) or not np.iterable(given):
            reject(name, given, "a sequence")
    places = tuple(
        _length("at", x, positive=i > 0 or not first) for i, x in enumerate(at)
    )
    shares = tuple(_share("values", x) for x in values)
    for one, two in itertools.pairwise(places):
        same = one.exponent == two.exponent or one.coefficient == 0
        if not same or not one.coefficient < two.coefficient:
            reject("at", at, "increasing, in one power of d")
    return places, shares


def piecewise(
    at: Sequence[Length], values: Sequence[float], clock: str = "alpha"
) -> Schedule:
    """Constant pieces: ``values[0]`` before ``at[0]``, ``values[1]`` from there to
    ``at[1]``, and so on.

    Parameters
    ----------
    at : sequence of float, Scaling or str
        Where it jumps, increasing, in units of the clock.
    values : sequence of float
        The factor on each piece, ≥ 0: one more than there are jumps.
    clock : str
        What x counts, as for `cosine`.

    Examples
    --------
    >>> piecewise(at=[2], values=[1, 4])
    Schedule(piecewise(at=(2,), values=(1, 4), clock='alpha'))
    """
    places, shares = _points(at, values, first=False)
    require(
        len(shares) == len(places) + 1 > 1,
        "values",
        values,
        f"one more than the {len(places)} places `at`",
    )
    return _one("piecewise", clock, {"at": places}, values=shares)


def table(
    at: Sequence[Length], values: Sequence[float], clock: str = "alpha"
) -> Schedule:
    """Straight lines between points; before the first and after the last point it is
    constant.

    Parameters
    ----------
    at : sequence of float, Scaling or str
        The points, increasing, in units of the clock; two at least.
    values : sequence of float
        The factor at each of them, ≥ 0.
    clock : str
        What x counts, as for `cosine`.

    Examples
    --------
    >>> table(at=[0, 1, 6], values=[0.1, 1, 0])
    Schedule(table(at=(0, 1, 6), values=(0.1, 1, 0), clock='alpha'))
    """
    places, shares = _points(at, values, first=True)
    require(
        len(shares) == len(places) > 1,
        "values",
        values,
        f"as many as the {len(places)} places `at`, two at least",
    )
    return _one("table", clock, {"at": places}, values=shares)


def custom(
    function: ArrayFunction, clock: str = "alpha", breaks: Sequence[float] = ()
) -> Schedule:
    """Any function of a clock, made of operations that NumPy and JAX share (or of
    ``jax.numpy``).

    Parameters
    ----------
    function : callable
        f(x) ≥ 0 of one number.
    clock : str
        What x counts: ``"alpha"`` (samples/d), ``"step"``, ``"sample"`` or ``"time"``.
    breaks : sequence of float
        Where f jumps or bends, in units of the clock: integrators begin anew there.

    Examples
    --------
    >>> custom(lambda x: 1 / (1 + x**2), clock="time").portable
    False
    """
    if not callable(function):
        reject("function", function, "a function of one number")
    choice("clock", clock, CLOCKS)
    bends = finite_numbers("breaks", breaks, minimum=0.0)
    return Schedule((Factor("custom", clock, (), (), function, bends),))


MAKERS: dict[str, Callable[..., Schedule]] = {
    maker.__name__: maker
    for maker in (cosine, linear, warmup, power, inverse, piecewise, table)
}


def law_of(value: object, argument: str) -> Scaling:
    """A positive law with or without a schedule, from text too: ``"0.2/d *
    cosine(horizon=5, clock='alpha')"``.
    """
    if isinstance(value, Schedule):
        value = Scaling(1.0) * value
    if not isinstance(value, str) or "(" not in value:
        return positive_law(value, argument)
    if "<function" in value:
        shown = short(value, 60)
        raise InputError(
            f"The schedule of `{argument}` was a Python function, which a file cannot"
            f" hold: {shown}."
        )
    accepted = (
        "a law such as 0.2/d, times schedules such as cosine(horizon=5, clock='alpha')"
    )
    return _product(parsed(value, argument, accepted), value.strip(), argument)


def _product(node: ast.expr, text: str, argument: str) -> Scaling:
    """Read a product of laws and schedules."""
    factors = []
    # from right to left, without recursion: a product of a thousand factors is a tree
    # as deep
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors.append(_factor(node.right, text, argument))
        node = node.left
    law = _factor(node, text, argument)
    for factor in reversed(factors):
        law = law * factor
    return law


def _factor(node: ast.expr, text: str, argument: str) -> Scaling:
    """Read a law, a schedule, or a product in brackets."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _product(node, text, argument)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and not hasattr(math, node.func.id)
    ):
        return Scaling(1.0) * called("schedule", MAKERS, node, text, argument)
    return positive_law(_source(node, text), argument)


def parsed(text: str, argument: str, accepted: str) -> ast.expr:
    """Python's tree of a text that is to be read; nothing of it is ever evaluated."""
    if len(text) > MAX_CALL:
        raise InputError(
            f"Argument `{argument}` must be at most {MAX_CALL} characters long, but has"
            f" {len(text)}."
        )
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        reject(argument, text, accepted)


def _source(node: ast.expr, text: str) -> str:
    """The text of a node; Python's own function for it goes through the whole text for
    every node.
    """
    if node.lineno == node.end_lineno == 1:
        return text.encode()[node.col_offset : node.end_col_offset].decode()
    return ast.get_source_segment(text, node) or ""


def called(
    kind: str,
    makers: Mapping[str, Callable[..., T]],
    node: ast.Call,
    text: str,
    argument: str,
) -> T:
    """What a call in a text makes, of words, numbers, laws and sequences of them."""
    name = _source(node.func, text)
    if name not in makers:
        hint = closest(name[:40], makers)
        raise InputError(
            f"Argument `{argument}`: unknown {kind} {short(name, 40)}{hint}; known are"
            f" {', '.join(makers)}."
        )

    def value(node: ast.expr) -> object:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(map(value, node.elts))
        law = Scaling.of(_source(node, text), argument)
        return law if law.exponent else law.coefficient

    positional, named = (
        [value(x) for x in node.args],
        {str(x.arg): value(x.value) for x in node.keywords},
    )
    try:
        return makers[name](*positional, **named)
    except TypeError as error:
        raise InputError(f"Argument `{argument}`: {str(error)[:200]}.") from None
