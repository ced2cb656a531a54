"""Single-index recovery: the landscape by two routes, spherical SGD against its formula, search and descent measured."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import subspace_angles

import twolayer as tl
from twolayer import d
from twolayer.analysis.subspaces import coordinates_of, spanned
from twolayer.analysis.weak_recovery import oriented
from twolayer.cli import main
from twolayer.numerics.statistics import wilson


def matched(k: int, noise: float = 0.0) -> tl.Problem:
    return tl.Problem(f"h{k}(z1)", f"h{k}", noise=noise)


# ----------------------------------------------------------------------------------------------------- the landscape


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "activation", "k", "even"),
    [
        ("relu(z1)", "relu", 1, False),
        ("h3(z1)", "h3", 3, False),
        ("z1**2", "square", 2, True),
        ("abs(z1)", "He2", 2, True),
    ],
)
def test_series_and_averages_are_one_function(
    target: str, activation: str, k: int, even: bool
) -> None:
    for loss in ("squared", "correlation"):
        phi = tl.single_index.population_loss(
            tl.Problem(target, activation, noise=0.3), loss
        )
        assert phi.information == phi.information_by("averages") == k
        assert phi.even is even
        m = np.linspace(-0.5, 0.5, 7)
        for n in range(4):
            np.testing.assert_allclose(
                phi.derivative(m, n), phi.derivative(m, n, "series"), atol=1e-9
            )
        assert phi.descends
    assert tl.analyse(target).information == k


def test_the_flow_is_that_of_the_increments_and_its_times_are_known() -> None:
    m, end = 0.05, 0.6
    times = {
        1: np.arctanh(end) - np.arctanh(m),
        2: 0.25 * np.log(end**2 / (1 - end**2) * (1 - m**2) / m**2),
        3: (np.arctanh(end) - 1 / end - np.arctanh(m) + 1 / m) / 3,
    }
    for k, expected in times.items():
        phi = tl.single_index.population_loss(matched(k))
        assert isinstance(phi, tl.single_index.PopulationLoss)
        assert phi.time(m, end) == pytest.approx(expected, rel=1e-10)
        assert phi.growth == pytest.approx(k)
    noisy = matched(2, noise=0.3)
    phi, mean = (
        tl.single_index.population_loss(noisy),
        tl.moments(noisy, tl.Overlaps([[1.0]], [[m]])),
    )
    assert float(phi.flow(m)) == pytest.approx(
        mean.psi[0, 0] - m * mean.phi[0, 0], rel=1e-10
    )
    assert float(phi.flow(m, 0.1)) == pytest.approx(
        float(phi.flow(m)) - 0.05 * mean.chi[0, 0] * m, rel=1e-10
    )
    assert float(phi.phi(m)) == pytest.approx(mean.risk, rel=1e-12)


def test_what_a_step_costs() -> None:
    assert float(tl.single_index.population_loss(matched(3)).noise()) == pytest.approx(
        96
    )
    assert float(
        tl.single_index.population_loss(matched(3), "correlation").noise()
    ) == pytest.approx(3)
    assert tl.single_index.population_loss(matched(3), "correlation").largest_step(
        400
    ) == pytest.approx(2 * 3 / 20 / 3)
    noisy = tl.single_index.population_loss(tl.Problem("z1**2", "square", noise=0.5))
    assert noisy.largest_step(1000) == pytest.approx(
        2 / (12 + 0.5)
    )  # as in the escape from mediocrity
    assert tl.single_index.population_loss(matched(1)).largest_step(1000) == np.inf
    assert [tl.single_index.critical_alpha(100, k) for k in (1, 2, 3, 4)] == [
        1.0,
        np.log(100),
        100.0,
        10_000.0,
    ]


# ----------------------------------------------------------------------------------------------------- the algorithm


def by_formula(
    m: np.ndarray, dim: int, lr: float, steps: int, tangent: bool, seed: int
) -> np.ndarray:
    """m ← [m + u(λ* − λm)]/√(1 + u²(‖z‖² − λ²)), u = lr σ'(λ)(y − f), for σ = h = h2; or without the tangent."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        star, own, rest = (
            rng.normal(size=(2, m.size)).tolist(),
            None,
            rng.chisquare(dim - 2, m.size),
        )
        star, own = np.asarray(star[0]), np.asarray(star[1])
        field = m * star + np.sqrt(1 - m**2) * own
        u = lr * np.sqrt(2) * field * (star**2 - field**2) / np.sqrt(2)
        square = star**2 + own**2 + rest
        if tangent:
            m = (m + u * (star - field * m)) / np.sqrt(1 + u**2 * (square - field**2))
        else:
            m = (m + u * star) / np.sqrt(1 + 2 * u * field + u**2 * square)
    return m


