"""Which function a name stood for: eight digits that change with its text and with the
constants it refers to.

A description names registered activations and losses, and a store outlives the process
that registered them: under the same name tomorrow's function may be another one, and
its runs must not be taken for those of today's.
"""

from __future__ import annotations

import contextlib
import inspect
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from twolayer.functions.activation import Activation
from twolayer.functions.target import Target
from twolayer.task.losses import Loss
from twolayer.task.rules import Rule

__all__ = ["fingerprint", "fingerprint_of"]


@lru_cache(maxsize=256)
def fingerprint(function: Callable[..., object]) -> str:
    """Eight digits that tell functions apart by their source text, or their code where
    there is none.

    Examples
    --------
    >>> def doubled(x):
    ...     return 2 * x
    >>> def tripled(x):
    ...     return 3 * x
    >>> fingerprint(doubled) == fingerprint(tripled)
    False
    """
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None)
    try:
        text = inspect.getsource(plain)
    except (OSError, TypeError):
        text = (
            repr((code.co_code, code.co_consts, code.co_names)) if code else repr(plain)
        )
    with contextlib.suppress(
        TypeError, ValueError
    ):  # no Python function, or one still being defined
        outer = inspect.getclosurevars(plain)
        values = {**outer.globals, **outer.nonlocals}
        text += repr(
            sorted(
                (k, v) for k, v in values.items() if isinstance(v, int | float | str)
            )
        )
    return f"{zlib.crc32(text.encode()):08x}"


def fingerprint_of(key: str, value: Any) -> str | None:
    """The fingerprint of the registered function behind a value of a description, or
    None where there is none.

    Examples
    --------
    >>> fingerprint_of("algorithm.loss", "squared"), fingerprint_of("run.dim", 100)
    (None, None)
    """
    if key == "algorithm.loss":
        loss = Loss.of(value)
        return fingerprint(loss.residual) if loss.registered else None
    if key == "algorithm.rule":
        rule = Rule.of(value)
        return (
            fingerprint(rule.push)
            if rule is not None and rule.registered and rule.push is not None
            else None
        )
    sigma = None
    if key == "problem.activation":
        sigma = Activation.of(value)
    elif key == "problem.target" and isinstance(value, Target | dict):
        ridge = Target.of(value).ridge
        sigma = None if ridge is None else ridge.activation
    return (
        fingerprint(sigma.function) if sigma is not None and sigma.registered else None
    )
