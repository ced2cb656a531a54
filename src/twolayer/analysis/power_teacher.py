"""A quadratic teacher of many directions with a power law, learned by a quadratic
student: the gradient flow on the risk in closed form.

    f = (1/p) Σ_j (w_j·x)²,   y = Σ_r c_r (v_r·x)² + const,   c_r = r^(−exponent)
    S = WᵀW/p,   S' = 4(SS* + S*S) − 8S² + 4τS,   risk = tr(S − S*)² + τ²/2
        τ = tr(S* − S), or 0 where labels and student are centred
    S(t) = R E W₀ᵀ [p I + 8 W₀ J W₀ᵀ]⁻¹ W₀ E,   E = e^(4S*t),
        J' = R e^(8S*t),   R' = 4τR,   R(0) = 1,   J(0) = 0

Centred, R = 1 and J_r = (e^(8c_r t) − 1)/8c_r, so that a time costs p³ whatever it is.
The solution is taken in intervals in which no direction grows by more than `GROWTH`, or
what is learned would drown what is not: W(t) = √p L⁻¹W₀E with LLᵀ the bracket is the
start of the next one, with as many rows as before. Directions outside the teacher's
have E = 1, and only their Gram matrix among the neurons counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import cholesky, solve_triangular

from twolayer.numerics.errors import (
    InputError,
    finite_number,
    flag,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.random import check_seed
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["PowerTeacher", "power_teacher"]

GROWTH = np.log(1e7)  # largest 8 c_r t of one interval
TOLERANCE = 1e-11  # of the two scalars where labels are not centred
LARGEST = 4096


def times_of(times: object) -> np.ndarray:
    """Times, in increasing order."""
    try:
        found = np.asarray(times, float).ravel()
    except (TypeError, ValueError):
        reject("times", times, "numbers from 0 on, in increasing order")
    fine = found.size > 0 and np.isfinite(found).all() and found[0] >= 0
    if not (fine and (np.diff(found) > 0).all()):
        reject("times", times, "numbers from 0 on, in increasing order")
    return found


@dataclass(frozen=True, eq=False)
class PowerTeacher:
    """A quadratic teacher and student. Made by `power_teacher`.

    Attributes
    ----------
    coefficients : array (k,)
        The c_r of the teacher.
    rows : array (p, k + r)
        Weights at the start: overlaps with the teacher's directions, then coordinates
        outside of them.
    centred : bool
        Whether the means of labels and student are taken out.
    """

    coefficients: np.ndarray
    rows: np.ndarray
    centred: bool

    @property
    def width(self) -> int:
        """The p of the student."""
        return len(self.rows)

    @cached_property
    def _teacher(self) -> np.ndarray:
        """The diagonal of S*, zero outside of the teacher's directions."""
        c = np.zeros(self.rows.shape[1])
        c[: len(self.coefficients)] = self.coefficients
        return c

    def weights(self, times: object) -> list[np.ndarray]:
        """Rows W (p, k + r) at each of the ``times``, up to rotations of the neurons:
        S = WᵀW/p.

        Examples
        --------
        >>> student = power_teacher(1.0, directions=3, width=2)
        >>> [W.shape for W in student.weights([0.0, 1.0])]
        [(2, 5), (2, 5)]
        """
        at = times_of(times)
        longest = GROWTH / (8 * self.coefficients.max())
        now, W = 0.0, self.rows
        found = []
        for t in at:
            count = max(1, int(np.ceil((t - now) / longest)))
            for _ in range(count if t > now else 0):
                W = self._moved(W, (t - now) / count)
            now = float(t)
            found.append(W)
        return found

    def risk(self, times: object) -> np.ndarray:
        """The risk at ``times`` of the gradient flow, t = lr·step/p.

        Examples
        --------
        >>> student = power_teacher(1.0, directions=12, width=20)
        >>> bool((np.diff(student.risk([0, 1, 10, 100])) < 0).all())
        True
        """
        return np.array([self._risk(W) for W in self.weights(times)])

    def learned(self, times: object) -> np.ndarray:
        """S_rr/c_r of every direction of the teacher at ``times``, (times, k)."""
        k = len(self.coefficients)
        norms = [(W[:, :k] ** 2).sum(0) / self.width for W in self.weights(times)]
        return np.asarray(np.stack(norms) / self.coefficients)

    def _risk(self, W: np.ndarray) -> float:
        c = self._teacher
        Q = W @ W.T / self.width
        # tr S² by the Gram matrix of the neurons, which is the smaller one
        square = (Q**2).sum() - 2 * ((W**2).sum(0) @ c) / self.width + c @ c
        tau = 0.0 if self.centred else c.sum() - np.trace(Q)
        return float(square + tau**2 / 2)

    def _moved(self, W: np.ndarray, t: float) -> np.ndarray:
        """The rows after a time, within one interval."""
        c = self._teacher
        if self.centred:
            J = np.where(c > 0, np.expm1(8 * c * t) / np.where(c > 0, 8 * c, 1.0), t)
            return _transported(W, np.exp(4 * c * t), J)
        log_R, J = self._coupled(W, t)
        return _transported(W, np.exp(4 * c * t + log_R / 2), J)

    def _coupled(self, W: np.ndarray, t: float) -> tuple[float, np.ndarray]:
        """Log R and J at the end of an interval, where τ depends on what is learned."""
        c = self._teacher

        def rate(s: float, y: np.ndarray) -> np.ndarray:
            moved = _transported(W, np.exp(4 * c * s + y[0] / 2), y[1:])
            tau = c.sum() - (moved**2).sum() / self.width
            return np.append(4 * tau, np.exp(y[0] + 8 * c * s))

        first = np.zeros(1 + len(c))
        found = solve_ivp(
            rate, (0.0, t), first, "DOP853", rtol=TOLERANCE, atol=TOLERANCE
        )
        return float(found.y[0, -1]), found.y[1:, -1]

    @property
    def problem(self) -> Problem:
        """The same task as a `Problem`, for `Chain`, `ODE` or `Vectors` at lr > 0."""
        # He2 has mean zero for rows of norm one only, and these rows grow: what takes
        # the mean of a student out at all times is an offset, which none has here
        if self.centred:
            raise InputError(
                "Argument `centred` must be False for a run at a rate of its own: a"
                " student whose mean is taken out at all times has an offset, and that"
                " of a Problem has none."
            )
        terms = [f"{float(c)!r}*z{r + 1}**2" for r, c in enumerate(self.coefficients)]
        return Problem(" + ".join(terms), "square", width=self.width)

    @property
    def start(self) -> Overlaps:
        """The start as overlaps."""
        k = len(self.coefficients)
        return Overlaps(self.rows @ self.rows.T, self.rows[:, :k], np.eye(k))


