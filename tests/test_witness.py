"""The witness of averages: it sees every planted error, and is silent where all is right."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from chance import sigmas
from cost import sized

import twolayer as tl
from twolayer import d
from twolayer.equations.averages import Expectations
from twolayer.equations.mean_step import MeanStep
from twolayer.equations.optimiser_step import Limit
from twolayer.gaussian import engines, risk
from twolayer.gaussian.increment_covariance import QuadraticSpread
from twolayer.gaussian.quadratic import QuadraticEngine
from twolayer.running import witness
from twolayer.task.method import Claim, Stand

ONE = tl.Overlaps([[1.0]], [[0.3]])
TWO = tl.Overlaps([[1.0, -0.1], [-0.1, 1.2]], [[0.4], [-0.3]])
SQUARES = tl.Problem("He2(z1)", "He2", width=2, noise=0.1)
BOTH = tl.SGD(lr=0.2 / d, train_second_layer=True)


@pytest.fixture
def planting(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Code compiled before an error is planted does not have it, and later tests must not have it."""
    jax.clear_caches()
    with monkeypatch.context() as patch:
        yield patch
    jax.clear_caches()


def heard(result: Any) -> Any:
    return json.loads(result.attrs["notes"])["witness"]


def scaled(name: str, factor: float = 1.05) -> Callable[..., Expectations]:
    right = QuadraticEngine.__call__

    def wrong(self: QuadraticEngine, *point: Any) -> Expectations:
        found = right(self, *point)
        return found._replace(**{name: factor * getattr(found, name)})

    return wrong


@pytest.mark.parametrize("geometry", ["free", "projected"])
@pytest.mark.parametrize("name", ["psi", "phi", "chi", "second"])
def test_a_factor_in_an_average_of_the_limit_is_seen(
    planting: pytest.MonkeyPatch, name: str, geometry: str
) -> None:
    planting.setattr(QuadraticEngine, "__call__", scaled(name))
    with pytest.warns(tl.errors.WitnessWarning, match=rf"ODE: .*\b{name}\b"):
        result = tl.solve(
            SQUARES, BOTH.replace(geometry=geometry), tl.ODE(), TWO, time=0.1, save=1
        )
    found = heard(result)
    assert found["deviation"] > 5 and any(name in x for x in found["refuted"])


@pytest.mark.parametrize("geometry", ["free", "projected"])
@pytest.mark.parametrize("name", ["own", "star", "chi", "second"])
def test_a_factor_in_the_mean_step_is_seen(
    planting: pytest.MonkeyPatch, name: str, geometry: str
) -> None:
    if name in ("own", "star"):
        right = QuadraticEngine.gradient

        def wrong(self: QuadraticEngine, *point: Any) -> Any:
            found = right(self, *point)
            return found._replace(**{name: 1.05 * getattr(found, name)})

        planting.setattr(QuadraticEngine, "gradient", wrong)
    else:
        planting.setattr(QuadraticEngine, "__call__", scaled(name))
    large = tl.SGD(0.2, batch=4 * d, train_second_layer=True, geometry=geometry)
    with pytest.warns(tl.errors.WitnessWarning, match="GiantSteps: "):
        tl.solve(SQUARES, large, tl.GiantSteps(), TWO, steps=2, save=1)


@pytest.mark.parametrize("name", ["own", "star", "second"])
def test_a_factor_in_the_gradient_of_the_population_is_seen(
    planting: pytest.MonkeyPatch, name: str
) -> None:
    right = QuadraticEngine.gradient

    def wrong(self: QuadraticEngine, *point: Any) -> Any:
        found = right(self, *point)
        return found._replace(**{name: 1.05 * getattr(found, name)})

    planting.setattr(QuadraticEngine, "gradient", wrong)
    with pytest.warns(tl.errors.WitnessWarning, match="Population: "):
        tl.solve(SQUARES, BOTH.replace(lr=0.2), tl.Population(), TWO, steps=2, save=1)


def test_a_term_of_a_finite_dimension_is_seen(planting: pytest.MonkeyPatch) -> None:
    """Pairs of samples of a batch left out of the mean step, which says that it has them."""
    right = MeanStep.mean

    def wrong(self: MeanStep, *arguments: Any) -> Any:
        import dataclasses

        kept = self.weights._replace(pairs=False)
        return right(dataclasses.replace(self, weights=kept), *arguments)

    planting.setattr(MeanStep, "mean", wrong)
    with pytest.warns(tl.errors.WitnessWarning, match="the mean step of Q"):
        tl.solve(SQUARES, tl.SGD(0.2, batch=4 * d), tl.Map(400), TWO, steps=2, save=1)


