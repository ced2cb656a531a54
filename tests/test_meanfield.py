"""Mean fields: against formulas written once more, against their definition, their gradient structure and wide networks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from cost import sized

import twolayer as tl
from conftest import random_overlaps
from twolayer.gaussian import ensemble_rules as ensembles
from twolayer.gaussian.closed_forms import forms_of
from twolayer.gaussian.ensemble import BLOCK, Cloud, Velocity
from twolayer.gaussian.ensemble_rules import (
    Fineness,
    Wide,
    correlation_moments,
    correlation_rule,
)
from twolayer.gaussian.two_point import NumericForms
from twolayer.methods.meanfield import MeanField
from twolayer.running import solve as solving
from twolayer.task.losses import Loss

P = np.array([[1.0, 0.3], [0.3, 0.8]])
FLOW = tl.SGD(lr="d**-2")


def cloud(n: int, r: int, seed: int = 0, a: bool = True) -> Cloud:
    rng = np.random.default_rng(seed)
    layer = rng.normal(size=n) + 0.5 if a else np.ones(n)
    return Cloud(
        rng.normal(size=(n, r)) * 0.5,
        np.abs(rng.normal(size=n)) + 0.3,
        layer,
        rng.dirichlet(np.ones(n)),
    )


def wide(
    problem: tl.Problem,
    dimension: float,
    n: int,
    own: bool,
    interaction: str,
    loss: str = "squared",
) -> Wide:
    return Wide(problem, Loss.of(loss), dimension, n, own, interaction)


def rates(builder: Wide, particles: Cloud, tolerance: float = 1e-6) -> Velocity:
    fineness, error = builder.adapt(particles, tolerance, Fineness())
    assert error <= tolerance
    with jax.enable_x64(True):
        return builder._rates(builder.build(fineness)[0], particles)


def close(one: Velocity, two: Velocity, tolerance: float) -> None:
    for x, y in zip(one, two, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("quantity", ["overlap", "alignment"])
def test_thresholds_refer_to_what_they_name(quantity: str) -> None:
    """P ≠ 1, where ‖M‖_F is not the norm in orthonormal coordinates: the run stops where M itself reaches the level."""
    problem = tl.Problem(tl.Teacher("square", 2), "square", width=3, gram=P)
    start = tl.Overlaps(np.eye(3), [[0.3, 0.1], [0.1, 0.2], [0.05, 0.1]], P)
    path = tl.solve(problem, FLOW, tl.MeanField(), start, time=1, save=200)
    seen = (
        np.sqrt((path.M.values[0] ** 2).sum((1, 2)))
        if quantity == "overlap"
        else path.M.values[0, :, 0, 0]
    )
    assert (np.diff(seen[:100]) > 0).all()
    level = float((seen[60] + seen[61]) / 2)
    run = tl.solve(
        problem,
        FLOW,
        tl.MeanField(),
        start,
        time=1,
        save=5,
        until=tl.Until(quantity, level),
    )
    assert run.outcome.values.tolist() == ["reached"]
    assert path.time.values[60] < float(run.stop_time[0]) < path.time.values[61]


@pytest.mark.slow
def test_the_overlap_of_particles_does_not_depend_on_how_many_stand_for_a_neuron() -> (
    None
):
    problem, level = tl.Problem("z1**2", "square"), tl.Until("overlap", 0.5)
    m, q = np.array([[0.2], [0.4]]), np.array([0.9, 0.8])
    two = tl.mean_field.Particles(m, q, [0.5, 0.5])
    four = tl.mean_field.Particles(
        np.repeat(m, 2, axis=0), np.repeat(q, 2), [0.1, 0.4, 0.25, 0.25]
    )
    stops = [
        tl.solve(
            problem, FLOW, tl.MeanField(), s, time=5, save=5, until=level
        ).stop_time.item()
        for s in (two, four)
    ]
    assert stops[0] == pytest.approx(stops[1], rel=1e-6)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    "dimension", [pytest.param(3, marks=pytest.mark.slow), math.inf]
)
def test_square_closes_on_moments_and_agrees_by_nodes_and_pairs(
    own: bool, dimension: float
) -> None:
    problem = tl.Problem(tl.Teacher("square", 2, [1.5, 0.6]), "square", gram=P)
    particles = cloud(5, 2)
    closed, nodes, pairs = (
        rates(wide(problem, dimension, 5, own, word), particles)
        for word in ("auto", "nodes", "pairs")
    )
    close(closed, nodes, 1e-12)
    close(closed, pairs, 1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "dimension", "own"),
    [("erf", 4, False), ("erf", math.inf, True), ("relu", 30, True)],
)
def test_nodes_and_pairs_are_two_ways_to_one_average(
    name: str, dimension: float, own: bool
) -> None:
    problem = tl.Problem(tl.Teacher(name, 1), name)
    particles = cloud(5, 1)
    by_nodes = rates(wide(problem, dimension, 5, own, "nodes"), particles)
    by_pairs = rates(wide(problem, dimension, 5, own, "pairs"), particles)
    close(by_nodes, by_pairs, 5e-6)


def test_erf_has_the_formula_of_the_high_dimensional_limit() -> None:
    """dm, dq and the risk of erf committees in closed form, k = 2, P = 1."""
    problem, n = tl.Problem(tl.Teacher("erf", 2), "erf"), 6
    m, s, _, w = particles = cloud(n, 2, a=False)
    q = s**2
    S = 1 + (m**2).sum(1) + q
    inner = m @ m.T
    root = np.sqrt(np.outer(S, S) - inner**2)
    teacher = np.sqrt(2 * S[:, None] - m**2)
    dm = (2 / np.pi) * (
        (
            (np.eye(2)[None] - m[:, :, None] * m[:, None, :] / S[:, None, None])
            / teacher[:, None, :]
        ).sum(2)
        / 2
        - (
            (m[None] - m[:, None] * (inner / S[:, None])[..., None])
            / root[..., None]
            * w[None, :, None]
        ).sum(1)
    )
    dq = -4 * q / np.pi / S * ((m / teacher).sum(1) / 2 - (inner / root) @ w)
    got = rates(wide(problem, math.inf, n, False, "pairs"), particles)
    np.testing.assert_allclose(got.A, dm, rtol=1e-10)
    np.testing.assert_allclose(2 * s * got.s, dq, rtol=1e-9)
    both = (2 / np.pi) * np.arcsin(inner / np.sqrt(np.outer(S, S)))
    cross = (2 / np.pi) * np.arcsin(m / np.sqrt(2 * S[:, None]))
    risk = (1 / 6 - 2 * w @ cross.mean(1) + w @ both @ w) / 2
    assert float(got.excess_risk) == pytest.approx(risk, rel=1e-10)


def test_square_has_the_formula_of_the_theory_at_finite_dimension() -> None:
    problem, n, D = tl.Problem(tl.Teacher("square", 2), "square", gram=P), 6, 5
    A, s, _, w = particles = cloud(n, 2, a=False)
    L = np.linalg.cholesky(P)
    builder = wide(problem, D, n, False, "auto")
    frame = tl.Overlaps(np.eye(1), np.zeros((1, 2)), P).factors()[0]
    m, q = A @ frame.T, s**2
    inverse = np.linalg.inv(P)
    kappa = np.trace(P) / 2 - w @ (((m @ inverse) * m).sum(1) + q)
    second = (m * w[:, None]).T @ m
    got = rates(builder, particles)
    np.testing.assert_allclose(
        got.A @ frame.T,
        2 * kappa * m + 4 * m @ (P / 2 - second @ inverse).T,
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        2 * s * got.s, 4 * kappa * q - 8 / D * q * (w @ q), rtol=1e-10
    )
    risk = (
        kappa**2 / 2
        + np.trace(P @ P) / 4
        - np.trace(second)
        + np.trace(inverse @ second @ inverse @ second)
    )
    assert float(got.excess_risk) == pytest.approx(risk + (w @ q) ** 2 / D, rel=1e-10)
    np.testing.assert_allclose(L @ L.T, frame @ frame.T, atol=1e-12)


@pytest.mark.long
def test_the_definition_is_an_average_over_directions() -> None:
    """Two neurons: E_Ξ of the averages of the explicit network over the one correlation of their orthogonal parts."""
    D, rho = 4, 0.8
    problem = tl.Problem("tanh(z1) + z1**2/3", "erf", width=2, gram=[[rho]])
    A, s, a, _ = particles = cloud(2, 1)._replace(weights=np.full(2, 0.5))
    dA, dq, risk = 0.0, 0.0, 0.0
    for c, chance in zip(*correlation_rule(D, 6), strict=True):
        Q = A @ A.T + np.array(
            [[s[0] ** 2, c * s[0] * s[1]], [c * s[0] * s[1], s[1] ** 2]]
        )
        here = tl.moments(
            problem,
            tl.Overlaps(Q, A * np.sqrt(rho), [[rho]], a),
            averages=tl.Averages(accuracy=0.001),
        )
        along = here.psi / np.sqrt(rho)
        dA = dA + chance * along
        dq = dq + chance * 2 * (np.diagonal(here.phi) - (A * along).sum(1))
        risk = risk + chance * here.excess_risk
    got = rates(wide(problem, D, 2, True, "nodes"), particles, 1e-5)
    np.testing.assert_allclose(got.A, dA, atol=3e-5)
    np.testing.assert_allclose(2 * s * got.s, dq, atol=3e-5)
    assert float(got.excess_risk) == pytest.approx(risk, abs=3e-5)
    assert np.abs(dA).min() > 3e-3


@pytest.mark.long
def test_particles_descend_the_risk(x64: None) -> None:
    """∂R/∂(A, s, a)_j = −weight_j (dA, ds, da)_j at any dimension and P: the Wasserstein gradient flow."""
    problem = tl.Problem("tanh(z1) + z1*z2/3", "erf", gram=P)
    particles = cloud(4, 2)
    ensemble, _ = wide(problem, 4, 4, True, "nodes").build(Fineness(16, 3))
    risk = jax.jit(
        jax.grad(
            lambda A, s, a: ensemble(Cloud(A, s, a, particles.weights)).excess_risk,
            argnums=(0, 1, 2),
        )
    )
    slopes, found = risk(*particles[:3]), ensemble(particles)
    share = particles.weights
    np.testing.assert_allclose(slopes[0], -share[:, None] * found.A, atol=1e-6)
    np.testing.assert_allclose(slopes[1], -share * found.s, atol=1e-6)
    np.testing.assert_allclose(slopes[2], -share * found.a, atol=1e-6)


def test_blocks_of_particles_and_weights_change_nothing(x64: None) -> None:
    """Copies with shared weight are one particle, also when they fill several blocks."""
    problem = tl.Problem(tl.Teacher("erf", 1), "erf")
    few = cloud(40, 1)
    copies = BLOCK // (40 * 12) + 20
    many = Cloud(
        *(np.repeat(x, copies, axis=0) for x in few[:3]),
        np.repeat(few.weights, copies) / copies,
    )
    assert len(many.s) > BLOCK // 16
    one, two = (
        wide(problem, math.inf, len(x.s), False, "nodes")._rates(
            wide(problem, math.inf, len(x.s), False, "nodes").build(Fineness(16))[0], x
        )
        for x in (few, many)
    )
    close(
        one,
        Velocity(two.A[::copies], two.s[::copies], two.a[::copies], two.excess_risk),
        1e-5,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parity"),
    [("erf", -1), ("tanh", -1), ("cos(z)", 1), ("relu", 0), ("tanh(z + 0.7)", 0)],
)
@pytest.mark.parametrize(("dimension", "own"), [(math.inf, False), (4, True)])
def test_half_of_the_nodes_are_enough_for_odd_and_even_activations(
    name: str,
    parity: int,
    dimension: float,
    own: bool,
    x64: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target has both parts; of an activation that has no parity, half of the nodes would not do."""
    problem = tl.Problem("0.4 + z1 + z1*z2 + tanh(z2)", name)
    particles, builder = cloud(5, 2), wide(problem, dimension, 5, own, "nodes")
    assert ensembles._parity(problem.activation) == parity
    found = {}
    for sign in (0, parity or -1):
        monkeypatch.setattr(ensembles, "_parity", lambda sigma, sign=sign: sign)
        ensemble = builder.build(Fineness(16))[0]
        found[sign] = len(ensemble.weights), builder._rates(ensemble, particles)
    (every, whole), (half, folded) = found.values()
    assert half == -(-every // 2)
    if parity:
        close(whole, folded, 1e-12)
    else:
        assert np.abs(whole.A - folded.A).max() > 1e-2


@pytest.mark.parametrize("name", ["erf", "relu", "He3"])
def test_hermite_coefficients_of_a_field_in_closed_form_and_by_quadrature(
    name: str, x64: None
) -> None:
    sigma = tl.extend.Activation.of(name)
    mean, width = np.array([0.3, -1.2, 0.0, 0.5]), np.array([0.7, 1.5, 0.2, 0.0])
    closed, numeric = (
        f.ladder(jnp.asarray(mean), jnp.asarray(width), 6)
        for f in (forms_of(sigma, 1), NumericForms(sigma, 24))
    )
    np.testing.assert_allclose(closed.value, numeric.value, atol=1e-9)
    np.testing.assert_allclose(closed.slopes, numeric.slopes, atol=1e-8)


def test_correlations_of_random_directions() -> None:
    for D in (1, 2, 3, 10, 999):
        x, w = correlation_rule(D, 12)
        np.testing.assert_allclose(
            [w @ x ** (2 * i) for i in range(4)], correlation_moments(D, 4), rtol=1e-9
        )
        assert abs(w @ x**3) < 1e-14
    rng = np.random.default_rng(0)
    g = rng.normal(size=(2, 20000, 3))
    c = (g[0] * g[1]).sum(1) / np.sqrt((g[0] ** 2).sum(1) * (g[1] ** 2).sum(1))
    assert (
        abs((c**2).mean() - correlation_moments(3, 2)[1])
        < sigmas() * (c**2).std() / np.sqrt(20000)
        < 0.02
    )


@pytest.fixture(scope="module")
def widths() -> dict[int, dict[str, Any]]:
    """The same random start by the ODE and by mean fields, square activation (closed averages), d = 20."""
    found = {}
    for p in (8, 64):
        problem = tl.Problem("z1**2", "square", width=p)
        start = tl.Overlaps.random(problem, 20, seed=4)
        methods = {"ode": tl.ODE(), "mean": MeanField(20)}
        found[p] = {
            n: tl.solve(problem, FLOW, m, start, time=2, save=10)
            for n, m in methods.items()
        }
    return found


@pytest.mark.long
def test_wide_networks_approach_the_mean_field(
    widths: dict[int, dict[str, Any]],
) -> None:
    """The risk differs by O(1/p) from the same start."""
    few, many = (
        np.abs(widths[p]["ode"].risk.values - widths[p]["mean"].risk.values).max()
        for p in (8, 64)
    )
    assert -1.5 < np.log(many / few) / np.log(64 / 8) < -0.6, (few, many)


@pytest.mark.long
def test_the_dataset_of_neurons_has_overlaps_and_a_measure(
    widths: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    result = widths[8]["mean"]
    np.testing.assert_allclose(
        np.diagonal(result.Q.values, axis1=2, axis2=3),
        result.M.values[..., 0] ** 2 + result.q.values,
    )
    assert result.weight.values.tolist() == [1 / 8] * 8
    assert "quadratic" in json.loads(result.attrs["notes"])["engine"]
    tl.save(result, tmp_path / "run.nc")
    again = tl.rerun(tl.load(tmp_path / "run.nc"))
    np.testing.assert_array_equal(again.q.values, result.q.values)
    assert tl.plot.trajectory(result).axes


@pytest.fixture(scope="module")
def base() -> tuple[tl.mean_field.Particles, Any]:
    """A thousand particles, the last ten copies of the first; half of all have no overlap. In the limit d → ∞."""
    drawn = tl.mean_field.Particles.sample(PHASE, 1000, dim=100, seed=1)
    m, q = drawn.m * (np.arange(1000) % 2)[:, None], drawn.q.copy()
    m[-10:], q[-10:] = m[:10], q[:10]
    start = tl.mean_field.Particles(m, q)
    return start, follow(start)


PHASE = tl.Problem("z1**2", "square")


def follow(
    start: tl.mean_field.Particles, dim: float = math.inf, algorithm: tl.SGD = FLOW
) -> Any:
    return tl.solve(PHASE, algorithm, MeanField(dim), start, time=3, save=3)


def test_equal_measures_move_equally(base: tuple[tl.mean_field.Particles, Any]) -> None:
    """Particles in another order; and the weight of copies on one of them, the other a mere passenger."""
    start, result = base
    assert "Q" not in result and result.q.shape == (1, 4, 1000)
    order = np.random.default_rng(0).permutation(1000)
    swapped = follow(tl.mean_field.Particles(start.m[order], start.q[order]))
    np.testing.assert_allclose(swapped.q.values, result.q.values[..., order], rtol=1e-6)
    weights = np.ones(1000)
    weights[:10], weights[-10:] = 2, 0
    carried = follow(tl.mean_field.Particles(start.m, start.q, weights))
    np.testing.assert_allclose(carried.M.values, result.M.values, atol=1e-6)
    np.testing.assert_allclose(carried.risk.values, result.risk.values, rtol=1e-6)


def test_particles_run_again_from_a_file(
    base: tuple[tl.mean_field.Particles, Any], tmp_path: Path
) -> None:
    tl.save(base[1], tmp_path / "cloud.nc")
    again = tl.rerun(tl.load(tmp_path / "cloud.nc"))
    np.testing.assert_array_equal(again.M.values, base[1].M.values)
    assert json.loads(again.attrs["description"])["method"]["dim"] == "inf"


def test_large_dimension_is_the_infinite_one_up_to_one_over_d(
    base: tuple[tl.mean_field.Particles, Any],
) -> None:
    start, limit = base
    scaled = [
        d * np.abs(follow(start, d).risk.values - limit.risk.values).max()
        for d in (1000, 4000)
    ]
    assert scaled[0] == pytest.approx(scaled[1], rel=0.02)
    assert scaled[0] > 0.1


def test_symmetric_manifolds_are_kept(
    base: tuple[tl.mean_field.Particles, Any],
) -> None:
    """Particles without overlap stay so under an even activation; norms of projected particles do not move."""
    start, result = base
    assert np.abs(result.M.values[:, :, ::2]).max() == 0.0
    assert np.abs(result.M.values[0, -1, 1::2]).mean() > 0.3
    sphere = follow(start, algorithm=FLOW.replace(geometry="projected"))
    np.testing.assert_allclose(
        (sphere.M.values**2).sum(-1) + sphere.q.values,
        start.norms * np.ones((1, 4, 1)),
        atol=1e-6,
    )


def test_start_and_method_are_checked() -> None:
    problem, start = (
        tl.Problem("z1**2", "square"),
        tl.mean_field.Particles([[0.5]], [0.75]),
    )
    with pytest.raises(tl.InputError, match="which follows overlaps between neurons"):
        tl.solve(problem, FLOW, tl.ODE(), start, time=1)
    with pytest.raises(tl.InputError, match="2 directions"):
        tl.solve(tl.Problem("z1*z2", "square"), FLOW, MeanField(), start, time=1)
    with pytest.raises(tl.InputError, match="q = 0 at dim = 1"):
        tl.solve(problem, FLOW, MeanField(1), start, time=1)
    with pytest.raises(tl.InputError, match="its own a"):
        three = tl.Problem("z1**2", "square", width=3, second_layer=[1, 2, 3])
        tl.solve(three, FLOW, MeanField(), start, time=1)
    with pytest.raises(tl.errors.Refused, match="stands still"):
        tl.solve(problem, tl.SGD("d**-0.75"), MeanField(), start, time=1)
    with pytest.raises(tl.errors.Refused, match="discrete map"):
        tl.solve(problem, tl.SGD("0.1", "d"), MeanField(), start, time=1)
    with pytest.raises(tl.errors.Refused, match="no sum of ridges"):
        tl.solve(
            tl.Problem("z1*z2", "erf"),
            FLOW,
            MeanField(interaction="pairs"),
            tl.mean_field.Particles([[0.5, 0]], [1]),
            time=1,
        )
    for knobs, words in (
        ({"dim": 0}, "dim"),
        ({"dim": 2.5}, "dim"),
        ({"rtol": 0}, "rtol"),
        ({"interaction": "all"}, "one of"),
    ):
        with pytest.raises(tl.InputError, match=words):
            MeanField(**knobs)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], []), "matrix"),
        ((np.zeros((0, 1)), []), "at least one particle"),
        (([[0.5]], [-0.1]), "non-negative"),
        (([[0.5]], [0.1, 0.2]), "one for each particle"),
        (([[0.5]], [0.1], [-1.0]), "non-negative"),
        (([[0.5]], [0.1], [0.0]), "not all zero"),
        (([[0.5]], [np.nan]), "finite"),
        (([[0.5, 0]], [0.1], None, [[1, 2], [2, 1]]), "positive semidefinite"),
        (([[0.5, 0]], [0.1], None, [[1, 1], [1, 1]]), "range of P"),
        (([[0.5]], [0.1], None, None, [1, 2]), "one for each particle"),
    ],
)
def test_bad_particles_are_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(tl.InputError, match=words):
        tl.mean_field.Particles(*arguments)


