"""Shared helpers: random overlaps with a given shape, and double precision for tests of inner functions."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

# two workers share two cores: threads inside XLA would only wait for each other
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

# on a busy machine runs take longer than the lines of scripts wait for
os.environ.setdefault("TWOLAYER_PROGRESS", "off")

import jax
import matplotlib
import numpy as np
import pytest
from cost import read_share, share_of
from jaxtyping import install_import_hook

# shapes in the types of the rooms of mathematics are checked whenever a function is called or traced
with install_import_hook(
    ("twolayer.equations", "twolayer.gaussian", "twolayer.pure"), "beartype.beartype"
):
    pass  # loads all of them

from twolayer.task.overlaps import Overlaps

matplotlib.use("Agg")
gc.set_threshold(
    200_000, 20, 100
)  # traces are many small objects that live long: a third of the time went here


OURS = (
    "AccuracyWarning",
    "CacheWarning",
    "CostWarning",
    "DivergenceWarning",
    "HeavyTailWarning",
    "SweepWarning",
    "WitnessWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    """A warning of the package fails the test that did not ask for it, wherever it points to."""
    for name in OURS:
        config.addinivalue_line("filterwarnings", f"error::twolayer.errors.{name}")


def costly(item: pytest.Item) -> bool:
    """Whether a test runs in shares: those of some seconds and those of minutes."""
    return any(item.get_closest_marker(mark) for mark in ("slow", "long"))


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out the costly tests of other shares, and refuse a test that would run twice."""
    both = [
        item.nodeid
        for item in items
        if {"slow", "long"} <= {mark.name for mark in item.iter_markers()}
    ]
    if both:
        raise pytest.UsageError(
            f"these tests are marked both slow and long: {', '.join(both)}"
        )
    if config.getoption("--share") is None:
        return
    share, shares = read_share(config.getoption("--share"))
    others = [
        item
        for item in items
        if costly(item) and share_of(item.nodeid, shares) != share
    ]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in set(others)]


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
