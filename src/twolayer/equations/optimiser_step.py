"""The step: what the optimiser does with a push, written once, as a discrete step and
as its limit.

    W ← κ W + η ḡ + β (W − W₋),    a ← a + η₂ s̄ + β (a − a₋),        η = lr/N,
        η₂ = second_lr/N,  κ = 1 − lr·λ
    Nesterov:  Y = W + β (W − W₋),  W ← κ Y + η ḡ(Y),  and a alike
    spherical: κ_j → κ_j − η ⟨w_j, ḡ_j⟩/⟨w_j, w_j⟩ (tangent);
        projected, spherical: rows divided by their norms
    average of the iterates, looked at and never used:  x̄ ← (1 − w) x̄ + w x,
        w = 1/(number of them) or constant

    lr → 0:   dW = f ḡ − Nλf W,   da = ρf s̄,   dQ gains f² (γ/(N n_b)) chi,
        per time t = lr·step/N
              f = 1/(1 − β),   ρ = second_lr/lr
    projected, spherical: dQ_jl − ½ Q_jl (dQ_jj + dQ_ll),  dM_jr − ½ M_jr dQ_jj

ḡ and s̄ are the means of g zᵀ and e σ(λ) over the batch (increment_kernel.py). The step
acts on rows in any coordinates that are linear in the weights: vectors of R^d, an
orthonormal basis of the few directions that matter, coefficients of a mean step, or
particles. With schedules lr and n_b are those at the clocks before the step, which are
then part of the state; a flow runs in the time τ of the rate without its schedule, and
everything in it gains a factor. No other file knows momentum, decay, schedules or
geometry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import jax.scipy.fft
import numpy as np
from jaxtyping import Array, Float

from twolayer.equations.averages import Averages
from twolayer.equations.increment_kernel import Push
from twolayer.equations.state import Overlap, pack, size_of, unpack
from twolayer.numerics.tracing import traced
from twolayer.numerics.types import (
    Cross,
    Gram,
    Layer,
    Number,
    Numbers,
    Real,
    Scalar,
    Tree,
)
from twolayer.task.algorithm import SGD
from twolayer.task.regimes import Regime
from twolayer.task.rules import Rule
from twolayer.task.schedule_factors import Clock, Tempo

__all__ = [
    "Coefficients",
    "Form",
    "Layers",
    "Limit",
    "Memory",
    "Products",
    "ahead",
    "as_data",
    "coefficients_of",
    "combine",
    "descend",
    "form_of",
    "largest_lr",
    "limit_at",
    "limit_in",
    "limit_of_flow",
    "motion",
    "quickening",
    "rates_now",
    "row_motion",
    "rule_state",
    "ruled",
    "second_layer",
    "tangent",
    "tangent_part",
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
    nesterov : bool
        Whether gradients are taken ahead.
    average : str
        Whether the average of the iterates is part of the state: ``""``, ``"uniform"``
        or ``"weighted"``.
    rule : Rule, optional
        What is made of the mean gradient: noise added, an adaptive rate, something done
        with every coordinate.
    """

    geometry: str = "free"
    carries: bool = False
    trained: bool = False
    nesterov: bool = False
    average: str = ""
    rule: Rule | None = None

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
        """The form of the continuous limit, in which momentum only changes the pace:
        nothing is carried.
        """
        return dataclasses.replace(self, carries=False, nesterov=False, rule=None)

    @property
    def jitter(self) -> float:
        """ς of the isotropic noise on a step."""
        return 0.0 if self.rule is None else self.rule.jitter

    @property
    def copies(self) -> int:
        """Sets of rows that the state holds."""
        return 1 + self.carries + bool(self.average)


class Coefficients(NamedTuple):
    """The numbers of one step: η = lr/N, lr·λ, β, η₂ of the second layer and w of the
    average.

    n_b where it is data, and d and N where a rule needs them.
    """

    step: Number
    decay: Number
    momentum: Number
    second: Number
    weight: Any
    batch: Any = None
    dim: Any = None
    divisor: Any = None

    @property
    def shrink(self) -> Number:
        """κ = 1 − lr·λ."""
        return 1.0 - self.decay


