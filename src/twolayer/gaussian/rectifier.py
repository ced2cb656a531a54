"""Rectifiers σ(x) = r·max(x, 0) − l·max(−x, 0): ReLU, |x|, leaky ReLU. Two- and
three-point averages in closed form.

    E[σσ'] = √(C11 C22) (sin θ + (π−θ) cos θ)/2π     E[H H'] = (π−θ)/2π
        E[δ(1) σ(2)] = √(C11 C22 − C12²)/(2π C11)

for ReLU (l = 0, r = 1), θ the angle between the fields; x → −x gives the others. The
four-point average of ReLU, for unit variances and correlations R, needs one integral
over the coupling t of all fields:

    E[H1 H2 σ3 σ4] = R34 P4 + Σ_{x<y} [ R3x (R4y − Rxy R4x) + R3y (R4x − Rxy R4y) ] F_xy
    F_xy = P(the other two > 0 | x = y = 0)/(2π √(1 − Rxy²)),
        dP4/dt = Σ_{x<y} Rxy F_xy at t R,    P4(0) = 1/16

P4 and F belong to the set of four fields, whichever two carry the rectifiers: n⁴/24 of
them serve all p²n²/4 averages.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.gaussian.quadrature import legendre
from twolayer.gaussian.two_point import Forms, Ladder, Pair, PairOf, Single, orthonormal
from twolayer.numerics.special import arcsine, root
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Real, Tree

if TYPE_CHECKING:
    from twolayer.gaussian.targets import RidgeTarget

__all__ = ["RectifierForms", "ReluRidge", "four_point"]

TWO_PI = 2 * math.pi
COINCIDENT = 4e-16  # sin²θ below this is rounding: the fields are one, or opposite
ROUNDED = 1e-15  # and so it is with correlations so near to ±1
WORK_PER_SET = 10.0  # terms for each node of P4
BLOCK = 2**17  # sets × nodes looked at together


def _relu(mean: Numbers, width: Number) -> tuple[Numbers, Numbers, Numbers]:
    """E[max(x, 0)], P(x > 0), and the density of x/width at 0, for x of given mean and
    width.
    """
    moves = width > 0
    x = jnp.where(moves, mean / jnp.where(moves, width, 1.0), jnp.sign(mean) * 40.0)
    density = jnp.exp(-(x**2) / 2) / math.sqrt(TWO_PI)
    above = jax.scipy.special.ndtr(x)
    return mean * above + width * density, above, density


def _angles(c11: Number, c12: Number, c22: Number) -> tuple[Numbers, Numbers]:
    """√(C11 C22) sin θ and θ."""
    product = c11 * c22
    sine = root(product - c12**2, COINCIDENT * product)
    return sine, jnp.arctan2(sine, c12)


@dataclass(frozen=True)
class RectifierForms(Forms):
    """One- and two-point averages of a rectifier with slope ``left`` below zero and
    ``right`` above.
    """

    left: float = 0.0
    right: float = 1.0

    @property
    def jumps(self) -> tuple[tuple[float, float], ...]:
        """The one at zero."""
        return ((0.0, self.right - self.left),)

    @property
    def name(self) -> str:  # type: ignore[override]
        """For reports."""
        return "relu" if (self.left, self.right) == (0.0, 1.0) else "rectifier"

    def single(self, mean: Numbers, variance: Numbers) -> Single:
        """E[σ], E[σ'], E[σ''] at given mean and variance."""
        width = root(variance)
        value, above, density = _relu(mean, width)
        bend = density / jnp.where(width > 0, width, 1.0)
        kink = self.right - self.left
        return Single(
            self.left * mean + kink * value,
            self.left + kink * above,
            kink * jnp.where(width > 0, bend, 0.0),
        )

    def ladder(self, mean: Numbers, width: Number, orders: int) -> Ladder:
        """Hermite coefficients of a step at g = −μ/s: h_{n−1}(−μ/s) times the density
        there, over √n.
        """
        value, above, density = _relu(mean, width)
        moves, kink = width > 0, self.right - self.left
        x = jnp.where(moves, mean / jnp.where(moves, width, 1.0), jnp.sign(mean) * 40.0)
        count = np.arange(1, orders).reshape(-1, *[1] * x.ndim)
        steps = kink * density * orthonormal(-x, orders - 1) / np.sqrt(count)
        slopes = jnp.concatenate([(self.left + kink * above)[None], steps])
        return Ladder(self.left * mean + kink * value, slopes)

    def pair_with(self, other: Forms) -> PairOf | None:
        """Two rectifiers."""
        if not isinstance(other, RectifierForms):
            return None
        same = self.right * other.right + self.left * other.left
        opposite = self.right * other.left + self.left * other.right
        kinks = (self.right - self.left) * (other.right - other.left)

        def pair(c11: Number, c12: Number, c22: Number) -> Pair:
            sine, theta = _angles(c11, c12, c22)
            ff = same * (sine + (math.pi - theta) * c12) - opposite * (
                sine - theta * c12
            )
            dd = same * (math.pi - theta) + opposite * theta
            return Pair(ff / TWO_PI, dd / TWO_PI, kinks * sine / (TWO_PI * c11))

        return pair

    def ridge_variance(
        self, target: RidgeTarget, p: int, order: int
    ) -> ReluRidge | None:
        """For a sum of ReLU ridges, which those of other slopes are written as."""
        return (
            ReluRidge(target, order, self.left, self.right)
            if target.ridge_forms == RectifierForms()
            else None
        )

    def pair_work(self, fields: int, pairs: int) -> float:
        """An arctangent and a root."""
        return 8.0 * pairs


class ReluRidge(eqx.Module):
    """Rectified student, sum of ReLU ridges: cost O(order · n⁴/24), n = p + ridges.

    A rectifier with a slope below zero is two of them, on λ and on −λ: n = 2 p +
    ridges.
    """

    target: RidgeTarget
    order: int = eqx.field(static=True)
    left: float = eqx.field(static=True, default=0.0)
    right: float = eqx.field(static=True, default=1.0)
    label: str = eqx.field(static=True, default="closed form with a 1-d quadrature")

    def __call__(self, Q: Gram, M: Cross, a: Layer, student: float) -> Numbers:
        """V (p, p)."""
        C, weights, p = (
            self.target.covariance(Q, M),
            self.target.signed_weights(student, a),
            a.shape[0],
        )
        if (self.left, self.right) == (0.0, 1.0):
            return four_point(C, weights, p, self.order)
        # σ = r σ₊(λ) − l σ₊(−λ) and σ' = r H(λ) + l H(−λ)
        both = (
            jnp.eye(len(C))[np.r_[:p, :p, p : len(C)]]
            * np.where(np.arange(p + len(C)) // p == 1, -1.0, 1.0)[:, None]
        )
        halves = jnp.concatenate(
            [self.right * weights[:p], -self.left * weights[:p], weights[p:]]
        )
        V = four_point(both @ C @ both.T, halves, 2 * p, self.order).reshape(2, p, 2, p)
        slopes = jnp.asarray([self.right, self.left])
        return jnp.einsum("s,sjtl,t->jl", slopes, V, slopes)

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        students = p * (1 if self.left == 0 and self.right == 1 else 2)
        n = students + len(self.target.c)
        return (
            math.comb(n, 4) * (self.order + 4) * WORK_PER_SET + 30.0 * students * n**2
        )


PAIRS = np.array(
    list(itertools.combinations(range(4), 2))
)  # of four fields; the other two are PAIRS[::-1]


def given_zero(R: Real, s: Numbers | float) -> tuple[Numbers, Numbers]:
    """P(m, n > 0 | x = y = 0) and 1 − r_xy² for all six pairs, at correlations (1 − s)
    R with R (4, 4, …).

    Written in the gaps 1 − r, x being flipped where its correlations are negative: no
    digit is lost where fields almost coincide. ¼ where one of the two has no variance
    left.
    """
    (x, y), (m, n) = PAIRS.T, PAIRS[::-1].T
    sign = jnp.where(R < 0, -1.0, 1.0)

    def gap(i: np.ndarray, j: np.ndarray) -> Numbers:
        r = R[i, j] * sign[x, i] * sign[x, j]
        return 1 - r + s * r

    xy, xm, xn = gap(x, y), gap(x, m), gap(x, n)
    determinant = xy * (2 - xy)
    to_m, to_n = (
        xy + xm - gap(y, m) - xy * xm,
        xy + xn - gap(y, n) - xy * xn,
    )  # r_ym − r_xy r_xm
    vm, vn = (
        determinant * xm * (2 - xm) - to_m**2,
        determinant * xn * (2 - xn) - to_n**2,
    )
    c = determinant * (xm + xn - gap(m, n) - xm * xn) - to_m * to_n
    spread = jnp.minimum(vm, vn) > 1e-30
    vm, vn = jnp.where(spread, vm, 1.0), jnp.where(spread, vn, 1.0)
    rho = jnp.where(spread, c * jax.lax.rsqrt(vm) * jax.lax.rsqrt(vn), 0.0)
    return 0.25 + sign[x, m] * sign[x, n] * arcsine(
        jnp.clip(rho, -1.0, 1.0)
    ) / TWO_PI, determinant


def orthant(R: Real, order: int) -> Numbers:
    """P4, all four fields positive, for correlations R (4, 4, …).

    Nodes gather at full coupling, t = 1 − (1 − u)⁴, where the integrand changes fast if
    fields almost coincide.
    """
    u, weight = legendre(order)
    s, dt = (1 - u) ** 4, 4 * (1 - u) ** 3 * weight
    chance, determinant = given_zero(R[..., None], s)
    density = (
        R[PAIRS[:, 0], PAIRS[:, 1]][..., None] * jax.lax.rsqrt(determinant) / TWO_PI
    )
    return 1 / 16 + ((density * chance) @ dt).sum(0)


def orthant_of_three(*correlations: Number) -> Numbers:
    """P3, all three fields positive."""
    return 1 / 8 + sum(arcsine(r) for r in correlations) / (4 * math.pi)


def _boundary(qx: Number, qy: Number, sx: Number, sy: Number, xy: Real) -> Numbers:
    """Coefficient of F_xy when fields q and s carry the rectifiers."""
    return qx * (sy - xy * sx) + qy * (sx - xy * sy)


def _sets(R: Real, v: Real, S: Tree, used: Tree, p: int, order: int) -> Real:
    """Σ over sets S (4, m) of different fields, q and s in both orders, as V (p, p) for
    j < l.
    """
    R4, (x, y), (m, n) = R[S[:, None], S[None, :]], PAIRS.T, PAIRS[::-1].T
    P4, (chance, determinant) = orthant(R4, order), given_zero(R4, 0.0)
    F = chance * jax.lax.rsqrt(jnp.maximum(determinant, 1e-14)) / TWO_PI
    # every choice of the two fields with Heavisides, PAIRS, leaves two with rectifiers
    bounds = _boundary(R4[m][:, x], R4[m][:, y], R4[n][:, x], R4[n][:, y], R4[x, y])
    value = R4[m, n] * P4 + (bounds * F).sum(1)
    share = jnp.where((S[y] < p) & used, 2 * v[S[m]] * v[S[n]] * value, 0.0)
    return jnp.zeros((p, p)).at[S[x], jnp.minimum(S[y], p - 1)].add(share)


def _of_three(R: Real, p: int) -> tuple[Numbers, Numbers]:
    """E[H_x σ_y σ_z] (p, n, n) and E[H_x H_y σ_z²] (p, p, n) for unit variances,
    whichever fields coincide.
    """
    n = len(R)
    i = jnp.arange(n)
    x, y, z = i[:p, None, None], i[None, :, None], i[None, None, :]
    xy, xz, yz = R[x, y], R[x, z], R[y, z]
    P3, pair = orthant_of_three(xy, xz, yz), RectifierForms().pair(1.0, R, 1.0).ff
    edges = [
        jax.lax.rsqrt(jnp.maximum(1 - r**2, 1e-14)) / (2 * TWO_PI) for r in (xy, xz, yz)
    ]
    values = yz * P3 + sum(
        _boundary(*c, r) * F
        for c, r, F in zip(
            ((xy, 1.0, xz, yz), (xy, yz, xz, 1.0), (1.0, yz, yz, 1.0)),
            (xy, xz, yz),
            edges,
            strict=True,
        )
    )
    sine, theta = _angles(1.0, R, 1.0)
    square = (math.pi - theta + sine * R) / TWO_PI  # E[H_x σ_y²]
    values = jnp.where(y == z, square[:p][:, :, None], values)
    values = jnp.where((x == y) | (x == z), pair[y, z], values)
    both = P3 + sum(
        _boundary(*c, r) * F
        for c, r, F in zip(
            ((xz, yz, xz, yz), (xz, 1.0, xz, 1.0), (yz, 1.0, yz, 1.0)),
            (xy, xz, yz),
            edges,
            strict=True,
        )
    )
    both = jnp.where(x == y, square[:p][:, None, :], both)
    both = jnp.where(x == z, square[y, x], jnp.where(y == z, square[x, y], both))
    return values, both[:, :p]


def four_point(C: Numbers, weights: Numbers, p: int, order: int) -> Numbers:
    """Σ_{q,s} w_q w_s E[σ'_j σ'_l σ_q σ_s] for ReLU and j, l < p, fields with
    covariance C (n, n).

    Fields may coincide. Cost O(order · n⁴/24), memory O(n³) and blocks of sets.
    """
    n, C = len(C), jnp.asarray(C)
    scale = jnp.sqrt(jnp.diagonal(C))
    R = C / (scale[:, None] * scale)
    R = jnp.where(jnp.abs(R) > 1 - ROUNDED, jnp.sign(R), R)
    v = weights * scale
    single, double = _of_three(R, p)
    V = jnp.diag(jnp.einsum("q,s,jqs->j", v, v, single))
    # one field carries both rectifiers, or a Heaviside and a rectifier: H_j σ_j = σ_j
    own = v[:p, None] * jnp.einsum(
        "s,ljs->jl", v, single[:, :p]
    )  # Σ_s v_j v_s E[H_l σ_j σ_s]
    pairs = v[:p, None] * v[:p] * RectifierForms().pair(1.0, R[:p, :p], 1.0).ff
    squares = jnp.einsum("q,jlq->jl", v**2, double)
    ends = v[:p] ** 2 * jnp.diagonal(
        single[:, :p, :p], axis1=1, axis2=2
    )  # v_l² E[H_j σ_l²]
    rest = squares + 2 * (own + own.T) - 2 * (ends + ends.T) - 2 * pairs
    sets = (
        np.array(
            [s for s in itertools.combinations(range(n), 4) if s[1] < p], dtype=np.int32
        )
        .reshape(-1, 4)
        .T
    )
    if sets.shape[1]:
        size = max(1, min(sets.shape[1], BLOCK // (6 * order)))
        count = -(-sets.shape[1] // size)
        filled = np.concatenate(
            [sets, np.repeat(sets[:, :1], count * size - sets.shape[1], axis=1)], axis=1
        )
        used = np.arange(count * size) < sets.shape[1]
        blocks = (
            jnp.asarray(filled.reshape(4, count, size).swapaxes(0, 1)),
            jnp.asarray(used.reshape(count, size)),
        )

        def add(total: jax.Array, block: Tree) -> tuple[jax.Array, None]:
            S, used = block
            return total + _sets(R, v, S, used, p, order), None

        upper, _ = jax.lax.scan(add, jnp.zeros((p, p)), blocks)
        rest = rest + upper + upper.T
    return V + jnp.where(jnp.eye(p, dtype=bool), 0.0, rest)
