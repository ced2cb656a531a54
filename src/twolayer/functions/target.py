"""Multi-index targets h(λ*): typed as a formula in z1, z2, …, given as a JAX function,
or a teacher network.

y = h(λ*) + √Δ ξ,    λ* = W* z ∈ R^k
teacher network:  h(λ*) = (1/N) Σ_r a*_r σ*(λ*_r),    N = k unless said otherwise
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from twolayer.functions.activation import BUILT_IN, Activation, in_jax
from twolayer.functions.expression import Expression, constant, parse
from twolayer.functions.integrable import square_integrable
from twolayer.functions.kinks import find_kinks
from twolayer.functions.normalisation import NORMALISATIONS, divisor
from twolayer.functions.poles import reject_pole
from twolayer.functions.syntax import Binary, Call, Negative, Node
from twolayer.numerics.arguments import ArrayFunction, Json
from twolayer.numerics.errors import (
    InputError,
    choice,
    cut,
    failed,
    finite_numbers,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.precision import float64

__all__ = ["Ridge", "Target", "Teacher"]

MAX_DIRECTIONS = 1024
LASTING = 0.3  # change of h, of an earlier one further off, that does not die out


TargetLike: TypeAlias = "str | ArrayFunction | Target | Json"
"""A formula in z1, z2, …, a JAX function of a vector, a target, or a description from a
file.
"""


@dataclass(frozen=True)
class Ridge:
    """h = Σ_q weights_q σ*(directions_q · λ*): the form for which only pairs of fields
    are ever averaged.
    """

    activation: Activation
    weights: tuple[float, ...]
    directions: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Target:
    """A function of k directions, with the structure that exact averages can use.

    Parameters
    ----------
    name : str
        What is printed and saved.
    directions : int
        k, the number of directions.
    function : callable
        From arrays (..., k) to (...), of JAX; formulas and teachers take arrays of
        NumPy as they are.
    polynomial : dict, optional
        Coefficient by exponent tuple when h is a polynomial.
    ridge : Ridge, optional
        The ridge form when h has one with a single activation.
    smooth : bool
        Whether h is known to be smooth, which saves the search for kinks.
    latex : str
        The formula as it is typeset in a notebook; empty where there is none.
    key : hashable, optional
        Identity for equality and caching; by default the function and what is said of
        it.
    description : str or dict, optional
        What a file would hold; None for functions of Python.
    light : bool
        Whether arrays of NumPy are taken as they are, without JAX.

    Examples
    --------
    >>> Target.of("z1 + z1*z2").directions
    2
    >>> import jax.numpy as jnp
    >>> Target.of(lambda z: jnp.tanh(z[0] * z[1]), directions=2).directions
    2
    """

    name: str
    directions: int
    function: ArrayFunction = field(compare=False, repr=False)
    polynomial: dict[tuple[int, ...], float] | None = field(
        default=None, compare=False, repr=False
    )
    ridge: Ridge | None = field(default=None, compare=False, repr=False)
    smooth: bool = field(default=False, compare=False, repr=False)
    latex: str = field(default="", compare=False, repr=False)
    key: Hashable = field(default=None, repr=False)
    description: str | Json | None = field(default=None, compare=False, repr=False)
    light: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if (
            self.key is None
        ):  # made by hand: the name alone would not tell two functions apart
            terms = (
                None
                if self.polynomial is None
                else tuple(sorted(self.polynomial.items()))
            )
            object.__setattr__(
                self, "key", ("given", self.function, terms, self.ridge, self.smooth)
            )

    def __call__(self, fields: Any) -> Any:
        """h at fields (..., k)."""
        return self.function(fields)

    def on_host(self, fields: np.ndarray) -> np.ndarray:
        """h at ``fields`` (..., k) as an array of NumPy; of formulas and teachers
        without JAX.
        """
        return np.asarray(self(fields)) if self.light else in_jax(self.function, fields)

    @cached_property
    @float64
    def _kinks(self) -> tuple[tuple[float, ...], ...] | None:
        import jax.numpy as jnp

        points = jnp.asarray(
            np.random.default_rng(20).normal(size=(4, self.directions))
        )
        out = []
        for r in range(self.directions):
            along = partial(_along, self, points, r)
            first, *others = find_kinks(along, lines=4)
            if any(
                len(o) != len(first) or not np.allclose(o, first, atol=1e-7)
                for o in others
            ):
                return None
            # a panel that ends at a singularity would have nodes on it, in the end
            there = along(jnp.tile(jnp.asarray(first), (4, 1)))
            if not np.isfinite(np.asarray(there)).all():
                return None
            # where its place is not a round number, values there are large only
            if any(_singular(along, kink) for kink in first):
                return None
            out.append(first)
        return tuple(out)

    @property
    def kinks(self) -> tuple[tuple[float, ...], ...] | None:
        """Per direction, where h jumps or bends; None when h bends along other surfaces
        too, or is infinite there.

        A kink along z_r counts for direction r only if it stays where it is when the
        other fields move.
        """
        return ((),) * self.directions if self.smooth else self._kinks

    def scaled(self, factor: float) -> Target:
        """The same target times a ``factor``, with all that is known of it."""
        ridge, poly = self.ridge, self.polynomial
        if ridge is not None:
            ridge = replace(ridge, weights=tuple(factor * c for c in ridge.weights))
        return Target(
            f"{factor:g}*({self.name})",
            self.directions,
            lambda fields: factor * self.function(fields),
            None if poly is None else {alpha: factor * c for alpha, c in poly.items()},
            ridge,
            self.smooth,
            rf"{factor:g} \left({self.latex}\right)",
            ("scaled", self.key, factor),
            light=self.light,
        )

    @classmethod
    def of(cls, source: TargetLike, directions: int | None = None) -> Target:
        """Make a target of a formula, a JAX function of a vector (k,), or a description
        from a file.

        Parameters
        ----------
        source : str or callable or Target or dict
            ``"z1*z2 + He3(z1)"``, a function of JAX, or a table such as ``{"teacher":
            "erf", "k": 3}``.
        directions : int, optional
            k; required for a callable, at least the largest index for a formula.

        Examples
        --------
        >>> Target.of("He3(z2)").directions
        2
        >>> Target.of({"teacher": "erf", "k": 3}).ridge.weights
        (0.3333333333333333, 0.3333333333333333, 0.3333333333333333)
        """
        if isinstance(source, Target):
            return source
        if directions is not None:
            directions = positive_integer("directions", directions)
            require(
                directions <= MAX_DIRECTIONS,
                "directions",
                directions,
                f"at most {MAX_DIRECTIONS}",
            )
        if isinstance(source, str):
            return _from_text(source, directions)
        if isinstance(source, dict):
            unknown = set(source) - {"teacher", "k", "weights", "normalisation"}
            accepted = "a table with teacher, k, weights, normalisation"
            require("teacher" in source and not unknown, "target", source, accepted)
            return Teacher(
                **{
                    ("activation" if key == "teacher" else key): value
                    for key, value in source.items()
                }
            )
        if callable(source):
            require(
                directions is not None,
                "directions",
                directions,
                "given when the target is a function",
            )
            import jax.numpy as jnp

            vector = jnp.vectorize(source, signature="(k)->()")
            name = getattr(source, "__name__", type(source).__name__)
            return _checked(
                cls(
                    name,
                    int(directions or 0),
                    vector,
                    key=("callable", source, directions),
                )
            )
        reject(
            "target",
            source,
            "a formula such as 'z1 + z1*z2', a JAX function, or a Teacher",
        )


def _along(target: Target, points: Any, r: int, x: Any) -> Any:
    """h on the line along direction r through each point."""
    return target(_line(points, r, x))


def _singular(along: ArrayFunction, kink: float) -> bool:
    """Whether h goes to infinity at a kink: towards it, it changes by as much from one
    power of ten to the next as it did before, as a logarithm does, or by more.
    """
    import jax.numpy as jnp

    distances = np.array([1e-9, 1e-7, 1e-5, 1e-3])
    x = jnp.asarray(kink + np.concatenate([distances, -distances]))
    values = np.asarray(along(jnp.broadcast_to(x, (4, 8)))).reshape(4, 2, 4)
    near = np.abs(values[..., 0] - values[..., 1])
    far = np.abs(values[..., 2] - values[..., 3])
    floor = 1e-9 * (1 + np.abs(values).max())
    return not bool(((near <= LASTING * far) | (near <= floor)).all())


def _line(points: Any, r: int, x: Any) -> Any:
    """Through each point a line along direction r: (lines, k) and x (lines, n) to
    (lines, n, k).
    """
    import jax.numpy as jnp

    return (
        jnp.broadcast_to(points[:, None, :], (*x.shape, points.shape[1]))
        .at[..., r]
        .set(x)
    )


def _from_text(text: str, directions: int | None) -> Target:
    expression = parse(text, "z1", "target")
    if not expression.variables:
        raise InputError(
            f"Argument `target` must depend on z1, z2, …, but {text!r} is a constant."
        )
    largest = int(expression.variables[-1][1:])
    k = directions or largest
    require(
        k >= largest,
        "directions",
        directions,
        f"at least {largest} for the target {text!r}",
    )
    names = tuple(f"z{i + 1}" for i in range(k))

    def function(fields: Any) -> Any:
        return expression(**{name: fields[..., i] for i, name in enumerate(names)})

    return _checked(
        Target(
            str(expression),
            k,
            function,
            expression.polynomial(names),
            _ridge_form(expression, names),
            expression.smooth,
            expression.latex,
            ("text", expression),
            str(expression),
            light=True,
        ),
        expression,
    )


def _checked(
    target: Target, expression: Expression | None = None, poles: bool = True
) -> Target:
    """Evaluate once: the result must be a finite real number per sample, and of finite
    variance. An expression tells where its poles are; else they are looked for where
    there may be some.
    """
    probe = np.random.default_rng(0).normal(size=(512, target.directions))
    try:
        values = target.on_host(probe)
    except InputError:
        raise
    except Exception as error:
        accepted = (
            f"a JAX function that maps a vector of {target.directions} fields to a"
            " number"
        )
        raise failed("target", target.name, accepted, error) from error
    if values.shape != (512,) or not np.issubdtype(values.dtype, np.floating):
        raise InputError(
            "Argument `target` must return one real number per sample, but"
            f" {target.name} returns {values.dtype} of shape {values.shape[1:]}."
        )
    if not np.isfinite(values).all():
        where = probe[np.argmin(np.isfinite(values))].round(2).tolist()
        raise InputError(
            f"Argument `target` must be finite everywhere, but {target.name} is not at"
            f" z = {where}."
        )
    if target.polynomial is not None:
        return target
    accepted = "Argument `target` must have a finite variance"
    if expression is not None:
        reject_pole(expression, accepted)
    unread = poles and expression is None
    if not square_integrable(target.on_host, target.directions, poles=unread):
        raise InputError(
            f"{accepted}, but {cut(target.name)} has a pole or grows too fast for it."
        )
    return target


def _terms(node: Node, sign: float = 1.0) -> list[tuple[float, Node]] | None:
    """Split a tree into Σ constant · subtree."""
    match node:
        case Negative(inner):
            return _terms(inner, -sign)
        case Binary("+" | "-" as op, left, right):
            first, second = (
                _terms(left, sign),
                _terms(right, sign if op == "+" else -sign),
            )
            return None if first is None or second is None else first + second
        case Binary("*" | "/" as op, left, right):
            by = constant(right)
            if by is not None:
                return _terms(left, sign * by if op == "*" else sign / by)
            by = constant(left) if op == "*" else None
            return None if by is None else _terms(right, sign * by)
        case _:
            return [(sign, node)]


def _ridge_form(expression: Expression, names: tuple[str, ...]) -> Ridge | None:
    """Read Σ c_q f(v_q · λ*) off the tree, f one of the functions of the language."""
    terms = _terms(expression.tree)
    if terms is None or not all(isinstance(node, Call) for _, node in terms):
        return None
    calls = [node for _, node in terms if isinstance(node, Call)]
    name = calls[0].name
    if name in ("log", "sqrt") or any(call.name != name for call in calls):
        return None
    directions = []
    for call in calls:
        linear = Expression(call.argument).polynomial(names)
        if not linear or any(sum(k) != 1 for k in linear):
            return None
        scale = (
            math.sqrt(2) if name == "erf" else 1.0
        )  # the activation erf is erf(z/√2)
        unit = [
            tuple(int(i == r) for i in range(len(names))) for r in range(len(names))
        ]
        directions.append(tuple(scale * linear.get(e, 0.0) for e in unit))
    activation = Activation.of(name if name in BUILT_IN else f"{name}(z)")
    return _ridge(activation, [c for c, _ in terms], directions)


def _ridge(
    activation: Activation,
    weights: Sequence[float],
    directions: Sequence[tuple[float, ...]],
) -> Ridge:
    """A sum of ridges; rectifiers of other slopes as sums of ReLU, r·max(x, 0) −
    l·max(−x, 0).
    """
    name, *slopes = activation.family or ("",)
    if name != "rectifier" or tuple(slopes) == (0.0, 1.0):
        return Ridge(activation, tuple(weights), tuple(directions))
    left, right = slopes
    above = [(right * c, v) for c, v in zip(weights, directions, strict=True)]
    below = [
        (-left * c, tuple(-x for x in v))
        for c, v in zip(weights, directions, strict=True)
    ]
    halves = [(c, v) for c, v in above + below if c]
    return Ridge(
        Activation.of("relu"), tuple(c for c, _ in halves), tuple(v for _, v in halves)
    )


def Teacher(
    activation: str | ArrayFunction | Activation = "erf",
    k: int = 1,
    weights: Sequence[float] | None = None,
    normalisation: str = "mean",
) -> Target:
    """A teacher network h(λ*) = (1/N) Σ_r a*_r σ*(λ*_r).

    The Gram matrix P of its rows is part of the problem: ``Problem(target=Teacher(...),
    gram=P)``.

    Parameters
    ----------
    activation : str or callable or Activation
        σ*.
    k : int
        Number of teacher neurons.
    weights : sequence of float, optional
        a*, all ones by default.
    normalisation : str
        N is k (``"mean"``), 1 (``"sum"``) or √k (``"sqrt"``).

    Examples
    --------
    >>> Teacher("relu", k=2, weights=[1, -1]).name
    'teacher relu, k=2, a*=[1, -1]'
    """
    k = positive_integer("k", k)
    require(k <= MAX_DIRECTIONS, "k", k, f"at most {MAX_DIRECTIONS}")
    sigma = Activation.of(activation)
    a = [1.0] * k if weights is None else list(finite_numbers("weights", weights))
    require(
        len(a) == k, "weights", weights, f"{k} numbers, one for each teacher neuron"
    )
    divided = divisor(choice("normalisation", normalisation, NORMALISATIONS), k)
    scaled = tuple(w / divided for w in a)
    plain = normalisation == "mean"
    ones = weights is None or all(w == 1.0 for w in a)
    name = f"teacher {sigma.name}, k={k}" + (
        "" if ones else f", a*={[int(w) if w % 1 == 0 else w for w in a]}"
    )
    name += "" if plain else f", {normalisation}"

    def function(fields: Any) -> Any:
        return (np.asarray(scaled) * sigma(fields)).sum(-1)

    polynomial: dict[tuple[int, ...], float] | None = None
    if sigma.polynomial is not None:
        polynomial = {}
        for r, w in enumerate(scaled):
            for n, c in enumerate(sigma.polynomial):
                key = tuple(n if i == r else 0 for i in range(k))
                if w * c:
                    polynomial[key] = polynomial.get(key, 0.0) + w * c
    unit = tuple(tuple(float(i == r) for i in range(k)) for r in range(k))
    front = {
        "mean": rf"\frac{{1}}{{{k}}} ",
        "sum": "",
        "sqrt": rf"\frac{{1}}{{\sqrt{{{k}}}}} ",
    }[normalisation]
    latex = (
        rf"{front}\sum_{{r=1}}^{{{k}}} a^\star_r \,"
        rf" \mathrm{{{sigma.name}}}(\lambda^\star_r)"
    )
    words = {} if plain else {"normalisation": normalisation}
    description = (
        {"teacher": sigma.name, "k": k, "weights": a, **words}
        if sigma.portable
        else None
    )
    return _checked(
        Target(
            name,
            k,
            function,
            polynomial,
            _ridge(sigma, scaled, unit),
            not sigma.kinks,
            latex,
            ("teacher", sigma, tuple(a), normalisation),
            description,
            light=sigma.light,
        ),
        poles=False,
    )
