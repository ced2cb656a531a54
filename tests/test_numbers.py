"""Extreme dimensions, rates, noise and times: the numbers are right, or refused, or the result says what they are."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from chance import sigmas

import twolayer as tl
from twolayer.running import dataset as storage

START = tl.Overlaps([[1.0]], [[0.5]])
PAIR = tl.Overlaps(np.eye(2), [[0.5], [0.2]], dim=20)
LINEAR = tl.Problem("z1", "linear")


def outcome_of(call: Any) -> str:
    """The result is finite, says that it is not, or was refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call()
        except tl.InputError as error:
            assert "\n" not in str(error)
            return "refused"
        except tl.errors.RunFailed:
            return "failed"
    advice = json.loads(found.attrs["notes"])["advice"]
    assert {*found.outcome.values} <= {*advice}
    for name in ("M", "Q", "a", "excess_risk", "time", "step", "sample", "alpha"):
        good = np.isin(found.outcome.values, ("ok", "reached"))
        values = (
            found[name].values
            if name in ("time", "step", "sample", "alpha")
            else found[name].values[good]
        )
        assert np.isfinite(values).all(), name
    return str(found.outcome.values[0])


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 3, 10**3, 10**6, 10**9, 10**12, 10**15, 10**18])
def test_a_linear_neuron_at_any_dimension(dim: int) -> None:
    """One step with lr = γ/d moves M by γ/d (1 − M) on average; the chain does so at any d.

    From M = 0, beside which no step is too small for a double; one of M = 1/2 is lost from d = 10¹⁵ on.
    """
    seeds, gamma = 2000, 0.5
    begin = tl.Overlaps([[1.0]], [[0.0]])
    found = tl.solve(
        LINEAR,
        tl.SGD(f"{gamma}/d"),
        tl.Chain(dim),
        begin,
        steps=1,
        save=1,
        seeds=seeds,
        seed=3,
    )
    moved = found.M.values[:, -1, 0, 0] * dim / gamma
    assert np.isfinite(found.risk.values).all()
    room = sigmas(freedom=seeds - 1) * moved.std(ddof=1) / math.sqrt(seeds)
    assert abs(moved.mean() - 1) < room < 0.25
    assert float(found.alpha[-1]) == pytest.approx(1 / dim)


def test_one_dimension_is_the_smallest() -> None:
    """There W lies along the target, and stays there."""
    found = tl.solve(
        LINEAR,
        tl.SGD(0.1),
        tl.Chain(1),
        tl.Overlaps([[0.25]], [[0.5]]),
        steps=20,
        save=4,
        seeds=8,
    )
    np.testing.assert_allclose(found.Q.values, found.M.values**2, rtol=1e-12)
    with pytest.raises(tl.InputError, match="`dim` must leave room for the start"):
        tl.solve(LINEAR, tl.SGD(0.1), tl.Chain(1), START, steps=2)
    with pytest.raises(
        tl.InputError, match="`lr` must be a positive number in double precision"
    ):
        tl.solve(LINEAR, tl.SGD("1e-300*d**-20"), tl.Chain(10**6), START, steps=2)


GRID = list(
    itertools.product(
        (1, 10**6, 10**18),
        ("1e-300", "1e-12/d", "1", "1e12", "1e300*d", "1e-300*d**-20"),
        (0.0, 1e-300, 1e150),
    )
)


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "lr", "noise"), GRID)
def test_extremes_are_right_or_refused(dim: int, lr: str, noise: float) -> None:
    problem = tl.Problem("z1", "linear", noise=noise)

    def run() -> object:
        return tl.solve(
            problem, tl.SGD(lr), tl.Chain(dim), START, steps=3, save=1, seeds=2
        )

    assert outcome_of(run) in ("ok", "refused", "diverged", "not_finite")


def test_so_many_steps_that_they_are_infinite() -> None:
    with pytest.raises(tl.InputError, match=r"fewer than 2\*\*32 steps, but .* is inf"):
        tl.solve(LINEAR, tl.SGD(1e-300), tl.Chain(100), START, time=2**63)


