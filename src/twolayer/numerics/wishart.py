"""Gram matrices of Gaussian vectors in many dimensions, without the vectors.

    X (s × n) with iid N(0, 1) entries:   X Xᵀ = T Tᵀ in law,
        T lower triangular (Bartlett),
    T_ii² ~ χ²_{n−i+1},   T_il ~ N(0, 1) for l < i

For n < 64 + s the plain s × n matrix of normals is used instead. A χ² with more degrees
of freedom is its own quantile function at a normal, χ² = n·c(x)³, where c (nearly
linear, Wilson–Hilferty) is a polynomial fitted to the exact quantiles: the distribution
function is off by less than 1e-10 everywhere, four orders of magnitude below what 10⁹
draws could show.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev

from twolayer.numerics import random
from twolayer.numerics.precision import float64
from twolayer.numerics.types import Real

__all__ = ["GramFactor", "GramFactors"]

DIRECT = 64
REACH = 8.25  # the pinned generator stays within ±8.21
DEGREE = 16
ASYMPTOTIC = 10_000


def chi_square_quantile(n: float, x: np.ndarray) -> np.ndarray:
    """Quantile of χ²_n at probability Φ(x), n ≥ 64."""
    # beyond, SciPy's inverse loses its digits and the Cornish–Fisher series is exact to
    # 1e-11
    if n < ASYMPTOTIC:
        from scipy.special import (
            gammainccinv,
            gammaincinv,
            ndtr,
        )  # takes a tenth of a second to import

        upper = gammainccinv(n / 2, ndtr(-np.abs(x)))
        return np.asarray(
            2 * np.where(x < 0, gammaincinv(n / 2, ndtr(-np.abs(x))), upper)
        )
    s = np.sqrt(2 * n)
    return np.asarray(
        n
        + s * x
        + 2 / 3 * (x**2 - 1)
        + (x**3 - 7 * x) / (9 * s)
        - (6 * x**4 + 14 * x**2 - 32) / (405 * n)
        + (9 * x**5 + 256 * x**3 - 433 * x) / (4860 * np.sqrt(2) * n**1.5)
        + (12 * x**6 - 243 * x**4 - 923 * x**2 + 1472) / (25515 * n**2)
        - (3753 * x**7 + 4353 * x**5 - 289517 * x**3 - 289717 * x)
        / (9185400 * np.sqrt(2) * n**2.5)
    )


@lru_cache(maxsize=4096)
def _fit(n: int) -> tuple[float, ...]:
    """Power-series coefficients of c(x) = (χ²/n)^{1/3} in x/REACH."""
    root: Any = lambda t: np.cbrt(chi_square_quantile(n, REACH * t) / n)  # noqa: E731
    cheb = chebyshev.chebinterpolate(root, DEGREE)
    return tuple(chebyshev.cheb2poly(cheb).tolist())


@dataclass(frozen=True)
class GramFactor:
    """How to draw T with T Tᵀ = X Xᵀ in law, X a matrix of iid normals with s rows and
    n columns.

    Cost: O(s²) normals, independent of n.
    """

    rows: int
    columns: int

    @property
    def bartlett(self) -> bool:
        """Whether the triangular factor is used, rather than the plain matrix."""
        return self.columns >= DIRECT + self.rows

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of T."""
        return (self.rows, self.rows if self.bartlett else self.columns)

    @property
    def draws(self) -> int:
        """Number of normals that `build` takes."""
        return (
            self.rows * (self.rows + 1) // 2
            if self.bartlett
            else self.rows * self.columns
        )

    @property
    def compiled(self) -> GramFactor:
        """The factor that stands for all with the same `build`: the degrees of freedom
        are in the table alone.
        """
        return GramFactor(self.rows, DIRECT + self.rows) if self.bartlett else self

    def table(self) -> np.ndarray:
        """Coefficients (rows, DEGREE + 2) of the χ quantiles, with √n last; data for
        `build`.
        """
        if not self.bartlett:
            return np.zeros((self.rows, DEGREE + 2))
        dof = [self.columns - i for i in range(self.rows)]
        return np.array([[*_fit(n), np.sqrt(n)] for n in dof])

    def build(self, normals: Real, table: Real) -> Real:
        """T from normals (..., draws); leading axes of the table broadcast against
        those of the normals.
        """
        if not self.bartlett:
            return normals.reshape((*normals.shape[:-1], *self.shape))
        s = self.rows
        x = normals[..., :s] / REACH
        c = jnp.zeros_like(x)
        for column in range(DEGREE, -1, -1):
            c = c * x + table[..., column]
        diagonal = table[..., -1] * c * jnp.sqrt(c)
        T = (
            jnp.zeros((*normals.shape[:-1], s, s))
            .at[..., np.arange(s), np.arange(s)]
            .set(diagonal)
        )
        below = np.tril_indices(s, -1)
        return T.at[..., below[0], below[1]].set(normals[..., s:]) if s > 1 else T


