"""The learning rate at which the fixed point of perfect learning loses its stability.

    C = Q − M − Mᵀ + P:    dC/dt = −(JC + CJ)/N + (γ/(N³ n_b)) K:C,        lr = γ/d
    J = E[s sᵀ],    K:C = E[(sᵀ C s) s sᵀ],    s_j = a_j σ'(λ_j) at perfect learning
    γ_c = N² n_b/μ,    μ the largest eigenvalue of K:C = μ (JC + CJ) on symmetric C

One neuron: γ_c = 2 n_b E[σ'²]/(a² E[σ'⁴]). C is the part of the rows outside the
target's directions; what moves inside them does not depend on γ. Dividing rows by their
norms changes C at second order only, so that γ_c is that of projected weights too.
Orthonormal directions make all averages products of moments of σ' in one dimension.
With inputs of several variances J and K are averages at the fields' Gram matrix P, and
where it stands still Σ_i s_i C⁽ⁱ⁾ obeys the same equation: γ_c is divided by the mean
variance Σ_i s_i d_i/d.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from twolayer.functions.hermite import gauss_panels
from twolayer.gaussian.nodes import target_frame
from twolayer.numerics.arguments import ArrayFunction
from twolayer.numerics.errors import InputError, expect, reject
from twolayer.numerics.precision import float64
from twolayer.numerics.quadrature_rules import hermite_rule, sobol_normals
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling, positive_law
from twolayer.task.schedules import Law

__all__ = ["critical_lr", "perfect_point"]

PERFECT = (
    1e-12  # mean squared error, relative to the labels, of a student that is the target
)
MAX_GRID = 2**17
WIDEST = 40  # K has p⁴ entries


@float64
def perfect_point(problem: Problem) -> Overlaps:
    """Neurons on the target's directions, one after the other, if the student then is
    the target.

    Parameters
    ----------
    problem : Problem
        One that the student can represent.

    Examples
    --------
    >>> import twolayer as tl
    >>> perfect_point(tl.Problem("He2(z1)", "He2", width=2)).M.tolist()
    [[1.0], [1.0]]
    """
    if not expect(Problem, "problem", problem).inputs.plain:
        raise InputError(
            "Argument `problem` must have inputs N(0, I), for how a target lies in"
            f" blocks is no part of it, but has {problem.inputs}: give"
            " Overlaps.in_blocks with Q = M = P."
        )
    own = _represented(problem)
    return Overlaps(own @ problem.P @ own.T, own @ problem.P, problem.P)


def _represented(problem: Problem) -> np.ndarray:
    """Which direction each neuron lies on (p, k); refuses students that are then not
    the target.
    """
    own = np.eye(problem.k)[np.arange(problem.p) % problem.k]
    L = target_frame(problem.P)[0]
    fields = jnp.asarray(sobol_normals(L.shape[1], 10) @ L.T)
    label = np.asarray(problem.target(fields))
    said = (
        np.asarray(problem.activation(fields @ own.T)) @ problem.a() / problem.divisor
    )
    error = float(np.mean((label - said) ** 2) / 2)
    if not error <= PERFECT * float(np.mean(label**2)):
        raise InputError(
            "Argument `problem` must have a student that equals its target when"
            " neurons lie on the target's directions in turn (the same function, with"
            f" a second layer to match), but the excess risk there is {error:.3g}."
        )
    return own


@float64
def critical_lr(problem: Problem, batch: Law = 1) -> Scaling:
    """The lr beyond which perfect learning is unstable: excess risk grows instead of
    vanishing.

    Parameters
    ----------
    problem : Problem
        One that the student can represent. Label noise plays no role: below this lr the
        risk settles at a level proportional to it, above it there is none.
    batch : Scaling, int or str
        n_b, of an order below d.

    Returns
    -------
    Scaling
        γ_c n_b/d, for `SGD(lr=…)`.

    Examples
    --------
    >>> import twolayer as tl
    >>> f"{critical_lr(tl.Problem('He2(z1)', 'He2')):.6g}"
    '0.166667/d'
    >>> committee = tl.Problem(tl.Teacher("erf", k=2), "erf", width=2)
    >>> f"{critical_lr(committee, batch=4):.6g}"
    '36.9092/d'
    """
    expect(Problem, "problem", problem)
    law = positive_law(batch, "batch")
    if law.exponent >= 1 or law.schedule is not None:
        reject(
            "batch",
            batch,
            "a number or a law of an order below d, for which γ/d is the scale of lr",
        )
    if problem.p > WIDEST:
        raise InputError(
            f"Argument `problem` must have at most {WIDEST} neurons here, but has"
            f" {problem.p}."
        )
    _represented(problem)
    J, K = _averages(problem)
    p = problem.p
    basis = _symmetric_basis(p)
    whole = np.einsum("njl,jlmr,emr->ne", basis, K, basis, optimize=True)
    pull = np.einsum("njl,jm,eml->ne", basis, J, basis, optimize=True)
    pull = pull + pull.T
    values, vectors = scipy.linalg.eigh(pull)
    keep = vectors[:, values > 1e-12 * values[-1]] / np.sqrt(
        values[values > 1e-12 * values[-1]]
    )
    mu = float(
        scipy.linalg.eigvalsh(keep.T @ whole @ keep)[-1]
    )  # where nothing pulls, nothing is kicked
    spread = float(np.dot(problem.inputs.variances, problem.inputs.fractions))
    return Scaling(problem.divisor**2 / (mu * spread), -1.0) * law


def _symmetric_basis(p: int) -> np.ndarray:
    """Orthonormal symmetric matrices (n, p, p)."""
    rows, columns = np.triu_indices(p)
    basis = np.zeros((len(rows), p, p))
    size = np.where(rows == columns, 1.0, np.sqrt(0.5))
    basis[np.arange(len(rows)), rows, columns] = size
    basis[np.arange(len(rows)), columns, rows] = size
    return basis


def _averages(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """J (p, p) and K (p, p, p, p)."""
    p, k, a, sigma = problem.p, problem.k, problem.a(), problem.activation
    own = np.arange(p) % k
    slope = jax.vmap(jax.grad(lambda z: sigma(z)))
    if np.allclose(problem.P, np.eye(k), atol=1e-12):
        x, w = gauss_panels(sigma.kinks)
        s = np.asarray(slope(jnp.asarray(x)))
        power = np.array([(w * s**n).sum() for n in range(5)])
        J, K = _products(power, own, 2), _products(power, own, 4)
    else:
        s, w = _grid(problem, slope)
        s = s[:, own]
        J = np.einsum("n,nj,nl->jl", w, s, s)
        pairs = (s[:, :, None] * s[:, None, :]).reshape(len(s), -1)
        K = ((pairs.T * w) @ pairs).reshape(p, p, p, p)
    return J * a[:, None] * a, K * np.einsum("j,l,m,n->jlmn", a, a, a, a)


def _products(power: np.ndarray, own: np.ndarray, n: int) -> np.ndarray:
    """E[σ'(z_i) σ'(z_j) …] of n factors with independent normals: for each that occurs,
    the moment of its count.
    """
    index = own[np.indices((len(own),) * n)]
    equal = index[:, None] == index[None]
    count, again = equal.sum(1), np.stack([equal[i, :i].any(0) for i in range(n)])
    return np.asarray(np.where(again, 1.0, power[count]).prod(0))


def _grid(problem: Problem, slope: ArrayFunction) -> tuple[np.ndarray, np.ndarray]:
    """σ' of the target's fields at the nodes of a product rule (n, k), and its
    weights.
    """
    values, vectors = np.linalg.eigh(problem.P)
    root = vectors[:, values > 1e-10] * np.sqrt(values[values > 1e-10])
    rank = root.shape[1]
    nodes = int(min(48, MAX_GRID ** (1 / rank)))
    if problem.activation.kinks or nodes < 12:
        raise InputError(
            "Argument `problem` must have orthonormal directions where its activation"
            " has kinks or there are more than five of them, but has gram ="
            f" {problem.P.tolist()}."
        )
    points, weights = hermite_rule([nodes] * rank)
    return (
        np.asarray(slope(jnp.asarray(points @ root.T).ravel())).reshape(
            len(points), problem.k
        ),
        weights,
    )
