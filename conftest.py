"""Compiled code is forgotten before a process that keeps all of it runs out of memory
maps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from twolayer.numerics import compilation

# half of the time of the tests goes into compiling what an earlier run has compiled;
# as for users of the package, this has to be said before anything imports JAX
compilation.expect()

MAPS = Path("/proc/self/maps")
MANY = (
    20_000  # each executable holds several maps, of which a process on Linux has 65 530
)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code() -> Iterator[None]:
    """After each module, if there is much of it."""
    yield
    if "jax" in sys.modules and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        sys.modules["jax"].clear_caches()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Figures and long tests take minutes in all: what there is besides the usual
    choice.
    """
    parser.addoption(
        "--every-figure",
        action="store_true",
        help="draw the quick version of every figure of the gallery",
    )
    parser.addoption(
        "--share",
        metavar="k/n",
        help="of the tests marked slow or long only those of share k of n",
    )
