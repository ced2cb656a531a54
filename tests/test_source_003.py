"""Online learning and information exponents (source 003), statement by statement."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from statements import Proofs

import twolayer as tl
from twolayer import d

proves = Proofs("003")

SQUARED, FREE = tl.phase_diagram(ell=3), tl.phase_diagram(ell=3, loss="correlation")


@proves("003-01")
def samples_of_single_index_models() -> None:
    """α_c N of the batch of one is the exponent that the plane gives along its noise line."""
    for ell in (1, 2, 3, 4):
        power = tl.phase_diagram(ell=ell).samples(0.0)
        assert power == max(1.0, ell - 1.0)
        grown = (
            10**6
            * tl.single_index.critical_alpha(10**6, ell)
            / (10**4 * tl.single_index.critical_alpha(10**4, ell))
        )
        assert np.log(grown) / np.log(100) == pytest.approx(power, abs=0.1)


@proves("003-03")
def batches_of_d_to_the_ell() -> None:
    for ell in (2, 3, 4):
        point = tl.phase_diagram(ell=ell, loss="correlation").at(
            mu=ell, delta=(1 - ell) / 2
        )
        assert point.steps == 1 and point.growth == "constant"


@proves("003-07", "003-08")
def losses() -> None:
    """Pushes are −∂ℓ/∂f, of ½(y − f)² and of 1 − y f."""
    for name, loss in (
        ("squared", lambda y, f: (y - f) ** 2 / 2),
        ("correlation", lambda y, f: 1 - y * f),
    ):
        residual = tl.SGD(lr=0.1, loss=name).loss.residual
        for y, f in ((0.7, -0.3), (-1.2, 0.4)):
            assert float(residual(y, f)) == pytest.approx(
                -float(jax.grad(loss, 1)(y, f)), rel=1e-6
            )
    # the risk that is reported is that of the squared error, whichever loss is trained
    problem, start = (
        tl.Problem("He2(z1)", "He2", noise=0.1),
        tl.Overlaps([[1.0]], [[0.5]]),
    )
    one, two = (
        tl.moments(problem, start, loss=name) for name in ("squared", "correlation")
    )
    assert (
        one.risk == pytest.approx(two.risk) and abs(one.psi[0, 0] - two.psi[0, 0]) > 0.1
    )
    assert float(jnp.asarray(one.risk)) == pytest.approx(2 * (1 - 0.25) + 0.05)


@proves("003-15")
def learning_region() -> None:
    for mu, delta in ((0.0, 1.5), (1.0, 0.5), (1.5, 0.0), (3.0, 0.0), (2.0, 1.0)):
        assert SQUARED.at(mu, delta).learns and FREE.at(mu, delta).learns
        assert SQUARED.at(mu, delta).theta == pytest.approx(0.5 + delta)
    assert SQUARED.at(1.0, 0.5).regime == "SGD learning"


@proves("003-16")
def correlation_learning_region() -> None:
    for mu, delta in ((1.75, -0.25), (1.9, -0.3), (2.5, -0.3)):
        assert FREE.at(mu, delta).learns and not SQUARED.at(mu, delta).learns
        assert FREE.at(mu, delta).regime == "correlation-loss learning"


@proves("003-18")
def expansion_region() -> None:
    """Below the line the norm of one step cannot be expanded; beyond μ = ℓ − 1 runs learn there all the same."""
    below = FREE.at(1.0, -0.5)
    assert (
        not below.expandable and below.regime == "not learning (expansion not defined)"
    )
    beyond = FREE.at(2.5, -2.0)
    assert not beyond.expandable and beyond.learns and beyond.steps is not None
    problem, start = tl.Problem("h3(z1)", "h3"), tl.Overlaps([[1.0]], [[1e-2]])
    giant = tl.SGD(lr=d**2, batch=d**2.5, loss="correlation", geometry="projected")
    run = tl.solve(
        problem,
        giant,
        tl.Chain(10_000, batch_sums="gaussian"),
        start,
        steps=6,
        save=1,
        seeds=8,
    )
    assert np.abs(run.M.values[:, -1]).min() > 0.9


@proves("003-20", "003-27")
def one_step_regime() -> None:
    for ell in (2, 3):
        diagram = tl.phase_diagram(ell=ell, loss="correlation")
        assert diagram.points["one step"] == (float(ell), (1 - ell) / 2)
        assert diagram.at(ell, (1 - ell) / 2).steps == 1
        assert diagram.at(ell - 0.1, (1 - ell) / 2).steps != 1
    # the squared loss has no such corner
    assert not SQUARED.at(3.0, -1.0).learns
    problem = tl.Problem("h2(z1)", "h2")
    giant = tl.SGD(
        lr=4 * d**0.5, batch=8 * d**2, loss="correlation", geometry="projected"
    )
    start = tl.Overlaps([[1.0]], [[0.01]])
    run = tl.solve(
        problem,
        giant,
        tl.Chain(10_000, batch_sums="gaussian"),
        start,
        steps=1,
        save=1,
        seeds=8,
    )
    assert np.abs(run.M.values[:, -1]).min() > 0.5


@proves("003-21")
def validity_boundary() -> None:
    sharp, drawn = FREE.lines["expansion"], FREE.lines["expansion (published)"]
    assert sharp.delta(np.array([0.0, 2.0])).tolist() == [0.5, -0.5]
    assert (
        drawn.delta(np.array([0.0, 1.5])).tolist() == [0.25, -0.5]
        and drawn.source == "published"
    )
    # x = γ² s² d/n_b is of order one on the first: a step then changes the norm by order one at every d
    problem, start = tl.Problem("h3(z1)", "h3"), tl.Overlaps([[1.0]], [[0.0]])
    noise = float(tl.moments(problem, start, loss="correlation").chi[0, 0])
    grown = [(d**-0.25)(n) ** 2 * noise * n / (d**0.5)(n) for n in (10**3, 10**9)]
    assert grown[0] == pytest.approx(grown[1], rel=1e-12) == 3.0
    # on the second, at the same μ, noise is far longer than the weight already, and ever more so
    longer = [(d**0.0)(n) ** 2 * noise * n / (d**0.5)(n) for n in (10**3, 10**9)]
    assert (
        drawn.delta(0.5) == 0.0
        and longer[1] / longer[0] == pytest.approx(1000, rel=1e-12)
        and longer[0] > 30
    )


@proves("003-22")
def optimum_of_sgd() -> None:
    for ell in (2, 3, 4):
        diagram = tl.phase_diagram(ell=ell)
        assert diagram.points["optimum"] == (ell / 2, 0.0)
        assert diagram.theta_min(ell / 2) == ell / 2 - 1 == diagram.theta_min(5.0)
        assert diagram.theta_min(ell / 2 - 0.2) > ell / 2 - 1


@proves("003-23", "003-26")
def optimum_of_the_correlation_loss() -> None:
    for ell, growth in ((2, "log d"), (3, "log log d"), (4, "log log d")):
        diagram = tl.phase_diagram(ell=ell, loss="correlation")
        assert diagram.points["optimum"] == (ell - 1, 1 - ell / 2)
        point = diagram.at(ell - 1, 1 - ell / 2)
        assert point.theta == 0.0 and point.growth == growth and point.steps is None
        assert (
            diagram.at(ell - 0.5, 1 - ell / 2 - 0.25).steps is not None
        )  # a constant only beyond it
    # measured for ℓ = 2: twice the steps when log d doubles at the optimum, the same number beyond it
    problem, medians = tl.Problem("h2(z1)", "h2"), []
    for lr, batch in ((0.5, 8 * d), (0.5 * d**0.25, 8 * d**1.5)):
        algorithm = tl.SGD(lr, batch=batch, loss="correlation", geometry="projected")
        runs = tl.weak_recovery(
            problem,
            algorithm,
            (10**3, 10**6),
            seeds=16,
            start="typical",
            batch_sums="gaussian",
        )
        assert runs.censored == [0, 0]
        medians.append([m.value for m in runs.medians])
    (early, late), (few, same) = medians
    assert late >= 1.6 * early and abs(same - few) <= 1 and same < early


@proves("003-29")
def spherical_sgd_of_several_neurons() -> None:
    """δ = −0.2, μ = 2, two erf neurons on the sphere: with the correlation loss they learn, with the squared not."""
    start = tl.Overlaps(np.eye(2), np.full((2, 1), 1000**-0.5))
    problem = tl.Problem(
        "-h3(z1)", "erf", width=2
    )  # the third coefficient of erf is negative
    ends = {}
    for loss in ("correlation", "squared"):
        algorithm = tl.SGD(
            4 * d**0.2, batch=1000 * d**2, loss=loss, geometry="spherical"
        )
        ends[loss] = (
            tl.solve(problem, algorithm, tl.Map(1000), start, steps=20, save=1)
            .M.values[0, -1]
            .max()
        )
        diagram = tl.phase_diagram(
            "He3(z1)", activation="erf", loss=loss, geometry="spherical", width=2
        )
        assert diagram.at(2, -0.2).learns == (loss == "correlation")
    assert ends["correlation"] > 0.8 and ends["squared"] < 0.1


@proves("003-31")
def form_of_the_limit() -> None:
    """On δ = 1 − μ the equations are those of single samples with γ0/n0 in front of the variance."""
    problem = tl.Problem("He2(z1)", "He2", width=2, noise=0.2)
    start = tl.Overlaps([[1.0, 0.1], [0.1, 1.0]], [[0.4], [-0.2]])
    single = tl.rates(problem, tl.SGD(lr=0.3 / d, geometry="projected"), start)
    batched = tl.rates(
        problem, tl.SGD(lr=0.9 * d**-0.6, batch=3 * d**0.4, geometry="projected"), start
    )
    flow = tl.rates(
        problem, tl.SGD(lr=0.9 * d**-0.8, batch=3 * d**0.4, geometry="projected"), start
    )
    for name in ("M", "Q"):
        np.testing.assert_allclose(
            getattr(batched.total, name),
            getattr(single.total, name),
            rtol=1e-12,
            atol=1e-14,
        )
        np.testing.assert_allclose(
            getattr(flow.total, name), getattr(single.gradient_flow, name), atol=1e-14
        )
    assert "ODE" not in tl.support(
        problem, tl.SGD(lr=0.3, batch=2 * d)
    )  # δ = 0: a map, no equation


@pytest.mark.parametrize("proof", proves.cases(slow=["003-18"], long=["003-29"]))
def test_statement(proof: Callable[[], None]) -> None:
    proof()
