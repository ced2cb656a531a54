"""Losses: how far a sample pushes the student, e = −∂ℓ/∂f.

squared      ℓ = ½(y − f)²     e = y − f
correlation  ℓ = 1 − y f       e = y
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twolayer.numerics.errors import choice, reject

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

    Losses are equal if their residuals are the same function: what was compiled for one belongs to that one alone.
    """

    name: str
    residual: Callable[[Any, Any], Any] = field(repr=False)
    student: float | None = None

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


def register_loss(name: str) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Decorator: add a loss by its residual e(y, f) = −∂ℓ/∂f, or replace one that was added under the same name.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> @register_loss("huber")
    ... def huber(y, f):
    ...     return jnp.clip(y - f, -1.0, 1.0)
    >>> Loss.of("huber").student is None
    True
    """
    if not name.isidentifier():
        reject("name", name, "an identifier")
    if name in BUILT_IN:
        reject("name", name, "another name: this one is a loss of the package, whose closed forms would be used for it")

    def decorate(residual: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        _LOSSES[name] = Loss(name, residual)
        return residual

    return decorate
