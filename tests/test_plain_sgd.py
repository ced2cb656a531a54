"""Chain and vectors have the law of SGD written down in NumPy, where options meet each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chance import sigmas
from cost import sized
from plain_sgd import Setting, compared, entries_of, features, plain_runs
from scipy.special import erf

import twolayer as tl
from twolayer.task.inputs import Inputs

Q, M, UNIT = [[1.2, 0.3], [0.3, 0.7]], [[0.5], [-0.3]], [[1.0, 0.3], [0.3, 1.0]]
START = tl.Overlaps(Q, M)
BLOCKS = Inputs.blocks([1.6, 0.4], dims=[4, 6])
IN_BLOCKS = tl.Overlaps(
    [[[0.6, 0.1], [0.1, 0.3]], [[0.4, 0.2], [0.2, 0.7]]],
    [[[0.3], [-0.2]], [[0.1], [0.4]]],
    [[[0.5]], [[0.5]]],
)
SPREAD = np.repeat([1.6, 0.4], [4, 6])


def problem(**more: Any) -> tl.Problem:
    known: dict[str, Any] = dict(
        target="tanh(z1)",
        activation="erf",
        width=2,
        noise=0.2,
        second_layer=[1.5, -0.8],
    )
    return tl.Problem(**(known | more))


SETTINGS = {
    "momentum, decay, both layers": Setting(
        problem(),
        tl.SGD(
            2.0,
            2,
            momentum=0.4,
            weight_decay=0.1,
            train_second_layer=True,
            second_lr=1.0,
        ),
        START,
        np.tanh,
    ),
    "nesterov, both layers": Setting(
        problem(normalisation="sqrt"),
        tl.SGD(
            1.0,
            2,
            momentum=0.4,
            nesterov=True,
            weight_decay=0.1,
            train_second_layer=True,
        ),
        START,
        np.tanh,
    ),
    "private, projected, momentum": Setting(
        problem(),
        tl.SGD(1.0, 3, geometry="projected", momentum=0.3, rule="private(0.4)"),
        tl.Overlaps(UNIT, M),
        np.tanh,
        0.4,
    ),
    "spherical, decay, sum": Setting(
        problem(normalisation="sum", activation="tanh"),
        tl.SGD(0.7, 2, geometry="spherical", train_second_layer=True),
        tl.Overlaps(UNIT, M),
        np.tanh,
    ),
    "correlation, two directions": Setting(
        problem(target="z1*z2 + z1", activation="relu", gram=[[1.0, 0.4], [0.4, 0.9]]),
        tl.SGD(0.8, 2, loss="correlation"),
        tl.Overlaps(Q, [[0.5, 0.2], [-0.3, 0.1]], [[1.0, 0.4], [0.4, 0.9]]),
        lambda z, t: z * t + z,
    ),
    "blocks, private, both layers": Setting(
        problem(inputs=BLOCKS),
        tl.SGD(1.5, 2, rule="private(0.5)", weight_decay=0.1, train_second_layer=True),
        IN_BLOCKS,
        np.tanh,
        0.5,
        SPREAD,
    ),
    "blocks, momentum": Setting(
        problem(inputs=BLOCKS),
        tl.SGD(1.5, 2, momentum=0.4, weight_decay=0.1),
        IN_BLOCKS,
        np.tanh,
        0.0,
        SPREAD,
    ),
    "blocks, free": Setting(
        problem(inputs=BLOCKS, activation="relu"),
        tl.SGD(1.0, 2),
        IN_BLOCKS,
        np.tanh,
        0.0,
        SPREAD,
    ),
    "plain": Setting(
        problem(activation="relu"),
        tl.SGD(0.6, 1, train_second_layer=True),
        START,
        np.tanh,
    ),
    "plain, projected": Setting(
        problem(target="erf(z1/sqrt(2))", activation="square"),
        tl.SGD(0.5, 2, geometry="projected"),
        tl.Overlaps(UNIT, M),
        lambda z: erf(z / np.sqrt(2)),
    ),
    "plain, spherical": Setting(
        problem(),
        tl.SGD(1.2, 2, geometry="spherical", weight_decay=0.2),
        tl.Overlaps(UNIT, M),
        np.tanh,
    ),
}
DIM, STEPS, SEEDS = 10, 3, 6_000


WITH_VECTORS = (
    "momentum, decay, both layers",
    "private, projected, momentum",
    "blocks, private, both layers",
)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *sized(
            [(name, tl.Chain) for name in SETTINGS],
            slow=[("correlation, two directions", tl.Chain)],
        ),
        *((name, tl.Vectors) for name in WITH_VECTORS),
    ],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_a_few_steps_have_the_law_of_the_definition(name: str, method: Any) -> None:
    """Means and covariances of all overlaps after three long steps in ten dimensions."""
    setting = SETTINGS[name]
    seeds = SEEDS if method is tl.Chain else SEEDS // 2
    run = tl.solve(
        setting.problem,
        setting.algorithm,
        method(DIM),
        setting.start,
        steps=STEPS,
        save=[STEPS],
        seeds=seeds,
    )
    compared(entries_of(run), features(*plain_runs(setting, DIM, STEPS, SEEDS)), name)


def test_vectors_without_momentum() -> None:
    """Norms that vectors take from products of rows and gradients: spherical, with decay, in fewer dimensions."""
    setting = SETTINGS["plain, spherical"]
    dim = 5
    run = tl.solve(
        setting.problem,
        setting.algorithm,
        tl.Vectors(dim),
        setting.start,
        steps=2,
        save=[2],
        seeds=SEEDS // 2,
    )
    compared(entries_of(run), features(*plain_runs(setting, dim, 2, SEEDS)), "vectors")
    norms = np.diagonal(run.Q.values[:, -1], axis1=1, axis2=2)
    np.testing.assert_allclose(norms, 1.0, atol=1e-6)


def test_the_average_of_the_iterates() -> None:
    """x̄ ← (1 − w) x̄ + w x, of overlaps that are those of the averaged rows: one step from a start that is known."""
    algorithm = tl.SGD(1.0, 2, average=0.2, train_second_layer=True)
    run = tl.solve(
        problem(), algorithm, tl.Chain(DIM), START, steps=1, save=[0, 1], seeds=3
    )
    a, M = (run[name].values for name in ("a", "M"))
    np.testing.assert_allclose(
        run.a_average.values[:, 1], 0.8 * a[:, 0] + 0.2 * a[:, 1], rtol=1e-12
    )
    np.testing.assert_allclose(
        run.M_average.values[:, 1], 0.8 * M[:, 0] + 0.2 * M[:, 1], rtol=1e-10
    )
    assert np.abs(M[:, 1] - M[:, 0]).min() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("geometry", ["spherical", "projected"])
def test_the_mean_step_of_spherical_rows(geometry: str) -> None:
    """The map at d = 30 and n_b = 60 against steps in NumPy; radial parts and pairs of samples are all in it."""
    setting = Setting(
        problem(activation="square", noise=0.1, target="z1**2"),
        tl.SGD(0.2, 60, geometry=geometry, weight_decay=0.3),
        tl.Overlaps(UNIT, M),
        lambda z: z**2,
    )
    theory = tl.solve(
        setting.problem, setting.algorithm, tl.Map(30), setting.start, steps=1, save=[1]
    )
    _, cross, _ = runs = plain_runs(setting, 30, 1, 6_000)
    for found, seen in (
        (theory.M.values[0, -1], cross),
        (theory.Q.values[0, -1], runs[0]),
    ):
        error = seen.std(0) / np.sqrt(len(seen))
        size = np.abs(found - (M if found.shape == (2, 1) else UNIT)).max()
        assert (
            np.abs(seen.mean(0) - found) < sigmas(6) * error + 0.01 * size + 1e-9
        ).all(), (found, seen.mean(0))


def linear_paths(algorithm: tl.SGD, steps: int, save: Any, seeds: int = 3) -> Any:
    return tl.solve(
        tl.Problem("z1", "linear", noise=0.3), algorithm, tl.Vectors(8), tl.Overlaps([[1.0]], [[0.2]]), steps=steps,
        save=save, seeds=seeds,
    )  # fmt: skip


@pytest.mark.slow
def test_samples_come_back_as_their_pattern_says() -> None:
    """Steps of a linear neuron commute with nothing, so that runs meet only where their batches are the same."""
    every = list(range(9))
    fresh = linear_paths(tl.SGD(0.4, 2), 8, every).M.values
    known = linear_paths(tl.SGD(0.4, 2, dataset=4), 8, every).M.values
    np.testing.assert_array_equal(
        fresh[:, :3], known[:, :3]
    )  # the first pass is one of fresh samples
    assert np.abs(fresh[:, 3:] - known[:, 3:]).min() > 1e-6
    twice = linear_paths(tl.SGD(0.4, 2, repeat=2), 8, every).M.values
    np.testing.assert_array_equal(fresh[:, :2], twice[:, :2])
    # with a set of one batch every step is the same affine map, whose fixed point is the fit to the samples
    one = linear_paths(tl.SGD(0.2, 12, dataset=12), 4000, [3000, 4000]).M.values
    np.testing.assert_allclose(one[:, 0], one[:, 1], rtol=1e-6)
    # a set of two batches in sequence settles on a cycle; reshuffled before every pass it wanders; both stay near the fit
    for sampling in ("sequence", "reshuffled"):
        algorithm = tl.SGD(0.2, 6, dataset=12, sampling=sampling)
        run = linear_paths(algorithm, 8000, [0, 7980, 7990, 8000])
        steady = np.abs(np.diff(run.M.values[:, 1:], axis=1)).max() < 1e-9
        assert steady == (sampling == "sequence")
        assert (run.train_risk.values[:, 1:] < 0.5 * run.train_risk.values[:, :1]).all()


@pytest.mark.slow
def test_every_pass_over_a_reshuffled_set_takes_each_sample_once() -> None:
    """The drift of a whole pass with a tiny rate is that of the set, whatever its order; samples drawn with replacement miss some."""
    lr = 1e-4

    def drifts(sampling: str) -> np.ndarray:
        algorithm = tl.SGD(lr, 1, dataset=6, sampling=sampling)
        run = linear_paths(algorithm, 24, [0, 6, 12, 18, 24])
        return np.diff(run.M.values.squeeze(), axis=1)

    for sampling in ("sequence", "reshuffled"):
        passes = drifts(sampling)
        np.testing.assert_allclose(passes[:, 1:], passes[:, :-1], atol=300 * lr**2)
        assert np.abs(passes).min() > 100 * 300 * lr**2
    others = drifts("replacement")
    assert np.abs(np.diff(others, axis=1)).max() > 10 * 300 * lr**2


def test_the_training_risk_is_that_of_the_samples() -> None:
    """At the start of a linear neuron: half the mean of (y − f)² has the mean ½ (1 − 2M + Q + Δ) and its spread."""
    algorithm = tl.SGD(0.1, 5, dataset=20)
    run = linear_paths(algorithm, 1, [0], seeds=2000)
    risk, mean = run.train_risk.values[:, 0], (1 - 0.4 + 1.0 + 0.3) / 2
    error = mean * np.sqrt(2 / 20)
    assert abs(risk.mean() - mean) < sigmas() * error / np.sqrt(2000)
    assert abs(risk.std() / error - 1) < sigmas() * 2 / np.sqrt(2000)


def test_machine_code_knows_teachers() -> None:
    """A teacher of two neurons with weights 1 and 2: the mean over directions, in both engines."""
    task = tl.Problem(tl.Teacher("erf", 2, [1.0, 2.0]), "erf", width=2)
    start = tl.Overlaps(Q, [[0.5, 0.2], [-0.3, 0.1]])
    ours, theirs = (
        tl.solve(
            task,
            tl.SGD(1.0),
            tl.Chain(80, engine=engine),
            start,
            steps=3,
            save=[3],
            seeds=4,
        )
        for engine in ("compiled", "jax")
    )
    np.testing.assert_allclose(ours.M, theirs.M, rtol=1e-10)
