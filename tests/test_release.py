"""What a release consists of: one version, exact versions of the test environment, metadata of archives."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import twolayer as tl
from twolayer.cli import main
from twolayer.files import selftest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/twolayer/__init__.py"
    assert f"version: {tl.__version__}\n" in (ROOT / "CITATION.cff").read_text(
        encoding="utf-8"
    )
    assert f"## [{tl.__version__}]" in (ROOT / "CHANGELOG.md").read_text(
        encoding="utf-8"
    )
    archive = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    assert archive["license"] == PROJECT["project"]["license"]
    assert "version" not in archive  # archives take that of the release


def test_the_test_environment_is_pinned() -> None:
    """Every dependency has an exact version, no line names a host, and the tests run with these versions."""
    pins = PROJECT["tool"]["uv"]["constraint-dependencies"]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; .*)?", pin) for pin in pins)
    pinned = {pin.split("==")[0]: pin.split("==")[1].split(" ")[0] for pin in pins}
    wanted = [
        *PROJECT["project"]["dependencies"],
        *(x for g in PROJECT["dependency-groups"].values() for x in g),
    ]
    wanted += [
        x
        for extra in PROJECT["project"]["optional-dependencies"].values()
        for x in extra
    ]
    names = {re.split(r"[><=!\[ ]", line)[0].lower() for line in wanted}
    assert names <= pinned.keys()
    assert pinned["jax"] == version("jax") == "0.10.1"


def test_a_wrong_machine_is_told_so(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    checks = (
        ("fields", "fields", lambda: (0.0, 0.0), ("Chain", "ODE")),
        ("map", "a mean", lambda: (7.0, 5.0), ("Map",)),
        ("none", "no number", lambda: (float("nan"), 5.0), ("SDE",)),
    )
    monkeypatch.setattr(selftest, "CHECKS", checks)
    assert main(["about", "--check"]) == 1
    said = capsys.readouterr().out
    assert "fields: right" in said
    assert "map: WRONG" in said
    assert "none: WRONG" in said
    assert "Do not trust: Map, SDE" in " ".join(said.split())
    monkeypatch.setattr(selftest, "CHECKS", checks[:1])
    assert main(["about", "--check"]) == 0


@pytest.mark.long
def test_this_machine_passes() -> None:
    found = list(selftest.selftest())
    assert [one.name for one in found if not one.right] == []
    assert {method for one in found for method in one.methods} == {*selftest.ALL}


def test_two_records_of_benchmarks_are_compared_row_by_row() -> None:
    """A time that doubled and a rate that halved are both twice as costly; what only one record has is left out."""
    where = ROOT / "benchmarks" / "compare.py"
    compare = runpy.run_path(str(where))["compare"]
    old = {
        "machine": "one",
        "rates": [{"p": 1, "k": 1, "64 seeds, compiled": 4.0}],
        "general": [{"run": "ODE", "first s": 2.0}, {"run": "Map", "first s": 3.0}],
    }
    new = {
        "machine": "one",
        "rates": [{"p": 1, "k": 1, "64 seeds, compiled": 2.0}],
        "general": [{"run": "SDE", "first s": 9.0}, {"run": "ODE", "first s": 1.0}],
    }
    assert [round(cost, 3) for cost, _ in compare(old, new)] == [2.0, 0.5]
    assert [round(cost, 3) for cost, _ in compare(new, old)] == [2.0, 0.5]
    assert compare(old, new)[0][1] == "rates, p 1, k 1 | 64 seeds, compiled: 4 -> 2"
