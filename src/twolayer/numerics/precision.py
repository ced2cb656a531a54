"""Double precision inside, whatever the caller's JAX configuration.

Public functions run under `float64`; the global setting of the user's session is left
as it was. JAX is imported at the first call, so that modules of descriptions load
without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from twolayer.numerics.compilation import keep

__all__ = ["float64"]

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def _double() -> Iterator[None]:
    import jax

    keep()
    with jax.enable_x64(True):
        yield


def float64(function: Callable[P, R]) -> Callable[P, R]:
    """Run the function with 64-bit JAX types enabled."""

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        # not as a decorator of contextlib, whose frame would end the search for the
        # line of the user that a warning names
        with _double():
            return function(*args, **options)

    return call
