"""What the gallery, the zoo and the methods hold, read from their files without
importing anything heavy.

gallery/*.py            @figure("name", "title", quick={…}, fixed={…}, group="…")    is
read, not run docs/gallery.json       settings and cost of recorded versions of figures;
in installed packages gallery/records.json files/published/*.toml  [[setup]] name, title
methods/*.py            papers: ClassVar[…] = ("key", …)
"""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from twolayer.numerics.arguments import Json

__all__ = ["Listed", "gallery", "papers_of", "zoo_titles"]

PACKAGE = Path(__file__).parent.parent
RECORDS = (
    PACKAGE / "gallery" / "records.json",
    PACKAGE.parents[1] / "docs" / "gallery.json",
)
WORDS = ("fixed", "group", "papers")  # of a figure, beside its settings


class Listed(NamedTuple):
    """A figure of the gallery: what it shows, its group, what its versions take,
    settings, what is none, and papers.
    """

    title: str
    group: str
    quick: str
    full: str
    settings: Json
    quick_settings: Json
    fixed: dict[str, str]
    papers: tuple[str, ...]


def gallery() -> dict[str, Listed]:
    """All figures by name, group after group, as `twolayer.gallery.figures` has them.

    Examples
    --------
    >>> gallery()["mediocrity"].group
    'escape'
    """
    folder = PACKAGE / "gallery"
    records = _read(*RECORDS)
    papers = _constant(folder / "shared" / "registry.py", "GROUPS")
    groups = list(papers)
    found: dict[str, Listed] = {}
    for file in sorted(folder.glob("*.py")):
        for call in _decorators(file):
            name, title = (str(ast.literal_eval(argument)) for argument in call.args)
            given = {
                k.arg: ast.literal_eval(k.value)
                for k in call.keywords
                if k.arg in WORDS
            }
            group = given.get("group", groups[0])
            entries = records.get(name, {})
            took = {
                version: _duration(entry["cost"]) for version, entry in entries.items()
            }
            full, quick = (
                entries.get(version, {}).get("settings", {})
                for version in ("full", "quick")
            )
            rest = given.get("fixed", {}), given.get("papers", papers[group])
            found[name] = Listed(
                title,
                group,
                took.get("quick", "?"),
                took.get("full", "?"),
                full,
                quick,
                *rest,
            )
    return dict(
        sorted(found.items(), key=lambda item: (groups.index(item[1].group), item[0]))
    )


def _read(*places: Path) -> Json:
    """The first of these JSON files that is there."""
    return next(
        (dict(json.loads(p.read_text(encoding="utf-8"))) for p in places if p.exists()),
        {},
    )


def _duration(cost: str) -> str:
    """The cost of a record in few characters.

    Examples
    --------
    >>> (
    ...     _duration("13 s on 2 cores"),
    ...     _duration("690 s on 2 cores"),
    ...     _duration("138 s GPU"),
    ... )
    ('13 s', '12 min', '2.3 min GPU')
    """
    number, unit = cost.split()[:2]
    seconds = float(number)
    short = (
        f"{seconds / 60:.2g} min"
        if unit == "s" and seconds > 99
        else f"{number} {unit}"
    )
    return short + (" GPU" if cost.endswith("GPU") else "")


def _decorators(file: Path) -> list[ast.Call]:
    """The calls of ``figure`` that decorate the functions of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    calls = [
        node
        for f in tree.body
        if isinstance(f, ast.FunctionDef)
        for node in f.decorator_list
    ]
    return [
        c
        for c in calls
        if isinstance(c, ast.Call)
        and isinstance(c.func, ast.Name)
        and c.func.id == "figure"
    ]


def _constant(file: Path, name: str) -> Any:
    """The value of a name that a file assigns at its top."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return ast.literal_eval(node.value)
    raise LookupError(f"{file.name} does not assign {name}")


def zoo_titles() -> dict[str, str]:
    """Names and titles of all published set-ups.

    Examples
    --------
    >>> "saad1995-plateau" in zoo_titles()
    True
    """
    pages = (
        tomllib.loads(f.read_text("utf-8"))
        for f in sorted((PACKAGE / "files" / "published").glob("*.toml"))
    )
    return {setup["name"]: setup["title"] for page in pages for setup in page["setup"]}


def papers_of(method: str) -> tuple[str, ...] | None:
    """Keys of the papers behind a method of the package, by its word in files and
    flags; None where it is no such word.

    Examples
    --------
    >>> papers_of("population"), papers_of("nonsense")
    (('xu2023',), None)
    """
    for file in (PACKAGE / "methods").rglob("*.py"):
        for cls in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(cls, ast.ClassDef) or cls.name.lower() != method.lower():
                continue
            for node in cls.body:
                if (
                    isinstance(node, ast.AnnAssign)
                    and getattr(node.target, "id", "") == "papers"
                    and node.value
                ):
                    return tuple(map(str, ast.literal_eval(node.value)))
    return None
