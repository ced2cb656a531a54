"""What methods cannot do where inputs have blocks, as the ends of their refusals.

overlaps in blocks tell the fields, and nothing of lengths and coordinates of inputs
"""

from __future__ import annotations

from twolayer.equations.optimiser_step import form_of
from twolayer.task.algorithm import SGD

__all__ = ["carried_in_blocks", "rules_of_rotations"]


def rules_of_rotations(algorithm: SGD) -> str | None:
    """Why the overlaps in blocks do not tell what a rule does, or None: it may look at
    the fields alone.
    """
    rule = algorithm.rule
    if rule is None or not (rule.sizes or rule.coordinates or rule.adapts is not None):
        return None
    return (
        f"the rule {rule} looks at the length or the coordinates of inputs, whose"
        " variances differ from block to block"
    )


def carried_in_blocks(algorithm: SGD) -> str | None:
    """Why a mean step in blocks cannot be taken, or None."""
    if form_of(algorithm).carries:
        return (
            "with momentum the rows of the step before have overlaps of their own in"
            " every block: use Chain"
        )
    return None
