"""Machine code of the chain: the same functions, the same random numbers, the same paths and the same law as in JAX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import LEVEL
from cost import sized
from llvmlite import ir
from scipy import stats

import twolayer as tl
from twolayer import d
from twolayer.compiled import advance as groups
from twolayer.compiled import device
from twolayer.compiled.calculus import value_and_slope, value_of
from twolayer.compiled.elementary import FUNCTIONS
from twolayer.compiled.formula import (
    WORDS,
    Formula,
    formula_of_activation,
    formula_of_target,
)
from twolayer.compiled.normals import normal
from twolayer.compiled.program import _assemble
from twolayer.compiled.supported_chains import no_machine_code
from twolayer.compiled.vector import DOUBLE, LONG, WORD, Code
from twolayer.functions.activation import NAMED, Activation
from twolayer.functions.expression import Expression, parse
from twolayer.functions.kinks import derivative
from twolayer.functions.target import Target
from twolayer.numerics import random
from twolayer.numerics.precision import float64
from twolayer.running.solve import DivergenceWarning

LANES = 8


def compiled(write, arrays, results):
    """Run ``write(code, load)`` over arrays of n·LANES entries: the results it returns, elementwise."""
    import ctypes

    module = ir.Module("test")
    pointer = ir.PointerType()
    function = ir.Function(
        module,
        ir.FunctionType(ir.VoidType(), [pointer] * (len(arrays) + results) + [LONG]),
        "run",
    )
    entry = function.append_basic_block("entry")
    code = Code(ir.IRBuilder(function.append_basic_block("start")), LANES, FUNCTIONS)
    kinds = [DOUBLE if a.dtype == float else WORD for a in arrays]

    def body(i):
        values = [
            code.load(x, i, kind) for x, kind in zip(function.args, kinds, strict=False)
        ]
        for place, value in zip(
            function.args[len(arrays) :], write(code, *values), strict=False
        ):
            code.store(value, place, i)

    code.loop(function.args[-1], body)
    code.builder.ret_void()
    code.builder.position_at_end(entry)
    code.builder.branch(function.basic_blocks[1])
    engine, address = _assemble(module)
    out = [np.full(arrays[0].shape, np.nan) for _ in range(results)]
    every = [*arrays, *out]
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(every), ctypes.c_int64)(
        address
    )
    call(*(x.ctypes.data for x in every), arrays[0].size // LANES)
    assert engine is not None
    return out


ACTIVATIONS = ("linear", "square", "erf", "relu", "tanh", "sigmoid", "softplus", "gelu", "He3", "h5", "z**7 - 2*z",
               "exp(-z**2/2)", "sin(3*z) + cos(z/2)", "abs(z - 1)*sign(z)", "log(1 + z**2)", "sqrt(1 + z**2)",
               "(2 + z**2)**-2", "(1 + z**2)**0.25", "1/(1 + exp(-z))", "tanh(z)/(1 + z**4)", "erf(z)*z")  # fmt: skip


def trees():
    """Formulas by name: those of named activations, and of the others as they are parsed."""
    named = {
        name: formula_of_activation(Activation.of(name))
        for name in ACTIVATIONS
        if name in WORDS
    }
    typed = {
        name: f"{name}(z)" if "z" not in name else name
        for name in ACTIVATIONS
        if name not in WORDS
    }
    return named | {
        name: Formula(parse(text, "z").tree, ("z",)) for name, text in typed.items()
    }


def test_formulas_and_their_slopes_are_those_of_jax() -> None:
    x = np.concatenate(
        [
            np.linspace(-9, 9, 4001),
            10.0 ** np.linspace(-12, 1, 200),
            -(10.0 ** np.linspace(-12, 1, 199)),
        ]
    )

    def every(x):
        functions = {
            name: lambda z, f=f: Expression(f.tree)(z=z) for name, f in trees().items()
        }
        functions |= {name: NAMED[name].function for name in functions if name in NAMED}
        return {name: (f(x), derivative(f)(x)) for name, f in functions.items()}

    expected = float64(
        lambda: jax.tree.map(np.asarray, jax.jit(every)(jnp.asarray(x)))
    )()
    for name, formula in trees().items():
        pair = compiled(lambda code, x, f=formula: value_and_slope(code, f, x), [x], 2)
        for got, right in zip(pair, expected[name], strict=True):
            assert np.abs(got - right).max() <= 1e-14 * max(1.0, np.abs(right).max()), (
                name
            )
            small = np.abs(x) < 0.3
            np.testing.assert_allclose(
                got[small], right[small], rtol=2e-13, atol=1e-15, err_msg=name
            )


def test_functions_keep_their_limits() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 800.0, -800.0, 1e5, -1e5])
    with np.errstate(all="ignore"):
        for text, right in (
            ("tanh(z)", np.tanh(x)),
            ("exp(z)", np.exp(x)),
            ("sigmoid(z)", 1 / (1 + np.exp(-x))),
        ):
            tree = Formula(parse(text, "z").tree, ("z",))
            (value,) = compiled(
                lambda code, x, tree=tree: [value_and_slope(code, tree, x)[0]], [x], 1
            )
            np.testing.assert_allclose(value, right, rtol=1e-15)


@pytest.mark.slow
def test_targets_of_several_directions_and_teachers() -> None:
    z = np.random.default_rng(0).normal(size=(3, 4000))
    for source in ("z1 + He2(z1*z2)*z3", tl.Teacher("erf", 3, [1, -2, 0.5])):
        target = Target.of(source)
        (value,) = compiled(
            lambda code, *x, t=target: [value_of(code, formula_of_target(t), x)],
            list(z),
            1,
        )
        right = float64(lambda t=target: np.asarray(t(jnp.asarray(z.T))))()
        assert np.abs(value - right).max() < 1e-14 * np.abs(right).max()
    assert formula_of_target(Target.of(lambda z: z[0], directions=1)) is None


def test_the_random_numbers_are_the_pinned_ones() -> None:
    step, index = (
        np.random.default_rng(i).integers(0, 2**32, 2**15, dtype=np.uint32)
        for i in (1, 2)
    )
    key = random.stream(7, random.Role.FIELDS)

    def write(code, step, index):
        words = tuple(code.constant(int(k), WORD) for k in key)
        return [normal(code, words, step, index)]

    (got,) = compiled(write, [step, index], 1)
    right = float64(lambda: np.asarray(jax.jit(random.normal)(key, step, index)))()
    assert (
        np.abs(right) > 3.3
    ).sum() > 5  # the rare branch of the quantile is among them
    assert np.abs(got - right).max() < 2e-14


def runs(case, engine, seeds=5, seed=3, dim=400, start=None, inputs=None, **options):
    target, activation, p, noise, algorithm, gram = case
    problem = tl.Problem(
        target, activation, width=p, noise=noise, gram=gram, inputs=inputs
    )
    start = tl.Overlaps.random(problem, dim, 1) if start is None else start
    options = {"steps": 300, "save": 6, **options}
    run = tl.solve(
        problem,
        algorithm,
        tl.Chain(dim, engine=engine),
        start,
        seeds=seeds,
        seed=seed,
        **options,
    )
    assert json.loads(run.attrs["notes"])["steps"] == engine
    return run


CASES = {
    "plain": ("He2(z1)", "He2", 1, 0.1, tl.SGD(0.1 / d, geometry="projected"), None),
    "free": ("z1 + z1*z2", "relu", 3, 0.0, tl.SGD(1 / d, weight_decay=1.0, train_second_layer=True), None),
    "few samples": ("tanh(z1*z2)", "tanh", 4, 0.1, tl.SGD(4 / d, batch=3, geometry="spherical"), None),
    "many samples": (tl.Teacher("erf", 2), "erf", 3, 0.01, tl.SGD(8 / d, batch=17, train_second_layer=True), [[1, 0.3], [0.3, 1]]),
    "dependent directions": ("z1*z2", "gelu", 2, 0.0, tl.SGD(2 / d, batch=2, loss="correlation", geometry="projected"), [[1, 1], [1, 1]]),
    "wide": ("He2(z1) + He2(z2)", "He2", 9, 0.0, tl.SGD(0.5 / d, geometry="projected"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", sized(CASES, slow=set(CASES) - {"plain"}))
def test_paths_are_those_of_jax(name: str) -> None:
    """The same random numbers, the same basis: rounding alone tells the two engines apart, and 300 steps hardly raise it."""
    ours, theirs = (runs(CASES[name], engine) for engine in ("compiled", "jax"))
    for quantity in ("Q", "M", "a", "risk"):
        np.testing.assert_allclose(
            ours[quantity], theirs[quantity], rtol=1e-10, atol=1e-11
        )
    assert np.abs(ours.M[:, -1] - ours.M[:, 0]).max() > 1e-3  # it moved


BLOCKS = {
    "projected": ("z1*z2", "erf", 3, 0.1, tl.SGD(0.5, geometry="projected"), None),
    "spherical": (
        "tanh(z1)",
        "tanh",
        3,
        0.0,
        tl.SGD(0.3, batch=3, geometry="spherical"),
        None,
    ),
    "free": (
        "z1 + z1*z2",
        "gelu",
        3,
        0.1,
        tl.SGD(0.1, batch=9, weight_decay=0.1, train_second_layer=True),
        None,
    ),
}
SMALL_AND_LARGE = tl.Inputs.blocks(
    [1.9, 1.5, 1.2, 1.0, 0.7, 0.4, 0.1], dims=[1, 2, 4, 6, 9, 78, 300]
)
"""For three neurons: blocks held whole, with fewer directions outside than rows of T, with plain and triangular T."""


@pytest.mark.parametrize(
    "name", sized(BLOCKS, slow=("projected", "free"), long=("spherical",))
)
def test_paths_in_blocks_are_those_of_jax(name: str) -> None:
    """And the twin whose second and third block have exchanged a dimension goes elsewhere."""
    ours, theirs = (
        runs(BLOCKS[name], engine, inputs=SMALL_AND_LARGE, steps=200)
        for engine in ("compiled", "jax")
    )
    for quantity in ("Q", "M", "a", "risk", "Q_block", "M_block"):
        np.testing.assert_allclose(
            ours[quantity], theirs[quantity], rtol=1e-10, atol=1e-11
        )
    assert np.abs(ours.M[:, -1] - ours.M[:, 0]).max() > 1e-2  # it moved
    other = tl.Inputs.blocks(SMALL_AND_LARGE.variances, dims=[1, 3, 3, 6, 9, 78, 300])
    twin = runs(BLOCKS[name], "compiled", inputs=other, steps=200)
    assert np.abs(twin.Q_block - ours.Q_block).max() > 1e-3


@pytest.mark.long
def test_runs_in_blocks_stop_and_diverge_where_those_of_jax_do() -> None:
    free = (*BLOCKS["projected"][:4], tl.SGD(0.5), None)
    options = dict(
        inputs=SMALL_AND_LARGE, seeds=6, until=tl.Until("overlap", 0.6), steps=2000
    )
    ours, theirs = (runs(free, engine, **options) for engine in ("compiled", "jax"))
    assert "reached" in ours.outcome.values
    np.testing.assert_array_equal(ours.outcome, theirs.outcome)
    np.testing.assert_allclose(ours.stop_step, theirs.stop_step, rtol=1e-9)
    wild = ("He2(z1)", "He3", 2, 0.0, tl.SGD(0.2), None)
    with pytest.warns(DivergenceWarning):
        ours, theirs = (
            runs(wild, engine, inputs=SMALL_AND_LARGE) for engine in ("compiled", "jax")
        )
    assert "diverged" in ours.outcome.values and np.isfinite(ours.Q_block).all()
    np.testing.assert_array_equal(ours.stop_step, theirs.stop_step)


@pytest.mark.slow
def test_no_bit_in_blocks_depends_on_company_or_cuts() -> None:
    case = BLOCKS["projected"]
    alone = runs(case, "compiled", 1, save=[300], inputs=SMALL_AND_LARGE)
    for seeds, save in ((groups.SINGLY + 1, [300]), (40, 7)):
        together = runs(case, "compiled", seeds, save=save, inputs=SMALL_AND_LARGE)
        np.testing.assert_array_equal(together.Q_block[0, -1], alone.Q_block[0, -1])


AHEAD = tl.Overlaps([[1.0]], [[0.6]])


@pytest.mark.slow
def test_runs_stop_where_those_of_jax_stop() -> None:
    for quantity, value in (("overlap", 0.75), ("alignment", 0.7)):
        options = dict(
            until=tl.Until(quantity, value), steps=3000, seeds=6, start=AHEAD
        )
        ours, theirs = (
            runs(CASES["plain"], engine, **options) for engine in ("compiled", "jax")
        )
        assert (
            "reached" in ours.outcome.values
            and (ours.outcome.values == theirs.outcome.values).all()
        )
        np.testing.assert_allclose(ours.stop_step, theirs.stop_step, rtol=1e-9)


@pytest.mark.slow
def test_runs_diverge_where_those_of_jax_diverge() -> None:
    case = ("He2(z1)", "He3", 1, 0.0, tl.SGD(40 / d), None)
    with pytest.warns(DivergenceWarning):
        ours, theirs = (runs(case, engine) for engine in ("compiled", "jax"))
    assert "diverged" in ours.outcome.values
    np.testing.assert_array_equal(ours.outcome, theirs.outcome)
    np.testing.assert_array_equal(ours.stop_step, theirs.stop_step)
    assert np.isfinite(ours.Q).all()


@pytest.mark.slow
def test_the_law_is_that_of_jax() -> None:
    """Kolmogorov–Smirnov of independent ensembles, and a chain with another rate is told apart."""
    case = CASES["plain"]
    faster = (*case[:4], tl.SGD(0.2 / d, geometry="projected"), None)
    ours, theirs = (
        runs(case, "compiled", 2000, 1, start=AHEAD),
        runs(case, "jax", 2000, 2, start=AHEAD),
    )
    sample = lambda run: run.M[:, -1, 0, 0].values  # noqa: E731
    assert stats.ks_2samp(sample(ours), sample(theirs)).pvalue > LEVEL
    assert (
        stats.ks_2samp(
            sample(runs(faster, "compiled", 2000, 1, start=AHEAD)), sample(theirs)
        ).pvalue
        < LEVEL
    )


@pytest.mark.parametrize("name", ["plain", "many samples"])
def test_no_bit_depends_on_company_threads_or_cuts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    alone = runs(case, "compiled", 1, save=[300])
    assert groups.SINGLY < 40
    for seeds, threads in (
        (groups.SINGLY, 2),
        (groups.SINGLY + 1, 1),
        (40, 1),
        (40, 3),
    ):
        with ThreadPoolExecutor(threads) as pool:
            monkeypatch.setattr(groups, "_pool", lambda pool=pool: pool)
            together = runs(case, "compiled", seeds, save=7 if seeds > 9 else [300])
        np.testing.assert_array_equal(together.Q[0, -1], alone.Q[0, -1])
        np.testing.assert_array_equal(together.M[0, -1], alone.M[0, -1])


LOSSES = ("logistic", "hinge", "exponential", "huber")


def refusals():
    linear = lambda z: z  # noqa: E731
    plain = tl.SGD(0.1 / d)
    return [
        (tl.Problem("z1", linear), plain, {}, "only JAX knows"),
        (tl.Problem(lambda z: z[0], "relu", directions=1), plain, {}, "only JAX knows"),
        (tl.Problem("z1", "relu"), tl.SGD(0.1 / d, momentum=0.5), {}, "plain SGD"),
        (
            tl.Problem("z1", "relu"),
            tl.SGD(0.1 / d * tl.schedules.cosine(2)),
            {},
            "plain SGD",
        ),
        (tl.Problem("z1", "relu"), tl.SGD(0.1 / d, rule="clip(0.5)"), {}, "plain SGD"),
        (tl.Problem("z1", "relu"), tl.SGD(0.1 / d, average="uniform"), {}, "plain SGD"),
        (tl.Problem("z1", "relu", normalisation="sum"), plain, {}, "plain SGD"),
        (tl.Problem("sign(z1)", "relu", flips=0.1), plain, {}, "plain SGD"),
        (
            tl.Problem("z1", "relu", noise=0.1, noise_law="laplace"),
            plain,
            {},
            "plain SGD",
        ),
        *(
            (
                tl.Problem("sign(z1)", "relu"),
                tl.SGD(0.1 / d, loss=loss),
                {},
                f"the loss {loss}",
            )
            for loss in LOSSES
        ),
        (
            tl.Problem("z1", "relu"),
            tl.SGD(0.1 / d, batch=2**20),
            {},
            "too large to be held",
        ),
        (
            tl.Problem("z1", "relu"),
            plain,
            {"until": tl.Until("risk", 0.1)},
            "Gaussian averages",
        ),
        (tl.Problem("z1", "relu", width=20), plain, {}, "too long"),
        (tl.Problem("z1", "relu"), plain, {"dim": 60}, "too small"),
    ]


@pytest.mark.parametrize("number", range(len(refusals())))
def test_what_has_no_code_is_refused_or_left_to_jax(number: int) -> None:
    problem, algorithm, options, why = refusals()[number]
    dim = options.pop("dim", 1000)
    start = tl.Overlaps.random(problem, dim)
    with pytest.raises(tl.InputError, match=why):
        tl.solve(
            problem,
            algorithm,
            tl.Chain(dim, engine="compiled"),
            start,
            steps=2,
            **options,
        )
    if number == 0:
        run = tl.solve(problem, algorithm, tl.Chain(dim), start, steps=2)
        assert json.loads(run.attrs["notes"])["steps"] == "jax"
    with pytest.raises(tl.InputError, match="engine"):
        tl.Chain(dim, engine="fast")


def test_without_llvm_chains_run_in_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert no_machine_code() == "llvmlite is not installed"


SHARED = """
import sys
import numpy as np
import jax
import twolayer as tl
from twolayer.methods.chain import Chain
Chain.chosen = lambda *_: "device"
assert len(jax.devices()) == int(sys.argv[1])
problem = tl.Problem("tanh(z1)", "relu", width=2, noise=0.1)
start = tl.Overlaps.random(problem, 400, 1)
options = dict(seeds=600, steps=150, save=3)
run = tl.solve(problem, tl.SGD("1/d", batch=2), Chain(400), start, **options)
np.savez(sys.argv[2], **{name: run[name].values for name in ("Q", "M", "a")})
"""


@pytest.mark.long
def test_seeds_are_shared_by_devices_to_the_last_bit(tmp_path: Path) -> None:
    """The step in JAX on one and on four devices; and its paths are those of the machine code."""
    found = []
    for devices in (1, 4):
        flags = f"--xla_force_host_platform_device_count={devices}"
        file = tmp_path / f"{devices}.npz"
        command = [sys.executable, "-c", SHARED, str(devices), str(file)]
        subprocess.run(command, check=True, env={**os.environ, "XLA_FLAGS": flags})
        found.append(dict(np.load(file)))
    problem = tl.Problem("tanh(z1)", "relu", width=2, noise=0.1)
    start = tl.Overlaps.random(problem, 400, 1)
    options = dict(seeds=600, steps=150, save=3)
    compiled = tl.solve(
        problem,
        tl.SGD("1/d", batch=2),
        tl.Chain(400, engine="compiled"),
        start,
        **options,
    )
    for name, values in found[0].items():
        np.testing.assert_array_equal(found[1][name], values)
        np.testing.assert_allclose(values, compiled[name].values, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("kernel", "quantity"),
    [
        pytest.param("registers", "overlap", marks=pytest.mark.long),
        pytest.param("columns", "overlap", marks=pytest.mark.long),
        pytest.param("columns", "alignment", marks=pytest.mark.slow),
    ],
)
def test_kernels_of_an_accelerator_take_the_steps_of_the_machine_code(
    kernel: str, quantity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interpreted on the processor: every number by itself, and neurons side by side."""
    monkeypatch.setattr(tl.Chain, "chosen", lambda *_: "device")
    monkeypatch.setattr(
        device, "kernel_for", lambda shape: getattr(device, f"in_{kernel}")
    )
    problem = tl.Problem("tanh(z1)*z2", "relu", width=2, noise=0.1)
    algorithm = tl.SGD("8/d", batch=2, geometry="projected", train_second_layer=True)
    start = tl.Overlaps.random(problem, 400, 1)
    options = dict(
        seeds=20,
        steps=70,
        save=3,
        until=tl.Until(quantity, {"overlap": 0.15, "alignment": 0.01}[quantity]),
    )
    run = tl.solve(problem, algorithm, tl.Chain(400), start, **options)
    monkeypatch.undo()
    compiled = tl.solve(
        problem, algorithm, tl.Chain(400, engine="compiled"), start, **options
    )
    assert 0 < (compiled.outcome == "reached").sum() < 20
    for name in ("Q", "M", "a", "stop_step"):
        np.testing.assert_allclose(
            run[name].values, compiled[name].values, rtol=1e-9, atol=1e-11
        )