def test_particles_are_sampled_from_their_law() -> None:
    problem = tl.Problem(tl.Teacher("erf", 2), "erf", gram=P)
    cloud_ = tl.mean_field.Particles.sample(problem, 20_000, "gaussian", dim=30, seed=3)
    spread = cloud_.m.T @ cloud_.m / 20_000 * 30
    assert np.abs(spread - P).max() < sigmas(P.size) * np.sqrt(2 / 20_000)
    assert abs(cloud_.q.mean() - 28 / 30) < sigmas() * np.sqrt(2 * 28) / 30 / np.sqrt(
        20_000
    )
    many = tl.Overlaps.random(problem.replace(width=400), 30, seed=1)
    neurons = tl.mean_field.Particles.from_overlaps(many)
    np.testing.assert_allclose(neurons.norms, 1.0, atol=1e-12)
    for arguments, words in (
        ({"size": 0}, "positive"),
        ({"size": 3, "law": "cube"}, "sphere"),
        ({"size": 3}, "`dim` must be given"),
        ({"size": 3, "law": 5}, "function"),
        (
            {"size": 3, "law": lambda rng: (rng.normal(size=(3, 2)), np.ones(3))},
            "`law` must be a function of",
        ),
        ({"size": 3, "law": lambda rng, size: None}, "returns the pair m"),
        (
            {"size": 3, "law": lambda rng, size: rng.normal(size=(2, size))},
            "returns the pair m .* got 'ndarray'",
        ),
    ):
        with pytest.raises(tl.InputError, match=words):
            tl.mean_field.Particles.sample(problem, **arguments)