def test_the_chain_takes_spherical_steps() -> None:
    dim, lr, n = 5, 0.08, 4096
    start = tl.Overlaps([[1.0]], [[0.4]])
    algorithm = tl.SGD(lr, geometry="spherical")
    run = tl.solve(
        matched(2), algorithm, tl.Chain(dim), start, steps=6, save=1, seeds=n, seed=5
    )
    found = run.M.values[:, -1, 0, 0]
    assert (
        stats.ks_2samp(found, by_formula(np.full(n, 0.4), dim, lr, 6, True, 1)).pvalue
        > 1e-4
    )
    # without the tangent the law is another one, and the test sees it
    assert (
        stats.ks_2samp(found, by_formula(np.full(n, 0.4), dim, lr, 6, False, 2)).pvalue
        < 1e-6
    )


def test_the_half_sphere_is_the_sphere_turned() -> None:
    problem = matched(3)
    whole, half = (
        tl.Overlaps.random(problem, 40, 3, 500, law) for law in ("sphere", "hemisphere")
    )
    np.testing.assert_array_equal(half.M, np.abs(whole.M))
    assert 200 < int((whole.M > 0).sum()) < 300


@pytest.fixture(scope="module")
def quadratic() -> Any:
    return tl.recovery(
        matched(2),
        tl.SGD("0.05/d", geometry="spherical"),
        60,
        (0.5, 0.8),
        seeds=512,
        seed=1,
    )


@pytest.mark.long
def test_descent_goes_on_from_where_the_search_ended(quadratic: Any) -> None:
    """The law of the strong recovery is that of runs that are not stopped on the way."""
    problem, algorithm = matched(2), tl.SGD("0.05/d", geometry="spherical")
    starts = tl.Overlaps.random(problem, 60, 9, 512, "hemisphere")
    until = tl.Until("overlap", 0.8)
    run = tl.solve(
        problem,
        algorithm,
        tl.Chain(60),
        starts,
        steps=int(quadratic.samples),
        save=64,
        seed=7,
        until=until,
    )
    direct = tl.escape.first_passage(run).steps
    assert isinstance(quadratic, tl.single_index.Recovery)
    assert np.isfinite(direct).all()
    assert stats.ks_2samp(quadratic.strong, direct).pvalue > 1e-4
    assert stats.ks_2samp(quadratic.weak, direct).pvalue < 1e-6
    assert (quadratic.descents > 0).all()
    assert quadratic.descent_share.value == pytest.approx(
        np.median(quadratic.descents / quadratic.strong)
    )


def test_a_small_step_follows_the_flow() -> None:
    """K = 1: the search from m = 0.1 takes the time of the flow, for steps too small to fluctuate."""
    problem, dim, delta = matched(1), 4000, 0.05
    start = tl.Overlaps([[1.0]], [[0.1]])
    found = tl.recovery(
        problem,
        tl.SGD(delta * tl.d**-1, geometry="spherical"),
        dim,
        0.4,
        start=start,
        seeds=16,
    )
    phi = tl.single_index.population_loss(problem)
    assert found.search.value * delta / dim == pytest.approx(
        phi.time(0.1, 0.4), rel=0.03
    )
    assert found.descent.value * delta / dim == pytest.approx(
        phi.time(0.4, 0.6), rel=0.05
    )
    assert found.critical_samples == dim
    assert "m ≥ 0.4" in str(found)


