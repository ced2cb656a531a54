"""Update rules: what the optimiser makes of the gradients of single samples, or of
their mean.

    W ← κ W + (lr/p) mean_ν ĝ^ν (z^ν)ᵀ,        ĝ = rule(g, e, λ, r),    r = |z|²/d

    clip(c)          ĝ = g min(1, c/(|g| √r))             normalised()
                     ĝ = g/(|g| √r)
    polyak(c)        ĝ = g min(1, p² e²/(2 c γ r |g|²))   lookahead(γ'/d)
                     ĝ = g at λ + (γ'/p) mean_ν g^ν z^ν·z/d
    two_step()       ĝ = g + g at λ + (γ/p) …             formula(text)
                     ĝ = text in g, e, r and norm = |g|
    private(ς)       mean ĝ zᵀ + ς Z, Z standard normal   adagrad_norm(b)
                     lr/√(b² + Σ|∇|²/d²)
    sign(), adam()   of every coordinate of the mean      label_noise(v)
        g at y + √v ξ, ξ new at every visit

A rule moves the first layer; the second takes its plain step, with the labels that the
first one sees. Rules that only see g, e, λ, r and inner products of inputs are the same
in every rotated frame, and the overlaps of their runs are Markov; sign and Adam are
not.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from twolayer.functions.syntax import FUNCTIONS
from twolayer.numerics.arguments import ArrayFunction
from twolayer.numerics.errors import (
    InputError,
    choice,
    finite_number,
    finite_numbers,
    flag,
    identifier,
    reject,
    require,
    short,
)
from twolayer.numerics.lazy_modules import Later
from twolayer.numerics.tracing import traced
from twolayer.task.losses import Loss
from twolayer.task.scaling import Scaling
from twolayer.task.schedules import MAX_LENGTH, Law, called, parsed, written

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    from jax.scipy import special

    from twolayer.numerics.types import Number, Real
else:
    jnp = Later("jax.numpy")
    special = Later("jax.scipy.special")

TINY = 1e-300
PACED = ("polyak", "two_step")  # rules of the package that look at lr
NARROW = 1e-60  # width of a normal that counts as none
FAR = 1e12  # size of the gradients that tell whether a rule is bounded


class Sight(NamedTuple):
    """What a rule sees of a batch of n samples.

    Attributes
    ----------
    g, fields : array (n, p)
        Gradients with respect to the fields λ, and λ.
    e : array (n,)
        Residuals.
    size : array (n,) or 1.0
        r = |z|²/d.
    shift : callable
        g, a factor → what the fields gain if the weights move by factor·mean g zᵀ.
    at : callable
        Fields → g there, of the same samples.
    p, batch, rate : float
        What the sum over neurons is divided by, n_b, and γ = d·lr.
    key : key of jax.random, optional
        For rules that draw random numbers: another one in every step of every run.

    Examples
    --------
    >>> g = np.array([[3.0, 4.0]])
    >>> seen = Sight(
    ...     g,
    ...     np.zeros((1, 2)),
    ...     np.ones(1),
    ...     np.ones(1),
    ...     lambda g, rate: rate * g,
    ...     lambda at: g,
    ...     2.0,
    ...     1.0,
    ...     0.1,
    ... )
    >>> float(seen.norm[0, 0]), bool(abs(clip(1.0).push(seen) - g / 5).max() < 1e-6)
    (5.0, True)
    """

    g: Real
    fields: Real
    e: Real
    size: Number
    shift: Callable[[Real, Number], Real]
    at: ArrayFunction
    p: float
    batch: Number
    rate: Number
    key: jax.Array | None = None

    @property
    def norm(self) -> jax.Array:
        """|g| of every sample, (n, 1)."""
        square = (self.g**2).sum(-1, keepdims=True)
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)

    @property
    def length(self) -> Number:
        """√r, (n, 1) or a number."""
        return jnp.sqrt(self.size)[..., None] if jnp.ndim(self.size) else 1.0


Push: TypeAlias = "Callable[[Sight], Real]"

OwnPush = TypeVar("OwnPush", bound="Callable[[Sight], Real]")
"""The ĝ that a user registers, whose own type the decorator keeps."""


@dataclass(frozen=True)
class Rule:
    """A rule by what it does.

    Parameters
    ----------
    name : str
        As it is written in ``SGD(rule="name(…)")``.
    arguments : tuple of (str, value)
        As they were given.
    push : callable, optional
        `Sight` → ĝ (n, p).
    kinks : tuple of float
        Where ĝ jumps or bends, as values of |g| with the sign of e.
    sizes, products : bool
        Whether r, and whether inner products of the inputs of a batch, matter.
    jitter : float
        ς of the isotropic noise on the mean.
    adapts : float, optional
        b of AdaGrad.
    coordinates : str, optional
        ``"sign"`` or ``"adam"``: what is done with every coordinate of the mean.
    drift : float
        Factor of the mean push in the limit d → ∞.
    relabels : float
        Variance of the noise that labels get at every visit.
    draws : bool
        Whether it draws random numbers from its key.
    smoothed : callable, optional
        Of a rule ĝ = g/|g| ρ(±|g|), with the sign of e: mean and width of a normal x →
        E[ρ(x)], E[ρ(x)²].

    Examples
    --------
    >>> Rule.of("clip(0.25)").bounded, clip(0.25) == Rule.of("clip(threshold=0.25)")
    (True, True)
    """

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()
    push: Push | None = None
    kinks: tuple[float, ...] = ()
    sizes: bool = False
    products: bool = False
    jitter: float = 0.0
    adapts: float | None = None
    coordinates: str | None = None
    drift: float = 1.0
    relabels: float = 0.0
    draws: bool = False
    smoothed: Callable[[Number, Number], tuple[Real, Real]] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self._known == other._known

    def __hash__(self) -> int:
        return hash(self._known)

    @property
    def _known(self) -> tuple[object, ...]:
        # rules of the package are the same if they are called the same; functions of
        # users are told apart
        own = self.push if self.registered else None
        return self.name, self.arguments, own

    @property
    def registered(self) -> bool:
        """Whether the name stands for a function of the user's, which may be another
        one tomorrow.
        """
        return self.name not in MAKERS

    @property
    def single(self) -> bool:
        """Whether it is a rule of single samples: what it makes of a batch is the mean
        of what it makes of each.
        """
        return (
            bool(self.push is not None or self.relabels)
            and not self.coordinates
            and not self.jitter
        )

    @cached_property
    def bounded(self) -> bool:
        """Whether ĝ stays bounded however large gradients are, so that labels of any
        law have a mean push.
        """
        if self.push is None or self.draws:
            return False
        e = np.array([-FAR, FAR])
        g = e[:, None] * np.array([1.0, -0.7])
        sight = Sight(
            g,
            np.zeros_like(g),
            e,
            np.ones(2),
            lambda g, rate: rate * g,
            lambda fields: g,
            2.0,
            1.0,
            1.0,
        )
        return bool(np.abs(np.asarray(self.push(sight))).max() < math.sqrt(FAR))

    @classmethod
    def of(cls, value: object) -> Rule | None:
        """The rule that a ``value`` is, or the text of one such as ``"clip(0.25)"``;
        None for plain gradients.

        Examples
        --------
        >>> Rule.of("clip(0.25)")
        Rule(clip(0.25))
        """
        if value is None or isinstance(value, Rule):
            return value
        if not isinstance(value, str):
            reject(
                "rule", value, "a rule such as tl.rules.clip(0.25), its text, or None"
            )
        return _read(value)

    def __str__(self) -> str:
        values = [
            repr(value) if isinstance(value, str) else written(value)
            for _, value in self.arguments
        ]
        return f"{self.name}({', '.join(values)})"

    def __repr__(self) -> str:
        return f"Rule({self})"


@dataclass(frozen=True)
class RuledLoss(Loss):
    """A loss whose gradients go through a rule: what drives the first layer. ``batch``
    is n_b, ``rate`` d·lr.

    ``scale`` is s where the second layer of the kernel is s·a: the rule sees g of a,
    and the kernel gets s·ĝ.
    """

    rule: Rule | None = None
    batch: float = 1.0
    rate: float = 1.0
    linear: float | None = None  # s where e = y − s·f
    scale: float = 1.0

    @property
    def plain(self) -> Loss:
        """The loss without the rule, where its residual is linear in f."""
        name = self.name.removesuffix(f" with {self.rule}")
        return Loss(name, self.residual, self.linear, value=self.value)


def unaveraged(rule: Rule | None) -> str | None:
    """Why there are no averages over what a rule draws, or None."""
    if rule is None or not rule.draws:
        return None
    return (
        f"the rule {rule} draws random numbers from a key, over which there is no"
        " formula to average"
    )


def driven(loss: Loss, rule: Rule | None, batch: Scaling, lr: Scaling) -> Loss:
    """The loss itself, or with a rule that changes the gradients of single samples."""
    if rule is None or rule.push is None:
        return loss
    name = f"{loss.name} with {rule}"
    # what a rule does not look at may be traced, and shares compiled code
    paced = rule.name in PACED or rule.registered
    seen = batch.coefficient if paced or rule.products else 1.0
    rate = lr.coefficient if paced else 1.0
    if traced(seen, rate):
        raise InputError(
            f"Arguments `lr` and `batch` must be numbers for the rule {rule}, which"
            " looks at them, but one of them is traced by JAX."
        )
    numbers = (rule, seen, rate, loss.student)
    return RuledLoss(
        name, loss.residual, None, loss.kinks, loss.margin, loss.value, *numbers
    )


def _positive(name: str, value: object) -> float:
    number = finite_number(name, value, accepted="a positive number")
    require(number > 0, name, value, "a positive number")
    return number


def clip(threshold: float) -> Rule:
    """Gradients of single samples, cut to the norm c √d: ĝ = g min(1, c/(|g| √r)), |g|
    over all neurons.

    A threshold C on the true gradient |g| |z|/p is c = p C/√d.

    Parameters
    ----------
    threshold : float
        c, the largest norm of a sample's gradient in units of √d. Gradients |g| are of
        order one, and so is a c that matters.

    Examples
    --------
    >>> clip(0.25)
    Rule(clip(0.25))
    """
    c = _positive("threshold", threshold)

    def push(x: Sight) -> Real:
        return x.g * jnp.minimum(1.0, c / jnp.maximum(x.norm * x.length, TINY))

    def smoothed(mean: Number, width: Number) -> tuple[Real, Real]:
        width = jnp.maximum(width, NARROW)
        ends = [(end - mean) / width for end in (-c, c)]
        (below, upto), (low, high) = (
            [f(x) for x in ends] for f in (special.ndtr, _density)
        )
        inside, slope = upto - below, width * (low - high)
        beyond = special.ndtr(-ends[1])
        square = (
            (mean**2 + width**2) * inside
            + 2 * mean * slope
            + width**2 * (ends[0] * low - ends[1] * high)
        )
        return mean * inside + slope + c * (beyond - below), square + c**2 * (
            beyond + below
        )

    return Rule(
        "clip", (("threshold", c),), push, (-c, c), sizes=True, smoothed=smoothed
    )


def _density(x: Number) -> jax.Array:
    """That of a standard normal."""
    return jnp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def normalised() -> Rule:
    """Gradients of single samples, divided by their norm over √d: ĝ = g/(|g| √r), and 0
    where g = 0.

    Examples
    --------
    >>> normalised()
    Rule(normalised())
    """

    def push(x: Sight) -> Real:
        size = x.norm * x.length
        return jnp.where(size > 0, x.g / jnp.where(size > 0, size, 1.0), 0.0)

    def smoothed(mean: Number, width: Number) -> tuple[Real, Real]:
        return special.erf(
            mean / (math.sqrt(2) * jnp.maximum(width, NARROW))
        ), jnp.ones_like(mean)

    return Rule("normalised", (), push, (0.0,), sizes=True, smoothed=smoothed)


def polyak(c: float = 1.0) -> Rule:
    """The stochastic step of Polyak, lr_n = min(lr, loss/(c |∇|²)), of single samples
    with the squared loss.

    Time counts the largest rate, lr.

    Parameters
    ----------
    c : float
        Positive; the larger it is, the smaller the steps. At ½ a student linear in its
        weights would fit the sample.

    Examples
    --------
    >>> polyak(0.5)
    Rule(polyak(0.5))
    """
    c = _positive("c", c)

    def push(x: Sight) -> Real:
        largest = 2 * c * x.rate * x.norm**2 * x.length**2
        return x.g * jnp.minimum(
            1.0, x.p**2 * x.e[..., None] ** 2 / jnp.maximum(largest, TINY)
        )

    return Rule("polyak", (("c", c),), push, sizes=True)


def lookahead(lr: Law) -> Rule:
    """Gradients at the place where a step of size ``lr`` on the same batch would lead,
    applied where the weights are.

    Extragradient, and with a negative ``lr`` the sharpness-aware step. The law is that
    of a field that moves by order one, proportional to 1/d.

    Parameters
    ----------
    lr : Law
        γ'/d, the size of the step ahead; without a schedule, and not zero.

    Examples
    --------
    >>> lookahead("1.5/d")
    Rule(lookahead(1.5/d))
    """
    law = Scaling.of(lr, "lr")
    if (
        law.exponent != -1
        or law.schedule is not None
        or not math.isfinite(law.coefficient)
        or law.coefficient == 0
    ):
        reject(
            "lr",
            lr,
            "a law such as 1.5/d, with which the fields of a sample move by order one",
        )

    def push(x: Sight) -> Real:
        return x.at(x.fields + x.shift(x.g, law.coefficient))

    return Rule("lookahead", (("lr", law),), push, sizes=True, products=True)


def two_step() -> Rule:
    """Two steps on every batch: ĝ = g + g where the first step leads; time counts
    pairs.

    Examples
    --------
    >>> two_step()
    Rule(two_step())
    """

    def push(x: Sight) -> Real:
        return x.g + x.at(x.fields + x.shift(x.g, x.rate))

    return Rule("two_step", (), push, sizes=True, products=True)


def private(std: float, threshold: float | None = None) -> Rule:
    """Isotropic Gaussian noise on every step, W += (lr/p) ς Z, after gradients were
    clipped if a threshold is given.

    In the limit only the norms of the rows feel the noise. With thresholds it is the
    private SGD of noise multiplier ς n_b/(c √d).

    Parameters
    ----------
    std : float
        ς, the standard deviation of every coordinate of the noise.
    threshold : float, optional
        c of `clip`; by default gradients are not clipped.

    Examples
    --------
    >>> private(0.5), private(0.5, 0.4)
    (Rule(private(0.5)), Rule(private(0.5, 0.4)))
    """
    std = _positive("std", std)
    if threshold is None:
        return Rule("private", (("std", std),), jitter=std)
    cut = clip(threshold)
    return dataclasses.replace(
        cut, name="private", arguments=(("std", std), *cut.arguments), jitter=std
    )


def label_noise(variance: float) -> Rule:
    """Gaussian noise on the labels that the algorithm adds itself, another one at every
    visit to a sample.

    On fresh samples it does what noise of the problem does, but risks are those of the
    problem's own labels. Samples that are reused do not keep it: it cannot be fitted,
    and leads to flat minima.

    Parameters
    ----------
    variance : float
        Of that noise, > 0.

    Examples
    --------
    >>> label_noise(0.1)
    Rule(label_noise(0.1))
    """
    variance = _positive("variance", variance)
    return Rule("label_noise", (("variance", variance),), relabels=variance)


def adagrad_norm(b0: float = 1.0) -> Rule:
    """AdaGrad with one rate for all weights, lr_n = lr/√(b0² + Σ_{m ≤ n} |∇_m|²/d²).

    Time counts lr as it is written; the rate in force is the variable ``lr`` of a
    result.

    Parameters
    ----------
    b0 : float
        Positive; lr/b0 is the rate before the first gradient.

    Examples
    --------
    >>> adagrad_norm(0.7)
    Rule(adagrad_norm(0.7))
    """
    return Rule(
        "adagrad_norm", (("b0", _positive("b0", b0)),), adapts=_positive("b0", b0)
    )


def sign() -> Rule:
    """The sign of every coordinate of the mean gradient.

    It depends on the axes. For weights spread over all coordinates, and batches of one
    sample, there is a limit.

    Examples
    --------
    >>> sign().coordinates
    'sign'
    """
    return Rule(
        "sign",
        (),
        lambda x: jnp.sign(x.g),
        (0.0,),
        coordinates="sign",
        drift=math.sqrt(2 / math.pi),
    )


def adam(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Rule:
    """Adam on every coordinate of the mean gradient (divided by p), with its usual
    corrections of the bias.

    Parameters
    ----------
    beta1, beta2 : float
        How slowly the means of the gradient and of its square forget, in [0, 1).
    epsilon : float
        What keeps the denominator √v from vanishing.

    Examples
    --------
    >>> adam()
    Rule(adam(0.9, 0.999, 1e-08))
    """
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        number = finite_number(name, value, minimum=0.0, accepted="a number in [0, 1)")
        require(number < 1, name, value, "a number in [0, 1)")
    numbers = (
        ("beta1", float(beta1)),
        ("beta2", float(beta2)),
        ("epsilon", _positive("epsilon", epsilon)),
    )
    return Rule("adam", numbers, coordinates="adam")


def formula(text: str) -> Rule:
    """Any function of g, e, r = |z|²/d, norm = |g| and p, written as text; elementwise
    in g.

    Parameters
    ----------
    text : str
        Such as ``"g/(1 + norm)"``; the functions are those that targets may use.

    Examples
    --------
    >>> formula("g/(1 + norm*sqrt(r))")
    Rule(formula('g/(1 + norm*sqrt(r))'))
    """
    from twolayer.functions.expression import parse

    if not isinstance(text, str):
        reject("text", text, "a formula such as 'g/(1 + norm)'")
    names = ("norm", "g", "e", "r", "p")
    words = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", text[:MAX_LENGTH]))
    for word in sorted(words - set(names) - set(FUNCTIONS)):
        raise InputError(
            f"Argument `rule`: unknown name {short(word)} in {short(text)}; a rule"
            f" knows {', '.join(names)}."
        )
    expression = parse(text, names, "rule")

    def push(x: Sight) -> Real:
        values = (x.norm, x.g, x.e[..., None], x.length**2, float(x.p))
        known = dict(zip(names, values, strict=True))
        return expression(**known) * jnp.ones_like(x.g)

    return Rule("formula", (("text", text),), push, sizes="r" in words)


_BUILT_IN = (
    *(clip, normalised, polyak, lookahead, two_step, private, label_noise),
    *(adagrad_norm, sign, adam, formula),
)
MAKERS: dict[str, Callable[..., Rule]] = {maker.__name__: maker for maker in _BUILT_IN}
_OWN: dict[str, Rule] = {}


def register_rule(
    name: str,
    *,
    kinks: tuple[float, ...] = (),
    sizes: bool = False,
    products: bool = False,
    random: bool = False,
) -> Callable[[OwnPush], OwnPush]:
    """Decorator: add a rule by its ĝ, a function of a `Sight`, or replace one that was
    added under the same name.

    Parameters
    ----------
    name : str
        Used as ``SGD(rule="name()")`` and in files.
    kinks : tuple of float
        Values of |g|, with the sign of e, at which ĝ jumps or bends: averages are split
        there.
    sizes, products : bool
        Whether it uses ``size`` or ``length``, and whether it uses ``shift``.
    random : bool
        Whether it uses ``key``. Methods that draw samples give it one; averages of such
        a rule are not known.

    Examples
    --------
    >>> @register_rule("soft")
    ... def soft(x):
    ...     return x.g / (1 + x.norm)
    >>> Rule.of("soft()")
    Rule(soft())
    """
    if identifier("name", name) in MAKERS:
        reject("name", name, "an identifier that is no rule of the package")
    places, sizes, products = (
        finite_numbers("kinks", kinks),
        flag("sizes", sizes),
        flag("products", products),
    )

    def decorate(push: OwnPush) -> OwnPush:
        _OWN[name] = Rule(name, (), push, places, sizes, products, draws=random)
        return push

    return decorate


def _read(text: str) -> Rule:
    """Read a call such as clip(0.25); nothing is evaluated."""
    accepted = "a rule such as 'clip(0.25)'"
    node = parsed(text, "rule", accepted)
    call = ast.Call(node, [], []) if isinstance(node, ast.Name) else node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        reject("rule", text, accepted)
    name = call.func.id
    if name in _OWN:
        require(
            not call.args and not call.keywords,
            "rule",
            text,
            f"{name}(), which takes no arguments",
        )
        return _OWN[name]
    for keyword in call.keywords if name in MAKERS else ():
        choice("rule", str(keyword.arg), inspect.signature(MAKERS[name]).parameters)
    known = {
        **MAKERS,
        **dict.fromkeys(_OWN, Rule),
    }  # own ones for the list of names alone
    return called("rule", known, call, text.strip(), "rule")