def test_costs_and_room_are_told_beforehand() -> None:
    """Orders of magnitude of measured runs: 60 s and 0.5 GB for 10⁵ particles, 15 s for 64 neurons of the ODE."""

    def task(problem: tl.Problem, start: Any, method: tl.extend.Method) -> Any:
        return solving.make_task(problem, FLOW, method, start, time=1.0, save=2)

    erf = tl.Problem(tl.Teacher("erf", 2), "erf")
    seconds, room = [], []
    for n in (10**3, 10**5):
        one = task(
            erf, tl.mean_field.Particles(np.zeros((n, 2)), np.ones(n)), MeanField()
        )
        seconds.append(MeanField().cost(one))
        room.append(MeanField().footprint(one))
    assert 10 < seconds[1] < 300
    assert 90 < (seconds[1] - 0.5) / (seconds[0] - 0.5) < 110
    assert 3e8 < room[1] < 2e9
    assert 1e7 < room[0] < 2e8
    paired = task(
        erf,
        tl.mean_field.Particles(np.zeros((2000, 2)), np.ones(2000)),
        MeanField(interaction="pairs"),
    )
    assert MeanField(interaction="pairs").footprint(paired) > 3e8
    square = tl.Problem("z1**2", "square")
    few = task(
        square,
        tl.mean_field.Particles(np.zeros((10**5, 1)), np.ones(10**5)),
        MeanField(),
    )
    assert MeanField().cost(few) < 2
    broad = tl.Problem(tl.Teacher("erf", 4), "erf", width=64)
    assert (
        5
        < tl.ODE().cost(
            task(broad, tl.Overlaps(np.eye(64), np.zeros((64, 4))), tl.ODE())
        )
        < 50
    )
    assert tl.ODE().cost(task(square, tl.Overlaps([[1.0]], [[0.0]]), tl.ODE())) < 1


