"""Activations σ: named, typed as a formula in z, or given as a JAX function.

f(z) = (1/p) Σ_j a_j σ(λ_j),    σ' by automatic differentiation,    σ = Σ_n c_n h_n
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np

from twolayer.functions.expression import Expression, parse
from twolayer.functions.hermite import hermite_coefficients
from twolayer.functions.integrable import difference, square_integrable
from twolayer.functions.kinks import derivative, find_kinks
from twolayer.functions.poles import reject_pole
from twolayer.functions.syntax import FUNCTIONS, LEAK
from twolayer.numerics.arguments import ArrayFunction
from twolayer.numerics.errors import (
    InputError,
    closest,
    cut,
    expect,
    failed,
    finite_numbers,
    identifier,
    reject,
    short,
)
from twolayer.numerics.precision import float64

__all__ = ["Activation", "in_jax", "register_activation"]

_REGISTRY: dict[str, Activation] = {}
NAMED: Mapping[str, Activation] = _REGISTRY
"""Activations by name."""
HERMITE = re.compile(r"(He|h)([1-9]\d?)")


OwnFunction = TypeVar("OwnFunction", bound=ArrayFunction)
"""The function that a user registers, whose own type the decorator keeps."""

ActivationLike: TypeAlias = "str | ArrayFunction | Activation"
"""A registered name or a formula in z, a JAX function, or an activation."""


@dataclass(frozen=True)
class Activation:
    """An activation function with what the averages need to know about it.

    Parameters
    ----------
    name : str
        What is printed and saved; text that `Activation.of` reads back unless the
        function is a callable.
    function : callable
        Elementwise, of JAX; named and typed ones take arrays of NumPy as they are.
    kinks : tuple of float
        Where σ or σ' jumps.
    polynomial : tuple of float, optional
        Coefficients of 1, z, z², … when σ is a polynomial.
    portable : bool
        Whether the name brings the function back in another process, as text from a
        file has to.
    family : tuple, optional
        Name and numbers of the family of closed averages that σ belongs to
        (gaussian/closed_forms.py): ``("erf",)``, ``("rectifier", left, right)`` with
        the slopes on both sides of 0, ``("polynomial", *coefficients)``.
    key : tuple, optional
        Identity for equality and caching; by default the function and what is said of
        it.

    Examples
    --------
    >>> Activation.of("relu").kinks
    (0.0,)
    >>> Activation.of("tanh(z + 0.7)").name
    'tanh(z + 0.7)'
    """

    name: str
    function: ArrayFunction = field(compare=False, repr=False)
    kinks: tuple[float, ...] = field(default=(), compare=False)
    polynomial: tuple[float, ...] | None = field(
        default=None, compare=False, repr=False
    )
    key: tuple[Hashable, ...] = field(default=(), repr=False)
    portable: bool = field(default=True, compare=False, repr=False)
    family: tuple[Any, ...] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # made by hand: the name alone would not tell two functions apart, nor bring one
        # back
        if not self.key:
            object.__setattr__(
                self, "key", ("given", self.function, self.kinks, self.polynomial)
            )
            object.__setattr__(self, "portable", False)

    def __call__(self, x: Any) -> Any:
        """σ(x), elementwise."""
        return self.function(x)

    def slope(self, x: Any) -> Any:
        """σ' at ``x``, elementwise."""
        return derivative(self.function)(x)

    @property
    def light(self) -> bool:
        """Whether arrays of NumPy are taken as they are, without JAX."""
        return self.portable and not self.registered

    def on_host(self, x: np.ndarray) -> np.ndarray:
        """σ at ``x`` as an array of NumPy; of named and typed functions without JAX."""
        return np.asarray(self(x)) if self.light else in_jax(self.function, x)

    def hermite(self, degree: int) -> np.ndarray:
        """Hermite coefficients c_0 … c_n under N(0, 1), n = ``degree``.

        Examples
        --------
        >>> (Activation.of("He3").hermite(4).round(6) + 0.0).tolist()
        [0.0, 0.0, 0.0, 2.44949, 0.0]
        """
        return hermite_coefficients(self.on_host, degree, self.kinks)

    @cached_property
    def bounded_growth(self) -> bool:
        """Whether |σ| grows no faster than linearly, so that batches have light-tailed
        gradients.
        """
        return self.polynomial is None or len(self.polynomial) <= 2

    @property
    def registered(self) -> bool:
        """Whether the name stands for a function of the user's, which may be another
        one tomorrow.
        """
        return self.key[:1] == ("registered",)

    @classmethod
    def of(
        cls, source: ActivationLike, kinks: Sequence[float] | None = None
    ) -> Activation:
        """Make an activation of a registered name, a formula in z, or a JAX function.

        Parameters
        ----------
        source : str or callable or Activation
            ``"relu"``, ``"He3"``, ``"tanh(z + 0.7)"``, or an elementwise function of
            JAX.
        kinks : sequence of float, optional
            Where σ or σ' jumps; found numerically when not given.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> Activation.of(jnp.sin).kinks
        ()
        """
        if isinstance(source, Activation):
            return source
        kinks = None if kinks is None else finite_numbers("kinks", kinks)
        if isinstance(source, str):
            name = source.strip()
            if name not in _REGISTRY:
                return _from_text(name, kinks)
            known = _REGISTRY[name]
            return (
                known
                if kinks is None
                else replace(known, kinks=kinks, key=(*known.key, kinks))
            )
        if callable(source):
            name = getattr(source, "__name__", type(source).__name__)
            return _checked(
                name, source, kinks, None, ("callable", source, kinks), False
            )
        reject("activation", source, "a name, a formula in z, or a JAX function")


