"""A call that does not fit is refused in one sentence, the same for everything public."""

from __future__ import annotations

import inspect
import pickle
import types
from typing import Any
from unittest.mock import patch

import pytest

import twolayer as tl
from twolayer.numerics.keywords import explained
from twolayer.task.method import METHODS


def public_callables() -> list[Any]:
    spaces = [vars(tl) | {name: getattr(tl, name) for name in tl.__all__}]
    spaces += [vars(getattr(tl, name)) for name in tl.NAMESPACES]
    found = {}
    for space in spaces:
        for name in space["__all__"]:
            thing = space.get(name)
            own = getattr(thing, "__module__", "").startswith("twolayer")
            if own and isinstance(thing, type | types.FunctionType):
                found[f"{thing.__module__}.{thing.__qualname__}"] = thing
    return [found[name] for name in sorted(found)]


def refuses(thing: Any) -> bool:
    """Whether a word can be wrong: not for exceptions, what cannot be made, and functions that take any word.

    Modules of equinox, which `tl.pure` returns, are made by the package and not by users.
    """
    if isinstance(thing, type):
        own = (
            isinstance(vars(thing).get("__init__"), types.FunctionType)
            and type(thing).__call__ is type.__call__
        )
        return (
            own
            and not inspect.isabstract(thing)
            and not getattr(thing, "_is_protocol", False)
            and not issubclass(thing, BaseException)
        )
    return all(
        p.kind is not p.VAR_KEYWORD
        for p in inspect.signature(thing).parameters.values()
    )


def test_every_public_name_refuses_a_word_that_it_does_not_know() -> None:
    checked = [thing for thing in public_callables() if refuses(thing)]
    silent = []
    for thing in checked:
        try:
            thing(no_such_word=1)
        except tl.InputError as error:
            assert "`no_such_word`" in str(error), thing
        except TypeError as error:
            silent.append(f"{thing.__module__}.{thing.__qualname__}: {error}")
    assert silent == []
    assert {"Problem", "solve", "clip", "trajectory", "integrate"} <= {
        thing.__name__ for thing in checked
    }


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: tl.Problem("z1", "linear", widht=3), "Problem has no argument `widht` (did you mean 'width'?); it takes 'target', "),
        (lambda: tl.Chain(dims=3), "Chain has no argument `dims` (did you mean 'dim'?); it takes 'dim', 'batch_sums', 'engine'."),
        (lambda: tl.Chain(), "Chain needs the argument 'dim'; it takes 'dim', 'batch_sums', 'engine'."),
        (lambda: tl.Chain(1, "auto", "auto", 4), "Chain takes at most 3 arguments by position, but got 4; "),
        (lambda: tl.Chain(1, dim=2), "Chain got the argument `dim` twice."),
        (lambda: tl.Overlaps.random(widht=3), "Overlaps.random has no argument `widht`; it takes 'problem', "),
        (lambda: tl.solve(1, 2, 3), "solve needs the argument 'start'; it takes "),
        (lambda: tl.rules.clip(treshold=3), "clip has no argument `treshold` (did you mean 'threshold'?); it takes 'threshold'."),
        (lambda: tl.solve(**{"x" * 5000: 1}), "solve has no argument `xxx"),
    ],
)  # fmt: skip
def test_sentences(call: Any, sentence: str) -> None:
    with pytest.raises(tl.InputError) as caught:
        call()
    assert str(caught.value).startswith(sentence)
    assert len(str(caught.value)) < 400


def test_errors_inside_stay_what_they_are() -> None:
    def half(number: float) -> float:
        return number / 2

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        explained(half)("three")
    assert not isinstance(caught.value, tl.InputError)


def test_functions_are_still_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(tl.solve)) is tl.solve
    assert inspect.signature(tl.Chain).parameters.keys() == {
        "dim",
        "batch_sums",
        "engine",
    }


def test_own_methods_are_explained_too() -> None:
    class Mine(tl.ODE):
        def __init__(self, pace: float) -> None: ...

    with (
        patch.dict(METHODS.own),
        pytest.raises(tl.InputError, match="Mine has no argument `peace`"),
    ):
        tl.register_method(Mine)(peace=1.0)  # type: ignore[call-arg]


def test_warnings_name_the_line_of_the_caller() -> None:
    problem = tl.Problem("He2(z1)", "He2")
    start = tl.Overlaps([[1.0]], [[0.5]])
    with pytest.warns(tl.errors.DivergenceWarning) as found:
        tl.solve(
            problem, tl.SGD(lr=3.0 / tl.d), tl.Chain(100), start, steps=2000, save=4
        )
    assert [one.filename for one in found] == [__file__]
