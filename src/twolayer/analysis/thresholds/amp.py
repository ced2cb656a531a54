"""Approximate message passing on explicit data: n = αd inputs z_ν in d dimensions.

    ω_ν = Ŵ z_ν − V g_ν(previous),    g_ν = V⁻¹(E[λ* | y_ν, ω_ν] − ω_ν),
        ∂g_ν = V⁻¹ Cov[λ* | y_ν, ω_ν] V⁻¹ − V⁻¹
    A = −(1/d) Σ_ν ∂g_ν,   S = (I + A)⁻¹,   Ŵ ← S (A Ŵ + (1/d) Σ_ν g_ν z_νᵀ),   V ← S

For several directions g, A and Ŵ are damped together: off the line ŴŴᵀ = ŴW*ᵀ = I − V
the plain iteration can be unstable even at d = ∞. State evolution predicts ŴW*ᵀ, up to
what the labels cannot tell (signs, permutations), so that singular values are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twolayer.analysis.thresholds.label_law import LabelLaw
from twolayer.numerics.arguments import Progress
from twolayer.numerics.errors import (
    Interrupted,
    finite_number,
    positive_integer,
    require,
)
from twolayer.numerics.statistics import standard_error
from twolayer.running.progress import listener_for

if TYPE_CHECKING:
    from twolayer.analysis.thresholds.posterior import Posterior

__all__ = ["MessagePassing", "simulate"]

DAMPED = 0.7
WEAK = 0.05  # squared length of a random start


@dataclass(frozen=True, eq=False)
class MessagePassing:
    """Runs of message passing. Made by `simulate` of thresholds and of the best
    possible.

    Attributes
    ----------
    alpha : float
        n/d of the data that were drawn.
    dim : int
        d.
    path : array (seeds, iterations + 1, k)
        Singular values of ŴW*ᵀ along the runs, the largest first.

    Examples
    --------
    >>> print(
    ...     MessagePassing(
    ...         alpha=1.5, dim=400, path=np.array([[[0.0], [0.5]], [[0.0], [0.4]]])
    ...     )
    ... )
    message passing   overlap 0.4500 ± 0.0500   (α = 1.5, d = 400, 2 runs)
    """

    alpha: float
    dim: int
    path: np.ndarray

    @property
    def overlap(self) -> np.ndarray:
        """Singular values of ŴW*ᵀ at the end, (seeds, k), those of q in state
        evolution.
        """
        return np.asarray(self.path[:, -1])

    @property
    def mean(self) -> np.ndarray:
        """Mean over the runs, (k,)."""
        return np.asarray(self.overlap.mean(0))

    @property
    def error(self) -> np.ndarray:
        """Standard error of the mean, (k,); NaN for a single run."""
        n = len(self.path)
        return (
            standard_error(self.overlap)
            if n > 1
            else np.full(self.path.shape[2], np.nan)
        )

    def __str__(self) -> str:
        values = ", ".join(
            f"{m:.4f}" + (f" ± {e:.4f}" if e == e else "")
            for m, e in zip(self.mean, self.error, strict=True)
        )
        return (
            f"message passing   overlap {values}   (α = {self.alpha:.4g}, d ="
            f" {self.dim}, {len(self.path)} runs)"
        )


def simulate(
    law: LabelLaw,
    alpha: float,
    dim: int = 1000,
    seeds: int = 4,
    seed: int = 0,
    *,
    start: float | None = None,
    iterations: int = 60,
    progress: Progress = None,
) -> MessagePassing:
    """Draw data and run message passing on them.

    Parameters
    ----------
    law : LabelLaw
        Target and noise.
    alpha : float
        n/d.
    dim : int
        d.
    seeds : int
        Number of runs, each with its own data.
    seed : int
    start : float, optional
        Overlap to start from, in (0, 1); by default a random start that knows nothing.
    iterations : int
    progress : bool, optional
        As in `solve`.

    Examples
    --------
    >>> import twolayer as tl
    >>> runs = tl.thresholds("tanh(z1)", noise=0.1).simulate(
    ...     alpha=2.0, dim=300, seeds=2, iterations=20
    ... )
    >>> bool(abs(runs.mean[0] - 0.805) < 0.08)
    True
    """
    alpha = finite_number("alpha", alpha, accepted="a positive number")
    dim, seeds = (
        positive_integer("dim", dim, minimum=law.k),
        positive_integer("seeds", seeds),
    )
    iterations = positive_integer("iterations", iterations)
    n = round(alpha * dim)
    require(
        n >= 1,
        "alpha",
        alpha,
        f"positive, and large enough for a sample in dimension {dim}",
    )
    if start is not None:
        start = finite_number(
            "start", start, minimum=0.0, accepted="an overlap between 0 and 1"
        )
        require(start < 1, "start", start, "an overlap between 0 and 1")
    # these load JAX, which thresholds do without
    from twolayer.analysis.thresholds.posterior import Posterior
    from twolayer.numerics.random import check_seed

    check_seed(seed)
    posterior = Posterior(law)
    monitor = listener_for(progress)
    monitor.begin("message passing", float(seeds * iterations))
    paths: list[np.ndarray] = []
    try:
        for run in range(seeds):
            path = []
            for t, overlap in enumerate(
                _iterates(posterior, n, dim, [53, seed, run], start, iterations)
            ):
                path.append(overlap)
                monitor.update(run * iterations + t)
            paths.append(np.array(path))
    except KeyboardInterrupt:
        if not paths:
            raise
        raise Interrupted(MessagePassing(n / dim, dim, np.array(paths))) from None
    finally:
        monitor.finish()
    return MessagePassing(n / dim, dim, np.array(paths))


def _iterates(
    posterior: Posterior,
    n: int,
    d: int,
    seed: list[int],
    start: float | None,
    iterations: int,
) -> Iterator[np.ndarray]:
    """Singular values of ŴW*ᵀ at the start and after each iteration, on data drawn for
    this run.
    """
    law, rng = posterior.law, np.random.default_rng(seed)
    k, eye = law.k, np.eye(law.k)
    W_star = np.linalg.qr(rng.normal(size=(d, k)))[0].T
    X = rng.normal(size=(n, d))
    y = law.labels(X @ W_star.T) + math.sqrt(law.noise) * rng.normal(size=n)
    noise = rng.normal(size=(k, d)) / math.sqrt(d)
    if start is None:
        W, V = math.sqrt(WEAK) * noise, (1 - WEAK) * eye
    else:
        W, V = (
            start * W_star + math.sqrt(start * (1 - start)) * noise,
            (1 - start) * eye,
        )
    new = 1.0 if k == 1 else DAMPED
    g, A = np.zeros((n, k)), np.zeros((k, k))
    yield np.linalg.svd(W @ W_star.T, compute_uv=False)
    for t in range(iterations):
        omega = X @ W.T - g @ V
        seen = posterior(y, omega, V)
        inverse = np.linalg.inv(V)
        g_new = (seen.mean - omega) @ inverse
        A_new = -(inverse @ (seen.covariance.sum(0) - n * V) @ inverse) / d
        share = new if t else 1.0  # there is nothing to damp with yet
        g, A = (
            share * g_new + (1 - share) * g,
            share * _positive(A_new) + (1 - share) * A,
        )
        S = np.linalg.inv(eye + A)
        W = share * (S @ (A @ W + g.T @ X / d)) + (1 - share) * W
        V = (S + S.T) / 2
        yield np.linalg.svd(W @ W_star.T, compute_uv=False)


def _positive(A: np.ndarray) -> np.ndarray:
    """The nearest positive matrix: a precision that few samples can make negative."""
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    return np.asarray((vectors * values.clip(1e-9)) @ vectors.T)
