"""Scaling laws on the axes of a sweep as numbers: their values at each d, beside the
text that names the cell.

over = {"algorithm.lr": ["0.05/d", "0.1/d"], "run.dim": [100, 200]}   →   lr
(algorithm.lr, run.dim) = c·d^x
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twolayer.numerics.arguments import Variables
from twolayer.numerics.errors import InputError
from twolayer.task.scaling import Scaling

__all__ = ["law_values"]

LAWS = {
    "lr": "learning rate",
    "batch": "samples of a step",
    "dataset": "samples that are reused",
}
DIMENSIONS = ("run.dim", "method.dim")


def law_values(
    labels: Mapping[str, list[Any]], description: Mapping[str, Any]
) -> Variables:
    """Coordinates ``lr``, ``batch`` and ``dataset`` of the swept laws, over their axis
    and that of the dimension.

    A law without a dimension to be evaluated at, on an axis or in the description of
    what is not swept, has none.

    Examples
    --------
    >>> found = law_values(
    ...     {"algorithm.lr": ["0.1/d", "0.2/d"], "run.dim": [100, 200]}, {}
    ... )
    >>> found["lr"][0], found["lr"][1].tolist()
    (('algorithm.lr', 'run.dim'), [[0.001, 0.0005], [0.002, 0.001]])
    """
    axis = next((key for key in DIMENSIONS if key in labels), None)
    fixed = [description.get(part, {}).get("dim") for part in ("run", "method")]
    dims = (
        labels[axis] if axis else [n for n in fixed if isinstance(n, int | float)][:1]
    )
    found: Variables = {}
    for name, meaning in LAWS.items():
        key = f"algorithm.{name}"
        try:
            laws = [Scaling.of(value) for value in labels.get(key, [])]
        except InputError:  # None, where every sample is new
            continue
        if laws and all(law.exponent == 0 for law in laws) and axis is None:
            dims = [1]
        if laws and dims:
            values = np.array([[law(int(n)) for n in dims] for law in laws])
            attributes = {"long_name": meaning, "units": "1"}
            found[name] = (
                ((key, axis), values, attributes)
                if axis
                else ((key,), values[:, 0], attributes)
            )
    return found
