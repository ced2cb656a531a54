"""Entries of the overlaps by name, and the curves that a reader may take from them.

    "M"    every M_jr          "M12"   neuron 1, direction 2      ("M1,12" from ten on)
    "Q"    every Q_jl, j ≤ l   "Q11"   neuron 1 with itself
    "a"    every a_j           "a1"
    "m"    m_r = ⟨(E M_jr)²⟩_j^½

The mean in m_r is taken over seeds before the square, and what its standard error adds
is taken off:

    m_r² = ⟨ mean_s(M_jr)² − var_s(M_jr)/n ⟩_j

The root mean square of each run by itself would not do. It has a floor of order
d^(−1/2), the overlap of a direction that nobody has learned, and the limit of large
dimension has none, so that runs that agree with a theory would be drawn above it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from twolayer.numerics.errors import reject
from twolayer.running.dataset import quantities

__all__ = ["BAND", "EntryCurve", "curves_of", "in_groups", "seed_curve", "symbol"]

ACCEPTED = (
    "'m', 'M', 'Q', 'a', or entries such as 'M12' and 'Q11' with indices of the run"
)
BAND = (0.1, 0.9)
MOST_ENTRIES = 16  # more overlaps than this are summed up by m where nothing is asked
# a gap between runs that parts them: of the width of the band, and of the natural size
GAP_IN_BAND = 0.5
GAP_IN_SIZE = 0.25
SHARE = 0.1  # of the runs, at least, on either side of the gap


class EntryCurve(NamedTuple):
    """What is drawn of one entry: all runs, or their mean with a band."""

    name: str
    values: np.ndarray  # (seed, time)
    mean: np.ndarray  # (time,)
    band: tuple[np.ndarray, np.ndarray] | None  # none of a single run
    parted: (
        bool  # whether runs fall into two groups, so that their mean is none of them
    )


def curves_of(
    dataset: xr.Dataset, entries: str | Sequence[str] | None = None
) -> list[EntryCurve]:
    """The curve of every entry asked for; names have their indices after the letter.

    Where nothing is asked for these are the overlaps M_jr, or m_r where they are many.
    """
    if entries is None:
        many = dataset.sizes["neuron"] * dataset.sizes["direction"] > MOST_ENTRIES
        entries = "m" if many else "M"
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


def seed_curve(name: str, values: np.ndarray, size: float | None = None) -> EntryCurve:
    """Mean over seeds with the central 80 % of them.

    ``size`` is the natural size of the entry, by default the range of the runs.
    """
    if len(values) == 1:
        return EntryCurve(name, values, values[0], None, False)
    low, high = np.quantile(values, BAND, axis=0)
    natural = np.ptp(values[np.isfinite(values)]) if size is None else size
    parted = _parted(values, high - low, float(natural))
    return EntryCurve(name, values, values.mean(axis=0), (low, high), parted)


def symbol(name: str) -> str:
    """An entry in mathematics.

    Examples
    --------
    >>> symbol("M2,1"), symbol("M2,10"), symbol("m3")
    ('$M_{21}$', '$M_{2,10}$', '$m_{3}$')
    """
    letter, index = name[0], name[1:].split(",")
    comma = "," if any(len(i) > 1 for i in index) else ""
    return f"${letter}_{{{comma.join(index)}}}$"


def in_groups(names: Sequence[str], most: int) -> list[str]:
    r"""What each entry is called in a legend: by itself while there are at most
    ``most``, and otherwise with others of its kind.

    Examples
    --------
    >>> in_groups(["M1,1", "M2,1"], most=7)
    ['$M_{11}$', '$M_{21}$']
    >>> in_groups(["M1,1", "M2,1", "Q1,1", "Q1,2"], most=3)
    ['all $M_{j1}$', 'all $M_{j1}$', 'all $Q_{jj}$', 'all $Q_{jl}$, $j \\neq l$']
    """
    if len(names) <= most:
        return [symbol(name) for name in names]
    return [_kind(name) for name in names]


def _kind(name: str) -> str:
    """The entries that one belongs to: all neurons of a direction."""
    letter, index = name[0], name[1:].split(",")
    if letter == "M":
        return f"all $M_{{j{index[-1]}}}$"
    if letter == "Q":
        same = index[0] == index[1]
        return "all $Q_{jj}$" if same else "all $Q_{jl}$, $j \\neq l$"
    return "all $a_j$" if letter == "a" else symbol(name)


def _one(dataset: xr.Dataset, name: str) -> list[EntryCurve]:
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
    if letter == "m":
        return [_root_mean_square(dataset, r, values[..., r]) for (r,) in chosen]
    size = _natural_size(dataset, letter)
    return [
        seed_curve(
            letter + ",".join(str(i + 1) for i in index),
            values.reshape(*values.shape[:2], -1)[
                ..., np.ravel_multi_index(index, shape)
            ],
            size,
        )
        for index in chosen
    ]


def _natural_size(dataset: xr.Dataset, letter: str) -> float:
    """How large entries of a kind can be: of M, the largest norm of a neuron."""
    size = float(np.nanmax(np.abs(dataset[letter].values), initial=0.0))
    if letter == "M" and "Q" in dataset:
        norm = float(np.nanmax(np.abs(dataset.Q.values), initial=0.0)) ** 0.5
        return max(size, norm)
    return size


def _root_mean_square(dataset: xr.Dataset, r: int, each: np.ndarray) -> EntryCurve:
    """m_r with two standard errors; ``each`` is the root mean square of every run."""
    name = f"m{r + 1}"
    n = len(each)
    if n == 1:
        return EntryCurve(name, each, each[0], None, False)
    M = dataset.M.values[..., r]
    weight = dataset.weight.values if "weight" in dataset else None
    total = M.sum(axis=0)
    squares = (M**2).sum(axis=0)
    # mean² − var/n is the mean of M_s M_s' over pairs of different runs
    pairs = (total**2 - squares) / (n * (n - 1))
    square = np.average(pairs, axis=-1, weights=weight)
    band = None
    if n > 2:
        left_out = ((total - M) ** 2 - (squares - M**2)) / ((n - 1) * (n - 2))
        estimates = np.average(left_out, axis=-1, weights=weight)
        scatter = ((estimates - estimates.mean(axis=0)) ** 2).sum(axis=0)
        error = np.sqrt((n - 1) / n * scatter)  # the jackknife
        band = (_root(square - 2 * error), _root(square + 2 * error))
    neurons = [
        seed_curve(name, M[..., j], _natural_size(dataset, "M"))
        for j in range(M.shape[-1])
    ]
    return EntryCurve(name, each, _root(square), band, any(x.parted for x in neurons))


def _root(square: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(square, 0.0))


def _parted(values: np.ndarray, width: np.ndarray, size: float) -> bool:
    """Whether runs fall into two groups at some time, with a gap between them."""
    n = len(values)
    below = np.arange(1, n)
    inner = np.minimum(below, n - below) >= SHARE * n
    # runs that are lost count with neither group
    gaps = np.nan_to_num(np.diff(np.sort(values, axis=0), axis=0)[inner])
    if not gaps.size:
        return False
    widest = gaps.max(axis=0)
    return bool(((widest > GAP_IN_BAND * width) & (widest > GAP_IN_SIZE * size)).any())