@pytest.mark.long
def test_runs_that_end_too_early_are_censored(quadratic: Any) -> None:
    assert quadratic.censored == (0, 0)
    early = tl.recovery(
        matched(2),
        tl.SGD("0.05/d", geometry="spherical"),
        60,
        (0.5, 0.8),
        seeds=512,
        seed=1,
        samples=600,
    )
    np.testing.assert_array_equal(np.isfinite(early.weak), quadratic.weak < 600)
    lost = int((quadratic.weak >= 600).sum())
    assert early.censored[0] == lost
    assert lost > 256
    assert early.search.value == np.inf
    assert early.weak_probability == wilson(512 - lost, 512)
    never = tl.recovery(
        matched(2),
        tl.SGD("0.05/d", geometry="spherical"),
        60,
        (0.5, 0.8),
        seeds=16,
        samples=1,
    )
    assert never.strong_probability == wilson(0, 16)
    assert never.descent.value == np.inf
    assert np.isnan(never.descent_share.value)


def test_the_sign_counts_where_the_loss_knows_it() -> None:
    start = tl.Overlaps([[1.0]], [[-0.6]])
    options: dict[str, Any] = {"start": start, "seeds": 16, "samples": 200}
    algorithm = tl.SGD("0.01/d", geometry="spherical")
    assert (
        tl.recovery(matched(2), algorithm, 100, 0.3, **options).weak_probability.value
        == 1
    )
    assert (
        tl.recovery(matched(1), algorithm, 100, 0.3, **options).weak_probability.value
        == 0
    )


def test_an_even_information_exponent_leaves_the_sign_open() -> None:
    """h2 + h3 has ℓ = 2 and a loss that is not even: what the search finds is ± the direction all the same."""
    options: dict[str, Any] = {"seeds": 16, "samples": 200}
    algorithm = tl.SGD("0.01/d", geometry="spherical")
    mixed = tl.Problem("h2(z1) + 0.3*h3(z1)", "h2(z) + 0.3*h3(z)")
    assert not tl.single_index.population_loss(mixed).even
    start = tl.Overlaps([[1.0]], [[-0.6]])
    found = tl.recovery(mixed, algorithm, 100, 0.3, start=start, **options)
    assert found.overlap == "|m|" and found.weak_probability.value == 1
    assert str(found).startswith("|m| ≥ 0.3: 0 samples")
    odd = tl.recovery(matched(1), algorithm, 100, 0.3, start=start, **options)
    assert odd.overlap == "m" and odd.weak_probability.value == 0


def test_runs_that_start_recovered_take_no_samples() -> None:
    """16 runs of the compiled code above, half of them beyond the strong level and half beyond the weak one."""
    M = np.where(np.arange(16) < 8, 0.9, 0.6)[:, None, None]
    options: dict[str, Any] = {"seeds": 16, "samples": 200}
    algorithm = tl.SGD("0.3/d", geometry="spherical")
    found = tl.recovery(
        matched(1),
        algorithm,
        100,
        0.3,
        start=tl.Overlaps(np.ones_like(M), M),
        **options,
    )
    assert found.weak.tolist() == [0.0] * 16
    assert found.strong[:8].tolist() == [0.0] * 8
    assert (found.strong[8:] > 1).all()
    assert found.descent_share.value == 1
    there = tl.recovery(
        matched(1), algorithm, 100, 0.3, start=tl.Overlaps([[1.0]], [[0.9]]), **options
    )
    assert there.strong.tolist() == [0.0] * 16
    assert np.isnan(there.descent_share.value)


# --------------------------------------------------------------------------------------------------------- subspaces


