"""The step: what the optimiser does with a push, written once, as a discrete step and as its limit.

    W ← κ W + η ḡ + β (W − W₋),    a ← a + η₂ s̄ + β (a − a₋),        η = lr/p,  η₂ = second_lr/p,  κ = 1 − lr·λ
    spherical: κ_j → κ_j − η ⟨w_j, ḡ_j⟩/⟨w_j, w_j⟩ (tangent);    projected, spherical: rows divided by their norms
    average of the iterates, looked at and never used:  x̄ ← (1 − w) x̄ + w x,   w = 1/(number of them) or constant

    lr → 0:   dW = f ḡ − pλf W,   da = ρf s̄,   dQ gains f² (γ/(p n_b)) chi,   per time t = lr·step/p
              f = 1/(1 − β),   ρ = second_lr/lr
    projected, spherical: dQ_jl − ½ Q_jl (dQ_jj + dQ_ll),  dM_jr − ½ M_jr dQ_jj

ḡ and s̄ are the means of g zᵀ and e σ(λ) over the batch (kernel.py). The step acts on rows in any coordinates that are
linear in the weights: vectors of R^d, an orthonormal basis of the few directions that matter, coefficients of a mean
step, or particles. No other file knows momentum, decay or geometry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from twolayer.equations.averages import Averages
from twolayer.equations.kernel import Push
from twolayer.equations.state import Overlap, tangent_part
from twolayer.numerics.tracing import traced
from twolayer.task.algorithm import SGD
from twolayer.task.regimes import Regime

__all__ = [
    "Form",
    "Layers",
    "Limit",
    "Memory",
    "Products",
    "Rates",
    "as_data",
    "combine",
    "descend",
    "form_of",
    "largest_lr",
    "limit_at",
    "limit_in",
    "limit_of_flow",
    "motion",
    "quickening",
    "rates_of",
    "row_motion",
    "second_layer",
]

Rows = Float[Array, "p n"]


@dataclass(frozen=True)
class Form:
    """What fixes the compiled code of a step; hashable.

    Attributes
    ----------
    geometry : str
        ``"free"``, ``"projected"`` or ``"spherical"``.
    carries : bool
        Whether the layers one step earlier are part of the state.
    trained : bool
        Whether the second layer moves.
    average : str
        Whether the average of the iterates is part of the state: ``""``, ``"uniform"`` or ``"weighted"``.
    """

    geometry: str = "free"
    carries: bool = False
    trained: bool = False
    average: str = ""

    @property
    def normalises(self) -> bool:
        """Whether rows are divided by their norms."""
        return self.geometry != "free"

    @property
    def tangent(self) -> bool:
        """Whether gradients lose their component along their own row."""
        return self.geometry == "spherical"

    @property
    def flow(self) -> Form:
        """The form of the continuous limit, in which momentum only changes the pace: nothing is carried."""
        return dataclasses.replace(self, carries=False)

    @property
    def copies(self) -> int:
        """Sets of rows that the state holds."""
        return 1 + self.carries + bool(self.average)


class Rates(NamedTuple):
    """The numbers of one step: η = lr/p, κ = 1 − lr·λ, β, η₂ of the second layer, and w of the average."""

    step: Any
    shrink: Any
    momentum: Any
    second: Any
    weight: Any


def form_of(algorithm: SGD) -> Form:
    """What an algorithm does besides its numbers.

    Examples
    --------
    >>> form_of(SGD(lr="1/d", momentum=0.5)).carries
    True
    """
    carries = traced(algorithm.momentum) or algorithm.momentum > 0
    average = algorithm.average if algorithm.average in (None, "uniform") else "weighted"
    # a layer that does not move stays as it is, whatever its geometry
    geometry = algorithm.geometry if algorithm.train_first_layer else "free"
    return Form(geometry, carries, algorithm.train_second_layer, str(average or ""))


def rates_of(algorithm: SGD, p: int, dim: int) -> Rates:
    """The numbers of a step at dimension ``dim``, which is any where the rates are of order one.

    Examples
    --------
    >>> rates_of(SGD(lr="10/d", weight_decay=0.5), p=2, dim=100)
    Rates(step=0.05, shrink=0.95, momentum=0.0, second=0.05, weight=0.0)
    """
    lr, second = algorithm.lr(dim), (algorithm.second_lr or algorithm.lr)(dim)
    weight = 0.0 if algorithm.average in (None, "uniform") else algorithm.average
    if not algorithm.train_first_layer:
        return Rates(0.0, 1.0, algorithm.momentum, second / p, weight)
    return Rates(lr / p, 1.0 - lr * algorithm.weight_decay, algorithm.momentum, second / p, weight)


class Layers(NamedTuple):
    """Rows of the first layer (p, n), in some coordinates, and the second layer (p,)."""

    W: Any
    a: Any


class Memory(NamedTuple):
    """What the optimiser carries: both layers, and where they are needed, those of one step before and their average.

    ``count`` is the number of iterates in the average.
    """

    now: Layers
    previous: Layers | None = None
    average: Layers | None = None
    count: Any = None

    @classmethod
    def at_rest(cls, form: Form, W: Any, a: Any) -> Memory:
        """Layers that have not moved yet; leading axes of a, if there are any, are those of a count."""
        now, blank = Layers(W, a), None
        count = (a * 0.0).sum(-1) + 1.0 if form.average else None
        return cls(now, now if form.carries else blank, now if form.average else blank, count)

    def under(self, form: Form) -> Memory:
        """What another form of step goes on with: what it needs, at rest where that was not there."""
        fresh = Memory.at_rest(form, *self.now)
        kept = self.previous if fresh.previous is not None and self.previous is not None else fresh.previous
        if fresh.average is None or self.average is None:
            return fresh._replace(previous=kept)
        return Memory(self.now, kept, self.average, self.count)

    @property
    def every(self) -> list[Layers]:
        """All layers that are held, those of now first."""
        return [x for x in (self.now, self.previous, self.average) if x is not None]

    def moved(self, layers: Sequence[Layers]) -> Memory:
        """The same with other layers, in the order of ``every``; those of the average may be rows of other length."""
        now, *others = layers
        given = iter(others)
        previous, average = (None if x is None else next(given) for x in (self.previous, self.average))
        return Memory(now, previous, average, self.count)


class Products(NamedTuple):
    """Inner products of each row w with itself, w with ḡ and ḡ with itself, where they are known beforehand."""

    ww: Float[Array, " p"]
    wg: Float[Array, " p"]
    gg: Float[Array, " p"]


def combine(rates: Rates, now: Any, push: Any, previous: Any = None, radial: Any = None) -> Any:
    """The linear part of a step, κ x + η push + β (x − x₋), of rows or of their coefficients. Cost O(p n).

    ``radial`` (p,) is ⟨w, ḡ⟩/⟨w, w⟩ where gradients are tangent.
    """
    keep = rates.shrink if radial is None else (rates.shrink - rates.step * radial)[:, None]
    new = keep * now + rates.step * push
    return new if previous is None else new + rates.momentum * (now - previous)


def on_sphere(square: Any) -> Any:
    """Squared norms of rows after they were divided by their norms: 1, however long the step was.

    Infinite where there is no direction to normalise.
    """
    return jnp.where((square > 0) & jnp.isfinite(square), 1.0, jnp.inf)


def descend(
    form: Form, rates: Rates, state: Memory, push: Push, products: Products | None = None
) -> tuple[Memory, Float[Array, " p"], Float[Array, ""]]:
    """One step of both layers from the batch means of their pushes; the squared norms of the new rows, and the largest.

    What is largest may also be an entry of the second layer, where that moves.

    ``push.first`` (p, n) is in the coordinates of the rows. With ``products`` (and no momentum) the norms follow from
    them, which saves reading the rows twice. Cost O(p n).
    """
    (W, a), previous = state.now, state.previous
    radial = None
    if form.tangent:
        radial = products.wg / products.ww if products else (W * push.first).sum(-1) / (W * W).sum(-1)
    new = combine(rates, W, push.first, previous and previous.W, radial)
    if products is not None and previous is None:
        keep = rates.shrink if radial is None else rates.shrink - rates.step * radial
        square = keep**2 * products.ww + 2 * keep * rates.step * products.wg + rates.step**2 * products.gg
    else:
        square = (new * new).sum(-1)
    if form.normalises:
        new, square = new / jnp.sqrt(square)[..., None], on_sphere(square)
    layer = second_layer(form, rates, a, push.second, previous and previous.a)
    size = jnp.maximum(square.max(), (layer * layer).max()) if form.trained else square.max()
    after = Memory(Layers(new, layer), state.now if form.carries else None)
    return averaged(form, rates, state, after), square, size


def averaged(form: Form, rates: Rates, state: Memory, after: Memory) -> Memory:
    """The memory after a step with its average."""
    if state.average is None:
        return after
    count = state.count + 1.0
    w = 1.0 / count if form.average == "uniform" else rates.weight
    mean = Layers(*((1.0 - w) * old + w * new for old, new in zip(state.average, after.now, strict=True)))
    return after._replace(average=mean, count=count)


def second_layer(form: Form, rates: Rates, a: Any, push: Any, previous: Any = None) -> Any:
    """The second layer has a rate of its own, and neither decays nor stays on a sphere."""
    return combine(rates._replace(step=rates.second, shrink=1.0), a, push, previous) if form.trained else a


class Limit(NamedTuple):
    """The numbers of the continuous limit, per unit of t: weights of the gradient, of chi in dQ, of the decay, and of
    the gradient of the second layer.
    """

    flow: Any
    noise: Any
    decay: Any
    second: Any


def as_data(limit: Limit) -> Limit:
    """Arrays, not floats: numbers that are data of compiled code, which runs at all rates then share."""
    return Limit(*(jnp.asarray(x, float) for x in limit))


def limit_in(regime: Regime, algorithm: SGD, p: int) -> Limit:
    """The limit d → ∞ of an algorithm in its regime.

    Examples
    --------
    >>> from twolayer.task.regimes import regime_of
    >>> algorithm = SGD(lr="0.2/d", momentum=0.5)
    >>> limit_in(regime_of(algorithm), algorithm, p=2)
    Limit(flow=2.0, noise=0.4, decay=0.0, second=2.0)
    """
    ratio = algorithm.lr.coefficient / (p * algorithm.batch.coefficient)
    return _limit(algorithm, p, regime.flow, regime.noise * ratio)


def limit_of_flow(algorithm: SGD, p: int) -> Limit:
    """The limit of small steps on the population loss: there are no samples to spread."""
    return _limit(algorithm, p, 1.0, 0.0)


def limit_at(algorithm: SGD, p: int, dim: int) -> Limit:
    """The same equation with the numbers of a dimension d, whatever the regime."""
    found = _limit(algorithm, p, 1.0, algorithm.lr(dim) * dim / (p * algorithm.batch_at(dim)))
    if algorithm.second_lr is None:
        return found
    return found._replace(second=quickening(algorithm) * algorithm.second_lr(dim) / algorithm.lr(dim))


def _limit(algorithm: SGD, p: int, flow: float, noise: Any) -> Limit:
    """The limit from the weights of the two parts before momentum quickens them."""
    f, moves = quickening(algorithm), float(algorithm.train_first_layer)
    # laws of the same power: those of others have no common limit (regimes.py)
    second = 1.0 if algorithm.second_lr is None else algorithm.second_lr.coefficient / algorithm.lr.coefficient
    decay = flow * f * p * algorithm.weight_decay
    return Limit(moves * flow * f, moves * noise * f**2, moves * decay, second * flow * f)


def quickening(algorithm: SGD) -> Any:
    """F = 1/(1 − β): a heavy ball goes on until friction has used up its speed."""
    return 1.0 / (1.0 - algorithm.momentum)


def largest_lr(algorithm: SGD, p: int, curvature: float) -> float | None:
    """The lr beyond which steps overshoot, lr (h/p + λ) < 2 (1 + β); None where the loss curves downwards.

    Examples
    --------
    >>> largest_lr(SGD(lr="1/d", momentum=0.5), p=2, curvature=1.0)
    6.0
    """
    whole = curvature / p + algorithm.weight_decay
    return 2 * (1 + algorithm.momentum) / whole if whole > 0 else None


def motion(form: Form, limit: Limit, y: Overlap, average: Averages, noisy: bool = True) -> Overlap:
    """dy/dt of the overlaps from the averages at y; ``noisy`` is False where chi is not even computed."""
    # rounding must not break the symmetry of Q: what is antisymmetric can grow exponentially
    Q = (y.Q + y.Q.T) / 2
    dM = limit.flow * average.psi - limit.decay * y.M
    dQ = limit.flow * (average.phi + average.phi.T) - 2 * limit.decay * Q
    if noisy:
        dQ = dQ + limit.noise * (average.chi + average.chi.T) / 2
    da = limit.second * average.second if form.trained else jnp.zeros_like(y.a)
    if form.normalises:
        dQ, dM = tangent_part(Q, y.M, dQ, dM)
    return Overlap(dQ, dM, da)


def row_motion(form: Form, limit: Limit, layers: Layers, push: Push) -> Layers:
    """dy/dt of the rows themselves, where the spread of single samples plays no role."""
    W = layers.W
    dW = limit.flow * push.first - limit.decay * W
    if form.normalises:
        dW = dW - W * ((dW * W).sum(-1) / (W * W).sum(-1))[..., None]
    return Layers(dW, limit.second * push.second if form.trained else jnp.zeros_like(layers.a))
