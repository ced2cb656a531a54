"""The pinned generator and the Wishart factors drawn from it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from scipy import stats
from scipy.special import gammainc, gammaincc, ndtr, ndtri

from twolayer.numerics import random
from twolayer.numerics.wishart import (
    DIRECT,
    REACH,
    GramFactor,
    chi_square_quantile,
    draw_factor,
)

pytestmark = pytest.mark.usefixtures("x64")


def words(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, 2**32, n, dtype=np.uint32) for _ in range(2))  # type: ignore[return-value]


def test_threefry_is_the_published_function() -> None:
    """Known answers of Threefry-2x32-20 from the Random123 distribution."""
    for counter, key, expected in [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]:
        with np.errstate(over="ignore"):
            got = random.threefry(
                tuple(map(np.uint32, key)), *(np.array([c], np.uint32) for c in counter)
            )
        assert [int(w[0]) for w in got] == list(expected)


def test_threefry_is_what_jax_uses() -> None:
    key = jnp.asarray([3, 4], jnp.uint32)
    index = jnp.arange(10, dtype=jnp.uint32)
    ours = jnp.concatenate(random.threefry(key, index[:5], index[5:]))
    theirs = jax.random.bits(
        jax.random.wrap_key_data(key, impl="threefry2x32"), (10,), "uint32"
    )
    with jax.threefry_partitionable(False):
        theirs = jax.random.bits(
            jax.random.wrap_key_data(key, impl="threefry2x32"), (10,), "uint32"
        )
    np.testing.assert_array_equal(ours, theirs)


def test_normals_are_quantiles() -> None:
    high, low = words(200_000, 0)
    high[:2000] = np.arange(2000)  # the far tail
    x = np.asarray(random.quantile(jnp.asarray(high), jnp.asarray(low)))
    word = (high.astype(np.uint64) << np.uint64(20)) | (low >> np.uint32(12)).astype(
        np.uint64
    )
    u = (word.astype(float) + 0.5) / 2.0**52
    exact = np.where(u < 0.5, ndtri(u), -ndtri(1 - u))
    assert np.abs(x - exact).max() < 2e-12
    flipped = random.quantile(~jnp.asarray(high), ~jnp.asarray(low))
    np.testing.assert_array_equal(x, -np.asarray(flipped))


def test_single_precision_normals_are_quantiles() -> None:
    word, _ = words(200_000, 1)
    word[:2000] = np.arange(2000)
    x = np.asarray(random.quantile_32(jnp.asarray(word)), dtype=float)
    tail = ((word & np.uint32(0x7FFFFFFF)).astype(float) + 0.5) / 2.0**32
    exact = np.where(word >> np.uint32(31), 1.0, -1.0) * ndtri(tail)
    assert np.abs(x - exact).max() < 2e-6


@pytest.mark.parametrize("single", [False, True])
def test_distribution_and_independence(single: bool) -> None:
    n = 400_000
    index = jnp.arange(n, dtype=jnp.uint32)
    keys = [
        random.stream(s, r)
        for s, r in (
            (1, random.Role.FIELDS),
            (2, random.Role.FIELDS),
            (1, random.Role.INPUTS),
        )
    ]
    draw = (
        (lambda k: random.normal_32(k, 5, index)[0])
        if single
        else (lambda k: random.normal(k, 5, index))
    )
    samples = [np.asarray(draw(jnp.asarray(k)), dtype=float) for k in keys]
    for x in samples:
        assert stats.kstest(x, "norm").pvalue > 1e-5
        for power, moment in ((1, 0.0), (2, 1.0), (4, 3.0), (6, 15.0)):
            spread = np.std(x**power) / np.sqrt(n)
            assert abs(np.mean(x**power) - moment) < sigmas(4) * spread
        assert abs(np.mean(x[1:] * x[:-1])) * np.sqrt(n) < sigmas(3)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.mean(samples[i] * samples[j])) * np.sqrt(n) < sigmas(3)


def test_numbers_depend_on_their_counter_only() -> None:
    key = jnp.asarray(random.stream(7, random.Role.FIELDS, 3))
    whole = random.normal(
        key,
        jnp.arange(4, dtype=jnp.uint32)[:, None],
        jnp.arange(1000, dtype=jnp.uint32),
    )
    part = random.normal(key, np.uint32(2), jnp.arange(17, 29, dtype=jnp.uint32))
    np.testing.assert_array_equal(whole[2, 17:29], part)
    many = random.stream(7, random.Role.FIELDS, np.arange(5))
    np.testing.assert_array_equal(many[3], random.stream(7, random.Role.FIELDS, 3))


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "0"])
def test_bad_seed(seed: object) -> None:
    with pytest.raises(ValueError, match="Argument `seed` must be an integer from 0"):
        random.stream(seed, random.Role.FIELDS)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [DIRECT, 65, 100, 999, 9_999, 10_001, 10**6])
def test_chi_square_draws_are_exact(n: int) -> None:
    """The distribution function of the draws is off by less than 1e-10: 10⁹ draws resolve 3e-5."""
    factor = GramFactor(1, n + 1)
    x = np.linspace(-8.2, 8.2, 4001)
    T = np.asarray(factor.build(jnp.asarray(x)[:, None], jnp.asarray(factor.table())))[
        :, 0, 0
    ]
    square = T**2
    # compare the smaller of the two tails, where digits are not lost
    ours = np.where(
        x < 0, gammainc((n + 1) / 2, square / 2), gammaincc((n + 1) / 2, square / 2)
    )
    assert np.abs(ours - ndtr(-np.abs(x))).max() < 1e-10
    assert (np.diff(T) > 0).all()
    assert chi_square_quantile(n, np.array([REACH]))[0] > n


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (3, 2), (3, 40), (3, 5000)])
def test_gram_matrices_have_the_wishart_law(rows: int, columns: int) -> None:
    n = 20_000
    T = draw_factor(0, random.Role.START, rows, columns, np.arange(n))
    G = T @ T.swapaxes(1, 2)
    rng = np.random.default_rng(0)
    if columns <= 100:
        X = rng.normal(size=(n, rows, columns))
        other = X @ X.swapaxes(1, 2)
        for i in range(rows):
            for j in range(i + 1):
                assert stats.ks_2samp(G[:, i, j], other[:, i, j]).pvalue > 1e-5
    mean = G.mean(0)
    np.testing.assert_allclose(
        mean, columns * np.eye(rows), atol=5 * np.sqrt(2 * columns / n)
    )
    variance = columns * (1 + np.eye(rows))
    np.testing.assert_allclose(
        G.var(0) / variance, 1, atol=5 * np.sqrt(3 / n) + 12 / columns / np.sqrt(n)
    )


def test_a_wrong_number_of_degrees_of_freedom_is_seen() -> None:
    n = 20_000
    G = draw_factor(0, random.Role.START, 1, 40, np.arange(n))[:, 0, 0] ** 2
    assert stats.kstest(G, "chi2", args=(40,)).pvalue > 1e-5
    assert stats.kstest(G, "chi2", args=(41,)).pvalue < 1e-20
