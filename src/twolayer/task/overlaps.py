"""The sufficient statistics Ω = (Q, M; Mᵀ, P) and the second layer a.

    Q = W Wᵀ,  M = W W*ᵀ,  P = W* W*ᵀ,    (λ, λ*) ~ N(0, Ω)
    W = M P⁺ W* + W⊥,    Q⊥ = Q − M P⁺ Mᵀ = W⊥ W⊥ᵀ

Inputs with blocks have Ω⁽ⁱ⁾ of the parts of all rows in block i,

    (λ, λ*) ~ N(0, Σ_i s_i Ω⁽ⁱ⁾)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twolayer.numerics.arguments import Array, finite_array
from twolayer.numerics.errors import (
    InputError,
    choice,
    expect,
    positive_integer,
    require,
)
from twolayer.numerics.foreign_files import check_size
from twolayer.numerics.roots import host_root
from twolayer.numerics.tracing import traced
from twolayer.task.inputs import Inputs
from twolayer.task.problem import Problem

__all__ = [
    "Overlaps",
    "check_room",
    "check_target",
    "principal_overlaps",
    "pseudo_inverse",
    "rank_of",
    "register",
]

TOLERANCE = 1e-8  # eigenvalues of P below this fraction of the largest count as zero
DEPENDENT = 1e-12  # eigenvalues of Q below this fraction of the largest are rounding
LAWS = ("sphere", "hemisphere", "gaussian")


@dataclass(frozen=True, eq=False)
class Overlaps:
    """Overlaps of student and target directions; leading axes hold several starts at
    once. A pytree of JAX.

    For inputs of several variances the axis before the last two holds the blocks
    (`in_blocks`).

    Parameters
    ----------
    Q : array (..., p, p)
        Student–student: Q_jl = w_j·w_l, with the squared norms of the rows on the
        diagonal.
    M : array (..., p, k)
        Student–target: M_jr = w_j·w*_r.
    P : array (k, k), optional
        Target–target: w*_r·w*_s. The identity by default.
    a : array (..., p), optional
        Second layer; by default what the problem says.
    dim : int, optional
        Dimension these overlaps come from, if any; lets limits report their clocks in
        steps.

    Examples
    --------
    >>> Overlaps(Q=[[1.0]], M=[[0.6]]).Q_perp.round(3).tolist()
    [[0.64]]
    """

    Q: np.ndarray
    M: np.ndarray
    P: np.ndarray
    a: np.ndarray | None
    dim: int | None

    def __init__(
        self,
        Q: Array,
        M: Array,
        P: Array | None = None,
        a: Array | None = None,
        dim: int | None = None,
    ) -> None:
        register()
        Q, M = finite_array("Q", Q), finite_array("M", M)
        require(
            Q.ndim >= 2 and Q.shape[-1] == Q.shape[-2],
            "Q",
            Q,
            "square matrices (..., p, p)",
        )
        require(
            M.ndim == Q.ndim and M.shape[:-1] == Q.shape[:-1],
            "M",
            M,
            f"of shape {Q.shape[:-1]} + (k,)",
        )
        k = M.shape[-1]
        P = np.eye(k) if P is None else finite_array("P", P)
        many = Q.shape[-3:-2] if P.ndim == 3 else ()
        require(
            P.shape == (*many, k, k),
            "P",
            P,
            f"a {k} × {k} matrix" + (" for each block" if P.ndim == 3 else ""),
        )
        if a is not None:
            a = finite_array("a", a)
            whole = (*Q.shape[: Q.ndim - 2 - len(many)], Q.shape[-1])
            fits = (
                a.ndim >= 1
                and a.shape[-1] == Q.shape[-1]
                and (a.ndim == 1 or a.shape == whole)
            )
            require(fits, "a", a, f"of shape {whole}")
        if not traced(
            Q, M, P, a
        ):  # what is traced has shapes but no values to check yet
            Q, P, a = _checked(Q, M, P, a)
        if dim is not None:
            dim = positive_integer("dim", dim)
            rank = (
                k if traced(P) else sum(map(rank_of, P)) if P.ndim == 3 else rank_of(P)
            )
            require(
                dim >= rank,
                "dim",
                dim,
                f"at least the {rank} independent directions of the target",
            )
        for name, value in {"Q": Q, "M": M, "P": P, "a": a, "dim": dim}.items():
            object.__setattr__(self, name, value)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def p(self) -> int:
        """Number of student neurons."""
        return int(self.Q.shape[-1])

    @property
    def k(self) -> int:
        """Number of target directions."""
        return int(self.M.shape[-1])

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the leading axes: () for a single start."""
        return tuple(self.Q.shape[: self.Q.ndim - self.P.ndim])

    @property
    def blocks(self) -> int | None:
        """Number of blocks, where the overlaps are given in blocks."""
        return int(self.P.shape[0]) if self.P.ndim == 3 else None

    def fields(self, inputs: Inputs) -> Overlaps:
        """Covariance of the fields, Σ_i s_i Ω⁽ⁱ⁾, as plain overlaps; s_i are the
        variances of the ``inputs``.

        Examples
        --------
        >>> start = Overlaps.in_blocks(
        ...     Q=[[[0.4]], [[0.6]]], M=[[[0.1]], [[0.2]]], P=[[[0.5]], [[0.5]]]
        ... )
        >>> start.fields(Inputs.blocks([1.6, 0.6], [0.4, 0.6])).M.round(3).tolist()
        [[0.28]]
        """
        if self.blocks is None:
            return self
        s = np.asarray(inputs.variances)
        Q, M, P = (np.einsum("i,...ijl->...jl", s, x) for x in (self.Q, self.M, self.P))
        return Overlaps.unchecked(Q, M, P, self.a, self.dim)

    @property
    def Q_perp(self) -> np.ndarray:
        """Q⊥ = Q − M P⁺ Mᵀ, the overlaps of the parts orthogonal to the target
        directions.
        """
        return self.Q - self.M @ pseudo_inverse(self.P) @ self.M.swapaxes(-1, -2)

    @property
    def principal(self) -> np.ndarray:
        """Cosines σ_1 ≥ σ_2 ≥ … of the principal angles between the span of the student
        rows and that of the target directions, (..., rank of P).

        Each unit vector of the target span has at least the overlap σ_r with the
        student span. Where there are fewer rows than directions the last ones are 0.

        Examples
        --------
        >>> Overlaps(Q=[[1.0, 0.0], [0.0, 1.0]], M=[[0.6], [0.6]]).principal.round(3)
        array([0.849])
        """
        return principal_overlaps(self.Q, self.M @ factor_of(self.P)[1].T)

    def decompose(self) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates M P⁺ of the rows in the target directions, and Q⊥.

        Examples
        --------
        >>> inside, perp = Overlaps(Q=[[1.0]], M=[[0.6]]).decompose()
        >>> inside.tolist(), perp.round(3).tolist()
        ([[0.6]], [[0.64]])
        """
        return np.asarray(self.M @ pseudo_inverse(self.P)), self.Q_perp

    def factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """L_P (k, r), A (..., p, r) and B (..., p, p) with P = L_P L_Pᵀ, M = A L_Pᵀ and
        Q = A Aᵀ + B Bᵀ.

        r is the rank of P; rows of (A, B) are the weights in an orthonormal basis whose
        first r vectors span the target directions.
        """
        L_P, inverse = factor_of(self.P)
        A = self.M @ np.swapaxes(inverse, -1, -2)
        return L_P, A, host_root(self.Q - A @ np.swapaxes(A, -1, -2))

    @classmethod
    def random(
        cls,
        problem: Problem,
        dim: int,
        seed: int = 0,
        size: int | None = None,
        law: str = "sphere",
        first: int = 0,
        P: Array | None = None,
    ) -> Overlaps:
        """Exact law of the overlaps of a random initialisation, without any vector of
        length dim.

        Parameters
        ----------
        problem : Problem
            Gives p, k and the target's own overlaps P.
        dim : int
            d.
        seed : int
            Which start, or which set of them: the same number gives the same start.
        size : int, optional
            Draw this many independent starts, on a leading axis.
        law : str
            ``"sphere"``: rows uniform on the unit sphere; ``"hemisphere"``: on the half
            of it where their overlap with the first target direction is positive;
            ``"gaussian"``: rows N(0, I_d/d). With inputs of several variances the
            overlap that counts is the covariance of the fields, and the target's
            directions are spread evenly over all dimensions: P⁽ⁱ⁾ ∝ d_i, or of random
            law in blocks of fewer dimensions than it has directions.
        first : int
            Number of the first start: those from ``first`` on are drawn, each as it is
            in any larger set.
        P : array (blocks, k, k), optional
            How the target lies in the blocks of the inputs, if not evenly.

        Examples
        --------
        >>> start = Overlaps.random(
        ...     Problem("He2(z1)", "He2", width=2), dim=10_000, seed=1
        ... )
        >>> start.Q.diagonal().round(12).tolist()
        [1.0, 1.0]
        """
        from twolayer.numerics import random
        from twolayer.numerics.wishart import draw_factor

        expect(Problem, "problem", problem)
        choice("law", law, LAWS)
        count = 1 if size is None else positive_integer("size", size)
        check_size("Argument `size`", 32 * count * problem.p * (problem.p + problem.k))
        runs = positive_integer("first", first, 0) + np.arange(count)
        if not problem.inputs.plain:
            found = _random_in_blocks(
                problem, positive_integer("dim", dim), seed, runs, law, P
            )
            return found[0] if size is None else found
        require(
            P is None,
            "P",
            P,
            "None for inputs N(0, I): the target's overlaps are the `gram` of the"
            " problem",
        )
        rank = rank_of(problem.P)
        dim = sum(problem.inputs.sizes(dim))
        require(
            dim >= rank,
            "dim",
            dim,
            f"at least the {rank} independent directions of the target",
        )
        p, rest = problem.p, dim - rank
        frame = factor_of(problem.P)[0]
        A = random.host_normal(seed, random.Role.START, p * rank, 2 * runs).reshape(
            len(runs), p, rank
        )
        B = draw_factor(seed, random.Role.START, p, rest, 2 * runs + 1)
        norm = (
            np.full(A.shape[:2], np.sqrt(dim))
            if law == "gaussian"
            else np.sqrt((A**2).sum(-1) + (B**2).sum(-1))
        )
        if law == "hemisphere":
            norm = np.where(A @ frame[0] < 0, -norm, norm)
        A, B = A / norm[..., None], B / norm[..., None]
        Q = A @ np.swapaxes(A, -1, -2) + B @ np.swapaxes(B, -1, -2)
        if law != "gaussian":
            Q[:, np.arange(p), np.arange(p)] = 1.0
        a = problem.a(seed, runs)
        M = A @ frame.T
        if size is None:
            Q, M, a = Q[0], M[0], a[0]
        return cls(Q, M, problem.P, a, dim)

    @classmethod
    def in_blocks(
        cls,
        Q: Array,
        M: Array,
        P: Array,
        a: Array | None = None,
        dim: int | None = None,
    ) -> Overlaps:
        """Overlaps for inputs of several variances: Gram matrices of the parts of all
        rows in each block.

        Parameters
        ----------
        Q : array (..., blocks, p, p)
            Euclidean: Σ_i Q⁽ⁱ⁾_jj is the squared norm of row j, whatever the variances.
        M : array (..., blocks, p, k)
            Inner products of the parts of student and target rows in each block.
        P : array (blocks, k, k)
            How the target's directions lie in the blocks; Σ_i s_i P⁽ⁱ⁾ is the `gram` of
            the problem.
        a : array (..., p), optional
            Second layer; by default what the problem says.
        dim : int, optional
            Dimension these overlaps come from, if any.

        Examples
        --------
        >>> Overlaps.in_blocks(
        ...     Q=[[[0.4]], [[0.6]]], M=[[[0.1]], [[0.2]]], P=[[[0.5]], [[0.5]]]
        ... )
        Overlaps(p=1, k=1, blocks=2)
        """
        P, Q = finite_array("P", P), finite_array("Q", Q)
        require(P.ndim == 3, "P", P, "an array (blocks, k, k)")
        require(Q.ndim >= 3, "Q", Q, "an array (..., blocks, p, p)")
        return cls(Q, M, P, a, dim)

    @classmethod
    def from_weights(cls, W: Array, W_star: Array, a: Array | None = None) -> Overlaps:
        """Overlaps of explicit weights: rows ``W`` (p, d) of the student's first layer,
        directions ``W_star`` (k, d).

        The second layer ``a`` (p,) is by default what the problem says.

        Examples
        --------
        >>> Overlaps.from_weights([[1.0, 0.0, 0.0]], [[0.6, 0.8, 0.0]]).M.tolist()
        [[0.6]]
        """
        W, W_star = finite_array("W", W), finite_array("W_star", W_star)
        require(W.ndim == 2, "W", W.tolist(), "a matrix (p, d)")
        if W_star.ndim != 2 or W_star.shape[1] != W.shape[1]:
            raise InputError(
                f"Argument `W_star` must be a matrix (k, {W.shape[1]}) like W, but has"
                f" shape {W_star.shape}."
            )
        return cls(W @ W.T, W @ W_star.T, W_star @ W_star.T, a, W.shape[1])

    @classmethod
    def unchecked(
        cls, Q: object, M: object, P: object, a: object, dim: int | None = None
    ) -> Overlaps:
        """Overlaps from arrays of JAX, ``Q``, ``M``, ``P``, ``a`` and ``dim``, that are
        taken on trust.
        """
        return _unflatten(dim, (Q, M, P, a))

    def __getitem__(self, index: int | slice | np.ndarray) -> Overlaps:
        """One start, or some, of several."""
        if not self.batch:
            raise InputError(
                "Overlaps of a single start cannot be indexed: they have no leading"
                " axis."
            )
        return _unflatten(
            self.dim,
            (
                self.Q[index],
                self.M[index],
                self.P,
                None if self.a is None else self.a[index],
            ),
        )

    def _repr_html_(self) -> str:
        from twolayer.task.notebook import overlaps_html

        return overlaps_html(self)

    def __repr__(self) -> str:
        blocks = f", blocks={self.blocks}" if self.blocks else ""
        many = f", starts={self.batch[0]}" if self.batch else ""
        where = f", dim={self.dim}" if self.dim else ""
        return f"Overlaps(p={self.p}, k={self.k}{blocks}{many}{where})"


def pseudo_inverse(P: np.ndarray) -> np.ndarray:
    """P⁺ of a Gram matrix."""
    return np.asarray(np.linalg.pinv(P, rcond=TOLERANCE, hermitian=True))


def principal_overlaps(Q: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Cosines of the principal angles between rows of Gram matrix Q (..., p, p) and an
    orthonormal frame in which they have coordinates A (..., p, r): the square roots of
    the eigenvalues of Aᵀ Q⁺ A, the largest first.
    """
    inverse = np.linalg.pinv(Q, rcond=DEPENDENT, hermitian=True)
    squares = np.linalg.eigvalsh(np.swapaxes(A, -1, -2) @ inverse @ A)[..., ::-1]
    return np.asarray(np.sqrt(np.clip(squares, 0.0, 1.0)))


