"""How the package says no: one sentence with the argument, its value and what is
accepted.
"""

from __future__ import annotations

import difflib
import math
import operator
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from twolayer.numerics.tracing import traced

__all__ = [
    "InputError",
    "Interrupted",
    "NotWritten",
    "Refused",
    "RunFailed",
    "closest",
    "expect",
    "outside",
    "reject",
    "require",
    "short",
]


T = TypeVar("T")
LONGEST_NAME = 255  # of a file or a folder, in bytes
LETTERS = ("SGD", "SDE")  # read letter by letter, the first of them as a vowel


class InputError(ValueError):
    """An argument is not acceptable; raised before any work is done.

    Attributes
    ----------
    position : int or None
        Of a formula that cannot be read, the character where it goes wrong.

    Examples
    --------
    >>> import twolayer as tl
    >>> try:
    ...     tl.Problem("z1 +", "relu")
    ... except tl.InputError as error:
    ...     print(error.position)
    4
    """

    position: int | None = None


class Refused(InputError):
    """A method cannot treat this problem and algorithm, for the mathematical reason
    given.

    Attributes
    ----------
    method : str
        Name of the method that refuses.
    reason : str
        Why, in one sentence.
    alternatives : tuple of str
        Methods that can, by name.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("z1", "linear"),
    ...     tl.SGD(lr=0.1, batch="d", dataset="3*d"),
    ... )
    >>> try:
    ...     tl.solve(
    ...         problem, algorithm, tl.ODE(), tl.Overlaps([[1.0]], [[0.1]]), steps=1
    ...     )
    ... except tl.errors.Refused as refused:
    ...     print(refused.method, refused.alternatives)
    ODE ('DMFT', 'Vectors')
    """

    def __init__(
        self, method: str, reason: str, alternatives: Iterable[str] = ()
    ) -> None:
        self.method, self.reason, self.alternatives = (
            method,
            reason,
            tuple(alternatives),
        )
        can = (
            f" Methods that can: {', '.join(self.alternatives)}."
            if self.alternatives
            else ""
        )
        super().__init__(f"{method} cannot do this: {reason}.{can}")


class RunFailed(RuntimeError):
    """The numerical method stopped before the end of the run (not the dynamics: that is
    an outcome).

    Examples
    --------
    >>> issubclass(
    ...     RunFailed, RuntimeError
    ... )  # `solve(…, throw=False)` returns what there is instead
    True
    """


class Interrupted(KeyboardInterrupt):
    """The run was interrupted; ``result`` holds everything that had been computed.

    Attributes
    ----------
    result : Dataset or other result
        Everything that had been computed.

    Examples
    --------
    >>> try:
    ...     raise Interrupted("what there was")  # as `solve` does after Ctrl-C
    ... except Interrupted as stopped:
    ...     print(stopped.result)
    what there was
    """

    def __init__(self, result: Any) -> None:
        super().__init__("interrupted; the finished part of the run is in `.result`")
        self.result = result


class NotWritten(OSError):
    """A file could not be written, such as on a full disk; what its name held before is
    as it was.

    Examples
    --------
    >>> import errno
    >>> print(
    ...     NotWritten(
    ...         errno.ENOSPC, "'run.nc' could not be written (No space left on device)"
    ...     )
    ... )
    'run.nc' could not be written (No space left on device)
    """

    def __str__(self) -> str:
        return str(self.strerror)


InputError.__module__ = "twolayer"  # where users know them from
for _public in (Refused, RunFailed, Interrupted, NotWritten):
    _public.__module__ = "twolayer.errors"


def short(value: object, limit: int = 80) -> str:
    """A value as it is shown in messages: cut where it is long, never more than one
    line.
    """
    try:
        text = repr(value)
    except Exception:  # a stranger's object, which may not even show itself
        text = f"a {type(value).__name__}"
    text = (
        " ".join(text.split()) if "\n" in text else text
    )  # arrays come in several lines
    return cut(text, limit)


