"""The source map is whole: every statement has its place on a page, and every computable one a test that names it.

docs/sources/statements.toml lists the statements, docs/sources/NNN.md treats them in that order, and
docs/sources/index.md counts them and collects what is wrong in print.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statements import FOLDER, ROOT, STATEMENTS, TABLE, Proofs, within

import twolayer as tl
from twolayer.files.papers import PAPERS

SOURCES = sorted(TABLE)
PAGES = [*(FOLDER / f"{source}.md" for source in SOURCES), FOLDER / "index.md"]
KEYS = {"id", "title", "place", "lines", "kind", "call", "test", "errs", "wrong"}
KINDS = {"computable", "definition", "motivation", "citation", "empty"}


def proofs(source: str) -> Proofs:
    found: Proofs = importlib.import_module(f"test_source_{source}").proves
    return found


def named(statement: dict[str, Any]) -> list[str]:
    tests = statement.get("test", [])
    return [tests] if isinstance(tests, str) else tests


@functools.cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def sections(page: Path) -> dict[str, str]:
    """Third-level headings and what stands under each."""
    parts = re.split(
        r"^(#{2,3}) (.+)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return {
        title: text
        for level, title, text in zip(
            parts[1::3], parts[2::3], parts[3::3], strict=True
        )
        if len(level) == 3
    }


def slug(heading: str) -> str:
    """The anchor of a heading: lower case, without punctuation, blanks as hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("source", SOURCES)
def test_the_table_is_well_formed(source: str) -> None:
    for number, row in enumerate(TABLE[source], start=1):
        assert set(row) <= KEYS and row["kind"] in KINDS, row["id"]
        assert row["id"] == f"{source}-{number:02}"
        assert re.fullmatch(r"\d+(-\d+)?(, \d+(-\d+)?)*", row["lines"]), row["id"]
        assert row["title"] and row["place"]
        assert ("call" in row) >= (row["kind"] == "computable"), row["id"]
    assert (
        sum(row["kind"] == "computable" for row in TABLE[source])
        >= len(TABLE[source]) / 2
    )


@pytest.mark.parametrize("source", SOURCES)
def test_no_line_of_a_source_is_left_out(source: str) -> None:
    """Between two statements there are blank lines, one to three, or seven where pictures stood."""
    covered = set[int]()
    for row in TABLE[source]:
        for part in row["lines"].split(", "):
            first, _, last = part.partition("-")
            covered |= set(range(int(first), int(last or first) + 1))
    inside = sorted(covered)
    assert inside[0] == 1
    gaps = np.diff(inside) - 1
    assert gaps.max() <= 7 and (gaps > 3).sum() <= 3


@pytest.mark.parametrize("source", SOURCES)
def test_every_computable_statement_is_tested_by_name(source: str) -> None:
    own = proofs(source)
    assert own.source == source
    assert {key[:3] for key in own.found} == {source}
    for row in TABLE[source]:
        proven = row["id"] in own.found or bool(named(row))
        assert proven == (row["kind"] == "computable"), row["id"]


def test_named_tests_exist() -> None:
    count = 0
    for row in STATEMENTS.values():
        for test in named(row):
            file, _, function = test.partition("::")
            assert function in functions_of(file), (row["id"], test)
            count += 1
    assert count > 50


def test_what_a_statement_calls_is_public() -> None:
    for row in STATEMENTS.values():
        thing: Any = tl
        for part in row["call"].split(".") if "call" in row else ():
            thing = getattr(thing, part)


def test_what_is_wrong_in_print_is_computable() -> None:
    wrong = [row for row in STATEMENTS.values() if row.get("wrong")]
    assert len(wrong) >= 20
    for row in wrong:
        assert row["kind"] == "computable" and row["errs"], row["id"]


@pytest.mark.parametrize("source", SOURCES)
def test_the_page_goes_through_the_source(source: str) -> None:
    """One section for each statement, in order, with its place, its call, and a bold word where print is wrong."""
    found = sections(FOLDER / f"{source}.md")
    assert list(found) == [f"{row['id']} {row['title']}" for row in TABLE[source]]
    for row in TABLE[source]:
        text = found[f"{row['id']} {row['title']}"]
        place = re.match(r"\s*\*((?:\\\*|[^*])+)\*", text)
        assert place, row["id"]
        written = place[1].replace("\\*", "*").rstrip(".").lower()
        assert written == row["place"].rstrip(".").lower(), row["id"]
        if "call" in row:
            assert re.search(rf"\b{row['call'].split('.')[-1]}\b", text), row["id"]
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        if row.get("wrong"):
            assert re.search(r"\*\*[^*]+\*\*", re.sub(r"`[^`]*`", "", prose)), row["id"]


def test_the_index_collects_counts_and_errata() -> None:
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    for source, rows in TABLE.items():
        computable = sum(row["kind"] == "computable" for row in rows)
        assert re.search(
            rf"^\| \[{source}\]\({source}\.md\) \|.*\| {len(rows)} \| {computable} \|$",
            text,
            re.MULTILINE,
        )
    wrong, slips = text.split("## Slips of print")
    for key, row in STATEMENTS.items():
        line = f"| [{key}]({key[:3]}.md#{slug(key + ' ' + row['title'])}) | {row['title']} | {row.get('errs', '')} |"
        assert (line in wrong) == bool(row.get("wrong")), line
        assert (line in slips) == ("errs" in row and not row.get("wrong")), line
    assert len(re.findall(r"^\| \[\d{3}-\d\d\]", text, re.MULTILINE)) == sum(
        "errs" in row for row in STATEMENTS.values()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_papers_figures_and_set_ups_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for file, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", prose):
        target = page if not file else page.parent / file
        headings = re.findall(
            r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE
        )
        assert anchor in {slug(heading) for heading in headings}, (page.name, anchor)
    for row in re.findall(r"^\|.*`twolayer gallery run.*$", prose, re.MULTILINE):
        command, zoo = re.fullmatch(
            r"\|[^|]*\| `twolayer gallery run ([\w-]+)` \|([^|]*)\|", row
        ).groups()  # type: ignore[union-attr]
        assert command in tl.gallery.figures()
        last = ""
        for name in re.findall(r"`([\w-]+)`", zoo):
            stems = (
                [last[:cut] for cut in range(len(last)) if last[cut] == "-"]
                if name.startswith("-")
                else [""]
            )
            (last,) = (stem + name for stem in stems if stem + name in tl.zoo())
    for key in re.findall(r"`([a-z]+\d{4}[a-z]*)`", prose):
        assert key in PAPERS, key


def test_a_sampled_proof_can_fail() -> None:
    """Half and twice what is expected are rejected, and so are samples too few to tell."""
    samples = np.random.default_rng(0).normal(1.0, 1.0, size=10_000)
    within(samples, 1.0)
    for wrong in (0.5, 2.0):
        with pytest.raises(AssertionError):
            within(samples, wrong)
    with pytest.raises(AssertionError, match="no power"):
        within(samples[:20], 1.0)