class FactorGroup(NamedTuple):
    """Factors of one form: rows, width of T, whether they are triangular, and how many
    there are.
    """

    rows: int
    width: int
    triangular: bool
    members: int

    @property
    def draws(self) -> int:
        """Normals of one of them."""
        return (
            self.rows * (self.rows + 1) // 2
            if self.triangular
            else self.rows * self.width
        )


@dataclass(frozen=True)
class GramFactors:
    """Several independent `GramFactor`, of equal rows and increasing columns, drawn
    together in groups of one form.

    Plain matrices are as wide as the next power of two of their columns; the others
    columns are zero.

    >>> factors = GramFactors.of(2, [3, 4, 500, 900])
    >>> [(group.width, group.members) for group in factors.groups]
    [(4, 2), (2, 2)]
    """

    rows: int
    groups: tuple[FactorGroup, ...]

    @classmethod
    def of(cls, rows: int, columns: Sequence[int]) -> GramFactors:
        """The factors of matrices with these columns, in increasing order."""
        forms = []
        for n in columns:
            triangular = GramFactor(rows, n).bartlett
            wide = min(2 ** (n - 1).bit_length(), DIRECT + rows - 1)
            forms.append((rows, rows if triangular else wide, triangular))
        return cls(
            rows,
            tuple(
                FactorGroup(*form, len(list(same)))
                for form, same in itertools.groupby(forms)
            ),
        )

    @property
    def bartlett(self) -> bool:
        """Whether all are triangular."""
        return all(group.triangular for group in self.groups)

    @property
    def count(self) -> int:
        """How many factors there are."""
        return sum(group.members for group in self.groups)

    @property
    def draws(self) -> int:
        """Number of normals that `build` takes."""
        return sum(group.members * group.draws for group in self.groups)

    def tables(self, columns: Sequence[int]) -> tuple[np.ndarray, ...]:
        """Of each group, the tables of its factors, or which of their columns count;
        data for `build`.
        """
        found, at = [], 0
        for group in self.groups:
            own = columns[at : at + group.members]
            at += group.members
            if group.triangular:
                found.append(np.stack([GramFactor(self.rows, n).table() for n in own]))
            else:
                found.append(
                    (np.arange(group.width) < np.asarray(own)[:, None]).astype(float)
                )
        return tuple(found)

    def build(self, normals: Real, tables: Real) -> tuple[Real, ...]:
        """T (…, members, rows, width) of each group, from normals (…, draws)."""
        found, at = [], 0
        for group, table in zip(self.groups, tables, strict=True):
            end = at + group.members * group.draws
            own = normals[..., at:end].reshape(
                *normals.shape[:-1], group.members, group.draws
            )
            at = end
            if group.triangular:
                found.append(
                    GramFactor(group.rows, DIRECT + group.rows).build(own, table)
                )
            else:
                found.append(
                    own.reshape(*own.shape[:-1], group.rows, group.width)
                    * table[..., None, :]
                )
        return tuple(found)


_build = jax.jit(GramFactor.build, static_argnums=0)


@float64
def factor_from(factor: GramFactor, normals: np.ndarray) -> np.ndarray:
    """T from normals (…, draws), as NumPy array; width = min(rows, columns)."""
    build = _build if factor.bartlett else GramFactor.build
    T = np.asarray(
        build(factor.compiled, jnp.asarray(normals), jnp.asarray(factor.table()))
    )
    if factor.columns > factor.rows and not factor.bartlett:
        T = np.swapaxes(np.linalg.qr(np.swapaxes(T, -1, -2), mode="r"), -1, -2)
    return T


def draw_factor(
    seed: int, role: random.Role, rows: int, columns: int, runs: np.ndarray
) -> np.ndarray:
    """One T for each run, (runs, rows, width), as NumPy array; width = min(rows,
    columns).
    """
    factor = GramFactor(rows, columns)
    return factor_from(factor, random.host_normal(seed, role, factor.draws, runs))
