"""Reused samples: gradient descent on a fixed set in Vectors, and what is refused."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas

import twolayer as tl
from twolayer import d
from twolayer.equations import samples as inputs
from twolayer.equations.kernel import kernel_of
from twolayer.equations.orthogonal import embed
from twolayer.equations.step import form_of
from twolayer.gaussian.nodes import target_frame
from twolayer.numerics import random
from twolayer.running.solve import make_task

PROBLEM = tl.Problem("z1*z2", "square", width=2, second_layer=[1.0, -1.5], noise=0.2)
START = tl.Overlaps([[1.0, 0.2], [0.2, 1.0]], [[0.3, 0.0], [0.0, -0.2]])
DIM = 24


def test_the_first_pass_through_a_set_is_online_sgd_and_the_second_is_not() -> None:
    """Bit for bit: the same samples under the same numbers."""
    again = tl.SGD(lr=0.1, batch=d, dataset=2 * d, geometry="spherical")
    online, reused = (
        tl.solve(PROBLEM, sgd, tl.Vectors(DIM), START, steps=3, save=3, seeds=2)
        for sgd in (again.replace(dataset=None), again)
    )
    for name in ("M", "risk"):
        np.testing.assert_array_equal(reused[name][:, :3], online[name][:, :3])
        assert not np.isclose(reused[name][:, 3], online[name][:, 3]).any()
    assert "train_risk" not in online and np.isfinite(reused.train_risk).all()


def samples(spec: inputs.Spec, seed: int, run: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The fixed set of a run, as the documented functions of its number; and its keys."""
    roles = (random.Role.INPUTS, random.Role.LABELS, random.Role.BATCHES)
    keys = np.stack([random.stream(seed, role, run) for role in roles])
    parts = [inputs.draw_again(spec, keys, i) for i in range(spec.visits)]
    z = np.concatenate([np.asarray(inputs.inputs(spec, batch))[np.asarray(inside)] for batch, inside in parts])
    noise = np.concatenate([np.asarray(batch.noise)[np.asarray(inside)] for batch, inside in parts])
    return z, noise, keys


