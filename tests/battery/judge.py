"""One case: the package's averages beside those by brute force, and whether the stated error holds.

    |package − witness|  ≤  stated + c s.e. + rounding          c = `LIMIT` of Student's law, for every entry

A first look at few points asks for a second one, with other points and many more of them, wherever it finds more than
`LOOK` standard errors; the second one decides. The margin is how much of the difference the witness leaves, in units of
the stated error: the statement holds where it is at most one.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from scipy import special

import twolayer as tl
from twolayer.numerics.errors import InputError

from .grammar import Point, Task
from .witness import NAMES, Means, Witness, witness

LOOK = 3.5
CHANCE = 1e-9
"""That a right average of a right witness is called wrong; a battery has some 10⁵ of them."""


def limit(freedom: float) -> float:
    """Standard errors that one entry of the second look exceeds with the chance `CHANCE`."""
    if np.isinf(freedom):
        return 2.0  # a change of order, which is a bound rather than a spread
    return float(-special.stdtrit(freedom, CHANCE / 2))


def _left(found: Any, seen: Witness, c: float) -> dict[str, np.ndarray]:
    """What neither the witness nor rounding explains of every entry."""
    rest = {}
    for name, value, error, rounding in zip(
        NAMES, seen.value, seen.error, seen.rounding, strict=True
    ):
        gap = abs(np.asarray(getattr(found, name)) - value)
        assert np.isfinite(value).all(), "the witness has no value"
        rest[name] = np.maximum(gap - c * error - rounding, 0.0)
        rest[name] = np.where(np.isfinite(gap), rest[name], np.inf)
    return rest


def _sizes(seen: Witness, point: Point) -> Means:
    """The size that each average can have by Cauchy–Schwarz."""
    gradient = float(np.sqrt(abs(seen.value.chi).max()))
    own = float(np.sqrt((point.A**2).sum(1) + (point.B**2).sum(1)).max())
    star = float(np.sqrt((point.L**2).sum(1)).max())
    risk = float(seen.value.excess_risk) + point.noise / 2
    sizes = (gradient * star, gradient * own, gradient**2, np.sqrt(2 * risk), risk)
    return Means(*(np.asarray(x + 1e-300) for x in sizes))


def judged(task: Task, point: Point) -> dict[str, Any]:
    """What a case found: outcome, entries, those outside, margins by name, and what everything took."""
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tl.moments(
                task.problem(point.noise),
                point.overlaps,
                loss=task.algorithm.mean_drive,
                averages=tl.Averages(engine=task.engine, points=2**task.log2_points),
            )
    except InputError as refused:
        seconds = round(time.process_time() - started, 3)
        return {"outcome": "refused", "why": str(refused), "seconds": seconds}
    seconds = round(time.process_time() - started, 3)
    started = time.process_time()
    verdict = compared(found, task, point)
    brute = round(time.process_time() - started, 3)
    return {
        **verdict,
        "engine": found.engine,
        "error": found.error,
        "seconds": seconds,
        "brute": brute,
    }


def compared(found: Any, task: Task, point: Point) -> dict[str, Any]:
    """Averages and their errors, as those of `twolayer.moments`, beside the witness."""
    with np.errstate(all="ignore"):
        seen = witness(task, point)
        looks = 1
        rest = _left(found, seen, LOOK)
        if seen.rule == "lattice" and any(
            (rest[x] > found.errors[x]).any() for x in NAMES
        ):
            seen = witness(task, point, more=1)
            looks = 2
        rest = _left(found, seen, limit(seen.freedom))
    sizes = _sizes(seen, point)
    outside, margins, beyond, resolution, told = 0, {}, {}, {}, {}
    for name, size, error in zip(NAMES, sizes, seen.error, strict=True):
        # what is not finite has no error that could be stated
        stated = np.nan_to_num(found.errors[name], nan=0.0, posinf=0.0)
        outside += int((rest[name] > stated).sum())
        margins[name] = float(np.max(rest[name]) / (stated + 1e-300))
        told[name] = float(stated / size)
        beyond[name] = float(np.max(rest[name]) / size)
        resolution[name] = float(np.max(error) / size)
    return {
        "outcome": "judged",
        "witness": seen.rule,
        "looks": looks,
        "entries": int(sum(np.size(v) for v in seen.value)),
        "outside": outside,
        "margins": margins,
        "beyond": beyond,
        "resolution": resolution,
        "stated": told,
    }
