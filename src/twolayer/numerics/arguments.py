"""What a user may write for an argument that many functions take, and tables that are
handed on, as types.

time=2.5, steps=[10, 100]     End
save=200, "log", [0, 1, 10]   Save
progress=True, a monitor      Progress
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from twolayer.numerics.errors import InputError, short
from twolayer.numerics.tracing import traced

__all__ = [
    "ENDS",
    "Array",
    "ArrayFunction",
    "End",
    "Json",
    "Listener",
    "Notes",
    "Options",
    "Progress",
    "Save",
    "Variables",
    "finite_array",
    "named_ends",
]


class Listener(Protocol):
    """Listens to a run, a search or a sweep: any object with these four methods.

    Examples
    --------
    >>> class Percent:
    ...     def begin(self, label: str, end: float) -> None:
    ...         self.end = end
    ...
    ...     def update(self, position: float) -> None:
    ...         self.share = round(100 * position / self.end)
    ...
    ...     def note(self, text: str, **about: object) -> None: ...
    ...
    ...     def finish(self) -> None:
    ...         self.share = 100
    >>> listener: Listener = Percent()
    >>> listener.begin("chain", 50.0)
    >>> listener.update(10.0)
    >>> listener.share
    20
    """

    def begin(self, label: str, end: float) -> None:
        """Something named ``label`` starts; its clock goes to ``end``. A listener may
        hear of several, one after the other.
        """

    def update(self, position: float) -> None:
        """It is at this ``position`` of its clock."""

    def note(self, text: str, **about: object) -> None:
        """Something happened that is worth a line, such as a cell of a sweep that
        failed: the line ``text``, which may be empty, and what it is ``about``, as
        values.
        """

    def finish(self) -> None:
        """It is over."""


Array: TypeAlias = "np.typing.ArrayLike"
"""Numbers in any form that NumPy reads."""

ArrayFunction: TypeAlias = Callable[[Any], Any]
"""A function of an array, of NumPy or of JAX, made of operations that they share."""

End: TypeAlias = float | Sequence[float] | np.ndarray | None
"""The end of a run on one of its clocks, or the save points themselves."""

ENDS = ("time", "steps", "alpha", "passes")
"""The clocks on which the end of a run can be given."""

Save: TypeAlias = int | str | Sequence[float] | np.ndarray
"""How many save points, "log", or the points."""

Progress: TypeAlias = bool | Listener | None
"""Whether to show how far a run is, or who listens; None where somebody waits."""

Json: TypeAlias = dict[str, Any]
"""An object of JSON: a description, a task, or an answer."""

Notes: TypeAlias = dict[str, Any]
"""What a result records about the numerics, by name."""

Options: TypeAlias = dict[str, Any]
"""Arguments that are handed on to a function, by name."""

Variables: TypeAlias = dict[str, Any]
"""Variables of a dataset by name, in any form that xarray reads."""


def named_ends() -> str:
    """The clocks of an end in words, for messages.

    >>> named_ends()
    '`time`, `steps`, `alpha` and `passes`'
    """
    quoted = [f"`{name}`" for name in ENDS]
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def finite_array(name: str, value: Any) -> np.ndarray:
    """A new array of the given numbers, or the error that says why it is none; what JAX
    traces passes.

    >>> finite_array("M", [[1, 2], [3]])
    Traceback (most recent call last):
    twolayer.InputError: Argument `M` must be an array of numbers, but got [[1, 2],
    [3]].
    """
    if traced(value):
        return value
    try:
        given = np.asarray(value)
        array = np.array(given, dtype=complex if given.dtype.kind == "c" else float)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"Argument `{name}` must be an array of numbers, but got {short(value)}."
        ) from error
    if array.dtype.kind == "c":
        raise InputError(
            f"Argument `{name}` must be an array of real numbers, but got"
            f" {short(value)}."
        )
    if not np.isfinite(array).all():
        raise InputError(
            f"Argument `{name}` must be finite, but holds"
            f" {array[~np.isfinite(array)][0]}."
        )
    return array
