"""How accurate Gaussian averages shall be, as one value for every method.

    tl.ODE(tl.Averages(accuracy=1e-5))
    tl.moments(problem, start, averages=tl.Averages("sobol", points=2**14))

Which of the knobs a method has depends on how it averages: one that never samples has
no use for points. Giving it some is an error, not a wish that is silently dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import (
    InputError,
    choice,
    enumerated,
    expect,
    finite_number,
    positive_integer,
    require,
)

__all__ = [
    "ACCURACY",
    "ENGINES",
    "USUAL",
    "Averages",
    "keep_averages",
    "read_averages",
    "with_averages",
]

ENGINES = ("auto", "quadrature", "sobol")
ACCURACY = 1e-4  # of most methods
KNOBS = ("engine", "accuracy", "effort", "points")
FEWEST = 16
MOST = 2**30


@dataclass(frozen=True)
class Averages:
    """How Gaussian averages are taken, how accurate they shall be, and what that may
    cost.

    Parameters
    ----------
    engine : str
        ``"auto"``: closed forms where they exist, else quadrature, else Sobol points;
        or ``"quadrature"`` or ``"sobol"`` alone.
    accuracy : float, optional
        The error that is aimed at; by default that of the method, 1e-4 for most. Where
        averages are sampled it is that of the risk, relative to the risk of a student
        that says nothing; quadratures are refined until every average is a hundred
        times as accurate; closed forms are exact. `SDE` aims at this relative error of
        the variances of its noise (0.02), `DMFT` at this standard error of M and Q
        (2e-3).
    effort : float
        How much work sampled averages may cost; 1 is about twenty seconds of one core.
        Where it does not suffice for the accuracy, an `AccuracyWarning` tells the error
        that was reached.
    points : int, optional
        Sobol points, a power of two, instead of as many as the accuracy asks for;
        `DMFT` begins with so many paths.

    Examples
    --------
    >>> Averages("sobol", points=2**14)
    Averages(engine='sobol', points=16384)
    >>> Averages(points=1000)
    Traceback (most recent call last):
    twolayer.InputError: Argument `points` must be a power of two from 16 to 1073741824,
    but got 1000.
    """

    engine: str = "auto"
    accuracy: float | None = None
    effort: float = 1.0
    points: int | None = None

    def __post_init__(self) -> None:
        choice("engine", self.engine, ENGINES)
        if self.accuracy is not None:
            finite_number(
                "accuracy",
                self.accuracy,
                minimum=1e-10,
                accepted="a number from 1e-10 on",
            )
        finite_number("effort", self.effort, minimum=0.0, accepted="a number ≥ 0")
        if self.points is not None:
            accepted = f"a power of two from {FEWEST} to {MOST}"
            points = positive_integer("points", self.points)
            power = points & (points - 1) == 0
            require(power and FEWEST <= points <= MOST, "points", points, accepted)
            object.__setattr__(self, "points", points)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={x!r}" for name, x in self.describe().items())
        return f"Averages({given})"

    @property
    def log2_points(self) -> int | None:
        """The points as a power of two, as engines count them."""
        return None if self.points is None else self.points.bit_length() - 1

    def describe(self) -> Json:
        """What differs from the defaults, as plain values."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        }


USUAL = Averages()
"""What methods do unless they are asked for more."""


def keep_averages(method: Any, knobs: tuple[str, ...] = KNOBS) -> None:
    """Check the ``averages`` of a method, of which it has these ``knobs``; a table of a
    file becomes `Averages`.
    """
    object.__setattr__(
        method, "averages", read_averages(method.averages, type(method).__name__, knobs)
    )


def read_averages(
    given: object, owner: str, knobs: tuple[str, ...] = KNOBS
) -> Averages:
    """The `Averages` that were ``given``, as such or as a table, to an ``owner`` who
    has some of the ``knobs``.

    >>> read_averages({"effort": 2.0}, "SDE", ("accuracy",))
    Traceback (most recent call last):
    twolayer.InputError: Argument `averages` of SDE has no `effort`; it has 'accuracy'.
    """
    if isinstance(given, Mapping):
        for word in given:
            choice("averages", word, KNOBS)
        given = Averages(**given)
    averages = expect(Averages, "averages", given)
    for word in averages.describe():
        if word not in knobs:
            raise InputError(
                f"Argument `averages` of {owner} has no `{word}`; it has"
                f" {enumerated(knobs)}."
            )
    return averages


def with_averages(word: str, knobs: Json) -> Json:
    """Knobs of a method by its ``word``, as results of version 0.1 before `Averages`
    describe them, by the names of today.

    >>> with_averages("ode", {"accuracy": 1e-3, "log2_points": 12, "rtol": None})
    {'rtol': None, 'averages': {'accuracy': 0.001, 'points': 4096}}
    """
    if word not in _DEFAULTS or "averages" in knobs:
        return knobs
    rest = dict(knobs)
    found: Json = {}
    for old, default in _DEFAULTS[word].items():
        value = rest.pop(old, default)
        if value == default:
            continue
        if old == "log2_points":
            found["points"] = 2**value
        elif old == "tolerance":
            found["accuracy"] = value * _TOLERANCE.get(word, 1.0)
        else:
            found[old] = value
    return {**rest, "averages": found}


_REFINED: Json = {
    "engine": "auto",
    "accuracy": 1e-4,
    "effort": 1.0,
    "log2_points": None,
}
_DEFAULTS: dict[str, Json] = {
    "ode": _REFINED,
    "map": _REFINED,
    "giantsteps": _REFINED,
    "population": {"engine": "auto", "tolerance": 1e-6, "log2_points": 18},
    "meanfield": {"tolerance": 1e-6, "log2_points": 14},
    "sde": {"tolerance": 0.02},
    "dmft": {"tolerance": 2e-3, "log2_points": 14},
}
"""The knobs for averages that methods had, with the defaults of then."""

_TOLERANCE = {"population": 100.0, "meanfield": 100.0}
"""By how much an accuracy is larger than the error of an average that it allows."""
