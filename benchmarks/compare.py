"""Two records of benchmarks side by side: what became slower, and what became faster.

    uv run python benchmarks/run.py --record            a record in benchmarks/history
    uv run python benchmarks/compare.py OLD.json NEW.json
    uv run python benchmarks/compare.py                 the two newest of this machine

Rows are found again by what names them (texts and whole numbers), and their measured
numbers are compared column by column. Ratios mean something only where both records
were taken on the same quiet machine: the command says what differs between them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).parent / "history"
SURROUNDINGS = ("machine", "cores", "device", "python", "jax", "seconds")
WORSE = 1.25  # smaller changes are noise of the machine
# columns in which more is better; in the others it is less
RATES = ("steps", "inputs", "rate", "/s", "compiled", "limit", "JAX", "NumPy")

Key = tuple[str, ...]


def name_of(row: dict[str, Any]) -> Key:
    """Return what tells a row from the others: its texts and whole numbers."""
    return tuple(
        f"{column} {value}" if isinstance(value, int) else str(value)
        for column, value in row.items()
        if isinstance(value, str | int) and not isinstance(value, bool)
    )


def numbers(record: dict[str, Any]) -> Iterator[tuple[Key, str, float]]:
    """Yield table and row, column and value of everything that was measured."""
    for table, rows in record.items():
        if not isinstance(rows, list):
            continue
        for row in rows:
            for column, value in row.items():
                if isinstance(value, float):
                    yield (table, *name_of(row)), column, value


def more_is_better(table: str, column: str) -> bool:
    """Whether a column holds rates rather than times or errors."""
    return table in ("rates", "device") and any(word in column for word in RATES)


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[float, str]]:
    """Return the cost of every number in both records, new over old, worst first."""
    before = {(key, column): value for key, column, value in numbers(old)}
    found = []
    for key, column, value in numbers(new):
        earlier = before.get((key, column))
        if not earlier or not value:
            continue
        cost = value / earlier
        if more_is_better(key[0], column):
            cost = earlier / value
        text = f"{', '.join(key)} | {column}: {earlier:.4g} -> {value:.4g}"
        found.append((cost, text))
    return sorted(found, reverse=True)


def newest() -> list[Path]:
    """Return the two newest records of one machine."""
    records = sorted(HISTORY.glob("*.json"))
    if not records:
        sys.exit("There is no record yet: run benchmarks/run.py --record.")
    last = json.loads(records[-1].read_text(encoding="utf-8"))
    alike = [
        path
        for path in records
        if all(
            json.loads(path.read_text(encoding="utf-8")).get(name) == last.get(name)
            for name in ("machine", "cores", "device")
        )
    ]
    if len(alike) < 2:
        sys.exit(f"{records[-1].name} is the only record of its machine.")
    return alike[-2:]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("records", nargs="*", type=Path, metavar="RECORD.json")
    given = parser.parse_args()
    if len(given.records) not in (0, 2):
        parser.error("give two records, or none for the two newest of this machine")
    old_path, new_path = given.records or newest()
    old = json.loads(old_path.read_text(encoding="utf-8"))
    new = json.loads(new_path.read_text(encoding="utf-8"))
    print(f"{old_path.name} -> {new_path.name}")
    for name in SURROUNDINGS:
        if old.get(name) != new.get(name):
            print(f"  {name} differs: {old.get(name)} and {new.get(name)}")
    found = compare(old, new)
    slower = [text for cost, text in found if cost > WORSE]
    faster = [text for cost, text in reversed(found) if cost < 1 / WORSE]
    for title, lines in (("slower", slower), ("faster", faster)):
        print(f"\n{title} by more than {WORSE - 1:.0%}: {len(lines)} of {len(found)}")
        for line in lines:
            print(f"  {line}")


if __name__ == "__main__":
    main()
