"""SGD of small batches on a fixed set, written out in NumPy: the witness of the theory of many passes.

Nothing of the package is used, so that no error of it is repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

Function = Callable[[np.ndarray], np.ndarray]

ACTIVATIONS: dict[str, tuple[Function, Function]] = {
    "erf": (
        lambda x: erf(x / np.sqrt(2)),
        lambda x: np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2),
    ),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(float)),
    "linear": (lambda x: x, np.ones_like),
}
TARGETS: dict[str, Function] = {
    "tanh(2*z1)": lambda z: np.tanh(2 * z[..., 0]),
    "z1 + z1*z2": lambda z: z[..., 0] + z[..., 0] * z[..., 1],
    "z1": lambda z: z[..., 0],
    "0.8*z1": lambda z: 0.8 * z[..., 0],
}


@dataclass(frozen=True)
class Passes:
    """Many passes of one student, f = (1/p) Σ a_j σ(w_j·x), with lr = γ n_b/d."""

    target: str
    activation: str
    a: tuple[float, ...]
    noise: float
    alpha: float
    gamma: float
    batch: int
    sampling: str
    Q: np.ndarray
    M: np.ndarray

    def rows(self, dim: int) -> np.ndarray:
        """Weights with these overlaps with the first k axes and with each other."""
        k = self.M.shape[1]
        W = np.zeros((len(self.M), dim))
        W[:, :k] = self.M
        W[:, k : k + len(self.M)] = np.linalg.cholesky(self.Q - self.M @ self.M.T)
        return W

    def orders(
        self, rng: np.random.Generator, runs: int, n: int, passes: int
    ) -> np.ndarray:
        """Which sample each run takes at each place, (passes, runs, n)."""
        if self.sampling == "replacement":
            return rng.integers(n, size=(passes, runs, n))
        one = np.argsort(rng.random((passes, runs, n)), axis=-1)
        return (
            np.broadcast_to(one[:1], one.shape) if self.sampling == "sequence" else one
        )

    def run(self, dim: int, runs: int, passes: int, seed: int) -> dict[str, np.ndarray]:
        """M, Q and the training risk of every run after every pass, (passes, runs, …)."""
        rng = np.random.default_rng([seed, dim])
        sigma, slope = ACTIVATIONS[self.activation]
        a, p, k = np.asarray(self.a), len(self.a), self.M.shape[1]
        n = self.batch * round(self.alpha * dim / self.batch)
        X = rng.standard_normal((runs, n, dim))
        y = TARGETS[self.target](X[..., :k]) + np.sqrt(
            self.noise
        ) * rng.standard_normal((runs, n))
        W = np.broadcast_to(self.rows(dim), (runs, p, dim)).copy()
        step = self.gamma / (dim * p)  # lr/(p n_b), times the sum over the batch
        each = np.arange(runs)[:, None]
        found: dict[str, list[np.ndarray]] = {"M": [], "Q": [], "train": []}
        for order in self.orders(rng, runs, n, passes):
            for at in range(0, n, self.batch):
                taken = order[:, at : at + self.batch]
                x, label = X[each, taken], y[each, taken]
                h = np.einsum("rbd,rpd->rbp", x, W)
                e = label - sigma(h) @ a / p
                W += step * np.einsum("rbp,rbd->rpd", a * slope(h) * e[..., None], x)
            found["M"].append(W[..., :k].copy())
            found["Q"].append(np.einsum("rpd,rqd->rpq", W, W))
            h = np.einsum("rnd,rpd->rnp", X, W)
            found["train"].append(((y - sigma(h) @ a / p) ** 2).mean(1) / 2)
        return {name: np.stack(x) for name, x in found.items()}

    def limit(
        self, dims: tuple[int, int], runs: int, passes: int, seed: int
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Means at d → ∞ by 2 X(2d) − X(d), and their standard errors."""
        small, large = (self.run(dim, runs, passes, seed) for dim in dims)
        assert dims[1] == 2 * dims[0]
        found = {}
        for name, fine in large.items():
            coarse = small[name]
            errors = [x.std(1, ddof=1) / np.sqrt(x.shape[1]) for x in (fine, coarse)]
            found[name] = (
                2 * fine.mean(1) - coarse.mean(1),
                np.hypot(2 * errors[0], errors[1]),
            )
        return found
