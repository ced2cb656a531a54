"""The table of statements of the sources, and proofs that carry their names.

proves = Proofs("000")

@proves("000-09")
def the_ode() -> None: …

@pytest.mark.parametrize("proof", proves.cases())
def test_statement(proof) -> None: proof()
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chance import sigmas
from cost import sized

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "sources"
TABLE: dict[str, list[dict[str, Any]]] = tomllib.loads(
    (FOLDER / "statements.toml").read_text(encoding="utf-8")
)
STATEMENTS: dict[str, dict[str, Any]] = {
    row["id"]: row for rows in TABLE.values() for row in rows
}


class Proofs:
    """Proofs of the statements of one source, by their numbers."""

    def __init__(self, source: str) -> None:
        self.source, self.found = source, dict[str, Callable[[], None]]()

    def __call__(
        self, *keys: str
    ) -> Callable[[Callable[[], None]], Callable[[], None]]:
        def register(proof: Callable[[], None]) -> Callable[[], None]:
            for key in keys:
                assert key in STATEMENTS and key not in self.found, key
                self.found[key] = proof
            return proof

        return register

    def cases(
        self, slow: Collection[str] = (), long: Collection[str] = ()
    ) -> list[Any]:
        """Parameters with ids such as "000-09 The ODE of one neuron", and marks for those listed."""
        cases = []
        for keyed in sized(sorted(self.found), slow, long):
            (key,) = keyed.values
            name = f"{key} {STATEMENTS[key]['title']}"
            cases.append(pytest.param(self.found[key], id=name, marks=keyed.marks))
        return cases


def within(samples: np.ndarray, expected: Any, slack: float = 0.0) -> None:
    """The mean of samples along their first axis is what is expected, up to standard errors.

    Where something other than zero is expected, twice or half of it would have failed.
    """
    expected = np.asarray(expected)
    allowed = (
        sigmas(samples[0].size, len(samples) - 1)
        * samples.std(axis=0, ddof=1)
        / np.sqrt(len(samples))
        + slack
    )
    gap = np.abs(samples.mean(axis=0) - expected)
    assert (gap <= allowed).all(), (samples.mean(axis=0), expected, allowed)
    assert not expected.any() or (np.abs(expected) > 4 * allowed).any(), (
        "no power",
        expected,
        allowed,
    )