def form_of(algorithm: SGD) -> Form:
    """What an algorithm does besides its numbers."""
    carries = traced(algorithm.momentum) or algorithm.momentum > 0
    average = (
        algorithm.average if algorithm.average in (None, "uniform") else "weighted"
    )
    # a layer that does not move stays as it is, whatever its geometry
    geometry = algorithm.geometry if algorithm.train_first_layer else "free"
    rule = algorithm.rule
    acts = rule is not None and (rule.jitter or rule.adapts or rule.coordinates)
    form = Form(
        geometry,
        carries,
        algorithm.train_second_layer,
        algorithm.nesterov,
        str(average or ""),
    )
    return dataclasses.replace(form, rule=rule) if acts else form


def coefficients_of(algorithm: SGD, divisor: float, dim: int | None) -> Coefficients:
    """The numbers of a step at dimension ``dim``; None where they are the same at every
    one.

    ``divisor`` is N, by which the student's sum over neurons is divided.

    Examples
    --------
    >>> coefficients_of(SGD(lr="10/d", weight_decay=0.5), divisor=2, dim=100)
    Coefficients(step=0.05, decay=0.05, momentum=0.0, second=0.05, weight=0.0,
    batch=None, dim=None, divisor=None)
    """
    lr, second = (
        law(dim or 1) for law in (algorithm.lr, algorithm.second_lr or algorithm.lr)
    )
    weight = 0.0 if algorithm.average in (None, "uniform") else algorithm.average
    # of a rule
    size, N = (
        (None, None)
        if algorithm.rule is None or dim is None
        else (float(dim), float(divisor))
    )
    if not algorithm.train_first_layer:
        return Coefficients(
            0.0, 0.0, algorithm.momentum, second / divisor, weight, dim=size, divisor=N
        )
    return Coefficients(
        lr / divisor,
        lr * algorithm.weight_decay,
        algorithm.momentum,
        second / divisor,
        weight,
        dim=size,
        divisor=N,
    )


class Layers(NamedTuple):
    """Rows of the first layer (p, n), in some coordinates, and the second layer
    (p,).
    """

    W: Numbers
    a: Layer


class Memory(NamedTuple):
    """What the optimiser carries: both layers, and where they are needed, those of one
    step before and the clocks.

    ``extra`` is the state of a rule, ``average`` that of the iterates, of which there
    are ``count``. Layers have any leading axes, and so have the others.
    """

    now: Layers
    previous: Layers | None = None
    clock: Clock | None = None
    extra: Tree = None
    average: Layers | None = None
    count: Any = None

    @classmethod
    def at_rest(
        cls, form: Form, W: Numbers, a: Layer, tempo: Tempo | None = None
    ) -> Memory:
        """Layers that have not moved yet."""
        now, clock = Layers(W, a), None if tempo is None else Clock.zero(a.shape[:-1])
        count = (a * 0.0).sum(-1) + 1.0 if form.average else None
        held = (
            (now if form.carries else None),
            clock,
            rule_state(form, W),
            (now if form.average else None),
        )
        return cls(now, *held, count)

    def under(self, form: Form, tempo: Tempo | None = None) -> Memory:
        """What another form of step goes on with: what it needs, at rest where that was
        not there.

        Clocks of schedules begin anew.
        """
        found = Memory.at_rest(form, *self.now, tempo)
        if found.previous is not None and self.previous is not None:
            found = found._replace(previous=self.previous)
        if found.average is not None and self.average is not None:
            found = found._replace(average=self.average, count=self.count)
        same = str(jax.tree.structure(found.extra)) == str(
            jax.tree.structure(self.extra)
        )
        return found._replace(extra=self.extra) if same else found

    @property
    def every(self) -> list[Layers]:
        """All layers that are held, those of now first."""
        return [x for x in (self.now, self.previous, self.average) if x is not None]

    def moved(self, layers: Sequence[Layers]) -> Memory:
        """The same with other layers, in the order of ``every``."""
        now, *others = layers
        given = iter(others)
        previous, average = (
            None if x is None else next(given) for x in (self.previous, self.average)
        )
        return self._replace(now=now, previous=previous, average=average)

    def aimed(self, form: Form, rates: Coefficients) -> Layers:
        """The layers at which gradients are taken: where they are, or ahead."""
        if not form.nesterov:
            return self.now
        assert self.previous is not None
        return Layers(
            *(ahead(rates, x, y) for x, y in zip(self.now, self.previous, strict=True))
        )


