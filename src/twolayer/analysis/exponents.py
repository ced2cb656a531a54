"""Information, leap and generative exponents, and the staircase a target offers to
large batches.

    C_q(u) = E[ y He_q(z_V) | z_U = u ]
        what is still invisible (V) once U is known
    leap:  U ← U + span_u range C_q(u),
           q the smallest order that is not identically zero;  leap = max q
    generative: the same with y replaced by every function of y:
        E[ He_q(z_V) | y, z_U ]

All conditions are tested on the moments E[ T_b(y) ψ_β(z_U) h_α(z_V) ], |α| = q, with ψ
and h orthonormal Hermite products and T_b(y) = y, or the Legendre polynomials of the
rank of y in the generative case. No coordinate plays a role: new directions are the
left singular vectors of the unfolded tensors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from twolayer.analysis.directions import complement, sparse_basis, varies, written
from twolayer.analysis.target_coordinates import framed, told_frame
from twolayer.functions.activation import Activation
from twolayer.functions.hermite import gauss_panels, hermite_table
from twolayer.functions.target import Target, TargetLike
from twolayer.numerics.arguments import Array
from twolayer.numerics.errors import reject
from twolayer.numerics.quadrature_rules import (
    draw_sobol_normals,
    hermite_rule,
    product_rule,
)
from twolayer.numerics.statistics import standard_error
from twolayer.task.algorithm import SGD
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem
from twolayer.task.rules import Rule
from twolayer.task.scaling import Scaling

if TYPE_CHECKING:
    from twolayer.functions.activation import ActivationLike

__all__ = ["Analysis", "Staircase", "TargetNodes", "analyse", "nodes_of"]

REPLICATES, LOG2_POINTS = 8, 14
LEGENDRE = 8  # functions of y tested in the generative case
COUPLING = 4  # degree in what is already learned, for sampled averages
FLOOR = 4e-3  # below this a sampled moment counts as zero
MAX_GRID = 700_000
GENERIC = "tanh(z + 0.7)"  # an activation with all Hermite coefficients


@dataclass(frozen=True)
class TargetNodes:
    """Weighted points for averages over z ~ N(0, I_k); replicates give the error of a
    sampled average.
    """

    points: np.ndarray
    weights: np.ndarray
    label: np.ndarray
    replicates: int
    tolerance: float
    coupling: int
    max_order: int

    def moments(
        self, left: np.ndarray, right: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """E[left_a right_b] with the threshold below which it counts as zero."""
        if self.replicates == 1:
            value = (left * self.weights) @ right.T
            return value, np.full(value.shape, self.tolerance)
        parts = np.stack(
            [
                a @ b.T / a.shape[1]
                for a, b in zip(
                    np.split(left, self.replicates, 1),
                    np.split(right, self.replicates, 1),
                    strict=True,
                )
            ]
        )
        error = standard_error(parts)
        return parts.mean(0), np.maximum(6 * error, self.tolerance)


def multi_indices(k: int, order: int) -> list[tuple[int, ...]]:
    """Multi-indices of k entries with the given sum."""
    return [
        tuple(combination.count(i) for i in range(k))
        for combination in itertools.combinations_with_replacement(range(k), order)
    ]


def _products(tables: np.ndarray, indices: list[tuple[int, ...]]) -> np.ndarray:
    """Rows Π_i h_{α_i}(x_i) from tables (degree, k, points)."""
    rows = np.ones((len(indices), tables.shape[2]))
    for row, alpha in zip(rows, indices, strict=True):
        for i, n in enumerate(alpha):
            if n:
                row *= tables[n, i]
    return rows


def _hermite_products(
    x: np.ndarray, orders: range
) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """All Hermite products of the columns of x (points, m) with total order in the
    range.
    """
    indices = [alpha for q in orders for alpha in multi_indices(x.shape[1], q)]
    return _products(hermite_table(max(orders), x.T), indices), indices


def _exact_nodes(target: Target) -> TargetNodes | None:
    """Gauss–Hermite points on which every moment of a polynomial target is exact."""
    assert target.polynomial is not None
    k, degree = target.directions, max((sum(a) for a in target.polynomial), default=0)
    # y ψ_β h_α has degree 3 deg(y) along an axis unless the known directions are axes,
    # then 2 deg(y)
    count = next(
        (n for n in (3 * degree // 2 + 1, degree + 1) if n**k <= MAX_GRID), None
    )
    if count is None or degree < 1:
        return None
    grid, weights = hermite_rule([count] * k)
    return TargetNodes(
        grid, weights, _label(target, grid, weights), 1, 1e-9, degree, degree
    )


def _quadrature_nodes(target: Target) -> TargetNodes | None:
    """A grid of rules split at the kinks, so fine that the low moments of y do not
    change on a coarser one; or None.
    """
    if target.kinks is None:
        return None
    k = target.directions
    order, panels = {1: (60, 24), 2: (16, 24), 3: (10, 8)}.get(k, (0, 0))
    if not order:
        return None
    coarse = None
    for n in (max(order * 3 // 4, 2), order):
        rules = [gauss_panels(kinks, n, panels) for kinks in target.kinks]
        if math.prod(len(x) for x, _ in rules) > MAX_GRID:
            return None
        points, weights = product_rule(rules, negligible=1e-17)
        label = _label(target, points, weights)
        low, _ = _hermite_products(points, range(1, 4))
        fine = (low * weights) @ label
        if coarse is not None:
            error = float(np.abs(fine - coarse).max())
            if error < 1e-6:
                return TargetNodes(
                    points,
                    weights,
                    label,
                    1,
                    max(1e-6, 30 * error),
                    6,
                    12 if k == 1 else 8,
                )
        coarse = fine
    return None


def _sobol_nodes(target: Target) -> TargetNodes:
    k = target.directions
    points = np.concatenate(
        [draw_sobol_normals(k, LOG2_POINTS, seed=r, bits=30) for r in range(REPLICATES)]
    )
    weights = np.full(len(points), 1 / len(points))
    return TargetNodes(
        points,
        weights,
        _label(target, points, weights),
        REPLICATES,
        FLOOR,
        COUPLING,
        6 if k <= 3 else 4,
    )


def nodes_of(target: Target) -> TargetNodes:
    """Points for averages over the fields of a target: exact rules for polynomials,
    rules split at the kinks, or Sobol points.
    """
    found = (
        _exact_nodes(target)
        if target.polynomial is not None
        else _quadrature_nodes(target)
    )
    return found or _sobol_nodes(target)


def _label(target: Target, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The label at points, centred and with variance one; zero if it is constant."""
    y = target.on_host(points)
    centred = y - weights @ y
    scale = math.sqrt(max(weights @ centred**2, 0.0))
    return centred / scale if scale > 1e-12 else np.zeros_like(y)


