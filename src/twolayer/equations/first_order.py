"""What the two functions of a first-order method do: f to samples, g to rows.

    v = f(t, fields, products, y)          checked to act on every sample by itself
    W' = Σ_s A_s W^s + Σ_s B_s Γ^s         A_s, B_s (p, p) read off g at unit rows

Rows of any coordinates are stacked newest first, (memory, p, n). A function g that is
not linear acts on every coordinate of √d·W by itself; it is checked to do so.
"""

from __future__ import annotations

import numpy as np

from twolayer.equations.increment_kernel import Kernel
from twolayer.numerics.errors import InputError
from twolayer.task.first_order import FirstOrder, Iterates, SampleHistory

__all__ = ["RowFunction", "SampleFunction", "check_functions"]

CLOSE = 1e-9  # relative rounding of functions that are evaluated twice
TRIED = 6  # samples and coordinates that functions are tried on


class SampleFunction:
    """f, for the student of a kernel with its second layer."""

    def __init__(self, algorithm: FirstOrder, kernel: Kernel, a: np.ndarray) -> None:
        self.algorithm, self.kernel, self.a = algorithm, kernel, a

    def gradient(self, fields: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """a_j σ'(λ_j) e of every sample, (n, p)."""
        kernel = self.kernel
        e = kernel.loss.residual(labels, kernel.output(fields, self.a))
        slope = kernel.activation.slope(fields)
        return np.asarray(self.a * slope * np.asarray(e)[:, None])

    def products(
        self, step: int, fields: np.ndarray, products: np.ndarray, labels: np.ndarray
    ) -> np.ndarray:
        """V (n, p) at a step."""

        def gradient(at: np.ndarray) -> np.ndarray:
            return self.gradient(at, labels)

        if self.algorithm.f is None:
            return gradient(fields[0])
        x = SampleHistory(step, fields, products, labels, gradient)
        found = np.asarray(self.algorithm.f(x), dtype=float)
        if found.shape != fields.shape[1:]:
            raise InputError(
                "Argument `f` must return a number for each sample and neuron,"
                f" {fields.shape[1:]}, but returns the shape {found.shape}."
            )
        return found


class RowFunction:
    """g, with its coefficients at every step."""

    def __init__(self, algorithm: FirstOrder, p: int) -> None:
        self.algorithm, self.p = algorithm, p
        self._known: dict[int, np.ndarray] = {}

    def moved(
        self, step: int, iterates: np.ndarray, gradients: np.ndarray
    ) -> np.ndarray:
        """The next iterate (p, n) in the coordinates of the rows, g being linear."""
        if step not in self._known:
            size = 2 * self.algorithm.memory * self.p
            units = np.eye(size).reshape(2, -1, self.p, size)
            self._known[step] = self.function(step, units[0], units[1])
        n = iterates.shape[-1]
        stacked = np.concatenate([iterates.reshape(-1, n), gradients.reshape(-1, n)])
        return np.asarray(self._known[step] @ stacked)

    def function(
        self, step: int, iterates: np.ndarray, gradients: np.ndarray
    ) -> np.ndarray:
        """What g returns for rows in any coordinates."""
        if self.algorithm.g is None:
            return np.asarray(iterates[0] + gradients[0])
        found = np.asarray(
            self.algorithm.g(Iterates(step, iterates, gradients)), dtype=float
        )
        if found.shape != iterates.shape[1:]:
            raise InputError(
                "Argument `g` must return a row for each neuron in the coordinates of"
                f" the iterates, {iterates.shape[1:]}, but returns the shape"
                f" {found.shape}."
            )
        return found


def check_functions(algorithm: FirstOrder, kernel: Kernel, p: int, steps: int) -> None:
    """Refuse f that mixes samples and g that mixes coordinates or is not linear, at any
    of so many steps.
    """
    rng = np.random.default_rng(33)
    fields, products = rng.standard_normal((2, algorithm.memory, 2 * TRIED, p))
    iterates, gradients = rng.standard_normal((2, algorithm.memory, p, 2 * TRIED))
    labels = rng.choice([-1.0, 1.0], 2 * TRIED)  # those of any target and loss
    samples, rows = (
        SampleFunction(algorithm, kernel, np.ones(p)),
        RowFunction(algorithm, p),
    )
    for step in range(steps):
        whole = samples.products(step, fields, products, labels)
        part = samples.products(
            step, fields[:, :TRIED], products[:, :TRIED], labels[:TRIED]
        )
        if not _same(whole[:TRIED], part):
            raise InputError(
                "Argument `f` must act on every sample by itself, but at step"
                f" {step} what it returns for some of them depends on others."
            )
        moved = rows.function(step, iterates, gradients)
        part = rows.function(step, iterates[..., :TRIED], gradients[..., :TRIED])
        if not _same(moved[:, :TRIED], part):
            raise InputError(
                "Argument `g` must act on every coordinate by itself, but at step"
                f" {step} what it returns for some of them depends on others."
            )
        if algorithm.coordinatewise:
            continue
        if not _same(moved, rows.moved(step, iterates, gradients)):
            raise InputError(
                "Argument `g` must be linear in the iterates and gradients, the same"
                " in every coordinate (or give coordinatewise=True), but at step"
                f" {step} it is not."
            )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    size = max(1.0, float(np.abs(one).max(initial=0.0)))
    return bool(np.abs(one - other).max(initial=0.0) <= CLOSE * size)
