"""What runs when: every costly test in exactly one share, and every file with tests that always run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cost import read_share, share_of, sized

HERE = Path(__file__).parent
ROOT = HERE.parent
LISTING = """
import json, sys
import pytest

class Listing:
    def pytest_collection_finish(self, session):
        import conftest
        names = lambda items: [item.nodeid for item in items]
        mark = lambda item: next((m for m in ("long", "slow") if item.get_closest_marker(m)), "default")
        found = {"marks": [(item.nodeid, mark(item)) for item in session.items], "shares": []}
        for k in (1, 2, 3):
            session.config.option.share = f"{k}/3"
            items = list(session.items)
            conftest.pytest_collection_modifyitems(session.config, items)
            found["shares"].append(names(items))
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)

sys.exit(pytest.main(["tests", "--collect-only", "-q", "-o", "addopts="], [Listing()]))
"""


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All tests with their marks, and what is left of them in each of three shares."""
    file = tmp_path_factory.mktemp("listing") / "tests.json"
    command = [sys.executable, "-c", LISTING, str(file)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(file.read_text())


@pytest.mark.slow
def test_every_costly_test_is_in_one_share_and_shares_are_alike(listed: Any) -> None:
    costly = {name for name, mark in listed["marks"] if mark != "default"}
    every = [name for name, _ in listed["marks"]]
    shares = [costly & set(share) for share in listed["shares"]]
    assert sorted(costly) == sorted(name for share in shares for name in share)
    for share in listed["shares"]:
        assert [name for name in share if name not in costly] == [
            name for name in every if name not in costly
        ]
    assert all(0.25 * len(costly) < len(share) < 0.42 * len(costly) for share in shares)


@pytest.mark.slow
def test_every_file_has_tests_that_always_run(listed: Any) -> None:
    always = {
        name.partition("::")[0] for name, mark in listed["marks"] if mark == "default"
    }
    assert always == {f"tests/{path.name}" for path in HERE.glob("test_*.py")}


def test_the_share_of_a_test_depends_on_its_name_alone() -> None:
    """Numbers of crc32, which are those of every machine and every version of Python."""
    assert [share_of(name, 3) for name in ("a", "b", "c", "d")] == [1, 3, 1, 1]
    assert {share_of(str(i), 7) for i in range(100)} == set(range(1, 8))


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "x/3", "-1/3"])
def test_shares_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="k/n with 1 ≤ k ≤ n"):
        read_share(text)


def test_marks_of_cases() -> None:
    cases = sized(["a", "b", ("c", 1)], slow=["b"], long=[("c", 1)])
    assert [case.values for case in cases] == [("a",), ("b",), ("c", 1)]
    assert [[mark.name for mark in case.marks] for case in cases] == [
        [],
        ["slow"],
        ["long"],
    ]
    with pytest.raises(AssertionError, match="no case is called"):
        sized(["a"], long=["z"])
