"""Shared helpers: random overlaps with a given shape, and double precision for tests of inner functions."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import matplotlib
import numpy as np
import pytest

from twolayer.task.overlaps import Overlaps

matplotlib.use("Agg")


@pytest.fixture
def x64() -> Iterator[None]:
    """Public functions switch to double precision themselves; inner ones are tested inside this."""
    with jax.enable_x64(True):
        yield


def random_overlaps(seed: int, p: int, k: int, P: np.ndarray | None = None, size: float = 1.2) -> Overlaps:
    """Overlaps of random vectors, with a random second layer."""
    rng = np.random.default_rng(seed)
    d = p + k + 3
    L = np.eye(k) if P is None else np.linalg.cholesky(P)
    W_star = L @ np.linalg.qr(rng.normal(size=(d, k)))[0].T
    W = rng.normal(size=(p, d)) * size / np.sqrt(d)
    return Overlaps.from_weights(W, W_star, a=rng.normal(size=p) + 1)
