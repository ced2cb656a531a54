"""Rates of their own for the two layers, one layer alone, and averages of the iterates, where samples are fresh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chance import sigmas

import twolayer as tl
from twolayer import d

PROBLEM = tl.Problem("tanh(z1)", "erf", width=2, second_layer=[1.5, -0.5], noise=0.1)
START = tl.Overlaps([[1.0, 0.2], [0.2, 0.8]], [[0.3], [-0.2]])
SECOND = tl.moments(PROBLEM, START).second


def ends(algorithm: tl.SGD, method: Any, steps: int = 1, **more: Any) -> Any:
    return tl.solve(
        PROBLEM, algorithm, method, START, steps=steps, save=steps, **more
    ).isel(time=-1)


@pytest.mark.parametrize(
    ("first", "method"),
    [
        pytest.param(True, tl.GiantSteps(), marks=pytest.mark.long),
        pytest.param(True, tl.Map(500), marks=pytest.mark.slow),
        pytest.param(True, tl.Population(), marks=pytest.mark.slow),
        pytest.param(False, tl.GiantSteps(), marks=pytest.mark.slow),
        pytest.param(False, tl.Map(500), marks=pytest.mark.slow),
        (False, tl.Population()),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_one_mean_step_of_each_layer(method: Any, first: bool) -> None:
    """a' = a + (second_lr/p) E[e σ], whatever the first layer does; that is as with the second at rest, or stays."""
    algorithm = tl.SGD(
        lr=0.2,
        batch=4 * d,
        train_second_layer=True,
        second_lr=0.5,
        train_first_layer=first,
    )
    end = ends(algorithm, method)
    np.testing.assert_allclose(end.a.values[0], PROBLEM.a() + 0.25 * SECOND, atol=1e-8)
    alone = ends(tl.SGD(lr=0.2, batch=4 * d), method)
    for name, before in (("M", START.M), ("Q", START.Q)):
        np.testing.assert_allclose(
            end[name].values[0], alone[name].values[0] if first else before, atol=1e-10
        )
        assert np.abs(alone[name].values[0] - before).max() > 0.01


@pytest.mark.long
@pytest.mark.parametrize("first", [True, False])
def test_the_limit_and_its_diffusion(first: bool) -> None:
    """Over a short time a moves by ρ t E[e σ], ρ = second_lr/lr; runs of the SDE and of SGD spread by ρ as much."""
    plain = tl.SGD(lr=0.4 / d, train_second_layer=True)
    own = plain.replace(second_lr=1.0 / d, train_first_layer=first)
    short = tl.solve(PROBLEM, own, tl.ODE(), START, time=1e-4, save=1).isel(time=-1)
    np.testing.assert_allclose(
        short.a.values[0] - PROBLEM.a(), 2.5e-4 * SECOND, rtol=1e-2
    )
    moved = np.abs(short.M.values[0] - START.M).max()
    assert moved == 0 if not first else moved > 1e-6
    spreads = {}
    for method in (tl.SDE(100, dt=0.05), tl.Chain(100), tl.Vectors(100)):
        run = tl.solve(PROBLEM, own, method, START, steps=100, save=1, seeds=400).isel(
            time=-1
        )
        spreads[method.name] = run.a.values.std(0, ddof=1), run.a.values.mean(0)
        if not first:
            np.testing.assert_allclose(
                run.Q.values, np.broadcast_to(START.Q, run.Q.shape), atol=1e-12
            )
    exact, mean = spreads["vectors"]
    for name in ("chain", "sde"):
        spread, centre = spreads[name]
        assert (
            np.abs(np.log(spread / exact)) < sigmas(4) * np.sqrt(2 / 800) + 0.02
        ).all()
        assert (
            np.abs(centre - mean)
            < sigmas(4) * exact * np.sqrt(2 / 400) + 0.01 * np.abs(mean)
        ).all()


@pytest.mark.long
def test_averages_of_chains_are_those_of_vectors() -> None:
    """Means of the overlaps of the average, with momentum; and they are not those of the last iterate."""
    algorithm = tl.SGD(lr=1.0 / d, momentum=0.3, average=0.05, train_second_layer=True)
    runs = [
        ends(algorithm, method, 60, seeds=300)
        for method in (tl.Chain(60), tl.Vectors(60))
    ]
    for name in ("M_average", "Q_average", "a_average", "risk_average"):
        one, two = (run[name].values.reshape(300, -1) for run in runs)
        error = np.sqrt((one.var(0, ddof=1) + two.var(0, ddof=1)) / 300)
        assert (np.abs(one.mean(0) - two.mean(0)) < sigmas(12, 299) * error).all(), name
    last = runs[0].Q.values.reshape(300, -1).mean(0)
    assert np.abs(runs[0].Q_average.values.reshape(300, -1).mean(0) - last).max() > 0.02


def test_what_has_no_limit_is_refused() -> None:
    apart = tl.support(
        PROBLEM, tl.SGD(lr=0.1 / d, train_second_layer=True, second_lr=0.1)
    )
    assert set(apart.methods) == {"Chain", "Map", "Population", "Vectors"}
    assert all(
        "different powers of d" in apart.reasons[name]
        for name in ("ODE", "SDE", "MeanField")
    )
    averaged = tl.support(PROBLEM, tl.SGD(lr=0.1, batch=2 * d, average="uniform"))
    assert (
        averaged.methods == ("Chain", "Vectors")
        and "rows of all times" in averaged.reasons["GiantSteps"]
    )
    with pytest.raises(tl.errors.Refused, match="different powers"):
        tl.solve(
            PROBLEM,
            tl.SGD(lr=0.1 / d, train_second_layer=True, second_lr=0.1),
            tl.Population(True),
            START,
            time=1,
        )
    for bad, words in (
        (
            dict(
                lr="0.1/d * cosine(horizon=5)",
                train_first_layer=False,
                train_second_layer=True,
            ),
            "`lr` must be constant",
        ),
        (
            dict(
                lr="0.1/d",
                train_second_layer=True,
                second_lr="0.1/d * cosine(horizon=5)",
            ),
            "`second_lr` must be constant",
        ),
    ):
        with pytest.raises(tl.InputError, match=words):
            tl.SGD(**bad)