def plain_descent(
    z: np.ndarray, noise: np.ndarray, batches: list[np.ndarray], sgd: tl.SGD, W: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient descent by the book, in NumPy: W and the training risk after the given batches."""
    a, p = np.array(PROBLEM.a()), PROBLEM.p
    y = z[:, 0] * z[:, 1] + np.sqrt(PROBLEM.noise) * noise
    lr, before = sgd.lr.coefficient, W

    def output(W: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray((x @ W.T) ** 2 @ a / p)

    risks = [np.mean((y - output(W, z)) ** 2) / 2]
    for batch in batches:
        x, error = z[batch], y[batch] - output(W, z[batch])
        slope = 2 * x @ W.T
        gradient = (a / p * slope * error[:, None]).T @ x / len(batch)
        if sgd.geometry == "spherical":
            gradient -= (gradient * W).sum(1, keepdims=True) / (W * W).sum(1, keepdims=True) * W
        step = W + lr * gradient - lr * sgd.weight_decay * W + sgd.momentum * (W - before)
        before, W = W, step if sgd.geometry == "free" else step / np.linalg.norm(step, axis=1, keepdims=True)
        risks.append(np.mean((y - output(W, z)) ** 2) / 2)
    return W, np.array(risks)


@pytest.mark.parametrize(
    ("sgd", "at_once"),
    [
        (tl.SGD(lr=0.1, batch=3 * d, dataset=3 * d, momentum=0.4, weight_decay=0.1), 250),
        (tl.SGD(lr=0.1, batch=d, dataset=2 * d, geometry="spherical"), 2**18),
        (tl.SGD(lr=0.1, batch=d, dataset=2 * d, sampling="replacement", momentum=0.4), 250),
    ],
    ids=("full batch", "in sequence", "with replacement"),
)
@pytest.mark.usefixtures("x64")
def test_it_is_gradient_descent_on_the_set(sgd: tl.SGD, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same samples in plain NumPy, visited in one chunk or in several."""
    monkeypatch.setattr(inputs, "INPUTS_AT_ONCE", at_once)
    dim, steps, seed, run = DIM, 5, 7, 1
    result = tl.solve(PROBLEM, sgd, tl.Vectors(dim), START, steps=steps, save=steps, seeds=2, seed=seed)
    n, size = sgd.batch_at(dim), sgd.dataset_at(dim)
    spec = inputs.Spec(kernel_of(PROBLEM, sgd), form_of(sgd), dim, n, None, size, sgd.sampling)
    z, noise, keys = samples(spec, seed, run)
    assert (
        z.shape == (size, dim)
        and abs(z.mean()) < sigmas(2) / np.sqrt(z.size)
        and abs(z.var() - 1) < sigmas(2) * np.sqrt(2 / z.size)
    )
    if sgd.sampling == "sequence":
        batches = [np.arange(t * n, (t + 1) * n) % size for t in range(steps)]
    else:
        words = [random.threefry(tuple(keys[2]), jnp.uint32(t), jnp.arange(n, dtype="uint32"))[0] for t in range(steps)]
        batches = [np.asarray(word).astype(object) * size // 2**32 for word in words]
        batches = [batch.astype(int) for batch in batches]
        assert max(np.bincount(batch).max() for batch in batches) > 1
    W = np.zeros((2, dim))
    W[:, :2], W[:, 2:4] = embed(START.Q, START.M, target_frame(START.P)[1], 2)
    W, risks = plain_descent(z, noise, batches, sgd, W)
    # inputs are drawn in single precision, which compiled code rounds in its own way
    np.testing.assert_allclose(result.M.values[run, -1], W[:, :2], atol=3e-6)
    np.testing.assert_allclose(result.Q.values[run, -1], W @ W.T, atol=3e-6)
    np.testing.assert_allclose(result.train_risk.values[run], risks, rtol=3e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(batch=3 * d, dataset=2 * d), "`batch` must be at most the dataset"),
        (dict(batch=10, dataset=5), "`batch` must be at most the dataset"),
        (dict(batch=2 * d, dataset=3 * d), "a whole number of batches"),
        (dict(batch=d, dataset=0 * d), "`dataset` must be a positive"),
        (dict(batch=-1 * d, dataset=d), "`batch` must be a positive"),
        (dict(batch=d, sampling="replacement"), "`sampling` must be left out"),
        (dict(batch=d, dataset=d, sampling="replacment"), "did you mean 'replacement'?"),
    ],
)
def test_sets_that_make_no_sense_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(tl.InputError) as no:
        tl.SGD(lr=0.1, **arguments)
    assert words in str(no.value) and str(no.value).count("\n") == 0


def test_laws_of_different_powers_are_checked_at_their_dimension() -> None:
    sgd = tl.SGD(lr=0.1, batch=64, dataset=d)
    assert sgd.dataset_at(128) == 128
    with pytest.raises(tl.InputError, match="are 64 and 100 at dim = 100"):
        sgd.dataset_at(100)
    with pytest.raises(tl.InputError, match="at most the dataset"):
        sgd.dataset_at(40)
    assert tl.SGD(lr=0.1, batch=64, dataset=d, sampling="replacement").dataset_at(100) == 100


def test_polynomials_of_high_degree_are_warned_about() -> None:
    start, fixed = tl.Overlaps([[1.0]], [[0.1]]), tl.SGD(lr=1e-3, batch=10, dataset=10)
    with pytest.warns(tl.errors.HeavyTailWarning, match="polynomial of degree 3"):
        make_task(tl.Problem("z1", "He3"), fixed, tl.Vectors(10), start, steps=1)
    make_task(tl.Problem("z1", "He2"), fixed, tl.Vectors(10), start, steps=1)
    make_task(tl.Problem("z1", "He3"), fixed.replace(dataset=None), tl.Vectors(10), start, steps=1)
