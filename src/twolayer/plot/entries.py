"""Entries of the overlaps by name, as a reader asks for them.

"M"    every M_jr          "M12"   neuron 1, direction 2      ("M1,12" from ten on)
"Q"    every Q_jl, j ≤ l   "Q11"   neuron 1 with itself
"a"    every a_j           "a1"
"m"    m_r = ⟨M_jr²⟩_j^½, root mean squares over the neurons
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import xarray as xr

from twolayer.numerics.errors import reject
from twolayer.running.dataset import quantities

__all__ = ["curves_of", "symbol"]

ACCEPTED = (
    "'m', 'M', 'Q', 'a', or entries such as 'M12' and 'Q11' with indices of the run"
)


def curves_of(
    dataset: xr.Dataset, entries: str | Sequence[str]
) -> list[tuple[str, np.ndarray]]:
    """Name and values (seed, time) of every entry asked for; names have their indices
    after the letter.
    """
    asked = (
        [entries]
        if isinstance(entries, str)
        else list(entries)
        if isinstance(entries, Sequence)
        else []
    )
    if not asked or not all(isinstance(name, str) and name for name in asked):
        reject("entries", entries, ACCEPTED)
    return [curve for name in asked for curve in _one(dataset, name)]


def symbol(name: str) -> str:
    """An entry in mathematics; entries of M in one direction share their name.

    Examples
    --------
    >>> symbol("M2,1"), symbol("Q1,2"), symbol("m3")
    ('$M_{j1}$', '$Q_{12}$', '$m_{3}$')
    """
    letter, index = name[0], name[1:].split(",")
    return (
        f"$M_{{j{index[-1]}}}$" if letter == "M" else f"${letter}_{{{''.join(index)}}}$"
    )


def _one(dataset: xr.Dataset, name: str) -> list[tuple[str, np.ndarray]]:
    letter, rest = name[0], name[1:]
    if letter not in "mMQa" or (letter != "m" and letter not in dataset):
        reject("entries", name, ACCEPTED)
    if letter == "m":
        values = np.stack(
            [x for key, x in quantities(dataset).items() if key != "risk"], axis=-1
        )
    else:
        values = dataset[letter].values
    shape = values.shape[2:]
    if rest:
        digits = [
            int(x)
            for x in (rest.split(",") if "," in rest else list(rest))
            if re.fullmatch(r"\d+", x)
        ]
        if len(shape) == 1 and re.fullmatch(r"\d+", rest):
            digits = [int(rest)]
        if len(digits) != len(shape) or not all(
            1 <= i <= n for i, n in zip(digits, shape, strict=True)
        ):
            reject("entries", name, ACCEPTED)
        chosen = [tuple(i - 1 for i in digits)]
    elif letter == "M":
        chosen = [(j, r) for r in range(shape[1]) for j in range(shape[0])]
    elif letter == "Q":
        chosen = [(j, l) for j in range(shape[0]) for l in range(j, shape[1])]
    else:
        chosen = [(i,) for i in range(shape[0])]
    flat = values.reshape(*values.shape[:2], -1)
    places = [np.ravel_multi_index(index, shape) for index in chosen]
    names = [letter + ",".join(str(i + 1) for i in index) for index in chosen]
    return [
        (name, flat[:, :, place]) for name, place in zip(names, places, strict=True)
    ]
