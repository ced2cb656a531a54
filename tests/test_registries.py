"""Registries: a name registered again stands for the new function in everything that was compiled, cached or stored."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest
from cost import sized

import twolayer as tl
from twolayer.functions import activation
from twolayer.functions.activation import Activation
from twolayer.functions.target import Target
from twolayer.running.solve import method_by_name
from twolayer.sweeps.fingerprint import fingerprint
from twolayer.task import losses
from twolayer.task.method import HOMES, METHODS, Method

START = tl.Overlaps([[1.0]], [[0.5]])
FRESH: dict[str, Any] = {"lr": "0.05/d", "geometry": "free"}
LENSES: dict[str, tuple[Method, dict[str, Any]]] = {
    "chain": (tl.Chain(50), FRESH),
    "vectors": (tl.Vectors(50), FRESH),
    "ode": (tl.ODE(), FRESH),
    "sde": (tl.SDE(50), FRESH),
    "map": (tl.Map(50), FRESH),
    "giantsteps": (tl.GiantSteps(), {"lr": 0.2, "batch": "4*d"}),
    "population": (tl.Population(), {"lr": 0.2, "batch": "4*d"}),
    "meanfield": (tl.MeanField(), FRESH),
    "dmft": (tl.DMFT(), {"lr": 0.2, "batch": "2*d", "dataset": "2*d"}),
}


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What a test registers is forgotten afterwards."""
    with (
        patch.dict(METHODS.own),
        patch.dict(losses._LOSSES),
        patch.dict(activation._REGISTRY),
    ):
        yield


def test_every_method_is_asked() -> None:
    assert set(LENSES) == set(HOMES)


def moved(name: str, problem: tl.Problem, loss: str = "squared") -> float:
    """How far a method carries M and Q from the start."""
    method, algorithm = LENSES[name]
    end = {"steps": 2} if {"lr": 0.2}.items() <= algorithm.items() else {"time": 0.02}
    run = tl.solve(
        problem, tl.SGD(**algorithm, loss=loss), method, START, save=1, **end
    )
    return float(abs(run.M[0, -1] - 0.5).max() + abs(run.Q[0, -1] - 1.0).max())


@pytest.mark.long
@pytest.mark.parametrize("name", LENSES)
def test_a_loss_registered_again_is_the_new_one(name: str) -> None:
    """After a loss that pushes, one of the same name that does not: nothing may move."""
    problem = tl.Problem("z1", "linear")
    tl.extend.register_loss("mine")(lambda y, f: jnp.tanh(y - f))
    method, algorithm = LENSES[name]
    assert method.refusal(problem, tl.SGD(**algorithm, loss="mine")) is None
    assert moved(name, problem, "mine") > 1e-4
    tl.extend.register_loss("mine")(lambda y, f: 0.0 * (y - f))
    assert moved(name, problem, "mine") < 1e-15


def shift(name: str, problem: tl.Problem) -> float:
    """Where a method carries M from 0 with the correlation loss: the other way when σ or the target turn their sign."""
    method, algorithm = LENSES[name]
    end = {"steps": 1} if "batch" in algorithm else {"time": 0.02}
    start = tl.Overlaps([[1.0]], [[0.0]])
    run = tl.solve(
        problem, tl.SGD(**algorithm, loss="correlation"), method, start, save=1, **end
    )
    return float(run.M[0, -1, 0, 0])


def bent(sign: float) -> Callable[[Any], Any]:
    return lambda z: sign * jnp.tanh(z)


def bent_target(sign: float) -> Callable[[Any], Any]:
    return lambda z: sign * jnp.tanh(z[..., 0])


@pytest.mark.long
@pytest.mark.parametrize("name", ["chain", "ode"])
def test_an_activation_registered_again_is_the_new_one(name: str) -> None:
    """σ, then −σ under its name: the second goes the opposite way."""
    ends = []
    for sign in (1.0, -1.0):
        tl.extend.register_activation("mine")(bent(sign))
        ends.append(shift(name, tl.Problem("z1", "mine")))
    assert ends[0] - ends[1] > 1e-3


