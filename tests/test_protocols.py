"""Optimal protocols: closed forms of one order parameter, derivatives against differences, the chain at finite d."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import lambertw

import twolayer as tl
from twolayer import d
from twolayer.analysis.protocols import optimise as inside
from twolayer.analysis.protocols.controlled_motion import Controls, Objective, course_of
from twolayer.analysis.protocols.optimise import Optimum, Protocol
from twolayer.analysis.protocols.search import Search
from twolayer.cli import main

LINEAR, ORIGIN = tl.Problem("z1", "linear", noise=0.2), tl.Overlaps([[0.0]], [[0.0]])
STEP = tl.SGD(lr=0.2 / d)


def closed(s: Any, start: float = 0.5, noise: float = 0.2) -> Any:
    """ε(s) = Δ/(2W(x₀e^{x₀+s})) of the linear student, x₀ = Δ/(2ε₀)."""
    x = noise / (2 * start)
    return noise / (2 * lambertw(x * np.exp(x + s)).real)


@pytest.fixture(scope="module")
def linear() -> Any:
    return tl.optimise(LINEAR, STEP, ORIGIN, horizon=10, pieces=8)


@pytest.mark.slow
def test_the_linear_student_in_closed_form(linear: Any) -> None:
    """The rate is ε/(ε + Δ/2) and falls as 1/s; the risk is that of Lambert's function, never below it."""
    optimum = closed(10.0)
    assert abs(optimum - 0.0149477838) < 1e-10
    assert optimum * (1 - 1e-7) < linear.value < optimum * (1 + 1e-4)
    x = linear.path.alpha.values
    best = closed(x) / (closed(x) + 0.1)
    inside_ = (x > 1) & (x < 9)
    np.testing.assert_allclose(linear.path.lr.values[inside_], best[inside_], rtol=0.05)
    assert (
        linear.certified
        and linear.complete
        and max(linear.restarts) < (1 + 1e-6) * min(linear.restarts)
    )


@pytest.mark.slow
def test_the_best_constant_in_closed_form(linear: Any) -> None:
    """ε_∞ + (ε₀ − ε_∞)e^{−(2γ−γ²)s}, ε_∞ = γΔ/(2(2−γ)), is smallest at γ = 0.270014."""
    assert linear.constant.lr.coefficient == pytest.approx(0.270014, abs=2e-5)
    assert linear.constant.value == pytest.approx(0.0201422611, rel=1e-6)
    assert set(linear.named) == {"cosine", "linear", "power", "inverse"}
    assert all(
        linear.value < x.value < linear.constant.value for x in linear.named.values()
    )
    assert linear.best_named is linear.named["power"]


@pytest.mark.slow
def test_few_pieces_do_not_rule_out_high_rates() -> None:
    """The best constant does not depend on the intervals: a coarse integration would blow up at the rates it needs."""
    noise, span = 0.002, 60.0
    gamma = np.linspace(0.02, 0.4, 100_001)
    level = gamma * noise / (2 * (2 - gamma))
    closed_ = level + (0.5 - level) * np.exp(-(2 * gamma - gamma**2) * span)
    best = tl.optimise(
        LINEAR.replace(noise=noise),
        STEP,
        ORIGIN,
        horizon=span,
        form="constant",
        pieces=2,
    )
    assert best.value == pytest.approx(closed_.min(), rel=1e-4)
    assert best.constant.lr.coefficient == pytest.approx(
        gamma[closed_.argmin()], rel=0.02
    )


@pytest.mark.long
def test_where_every_step_harms_the_best_rate_is_as_good_as_none() -> None:
    """At perfect learning with noisy labels nothing is gained by moving; laws stay positive all the same."""
    best = tl.optimise(
        LINEAR, STEP, tl.Overlaps([[1.0]], [[1.0]]), horizon=1, pieces=2, restarts=1
    )
    assert 0 <= best.value < 1e-4 and best.algorithm.lr.coefficient > 0


@pytest.mark.slow
def test_the_law_found_runs_in_any_method(linear: Any) -> None:
    again = tl.solve(LINEAR, linear.algorithm, tl.ODE(), ORIGIN, alpha=10, save=1)
    assert float(again.excess_risk[0, -1]) == pytest.approx(linear.value, rel=1e-6)
    assert linear.algorithm == STEP.replace(lr=linear.schedule)
    assert (
        tl.SGD(lr=str(linear.schedule)).lr.schedule is not None
    )  # its text is a law too
    contest = linear.compare(dim=400, seeds=32)
    assert contest.verdicts["constant"] == "wins"
    assert contest.means["optimum"][0] == pytest.approx(linear.value, rel=0.1)
    assert "optimum wins" in str(contest) and "±" in contest._repr_html_()


