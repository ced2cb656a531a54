"""The law of the inputs: Gaussian, with one variance in each of several blocks of
directions.

    x = (x⁽¹⁾, …, x⁽ᵇ⁾),    x⁽ⁱ⁾ ~ N(0, s_i I_{d_i}) independent,    Σ_i d_i = d,
        tr Σ = Σ_i s_i d_i
    fields:  (λ, λ*) ~ N(0, Ω),    Ω = Σ_i s_i Ω⁽ⁱ⁾,
             Ω⁽ⁱ⁾ = Gram matrix of the parts of all rows in block i

Rotations inside a block change nothing, so any covariance is one of blocks: its
distinct eigenvalues. Many eigenvalues are grouped; a group has their mean as its
variance, which keeps tr Σ.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from twolayer.numerics.arguments import Array, Json, finite_array
from twolayer.numerics.errors import (
    InputError,
    choice,
    finite_number,
    positive_integer,
    reject,
    require,
    short,
)

__all__ = ["Inputs", "centred"]

TOLERANCE = 1e-8  # eigenvalues closer than this fraction of the largest are one
BLOCKS = 64  # groups of eigenvalues of a covariance, unless asked otherwise
FLOOR = 1e-6  # eigenvalues below this fraction of the largest make one group
SHOWN = 4
LISTED = (
    2**20
)  # eigenvalues of a power law that are summed one by one; beyond, blocks are integrals


@dataclass(frozen=True)
class Inputs:
    """Variances of the inputs, and how many of the d directions have each: made by its
    class methods.

    Attributes
    ----------
    variances : tuple of float
        s_i, one for each block.
    fractions : tuple of float
        d_i/d as d → ∞.
    dims : tuple of int, optional
        d_i where they are given; else they are rounded from the fractions at each d.
    made : tuple of (str, value)
        The call that made it, as `describe` tells it.

    Examples
    --------
    >>> Inputs.blocks([2.0, 0.5], [0.25, 0.75])
    Inputs.blocks([2, 0.5], [0.25, 0.75])
    >>> Inputs.blocks([2.0, 0.5], [0.25, 0.75]).sizes(10)
    (3, 7)
    """

    variances: tuple[float, ...]
    fractions: tuple[float, ...]
    dims: tuple[int, ...] | None = None
    made: tuple[tuple[str, object], ...] = field(
        default=(), compare=False
    )  # the call that made it

    def __post_init__(self) -> None:
        if not isinstance(self.made, tuple) or not self.made:
            raise InputError(
                "Inputs are made by Inputs.blocks(variances, fractions),"
                " Inputs.power_law(exponent, dim), Inputs.from_covariance(C),"
                " Inputs.from_data(X) or Inputs.isotropic(), which check what they are"
                " given."
            )

    @classmethod
    def isotropic(cls) -> Inputs:
        """Inputs N(0, I), the default."""
        return cls((1.0,), (1.0,), None, (("kind", "isotropic"),))

    @classmethod
    def blocks(
        cls,
        variances: Sequence[float] | np.ndarray,
        fractions: Sequence[float] | np.ndarray | None = None,
        dims: Sequence[int] | None = None,
    ) -> Inputs:
        """Blocks with given variances, as fractions of the dimension or with given
        sizes.

        Parameters
        ----------
        variances : sequence of float
            s_i ≥ 0, not all zero.
        fractions : sequence of float
            w_i = d_i/d > 0, which sum to one.
        dims : sequence of int
            d_i ≥ 1, instead of fractions; finite-d methods then have d = Σ d_i.

        Examples
        --------
        >>> Inputs.blocks([3.0, 0.8, 0.1], dims=[4, 10, 26]).fractions
        (0.1, 0.25, 0.65)
        """
        s = _numbers("variances", variances)
        require(
            all(x >= 0 for x in s),
            "variances",
            variances,
            "numbers ≥ 0, one for each block",
        )
        require(
            len(s) > 0 and max(s) > 0,
            "variances",
            variances,
            "numbers ≥ 0, at least one of them positive",
        )
        if (fractions is None) == (dims is None):
            raise InputError(
                "Inputs in blocks need either `fractions` or `dims`, one number for"
                " each variance."
            )
        if dims is not None:
            sizes = tuple(positive_integer("dims", n) for n in _listed("dims", dims))
            require(
                len(sizes) == len(s),
                "dims",
                dims,
                f"{len(s)} integers, one for each variance",
            )
            d = sum(sizes)
            call = (("kind", "blocks"), ("variances", list(s)), ("dims", list(sizes)))
            return cls(s, tuple(n / d for n in sizes), sizes, call)
        w = _numbers("fractions", fractions)
        require(
            len(w) == len(s),
            "fractions",
            fractions,
            f"{len(s)} numbers, one for each variance",
        )
        require(min(w) > 0, "fractions", fractions, "positive numbers that sum to one")
        require(
            abs(math.fsum(w) - 1) <= 1e-9,
            "fractions",
            fractions,
            "positive numbers that sum to one",
        )
        return cls(
            s,
            w,
            None,
            (("kind", "blocks"), ("variances", list(s)), ("fractions", list(w))),
        )

    @classmethod
    def power_law(
        cls, exponent: float, dim: int, resolution: int = 4, trace: float | None = None
    ) -> Inputs:
        """Eigenvalues λ_j ∝ j^(−exponent), j = 1 … d, in blocks that are spaced evenly
        in log j.

        Parameters
        ----------
        exponent : float
            Of the decay, ≥ 0; beyond 1 the effective dimension stays of order one.
        dim : int
            d, the number of eigenvalues.
        resolution : int
            Blocks per factor of two in j. The error falls with its square: `finer`
            doubles it, and `twolayer.running.blocking_error.blocking_error` tells what
            that changes.
        trace : float, optional
            tr Σ; d by default, so that the mean variance is one.

        Examples
        --------
        >>> inputs = Inputs.power_law(1.5, dim=1000)
        >>> (
        ...     inputs.count,
        ...     sum(inputs.sizes(1000)),
        ...     round(inputs.effective_dimension(1000), 4),
        ... )
        (34, 1000, 2.5491)
        """
        exponent = finite_number(
            "exponent",
            exponent,
            minimum=0.0,
            accepted="a finite exponent ≥ 0 of the decay",
        )
        dim, resolution = (
            positive_integer("dim", dim),
            positive_integer("resolution", resolution),
        )
        total = float(dim)
        if trace is not None:
            total = finite_number(
                "trace",
                trace,
                minimum=1e-300,
                accepted="a positive number, the sum of all variances",
            )
        top = math.ceil(resolution * math.log2(dim)) + 1 if dim > 1 else 1
        inner = {math.floor(2 ** (j / resolution)) for j in range(top + 1)}
        # number j of the spectrum is the first one of its block
        edges = [*sorted(j - 1 for j in inner if j <= dim), dim]
        given = {
            "kind": "power_law",
            "exponent": exponent,
            "dim": dim,
            "resolution": resolution,
            "trace": trace,
        }
        found = cls.blocks(
            _power_means(exponent, edges, total),
            dims=[b - a for a, b in itertools.pairwise(edges)],
        )
        return cls(found.variances, found.fractions, found.dims, tuple(given.items()))

    @classmethod
    def from_covariance(cls, C: Array, blocks: int = BLOCKS) -> Inputs:
        """The blocks of a covariance: its distinct eigenvalues, or groups of them where
        there are many.

        Parameters
        ----------
        C : array (d, d)
            Symmetric and positive semidefinite.
        blocks : int
            Groups at most; of equal width in log λ.

        Examples
        --------
        >>> Inputs.from_covariance([[2.0, 1.0], [1.0, 2.0]])
        Inputs.blocks([3, 1], dims=[1, 1])
        """
        C = finite_array("C", C)
        require(
            C.ndim == 2 and C.shape[0] == C.shape[1] and len(C) > 0,
            "C",
            list(C.shape),
            "a square matrix (d, d)",
        )
        scale = float(np.abs(C).max())
        require(
            np.allclose(C, C.T, rtol=0, atol=1e-8 * scale), "C", C.tolist(), "symmetric"
        )
        values = np.linalg.eigvalsh((C + C.T) / 2)
        if values[0] < -1e-8 * scale:
            raise InputError(
                "Argument `C` must be positive semidefinite, but its smallest"
                f" eigenvalue is {values[0]:.3g}."
            )
        return cls._of_spectrum(np.maximum(values[::-1], 0.0), blocks)

    @classmethod
    def from_data(cls, X: Array, blocks: int = BLOCKS) -> Inputs:
        """The blocks of the covariance of data, rows of X, about their mean: the
        Gaussian surrogate of the data.

        Parameters
        ----------
        X : array (n, d)
            At least two rows.
        blocks : int
            Groups of eigenvalues at most.

        Examples
        --------
        >>> Inputs.from_data([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
        Inputs.blocks([2, 0.5], dims=[1, 1])
        """
        X = centred("X", finite_array("X", X))
        values = np.linalg.svd(X, compute_uv=False) ** 2 / len(X)
        return cls._of_spectrum(
            np.concatenate([values, np.zeros(X.shape[1] - len(values))]), blocks
        )

    @classmethod
    def of(cls, value: Inputs | Json | str | None) -> Inputs:
        """Inputs from what a problem, a file or a description holds.

        Parameters
        ----------
        value : Inputs, dict, str or None
            A table with its ``kind`` (``"isotropic"``, ``"blocks"`` or ``"power_law"``)
            and the arguments of that class method; None and ``"isotropic"`` stand for
            N(0, I).

        Examples
        --------
        >>> Inputs.of(
        ...     {"kind": "blocks", "variances": [2.0, 0.5], "fractions": [0.5, 0.5]}
        ... ).count
        2
        """
        if isinstance(value, Inputs):
            return value
        if value is None or (isinstance(value, str) and value == "isotropic"):
            return cls.isotropic()
        if not isinstance(value, dict):
            accepted = (
                "Inputs such as Inputs.blocks(…) or Inputs.from_covariance(C), or a"
                " table with their `kind`"
            )
            reject("inputs", value, accepted)
        arguments = dict(value)
        kind = choice(
            "inputs.kind",
            arguments.pop("kind", "blocks"),
            ("isotropic", "blocks", "power_law"),
        )
        make: Callable[..., Inputs] = getattr(cls, kind)
        known = inspect.signature(make).parameters
        for name in arguments:
            choice("inputs", name, ["kind", *known])
        for name, parameter in known.items():
            if parameter.default is parameter.empty and name not in arguments:
                raise InputError(
                    f"Inputs of this kind need `{name}`, but got {short(value)}."
                )
        return make(**arguments)

    def describe(self) -> Json:
        """The call that made it, as plain values."""
        return dict(self.made)

    def replace(self, **changes: object) -> Inputs:
        """The same with some arguments of the call that made it changed, by name
        (``changes``).

        Examples
        --------
        >>> Inputs.power_law(1.5, dim=100).replace(exponent=2.0)
        Inputs.power_law(2, dim=100)
        """
        return Inputs.of({**self.describe(), **changes})

    def finer(self) -> Inputs:
        """A power law in twice as many blocks per factor of two."""
        known = self.describe()
        if known["kind"] != "power_law":
            raise InputError(
                "Only the blocks of a power law can be made finer: the others are what"
                " was given."
            )
        return self.replace(resolution=2 * known["resolution"])

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.variances)

    @property
    def plain(self) -> bool:
        """Whether this is N(0, I)."""
        return self.variances == (1.0,)

    @property
    def several(self) -> bool:
        """Whether there is more than one block."""
        return self.count > 1

    @property
    def mean_variance(self) -> float:
        """tr Σ/d."""
        return math.fsum(
            s * w for s, w in zip(self.variances, self.fractions, strict=True)
        )

    @property
    def effective_fraction(self) -> float:
        """d_eff/d = tr Σ/(d ‖Σ‖), as targets in the directions of largest variance see
        it.
        """
        return self.mean_variance / max(self.variances)

    @property
    def even_fraction(self) -> float:
        """(tr Σ)²/(d tr Σ²): the same for targets that are spread evenly over all
        directions.

        A start has an overlap of variance 1/d_eff with a target, and what is learned
        from samples takes steps that are powers of it, with d_eff = tr Σ · Σ_i s_i
        P⁽ⁱ⁾/Σ_i s_i² P⁽ⁱ⁾: tr Σ/‖Σ‖ at least, and d for inputs N(0, I).

        Examples
        --------
        >>> inputs = Inputs.blocks([4.0, 0.25], [0.2, 0.8])
        >>> inputs.effective_fraction, round(inputs.even_fraction, 4)
        (0.25, 0.3077)
        """
        square = math.fsum(
            s * s * w for s, w in zip(self.variances, self.fractions, strict=True)
        )
        return self.mean_variance**2 / square

    def effective_dimension(self, dim: int) -> float:
        """d_eff = tr Σ/‖Σ‖ at d = ``dim``: overlaps concentrate where it is large."""
        sizes = self.sizes(dim)
        return math.fsum(
            s * n for s, n in zip(self.variances, sizes, strict=True)
        ) / max(self.variances)

    def sizes(self, dim: int) -> tuple[int, ...]:
        """d_i, which sum to d = ``dim``: those given, or the fractions of d rounded by
        largest remainders.
        """
        dim = positive_integer("dim", dim)
        if self.dims is not None:
            if sum(self.dims) != dim:
                reject(
                    "dim",
                    dim,
                    f"{sum(self.dims)}, the sum of the block sizes of the inputs",
                )
            return self.dims
        wanted = np.asarray(self.fractions) * dim
        sizes = np.floor(wanted + 1e-9).astype(int)
        order = np.argsort(-(wanted - sizes), kind="stable")
        sizes[order[: dim - int(sizes.sum())]] += 1
        if sizes.min() < 1:
            small = self.fractions[int(np.argmin(sizes))]
            raise InputError(
                "Argument `dim` must leave at least one dimension to every block, but"
                f" a fraction of {small:g} of {dim} is less than one."
            )
        return tuple(sizes.tolist())

    def __repr__(self) -> str:
        known = self.describe()
        if known["kind"] == "isotropic":
            return "Inputs.isotropic()"
        if known["kind"] == "power_law":
            parts = [f"{known['exponent']:g}", f"dim={known['dim']}"]
            parts += (
                [f"resolution={known['resolution']}"]
                if known["resolution"] != 4
                else []
            )
            parts += [f"trace={known['trace']:g}"] if known["trace"] is not None else []
            return f"Inputs.power_law({', '.join(parts)})"
        parts = [_few(self.variances)]
        parts += (
            [_few(self.fractions)] if self.dims is None else [f"dims={_few(self.dims)}"]
        )
        return f"Inputs.blocks({', '.join(parts)})"

    @classmethod
    def _of_spectrum(cls, values: np.ndarray, blocks: int) -> Inputs:
        """Decreasing eigenvalues in their distinct values, or in groups of equal width
        in log λ.
        """
        blocks = positive_integer("blocks", blocks)
        require(values[0] > 0, "C", 0.0, "a covariance that is not zero")
        apart = np.flatnonzero(-np.diff(values) > TOLERANCE * values[0]) + 1
        if len(apart) + 1 > blocks:
            bottom = max(float(values[-1]), FLOOR * float(values[0]))
            height = np.log(np.maximum(values, bottom) / bottom) / max(
                np.log(values[0] / bottom), 1e-300
            )
            group = np.minimum((height * blocks).astype(int), blocks - 1)
            apart = np.flatnonzero(np.diff(group)) + 1
        pairs = list(itertools.pairwise([0, *apart.tolist(), len(values)]))
        return cls.blocks(
            [float(values[a:b].mean()) for a, b in pairs],
            dims=[b - a for a, b in pairs],
        )


def centred(name: str, X: np.ndarray) -> np.ndarray:
    """Rows (n, d) less their mean, or the error that says why they have no covariance.

    >>> centred("X", np.full((3, 2), 0.1))
    Traceback (most recent call last):
    twolayer.InputError: Argument `X` must hold rows that differ, but all of them are
    the same.
    """
    fits = X.ndim == 2 and len(X) > 1 and X.shape[1] > 0
    require(fits, name, list(X.shape), "a matrix (n, d) of at least two rows")
    rows = X - X.mean(0)
    if np.abs(rows).max() <= 1e-12 * np.abs(X).max():
        raise InputError(
            f"Argument `{name}` must hold rows that differ, but all of them are the"
            " same."
        )
    return np.asarray(rows)


def _listed(name: str, value: object) -> list[object]:
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__"):
        reject(name, value, "a list of numbers, one for each block")
    return list(value)


def _numbers(name: str, value: object) -> tuple[float, ...]:
    each = _listed(name, value)
    return tuple(
        finite_number(name, x, accepted="finite numbers, one for each block")
        for x in each
    )


def _power_means(exponent: float, edges: Sequence[int], total: float) -> list[float]:
    """Means of j^(−exponent) over edges[i] < j ≤ edges[i + 1], scaled so that all
    together sum to the total.

    Where j > 2²⁰ a sum is the integral from half a step before it to half a step
    behind, to a part of 10⁻¹².

    >>> _power_means(1.0, [0, 1, 3], 11.0)
    [6.0, 2.5]
    """
    listed = min(edges[-1], LISTED)
    values = np.arange(1, listed + 1, dtype=float) ** -exponent
    low, high = (np.maximum(ends, listed) + 0.5 for ends in (edges[:-1], edges[1:]))
    power, span = 1 - exponent, np.log(high / low)
    beyond = low**power * (np.expm1(power * span) / power if power else span)
    scale = total / (values.sum() + beyond.sum())
    values *= scale
    sums = [
        values[a:b].sum() + scale * rest
        for a, b, rest in zip(edges[:-1], edges[1:], beyond, strict=True)
    ]
    return [
        float(x / (b - a)) for x, a, b in zip(sums, edges[:-1], edges[1:], strict=True)
    ]


def _few(values: Sequence[float]) -> str:
    """The first values of a list."""
    shown = ", ".join(f"{x:g}" for x in values[:SHOWN])
    return f"[{shown}{', …' if len(values) > SHOWN else ''}]"
