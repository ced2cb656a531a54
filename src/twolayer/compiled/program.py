"""From the shape of a step to machine code: the loop over steps, and the random numbers
it uses.

    for block of steps:  fill a buffer of normals;   for step in block:
        state ← accept(step(state, normals))

Many seeds stand side by side in vectors. A seed by itself is computed in scalars, and
its random numbers in vectors along the steps. Either way a number is the same to the
last bit.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import lru_cache

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from twolayer.compiled.batch import few_samples
from twolayer.compiled.batch_loops import many_samples
from twolayer.compiled.elementary import FUNCTIONS
from twolayer.compiled.in_blocks import BlockStep, TwoPlaces, scratch_of
from twolayer.compiled.normals import normal
from twolayer.compiled.shape import Matrix, Shape, UnrolledNumbers, UnrolledState
from twolayer.compiled.step import new_state
from twolayer.compiled.vector import DOUBLE, LONG, WORD, Code, Index, Vector
from twolayer.loops.stopping import DIVERGED, REACHED
from twolayer.numerics.wishart import DEGREE

__all__ = ["MemoryLayout", "Program", "program_for"]

LANES = 16
DRAWN = 32  # random numbers made at once
POINTERS = 7
# normals of a lane in the buffer: 16 kB with all lanes, which the nearest cache holds
HELD = 128


@dataclass(frozen=True)
class MemoryLayout:
    """Where the numbers of a lane stand: the state, what belongs to the lane, and the
    buffers.
    """

    shape: Shape
    lanes: int

    @property
    def columns(self) -> int:
        """Columns of W."""
        return self.shape.columns

    @property
    def state(self) -> int:
        """Numbers of a state: W, a, factors of rows in blocks, outcome code, step of
        the stop, watched value.
        """
        return self.shape.p * (self.columns + (2 if self.shape.blocks else 1)) + 3

    @property
    def numbers(self) -> int:
        """η, κ, √Δ, threshold, its sign, and the table of the Gram factor, unless all
        lanes share those of blocks.
        """
        return 5 + (0 if self.shape.blocks else self.shape.rows * (DEGREE + 2))

    @property
    def counts(self) -> tuple[int, int]:
        """Normals of a step: of its samples, and of the Gram factor."""
        return self.shape.batch * self.shape.used, self.shape.entries

    @property
    def block(self) -> int:
        """Steps whose normals are drawn at once."""
        room = HELD if self.lanes > 1 else 8 * HELD
        return max(1, room // sum(self.counts))

    @property
    def buffers(self) -> tuple[int, int]:
        """Doubles of the buffer of normals, padded to whole vectors, and of room for
        what a step has to keep.
        """
        scratch = (
            self.shape.p * self.shape.batch if self.shape.batch > self.shape.p else 1
        )
        if self.shape.blocks is not None:
            scratch = sum(scratch_of(self.shape))
        return sum(map(self.room, self.counts)), scratch * self.lanes

    def room(self, count: int) -> int:
        """Doubles for a block of steps with so many normals each, in whole vectors."""
        return -(-self.block * count * self.lanes // DRAWN) * DRAWN


class Program:
    """Machine code of a shape, for groups of lanes."""

    def __init__(self, layout: MemoryLayout) -> None:
        self.layout = layout
        module = _write(layout)
        self._engine, address = _assemble(module)
        pointers = [ctypes.c_void_p] * POINTERS
        self._call = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(
            address
        )  # releases the interpreter lock

    def __call__(
        self,
        state: np.ndarray,
        numbers: np.ndarray,
        keys: np.ndarray,
        span: np.ndarray,
        shared: np.ndarray,
        buffers: tuple[np.ndarray, ...],
        steps: int,
    ) -> None:
        """Advance one group of lanes by up to so many steps, in place.

        Arrays have the lanes last: state and numbers of doubles, keys (2, 2) of words,
        span (2) of long integers with the first and the last step of each lane. Shared
        doubles are those of blocks (in_blocks.py).
        """
        arrays = (state, numbers, keys, span, shared, *buffers)
        self._call(*(x.ctypes.data for x in arrays), steps)


_LOCK = threading.Lock()


@lru_cache(maxsize=256)
def _program(layout: MemoryLayout) -> Program:
    return Program(layout)


def program_for(shape: Shape, lanes: int) -> Program:
    """The program of a shape, compiled at most once."""
    with _LOCK:
        return _program(MemoryLayout(shape, lanes))


def _machine() -> llvm.TargetMachine:
    """The processor at hand; each engine owns one."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    wide = features.flatten() + ",-prefer-256-bit"
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=wide, opt=2, jit=True
    )


