"""What a person at a terminal sees: help that fits and whose examples run, flags that act, lists that come at once."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cost import sized

import twolayer as tl
from twolayer.cli import COMMANDS, command_of, main
from twolayer.cli import help as pages
from twolayer.cli.compare import show
from twolayer.cli.completion import entries
from twolayer.files.bibtex import entry_of, parts_of
from twolayer.files.catalogue import gallery, papers_of, zoo_titles
from twolayer.files.papers import PAPERS
from twolayer.numerics.durations import lasting
from twolayer.running.cost import cost_of, cost_of_comparison

COLUMNS = 80
TASK = (
    (Path(pages.PAGES) / "tasks.txt")
    .read_text(encoding="utf-8")
    .split("\n\n  ", 1)[1]
    .split("\n\nMore keys")[0]
)
SWEEP = '\n[sweep]\n"algorithm.lr" = ["0.1/d", "0.2/d"]\n"run.dim" = [16, 32]\n'
EXAMPLES = [
    (name, line) for name in COMMANDS for line, _ in command_of(name)[1].EXAMPLES
]


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(list(argv)) == 0, (argv, capsys.readouterr())
    return capsys.readouterr().out


# -- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_and_has_examples(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    for columns in ("60", "80", "200"):  # whatever the terminal says of itself
        monkeypatch.setenv("COLUMNS", columns)
        text = shown(capsys, name, "--help")
        assert max(map(len, text.splitlines())) < COLUMNS
    about = COMMANDS[name]
    assert f"\n{about[0].upper()}{about[1:]}.\n" in text, "a capital is lost"
    assert re.search(r"(?m)^examples:\n  twolayer ", text)
    assert text == shown(capsys, "help", name)


def test_no_flag_of_any_command_says_that_it_does_nothing() -> None:
    for name in COMMANDS:
        for action in command_of(name)[0]._actions:
            assert action.help, (name, action.dest)
            assert "no effect" not in str(action.help)


def test_lists_and_pages_fit(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [
        shown(capsys, *argv)
        for argv in (["--help"], ["help"], ["gallery", "list"], ["zoo"])
    ]
    texts += [shown(capsys, "help", topic) for topic in pages.TOPICS]
    texts.append(shown(capsys, "gallery", "show", "escape-width"))
    for text in texts:
        assert max(map(len, text.splitlines())) <= COLUMNS, [
            x for x in text.splitlines() if len(x) > COLUMNS
        ]
    assert main(["help", "taks"]) == 2
    assert "did you mean 'tasks'" in capsys.readouterr().err


def test_every_page_belongs_to_a_topic_and_its_commands_are_understood() -> None:
    assert {f"{topic}.txt" for topic in pages.TOPICS} == {
        file.name for file in pages.PAGES.iterdir()
    }
    lines = [
        line
        for file in pages.PAGES.iterdir()
        for line in re.findall(r"(?m)^  (twolayer .*)$", file.read_text())
    ]
    assert len(lines) > 10
    for line in [*lines, *(line for _, line in EXAMPLES)]:
        _, name, *rest = shlex.split(re.split(" >>? ", line)[0])
        assert isinstance(command_of(name)[0].read(rest), argparse.Namespace)


GROUPS = {
    "lists": ("analyse", "gallery", "zoo", "about", "help"),
    "files": ("solve", "compare", "sweep", "moments", "plot", "rerun", "cite"),
    "measured": ("escape", "recovery", "phase-diagram", "thresholds"),
    "searched": ("optimise", "fixed-points"),
    "left": (
        "completion",
        "explore",
    ),  # which write into the home folder, and serve until Ctrl-C
}
WRITTEN = {
    "lists": ("target.png",),
    "files": (
        "moments.png",
        "slow.png",
        "both.nc",
        "rows.nc",
        "task.pdf",
        "s.png",
        "task.bib",
    ),
    "measured": ("escape.png", "r.png", "phases.png"),
    "searched": ("best.png", "plateaus.png"),
}


def test_every_command_is_in_a_group_of_examples() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(
        COMMANDS
    )


@pytest.mark.long
@pytest.mark.parametrize("group", WRITTEN)
def test_examples_run(
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One after the other in one folder, on a small task; what would be long stands with --dry-run."""
    monkeypatch.chdir(tmp_path)
    task = "  " + TASK
    assert "dim = 400 " in task and "time = 1.0 " in task and "seeds = 16" in task
    small = (
        task.replace("dim = 400 ", "dim = 64 ")
        .replace("time = 1.0 ", "time = 0.1 ")
        .replace("seeds = 16", "seeds = 3")
    )
    Path("task.toml").write_text(small)
    Path("sweep.toml").write_text(
        small.replace('["ode", "chain"]', '["chain"]') + SWEEP
    )
    X = np.tile(
        np.kron([[8], [-8]], np.diag(np.repeat([2.0, 0.5], 32))), (8, 1)
    )  # with two variances
    np.savez("rows.npz", X=X, y=X[:, 0], W_star=np.eye(1, 64))
    wrong: list[Any] = []
    for name, line in EXAMPLES:
        # processes start others, and the packages are tried with the check
        if name not in GROUPS[group] or "processes" in line or "--check" in line:
            continue
        _, *argv = shlex.split(line)
        code = main(argv)
        answer = capsys.readouterr()
        wrong += [(line, answer)] if code else []
        wrong += [
            (line, text)
            for text in answer.out.splitlines()
            if len(text) > COLUMNS and "bibtex" not in line
        ]
    assert wrong == []
    for file in WRITTEN[group]:
        assert Path(file).stat().st_size > 100, file


