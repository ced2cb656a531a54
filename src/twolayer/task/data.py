"""Given samples instead of drawn ones: rows x, their labels y, and how the target lies
in the space of the rows.

    x − mean = Σ_i V_i ζ⁽ⁱ⁾,    V_i: eigenvectors of the covariance in block i,
        P⁽ⁱ⁾ = W* V_i V_iᵀ W*ᵀ

The Gaussian surrogate has inputs N(0, Σ) with the covariance of the rows, grouped into
blocks, and the same W*. Where the target has one direction and it is not given, it is
that of least squares, Σ⁺ E[x y].
"""

from __future__ import annotations

import hashlib

import numpy as np

from twolayer.numerics.arguments import finite_array
from twolayer.numerics.errors import InputError, require
from twolayer.task.inputs import Inputs, centred

__all__ = ["Data"]


class Data:
    """Rows X (n, d), centred, labels y (n,), and the target's rows W* (k, d); equal if
    their numbers are.

    >>> data = Data(
    ...     ([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]], [1.0, -1.0, 0.0, 0.0])
    ... )
    >>> data.dim, data.target.round(3).tolist()
    (2, [[1.414, 0.0]])
    """

    def __init__(self, given: object) -> None:
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise InputError(
                "Argument `data` must be (X, y) or (X, y, W_star): rows, labels and the"
                " target's rows."
            )
        X, y = finite_array("data[0]", given[0]), finite_array("data[1]", given[1])
        self.X, self.y = centred("data[0]", X), y
        require(
            y.shape == X.shape[:1],
            "data[1]",
            list(y.shape),
            f"{len(X)} labels, one for each row",
        )
        self.covariance = self.X.T @ self.X / len(X)
        self.values, self.vectors = (
            x[..., ::-1] for x in np.linalg.eigh(self.covariance)
        )
        if len(given) == 3:
            target = finite_array("data[2]", given[2])
            fits = target.ndim == 2 and target.shape[1] == X.shape[1]
            require(
                fits,
                "data[2]",
                list(target.shape),
                f"a matrix (k, {X.shape[1]}) of the target's rows",
            )
        else:
            target = np.linalg.pinv(self.covariance, rcond=1e-10, hermitian=True) @ (
                self.X.T @ y / len(X)
            )
            variance = float(target @ self.covariance @ target)
            if variance <= 1e-20 * float(y @ y) / len(y):
                raise InputError(
                    "Argument `data[1]` must be correlated with the rows, which tells"
                    " the target's direction, but is not: give (X, y, W_star)."
                )
            target = (target / np.sqrt(variance))[None]
        self.target = target
        whole = hashlib.sha256()
        for part in (self.X, self.y, self.target):
            whole.update(np.ascontiguousarray(part).tobytes())
        self.digest = whole.hexdigest()[:16]

    @property
    def dim(self) -> int:
        """d."""
        return int(self.X.shape[1])

    @property
    def count(self) -> int:
        """n."""
        return len(self.X)

    def parts(self, inputs: Inputs) -> list[np.ndarray]:
        """V_i (d, d_i), the eigenvectors of each block."""
        sizes = inputs.sizes(self.dim)
        trace = float(np.dot(inputs.variances, sizes))
        if abs(trace - self.values.sum()) > 1e-6 * trace:
            raise InputError(
                "Argument `inputs` must be those of the data, Inputs.from_data(X), but"
                " has another trace."
            )
        order = np.argsort(-np.asarray(inputs.variances), kind="stable")
        cuts = np.split(self.vectors, np.cumsum([sizes[i] for i in order])[:-1], axis=1)
        return [cuts[int(np.flatnonzero(order == i)[0])] for i in range(len(sizes))]

    def overlaps(self, inputs: Inputs) -> np.ndarray:
        """P⁽ⁱ⁾ (blocks, k, k) of the target's rows."""
        inside = [self.target @ V for V in self.parts(inputs)]
        return np.stack([x @ x.T for x in inside])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Data) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{self.count} rows of dimension {self.dim}, {self.digest}>"
