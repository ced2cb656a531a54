"""General first-order methods: against other algorithms of the package, and against NumPy of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chance import sigmas
from scipy.special import erf
from scipy.stats import norm

import twolayer as tl
from twolayer import d

CURVED = tl.Problem("tanh(z1)", "erf", noise=0.1, second_layer=[2.0])
ALONE = tl.Overlaps([[1.0]], [[0.3]])
COARSE = tl.DMFT(
    averages=tl.Averages(points=2**8, accuracy=1.0), max_log2_points=4, replicates=2
)
FINE = tl.DMFT(averages=tl.Averages(points=2**13, accuracy=1.0), max_log2_points=4)


FRESH = tl.GiantSteps(averages=tl.Averages(points=2**13))


def heavy_ball(x: Any) -> np.ndarray:
    return x.iterates[0] + x.gradients[0] + 0.6 * (x.iterates[0] - x.iterates[1])


def look_ahead(x: Any) -> np.ndarray:
    return x.gradient(x.fields[0] + 0.6 * (x.fields[0] - x.fields[1]))


# other algorithms of the package


@pytest.mark.parametrize("data", [{"dataset": "2*d"}, {"dataset": "2*d", "batch": "d", "sampling": "subset"},
                                  {"repeat": 2}])  # fmt: skip
@pytest.mark.parametrize("f", [None, look_ahead])
@pytest.mark.slow
def test_momentum_is_one_of_them(data: dict[str, Any], f: Callable[[Any], np.ndarray] | None) -> None:  # fmt: skip
    laws = {"batch": "2*d", "lr": 1.0, **data}
    plain = tl.SGD(momentum=0.6, nesterov=f is not None, **laws)
    general = tl.FirstOrder(f, heavy_ball, **laws)
    # with fresh batches the theories draw other points: they carry other rows
    methods = (tl.Vectors(40),) if "repeat" in data else (tl.Vectors(40), COARSE)
    for method in methods:
        one, other = (
            tl.solve(CURVED, x, method, ALONE, steps=4, save=4)
            for x in (plain, general)
        )
        for name in ("M", "Q", "train_risk"):
            np.testing.assert_allclose(other[name], one[name], atol=1e-10)


@pytest.mark.slow
def test_a_threshold_and_a_gram_matrix_are_those_of_gradient_descent() -> None:
    problem = tl.Problem("z1 + z2", "erf", noise=0.1, gram=[[1.0, 0.5], [0.5, 1.0]])
    laws: dict[str, Any] = {"batch": "2*d", "dataset": "2*d", "lr": 1.0}
    start = tl.Overlaps([[1.0]], [[0.2, 0.1]], [[1.0, 0.5], [0.5, 1.0]])
    until = tl.Until("overlap", 0.5)
    found = [
        tl.solve(
            problem, x, tl.Vectors(30), start, steps=6, save=6, seeds=2, until=until
        )
        for x in (tl.SGD(**laws), tl.FirstOrder(**laws))
    ]
    assert (
        found[0].outcome.values.tolist()
        == found[1].outcome.values.tolist()
        == ["reached"] * 2
    )
    np.testing.assert_allclose(found[1].stop_step, found[0].stop_step, atol=1e-9)


# NumPy


def push_of_tanh(fields: np.ndarray, y: np.ndarray, a: np.ndarray) -> np.ndarray:
    """a_j σ'(λ_j) e for σ = erf(z/√2) and f = Σ a_j σ/p."""
    e = y - (a * erf(fields / np.sqrt(2))).mean(1)
    return a * np.sqrt(2 / np.pi) * np.exp(-(fields**2) / 2) * e[:, None]


