"""Task files: every key reaches the object it describes, and files and Python mean the same by default."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twolayer as tl
from twolayer.files import taskfile
from twolayer.files.taskfile import read_task
from twolayer.running.compare import compare
from twolayer.running.solve import solve
from twolayer.task.method import Until

WHOLE = """
[problem]
target = { teacher = "erf", k = 2, weights = [1.0, -1.0] }
activation = "tanh(z + 0.5)"
width = 3
noise = 0.25
gram = [[1.0, 0.2], [0.2, 1.0]]
second_layer = [1.0, -1.0, 2]
normalisation = "sqrt"
noise_law = "student(5)"
flips = 0.1
[algorithm]
lr = "0.5*d**-1.5 * cosine(horizon=5, clock='time')"
batch = "2*d**0.5"
loss = "correlation"
geometry = "spherical"
momentum = 0.5
nesterov = true
rule = "clip(0.25)"
weight_decay = 0.1
dataset = "3*d"
sampling = "replacement"
repeat = 2
train_first_layer = true
train_second_layer = true
second_lr = "0.25*d**-1.5"
average = 0.1
[start]
Q = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
M = [[0.1, 0], [0, 0.1], [0, 0]]
a = [1, 2, 3]
[run]
dim = 1e3
time = 3
save = [1, 2.5]
seeds = 7
seed = 5
methods = ["Vectors", "ode"]
until = { quantity = "overlap", value = 0.5 }
[method.ode]
rtol = 1e-5
averages = { engine = "sobol", points = 1024 }
[method.Chain]
batch_sums = "gaussian"
"""

LEAST = """
[problem]
target = "z1"
activation = "relu"
[algorithm]
lr = 0.1
"""


def read(tmp_path: Path, text: str, *assignments: str) -> taskfile.TaskFile:
    path = tmp_path / "task.toml"
    path.write_text(text)
    return read_task(path, list(assignments))


def test_every_key_arrives(tmp_path: Path) -> None:
    task = read(tmp_path, WHOLE)
    problem = task.problem()
    assert problem == tl.Problem(
        target=tl.Teacher("erf", k=2, weights=[1.0, -1.0]),
        activation="tanh(z + 0.5)",
        width=3,
        noise=0.25,
        gram=[[1.0, 0.2], [0.2, 1.0]],
        second_layer=[1, -1, 2],
        normalisation="sqrt",
        noise_law="student(5)",
        flips=0.1,
    )
    assert task.algorithm() == tl.SGD(
        lr=0.5 * tl.d**-1.5 * tl.schedules.cosine(5, clock="time"),
        batch="2*d**0.5",
        loss="correlation",
        geometry="spherical",
        momentum=0.5,
        nesterov=True,
        rule=tl.rules.clip(0.25),
        weight_decay=0.1,
        dataset="3*d",
        sampling="replacement",
        repeat=2,
        train_second_layer=True,
        second_lr=0.25 * tl.d**-1.5,
        average=0.1,
    )
    start = task.start(problem)
    np.testing.assert_array_equal(start.Q, np.eye(3))
    np.testing.assert_array_equal(start.M, [[0.1, 0], [0, 0.1], [0, 0]])
    np.testing.assert_array_equal(start.a, [1, 2, 3])
    np.testing.assert_array_equal(start.P, problem.P)
    assert start.dim == 1000
    assert task.methods() == [
        tl.Vectors(1000),
        tl.ODE(rtol=1e-5, averages=tl.Averages(engine="sobol", points=2**10)),
    ]
    assert task.methods(["chain", "ODE"]) == [
        tl.Chain(1000, "gaussian"),
        tl.ODE(rtol=1e-5, averages=tl.Averages(engine="sobol", points=2**10)),
    ]
    assert task.run_arguments() == {
        "time": 3,
        "save": [1, 2.5],
        "seeds": 7,
        "seed": 5,
        "until": Until("overlap", 0.5, relative=False),
    }


def test_the_example_has_no_key_that_is_not_in_a_table(tmp_path: Path) -> None:
    """WHOLE above uses every key there is, but for the alternatives that exclude others."""
    tables = read(tmp_path, WHOLE).table
    left_out = {
        "problem": {"directions", "inputs"},
        "start": {"random", "seed", "blocks"},
        "run": {"steps", "alpha", "passes"},
    }
    for name in ("problem", "algorithm", "start", "run"):
        table = getattr(tables, name)
        assert set(type(table).model_fields) - table.model_fields_set == left_out.get(
            name, set()
        )


def parameters(callable_: Any) -> dict[str, Any]:
    return {
        name: p.default for name, p in inspect.signature(callable_).parameters.items()
    }


@pytest.mark.parametrize(
    ("table", "callable_", "skip"),
    [
        (taskfile.ProblemTable, tl.Problem, set()),
        (taskfile.AlgorithmTable, tl.SGD, set()),
        (taskfile.UntilTable, Until, set()),
        (taskfile.RunTable, compare, {"dim", "until", "methods"}),
        (taskfile.RunTable, solve, {"dim", "methods", "seeds"}),
    ],
    ids=["Problem", "SGD", "Until", "compare", "solve"],
)
def test_defaults_are_those_of_python(
    table: Any, callable_: Any, skip: set[str]
) -> None:
    theirs = parameters(callable_)
    for name, field in table.model_fields.items():
        if name in skip:
            continue
        assert name in theirs, f"{callable_.__name__} takes no {name}"
        expected = theirs[name]
        assert field.is_required() == (expected is inspect.Parameter.empty), name
        if not field.is_required():
            assert field.default == expected, name
            assert type(field.default) is type(expected), name
    if not skip:
        assert set(table.model_fields) == set(theirs)


def test_defaults_of_the_random_start(tmp_path: Path) -> None:
    theirs = parameters(tl.Overlaps.random)
    fields = taskfile.StartTable.model_fields
    assert fields["random"].default == theirs["law"]
    assert fields["seed"].default == theirs["seed"]
    task = read(tmp_path, LEAST + "[run]\ndim = 20")
    problem = task.problem()
    np.testing.assert_array_equal(
        task.start(problem).M, tl.Overlaps.random(problem, 20).M
    )
    other = read(tmp_path, LEAST, "run.dim=20", "start.random=gaussian", "start.seed=3")
    expected = tl.Overlaps.random(problem, 20, seed=3, law="gaussian")
    np.testing.assert_array_equal(other.start(problem).Q, expected.Q)


def test_the_least_file(tmp_path: Path) -> None:
    task = read(tmp_path, LEAST)
    assert task.problem() == tl.Problem("z1", "relu")
    assert task.algorithm() == tl.SGD(lr=0.1)
    assert task.methods() == []
    with pytest.raises(
        tl.InputError,
        match=r"task.toml: \[run\] needs one of `time`, `steps`, `alpha` and `passes`\.",
    ):
        task.run_arguments()


@pytest.mark.parametrize(
    ("assignment", "table", "key", "value"),
    [
        ("algorithm.lr=0.1/d", "algorithm", "lr", "0.1/d"),
        ("algorithm.lr=1e-3", "algorithm", "lr", 1e-3),
        ('algorithm.lr="0.2/d"', "algorithm", "lr", "0.2/d"),
        ("algorithm.batch=64", "algorithm", "batch", 64),
        ("algorithm.train_second_layer=true", "algorithm", "train_second_layer", True),
        ("problem.target=He2(z1) + z2", "problem", "target", "He2(z1) + z2"),
        ("problem.target={teacher='erf'}", "problem", "target", {"teacher": "erf"}),
        ("problem.target = z1*z2 ", "problem", "target", "z1*z2"),
        ("problem.second_layer=[1]", "problem", "second_layer", [1]),
        ("problem.second_layer=signs", "problem", "second_layer", "signs"),
        ("run.time=[0.5, 1]", "run", "time", [0.5, 1]),
        ("run.dim=1e4", "run", "dim", 10_000),
        ("run.methods=['ode']", "run", "methods", ["ode"]),
        ("run.until.quantity=risk", "run", "until", None),
    ],
)
def test_set_takes_toml_or_text(
    assignment: str, table: str, key: str, value: object, tmp_path: Path
) -> None:
    more = ["run.until.value=2.0"] if "until" in assignment else []
    got = getattr(getattr(read(tmp_path, LEAST, assignment, *more).table, table), key)
    assert got == (taskfile.UntilTable(quantity="risk", value=2.0) if more else value)


def test_later_assignments_win(tmp_path: Path) -> None:
    assert (
        read(tmp_path, LEAST, "problem.width=2", "problem.width=3").problem().width == 3
    )


def test_knobs_of_methods(tmp_path: Path) -> None:
    task = read(tmp_path, LEAST, "method.chain.batch_sums=exact")
    with pytest.raises(tl.InputError, match="`chain` needs a dimension"):
        task.methods(["chain"])
    assert task.methods(["ode"]) == [tl.ODE()]
    assert read(tmp_path, LEAST, "run.dim=9", "method.CHAIN.batch_sums=exact").methods(
        ["Chain"]
    ) == [tl.Chain(9, "exact")]
    assert read(tmp_path, LEAST, "run.dim=9", "method.chain.dim=5").methods(
        ["chain"]
    ) == [tl.Chain(5)]
    with pytest.raises(tl.InputError, match="`rtol`"):
        read(tmp_path, LEAST, "run.dim=9", "method.ode.rtol=-1").methods(["chain"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[start]\nQ = [[1.0]]", "needs both Q and M"),
        ("[start]\na = [1.0]", "takes `a` with Q and M only"),
        ("[start]\nQ = [[1.0]]\nM = [[0.1]]\nseed = 0", "but has `seed` too"),
        ("", "`run.dim` is missing"),
    ],
)
def test_starts_that_say_two_things_or_too_little(
    text: str, message: str, tmp_path: Path
) -> None:
    task = read(tmp_path, LEAST + text)
    with pytest.raises(tl.InputError, match=message):
        task.start(task.problem())


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("problem.width=1.5", "`problem.width` must be an integer, but got 1.5."),
        ("problem.width=true", "`problem.width` must be an integer, but got True."),
        ("problem.noise=true", "`problem.noise` must be a number, but got True."),
        (
            "algorithm.batch=[1]",
            "`algorithm.batch` must be text or an integer or a number, but got [1].",
        ),
        ("run.save=[1, 'a']", "`run.save[1]` must be a number, but got 'a'."),
        ("run.steps=[1, 2.5]", "`run.steps[1]` must be an integer, but got 2.5."),
        (
            "run.until.relative=1",
            "the key `run.until.quantity` is missing; 'twolayer help tasks' shows a task file.",
        ),
        (
            "problem.str=1",
            "unknown key 'problem.str'; [problem] accepts target, activation, width, noise, gram,",
        ),
        ("problem.integrator=1", "unknown key 'problem.integrator'; [problem]"),
        (
            "methods.ode.rtol=1",
            "unknown key 'methods' (did you mean 'method'?); the file accepts problem,",
        ),
    ],
)
def test_messages_are_in_the_words_of_the_file(
    assignment: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(tl.InputError) as error:
        read(tmp_path, LEAST, assignment)
    assert str(error.value).startswith(f"task.toml: {message}")


def test_every_shipped_example_can_be_read() -> None:
    examples = sorted((Path(__file__).parent.parent / "examples").glob("*.toml"))
    assert examples
    for path in examples:
        task = read_task(path)
        task.start(task.problem())
        task.algorithm()
        task.methods()
        task.run_arguments()
