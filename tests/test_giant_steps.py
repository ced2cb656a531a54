"""Giant steps on fresh and on reused batches: the map against explicit weights, and where the two theories meet."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from chance import sigmas

import twolayer as tl
from twolayer import d
from twolayer.gallery import staircases
from twolayer.gallery.shared import stepping

PROBLEM = tl.Problem("z1*z2 + z1", "relu", width=2, second_layer=[1.5, -1.2], noise=0.1)
START = tl.Overlaps([[1.0, 0.2], [0.2, 1.0]], [[0.3, 0.0], [0.0, -0.2]])
ALGORITHM = tl.SGD(lr=2.0, batch=2 * d)


def worst(runs: xr.Dataset, theory: xr.Dataset) -> float:
    """Largest deviation of M and Q in standard errors, relative to what chance allows."""
    n, found = runs.sizes["seed"], []
    for name in ("M", "Q"):
        values = runs[name].values[:, 1:]
        spread = values.std(0, ddof=1) / np.sqrt(n)
        found.append(
            np.abs((values.mean(0) - theory[name].values[0, 1:]) / spread).max()
        )
    entries = sum(runs[name].values[0, 1:].size for name in ("M", "Q"))
    return float(max(found)) / sigmas(entries, n - 1)


@pytest.mark.long
def test_the_map_is_that_of_explicit_weights_and_needs_pairs_of_samples() -> None:
    dim, steps = 1200, 3
    runs = tl.solve(
        PROBLEM, ALGORITHM, tl.Vectors(dim), START, steps=steps, save=steps, seeds=16
    )
    theory = tl.solve(
        PROBLEM, ALGORITHM, tl.GiantSteps(), START, steps=steps, save=steps
    )
    assert worst(runs, theory) < 1
    wrong = tl.solve(
        PROBLEM,
        ALGORITHM,
        tl.Map(dim, without="pairs", averages=tl.Averages(accuracy=1e-3)),
        START,
        steps=steps,
        save=steps,
    )
    assert worst(runs, wrong) > 1.2


@pytest.mark.long
def test_the_map_of_correlation_loss_and_projected_erf_units() -> None:
    problem = PROBLEM.replace(activation="erf")
    algorithm = ALGORITHM.replace(loss="correlation", geometry="projected")
    runs = tl.solve(
        problem, algorithm, tl.Vectors(1000), START, steps=2, save=2, seeds=12
    )
    theory = tl.solve(problem, algorithm, tl.GiantSteps(), START, steps=2, save=2)
    assert worst(runs, theory) < 1
    wrong = tl.solve(
        problem, algorithm.replace(batch=4 * d), tl.GiantSteps(), START, steps=2, save=2
    )
    assert worst(runs, wrong) > 1.2


@pytest.mark.slow
def test_the_stairs_of_z1_plus_z1z2() -> None:
    """Overlaps with z2 after 1 … 4 giant steps, computed independently of this package."""
    problem = tl.Problem(
        "z1 + z1*z2", "relu", width=4, second_layer=[1, -1.2, 0.8, -0.9]
    )
    algorithm = tl.SGD(lr=4.0, batch=4 * d, geometry="projected")
    run = tl.solve(
        problem,
        algorithm,
        tl.GiantSteps(averages=tl.Averages(points=2**15)),
        stepping.orthogonal(problem),
        steps=4,
        save=4,
    )
    climbed = stepping.strength(run.M.values[0])[1:, 1]
    np.testing.assert_allclose(climbed, [0.0, 0.134, 0.274, 0.374], atol=2e-3)


@pytest.mark.long
@pytest.mark.parametrize("geometry", ["free", "spherical"])
def test_the_first_step_of_reused_batches_is_a_giant_step_and_the_second_is_not(
    geometry: str,
) -> None:
    fresh = ALGORITHM.replace(geometry=geometry)
    map_ = tl.solve(PROBLEM, fresh, tl.GiantSteps(), START, steps=2, save=2)
    dmft = tl.DMFT(averages=tl.Averages(points=2**13))
    reused = tl.solve(
        PROBLEM, fresh.replace(dataset=fresh.batch), dmft, START, steps=2, save=2
    )
    for name in ("M", "Q"):
        error = reused[f"{name}_error"].values[0].max(axis=(1, 2)) + 1e-9
        gap = (
            np.abs(reused[name].values[0] - map_[name].values[0]).max(axis=(1, 2))
            / error
        )
        assert gap[1] < 6, name  # four replicates: the error is itself uncertain
        assert gap[2] > 12, name


def test_reuse_and_fresh_batches_refuse_each_other_by_name() -> None:
    with pytest.raises(tl.errors.Refused, match=r"GiantSteps cannot do this.*DMFT"):
        tl.solve(
            PROBLEM, ALGORITHM.replace(dataset=2 * d), tl.GiantSteps(), START, steps=1
        )
    # where DMFT is not among the methods that can, it is not recommended
    with pytest.raises(
        tl.errors.Refused,
        match=r"Vectors simulates it at a finite d. Methods that can: Vectors\.",
    ):
        tl.solve(
            PROBLEM,
            tl.SGD(lr=0.1 / d, batch=2 * d, dataset=2 * d),
            tl.ODE(),
            START,
            steps=1,
        )
    with pytest.raises(tl.errors.Refused, match=r"DMFT cannot do this.*GiantSteps"):
        tl.solve(PROBLEM, ALGORITHM, tl.DMFT(), START, steps=1)


def test_steps_of_discovery_are_read_off_the_overlaps() -> None:
    overlap = np.array(
        [[0.0, 0.0, 0.0], [0.4, 5e-4, 2e-4], [0.6, 0.02, 2e-3], [0.7, 0.1, 3e-3]]
    )
    assert staircases._learned(overlap).tolist() == [1.0, 2.0, np.inf]
    np.testing.assert_array_equal(
        staircases._learned(np.full((4, 1), np.nan)), [np.nan]
    )


def test_deviations_have_both_errors() -> None:
    runs = xr.Dataset(
        {"M": (("seed", "time"), [[0.0, 1.0, 2.0], [0.0, 3.0, 2.0]])},
        attrs={"description": json.dumps({"method": {"dim": 100}})},
    )
    theory = xr.Dataset(
        {
            "M": (("seed", "time"), [[0.0, 1.0, 2.0]]),
            "M_error": (("seed", "time"), [[0.0, 0.0, 0.0]]),
        }
    )
    pair = stepping.StepPair(theory, runs)
    gaps, errors = pair.gaps("M")
    np.testing.assert_allclose(gaps, [1.0, 0.0])  # mean 2 ± 1 against 1
    np.testing.assert_allclose(errors, [1.0, 0.0])  # exact numbers have none
    np.testing.assert_allclose(
        stepping.StepPair(theory.assign(M_error=theory.M_error + 1), runs).gaps("M")[1],
        [2**0.5, 1],
    )
    check = stepping.agree("runs − theory", [pair], ("M",))
    assert check.outcome == "undecided"  # two runs tell little
    assert "largest of 1 deviations 1.0 standard errors" in check.text
    values = theory.M.values + 1e-3 * np.random.default_rng(0).standard_normal((32, 3))
    for shift, outcome in ((0.0, "agree"), (0.1, "differ")):
        many = xr.Dataset({"M": (("seed", "time"), values + shift)}, attrs=runs.attrs)
        assert (
            stepping.agree("", [stepping.StepPair(theory, many)], ("M",)).outcome
            == outcome
        )