def _assemble(module: ir.Module) -> tuple[llvm.ExecutionEngine, int]:
    """Machine code of a module: what keeps it alive, and the address of its
    function.
    """
    machine = _machine()
    parsed = llvm.parse_assembly(str(module))
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(parsed, builder)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine, engine.get_function_address("run")


def _write(layout: MemoryLayout) -> ir.Module:
    """The module of a layout: one function that advances a group of lanes."""
    shape = layout.shape
    module = ir.Module("chain")
    module.triple = llvm.get_process_triple()
    pointer = ir.PointerType()
    function = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [pointer] * POINTERS + [LONG]), "run"
    )
    for argument in function.args[:POINTERS]:
        argument.add_attribute("noalias")
    state, numbers, keys, span, shared, buffer, scratch, steps = function.args
    entry = function.append_basic_block("entry")
    builder = ir.IRBuilder(function.append_basic_block("start"))
    code = Code(builder, layout.lanes, FUNCTIONS)
    given = [code.load(numbers, i, DOUBLE) for i in range(layout.numbers)]
    words = [code.load(keys, i, WORD) for i in range(4)]
    first, last = code.load(span, 0, LONG), code.load(span, 1, LONG)
    size = shape.p * layout.columns
    held = Registers(
        code, state, range(size if shape.blocks else 0, layout.state)
    )  # rows in blocks stay in memory
    table = [
        given[5 + i * (DEGREE + 2) : 5 + (i + 1) * (DEGREE + 2)]
        for i in range(shape.rows)
    ]
    rate, keep, root, level, sign = given[:5]
    step_numbers = UnrolledNumbers(rate, keep, root, table)
    rows_in_memory = TwoPlaces(code, shape, state, scratch) if shape.blocks else None
    block, (many, few) = layout.block, layout.counts
    beyond = builder.gep(
        buffer, [ir.Constant(LONG, layout.room(many))], source_etype=DOUBLE
    )

    def index(i: Index) -> ir.Value:
        return ir.Constant(LONG, i) if isinstance(i, int) else i

    def one_block(b: Index) -> None:
        done = builder.mul(b, ir.Constant(LONG, block))
        width = layout.columns + 1
        draw(code, words[:2], first, done, layout, (many, shape.used, width), buffer)
        draw(code, words[2:], first, done, layout, (few, few, few), beyond)
        left = builder.sub(steps, done)
        whole = builder.icmp_signed("<", left, ir.Constant(LONG, block))

        def one_step(s: Index) -> None:
            at = builder.mul(s, ir.Constant(LONG, many))
            above = builder.mul(s, ir.Constant(LONG, few))

            def field(nu: Index, i: Index) -> Vector:
                place = builder.add(builder.mul(index(nu), index(shape.used)), index(i))
                return code.load(buffer, builder.add(at, place), DOUBLE)

            def outside(i: Index) -> Vector:
                return code.load(beyond, builder.add(above, index(i)), DOUBLE)

            number = first + code.splat(builder.add(done, s), LONG)
            running = (number < last) & held.get(held.codes).equals(0.0)
            if rows_in_memory is not None:
                a, lengths = (
                    [held.get(size + i * shape.p + j) for j in range(shape.p)]
                    for i in range(2)
                )
                numbers_and_normals = (shared, scratch, field, outside)
                step = BlockStep(
                    code,
                    shape,
                    *rows_in_memory.rows,
                    lengths,
                    running,
                    *numbers_and_normals,
                )
                factors, layer, fine = step.taken(a, step_numbers)
                moves = held.settle(fine, running, number)
                for i, (before, after) in enumerate(
                    zip(a + lengths, layer + factors, strict=True)
                ):
                    held.put(size + i, code.where(moves, after, before))
                if shape.quantity is not None:
                    held.watch(
                        shape.quantity,
                        step.overlaps(factors),
                        level,
                        sign,
                        moves,
                        number,
                    )
                step.restore(running & ~fine)
                rows_in_memory.swap()
                return
            rows = [
                [held.get(j * layout.columns + i) for i in range(layout.columns)]
                for j in range(shape.p)
            ]
            old = UnrolledState(
                rows, [held.get(shape.p * layout.columns + j) for j in range(shape.p)]
            )
            few_at_once = shape.batch <= shape.p
            totals = (
                few_samples(code, shape, old, step_numbers, field)
                if few_at_once
                else many_samples(code, shape, old, step_numbers, field, scratch)
            )
            new, fine = new_state(code, shape, old, step_numbers, totals, outside)
            moves = held.settle(fine, running, number)
            flat_old, flat_new = (
                [x for row in (*W, a) for x in row] for W, a in (old, new)
            )
            for i, (before, after) in enumerate(zip(flat_old, flat_new, strict=True)):
                held.put(i, code.where(moves, after, before))
            if shape.quantity is not None:
                M = [
                    [
                        sum(
                            (w * c for w, c in zip(row, l, strict=False)),
                            code.constant(0.0),
                        )
                        for l in shape.frame
                    ]
                    for row in new.W
                ]
                held.watch(shape.quantity, M, level, sign, moves, number)

        code.loop(builder.select(whole, left, ir.Constant(LONG, block)), one_step)

    blocks = builder.sdiv(
        builder.add(steps, ir.Constant(LONG, block - 1)), ir.Constant(LONG, block)
    )
    code.loop(blocks, one_block)
    if rows_in_memory is not None:
        rows_in_memory.settle()
    for i in held.numbers:
        code.store(held.get(i), state, i)
    builder.ret_void()
    builder.position_at_end(entry)
    builder.branch(function.basic_blocks[1])
    return module