def _rank_functions(label: np.ndarray) -> np.ndarray:
    """Legendre polynomials of the mid-rank of y: a basis of the functions of y, ties
    kept together.
    """
    from scipy.stats import rankdata

    rank = rankdata(np.round(label, 9), method="average")
    x = 2 * (rank - 0.5) / len(rank) - 1
    return np.stack(
        [
            math.sqrt(2 * n + 1) * np.polynomial.legendre.Legendre.basis(n)(x)
            for n in range(1, LEGENDRE + 1)
        ]
    )


def _unfold(moments: np.ndarray, alphas: list[tuple[int, ...]], q: int) -> np.ndarray:
    """Unfold the symmetric tensors with entries √α!·moment into dim V × everything
    else.
    """
    m = len(alphas[0])
    position = {alpha: i for i, alpha in enumerate(alphas)}
    columns = []
    for rest in itertools.combinations_with_replacement(range(m), q - 1):
        rows = []
        for i in range(m):
            alpha = tuple((i, *rest).count(j) for j in range(m))
            scale = math.sqrt(math.prod(math.factorial(n) for n in alpha))
            rows.append(scale * moments[:, position[alpha]])
        columns.append(np.stack(rows))
    return np.concatenate(columns, 1)


def _new_directions(
    nodes: TargetNodes,
    tests: np.ndarray,
    known: np.ndarray,
    orders: range,
    couple: Callable[[int], bool],
    unused: np.ndarray | None = None,
) -> tuple[int, np.ndarray] | None:
    """The smallest order at which something outside the known directions shows, and the
    directions.

    ``couple(n)`` says whether products with Hermite polynomials of degree n in the
    known directions count; ``unused`` directions are known not to enter.
    """
    k = nodes.points.shape[1]
    hidden = complement(known if unused is None else np.concatenate([known, unused]), k)
    if not len(hidden):
        return None
    left = tests if couple(0) else tests[:0]
    if len(known):
        psi, betas = _hermite_products(
            nodes.points @ known.T, range(nodes.coupling + 1)
        )
        psi = psi[[couple(sum(beta)) for beta in betas]]
        left = (tests[:, None, :] * psi[None, :, :]).reshape(-1, tests.shape[1])
    tables = hermite_table(max(orders), nodes.points @ hidden.T).transpose(0, 2, 1)
    for q in orders:
        alphas = multi_indices(len(hidden), q)
        moments, threshold = nodes.moments(left, _products(tables, alphas))
        moments = np.where(np.abs(moments) > threshold, moments, 0.0)
        if not moments.any():
            continue
        unfolded = _unfold(moments, alphas, q)
        u, s, _ = np.linalg.svd(unfolded, full_matrices=False)
        cut = 0.03 if nodes.replicates > 1 else 1e-4
        return q, sparse_basis(u[:, s > cut * s[0]].T @ hidden)
    return None