@pytest.mark.parametrize(
    ("p", "k", "d"), [(1, 1, 7), (5, 3, 40), (2, 3, 20), (4, 2, 5)]
)
def test_principal_overlaps_are_cosines_of_principal_angles(
    p: int, k: int, d: int
) -> None:
    """Against the QR route of SciPy on explicit rows; as many of them are 0 as rows are missing."""
    rng = np.random.default_rng(p)
    W, V = rng.normal(size=(p, d)), rng.normal(size=(k, d))
    found = tl.Overlaps.from_weights(W, V).principal
    expected = np.cos(subspace_angles(W.T, V.T))[::-1]
    assert found.shape == (k,)
    np.testing.assert_allclose(found[: min(p, k)], expected, atol=1e-12)
    np.testing.assert_allclose(found[min(p, k) :], 0.0, atol=1e-7)
    # dependent rows change no span
    again = tl.Overlaps.from_weights(np.concatenate([W, W[:1] + W[-1:]]), V)
    np.testing.assert_allclose(again.principal, found, atol=1e-7)


def test_directions_that_do_not_enter_are_no_part_of_the_subspace() -> None:
    """z1 + z2 depends on one direction; with P ≠ I the frame is that of the rows themselves."""
    rng = np.random.default_rng(1)
    W, V = rng.normal(size=(3, 30)), rng.normal(size=(2, 30))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    o = tl.Overlaps.from_weights(W, V)
    sum_ = tl.Problem("z1 + z2", "relu", width=3, gram=o.P)
    both = tl.Problem("z1*z2", "relu", width=3, gram=o.P)
    for problem, rows in ((sum_, V.sum(0, keepdims=True)), (both, V)):
        found = spanned(o.Q, o.M, coordinates_of(problem))
        np.testing.assert_allclose(
            found, np.cos(subspace_angles(W.T, rows.T))[::-1], atol=1e-9
        )


def subspace_by_vectors(
    dim: int, lr: float, steps: int, levels: tuple[float, float], seeds: int
) -> np.ndarray:
    """Steps of weak and strong recovery of h2(z1) + h2(z2) by two h2 neurons, on explicit weights: projected SGD."""
    rng = np.random.default_rng(12)
    W = rng.normal(size=(seeds, 2, dim))
    W /= np.linalg.norm(W, axis=2, keepdims=True)
    found = np.full((seeds, 2), np.inf)
    for step in range(steps + 1):
        # principal cosines by QR: singular values of the first two rows of the basis
        basis = np.linalg.qr(np.swapaxes(W, 1, 2))[0]
        sigma = np.linalg.svd(basis[:, :2], compute_uv=False)
        passed = np.stack([sigma[:, 0] >= levels[0], sigma[:, 1] >= levels[1]], 1)
        found = np.where(passed & np.isinf(found), step, found)
        z = rng.normal(size=(seeds, dim))
        fields = np.einsum("sjd,sd->sj", W, z)
        y = ((z[:, :2] ** 2 - 1) / np.sqrt(2)).sum(1)
        e = y - ((fields**2 - 1) / np.sqrt(2)).mean(1)
        W = W + lr / 2 * (np.sqrt(2) * fields * e[:, None])[..., None] * z[:, None]
        W /= np.linalg.norm(W, axis=2, keepdims=True)
    return found


