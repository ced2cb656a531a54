"""What tests cost: marks of single cases in a table, and the shares in which the others run.

    default   always
    slow      some seconds; long   some minutes: a share of both in every run of .ci/run,
              after the others. Test i is in share crc32(i) mod n + 1

The share of a test depends on nothing but its name, so runs of all shares, from whatever
commits, leave no test out that has kept its name.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sized(
    cases: Iterable[Any],
    slow: Collection[Any] = (),
    long: Collection[Any] = (),
) -> list[Any]:
    """Return cases for `parametrize`, with a mark for those that are listed.

    A listed name that no case has would leave a costly test among the quick ones, so it
    is an error.
    """
    cases = list(cases)
    unknown = {*slow, *long} - {*cases}
    assert not unknown, f"no case is called {unknown}"
    marked = []
    for case in cases:
        marks = []
        if case in slow:
            marks.append(pytest.mark.slow)
        if case in long:
            marks.append(pytest.mark.long)
        values = case if isinstance(case, tuple) else (case,)
        marked.append(pytest.param(*values, marks=marks))
    return marked


def share_of(name: str, shares: int) -> int:
    """Return the share, from 1 on, to which a test belongs."""
    return zlib.crc32(name.encode()) % shares + 1


def read_share(text: str) -> tuple[int, int]:
    """Return share and number of shares, which are written as in "2/3"."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise pytest.UsageError(f"--share must be k/n with 1 ≤ k ≤ n, but is {text}")
    return int(found[1]), int(found[2])