class History:
    """What the functions of a method look at, by its names."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)


def simulated(
    f: Callable[[Any], np.ndarray],
    g: Callable[[Any], np.ndarray],
    alpha: float,
    steps: int,
    *,
    dim: int,
    runs: int,
    teacher: Callable[[np.ndarray], np.ndarray],
    start: tl.Overlaps,
    a: np.ndarray,
    noise: float = 0.1,
    batches: int = 1,
    fresh: int = 0,
    memory: int = 2,
) -> tuple[np.ndarray, ...]:
    """Means and standard errors of M and Q after each step, of plain loops over vectors in R^d; ``fresh`` steps have the same samples, all of them for 0."""
    rng = np.random.default_rng(5)
    p, k = start.M.shape
    n = round(alpha * dim)
    n_b = n // batches
    seen = []
    for _ in range(runs):
        frame = np.linalg.qr(rng.standard_normal((dim, k + p)))[0].T
        star = frame[:k]
        outside = np.linalg.cholesky(start.Q - start.M @ start.M.T)
        W = [start.M @ star + outside @ frame[k:]] * memory
        gradients = [np.zeros((p, dim))] * memory
        z = rng.standard_normal((n, dim))
        y = teacher(z @ star.T) + np.sqrt(noise) * rng.standard_normal(n)
        products = [np.zeros((n, p))] * memory
        path = []
        for t in range(steps):
            if fresh and t > 0 and t % fresh == 0:
                z = rng.standard_normal((n, dim))
                y = teacher(z @ star.T) + np.sqrt(noise) * rng.standard_normal(n)
                products = [np.zeros((n, p))] * memory
            batch = np.arange(n) // n_b == t % batches
            x, label = z[batch], y[batch]

            def gradient(at: np.ndarray, label: np.ndarray = label) -> np.ndarray:
                return push_of_tanh(at, label, a)

            fields = np.stack([x @ w.T for w in W])
            earlier = np.stack([v[batch] for v in products])
            v = f(
                History(
                    step=t,
                    fields=fields,
                    products=earlier,
                    labels=label,
                    gradient=gradient,
                )
            )
            made = np.zeros((n, p))
            made[batch] = v
            products = [made, *products[:-1]]
            gradients = [v.T @ x / (p * n_b), *gradients[:-1]]
            size = np.sqrt(dim)
            new = g(
                History(
                    step=t,
                    iterates=size * np.array(W),
                    gradients=size * np.array(gradients),
                )
            )
            W = [new / size, *W[:-1]]
            path.append(
                np.concatenate([(W[0] @ star.T).ravel(), (W[0] @ W[0].T).ravel()])
            )
        seen.append(path)
    each = np.array(seen)
    return each.mean(0), each.std(0, ddof=1) / np.sqrt(runs)


def theory(problem: tl.Problem, algorithm: tl.SGD, method: Any, start: tl.Overlaps, steps: int) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    found = tl.solve(problem, algorithm, method, start, steps=steps, save=steps)
    sides = []
    for suffix in ("", "_error"):
        parts = [found[name + suffix].values[0, 1:].reshape(steps, -1) for name in "MQ"]
        sides.append(np.concatenate(parts, axis=1))
    return sides[0], sides[1]


def deviation(
    found: tuple[np.ndarray, np.ndarray], runs: tuple[np.ndarray, ...], dim: int
) -> float:
    """The largest deviation in standard errors; finite size may add 3/d."""
    error = np.sqrt(found[1] ** 2 + runs[1] ** 2)
    return float((np.maximum(np.abs(found[0] - runs[0]) - 3 / dim, 0.0) / error).max())


def remembering(x: Any) -> np.ndarray:
    """Steps off a damped field, with the products of the visit before."""
    return (
        x.gradient(1.3 * x.fields[0] - 0.3 * x.fields[1])
        + 0.3 * np.tanh(x.products[0])
        - 0.2 * x.products[1]
    )


def two_term(x: Any) -> np.ndarray:
    """Coefficients of the step, rows that mix, and the gradient before the last."""
    beta = x.step / (x.step + 3)
    mixed = np.einsum("ij,jn->in", np.array([[1.0, 0.1], [-0.1, 0.9]]), x.gradients[0])
    return (
        x.iterates[0]
        + mixed
        - 0.3 * x.gradients[1]
        + beta * (x.iterates[0] - x.iterates[1])
    )


PAIR = tl.Overlaps([[1.0, 0.1], [0.1, 0.8]], [[0.1, 0.0], [0.0, -0.2]])
COMMITTEE = tl.Problem(
    "tanh(z1 + z2)", "erf", width=2, noise=0.1, second_layer=[2.0, -1.5]
)


def both(star: np.ndarray) -> np.ndarray:
    return np.tanh(star.sum(1))


@pytest.mark.slow
@pytest.mark.parametrize("data", ["whole", "halves", "fresh"])
def test_any_functions_of_the_past_follow_numpy(data: str) -> None:
    steps, dim = 5, 500
    fresh = int(data == "fresh")
    batches = 2 if data == "halves" else 1
    laws: dict[str, Any] = {
        "batch": (2 / batches) * d,
        "dataset": None if fresh else 2 * d,
    }
    algorithm = tl.FirstOrder(
        remembering, two_term, lr=1.5, repeat=max(fresh, 1), **laws
    )
    method = FRESH if fresh == 1 else FINE
    found = theory(COMMITTEE, algorithm, method, PAIR, steps)

    def scaled(x: Any) -> np.ndarray:
        return two_term(
            History(step=x.step, iterates=x.iterates, gradients=1.5 * x.gradients)
        )

    runs = simulated(
        remembering, scaled, 2.0, steps, dim=dim, runs=60, teacher=both, start=PAIR,
        a=np.array([2.0, -1.5]), batches=batches, fresh=fresh,
    )  # fmt: skip
    assert deviation(found, runs, dim) < sigmas(found[0].size, 59)
    if data == "whole":  # samples that are new at each step are another story
        other = theory(COMMITTEE, algorithm.replace(dataset=None), FRESH, PAIR, steps)
        assert deviation(other, runs, dim) > 10


def sign_step(x: Any) -> np.ndarray:
    return 0.9 * x.iterates[0] + 0.5 * np.sign(x.gradients[0] + 0.5 * x.gradients[1])


def plain(x: Any) -> np.ndarray:
    return x.gradient(x.fields[0])


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_functions_of_coordinates_follow_numpy(fresh: bool) -> None:
    steps, dim = 5, 500
    algorithm = tl.FirstOrder(
        g=sign_step, batch=2 * d, dataset=None if fresh else 2 * d, coordinatewise=True
    )
    found = theory(CURVED, algorithm, FRESH if fresh else FINE, ALONE, steps)
    runs = simulated(
        plain, sign_step, 2.0, steps, dim=dim, runs=60, teacher=lambda star: np.tanh(star[:, 0]),
        start=ALONE, a=np.array([2.0]), fresh=int(fresh),
    )  # fmt: skip
    assert deviation(found, runs, dim) < sigmas(found[0].size, 59)


@pytest.mark.slow
def test_explicit_weights_have_random_directions_where_coordinates_matter() -> None:
    algorithm = tl.FirstOrder(
        g=sign_step, batch=2 * d, dataset=2 * d, coordinatewise=True
    )
    found = theory(CURVED, algorithm, FINE, ALONE, 3)
    runs = tl.solve(
        CURVED, algorithm, tl.Vectors(400), ALONE, steps=3, save=3, seeds=40
    )
    each = np.concatenate([runs.M.values[:, 1:, 0], runs.Q.values[:, 1:, 0]], axis=-1)
    sides = each.mean(0), each.std(0, ddof=1) / np.sqrt(len(each))
    assert deviation(found, sides, 400) < sigmas(found[0].size, 39)


# message passing

ALPHA = 2.0


def score(y: np.ndarray, omega: np.ndarray, V: float) -> np.ndarray:
    """g_out of y = sign(z), z ~ N(ω, V)."""
    x = y * omega / np.sqrt(V)
    return y * np.exp(norm.logpdf(x) - norm.logcdf(x)) / np.sqrt(V)


def state_evolution(alpha: float, steps: int) -> np.ndarray:
    """Q after 0, 1, … steps: q̂ = α E[g²], q = q̂/(1 + q̂), by quadrature over ω and both labels."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    q = [0.0]
    for _ in range(steps):
        omega, V = np.sqrt(q[-1]) * nodes, 1 - q[-1]
        mean = 0.0
        for y in (-1.0, 1.0):
            mean += (
                weights * norm.cdf(y * omega / np.sqrt(V)) * score(y, omega, V) ** 2
            ).sum()
        q.append(alpha * mean / (1 + alpha * mean))
    return np.array(q)


