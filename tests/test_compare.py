"""`compare`: right verdicts on true agreements, planted errors and what cannot be known, and an object that prints."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import xarray as xr
from cost import sized

import twolayer as tl
from twolayer import d
from twolayer.running import plan
from twolayer.running.comparison import Comparison
from twolayer.running.finite_size import (
    allowance,
    extrapolate,
    left_by_the_mean_step,
    slowest,
)
from twolayer.running.judging import SHARE, Correction, judge, ranges

ONE = tl.Problem(tl.Teacher("erf", 1), "erf", width=2, noise=0.1)
START = tl.Overlaps(0.7 * np.eye(2) + 0.3, [[0.5], [0.2]], dim=800)
ONLINE = tl.SGD(1 / d)
FLOW = tl.SGD(d**-0.75, batch=d**0.5)
GIANT = tl.SGD(0.5, batch=2 * d, geometry="projected")
LARGE = tl.SGD(0.5, batch=d**1.5, geometry="projected")
NOISE = tl.SGD(2 * d**-0.7)
REUSED = tl.SGD(0.5, batch=2 * d, dataset=2 * d)


@dataclass(frozen=True)
class WrongODE(tl.ODE):
    """The ODE with a clock, a rate in front of chi or a noise that is off by a factor."""

    clock: float = 1.0
    rate: float = 1.0
    label: float = 1.0

    def prepare(self, task: Any) -> Any:
        algorithm = task.algorithm.replace(lr=task.algorithm.lr * self.rate)
        problem = task.problem.replace(noise=task.problem.noise * self.label)
        points = task.points * self.clock
        return super().prepare(
            dataclasses.replace(
                task, algorithm=algorithm, problem=problem, points=points
            )
        )


@dataclass(frozen=True)
class WrongGiant(tl.GiantSteps):
    """Giant steps with another lr."""

    rate: float = 1.0

    def prepare(self, task: Any) -> Any:
        return super().prepare(
            dataclasses.replace(
                task, algorithm=task.algorithm.replace(lr=task.algorithm.lr * self.rate)
            )
        )


@dataclass(frozen=True)
class WrongDMFT(tl.DMFT):
    """Reused samples with another lr."""

    rate: float = 1.0

    def prepare(self, task: Any) -> Any:
        return super().prepare(
            dataclasses.replace(
                task, algorithm=task.algorithm.replace(lr=task.algorithm.lr * self.rate)
            )
        )


class Case(NamedTuple):
    """A comparison, and the verdicts by quantity that are right."""

    algorithm: tl.SGD
    methods: list[tl.extend.Method]
    end: dict[str, Any]
    verdicts: dict[str, set[str]]
    problem: tl.Problem = ONE
    start: tl.Overlaps = START
    seeds: int = 48


ALL = {"risk": {"agree"}, "M1": {"agree"}, "Q": {"agree"}}
OPEN = {"risk": {"undecided"}, "M1": {"undecided"}, "Q": {"undecided"}}
NEVER = tl.Problem("z1 + z1*z2*z3", "erf", width=2, noise=0.1, second_layer=[1.0, -0.8])
ESCAPE = tl.Problem("He2(z1)", "He2", noise=0.1)
NOISE_END = {"time": 3 * 256_000**-0.3, "save": 10}


def differs(*names: str) -> dict[str, set[str]]:
    return {name: {"differ"} for name in names}


TRUE = {
    "Saad–Solla": Case(
        ONLINE, [tl.ODE(), tl.SDE(800), tl.Chain(800)], {"time": 2, "save": 20}, ALL
    ),
    "Saad–Solla with batches": Case(
        tl.SGD(d**-0.5, batch=d**0.5),
        [tl.ODE(), tl.Chain(2000)],
        {"time": 2, "save": 20},
        ALL,
    ),
    "gradient flow with batches": Case(
        FLOW, [tl.ODE(), tl.Chain(1000)], {"time": 2, "save": 20}, ALL
    ),
    "more samples than dimensions": Case(
        LARGE, [tl.GiantSteps(), tl.Chain(200)], {"steps": 5, "save": 5}, ALL
    ),
    "pure noise": Case(NOISE, [tl.ODE(), tl.Chain(256_000)], NOISE_END, ALL, seeds=192),
    "giant steps": Case(
        GIANT,
        [tl.GiantSteps(), tl.Chain(400), tl.Vectors(400)],
        {"steps": 3, "save": 3},
        ALL,
        seeds=96,
    ),
    "a direction that is never learned": Case(
        GIANT,
        [tl.GiantSteps(), tl.Chain(600)],
        {"steps": 3, "save": 3},
        {**ALL, "M2": {"agree"}, "M3": {"agree"}},
        problem=NEVER,
        start=tl.Overlaps(np.eye(2), np.zeros((2, 3))),
        seeds=96,
    ),
    "reused samples": Case(
        REUSED, [tl.DMFT(), tl.Vectors(320)], {"steps": 3, "save": 3}, ALL, seeds=96
    ),
    "the mean step": Case(
        FLOW, [tl.Map(1000), tl.Chain(1000)], {"time": 2, "save": 20}, ALL
    ),
    "the mean step and its limit": Case(
        FLOW, [tl.ODE(), tl.Map(16_000)], {"time": 2, "save": 20}, ALL
    ),
    "two that are exact": Case(
        ONLINE,
        [tl.Chain(100), tl.Vectors(100)],
        {"time": 0.5, "save": 4},
        ALL,
        seeds=400,
    ),
}

PLANTED = {
    "time 10 % too fast": Case(
        ONLINE,
        [WrongODE(clock=1.1), tl.Chain(800)],
        {"time": 2, "save": 20},
        differs("risk", "M1"),
        seeds=128,
    ),
    "time too fast by 2": Case(
        ONLINE,
        [WrongODE(clock=2.0), tl.Chain(800)],
        {"time": 2, "save": 20},
        differs("risk", "M1", "Q"),
    ),
    "10 % more gradient noise": Case(
        ONLINE,
        [WrongODE(rate=1.1), tl.Chain(800)],
        {"time": 2, "save": 20},
        differs("Q"),
        seeds=768,
    ),
    "twice the gradient noise": Case(
        ONLINE,
        [WrongODE(rate=2.0), tl.Chain(800)],
        {"time": 2, "save": 20},
        differs("risk", "Q"),
    ),
    "twice the label noise": Case(
        ONLINE,
        [WrongODE(label=2.0), tl.Chain(800)],
        {"time": 2, "save": 20},
        differs("risk", "Q"),
        seeds=128,
    ),
    "10 % in a flow with batches": Case(
        FLOW,
        [WrongODE(clock=1.1), tl.Chain(1000)],
        {"time": 2, "save": 20},
        differs("risk", "M1"),
    ),
    "twice the noise where there is nothing else": Case(
        NOISE, [WrongODE(rate=2.0), tl.Chain(256_000)], NOISE_END, differs("risk", "Q")
    ),
    "10 % of lr with many samples": Case(
        LARGE,
        [WrongGiant(rate=1.1), tl.Chain(200)],
        {"steps": 5, "save": 5},
        differs("risk", "M1"),
    ),
    "10 % of lr in giant steps": Case(
        GIANT,
        [WrongGiant(rate=1.1), tl.Chain(400)],
        {"steps": 3, "save": 3},
        differs("risk"),
        seeds=96,
    ),
    "15 % of lr on reused samples": Case(
        REUSED,
        [WrongDMFT(rate=1.15), tl.Vectors(320)],
        {"steps": 3, "save": 3},
        differs("risk"),
        seeds=96,
    ),
}

UNKNOWN = {
    "a small d and a start without overlap": Case(
        tl.SGD(0.1 / d, geometry="projected"),
        [tl.ODE(), tl.Chain(300)],
        {"time": 3, "save": 20},
        {"risk": {"undecided"}, "M1": {"undecided"}},
        problem=ESCAPE,
        start=tl.Overlaps([[1.0]], [[0.06]]),
    ),
    "four seeds": Case(
        ONLINE, [tl.ODE(), tl.Chain(800)], {"time": 2, "save": 20}, OPEN, seeds=4
    ),
    "one seed": Case(
        ONLINE, [tl.ODE(), tl.Chain(800)], {"time": 2, "save": 20}, OPEN, seeds=1
    ),
    "no room for pilots": Case(
        ONLINE, [tl.ODE(), tl.Chain(48)], {"time": 2, "save": 20}, OPEN
    ),
    "two dimensions": Case(
        ONLINE, [tl.Chain(200), tl.Chain(400)], {"time": 0.5, "save": 4}, OPEN
    ),
}


def compared(case: Case) -> Comparison:
    return tl.compare(
        case.problem,
        case.algorithm,
        case.methods,
        case.start,
        seeds=case.seeds,
        **case.end,
    )


def found(comparison: Comparison) -> dict[str, set[str]]:
    """The verdicts of all methods by quantity."""
    rows = comparison.verdicts
    return {
        name: {row.verdict for row in rows if row.quantity == name}
        for name in {row.quantity for row in rows}
    }


@pytest.mark.long
@pytest.mark.parametrize("name", TRUE)
def test_what_agrees_is_said_to_agree(name: str) -> None:
    comparison = compared(TRUE[name])
    assert found(comparison) == TRUE[name].verdicts, str(comparison)
    # a theory that is off by more than this would have been seen
    assert all(
        row.seen <= SHARE * row.range
        for row in comparison.verdicts
        if row.verdict == "agree"
    )


LONG = ("10 % in a flow with batches", "15 % of lr on reused samples")


@pytest.mark.parametrize("name", sized(PLANTED, slow=set(PLANTED) - {*LONG}, long=LONG))
def test_what_is_wrong_is_said_to_differ(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # without the witness, which calls most of these theories suspect before they are compared
    monkeypatch.setenv("TWOLAYER_WITNESS", "off")
    comparison = compared(PLANTED[name])
    expected = PLANTED[name].verdicts
    verdicts = found(comparison)
    assert {key: verdicts[key] for key in expected} == expected, str(comparison)
    assert all(
        "tolerances at t = " in row.reason
        for row in comparison.verdicts
        if row.verdict == "differ"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_known_is_left_undecided(name: str) -> None:
    comparison = compared(UNKNOWN[name])
    assert found(comparison) == UNKNOWN[name].verdicts, str(comparison)
    assert all(row.reason for row in comparison.verdicts)


@pytest.mark.slow
def test_runs_that_diverge_are_not_judged_by_those_that_are_left() -> None:
    with pytest.warns(tl.errors.DivergenceWarning):
        comparison = tl.compare(
            tl.Problem("He3(z1)", "He3"),
            tl.SGD(3 / d),
            [tl.ODE(), tl.Chain(100)],
            tl.Overlaps([[1.0]], [[0.4]]),
            time=4,
            seeds=6,
        )
    assert {row.verdict for row in comparison.verdicts} == {"undecided"}
    assert all("diverged" in row.reason for row in comparison.verdicts)


@pytest.mark.slow
def test_a_theory_that_gives_up_does_not_lose_the_experiment() -> None:
    comparison = tl.compare(
        ONE,
        ONLINE,
        [tl.ODE(max_steps=2), tl.Chain(100)],
        START,
        time=50,
        save=4,
        seeds=4,
    )
    assert {row.verdict for row in comparison.verdicts} == {"undecided"}
    assert "max_steps" in comparison.verdicts[0].reason
    assert comparison.results["chain"].sizes["seed"] == 4


# -- the test itself ---------------------------------------------------------------------------------------------------


def curves(
    deviation: np.ndarray, spread: float, seeds: int, rng: np.random.Generator
) -> tuple[xr.Dataset, xr.Dataset]:
    """Runs around a theory that falls from 1 to 0: one risk and one overlap, deviation and noise in the risk alone."""
    times = np.linspace(0, 1, len(deviation))
    theory = xr.Dataset(
        {
            "risk": (("seed", "time"), (1 - times)[None]),
            "excess_risk": (("seed", "time"), (1 - times)[None]),
            "M": (("seed", "time", "neuron", "direction"), times[None, :, None, None]),
            "a": (("seed", "time", "neuron"), np.ones((1, len(times), 1))),
        },
        {"time": times, "neuron": [1]},
    )
    # smooth noise: half a cosine and half a sine
    noise = spread * (
        rng.normal(size=(seeds, 1)) * np.sin(np.pi * times)
        + rng.normal(size=(seeds, 1)) * np.cos(np.pi * times)
    )
    runs = theory.isel(seed=[0] * seeds).copy(deep=True)
    runs["risk"] = ("seed", "time"), (1 - times) + deviation + noise
    return runs, theory


def verdict(
    deviation: float, spread: float, allowance: float, seed: int = 0, seeds: int = 20
) -> str:
    runs, theory = curves(
        np.full(30, deviation), spread, seeds, np.random.default_rng(seed)
    )
    correction = {"risk": Correction(0.0, allowance)}
    rows = judge(
        "runs",
        1000,
        runs,
        theory,
        ranges(theory, np.eye(1), 1000),
        corrections=correction,
    )
    assert [row.quantity for row in rows] == ["risk", "M1"]
    return rows[0].verdict


def test_the_three_verdicts() -> None:
    assert verdict(0.0, 0.03, 0.0) == "agree"
    assert verdict(0.1, 0.03, 0.0) == "differ"
    assert verdict(0.0, 0.3, 0.0) == "undecided"  # noise
    assert verdict(0.0, 0.03, 0.2) == "undecided"  # finite size
    assert verdict(0.1, 0.03, 0.08) == "undecided"  # it may be finite size
    assert verdict(0.3, 0.03, 0.08) == "differ"


@pytest.mark.slow
def test_false_alarms_are_rare_and_errors_are_seen() -> None:
    """Each of 1000 correct theories is called wrong with a chance of 1e-4; an error of ten standard errors always is."""
    assert (
        sum(verdict(0.0, 0.1, 0.0, seed) == "differ" for seed in range(1000)) <= 2
    )  # P(3 or more) < 2e-4
    assert all(
        verdict(10 * 0.1 / np.sqrt(20), 0.1, 0.0, seed) == "differ"
        for seed in range(50)
    )


@pytest.mark.slow
def test_the_mean_of_what_is_never_learned_is_not_its_square() -> None:
    """The root of the mean square of an overlap is d^(−1/2) where its mean is zero; entries are compared one by one."""
    case = TRUE["a direction that is never learned"]
    runs = tl.solve(
        case.problem,
        case.algorithm,
        tl.Chain(600),
        case.start,
        steps=3,
        save=3,
        seeds=96,
    )
    M = runs.M.values[:, -1, :, 2]
    assert np.sqrt((M**2).mean()) > 10 * np.abs(M.mean()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "method", "dims", "end"),
    [
        (FLOW, tl.ODE(), (10**6, 4 * 10**6), {"time": 0.02}),
        (tl.SGD(d**-0.5, batch=d**0.5), tl.ODE(), (10**4, 4 * 10**4), {"time": 1}),
        (LARGE, tl.GiantSteps(), (10**4, 4 * 10**4), {"steps": 3}),
        (tl.SGD(d**-0.9, batch=1), tl.ODE(), (10**8, 4 * 10**8), {}),
    ],
)
def test_exponents_of_finite_size_are_those_of_the_mean_step(
    algorithm: tl.SGD,
    method: tl.extend.Method,
    dims: tuple[int, int],
    end: dict[str, Any],
) -> None:
    gaps = []
    for dim in dims:
        start = tl.Overlaps(START.Q, START.M, dim=dim)
        ends = end or {"steps": 200}
        run = tl.solve(
            ONE,
            algorithm,
            tl.Map(dim, without=("dimension", "ratio")),
            start,
            save=1,
            **ends,
        )
        theory = tl.solve(
            ONE, algorithm, method, start, time=float(run.time[-1]), save=1
        )
        moved = np.abs(theory.Q.values[0, -1] - START.Q).max()
        gaps.append(float(np.abs(run.Q.values - theory.Q.values)[0, -1].max() / moved))
    measured = np.log(gaps[0] / gaps[1]) / np.log(dims[1] / dims[0])
    assert measured == pytest.approx(slowest(algorithm), abs=0.06)


def test_what_finite_size_adds() -> None:
    assert slowest(REUSED) == slowest(GIANT) == left_by_the_mean_step(GIANT) == 1.0
    assert left_by_the_mean_step(NOISE) == pytest.approx(0.4)

    class Seen(NamedTuple):
        mean: np.ndarray
        error: np.ndarray

    dims, zero = (1600, 400, 100), np.zeros((1, 1))
    laws = [Seen(np.array([[0.3 + 5 / n]]), zero) for n in dims]
    assert allowance(*laws, (0.25, 0.25)) == pytest.approx(
        5 / 1600
    )  # the error of the theory, 0.3, is not allowed for
    other = [Seen(np.array([[n**-0.5]]), zero) for n in dims]
    assert (
        allowance(*other, (0.25, 0.25)) > other[0].mean
    )  # a slower law than expected: more is allowed
    noisy = [Seen(x.mean, np.full((1, 1), 0.01)) for x in laws]
    assert allowance(*noisy, (0.25, 0.25)) > 5 / 1600 + 0.01
    limit = extrapolate(
        [np.array([[1 + n**-0.25 + 0.2 * n**-0.5]]) for n in dims], dims, 0.25
    )
    assert 0 < abs(float(limit.value[0, 0]) - 1) < float(limit.error[0, 0]) < 0.02


# -- the object --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agreed() -> Comparison:
    return tl.compare(ONE, ONLINE, None, START, time=2, save=20, seeds=48)


@pytest.mark.slow
def test_all_applicable_methods_from_one_start(agreed: Comparison) -> None:
    assert set(agreed.results) == {"ode", "sde", "chain", "vectors"}
    assert agreed.reference == "ode"
    row = next(
        row
        for row in agreed.verdicts
        if (row.method, row.quantity) == ("chain", "risk")
    )
    risk = agreed.results["chain"].risk.values[:, -1]
    assert row.mean == pytest.approx(risk.mean())
    assert row.standard_error == pytest.approx(risk.std(ddof=1) / np.sqrt(48))
    assert row.reference == pytest.approx(
        float(agreed.results["ode"].risk[0, -1]), rel=1e-9
    )
    assert row.deviation == pytest.approx(row.mean - row.reference)
    assert row.tolerance == pytest.approx(
        row.allowance + row.limit * row.standard_error, rel=1e-3
    )
    assert 0 < row.allowance < 0.01
    for result in agreed.results.values():
        np.testing.assert_allclose(
            result["M"].values[:, 0],
            np.broadcast_to(START.M, (result.sizes["seed"], 2, 1)),
        )
        assert float(result["time"][-1]) == pytest.approx(2.0)


@pytest.mark.slow
def test_it_prints_itself_and_nothing_else_does(
    agreed: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    tl.compare(ONE, ONLINE, [tl.ODE(), tl.Chain(100)], START, time=0.5, save=4, seeds=4)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
    text = str(agreed)
    assert repr(agreed) == text
    assert max(map(len, text.splitlines())) < 80
    for word in (
        "claim  as d → ∞ the mean over runs is that of ode",
        "test   ",
        "0.0001",
        "figure ",
        "verdict",
    ):
        assert word in text
    assert text.count(" agree to ") == len(agreed.verdicts)
    figures = [row.seen / row.range for row in agreed.verdicts]
    assert all(f"agree to {figure:.1%}" in text for figure in figures)
    page = agreed._repr_html_()
    assert page.count("<tr>") == len(agreed.verdicts) + 1
    assert page.count('bold">agree to ') == len(agreed.verdicts)


@pytest.mark.slow
def test_files_are_written_and_read_back(agreed: Comparison, tmp_path: Path) -> None:
    tl.save(agreed, tmp_path / "both.nc")
    loaded = tl.load(tmp_path / "both.nc")
    assert isinstance(loaded, Comparison)
    assert loaded.tree.identical(agreed.tree)
    assert str(loaded) == str(agreed)
    tl.save(agreed.tree, tmp_path / "tree.nc")
    assert (tmp_path / "tree.nc").stat().st_size > 10_000
    for one in (loaded, loaded.tree):
        assert (
            tl.plot.save_figure(tl.plot.compare(one), tmp_path / "both.png")
            .stat()
            .st_size
            > 10_000
        )
    assert "Saad" in tl.cite(loaded)
    with pytest.raises(tl.InputError, match="a result of compare"):
        tl.plot.compare(agreed.results["ode"])


@pytest.mark.slow
def test_files_of_the_first_edition_are_read(agreed: Comparison) -> None:
    """They have no tolerance and no power, and rows without a verdict."""
    old = {"method", "quantity", "verdict", "reason", "dim", "reference", "mean", "standard_error", "allowance",
           "deviation", "worst_ratio", "worst_time"}  # fmt: skip
    tree = agreed.tree.copy()
    tree.dataset = agreed.tree.to_dataset()[sorted(old)].assign(
        verdict=("row", ["no verdict"] * len(agreed.verdicts))
    )
    known = Comparison(tree)
    assert {row.verdict for row in known.verdicts} == {"no verdict"}
    assert "no verdict" in str(known)


@pytest.mark.slow
def test_what_refuses_is_skipped_with_its_reason() -> None:
    comparison = tl.compare(
        ONE,
        tl.SGD(0.5, batch=2 * d),
        [tl.ODE(), tl.Chain(60), tl.Vectors(60)],
        START,
        steps=2,
        save=1,
        seeds=4,
    )
    assert set(comparison.results) == {"chain", "vectors"}
    assert "GiantSteps" in comparison.skipped["ODE"]
    assert "skipped ODE" in str(comparison)
    one = tl.compare(
        tl.Problem("He2(z1)", "He2"),
        tl.SGD(0.5 * d**-0.5, geometry="projected"),
        [tl.Map(400), tl.Chain(400)],
        tl.Overlaps([[1.0]], [[0.3]]),
        steps=2,
        seeds=4,
    )
    assert (
        "does not average" in one.skipped["Map"]
    )  # what only the numbers of the start tell
    assert list(one.results) == ["chain"]


def test_two_theories_without_noise_differ_by_more_than_rounding() -> None:
    comparison = tl.compare(
        ONE, ONLINE, [tl.ODE(), WrongODE(clock=1.01)], START, time=1, save=4
    )
    assert {row.verdict for row in comparison.verdicts} == {"differ"}
    same = tl.compare(ONE, ONLINE, [tl.ODE(), WrongODE()], START, time=1, save=4)
    assert {row.verdict for row in same.verdicts} == {"agree"}


@pytest.mark.slow
def test_two_dimensions_of_one_method_have_names_of_their_own() -> None:
    comparison = tl.compare(
        ONE,
        ONLINE,
        [tl.ODE(), tl.Chain(200), tl.Chain(400)],
        START,
        time=0.5,
        save=4,
        seeds=8,
    )
    assert set(comparison.results) == {"ode", "chain_200", "chain_400"}
    assert {row.method for row in comparison.verdicts} == {"chain_200", "chain_400"}


def test_progress_is_told_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    def stop(*_: Any, progress: Any, **__: Any) -> None:
        progress.begin("chain", 1.0)  # as a run does, once its arguments are checked
        told.append(capsys.readouterr().err)
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "solve", stop)
    with pytest.raises(KeyboardInterrupt):
        tl.compare(
            ONE,
            ONLINE,
            [tl.ODE(), tl.Chain(100)],
            START,
            time=1,
            seeds=4,
            progress=True,
        )
    assert told == ["[1] chain, d = 100, 4 seeds\n"]


@pytest.mark.slow
def test_an_interrupted_comparison_keeps_what_is_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true = plan.solve

    def once(*arguments: Any, **options: Any) -> Any:
        if isinstance(arguments[2], tl.ODE):
            raise KeyboardInterrupt
        return true(*arguments, **options)

    monkeypatch.setattr(plan, "solve", once)
    with pytest.raises(tl.errors.Interrupted) as stop:
        tl.compare(
            ONE, ONLINE, [tl.ODE(), tl.Chain(100)], START, time=0.5, save=4, seeds=4
        )
    part = stop.value.result
    assert list(part.results) == ["chain"]
    assert not json.loads(part.tree.attrs["complete"])
    assert "interrupted" in str(part)


@pytest.mark.slow
def test_bad_input() -> None:
    with pytest.raises(tl.InputError, match="`start`"):
        tl.compare(ONE, ONLINE, time=1)
    with pytest.raises(tl.InputError, match="`methods`"):
        tl.compare(ONE, ONLINE, [], START, time=1)
    with pytest.raises(tl.errors.Refused, match="GiantSteps"):
        tl.compare(ONE, tl.SGD(0.5, batch=2 * d), [tl.ODE()], START, steps=2)


def test_a_comparison_that_is_refused_has_not_begun(
    capsys: pytest.CaptureFixture[str],
) -> None:
    start = tl.Overlaps([[1.0]], [[0.3]])
    with pytest.raises(tl.InputError, match="half of this machine's memory"):
        tl.compare(
            tl.Problem("He2(z1)", "He2"),
            tl.SGD("0.2/d", geometry="projected"),
            [tl.Chain(100)],
            start,
            time=1,
            save=5,
            seeds=10**9,
            progress=True,
        )
    assert capsys.readouterr().err == ""
