"""Many passes of small batches: ends in passes, slices, the closed form of linear students, against explicit SGD."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import twolayer as tl
from tests.chance import sigmas
from tests.passes_plain import Passes
from twolayer import d
from twolayer.cli import main
from twolayer.files.taskfile import read_task
from twolayer.methods.dmft.linear import LinearPasses, closed_reason, marchenko_pastur
from twolayer.methods.dmft.slices import EXTRAPOLATED, HIGHER, LEVELS, in_slices
from twolayer.running.solve import make_task
from twolayer.sweeps.batch import outline
from twolayer.sweeps.grid import Grid, Run

PROBLEM = tl.Problem("tanh(2*z1)", "erf", second_layer=[1.5], noise=0.3)
START = tl.Overlaps([[0.6]], [[0.2]])
SGD = tl.SGD(1 / d, batch=1, dataset=2 * d, sampling="reshuffled")
LINEAR = tl.Problem("z1", "linear", noise=0.3)
DRAWN = tl.SGD(0.5 / d, dataset=2 * d, sampling="replacement")


def points(
    algorithm: tl.SGD, method: Any, dim: int | None = None, **end: Any
) -> np.ndarray:
    start = tl.Overlaps([[0.6]], [[0.2]], dim=dim)
    return make_task(PROBLEM, algorithm, method, start, **end).points


def test_passes_are_steps_and_samples() -> None:
    assert points(SGD, tl.Vectors(50), passes=3, save=3).tolist() == [0, 100, 200, 300]
    sixteen = SGD.replace(lr=16 / d, batch=16, dataset=1.6 * d)
    assert points(sixteen, tl.Vectors(100), passes=[0.5, 2]).tolist() == [0, 5, 20]
    batches = tl.SGD(0.5, batch=d / 4, dataset=2 * d)
    assert points(batches, tl.DMFT(), passes=[1, 3]).tolist() == [0, 8, 24]
    # t = γ s/N: a pass is 2, a coarse slice of eight a quarter of it
    assert points(SGD, tl.DMFT(slices=8), passes=[0.26, 1, 2]).tolist() == [
        0,
        0.5,
        2,
        4,
    ]
    assert points(sixteen, tl.DMFT(slices=8), passes=1, save=200).tolist() == [
        0,
        0.4,
        0.8,
        1.2000000000000002,
        1.6,
    ]


def test_an_end_in_passes_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "task.toml"
    path.write_text(
        '[problem]\ntarget = "tanh(2*z1)"\nactivation = "erf"\n'
        '[algorithm]\nlr = "1/d"\ndataset = "2*d"\nsampling = "reshuffled"\n'
        '[start]\nQ = [[0.6]]\nM = [[0.2]]\n[run]\ndim = 50\npasses = 3\nseeds = 2\nmethods = ["vectors"]\n'
    )
    task = read_task(path)
    assert task.run_arguments()["passes"] == 3
    assert "steps" not in read_task(path, ["run.seeds=4"], "2").run_arguments()
    assert main(["solve", str(path), "--passes", "5", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 500
    timed = path.read_text().replace("passes = 3", "time = 1.0")
    path.write_text(timed)
    assert main(["solve", str(path), "--passes", "5", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 500

    run = Run(passes=3, dim=50, start=START)
    grid = Grid(PROBLEM, SGD, tl.Vectors(50), run, {"run.passes": [1, 2]}, "final")
    assert [outline(grid.cell(i), 1).points[-1] for i in grid] == [100, 200]

    from twolayer.running.plan import Plan

    stages = [tl.Stage(SGD, passes=2), tl.Stage(SGD.replace(lr=0.5 / d), passes=1)]
    assert stages[0].ends == {"passes": 2}
    plan = Plan.of(PROBLEM, stages)
    assert plan.work(50, {}) == 300
    saved = plan._saved_at(np.linspace(0, 5, 6), tl.Overlaps([[0.6]], [[0.2]], dim=50))
    assert [x.ends["time"][-1] for x in saved] == [4.0, 1.0]


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (
            "every sample is new",
            lambda: tl.solve(PROBLEM, tl.SGD(1 / d), tl.ODE(), START, passes=1),
        ),
        (
            "Give one of",
            lambda: tl.solve(PROBLEM, SGD, tl.Vectors(50), START, passes=1, steps=3),
        ),
        (
            "at least one step",
            lambda: tl.solve(PROBLEM, SGD, tl.Vectors(50), START, passes=1e-3),
        ),
        (
            "at least one slice, 1/4 of a pass",
            lambda: tl.solve(PROBLEM, SGD, tl.DMFT(slices=8), START, passes=0.01),
        ),
        (
            "must be a positive number, but got -1",
            lambda: tl.solve(PROBLEM, SGD, tl.Vectors(50), START, passes=-1),
        ),
        (
            "must leave a sample for every slice",
            lambda: tl.solve(
                PROBLEM,
                SGD,
                tl.DMFT(slices=8),
                tl.Overlaps([[0.6]], [[0.2]], dim=5),
                passes=1,
            ),
        ),
        ("must be an even number, but got 7", lambda: tl.DMFT(slices=7)),
        ("must be an integer of at least 4", lambda: tl.DMFT(slices=2)),
        (
            "every step is one already",
            lambda: tl.solve(
                PROBLEM,
                tl.SGD(0.5, batch=d, dataset=2 * d),
                tl.DMFT(slices=8),
                START,
                steps=1,
            ),
        ),
        (
            "responses = False",
            lambda: tl.solve(
                PROBLEM, SGD, tl.DMFT(slices=8, responses=True), START, passes=1
            ),
        ),
        ("is passed through again", lambda: tl.passes_online(PROBLEM, tl.SGD(1 / d))),
        (
            "`tolerance` must be a positive number",
            lambda: tl.passes_online(PROBLEM, SGD, 0.0),
        ),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(words: str, call: Any) -> None:
    with pytest.raises((tl.InputError, tl.errors.Refused), match=words):
        call()


def test_small_batches_are_supported_where_slices_stand_for_them() -> None:
    assert tl.support(PROBLEM, SGD).methods == ("DMFT", "Vectors")
    assert "in slices" in tl.support(PROBLEM, SGD).reasons["ODE"]
    for words, changes in (
        ("momentum", {"momentum": 0.5}),
        ("several times in a row", {"repeat": 2}),
        ("average of the iterates", {"average": 0.1}),
        ("no limit", {"dataset": 500}),
        ("no limit", {"lr": 0.1 * d**-1.5}),
    ):
        assert words in tl.support(PROBLEM, SGD.replace(**changes)).reasons["DMFT"]
    assert tl.DMFT().suited(SGD).slices == 24
    assert tl.DMFT(slices=8).suited(SGD).slices == 8
    assert tl.DMFT().suited(tl.SGD(0.5, batch=d, dataset=2 * d)).slices is None


def test_slices_carry_the_rate_and_the_extrapolation_kills_two_powers() -> None:
    sliced = in_slices(
        SGD.replace(lr=16 / d, batch=16, train_second_layer=True, second_lr=8 / d), 8
    )
    assert sliced.lr(1) == 0.25
    assert sliced.second_lr is not None
    assert sliced.second_lr(1) == 0.125
    assert sliced.batch(100) == 25
    assert in_slices(DRAWN, 8).sampling == "subset"
    B = 6.0 * np.array(LEVELS)
    for weights, powers in ((EXTRAPOLATED, (1,)), (HIGHER, (1, 2))):
        assert math.isclose(weights.sum(), 1)
        for power in powers:
            assert abs(weights @ B**-power) < 1e-15


def table(
    alpha: float = 2.0, gamma: float = 0.5, scale: float = 1.0, slope: float = 1.0
) -> LinearPasses:
    return LinearPasses(alpha, gamma, scale, slope, 0.3, 1.0, 0.6, 0.2)


def test_the_published_table_of_linear_students() -> None:
    Q, M, train = table().at(np.array([1.0, 2.0, 4.0, 8.0, 12.0]))
    assert (
        np.abs(train - [0.363323, 0.235324, 0.152239, 0.115051, 0.106176]).max() < 3e-6
    )
    assert (
        np.abs(
            (Q - 2 * M + 1) / 2 - [0.347013, 0.245336, 0.170360, 0.140599, 0.141234]
        ).max()
        < 3e-6
    )


@pytest.mark.parametrize("alpha", [0.6, 2.0])
def test_the_equation_of_volterra(alpha: float) -> None:
    """The kernel by quadrature over the density, the equation by the trapezoidal rule."""
    gamma, noise, step = 0.5, 0.3, 0.01
    c = 1 / alpha
    low, high = (1 - math.sqrt(c)) ** 2, (1 + math.sqrt(c)) ** 2

    def mean(f: Any) -> float:
        def integrand(angle: float) -> float:
            x = (low + high) / 2 - (high - low) / 2 * math.cos(angle)
            return (
                f(x) * ((high - low) / 2 * math.sin(angle)) ** 2 / (2 * math.pi * c * x)
            )

        return float(quad(integrand, 0, math.pi, epsabs=1e-11)[0])

    s = np.arange(0, 2 + step / 2, step)
    apart = 0.6 - 0.4 + 1
    K = np.array([mean(lambda x, r=r: x**2 * math.exp(-2 * gamma * x * r)) for r in s])
    base = np.array([
        apart / 2 * mean(lambda x, r=r: x * math.exp(-2 * gamma * x * r))
        + noise / 2 * (max(0.0, 1 - c) + c * mean(lambda x, r=r: math.exp(-2 * gamma * x * r)))
        for r in s
    ])  # fmt: skip
    psi = np.zeros_like(s)
    for t in range(len(s)):
        weights = np.full(t + 1, step)
        weights[[0, -1]] /= 2
        known = (
            gamma**2 * (weights * K[t::-1] * np.append(psi[:t], 0.0)).sum()
            if t
            else 0.0
        )
        psi[t] = (base[t] + known) / (1 - gamma**2 * step / 2 * K[0] * (t > 0))
    assert np.abs(table(alpha).at(s)[2] - psi).max() < 1e-4
    law = marchenko_pastur(alpha)
    assert math.isclose(law.weight.sum() + law.atom, 1, rel_tol=1e-9)


@pytest.mark.parametrize("alpha", [0.6, 2.0])
def test_linear_students_as_simulated(alpha: float) -> None:
    """M, Q and the training risk of a student of another scale, against explicit SGD."""
    Q, M = np.array([[0.6]]), np.array([[0.2]])
    setting = Passes(
        "0.8*z1", "linear", (1.3,), 0.3, alpha, 0.4, 1, "replacement", Q, M
    )
    seen = setting.limit((100, 200), 40, 3, seed=7)
    theory = table(alpha, 0.4, 1.3, 0.8).at(alpha * np.arange(1, 4))
    for name, expected in zip(("Q", "M", "train"), theory, strict=True):
        mean, error = (x.reshape(3) for x in seen[name])
        assert (np.abs(mean - expected) / error).max() < sigmas(18, 39)
        assert (error < np.abs(expected) / 8).all()


def test_linear_students_are_recognised_and_their_first_pass_is_not_online() -> None:
    assert closed_reason(LINEAR, DRAWN) is None
    for problem, algorithm in (
        (PROBLEM, DRAWN),
        (tl.Problem("He2(z1)", "linear"), DRAWN),
        (tl.Problem("z1", "linear", width=2), DRAWN),
        (LINEAR, DRAWN.replace(sampling="reshuffled")),
        (LINEAR, DRAWN.replace(weight_decay=0.1)),
        (LINEAR, DRAWN.replace(geometry="spherical")),
        (LINEAR, DRAWN.replace(loss="huber(1)")),
    ):
        assert closed_reason(problem, algorithm) is not None
    run = tl.solve(LINEAR, DRAWN, tl.DMFT(), START, passes=[0, 1, 2, 6])
    assert (
        np.abs(run.train_risk.values[0, 1:] - [0.235324, 0.152239, 0.106176]).max()
        < 3e-6
    )
    assert np.abs(run.passes.values - [0, 1, 2, 6]).max() < 1e-12
    gap = run.risk - run.train_risk
    assert np.abs(run.generalisation_gap - gap).max() < 1e-12
    assert json.loads(run.attrs["notes"])["engine"] == "linear student in closed form"


@pytest.mark.slow
def test_slices_of_a_linear_student_and_its_closed_form() -> None:
    method = tl.DMFT(
        slices=8, max_log2_points=11, closed=False, averages=tl.Averages(points=2**11)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tl.solve(LINEAR, DRAWN, method, START, passes=[0, 1, 2])
        again = tl.rerun(run)
    exact = tl.solve(LINEAR, DRAWN, tl.DMFT(), START, passes=[0, 1, 2])
    for name in ("M", "Q", "train_risk", "risk"):
        off = np.abs(run[name] - exact[name]).values[:, 1:]
        error = run[f"{name}_error"].values[:, 1:]
        assert (off < sigmas(off.size, 3) * error + 2e-3).all()
        assert (error < 0.05).all()
        assert (again[name] == run[name]).all()


@pytest.mark.long
@pytest.mark.parametrize("sampling", ["reshuffled", "replacement"])
def test_the_published_table_of_many_passes(sampling: str) -> None:
    """SGD of batches of one at d = 1000 and 2000, 32 and 24 runs; the first pass is the ODE."""
    simulated = {
        "reshuffled": ([0.8348, 0.9499, 1.0048, 1.0424], [40, 52, 61, 64]),
        "replacement": ([0.7005, 0.8402, 0.9046, 0.9470], [24, 29, 32, 39]),
    }
    M, error = (np.array(x) for x in simulated[sampling])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = tl.DMFT(slices=24, averages=tl.Averages(accuracy=0.01))
        run = tl.solve(
            PROBLEM, SGD.replace(sampling=sampling), method, START, passes=np.arange(5)
        )
    apart = run.M.values[0, 1:, 0, 0] - M
    both = np.hypot(run.M_error.values[0, 1:, 0, 0], error * 1e-4)
    assert (np.abs(apart) / both).max() < sigmas(8, 3)
    assert (run.M_error < 0.02).all()
    if sampling == "reshuffled":
        assert (
            abs(run.M.values[0, 1, 0, 0] - 0.841505)
            < 5 * run.M_error.values[0, 1, 0, 0] + 1e-3
        )
        assert (
            abs(run.Q.values[0, 1, 0, 0] - 1.288181)
            < 5 * run.Q_error.values[0, 1, 0, 0] + 1e-3
        )
        train = np.array([0.2007, 0.1508, 0.1334, 0.1262])
        seen = np.hypot(run.train_risk_error.values[0, 1:], 14e-4)
        assert (np.abs(run.train_risk.values[0, 1:] - train) / seen).max() < sigmas(
            8, 3
        )


def random_setting(number: int) -> Passes:
    """A set-up with one to four neurons, of one of three activations."""
    rng = np.random.default_rng([36, number])
    p = int(rng.integers(1, 5))
    target = str(rng.choice(["tanh(2*z1)", "z1 + z1*z2"]))
    k = 2 if "z2" in target else 1
    M = rng.uniform(-0.3, 0.4, (p, k))
    root = rng.standard_normal((p, p)) / np.sqrt(p)
    Q = M @ M.T + 0.2 * np.eye(p) + 0.3 * root @ root.T
    a = rng.uniform(0.5, 1.5, p) * rng.choice([-1, 1], p) * np.sqrt(p)
    return Passes(
        target,
        str(rng.choice(["erf", "tanh", "relu"])),
        tuple(a.tolist()),
        float(rng.uniform(0.05, 0.3)),
        float(rng.choice([1.6, 2.4, 3.2])),
        float(rng.uniform(0.5, 1.2)),
        int(rng.choice([1, 16])),
        str(rng.choice(["reshuffled", "replacement", "sequence"])),
        Q,
        M,
    )


def deviations(number: int) -> dict[str, np.ndarray]:
    """Of one set-up the deviations of the theory from SGD, over the errors of both."""
    setting = random_setting(number)
    problem = tl.Problem(
        setting.target,
        setting.activation,
        width=len(setting.a),
        second_layer=list(setting.a),
        noise=setting.noise,
    )
    law = tl.SGD(
        setting.gamma * setting.batch / d,
        setting.batch,
        dataset=setting.alpha * d,
        sampling=setting.sampling,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = tl.DMFT(
            slices=12, max_log2_points=12, averages=tl.Averages(points=2**12)
        )
        run = tl.solve(
            problem, law, method, tl.Overlaps(setting.Q, setting.M), passes=[1, 2]
        )
    seen = setting.limit((160, 320), 48, 2, seed=number)
    found = {}
    for name, other in (("M", "M"), ("Q", "Q"), ("train", "train_risk")):
        mean, error = seen[name]
        stated = run[f"{other}_error"].values[0]
        found[name] = (run[other].values[0] - mean) / np.hypot(stated, error)
    return found


@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_errors_are_true_on_random_settings(number: int) -> None:
    z = np.concatenate([x.ravel() for x in deviations(number).values()])
    assert np.abs(z).max() < sigmas(3 * z.size, 3)
    assert np.sqrt((z**2).mean()) < 3


def test_passes_that_are_online_are_counted() -> None:
    import xarray as xr

    from twolayer.analysis.passes_online import counted

    def curves(risk: list[float], error: list[float]) -> Any:
        runs = xr.Dataset({
            "excess_risk": (("seed", "time"), [risk]),
            "risk_error": (("seed", "time"), [error]),
            "train_risk": (("seed", "time"), [risk]),
        })  # fmt: skip
        online = xr.Dataset({"excess_risk": (("seed", "time"), [[1.0, 0.5, 0.4, 0.3]])})
        return counted(runs, online, SGD, 0.02)

    for risk, error, passes, reason in (
        ([1.0, 0.5, 0.41, 0.35], 0.001, 2, "off"),
        ([1.0, 0.5, 0.41, 0.315], 0.001, 3, "end"),
        ([1.0, 0.5, 0.41, 0.325], 0.004, 2, "undecided"),
        ([1.0, 0.6, 0.41, 0.3], 0.001, 0, "off"),
    ):
        found = curves(risk, [0.0, error, error, error])
        assert (found.passes, found.reason) == (passes, reason)
    found = curves([1.0, 0.5, 0.41, 0.35], [0.0] * 4)
    assert found.best == 3
    assert str(found).startswith(
        "2 passes through 2 d samples are online to 0.02 in the risk; "
    )