def draw(
    code: Code,
    key: list[Vector],
    first: Vector,
    done: Index,
    layout: MemoryLayout,
    counts: tuple[int, int, int],
    buffer: ir.Value,
) -> None:
    """Normals of a block of steps: ``count`` a step, of which ``used`` at a time have
    neighbouring indices.

    Several numbers of each lane are drawn at once, so that processors find independent
    work.
    """
    (count, used, width), b = counts, code.builder
    times = DRAWN // layout.lanes
    wide = code.of(DRAWN)
    words = [wide.repeat(word) for word in key]
    start = wide.repeat(code.cast(first, WORD)) + wide.splat(b.trunc(done, WORD), WORD)
    own = wide.iota(WORD) / layout.lanes

    def of_vector(v: Index) -> None:
        flat = own + wide.splat(b.trunc(b.mul(v, ir.Constant(LONG, times)), WORD), WORD)
        step = flat / count
        index = flat - step * count
        if count > used:
            sample = index / used
            index = index + sample * (width - used)
        wide.store(normal(wide, (words[0], words[1]), start + step, index), buffer, v)

    code.loop(-(-layout.block * count // times), of_vector)


class Registers:
    """Numbers of a state that the function holds; the last three are its bookkeeping
    (loops/stopping.py).
    """

    def __init__(self, code: Code, state: ir.Value, numbers: range) -> None:
        self.code, self.numbers = code, numbers
        self._places = {i: code.variable(code.load(state, i, DOUBLE)) for i in numbers}
        self.codes, self.stops, self.seen = numbers[-3:]

    def get(self, i: int) -> Vector:
        """Number i."""
        return Vector(
            self.code,
            self.code.builder.load(self._places[i], typ=self.code.type(DOUBLE)),
            DOUBLE,
        )

    def put(self, i: int, x: Vector) -> None:
        """Set number i."""
        self.code.builder.store(x.value, self._places[i])

    def settle(self, fine: Vector, running: Vector, number: Vector) -> Vector:
        """Where a seed runs and its new state is finite; mark what is lost."""
        code, lost = self.code, running & ~fine
        self.put(self.codes, code.where(lost, float(DIVERGED), self.get(self.codes)))
        self.put(
            self.stops,
            code.where(lost, code.cast(number, DOUBLE) + 1.0, self.get(self.stops)),
        )
        return running & fine

    def watch(
        self,
        quantity: str,
        M: Matrix,
        level: Vector,
        sign: Vector,
        moves: Vector,
        number: Vector,
    ) -> None:
        """Mark where the quantity has passed its threshold."""
        code, before, watched = self.code, self.get(self.seen), M[0][0]
        if quantity == "overlap":
            watched = code.sqrt(
                sum((m * m for row in M for m in row), code.constant(0.0))
            )
        passed = moves & (sign * (watched - level) <= 0.0)
        gap = before - watched
        still = gap.equals(0.0)
        part = code.where(still, 1.0, (before - level) / code.where(still, 1.0, gap))
        part = code.where(part > 0.0, code.where(part < 1.0, part, 1.0), 0.0)
        self.put(self.codes, code.where(passed, float(REACHED), self.get(self.codes)))
        self.put(
            self.stops,
            code.where(passed, code.cast(number, DOUBLE) + part, self.get(self.stops)),
        )
        self.put(self.seen, code.where(moves, watched, before))
