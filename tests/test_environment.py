"""What the numbers depend on: the check of this JAX, double precision inside, progress."""

from __future__ import annotations

import importlib
import io
import json
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twolayer as tl
from twolayer.files import environment
from twolayer.numerics import compilation
from twolayer.numerics.precision import float64
from twolayer.running import progress


def test_fields_are_right_here() -> None:
    assert environment.fields_are_right() is True


def test_the_pattern_that_one_version_got_wrong() -> None:
    """jit(vmap(|W z|²)) with W 3 × 3 and 40 000 samples, in the precision of the caller."""
    rng = np.random.default_rng(1)
    W, z = rng.normal(size=(3, 3)), rng.normal(size=(40_000, 3))
    ours = jax.jit(jax.vmap(lambda x: ((jnp.asarray(W) @ x) ** 2).sum()))(
        jnp.asarray(z)
    )
    np.testing.assert_allclose(ours, ((z @ W.T) ** 2).sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: out.at[7].add(1e-3),  # one sample of 40 000
        lambda out: jnp.roll(out, 1),
        lambda out: out * jnp.nan,
        lambda out: (
            out.astype(jnp.float32) if out.dtype == jnp.float64 else out
        ),  # silently single precision
        lambda out: (
            out if out.dtype == jnp.float64 else out * 1.01
        ),  # wrong in single precision only
    ],
)
def test_the_check_can_fail(
    spoil: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = jax.jit
    monkeypatch.setattr(
        environment.jax, "jit", lambda f: lambda *a: spoil(right(f)(*a))
    )
    assert environment.fields_are_right() is False
    assert environment.about()["fields"] == "WRONG: do not use this version of jax"


def test_about() -> None:
    facts = tl.about()
    assert facts["python"] == platform.python_version()
    for name in (
        "twolayer",
        "jax",
        "jaxlib",
        "diffrax",
        "equinox",
        "numpy",
        "scipy",
        "xarray",
    ):
        assert facts[name] == version(name)
    assert facts["twolayer"] == tl.__version__
    assert facts["device"].startswith(jax.devices()[0].platform)
    assert facts["random"] == "threefry2x32-20/normal-1"
    assert facts["fields"] == "right"
    assert all(isinstance(value, str) for value in facts.values())


def test_the_version_that_miscompiles_is_excluded() -> None:
    from importlib.metadata import requires

    (jax_line,) = [
        line
        for line in requires("twolayer") or []
        if line.startswith("jax") and "jaxtyping" not in line
    ]
    assert "!=0.10.2" in jax_line


def test_the_version_that_miscompiles_computes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have been installed without a resolver, which knows that it is excluded."""
    problem, algorithm = (
        tl.Problem("He2(z1)", "He2"),
        tl.SGD("0.1/d", geometry="projected"),
    )
    start = tl.Overlaps([[1.0]], [[0.5]])
    monkeypatch.setattr(jax, "__version__", "0.10.2")
    monkeypatch.setattr(compilation, "_tested", False)
    for work in (
        lambda: tl.solve(problem, algorithm, tl.ODE(), start, time=0.1),
        lambda: tl.moments(problem, start),
        lambda: importlib.reload(tl.pure),
    ):
        with pytest.raises(
            tl.InputError, match=r"jax 0\.10\.2.*install another version"
        ):
            work()
    assert tl.about()["fields"] == "right", (
        "which tries the code itself, whatever it is called"
    )
    monkeypatch.setattr(jax, "__version__", "0.10.1")
    assert tl.moments(problem, start).risk > 0


# -- double precision -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [False, True])
def test_double_precision_is_a_private_matter(setting: bool) -> None:
    with jax.enable_x64(setting):
        assert float64(lambda: jnp.ones(1).dtype)() == jnp.float64
        assert jax.config.jax_enable_x64 is setting
        problem = tl.Problem("He2(z1)", "He2", noise=0.1)
        start = tl.Overlaps([[1.0]], [[0.5]])
        result = tl.solve(
            problem,
            tl.SGD(lr="0.1/d", geometry="projected"),
            tl.Chain(20),
            start,
            time=0.1,
            save=2,
            seeds=2,
        )
        moments = tl.moments(problem, start)
        assert tl.about()["fields"] == "right"
        assert jax.config.jax_enable_x64 is setting
        assert jnp.ones(1).dtype == (jnp.float64 if setting else jnp.float32)
    assert {str(result[name].dtype) for name in ("M", "Q", "a", "risk")} == {"float64"}
    assert moments.excess_risk == pytest.approx(1.5, abs=1e-14)


def test_double_precision_ends_with_an_error() -> None:
    before = jax.config.jax_enable_x64

    @float64
    def fail() -> None:
        assert jax.config.jax_enable_x64
        raise tl.InputError("no")

    with pytest.raises(tl.InputError):
        fail()
    assert jax.config.jax_enable_x64 is before


def test_decorated_functions_keep_their_names() -> None:
    assert tl.solve.__name__ == "solve"
    assert "Parameters" in (tl.moments.__doc__ or "")


# -- progress ---------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv(progress.SETTING, "off")
    assert isinstance(progress.listener_for(None), progress.Silent)
    monkeypatch.delenv(progress.SETTING)
    patient = progress.listener_for(None)
    assert isinstance(patient, progress.Lines)
    assert patient.patience == progress.SCRIPT_PATIENCE
    assert isinstance(progress.listener_for(False), progress.Silent)
    assert isinstance(progress.listener_for(True), progress.Lines)
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = progress.listener_for(None)
    assert isinstance(bar, progress.Bar)
    assert bar.patience == progress.PATIENCE
    assert isinstance(progress.listener_for(True), progress.Bar)


def test_notes_are_written_at_once_and_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that failed does not wait for the next line, and is not written over."""
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    for listener in (progress.Lines(patience=60.0), progress.Lines(again=True)):
        listener.begin("6 blocks of runs", 6)
        listener.note("")
        listener.note("failed: dim=100: no memory", cell="dim=100")
        listener.finish()
    assert screen.getvalue() == 2 * "failed: dim=100: no memory\n"


def test_events_have_counts_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    clock = iter([0.0, 1.0, 3.0, 3.0])
    monkeypatch.setattr(progress.wall, "monotonic", lambda: next(clock))
    events = progress.Events(stream)
    events.begin("8 blocks of runs, 2 of them finished before", 8)
    events.update(2)
    events.update(5)
    events.note("", event="cell", cell="dim=100", error=None)
    events.finish()
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [one["event"] for one in told] == [
        "begin",
        "progress",
        "progress",
        "cell",
        "end",
    ]
    assert told[2] == {
        "event": "progress",
        "done": 5,
        "total": 8,
        "per_second": 1.0,
        "left_s": 3.0,
    }
    assert told[3] == {"event": "cell", "cell": "dim=100", "error": None}


def test_a_bar_waits_before_it_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    clock = iter([0.0, 0.5, 1.0])
    monkeypatch.setattr(progress.wall, "monotonic", lambda: next(clock))
    bar = progress.Bar()
    bar.begin("chain", 100)
    bar.update(10)
    assert screen.getvalue() == ""
    monkeypatch.setattr(progress.wall, "monotonic", lambda: 1.0)
    bar.update(40)
    bar.finish()
    assert "chain" in screen.getvalue()
    assert "40%" in screen.getvalue()
    bar.finish()  # twice does no harm
    bar.begin("ode", 1)  # and it can be used again
    bar.finish()


def test_any_listener_will_do() -> None:
    heard: list[Any] = []

    class Listener:
        def begin(self, label: str, end: float) -> None:
            heard.append((label, end))

        def update(self, position: float) -> None:
            heard.append(position)

        def note(self, text: str, **about: Any) -> None:
            heard.append(text)

        def finish(self) -> None:
            heard.append("finished")

    problem, start = (
        tl.Problem("He2(z1)", "He2", noise=0.1),
        tl.Overlaps([[1.0]], [[0.5]]),
    )
    algorithm = tl.SGD(lr="0.1/d", geometry="projected")
    tl.solve(
        problem,
        algorithm,
        tl.Chain(20),
        start,
        steps=20,
        save=2,
        seeds=2,
        progress=Listener(),
    )
    assert heard[0] == ("chain", 20)
    assert heard[-2:] == [20, "finished"]
    positions = heard[1:-1]
    assert positions == sorted(positions)
    with pytest.raises(
        tl.InputError,
        match="`progress` must be True, False, None or an object with begin",
    ):
        tl.solve(problem, algorithm, tl.Chain(20), start, steps=20, progress="loud")