def ahead(rates: Coefficients, now: Real, previous: Real) -> Real:
    """x + β (x − x₋), of rows or of their coefficients."""
    return now + rates.momentum * (now - previous)


def rates_now(rates: Coefficients, tempo: Tempo | None, state: Memory) -> Coefficients:
    """The numbers of the next step: those without schedules, times the factors at the
    clocks.
    """
    if tempo is None:
        return rates
    assert state.clock is not None
    f, n = tempo(state.clock)
    # what follows is compiled as if these were numbers from outside: a factor of one
    # changes no bit
    scaled = (rates.step * f, rates.decay * f, rates.second * f, n * jnp.ones(()))
    step, decay, second, n = jax.lax.optimization_barrier(scaled)  # type: ignore[no-untyped-call]
    return rates._replace(step=step, decay=decay, second=second, batch=n)


def rule_state(form: Form, W: Real) -> Tree:
    """What a rule carries, at the start: Σ|∇|²/d² of AdaGrad, or the moments of Adam
    and the number of steps.
    """
    rule = form.rule
    if rule is not None and rule.adapts is not None:
        return jnp.zeros(W.shape[:-2])
    if rule is not None and rule.coordinates == "adam":
        return jnp.zeros_like(W), jnp.zeros_like(W), jnp.zeros(W.shape[:-2])
    return None


def _axes(n: int) -> np.ndarray:
    """Signs of the frame in which coordinates are taken: that of a cosine transform,
    with random signs.
    """
    return np.where(np.random.default_rng(n).random(n) < 0.5, -1.0, 1.0)


def to_axes(x: Any) -> Any:
    """Rows in a frame in which the first few directions are spread over all
    coordinates. Cost O(p n log n).
    """
    return _axes(x.shape[-1]) * jax.scipy.fft.idct(x, norm="ortho")


def from_axes(x: Any) -> Any:
    """Rows of that frame, back."""
    return jax.scipy.fft.dct(_axes(x.shape[-1]) * x, norm="ortho")


def ruled(
    form: Form, rates: Coefficients, extra: Tree, push: Real
) -> tuple[Coefficients, Tree, Real]:
    """Rates, state of the rule and mean gradient ḡ (p, n) after the rule has seen
    it.
    """
    rule = form.rule
    if rule is None:
        return rates, extra, push
    if rule.adapts is not None:
        total = extra + (push**2).sum() / (rates.divisor * rates.dim) ** 2
        f = 1 / jnp.sqrt(rule.adapts**2 + total)
        return rates._replace(step=rates.step * f, decay=rates.decay * f), total, push
    if rule.coordinates == "sign":
        return rates, extra, from_axes(jnp.sign(to_axes(push)))
    if rule.coordinates == "adam":
        (b1, b2, small), (m, v, n) = (x for _, x in rule.arguments), extra
        n, own = n + 1, to_axes(push) / rates.divisor
        m, v = b1 * m + (1 - b1) * own, b2 * v + (1 - b2) * own**2
        return (
            rates,
            (m, v, n),
            from_axes(
                rates.divisor * (m / (1 - b1**n)) / (jnp.sqrt(v / (1 - b2**n)) + small)
            ),
        )
    return rates, extra, push