def test_the_parts_of_the_ode_add_up() -> None:
    """Gradient flow and variance: their sum moves the ODE, and the classic limits keep one or both."""
    P2 = np.array([[1.0, 0.2], [0.2, 0.7]])
    problem = tl.Problem(
        tl.Teacher("square", 2, [1.5, 0.6]), "square", width=3, noise=0.3, gram=P2
    )
    start = random_overlaps(3, 3, 2, P2, size=0.6)
    here = tl.moments(problem, start)
    both = tl.rates(problem, tl.SGD("0.3/d"), start)
    np.testing.assert_allclose(both.gradient_flow.M, here.psi)
    np.testing.assert_allclose(both.gradient_flow.Q, here.phi + here.phi.T)
    np.testing.assert_allclose(both.variance.Q, 0.3 / 3 * here.chi, rtol=1e-12)
    assert not both.variance.M.any() and both.regime == "Saad–Solla"
    short = 1e-6
    run = tl.solve(problem, tl.SGD("0.3/d"), tl.ODE(), start, time=short, save=1)
    for name in ("M", "Q"):
        moved = (run[name].values[0, 1] - run[name].values[0, 0]) / short
        np.testing.assert_allclose(
            moved, getattr(both.total, name), rtol=1e-4, atol=1e-5
        )
    flow, noise = (
        tl.rates(problem, tl.SGD(lr), start) for lr in ("0.3*d**-2", "0.3*d**-0.75")
    )
    np.testing.assert_allclose(flow.total.Q, both.gradient_flow.Q)
    np.testing.assert_allclose(noise.total.Q, both.variance.Q)
    assert not noise.total.M.any()
    # projected: each part loses its own radial motion, and norms stay
    unit = 1 / np.sqrt(np.diagonal(start.Q))
    ball = tl.Overlaps(
        start.Q * unit[:, None] * unit, start.M * unit[:, None], P2, start.a
    )
    turned = tl.rates(problem, tl.SGD("0.3/d", geometry="projected"), ball)
    plain = tl.rates(problem, tl.SGD("0.3/d"), ball)
    for part, straight in (
        (turned.gradient_flow, plain.gradient_flow),
        (turned.variance, plain.variance),
    ):
        np.testing.assert_allclose(np.diagonal(part.Q), 0.0, atol=1e-12)
        np.testing.assert_allclose(
            part.M,
            straight.M - ball.M * np.diagonal(straight.Q)[:, None] / 2,
            atol=1e-12,
        )
    with pytest.raises(tl.errors.Refused, match="discrete map"):
        tl.rates(problem, tl.SGD("0.3*d**-0.5"), start)
    with pytest.raises(tl.InputError, match="single point"):
        tl.rates(
            problem.replace(width=2),
            tl.SGD("1/d"),
            tl.Overlaps.random(problem.replace(width=2), 9, size=2),
        )


