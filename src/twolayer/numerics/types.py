"""Shapes of what crosses the borders of rooms; the tests check them at run time.

    Q (p, p), M (p, k), a (p,) of a network,
        with any number of leading axes that they share

Arrays are those of JAX inside compiled code and those of NumPy on the host. What a loop
carries is a tree of them.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import numpy as np
from jaxtyping import Float, PyTree

__all__ = ["Cross", "Gram", "Layer", "Number", "Numbers", "Real", "Scalar", "Tree"]

Real: TypeAlias = jax.Array | np.ndarray
Numbers: TypeAlias = Float[Real, "..."]
Scalar: TypeAlias = float | Float[Real, ""]
Number: TypeAlias = float | int | Real
"""A number, or one for every lane."""
Tree: TypeAlias = PyTree
"""Arrays in tuples, dictionaries and modules, as JAX maps over them."""

Gram: TypeAlias = Float[Real, "*n p p"]
Cross: TypeAlias = Float[Real, "*n p k"]
Layer: TypeAlias = Float[Real, "*n p"]
