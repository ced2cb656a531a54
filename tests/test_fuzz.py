"""Some of the fuzzers' cases; `python -m tests.fuzz` tries as many as one likes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import xarray as xr
from fuzz import LONGEST, Case, Report, arguments, files, texts, tried
from fuzz.values import Unshown
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import twolayer as tl
from twolayer.cli import Parser
from twolayer.gallery.shared.registry import read_setting
from twolayer.numerics.errors import InputError

SOME = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
MADE = (
    "Activation.of(kinks)",
    "FirstOrder",
    "Inputs",
    "Overlaps",
    "Particles",
    "Problem",
    "SGD",
    "Scaling",
    "Scaling(…)",
    "Stage",
    "Teacher",
    "Until",
    "batch_at",
    "d",
    "load",
    "plan_sweep",
    "rules.formula",
    "schedules.cosine",
    "schedules.table",
)
"""Calls that take no time, which are always tried with everything."""
FEW = settings(SOME, max_examples=20)
RANDOM = st.randoms(use_true_random=False)


def clean(case: Case) -> None:
    report = tried(case)
    assert report.end != "broken", (
        f"{case.text}: {report}"
    )  # the long run looks at the time too


@SOME
@given(RANDOM)
def test_formulas(rnd: Random) -> None:
    clean(texts.expression(rnd))


@pytest.mark.slow
@SOME
@given(RANDOM)
def test_arguments(rnd: Random) -> None:
    clean(arguments.call(rnd))


@pytest.mark.slow
@SOME
@given(RANDOM)
def test_task_files(rnd: Random) -> None:
    clean(texts.task(rnd))


@pytest.mark.slow
@FEW
@given(RANDOM)
def test_result_files(rnd: Random) -> None:
    clean(files.result(rnd))


@pytest.mark.slow
@FEW
@given(RANDOM)
def test_stores(rnd: Random) -> None:
    clean(files.store(rnd))


def test_every_public_function_is_tried() -> None:
    """What is listed and has arguments is in the table, classes that users make too."""
    tried_here = {id(function) for function, _ in arguments.TABLE.values()}
    names = {name.split(".")[-1] for name in arguments.TABLE}
    missing = [
        f"{space}.{name}"
        for space in ("", *tl.NAMESPACES)
        for name in (getattr(tl, space) if space else tl).__all__
        if callable(thing := getattr(getattr(tl, space) if space else tl, name))
        and (not inspect.isclass(thing) or not space)
        and id(thing) not in tried_here
        and name not in names
    ]
    assert missing == [".InputError"]


LONG = "a" * 5000
BAD: dict[str, Any] = {
    "a number": 3,
    "a word": "x",
    "an integer beyond floats": 10**400,
    "a complex number": 1j,
    "not a number": float("nan"),
    "an array without axes": np.array(3),
    "a matrix": np.ones((2, 2)),
    "an object that cannot be shown": Unshown(),
    "a long text": LONG,
    "a table": {"a": [1]},
    "a list of a long text": [LONG],
    "a negative number": -1,
    "a list of nothing": [None],
    "a class": int,
    "a function": lambda z: z,
}


def refuse_in_a_sentence(name: str, words: list[str]) -> None:
    """Every argument of a public function, with bad values: no other exception comes
    out, and no value is repeated at length.
    """
    for key in arguments.TABLE[name][1]():
        for word in words:
            report = tried(arguments.one_bad(name, key, BAD[word]))
            told = f"{name}({key}={word}): {report}"
            assert report.end != "broken", told
            assert len(report.detail) <= LONGEST and "a" * 100 not in report.detail, (
                told
            )


@functools.cache
def swept() -> xr.Dataset:
    return tl.sweep(**{**arguments._swept(), "progress": False})


def plan(over: dict[Any, Any]) -> object:
    return tl.sweeps.plan_sweep(**{**arguments._swept(), "over": over})


def compared(**more: Any) -> object:
    known = arguments._run()
    return tl.compare(methods=[known.pop("method")], **{**known, **more})


@pytest.mark.parametrize(
    "call",
    [
        lambda: tl.plot.heatmap(swept(), of=np.ones(3)),
        lambda: tl.plot.heatmap(swept(), x=np.ones(3)),
        lambda: tl.plot.swept(swept(), of=np.ones(3)),
        lambda: arguments.algorithm().batch_at("x"),
        lambda: plan({("a",) * 500: [1]}),
        lambda: plan({"method.dim": np.array(3)}),
        lambda: plan({"algorithm.lr": [{"a": {1}}]}),
        lambda: tl.rerun(arguments.result().isel(time=0)),
        lambda: compared(save=[1j]),
        lambda: tl.best_possible("z1", 10**400),
        lambda: tl.best_possible("z1", [0.5, 10**400]),
        lambda: read_setting("seeds=1e999", {"seeds": 3}),
        lambda: read_setting("seeds=-1e999", {"seeds": 3.0}),
        lambda: read_setting("a" * 5000 + "=1", {"seeds": 3}),
        lambda: Parser("solve").error("invalid int value: " + "q" * 4000),
    ],
)
def test_what_was_a_bare_exception(call: Callable[[], object]) -> None:
    with pytest.raises(InputError) as no:
        call()
    assert len(str(no.value)) <= 300


@pytest.mark.parametrize("name", sorted(MADE))
def test_what_is_made_refuses_in_a_sentence(name: str) -> None:
    refuse_in_a_sentence(name, list(BAD))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(arguments.TABLE) - set(MADE)))
def test_every_argument_is_refused_in_a_sentence(name: str) -> None:
    refuse_in_a_sentence(name, list(BAD))


@pytest.mark.parametrize(
    ("case", "end"),
    [
        (Case("bare", lambda: None.x), "broken"),  # type: ignore[attr-defined]
        (Case("ours", lambda: tl.Problem("z1", "nothing")), "refused"),
        (Case("work", lambda: tl.solve(**arguments._run())), "begun"),
        (Case("fine", lambda: tl.Problem("z1", "relu")), "done"),
    ],
)
def test_the_judge_can_tell(case: Case, end: str) -> None:
    assert tried(case).end == end
    assert not Report("refused", 3.0).clean  # slow