def test_overlaps_decompose_also_along_dependent_directions() -> None:
    rng = np.random.default_rng(2)
    W, base = rng.normal(size=(3, 6)), rng.normal(size=(2, 6))
    W_star = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -2.0]]) @ base  # rank 2
    start = tl.Overlaps.from_weights(W, W_star)
    inside, perp = start.decompose()
    rest = W - inside @ W_star
    np.testing.assert_allclose(rest @ W_star.T, 0.0, atol=1e-10)
    np.testing.assert_allclose(rest @ rest.T, perp, atol=1e-10)
    np.testing.assert_allclose(start.Q_perp, perp)


def test_nearly_dependent_directions_are_cut_alike_everywhere() -> None:
    """An eigenvalue of 1e-11 is noise: inverted, it would show in Q⊥ and in norms."""
    P3 = np.array([[1.0, 1.0], [1.0, 1.0 + 2e-11]])
    start = tl.Overlaps([[1.0]], [[0.6, 0.6 + 1e-9]], P3)
    _, A, _ = start.factors()
    np.testing.assert_allclose(start.Q_perp, start.Q - A @ A.T, atol=1e-9)
    cloud_ = tl.mean_field.Particles(start.M, [0.64], None, P3)
    np.testing.assert_allclose(cloud_.norms, 1.0, atol=1e-8)