@float64
def in_jax(function: ArrayFunction, x: np.ndarray) -> np.ndarray:
    """A function of JAX at numbers of NumPy, in double precision."""
    import jax.numpy as jnp

    return np.asarray(function(jnp.asarray(x)))


def _checked(
    name: str,
    function: ArrayFunction,
    kinks: Sequence[float] | None,
    polynomial: tuple[float, ...] | None,
    key: tuple[Hashable, ...],
    portable: bool,
    family: tuple[Any, ...] | None = None,
    expression: Expression | None = None,
) -> Activation:
    """Probe the function (elementwise? finite?), find its kinks, and whether it is a
    rectifier; an expression tells where its poles are.

    Smooth formulas are probed without JAX: differences tell how large their slopes are.
    """
    smooth = expression is not None and expression.smooth
    probe = np.linspace(-6.0, 6.0, 241) + 0.00123
    slope = difference(function) if smooth else derivative(function)

    def host(f: ArrayFunction, x: np.ndarray) -> np.ndarray:
        return np.asarray(f(x)) if smooth else in_jax(f, x)

    try:
        values, slopes = host(function, probe), host(slope, probe)
    except InputError:
        raise
    except Exception as error:
        raise failed(
            "activation", name, "an elementwise JAX function", error
        ) from error
    if values.shape != probe.shape:
        raise InputError(
            f"Argument `activation` must be elementwise, but {name} maps shape"
            f" {probe.shape} to {values.shape}."
        )
    bad = ~(np.isfinite(values) & np.isfinite(slopes))
    if bad.any():
        raise InputError(
            f"Argument `activation` must be finite on the real line, but {name} or its"
            f" slope is not at z = {float(probe[np.argmax(bad)]):.3g}."
        )
    accepted = "Argument `activation` must have a finite E[σ² σ'²]"
    if expression is not None and polynomial is None:
        reject_pole(expression, accepted, steep=True)
    if polynomial is None and not square_integrable(
        lambda z: host(function, z[:, 0]) * host(slope, z[:, 0]),
        1,
        poles=expression is None,
    ):
        raise InputError(
            f"{accepted}, but {cut(name)} has a pole or grows too fast for it."
        )
    if kinks is None:
        kinks = () if smooth else find_kinks(function)[0]
    kinks = tuple(float(k) for k in kinks)
    if polynomial is not None:
        family = ("polynomial", *polynomial)
    elif family is None and kinks == (0.0,):
        family = _rectifier(probe, values)
    return Activation(name, function, kinks, polynomial, key, portable, family)