@pytest.mark.parametrize(
    "end",
    [
        {"time": 1e-300},
        {"time": 1e300},
        {"alpha": 1e-12},
        {"alpha": 1e18},
        {"steps": 2**40},
    ],
)
def test_extreme_ends_are_refused_with_a_sentence(end: dict[str, Any]) -> None:
    run = lambda: tl.solve(LINEAR, tl.SGD("0.5/d"), tl.Chain(10**6), START, **end)  # noqa: E731
    assert outcome_of(run) == "refused"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"save": 10**9}, "at most 1e\\+06 intervals"),
        ({"seeds": 10**9}, "GiB .*half of this machine"),
        ({"steps": 2 * 10**9, "seeds": 10**5}, "h of one core .*bound is 24 h"),
        ({"start": "random", "seeds": 10**12}, "more than half of the"),
        ({"force": "yes"}, "`force` must be True or False"),
    ],
)
def test_work_beyond_the_bounds_is_refused_before_it_begins(
    arguments: dict[str, Any], message: str
) -> None:
    known: dict[str, Any] = {"start": START, "steps": 1000, **arguments}
    with pytest.raises(tl.InputError, match=message):
        tl.solve(LINEAR, tl.SGD("0.5/d"), tl.Chain(1000), **known)


def test_what_is_not_finite_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = storage.to_dataset

    def spoilt(task: Any, method: Any, record: Any, risks: Any = None) -> Any:
        record.snapshot.M[1, -1] = np.nan
        return scan(task, method, record, risks)

    monkeypatch.setattr("twolayer.running.solve.to_dataset", spoilt)
    with pytest.warns(
        tl.errors.DivergenceWarning,
        match="1 of 3 runs hold numbers that are not finite",
    ):
        found = tl.solve(
            LINEAR, tl.SGD("0.5/d"), tl.Chain(50), START, steps=4, save=2, seeds=3
        )
    assert found.outcome.values.tolist() == ["ok", "not_finite", "ok"]
    assert (
        "double precision" in json.loads(found.attrs["notes"])["advice"]["not_finite"]
    )


