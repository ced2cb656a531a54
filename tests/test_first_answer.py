"""What a fresh process waits for: descriptions and formulas without JAX, and compiled code that is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twolayer.numerics import compilation

DESCRIPTIONS = """
import sys
import twolayer as tl
from twolayer import d
tl.Problem("He2(z1)", "He2", width=4, noise=0.1, second_layer=[1, 2, 3, 4])
tl.Problem("tanh(z1*z2) + relu(z1)", "tanh(z + 0.7)", noise_law="student(5)", flips=0.1)
tl.Problem(tl.Teacher("erf", k=2), "relu", gram=[[1, 0.5], [0.5, 1]])
tl.SGD(lr=0.2 / d * tl.schedules.power(0.5, scale=3), geometry="projected", loss="huber(1)")
tl.Overlaps([[1.0]], [[0.5]]).factors()
tl.analyse("z1 + z1*z2").staircase("erf")
"""
SHOW = "\nprint(','.join(name for name in ('jax', 'pandas', 'xarray', 'matplotlib') if name in sys.modules))"


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_descriptions_and_exponents_load_without_jax() -> None:
    assert run(DESCRIPTIONS + SHOW) == ""


@pytest.mark.slow
def test_a_description_by_a_function_of_jax_loads_it() -> None:
    """The wrong twin: the list above would show it."""
    assert (
        run(
            "import sys, jax.numpy as jnp, twolayer as tl\ntl.Problem(lambda z: z[0], jnp.tanh, directions=1)"
            + SHOW
        )
        == "jax"
    )


def test_the_oldest_entries_go_when_there_are_too_many(tmp_path: Path) -> None:
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    compilation.prune(tmp_path, 400)
    assert len(list(tmp_path.iterdir())) == 4
    compilation.prune(tmp_path, 399)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    compilation.prune(tmp_path / "missing", 0)


def test_the_cache_lies_where_the_user_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(compilation.SETTING, str(tmp_path))
    assert compilation.directory("1").parent == tmp_path
    monkeypatch.delenv(compilation.SETTING)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert compilation.directory("1").parent == tmp_path / "twolayer"


COMPILE = """
import sys
{before}
import twolayer as tl
tl.Problem("He2(z1)", "He2")
from twolayer.numerics.precision import float64
import jax
float64(lambda: jax.jit(lambda x: x + 1)(1.0))()
print(jax.config.jax_compilation_cache_dir or None)
"""


@pytest.mark.parametrize(
    ("before", "ours", "own"),
    [
        ("", "new", ""),
        ("", "/proc/self/none", ""),
        ("", "off", ""),
        ("import jax", "new", ""),
        ("", "new", "own"),
    ],
    ids=["kept", "impossible", "off", "a session of JAX", "another cache"],
)
def test_compiled_code_is_kept_unless_that_is_off_or_impossible(
    before: str, ours: str, own: str, tmp_path: Path
) -> None:
    place, given = (
        str(tmp_path / x) if x in ("new", "own") else x for x in (ours, own)
    )
    told = run(
        COMPILE.format(before=before),
        TWOLAYER_CACHE=place,
        JAX_COMPILATION_CACHE_DIR=given,
    )
    kept = ours == "new" and not before and not own
    assert told.startswith(place) if kept else told == (given or "None")
    assert (tmp_path / "new").exists() == kept
    assert bool(list(tmp_path.glob("new/*/jit_*-cache"))) == kept


@pytest.mark.slow
def test_numbers_are_data_of_compiled_code(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is compiled again for another rate, noise, threshold, start or time; another width is."""
    import jax

    import twolayer as tl

    def compiled(method: Any, width: int = 2, **changes: float) -> int:
        told = {
            "lr": 0.05,
            "noise": 0.1,
            "m": 0.3,
            "time": 0.05,
            "level": 0.5,
        } | changes
        problem = tl.Problem("He2(z1)", "He2", width=width, noise=told["noise"])
        start = tl.Overlaps(np.eye(width), np.full((width, 1), told["m"]), dim=300)
        algorithm = tl.SGD(told["lr"] / tl.d, geometry="projected")
        caplog.clear()
        with jax.log_compiles():
            until = tl.Until("excess_risk", told["level"], relative=True)
            tl.solve(
                problem,
                algorithm,
                method,
                start,
                time=told["time"],
                save=2,
                until=until,
                throw=False,
            )
        return sum("Compiling" in record.getMessage() for record in caplog.records)

    for method in (tl.ODE(), tl.SDE(300)):
        compiled(method)
        for name, value in {
            "lr": 0.07,
            "noise": 0.3,
            "m": 0.25,
            "time": 0.06,
            "level": 0.6,
        }.items():
            assert compiled(method, **{name: value}) == 0, (method, name)
    assert compiled(tl.ODE(), width=3) > 0