def _rectifier(z: np.ndarray, values: np.ndarray) -> tuple[Any, ...] | None:
    """The family of a function that is proportional to z on either side of 0, as |z|
    is.
    """
    slopes = [values[side][0] / z[side][0] for side in (z < 0, z > 0)]
    return (
        ("rectifier", *map(float, slopes))
        if np.allclose(values, np.where(z < 0, *slopes) * z, 1e-13, 0)
        else None
    )


def _from_text(text: str, kinks: Sequence[float] | None) -> Activation:
    if re.fullmatch(r"[A-Za-z_]\w*", text) and text != "z":
        if not HERMITE.fullmatch(text):
            raise InputError(
                "Argument `activation`: unknown activation"
                f" {short(text)}{closest(text, _REGISTRY)}; named ones are"
                f" {', '.join(_REGISTRY)}, or write a formula in z such as 'tanh(z +"
                " 0.7)'."
            )
        expression, name = parse(f"{text}(z)", "z", "activation"), text
    else:
        expression = parse(text, "z", "activation")
        name = str(expression)
    poly = expression.polynomial(("z",))
    if poly is not None and all(degree == (0,) for degree in poly):
        raise InputError(
            f"Argument `activation` must depend on z, but got {short(text)}."
        )
    coefficients = None
    if poly is not None:
        coefficients = tuple(
            poly.get((n,), 0.0) for n in range(max(k[0] for k in poly) + 1)
        )
    key = ("text", name, kinks)
    return _checked(
        name,
        lambda x: expression(z=x),
        kinks,
        coefficients,
        key,
        True,
        expression=expression,
    )


def register_activation(
    name: str,
    kinks: Sequence[float] | None = None,
    family: tuple[Any, ...] | None = None,
) -> Callable[[OwnFunction], OwnFunction]:
    """Decorator: make an elementwise JAX function available by name, in Python, files
    and flags.

    A name that was registered before stands for the new function from then on.

    Parameters
    ----------
    name : str
        An identifier, used as ``Problem(target, "name")``, in files and in flags; not
        one of the package's own.
    kinks : sequence of float, optional
        Where σ or σ' jumps; found numerically when not given.
    family : tuple, optional
        Name and numbers of a family of closed averages
        (`twolayer.gaussian.closed_forms.register_family`).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> @register_activation("bump")
    ... def bump(z):
    ...     return z * jnp.exp(-z * z)
    >>> Activation.of("bump").name
    'bump'
    """
    if identifier("name", name) in BUILT_IN or name == "z" or HERMITE.fullmatch(name):
        reject(
            "name",
            name,
            "another name: this one means a function of the package, and files rely"
            " on it",
        )
    given = None if kinks is None else finite_numbers("kinks", kinks)
    if family is not None:
        expect(tuple, "family", family)

    def decorate(function: OwnFunction) -> OwnFunction:
        key = ("registered", name, function, given, family)
        _REGISTRY[name] = _checked(name, function, given, None, key, True, family)
        return function

    return decorate


def _builtin(
    name: str,
    function: ArrayFunction,
    kinks: tuple[float, ...] = (),
    polynomial: tuple[float, ...] | None = None,
    family: tuple[Any, ...] | None = None,
) -> None:
    if polynomial is not None:
        family = ("polynomial", *polynomial)
    _REGISTRY[name] = Activation(
        name, function, kinks, polynomial, ("builtin", name), family=family
    )


_builtin("linear", lambda z: z, polynomial=(0.0, 1.0))
_builtin("square", lambda z: z**2, polynomial=(0.0, 0.0, 1.0))
_builtin("erf", lambda z: FUNCTIONS["erf"].array(z / math.sqrt(2)), family=("erf",))
_builtin("relu", FUNCTIONS["relu"].array, kinks=(0.0,), family=("rectifier", 0.0, 1.0))
for _name in ("tanh", "sigmoid", "softplus", "gelu", "swish", "silu", "sin", "cos"):
    _builtin(_name, FUNCTIONS[_name].array)
_builtin("abs", FUNCTIONS["abs"].array, kinks=(0.0,), family=("rectifier", -1.0, 1.0))
_builtin(
    "leaky_relu",
    FUNCTIONS["leaky_relu"].array,
    kinks=(0.0,),
    family=("rectifier", LEAK, 1.0),
)
BUILT_IN = dict(_REGISTRY)
"""Those of the package, whose names are taken."""
