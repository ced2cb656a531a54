"""The arithmetic of a written-out step in JAX: one array over seeds for every single number, or for every column.

Seeds are the last axis, so all of a step is elementwise in them. With neurons as the first axis the code of a step
is shorter by a factor p, and the sums over neurons are the only other operation.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from twolayer.functions.syntax import FUNCTIONS

__all__ = ["Arrays", "Columns"]


class Arrays:
    """Arithmetic on arrays (seeds,)."""

    def constant(self, number: float) -> Any:
        """The same number for all seeds."""
        return float(number)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x·y + z."""
        return x * y + z

    def sqrt(self, x: Any) -> Any:
        """√x."""
        return jnp.sqrt(x)

    def abs(self, x: Any) -> Any:
        """|x|."""
        return jnp.abs(x)

    def where(self, mask: Any, yes: Any, no: Any) -> Any:
        """The first where the mask holds, else the second."""
        return jnp.where(mask, yes, no)

    def function(self, name: str, x: Any) -> tuple[Any, Any]:
        """A function of the formula language, and its slope."""
        value, slope = jax.jvp(FUNCTIONS[name].array, (x,), (jnp.ones_like(x),))
        return value, slope

    def total(self, x: Any) -> Any:
        """x: every neuron has arrays of its own."""
        return x

    def every(self, mask: Any) -> Any:
        """The mask: every neuron has arrays of its own."""
        return mask

    def of(self, j: int, x: Any) -> Any:
        """x: every neuron has arrays of its own."""
        return x


class Columns(Arrays):
    """Arithmetic on arrays (p, seeds), and (1, seeds) for what all neurons share."""

    def __init__(self, p: int) -> None:
        self.number = jax.lax.broadcasted_iota(jnp.int32, (p, 1), 0)

    def total(self, x: Any) -> Any:
        """Sum over neurons."""
        return jnp.sum(x, axis=0, keepdims=True)

    def every(self, mask: Any) -> Any:
        """Whether the mask holds for all neurons."""
        return jnp.min(jnp.where(mask, 1.0, 0.0), axis=0, keepdims=True) > 0.0

    def of(self, j: int, x: Any) -> Any:
        """The entry of neuron j."""
        return self.total(jnp.where(self.number == j, x, 0.0))

    def put(self, j: int, value: Any, x: Any) -> Any:
        """x with another entry of neuron j."""
        return jnp.where(self.number == j, value, x)
