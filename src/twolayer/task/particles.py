"""Neurons as particles: a measure μ on (m, q), what a mean field starts from.

m = W* w ∈ R^k,    q = |w⊥|²,    μ = Σ_i weights_i δ_(m_i, q_i),    f(z) = ∫ a σ(w·z) dμ

A network of p neurons is the measure with weights 1/p; overlaps between the orthogonal
parts are forgotten.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from twolayer.numerics.arguments import Array, finite_array
from twolayer.numerics.errors import (
    InputError,
    choice,
    expect,
    failed,
    positive_integer,
    reject,
    require,
    short,
)
from twolayer.numerics.random import check_seed
from twolayer.task.overlaps import TOLERANCE, Overlaps, factor_of, pseudo_inverse
from twolayer.task.problem import Problem

__all__ = ["Particles"]

Sampler = Callable[[np.random.Generator, int], tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class Particles:
    """Weighted particles (m, q), with a second layer a where it is not that of the
    problem.

    Parameters
    ----------
    m : array (n, k)
        Overlaps with the target directions.
    q : array (n,)
        Squared norms of the parts orthogonal to them.
    weights : array (n,), optional
        Any non-negative numbers, divided by their sum; equal ones by default.
    P : array (k, k), optional
        Gram matrix of the target directions; the identity by default.
    a : array (n,), optional
        Second layer; by default what the problem says.
    dim : int, optional
        Dimension the particles come from, if any; lets limits report their clocks in
        steps.

    Examples
    --------
    >>> Particles(m=[[0.6], [0.0]], q=[0.64, 1.0], weights=[1, 3]).weights.tolist()
    [0.25, 0.75]
    """

    m: np.ndarray
    q: np.ndarray
    weights: np.ndarray
    P: np.ndarray
    a: np.ndarray | None
    dim: int | None

    def __init__(
        self,
        m: object,
        q: object,
        weights: object = None,
        P: Array | None = None,
        a: object = None,
        dim: int | None = None,
    ) -> None:
        m, q = finite_array("m", m), finite_array("q", q)
        require(
            m.ndim == 2 and m.shape[1] > 0, "m", m.tolist(), "a matrix (particles, k)"
        )
        require(len(m) > 0, "m", m.tolist(), "at least one particle")
        n, k = m.shape
        require(q.shape == (n,), "q", q.tolist(), f"{n} numbers, one for each particle")
        if q.min() < 0:
            raise InputError(
                "Argument `q` must be non-negative, for it is |w⊥|², but holds"
                f" {q.min():.3g}."
            )
        share = np.ones(n) if weights is None else finite_array("weights", weights)
        require(
            share.shape == (n,),
            "weights",
            share.tolist(),
            f"{n} numbers, one for each particle",
        )
        require(
            share.min() >= 0 and share.sum() > 0,
            "weights",
            share.tolist(),
            "non-negative, and not all zero",
        )
        if a is not None:
            a = finite_array("a", a)
            require(
                a.shape == (n,), "a", a.tolist(), f"{n} numbers, one for each particle"
            )
        frame = Overlaps(np.eye(1), np.zeros((1, k)), P, dim=dim)  # checks P and dim
        inside = m @ pseudo_inverse(frame.P) @ frame.P
        if not np.allclose(
            inside, m, atol=TOLERANCE * max(1.0, float(np.abs(m).max()))
        ):
            raise InputError(
                "Argument `m` must lie in the range of P, for m = W* w, but has a part"
                " outside it."
            )
        if (
            abs(share.sum() - 1) > 1e-12
        ):  # weights that are normalised already stay as they are, to the last digit
            share = share / share.sum()
        values = {
            "m": m,
            "q": q,
            "weights": share,
            "P": frame.P,
            "a": a,
            "dim": frame.dim,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def n(self) -> int:
        """Number of particles."""
        return len(self.m)

    @property
    def k(self) -> int:
        """Number of target directions."""
        return int(self.m.shape[1])

    @property
    def norms(self) -> np.ndarray:
        """Squared norms m P⁺ mᵀ + q, (n,)."""
        return np.asarray(((self.m @ pseudo_inverse(self.P)) * self.m).sum(1) + self.q)

    @classmethod
    def from_overlaps(cls, start: Overlaps) -> Particles:
        """The neurons of a network as particles of equal weight; ``start`` is a single
        one, with rows of any norm.

        Examples
        --------
        >>> Particles.from_overlaps(
        ...     Overlaps(Q=[[1.0, 0.2], [0.2, 1.0]], M=[[0.6], [0.0]])
        ... ).q.round(3).tolist()
        [0.64, 1.0]
        """
        expect(Overlaps, "start", start)
        if start.batch:
            raise InputError(
                f"Argument `start` must be a single start, but holds {start.batch[0]}."
            )
        return cls(
            start.M,
            np.maximum(np.diagonal(start.Q_perp), 0.0),
            None,
            start.P,
            start.a,
            start.dim,
        )

    @classmethod
    def sample(
        cls,
        problem: Problem,
        size: int,
        law: str | Sampler = "sphere",
        dim: int | None = None,
        seed: int = 0,
    ) -> Particles:
        """Independent particles from a law of (m, q).

        Parameters
        ----------
        problem : Problem
            Gives k and the target's overlaps P.
        size : int
            Number of particles.
        law : str or callable
            ``"sphere"`` or ``"gaussian"``: the exact law of (m, q) for rows uniform on
            the unit sphere of R^dim, or N(0, I/dim). A function of (numpy Generator,
            size) returns m (size, k) and q (size,).
        dim : int, optional
            d, for the named laws.
        seed : int
            Of the draws.

        Examples
        --------
        >>> problem = Problem("He2(z1)", "He2")
        >>> cloud = Particles.sample(problem, 1000, dim=50, seed=1)
        >>> cloud.norms.round(9).min(), 0.8 < 50 * (cloud.m**2).mean() < 1.2
        (np.float64(1.0), np.True_)
        >>> law = lambda rng, size: (
        ...     rng.normal(size=(size, 1)),
        ...     rng.exponential(size=size),
        ... )
        >>> Particles.sample(problem, 3, law).n
        3
        """
        expect(Problem, "problem", problem)
        size = positive_integer("size", size)
        rng = np.random.default_rng(check_seed(seed))
        if not isinstance(law, str):
            if not callable(law):
                reject(
                    "law",
                    law,
                    "'sphere', 'gaussian', or a function of a generator and a size",
                )
            try:
                pair = law(rng, size) if _takes_two(law) else None
            except Exception as error:
                raise failed(
                    "law", short(law), "a function of (generator, size)", error
                ) from error
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                accepted = (
                    "a function of (generator, size) that returns the pair m (size, k)"
                    " and q (size,)"
                )
                reject("law", law if pair is None else type(pair).__name__, accepted)
            drawn = cls(*pair, None, problem.P, None, dim)
            require(
                (drawn.n, drawn.k) == (size, problem.k),
                "law",
                drawn.m.shape,
                f"one that returns {size} particles",
            )
            return drawn
        choice("law", law, ("sphere", "gaussian"))
        if dim is None:
            raise InputError(
                f"Argument `dim` must be given for the law {law!r} of random rows in"
                " R^dim."
            )
        L = factor_of(problem.P)[0]
        rank = L.shape[1]
        dim = positive_integer("dim", dim)
        require(
            dim >= rank,
            "dim",
            dim,
            f"at least the {rank} independent directions of the target",
        )
        A = rng.normal(size=(size, rank))
        q = rng.chisquare(dim - rank, size) if dim > rank else np.zeros(size)
        norm = (A**2).sum(1) + q if law == "sphere" else np.full(size, float(dim))
        return cls(
            (A / np.sqrt(norm)[:, None]) @ L.T, q / norm, None, problem.P, None, dim
        )

    def __repr__(self) -> str:
        where = f", dim={self.dim}" if self.dim else ""
        return f"Particles(n={self.n}, k={self.k}{where})"


def _takes_two(function: Callable[..., object]) -> bool:
    """Whether a function can be called with two arguments; those that do not tell are
    tried.
    """
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        pass
    return True
