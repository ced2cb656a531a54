"""The floor for JAX users: the same equations as pure functions, for `jit`, `vmap` and
`grad`.

    averages(problem, loss)(Ω)                psi, phi, chi, second, excess_risk
        gaussian/
    vector_field(problem, algorithm)(Ω)       dΩ/dt
        equations/optimiser_step.py
    integrate(field, Ω, times)                Ω(t)
    increment(problem, algorithm)(λ, λ*, ξ)   g and e σ(λ) of single samples
        equations/increment_kernel.py
    mean_step(problem, algorithm, dim)(Ω)     E[Ω after a step]
        equations/mean_step.py
    chain_step(problem, algorithm, dim)       Ω after a step, from its normals
        equations/orthogonal.py

`solve` stands on these functions. Functions and widths are fixed when one of them is
made, on the host; numbers are data: learning rates, noise levels, overlaps and second
layers may be traced, mapped over and differentiated. They need double precision:
``jax.config.update("jax_enable_x64", True)``.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twolayer.equations.averages import Averages
from twolayer.equations.blocks import Blocks, block_motion
from twolayer.equations.increment_kernel import Kernel, Push, Sample, kernel_of
from twolayer.equations.mean_step import MeanStep, Rows, Terms, Weights
from twolayer.equations.optimiser_step import (
    Form,
    Limit,
    Memory,
    as_data,
    coefficients_of,
    form_of,
    limit_in,
    motion,
)
from twolayer.equations.orthogonal import (
    Frame,
    Reduced,
    batch_sums,
    exact_step,
    overlaps,
)
from twolayer.equations.state import Overlap
from twolayer.gaussian.engines import Engine, adapt, select
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.single_samples import rows_of
from twolayer.gaussian.step_fluctuations import StepSamples
from twolayer.numerics.arguments import finite_array
from twolayer.numerics.compilation import refuse_wrong_version
from twolayer.numerics.errors import (
    InputError,
    Refused,
    choice,
    expect,
    finite_number,
    positive_integer,
    require,
)
from twolayer.numerics.tracing import traced
from twolayer.numerics.types import Number, Real
from twolayer.numerics.wishart import GramFactor
from twolayer.task.algorithm import SGD
from twolayer.task.heavy_tails import two_laws
from twolayer.task.losses import Loss
from twolayer.task.overlaps import Overlaps, register
from twolayer.task.problem import Problem
from twolayer.task.regimes import layers_apart, memory_beyond, regime_of
from twolayer.task.rules import unaveraged

__all__ = [
    "ChainStep",
    "Increment",
    "Mean",
    "MeanAverages",
    "VectorField",
    "averages",
    "chain_step",
    "increment",
    "integrate",
    "mean_step",
    "vector_field",
]

# callers switch double precision on themselves, where others are asked
refuse_wrong_version()


MODES = ("reverse", "forward")

register()  # overlaps may have been described before JAX was imported


def _engine(problem: Problem, loss: Loss | str, at: Overlaps | None) -> Engine:
    """The engine of a problem, refined at a point if one is given."""
    expect(Problem, "problem", problem)
    if at is not None:
        expect(Overlaps, "at", at)
    problem.require_isotropic("tl.pure")
    if not jax.config.read("jax_enable_x64"):  # type: ignore[no-untyped-call]
        raise InputError(
            "tl.pure needs double precision: call jax.config.update('jax_enable_x64',"
            " True) first."
        )
    if at is None:
        return select(problem, loss).engine
    return adapt(problem, loss, at.Q, at.M, problem.a() if at.a is None else at.a)[
        0
    ].engine


class MeanAverages(eqx.Module):
    """Overlaps → the averages; what `averages` returns.

    Attributes
    ----------
    engine : Engine
        What computes them: a closed form, or nodes.
    layer, noise : array (p,), float
        The second layer where overlaps have none, and Δ.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     found = averages(Problem("He2(z1)", "He2"))(Overlaps([[1.0]], [[0.5]]))
    ...     found.phi.shape, round(float(found.excess_risk), 6)
    ((1, 1), 1.5)
    """

    engine: Engine
    layer: Real
    noise: Number

    def __call__(self, start: Overlaps) -> Averages:
        """The averages at overlaps. Cost that of the engine."""
        return self.engine(
            start.Q, start.M, self.layer if start.a is None else start.a, self.noise
        )


def averages(
    problem: Problem, loss: Loss | str = "squared", at: Overlaps | None = None
) -> MeanAverages:
    """The averages that drive the dynamics, as a function of the overlaps.

    Parameters
    ----------
    problem : Problem
        Its noise may be traced.
    loss : str or Loss
        ``"squared"`` by default.
    at : Overlaps, optional
        A point at which quadratures are refined until they have converged.

    Returns
    -------
    callable
        Overlaps → psi (p, k), phi (p, p), chi (p, p), second (p,) and excess_risk.

    Examples
    --------
    >>> problem, start = Problem("He2(z1)", "He2"), Overlaps([[1.0]], [[0.5]])
    >>> with jax.enable_x64(True):
    ...     slope = jax.grad(lambda start: averages(problem)(start).excess_risk)(start)
    >>> slope.M.tolist()
    [[-2.0]]
    """
    return MeanAverages(_engine(problem, loss, at), problem.a(), problem.noise)


class VectorField(eqx.Module):
    """The right-hand side of the limit d → ∞: an engine, and what the step makes of its
    averages.

    Called with overlaps it returns their rates of change; diffrax calls `rate`.

    Attributes
    ----------
    engine : Engine
        What computes the averages.
    limit : Limit
        Weights of gradient, noise and decay in the limit.
    noise, layer : float, array (p,)
        Δ, and the second layer where overlaps have none.
    form : Form
        What fixes the compiled code: geometry, momentum, which layers move.
    noisy : bool
        Whether the term of second order in lr is there; it is not in the regime of
        gradient flow.
    blocks : Blocks, optional
        Variances and sizes of the blocks of the inputs; overlaps then have an axis for
        them.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     field = vector_field(Problem("z1", "linear"), SGD(lr="0.1*d**-2"))
    ...     field(Overlaps([[1.0]], [[0.5]])).M.round(6).tolist()
    [[0.5]]
    """

    engine: Engine
    limit: Limit
    noise: Number
    layer: Number
    form: Form = eqx.field(static=True)
    noisy: bool = eqx.field(
        static=True, default=True
    )  # False: the second-order part is not even computed
    blocks: Blocks | None = None  # of the inputs; Q and M have an axis for them

    def fields(self, y: Overlap) -> Overlap:
        """Overlaps of the fields.

        Parameters
        ----------
        y : Overlap
            (Q, M, a), in blocks where the inputs have some.
        """
        return y if self.blocks is None else self.blocks.fields(y)

    def rate(self, t: Number, y: Overlap, args: object = None) -> Overlap:
        """dy/dt of (Q, M, a).

        Parameters
        ----------
        t : float
            Not used: the equation has no clock.
        y : Overlap
            (Q, M, a).
        args : object, optional
            Not used; diffrax hands it over.
        """
        if self.blocks is not None:
            Q, M, a = self.fields(y)
            at = ((Q + Q.T) / 2, M, a, self.noise)
            averages, gradient = self.engine(*at), self.engine.gradient(*at)
            return block_motion(
                self.form, self.limit, self.blocks, y, averages, gradient, self.noisy
            )
        average = self.engine((y.Q + y.Q.T) / 2, y.M, y.a, self.noise)
        return motion(self.form, self.limit, y, average, self.noisy)

    def __call__(self, start: Overlaps) -> Overlaps:
        """Rates of change of overlaps, in their place."""
        rate = self.rate(0.0, self.state(start))
        return Overlaps.unchecked(
            rate.Q, rate.M, jnp.zeros_like(start.P), rate.a, start.dim
        )

    def state(self, start: Overlaps) -> Overlap:
        """(Q, M, a), with the second layer of the problem where the overlaps have none.

        Parameters
        ----------
        start : Overlaps
            A single point.
        """
        return Overlap(
            *map(
                jnp.asarray,
                (start.Q, start.M, self.layer if start.a is None else start.a),
            )
        )


def vector_field(
    problem: Problem, algorithm: SGD, at: Overlaps | None = None
) -> VectorField:
    """The right-hand side of the ODE, in the regime of the algorithm's laws.

    Parameters
    ----------
    problem, algorithm : Problem, SGD
        Noise, momentum, decay and the coefficients of lr and batch may be traced.
    at : Overlaps, optional
        A point at which quadratures are refined until they have converged.

    Examples
    --------
    >>> from twolayer.task.scaling import d
    >>> problem, start = Problem("He2(z1)", "He2"), Overlaps([[1.0]], [[0.5]])
    >>> def pull(lr):
    ...     return vector_field(problem, SGD(lr=lr / d, geometry="projected"))(start).M[
    ...         0, 0
    ...     ]
    >>> with jax.enable_x64(True):
    ...     round(float(pull(0.1)), 6), round(float(jax.grad(pull)(0.1)), 6)
    (0.6, -9.0)
    """
    expect(Problem, "problem", problem)
    expect(SGD, "algorithm", algorithm).check_constant("tl.pure.vector_field")
    if algorithm.rule is not None and algorithm.rule.adapts is not None:
        raise Refused(
            "vector_field",
            f"the rate of {algorithm.rule} is part of the state, and no number",
        )
    regime = regime_of(algorithm)
    if algorithm.reused or not regime.continuous:
        why = (
            "samples are reused" if algorithm.reused else f"the regime is {regime.name}"
        )
        raise Refused("vector_field", f"there is no equation of motion where {why}")
    reason = (
        layers_apart(algorithm)
        or memory_beyond(algorithm)
        or unaveraged(algorithm.rule)
    )
    if reason is not None or (reason := two_laws(problem, algorithm)) is not None:
        raise Refused("vector_field", reason)
    if algorithm.rule is not None and algorithm.rule.relabels:
        problem = problem.replace(noise=problem.noise + algorithm.rule.relabels)
    return field_with(_engine(problem, algorithm.mean_drive, at), problem, algorithm)


def field_with(
    engine: Engine,
    problem: Problem,
    algorithm: SGD,
    limit: Limit | None = None,
    blocks: Blocks | None = None,
) -> VectorField:
    """The right-hand side with a given engine; the limit is that of the regime, or
    another one.
    """
    regime = regime_of(algorithm)
    noisy = limit is not None or regime.noise > 0
    limit = as_data(
        limit_in(regime, algorithm, problem.divisor) if limit is None else limit
    )
    noise = jnp.asarray(problem.noise, float)
    return VectorField(
        engine, limit, noise, problem.a(), form_of(algorithm).flow, noisy, blocks
    )


def integrate(
    field: VectorField,
    start: Overlaps,
    times: Float[Array, " n"],
    *,
    rtol: float = 1e-8,
    max_steps: int = 4096,
    mode: str = "reverse",
) -> Overlaps:
    """The overlaps at increasing times, from the start at time 0.

    Parameters
    ----------
    field : VectorField
        From `vector_field`.
    start : Overlaps
        A single point, at time 0.
    times : array (n,)
        Increasing, t = lr·step/p; the last one ends the run.
    rtol : float
        Relative tolerance; the absolute one is a hundredth of it.
    max_steps : int
        Steps of the integrator, beyond which the run fails.
    mode : str
        How the result may be differentiated: ``"reverse"`` (`jax.grad`, `jax.vjp`) or
        ``"forward"`` (`jax.jvp`, `jax.jacfwd`), which is also the fastest where nothing
        is differentiated.

    Returns
    -------
    Overlaps
        With a leading axis of times.

    Examples
    --------
    >>> from twolayer.task.scaling import d
    >>> problem, start = (
    ...     Problem("He2(z1)", "He2", noise=0.1),
    ...     Overlaps([[1.0]], [[0.5]]),
    ... )
    >>> def risk(lr):
    ...     field = vector_field(problem, SGD(lr=lr / d, geometry="projected"))
    ...     return averages(problem)(
    ...         integrate(field, start, jnp.array([2.0]))[-1]
    ...     ).excess_risk
    >>> with jax.enable_x64(True):
    ...     round(float(jax.grad(risk)(0.05)), 4)
    0.2123
    """
    import diffrax  # takes half a second, which `solve` does without

    forward = choice("mode", mode, MODES) == "forward"
    expect(VectorField, "field", field)
    expect(Overlaps, "start", start)
    rtol = finite_number("rtol", rtol, minimum=1e-15, accepted="a number ≥ 1e-15")
    if not traced(times):
        times = jnp.asarray(finite_array("times", times))
        require(times.ndim == 1 and times.size > 0, "times", times, "an array (n,)")
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field.rate),
        diffrax.Dopri8(),
        t0=0.0,
        t1=times[-1],
        dt0=None,
        y0=field.state(start),
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * 1e-2),
        adjoint=(
            diffrax.ForwardMode() if forward else diffrax.RecursiveCheckpointAdjoint()
        ),
        max_steps=positive_integer("max_steps", max_steps),
    )
    path = solution.ys
    return Overlaps.unchecked(path.Q, path.M, start.P, path.a, start.dim)


class Increment(eqx.Module):
    """Fields and noise of samples → what they do to the two layers; what `increment`
    returns.

    Attributes
    ----------
    kernel : Kernel
        Activation, target, loss and rule as functions of the fields.
    layer, noise : array (p,), float
        The second layer unless another is given, and Δ.

    Examples
    --------
    >>> push = increment(Problem("z1", "linear"), SGD(lr="1/d"))
    >>> push(jnp.array([[0.5]]), jnp.array([[2.0]]), jnp.zeros(1)).second.tolist()
    [[0.75]]
    """

    kernel: Kernel = eqx.field(static=True)
    layer: Real
    noise: Number

    def __call__(
        self,
        student: Float[Array, "n p"],
        target: Float[Array, "n k"],
        noise: Float[Array, " n"],
        a: Float[Array, " p"] | None = None,
    ) -> Push:
        """g and e σ(λ), (n, p) each, from λ, λ* and the normals ξ of the label noise.
        Cost O(n p).
        """
        sample = Sample(student, target, self.kernel.labels.spoil(noise, self.noise))
        return self.kernel.push(sample, jnp.asarray(self.layer if a is None else a))


def increment(problem: Problem, algorithm: SGD) -> Increment:
    """What single samples do to the weights: g of the first layer and e σ(λ) of the
    second.

    Parameters
    ----------
    problem : Problem
        Its noise may be traced.
    algorithm : SGD
        Its loss and rule; rates play no role.

    Examples
    --------
    >>> push = increment(Problem("z1", "linear"), SGD(lr="1/d"))
    >>> push(jnp.array([[0.5]]), jnp.array([[2.0]]), jnp.zeros(1)).first.tolist()
    [[1.5]]
    """
    expect(Problem, "problem", problem)
    expect(SGD, "algorithm", algorithm).check_constant("tl.pure.increment")
    if algorithm.rule is not None and (algorithm.rule.relabels or algorithm.rule.draws):
        raise InputError(
            "Argument `rule` must be a function of the samples for tl.pure.increment,"
            f" but got {algorithm.rule}, which draws random numbers."
        )
    return Increment(kernel_of(problem, algorithm), problem.a(), problem.noise)


class Mean(eqx.Module):
    """One step of the means; what `mean_step` returns.

    Attributes
    ----------
    step : MeanStep
        The averages, rates and corrections of a step.
    layer : array (p,)
        The second layer where overlaps have none.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     step = mean_step(Problem("z1", "linear"), SGD(lr=0.5, batch="2*d"))
    ...     step.overlaps(step.start(Overlaps([[1.0]], [[0.25]]))).M.tolist()
    [[0.25]]
    """

    step: MeanStep
    layer: Number

    def start(self, start: Overlaps) -> Rows:
        """The state of rows at rest.

        Parameters
        ----------
        start : Overlaps
            A single point.
        """
        n, a = self.step.form.copies, self.layer if start.a is None else start.a
        return Rows(
            jnp.tile(start.Q, (n, n)),
            jnp.tile(start.M, (n, 1)),
            jnp.tile(jnp.asarray(a), n),
        )

    def __call__(self, state: Rows) -> Rows:
        """The state after one step."""
        return self.step(state)

    def overlaps(self, state: Rows) -> Overlaps:
        """The overlaps of a state.

        Parameters
        ----------
        state : Rows
            From `start` or from a step.
        """
        now = self.step.overlaps(state)
        return Overlaps.unchecked(now.Q, now.M, self.step.P, now.a, None)


def mean_step(
    problem: Problem, algorithm: SGD, dim: int | None = None, at: Overlaps | None = None
) -> Mean:
    """The mean of one step at dimension d, or as d → ∞ for giant steps.

    Parameters
    ----------
    problem, algorithm : Problem, SGD
        Noise, momentum, decay and the coefficient of lr may be traced, and that of
        batch where dim is None.
    dim : int, optional
        d; None for the limit of batches n_b = α d with lr of order one.
    at : Overlaps, optional
        A point at which quadratures are refined until they have converged.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     step = mean_step(Problem("z1", "linear"), SGD(lr=0.5, batch="2*d"))
    ...     step.overlaps(step(step.start(Overlaps([[1.0]], [[0.0]])))).M.tolist()
    [[0.5]]
    """
    expect(Problem, "problem", problem)
    expect(SGD, "algorithm", algorithm).check_plain("tl.pure.mean_step")
    dim = None if dim is None else positive_integer("dim", dim)
    reason = memory_beyond(algorithm) or (
        layers_apart(algorithm) if dim is None else None
    )
    if reason is not None:
        raise Refused("mean_step", reason)
    form = form_of(algorithm)
    samples, terms = None, Terms()
    if dim is None:
        if regime_of(algorithm).name != "giant steps":
            raise Refused(
                "mean_step",
                "as d → ∞ steps are of order one only for lr = O(1) and batches of"
                " order d",
            )
        batch = algorithm.batch
        weights = Weights(
            1 / batch.coefficient if batch.exponent < 1 + 1e-9 else 0.0,
            0.0,
            True,
            problem.noise,
        )
    else:
        n_b = algorithm.batch_at(dim)
        weights = Weights(dim / n_b, 1 / n_b, True, problem.noise)
        terms = Terms(finite=True, ratio=form.normalises and not form.carries)
        samples = StepSamples.of(problem, algorithm)
    rates = as_data(coefficients_of(algorithm, problem.divisor, dim))
    engine = _engine(problem, algorithm.drive, at)
    return Mean(
        MeanStep(engine, rates, weights, problem.P, form, terms, samples, None),
        problem.a(),
    )


class ChainStep(eqx.Module):
    """One step of SGD in d dimensions on its overlaps, exact in law; what `chain_step`
    returns.

    Attributes
    ----------
    at : Reduced
        Shapes, and what fixes the compiled code.
    frame : Frame
        The numbers of a step: rates, noise and the target's frame.
    inverse, layer : arrays
        Of the target's frame, and the second layer where overlaps have none.

    Examples
    --------
    >>> step = chain_step(
    ...     Problem("He2(z1)", "He2"), SGD(lr="0.05/d", geometry="projected"), dim=1000
    ... )
    >>> step.draws
    4
    """

    at: Reduced = eqx.field(static=True)
    frame: Frame
    inverse: Real
    layer: Number

    @property
    def draws(self) -> int:
        """How many independent standard normals a step takes."""
        return self.at.batch * self.at.width + self.at.factor.draws

    def start(self, start: Overlaps) -> Memory:
        """Rows with these overlaps, at rest.

        Parameters
        ----------
        start : Overlaps
            A single point.
        """
        A, B = rows_of(start.Q, start.M, self.inverse)
        spare = jnp.zeros((self.at.p, max(0, self.at.columns - self.at.p)))
        a = jnp.asarray(self.layer if start.a is None else start.a)
        return Memory.at_rest(
            self.at.form,
            jnp.concatenate([A, B[:, : self.at.columns], spare], axis=1),
            a,
        )

    def __call__(self, state: Memory, normals: Float[Array, " draws"]) -> Memory:
        """The state after one step, from normals (draws,). Cost O(n_b p (p + k) +
        p³).
        """
        at, own = self.at, self.at.batch * self.at.width
        sums = batch_sums(
            at, self.frame, state.now, normals[:own].reshape(at.batch, at.width)
        )
        T = at.factor.build(normals[own:], self.frame.table)
        return exact_step(at, self.frame.rates, state, sums, T)[0]

    def overlaps(self, state: Memory) -> Overlaps:
        """The overlaps of a state.

        Parameters
        ----------
        state : Memory
            From `start` or from a step.
        """
        Q, M = overlaps(state.now.W, self.frame.L)
        return Overlaps.unchecked(
            Q, M, self.frame.L @ self.frame.L.T, state.now.a, None
        )


def chain_step(problem: Problem, algorithm: SGD, dim: int) -> ChainStep:
    """One step of SGD in d dimensions that carries only the overlaps, exact in law, as
    a function of its normals.

    Parameters
    ----------
    problem, algorithm : Problem, SGD
        Noise, momentum, decay and the coefficient of lr may be traced.
    dim : int
        d, at least 2p + k; `Chain` knows what happens below.

    Examples
    --------
    >>> step = chain_step(
    ...     Problem("He2(z1)", "He2"), SGD(lr="0.05/d", geometry="projected"), dim=1000
    ... )
    >>> def run(key):
    ...     state = step.start(Overlaps([[1.0]], [[0.5]]))
    ...     normals = jax.random.normal(key, (100, step.draws))
    ...     return step.overlaps(
    ...         jax.lax.scan(lambda y, x: (step(y, x), None), state, normals)[0]
    ...     ).M[0, 0]
    >>> with jax.enable_x64(True):
    ...     jax.vmap(run)(jax.random.split(jax.random.key(0), 8)).shape
    (8,)
    """
    expect(Problem, "problem", problem)
    expect(SGD, "algorithm", algorithm).check_plain("tl.pure.chain_step")
    dim = positive_integer("dim", dim)
    problem.require_isotropic("tl.pure.chain_step")
    if algorithm.reused:
        raise Refused(
            "chain_step", "samples are reused, so the overlaps are no Markov chain"
        )
    L, inverse = target_frame(problem.P)
    form, batch, p = form_of(algorithm), algorithm.batch_at(dim), problem.p
    least = p * (1 + form.copies) + L.shape[1]
    if dim < least:
        raise InputError(
            f"Argument `dim` must be at least {least} for {p} neurons, but got {dim};"
            " use solve and Chain."
        )
    columns = p * form.copies
    factor = GramFactor(min(p, batch), dim - L.shape[1] - columns)
    at = Reduced(
        kernel_of(problem, algorithm), form, p, L.shape[1], columns, batch, factor
    )
    rates = as_data(coefficients_of(algorithm, problem.divisor, dim))
    return ChainStep(
        at,
        Frame(rates, L, factor.table(), jnp.asarray(problem.noise, float)),
        inverse,
        problem.a(),
    )