class Products(NamedTuple):
    """Inner products of each row w with itself, w with ḡ and ḡ with itself, where they
    are known beforehand.
    """

    ww: Float[Real, " p"]
    wg: Float[Real, " p"]
    gg: Float[Real, " p"]


def combine(
    rates: Coefficients,
    now: Real,
    push: Real,
    previous: Real | None = None,
    radial: Real | None = None,
) -> Numbers:
    """The linear part of a step, κ x + η push + β (x − x₋), of rows or of their
    coefficients. Cost O(p n).

    ``radial`` (p,) is ⟨w, ḡ⟩/⟨w, w⟩ where gradients are tangent.
    """
    keep = (
        rates.shrink
        if radial is None
        else (rates.shrink - rates.step * radial)[:, None]
    )
    new = keep * now + rates.step * push
    return new if previous is None else new + rates.momentum * (now - previous)


def on_sphere(square: Numbers) -> Numbers:
    """Squared norms of rows after they were divided by their norms: 1, however long the
    step was.

    Infinite where there is no direction to normalise.
    """
    return jnp.where((square > 0) & jnp.isfinite(square), 1.0, jnp.inf)


def descend(
    form: Form,
    rates: Coefficients,
    state: Memory,
    push: Push,
    products: Products | None = None,
) -> tuple[Memory, Float[Real, " p"], Float[Real, ""]]:
    """One step of both layers from the batch means of their pushes; the squared norms
    of the new rows, and the largest.

    What is largest may also be an entry of the second layer, where that moves.

    ``push.first`` (p, n) is in the coordinates of the rows. With ``products`` (and no
    momentum) the norms follow from them, which saves reading the rows twice. Where
    gradients are taken ahead, the step is made from there. Cost O(p n).
    """
    (W, a), previous = (
        state.aimed(form, rates),
        None if form.nesterov else state.previous,
    )
    plain, (rates, extra, first) = rates, ruled(form, rates, state.extra, push.first)
    push, products = Push(first, push.second), products if form.rule is None else None
    radial = None
    if form.tangent:
        radial = (
            products.wg / products.ww
            if products
            else (W * push.first).sum(-1) / (W * W).sum(-1)
        )
    new = combine(rates, W, push.first, previous and previous.W, radial)
    if products is not None and previous is None:
        keep = rates.shrink if radial is None else rates.shrink - rates.step * radial
        square = (
            keep**2 * products.ww
            + 2 * keep * rates.step * products.wg
            + rates.step**2 * products.gg
        )
    else:
        square = (new * new).sum(-1)
    if form.normalises:
        new, square = new / jnp.sqrt(square)[..., None], on_sphere(square)
    layer = second_layer(form, plain, a, push.second, previous and previous.a)
    size = (
        jnp.maximum(square.max(), (layer * layer).max())
        if form.trained
        else square.max()
    )
    clock = state.clock and Clock(
        state.clock.step + 1,
        state.clock.time + plain.step,
        state.clock.sample + rates.batch,
    )
    after = Memory(
        Layers(new, layer), state.now if form.carries else None, clock, extra
    )
    return averaged(form, rates, state, after), square, size


def averaged(form: Form, rates: Coefficients, state: Memory, after: Memory) -> Memory:
    """The memory after a step with its average."""
    if state.average is None:
        return after
    count = state.count + 1.0
    w = 1.0 / count if form.average == "uniform" else rates.weight
    mean = Layers(
        *(
            (1.0 - w) * old + w * new
            for old, new in zip(state.average, after.now, strict=True)
        )
    )
    return after._replace(average=mean, count=count)


def second_layer(
    form: Form, rates: Coefficients, a: Layer, push: Real, previous: Real | None = None
) -> Numbers:
    """The second layer has a rate of its own, and neither decays nor stays on a
    sphere.
    """
    return (
        combine(rates._replace(step=rates.second, decay=0.0), a, push, previous)
        if form.trained
        else a
    )