Chain = list[tuple[int, int]]


def _leap_chain(
    nodes: TargetNodes, tests: np.ndarray, unused: np.ndarray | None = None
) -> tuple[Chain, np.ndarray]:
    known = np.zeros((0, nodes.points.shape[1]))
    chain: Chain = []
    while found := _new_directions(
        nodes, tests, known, range(1, nodes.max_order + 1), lambda n: True, unused
    ):
        chain.append((found[0], len(found[1])))
        known = np.concatenate([known, found[1]])
    return chain, known


class Staircase(list[int | None]):
    """Step at which each direction is learned (None: never), with the directions as
    rows.

    >>> analyse("z1 + z1*z2").staircase()
    [1, 2]
    >>> print(analyse("He2(z1)*z2").staircase(reuse=True))
    (0, 1) at step 2; (1, 0) never
    """

    directions: np.ndarray

    def __init__(self, steps: list[int | None], directions: np.ndarray) -> None:
        super().__init__(steps)
        self.directions = directions

    def __str__(self) -> str:
        """Every direction with its step."""
        when = ("never" if step is None else f"at step {step}" for step in self)
        rows = zip(self.directions, when, strict=True)
        return (
            "; ".join(f"{written(row)} {word}" for row, word in rows) or "no direction"
        )


@dataclass(frozen=True)
class Analysis:
    """What SGD can see of a target, and in which order. Made by `analyse`.

    Attributes
    ----------
    information : int or None
        Smallest q ≥ 1 with E[y He_q(z)] ≠ 0; None if y is constant or nothing shows up
        to the largest order.
    leap : int or None
        Largest jump of the chain; None if a direction that enters was not reached.
    chain : list of (order, number of new directions)
    directions : array (n, k)
        Orthonormal rows in the order learned.
    unused : array (m, k)
        Orthonormal rows that do not enter the target.
    unresolved : array (m, k)
        Directions that enter, but only beyond the orders or below the size that the
        search resolves.
    tolerance : float
        Smallest moment (for y of unit variance) that the chain can see.
    effective_fraction : float
        d_eff/d, d_eff = tr Σ/‖Σ‖ of the inputs: exponents count powers of d_eff for
        targets in the directions of largest variance, whatever lies elsewhere is
        slower.
    even_fraction : float
        (tr Σ)²/(d tr Σ²), the same for targets that are spread evenly over all
        directions.
    frame : array (k, r)
        L of λ* = L u, P = L Lᵀ: ``target`` and all directions are in the coordinates u.
        The identity if P is.
    """

    target: Target
    information: int | None
    leap: int | None
    chain: Chain
    directions: np.ndarray
    unused: np.ndarray
    unresolved: np.ndarray
    tolerance: float
    _nodes: TargetNodes = field(repr=False)
    frame: np.ndarray
    effective_fraction: float = 1.0
    even_fraction: float = 1.0

    @property
    def latex(self) -> str:
        """The target as LaTeX."""
        return self.target.latex

    @cached_property
    def _sampled(self) -> tuple[TargetNodes, np.ndarray]:
        nodes = _sobol_nodes(self.target)
        return nodes, _rank_functions(nodes.label)

    @cached_property
    def _generative(self) -> tuple[Chain, np.ndarray]:
        return _leap_chain(*self._sampled, self.unused)

    @property
    def generative_chain(self) -> Chain:
        """The chain when any function of y may be used, as with reused data."""
        return self._generative[0]

    @property
    def generative(self) -> int | None:
        """Generative exponent: first order of the generative chain."""
        chain = self.generative_chain
        return chain[0][0] if chain else None

    @property
    def generative_leap(self) -> int | None:
        """Largest order of the generative chain; None if it misses a direction that
        enters.
        """
        chain = self.generative_chain
        complete = sum(n for _, n in chain) == self.target.directions - len(self.unused)
        return max(q for q, _ in chain) if chain and complete else None

    @property
    def generative_directions(self) -> np.ndarray:
        """Orthonormal rows in the order in which reused data reveal them."""
        return self._generative[1]

    @cached_property
    def hermite(self) -> dict[tuple[int, ...], float]:
        """Non-zero coefficients E[h(z) Π_i h_{α_i}(z_i)] by multi-index α, up to order
        6 (degree, if polynomial).
        """
        target, nodes = self.target, self._nodes
        order = (
            min(nodes.max_order, 6) if target.polynomial is None else nodes.max_order
        )
        y = target.on_host(nodes.points)
        products, indices = _hermite_products(nodes.points, range(order + 1))
        values, _ = nodes.moments(y[None], products)
        least = nodes.tolerance * (float(np.sqrt(nodes.weights @ y**2)) or 1.0)
        return {
            alpha: float(c)
            for alpha, c in zip(indices, values[0], strict=True)
            if abs(c) > least
        }

    def staircase(
        self,
        activation: ActivationLike | None = None,
        reuse: bool = False,
        loss: str | Loss = "squared",
        rule: str | Rule | None = None,
    ) -> Staircase:
        """Step at which giant steps (n = αd samples each) learn each direction.

        Fresh batches and a push linear in y climb order by order 1 only: U ← U + span_u
        E[y z_V | z_U = u]. An activation transfers a coupling of degree n in what is
        known only if its Hermite coefficient c_{n+1} is not zero. Reused batches see
        every function of y from the second step on, and losses and rules that are not
        linear in y see more than y at once. How much of it a given activation can
        express depends on what target, activation and push have in common (an even σ
        never tells w from −w, an odd one cannot climb z1 + sign(z1*z2)): there the push
        of a sample is averaged, by `learnable`.

        Parameters
        ----------
        activation : str or callable or Activation, optional
            None stands for an activation with all Hermite coefficients non-zero.
        reuse : bool
            Whether the same batch is used at every step.
        loss, rule : str, Loss and Rule, optional
            As for `SGD`.

        Examples
        --------
        >>> analyse("z1 + z1*z2").staircase("erf")
        [1, None]
        >>> analyse("He3(z1)").staircase(), analyse("He3(z1)").staircase(reuse=True)
        ([None], [2])
        >>> analyse("He3(z1)").staircase(rule="clip(0.5)")
        [1]
        """
        loss, rule = Loss.of(loss), Rule.of(rule)
        bent = loss.student is None or (rule is not None and rule.push is not None)
        if bent or (reuse and activation is not None):
            return self._staircase_of_push(activation, reuse, loss, rule)
        coefficients = None
        if activation is not None:
            coefficients = np.abs(Activation.of(activation).hermite(13))

        def transfers(n: int) -> bool:
            return coefficients is None or bool(
                coefficients[n + 1] > 1e-8 * coefficients.max()
            )

        k = self.target.directions
        known: np.ndarray = np.zeros((0, k))
        steps: list[int | None] = []
        for step in itertools.count(1):
            if reuse and step > 1:
                found = _new_directions(
                    *self._sampled, known, range(1, 2), lambda n: True, self.unused
                )
            else:
                found = _new_directions(
                    self._nodes, self._nodes.label[None], known, range(1, 2), transfers
                )
            if found is not None:
                known, steps = (
                    np.concatenate([known, found[1]]),
                    [*steps, *[step] * len(found[1])],
                )
            elif step > 1 or not reuse:
                break
        never = complement(known, k)
        never = never[
            [float(np.linalg.norm(self.unused @ row)) <= 0.99 for row in never]
        ]
        return Staircase([*steps, *[None] * len(never)], np.concatenate([known, never]))

    def _staircase_of_push(
        self,
        activation: ActivationLike | None,
        reuse: bool,
        loss: Loss,
        rule: Rule | None,
    ) -> Staircase:
        """The staircase from the averaged push of a sample."""
        from twolayer.analysis.learnable import learnable  # loads JAX and the methods

        # two neurons of opposite signs: nothing is left out by a symmetry between them
        problem = Problem(
            self.target, activation or GENERIC, width=2, second_layer=[1.0, -1.2]
        )
        batch = Scaling(3.0, 1.0)
        algorithm = SGD(1.0, batch, loss, dataset=batch if reuse else None, rule=rule)
        found = learnable(problem, algorithm)
        return Staircase(found.steps, found.directions)

    def __repr__(self) -> str:
        numbers = (
            f"information={self.information}, leap={self.leap},"
            f" generative={self.generative}"
        )
        return f"Analysis({self.target.name!r}, {numbers})"

    def _repr_html_(self) -> str:
        from twolayer.analysis.exponents_card import analysis_html

        return analysis_html(self)

    def __str__(self) -> str:
        def along(directions: np.ndarray) -> str:
            return f" along {written(*directions)}" if len(directions) else ""

        seen, made = along(self.directions), along(self.generative_directions)
        lines = [
            f"target                 {self.target.name}",
            f"information exponent   {self.information}",
            f"leap                   {self.leap}   chain {self.chain}{seen}",
            (
                f"generative exponent    {self.generative}   leap"
                f" {self.generative_leap}   chain {self.generative_chain}{made}"
            ),
            f"fresh batches          {self.staircase()}",
            f"reused batches         {self.staircase(reuse=True)}",
        ]
        if told := told_frame(self.frame):
            lines.append(f"coordinates            {told}")
        if self.effective_fraction != 1:
            lines.append(
                f"effective dimension    {self.effective_fraction:.4g} d for directions"
                f" of largest variance, {self.even_fraction:.4g} d for those spread"
                " evenly"
            )
        if len(self.unused):
            lines.append(f"does not enter         {written(*self.unused)}")
        if len(self.unresolved):
            lines.append(
                f"not resolved           {written(*self.unresolved)} (enters beyond"
                f" order {self._nodes.max_order} or below {self.tolerance:.0e})"
            )
        return "\n".join(lines)