@pytest.mark.long
def test_a_protocol_that_is_no_better_does_not_win(linear: Any) -> None:
    """The wrong twin: with optimum and constant exchanged the contest is lost."""
    runs = {"optimum": linear.constant, "constant": linear}
    values = {
        name: tl.solve(
            LINEAR, x.algorithm, tl.Chain(400), ORIGIN, alpha=10, save=1, seeds=32
        ).excess_risk.values[:, -1]
        for name, x in runs.items()
    }
    assert inside.Contest(400, 32, "excess_risk", values).wins is False
    same = inside.Contest(
        400,
        32,
        "excess_risk",
        {"optimum": values["constant"], "constant": values["constant"]},
    )
    assert same.wins == "undecided"


@pytest.mark.long
def test_derivatives_against_differences() -> None:
    """Rate, batch and decay at single points of the grid, on every clock, with a trained second layer."""
    problem = tl.Problem("He2(z1)", "He2", noise=0.1)
    algorithm = tl.SGD(lr=0.05 / d, batch=2, train_second_layer=True)
    start = tl.Overlaps([[0.8]], [[0.4]])
    with jax.enable_x64(True):
        for clock in ("alpha", "time"):
            course = course_of(
                problem,
                algorithm,
                tl.ODE(),
                start,
                3.0,
                clock,
                Objective("excess_risk"),
                12,
            )
            base = Controls(1 + 0.3 * np.cos(course.grid), 1 + 0.1 * course.grid, 0.05)
            _, slope = course(base)
            for name, at in (("lr", 7), ("batch", 12), ("decay", ())):
                h = 1e-5

                def moved(
                    by: float, name: str = name, at: Any = at, base: Controls = base
                ) -> Controls:
                    value = np.array(getattr(base, name), float)
                    value[at] += by
                    return base._replace(**{name: value})

                difference = (course.value(moved(h)) - course.value(moved(-h))) / (
                    2 * h
                )
                assert abs(difference) > 1e-7
                np.testing.assert_allclose(
                    getattr(slope, name)[at], difference, rtol=1e-5
                )


@pytest.mark.long
def test_the_grid_is_the_ode() -> None:
    """The course of the search against `solve` with the schedule as a law."""
    algorithm = STEP.replace(weight_decay=0.1, batch=2)
    with jax.enable_x64(True):
        course = course_of(
            LINEAR,
            algorithm,
            tl.ODE(),
            ORIGIN,
            6.0,
            "alpha",
            Objective("integrated_risk"),
            64,
        )
        value = course.value(Controls(1 - course.grid / 12, 1 + course.grid / 6, 0.1))
    law = algorithm.replace(
        lr=algorithm.lr * tl.schedules.linear(12),
        batch=2 * tl.schedules.table([0, 6], [1, 2]),
    )
    run = tl.solve(LINEAR, law, tl.ODE(), ORIGIN, alpha=6, save=64)
    x, risk = run.alpha.values, run.excess_risk.values[0]
    np.testing.assert_allclose(value, np.trapezoid(risk, x) / 6, rtol=1e-6)


@pytest.mark.long
def test_giant_steps_of_the_linear_student() -> None:
    """One number, greedy is optimal: lr = ε/(ε + (ε + Δ/2)/α) at each step."""
    alpha, noise, steps = 2.0, 0.2, 4
    best = tl.optimise(
        LINEAR,
        tl.SGD(lr=0.3, batch=alpha * d),
        ORIGIN,
        method=tl.GiantSteps(),
        horizon=steps,
        restarts=2,
    )
    eps, rates = 0.5, []
    for _ in range(steps):
        rates.append(eps / (eps + (eps + noise / 2) / alpha))
        eps = (1 - rates[-1]) ** 2 * eps + rates[-1] ** 2 * (eps + noise / 2) / alpha
    np.testing.assert_allclose(best.value, eps, rtol=1e-6)
    np.testing.assert_allclose(best.path.lr.values[:-1], rates, rtol=1e-3)
    assert best.clock == "step" and best.certified


@pytest.mark.long
def test_the_mean_step_at_finite_dimension() -> None:
    best = tl.optimise(
        LINEAR,
        tl.SGD(lr=0.3 / d),
        ORIGIN,
        method=tl.Map(100),
        horizon=200,
        form="constant",
        bounds=(0.01 / d, 1 / d),
    )
    limit = tl.optimise(LINEAR, STEP, ORIGIN, horizon=2, form="constant", pieces=8)
    assert (
        best.value == pytest.approx(limit.value, rel=0.02)
        and best.schedule.exponent == -1
    )


