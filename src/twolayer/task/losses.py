"""Losses: how far a sample pushes the student, e = −∂ℓ/∂f.

squared      ℓ = ½(y − f)²                 e = y − f
correlation  ℓ = 1 − y f                   e = y
logistic     ℓ = log(1 + exp(−y f))        e = y/(1 + exp(y f))
hinge        ℓ = max(0, 1 − y f)           e = y where y f < 1, else 0
exponential  ℓ = exp(−y f)                 e = y exp(−y f)
huber(δ)     ℓ = ½u², or δ|u| − ½δ²        e = u = y − f, but no more than ±δ

Where e or its slope jumps, averages are split if the loss says so: at values of y − f,
or of the margin y·f.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from twolayer.functions.expression import written_number
from twolayer.numerics.errors import (
    choice,
    failed,
    finite_numbers,
    flag,
    identifier,
    reject,
    require,
)
from twolayer.numerics.lazy_modules import Later

if TYPE_CHECKING:
    import jax

    from twolayer.numerics.types import Number, Real
else:
    jax = Later("jax")

__all__ = ["Loss", "register_loss"]

LossFunction: TypeAlias = Callable[[Any, Any], Any]
"""A function of labels y and outputs f, elementwise, of NumPy or JAX."""

OwnLoss = TypeVar("OwnLoss", bound=LossFunction)
"""The residual that a user registers, whose own type the decorator keeps."""


@dataclass(frozen=True)
class Loss:
    """A loss by its residual e(y, f).

    Parameters
    ----------
    name : str
        What is printed and saved; a name of the package's own needs their residual.
    residual : callable
        e = −∂ℓ/∂f, elementwise in JAX.
    student : float, optional
        s when e = y − s·f exactly; None for a residual that is not linear. Linear
        residuals have exact averages.
    kinks : tuple of float
        Where e or its slope jumps: values of y − f, or of y·f.
    margin : bool
        Whether the kinks are values of the margin y·f.
    value : callable, optional
        ℓ(y, f) itself, elementwise in JAX: with it results hold the mean loss.

    Losses are equal if their residuals are the same function: what was compiled for one
    belongs to that one alone.

    Examples
    --------
    >>> clipped = Loss("clipped", lambda y, f: (y - f).clip(-1, 1), kinks=(-1.0, 1.0))
    >>> clipped.bounded, Loss.of("squared").bounded
    (True, False)
    """

    name: str
    residual: LossFunction = field(repr=False)
    student: float | None = None
    kinks: tuple[float, ...] = ()
    margin: bool = False
    value: LossFunction | None = field(default=None, repr=False)

    @cached_property
    def bounded(self) -> bool:
        """Whether e stays bounded however far out labels are, so that noise of any law
        has a mean push.
        """
        y = np.array([[-1e9], [1e9]])
        return bool(
            np.abs(np.asarray(self.residual(y, np.linspace(-3.0, 3.0, 13)))).max() < 1e6
        )

    @cached_property
    def steep(self) -> bool:
        """Whether e grows exponentially with the output."""
        return bool(
            np.abs(
                np.asarray(
                    self.residual(np.array([1.0, -1.0]), np.array([-30.0, 30.0]))
                )
            ).max()
            > 1e9
        )

    def levels(self, y: Number, f: Number) -> list[Number]:
        """Functions of labels ``y`` and outputs ``f`` that vanish at the kinks.

        Examples
        --------
        >>> Loss(
        ...     "hinge", lambda y, f: y * (y * f < 1), kinks=(1.0,), margin=True
        ... ).levels(-1.0, 0.5)
        [-1.5]
        """
        return [(y * f if self.margin else y - f) - kink for kink in self.kinks]

    def labels(self, f: Number) -> list[Number]:
        """The labels y at which outputs ``f`` are at a kink; far away where there is
        none.
        """
        if not self.margin:
            return [f + kink for kink in self.kinks]
        away = (f < 1e-12) & (f > -1e-12)
        safe = f + away  # 1 instead of a vanishing output
        return [kink / safe + 1e9 * away for kink in self.kinks]

    @classmethod
    def of(cls, loss: str | Loss) -> Loss:
        """Look a ``loss`` up by name, such as ``"hinge"`` or ``"huber(0.5)"``, or one
        that was registered.

        Examples
        --------
        >>> Loss.of("squared").student, Loss.of("mse").name, Loss.of("huber(0.5)").kinks
        (1.0, 'squared', (-0.5, 0.5))
        """
        if not isinstance(loss, Loss):
            word = loss.strip() if isinstance(loss, str) else loss
            own = _built_in(word)
            return (
                own
                or _LOSSES[
                    choice(
                        "loss",
                        word,
                        [*BUILT_IN, "huber", "huber(δ)", *ALIASES, *_LOSSES],
                    )
                ]
            )
        if (_built_in(loss.name) or loss) != loss:
            reject(
                "loss",
                loss.name,
                "of another name where its residual is not that of the package's own"
                " loss",
            )
        return loss

    @property
    def registered(self) -> bool:
        """Whether the name stands for a function of the user's, which may be another
        one tomorrow.
        """
        return _built_in(self.name) != self


_PACKAGE = (
    Loss("squared", lambda y, f: y - f, 1.0, value=lambda y, f: (y - f) ** 2 / 2),
    Loss("correlation", lambda y, f: y + 0.0 * f, 0.0, value=lambda y, f: 1 - y * f),
    Loss(
        "logistic",
        lambda y, f: y * jax.nn.sigmoid(-y * f),
        value=lambda y, f: jax.nn.softplus(-y * f),
    ),
    Loss(
        "hinge",
        lambda y, f: y * (y * f < 1),
        None,
        (1.0,),
        True,
        lambda y, f: jax.nn.relu(1 - y * f),
    ),
    Loss(
        "exponential",
        lambda y, f: y * jax.numpy.exp(-y * f),
        value=lambda y, f: jax.numpy.exp(-y * f),
    ),
)
BUILT_IN = {loss.name: loss for loss in _PACKAGE}
ALIASES = {"mse": "squared"}
_LOSSES: dict[str, Loss] = {}


@lru_cache(maxsize=256)
def _huber(delta: float) -> Loss:
    """The loss that is quadratic up to y − f = ±δ and linear beyond."""

    def residual(y: Real, f: Real) -> Real:
        return jax.numpy.clip(y - f, -delta, delta)

    def value(y: Any, f: Any) -> Real:
        size = abs(y - f)
        return jax.numpy.where(size < delta, size**2 / 2, delta * (size - delta / 2))

    return Loss(f"huber({delta:.15g})", residual, kinks=(-delta, delta), value=value)


def _built_in(word: object) -> Loss | None:
    """The package's own loss of that name, or None."""
    if not isinstance(word, str):
        return None
    word = ALIASES.get(word, word)
    if word in BUILT_IN:
        return BUILT_IN[word]
    # no brackets inside: "huber(0.5) with clip(1)" is what a rule makes of it
    match = re.fullmatch(r"huber(?:\(([^()]*)\))?", word)
    if match is None:
        return None
    delta = 1.0 if match[1] is None else written_number(match[1])
    if delta is None or not 0 < delta < math.inf:
        reject("loss", word, "huber(δ) with a number δ > 0")
    return _huber(delta)


