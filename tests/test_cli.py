"""The command line: what every command prints and writes, and how it says no.

Bad input gives exit code 2, one sentence on standard error and no file; a failed run gives 1; the rest gives 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytest
import xarray as xr

import twolayer as tl
from twolayer.cli import main
from twolayer.running import dataset as results
from twolayer.running import solve as solving

TASK = """
[problem]
target = "He2(z1)"
activation = "He2"
width = 2
noise = 0.1
[algorithm]
lr = "0.2/d"
geometry = "projected"
[start]
Q = [[1.0, 0.1], [0.1, 1.0]]
M = [[0.3], [0.2]]
[run]
dim = 64
time = 0.25
save = 4
seeds = 3
methods = ["ode", "chain"]
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        def no(constant: str) -> NoReturn:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=no)


Call = Callable[..., Answer]


@pytest.fixture
def real_figures() -> None:
    """Asked for by tests of the files themselves; elsewhere drawing them would take most of the time."""


@pytest.fixture
def call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> Call:
    """Run a command in an empty folder that holds task.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.toml").write_text(TASK)
    if "real_figures" not in request.fixturenames:

        def blank(figure: object, path: Path) -> Path:
            path.touch()
            return path

        monkeypatch.setattr("twolayer.plot.save_figure", blank)

    def run(*argv: str) -> Answer:
        code = main(list(argv))
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results chain.nc and both.nc of the task."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "task.toml").write_text(TASK)
    with contextlib.chdir(folder):
        assert (
            main(
                ["solve", "task.toml", "--method", "chain", "--out", "chain", "--json"]
            )
            == 0
        )
        assert main(["compare", "task.toml", "--out", "both", "--json"]) == 0
    return folder


def files(folder: Path = Path()) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def refused(answer: Answer, *words: str) -> None:
    """Exit code 2, one sentence with these words, and only task.toml in the folder."""
    assert answer.code == 2, answer
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("twolayer: ")
    assert lines[0].endswith(".")
    assert len(lines[0]) < 700, "the whole input is repeated"
    for word in words:
        assert word in lines[0], lines[0]
    assert files() == ["task.toml"]


# -- what commands print and write ------------------------------------------------------------------------------------


def test_analyse_prints_the_exponents(call: Call) -> None:
    answer = call("analyse", "z1 + z1*z2")
    assert (answer.code, answer.err) == (0, "")
    for line in (
        "information exponent   1",
        "leap                   1   chain [(1, 1), (1, 1)]",
    ):
        assert line in answer.out
    values = call("analyse", "z1 + z1*z2*z3", "--json").json
    assert (values["information"], values["leap"], values["chain"]) == (
        1,
        2,
        [[1, 1], [2, 2]],
    )
    assert values["hermite"]["1,1,1"] == pytest.approx(1)
    assert call("analyse", "z1*z2", "--latex").out == "z_{1} \\, z_{2}\n"
    assert files() == ["task.toml"]


@pytest.mark.slow
def test_analyse_takes_an_activation_a_number_of_directions_and_a_figure(
    call: Call,
) -> None:
    fresh = call(
        "analyse", "z1 + z1*z2", "--activation", "erf", "--json", "--out", "a.png"
    ).json["staircase"]
    assert fresh == [1, None]  # erf is odd: its second Hermite coefficient is zero
    assert call("analyse", "z1 + z1*z2", "--json").json["staircase"] == [1, 2]
    shown = call("analyse", "z1 + z1*z2", "--activation", "erf").out
    assert "fresh, erf             (1, 0) at step 1; (0, 1) never\n" in shown
    assert call("analyse", "z1", "--directions", "3", "--json").json["unused"] != []
    assert files() == ["a.png", "task.toml"]


def test_analyse_shows_steps_beside_their_own_directions(call: Call) -> None:
    """Reused batches learn the second direction of this target, and never the first; fresh ones learn neither."""
    lines = call("analyse", "He2(z1)*z2").out.splitlines()
    assert "fresh batches          (1, 0) never; (0, 1) never" in lines
    assert "reused batches         (0, 1) at step 2; (1, 0) never" in lines
    values = call("analyse", "He2(z1)*z2", "--json").json
    assert values["staircase_reused"] == [2, None]
    assert np.abs(values["staircase_reused_directions"]) == pytest.approx(
        np.array([[0, 1], [1, 0]]), abs=0.02
    )
    assert np.abs(values["staircase_directions"]) == pytest.approx(np.eye(2))
    assert np.abs(values["generative_directions"]) == pytest.approx(
        np.array([[0, 1], [1, 0]]), abs=0.02
    )


def test_directions_that_overlap(call: Call) -> None:
    answer = call("analyse", "z1 + He3(z2)", "--gram", "[[1, 0.6], [0.6, 1]]", "--json")
    assert (answer.json["leap"], answer.json["staircase"]) == (1, [1, 2])
    assert np.allclose(answer.json["frame"], [[1.0, 0.0], [0.6, 0.8]])
    where = ("--target", "z1*He2(z2)", "--json")
    oblique = call("phase-diagram", *where, "--gram", "[[1, 0.6], [0.6, 1]]").json
    assert (oblique["ell"], call("phase-diagram", *where).json["ell"]) == (1, 3)
    same = call("thresholds", "z1*z2", "--gram", "[[1, 1], [1, 1]]", "--json").json
    assert same["alpha"] == pytest.approx(0.5, rel=1e-3)
    for text in ("[[1, 2], [2, 1]]", "[1, 2]", "x"):
        refused = call("analyse", "z1*z2", "--gram", text)
        assert refused.code == 2 and "gram" in refused.err


def test_a_formula_may_begin_with_a_minus_sign(call: Call) -> None:
    for formula, latex in (
        ("-z1", "-z_{1}"),
        ("-h2(z1)", "-h_{2}\\left(z_{1}\\right)"),
        ("-z1 + 2", "-z_{1} + 2"),
    ):
        assert call("analyse", formula, "--latex").out == f"{latex}\n"


def test_solve_writes_data_and_figure(real_figures: None, call: Call) -> None:
    answer = call("solve", "task.toml")
    assert (answer.code, answer.err) == (0, "")
    assert "t = 0.25   step 160   risk" in answer.out
    assert "outcome  1 ok" in answer.out
    assert "closed form (quadratic)" in answer.out
    assert files() == [
        "results",
        "results/task-ode.nc",
        "results/task-ode.png",
        "task.toml",
    ]
    assert Path("results/task-ode.png").read_bytes().startswith(b"\x89PNG")
    dataset = tl.load("results/task-ode.nc")
    assert json.loads(dataset.attrs["complete"]) is True
    assert dataset.sizes["time"] == 5


def test_solve_json_agrees_with_the_file(call: Call) -> None:
    values = call(
        "solve", "task.toml", "--method", "Chain", "--out", "x.y", "--json"
    ).json
    assert values["files"] == [
        "x.y.nc",
        "x.y.png",
    ]  # a dot in the name is no suffix to drop
    dataset = tl.load("x.y.nc")
    risk = dataset.risk.values[:, -1]
    assert values["risk"] == risk.mean()
    assert values["risk_standard_error"] == pytest.approx(risk.std(ddof=1) / np.sqrt(3))
    assert values["outcomes"] == {"ok": 3}
    assert (values["time"], values["step"]) == (0.25, 160)


@pytest.mark.slow
def test_seed_dim_and_set_reach_the_run(call: Call) -> None:
    def end(*flags: str) -> tuple[float, float]:
        values = call(
            "solve", "task.toml", "--method", "chain", "--out", "x", "--json", *flags
        ).json
        return values["risk"], values["step"]

    base = end()
    assert end("--seed", "1") == end("--set", "run.seed=1") != base
    assert end("--dim", "32") == end("--set", "run.dim=32")
    assert end("--dim", "32")[1] == 80
    assert end("--set", "run.dim=32", "--dim", "64") == base  # a flag wins
    assert end("--set", "algorithm.lr=0.1/d", "--set", "problem.noise=0")[1] == 320


def test_dim_is_that_of_the_random_start_too(call: Call) -> None:
    task = Path("task.toml")
    task.write_text(
        TASK.replace("[start]", "[other]").split("[other]")[0]
        + "[run]\ntime = 0.1\nsave = 4\n"
    )
    refused(call("solve", "task.toml", "--method", "ode"), "`run.dim` is missing")
    assert (
        call("solve", "task.toml", "--method", "ode", "--dim", "50", "--out", "x").code
        == 0
    )
    start = results.unpack(tl.load("x.nc"))["start"]
    problem = tl.Problem("He2(z1)", "He2", width=2, noise=0.1)
    np.testing.assert_array_equal(start.M, tl.Overlaps.random(problem, 50).M)
    assert start.dim == 50


def test_solve_without_method_takes_the_first_that_applies(call: Call) -> None:
    Path("task.toml").write_text(TASK.replace('methods = ["ode", "chain"]', ""))
    assert (
        call("solve", "task.toml", "--json").json["files"][0] == "results/task-chain.nc"
    )


def test_solve_until_a_threshold(call: Call) -> None:
    until = "run.until={quantity='risk', value=0.98, relative=true}"
    values = call(
        "solve",
        "task.toml",
        "--method",
        "chain",
        "--set",
        until,
        "--out",
        "x",
        "--json",
    ).json
    assert values["outcomes"]["reached"] >= 1
    assert 0 < values["stopped"]["reached"]["step"] < 160


def test_compare_prints_the_verdicts(real_figures: None, call: Call) -> None:
    methods = ("--methods", "ode, chain", "--strict")
    answer = call("compare", "task.toml", "--out", "c.png", *methods)
    assert answer.code == 3  # undecided, with three seeds
    assert answer.out.startswith(
        "claim  as d → ∞ the mean over runs is that of ode, from t = 0 to 0.25\n"
    )
    assert answer.out.count(" undecided (") == 3  # with three seeds
    assert answer.err.startswith("[1] chain, d = 64, 3 seeds\n")
    assert max(map(len, answer.out.splitlines())) < 80
    assert answer.out.endswith("wrote c.nc\nwrote c.png\n")
    assert files() == ["c.nc", "c.png", "task.toml"]
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")


def test_strict_comparisons_have_the_exit_code_of_their_verdicts() -> None:
    from twolayer.cli.compare import strict_code

    class Row(NamedTuple):
        verdict: str

    class Done(NamedTuple):
        verdicts: list[Row]

    for words, code in (
        (["agree", "agree"], 0),
        (["agree", "undecided"], 3),
        (["agree", "suspect"], 3),
        (["undecided", "differ"], 1),
        ([], 3),
    ):
        assert strict_code(Done([Row(word) for word in words])) == code  # type: ignore[arg-type]


def test_compare_json(saved: Path, call: Call) -> None:
    values = call("compare", "task.toml", "--json").json
    assert values["reference"] == "ode"
    assert [(r["method"], r["quantity"]) for r in values["rows"]] == [
        ("chain", q) for q in ("risk", "M1", "Q")
    ]
    assert files() == ["results", "results/task.nc", "results/task.png", "task.toml"]
    assert xr.DataTree.equals(
        tl.load("results/task.nc").tree, tl.load(saved / "both.nc").tree
    )
    one = call("compare", "task.toml", "--json", "--set", "run.seeds=1").json["rows"][0]
    assert (one["verdict"], one["standard_error"]) == (
        "undecided",
        None,
    )  # null, not NaN


def test_compare_tells_equal_methods_apart(call: Call) -> None:
    task = 'methods = ["chain", "chain"]'
    assert (
        call(
            "compare", "task.toml", "--set", f"run.{task}", "--json", "--out", "c"
        ).code
        == 0
    )
    assert list(tl.load("c.nc").results) == ["chain_64_1", "chain_64_2"]


def test_moments(call: Call) -> None:
    answer = call("moments", "task.toml", "--out", "m.pdf")
    assert answer.code == 0
    assert answer.out.startswith("psi    [[0.56]")
    assert "engine closed form (quadratic)" in answer.out
    assert files() == ["m.pdf", "task.toml"]
    values = call("moments", "task.toml", "--json").json
    problem = tl.Problem("He2(z1)", "He2", width=2, noise=0.1)
    expected = tl.moments(
        problem, tl.Overlaps([[1.0, 0.1], [0.1, 1.0]], [[0.3], [0.2]])
    )
    assert values["chi"] == expected.chi.tolist()
    assert values["risk"] == expected.risk
    assert call("moments", "task.toml").out == f"{expected}\n"
    other = call("moments", "task.toml", "--json", "--engine", "quadrature").json
    np.testing.assert_allclose(other["psi"], values["psi"], atol=1e-8)


def test_the_seed_of_moments_is_that_of_the_start(call: Call) -> None:
    Path("task.toml").write_text(
        TASK.replace("Q = [[1.0, 0.1], [0.1, 1.0]]\nM = [[0.3], [0.2]]", "")
    )
    first, again, other = (
        call("moments", "task.toml", "--json", "--seed", s).json["psi"] for s in "112"
    )
    assert first == again != other


@pytest.mark.usefixtures("real_figures")
def test_plot_draws_both_kinds_of_results(call: Call, saved: Path) -> None:
    assert (
        call("plot", str(saved / "chain.nc"), "--out", "a.svg").out == "wrote a.svg\n"
    )
    assert call("plot", str(saved / "both.nc"), "--out", "b.png", "--json").json == {
        "files": ["b.png"]
    }
    assert Path("b.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in Path("a.svg").read_text()


def test_rerun_gives_the_same_numbers(call: Call, saved: Path) -> None:
    answer = call("rerun", str(saved / "chain.nc"), "--out", "again")
    assert answer.code == 0
    assert answer.out.startswith("the same numbers\nt = 0.25")
    assert files() == ["again.nc", "again.png", "task.toml"]
    assert tl.load("again.nc").equals(tl.load(saved / "chain.nc"))
    values = call("rerun", str(saved / "chain.nc"), "--seed", "9", "--json").json
    assert values["same"] is False
    assert files() == ["again.nc", "again.png", "task.toml"]


def test_cite(call: Call, saved: Path) -> None:
    assert "Saad" in call("cite", "ode").out
    both = call("cite", str(saved / "both.nc"), "--json", "--out", "papers.txt").json[
        "papers"
    ]
    assert both == call("cite", "ode", "Chain", "--json").json["papers"]
    assert both[-1].startswith("The twolayer developers")
    assert json.loads(Path("papers.txt").read_text())["papers"] == both


def test_about_fails_where_jax_is_wrong(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("about").out.splitlines()[-1].split() == ["fields", "right"]
    assert call("about", "--json").json["fields"] == "right"
    monkeypatch.setattr("twolayer.files.environment.fields_are_right", lambda: False)
    answer = call("about")
    assert answer.code == 1
    assert "WRONG" in answer.out


# -- bad input: flags, files, places ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["sovle"], ["'sovle'", "did you mean 'solve'"]),
        (["--nope"], ["'--nope'", "commands are analyse, solve"]),
        (["x" * 10**6], ["Unknown command"]),
        (["solve"], ["required: TASK.toml"]),
        (
            ["solve", "task.toml", "--metod", "chain"],
            ["unknown flag '--metod'", "did you mean '--method'"],
        ),
        (["solve", "task.toml", "--o", "x"], ["unknown flag '--o'"]),
        (["solve", "task.toml", "-x"], ["unknown flag '-x'"]),
        (["solve", "task.toml", "more"], ["unknown argument 'more'"]),
        (["solve", "task.toml", "--dim", "x"], ["--dim", "'x'"]),
        (
            ["solve", "task.toml", "--dim", "0", "--method", "chain"],
            ["`dim`", "positive integer", "0"],
        ),
        (["solve", "task.toml", "--dim", "-5"], ["`dim`", "-5"]),
        (["solve", "task.toml", "--seed", "1.5"], ["--seed", "'1.5'"]),
        (["solve", "task.toml", "--seed", "-1"], ["`seed`", "-1"]),
        (
            ["solve", "task.toml", "--method", "chian"],
            ["`method`", "did you mean 'chain'"],
        ),
        (["solve", "task.toml", "--method", ""], ["`method`", "''"]),
        (["solve", "task.toml", "--set"], ["--set", "expected one argument"]),
        (["compare", "task.toml", "--methods", "ode,foo"], ["'foo'"]),
        (["compare", "task.toml", "--methods", ""], ["''"]),
        (
            ["compare", "task.toml", "--set", "run.until={quantity='risk', value=1.0}"],
            ["compare", "`run.until`"],
        ),
        (["moments", "task.toml", "--engine", "magic"], ["`engine`", "'magic'"]),
        (["analyse"], ["required: target"]),
        (["analyse", "z1", "--activation", "rleu"], ["'rleu'", "did you mean 'relu'"]),
        (
            ["analyse", "z1", "--direction", "2"],
            ["'--direction'", "did you mean '--directions'"],
        ),
        (["analyse", "z1", "--directions", "0"], ["`directions`", "0"]),
        (["about", "--seed", "1"], ["unknown flag '--seed'"]),
        (["recovery", "0*z1", "relu", "--out", "x.txt"], ["`target` must not be zero"]),
        (["cite"], ["required: what"]),
        (["cite", "od"], ["'od'", "did you mean 'ode'"]),
        (["cite", "task.toml"], ["'task.toml'", "a result (.nc)"]),
        (["cite", "no.nc"], ["'no.nc'", "existing file"]),
        (["plot", "no.nc"], ["'no.nc'", "existing file"]),
        (["plot", "task.toml"], ["'task.toml'", ".nc file or a .zarr store"]),
        (["plot", "no.zarr"], ["'no.zarr'", "sweep of twolayer"]),
        (["rerun", "task.toml"], ["'task.toml'", "what twolayer wrote"]),
        (["solve", "no.toml"], ["'no.toml'", "must exist"]),
        (["solve", "."], ["'.'", "directory"]),
        (["solve", "a\0b"], ["a\\x00b"]),
    ],
)
def test_bad_flags_and_arguments(argv: list[str], words: list[str], call: Call) -> None:
    refused(call(*argv), *words)


def test_no_arguments_show_the_usage(call: Call) -> None:
    answer = call()
    assert answer.code == 2
    assert answer.out.startswith("usage: twolayer COMMAND")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["`problem` is missing"]),
        (b"[problem]\ntarget = 'z1'\nactivation = 'relu'", ["`algorithm` is missing"]),
        (
            b"[problem]\nactivation = 'relu'\n[algorithm]\nlr = 1",
            ["`problem.target` is missing"],
        ),
        (b"[problem\n", ["valid TOML", "line 1"]),
        (b"a = 1\na = 2", ["valid TOML"]),
        (b"\xff\xfe\x00", ["UTF-8"]),
        (b"\x89PNG\r\n", ["UTF-8"]),
        (b"x = " + b"[" * 10**5, ["valid TOML", "nested too deeply"]),
        (b"x = " + b"9" * 10**4, ["valid TOML", "digits"]),
        (b"problem = 'z1'\nalgorithm = 1", ["`problem` must be a table"]),
        (b"[problems]\n" + TASK.encode(), ["'problems'", "did you mean 'problem'"]),
        (
            TASK.encode() + b"\n" + b"x" * 10**5 + b" = 1",
            ["unknown key", "[run] accepts dim"],
        ),
    ],
)
def test_bad_files(text: bytes, words: list[str], call: Call) -> None:
    Path("task.toml").write_bytes(text)
    for command in ("solve", "compare", "moments"):
        refused(call(command, "task.toml"), *words)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("nowhere/x", ["existing folder", "'nowhere'"]),
        ("task.toml/x", ["existing folder", "'task.toml'"]),
        ("/dev/null/x", ["existing folder"]),
        ("/proc/x", ["writable", "/proc/x.nc"]),  # where even a superuser cannot write
        ("", ["name a file"]),
        (".", ["name a file"]),
        ("..", ["name a file"]),
        ("/", ["name a file"]),
        ("a\0b", ["writable", "null"]),
        ("x" * 300, ["writable", "too long"]),
    ],
)
def test_results_are_not_computed_for_a_place_that_cannot_be_written(
    out: str, words: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    if out.startswith("/proc") and not os.path.isdir("/proc/self"):
        pytest.skip("there is no /proc")
    monkeypatch.setattr(
        solving, "follow", lambda *_: pytest.fail("work was done before the check")
    )
    for command in ("solve", "compare"):
        refused(call(command, "task.toml", "--out", out), "--out must", *words)


def test_the_folder_of_a_result_is_no_place(call: Call) -> None:
    Path("x.nc").mkdir()
    answer = call("solve", "task.toml", "--out", "x")
    assert answer.code == 2
    assert "'x.nc' is a folder" in answer.err


def test_a_file_called_results_is_in_the_way(call: Call) -> None:
    Path("results").touch()
    answer = call("solve", "task.toml")
    assert answer.code == 2
    assert (
        "--out must lie in an existing folder, but 'results' does not exist."
        in answer.err
    )


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("x", ["end in"]),
        ("x.nc", ["end in", ".svg"]),
        ("no/x.png", ["folder"]),
        ("task.toml/x.png", ["folder"]),
    ],
)
def test_figures_are_checked_first(
    out: str, words: list[str], call: Call, saved: Path
) -> None:
    for argv in (
        ["analyse", "z1"],
        ["moments", "task.toml"],
        ["plot", str(saved / "chain.nc")],
    ):
        refused(call(*argv, "--out", out), "--out must", *words)


@pytest.mark.parametrize("out", ["no/x.txt", "", "task.toml/x"])
def test_texts_are_written_where_that_is_possible(out: str, call: Call) -> None:
    refused(call("cite", "ode", "--out", out), "--out must")


def test_a_comparison_is_rerun_from_its_description(call: Call, saved: Path) -> None:
    answer = call("rerun", str(saved / "both.nc"), "--out", "again")
    assert answer.code == 0 and answer.out.startswith("the same numbers\nclaim ")
    old, new = tl.load(saved / "both.nc"), tl.load("again.nc")
    assert new.tree.equals(old.tree) and list(new.results) == ["ode", "chain"]
    other = call("rerun", str(saved / "both.nc"), "--seed", "9", "--json").json
    assert other["same"] is False and len(other["rows"]) == len(old.verdicts)
    old.tree.attrs.pop("run")
    with pytest.raises(tl.InputError, match="older than that"):
        tl.rerun(old)


def test_broken_and_foreign_netcdf_files(call: Call, saved: Path) -> None:
    whole = (saved / "chain.nc").read_bytes()
    foreign = saved / "foreign.nc"
    xr.Dataset({"x": 1}).to_netcdf(foreign, engine="h5netcdf")
    broken = saved / "broken.nc"
    broken.write_bytes(whole[: len(whole) // 2])
    for command in ("plot", "rerun", "cite"):
        refused(
            call(
                command,
                str(foreign),
                *(["--out", "x.png"] if command == "plot" else []),
            ),
            "no such description",
        )
        refused(
            call(
                command, str(broken), *(["--out", "x.png"] if command == "plot" else [])
            ),
            "damaged or foreign",
        )


# -- bad input: values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("problem.width=0", ["`width`", "0", "positive integer"]),
        ("problem.width=2.5", ["`problem.width`", "2.5", "an integer"]),
        ("problem.width=true", ["`problem.width`", "True"]),
        ("problem.width='2'", ["`problem.width`", "'2'"]),
        ("problem.width=inf", ["`problem.width`", "inf"]),
        ("problem.width=1" + "0" * 20, ["`width`", "2**63"]),
        ("problem.noise=-0.1", ["`noise`", "-0.1", "≥ 0"]),
        ("problem.noise=nan", ["`noise`", "nan"]),
        ("problem.noise=true", ["`problem.noise`", "a number"]),
        ("problem.target=3", ["`problem.target`", "text or a table", "3"]),
        ("problem.target={}", ["`target`", "teacher"]),
        ("problem.target={teacher='erf', k=3}", ["`start.M`", "3 directions"]),
        ("problem.target=z1*", ["'z1*'", "ends too early"]),
        ("problem.target=1/z1", ["`target`", "finite variance"]),
        ("problem.target=z1/0", ["`target`", "divides by zero"]),
        ("problem.activation=rleu", ["'rleu'", "did you mean 'relu'"]),
        ("problem.activation=0*z", ["`activation`", "depend on z"]),
        (
            "problem.activaton=relu",
            ["'problem.activaton'", "did you mean 'activation'"],
        ),
        ("problem.strength=1", ["'problem.strength'", "[problem] accepts target"]),
        ("problem.gram=[[1, 2], [2]]", ["`gram`", "array of numbers"]),
        ("problem.gram=[[-1]]", ["`gram`", "positive semidefinite"]),
        ("problem.gram=[['a']]", ["`problem.gram[0][0]`", "a number", "'a'"]),
        ("problem.second_layer=[1, nan]", ["`second_layer`", "nan"]),
        ("problem.second_layer=oens", ["'oens'", "did you mean 'ones'"]),
        ("algorithm.lr=0", ["`lr`", "positive"]),
        ("algorithm.lr=-0.1/d", ["`lr`", "positive"]),
        ("algorithm.lr=nan", ["`lr`", "nan"]),
        ("algorithm.lr=true", ["`algorithm.lr`", "text or a number"]),
        ("algorithm.lr=0.1/d + 1", ["`lr`", "single power law"]),
        ("algorithm.lr=", ["`lr`", "empty"]),
        ("algorithm.lr=(-d)**0.5", ["negative coefficient"]),
        ("algorithm.lr=(1e300*d)**5", ["`lr`"]),
        ("algorithm.batch=0.3", ["`batch`", "0.3", "positive integer"]),
        ("algorithm.batch=0", ["`batch`", "0"]),
        ("algorithm.batch=0.001*d", ["`batch`", "at least 1"]),
        ("algorithm.batch=d**30", ["`batch`", "2**53"]),
        ("algorithm.loss=square", ["'square'", "did you mean 'squared'"]),
        ("algorithm.geometry=sphere", ["'sphere'", "did you mean 'spherical'"]),
        ("algorithm.momentum=1", ["`momentum`", "[0, 1)"]),
        ("algorithm.dataset=50", ["Chain cannot do this", "reused"]),
        (
            "algorithm.train_second_layer=1",
            ["`algorithm.train_second_layer`", "true or false"],
        ),
        ("algorthm.lr=1", ["'algorthm'", "did you mean 'algorithm'"]),
        ("start.Q=[[1, 2], [2, 1]]", ["`Q`", "positive semidefinite"]),
        ("start.Q=[[1, 0], [0]]", ["`Q`", "array of numbers"]),
        ("start.Q=[[1, 0.5], [0, 1]]", ["`Q`", "symmetric"]),
        ("start.M=[[1.5], [0]]", ["`M`", "compatible with Q and P"]),
        ("start.M=[[0.1, 0], [0.1, 0]]", ["`start.M`", "1 direction"]),
        ("start.M=[[nan], [0]]", ["`M`", "finite"]),
        ("start.a=[1]", ["`a`"]),
        ("start.random=sphere", ["[start]", "either Q and M or a random start"]),
        ("run.dim=0", ["`dim`", "0"]),
        ("run.dim=1", ["`dim`", "room for the start"]),
        ("run.dim=2.5", ["`run.dim`", "an integer"]),
        ("run.time=0", ["`time`", "positive"]),
        ("run.time=nan", ["`time`", "nan"]),
        ("run.time=[0.2, 0.1]", ["`time`", "strictly increasing"]),
        ("run.time=[]", ["`time`", "[]"]),
        ("run.time=1e-9", ["`time`", "at least one step"]),
        ("run.time=1e30", ["`time`", "2**32"]),
        ("run.steps=10", ["one of `time`, `steps`, `alpha` and `passes`"]),
        ("run.save=0", ["`save`", "0"]),
        ("run.save=[0.1, 9]", ["`save`", "at most time"]),
        ("run.save=[0.2, 0.1]", ["`save`", "strictly increasing"]),
        ("run.seeds=0", ["`seeds`", "0"]),
        ("run.seed=-1", ["`seed`", "-1"]),
        ("run.methods=[]", ["`run.methods`", "empty"]),
        ("run.methods=['foo']", ["`method`", "'foo'"]),
        ("run.methods='ode'", ["`run.methods`", "a list"]),
        ("run.until=3", ["`run.until`", "a table"]),
        ("run.until={quantity='risk'}", ["`run.until.value` is missing"]),
        (
            "run.until={quantity='risk', value=1, relativ=true}",
            ["'run.until.relativ'", "did you mean 'relative'"],
        ),
        ("run.until={quantity='rsk', value=1}", ["'rsk'", "did you mean 'risk'"]),
        ("method.chian.dim=2", ["'chian'", "did you mean 'chain'"]),
        (
            "method.chain.batch_sum='exact'",
            ["'batch_sum'", "did you mean 'batch_sums'"],
        ),
        ("method.ode.rtol=0", ["`rtol`", "0"]),  # although the run is another method's
        ("method.chain=3", ["`method.chain` must be a table"]),
        ("problem", ["--set takes key=value", "'problem'"]),
        ("=3", ["--set takes key=value"]),
        ("problem..width=3", ["--set takes key=value"]),
        ("problem.target.x=3", ["`target` is a value, not a table"]),
        ("problem.width=2\nnoise=2", ["`problem.width`", "an integer"]),
        ("problem.width=" + "[" * 10**5, ["`problem.width`", "an integer"]),
        ("problem.width=" + "9" * 10**4, ["`problem.width`", "an integer"]),
        *[
            (f"{key}=1{'0' * 400}", [key.split(".")[1]])
            for key in ("problem.noise", "run.time", "algorithm.lr", "run.steps")
        ],
        *[
            (f"{key}=1{'0' * 400}", [key.split(".")[1]])
            for key in ("algorithm.batch", "run.seed", "run.dim")
        ],
        ("x" * 10**6 + "=1", ["unknown key"]),
        ("x" * 10**6, ["--set takes key=value"]),
    ],
)
def test_bad_values(assignment: str, words: list[str], call: Call) -> None:
    refused(
        call("solve", "task.toml", "--method", "chain", "--set", assignment), *words
    )


def test_too_few_dimensions_for_the_target(call: Call) -> None:
    random = TASK.replace("Q = [[1.0, 0.1], [0.1, 1.0]]\nM = [[0.3], [0.2]]", "")
    Path("task.toml").write_text(random.replace("He2(z1)", "z1*z2*z3"))
    refused(
        call("solve", "task.toml", "--dim", "2"),
        "`dim`",
        "2",
        "at least the 3 independent directions",
    )


ATTACKS = [
    "__import__('os').system('touch pwned')",
    "open('pwned', 'w')",
    "z1.__class__.__mro__",
    "d.__class__",
    "lambda: 1",
    "[z1 for z1 in z1]",
    "(z1 := 3)",
    "f'{z1}'",
    "10**10**10",
    "z1**99999999999",
    "9" * 400,
    "z1+" * 300_000 + "z1",
    "(" * 900 + "z1" + ")" * 900,
    "-" * 1900 + "z1",
    "exp(" * 400 + "z1" + ")" * 400,
    "z1**64" * 2,
    "exec",
    "z1\0",
    "z1\n\nz2",
    "\N{MATHEMATICAL BOLD SMALL Z}1",
]


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_expressions_are_never_run(attack: str, call: Call) -> None:
    if not attack.startswith("--"):
        refused(call("analyse", attack), "`target`")
    refused(call("solve", "task.toml", "--set", f"problem.target={attack}"), "target`")
    for key in ("problem.activation", "algorithm.lr", "algorithm.batch"):
        refused(call("solve", "task.toml", "--set", f"{key}={attack}"))


# -- runs that fail ---------------------------------------------------------------------------------------------------

DIVERGING = [
    "--set",
    "algorithm.geometry=free",
    "--set",
    "algorithm.lr=50/d",
    "--set",
    "run.time=20",
]


@pytest.mark.parametrize("method", ["chain", "ode"])
def test_divergence_is_an_outcome_with_advice(method: str, call: Call) -> None:
    answer = call("solve", "task.toml", "--method", method, "--out", "x", *DIVERGING)
    assert answer.code == 1
    assert "diverged at step" in answer.out
    assert "use a smaller lr" in answer.out
    assert answer.err.count("\n") == 1
    assert "diverged, the first at" in answer.err
    dataset = tl.load("x.nc")
    assert set(dataset.outcome.values) == {"diverged"}
    for name in ("M", "Q", "a", "risk", "excess_risk", "stop_step", "stop_time"):
        assert np.isfinite(dataset[name].values).all(), name


def test_divergence_in_json(call: Call) -> None:
    answer = call(
        "solve", "task.toml", "--method", "chain", "--json", "--out", "x", *DIVERGING
    )
    assert answer.code == 1
    assert answer.json["outcomes"] == {"diverged": 3}
    assert (
        answer.json["stopped"]["diverged"]["step"]
        == tl.load("x.nc").stop_step.values.min()
    )


def test_population_tells_its_averages_and_the_largest_rate(call: Call) -> None:
    flags = [
        "problem.target=relu(z1)",
        "problem.activation=relu",
        "algorithm.geometry=free",
    ]
    settings = [x for flag in flags for x in ("--set", flag)]
    fine = call(
        "solve",
        "task.toml",
        "--method",
        "population",
        *settings,
        "--set",
        "algorithm.lr=0.2",
    )
    assert fine.code == 0, fine
    assert "averages closed form (relu) (error 1.0e-14)" in fine.out
    settings += ["--set", "algorithm.lr=30", "--set", "run.time=3000"]
    lost = call("solve", "task.toml", "--method", "population", *settings)
    assert lost.code == 1, lost
    assert "steps overshoot for lr > 8" in lost.out
    assert "averages closed form (relu)" in lost.out


def test_some_seeds_may_diverge(call: Call) -> None:
    """A rate at which the fate of a run is open: the command is done as long as one seed is."""
    flags = [
        "--set",
        "algorithm.geometry=free",
        "--set",
        "algorithm.lr=0.7/d",
        "--set",
        "run.time=0.5",
    ]
    answer = call(
        "solve",
        "task.toml",
        "--method",
        "chain",
        "--out",
        "x",
        "--set",
        "run.seeds=16",
        "--json",
        *flags,
    )
    counts = answer.json["outcomes"]
    assert set(counts) == {"diverged", "ok"}, counts
    assert answer.code == 0


def test_a_comparison_that_diverges_has_no_verdict(call: Call) -> None:
    answer = call("compare", "task.toml", "--out", "x", "--json", *DIVERGING)
    assert answer.code == 1
    assert {row["verdict"] for row in answer.json["rows"]} == {"undecided"}
    assert (
        answer.err.count("diverged") == 2
    )  # one line for each method, none for the pilot


def test_an_integrator_that_gives_up(call: Call) -> None:
    answer = call("solve", "task.toml", "--set", "method.ode.max_steps=1")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (
        "twolayer: ODE stopped early: the integrator used up its steps: raise max_steps, loosen rtol, or shorten the "
        "time.\n"
    )
    assert files() == ["task.toml"]


def test_more_save_points_than_memory_holds(call: Call) -> None:
    answer = call("solve", "task.toml", "--set", "run.save=100000000000000")
    assert answer.code == 2
    assert answer.err.startswith(
        "twolayer: Argument `save` must be at most 1e+06 intervals"
    )
    assert "Traceback" not in answer.err
    assert files() == ["task.toml"]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()]
)
def test_a_failed_write_leaves_nothing(
    error: BaseException, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        assert any(x.name.startswith(".x-") for x in Path().iterdir())  # half of a file
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    answer = call("solve", "task.toml", "--out", "x")
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert files() == ["task.toml"]


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def hear_ctrl_c() -> Iterator[None]:
    """Processes that a shell has put into the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Saboteur:
    """A monitor that presses Ctrl-C at the n-th tick of the m-th run."""

    def __init__(self, run: int, tick: int) -> None:
        self.run, self.tick = run, tick

    def begin(self, label: str, end: float) -> None:
        self.run -= 1
        self.ticks = 0

    def update(self, position: float) -> None:
        self.ticks += 1
        if self.run == 0 and self.ticks == self.tick:
            os.kill(os.getpid(), signal.SIGINT)

    def note(self, text: str, **about: Any) -> None:
        pass

    def finish(self) -> None:
        pass


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def at(run: int, tick: int) -> None:
        saboteur = Saboteur(run, tick)
        monkeypatch.setattr(solving, "listener_for", lambda progress: saboteur)

    return at


