"""Numbers that write machine code: Python arithmetic on them appends vector
instructions to an LLVM function.

    x*y + z on lanes of seeds  →  one instruction for all lanes, no branch, no call

Every operation is the IEEE one of its kind (products and sums are fused only where
`fma` says so), so a lane's result depends neither on the number of lanes nor on what
stands in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from llvmlite import ir

__all__ = ["Code", "Index", "Operand", "Vector"]

DOUBLE, WORD, LONG, BIT = ir.DoubleType(), ir.IntType(32), ir.IntType(64), ir.IntType(1)

Operand: TypeAlias = "Vector | float"
"""What arithmetic takes beside a vector: another one, or the same number in all
lanes.
"""

Index: TypeAlias = ir.Value | int
"""A place in memory or the count of a loop: known when the code runs, or when it is
written.
"""


class Vector:
    """One number per lane: doubles, 32- or 64-bit words, or truth values."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: Code, value: ir.Value, kind: ir.Type) -> None:
        self.code, self.value, self.kind = code, value, kind

    @property
    def floating(self) -> bool:
        """Whether the lanes hold doubles."""
        return bool(self.kind is DOUBLE)

    def _with(self, other: Operand, real: str, whole: str) -> Vector:
        name = real if self.floating else whole
        value = getattr(self.code.builder, name)(
            self.value, self.code.like(self, other).value
        )
        return Vector(self.code, value, self.kind)

    def _compare(self, sign: str, other: Operand) -> Vector:
        build = (
            self.code.builder.fcmp_ordered
            if self.floating
            else self.code.builder.icmp_unsigned
        )
        return Vector(
            self.code, build(sign, self.value, self.code.like(self, other).value), BIT
        )

    def __add__(self, other: Operand) -> Vector:
        return self._with(other, "fadd", "add")

    def __radd__(self, other: Operand) -> Vector:
        return self.code.like(self, other) + self

    def __sub__(self, other: Operand) -> Vector:
        return self._with(other, "fsub", "sub")

    def __rsub__(self, other: Operand) -> Vector:
        return self.code.like(self, other) - self

    def __mul__(self, other: Operand) -> Vector:
        return self._with(other, "fmul", "mul")

    def __rmul__(self, other: Operand) -> Vector:
        return self.code.like(self, other) * self

    def __truediv__(self, other: Operand) -> Vector:
        return self._with(other, "fdiv", "udiv")

    def __rtruediv__(self, other: Operand) -> Vector:
        return self.code.like(self, other) / self

    def __neg__(self) -> Vector:
        return Vector(self.code, self.code.builder.fneg(self.value), self.kind)

    def __xor__(self, other: Operand) -> Vector:
        return self._with(other, "xor", "xor")

    def __or__(self, other: Operand) -> Vector:
        return self._with(other, "or_", "or_")

    def __and__(self, other: Operand) -> Vector:
        return self._with(other, "and_", "and_")

    def __lshift__(self, other: Operand) -> Vector:
        return self._with(other, "shl", "shl")

    def __rshift__(self, other: Operand) -> Vector:
        return self._with(other, "lshr", "lshr")

    def __invert__(self) -> Vector:
        return Vector(self.code, self.code.builder.not_(self.value), self.kind)

    def __lt__(self, other: Operand) -> Vector:
        return self._compare("<", other)

    def __le__(self, other: Operand) -> Vector:
        return self._compare("<=", other)

    def __gt__(self, other: Operand) -> Vector:
        return self._compare(">", other)

    def __ge__(self, other: Operand) -> Vector:
        return self._compare(">=", other)

    def equals(self, other: Operand) -> Vector:
        """Where two numbers are the same."""
        return self._compare("==", other)


Function = Callable[["Code", Vector], tuple[Vector, Vector]]


