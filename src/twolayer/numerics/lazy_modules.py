"""Modules that are imported when they are first used: descriptions load without JAX,
which takes a second or two.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Later"]


class Later:
    """Stands for a module until one of its names is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value
