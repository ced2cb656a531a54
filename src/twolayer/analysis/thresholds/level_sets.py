"""One direction without noise: the points that share a label.

    E[f | y, ω] = Σ_i f(z_i) w_i / Σ_i w_i,   h(z_i) = y,
        w_i = N(z_i; ω, V) / |h'(z_i)|
    an atom y = c:   E[f | c, ω] = ∫_{h = c} f N(z; ω, V) dz / ∫_{h = c} N(z; ω, V) dz

The outer average runs over z itself, so that no grid of y is needed: for each node z
its partners on the other monotone pieces of h are found once, whatever ω and V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from twolayer.analysis.thresholds.graded_panels import gauss_nodes, graded_edges
from twolayer.analysis.thresholds.label_law import ALIKE, LabelLaw
from twolayer.numerics.errors import InputError

__all__ = ["LevelSets", "MonotonePieces", "pieces_of"]

REACH = 8.5  # beyond lies 1e-17 of a Gaussian
GRID = 6801
MOST = 400  # monotone pieces
INSIDE = 1e-10  # how far inside its ends a piece is read: h may jump there
HALVINGS = 60


@dataclass(frozen=True, eq=False)
class MonotonePieces:
    """Where h is monotone: its ends, the values there, and whether it is constant."""

    left: np.ndarray
    right: np.ndarray
    bottom: np.ndarray
    top: np.ndarray
    constant: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        """Folds, kinks and jumps."""
        return self.left[1:]


def pieces_of(law: LabelLaw) -> MonotonePieces:
    """Cut the line at the kinks of h and at the zeros of h'."""
    kinks = np.array([x for x in law.kinks if abs(x) < REACH])
    grid = np.unique(
        np.concatenate(
            [
                np.linspace(-REACH, REACH, GRID) + 1e-5 / math.pi,
                kinks + 1e-9,
                kinks - 1e-9,
            ]
        )
    )
    slope = law.slope(grid)
    turns = np.flatnonzero(slope[1:] * slope[:-1] < 0)
    left, right = grid[turns], grid[turns + 1]
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        same = np.sign(law.slope(middle)) == np.sign(slope[turns])
        left, right = np.where(same, middle, left), np.where(same, right, middle)
    found = (left + right) / 2
    found = found[[bool((np.abs(kinks - x) > 1e-7).all()) for x in found]]
    edges = np.concatenate([[-REACH], np.sort(np.concatenate([kinks, found])), [REACH]])
    if len(edges) > MOST:
        raise InputError(
            f"Argument `target` must have at most {MOST} monotone pieces between"
            f" −{REACH} and {REACH}, but {law.target.name} has {len(edges) - 1}: labels"
            " of such a target cannot be conditioned on."
        )
    a, b = edges[:-1] + INSIDE, edges[1:] - INSIDE
    bottom, top = law.line(a), law.line(b)
    probes = np.abs(
        law.slope(a[:, None] + (b - a)[:, None] * np.linspace(0.05, 0.95, 7))
    )
    return MonotonePieces(a, b, bottom, top, (probes == 0).all(1) & (bottom == top))