# -- flags that act ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("analyse z1 --latex --activation relu", "--activation"),
        ("analyse z1 --latex --json", "--json"),
        ("zoo --dry-run", "--dry-run"),
        ("escape --seed 1", "--seed"),
        ("escape --dry-run", "--dry-run"),
        ("recovery z1 relu --samples 10", "--samples"),
        ("recovery z1 relu --start random", "--start"),
        ("recovery z1 relu --threshold 0.3", "--threshold"),
        ("recovery z1 relu --seed 0", "--seed"),
        ("phase-diagram --ell 2 --dim 10,20", "--dim"),
        ("phase-diagram --ell 2 --plane theta", "--plane"),
        ("phase-diagram --ell 2 --gamma0 0.05", "--gamma0"),
        ("phase-diagram --ell 2 --seed 0", "--seed"),
        ("sweep x.toml --max-seeds 5", "--max-seeds"),
        ("sweep x.toml --dry-run --executor processes", "--executor"),
        ("gallery list --quick", "--quick"),
        ("gallery show mediocrity --set dims=4", "--set"),
        ("gallery run all --set dims=4", "--set"),
        ("gallery run mediocrity --dry-run --seed 3", "--seed"),
        ("plot x.nc --of risk", "--of"),
    ],
)
def test_a_flag_that_would_do_nothing_is_refused(
    line: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 2
    assert f"twolayer: {flag} has no effect" in capsys.readouterr().err


ACTING = {  # a command, and for each of its flags a value that changes what comes out
    "analyse 'z1 + z1*z2'": ("--activation erf", "--directions 3", "--latex", "--json",
                             "--inputs '{variances = [4, 1], dims = [9, 90]}'"),
    "escape --width 2 --dim 500": ("--noise 0.2", "--lr 0.1/d", "--batch 2", "--threshold 0.05", "--ode", "--json",
                                   "--measure 4", "--measure 400 --dry-run"),
    "escape --width 2 --dim 500 --measure 4": ("--seed 1",),
    "recovery 'h2(z1)' h2 --dim 50 --measure 8": ("--loss correlation", "--noise 0.2", "--lr 0.05/d", "--threshold 0.3",
                                                  "--start random", "--samples 60", "--seed 1", "--json", "--dry-run"),
    "phase-diagram --ell 2": ("--loss correlation", "--geometry spherical", "--mu 1 --delta 1", "--json",
                              "--measure 2 --dim 16"),
    "phase-diagram --ell 2 --measure 3 --dim 16,32 --mu 1 --delta 0": ("--gamma0 0.2", "--n0 8", "--threshold 0.7",
                                                                    "--seed 1", "--dry-run", "--dim 16,24"),
    "phase-diagram --ell 3 --measure 3 --dim 16,32 --mu 1 --delta 0.5": ("--sign negative",),
    "zoo abbe2023-leap": ("--check", "--check --dry-run", "--json"),
    "cite ode": ("--bibtex", "--json"),
    "gallery show mediocrity": ("--json",),
    "gallery run mediocrity --dry-run": ("--quick", "--json"),
}  # fmt: skip


MEASURING = [base for base in ACTING if "--measure 3" in base]


@pytest.mark.parametrize(
    "base", sized(ACTING, slow=set(ACTING) - {*MEASURING}, long=MEASURING)
)
def test_every_flag_changes_what_comes_out(
    base: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = shown(capsys, *shlex.split(base))
    for flag in ACTING[base]:
        assert shown(capsys, *shlex.split(f"{base} {flag}")) != plain, flag


def test_other_suffixes_are_refused_before_any_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line in (
        "escape --out x.gif",
        "recovery z1 relu --out x.nc",
        "phase-diagram --ell 2 --out x.txt",
    ):
        assert main(shlex.split(line)) == 2
        assert "--out must end in .png, .pdf" in capsys.readouterr().err


# -- what comes at once -----------------------------------------------------------------------------------------------

HEAVY = (
    "jax",
    "numpy",
    "scipy",
    "xarray",
    "pydantic",
    "matplotlib",
    "pandas",
    "diffrax",
    "rich",
    "h5netcdf",
)


def test_lists_pages_and_completion_load_nothing_heavy() -> None:
    lines = (
        "gallery list",
        "zoo",
        "help tasks",
        "completion bash",
        "completion zsh",
        "completion fish",
    )
    script = (
        "import sys\nfrom twolayer.cli import main\n"
        f"assert all(main(line.split()) == 0 for line in {lines})\n"
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


@pytest.mark.parametrize(
    "flags",
    ["--width 0", "--width 2.5", "--noise nan", "--rho nan", "--batch 0", "--dim 1"],
)
def test_numbers_that_mean_nothing_are_refused(
    flags: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["escape", *flags.split()]) == 2
    told = capsys.readouterr().err
    assert flags.split()[0].strip("-") in told and len(told.splitlines()) == 1


@pytest.mark.slow
def test_closed_forms_load_no_jax() -> None:
    lines = (
        "cite ode chain dmft",
        "phase-diagram --ell 3 --mu 1 --delta 0",
        "escape --width 10 --dim 300",
        "analyse z1*z2",
        "thresholds z1**2",
        "thresholds z1*z2",
    )
    script = (
        "import sys\nfrom twolayer.cli import main\n"
        f"assert all(main(line.split()) == 0 for line in {lines})\n"
        "print('loaded:', *[name for name in ('jax', 'xarray') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_the_papers_of_methods_are_those_of_their_classes() -> None:
    from twolayer.task.method import METHODS

    assert {name: papers_of(name) for name in METHODS} == {
        name: METHODS[name].papers for name in METHODS
    }


def test_the_catalogue_is_the_gallery() -> None:
    from twolayer.gallery import figures

    listed = gallery()
    assert [(n, x.title, x.group) for n, x in listed.items()] == [
        (n, e.title, e.group) for n, e in figures().items()
    ]
    for name, entry in listed.items():
        assert re.fullmatch(r"[\d.]+ (s|min)( GPU)?", entry.quick), (name, entry.quick)
        assert re.fullmatch(r"[\d.]+ (s|min)( GPU)?|\?", entry.full), (
            name,
            entry.full,
        )  # ?: not recorded yet
    assert zoo_titles() == {name: setup.title for name, setup in tl.zoo().items()}


def test_completion_in_bash(capsys: pytest.CaptureFixture[str]) -> None:
    script = shown(capsys, "completion", "bash")
    asked = [
        ["sol"],
        ["gallery", "run", "escape-w"],
        ["solve", "--dr"],
        ["zoo", "saad1995-p"],
        ["help", "ver"],
    ]
    for words in asked:
        script += f'\nCOMP_WORDS=({shlex.join(["twolayer", *words])}); COMP_CWORD={len(words)}; _twolayer; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == [
        "solve",
        "escape-width",
        "--dry-run",
        "saad1995-plateau",
        "verdicts",
    ]


def test_completion_of_other_shells_holds_every_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    zsh, fish = shown(capsys, "completion", "zsh"), shown(capsys, "completion", "fish")
    known = entries()
    assert set(known) == set(COMMANDS) and "--quick" in known["gallery"].flags
    for name, entry in known.items():
        for flag in entry.flags:
            assert f"'{flag}:" in zsh or f"{flag}:" in zsh
            assert re.search(rf"from {name}' -l {flag[2:]} ", fish), (name, flag)


# -- colour -----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "stream", "coloured"),
    [
        ({"TERM": "xterm-256color"}, Terminal, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, Terminal, False),
        ({"TERM": "dumb"}, Terminal, False),
        ({"TERM": "xterm-256color"}, io.StringIO, False),
    ],
    ids=["terminal", "NO_COLOR", "dumb", "pipe"],
)
def test_verdicts_are_coloured_on_terminals_only(
    variables: dict[str, str],
    stream: type[io.StringIO],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    out = stream()
    monkeypatch.setattr(sys, "stdout", out)

    class Told:
        def __str__(self) -> str:
            return "chain  risk  agree\n       M1    differ"

    show(Told())  # type: ignore[arg-type]
    assert ("\x1b[32magree" in out.getvalue()) is coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()) == f"{Told()}\n"


# -- costs ------------------------------------------------------------------------------------------------------------

PROBLEM, ALGORITHM = tl.Problem("He2(z1)", "He2"), tl.SGD("0.2/d", geometry="projected")
START = tl.Overlaps([[1.0]], [[0.5]])


def test_a_forecast_is_the_sum_of_what_the_methods_estimate() -> None:
    from twolayer.running.solve import make_task

    one = cost_of(PROBLEM, ALGORITHM, tl.Chain(100), START, time=1, seeds=4)
    task = make_task(PROBLEM, ALGORITHM, tl.Chain(100), START, time=1, seeds=4)
    method = tl.Chain(100)
    assert one.seconds == pytest.approx(
        4 * method.cost(task) + method.compilation(task)
    )
    assert (one.runs, one.steps, one.memory) == (4, 500, 4 * method.footprint(task))
    far = cost_of(PROBLEM, ALGORITHM, tl.Chain(100), START, time=1000, seeds=4)
    assert far.seconds - method.compilation(task) == pytest.approx(
        1000 * (one.seconds - method.compilation(task))
    )
    assert [lasting(x) for x in (0.1, 59, 130, 3600, 1e5)] == [
        "1 s",
        "59 s",
        "2.17 min",
        "60 min",
        "28 h",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "methods",
    [
        [tl.ODE(), tl.Chain(256)],
        [tl.ODE(), tl.Chain(256), tl.SDE(256)],
        [tl.Map(256), tl.Chain(256)],
    ],
)
def test_the_pilots_of_a_comparison_are_foreseen(
    methods: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: dict[str, Any] = {"time": 0.05, "save": 2, "seeds": 2}
    told = cost_of_comparison(PROBLEM, ALGORITHM, methods, START, **arguments)
    tl.compare(PROBLEM, ALGORITHM, methods, START, progress=True, **arguments)
    runs = re.findall(r"(?m)^\[\d+\] (\w+)", capsys.readouterr().err)
    assert told.runs == sum(2 if name in ("chain", "sde") else 1 for name in runs)


def test_dry_runs_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("task.toml").write_text("  " + TASK)
    text = shown(capsys, "solve", "task.toml", "--method", "chain", "--dry-run")
    assert re.fullmatch(
        r"16 runs of up to 4000 steps: about [\d.]+ s on one core, [\d.]+ MiB\n", text
    )
    values = json.loads(shown(capsys, "compare", "task.toml", "--dry-run", "--json"))
    assert values["runs"] == 1 + 3 * 16 and values["seconds"] > 0
    assert main(["solve", "task.toml", "--dry-run", "--out", "x"]) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["task.toml"]


# -- citations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", PAPERS)
def test_every_paper_has_its_entry(key: str) -> None:
    parts = parts_of(PAPERS[key])
    surname = (
        re.sub(r"^[A-Z.\- ]+(?= [A-Z][a-z])", "", parts["author"].split(" and ")[0])
        .replace(" ", "")
        .lower()
    )
    assert key.startswith(surname.replace("é", "e")[:5]), surname
    assert len(parts["title"]) > 20 and "arXiv" not in parts["title"]
    assert parts.get("year", key[-4:]) in PAPERS[key] or key.endswith("thesis")
    assert ("eprint" in parts) == ("arXiv:" in PAPERS[key])
    entry = entry_of(key, PAPERS[key])
    assert (
        entry.count("{") == entry.count("}")
        and entry.startswith("@")
        and f"{{{key},\n" in entry
    )
    for word in re.findall(r"\w+", parts["title"]):
        assert word in entry


def test_cite_in_python_names_the_package_last() -> None:
    text, bibtex = tl.cite(tl.ODE()), tl.cite(tl.ODE(), style="bibtex")
    assert (
        text.splitlines()[-1]
        == f"The twolayer developers, twolayer: exact learning dynamics of two-layer neural networks, version {tl.__version__}."
    )
    assert bibtex.count("\n@") == len(text.splitlines()) - 1 and bibtex.split("\n\n")[
        -1
    ].startswith("@software{twolayer,")
    with pytest.raises(tl.InputError, match="`style`"):
        tl.cite(style="ris")


# -- the diagram in text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "correlation"])
@pytest.mark.parametrize("ell", [1, 2, 3, 4])
def test_the_sketch_says_what_the_diagram_does(ell: int, loss: str) -> None:
    from twolayer.analysis.phase_text import LEGEND, WIDTH, sketch, window

    diagram = tl.phase_diagram(ell=ell, loss=loss)
    lines = sketch(diagram, [(1.0, 0.5)]).splitlines()
    rows = [line for line in lines if re.match(r" *-?\d+\.\d\d \|", line)]
    right, _, _ = window(diagram)
    for row in rows:
        delta, cells = float(row.split("|")[0]), row.split("|")[1]
        assert len(cells) == WIDTH
        for mu, mark in zip(np.linspace(0, right, WIDTH), cells, strict=True):
            if mark not in "*o":
                point = diagram.at(float(mu), delta)
                assert (mark != ".") == point.learns, (mu, delta)
                assert (mark == "1") == (point.steps == 1)
    assert (
        sum(line.count("o") for line in rows) == 1
        and sum(line.count("*") for line in rows) <= 1
    )
    assert all(
        any(mark in row for row in rows)
        for mark in "".join(x[0] for x in lines[-2].split("   "))
        if mark in LEGEND
    )
    assert max(map(len, lines)) <= COLUMNS


# -- refusals ---------------------------------------------------------------------------------------------------------


def refusals() -> list[tuple[tl.Problem, tl.SGD]]:
    """Problems and algorithms in all regimes, with everything that methods refuse."""
    problems = [
        tl.Problem("He2(z1)", "He2", 2, 0.1),
        tl.Problem("z1*z2", "relu", 3),
        tl.Problem("sign(z1)", "tanh"),
        tl.Problem("z1", "relu", 2, second_layer="gaussian"),
    ]
    laws = [("0.2/d", 1), (0.5, "4*d"), (0.5, 1), ("d**-0.5", "d**0.5"), ("0.1*d**-2", 1), ("0.1*d**-0.5", 1),
            (0.3, "d**1.5"), ("d**0.5", "d**2"), ("2*d**-1.5", "3*d")]  # fmt: skip
    knobs: list[dict[str, Any]] = [
        {},
        {"loss": "correlation"},
        {"momentum": 0.5},
        {"weight_decay": 0.1},
        {"train_second_layer": True},
    ]
    algorithms = [
        tl.SGD(lr, b, geometry=g, **more)
        for lr, b in laws
        for g in ("free", "spherical")
        for more in knobs
    ]
    algorithms += [
        tl.SGD(0.2, "2*d", dataset="4*d", sampling=s)
        for s in ("sequence", "replacement")
    ]
    algorithms += [
        tl.SGD("0.2/d", 1, dataset="3*d"),
        tl.SGD("0.2/d", "d", dataset="d**2"),
        tl.SGD(0.2, 10, dataset=1000),
    ]
    return [(problem, algorithm) for problem in problems for algorithm in algorithms]


def test_a_refusal_recommends_no_method_that_refuses_too() -> None:
    from twolayer.numerics.errors import Refused
    from twolayer.running.solve import make_task
    from twolayer.task.method import METHODS

    classes = {cls.__name__: cls for cls in METHODS.values()}
    count = 0
    for problem, algorithm in refusals():
        able = tl.support(problem, algorithm)
        for name, reason in able.reasons.items():
            named = set(re.findall(rf"\b({'|'.join(classes)})\b", reason)) - {name}
            assert named <= set(able.methods), (name, reason, problem, algorithm)
            count += 1
        for name in able.methods:
            method = classes[name].at(400)
            assert method is not None
            suited = method.suited(algorithm)
            assert suited.objection(problem, algorithm) is None
    assert count > 1000
    problem, algorithm = tl.Problem("He2(z1)", "He2"), tl.SGD(0.5, "4*d")
    with pytest.raises(Refused, match="Methods that can") as refused:
        make_task(problem, algorithm, tl.ODE(), START, time=1)
    assert set(refused.value.alternatives) == set(
        tl.support(problem, algorithm).methods
    )