@pytest.mark.parametrize("name", sized(["chain", "ode"], long=["chain"]))
def test_targets_from_functions_are_told_apart(name: str) -> None:
    ends = [
        shift(name, tl.Problem(bent_target(sign), "linear", directions=1))
        for sign in (1.0, -1.0)
    ]
    assert ends[0] - ends[1] > 1e-3


@pytest.mark.long
def test_functions_given_by_hand_are_told_apart() -> None:
    """Equality decides which compiled code is used, so the name alone must not."""
    assert Activation("mine", bent(1.0)) != Activation("mine", bent(-1.0))
    assert Target("mine", 1, bent_target(1.0)) != Target("mine", 1, bent_target(-1.0))
    ends = [
        shift("chain", tl.Problem("z1", Activation("mine", bent(sign))))
        for sign in (1.0, -1.0)
    ]
    assert ends[0] - ends[1] > 1e-3
    with pytest.raises(tl.InputError, match="cannot hold"):
        run = tl.solve(
            tl.Problem("z1", Activation("mine", bent(1.0))),
            tl.SGD("0.1/d"),
            tl.Chain(9),
            START,
            steps=1,
        )
        tl.rerun(run)


def test_averages_by_name_follow_the_registry() -> None:
    problem = tl.Problem("z1", "linear")
    for size in (1.0, 3.0):
        tl.extend.register_loss("scaled")(lambda y, f, size=size: size * (y - f))
        psi = tl.moments(problem, START, loss="scaled").psi[0, 0]
        assert psi == pytest.approx(size * 0.5, rel=1e-5)


def test_kinks_are_part_of_what_is_registered() -> None:
    """The same function with its kink forgotten, then given: panels kept for the first do not end where they should."""

    def kinked(z: Any) -> Any:
        return jnp.abs(z - 0.37)

    tl.extend.register_activation("bent", kinks=())(kinked)
    forgotten = tl.Problem("z1", "bent")
    tl.extend.register_activation("bent", kinks=[0.37])(kinked)
    assert tl.Problem("z1", "bent") != forgotten
    assert Activation.of("relu", kinks=[0.0, 1.0]).kinks == (0.0, 1.0)
    assert hash(Activation.of("abs(z)", kinks=[0.0])) != hash(Activation.of("abs(z)"))


def test_formulas_do_not_ask_the_registry() -> None:
    """`exp` in a formula is that, also in the ridge form that averages use, whatever is registered by that name."""
    tl.extend.register_activation("exp")(jnp.tanh)
    ridge = Target.of("2*exp(z1)").ridge
    assert ridge is not None
    assert float(ridge.activation(1.0)) == pytest.approx(np.exp(1.0))


@pytest.mark.parametrize(
    "name", ["relu", "erf", "square", "abs", "silu", "He3", "h2", "z"]
)
def test_names_of_activations_are_taken(name: str) -> None:
    with pytest.raises(tl.InputError, match="another name"):
        tl.extend.register_activation(name)
    with pytest.raises(tl.InputError, match="another name"):
        tl.extend.register_loss("squared")
    with pytest.raises(tl.InputError, match="another name"):
        tl.SGD(0.1, loss=tl.extend.Loss("squared", lambda y, f: 2 * (y - f)))


def test_methods_are_found_by_name_and_replaced() -> None:
    def method(marker: int) -> type[Method]:
        @tl.extend.register_method
        @dataclass(frozen=True)
        class Still(tl.Chain):
            """A chain with a name of its own."""

            mark: int = marker

        return Still

    first, second = method(1), method(2)
    assert first is not second and METHODS["still"] is second
    assert method_by_name("still", 10, {}).mark == 2  # type: ignore[attr-defined]
    assert list(METHODS)[:9] == list(HOMES) and list(METHODS)[9:] == ["still"]
    run = tl.solve(
        tl.Problem("z1", "linear"), tl.SGD("0.1/d"), second(10), START, steps=3, save=1
    )
    del METHODS.own["still"]
    with pytest.raises(tl.InputError, match="'still', is not known here"):
        tl.rerun(run)
    with pytest.raises(tl.InputError, match="a method of the package"):
        tl.extend.register_method(type("Chain", (tl.Chain,), {}))