class Limit(NamedTuple):
    """The numbers of the continuous limit, per unit of t: weights of the gradient, of
    chi in dQ, of the decay, and of the gradient of the second layer.

    ``jitter`` is what isotropic noise on the steps adds to the diagonal of dQ, and
    ``growth`` the weight of tr chi in the sum Σ|∇|²/d² that AdaGrad follows.
    """

    flow: Number
    noise: Scalar
    decay: Real
    second: Real
    jitter: Number | None = None
    growth: Number | None = None

    def scaled(self, f: Number, b: Number) -> Limit:
        """Per unit of τ, where lr is f times and the batch b times what they are
        without schedules.
        """
        jitter = None if self.jitter is None else self.jitter * f**2
        # a unit of τ has as many steps whatever f is: the sum feels the batch alone
        growth = None if self.growth is None else self.growth / b
        return Limit(
            flow=self.flow * f,
            noise=self.noise * f**2 / b,
            decay=self.decay * f,
            second=self.second * f,
            jitter=jitter,
            growth=growth,
        )

    def only(self, flow: float, noise: float) -> Limit:
        """The same form with these weights of the gradient and of chi, and no other
        term.
        """
        # of the types that the numbers of a run have: nothing is compiled again
        zero = jnp.zeros(())
        gradient = jnp.asarray(flow, float)
        return Limit(
            gradient,
            jnp.asarray(noise, float),
            zero,
            gradient,
            jitter=None if self.jitter is None else zero,
            growth=None if self.growth is None else zero,
        )

    def adapted(self, f: Number) -> Limit:
        """Where a rule makes the rate of the first layer f times as large.

        The second layer takes its plain step, as in `descend`.
        """
        return self.scaled(f, 1.0)._replace(second=self.second)


Told = TypeVar("Told", Limit, Coefficients)


def as_data(numbers: Told) -> Told:
    """Arrays, not floats: numbers that are data of compiled code, which runs at all
    rates then share.
    """
    found: list[Any] = [None if x is None else jnp.asarray(x, float) for x in numbers]
    return type(numbers)(*found)


def limit_in(regime: Regime, algorithm: SGD, divisor: float) -> Limit:
    """The limit d → ∞ of an algorithm in its regime.

    Examples
    --------
    >>> from twolayer.task.regimes import regime_of
    >>> algorithm = SGD(lr="0.2/d", momentum=0.5)
    >>> limit_in(regime_of(algorithm), algorithm, divisor=2)
    Limit(flow=2.0, noise=0.4, decay=0.0, second=2.0, jitter=None, growth=None)
    """
    ratio = algorithm.lr.coefficient / (divisor * algorithm.batch.coefficient)
    jitter = (
        None
        if algorithm.rule is None or not algorithm.rule.jitter
        else algorithm.rule.jitter**2
    )
    if jitter is not None:  # of order one where lr is of order 1/d, whatever the batch
        rate = algorithm.lr.coefficient / divisor if algorithm.delta < 1 + 1e-9 else 0.0
        jitter = quickening(algorithm) ** 2 * jitter * rate
    growth = None
    if algorithm.rule is not None and algorithm.rule.adapts is not None:
        growth = 1 / (divisor * algorithm.lr.coefficient * algorithm.batch.coefficient)
    limit = _limit(algorithm, divisor, regime.flow, regime.noise * ratio)
    return limit._replace(jitter=jitter, growth=growth)


def limit_of_flow(algorithm: SGD, divisor: float) -> Limit:
    """The limit of small steps on the population loss: there are no samples to
    spread.
    """
    return _limit(algorithm, divisor, 1.0, 0.0)


def limit_at(algorithm: SGD, divisor: float, dim: int) -> Limit:
    """The same equation with the numbers of a dimension d, whatever the regime."""
    found = _limit(
        algorithm,
        divisor,
        1.0,
        algorithm.lr(dim) * dim / (divisor * algorithm.batch_at(dim)),
    )
    if algorithm.second_lr is None:
        return found
    return found._replace(
        second=quickening(algorithm) * algorithm.second_lr(dim) / algorithm.lr(dim)
    )