def register_loss(
    name: str,
    kinks: Sequence[float] = (),
    margin: bool = False,
    value: LossFunction | None = None,
) -> Callable[[OwnLoss], OwnLoss]:
    """Decorator: add a loss by its residual e(y, f) = −∂ℓ/∂f, or replace one that was
    added under the same name.

    Parameters
    ----------
    name : str
        An identifier, used as ``SGD(loss="name")`` and in files; not one of the
        package's own.
    kinks : sequence of float
        Where e or its slope jumps: values of y − f, or with ``margin`` of y·f. Averages
        are split there.
    margin : bool
        Whether kinks are values of the margin y·f; by default they are values of y − f.
    value : callable, optional
        ℓ(y, f), where results are to hold its mean.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> @register_loss("quantile", kinks=(0,))
    ... def quantile(y, f):
    ...     return jnp.where(y > f, 0.9, -0.1)
    >>> Loss.of("quantile").student is None
    True
    """
    if _built_in(identifier("name", name)) is not None:
        reject(
            "name",
            name,
            "another name: this one is a loss of the package, whose closed forms would"
            " be used for it",
        )
    places, margin = finite_numbers("kinks", kinks), flag("margin", margin)

    def decorate(residual: OwnLoss) -> OwnLoss:
        for function in (residual, value):
            if function is not None:
                _check(name, function)
        _LOSSES[name] = Loss(name, residual, None, places, margin, value)
        return residual

    return decorate


def _check(name: str, function: LossFunction) -> None:
    """Refuse what is no elementwise JAX function of two arrays."""
    try:
        shape = jax.eval_shape(function, *[np.zeros(3, np.float32)] * 2).shape
    except Exception as error:
        raise failed(
            "loss", name, "an elementwise JAX function of y and f", error
        ) from error
    require(shape == (3,), "loss", name, "an elementwise JAX function of y and f")
