"""Reused samples: gradient descent on a fixed set in Vectors, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from cost import sized
from scipy import stats

import twolayer as tl
from twolayer import d
from twolayer.equations import sample_source as inputs
from twolayer.equations.increment_kernel import kernel_of
from twolayer.equations.optimiser_step import form_of
from twolayer.equations.orthogonal import embed
from twolayer.gaussian.nodes import target_frame
from twolayer.numerics import random
from twolayer.numerics.shuffle import shuffled
from twolayer.running.solve import make_task

PROBLEM = tl.Problem("z1*z2", "square", width=2, second_layer=[1.0, -1.5], noise=0.2)
START = tl.Overlaps([[1.0, 0.2], [0.2, 1.0]], [[0.3, 0.0], [0.0, -0.2]])
DIM = 24


@pytest.mark.long
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


def samples(spec: inputs.Spec, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The fixed set of a run, as the documented functions of its number."""
    parts = [inputs.draw_again(spec, keys, i, 0) for i in range(spec.visits)]
    z = np.concatenate(
        [
            np.asarray(inputs.inputs(spec, batch))[np.asarray(inside)]
            for batch, inside in parts
        ]
    )
    noise = np.concatenate(
        [np.asarray(batch.noise)[np.asarray(inside)] for batch, inside in parts]
    )
    return z, noise