def analyse(
    target: TargetLike | Problem,
    directions: int | None = None,
    inputs: object = None,
    gram: Array | None = None,
) -> Analysis:
    """Exponents, leap chain and staircase of a target.

    Polynomials are treated exactly, smooth targets and kinks along the axes by
    quadrature (k ≤ 3), all others and every generative quantity by scrambled Sobol
    points with 6 standard errors. Cost: a second or two for k ≤ 3.

    Parameters
    ----------
    target : str or callable or Target or Problem
        As for `Problem`; or a problem, with its Gram matrix and its inputs.
    directions : int, optional
        k, for a callable.
    inputs : Inputs, optional
        The law of the inputs. The fields are Gaussian whatever it is, so exponents,
        leaps and staircases stay; what they are powers of is an effective dimension,
        which the result then tells: tr Σ/‖Σ‖ for targets in the directions of largest
        variance, (tr Σ)²/tr Σ² for those that are spread evenly.
    gram : array (k, k), optional
        P, the covariance of the fields z1, z2, …; the identity by default. Directions
        that overlap help each other: z1 + He3(z2) has leap 3 if they are orthogonal,
        and leap 1 if they are not. With a Gram matrix everything is told in an
        orthonormal frame: its first axis is along w*_1, the second along the part of
        w*_2 that is orthogonal to it, and so on.

    Examples
    --------
    >>> result = analyse("z1 + z1*z2*z3")
    >>> result.information, result.leap, result.chain
    (1, 2, [(1, 1), (2, 2)])
    >>> oblique = analyse("z1 + He3(z2)", gram=[[1, 0.6], [0.6, 1]])
    >>> oblique.leap, oblique.staircase()
    (1, [1, 2])
    """
    given = framed(target, directions, gram, inputs=inputs)
    law = inputs
    if given.problem is not None and not given.problem.inputs.plain:
        law = given.problem.inputs
    fractions: dict[str, Any] = {}
    if law is not None:
        fractions = {
            name: getattr(law, name, None)
            for name in ("effective_fraction", "even_fraction")
        }
        if None in fractions.values():
            reject("inputs", inputs, "Inputs such as Inputs.blocks(…)")
    kept = _analysed(given.target)
    return replace(kept, chain=list(kept.chain), frame=given.frame, **fractions)


@lru_cache(maxsize=16)
def _analysed(target: Target) -> Analysis:
    """The analysis of a target, kept, for it is asked for several times over."""
    nodes = nodes_of(target)
    k = target.directions
    chain, known = (
        _leap_chain(nodes, nodes.label[None])
        if nodes.label.any()
        else ([], np.zeros((0, k)))
    )
    hidden = complement(known, k)
    accuracy = (
        1e-12 if nodes.replicates == 1 else 1e-3
    )  # sampled directions are known to a few 1e-3
    rest_enters = np.array(
        [varies(target.on_host, row[None], accuracy) for row in hidden], dtype=bool
    )
    unused, unresolved = hidden[~rest_enters], hidden[rest_enters]
    information = chain[0][0] if chain else None
    leap = max(q for q, _ in chain) if chain and not len(unresolved) else None
    for directions in (known, unused, unresolved):
        directions.flags.writeable = False  # everyone who asks gets the same ones
    frame = np.eye(k)
    return Analysis(
        target,
        information,
        leap,
        chain,
        known,
        unused,
        unresolved,
        nodes.tolerance,
        nodes,
        frame,
    )
