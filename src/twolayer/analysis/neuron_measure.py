"""The measure μ_t of the neurons on (m, q): its moments and histograms, from any
result.

μ_t = Σ_j weight_j δ_(m_j, q_j),    q_j = Q_jj − m_j P⁺ m_jᵀ,    weight_j = 1/p where
the result has none
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import finite_array
from twolayer.numerics.errors import choice, positive_integer, reject, require
from twolayer.numerics.foreign_files import reading
from twolayer.running.dataset import check_result, description_of
from twolayer.running.long_names import with_meanings
from twolayer.task.overlaps import pseudo_inverse

__all__ = [
    "measure_histogram",
    "measure_moments",
    "orthogonal_norms",
    "particle_weights",
]


def particle_weights(dataset: xr.Dataset) -> np.ndarray:
    """The weights of the neurons, (neuron,)."""
    if "stages" in check_result(dataset):
        reject("dataset", "a run in stages", "a result of solve")
    n = dataset.sizes["neuron"]
    return (
        np.asarray(dataset.weight.values) if "weight" in dataset else np.full(n, 1 / n)
    )


def _inside(dataset: xr.Dataset) -> np.ndarray:
    """The norm m P⁺ mᵀ of every neuron, (seed, time, neuron)."""
    gram = description_of(dataset)["problem"]["gram"]
    M = dataset.M.values
    return np.asarray(
        (M * M if gram is None else (M @ pseudo_inverse(np.array(gram))) * M).sum(-1)
    )


def orthogonal_norms(dataset: xr.Dataset) -> np.ndarray:
    """The squared norm q of the part of every neuron orthogonal to the target
    directions, (seed, time, neuron).
    """
    with reading("Argument `dataset`"):
        if "q" in dataset:
            return np.asarray(dataset.q.values)
        return np.maximum(
            np.diagonal(dataset.Q.values, axis1=2, axis2=3) - _inside(dataset), 0.0
        )


def measure_moments(dataset: xr.Dataset) -> xr.Dataset:
    """Moments of the measure of neurons along a run.

    Parameters
    ----------
    dataset : xarray.Dataset
        From `solve`, by any method.

    Returns
    -------
    xarray.Dataset
        ``mean_m`` ∫ m dμ, ``second_m`` ∫ m mᵀ dμ, ``mean_q``, ``variance_q`` and
        ``mean_norm`` ∫ |w|² dμ, each along (seed, time).

    Examples
    --------
    >>> import twolayer as tl
    >>> problem = tl.Problem("z1**2", "square", width=2)
    >>> start = tl.Overlaps([[1.0, 0.0], [0.0, 1.0]], [[0.6], [0.0]])
    >>> run = tl.solve(problem, tl.SGD("0.1/d"), tl.Chain(50), start, steps=1, save=1)
    >>> here = measure_moments(run).isel(seed=0, time=0)
    >>> float(here.mean_m[0]), round(float(here.mean_q), 6), float(here.mean_norm)
    (0.3, 0.82, 1.0)
    """
    weight, M = particle_weights(dataset), dataset.M.values
    q = orthogonal_norms(dataset)
    mean = q @ weight
    lead = ("seed", "time")
    found = xr.Dataset(
        {
            "mean_m": ((*lead, "direction"), np.einsum("j,stjr->str", weight, M)),
            "second_m": (
                (*lead, "direction", "direction_"),
                np.einsum("j,stjr,stjl->strl", weight, M, M),
            ),
            "mean_q": (lead, mean),
            "variance_q": (lead, ((q - mean[..., None]) ** 2) @ weight),
            "mean_norm": (lead, (q + _inside(dataset)) @ weight),
        },
        {name: dataset[name] for name in ("seed", "time", "direction")},
    )
    return with_meanings(found)


def measure_histogram(
    dataset: xr.Dataset, of: str = "m1", bins: int = 60, range: object = None
) -> xr.DataArray:
    """Density of one coordinate of the measure of neurons along a run, with common
    bins.

    Parameters
    ----------
    dataset : xarray.Dataset
        From `solve`, by any method.
    of : str
        ``"m1"`` … ``"mk"``, or ``"q"``.
    bins : int
        How many, of equal width.
    range : pair of numbers, optional
        Ends of the bins; all values by default.

    Returns
    -------
    xarray.DataArray
        Density (seed, time, bin) with the centres of the bins; it integrates to the
        mass inside the range.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem = tl.Problem("z1**2", "square", width=2)
    >>> start = tl.Overlaps([[1.0, 0.0], [0.0, 1.0]], [[0.6], [0.0]])
    >>> run = tl.solve(problem, tl.SGD("0.1/d"), tl.Chain(50), start, steps=1, save=1)
    >>> measure_histogram(run, "m1", bins=2, range=(-1, 1)).isel(
    ...     seed=0, time=0
    ... ).values.tolist()
    [0.0, 1.0]
    """
    weight = particle_weights(dataset)
    names = [f"m{r + 1}" for r in np.arange(dataset.sizes["direction"])]
    place = choice("of", of, [*names, "q"])
    values = (
        orthogonal_norms(dataset)
        if place == "q"
        else dataset.M.values[..., names.index(place)]
    )
    bins = positive_integer("bins", bins)
    ends = finite_array(
        "range", (values.min(), values.max()) if range is None else range
    )
    require(
        ends.shape == (2,) and ends[0] <= ends[1],
        "range",
        range,
        "two numbers, the smaller one first",
    )
    room = 0.5 * float(ends[0] == ends[1])  # a point has no width of its own
    edges = np.linspace(ends[0] - room, ends[1] + room, bins + 1)
    flat = values.reshape(-1, values.shape[-1])
    counts = np.stack([np.histogram(row, edges, weights=weight)[0] for row in flat])
    density = (counts / np.diff(edges)).reshape(*values.shape[:2], bins)
    coords = {
        "seed": dataset.seed,
        "time": dataset.time,
        "bin": (edges[1:] + edges[:-1]) / 2,
    }
    return xr.DataArray(density, coords, ("seed", "time", "bin"), name=place)
