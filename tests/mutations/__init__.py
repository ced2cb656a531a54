"""Planted errors: does a green light notice a wrong sign, factor, index, term or comparison?

    uv run python -m tests.mutations --list           what is planted
    uv run python -m tests.mutations                  all of it, one error at a time; goes on where it stopped
    uv run python -m tests.mutations --only sde       those whose names contain a word
    uv run python -m tests.mutations --share 1/3      a third of them
    tests/test_mutations.py                           every record fits the present source exactly once

A `Mutant` replaces one text of one file by another, which changes the mathematics. It is killed if one of the tests
concerned fails that the continuous integration runs (default or slow, never long), and survives if all of them pass.
What the tests cannot tell from the right program is `explained` in words, at the record.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = "src/twolayer"


@dataclass(frozen=True)
class Mutant:
    """One planted error.

    ``old`` has to occur exactly once in the file, whatever white space is between its words; ``tests`` are run in
    their order until one fails, after the examples of the file itself.
    """

    name: str
    file: str
    old: str
    new: str
    meaning: str
    tests: tuple[str, ...]
    explained: str = ""

    @property
    def path(self) -> Path:
        """The file below the root of the repository."""
        return Path(SOURCE) / self.file

    def matches(self, text: str) -> list[tuple[int, int]]:
        """Where the old text stands, wherever a formatter breaks its lines."""
        return [match.span() for match in re.finditer(_anyhow_broken(self.old), text)]

    def planted(self, text: str) -> str:
        """The text of the file with the error in it."""
        ((begin, end),) = self.matches(text)
        return text[:begin] + self.new + text[end:]

    def fingerprint(self, root: Path = ROOT) -> str:
        """What the outcome rests on, but for how it is laid out: the record, the file, and the tests that are named."""
        parts = [repr(self), _meaning(root / self.path, None)]
        for file in dict.fromkeys(test.split("::")[0] for test in self.tests):
            names = frozenset(
                re.findall(rf"{re.escape(file)}::(\w+)", "\n".join(self.tests))
            )
            parts.append(_meaning(root / file, names or None))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _anyhow_broken(text: str) -> str:
    """A pattern for a text with any white space, commas before what closes, and what is
    returned or assigned in brackets of its own or not.
    """
    lines = (line for line in text.split("\n") if line.strip())
    return r"\s*".join(_line(line, number) for number, line in enumerate(lines))


def _line(line: str, number: int) -> str:
    """The pattern of one line; a group tells whether the bracket has to be closed."""
    start = re.match(r"\s*(return |[\w, .]+ = )(?=.*\S)", line)
    if start is None:
        return _spaced(line)
    value = line[start.end() :]
    if _opened(value):
        return _spaced(line)
    group = f"bracket{number}"
    inside = rf"(?P<{group}>\(\s*)?{_spaced(value)}(?({group})\s*,?\s*\))"
    return rf"{_spaced(start[1])}\s*{inside}"


def _opened(text: str) -> bool:
    """Whether a text ends before all of its brackets are closed."""
    return sum(map(text.count, "([{")) != sum(map(text.count, ")]}"))


def _spaced(text: str) -> str:
    tokens = re.findall(r"\w+|[^\w\s]", text)
    pattern = ""
    for before, token in itertools.pairwise(["", *tokens]):
        if re.match(r"\w", token) and re.fullmatch(r"\w+", before):
            pattern += r"\s+"
        elif token in ")]}":
            pattern += r"\s*,?\s*"
        elif before:
            pattern += r"\s*"
        pattern += re.escape(token)
    return pattern


@lru_cache(maxsize=1024)
def _meaning(path: Path, names: frozenset[str] | None) -> str:
    """A file as a tree, of whose tests only some count if these are named."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if names is not None:
        others = (
            node
            for node in tree.body
            if getattr(node, "name", "").startswith("test_") and node.name not in names
        )
        dropped = set(map(id, others))
        tree.body = [node for node in tree.body if id(node) not in dropped]
    return ast.dump(tree)


def planted_in(
    file: str,
    tests: tuple[str, ...],
    *records: tuple[str, str, str, str] | tuple[str, str, str, str, str],
) -> list[Mutant]:
    """Errors in one file that the same tests concern: name, old, new, meaning and, if it has to be, why it survives."""
    return [
        Mutant(name, file, old, new, meaning, tests, *explained)
        for name, old, new, meaning, *explained in records
    ]


def all_mutants() -> list[Mutant]:
    """Every record, room by room."""
    from . import analysis, compiled, equations, gaussian, methods, running

    rooms = (gaussian, equations, methods, compiled, analysis, running)
    return [mutant for room in rooms for mutant in room.MUTANTS]


def stale(mutant: Mutant, root: Path = ROOT) -> str | None:
    """Why a record does not fit the present source any more, or None."""
    path = root / mutant.path
    if not path.exists():
        return f"{mutant.file} is gone"
    text = path.read_text(encoding="utf-8")
    count = len(mutant.matches(text))
    if count != 1:
        return f"its text occurs {count} times in {mutant.file}"
    if mutant.planted(text) == text:
        return "it changes nothing"
    missing = [test for test in mutant.tests if not _there(test, root)]
    return f"there is no {missing[0]}" if missing else None


def _there(test: str, root: Path) -> bool:
    """Whether a file of tests is there, with the function that is named."""
    file, _, name = test.partition("::")
    path = root / file
    return (
        path.exists()
        and f"def {name.partition('[')[0]}("
        in f"{path.read_text(encoding='utf-8')}def ("
    )
