"""Extreme dimensions, rates, noise and times: the numbers are right, or refused, or the result says what they are."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from typing import Any

import numpy as np
import pytest

import twolayer as tl
from twolayer.running import dataset as storage

START = tl.Overlaps([[1.0]], [[0.5]])
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
        values = found[name].values if name in ("time", "step", "sample", "alpha") else found[name].values[good]
        assert np.isfinite(values).all(), name
    return str(found.outcome.values[0])


@pytest.mark.parametrize("dim", [2, 3, 10**3, 10**6, 10**9, 10**12, 10**15, 10**18])
def test_a_linear_neuron_at_any_dimension(dim: int) -> None:
    """One step with lr = γ/d moves M by γ/d (1 − M) on average; the chain does so at any d."""
    seeds, gamma = 400, 0.5
    found = tl.solve(LINEAR, tl.SGD(f"{gamma}/d"), tl.Chain(dim), START, steps=1, save=1, seeds=seeds, seed=3)
    moved = (found.M.values[:, -1, 0, 0] - 0.5) * dim / gamma
    assert np.isfinite(found.risk.values).all()
    resolution = 2 * np.finfo(float).eps * dim / gamma  # of a step beside M = 1/2
    assert abs(moved.mean() - 0.5) < 5 * moved.std(ddof=1) / math.sqrt(seeds) + resolution
    assert float(found.alpha[-1]) == pytest.approx(1 / dim)


def test_one_dimension_is_the_smallest() -> None:
    """There W lies along the target, and stays there."""
    found = tl.solve(LINEAR, tl.SGD(0.1), tl.Chain(1), tl.Overlaps([[0.25]], [[0.5]]), steps=20, save=4, seeds=8)
    np.testing.assert_allclose(found.Q.values, found.M.values**2, rtol=1e-12)
    with pytest.raises(tl.InputError, match="`dim` must leave room for the start"):
        tl.solve(LINEAR, tl.SGD(0.1), tl.Chain(1), START, steps=2)
    with pytest.raises(tl.InputError, match="`lr` must be a positive number in double precision"):
        tl.solve(LINEAR, tl.SGD("1e-300*d**-20"), tl.Chain(10**6), START, steps=2)


GRID = list(
    itertools.product(
        (1, 10**6, 10**18), ("1e-300", "1e-12/d", "1", "1e12", "1e300*d", "1e-300*d**-20"), (0.0, 1e-300, 1e150)
    )
)


@pytest.mark.parametrize(("dim", "lr", "noise"), GRID)
def test_extremes_are_right_or_refused(dim: int, lr: str, noise: float) -> None:
    problem = tl.Problem("z1", "linear", noise=noise)
    run = lambda: tl.solve(problem, tl.SGD(lr), tl.Chain(dim), START, steps=3, save=1, seeds=2)  # noqa: E731
    assert outcome_of(run) in ("ok", "refused", "diverged", "not_finite")


@pytest.mark.parametrize(
    "end", [{"time": 1e-300}, {"time": 1e300}, {"alpha": 1e-12}, {"alpha": 1e18}, {"steps": 2**40}]
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
def test_work_beyond_the_bounds_is_refused_before_it_begins(arguments: dict[str, Any], message: str) -> None:
    known: dict[str, Any] = {"start": START, "steps": 1000, **arguments}
    with pytest.raises(tl.InputError, match=message):
        tl.solve(LINEAR, tl.SGD("0.5/d"), tl.Chain(1000), **known)


def test_what_is_not_finite_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = storage.to_dataset

    def spoilt(task: Any, method: Any, record: Any, risks: Any = None) -> Any:
        record.snapshot.M[1, -1] = np.nan
        return scan(task, method, record, risks)

    monkeypatch.setattr("twolayer.running.solve.to_dataset", spoilt)
    with pytest.warns(tl.errors.DivergenceWarning, match="1 of 3 runs hold numbers that are not finite"):
        found = tl.solve(LINEAR, tl.SGD("0.5/d"), tl.Chain(50), START, steps=4, save=2, seeds=3)
    assert found.outcome.values.tolist() == ["ok", "not_finite", "ok"]
    assert "double precision" in json.loads(found.attrs["notes"])["advice"]["not_finite"]