def message_passing(q: np.ndarray, onsager: float = 1.0) -> tl.FirstOrder:
    """AMP at its state evolution: ω = Ŵz − V g₋, Ŵ ← S (A Ŵ + Σ g z/d), V ← S."""

    def f(x: Any) -> np.ndarray:
        V = 1 - q[x.step]
        omega = x.fields[0] - onsager * V * x.products[0]
        return score(x.labels[:, None], omega, V)

    def g(x: Any) -> np.ndarray:
        S = 1 - q[x.step + 1]
        return S * ((1 / S - 1) * x.iterates[0] + ALPHA * x.gradients[0])

    return tl.FirstOrder(f, g, memory=1, batch=ALPHA * d, dataset=ALPHA * d)


SIGN = tl.Problem("sign(z1)", "linear")
NOTHING = tl.Overlaps([[0.0]], [[0.0]])


@pytest.mark.slow
def test_message_passing_is_one_of_them_and_ends_at_the_best_possible() -> None:
    steps = 12
    q = state_evolution(ALPHA, steps)
    found = theory(SIGN, message_passing(q), FINE, NOTHING, steps)
    assert np.abs(found[0] - q[1:, None]).max() < 5e-4  # M = Q = q
    best = tl.best_possible("sign(z1)", [ALPHA])
    assert abs(best.overlap.item() - q[-1]) < 5e-4


