"""The list of planted errors fits the present source; ``python -m tests.mutations`` plants them one after the other."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest
from mutations import Mutant, all_mutants, stale

MUTANTS = all_mutants()


def test_every_record_fits_the_source_exactly_once() -> None:
    """A record that does not is stale: move it to where its mathematics went, or take another error of its kind."""
    assert {
        mutant.name: why for mutant in MUTANTS if (why := stale(mutant)) is not None
    } == {}


def test_names_are_unique_and_errors_are_many() -> None:
    names = collections.Counter(mutant.name for mutant in MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []
    rooms = collections.Counter(mutant.file.split("/")[0] for mutant in MUTANTS)
    assert len(MUTANTS) >= 150
    for room in ("gaussian", "equations", "methods", "compiled", "analysis", "running"):
        assert rooms[room] >= 10, room


def test_a_text_that_moved_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "src" / "twolayer").mkdir(parents=True)
    path = tmp_path / "src" / "twolayer" / "x.py"
    mutant = Mutant("x", "x.py", "a = b + c", "a = b - c", "a sign", ())
    for text, why in (
        ("a = b + c\n", None),
        ("a = (\n    b + c\n)\n", None),
        ("a = (\n    b + c\n", "0 times"),
        ("a = b\\\n    + c\n", "0 times"),
        ("a  =  b + c\na = b + c\n", "2 times"),
    ):
        path.write_text(text, encoding="utf-8")
        found = stale(mutant, tmp_path)
        assert (found is None) == (why is None) and (why is None or why in str(found))
    path.write_text("def f():\n    return a = b\n        + c\n", encoding="utf-8")
    assert (
        mutant.planted(path.read_text(encoding="utf-8"))
        == "def f():\n    return a = b - c\n"
    )
    with pytest.raises(ValueError, match="unpack"):
        mutant.planted("nothing")