def test_interrupted_solve_keeps_what_was_done(
    call: Call, press: Callable[[int, int], None]
) -> None:
    whole = call("solve", "task.toml", "--method", "chain", "--out", "whole")
    press(1, 3)
    answer = call("solve", "task.toml", "--method", "chain", "--out", "part")
    assert answer.code == 1
    assert (
        answer.out
        == "interrupted; the finished part is in part.nc: draw it with 'twolayer plot part.nc'\n"
    )
    assert files() == ["part.nc", "task.toml", "whole.nc", "whole.png"]
    part, full = tl.load("part.nc"), tl.load("whole.nc")
    assert whole.code == 0
    assert json.loads(part.attrs["complete"]) is False
    assert set(part.outcome.values) == {"interrupted"}
    assert 1 <= part.sizes["time"] < full.sizes["time"]
    np.testing.assert_array_equal(part.M, full.M[:, : part.sizes["time"]])


def test_interrupted_rerun(
    call: Call, saved: Path, press: Callable[[int, int], None]
) -> None:
    press(1, 2)
    assert (
        call("rerun", str(saved / "chain.nc")).out
        == "interrupted: give the same command again\n"
    )
    press(1, 2)
    assert call("rerun", str(saved / "chain.nc"), "--out", "x").code == 1
    assert json.loads(tl.load("x.nc").attrs["complete"]) is False
    assert files() == ["task.toml", "x.nc"]


