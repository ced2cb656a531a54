"""Whether somebody can look at figures: in a notebook, or on a screen through
pyplot.
"""

from __future__ import annotations

import sys
import threading
from functools import lru_cache
from types import ModuleType
from typing import Any

import matplotlib as mpl
from matplotlib.backends.registry import BackendFilter, backend_registry

__all__ = ["inline", "pyplot", "watched"]


@lru_cache(maxsize=1)
def pyplot() -> ModuleType:
    """The part of matplotlib that shows figures, with its backend in place."""
    import matplotlib.pyplot as plt

    load: Any = (
        plt.draw_if_interactive
    )  # needs the backend, which else would come with the first figure
    load()
    return plt


def inline() -> bool:
    """Whether pyplot shows its figures in the output of notebook cells."""
    return "inline" in mpl.get_backend().lower()


def watched() -> bool:
    """Whether figures of pyplot can be seen here: in a notebook, or on a screen by
    somebody who uses pyplot.

    Where it is so, pyplot is imported and has its backend. That changes settings of
    matplotlib for good (in a notebook, that figures are shown at the end of a cell),
    and must not happen inside a block that restores them.

    Examples
    --------
    >>> watched()
    False
    """
    if threading.current_thread() is not threading.main_thread():
        return False  # windows belong to the main thread
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(shell, "kernel") and "matplotlib.pyplot" not in sys.modules:
        return False
    pyplot()
    blind = backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE)  # type: ignore[no-untyped-call]
    return mpl.get_backend().lower() not in blind
