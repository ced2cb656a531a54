"""One direction with noisy labels: averages over (ω, y) by quadrature.

    Z_f(y, ω) = ∫ dz N(z; ω, V) f(z) N(y; h(z), Δ),
        E[g_out²] = V⁻² E_ω ∫ dy Z_{z−ω}² / Z_1

Panels of z are halved until h moves by less than 3√Δ across each; panels of y are 1.5√Δ
wide at the values of h at folds, kinks and at ω, and grow with the distance from them.
"""

from __future__ import annotations

import math

import numpy as np

from twolayer.analysis.thresholds.graded_panels import gauss_nodes, graded_edges
from twolayer.analysis.thresholds.label_law import LabelLaw
from twolayer.analysis.thresholds.level_sets import pieces_of
from twolayer.numerics.errors import InputError

__all__ = ["NoisyLine"]

REACH = 8.5
INNER = 8.0  # √V around ω
MOST = 200_000  # panels of z for one ω
BLOCK = 64  # labels treated at once: few, so that they see few of the points
SEEN = 8.0  # √Δ from h, beyond which a label does not come from there


class NoisyLine:
    """Averages over (ω, y) for one direction and labels with noise."""

    def __init__(self, law: LabelLaw, order: int = 8) -> None:
        self.law, self.order = law, order
        self.width = math.sqrt(law.noise)
        self.special = pieces_of(law).ends
        z = np.linspace(0.013, 5.0, 37)
        up, down = law.line(z), law.line(-z)
        scale = 1e-12 * math.sqrt(law.variance)
        self.mirrored = bool(
            np.abs(up - down).max() < scale or np.abs(up + down).max() < scale
        )

    def visible(self) -> tuple[float, float]:
        """E[ζ₁²] and E[ζ₂²] with ζ₁ = E[z | y], ζ₂ = E[z² − 1 | y]."""
        first, second = self._at(np.zeros(1), 1.0)[0]
        return float(first), float(second)

    def fisher(self, q: float) -> float:
        """E[g_out²] at overlap q."""
        if q == 0:
            return self.visible()[0]
        V, scale = 1 - q, math.sqrt(q)
        low = 0.0 if self.mirrored else -REACH * scale
        edges = graded_edges(
            low, REACH * scale, self.special, 0.5 * math.sqrt(V), 0.5, 0.75 * scale
        )
        omega, weight = (
            x.ravel() for x in gauss_nodes(edges[:-1], edges[1:], self.order)
        )
        weight = (
            weight
            * np.exp(-(omega**2) / (2 * q))
            / math.sqrt(2 * math.pi * q)
            * (2 if self.mirrored else 1)
        )
        keep = weight > 1e-13 * weight.max()
        return float(weight[keep] @ self._at(omega[keep], V)[:, 0]) / V

    def _at(self, omega: np.ndarray, V: float) -> np.ndarray:
        """∫ dy of Z_u² / Z_1 and Z_{u² − 1}² / Z_1 with u = (z − ω)/√V, for each ω: (ω,
        2).
        """
        owner, left, right = self._panels(omega, V)
        u, w = gauss_nodes(left, right, self.order)
        w = w * np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)
        h = self.law.line(omega[owner][:, None] + math.sqrt(V) * u)
        centre = self.law.line(omega)
        turning = self.law.line(self.special) if len(self.special) else np.zeros(0)
        ends = np.searchsorted(owner, np.arange(len(omega) + 1))
        out = np.empty((len(omega), 2))
        for i, x in enumerate(omega):
            mine = slice(ends[i], ends[i + 1])
            near = np.abs(self.special - x) < (INNER + 0.5) * math.sqrt(V)
            out[i] = self._integrated(
                u[mine].ravel(),
                w[mine].ravel(),
                h[mine].ravel(),
                np.append(turning[near], centre[i]),
            )
        return out

    def _integrated(
        self, u: np.ndarray, w: np.ndarray, h: np.ndarray, centres: np.ndarray
    ) -> np.ndarray:
        order = np.argsort(h)
        u, w, h = u[order], w[order], h[order]
        edges = graded_edges(
            float(h[0]) - SEEN * self.width,
            float(h[-1]) + SEEN * self.width,
            centres,
            1.5 * self.width,
            0.25,
        )
        y, weight = (x.ravel() for x in gauss_nodes(edges[:-1], edges[1:], self.order))
        factors = np.stack([w, w * u, w * (u**2 - 1)], 1)
        total = np.zeros(2)
        for at in range(0, len(y), BLOCK):
            part = y[at : at + BLOCK]
            a = np.searchsorted(h, part[0] - SEEN * self.width)
            b = np.searchsorted(h, part[-1] + SEEN * self.width)
            if a == b:
                continue
            kernel = np.exp(-((part[:, None] - h[a:b]) ** 2) / (2 * self.law.noise))
            mass, first, second = (kernel @ factors[a:b]).T
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.where(
                    mass > 1e-250, np.stack([first**2, second**2]) / mass, 0.0
                )
            total += ratios @ weight[at : at + BLOCK]
        return total / math.sqrt(2 * math.pi * self.law.noise)

    def _panels(
        self, omega: np.ndarray, V: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Panels of u for every ω, halved where h is steep: owner, left and right
        ends.
        """
        scale = math.sqrt(V)
        base = np.linspace(-INNER, INNER, 2 * math.ceil(INNER) + 1)
        cuts = (self.special[None] - omega[:, None]) / scale
        edges = np.sort(
            np.concatenate(
                [
                    np.broadcast_to(base, (len(omega), len(base))),
                    cuts.clip(-INNER, INNER),
                ],
                1,
            )
        )
        owner = np.repeat(np.arange(len(omega)), edges.shape[1] - 1)
        left, right = edges[:, :-1].ravel(), edges[:, 1:].ravel()
        keep = right > left
        owner, left, right = owner[keep], left[keep], right[keep]
        while True:
            inside = 1e-9 * (right - left)
            a = self.law.line(omega[owner] + scale * (left + inside))
            b = self.law.line(omega[owner] + scale * (right - inside))
            steep = np.abs(b - a) > 3 * self.width
            steep &= right - left > 1e-9
            if not steep.any():
                break
            if steep.sum() > MOST * len(omega):
                raise InputError(
                    "Argument `noise` must be 0, or not so small against the slopes of"
                    f" the target: with {self.law.noise:.3g}, averages over"
                    f" {self.law.target.name} need more than {MOST} panels."
                )
            middle = (left[steep] + right[steep]) / 2
            owner = np.concatenate([owner[~steep], owner[steep], owner[steep]])
            left, right = (
                np.concatenate([left[~steep], left[steep], middle]),
                np.concatenate([right[~steep], middle, right[steep]]),
            )
        order = np.lexsort((left, owner))
        return owner[order], left[order], right[order]