def cut(text: str, limit: int = 80) -> str:
    """Text as it is shown in messages, without the end where it is long."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def reject(name: str, value: object, accepted: str) -> NoReturn:
    """Raise the one-sentence error for argument ``name``.

    >>> reject("width", 0, "a positive integer")
    Traceback (most recent call last):
    twolayer.InputError: Argument `width` must be a positive integer, but got 0.
    """
    raise InputError(f"Argument `{name}` must be {accepted}, but got {short(value)}.")


def require(condition: bool, name: str, value: object, accepted: str) -> None:
    """`reject` unless the condition holds."""
    if not condition:
        reject(name, value, accepted)


def expect(kind: type[T], name: str, value: object, hint: str = "") -> T:
    """Return the value if it is of this kind, else reject it; the hint goes on from the
    name of the kind.

    >>> expect(int, "width", "two")
    Traceback (most recent call last):
    twolayer.InputError: Argument `width` must be an int, but got 'two'.
    """
    if isinstance(value, kind):
        return value
    word = kind.__name__
    article = (
        ""
        if word.endswith("s")
        else "an "
        if word[0] in "AEIOUaeiou" or word in LETTERS
        else "a "
    )
    reject(name, value, f"{article}{word}{hint}")


def positive_integer(name: str, value: object, minimum: int = 1) -> int:
    """Return the value as an int, or reject it; booleans and fractions are not
    integers.
    """
    accepted = (
        "a positive integer" if minimum == 1 else f"an integer of at least {minimum}"
    )
    number = integer(name, value, accepted)
    require(number >= minimum, name, value, accepted)
    require(number < 2**63, name, value, "less than 2**63")
    return number


def integer(name: str, value: object, accepted: str) -> int:
    """Return an integer of Python, NumPy or JAX as Python's, or reject it; booleans and
    fractions are none.
    """
    try:
        if not isinstance(value, bool):
            return int(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        pass
    reject(name, value, accepted)


def keep_integers(instance: object, minimum: int = 1, *names: str) -> None:
    """Check fields of a frozen dataclass by `positive_integer`, and keep them as
    integers of Python.
    """
    for name in names:
        object.__setattr__(
            instance, name, positive_integer(name, getattr(instance, name), minimum)
        )


def finite_number(
    name: str, value: object, *, minimum: float = -math.inf, accepted: str
) -> float:
    """Return the value as a float, or reject it when it is not finite or below the
    minimum; what JAX traces passes.
    """
    if traced(value):
        return value  # type: ignore[return-value]
    if isinstance(value, bool | str | bytes):
        reject(name, value, accepted)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ArithmeticError):
        reject(name, value, accepted)
    require(math.isfinite(number) and number >= minimum, name, value, accepted)
    return number


def finite_numbers(
    name: str, values: object, minimum: float = -math.inf
) -> tuple[float, ...]:
    """Return a sequence of finite numbers as floats, or reject it."""
    accepted = "a sequence of finite numbers" + (
        f" ≥ {minimum:g}" if math.isfinite(minimum) else ""
    )
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        reject(name, values, accepted)
    try:
        listed = list(values)
    except TypeError:  # an array without axes
        reject(name, values, accepted)
    return tuple(
        finite_number(name, x, minimum=minimum, accepted=accepted) for x in listed
    )


def identifier(name: str, value: object) -> str:
    """Return a word that can name something, or reject it."""
    if not isinstance(value, str) or not value.isidentifier():
        reject(name, value, "an identifier")
    return str(value)


def flag(name: str, value: object) -> bool:
    """Return True or False, or reject anything else."""
    if not isinstance(value, bool):
        reject(name, value, "True or False")
    return value


def path_of(name: str, value: object) -> Path:
    """Return a path, or reject what cannot name one.

    >>> path_of("store", 3)
    Traceback (most recent call last):
    twolayer.InputError: Argument `store` must be a path, but got 3.
    """
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        reject(name, value, "a path")
    try:
        path = Path(value)
    except TypeError:  # a path of bytes
        reject(name, value, "a path")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
        reject(name, value, f"a path of names of at most {LONGEST_NAME} bytes")
    return path


def failed(argument: str, name: str, accepted: str, error: Exception) -> InputError:
    """The error for a function that does not run in JAX: what is accepted, and why it
    failed or what to use instead.

    >>> print(
    ...     failed(
    ...         "activation",
    ...         "tanh",
    ...         "an elementwise JAX function",
    ...         ZeroDivisionError("of 1"),
    ...     )
    ... )
    Argument `activation` must be an elementwise JAX function, but tanh failed: of 1
    """
    if type(error).__name__ == "TracerArrayConversionError":
        why = (
            f"{name} calls NumPy, which JAX cannot differentiate: use jax.numpy instead"
            " of numpy."
        )
    else:
        why = f"{name} failed: {error}"
    return InputError(f"Argument `{argument}` must be {accepted}, but {why}")


def outside() -> int:
    """The ``stacklevel`` at which a warning names the line of the user who called the
    package, however many of its functions stand in between.
    """
    level = 1
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("twolayer."):
        frame = frame.f_back
        level += 1
    return level


def closest(word: str, known: Iterable[str]) -> str:
    """Suggest the nearest known word, as `` (did you mean 'x'?)``, or nothing.

    >>> closest("activaton", ["activation", "target"])
    " (did you mean 'activation'?)"
    """
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {match[0]!r}?)" if match else ""


def enumerated(words: Iterable[str], room: int = 150) -> str:
    """Words as a sentence lists them, as many as there is room for.

    >>> enumerated(["ode", "chain", "map"], room=12)
    "'ode', 'chain' and 1 more"
    """
    shown: list[str] = []
    every = [repr(word) for word in words]
    for word in every:
        if sum(map(len, shown)) + len(word) > room:
            break
        shown.append(word)
    more = len(every) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def choice(name: str, value: object, known: Iterable[str]) -> str:
    """Return the value if it is one of the known words, else reject it with the closest
    one.
    """
    words = list(known)
    if not isinstance(value, str) or value not in words:
        hint = closest(value, words) if isinstance(value, str) else ""
        raise InputError(
            f"Argument `{name}` must be one of {enumerated(words)}, but got"
            f" {short(value)}{hint}."
        )
    return value
