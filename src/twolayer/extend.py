"""What own activations, losses, targets, rules, laws and methods are made of, and what
makes them known by name.
"""

from __future__ import annotations

from twolayer.functions.activation import Activation, register_activation
from twolayer.functions.target import Target
from twolayer.task.losses import Loss, register_loss
from twolayer.task.method import (
    Evolution,
    Method,
    Outcome,
    Snapshot,
    Task,
    register_method,
)
from twolayer.task.rules import register_rule
from twolayer.task.scaling import Scaling

__all__ = [
    "Activation",
    "Evolution",
    "Loss",
    "Method",
    "Outcome",
    "Scaling",
    "Snapshot",
    "Target",
    "Task",
    "register_activation",
    "register_loss",
    "register_method",
    "register_rule",
]
