"""Update rules for ``SGD(rule=…)``: what is made of the gradients of samples, or of
their mean.
"""

from __future__ import annotations

from twolayer.task.rules import (
    Rule,
    Sight,
    adagrad_norm,
    adam,
    clip,
    formula,
    label_noise,
    lookahead,
    normalised,
    polyak,
    private,
    sign,
    two_step,
)

__all__ = [
    "Rule",
    "Sight",
    "adagrad_norm",
    "adam",
    "clip",
    "formula",
    "label_noise",
    "lookahead",
    "normalised",
    "polyak",
    "private",
    "sign",
    "two_step",
]