@pytest.mark.slow
def test_without_its_onsager_term_it_is_not() -> None:
    steps = 6
    q = state_evolution(ALPHA, steps)
    found = theory(SIGN, message_passing(q, onsager=0.0), FINE, NOTHING, steps)
    assert abs(found[0][-1, 1] - q[-1]) > 0.1


# what is said


def test_who_knows_them() -> None:
    general = tl.FirstOrder(g=heavy_ball, batch=2 * d)
    assert tl.support(CURVED, general).methods == ("GiantSteps", "Vectors")
    again = general.replace(dataset=2 * d)
    assert tl.support(CURVED, again).methods == ("DMFT", "Vectors")
    assert "several iterates" in tl.support(CURVED, general).reasons["Chain"]
    assert (
        "order d" in tl.support(CURVED, general.replace(batch=10)).reasons["GiantSteps"]
    )
    blocks = tl.Problem("z1", "erf", inputs=tl.Inputs.blocks([1.0, 2.0], [0.5, 0.5]))
    assert tl.support(blocks, general).methods == ()
    assert (
        repr(again)
        == "FirstOrder(g=<function heavy_ball>, memory=2, lr='1', batch='2*d', dataset='2*d')"
    )


@pytest.mark.parametrize(("functions", "said"), [
    ({"f": 3}, "`f`"),
    ({"memory": 0}, "`memory`"),
    ({"lr": "0.1*" + "cosine(horizon=5)"}, "`lr`"),
])  # fmt: skip
def test_descriptions_are_checked(functions: dict[str, Any], said: str) -> None:
    with pytest.raises(tl.InputError, match=said):
        tl.FirstOrder(**functions, batch=2 * d)


@pytest.mark.parametrize(("functions", "said"), [
    ({"f": lambda x: x.fields[0] - x.fields[0].mean(0)}, "every sample by itself"),
    ({"f": lambda x: x.fields}, "each sample and neuron"),
    ({"g": lambda x: np.tanh(x.iterates[0])}, "linear"),
    ({"g": lambda x: x.iterates[0] + 1.0}, "linear"),
    ({"g": lambda x: x.iterates[0][:, ::-1]}, "every coordinate by itself"),
    ({"g": lambda x: x.gradients[0] / np.linalg.norm(x.gradients[0]), "coordinatewise": True},
     "every coordinate by itself"),
    ({"g": lambda x: x.iterates}, "row for each neuron"),
])  # fmt: skip
@pytest.mark.parametrize("method", [tl.Vectors(20), COARSE])
def test_functions_are_tried_before_any_work(functions: dict[str, Any], said: str, method: Any) -> None:  # fmt: skip
    algorithm = tl.FirstOrder(**functions, batch=2 * d, dataset=2 * d)
    with pytest.raises(tl.InputError, match=said):
        tl.solve(CURVED, algorithm, method, ALONE, steps=2)


def test_what_knows_gradient_steps_alone_refuses_them() -> None:
    general = tl.FirstOrder(g=heavy_ball, batch=2 * d)
    for call in (
        lambda: tl.learnable(CURVED, general),
        lambda: tl.escape_time(CURVED, general, dim=100),
        lambda: tl.recovery(CURVED, general, dim=100),
        lambda: tl.rates(CURVED, general, ALONE),
        lambda: tl.Stage(general, steps=3),
        lambda: tl.weak_recovery(CURVED, general, [100, 200]),
    ):
        with pytest.raises(tl.InputError, match="gradient steps"):
            call()


def test_results_cannot_be_run_again_from_a_file() -> None:
    result = tl.solve(CURVED, tl.FirstOrder(batch="d"), tl.Vectors(20), ALONE, steps=1)
    with pytest.raises(tl.InputError, match="first-order method"):
        tl.rerun(result)