def test_a_factor_in_the_covariance_is_seen(planting: pytest.MonkeyPatch) -> None:
    right = QuadraticSpread.__call__
    planting.setattr(
        QuadraticSpread, "__call__", lambda self, *point: 1.05 * right(self, *point)
    )
    with pytest.warns(tl.errors.WitnessWarning, match="SDE: Σ is"):
        tl.solve(SQUARES, BOTH, tl.SDE(400), TWO, time=0.05, save=1)


def test_the_drift_of_the_diffusion_is_seen(planting: pytest.MonkeyPatch) -> None:
    planting.setattr(QuadraticEngine, "__call__", scaled("psi"))
    with pytest.warns(tl.errors.WitnessWarning, match="SDE: .*psi is"):
        tl.solve(SQUARES, BOTH, tl.SDE(400), TWO, time=0.05, save=1)


@pytest.mark.parametrize(
    ("target", "activation"),
    [
        ("sign(z1)", "tanh"),
        pytest.param("sign(z1 + 0.3*z2)", "erf", marks=pytest.mark.slow),
        pytest.param("log(abs(z1-3))", "erf", marks=pytest.mark.slow),
    ],
)
def test_averages_without_their_target_are_seen(
    planting: pytest.MonkeyPatch, target: str, activation: str
) -> None:
    """As where a jump had no slope, or where of all nodes of a target none was left."""
    right = engines.select

    def wrong(problem: tl.Problem, *arguments: Any, **options: Any) -> Any:
        silent = problem.replace(target=problem.target.scaled(1e-12))
        return right(silent, *arguments, **options)

    for module in (engines, risk):
        planting.setattr(module, "select", wrong)
    problem = tl.Problem(target, activation, second_layer=[2.0])
    start = tl.Overlaps([[1.0]], np.full((1, problem.k), 0.3))
    with pytest.warns(tl.errors.WitnessWarning, match="psi is .*risk is"):
        tl.solve(problem, tl.SGD(0.2 / d), tl.ODE(), start, time=0.5, save=1)
    with pytest.warns(tl.errors.WitnessWarning, match="Chain: risk is"):
        tl.solve(problem, tl.SGD(0.2 / d), tl.Chain(50), start, steps=5, save=1)


def test_a_rate_on_the_wrong_layer_is_seen(planting: pytest.MonkeyPatch) -> None:
    """AdaGrad's own rate belongs to the first layer."""
    planting.setattr(Limit, "adapted", lambda self, f: self.scaled(f, 1.0))
    adaptive = BOTH.replace(rule="adagrad_norm(1)")
    problem = tl.Problem("z1", "erf", second_layer=[1.0])
    with pytest.warns(tl.errors.WitnessWarning, match="da/dt is .*second is"):
        tl.solve(problem, adaptive, tl.ODE(), ONE, time=2, save=1)


def test_a_comparison_calls_a_refuted_theory_suspect(
    planting: pytest.MonkeyPatch,
) -> None:
    planting.setattr(QuadraticEngine, "__call__", scaled("psi", 1.3))
    with pytest.warns(tl.errors.WitnessWarning):
        both = tl.compare(
            SQUARES,
            tl.SGD(0.1 / d),
            [tl.ODE(), tl.Chain(100)],
            TWO,
            time=0.1,
            save=1,
            seeds=4,
        )
    assert {row.verdict for row in both.verdicts} == {"suspect"}
    assert "samples contradict the averages that ode uses" in both.verdicts[0].reason
    assert "suspect" in str(both)


def linear(a: float, noise: float) -> Stand:
    """The averages of a linear student of a linear target, by hand: e = z* − a λ + noise."""
    q, m = 1.5, 0.4
    e_star, e_own, e_e = 1 - a * m, m - a * q, 1 - 2 * a * m + a * a * q + noise
    values = {"M": [[a * e_star]], "Q": [[2 * a * e_own]], "a": [e_own]}
    claims = [
        Claim("flow", {x: np.array(y) for x, y in values.items()}, 0.0, {}),
        Claim("noise", {"Q": np.array([[a * a * e_e]])}, 0.0, {}),
        Claim("risk", {"risk": np.array((e_e - noise) / 2)}, 0.0, {}),
    ]
    return Stand(np.array([[q]]), np.array([[m]]), np.array([a]), claims)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "student(5)", "student(3)"])