@pytest.mark.long
def test_phase_retrieval_against_its_implicit_solution() -> None:
    """s = (3 + Δ/4) log(u/(1 − u)) + (Δ/4)/(1 − u) between u₀ and u; the rate begins at 1/(12 + Δ)."""
    problem, start = (
        tl.Problem("z1**2", "square", noise=0.5),
        tl.Overlaps([[1.0]], [[0.1]]),
    )
    best = tl.optimise(
        problem, tl.SGD(lr=0.04 / d, geometry="projected"), start, horizon=40, pieces=16
    )
    assert 0.0214894966 * (1 - 1e-6) < best.value < 0.0214894966 * (1 + 2e-4)
    assert best.constant.lr.coefficient == pytest.approx(0.0445310, rel=1e-3)
    assert best.constant.value == pytest.approx(0.0369241, rel=1e-5)
    np.testing.assert_allclose(
        best.path.lr.values[[0, -1]], [0.079968, 0.017084], rtol=0.02
    )


@pytest.mark.long
def test_a_single_erf_neuron_against_the_boundary_value_problem() -> None:
    """Two order parameters: the optimum of Pontryagin's equations is 0.00674964, that of a greedy rate 0.00711."""
    problem, start = (
        tl.Problem(tl.Teacher("erf", k=1), "erf", noise=0.1),
        tl.Overlaps([[0.5]], [[0.1]]),
    )
    best = tl.optimise(problem, tl.SGD(lr=1 / d), start, horizon=12, pieces=16)
    assert 0.006749 < best.value < 0.006752
    assert best.constant.value == pytest.approx(0.00934548, rel=1e-5)
    np.testing.assert_allclose(
        np.interp([1, 3, 6, 9], best.path.alpha, best.path.lr),
        [1.3891, 1.0756, 0.64438, 0.42265],
        rtol=3e-3,
    )
    bounded = tl.optimise(
        problem, tl.SGD(lr=0.5 / d), start, horizon=12, bounds=(0, 1 / d), pieces=16
    )
    assert bounded.value == pytest.approx(0.0069637, rel=1e-3)
    assert bounded.path.lr.values.max() <= 1 + 1e-9


@pytest.mark.long
def test_batches_are_rates() -> None:
    """In alpha only lr/batch matters: the best batch of a constant rate is the rate over the best one."""
    algorithm = tl.SGD(lr=1.2 / d)
    best = tl.optimise(
        LINEAR, algorithm, ORIGIN, over="batch", horizon=10, form="constant", pieces=8
    )
    assert (
        best.algorithm.batch.coefficient == 4
    )  # the whole number next to 1.2/0.270014
    level = 0.3 * 0.2 / (2 * (2 - 0.3))
    assert best.value == pytest.approx(
        level + (0.5 - level) * np.exp(-(0.6 - 0.09) * 10), rel=1e-6
    )


@pytest.mark.long
def test_several_controls_and_other_objectives() -> None:
    both = tl.optimise(
        LINEAR,
        STEP,
        ORIGIN,
        over={"lr", "weight_decay"},
        horizon=10,
        form="constant",
        pieces=8,
    )
    assert set(both.schedule) == {"lr", "weight_decay"}
    assert both.value <= 0.0201422611 * (
        1 + 1e-6
    )  # decay cannot hurt where it may be zero
    far = tl.optimise(
        LINEAR,
        STEP,
        tl.Overlaps([[1.0]], [[0.1]]),
        horizon=4,
        form="constant",
        objective="overlap",
        pieces=8,
    )
    end = far.path.isel(time=-1)
    assert far.value == pytest.approx(
        float(end.M[0, 0, 0] / np.sqrt(end.Q[0, 0, 0])), rel=1e-6
    )
    own = tl.optimise(
        LINEAR,
        STEP,
        ORIGIN,
        horizon=10,
        form="constant",
        pieces=8,
        objective=lambda x: (x.Q - 2 * x.M + 1)[0, 0] / 2,
    )
    assert (
        own.value == pytest.approx(0.0201422611, rel=1e-6)
        and own.objective == "<lambda>"
    )


@pytest.mark.slow
def test_an_objective_that_is_blind_to_the_norms() -> None:
    """M comes closest to 1 at rates for which Q blows up: the search stays where methods can follow."""
    best = tl.optimise(
        LINEAR,
        STEP,
        ORIGIN,
        horizon=10,
        form="constant",
        pieces=8,
        objective=lambda x: (x.M[0, 0] - 1) ** 2,
    )
    assert best.certified and 0 <= best.value < 1e-12
    assert (
        float(best.path.Q.max()) < 1e6 and not (best.path.outcome == "diverged").any()
    )
    assert "nan" not in str(best) and "inf" not in str(best)


