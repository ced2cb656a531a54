"""Numbers that JAX traces: what compiled code, `grad` and `vmap` put in place of a
value that is not known yet.

Descriptions accept them wherever a number is data (a coefficient of a law, a noise
level, overlaps, a second layer); what can be checked of them, shapes, is checked, and
values are taken on trust. JAX is not imported for it: where it has not been imported,
nothing is traced.
"""

from __future__ import annotations

import sys

__all__ = ["traced"]


def traced(*values: object) -> bool:
    """Whether any of the values is a tracer of JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and any(
        isinstance(value, jax.core.Tracer) for value in values
    )