@pytest.mark.parametrize("activation", sized(["erf", "square"], long=["erf"]))
def test_the_velocity_descends_the_first_variation(activation: str) -> None:
    """dm/dt = −P ∂_m V and dq/dt = −4q ∂_q V by differences, P ≠ I; the mobility of (m, q) is not the identity."""
    P = np.array([[1.0, 0.3], [0.3, 1.2]])
    problem = tl.Problem(tl.Teacher(activation, k=2), activation, gram=P)
    rng = np.random.default_rng(3)
    measure = tl.mean_field.Particles(
        rng.normal(size=(5, 2)) / 2, rng.uniform(0.2, 1.0, 5), P=P
    )
    m, q, h = np.array([0.3, -0.2]), 0.7, 1e-5
    shifts = [
        (m, q),
        *((m + s * h * e, q) for e in np.eye(2) for s in (1, -1)),
        (m, q + h),
        (m, q - h),
    ]
    at = tl.mean_field.mean_field_at(
        problem,
        measure,
        np.array([x for x, _ in shifts]),
        np.array([y for _, y in shifts]),
    )
    V = at.variation
    slope = np.array([V[1] - V[2], V[3] - V[4]]) / (2 * h)
    assert at.m[0] == pytest.approx(-P @ slope, rel=1e-6)
    assert at.q[0] == pytest.approx(-4 * q * (V[5] - V[6]) / (2 * h), rel=1e-6)
    assert at.q[0] != pytest.approx(-(V[5] - V[6]) / (2 * h), rel=0.1)
    # at its own particles it is what the method integrates
    run = tl.solve(problem, tl.SGD("0.1/d"), tl.MeanField(), measure, time=1e-4, save=1)
    moved = (run.M.values[0, -1] - measure.m) / 1e-4
    assert tl.mean_field.mean_field_at(problem, measure).m == pytest.approx(
        moved, rel=1e-2, abs=1e-3
    )