def _limit(algorithm: SGD, divisor: float, flow: float, noise: Number) -> Limit:
    """The limit from the weights of the two parts before momentum quickens them."""
    f, moves = quickening(algorithm), float(algorithm.train_first_layer)
    # laws of the same power: those of others have no common limit (regimes.py)
    second = (
        1.0
        if algorithm.second_lr is None
        else algorithm.second_lr.coefficient / algorithm.lr.coefficient
    )
    decay = flow * f * divisor * algorithm.weight_decay
    return Limit(
        moves * flow * f, moves * noise * f**2, moves * decay, second * flow * f
    )


def quickening(algorithm: SGD) -> Any:
    """f = 1/(1 − β): a heavy ball goes on until friction has used up its speed."""
    return 1.0 / (1.0 - algorithm.momentum)


def largest_lr(algorithm: SGD, divisor: float, curvature: float) -> float | None:
    """The lr beyond which steps overshoot, lr (h/N + λ) < 2 (1 + β); None where the
    loss curves downwards.

    Examples
    --------
    >>> largest_lr(SGD(lr="1/d", momentum=0.5), divisor=2, curvature=1.0)
    6.0
    """
    whole = curvature / divisor + algorithm.weight_decay
    return 2 * (1 + algorithm.momentum) / whole if whole > 0 else None


def motion(
    form: Form, limit: Limit, y: Overlap, average: Averages, noisy: bool = True
) -> Overlap:
    """dy/dt of the overlaps from the averages at y; ``noisy`` is False where chi is not
    even computed.
    """
    # rounding must not break the symmetry of Q: what is antisymmetric can grow
    # exponentially
    Q = (y.Q + y.Q.T) / 2
    dM = limit.flow * average.psi - limit.decay * y.M
    dQ = limit.flow * (average.phi + average.phi.T) - 2 * limit.decay * Q
    if noisy:
        dQ = dQ + limit.noise * (average.chi + average.chi.T) / 2
    if limit.jitter is not None:
        dQ = dQ + limit.jitter * jnp.eye(len(Q))
    da = limit.second * average.second if form.trained else jnp.zeros_like(y.a)
    if form.normalises:
        dQ, dM = tangent_part(Q, y.M, dQ, dM)
    return Overlap(dQ, dM, da)


def tangent_part(Q: Real, M: Number, dQ: Real, dM: Number) -> tuple[Numbers, Numbers]:
    """What is left of changes of Q and M when the rows keep their norms, over all
    blocks where there are any.

    The norms are conserved whatever they are, not only where Q_jj = 1, so that rounding
    cannot drive them away.
    """
    change, norm = (jnp.diagonal(x if x.ndim == 2 else x.sum(0)) for x in (dQ, Q))
    own = change / (2 * norm)
    return dQ - Q * (own[:, None] + own[None, :]), dM - M * own[:, None]


def tangent(Q: Gram, M: Cross, trained: bool) -> Numbers:
    """The same as a matrix J, of small changes of the packed overlaps (state.py)."""
    p, k = M.shape

    def project(x: Numbers) -> Numbers:
        dQ, dM, da = unpack(x, p, k, trained)
        return pack(*tangent_part(Q, M, dQ, dM), da, trained)

    return jax.vmap(project, out_axes=1)(jnp.eye(size_of(p, k, trained)))


def row_motion(form: Form, limit: Limit, layers: Layers, push: Push) -> Layers:
    """dy/dt of the rows themselves, where the spread of single samples plays no
    role.
    """
    W = layers.W
    dW = limit.flow * push.first - limit.decay * W
    if form.normalises:
        dW = dW - W * ((dW * W).sum(-1) / (W * W).sum(-1))[..., None]
    return Layers(
        dW, limit.second * push.second if form.trained else jnp.zeros_like(layers.a)
    )