@pytest.mark.slow
def test_subspaces_are_recovered_as_by_explicit_weights() -> None:
    """The law of both times, and the times between: 200 runs of each."""
    dim, lr, levels = 20, 0.012, (0.5, 0.85)
    problem = tl.Problem("h2(z1) + h2(z2)", "h2", width=2)
    algorithm = tl.SGD(lr, geometry="projected")
    found = tl.recovery(
        problem, algorithm, dim, levels, start="random", samples=3000, seeds=200
    )
    expected = subspace_by_vectors(dim, lr, 3000, levels, 200)
    for ours, theirs in zip((found.weak, found.strong), expected.T, strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-4
    # weak recovery of one direction is no strong recovery of both, nor weak of both
    assert stats.ks_2samp(found.weak, expected[:, 1]).pvalue < 1e-6
    assert (found.weak_each[:, 1] >= found.weak_each[:, 0]).all()
    assert (found.strong_each[:, 1] >= found.weak_each[:, 1]).all()
    np.testing.assert_array_equal(found.strong, found.strong_each[:, -1])
    lines = str(found).splitlines()
    assert lines[0].startswith("largest σ ≥ 0.5") and lines[1].startswith("all σ ≥")
    assert lines[4].startswith("directions with σ ≥ 0.85: 1 after")


@pytest.mark.slow
def test_one_neuron_and_one_direction_are_a_subspace_too() -> None:
    """(z1 + z2)/√2 has two names for one direction: its times have the law of those of z1."""
    algorithm = tl.SGD("0.2/d", geometry="spherical")
    options: dict[str, Any] = {"seeds": 256, "samples": 4000}
    alone = tl.recovery(tl.Problem("z1", "relu"), algorithm, 50, (0.4, 0.8), **options)
    named = tl.Problem("(z1 + z2)/2**0.5", "relu")
    found = tl.recovery(named, algorithm, 50, (0.4, 0.8), **options)
    assert found.overlap == "σ" and found.weak_each.shape == (256, 1)
    assert stats.ks_2samp(found.weak, alone.weak).pvalue > 1e-4
    assert stats.ks_2samp(found.strong, alone.strong).pvalue > 1e-4
    assert len(str(found).splitlines()) == 3
    half = tl.recovery(named, algorithm, 50, (0.4, 0.8), descent_lr="0.05/d", **options)
    assert half.descent.value > 2 * found.descent.value


@pytest.mark.slow
def test_samples_of_subspaces_are_foreseen_by_the_ode() -> None:
    """Ten times what the ODE takes from random starts: all runs are done long before."""
    algorithm = tl.SGD("0.1/d", geometry="spherical")
    problem = tl.Problem("h2(z1)", "h2", width=3)
    found = tl.recovery(problem, algorithm, 300, seeds=16)
    assert found.censored == (0, 0) and found.information == 2
    assert 4 < found.samples / np.median(found.strong) < 25
    largest = tl.single_index.largest_overlaps(
        problem, algorithm, 300, float(np.max(found.strong)), seeds=16
    )
    assert largest.min() > 0.4 and largest.max() <= 1
    # neurons of one sign find one of the two directions of z1*z2 only
    with pytest.raises(tl.InputError, match="limiting equation does not lead"):
        tl.recovery(tl.Problem("z1*z2", "He2", width=2), algorithm, 100)
    signed = [4, 4, -4, -4]
    staircase = tl.Problem("z1 + z1*z2", "relu", width=4, second_layer=signed)
    both = tl.recovery(staircase, tl.SGD("0.05/d", geometry="spherical"), 200, seeds=16)
    assert both.strong_probability.value == 1 and both.information == 1
    one, two = np.median(both.strong_each, axis=0)
    assert two > 1.2 * one


@pytest.mark.slow
def test_starts_follow_the_drift_whatever_the_gram_matrix() -> None:
    """The drift of a turned neuron raises the overlap that it has, by averages."""
    gram = [[1.0, 0.6], [0.6, 1.0]]
    flipped = tl.Problem("z1 - 0.2*z2", "relu", second_layer=[-1.0], gram=gram)
    for task in (tl.Problem("He3(z1) + He3(z2)", "h3", gram=gram), flipped):
        starts = tl.Overlaps.random(task, 10_000, seed=2, size=24)
        turned = oriented(task, starts)
        away = oriented(task, starts, away=True)
        np.testing.assert_array_equal(turned.M, -away.M)
        assert 4 < (turned.M == starts.M).all((1, 2)).sum() < 20
        T = coordinates_of(task)
        for i in range(6):
            drift = tl.moments(task, turned[i], loss="correlation").psi @ T
            assert (turned.M[i] @ T * drift).sum() > 0


@pytest.mark.parametrize(
    ("problem", "options", "words"),
    [
        (
            tl.Problem("z1*z2", "He2"),
            {},
            "as many neurons as its target depends on directions, 2,",
        ),
        (
            tl.Problem("z1", "relu", width=8),
            {},
            r"beyond the overlap √\(p/N\) = 0.4 that",
        ),
        (
            tl.Problem("z1 + z2", "relu", width=2),
            {"start": tl.Overlaps(2 * np.eye(2), np.zeros((2, 2)))},
            "on the sphere, Q = 1, but has Q = 2",
        ),
    ],
)
def test_subspaces_that_cannot_be_recovered_are_refused(
    problem: tl.Problem, options: dict[str, Any], words: str
) -> None:
    algorithm = tl.SGD("0.05/d", geometry="spherical")
    with pytest.raises(tl.InputError, match=words):
        tl.recovery(problem, algorithm, 50, samples=100, **options)


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "eta",
    [
        0.0,
        1.0,
        -0.1,
        1.2,
        0.5,
        float("nan"),
        "half",
        (0.5, 0.4),
        (0.5, 1.0),
        (0.1, 0.2, 0.3),
    ],
)
def test_levels_outside_are_refused(eta: Any) -> None:
    with pytest.raises(
        tl.InputError, match=r"`threshold` must be a number in \(0, ½\)"
    ):
        tl.recovery(matched(2), tl.SGD("0.05/d", geometry="spherical"), 60, eta)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (tl.Problem("z1*z2", "He2"), "one neuron and one direction, but has 1 and 2"),
        (tl.Problem("z1", "relu", 2), "one neuron and one direction, but has 2 and 1"),
        (
            tl.Problem("z1", "relu", gram=[[0.0]]),
            "a target direction of norm 1, but has 0",
        ),
        (
            tl.Problem("z1", "relu", second_layer="signs"),
            "a given number, not a random one",
        ),
        (tl.Problem("h3(z1)", "h2"), "no Hermite polynomial in common"),
    ],
)
def test_other_tasks_are_refused(problem: tl.Problem, words: str) -> None:
    with pytest.raises(tl.InputError, match=words):
        _ = tl.single_index.population_loss(problem).information


