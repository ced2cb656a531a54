"""Schedules and Nesterov: explicit SGD in NumPy, the equations of the limit, closed clocks, and constants bit by bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from chance import sigmas

import twolayer as tl
from twolayer import d, schedules
from twolayer.task.clocks import Clocks
from twolayer.task.schedules import law_of

ERF = tl.Problem("erf(z1/1.4142135623730951)", "erf", noise=0.1)
START = tl.Overlaps([[0.5]], [[0.1]])


LINEAR = tl.Problem("z1", "linear", noise=0.1)


def numpy_runs(
    dim: int,
    seeds: int,
    lr: Any,
    batch: Any,
    steps: int,
    momentum: float = 0.0,
    nesterov: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """M and Q of a linear neuron after explicit SGD; lr and batch are functions of (step, samples so far)."""
    rng = np.random.default_rng(5)
    Q, M = START.Q[0, 0], START.M[0, 0]
    w = np.zeros((seeds, dim))
    w[:, 0], w[:, 1] = M, np.sqrt(Q - M**2)
    old, samples = w.copy(), 0
    for step in range(steps):
        n, rate = batch(step, samples), lr(step, samples)
        at = w + momentum * (w - old) if nesterov else w
        move = np.zeros_like(w)
        for _ in range(n):
            z = rng.normal(size=(seeds, dim))
            y = z[:, 0] + np.sqrt(LINEAR.noise) * rng.normal(size=seeds)
            move += (y - (at * z).sum(1))[:, None] * z / n
        new = at + rate * move if nesterov else w + rate * move + momentum * (w - old)
        old, w, samples = w, new, samples + n
    return w[:, 0], (w**2).sum(1)


COSINE = 2 / d * schedules.cosine(6, floor=0.05)
RISING = 1.5 / d * schedules.warmup(1) * schedules.power(0.5, scale=3, after=3)
TABLE = {
    "cosine": (tl.SGD(COSINE), 6, (0.94184, 1.02539, 0.025620), 6.3),
    "warm-up": (tl.SGD(RISING), 6, (0.95055, 1.01954, 0.021477), 7.4779),
    "inverse": (tl.SGD(2 / d * schedules.inverse(1)), 6, (0.76095, 0.68728, 0.028305), 3.8918),
    "batch": (
        tl.SGD(1.5 / d, schedules.piecewise([2 * d], [1, 4], clock="step")), 14, (0.91278, 0.86689, 0.007169), 7.5
    ),
}  # fmt: skip
"""Independent numbers of the limit, one erf neuron from M = 0.1, Q = 0.5 with Δ = 0.1: M, Q, excess risk, and t."""


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_the_limit_has_the_independent_numbers(name: str) -> None:
    algorithm, alpha, expected, time = TABLE[name]
    result = tl.solve(ERF, algorithm, tl.ODE(), START, alpha=alpha, save=1).isel(
        time=-1, seed=0
    )
    found = [
        float(result.M.values.item()),
        float(result.Q.values.item()),
        float(result.excess_risk),
    ]
    np.testing.assert_allclose(found, expected, atol=6e-6)
    assert abs(float(result.time) - time) < 6e-5


def mean_square(
    lr: Any, batch: Any, steps: int, dim: int, start: float
) -> tuple[np.ndarray, np.ndarray]:
    """E |w − w*|² of a linear neuron, to all orders in 1/d and 1/n_b, and the time; lr and batch of (step, time)."""
    C, time = [start], [0.0]
    for n in range(steps):
        rate, size = lr(n, time[-1]), batch(n, time[-1])
        noise = rate**2 / size * (dim * (C[-1] + LINEAR.noise))
        C.append((1 - 2 * rate + (1 + 1 / size) * rate**2) * C[-1] + noise)
        time.append(time[-1] + rate)
    return np.array(C), np.array(time)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [tl.Chain(100), tl.Vectors(100), tl.SDE(100, dt=0.04)],
    ids=lambda m: m.name,
)
def test_finite_dimensions_have_the_mean_of_explicit_sgd(
    method: tl.extend.Method,
) -> None:
    """Against NumPy, at the same d: a schedule of lr by samples, of the batch by steps, both at once."""
    dim, steps, seeds = 100, 200, 400
    algorithm = tl.SGD(
        1 / d * schedules.linear(6, floor=0.1),
        schedules.piecewise([100], [1, 4], clock="step"),
    )
    result = tl.solve(
        LINEAR, algorithm, method, START, steps=steps, save=1, seeds=seeds
    )
    assert result.alpha.values[-1] == 5 and list(result.batch.values) == [1, 4]
    lr = lambda step, samples: 1 / dim * (1 - 0.9 * min(samples / dim / 6, 1))  # noqa: E731
    M, Q = numpy_runs(dim, seeds, lr, lambda step, _: 1 if step < 100 else 4, steps)
    for ours, theirs in (
        (result.M.values[:, -1, 0, 0], M),
        (result.Q.values[:, -1, 0, 0], Q),
    ):
        error = np.hypot(ours.std(), theirs.std()) / np.sqrt(seeds)
        room = 0.01 if method.name == "sde" else 0.0  # of order 1/d
        assert abs(ours.mean() - theirs.mean()) < sigmas(6) * error + room
        assert error < 0.01  # with constant rates both are off by 0.2


def test_the_exact_mean_follows_a_schedule() -> None:
    """Map is the recursion of the linear neuron, with its clocks, to rounding."""
    algorithm = tl.SGD(
        0.1 * schedules.cosine(20, floor=0.2, clock="step"),
        9 * schedules.piecewise([1.0], [1, 1 / 3], clock="time"),
    )
    result = tl.solve(
        LINEAR, algorithm, tl.Map(10), tl.Overlaps([[0.9]], [[0.2]]), steps=30, save=30
    )
    lr = lambda n, t: 0.1 * (0.2 + 0.8 * (1 + np.cos(np.pi * min(n / 20, 1))) / 2)  # noqa: E731
    C, time = mean_square(lr, lambda n, t: 9 if t < 1.0 else 3, 30, 10, 0.9 - 0.4 + 1)
    np.testing.assert_allclose(2 * result.excess_risk[0], C, rtol=1e-11)
    np.testing.assert_allclose(result.time, time, rtol=1e-13)
    np.testing.assert_allclose(result.lr, [lr(n, 0) for n in range(31)], rtol=1e-13)
    assert set(result.batch.values) == {9, 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "gamma"),
    [
        (0.8 / d * schedules.cosine(4, floor=0.1), lambda s: 0.08 + 0.72 * (1 + np.cos(np.pi * np.minimum(s / 4, 1))) / 2),
        (1.2 / d * schedules.warmup(1) * schedules.inverse(2, after=1), lambda s: 1.2 * np.minimum(s, 1) / (1 + np.maximum(s - 1, 0) / 2)),
    ],
    ids=["cosine", "warm-up"],
)  # fmt: skip
def test_the_limit_of_the_linear_neuron(law: Any, gamma: Any) -> None:
    """dε/ds = −2γε + γ²(ε + Δ/2), integrated on a fine grid of its own."""
    result = tl.solve(LINEAR, tl.SGD(law), tl.ODE(), START, alpha=6, save=12)
    s, fine = 0.0, [float(result.excess_risk[0, 0])]
    rate = lambda s, e: -2 * gamma(s) * e + gamma(s) ** 2 * (e + LINEAR.noise / 2)  # noqa: E731
    h = 6 / 12000
    for n in range(12000):
        e = fine[-1]
        k1 = rate(s, e)
        k2, k3 = rate(s + h / 2, e + h / 2 * k1), 0.0
        k3 = rate(s + h / 2, e + h / 2 * k2)
        fine.append(e + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(s + h, e + h * k3)))
        s = (n + 1) * h
    np.testing.assert_allclose(result.excess_risk[0], fine[::1000], rtol=1e-7)


@pytest.mark.slow
def test_clocks_in_closed_form() -> None:
    """p t of cosine, inverse, power and warm-up, continuous and (cosine) step by step."""
    alpha = np.array([0.0, 1.0, 2.5, 4.0])
    cases = {
        "cosine": (
            2 * schedules.cosine(4, floor=0.25),
            1.25 * alpha + 1.5 * 2 / np.pi * np.sin(np.pi * alpha / 4),
        ),
        "inverse": (2 * schedules.inverse(3), 2 * 3 * np.log1p(alpha / 3)),
        "power": (
            2 * schedules.power(0.25, 3),
            2 * 3 * ((1 + alpha / 3) ** 0.75 - 1) / 0.75,
        ),
        "warmup": (2 * schedules.warmup(8), 2 * alpha**2 / 16),
        "table": (2 * schedules.table([0, 8], [0, 1]), 2 * alpha**2 / 16),
        "custom": (2 * schedules.custom(lambda x: x / 8), 2 * alpha**2 / 16),
    }
    for name, (law, time) in cases.items():
        result = tl.solve(LINEAR, tl.SGD(law / d), tl.ODE(), START, alpha=alpha)
        np.testing.assert_allclose(result.time, time, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(result.alpha, alpha, rtol=1e-12)
    steps = tl.solve(
        LINEAR,
        tl.SGD(0.02 * schedules.cosine(50, clock="step", floor=0.1)),
        tl.Chain(20),
        START,
        steps=50,
    )
    assert float(steps.time[-1]) == pytest.approx(
        0.5 * 50 * 0.022 + 0.5 * 0.018, rel=1e-13
    )


@pytest.mark.slow
def test_time_as_the_clock_of_a_schedule() -> None:
    """dt/dτ = 1/(1 + t): t = √(1 + 2τ) − 1; and step by step the recursion."""
    algorithm = tl.SGD(1 / d * schedules.inverse(1, clock="time"))
    result = tl.solve(LINEAR, algorithm, tl.ODE(), START, alpha=[0.5, 3.0, 12.0])
    np.testing.assert_allclose(
        result.time, np.sqrt(1 + 2 * result.alpha) - 1, rtol=1e-10
    )
    chain = tl.solve(LINEAR, algorithm, tl.Chain(10), START, steps=40, save=40)
    time = 0.0
    for n in range(40):
        assert float(chain.time[n]) == pytest.approx(time, rel=1e-13)
        time += 0.1 / (1 + time)


ONE = schedules.custom(lambda x: 1.0 + 0 * x)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(tl.Chain(50), marks=pytest.mark.slow),
        pytest.param(tl.Vectors(50), marks=pytest.mark.long),
        pytest.param(tl.Map(50), marks=pytest.mark.slow),
        pytest.param(tl.Population(), marks=pytest.mark.slow),
        pytest.param(tl.SDE(50), marks=pytest.mark.long),
    ],
    ids=lambda m: m.name,
)
def test_constant_schedules_are_none(method: tl.extend.Method) -> None:
    """Bit by bit, with batches, decay, momentum and a trained second layer."""
    plain = tl.SGD(
        0.5 / d, batch=3, weight_decay=0.1, momentum=0.0 if method.name == "sde" else 0.3, train_second_layer=True
    )  # fmt: skip
    start = tl.Overlaps([[0.5]], [[0.1]], dim=50)
    expected = tl.solve(LINEAR, plain, method, start, steps=100, save=5, seeds=3)
    found = tl.solve(
        LINEAR,
        plain.replace(lr=plain.lr * ONE),
        method,
        start,
        steps=100,
        save=5,
        seeds=3,
    )
    for name in ("M", "Q", "a", "risk", "lr", "sample", "step"):
        assert (found[name].values == expected[name].values).all(), name
    np.testing.assert_allclose(
        found.time, expected.time, rtol=1e-12
    )  # a sum here, a product there


def test_factors_that_never_change_are_numbers() -> None:
    for one in (
        schedules.piecewise([1], [1, 1]),
        schedules.cosine(5, floor=1.0, clock="step"),
        schedules.power(0, 1, clock="time"),
        schedules.table([0, 1], [1, 1]),
    ):
        assert 0.2 / d * one == 0.2 / d and tl.SGD("1/d", batch=4 * one) == tl.SGD(
            "1/d", batch=4
        )
    assert 0.2 / d * schedules.piecewise([1], [3, 3]) == 0.2 * 3 / d
    assert (0.2 / d * ONE).schedule is not None


@pytest.mark.long
@pytest.mark.parametrize(
    "method", [tl.ODE(), tl.MeanField(), tl.Population(flow=True)], ids=lambda m: m.name
)
def test_flows_with_constant_schedules(method: tl.extend.Method) -> None:
    """Up to the tolerance of the integrator, which also watches the clocks; a jump in a flow only changes its pace."""
    plain = tl.SGD(0.5 / d)
    expected = tl.solve(LINEAR, plain, method, START, time=2, save=4)
    found = tl.solve(LINEAR, tl.SGD(0.5 / d * ONE), method, START, time=2, save=4)
    np.testing.assert_allclose(found.M, expected.M, rtol=1e-6)
    np.testing.assert_allclose(found.time, expected.time, rtol=1e-12)
    if method.name != "ode":  # without noise, time is all that counts
        jumpy = tl.solve(
            LINEAR,
            tl.SGD(0.5 / d * schedules.piecewise([0.5, 1], [1, 3, 0.2])),
            method,
            START,
            time=2,
            save=4,
        )
        np.testing.assert_allclose(jumpy.M, expected.M, rtol=1e-6)
        assert abs(float(jumpy.alpha[-1]) - float(expected.alpha[-1])) > 1


def test_a_jump_is_not_stepped_over() -> None:
    """A burst of a thousandth of the run counts exactly: time gains 9 units, and the overlaps with it."""
    law = 1e-3 / d * schedules.piecewise([1.0, 1.001], [1, 10_000, 1])
    result = tl.solve(
        LINEAR, tl.SGD(law, batch=100), tl.ODE(), START, alpha=200, save=2
    )
    assert float(result.time[-1]) == pytest.approx(
        (200 + 0.001 * 9999) * 1e-5, rel=1e-9
    )


@pytest.mark.slow
def test_only_the_ratio_of_lr_and_batch_matters_in_time() -> None:
    """Halving lr is doubling the batch, in t and in alpha; steps differ."""
    half = schedules.piecewise([2.0], [1, 0.5])
    twice = schedules.piecewise([2.0], [1, 2])
    one = tl.solve(LINEAR, tl.SGD(1 / d * half), tl.ODE(), START, alpha=6, save=6)
    two = tl.solve(LINEAR, tl.SGD(1 / d, batch=twice), tl.ODE(), START, alpha=6, save=6)
    for name in ("M", "Q", "time", "alpha"):
        np.testing.assert_allclose(one[name], two[name], rtol=1e-7)
    assert abs(float(one.step[-1]) - float(two.step[-1])) > 1


@pytest.mark.slow
def test_thresholds_stop_at_the_clocks_of_the_schedule() -> None:
    law = 1 / d * schedules.cosine(8, floor=0.1)
    until = tl.Until("alignment", 0.5)
    flow = tl.solve(
        LINEAR, tl.SGD(law), tl.ODE(), START, alpha=8, until=until, save=400
    )
    at = np.log(1.8)  # M = 1 − 0.9 e^(−t)
    assert flow.outcome.item() == "reached" and float(
        flow.stop_time[0]
    ) == pytest.approx(at, rel=1e-6)
    chain = tl.solve(
        LINEAR, tl.SGD(law), tl.Chain(3000), START, alpha=8, until=until, seeds=4
    )
    np.testing.assert_allclose(chain.stop_time, at, rtol=0.1)
    assert (chain.stop_step.values % 1 > 0).all()


@pytest.mark.long
def test_nesterov_is_explicit_nesterov() -> None:
    """Against NumPy at a small d and strong momentum, where it differs from the heavy ball."""
    dim, seeds, steps = 20, 3000, 30
    ball = tl.SGD(0.8 / d, momentum=0.8)
    expected = {
        nesterov: numpy_runs(dim, seeds, lambda *_: 0.8 / dim, lambda *_: 1, steps, 0.8, nesterov)
        for nesterov in (False, True)
    }  # fmt: skip
    for method in (tl.Chain(dim), tl.Vectors(dim)):
        for nesterov, theirs in expected.items():
            result = tl.solve(
                LINEAR,
                ball.replace(nesterov=nesterov),
                method,
                START,
                steps=steps,
                save=1,
                seeds=seeds,
            )
            for ours, other in zip(
                (result.M.values[:, -1, 0, 0], result.Q.values[:, -1, 0, 0]),
                theirs,
                strict=True,
            ):
                error = np.hypot(ours.std(), other.std()) / np.sqrt(seeds)
                assert abs(ours.mean() - other.mean()) < sigmas(8) * error
    apart = expected[True][1].mean() - expected[False][1].mean()
    assert abs(apart) > 6 * np.hypot(
        *(x[1].std() for x in expected.values())
    ) / np.sqrt(seeds)


@pytest.mark.slow
def test_the_mean_of_a_nesterov_step_and_its_limit() -> None:
    """Map and Population against a linear neuron by hand; the ODE is that of the heavy ball."""
    problem, lr, beta = tl.Problem("z1", "linear"), 0.2, 0.6
    algorithm = tl.SGD(lr, batch=1000, momentum=beta, nesterov=True)
    runs = [
        tl.solve(
            problem, algorithm, m, tl.Overlaps([[0.9]], [[0.2]]), steps=12, save=12
        )
        for m in (tl.Map(10), tl.Population())
    ]
    m = old = 0.2
    for n in range(12):
        for result in runs:
            assert float(result.M[0, n, 0, 0]) == pytest.approx(m, rel=1e-12)
        ahead = m + beta * (m - old)
        old, m = m, ahead + lr * (1 - ahead)
    limit = [
        tl.solve(
            LINEAR,
            tl.SGD(0.4 / d, momentum=0.6, nesterov=x),
            tl.ODE(),
            START,
            time=2,
            save=1,
        )
        for x in (True, False)
    ]
    assert (limit[0].M.values == limit[1].M.values).all()


@pytest.mark.slow
def test_texts_say_everything() -> None:
    for law in (
        COSINE,
        RISING,
        64 * schedules.piecewise([2 * d, 3 * d], [1, 4, 0.5], clock="step"),
        1 / d * schedules.table([0, 1], [0.5, 1]),
    ):
        assert law_of(str(law), "lr") == law
    result = tl.solve(
        LINEAR, tl.SGD(COSINE), tl.Chain(20), START, alpha=1, save=3, seeds=2
    )
    assert "cosine" in json.loads(result.attrs["description"])["algorithm"]["lr"]
    assert (tl.rerun(result).M.values == result.M.values).all()
    own = tl.solve(
        LINEAR,
        tl.SGD(1 / d * schedules.custom(lambda x: 1 / (1 + x))),
        tl.Chain(20),
        START,
        alpha=1,
        save=3,
    )
    with pytest.raises(
        tl.InputError, match="Python function, which a file cannot hold"
    ):
        tl.rerun(own)


def bad(lr: Any = "1/d", batch: Any = 1, method: Any = None, **end: Any) -> None:
    tl.solve(
        LINEAR,
        tl.SGD(lr, batch),
        method or tl.Chain(100),
        START,
        **(end or {"steps": 100}),
    )


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("`floor` must be a finite number ≥ 0", lambda: schedules.cosine(5, floor=-0.1)),
        ("`clock` must be one of 'step', 'sample', 'alpha', 'time', but got 'epoch'", lambda: schedules.cosine(5, clock="epoch")),
        ("`horizon` must be a positive length", lambda: schedules.linear(0)),
        ("`values` must be one more than the 1 places", lambda: schedules.piecewise([1], [1])),
        ("`at` must be increasing", lambda: schedules.piecewise([2, 1], [1, 1, 1])),
        ("`lr` must have a schedule that is never negative.* gives -0", lambda: bad(1 / d * schedules.custom(lambda x: 1 - 2 * x))),
        ("`lr` must have a schedule that is never negative", lambda: bad(1 / d * schedules.custom(lambda x: 1 - 2 * x), method=tl.ODE(), alpha=3)),
        ("`batch` must have a schedule that is at least one sample", lambda: bad(batch=schedules.linear(1))),
        ("`time` = 3 is never reached: .* the time ends near 2.5", lambda: bad(1 / d * schedules.cosine(5), time=3)),
        ("`time` = 3 is never reached: .* the time ends near 2.5", lambda: bad(1 / d * schedules.cosine(5), method=tl.ODE(), time=3)),
        ("`time` = 1 is never reached", lambda: bad(1 / d * schedules.warmup(1, clock="time"), time=1)),
        ("exist in the limit d → ∞, where the clock 'step' runs in units of d", lambda: bad(1 / d * schedules.cosine(500, clock="step"), method=tl.ODE(), time=1)),
        ("unknown schedule 'cosin' .did you mean 'cosine'", lambda: bad("1/d * cosin(5)")),
        ("unexpected keyword argument 'length'", lambda: bad("1/d * cosine(length=5)")),
        ("a file cannot hold", lambda: bad("1/d * custom(<function f>)")),
        ("`horizon` must be a positive length in the clock", lambda: bad("1/d * cosine(horizon=(1, 2))")),
        ("`at` must be increasing, in one power of d", lambda: schedules.table([0, 2, 1], [1, 1, 1])),
        ("`at` must be a positive length in the clock", lambda: schedules.piecewise([0, 2], [1, 1, 1])),
        ("Give one of `time`, `steps`, `alpha` and `passes`, but got `time` and `alpha`", lambda: bad(time=1, alpha=2)),
        ("`momentum` must be positive where nesterov", lambda: tl.SGD("1/d", nesterov=True)),
        ("`batch` must be constant on a fixed set", lambda: tl.SGD(0.1, batch=10 * schedules.linear(5), dataset=100)),
        ("no powers and is no divisor", lambda: 1 / (d * schedules.linear(5))),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_a_sentence(words: str, call: Any) -> None:
    with pytest.raises(tl.InputError, match=words):
        call()


def test_sweeps_over_schedules_share_their_code() -> None:
    """Numbers of schedules are data: two horizons are one compiled form."""
    forms = {
        Clocks(LINEAR, tl.SGD(1 / d * schedules.cosine(h)), 100).form for h in (3, 5)
    }
    assert len(forms) == 1 and forms != {
        Clocks(LINEAR, tl.SGD(1 / d * schedules.linear(3)), 100).form
    }
