"""What the page offers to open: classic set-ups of the five sources, figures of the
gallery, published set-ups.

presets.toml            a task for each classic set-up, with the figures that show it
gallery/*.py            names and titles of figures, read and not run
files/published/*.toml  the zoo
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from twolayer.files.catalogue import gallery
from twolayer.numerics.arguments import ENDS, Json
from twolayer.numerics.errors import choice

__all__ = ["catalogue", "classics", "shown_in"]

TABLES = ("problem", "algorithm", "start", "run", "method")
PUBLISHED = Path(__file__).parent.parent / "files" / "published"
ACTIVATIONS = (
    "linear",
    "square",
    "erf",
    "relu",
    "tanh",
    "sigmoid",
    "softplus",
    "gelu",
    "He2",
    "He3",
    "He4",
)
RULES = (
    "clip(0.25)",
    "normalised()",
    "polyak(1)",
    "two_step()",
    "private(0.5)",
    "adagrad_norm(1)",
    "sign()",
    "adam()",
)
LOSSES = ("squared", "correlation", "logistic", "hinge", "exponential", "huber(1)")
SOURCES = {
    "escape": "Escaping mediocrity",
    "mean-field": "Dimensionless ODEs and mean fields",
    "recovery": "Online recovery of single neurons",
    "phase-diagram": "Batch size and learning rate",
    "giant-steps": "Giant steps and reused data",
    "inputs": "Inputs with a spectrum",
}


def _task(entry: Json) -> Json:
    return {name: entry[name] for name in TABLES if name in entry}


@functools.cache
def classics() -> list[Json]:
    """The presets of the sources, with their tasks.

    Examples
    --------
    >>> classics()[0]["name"]
    'phase-retrieval'
    """
    text = (Path(__file__).parent / "presets.toml").read_text("utf-8")
    return [
        {
            **{name: entry[name] for name in ("name", "title", "group", "figures")},
            **({"card": entry["card"]} if "card" in entry else {}),
            "task": _task(entry),
        }
        for entry in tomllib.loads(text)["preset"]
    ]


def _homes() -> dict[str, Json]:
    """The preset of every figure of the gallery."""
    return {figure: preset for preset in classics() for figure in preset["figures"]}


def shown_in(figure: str) -> Json:
    """The task of a figure of the gallery.

    Examples
    --------
    >>> shown_in("escape-dimension")["problem"]["target"]
    'z1**2'
    """
    homes = _homes()
    task: Json = homes[choice("figure", figure, homes)]["task"]
    return task


def _figures() -> list[Json]:
    """Every figure of the gallery with the preset that it opens."""
    homes = _homes()
    return [
        {
            "name": name,
            "title": entry.title,
            "group": entry.group,
            "preset": homes[name]["name"],
        }
        for name, entry in gallery().items()
        if name in homes
    ]


def _published() -> list[Json]:
    """The set-ups of the zoo that can be run, each as a task that JSON can hold."""
    found = []
    for file in sorted(PUBLISHED.glob("*.toml")):
        for entry in tomllib.loads(file.read_text("utf-8"))["setup"]:
            run = entry.get("run", {})
            if any(name in run for name in ENDS) and "inf" not in repr(
                entry.get("method", {})
            ):
                found.append(
                    {
                        "name": entry["name"],
                        "title": entry["title"],
                        "task": _task(entry),
                    }
                )
    return found


@functools.cache
def catalogue() -> Json:
    """Everything that can be chosen from.

    Examples
    --------
    >>> sorted(catalogue())
    ['activations', 'figures', 'losses', 'presets', 'rules', 'sources', 'version',
    'zoo']
    """
    from twolayer import __version__

    return {
        "presets": classics(),
        "figures": _figures(),
        "zoo": _published(),
        "sources": SOURCES,
        "activations": ACTIVATIONS,
        "rules": RULES,
        "losses": LOSSES,
        "version": __version__,
    }