class Code:
    """A function of LLVM under construction, for a number of lanes side by side; one
    lane is a scalar.

    ``functions`` are those of the formula language by name, with their slopes
    (elementary.py).
    """

    def __init__(
        self, builder: ir.IRBuilder, lanes: int, functions: Mapping[str, Function]
    ) -> None:
        self.builder, self.lanes, self.functions = builder, lanes, functions

    def of(self, lanes: int) -> Code:
        """The same place in the function, with another number of lanes."""
        return Code(self.builder, lanes, self.functions)

    def type(self, kind: ir.Type) -> ir.Type:
        """The LLVM type of lanes of this kind."""
        return kind if self.lanes == 1 else ir.VectorType(kind, self.lanes)

    def constant(self, number: float, kind: ir.Type = DOUBLE) -> Vector:
        """The same number in all lanes."""
        number = float(number) if kind is DOUBLE else int(number)
        return Vector(
            self,
            ir.Constant(
                self.type(kind), number if self.lanes == 1 else [number] * self.lanes
            ),
            kind,
        )

    def constant_index(self, number: int) -> ir.Value:
        """A number as a scalar that counts."""
        return ir.Constant(LONG, number)

    def iota(self, kind: ir.Type) -> Vector:
        """0, 1, 2, … along the lanes."""
        return Vector(self, ir.Constant(self.type(kind), list(range(self.lanes))), kind)

    def like(self, one: Vector, other: Operand) -> Vector:
        """A number as lanes of the same kind."""
        return other if isinstance(other, Vector) else self.constant(other, one.kind)

    def splat(self, scalar: ir.Value, kind: ir.Type) -> Vector:
        """A scalar of the function in all lanes."""
        if self.lanes == 1:
            return Vector(self, scalar, kind)
        one = self.builder.insert_element(
            ir.Constant(self.type(kind), ir.Undefined), scalar, ir.Constant(WORD, 0)
        )
        zeros = ir.Constant(ir.VectorType(WORD, self.lanes), [0] * self.lanes)
        return Vector(
            self,
            self.builder.shuffle_vector(
                one, ir.Constant(self.type(kind), ir.Undefined), zeros
            ),
            kind,
        )

    def repeat(self, x: Vector) -> Vector:
        """The lanes of a shorter vector, over and over."""
        if x.code.lanes == 1:
            return self.splat(x.value, x.kind)
        order = [i % x.code.lanes for i in range(self.lanes)]
        places = ir.Constant(ir.VectorType(WORD, self.lanes), order)
        return Vector(
            self, self.builder.shuffle_vector(x.value, x.value, places), x.kind
        )

    def intrinsic(self, name: str, *arguments: Vector) -> Vector:
        """A function that processors have, such as sqrt or fma."""
        suffix = "f64" if self.lanes == 1 else f"v{self.lanes}f64"
        kind, module = self.type(DOUBLE), self.builder.module
        full = f"llvm.{name}.{suffix}"
        function = module.globals.get(full) or ir.Function(
            module, ir.FunctionType(kind, [kind] * len(arguments)), full
        )
        return Vector(
            self, self.builder.call(function, [x.value for x in arguments]), DOUBLE
        )

    def fma(self, x: Operand, y: Operand, z: Operand) -> Vector:
        """x·y + z, rounded once."""
        return self.intrinsic(
            "fma",
            *(v if isinstance(v, Vector) else self.constant(v) for v in (x, y, z)),
        )

    def sqrt(self, x: Vector) -> Vector:
        """√x."""
        return self.intrinsic("sqrt", x)

    def abs(self, x: Vector) -> Vector:
        """|x|."""
        return self.intrinsic("fabs", x)

    def floor(self, x: Vector) -> Vector:
        """The largest integer that is not larger."""
        return self.intrinsic("floor", x)

    def copysign(self, x: Vector, sign: Vector) -> Vector:
        """|x| with another sign."""
        return self.intrinsic("copysign", x, sign)

    def function(self, name: str, x: Vector) -> tuple[Vector, Vector]:
        """A function of the formula language, and its slope."""
        return self.functions[name](self, x)

    def where(self, mask: Vector, yes: Operand, no: Operand) -> Vector:
        """The first where the mask holds, else the second; at least one of them is a
        vector.
        """
        like = yes if isinstance(yes, Vector) else no
        assert isinstance(like, Vector)
        yes, no = self.like(like, yes), self.like(like, no)
        return Vector(
            self, self.builder.select(mask.value, yes.value, no.value), yes.kind
        )

    def total(self, x: Vector) -> Vector:
        """x: every neuron has lanes of its own."""
        return x

    def every(self, mask: Vector) -> Vector:
        """The mask: every neuron has lanes of its own."""
        return mask

    def any(self, mask: Vector) -> ir.Value:
        """Whether the mask holds in some lane, as a scalar."""
        if self.lanes == 1:
            return mask.value
        bits = self.builder.bitcast(mask.value, ir.IntType(self.lanes))
        return self.builder.icmp_unsigned(
            "!=", bits, ir.Constant(ir.IntType(self.lanes), 0)
        )

    def if_any(self, mask: Vector, body: Callable[[], None]) -> None:
        """Do what is rarely needed, if some lane asks for it."""
        with self.builder.if_then(self.any(mask), likely=False):
            body()

    def rarely(
        self, mask: Vector, value: Callable[[], Vector], otherwise: Vector
    ) -> Vector:
        """``where(mask, value(), otherwise)``, where the value is computed only if some
        lane asks for it.
        """
        any_lane = self.any(mask)
        before = self.builder.block
        with self.builder.if_then(any_lane, likely=False):
            chosen = self.where(mask, value(), otherwise)
            inside = self.builder.block
        result = self.builder.phi(self.type(otherwise.kind))
        result.add_incoming(otherwise.value, before)
        result.add_incoming(chosen.value, inside)
        return Vector(self, result, otherwise.kind)

    def cast(self, x: Vector, kind: ir.Type) -> Vector:
        """Words made longer or shorter; signed long words made doubles."""
        if kind is DOUBLE:
            return Vector(self, self.builder.sitofp(x.value, self.type(kind)), kind)
        build = self.builder.zext if kind.width > x.kind.width else self.builder.trunc
        return Vector(self, build(x.value, self.type(kind)), kind)

    def bits(self, x: Vector, kind: ir.Type) -> Vector:
        """The same bits read as another kind."""
        return Vector(self, self.builder.bitcast(x.value, self.type(kind)), kind)

    def shift_signed(self, x: Vector, by: int) -> Vector:
        """x / 2**by of signed words, rounded down."""
        return Vector(
            self, self.builder.ashr(x.value, self.constant(by, x.kind).value), x.kind
        )

    def polynomial(self, coefficients: Sequence[float], x: Vector) -> Vector:
        """Σ c_n xⁿ as two short chains of products, of even and of odd powers."""
        square = x * x
        halves = []
        for half in (list(coefficients[0::2]), list(coefficients[1::2])):
            value = self.constant(half[-1]) if half else self.constant(0.0)
            for c in half[-2::-1]:
                value = self.fma(value, square, c)
            halves.append(value)
        return self.fma(x, halves[1], halves[0])

    def load(self, pointer: ir.Value, index: Index, kind: ir.Type) -> Vector:
        """Lanes from memory; the index counts vectors, and may be a number or a scalar
        of the function.
        """
        place = self.place(pointer, index, kind)
        return Vector(
            self,
            self.builder.load(place, typ=self.type(kind), align=kind_size(kind)),
            kind,
        )

    def store(self, x: Vector, pointer: ir.Value, index: Index) -> None:
        """Lanes to memory."""
        self.builder.store(
            x.value, self.place(pointer, index, x.kind), align=kind_size(x.kind)
        )

    def place(self, pointer: ir.Value, index: Index, kind: ir.Type) -> ir.Value:
        """Address of a vector in an array of them."""
        number = (
            ir.Constant(LONG, index) if isinstance(index, int | np.integer) else index
        )
        return self.builder.gep(pointer, [number], source_etype=self.type(kind))

    def variable(self, x: Vector) -> ir.Value:
        """A place in the function that holds a vector from now on."""
        return self.kept(x.value, self.type(x.kind))

    def kept(self, value: ir.Value, type_: ir.Type) -> ir.Value:
        """A place in the function that holds a value, or an address, from now on."""
        with self.builder.goto_entry_block():
            place = self.builder.alloca(type_)
        self.builder.store(value, place)
        return place

    def loop(
        self, count: Index, body: Callable[[ir.Value], None], first: int = 0
    ) -> None:
        """``for i in range(first, count): body(i)`` with a scalar i; the count may be a
        scalar of the function.
        """
        b = self.builder
        last = ir.Constant(LONG, count) if isinstance(count, int) else count
        before, head = b.block, b.append_basic_block("loop")
        inside, after = b.append_basic_block("body"), b.append_basic_block("after")
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(LONG)
        i.add_incoming(ir.Constant(LONG, first), before)
        b.cbranch(b.icmp_signed("<", i, last), inside, after)
        b.position_at_end(inside)
        body(i)
        i.add_incoming(b.add(i, ir.Constant(LONG, 1)), b.block)
        b.branch(head)
        b.position_at_end(after)


def kind_size(kind: ir.Type) -> int:
    """Bytes of one number in memory."""
    return 8 if kind is DOUBLE else kind.width // 8
