"""Poles of a formula, found from its text: where a denominator, the base of a power or
the argument of a logarithm vanishes, anywhere on R^k, and whether E[h²] minds.

    g(c) = 0:   boxes on which g cannot vanish are left out, the others are halved
    E[h²] < ∞ near c   ⇔   ∫ h(c + r u)² r^(n−1) dr < ∞
    n = 1 where g changes its sign at c, else the number of its variables

A point where the integral exists is no pole: sin(z)/z, log|z|, |z|^(−0.4). A pole is
one however far away it is, since it was written down; random points see it up to |z| =
4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from twolayer.functions.enclosures import enclose
from twolayer.functions.expression import Expression
from twolayer.functions.syntax import (
    Binary,
    Call,
    Negative,
    Node,
    Power,
    Variable,
    hermite_order,
    walk,
)
from twolayer.numerics.errors import InputError, cut

__all__ = ["find_pole", "reject_pole"]

REACH = 1e30  # how far out zeros are looked for
WIDTH = 1e-11  # of a box that is not halved any more, in asinh z
MOST_BOXES = 128  # those nearest to 0, and as many with the smallest |g|
MOST_PLACES = 24  # zeros of one function that are looked at, the nearest ones
WORK = 20_000  # operations on boxes for one formula: a tenth of a second
NUMBERS_END = 30.0  # beyond it, exponentials of a good function may overflow
RADII = 10.0 ** np.arange(-1, -9, -1)
BEYOND = 0.01  # how much further the neighbour of a point is
BEND = 0.2  # change between such neighbours, beyond which rounding is seen
RESOLVED = 1e-12
ELSEWHERE = 8  # places of the other variables, some with either sign
SAME_ZEROS = ("abs", "sqrt", "erf", "tanh", "sign", "leaky_relu", "gelu", "silu")
SAME_EDGE = ("relu",)  # which vanishes on one side of the zeros of its argument


class _Place(NamedTuple):
    """A zero of g, over the variables of g."""

    names: tuple[str, ...]
    point: np.ndarray
    crossed: bool


def find_pole(expression: Expression, steep: bool = False) -> dict[str, float] | None:
    """A point near which E[h²] is infinite, by the names of its coordinates, or None.

    With ``steep`` E[h² h'²] is asked for, of a function of one variable.

    >>> from twolayer.functions.expression import parse
    >>> find_pole(parse("1/(z1 - 5)"))
    {'z1': 5.0}
    >>> find_pole(parse("log(abs(z1 - 3)) + sin(z1)/z1"))
    """
    work = WORK
    for g in _vanishing(expression.tree):
        places, work = _zeros(g, Expression(g).variables, work)
        for place in sorted(places, key=_distance):
            if _infinite_near(expression, place, steep):
                # to the digits that are known of it, without the noise of the rest
                known = (
                    float(f"{x:.9g}") if abs(x) > 1e-9 else 0.0 for x in place.point
                )
                return dict(zip(place.names, known, strict=True))
    return None


def _distance(place: _Place) -> float:
    return float(np.linalg.norm(place.point))


def reject_pole(expression: Expression, accepted: str, steep: bool = False) -> None:
    """Refuse a formula with a pole; ``accepted`` is the sentence as far as the but.

    >>> from twolayer.functions.expression import parse
    >>> reject_pole(
    ...     parse("z1/(z2 - 5)"), "Argument `target` must have a finite variance"
    ... )
    Traceback (most recent call last):
    twolayer.InputError: Argument `target` must have a finite variance, but z1/(z2 - 5)
    has a pole at z2 = 5.
    """
    pole = find_pole(expression, steep)
    if pole is not None:
        where = ", ".join(f"{name} = {x:g}" for name, x in list(pole.items())[:4])
        raise InputError(
            f"{accepted}, but {cut(str(expression))} has a pole at {where}."
        )


def _vanishing(tree: Node) -> Iterator[Node]:
    """The functions whose zeros may be poles, each once, factor by factor."""
    seen: set[Node] = set()
    for node in walk(tree):
        match node:
            case Binary("/", _, g) | Call("log" | "sqrt", g):
                pass
            case Power(g, exponent) if exponent < 0 or exponent % 1:
                pass
            case _:
                continue
        for factor in _factors(g):
            if factor not in seen:
                seen.add(factor)
                yield factor


def _factors(g: Node) -> Iterator[Node]:
    """Functions that are not constant and together have the zeros of g."""
    match g:
        case Binary("*", left, right):
            yield from _factors(left)
            yield from _factors(right)
        case Binary("/", inner, _) | Negative(inner):
            yield from _factors(inner)
        case Power(inner, exponent) if exponent > 0:
            yield from _factors(inner)
        case Call(name, inner) if name in SAME_ZEROS + SAME_EDGE:
            yield from _factors(inner)
        case _ if any(isinstance(node, Variable) for node in walk(g)):
            yield g


def _zeros(g: Node, names: tuple[str, ...], work: int) -> tuple[list[_Place], int]:
    """Zeros of g, and the work that is left: boxes are halved along their longest side,
    in asinh z, until they are points.
    """
    n, size = len(names), sum(_cost(node) for node in walk(g))
    low = np.full((1, n), -np.arcsinh(REACH))
    high = -low
    # along lines through 0, where halves of the whole space have no midpoints
    lines = _directions(n) * np.linspace(0, 8, 9)[:, None, None]
    crossings = _crossings(g, names, lines.reshape(-1, n)) if n > 1 else []
    while len(low) and (high - low).max() > WIDTH:
        work -= size
        if work < 0:
            return _places(names, crossings, True), 0
        rows = np.arange(len(low))
        side = np.argmax(high - low, axis=1)
        middle = (low + high)[rows, side] / 2
        left, right = high.copy(), low.copy()
        left[rows, side] = right[rows, side] = middle
        low, high = np.concatenate([low, right]), np.concatenate([left, high])
        ends = np.sinh(low), np.sinh(high)
        value = enclose(
            g, {name: (ends[0][:, i], ends[1][:, i]) for i, name in enumerate(names)}
        )
        below, above = (np.broadcast_to(end, len(low)) for end in value)
        kept = (below <= 0) & (above >= 0)
        low, high = low[kept], high[kept]
        if len(low) > 2 * MOST_BOXES:
            distance = np.linalg.norm(np.maximum(np.maximum(low, -high), 0), axis=1)
            least = np.abs(_values(g, names, np.sinh((low + high) / 2)))
            both = [
                np.argsort(x, kind="stable")[:MOST_BOXES] for x in (distance, least)
            ]
            chosen = np.unique(np.concatenate(both))
            low, high = low[chosen], high[chosen]
        if n > 1 and len(crossings) < MOST_PLACES:
            crossings += _crossings(g, names, (low + high) / 2)
            work -= 8 * size
    corners = np.sinh((low + high) / 2)
    found = _places(names, crossings, True)
    for point in _settled(g, names, corners):
        found += _places(names, [point], n == 1)
    return found, work


def _cost(node: Node) -> int:
    """Operations of a node."""
    order = hermite_order(node.name) if isinstance(node, Call) else None
    return 1 if order is None else 1 + order[1]


def _places(
    names: tuple[str, ...], points: list[np.ndarray], crossed: bool
) -> list[_Place]:
    return [_Place(names, point, crossed) for point in points]


def _values(g: Node, names: tuple[str, ...], points: np.ndarray) -> np.ndarray:
    """g at points (…, n)."""
    with np.errstate(all="ignore"):
        out = Expression(g)(**{name: points[..., i] for i, name in enumerate(names)})
    return np.broadcast_to(np.asarray(out, dtype=float), points.shape[:-1])


def _crossings(
    g: Node, names: tuple[str, ...], middles: np.ndarray
) -> list[np.ndarray]:
    """Where g changes its sign between midpoints of boxes, by bisection."""
    values = _values(g, names, np.sinh(middles))
    plus, minus = middles[values > 0][:4], middles[values < 0][:4]
    pairs = min(len(plus), len(minus))
    if not pairs:
        return []
    plus, minus = plus[:pairs], minus[:pairs]
    for _ in range(60):
        middle = (plus + minus) / 2
        up = (_values(g, names, np.sinh(middle)) > 0)[:, None]
        plus, minus = np.where(up, middle, plus), np.where(up, minus, middle)
    return list(np.sinh((plus + minus) / 2))


def _settled(
    g: Node, names: tuple[str, ...], points: np.ndarray
) -> Iterator[np.ndarray]:
    """The points, moved to where |g| is least nearby, and each of them once: rounding
    hides multiple zeros in a cloud of boxes.
    """
    directions = _directions(len(names))
    reached: list[np.ndarray] = []
    for point in points[np.argsort(np.linalg.norm(points, axis=1), kind="stable")]:
        unit = 1 + np.abs(point).max()
        if any(np.abs(point - other).max() < 1e-5 * unit for other in reached):
            continue
        if len(reached) == MOST_PLACES:
            return
        best = point
        for scale in unit * 10.0 ** np.arange(-5, -14, -1):
            steps = scale * np.arange(1, 11)[:, None, None] * directions
            near = np.concatenate([best[None], (best + steps).reshape(-1, len(names))])
            size = np.abs(_values(g, names, near))
            best = near[np.argmin(np.where(np.isnan(size), np.inf, size))]
        reached.append(best)
        yield best


def _directions(n: int) -> np.ndarray:
    """Unit vectors: both in one dimension, random ones in more."""
    if n == 1:
        return np.array([[-1.0], [1.0]])
    draws = np.random.default_rng(2).normal(size=(32, n))
    return draws / np.linalg.norm(draws, axis=1)[:, None]


def _infinite_near(expression: Expression, place: _Place, steep: bool) -> bool:
    """Whether the integral diverges at a point, wherever the other variables are."""
    names, point, crossed = place
    directions = _directions(len(names))
    unit = 1 + np.abs(point).max()
    radii = unit * RADII[:, None] * (1 + BEYOND * np.arange(3))
    spheres = point + radii[..., None, None] * directions  # (radius, 3, direction, n)
    own = {name: spheres[..., i] for i, name in enumerate(names)}
    dimensions = 1 if crossed else len(names)
    with np.errstate(all="ignore"):
        return any(
            _grows(h, unit, dimensions, steep)
            for h in _around(expression, own, spheres.shape[:-1])
        )


def _around(
    expression: Expression, own: dict[str, np.ndarray], shape: tuple[int, ...]
) -> Iterator[np.ndarray]:
    """Values of a function on spheres in some of its variables, the others at a few
    random places.
    """
    others = [name for name in expression.variables if name not in own]
    for draws in np.random.default_rng(3).normal(size=(ELSEWHERE, len(others))):
        fixed = dict(zip(others, draws, strict=True))
        h = np.asarray(expression(**fixed, **own), dtype=float)
        yield np.broadcast_to(h, shape)
        if not others:
            return


def _grows(h: np.ndarray, unit: float, dimensions: int, steep: bool) -> bool:
    """Whether the integral over spheres grows with each that is smaller: of values
    (radius, three neighbours, direction).
    """
    if unit < NUMBERS_END and _often_missing(h):
        return True
    risen = np.diff(h, axis=1)
    known = np.ones(risen[:, 0].shape, dtype=bool)
    if steep:
        known = (np.abs(risen) > RESOLVED * np.abs(h[:, :2])).all(1)
        h = h[:, :2] * risen / (BEYOND * unit * RADII[:, None, None])
    # h passes zero where the rest of it is as large, and seems to grow from there;
    # differences know nothing of the rest
    pairs = [h[:, :2]] if steep else [h[:, :2], risen]
    return all(_each_grows(pair, known, dimensions) for pair in pairs)


def _each_grows(pair: np.ndarray, known: np.ndarray, dimensions: int) -> bool:
    """The same of values and their neighbours (radius, 2, direction), where known."""
    first, second = pair[:, 0], pair[:, 1]
    size = np.maximum(np.abs(first), np.abs(second))
    change = np.abs(first - second)
    known = known & np.isfinite(size) & (change > 0) & (change <= BEND * size)
    usable = known.mean(1) >= 0.5
    mean = np.array(
        [
            np.mean(x[k] ** 2) if k.any() else 0.0
            for x, k in zip(first, known, strict=True)
        ]
    )
    radius, mean = RADII[usable], mean[usable]
    if len(radius) < 3:
        return False
    growth = -np.diff(np.log(mean[-3:])) / np.diff(np.log(radius[-3:]))
    return bool((growth > 0.99 * dimensions).all())


def _often_missing(h: np.ndarray) -> bool:
    """Whether a function is no number on a part of the line, not in a point alone."""
    near = (RADII < 2e-3) & (RADII > 5e-6)  # further in, rounding may reach
    return bool((~np.isfinite(h[near])).mean() > 0.2)
