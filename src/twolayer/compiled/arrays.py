"""The arithmetic of a written-out step in JAX: one array over seeds for every single number.

Seeds are the last and only axis, so all of a step is elementwise, and XLA makes few kernels of it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from twolayer.functions.syntax import FUNCTIONS

__all__ = ["Arrays"]


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