@pytest.mark.slow
def test_other_bad_input_is_refused() -> None:
    spherical = tl.SGD("0.05/d", geometry="spherical")
    with pytest.raises(
        tl.InputError, match="'spherical' or 'projected' for recovery, but got 'free'"
    ):
        tl.recovery(matched(1), tl.SGD("0.05/d"), 50)
    with pytest.raises(tl.InputError, match="without momentum"):
        tl.recovery(matched(1), spherical.replace(momentum=0.5), 50)
    with pytest.raises(
        tl.InputError, match="`start` must be one of 'positive', 'random'"
    ):
        tl.recovery(matched(1), spherical, 50, start="anywhere")
    with pytest.raises(
        tl.InputError, match="`samples` must be given where the flow does not lead"
    ):
        tl.recovery(tl.Problem("-h2(z1)", "h2"), spherical, 50)
    with pytest.raises(tl.InputError, match="`samples` must be at least one batch"):
        tl.recovery(matched(1), spherical, 50, samples=0)
    with pytest.raises(
        tl.InputError,
        match=r"one for each of 4 seeds, but has Overlaps\(p=1, k=1, starts=3",
    ):
        tl.recovery(
            matched(1),
            spherical,
            50,
            start=tl.Overlaps.random(matched(1), 50, size=3),
            seeds=4,
        )
    with pytest.raises(tl.InputError, match="on the sphere, Q = 1, but has Q = 2"):
        tl.recovery(
            matched(1), spherical, 50, start=tl.Overlaps([[2.0]], [[0.1]]), seeds=4
        )
    with pytest.raises(
        tl.InputError, match="`ell` must be a positive integer, but got 0"
    ):
        tl.single_index.critical_alpha(100, 0)
    with pytest.raises(tl.InputError, match="`dim` must be an integer of at least 2"):
        tl.single_index.critical_alpha(1, 1)
    with pytest.raises(
        tl.InputError, match="an overlap that grows from a random start"
    ):
        tl.single_index.population_loss(tl.Problem("h4(z1)", "relu")).largest_step(100)
    phi = tl.single_index.population_loss(matched(2))
    with pytest.raises(tl.InputError, match="`m` must be an overlap"):
        phi.phi(1.5)
    for call in (phi.phi, phi.flow, phi.noise, lambda m: phi.derivative(m, 2)):
        with pytest.raises(
            tl.InputError, match="`m` must be an array of numbers, but got 'x'"
        ):
            call("x")
    with pytest.raises(tl.InputError, match="`route` must be one of"):
        phi.phi(0.5, "magic")
    with pytest.raises(tl.InputError, match="an overlap from −½ to ½"):
        phi.derivative(0.9, 2)
    with pytest.raises(tl.InputError, match="`start` must be an overlap below the end"):
        phi.time(0.5, 0.4)