@pytest.mark.parametrize("lr", ["1e-300/d", "1e-12/d", "1e12/d", "1e300/d"])
@pytest.mark.parametrize("noise", [0.0, 1e-300, 1e150, 1e300])
def test_the_limit_at_extreme_rates_and_noise(lr: str, noise: float) -> None:
    """Small rates leave the flow, M = 1 − e^{−t}/2; others diverge, and say so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tl.solve(
            tl.Problem("z1", "linear", noise=noise),
            tl.SGD(lr),
            tl.ODE(),
            START,
            time=1.0,
            save=2,
        )
    small = float(lr.split("/")[0]) * (1 + noise) <= 2.0
    assert found.outcome.values[0] == ("ok" if small else "diverged")
    assert np.isfinite(found.M.values).all() and np.isfinite(found.Q.values).all()
    if small:
        assert found.M.values[0, -1, 0, 0] == pytest.approx(
            1 - math.exp(-1) / 2, rel=1e-7
        )


@pytest.mark.parametrize("time", [1e-300, 1e-12, 30.0, 1e12, 1e15, 1e100, 1e300])
def test_the_limit_at_extreme_times(time: float) -> None:
    """Right, or given up with advice: a time that is too long is no divergence."""

    def run() -> xr.Dataset:
        method = tl.ODE(max_steps=2000)
        return tl.solve(LINEAR, tl.SGD("0.5/d"), method, START, time=time, save=1)

    if time > 1e3:
        with pytest.raises(tl.errors.RunFailed, match="max_steps"):
            run()
    else:
        assert run().M.values[0, -1, 0, 0] == pytest.approx(
            1 - math.exp(-time) / 2, abs=1e-7
        )


@pytest.mark.parametrize(
    ("dim", "m"),
    [(1, 0.5), (2, 0.5), (2, 0.0), (10**6, 0.0), (10**12, 0.0), (10**18, 0.0)],
)
def test_the_mean_step_at_any_dimension(dim: int, m: float) -> None:
    """Beside M = 0 no step is too small for a double."""
    found = tl.solve(
        LINEAR,
        tl.SGD("0.5/d"),
        tl.Map(dim),
        tl.Overlaps([[0.25]], [[m]]),
        steps=1,
        save=1,
    )
    assert found.M.values[0, -1, 0, 0] - m == pytest.approx(
        0.5 * (1 - m) / dim, rel=1e-9
    )


RETRIEVAL = tl.Problem("z1**2", "square", noise=0.1)
PROJECTED = tl.SGD("0.01/d", geometry="projected")


def test_escape_is_logarithmic_up_to_any_dimension() -> None:
    """From d = 10⁶ on every time grows by log(100)/(2c) for two decades of d: of rounding nothing is left."""
    times = [
        tl.escape_time(RETRIEVAL, PROJECTED, dim=10**e, threshold=0.1)
        for e in range(6, 19, 2)
    ]
    for name in ("annealed", "quenched", "ode", "noisy"):
        steps = np.diff([getattr(time, name) for time in times])
        np.testing.assert_allclose(steps, steps[0], rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("noise", [1e-300, 1e150, 1e300])
def test_rates_and_steps_at_extreme_noise(noise: float) -> None:
    problem = RETRIEVAL.replace(noise=noise)
    found = tl.rates(problem, PROJECTED, START)
    values = [x for x in vars(found).values() if isinstance(x, np.ndarray | float)]
    assert values and not any(np.isnan(x).any() for x in values)
    best = tl.optimal_lr(problem)(1)
    assert best == pytest.approx(1 / (12 + noise), rel=1e-9)
    if noise > 1:
        with pytest.raises(tl.InputError, match="for the overlap to grow"):
            tl.escape_time(problem, PROJECTED, dim=100, threshold=0.1)


@pytest.mark.parametrize("dim", [2, 10**6, 10**18])
def test_steps_of_recovery_at_any_dimension(dim: int) -> None:
    """T = (1/m₀ − 1/η)/growth for ℓ = 3, from m₀ = d^{−1/2}, or refused where that is beyond the threshold."""
    problem, algorithm = (
        tl.Problem("h3(z1)", "h3"),
        tl.SGD("0.1*d**-1.5", loss="correlation", geometry="projected"),
    )
    if dim == 2:
        with pytest.raises(tl.InputError, match="`start` must be a number in"):
            tl.single_index.recovery_steps(problem, algorithm, dim=dim)
    else:
        found = tl.single_index.recovery_steps(problem, algorithm, dim=dim)
        assert found.steps == pytest.approx(
            (math.sqrt(dim) - 2) / found.growth, rel=1e-6
        )
    assert tl.single_index.critical_alpha(dim, 3) == pytest.approx(dim)
    with pytest.raises(tl.InputError, match="`dim` must be an integer of at least 2"):
        tl.single_index.critical_alpha(1, 3)


@pytest.mark.parametrize(
    ("mu", "delta"), [(0.0, 0.0), (1e300, 0.0), (1e-300, -1e300), (30.0, 30.0)]
)
def test_phases_far_out(mu: float, delta: float) -> None:
    point = tl.phase_diagram("He3(z1)").at(mu, delta)
    assert "nan" not in str(point).lower()


LONG = 2 * 10**9


@pytest.mark.parametrize(
    "call",
    [
        lambda: tl.solve_stages(
            LINEAR,
            [tl.Stage(tl.SGD("0.5/d"), steps=LONG)] * 2,
            tl.Chain(10),
            START,
            seeds=10_000,
        ),
        lambda: tl.weak_recovery(
            tl.Problem("h2(z1)", "h2"),
            tl.SGD("0.2/d", geometry="projected"),
            (100, 200),
            seeds=10_000,
            steps=LONG,
        ),
        lambda: tl.recovery(
            LINEAR,
            tl.SGD("0.2/d", geometry="spherical"),
            1000,
            samples=LONG,
            seeds=10_000,
        ),
        lambda: tl.single_index.largest_overlaps(
            LINEAR,
            tl.SGD("0.2/d", geometry="spherical"),
            1000,
            samples=LONG,
            seeds=10_000,
        ),
        lambda: tl.layers.simulate_second_layer(
            LINEAR, START, samples=100, seeds=2**32
        ),
    ],
    ids=["stages", "weak_recovery", "recovery", "largest_overlaps", "second_layer"],
)
def test_work_of_other_functions_is_bounded_too(call: Any) -> None:
    with pytest.raises(
        tl.InputError, match=r"h of one core .*bound is 24 h: .*force=True"
    ):
        call()


def test_bounds_of_stages_are_lifted_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twolayer.running.work_bounds.memory", lambda: 1)
    stages = [tl.Stage(tl.SGD("0.5/d"), steps=4, save=2)] * 2
    with pytest.raises(tl.InputError, match="half of this machine's memory"):
        tl.solve_stages(LINEAR, stages, tl.Chain(50), START, seeds=2)
    assert (
        tl.solve_stages(LINEAR, stages, tl.Chain(50), START, seeds=2, force=True).sizes[
            "seed"
        ]
        == 2
    )


def test_sweeps_are_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    from twolayer.sweeps import batch

    follow = batch.follow

    def spoilt(*arguments: Any, **options: Any) -> Any:
        record = follow(*arguments, **options)
        record.snapshot.M[1, -1] = np.nan
        return record

    monkeypatch.setattr(batch, "follow", spoilt)
    over = {"algorithm.lr": ["0.5/d"]}
    with pytest.warns(
        tl.errors.SweepWarning, match="1 runs hold numbers that are not finite"
    ):
        found = tl.sweep(
            LINEAR, tl.SGD("0.5/d"), tl.Chain(50), over, start=START, steps=4, seeds=3
        )
    assert found.outcome.values.tolist() == [["ok", "not_finite", "ok"]]
    assert "double precision" in json.loads(found.attrs["advice"])["not_finite"]


@pytest.mark.parametrize("method", [tl.Chain(50), tl.ODE(), tl.Vectors(50)])
def test_a_rate_without_an_inverse_is_refused(method: Any) -> None:
    """Steps are times divided by it: clocks were [nan, inf] and the outcome ok."""
    with pytest.raises(tl.InputError, match="`lr` must be a positive number"):
        tl.solve(LINEAR, tl.SGD(1e-320 / tl.d), method, START, steps=4, save=2)
    with pytest.raises(tl.InputError, match="`lr` must be a positive number"):
        tl.solve(LINEAR, tl.SGD(1e-300 / tl.d**8), tl.Chain(50), START, steps=4, save=2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tl.extend.Scaling(float("nan")),
        lambda: tl.extend.Scaling(float("inf")),
        lambda: tl.extend.Scaling(1.0, float("nan")),
        lambda: tl.extend.Scaling.of(float("nan")),
        lambda: tl.extend.Scaling.of("0.1/d") * float("inf"),
        lambda: tl.relu.symmetric_pair(0.5, 1e308, lr=0.1, steps=10),
        lambda: tl.relu.symmetric_pair(1e308, 0.5, lr=0.1, steps=10),
        lambda: tl.layers.fit_second_layer(LINEAR.replace(width=2), PAIR, ridge=1e308),
        lambda: tl.layers.simulate_second_layer(
            LINEAR.replace(width=2), PAIR, samples=20, ridge=1e308
        ),
    ],
)
def test_what_would_become_nan_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(tl.InputError):
        make()


def test_large_numbers_below_the_bounds_stay_finite() -> None:
    pair = tl.relu.symmetric_pair(0.5, 1e150, lr=0.1, steps=10)
    assert np.isfinite([*pair.excess, *pair.orthogonal, *pair.loss]).all()
    layer = tl.layers.fit_second_layer(LINEAR, START, ridge=1e300)
    assert np.isfinite([*layer.a.ravel(), float(layer.risk)]).all()
    assert float(layer.risk) == pytest.approx(0.5)  # of nothing: ½ E[z²]


def test_the_limit_of_a_comparison_is_a_number() -> None:
    """Where a curve has no length, as one without deviations, all its points count."""
    from twolayer.numerics.significance import limit_of, limit_of_curves

    found = limit_of_curves([np.nan], [200], 63)
    assert found == pytest.approx(limit_of(200, 63), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("risk", ("seed", "time")),
        ("excess_risk", ("seed", "time")),
        ("loss", ("seed", "time")),
        ("lr", ("time",)),
        ("time", ("time",)),
        ("start_Q", ("neuron", "neuron_")),
        ("another", ("seed",)),
    ],
)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_every_variable_is_scanned(
    name: str, dims: tuple[str, ...], value: float
) -> None:
    """A number in any of them that is none ends as not_finite: of its seed, or of
    all.
    """
    sizes = {"seed": 3, "time": 4, "neuron": 1, "neuron_": 1}
    numbers = np.ones([sizes[dim] for dim in dims])
    numbers[(0,) * numbers.ndim] = value
    fine = {
        "M": xr.Variable(("seed", "time"), np.ones((3, 4))),
        "stop_step": xr.Variable("seed", np.full(3, np.nan)),
    }
    ended = np.array(["ok", "diverged", "reached"], dtype=object)
    found = storage.scanned(
        ended, {**fine, name: xr.Variable(dims, numbers)}, LINEAR
    ).tolist()
    assert found == [
        "not_finite",
        "diverged",
        "reached" if "seed" in dims else "not_finite",
    ]
    assert storage.scanned(ended, fine, LINEAR).tolist() == ended.tolist()


def test_noise_without_a_variance_makes_infinite_risks_and_nothing_else() -> None:
    wild = LINEAR.replace(noise=0.1, noise_law="cauchy")
    ended = np.array(["ok"], dtype=object)
    for number, outcome in ((np.inf, "ok"), (np.nan, "not_finite")):
        risk = {"risk": xr.Variable(("seed", "time"), [[1.0, number]])}
        assert storage.scanned(ended, risk, wild).tolist() == [outcome]
    risk = {"excess_risk": xr.Variable(("seed", "time"), [[1.0, np.inf]])}
    assert storage.scanned(ended, risk, wild).tolist() == ["not_finite"]