def _transported(W: np.ndarray, E: np.ndarray, J: np.ndarray) -> np.ndarray:
    """√p L⁻¹ W E with LLᵀ = p I + 8 W J Wᵀ."""
    p = len(W)
    L = cholesky(p * np.eye(p) + 8 * (W * J) @ W.T, lower=True)
    return np.asarray(np.sqrt(p) * solve_triangular(L, W * E, lower=True))


def power_teacher(
    exponent: float,
    directions: int,
    width: int,
    start: object = None,
    *,
    dim: int | None = None,
    centred: bool = True,
    seed: int = 0,
) -> PowerTeacher:
    """A quadratic teacher with coefficients r^(−exponent), and a student of it.

    Parameters
    ----------
    exponent : float
        Of the coefficients, more than 1/2, so that labels have a variance however many
        directions there are.
    directions, width : int
        k and p.
    start : array (width, n), optional
        Rows: overlaps with the teacher's directions in the first k columns, then
        coordinates outside of them. Rows of length one in ``dim`` dimensions are drawn
        if it is left out.
    dim : int, optional
        Dimension of a start that is drawn; 2·(k + p) by default.
    centred : bool
        Whether the means of labels and student are taken out at all times, as an offset
        that follows at once would; else the trace is learned too.
    seed : int
        Of the start.

    Returns
    -------
    PowerTeacher
        ``.risk(times)`` of the gradient flow, ``.learned(times)`` of every direction;
        ``.problem`` and ``.start`` for a run at a rate of its own, if not centred.

    Examples
    --------
    >>> student = power_teacher(1.0, directions=12, width=20)
    >>> student.risk([0.0, 2.0, 200.0]).round(3).tolist()
    [1.547, 0.092, 0.0]
    """
    power = finite_number("exponent", exponent, accepted="a number above 1/2")
    require(power > 0.5, "exponent", exponent, "more than 1/2, where Σ c_r² converges")
    k, p = positive_integer("directions", directions), positive_integer("width", width)
    require(max(k, p) <= LARGEST, "directions", max(k, p), f"at most {LARGEST}")
    coefficients = np.arange(1, k + 1) ** -power
    flag("centred", centred)
    if start is None:
        n = 2 * (k + p) if dim is None else positive_integer("dim", dim)
        require(n >= k, "dim", n, f"at least the {k} directions")
        rng = np.random.default_rng(check_seed(seed))
        rows = rng.standard_normal((p, n))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        outside = rows[:, k:]
        if n - k > p:  # a triangular factor says as much
            outside = np.asarray(np.linalg.qr(outside.T, mode="r")).T
        return PowerTeacher(
            coefficients, np.concatenate([rows[:, :k], outside], axis=1), centred
        )
    if dim is not None:
        raise InputError("Argument `dim` must be left out where a `start` is given.")
    rows = np.array(start, float)
    shaped = rows.ndim == 2 and rows.shape[0] == p and rows.shape[1] >= k
    require(shaped, "start", list(rows.shape), f"rows ({p}, at least {k})")
    require(bool(np.isfinite(rows).all()), "start", start, "finite")
    return PowerTeacher(coefficients, rows, centred)