def factor_of(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L (k, r) with P = L Lᵀ and its left inverse (r, k)."""
    values, vectors = np.linalg.eigh((P + P.T) / 2)
    keep = values > TOLERANCE * max(values[-1], 1e-300)
    if np.array_equal(P, np.eye(len(P))):
        return np.eye(len(P)), np.eye(len(P))
    root = np.sqrt(values[keep])
    return vectors[:, keep] * root, (vectors[:, keep] / root).T


def rank_of(P: np.ndarray) -> int:
    """The number of independent directions of a Gram matrix."""
    return int(np.linalg.matrix_rank(P, rtol=TOLERANCE, hermitian=True))


def check_room(name: str, sizes: Sequence[int], ranks: Sequence[int]) -> None:
    """Refuse parts of a target that have more directions than their blocks."""
    for i, (n, r) in enumerate(zip(sizes, ranks, strict=True), 1):
        if n < r:
            raise InputError(
                f"Argument `{name}` must fit into the blocks, but block {i} has {n}"
                f" dimensions and P⁽{i}⁾ has rank {r}."
            )


def check_target(name: str, problem: Problem, P: np.ndarray) -> None:
    """Refuse parts of a target whose fields have another covariance than the problem
    says.

    >>> check_target(
    ...     "P",
    ...     Problem("z1", "erf", inputs=Inputs.blocks([2, 1], [0.5, 0.5])),
    ...     np.ones((2, 1, 1)),
    ... )
    Traceback (most recent call last):
    twolayer.InputError: Argument `P` must have Σ_i s_i P⁽ⁱ⁾ = [[1.0]], the `gram` of
    the problem, but has [[3.0]].
    """
    found = np.einsum("i,ijl->jl", np.asarray(problem.inputs.variances), P)
    if not np.allclose(found, problem.P, atol=1e-8):
        raise InputError(
            f"Argument `{name}` must have Σ_i s_i P⁽ⁱ⁾ = {problem.P.tolist()}, the"
            f" `gram` of the problem, but has {found.round(6).tolist()}."
        )


def _checked(
    Q: np.ndarray, M: np.ndarray, P: np.ndarray, a: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Q and P made symmetric and a for every start, or the error that says why no
    vectors have these overlaps.
    """
    k = M.shape[-1]
    require(
        np.allclose(Q, np.swapaxes(Q, -1, -2), atol=TOLERANCE),
        "Q",
        Q.tolist(),
        "symmetric",
    )
    require(
        np.allclose(P, np.swapaxes(P, -1, -2), atol=TOLERANCE),
        "P",
        P.tolist(),
        "symmetric",
    )
    _check_positive("P", P, "P must be positive semidefinite")
    _check_positive("Q", Q, "Q must be positive semidefinite")
    omega = np.block(
        [[Q, M], [np.swapaxes(M, -1, -2), np.broadcast_to(P, (*Q.shape[:-2], k, k))]]
    )
    _check_positive(
        "M",
        omega,
        "M must be compatible with Q and P (the covariance (Q, M; Mᵀ, P) is positive"
        " semidefinite)",
    )
    layer = (
        None
        if a is None
        else np.broadcast_to(a, (*Q.shape[: Q.ndim - P.ndim], Q.shape[-1]))
    )
    return (Q + np.swapaxes(Q, -1, -2)) / 2, (P + np.swapaxes(P, -1, -2)) / 2, layer


def _target_in_blocks(
    problem: Problem, sizes: tuple[int, ...], seed: int
) -> np.ndarray:
    """P⁽ⁱ⁾ (blocks, k, k) of directions that are spread evenly over all dimensions,
    with Σ_i s_i P⁽ⁱ⁾ = P.
    """
    from twolayer.numerics import random

    s, d = np.asarray(problem.inputs.variances), sum(sizes)
    L = factor_of(problem.P)[0]
    rank = L.shape[1]
    require(
        d >= rank, "dim", d, f"at least the {rank} independent directions of the target"
    )
    if min(sizes) >= rank:
        share = np.asarray(sizes) / d
        return np.asarray((share / (s @ share))[:, None, None] * problem.P)
    # a block of fewer dimensions than directions has those of rows drawn at random
    parts, at = [], 0
    draws = random.host_normal(
        seed, random.Role.TARGET, rank * sum(n for n in sizes if n < rank)
    )
    for n in sizes:
        rows = (
            draws[at : at + n * rank].reshape(rank, n)
            if n < rank
            else np.sqrt(n) * np.eye(rank)
        )
        at += n * rank if n < rank else 0
        parts.append(rows @ rows.T / d)
    even = np.stack(parts)
    values, vectors = np.linalg.eigh(np.einsum("i,ijl->jl", s, even))
    require(
        values[0] > 1e-12 * values[-1],
        "dim",
        d,
        f"more, for the {rank} directions of the target to differ",
    )
    T = L @ (vectors / np.sqrt(values)) @ vectors.T
    return T @ even @ T.T


def _random_in_blocks(
    problem: Problem, dim: int, seed: int, runs: np.ndarray, law: str, given: object
) -> Overlaps:
    """Random starts for inputs of several variances, exact in law: rows are drawn
    without regard to the variances.

    In block i the coordinates along the target's parts are normals (p, k_i), and what
    is outside them has a Gram matrix of Wishart law with d_i − k_i degrees of freedom;
    rows are then divided by their norms over all blocks.
    """
    from twolayer.numerics import random
    from twolayer.numerics.wishart import GramFactor, factor_from

    p, sizes = problem.p, problem.inputs.sizes(dim)
    P = (
        _target_in_blocks(problem, sizes, seed)
        if given is None
        else finite_array("P", given)
    )
    require(
        P.shape == (len(sizes), problem.k, problem.k),
        "P",
        P,
        f"an array {(len(sizes), problem.k, problem.k)}",
    )
    check_target("P", problem, P)
    frames = [factor_of(one)[0] for one in P]
    ranks = [L.shape[1] for L in frames]
    check_room("P", sizes, ranks)
    outside = [GramFactor(p, n - r) for n, r in zip(sizes, ranks, strict=True)]
    cuts = np.cumsum(
        [
            n
            for r, factor in zip(ranks, outside, strict=True)
            for n in (p * r, factor.draws)
        ]
    )
    pieces = np.split(
        random.host_normal(seed, random.Role.START, int(cuts[-1]), 2 * runs),
        cuts[:-1],
        axis=-1,
    )
    rows = []
    for i, (r, factor) in enumerate(zip(ranks, outside, strict=True)):
        A = pieces[2 * i].reshape(len(runs), p, r)
        rows.append((A, factor_from(factor, pieces[2 * i + 1])))
    square = sum((A**2).sum(-1) + (B**2).sum(-1) for A, B in rows)
    norm = np.full(square.shape, np.sqrt(dim)) if law == "gaussian" else np.sqrt(square)
    if law == "hemisphere":
        first = sum(
            s * A @ L[0]
            for s, (A, _), L in zip(problem.inputs.variances, rows, frames, strict=True)
        )
        norm = np.where(first < 0, -norm, norm)
    Q = np.stack(
        [A @ A.swapaxes(-1, -2) + B @ B.swapaxes(-1, -2) for A, B in rows], axis=1
    )
    M = np.stack([A @ L.T for (A, _), L in zip(rows, frames, strict=True)], axis=1)
    scale = 1 / norm[:, None, :, None]
    return Overlaps(
        Q * scale * scale.swapaxes(-1, -2), M * scale, P, problem.a(seed, runs), dim
    )


def _check_positive(name: str, matrix: np.ndarray, message: str) -> None:
    lowest = float(np.linalg.eigvalsh(matrix).min())
    if lowest < -TOLERANCE * max(1.0, float(np.abs(matrix).max())):
        raise InputError(
            f"Argument `{name}`: {message}, but its smallest eigenvalue is"
            f" {lowest:.3g}."
        )


def _flatten(start: Overlaps) -> tuple[tuple[object, ...], int | None]:
    return (start.Q, start.M, start.P, start.a), start.dim


def _unflatten(dim: int | None, leaves: tuple[object, ...]) -> Overlaps:
    """Leaves may be anything JAX puts in place of numbers, so nothing is checked."""
    start = object.__new__(Overlaps)
    for name, value in zip(("Q", "M", "P", "a", "dim"), (*leaves, dim), strict=True):
        object.__setattr__(start, name, value)
    return start


_registered = False


def register() -> None:
    """Tell JAX that overlaps are a pytree, as soon as somebody has imported it."""
    global _registered
    jax = sys.modules.get("jax")
    if jax is not None and not _registered:
        _registered = True
        jax.tree_util.register_pytree_node(Overlaps, _flatten, _unflatten)


register()
