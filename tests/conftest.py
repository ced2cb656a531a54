"""Shared helpers: random overlaps with a given shape, and double precision for tests of inner functions."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

# two workers share two cores: threads inside XLA would only wait for each other
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import jax
import matplotlib
import numpy as np
import pytest
from jaxtyping import install_import_hook

# shapes in the types of the rooms of mathematics are checked whenever a function is called or traced
with install_import_hook(
    ("twolayer.equations", "twolayer.gaussian", "twolayer.pure"), "beartype.beartype"
):
    pass  # loads all of them

from twolayer.task.overlaps import Overlaps

LISTED = {
    mark: (Path(__file__).parent / f"{mark}.txt")
    .read_text(encoding="utf-8")
    .split("\n")[:-1]
    for mark in ("long", "slow")
}
"""Tests that take more than some seconds (slow) or more than a quarter of a minute (long), and their like."""

matplotlib.use("Agg")
gc.set_threshold(
    200_000, 20, 100
)  # traces are many small objects that live long: a third of the time went here


OURS = (
    "AccuracyWarning",
    "CostWarning",
    "DivergenceWarning",
    "HeavyTailWarning",
    "SweepWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    """A warning of the package fails the test that did not ask for it, wherever it points to."""
    for name in OURS:
        config.addinivalue_line("filterwarnings", f"error::twolayer.errors.{name}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what long.txt and slow.txt list, whole files or tests by the beginning of their names."""
    begins = {
        mark: tuple(f"tests/{line}" for line in lines) for mark, lines in LISTED.items()
    }
    for item in items:
        mark = next(
            (mark for mark in begins if item.nodeid.startswith(begins[mark])), None
        )
        if mark is not None:
            item.add_marker(mark)


@pytest.fixture
def x64() -> Iterator[None]:
    """Public functions switch to double precision themselves; inner ones are tested inside this."""
    with jax.enable_x64(True):
        yield


def random_overlaps(
    seed: int, p: int, k: int, P: np.ndarray | None = None, size: float = 1.2
) -> Overlaps:
    """Overlaps of random vectors, with a random second layer."""
    rng = np.random.default_rng(seed)
    d = p + k + 3
    L = np.eye(k) if P is None else np.linalg.cholesky(P)
    W_star = L @ np.linalg.qr(rng.normal(size=(d, k)))[0].T
    W = rng.normal(size=(p, d)) * size / np.sqrt(d)
    return Overlaps.from_weights(W, W_star, a=rng.normal(size=p) + 1)
