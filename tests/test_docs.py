"""The documentation is executed: every Python block runs, every task file is read, every link leads somewhere."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import numpy as np
import pytest

import twolayer as tl
from twolayer.cli import COMMANDS, main
from twolayer.files.taskfile import read_task
from twolayer.functions import activation
from twolayer.task import losses, rules
from twolayer.task.method import METHODS

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(
    (ROOT / "docs" / "tutorials").glob("*.md")
)  # run when the site is built
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for folder in ("design", "reference", "sources")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
TOP = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
TEXTS = [*PAGES, *NOTEBOOKS, *(ROOT / name for name in TOP)]
RUN = "pip install uv && uv run twolayer compare examples/phase_retrieval.toml"
TEST = "pip install uv && uv run pytest"
DOCTEST_FLAGS = doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line in the file where the text begins."""

    language: str
    text: str
    line: int


def blocks(page: Path, *languages: str) -> list[Block]:
    source = page.read_text(encoding="utf-8")
    found = re.finditer(
        r"^```(\w*)\n(.*?)^```$", source, flags=re.MULTILINE | re.DOTALL
    )
    every = [Block(m[1], m[2], source.count("\n", 0, m.start(2)) + 1) for m in found]
    return [b for b in every if not languages or b.language in languages]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """Execute one block: prompts by doctest, anything else as it is."""
    if ">>>" not in block.text:
        # the empty lines in front make a traceback show the line of the page
        exec(
            compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace
        )
        return
    test = doctest.DocTestParser().get_doctest(
        block.text, {}, name(page), str(page), block.line - 1
    )
    test.globs = namespace
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=DOCTEST_FLAGS).run(
        test, out=report.append, clear_globs=False
    )
    assert result.attempted and not result.failed, "".join(report)


def cost(page: Path) -> tuple[pytest.MarkDecorator, ...]:
    """The page that everybody reads is always run; some others take long."""
    if name(page) == "README.md":
        return ()
    if name(page) == "docs/differentiable.md" or page.parent.name == "sources":
        return (pytest.mark.long,)
    return (pytest.mark.slow,)


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=cost(p)) for p in PAGES if blocks(p, "python")],
    ids=name,
)
def test_python_blocks_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """In order, in one namespace and an empty folder; what a page registers is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    request.addfinalizer(
        lambda: jax.config.update("jax_enable_x64", False)
    )  # a page may switch it on
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with (
        patch.dict(METHODS.own),
        patch.dict(losses._LOSSES),
        patch.dict(activation._REGISTRY),
        patch.dict(rules._OWN),
    ):
        for block in blocks(page, "python"):
            run(block, page, namespace)


def whole_tasks() -> list[str]:
    tasks = [b.text for page in PAGES for b in blocks(page, "toml")]
    return [text for text in tasks if "problem" in tomllib.loads(text)]


def test_task_files_are_read(tmp_path: Path) -> None:
    assert len(whole_tasks()) >= 2
    for text in whole_tasks():
        file = tmp_path / "task.toml"
        file.write_text(text, encoding="utf-8")
        task = read_task(file)
        task.algorithm()
        if task.table.sweep:
            assert task.sweep_arguments()["over"]
        else:
            task.start(task.problem())
            assert task.methods() or task.stages()


NUMBER = r"[-+]?\d[\d.]*(?:e[-+]?\d+)?"


def skeleton(text: str) -> str:
    """Output without what may differ between machines: digits, the breaking of lines, and progress of slow runs."""
    text = re.sub(
        r"^[^\n]*: (preparing|\d+%) after \d+ s[^\n]*\n", "", text, flags=re.MULTILINE
    )
    return re.sub(r"\s+", " ", re.sub(NUMBER, "#", text)).strip()


def numbers(text: str) -> list[float]:
    """The numbers of an output, without those of progress and of versions."""
    text = re.sub(
        r"^[^\n]*: (preparing|\d+%) after \d+ s[^\n]*\n", "", text, flags=re.MULTILINE
    )
    return [
        float(word.rstrip("."))
        for word in re.findall(NUMBER, text)
        if word.count(".") < 2
    ]


@pytest.mark.long
def test_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The console blocks of docs/tasks.md, in order, beside its first task file."""
    page = ROOT / "docs" / "tasks.md"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("task.toml").write_text(blocks(page, "toml")[0].text, encoding="utf-8")
    shown = blocks(page, "console")
    assert len(shown) >= 8
    for block in shown:
        command, _, expected = block.text.partition("\n")
        program, *argv = shlex.split(command.removeprefix("$ "))
        assert program == "twolayer"
        code = main(argv)
        output = capsys.readouterr()
        assert skeleton(output.err + output.out) == skeleton(expected), command
        # rounding differs between machines in the last digit shown
        np.testing.assert_allclose(
            numbers(output.err + output.out),
            numbers(expected),
            rtol=0.02,
            atol=1e-12,
            err_msg=command,
        )
        failed, refused = (
            "diverged" in expected,
            expected.startswith("twolayer: task.toml"),
        )
        assert code == (2 if refused else 1 if failed else 0), command


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(
        r"^```.*?^```$",
        "",
        page.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"https?://|#", link):
            assert (page.parent / link.partition("#")[0]).exists(), (
                f"{name(page)} links to {link}"
            )


def test_every_public_name_is_documented() -> None:
    code = []
    for page in PAGES:
        source = page.read_text(encoding="utf-8")
        code += [b.text for b in blocks(page, "python")] + re.findall(
            r"`([^`\n]+)`", source
        )
    words = set(re.findall(r"\w+", "\n".join(code)))
    gathered = {
        name
        for space in set(tl.NAMESPACES) - {"gallery", "pure"}
        for name in getattr(tl, space).__all__
    }
    assert set(tl.__all__) <= words, sorted(set(tl.__all__) - words)
    assert gathered <= words, sorted(gathered - words)


def test_the_readme_has_two_shell_commands() -> None:
    shell = [
        b.text.strip()
        for b in blocks(ROOT / "README.md", "sh", "bash", "shell", "console", "")
    ]
    assert shell == [RUN, TEST]


def test_the_tables_of_methods_and_commands_are_complete() -> None:
    own = {
        cls.__name__
        for cls in METHODS.values()
        if cls.__module__.startswith("twolayer.")
    }
    for page in ("README.md", "docs/methods.md"):
        source = (ROOT / page).read_text(encoding="utf-8")
        assert set(re.findall(r"^\| `(\w+)\(", source, flags=re.MULTILINE)) == own, page
    source = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert set(
        re.findall(r"^\| `twolayer ([\w-]+)", source, flags=re.MULTILINE)
    ) == set(COMMANDS)


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_the_check_of_the_repository_runs_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(TEST) for line in lines)
    costly = 'pytest -m "slow or long" --share "$share/6"'
    for command in ("ruff format --check .", "ruff check .", "mypy", costly):
        assert f"uv run {command}" in lines
