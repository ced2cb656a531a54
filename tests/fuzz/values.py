"""Values that no argument expects, and some that look as if they might do."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
from collections.abc import Callable
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

import twolayer as tl


class Unshown:
    """An object that cannot even be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


def _generator() -> Any:
    yield from (1, 2)


NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 2**31, 2**32, 2**53, 2**63, 2**64, 10**18, 10**30, 10**400, -(10**30), 0.0, -0.0, 0.5, 1.5, -0.5,
    1e-300, 1e-12, 1e12, 1e300, -1e300, float("nan"), float("inf"), -float("inf"), True, False, 1j,
    fractions.Fraction(1, 3), decimal.Decimal("0.1"), decimal.Decimal("sNaN"),
    np.int64(3), np.int8(-1), np.uint64(2**63), np.float32(0.5), np.float64("nan"), np.bool_(True), np.longdouble(0.5),
    np.datetime64("2020-01-01"), np.complex128(1j),
)  # fmt: skip
TEXTS: tuple[Any, ...] = (
    "", " ", "x", "z", "z1", "z9", "He2(z1)", "He400(z1)", "relu", "Relu", "erf", "square", "squared", "correlation",
    "free", "projected", "random", "sphere", "gaussian", "typical", "uniform", "log", "auto", "exact", "time", "risk",
    "0.1/d", "d**d", "1e400", "nan", "inf", "1/0", "d", "-1", "3", "ode", "chain", "processes:0", "processes:x", "dask",
    "local", "loss", "student(3)", "student(x)", "huber(0)", "clip(-1)", "adam(", "cosine(1)", "\x00", "é\n", "🙂",
    "__import__('os')", "(" * 50, "z1" * 4000, "a" * 100_000, "../x.nc", "/", "x.nc", "x.zarr", b"z1", bytearray(3),
    np.str_("relu"), pathlib.Path("nowhere/x.nc"),
)  # fmt: skip
MAKERS: tuple[Callable[[], Any], ...] = (
    lambda: None, list, dict, tuple, set, object, Unshown, _generator, lambda: [1], lambda: [1, 2, 3], lambda: [[1.0]],
    lambda: [[1.0, 0.0], [0.0, 1.0]], lambda: [[1.0], [2.0, 3.0]], lambda: [None], lambda: ["a"], lambda: [[[[1.0]]]],
    lambda: (1, 2), lambda: {"a": 1}, lambda: {1: 2}, lambda: {"algorithm.lr": [0.1]}, lambda: {"run.dim": []},
    lambda: {"target": "z1"}, lambda: {"teacher": "erf", "k": "x"}, lambda: range(3), lambda: {1, 2},
    lambda: np.array(3), lambda: np.array(0.5), lambda: np.array([]), lambda: np.array([[np.nan]]),
    lambda: np.array(["x"]), lambda: np.array([None]), lambda: np.eye(2), lambda: -np.eye(1), lambda: np.ones((1, 1)),
    lambda: np.zeros((0, 3)), lambda: np.full((1, 1), 1e200), lambda: np.array([1, 2], dtype="datetime64[s]"),
    lambda: jnp.int32(2), lambda: jnp.array(0.5), lambda: jnp.array([1.0, 2.0]), lambda: jnp.array(True),
    lambda: int, lambda: len, lambda: lambda: None, lambda: lambda z: z, lambda: lambda z: z / 0,
    lambda: lambda *a: np.sin(a[0]), lambda: tl, lambda: datetime.timedelta(1), lambda: slice(3), lambda: ...,
    lambda: NotImplemented, lambda: ValueError("x"), xr.Dataset, lambda: xr.Dataset({"M": 1}, attrs={"schema": "x"}),
    lambda: xr.DataArray([1.0]), xr.DataTree, lambda: tl.d, lambda: tl.d**1e9, lambda: 1 / tl.d, lambda: tl.ODE(),
    lambda: tl.Chain(10), lambda: tl.ODE, lambda: tl.Problem, lambda: tl.Problem("z1*z2", "relu", width=2),
    lambda: tl.Problem("z1**2", "square"), lambda: tl.SGD(0.1), lambda: tl.Overlaps([[2.0]], [[0.1]]),
    lambda: tl.Overlaps(np.ones((3, 1, 1)), np.zeros((3, 1, 1))), lambda: tl.Until("risk", 0.1),
    lambda: tl.schedules.cosine(1.0), lambda: tl.rules.clip(0.5), lambda: tl.Teacher("erf", 2),
    lambda: tl.mean_field.Particles([[0.1]], [0.5]), lambda: tl.Stage(tl.SGD(0.1), steps=3),
)  # fmt: skip


def unexpected(rnd: Random) -> Any:
    """Any of them."""
    kind = rnd.randrange(3)
    if kind == 0:
        return rnd.choice(NUMBERS)
    return rnd.choice(TEXTS) if kind == 1 else rnd.choice(MAKERS)()
