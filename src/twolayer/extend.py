"""What own activations, losses, targets, scaling laws and methods are made of.

`twolayer.register_activation`, `twolayer.register_loss` and `twolayer.register_method` make them known by name.
"""

from __future__ import annotations

from twolayer.functions.activation import Activation
from twolayer.functions.target import Target
from twolayer.task.losses import Loss
from twolayer.task.method import Evolution, Method, Outcome, Snapshot, Task
from twolayer.task.scaling import Scaling

__all__ = ["Activation", "Evolution", "Loss", "Method", "Outcome", "Scaling", "Snapshot", "Target", "Task"]