@pytest.mark.parametrize(
    ("run", "kept", "reference"),
    [
        (1, {"chain": False}, "chain"),
        (2, {"ode": False, "chain": True}, "ode"),
        (3, {"ode": True, "chain": True}, "ode"),
    ],
    ids=["in the first method", "in the second", "in the pilot"],
)
def test_interrupted_compare_keeps_the_finished_methods_and_the_part(
    run: int,
    kept: dict[str, bool],
    reference: str,
    call: Call,
    press: Callable[[int, int], None],
) -> None:
    press(run, 1)
    answer = call("compare", "task.toml", "--out", "x")
    assert answer.code == 1
    assert (
        answer.out
        == f"interrupted; {', '.join(kept)} so far are in x.nc: draw them with 'twolayer plot x.nc'\n"
    )
    assert files() == ["task.toml", "x.nc"]
    part = tl.load("x.nc")
    assert json.loads(part.tree.attrs["complete"]) is False
    assert {
        name: json.loads(result.attrs["complete"])
        for name, result in part.results.items()
    } == kept
    assert part.reference == reference
    assert call("plot", "x.nc").code == 0


def test_interrupt_between_methods(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the second method is set up there is no run to stop, but the first is not lost."""
    monkeypatch.setattr(
        tl.ODE, "prepare", lambda *_: os.kill(os.getpid(), signal.SIGINT)
    )
    assert call("compare", "task.toml", "--out", "x").code == 1
    assert list(tl.load("x.nc").results) == ["chain"]


def test_interrupt_before_anything_was_done(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tl.Chain, "prepare", lambda *_: os.kill(os.getpid(), signal.SIGINT)
    )
    for command in ("solve", "compare"):
        answer = call(command, "task.toml", "--set", "run.methods=['chain']")
        assert answer[:2] == (1, "") and answer.err.endswith(
            "give the same command again.\n"
        )
        assert files() == ["task.toml"]


def test_interrupted_comparison_in_python(
    press: Callable[[int, int], None], tmp_path: Path
) -> None:
    problem, algorithm = (
        tl.Problem("He2(z1)", "He2"),
        tl.SGD(lr="0.2/d", geometry="projected"),
    )
    press(1, 1)
    with pytest.raises(tl.errors.Interrupted) as stop:
        tl.compare(
            problem,
            algorithm,
            [tl.ODE(), tl.Chain(64)],
            tl.Overlaps([[1.0]], [[0.5]]),
            time=0.2,
            seeds=2,
        )
    assert list(stop.value.result.results) == ["chain"]
    path = tl.save(stop.value.result, tmp_path / "lr_0.2.nc")
    assert tl.load(path).tree.identical(stop.value.result.tree)


# -- the program itself -----------------------------------------------------------------------------------------------


def program(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "twolayer", *argv],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


HEAVY = (
    "jax",
    "numpy",
    "scipy",
    "xarray",
    "pydantic",
    "matplotlib",
    "diffrax",
    "rich",
    "h5netcdf",
)


def test_help_is_light() -> None:
    script = (
        "import sys\nfrom twolayer.cli import COMMANDS, main\n"
        "assert main(['--help']) == 0 and main(['--version']) == 0 and main(['nonsense']) == 2\n"
        "assert all(main([command, '--help']) == 0 for command in COMMANDS)\n"
        f"print('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_bad_files_are_refused_before_jax_is_loaded(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom twolayer.cli import main\n"
        "assert main(['solve', sys.argv[1]]) == 2\n"
        "print('loaded:', *[name for name in ('jax', 'xarray', 'matplotlib') if name in sys.modules])"
    )
    task = tmp_path / "task.toml"
    task.write_text(TASK.replace("width", "widht"))
    argv = [sys.executable, "-c", script, str(task)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "loaded:\n"
    assert "did you mean 'width'" in done.stderr


def test_program_exit_codes(tmp_path: Path) -> None:
    shown = program("--version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (
        0,
        f"{tl.__version__}\n",
        "",
    )
    assert program("--help").stdout.startswith("usage: twolayer COMMAND")
    bad = program("solve", "no.toml", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert (
        bad.stderr == "twolayer: The task file must exist, but there is no 'no.toml'.\n"
    )


def test_script_is_installed() -> None:
    script = Path(sys.executable).parent / "twolayer"
    done = subprocess.run(
        [script, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{tl.__version__}\n"


def test_terminals_without_greek_letters() -> None:
    done = program(
        "analyse",
        "--help",
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0
    assert "z1, z2, ?" in done.stdout


def test_a_reader_who_leaves() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        argv = [sys.executable, "-m", "twolayer", "--help"]
        done = subprocess.run(
            argv,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")


@contextlib.contextmanager
def on_a_terminal(
    argv: list[str], cwd: Path
) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], str]]]:
    """A program whose standard error is a terminal, and a function that waits for a word on it."""
    import pty

    master, slave = pty.openpty()
    command = [sys.executable, "-m", "twolayer", *argv]
    process = subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=slave, text=True
    )
    os.close(slave)
    seen = b""

    def wait_for(word: str) -> str:
        nonlocal seen
        with contextlib.suppress(OSError):  # the terminal closes when the program ends
            while word.encode() not in seen and (piece := os.read(master, 4096)):
                seen += piece
        return seen.decode(errors="replace")

    try:
        yield process, wait_for
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
        os.close(master)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_ctrl_c_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(TASK)
    argv = [
        "solve",
        "task.toml",
        "--method",
        "chain",
        "--out",
        "x",
        "--set",
        "run.time=1e6",
        "--set",
        "run.save=100000",
    ]
    with on_a_terminal(argv, tmp_path) as (process, wait_for):
        assert "chain" in wait_for("%")  # the bar is there: the run has begun
        process.send_signal(signal.SIGINT)
        out = process.stdout.read() if process.stdout else ""
        shown = wait_for("\0")
        assert process.wait(timeout=60) == 1
    assert (
        out
        == "interrupted; the finished part is in x.nc: draw it with 'twolayer plot x.nc'\n"
    )
    assert "Traceback" not in shown
    assert files(tmp_path) == ["task.toml", "x.nc"]
    dataset = tl.load(tmp_path / "x.nc")
    assert json.loads(dataset.attrs["complete"]) is False
    assert 1 <= dataset.sizes["time"] <= 100_000
    assert np.isfinite(dataset.M.values).all()