class LevelSets:
    """Averages over (ω, y) for one direction without noise, by panels of ``order``
    nodes.
    """

    def __init__(self, law: LabelLaw, order: int = 8) -> None:
        self.law, self.order, self.pieces = law, order, pieces_of(law)

    def roots(self, y: np.ndarray) -> np.ndarray:
        """The point of each moving piece where h = y, or NaN: (labels, pieces)."""
        p = self.pieces
        moving = ~p.constant
        a, b = p.left[moving], p.right[moving]
        bottom, top = p.bottom[moving], p.top[moving]
        inside = (np.minimum(bottom, top) < y[:, None]) & (
            y[:, None] < np.maximum(bottom, top)
        )
        rows, columns = np.nonzero(inside)
        left, right, rising = a[columns], b[columns], (top > bottom)[columns]
        for _ in range(HALVINGS):
            middle = (left + right) / 2
            low = (self.law.line(middle) < y[rows]) == rising
            left, right = np.where(low, middle, left), np.where(low, right, middle)
        out = np.full(inside.shape, np.nan)
        out[rows, columns] = (left + right) / 2
        return out

    @cached_property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Outer nodes and weights, the points of their level sets (nodes, pieces), and
        −log|h'| there.
        """
        p = self.pieces
        moving = np.flatnonzero(~p.constant)
        heights = np.concatenate([p.bottom, p.top])
        partners = self.roots(np.unique(heights))
        special = np.concatenate([p.left, p.right, partners[np.isfinite(partners)]])
        z, w, own = [], [], []
        for column, i in enumerate(moving):
            near = special[
                (special >= p.left[i] - 1e-8) & (special <= p.right[i] + 1e-8)
            ]
            edges = graded_edges(
                p.left[i], p.right[i], near, first=1e-6, growth=1.0, widest=0.5
            )
            x, weight = gauss_nodes(edges[:-1], edges[1:], self.order)
            z.append(x.ravel())
            w.append((weight * np.exp(-(x**2) / 2)).ravel() / math.sqrt(2 * math.pi))
            own.append(np.full(x.size, column))
        if not z:
            return np.zeros(0), np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1))
        points, weights, columns = (
            np.concatenate(z),
            np.concatenate(w),
            np.concatenate(own),
        )
        keep = weights > 1e-20
        points, weights, columns = points[keep], weights[keep], columns[keep]
        there = self.roots(self.law.line(points))
        there[np.arange(len(points)), columns] = points  # to the last digit
        slopes = np.abs(self.law.slope(np.nan_to_num(there)))
        with np.errstate(divide="ignore"):
            steep = np.where(
                np.isfinite(there) & (slopes > 0), -np.log(slopes), -np.inf
            )
        return points, weights, np.nan_to_num(there), steep

    @cached_property
    def _atoms(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Ends of the intervals of each label that has a positive probability."""
        p = self.pieces
        flat = np.flatnonzero(p.constant)
        order = flat[np.argsort(p.bottom[flat])]
        gaps = np.flatnonzero(
            np.diff(p.bottom[order]) > ALIKE * math.sqrt(self.law.variance)
        )
        groups = np.split(order, gaps + 1) if len(order) else []
        out = []
        for group in groups:
            left = np.where(
                p.left[group] < 1e-6 - REACH, -np.inf, p.left[group] - INSIDE
            )
            right = np.where(
                p.right[group] > REACH - 1e-6, np.inf, p.right[group] + INSIDE
            )
            out.append((left, right))
        return out

    def visible(self) -> tuple[float, float]:
        """E[ζ₁²] and E[ζ₂²] with ζ₁ = E[z | y], ζ₂ = E[z² − 1 | y]."""
        _, weights, points, steep = self._nodes
        log = steep - points**2 / 2
        share = np.exp(log - log.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        first = float(weights @ (share * points).sum(1) ** 2)
        second = float(weights @ (share * (points**2 - 1)).sum(1) ** 2)
        for left, right in self._atoms:
            mass = _mass(left, right)
            if mass > 0:
                first += float((_density(left) - _density(right)).sum()) ** 2 / mass
                second += float((_edge(left) - _edge(right)).sum()) ** 2 / mass
        return first, second

    @property
    def sharp(self) -> float:
        """(1 − q) E[g_out²] as q → 1: the probability that y is not an atom, for then
        it pins z down.
        """
        return 1.0 - sum(_mass(left, right) for left, right in self._atoms)

    def fisher(self, q: float) -> float:
        """E[g_out²] at overlap q < 1."""
        if q == 0:
            return self.visible()[0]
        V = 1 - q
        x, w = gauss_nodes(np.arange(-8.0, 8.0), np.arange(-7.0, 9.0), self.order)
        z, weights, points, steep = self._nodes
        total = 0.0
        for xi, weight in zip(
            x.ravel(), (w * _density(x)).ravel(), strict=True
        ):  # ω given z is N(q z, q V)
            omega = (q * z + math.sqrt(q * V) * xi)[:, None]
            log = steep - (points - omega) ** 2 / (2 * V)
            share = np.exp(log - log.max(1, keepdims=True))
            mean = (share * (points - omega)).sum(1) / share.sum(1)
            total += weight * float(weights @ mean**2) / V**2
        return total + self._fisher_of_atoms(q)

    def _fisher_of_atoms(self, q: float) -> float:
        if not self._atoms:
            return 0.0
        scale, reach = math.sqrt(1 - q), REACH * math.sqrt(q)
        ends = np.unique(np.concatenate([np.concatenate(pair) for pair in self._atoms]))
        ends = ends[np.isfinite(ends)]
        edges = graded_edges(
            -reach,
            reach,
            ends,
            first=0.5 * scale,
            growth=0.5,
            widest=0.5 * math.sqrt(q),
        )
        omega, weight = (
            x.ravel() for x in gauss_nodes(edges[:-1], edges[1:], self.order)
        )
        weight = weight * _density(omega / math.sqrt(q)) / math.sqrt(q)
        total = np.zeros_like(omega)
        for left, right in self._atoms:
            a, b = (left - omega[:, None]) / scale, (right - omega[:, None]) / scale
            mass = (np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))).sum(1)
            push = (_density(a) - _density(b)).sum(1) / scale
            total += np.where(mass > 1e-250, push**2 / np.maximum(mass, 1e-250), 0.0)
        return float(weight @ total)


def _density(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _edge(x: np.ndarray) -> np.ndarray:
    """x times the density, zero at infinity."""
    return np.where(np.isfinite(x), x, 0.0) * _density(x)


def _mass(left: np.ndarray, right: np.ndarray) -> float:
    return float((ndtr(right) - ndtr(left)).sum())
