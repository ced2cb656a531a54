"""Measured weak recovery: exponents, prefactors, and the plane of the phase diagram against runs of the chain.

Starts are typical (|m_0| = d^{−1/2}). The formulas with the contraction by noise hold up to corrections of finite steps and
of higher orders in η, so exponents are compared at the very dimensions of the runs: within 4 standard errors and 0.06,
or 0.02 from d = 1000 on.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas

import twolayer as tl
from twolayer import d
from twolayer.analysis import exponents
from twolayer.analysis import weak_recovery as measured
from twolayer.gallery.shared.batching import ALGORITHMS, batch_of
from twolayer.gallery.shared.batching import law as batching_law

SLACK, LITTLE = 0.06, 0.02


def hermite(ell: int) -> tl.Problem:
    return (
        tl.Problem(f"h{ell}(z1)", f"h{ell}") if ell > 1 else tl.Problem("z1", "linear")
    )


def law(
    mu: float,
    delta: float,
    gamma: float,
    n0: float,
    loss: str = "squared",
    geometry: str = "projected",
) -> tl.SGD:
    return tl.SGD(
        lr=gamma * d**-delta,
        batch=n0 * d**mu if mu else n0,
        loss=loss,
        geometry=geometry,
    )


TABLE = [  # ℓ, loss, geometry, μ, δ, γ0, n0, dimensions
    (3, "squared", "projected", 0, 1.5, 0.02, 1, (16, 48)),
    (3, "squared", "projected", 0.5, 1, 0.04, 1, (16, 100)),
    (3, "squared", "projected", 1, 0.8, 0.05, 4, (100, 400)),
    (3, "squared", "projected", 1, 0.5, 0.05, 20, (100, 800)),
    (3, "squared", "projected", 1.5, 0, 0.05, 20, (1000, 100_000)),
    (3, "squared", "projected", 2, 0, 0.05, 8, (1000, 100_000)),
    (3, "correlation", "projected", 1.5, 0, 0.2, 8, (1000, 100_000)),
    (3, "correlation", "projected", 1.75, -0.25, 0.05, 2, (1000, 1_000_000)),
    (3, "correlation", "projected", 2, -0.2, 0.1, 2, (1000, 1_000_000)),
    (3, "squared", "spherical", 1.5, 0, 0.05, 20, (1000, 100_000)),
    (3, "squared", "spherical", 1.75, -0.25, 0.03, 8, (1000, 1_000_000)),
    (4, "squared", "projected", 2, 0, 0.02, 10, (300, 2000)),
    (4, "correlation", "projected", 2.5, -0.5, 0.05, 4, (1000, 30_000)),
    (2, "squared", "projected", 0, 1, 0.1, 1, (100, 1000)),
    (2, "squared", "projected", 0.5, 0.5, 0.05, 2, (100, 900)),
    (2, "squared", "projected", 1, 0, 0.1, 4, (1000, 1_000_000)),
    (1, "squared", "projected", 0, 1, 0.1, 1, (100, 10_000)),
    (1, "squared", "projected", 1, 0, 0.02, 4, (1000, 100_000)),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("ell", "loss", "geometry", "mu", "delta", "gamma", "n0", "dims"), TABLE
)
def test_measured_exponents(
    ell: int,
    loss: str,
    geometry: str,
    mu: float,
    delta: float,
    gamma: float,
    n0: float,
    dims: tuple[int, ...],
) -> None:
    problem, algorithm = hermite(ell), law(mu, delta, gamma, n0, loss, geometry)
    sums = "gaussian" if mu >= 1 else "exact"
    runs = tl.weak_recovery(
        problem,
        algorithm,
        dims,
        seeds=32 if mu >= 1 else 128,
        start="typical",
        batch_sums=sums,
    )
    law_ = runs.law(start=False)
    assert law_ is not None
    fit = law_.fit
    times = np.array(
        [tl.single_index.recovery_steps(problem, algorithm, n).contracted for n in dims]
    )
    scale = np.log(dims) if ell == 2 else np.ones(2)
    expected = float(np.diff(np.log(times / scale))[0] / np.diff(np.log(dims))[0])
    large = min(dims) >= 1000
    tolerance = 4 * fit.error + (LITTLE if large else SLACK)
    assert abs(fit.slope - expected) < tolerance
    theta = tl.phase_diagram(ell=ell, loss=loss, geometry=geometry).at(mu, delta).theta
    assert theta is not None
    assert tolerance < max(0.1, 0.45 * theta), "the test could not fail"
    if large:  # the exponent itself is seen
        assert abs(fit.slope - theta) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "geometry"), [("correlation", "projected"), ("squared", "spherical")]
)
def test_beyond_the_optimum_steps_do_not_grow(loss: str, geometry: str) -> None:
    """μ = 3, δ = −1: one step or two at any d; μ = 2, δ = −1/2: log log d."""
    problem = hermite(3)
    one = tl.weak_recovery(
        problem,
        law(3, -1, 1, 4, loss, geometry),
        (1000, 100_000),
        seeds=32,
        batch_sums="gaussian",
    )
    assert max(m.value for m in one.medians) <= 2 and one.censored == [0, 0]
    few = tl.weak_recovery(
        problem,
        law(2, -0.5, 0.5, 8, loss, geometry),
        (1000, 1_000_000),
        seeds=32,
        batch_sums="gaussian",
    )
    assert few.medians[1].value <= 2 * few.medians[0].value + 2
    assert few.medians[1].value < 30 < 1_000_000**0.25


@pytest.mark.long
@pytest.mark.parametrize("gamma", [0.1, 0.2, 0.3])
def test_prefactors_against_the_chain(gamma: float) -> None:
    """Formula 2329, 665, 111 at d = 10⁶; finite steps cost a few more."""
    algorithm = law(2, 0, gamma, 1)
    runs = tl.weak_recovery(hermite(3), algorithm, 10**6, seeds=16, start="typical")
    predicted = tl.single_index.recovery_steps(hermite(3), algorithm, 10**6)
    assert runs.batch_sums == ("gaussian",)
    low, high = runs.medians[0].low, runs.medians[0].high
    assert 0.97 * low - 10 < predicted.steps < 1.03 * high + 10
    # a prediction without the self-interaction is far off
    assert runs.medians[0].value < (1 - 2 * gamma) * predicted.steps / (1 - 3 * gamma)


@pytest.mark.slow
def test_a_rate_beyond_the_self_interaction_never_recovers() -> None:
    """γκ = 1.02 at d = 10⁶; without the self-interaction 979 steps would be enough."""
    runs = tl.weak_recovery(
        hermite(3), law(2, 0, 0.34, 1), 10**6, seeds=16, start="typical", steps=2000
    )
    spherical = tl.single_index.recovery_steps(
        hermite(3), law(2, 0, 0.34, 1, geometry="spherical"), 10**6
    )
    assert 900 < spherical.steps < 1000 and runs.censored == [16]


@pytest.mark.long
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_fine_grid_of_the_plane_against_the_chain(name: str) -> None:
    """All points of a grid that are 0.12 or more away from the lines, ℓ = 3: most runs learn, or none does.

    Prefactors keep the noise weak where the plane says that it learns, and strong where not; d is large there, for at
    small d fluctuations learn what the drift does not.
    """
    diagram, count = tl.phase_diagram(ell=3, **ALGORITHMS[name]), {True: 0, False: 0}
    for mu, delta in itertools.product(
        np.arange(1, 3.01, 0.25), np.arange(-1.1, 0.5, 0.15)
    ):
        point = diagram.at(mu, delta)
        around = [
            diagram.at(mu + x, delta + y).learns
            for x in (-0.12, 0.12)
            for y in (-0.12, 0.12)
        ]
        if set(around) != {point.learns} or (point.theta or 0) > 0.8:
            continue
        gamma, ratio = (
            (0.03 if name == "SGD" else 0.2, 0.1) if point.learns else (0.5, 20.0)
        )
        n0 = batch_of(name, 3, gamma, ratio)
        dim = 2000 if point.learns else int(min(1e8, (2.0**52 / n0) ** (1 / mu)))
        options: Any = {"seeds": 8, "start": "typical", "batch_sums": "gaussian"}
        runs = tl.weak_recovery(
            hermite(3),
            batching_law(name, mu, delta, gamma, n0),
            dim,
            steps=None if point.learns else 200,
            **options,
        )
        assert runs.learned == point.learns, (mu, delta)
        assert point.learns or runs.censored == [8], (mu, delta)
        count[point.learns] += 1
    assert min(count.values()) >= 5 and sum(count.values()) > 60


@pytest.mark.long
@pytest.mark.parametrize("loss", ["squared", "correlation"])
def test_small_batches_below_the_line_do_not_learn(loss: str) -> None:
    runs = tl.weak_recovery(
        hermite(3),
        law(0.5, 0.5, 0.5, 1, loss),
        10_000,
        seeds=8,
        start="typical",
        steps=5000,
    )
    assert not tl.phase_diagram(ell=3, loss=loss).at(
        0.5, 0.5
    ).learns and runs.censored == [8]


@pytest.mark.slow
def test_the_wrong_sign_waits_for_the_noise() -> None:
    """θ = 0.4 against 0.3; by default the last step is late enough for the signs that were asked for."""
    point = tl.phase_diagram(ell=3, loss="correlation").at(2, -0.2)
    algorithm = law(2, -0.2, 0.5, 2, "correlation")
    runs = {}
    for sign in ("positive", "negative", "random"):
        options: Any = {
            "seeds": 64,
            "start": "typical",
            "sign": sign,
            "batch_sums": "gaussian",
        }
        runs[sign] = tl.weak_recovery(
            hermite(3), algorithm, (1000, 1_000_000), **options
        )
        assert runs[sign].theta is not None and max(runs[sign].censored) < 8
    late = [
        b.value / a.value
        for a, b in zip(runs["positive"].medians, runs["negative"].medians, strict=True)
    ]
    assert min(late) > 1.5 and late[1] > late[0]
    positive, negative, random = (runs[sign].medians[1].value for sign in runs)
    assert positive <= random <= negative
    found = runs["negative"].law(start=False)
    assert (
        found is not None
        and point.theta is not None
        and point.theta_wrong_sign is not None
    )
    assert (
        abs(found.fit.slope - point.theta_wrong_sign)
        < sigmas() * found.fit.error
        < point.theta_wrong_sign - point.theta
    )


@pytest.mark.slow
def test_runs_that_do_not_recover_are_censored() -> None:
    runs = tl.weak_recovery(
        hermite(3), law(2, 0, 0.05, 2), (1000, 2000), seeds=8, steps=64
    )
    assert runs.censored == [8, 8] and not runs.learned
    assert runs.theta is None and runs.theta_error is None
    assert "8 of 8 not in 64 steps" in str(runs)


def test_starts_near_the_level_are_refused() -> None:
    """Linear target, ten rectifiers at d = 64 start at ‖M‖_F = 0.395, thirty at d = 100 at 0.55."""
    algorithm = tl.SGD("0.1/d", geometry="projected")
    for width, dims in ((10, (512, 64)), (30, (100,)), (1, (15,))):
        problem = tl.Problem("z1", "relu", width=width)
        first = np.sqrt(width / min(dims))
        enough = int(np.ceil(16 * width))
        with pytest.raises(
            tl.InputError, match=f"{first:.3g} that random .*at least {enough}"
        ):
            tl.weak_recovery(problem, algorithm, dims, threshold=0.5)
        assert measured.threshold_of(problem, None) == np.sqrt(width) / 2
    two = tl.Problem("z1 + z2", "relu", width=2, gram=[[1.0, 0.6], [0.6, 1.0]])
    assert measured.threshold_of(two, None) == pytest.approx(np.sqrt(2 * 1.6) / 2)
    with pytest.raises(tl.InputError, match=r"a number in \(0, 1.789\)"):
        tl.weak_recovery(two, algorithm, 100, threshold=2.0)
    with pytest.raises(tl.InputError, match="`dim` must be dimensions that differ"):
        tl.weak_recovery(two, algorithm, (100, 200, 100))


def known(
    steps: np.ndarray, dims: tuple[int, ...], growth: str = "d^1", **more: Any
) -> tl.single_index.WeakRecovery:
    """Runs of a linear target as if they had been measured."""
    limits, sums = (9_999,) * len(dims), ("exact",) * len(dims)
    algorithm = tl.SGD("0.1/d", geometry="projected")
    return tl.single_index.WeakRecovery(
        hermite(1), algorithm, 0.5, dims, steps, limits, sums, growth, **more
    )


def test_every_dimension_has_a_seed_and_starts_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells: list[Any] = []
    monkeypatch.setattr(
        measured._RunsAtOneDimension,
        "passages",
        lambda self, *_: cells.append(self) or np.ones(len(self.starts.M)),
    )
    algorithm = tl.SGD("0.3/d", geometry="projected")
    for dims in ((100, 400), (400, 1000)):
        tl.weak_recovery(hermite(1), algorithm, dims, seeds=1000, seed=7)
    one, two, again, _ = cells
    assert len({one.seed, two.seed, 7}) == 3 and again.seed == two.seed
    np.testing.assert_array_equal(two.starts.M, again.starts.M)
    m = [np.log(cell.starts.M.ravel()) for cell in (one, two)]
    assert abs(np.corrcoef(m)[0, 1]) < sigmas() / np.sqrt(1000)


@pytest.mark.slow
def test_every_dimension_has_random_numbers_of_its_own() -> None:
    """Shared ones correlate log T by 0.9 and more; those of one d do not depend on the company that it is in."""
    problem, algorithm = hermite(1), tl.SGD("0.3/d", geometry="projected")
    options: Any = {"seeds": 400, "threshold": 0.7}
    runs = tl.weak_recovery(problem, algorithm, (40, 80), **options)
    correlation = np.corrcoef(np.log(runs.steps))[0, 1]
    assert abs(correlation) < sigmas() / np.sqrt(400) < 0.5
    alone = tl.weak_recovery(problem, algorithm, 80, **options)
    assert np.array_equal(alone.steps[0], runs.steps[1])


@pytest.mark.slow
def test_the_error_of_theta_is_its_scatter_over_seeds() -> None:
    """Forty measurements of the chain: the error of one, without what the start may do, is the scatter of all."""
    problem, algorithm = hermite(1), tl.SGD("0.3/d", geometry="projected")
    laws = [
        tl.weak_recovery(
            problem, algorithm, (40, 80, 160), seeds=12, seed=seed, threshold=0.7
        ).law(start=False)
        for seed in range(40)
    ]
    slopes, errors = np.array([(law.fit.slope, law.fit.error) for law in laws]).T
    # a standard deviation of forty is known to 11 %, and the mean error to less
    assert errors.mean() == pytest.approx(slopes.std(ddof=1), rel=sigmas() * 0.13)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "width"), [("z1", 10), ("z1 + z1*z2", 6), ("z1", 1), ("z1 + z2", 4)]
)
def test_rectifiers_find_what_is_linear_in_d_steps(target: str, width: int) -> None:
    """From d = 64 on, where plain power laws give 1.05 to 1.4 with errors of 0.01 to 0.07."""
    problem = tl.Problem(target, "relu", width=width)
    algorithm = tl.SGD("0.1/d", geometry="projected")
    runs = tl.weak_recovery(problem, algorithm, (64, 128, 256, 512), seeds=32)
    assert runs.bends is False and runs.censored == [0] * 4
    assert abs(runs.theta - 1) < 3 * runs.theta_error < 0.6


def test_a_law_that_bends_has_no_exponent() -> None:
    rng = np.random.default_rng(3)
    dims = (100, 200, 400, 800)
    bent = np.array(
        [d_ ** (1 + 0.1 * np.log(d_)) * rng.lognormal(0, 0.02, 16) for d_ in dims]
    )
    found = known(bent.round(), dims)
    assert found.bends and found.theta is None and found.theta_error is None
    last = str(found).splitlines()[-1]
    assert last.startswith("theta: bends from 2.0") and "±" not in str(found)
    assert "(d = 400 to 800)" in last and "bends" in found._repr_html_()
    label = tl.plot.weak_recovery(found).axes[0].get_legend_handles_labels()[1][2]
    assert label == last
    straight = known(
        (np.array(dims)[:, None] * rng.lognormal(0, 0.02, 16)).round(), dims
    )
    assert straight.bends is False
    assert straight.theta == pytest.approx(1, abs=3 * straight.theta_error)
    two = known(bent[:2].round(), dims[:2])
    assert two.bends is None and "two dimensions cannot tell" in str(two)


def test_the_start_is_in_the_exponent_and_in_its_error() -> None:
    """T = 10 d (artanh η − s) of a linear neuron: a plain law has 1.11 ± 0.002, with the start 0.98 ± 0.02."""
    rng = np.random.default_rng(4)
    dims = np.array([64, 128, 256, 512])
    steps = 10.0 * dims * (np.arctanh(0.5) - dims**-0.5)
    found = known(steps[:, None] * rng.lognormal(0, 0.005, (4, 32)), tuple(dims))
    plain = found.law(start=False).fit
    assert plain.slope > 1.08 and plain.error < 0.004
    assert abs(found.fit().slope - 1) < 2 * found.fit().error < 0.1
    # theta of T/log d with the factor 2 log(η √d)/log d
    other = known(
        np.log(0.5 * dims**0.5)[:, None] * np.ones((4, 8)), tuple(dims), "log d"
    )
    assert other.start_factor(dims) * np.log(dims) == pytest.approx(
        2 * np.log(0.5 * dims**0.5)
    )
    third = tl.single_index.WeakRecovery(
        hermite(4), found.algorithm, 0.5, (100,), steps[:1], (9,), ("exact",), "d^1"
    )
    assert third.start_factor([100]).tolist() == pytest.approx([1 - 0.2**2])


def test_steps_are_given_up_where_the_drift_says() -> None:
    """d = 4096 takes 5e5 steps: 10 000 of them say nothing."""
    algorithm = tl.SGD("0.1/d", geometry="projected")
    ten = tl.Problem("z1", "relu", width=10)

    def limit(problem: tl.Problem, dim: int, **more: Any) -> int:
        eta = measured.threshold_of(problem, None)
        options = {"sign": "positive", "start": "random", "steps": None, **more}
        return measured._limit(problem, algorithm, dim, eta, **options)

    assert 1e6 < limit(ten, 4096) < 1e7
    assert limit(ten, 4096, steps="2*d") == 8192
    two = tl.Problem("z1 + z1*z2", "relu", width=6)
    assert limit(two, 1024, every=True) > 1.5 * limit(two, 1024)
    # the drift leads nowhere: h2 against its own sign; and too large a rate flips
    assert limit(tl.Problem("-h2(z1)", "h2"), 1024) == 10_000
    wild = tl.SGD(1.2, geometry="projected")
    pair = tl.Problem("h3(z1)", "h3", width=2, second_layer=[2, 2])
    assert measured._limit(pair, wild, 100, 0.5, "positive", "random", None) == 10_000


def test_directions_are_printed_with_their_steps() -> None:
    steps = np.full((1, 8), 20.0)
    each = np.stack([np.full((1, 8), 20.0), np.full((1, 8), np.inf)], -1)
    lines = str(known(steps, (100,), directions=each)).splitlines()
    assert lines[1].strip() == "z1 20 (95 %: 20 to 20), z2 8 of 8 not in 9999 steps"
    steps[0, :2] = 0.0
    assert "2 of 8 start there" in str(known(steps, (100,)))


def test_a_registered_loss_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loss = tl.extend.Loss("clipped", lambda y, f: jnp.clip(y - f, -1.0, 1.0))
    monkeypatch.setattr(
        measured,
        "solve",
        lambda *_, **__: pytest.fail("work was done before the check"),
    )
    for options in ({}, {"steps": 10}):
        with pytest.raises(tl.InputError, match="'clipped'"):
            tl.weak_recovery(
                hermite(3), law(2, 0, 0.05, 2).replace(loss=loss), (100, 200), **options
            )


def test_the_target_is_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chains, plain = [], exponents._leap_chain
    monkeypatch.setattr(
        exponents, "_leap_chain", lambda *args: chains.append(1) or plain(*args)
    )
    problem = tl.Problem("1.37*h3(z1)", "h3")
    tl.weak_recovery(problem, law(2, 0, 0.05, 2), (1000, 2000, 3000), seeds=2, steps=2)
    assert len(chains) == 1
    first, second = tl.analyse(problem.target), tl.analyse(problem.target)
    first.chain.append((7, 7))
    first.hermite.clear()
    assert second.chain == [(3, 1)] and second.hermite
    with pytest.raises(ValueError, match="read-only"):
        first.directions[:] = 0.0


@pytest.mark.long
def test_directions_are_recovered_one_after_the_other() -> None:
    """z1 + z1*z2: the second direction is seen through the first; in z1 + z2/2 both are seen at once."""
    algorithm = tl.SGD(lr=0.1, batch="d", loss="correlation", geometry="projected")
    options: dict[str, Any] = {
        "threshold": 0.35,
        "seeds": 8,
        "steps": 60,
        "per_direction": True,
    }
    staircase = tl.weak_recovery(
        tl.Problem("z1 + z1*z2", "relu"), algorithm, 300, **options
    )
    assert staircase.directions.shape == (1, 8, 2)
    first, second = np.median(staircase.directions[0], axis=0)
    assert first < second and (staircase.steps <= staircase.directions.min(-1)).all()
    both = tl.weak_recovery(tl.Problem("z1 + z2", "relu"), algorithm, 300, **options)
    one, two = np.median(both.directions[0], axis=0)
    assert max(one, two) <= 2 * min(one, two) and second > 2 * first


@pytest.mark.long
def test_reused_samples_need_no_drift_at_the_start() -> None:
    """relu has no third Hermite component: fresh samples show nothing of h3 and are refused, reused ones are measured."""
    problem, algorithm = (
        tl.Problem("h3(z1)", "relu"),
        {"lr": 0.5, "batch": "2*d", "geometry": "spherical"},
    )
    found = tl.weak_recovery(
        problem, tl.SGD(**algorithm, dataset="2*d"), 50, seeds=2, steps=3
    )
    assert found.steps.shape == (1, 2) and found.growth is None
    with pytest.raises(tl.InputError, match="must have a Hermite component"):
        tl.weak_recovery(problem, tl.SGD(**algorithm), 50, seeds=2, steps=3)


@pytest.mark.long
def test_reused_samples_recover_what_fresh_ones_do_not() -> None:
    """He3 on batches of order d: most runs stay where they are, unless the same batch comes back."""
    problem = tl.Problem("He3(z1)", "erf")
    options: dict[str, Any] = {
        "threshold": 0.4,
        "seeds": 8,
        "steps": 4,
        "sign": "random",
    }
    algorithm = {
        "lr": 6.0,
        "batch": "6*d",
        "geometry": "projected",
        "loss": "correlation",
    }
    again = tl.weak_recovery(
        problem, tl.SGD(**algorithm, dataset="6*d"), 300, **options
    )
    fresh = tl.weak_recovery(problem, tl.SGD(**algorithm), 300, **options)
    assert again.growth is None
    assert np.isfinite(again.steps).mean() > 0.8 > np.isfinite(fresh.steps).mean()