def test_bad_points_of_a_mean_field_are_refused() -> None:
    problem, measure = (
        tl.Problem("z1**2", "square"),
        tl.mean_field.Particles([[0.5]], [0.75]),
    )
    for arguments, words in (
        ({"m": [[0.5]]}, "give both"),
        ({"m": [[0.5]], "q": [-1.0]}, "non-negative"),
        ({"m": [[0.5, 1.0]], "q": [1.0]}, "matrix"),
        ({"dim": 1}, "above the 1"),
    ):
        with pytest.raises(tl.InputError, match=words):
            tl.mean_field.mean_field_at(problem, measure, **arguments)
    with pytest.raises(tl.InputError, match="`problem` must be a Problem"):
        tl.mean_field.mean_field_at(3, measure)  # type: ignore[arg-type]


@pytest.mark.parametrize("gamma", [0.02, 0.1])
def test_the_covariance_at_a_point_is_that_of_one_neuron(gamma: float) -> None:
    """Var of the projected increment of m in closed form; without the common motion of Q it is another number."""
    m, noise = 0.5, 0.3
    w = 1 - m**2
    expected = (
        w**2
        * (
            48
            + 80 * m**2
            - 2688 * gamma * m**2
            + 1152 * gamma**2 * m**2 * (27 - 10 * m**2)
        )
        + noise * w * (4 - 128 * gamma * m**2 + 192 * gamma**2 * m**2 * (10 - 3 * m**2))
        + 32 * gamma**2 * noise**2 * m**2
    )
    problem, start = (
        tl.Problem("z1**2", "square", noise=noise),
        tl.Overlaps([[1.0]], [[m]]),
    )
    at = tl.rates(problem, tl.SGD(gamma / tl.d, geometry="projected"), start)
    assert at.entries == ["M[1,1]", "Q[1,1]"]
    assert at.covariance[0, 0] == pytest.approx(expected, rel=1e-10)
    assert at.covariance[1, 1] == pytest.approx(0.0, abs=1e-9)
    free = tl.rates(problem, tl.SGD(gamma / tl.d), start).covariance
    assert free[0, 0] == pytest.approx(
        48 * w * (1 + 4 * m**2) + 4 * noise * (1 + 2 * m**2), rel=1e-10
    )
    assert abs(free[0, 1]) > 0.1 * np.sqrt(free[0, 0] * free[1, 1]) and free[
        0, 0
    ] != pytest.approx(expected, rel=0.1)