@pytest.mark.slow
def test_the_command_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["recovery", "h2(z1)", "h2", "--dim", "60", "--lr", "0.05/d"]
    assert main([*arguments, "--measure", "16", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    found = tl.recovery(
        matched(2), tl.SGD("0.05/d", geometry="spherical"), 60, seeds=16
    )
    assert said["search"]["value"] == found.search.value
    assert said["information"] == 2
    assert said["critical_alpha"] == pytest.approx(np.log(60))
    lines = str(found).splitlines()
    assert lines[2].startswith(f"descent: {found.descent.value:.4g} samples")
    assert f"{found.descent_share.value:.3g} of all" in lines[2]
    assert main(arguments) == 0
    assert "an even loss" in capsys.readouterr().out
    assert main([*arguments, "--measure", "4", "--threshold", "1.5"]) == 2
    assert "`threshold` must be a number in (0, ½)" in capsys.readouterr().err
    assert main(["recovery", "h4(z1)", "relu", "--dim", "100"]) == 0
    said = capsys.readouterr().out
    assert "information exponent  4" in said
    assert "overlaps do not grow" in said
    assert main(["recovery", "h2(z1)"]) == 2


@pytest.mark.long
def test_two_rates_make_the_descent_linear_in_the_dimension() -> None:
    """k = 3: with one rate the descent takes (N/δ) ~ N^{3/2} samples, with δ = O(1) beyond the search of order N."""
    problem, descents = tl.Problem("h3(z1)", "h3"), {}
    for two in (False, True):
        for dim in (64, 1024):
            slow = tl.SGD(lr=0.3 * d**-1.5, loss="correlation", geometry="spherical")
            start = tl.Overlaps([[1.0]], [[0.3]], dim=dim)
            found = tl.recovery(
                problem,
                slow,
                dim,
                start=start,
                samples=60 * dim**1.5,
                seeds=32,
                descent_lr=0.05 / d if two else None,
            )
            assert found.censored == (0, 0)
            descents[two, dim] = found.descent.value / dim
    assert 0.6 < descents[True, 1024] / descents[True, 64] < 1.6  # C N
    assert descents[False, 1024] / descents[False, 64] > 2.5  # N^{3/2}: a factor of 4


@pytest.mark.long
def test_overlaps_stay_small_far_below_the_threshold() -> None:
    """sup |m| at α = 0.1 falls with N for k = 3, where α_c = N; for k = 1, where α_c = 1, more samples lift it."""
    third = tl.SGD(lr=0.3 * d**-1.5, loss="correlation", geometry="spherical")
    small, large = (
        np.median(
            tl.single_index.largest_overlaps(
                tl.Problem("h3(z1)", "h3"), third, n, 0.1 * n, seeds=64
            )
        )
        for n in (100, 2500)
    )
    assert large < 0.5 * small
    first = tl.SGD(lr=0.2 / d, geometry="spherical")
    assert (
        np.median(
            tl.single_index.largest_overlaps(
                tl.Problem("z1", "linear"), first, 2500, 5e4, seeds=16
            )
        )
        > 0.9
    )
    assert (
        tl.single_index.sufficient_alpha(100, 1)
        == tl.single_index.critical_alpha(100, 1)
        == 1.0
    )
    for k in (2, 3, 4):
        assert tl.single_index.sufficient_alpha(
            1000, k
        ) > tl.single_index.critical_alpha(1000, k)