def test_suspicions_are_as_rare_as_they_should_be(law: str) -> None:
    """Averages known by hand, other points in every try: one in twenty at most is looked at again.

    Chi under Student's noise has no variance from plain samples (ν = 3) or no fourth moment (ν = 5).
    """
    problem = tl.Problem("z1", "linear", noise=0.3, noise_law=law)
    stand, tries, suspicions = linear(0.7, 0.3), 120, 0
    for seed in range(tries):
        found, _ = witness._compared(problem, tl.SGD(1 / d), [stand], seed)
        entries = sum(x.value.size for x in found)
        worst = max(float(witness._deviations(x).max()) for x in found)
        suspicions += worst > witness.limit_of(entries, 31, witness.SUSPICION)
    assert suspicions <= 22  # of 6 expected at most; more have a chance of 1e-7


def test_nothing_is_said_where_averages_are_large() -> None:
    """After a step that multiplies the norms by a hundred, phi is 4·10⁷: steps that show it have to be shorter."""
    problem = tl.Problem("z1*He2(z2)", "z + z**3", 2)
    start = tl.Overlaps(np.eye(2), np.zeros((2, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", tl.errors.WitnessWarning)
        run = tl.solve(
            problem, tl.SGD(0.5, 3 * d), tl.GiantSteps(), start, steps=1, save=1
        )
    assert run.Q.values[0, -1].max() > 100 and heard(run)["entries"] > 20


def test_rounding_at_zero_weights_is_no_contradiction() -> None:
    """There phi is 0 in every sample, and its standard error is 0 too."""
    problem, algorithm = tl.Problem("z1", "erf", noise=0.3), tl.SGD(1 / d)
    for value, refuted in ((-2.9e-13, []), (1e-3, ["phi"])):
        claim = Claim("flow", {"Q": np.array([[value]])}, 0.0, {})
        stand = Stand(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), [claim])
        found = witness.heard(problem, algorithm, [stand])
        assert list(found.refuted) == refuted


def test_averages_by_hand_are_confirmed_and_others_are_not() -> None:
    problem = tl.Problem("z1", "linear", noise=0.3)
    assert not witness.heard(problem, tl.SGD(1 / d), [linear(0.7, 0.3)]).refuted
    found = witness.heard(problem, tl.SGD(1 / d), [linear(0.7, 0.32)])
    assert list(found.refuted) == ["chi"]
    value, mean, error = found.refuted["chi"]
    assert value == pytest.approx(0.49 * 1.495, rel=1e-12)
    assert abs(mean - 0.49 * 1.475) < sigmas(1, 31) * error < 0.005


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs", "erf", "gelu", "He3"])
def test_slopes_are_those_of_the_function(name: str) -> None:
    sigma = tl.Problem("z1", name).activation
    x = np.concatenate([np.linspace(-5, 5, 1001), [1e-9, -1e-9, 2e-3, -3e-3]])
    x = x[x != 0].reshape(2, -1)
    with jax.enable_x64(True):
        right = np.asarray(sigma.slope(jax.numpy.asarray(x)))
    assert np.abs(witness._differences(sigma, x) - right).max() < 1e-9


def test_one_setting_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(witness.SETTING, "off")
    result = tl.solve(SQUARES, BOTH, tl.Chain(50), TWO, steps=2, save=1)
    assert "witness" not in json.loads(result.attrs["notes"])


BLOCKS = tl.Inputs.blocks([2.0, 0.5], [0.25, 0.75])
SIGN = tl.Problem("sign(z1)", "erf", flips=0.1)
RIGHT: dict[str, tuple[tl.Problem, tl.SGD, Any]] = {
    "plain": (SQUARES, BOTH, tl.ODE()),
    "momentum, decay": (
        SQUARES,
        BOTH.replace(momentum=0.4, weight_decay=0.2, geometry="spherical"),
        tl.ODE(),
    ),
    "committee": (
        tl.Problem("He2(z1)", "He2", width=2, normalisation="sqrt"),
        tl.SGD(0.1 / d, batch=2),
        tl.ODE(),
    ),
    "gradient flow": (SQUARES, tl.SGD("0.2*d**-1.5", momentum=0.5), tl.ODE()),
    "pure noise": (SQUARES, tl.SGD("0.01*d**-0.75"), tl.ODE()),
    "schedule": (
        SQUARES,
        tl.SGD(0.1 / d * tl.schedules.cosine(horizon=50)),
        tl.ODE(),
    ),
    "private": (SQUARES, tl.SGD(0.1 / d, rule="private(0.5)"), tl.ODE()),
    "label noise": (SQUARES, tl.SGD(0.1 / d, rule="label_noise(0.3)"), tl.ODE()),
    "student": (SQUARES.replace(noise_law="student(4.5)"), BOTH, tl.ODE()),
    "giant": (SQUARES, tl.SGD(0.2, batch=4 * d, momentum=0.3), tl.GiantSteps()),
    "map": (SQUARES, tl.SGD(0.2, batch=4 * d, weight_decay=0.1), tl.Map(400)),
    "diffusion": (SQUARES, BOTH, tl.SDE(400)),
    "descent": (
        SQUARES.replace(second_layer=[1.0, -0.5]),
        BOTH.replace(lr=0.2),
        tl.Population(),
    ),
}
MORE: dict[str, tuple[tl.Problem, tl.SGD, Any]] = {
    **{loss: (SIGN, tl.SGD(0.2 / d, loss=loss), tl.ODE())
       for loss in ("correlation", "logistic", "hinge", "exponential", "huber(0.5)")},
    **{rule: (tl.Problem("z1", "erf", noise=0.1), tl.SGD(0.2 / d, rule=rule), tl.ODE())
       for rule in ("clip(0.25)", "normalised()", "polyak()", "lookahead(1.5/d)", "two_step()", "sign()",
                    "formula('g/(1 + norm)')", "adagrad_norm(1)")},
    **{law: (tl.Problem("z1", "relu", noise=0.3, noise_law=law), tl.SGD(0.2 / d, loss="huber(0.5)"), tl.ODE())
       for law in ("laplace", "uniform", "student(3)", "cauchy")},
    "sampled": (tl.Problem("z1 + z1*z2", "relu", width=3), tl.SGD(0.2 / d), tl.ODE(averages=tl.Averages(points=2**8, accuracy=0.1))),
    "blocks": (tl.Problem("z1", "erf", width=2, inputs=BLOCKS), tl.SGD(0.2 / d, geometry="projected"), tl.ODE()),
    "descent, rectifiers": (
        tl.Problem(tl.Teacher("relu", 2), "relu", width=3, normalisation="sqrt"),
        tl.SGD(0.2, geometry="spherical", train_second_layer=True), tl.Population(),
    ),
    "descent, flips": (tl.Problem("z1", "tanh", width=2, flips=0.2), tl.SGD(0.2), tl.Population()),
    "population, blocks": (tl.Problem("z1", "erf", width=2, inputs=BLOCKS), tl.SGD(0.2), tl.Population()),
    "flow, blocks": (tl.Problem("z1", "erf", width=2, inputs=BLOCKS), tl.SGD(0.2), tl.Population(flow=True)),
    "blocks, giant": (tl.Problem("z1", "erf", width=2, inputs=BLOCKS), tl.SGD(0.2, batch=2 * d), tl.GiantSteps()),
    "nodes of Σ": (tl.Problem("z1", "erf", width=2), BOTH, tl.SDE(400)),
    "callable": (tl.Problem(lambda z: z[0], jax.numpy.tanh, directions=1), tl.SGD(0.2 / d), tl.ODE()),
}  # fmt: skip


def silent(problem: tl.Problem, algorithm: tl.SGD, method: Any) -> None:
    start = tl.Overlaps.random(problem, 400, seed=3)
    end = {"steps": 3} if method.stepwise else {"time": 0.2}
    with warnings.catch_warnings():
        warnings.simplefilter("error", tl.errors.WitnessWarning)
        result = tl.solve(problem, algorithm, method, start, **end, save=1)
    found = heard(result)
    assert found["entries"] > 4 and found["samples"] > 10**4
    assert found["deviation"] < 6 and "refuted" not in found


@pytest.mark.parametrize("case", sized(RIGHT, slow={"diffusion"}))
def test_nothing_is_said_where_all_is_right(case: str) -> None:
    silent(*RIGHT[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE)
def test_nothing_is_said_of_other_losses_rules_and_laws(case: str) -> None:
    silent(*MORE[case])
