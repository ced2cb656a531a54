"""General first-order methods: every iterate is made of all that came before.

    h^s = W^s z                      fields of the iterates s = t, t − 1, …, t − m + 1
    v^t = f(t, h^t, h^{t−1}, …, v^{t−1}, v^{t−2}, …, y)        sample by sample
    Γ^t = (lr/N) mean_ν v^{t,ν} (z^ν)ᵀ
    W^{t+1} = g(t, W^t, W^{t−1}, …, Γ^t, Γ^{t−1}, …)           coordinate by coordinate

f is any function of what a sample has been: fields, its earlier products v (zero at
steps in whose batch it was not) and its label. g is linear, with coefficients that
may change from step to step, or any function of single coordinates. Gradient descent
with momentum, Chebyshev's and Nesterov's steps, anchoring, extragradient and message
passing are of this form. Before the start all iterates are W⁰, gradients and products
zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from twolayer.numerics.arguments import ArrayFunction, Json
from twolayer.numerics.errors import InputError, choice, flag, positive_integer, reject
from twolayer.task.algorithm import SGD
from twolayer.task.losses import Loss
from twolayer.task.schedules import Law

__all__ = ["FirstOrder", "Iterates", "SampleHistory"]

ARGUMENTS = (
    *("f", "g", "memory", "batch", "dataset", "lr", "loss", "sampling", "repeat"),
    "coordinatewise",
)


class SampleHistory(NamedTuple):
    """What f sees of n samples.

    Attributes
    ----------
    step : int
        t.
    fields : array (memory, n, p)
        Fields of the last iterates; ``fields[0]`` are those of W^t.
    products : array (memory, n, p)
        What f returned at the steps before; ``products[0]`` at step t − 1. Zero where
        a sample was not in the batch.
    labels : array (n,)
        y.
    gradient : callable
        Fields (n, p) → what plain gradient descent returns, a_j σ'(λ_j) e.

    Examples
    --------
    >>> one = SampleHistory(
    ...     0, np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), np.ones(2), abs
    ... )
    >>> one.fields[0].shape
    (2, 1)
    """

    step: int
    fields: np.ndarray
    products: np.ndarray
    labels: np.ndarray
    gradient: ArrayFunction


class Iterates(NamedTuple):
    """What g sees of the rows, in any coordinates.

    Attributes
    ----------
    step : int
        t.
    iterates : array (memory, p, n)
        ``iterates[0]`` is W^t. Coordinates are those of √d·W, of order one.
    gradients : array (memory, p, n)
        ``gradients[0]`` is Γ^t, in the same unit.

    Examples
    --------
    >>> one = Iterates(0, np.ones((1, 2, 3)), np.ones((1, 2, 3)))
    >>> (one.iterates[0] + one.gradients[0]).shape
    (2, 3)
    """

    step: int
    iterates: np.ndarray
    gradients: np.ndarray


SamplePart: TypeAlias = "Callable[[SampleHistory], Any]"
RowPart: TypeAlias = "Callable[[Iterates], Any]"


@dataclass(frozen=True, init=False, repr=False)
class FirstOrder(SGD):
    """A general first-order method on batches of order d: f makes pushes of samples,
    g makes iterates of gradients.

    Parameters
    ----------
    f : callable, optional
        `SampleHistory` → what multiplies the inputs, (n, p): any function, row by row,
        written with NumPy. By default ``x.gradient(x.fields[0])``.
    g : callable, optional
        `Iterates` → the next iterate (p, n): linear, the same in every coordinate, with
        coefficients that may depend on ``x.step``. By default
        ``x.iterates[0] + x.gradients[0]``, which is gradient descent.
    memory : int
        How many iterates, gradients and products are remembered.
    batch : Scaling, int or str
        Samples per step, such as ``2 * d``.
    dataset, sampling, repeat
        As in `SGD`: whether and how samples come back.
    lr : Scaling or float
        The rate in Γ; without a schedule, which g can have instead.
    loss : str
        As in `SGD`; what ``x.gradient`` is the gradient of.
    coordinatewise : bool
        Whether g is another function than a linear one, of every coordinate by itself.
        The limit is then that of weights and targets whose coordinates are Gaussian:
        random directions of R^d, as `Vectors` draws them.

    Examples
    --------
    Heavy ball with a momentum that grows from step to step:

    >>> def g(x):
    ...     beta = x.step / (x.step + 3)
    ...     ahead = beta * (x.iterates[0] - x.iterates[1])
    ...     return x.iterates[0] + x.gradients[0] + ahead
    >>> FirstOrder(g=g, memory=2, batch="2*d", dataset="2*d", lr=0.5)
    FirstOrder(g=<function g>, memory=2, lr='0.5', batch='2*d', dataset='2*d')
    """

    f: SamplePart | None
    g: RowPart | None
    memory: int
    coordinatewise: bool

    def __init__(
        self,
        f: SamplePart | None = None,
        g: RowPart | None = None,
        memory: int = 2,
        *,
        batch: Law,
        dataset: Law | None = None,
        lr: Law = 1.0,
        loss: str | Loss = "squared",
        sampling: str = "sequence",
        repeat: int = 1,
        coordinatewise: bool = False,
    ) -> None:
        for name, value in (("f", f), ("g", g)):
            if value is not None and not callable(value):
                reject(name, value, "a function of one argument, or left out")
        # set first: the checks of SGD look at them
        object.__setattr__(self, "f", f)
        object.__setattr__(self, "g", g)
        object.__setattr__(self, "memory", positive_integer("memory", memory))
        object.__setattr__(
            self, "coordinatewise", flag("coordinatewise", coordinatewise)
        )
        super().__init__(
            lr, batch, loss=loss, dataset=dataset, sampling=sampling, repeat=repeat
        )
        if self.scheduled:
            name = "lr" if self.lr.schedule is not None else "batch"
            reject(
                name,
                getattr(self, name),
                "constant for FirstOrder, where g has coefficients that depend on the"
                " step",
            )

    @property
    def first_order(self) -> bool:
        """True: steps are those of f and g."""
        return True

    def check_gradient_steps(self, who: str) -> NoReturn:
        """Refuse, for what ``who`` names knows gradient steps only."""
        raise InputError(
            f"Argument `algorithm` must be an SGD for {who}, which knows gradient steps"
            f" alone, but got {self!r}."
        )

    def replace(self, **changes: object) -> FirstOrder:
        """The same method with some arguments changed, by name (``changes``).

        Examples
        --------
        >>> FirstOrder(batch="2*d").replace(memory=3).memory
        3
        """
        known = {name: getattr(self, name) for name in ARGUMENTS}
        for name in changes:
            choice("changes", name, known)
        return FirstOrder(**{**known, **changes})

    def describe(self) -> Json:
        """The arguments as plain values; functions are named but cannot be read
        back.
        """
        return {
            **super().describe(),
            "f": None if self.f is None else f"<function {_name(self.f)}>",
            "g": None if self.g is None else f"<function {_name(self.g)}>",
        }

    def __repr__(self) -> str:
        known = self.describe()
        usual = {"loss": "squared", "sampling": "sequence", "repeat": 1}
        usual |= {"f": None, "g": None, "dataset": None, "coordinatewise": False}
        order = ("f", "g", "memory", "lr", *ARGUMENTS)
        shown = []
        for name in dict.fromkeys(order):
            if name in usual and known[name] == usual[name]:
                continue
            value = known[name] if name in ("f", "g") else repr(known[name])
            shown.append(f"{name}={value}")
        return f"FirstOrder({', '.join(shown)})"


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
