"""Losses: how far a sample pushes the student, e = −∂ℓ/∂f.

squared      ℓ = ½(y − f)²     e = y − f
correlation  ℓ = 1 − y f       e = y

Where e or its slope jumps, averages are split if the loss says so: at values of y − f, or of the margin y·f.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twolayer.numerics.errors import choice, finite_number, reject

__all__ = ["Loss", "register_loss"]


@dataclass(frozen=True)
class Loss:
    """A loss by its residual e(y, f).

    Parameters
    ----------
    name : str
    residual : callable
        e = −∂ℓ/∂f, elementwise in JAX.
    student : float, optional
        s when e = y − s·f exactly; None for a residual that is not linear. Linear residuals have exact averages.
    kinks : tuple of float
        Where e or its slope jumps: values of y − f, or of y·f.
    margin : bool
        Whether the kinks are values of the margin y·f.

    Losses are equal if their residuals are the same function: what was compiled for one belongs to that one alone.
    """

    name: str
    residual: Callable[[Any, Any], Any] = field(repr=False)
    student: float | None = None
    kinks: tuple[float, ...] = ()
    margin: bool = False

    def levels(self, y: Any, f: Any) -> list[Any]:
        """Functions of label and output that vanish at the kinks.

        Examples
        --------
        >>> Loss("hinge", lambda y, f: y * (y * f < 1), kinks=(1.0,), margin=True).levels(-1.0, 0.5)
        [-1.5]
        """
        return [(y * f if self.margin else y - f) - kink for kink in self.kinks]

    def labels(self, f: Any) -> list[Any]:
        """The labels y at which the output f is at a kink; far away where there is none."""
        if not self.margin:
            return [f + kink for kink in self.kinks]
        away = (f < 1e-12) & (f > -1e-12)
        safe = f + away  # 1 instead of a vanishing output
        return [kink / safe + 1e9 * away for kink in self.kinks]

    @classmethod
    def of(cls, loss: str | Loss) -> Loss:
        """Look a loss up by name.

        Examples
        --------
        >>> Loss.of("squared").student
        1.0
        """
        if not isinstance(loss, Loss):
            return _LOSSES[choice("loss", loss, _LOSSES)]
        if BUILT_IN.get(loss.name, loss) != loss:
            reject("loss", loss.name, "of another name where its residual is not that of the package's own loss")
        return loss

    @property
    def registered(self) -> bool:
        """Whether the name stands for a function of the user's, which may be another one tomorrow."""
        return BUILT_IN.get(self.name) != self


BUILT_IN = {
    "squared": Loss("squared", lambda y, f: y - f, 1.0),
    "correlation": Loss("correlation", lambda y, f: y + 0.0 * f, 0.0),
}
_LOSSES: dict[str, Loss] = dict(BUILT_IN)


def register_loss(
    name: str, kinks: Sequence[float] = (), margin: bool = False
) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Decorator: add a loss by its residual e(y, f) = −∂ℓ/∂f, or replace one that was added under the same name.

    Parameters
    ----------
    name : str
    kinks : sequence of float
        Where e or its slope jumps: values of y − f, or with ``margin`` of y·f. Averages are split there.
    margin : bool

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> @register_loss("huber", kinks=(-1, 1))
    ... def huber(y, f):
    ...     return jnp.clip(y - f, -1.0, 1.0)
    >>> Loss.of("huber").student is None
    True
    """
    if not name.isidentifier():
        reject("name", name, "an identifier")
    if name in BUILT_IN:
        reject("name", name, "another name: this one is a loss of the package, whose closed forms would be used for it")
    places = tuple(finite_number("kinks", kink, accepted="finite numbers") for kink in kinks)

    def decorate(residual: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        _LOSSES[name] = Loss(name, residual, None, places, margin)
        return residual

    return decorate
