"""Activations with closed averages, by the family that they name
(functions/activation.py).

A family is a file with a subclass of `Forms`, entered here; an activation belongs to it
by its attribute ``family``, (name, *numbers). Everything else is averaged by
quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twolayer.functions.activation import Activation
from twolayer.gaussian.erf import ErfForms
from twolayer.gaussian.polynomial import PolynomialForms
from twolayer.gaussian.rectifier import RectifierForms
from twolayer.gaussian.two_point import (
    Forms,
    NumericForms,
    PairOf,
    cross_pair,
    mehler_pair,
)

__all__ = ["FAMILIES", "forms_of", "pair_of", "pair_work", "register_family"]

Maker = TypeVar("Maker", bound="Callable[..., Forms]")

FAMILIES: dict[str, Callable[..., Forms]] = {
    "polynomial": lambda *coefficients: PolynomialForms(coefficients),
    "erf": ErfForms,
    "rectifier": RectifierForms,
}


def register_family(name: str) -> Callable[[Maker], Maker]:
    """Class decorator: closed averages for the activations whose family has this name.

    The class is called with the numbers of the family; it is a frozen dataclass derived
    from `Forms`.
    """

    def decorate(make: Maker) -> Maker:
        FAMILIES[name] = make
        return make

    return decorate


def forms_of(activation: Activation, order: int) -> Forms:
    """Closed one- and two-point averages when they exist, quadrature otherwise.

    Examples
    --------
    >>> (
    ...     forms_of(Activation.of("relu"), 12).name,
    ...     forms_of(Activation.of("tanh"), 12).name,
    ... )
    ('relu', 'quadrature')
    """
    name, *numbers = activation.family or ("",)
    return (
        FAMILIES[name](*numbers)
        if name in FAMILIES
        else NumericForms(activation, order)
    )


def pair_of(f: Activation, g: Activation, order: int) -> PairOf:
    """Averages of a student f and a ridge g: closed; by panels where g bends or jumps;
    else by Mehler's sum.

    The sum would converge against a g that jumps too, but slowly where the student is
    steep, and its last terms would then say too little about those that are left out.
    """
    one, two = forms_of(f, order), forms_of(g, order)
    closed = one.pair if f == g else one.pair_with(two)
    if closed is not None:
        return closed
    if g.kinks:
        return lambda c11, c12, c22: cross_pair(f, g, order, c11, c12, c22)
    return lambda c11, c12, c22: mehler_pair(one, two, order, c11, c12, c22)


def pair_work(
    f: Activation, g: Activation, order: int, fields: int, pairs: int
) -> float:
    """Terms of so many such pairs between so many fields."""
    one = forms_of(f, order)
    if one.pair_with(forms_of(g, order)) is not None:
        return one.pair_work(fields, pairs)
    return NumericForms(g if f.kinks or g.kinks else f, order).pair_work(fields, pairs)
