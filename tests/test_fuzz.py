"""Some of the fuzzers' cases; `python -m tests.fuzz` tries as many as one likes."""

from __future__ import annotations

from random import Random

import pytest
from fuzz import Case, Report, arguments, files, texts, tried
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import twolayer as tl

SOME = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
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


@SOME
@given(RANDOM)
def test_arguments(rnd: Random) -> None:
    clean(arguments.call(rnd))


@SOME
@given(RANDOM)
def test_task_files(rnd: Random) -> None:
    clean(texts.task(rnd))


@FEW
@given(RANDOM)
def test_result_files(rnd: Random) -> None:
    clean(files.result(rnd))


@FEW
@given(RANDOM)
def test_stores(rnd: Random) -> None:
    clean(files.store(rnd))


def test_every_public_function_is_tried() -> None:
    """What has arguments and is listed is in the table."""
    known = {name.split(".")[-1] for name in arguments.TABLE}
    listed = {name for name in tl.__all__ if callable(getattr(tl, name))}
    assert (
        listed - known - {"InputError", "about", "d", "best_possible", "explore"}
        == set()
    )


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
