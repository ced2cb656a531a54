"""The budget of false alarms of this suite, counted."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from chance import BUDGET, LEVEL, judgements, sigmas


def test_the_level_is_that_of_a_maximum() -> None:
    """Of 40 000 maxima over 12 normal numbers, as many exceed the bound of a level as the level says."""
    rng = np.random.default_rng(0)
    largest = np.abs(rng.normal(size=(40_000, 12))).max(axis=1)
    from twolayer.numerics.significance import limit_of

    seen = (largest > limit_of(12, level=0.01)).mean()
    assert abs(seen - 0.01) < sigmas() * np.sqrt(0.01 / 40_000) + 0.01**2
    assert sigmas(12) > sigmas() > 4.4 and sigmas(12, 15) > sigmas(12)


def test_all_judgements_together_stay_within_the_budget(
    request: pytest.FixtureRequest,
) -> None:
    """Every call of `sigmas`, as often as its test is run with other parameters."""
    items = [
        item for item in request.session.items if isinstance(item, pytest.Function)
    ]
    functions = [item.function for item in items]
    for item in items:  # proofs of statements are parameters of one test
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        functions += [
            x
            for x in given
            if inspect.isfunction(x) and x.__module__.startswith("test_")
        ]
    each = {function: judgements(function) for function in set(functions)}
    total = sum(each[function] for function in functions)
    assert total * LEVEL <= BUDGET, total
    assert judgements(test_the_level_is_that_of_a_maximum) == 5  # it counts at all


def test_no_other_bound_is_set_by_hand() -> None:
    """Multiples of standard errors are those of `sigmas`."""
    by_hand = re.compile(
        r"< (3|4|4\.5|5|6)(\.0)? \* \(?\w*(error|spread|standard_error|sem|fluctuations)\b"
    )
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not by_hand.search(line), f"{path.name}: {line.strip()}"