@pytest.mark.long
def test_any_loss_in_infinite_dimension_is_the_limit_of_wide_students() -> None:
    """With outputs that do not fluctuate, the ODE of p neurons has the mean field of its loss up to 1/p."""
    rng, gaps = np.random.default_rng(5), {}
    for p in (8, 32):
        problem = tl.Problem(
            "sign(z1)", "erf", width=p, noise=0.05, flips=0.1, second_layer=[2.0] * p
        )
        m = 0.4 * rng.permutation(np.linspace(-1, 1, p))[:, None]
        start = tl.Overlaps(m @ m.T + 0.5 * np.eye(p), m)
        wide = tl.SGD(
            lr=1e-6 / tl.d, loss="huber(0.6)"
        )  # the spread of single samples is out of the way
        field = tl.solve(problem, wide, tl.MeanField(), start, time=1.0, save=1)
        network = tl.solve(
            problem,
            wide,
            tl.ODE(averages=tl.Averages(engine="sobol", points=2**13, accuracy=1e-3)),
            start,
            time=1.0,
            save=1,
        )
        gaps[p] = np.abs(field.M - network.M).max().item()
        squared = tl.solve(
            problem,
            wide.replace(loss="squared"),
            tl.MeanField(),
            start,
            time=1.0,
            save=1,
        )
    assert gaps[32] < 0.4 * gaps[8] and gaps[32] < 0.02
    assert np.abs(squared.M - field.M).max() > 2 * gaps[32]
    assert "MeanField" in tl.support(problem, wide)
    with pytest.raises(tl.InputError, match="use dim = inf"):
        tl.solve(problem, wide, tl.MeanField(dim=50), start, time=1.0)


@pytest.mark.parametrize("count", [6, 7])
def test_one_side_of_the_nodes_has_the_weight_of_both(count: int) -> None:
    """The origin, which is among an odd number of them, has no partner."""
    from types import SimpleNamespace

    from twolayer.gaussian import ensemble_rules

    x, w = np.polynomial.hermite_e.hermegauss(count)
    w = w / w.sum()
    rule = SimpleNamespace(points=x[:, None], weights=w, values=x**2 + 1.0)
    sigma = tl.Problem("z1", "He2").activation
    points, weights, values, rest = ensemble_rules._folded(rule, sigma)
    assert len(points) == (count + 1) // 2 and float(rest) == pytest.approx(0.0)
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert weights @ values == pytest.approx(2.0, rel=1e-12)
