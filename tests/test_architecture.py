"""The house: imports point strictly down, everything public is documented and typed, nothing runs text as code."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import twolayer as tl

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "twolayer"

NAMES = ("errors", "escape", "extend", "layers", "mean_field", "relu", "rules", "scaling", "schedules", "single_index",
         "stability", "types")  # fmt: skip
"""Modules at the root that only gather names, of one source or of one purpose."""

ROOMS = (
    "numerics",  # random streams, statistics, precision, errors
    "functions",  # what is learned, and with what
    "task",  # what is asked
    "equations",  # what one step does, given its samples or their averages
    "gaussian",  # the averages
    "pure",  # the floor for JAX users
    "loops",  # how a run advances
    "compiled",  # straight-line machine code for the chain
    "methods",  # the lenses
    "running",  # from a description to a result
    "analysis",
    "plot",
    "sweeps",
    "files",
    "gallery",
    "explorer",  # the server of the page
    "cli",
    *NAMES,
)
"""From the cellar up: a module imports from its own room and from those before it."""

PACKAGES = ("", "numerics", "functions", "task", "equations", "gaussian", "loops", "compiled", "methods", "methods.dmft",
            "running", "analysis", "analysis.protocols", "analysis.stability", "analysis.thresholds", "files", "gallery.shared",
            "explorer")  # fmt: skip
"""These hold no code, but for the names of the root."""


def name_of(path: Path) -> str:
    return (
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        .removesuffix("__init__")
        .removesuffix(".")
    )


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


@functools.cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree, but for what only type checkers see."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.orelse:
            yield from running(child)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from running(child)


@functools.cache
def imports(name: str) -> tuple[str, ...]:
    """Full names of all modules that a module imports, at its top or inside functions."""
    return tuple(_imports(name))


def _imports(name: str) -> Iterator[str]:
    for node in running(tree_of(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (
                    inner if inner.removeprefix("twolayer.") in MODULES else node.module
                )


def room_of(name: str) -> str:
    return name.split(".")[0]


def test_every_module_has_a_room() -> None:
    at_the_root = {
        name
        for name in MODULES
        if "." not in name and MODULES[name].name != "__init__.py"
    }
    assert at_the_root == {"__main__", "pure", *NAMES}
    assert {room_of(name) for name in MODULES} - {"", "__main__"} == set(ROOMS)
    assert {
        name for name in MODULES if name.startswith("methods.") and "dmft" not in name
    } == {
        f"methods.{word}"
        for word in (
            "chain",
            "first_order",
            "giant",
            "map",
            "meanfield",
            "ode",
            "population",
            "sde",
            "vectors",
        )
    }


def own_imports(name: str) -> set[str]:
    """Modules of the package that a module imports."""
    found = (
        full.removeprefix("twolayer").removeprefix(".")
        for full in imports(name)
        if full.startswith("twolayer")
    )
    return {other for other in found if other not in PACKAGES}


@pytest.mark.parametrize("name", [n for n in MODULES if n not in PACKAGES])
def test_rooms_are_built_on_those_before_them(name: str) -> None:
    height = {room: i for i, room in enumerate(ROOMS)} | {"__main__": len(ROOMS)}
    for other in own_imports(name):
        assert height[room_of(other)] <= height[room_of(name)], (
            f"{name} imports {other}, from a room above its own"
        )


def test_modules_of_a_room_do_not_import_each_other_in_a_circle() -> None:
    graph = {
        name: {x for x in own_imports(name) if x != name}
        for name in MODULES
        if name not in PACKAGES
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_hold_no_code(name: str) -> None:
    body = tree_of(name).body
    ours = [full for full in imports(name) if full.startswith("twolayer")]
    assert ours == [], "their names are imported from where they are defined"
    if name:
        assert len(body) == 1  # the docstring


def test_the_checker_sees_imports_inside_functions() -> None:
    """The rule above would be empty if the parser missed them."""
    assert "twolayer.running.solve" in set(imports("cli.solve"))
    assert "twolayer.files.taskfile" in set(imports("cli.common"))  # inside a function
    assert "twolayer.plot" in set(imports("cli.common"))
    assert all(
        not full.startswith("twolayer") for full in imports("")
    )  # the root names its parts to type checkers only


def test_everything_imported_is_declared() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    lines = [
        *project["dependencies"],
        *itertools.chain(*project["optional-dependencies"].values()),
    ]
    declared = {
        re.split(r"[<>=!~\[ ;]", line)[0].lower().replace("-", "_") for line in lines
    }
    declared = {
        {"pillow": "pil"}.get(name, name) for name in declared
    }  # as it is imported
    for name in MODULES:
        for full in imports(name):
            top = full.split(".")[0]
            assert (
                top == "twolayer"
                or top in sys.stdlib_module_names
                or top.lower() in declared
            ), f"{name}: {full}"


LIGHT = (
    "numerics.columns",
    "numerics.compilation",
    "numerics.durations",
    "numerics.errors",
    "numerics.temporary_files",
    "numerics.tracing",
    "numerics.writing",
    "files.catalogue",
    "cli",
)


def test_heavy_modules_wait_until_they_are_used() -> None:
    """What `twolayer --help` loads has no third-party import at its top."""
    for name in ("", "__main__", *LIGHT, *(n for n in MODULES if n.startswith("cli."))):
        for node in tree_of(name).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                tops = (
                    [a.name for a in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                )
                for top in tops:
                    light = top.startswith(tuple(f"twolayer.{room}" for room in LIGHT))
                    assert light or top.split(".")[0] in sys.stdlib_module_names, (
                        f"{name} imports {top} at once"
                    )


@pytest.mark.parametrize("name", MODULES)
def test_text_is_never_run(name: str) -> None:
    text = MODULES[name].read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])(eval|exec|compile|__import__)\(", text)
    assert not re.search(r"\bimport (pickle|marshal|shelve)\b", text), (
        "files are data, not programs"
    )


@pytest.mark.parametrize("name", MODULES)
def test_public_things_are_documented_and_typed(name: str) -> None:
    tree = tree_of(name)
    assert ast.get_docstring(tree), f"{name} has no docstring"
    public: list[str] = []
    defined: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            defined[node.targets[0].id] = node
            if node.targets[0].id == "__all__":
                public = ast.literal_eval(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined[node.target.id] = node
        elif isinstance(node, ast.ImportFrom):
            defined |= {alias.asname or alias.name: node for alias in node.names}
    if name.startswith("cli."):
        public = [*public, *(n for n in ("add_arguments", "run") if n in defined)]
    assert (
        public
        == sorted(
            public, key=lambda word: (not word.isupper(), not word[0].isupper(), word)
        )
        or not public
    )
    for word in public if name else []:
        assert word in defined, f"{name}.__all__ names {word}, which is not there"
        check(defined[word], f"{name}.{word}")


def check(node: ast.AST, where: str) -> None:
    """Docstring and return annotation of a function, and of a class and its public methods."""
    if isinstance(node, ast.FunctionDef):
        assert ast.get_docstring(node), f"{where} has no docstring"
        assert node.returns is not None, f"{where} does not say what it returns"
    if isinstance(node, ast.ClassDef):
        assert ast.get_docstring(node), f"{where} has no docstring"
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                check(part, f"{where}.{part.name}")


def test_the_root_keeps_its_promises() -> None:
    for word in tl.__all__:
        thing = getattr(tl, word)
        if callable(thing):
            assert thing.__doc__, word
            assert (
                getattr(importlib.import_module(f"twolayer.{tl._HOME[word]}"), word)
                is thing
            )
    assert dir(tl) == sorted(tl.__all__)
    assert set(tl._HOME) | set(tl.NAMESPACES) == set(tl.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Solve'"):
        _ = tl.Solve


@pytest.mark.parametrize("name", NAMES)
def test_namespaces_only_gather(name: str) -> None:
    _, *imported, names = tree_of(name).body
    assert all(isinstance(node, ast.ImportFrom) for node in imported) and isinstance(
        names, ast.Assign
    )
    gathered = {
        alias.name
        for node in imported[1:]
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert gathered == set(ast.literal_eval(names.value))
    space = getattr(tl, name)
    for word in gathered & set(tl.__all__):
        assert getattr(tl, word) is getattr(space, word), (
            f"tl.{word} and tl.{name}.{word} are two things"
        )


def test_the_root_tells_type_checkers_the_same() -> None:
    seen = {
        alias.name: node.module
        for node in ast.walk(tree_of(""))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.startswith("twolayer")
        for alias in node.names
    }
    assert {
        name: f"twolayer.{home}" for name, home in tl._HOME.items()
    } | dict.fromkeys(tl.NAMESPACES, "twolayer") == seen


def test_every_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for name in MODULES:
        for node in tree_of(name).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    assert not {word: where for word, where in homes.items() if len(where) > 1}
