"""The arithmetic of a written-out step in JAX: one array over seeds for every single
number, or for every column.

Seeds are the last axis, so all of a step is elementwise in them. With neurons as the
first axis the code of a step is shorter by a factor p, and the sums over neurons are
the only other operation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from twolayer.compiled.shape import Quantity
from twolayer.functions.syntax import FUNCTIONS

__all__ = ["Arrays", "Columns"]


class Arrays:
    """Arithmetic on arrays (seeds,)."""

    def constant(self, number: float) -> float:
        """The same number for all seeds."""
        return float(number)

    def fma(self, x: Quantity, y: Quantity, z: Quantity) -> Quantity:
        """x·y + z."""
        return x * y + z

    def sqrt(self, x: Quantity) -> Quantity:
        """√x."""
        return jnp.sqrt(x)

    def abs(self, x: Quantity) -> Quantity:
        """|x|."""
        return jnp.abs(x)

    def where(self, mask: Quantity, yes: Quantity, no: Quantity) -> Quantity:
        """The first where the mask holds, else the second."""
        return jnp.where(mask, yes, no)

    def function(self, name: str, x: Quantity) -> tuple[Quantity, Quantity]:
        """A function of the formula language, and its slope."""
        value, slope = jax.jvp(FUNCTIONS[name].array, (x,), (jnp.ones_like(x),))
        return value, slope

    def total(self, x: Quantity) -> Quantity:
        """x: every neuron has arrays of its own."""
        return x

    def every(self, mask: Quantity) -> Quantity:
        """The mask: every neuron has arrays of its own."""
        return mask

    def of(self, j: int, x: Quantity) -> Quantity:
        """x: every neuron has arrays of its own."""
        return x


class Columns(Arrays):
    """Arithmetic on arrays (p, seeds), and (1, seeds) for what all neurons share."""

    def __init__(self, p: int) -> None:
        self.number = jax.lax.broadcasted_iota(jnp.int32, (p, 1), 0)

    def total(self, x: Quantity) -> Quantity:
        """Sum over neurons."""
        return jnp.sum(x, axis=0, keepdims=True)

    def every(self, mask: Quantity) -> Quantity:
        """Whether the mask holds for all neurons."""
        return jnp.min(jnp.where(mask, 1.0, 0.0), axis=0, keepdims=True) > 0.0

    def of(self, j: int, x: Quantity) -> Quantity:
        """The entry of neuron j."""
        return self.total(jnp.where(self.number == j, x, 0.0))

    def put(self, j: int, value: Quantity, x: Quantity) -> Quantity:
        """x with another entry of neuron j."""
        return jnp.where(self.number == j, value, x)