def chosen(
    sgd: tl.SGD, n: int, size: int, keys: np.ndarray, steps: int
) -> list[np.ndarray]:
    """Numbers of the samples in the batch of every step."""
    key, parts, found = tuple(keys[2]), size // n, []
    for t in range(steps):
        b = t // sgd.repeat
        if sgd.dataset is None or sgd.sampling == "sequence":
            found.append(np.arange(b * n, (b + 1) * n) % size)
        elif sgd.sampling == "replacement":
            words = np.asarray(
                random.threefry(key, jnp.uint32(b), jnp.arange(n, dtype="uint32"))[0]
            )
            found.append((words.astype(object) * size // 2**32).astype(int))
        else:
            order = np.asarray(
                shuffled(
                    key,
                    b if sgd.sampling == "subset" else b // parts,
                    np.arange(size),
                    size,
                )
            )
            assert sorted(order) == list(range(size))
            found.append(
                order[:n]
                if sgd.sampling == "subset"
                else order[b % parts * n : (b % parts + 1) * n]
            )
    return found


class Descent(NamedTuple):
    """W and a, and their averages, after the last step; training risks of both at every step."""

    W: np.ndarray
    a: np.ndarray
    W_mean: np.ndarray
    a_mean: np.ndarray
    risks: np.ndarray
    risks_mean: np.ndarray


def plain_descent(
    z: np.ndarray,
    noise: np.ndarray,
    batches: list[np.ndarray],
    sgd: tl.SGD,
    W: np.ndarray,
) -> Descent:
    """Gradient descent by the book, in NumPy."""
    a, p = np.array(PROBLEM.a(), float), PROBLEM.p
    y = z[:, 0] * z[:, 1] + np.sqrt(PROBLEM.noise) * noise
    lr, before = sgd.lr.coefficient, (W, a)
    second = lr if sgd.second_lr is None else sgd.second_lr.coefficient
    every = [(W, a)]

    def output(W: np.ndarray, a: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray((x @ W.T) ** 2 @ a / p)

    def risk(W: np.ndarray, a: np.ndarray, seen: np.ndarray) -> float:
        return float(np.mean((y[seen] - output(W, a, z[seen])) ** 2) / 2)

    def mean(each: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        if sgd.average == "uniform":
            return np.mean([W for W, _ in each], axis=0), np.mean(
                [a for _, a in each], axis=0
            )
        found = each[0]
        for x in each[1:]:
            w = float(sgd.average or 0.0)
            found = tuple(
                (1 - w) * old + w * new for old, new in zip(found, x, strict=True)
            )
        return found

    own = [
        batches[max(t - 1, 0)] if sgd.dataset is None else np.arange(len(z))
        for t in range(len(batches) + 1)
    ]
    for batch in batches:
        x, error = z[batch], y[batch] - output(W, a, z[batch])
        gradient = (a / p * 2 * (x @ W.T) * error[:, None]).T @ x / len(batch)
        if sgd.geometry == "spherical":
            gradient -= (
                (gradient * W).sum(1, keepdims=True) / (W * W).sum(1, keepdims=True) * W
            )
        step = (
            W
            + lr * gradient
            - lr * sgd.weight_decay * W
            + sgd.momentum * (W - before[0])
        )
        step = (
            step
            if sgd.geometry == "free"
            else step / np.linalg.norm(step, axis=1, keepdims=True)
        )
        layer = (
            a
            + second / p * np.mean((x @ W.T) ** 2 * error[:, None], axis=0)
            + sgd.momentum * (a - before[1])
        )
        before = W, a
        W, a = (
            step if sgd.train_first_layer else W,
            layer if sgd.train_second_layer else a,
        )
        every.append((W, a))
    risks = [risk(*x, seen) for x, seen in zip(every, own, strict=True)]
    means = [mean(every[: t + 1]) for t in range(len(every))]
    risks_mean = [risk(*x, seen) for x, seen in zip(means, own, strict=True)]
    return Descent(W, a, *means[-1], np.array(risks), np.array(risks_mean))


PATTERNS = {
    "full batch": (tl.SGD(lr=0.1, batch=3 * d, dataset=3 * d, momentum=0.4, weight_decay=0.1), 250),
    "in sequence": (tl.SGD(lr=0.1, batch=d, dataset=2 * d, geometry="spherical", average=0.3), 2**18),
    "with replacement": (tl.SGD(lr=0.1, batch=d, dataset=2 * d, sampling="replacement", momentum=0.4), 250),
    "reshuffled": (tl.SGD(lr=0.1, batch=d, dataset=2 * d, sampling="reshuffled", average="uniform"), 250),
    "random subsets": (
        tl.SGD(lr=0.1, batch=d, dataset=1.5 * d, sampling="subset", train_second_layer=True, second_lr=0.4), 2**18,
    ),
    "each batch twice, then a fresh one": (
        tl.SGD(lr=0.1, batch=d, repeat=2, momentum=0.4, train_second_layer=True, average=0.3), 250,
    ),
    "each batch of a set twice": (tl.SGD(lr=0.1, batch=d, dataset=2 * d, repeat=2), 250),
    "the second layer alone": (
        tl.SGD(lr=0.1, batch=d, dataset=2 * d, momentum=0.4, geometry="spherical", weight_decay=0.1,
               train_first_layer=False, train_second_layer=True, second_lr=0.7), 2**18,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sized(PATTERNS, long=set(PATTERNS) - {"full batch"}))
@pytest.mark.usefixtures("x64")
def test_it_is_gradient_descent_on_the_samples(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same samples in plain NumPy, visited in one chunk or in several."""
    sgd, at_once = PATTERNS[name]
    monkeypatch.setattr(inputs, "INPUTS_AT_ONCE", at_once)
    dim, steps, seed, run = DIM, 5, 7, 1
    result = tl.solve(
        PROBLEM,
        sgd,
        tl.Vectors(dim),
        START,
        steps=steps,
        save=steps,
        seeds=2,
        seed=seed,
    )
    n, size = sgd.batch_at(dim), sgd.dataset_at(dim) or 3 * sgd.batch_at(dim)
    spec = inputs.SampleForm(
        kernel_of(PROBLEM, sgd), form_of(sgd), dim, n, None, size, sgd.sampling
    )
    roles = (random.Role.INPUTS, random.Role.LABELS, random.Role.BATCHES)
    keys = np.stack([random.stream(seed, role, run) for role in roles])
    z, noise = samples(spec, keys)
    assert (
        z.shape == (size, dim)
        and abs(z.mean()) < sigmas(2) / np.sqrt(z.size)
        and abs(z.var() - 1) < sigmas(2) * np.sqrt(2 / z.size)
    )
    W = np.zeros((2, dim))
    W[:, :2], W[:, 2:4] = embed(START.Q, START.M, target_frame(START.P)[1], 2)
    found = plain_descent(z, noise, chosen(sgd, n, size, keys, steps), sgd, W)
    # inputs are drawn in single precision, which compiled code rounds in its own way
    for W, a, suffix in (
        (found.W, found.a, ""),
        (found.W_mean, found.a_mean, "_average"),
    )[: 1 + bool(sgd.average)]:
        np.testing.assert_allclose(
            result[f"M{suffix}"].values[run, -1], W[:, :2], atol=3e-6
        )
        np.testing.assert_allclose(
            result[f"Q{suffix}"].values[run, -1], W @ W.T, atol=3e-6
        )
        np.testing.assert_allclose(result[f"a{suffix}"].values[run, -1], a, atol=3e-6)
    np.testing.assert_allclose(result.train_risk.values[run], found.risks, rtol=3e-6)
    if sgd.average:
        np.testing.assert_allclose(
            result.train_risk_average.values[run], found.risks_mean, rtol=3e-6
        )
        assert np.abs(result.risk_average - result.risk)[run, -1] > 1e-3
    assert np.ptp(found.risks) > 1e-3 and ("M_average" in result) == bool(sgd.average)


@pytest.mark.usefixtures("x64")
def test_shuffles_are_permutations_of_which_all_are_equally_likely() -> None:
    """24 orders of four numbers in 4800 permutations, and neighbours of 300 numbers that stay together by chance."""
    key = random.stream(1, random.Role.BATCHES)
    every = np.asarray(
        jax.vmap(lambda e: shuffled(key, e, np.arange(4), 4))(np.arange(4800))
    )
    counts = np.array(
        [(every == order).all(1).sum() for order in itertools.permutations(range(4))]
    )
    assert counts.sum() == 4800
    chi = ((counts - 200) ** 2 / 200).sum()
    assert stats.chi2.sf(chi, 23) > 1e-5
    large = np.asarray(
        jax.vmap(lambda e: shuffled(key, e, np.arange(300), 300))(np.arange(50))
    ).astype(int)
    assert (np.sort(large, axis=1) == np.arange(300)).all()
    together = int(
        (np.abs(np.diff(large, axis=1)) == 1).sum()
    )  # two in 300 of all pairs: 100 in the mean
    assert abs(together - 299 * 50 * 2 / 300) < sigmas() * np.sqrt(299 * 50 * 2 / 300)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(batch=3 * d, dataset=2 * d), "`batch` must be at most the dataset"),
        (dict(batch=10, dataset=5), "`batch` must be at most the dataset"),
        (dict(batch=2 * d, dataset=3 * d), "a whole number of batches"),
        (dict(batch=d, dataset=0 * d), "`dataset` must be a positive"),
        (dict(batch=-1 * d, dataset=d), "`batch` must be a positive"),
        (dict(batch=d, sampling="replacement"), "`sampling` must be left out"),
        (
            dict(batch=d, dataset=d, sampling="replacment"),
            "did you mean 'replacement'?",
        ),
        (
            dict(batch=2 * d, dataset=3 * d, sampling="reshuffled"),
            "a whole number of batches",
        ),
        (dict(batch=d, repeat=0), "`repeat` must be"),
        (dict(batch=d, repeat=1.5), "`repeat` must be"),
        (
            dict(second_lr=0.1),
            "`second_lr` must be left out where the second layer is not trained",
        ),
        (
            dict(second_lr=-0.1, train_second_layer=True),
            "`second_lr` must be a positive",
        ),
        (
            dict(train_first_layer=False),
            "`train_second_layer` must be True where the first layer is not trained",
        ),
        (dict(train_first_layer=1), "`train_first_layer` must be True or False"),
        (
            dict(average="polyak"),
            "`average` must be None, 'uniform' or a weight between 0 and 1",
        ),
        (dict(average=1.0), "`average` must be None"),
        (dict(average=0), "`average` must be None"),
    ],
)
def test_sets_that_make_no_sense_are_refused(
    arguments: dict[str, Any], words: str
) -> None:
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
    assert (
        tl.SGD(lr=0.1, batch=64, dataset=d, sampling="replacement").dataset_at(100)
        == 100
    )


def test_polynomials_of_high_degree_are_warned_about() -> None:
    start, fixed = tl.Overlaps([[1.0]], [[0.1]]), tl.SGD(lr=1e-3, batch=10, dataset=10)
    with pytest.warns(tl.errors.HeavyTailWarning, match="polynomial of degree 3"):
        make_task(tl.Problem("z1", "He3"), fixed, tl.Vectors(10), start, steps=1)
    make_task(tl.Problem("z1", "He2"), fixed, tl.Vectors(10), start, steps=1)
    make_task(
        tl.Problem("z1", "He3"),
        fixed.replace(dataset=None),
        tl.Vectors(10),
        start,
        steps=1,
    )