@pytest.mark.long
def test_whole_batches_leave_no_gap() -> None:
    """In alpha only lr/batch matters, so a rounded batch costs nothing where the rate is free."""
    best = tl.optimise(
        LINEAR,
        STEP.replace(batch=2),
        ORIGIN,
        over={"lr": "free", "batch": "constant"},
        horizon=10,
        pieces=8,
        restarts=1,
    )
    assert best.value == pytest.approx(closed(10.0), rel=1e-3) and best.certified
    assert best.algorithm.batch.coefficient == round(best.algorithm.batch.coefficient)


@pytest.mark.long
def test_the_smallest_budget_has_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted or spent in the first scan, the search has the best that it has seen."""
    short = tl.optimise(
        LINEAR,
        STEP,
        ORIGIN,
        over=("lr", "weight_decay"),
        horizon=10,
        budget=50,
        pieces=8,
    )
    assert not short.complete and 0.0149 < short.value < 0.021
    seen = Search.value

    def stop(self: Search, *args: Any) -> float:
        if self.count == 20:
            raise KeyboardInterrupt
        return seen(self, *args)

    monkeypatch.setattr(Search, "value", stop)
    with pytest.raises(tl.errors.Interrupted) as caught:
        tl.optimise(LINEAR, STEP, ORIGIN, horizon=10, pieces=8)
    assert 0.0201 < caught.value.result.value < 0.03


@pytest.mark.long
def test_a_budget_ends_the_search_with_what_it_has() -> None:
    short = tl.optimise(LINEAR, STEP, ORIGIN, horizon=10, budget=90, pieces=8)
    assert not short.complete and not short.certified and short.evaluations == 90
    assert short.value <= short.constant.value
    assert "not complete" in str(short)


@pytest.mark.slow
def test_an_interrupted_search_keeps_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "descend", stop)
    with pytest.raises(tl.errors.Interrupted) as caught:
        tl.optimise(LINEAR, STEP, ORIGIN, horizon=10, pieces=8)
    assert caught.value.result.value == pytest.approx(0.0201422611, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 0}, "`horizon` must be a positive number"),
        ({"horizon": float("nan")}, "`horizon` must be"),
        (
            {"bounds": (1 / d, 0.1 / d)},
            "`bounds` must be the lowest lr, then the highest",
        ),
        ({"bounds": (0.1, 1)}, "laws of the same power as lr"),
        ({"bounds": {"batch": (1, 2)}}, "`bounds` must be one of 'lr'"),
        ({"over": "momentum"}, "`over` must be one of"),
        ({"over": ()}, "`over` must be one of"),
        ({"objective": "loss"}, "`objective` must be one of"),
        (
            {"objective": lambda x: x.M},
            "`objective` must be a JAX function of the final Overlaps that gives one number",
        ),
        (
            {"objective": lambda x: float(x.M[0, 0])},
            "`objective` must be a JAX function of the final Overlaps",
        ),
        ({"seed": -1}, "`seed` must be an integer"),
        ({"form": "exponential"}, "`form` must be one of"),
        ({"clock": "sample"}, "`clock` must be one of"),
        ({"clock": "step"}, "`clock` = 'step' runs in units of d"),
        ({"method": tl.Chain(100)}, "`method` must be"),
        ({"method": 3}, "`method` must be"),
        ({"start": 0.1}, "`start` must be Overlaps"),
        ({"start": tl.Overlaps(np.eye(2), np.zeros((2, 1)))}, "neuron"),
        ({"algorithm": tl.SGD(lr="1/d * cosine(3)")}, "`lr` must be constant"),
        ({"algorithm": tl.SGD(lr=0.1, batch=2 * d)}, "no equation of motion"),
        ({"budget": 3}, "`budget` must be"),
        ({"pieces": 0}, "`pieces` must be"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "problem": LINEAR,
        "algorithm": STEP,
        "start": ORIGIN,
        "horizon": 10,
        **change,
    }
    with pytest.raises(tl.InputError, match=message):
        tl.optimise(**given)


@pytest.mark.long
def test_several_starts_are_averaged() -> None:
    starts = tl.Overlaps(np.array([[[0.0]], [[1.0]]]), np.array([[[0.0]], [[0.0]]]))
    best = tl.optimise(LINEAR, STEP, starts, horizon=6, form="constant", pieces=8)
    gamma = best.constant.lr.coefficient
    level = gamma * 0.2 / (2 * (2 - gamma))
    expected = level + (0.75 - level) * np.exp(-(2 * gamma - gamma**2) * 6)
    assert best.value == pytest.approx(expected, rel=1e-6)
    assert jnp.ndim(best.path.excess_risk) == 2


@pytest.mark.slow
def test_the_figure_and_the_cell_of_an_optimum(linear: Any) -> None:
    """Two panels with the same three protocols; the rate drawn is the law."""
    rates, risks = tl.plot.optimum(linear).axes
    assert [line.get_label() for line in rates.lines] == [
        "optimum",
        "constant",
        "power",
    ]
    assert (
        len(risks.lines) == 3
        and rates.get_ylabel() == "d·lr"
        and risks.get_yscale() == "log"
    )
    np.testing.assert_allclose(
        rates.lines[1].get_ydata(), linear.constant.lr.coefficient
    )
    np.testing.assert_allclose(risks.lines[0].get_ydata()[-1], linear.value, rtol=1e-6)
    assert (
        rates.get_ylim()[0] == 0
        and "best constant" in linear._repr_html_()
        and "<svg" in linear._repr_html_()
    )
    with pytest.raises(tl.InputError, match="`result` must be a result of optimise"):
        tl.plot.optimum(linear.path)


TASK = """
[problem]
target = "z1"
activation = "linear"
noise = 0.2
[algorithm]
lr = "0.2/d"
[start]
Q = [[0.0]]
M = [[0.0]]
[run]
dim = 200
alpha = 10
"""


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, picture = tmp_path / "task.toml", tmp_path / "best.png"
    task.write_text(TASK)
    argv = [
        "optimise",
        str(task),
        "--form",
        "constant",
        "--pieces",
        "8",
        "--compare",
        "8",
        "--json",
    ]
    assert main([*argv, "--out", str(picture)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (
        said["value"] == pytest.approx(0.0201422611, rel=1e-5)
        and said["clock"] == "alpha"
    )
    assert said["schedule"] == said["constant"]["lr"] and said["contest"]["dim"] == 200
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and said["files"] == [
        str(picture)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--low 0.1/d", "--low and --high"),
        ("--clock time", "--clock says how --horizon counts"),
        ("--horizon -3", "`horizon` must be"),
        ("--over momentum", "`over` must be one of"),
        ("--low 1/d --high 0.1/d", "`bounds` must be the lowest lr"),
        ("--out best.doc", "--out must end in"),
        ("--method chain", "`method` must be"),
        ("--set run.dim=0.5 --compare 3", "run.dim"),
    ],
)
def test_the_command_refuses(
    flags: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "task.toml"
    task.write_text(TASK)
    assert main(["optimise", str(task), *flags.split()]) == 2
    told = capsys.readouterr().err
    assert message in told and len(told.splitlines()) == 1


def printed(schedule: Any) -> str:
    """An optimum with this law, as it is printed."""
    algorithm = tl.SGD(lr=0.1 / d)
    fixed = Protocol("constant", algorithm, 0.2)
    goal = SimpleNamespace(positive=True, large=False)
    known = (0.1, schedule, algorithm, fixed, {}, {}, True, [], 8, 0.0, 9, True)
    task = (
        tl.Problem("z1", "linear"),
        tl.Overlaps([[1.0]], [[0.0]]),
        tl.ODE(),
        "excess_risk",
        10.0,
        "alpha",
    )
    return str(Optimum(*known, *task, goal))  # type: ignore[arg-type]


def test_an_optimum_prints_a_schedule_that_a_person_can_read() -> None:
    """A free function by nine of its points, with both ends; a law with a name as it is."""
    places = [0.25 * i for i in range(41)]
    values = [1 / (1 + t) for t in places]
    free = 0.5 / d * tl.schedules.table(at=places, values=values, clock="alpha")
    lines = printed(free).splitlines()
    assert lines[0].split() == ["schedule", "α", "=", "0", "0.5/d"]
    assert lines[8].split() == ["α", "=", "10", "0.045455/d"]
    assert lines[9].startswith("excess_risk        0.1   (0.5 of the best constant's)")
    assert printed(0.5 / d * tl.schedules.inverse(3.0)).startswith(
        "schedule           0.5/d * inverse(scale=3, clock='alpha')\n"
    )
    both = printed(
        {
            "lr": free,
            "batch": 2.0
            * d**0.5
            * tl.schedules.table(at=[0.0, 1.0], values=[1.0, 2.0], clock="alpha"),
            "weight_decay": 0.125,
        }
    )
    assert "batch              α = 0        2*d**0.5\n" in both
    assert "weight_decay       0.125\n" in both