FRESH_PROCESS = """
import sys, twolayer as tl
result = tl.load(sys.argv[1])
layer = tl.layers.layerwise(result)
print(layer.sizes["seed"])
"""


@pytest.mark.long
def test_a_loaded_result_is_understood_in_a_fresh_process(tmp_path: Path) -> None:
    """Nothing but what the file names has been imported there."""
    run = tl.solve(tl.Problem("z1", "relu", width=2), tl.SGD(0.1, batch="2*d"), tl.Chain(20),
                   tl.Overlaps(np.eye(2), np.full((2, 1), 0.1)), steps=2, save=1, seeds=2)  # fmt: skip
    tl.save(run, tmp_path / "run.nc")
    command = [sys.executable, "-c", FRESH_PROCESS, str(tmp_path / "run.nc")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


# -- sweeps and stores ------------------------------------------------------------------------------------------------


def swept(loss: str, over: dict[str, Any] | None = None, **options: Any) -> Any:
    problem, algorithm = tl.Problem("z1", "linear"), tl.SGD("0.1/d", loss=loss)
    return tl.sweep(
        problem,
        algorithm,
        tl.Chain(20),
        over or {"method.dim": [20]},
        start=START,
        time=0.1,
        **options,
    )


@pytest.mark.long
def test_sweeps_follow_the_registry() -> None:
    tl.extend.register_loss("mine")(lambda y, f: y - f)
    tl.extend.register_activation("bend")(lambda z: z)
    assert float(swept("mine").M.squeeze()) != 0.5
    tl.extend.register_loss("mine")(lambda y, f: 0.0 * (y - f))
    assert float(swept("mine").M.squeeze()) == 0.5
    over = {"problem.activation": ["bend"]}
    first = float(swept("squared", over).risk.squeeze())
    tl.extend.register_activation("bend")(lambda z: 3.0 * z)
    assert abs(float(swept("squared", over).risk.squeeze()) - first) > 0.1


def test_a_store_does_not_mix_two_functions_of_one_name(tmp_path: Path) -> None:
    tl.extend.register_loss("mine")(lambda y, f: y - f)
    old = swept("mine", store=tmp_path / "a.zarr")
    assert np.array_equal(swept("mine", store=tmp_path / "a.zarr").M, old.M)
    tl.extend.register_loss("mine")(lambda y, f: 0.0 * (y - f))
    with pytest.raises(
        tl.InputError, match=r"holds another sweep: its `functions.algorithm.loss`"
    ):
        swept("mine", store=tmp_path / "a.zarr")


@pytest.mark.long
def test_a_swept_function_of_the_same_name_is_another_cell(tmp_path: Path) -> None:
    path, over = tmp_path / "b.zarr", {"algorithm.loss": ["mine", "squared"]}
    tl.extend.register_loss("mine")(lambda y, f: y - f)
    first = swept("squared", over, store=path)
    assert np.array_equal(tl.sweeps.load_sweep(path).M, first.M)
    assert list(tl.sweeps.load_sweep(path)["algorithm.loss"].values) == [
        "mine",
        "squared",
    ]
    tl.extend.register_loss("mine")(lambda y, f: 0.0 * (y - f))
    second = swept("squared", over, store=path)
    assert float(second.M[0].squeeze()) == 0.5 and np.array_equal(
        second.M[1], first.M[1]
    )
    assert np.array_equal(
        second.cell_seed, first.cell_seed
    )  # another function, the same random numbers
    both = tl.sweeps.load_sweep(path)
    assert both.runs.values.tolist() == [1, 1, 1]
    assert (
        sum(
            str(name).startswith('["mine", "') for name in both["algorithm.loss"].values
        )
        == 2
    )


def test_fingerprints_see_constants() -> None:
    def made(level: float) -> Callable[[Any, Any], Any]:
        return lambda y, f: jnp.clip(y - f, -level, level)

    assert fingerprint(made(1.0)) != fingerprint(made(2.0))
    assert fingerprint(made(1.0)) == fingerprint(made(1.0))
