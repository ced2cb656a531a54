"""What fixes the code of a step that is written out, and what it computes with: lanes
of seeds for every single number.

The arithmetic may be instructions of the processor (vector.py) or operations of JAX
(arrays.py): a step is written once for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from twolayer.compiled.formula import Formula
from twolayer.equations.optimiser_step import Form

__all__ = [
    "Arithmetic",
    "BlockShape",
    "Matrix",
    "Quantity",
    "Row",
    "Shape",
    "UnrolledNumbers",
    "UnrolledState",
    "dot",
    "reflection",
]


Quantity: TypeAlias = Any
"""One number in every lane: a `Vector` of machine code or an array of JAX, which share
their signs but no class.
"""


class Arithmetic(Protocol):
    """Arithmetic on lanes beyond the signs + − * / and comparisons, which the lanes
    know themselves.
    """

    def constant(self, number: float) -> Quantity:
        """The same number in all lanes."""

    def fma(self, x: Quantity, y: Quantity, z: Quantity) -> Quantity:
        """x·y + z."""

    def sqrt(self, x: Quantity) -> Quantity:
        """√x."""

    def abs(self, x: Quantity) -> Quantity:
        """|x|."""

    def where(self, mask: Quantity, yes: Quantity, no: Quantity) -> Quantity:
        """The first where the mask holds, else the second."""

    def function(self, name: str, x: Quantity) -> tuple[Quantity, Quantity]:
        """A function of the formula language, and its slope."""

    def total(self, x: Quantity) -> Quantity:
        """Sum over the neurons that share a lane; x itself where each has its own."""

    def every(self, mask: Quantity) -> Quantity:
        """Whether the mask holds for all neurons that share a lane."""


Row = list[Quantity]
Matrix = list[Row]


@dataclass(frozen=True)
class BlockShape:
    """What inputs with blocks add to the shape of a step.

    ``plain`` are blocks whose T is a plain matrix of normals: of each its first normal,
    its width in normals, and its columns.
    """

    # coordinates beside the target's: those of blocks held whole, then p of every other
    # one
    columns: int
    plain: tuple[tuple[int, int, int], ...]
    triangular: int  # how many blocks follow whose T is a triangle

    @property
    def count(self) -> int:
        """Blocks that are not held whole."""
        return len(self.plain) + self.triangular


@dataclass(frozen=True)
class Shape:
    """What fixes the code of a step; hashable."""

    activation: Formula  # σ of one number
    target: Formula  # h of k numbers
    student: float  # s in e = y − s·f
    form: Form  # geometry, and whether the second layer moves
    p: int  # rows of W, and columns of B unless there are blocks
    rank: int  # columns of A
    batch: int  # n_b
    frame: tuple[tuple[float, ...], ...]  # L_P, row by row; with blocks it is data
    noisy: bool  # whether labels have noise
    quantity: str | None  # what is watched: "overlap" or "alignment"
    blocks: BlockShape | None = None  # where inputs have any

    @property
    def columns(self) -> int:
        """Columns of W."""
        return self.rank + (self.p if self.blocks is None else self.blocks.columns)

    @property
    def used(self) -> int:
        """Normals of a sample that play a role."""
        return self.columns + self.noisy

    @property
    def rows(self) -> int:
        """Rows of the Gram factor T."""
        return min(self.p, self.batch)

    @property
    def entries(self) -> int:
        """Normals that make T, or the T of all blocks."""
        triangle = self.rows * (self.rows + 1) // 2
        return (
            triangle
            if self.blocks is None
            else self.first_triangle + self.blocks.triangular * triangle
        )

    @property
    def first_triangle(self) -> int:
        """Normals of the blocks with plain matrices, which come first."""
        return (
            0
            if self.blocks is None
            else sum(self.rows * width for _, width, _ in self.blocks.plain)
        )


class UnrolledState(NamedTuple):
    """Rows (A, B) of the first layer, and the second."""

    W: Matrix
    a: Row


class UnrolledNumbers(NamedTuple):
    """Rates, √Δ, and the coefficients of the χ quantiles, (rows, DEGREE + 2)."""

    step: Quantity
    shrink: Quantity
    root: Quantity
    table: Matrix


def dot(code: Arithmetic, x: Row, y: Row) -> Quantity:
    """Σ x_i y_i."""
    total = x[0] * y[0]
    for u, v in zip(x[1:], y[1:], strict=True):
        total = code.fma(u, v, total)
    return total


def reflection(
    code: Arithmetic, corner: Quantity, square: Quantity
) -> tuple[Quantity, Quantity]:
    """The Householder reflection of a row with this first entry and squared norm.

    It is x ← x − scale ⟨x, v⟩ v, v the row with ``head`` added to its first entry,
    which becomes −head.
    """
    norm = code.sqrt(square)
    head = code.where(corner >= 0.0, norm, -norm)
    long = square > 0.0
    scale = code.where(
        long, 1.0 / code.where(long, code.fma(code.abs(corner), norm, square), 1.0), 0.0
    )
    return head, scale
