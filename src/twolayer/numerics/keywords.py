"""What a call says that does not fit the signature of what it calls.

    tl.Problem("z1", "relu", widht=3)

Python's TypeError for this does not know which name was meant. Public functions,
classes and constructors are wrapped once, where a user first reaches them; the wrapper
costs nothing until a call fails.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from twolayer.numerics.errors import InputError, closest, cut, enumerated

__all__ = ["explained", "explained_names"]

Public = TypeVar("Public")
Named = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)
MARK = "_explains_its_arguments"


def explained(thing: Public) -> Public:
    """A public function or class whose calls are refused in one sentence where they do
    not fit its signature; anything else as it is.

    A class stays the class that it is: its constructor and its class methods are
    wrapped. A function is replaced in its own module too, so that it is pickled by name
    as before.

    >>> def travel(distance, speed=1.0):
    ...     return distance / speed
    >>> explained(travel)(3.0, sped=2.0)
    Traceback (most recent call last):
    twolayer.InputError: travel has no argument `sped` (did you mean 'speed'?); it takes
    'distance', 'speed'.
    """
    if isinstance(thing, type):
        _explain_class(thing)
        return thing
    if not isinstance(thing, types.FunctionType) or hasattr(thing, MARK):
        return thing
    function: Any = thing
    name = function.__name__
    home = sys.modules.get(function.__module__)
    wrapper: Any = _wrapped(function, name)
    if getattr(home, name, None) is thing:
        setattr(home, name, wrapper)
    return wrapper


def explained_names(module: str) -> None:
    """Do the same to every public name of a ``module``."""
    namespace = vars(sys.modules[module])
    for name in namespace["__all__"]:
        if name in namespace:
            namespace[name] = explained(namespace[name])


def _explain_class(cls: type) -> None:
    # a class of somebody else's metaclass builds its objects in a way of its own
    if type(cls).__call__ is not type.__call__:
        return
    for name, value in list(vars(cls).items()):
        if name == "__init__" and isinstance(value, types.FunctionType):
            if not hasattr(value, MARK):
                setattr(cls, name, _wrapped(value, cls.__name__, bound=True))
        elif isinstance(value, classmethod) and not name.startswith("_"):
            function = value.__func__
            if not hasattr(function, MARK):
                shown = f"{cls.__name__}.{name}"
                setattr(cls, name, classmethod(_wrapped(function, shown, bound=True)))


def _wrapped(
    function: Callable[..., Any], name: str, bound: bool = False
) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError:
            signature = inspect.signature(function)
            try:
                signature.bind(*args, **options)
            except TypeError as misfit:
                reason = _misfit(signature, name, args, options, bound) or str(misfit)
            else:
                raise  # the call was right, and something inside it went wrong
        raise InputError(reason)

    setattr(call, MARK, True)
    return call


def _misfit(
    signature: inspect.Signature,
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
    bound: bool,
) -> str:
    """Why a call does not fit, in one sentence; the first argument of what is ``bound``
    is the object and not the caller's.
    """
    parameters = list(signature.parameters.values())[bound:]
    known = [p.name for p in parameters if p.kind in Named]
    takes = f"it takes {enumerated(known)}" if known else "it takes no arguments"
    for word in options:
        if word not in known:
            shown = cut(word, 60)
            return f"{name} has no argument `{shown}`{closest(shown, known)}; {takes}."
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    given = len(args) - bound
    if given > len(positional):
        return (
            f"{name} takes at most {len(positional)} arguments by position, but got"
            f" {given}; {takes}."
        )
    twice = [word for word in positional[:given] if word in options]
    if twice:
        return f"{name} got the argument `{twice[0]}` twice."
    needed = [
        p.name
        for p in parameters
        if p.kind in Named and p.default is p.empty and p.name not in options
    ]
    missing = [word for word in needed if word not in positional[:given]]
    if not missing:
        return ""
    words = "argument" if len(missing) == 1 else "arguments"
    return f"{name} needs the {words} {enumerated(missing)}; {takes}."
