"""The house: imports point strictly down, everything public is documented and typed, nothing runs text as code."""

from __future__ import annotations

import ast
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

HOUSE = """
__main__
cli
cli.compare cli.rerun
cli.about cli.analyse cli.cite cli.escape cli.gallery cli.moments cli.phase_diagram cli.plot cli.recovery cli.solve cli.sweep
cli.common
gallery.batch_size gallery.correlation_loss gallery.corrections gallery.escape_dimension gallery.escape_learning_rate gallery.escape_width gallery.giant_step gallery.large_batches gallery.layerwise_training gallery.loss_switch gallery.mediocrity gallery.multi_index gallery.phase_diagrams gallery.recovery_samples gallery.recovery_times gallery.recovery_trajectories gallery.reuse_minibatch gallery.reuse_or_fresh gallery.reuse_variants gallery.reused_samples gallery.second_layer gallery.staircases gallery.stochasticity gallery.three_regimes gallery.trajectories
gallery.last_mile_angles gallery.ode_to_mean_field gallery.overlap_animation gallery.published_comparisons gallery.sgd_to_ode gallery.specialisation
gallery
gallery.batching gallery.last_mile
gallery.measuring gallery.recovering gallery.stepping gallery.wide
gallery.registry
gallery.parts
taskfile comparison
analysis.escape analysis.recovery analysis.weak_recovery
analysis.phases
analysis.mediocrity analysis.passage analysis.population_loss analysis.prefactors analysis.relu_students analysis.second_layer
stages sweeps.api
sweeps.driver
sweeps.files sweeps.planning
sweeps.store
sweeps.table
sweeps.batch
sweeps.grid
sweeps.reductions sweeps.reporting sweeps.executors
plot
plot.pair
plot.averages plot.dynamics plot.measure plot.phases plot.target
plot.style analysis.measure
environment solving
results progress
run
methods.giant methods.meanfield methods.population methods.rates methods.sde
methods.map
methods.mean_step
methods.step_spread
methods.fluctuations methods.chain methods.dmft methods.ode methods.vectors
methods.averaged methods.dmft_fields methods.inputs
methods.flow methods.dmft_weights
methods.stepwise methods.batch_sums
methods.base
gaussian.descent gaussian.moments gaussian.risk gaussian.wide
gaussian.engines gaussian.ensemble
gaussian.variance
gaussian.targets
gaussian.nodes
gaussian.full gaussian.erf gaussian.polynomial gaussian.relu gaussian.quadratic
gaussian.averages gaussian.forms
gaussian.quadrature gaussian.sampling
kernel
particles
overlaps clocks
problem regimes
algorithm
scaling
functions.exponents
functions.target
functions.activation
functions.expression
functions.typeset functions.kinks functions.integrable
functions.syntax functions.hermite
losses wishart papers statistics
random files
errors precision
"""
"""The rooms from the roof down: a module imports from lines below its own only."""

LEVEL = {name: -i for i, line in enumerate(HOUSE.strip().splitlines()) for name in line.split()}
PACKAGES = (
    "functions",
    "gaussian",
    "methods",
    "analysis",
    "sweeps",
    "",
)  # these hold no code, but for the names of the root


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


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


def imports(name: str) -> Iterator[str]:
    """Full names of all modules that a module imports, at its top or inside functions."""
    for node in running(tree_of(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner.removeprefix("twolayer.") in MODULES else node.module


def test_the_list_is_complete() -> None:
    listed = HOUSE.split()
    assert len(listed) == len(set(listed)), "a module has two places"
    missing = set(MODULES) - set(PACKAGES) - set(listed)
    assert not missing, f"give these modules a line in HOUSE: {sorted(missing)}"
    assert set(listed) <= set(MODULES), f"not there any more: {sorted(set(listed) - set(MODULES))}"


@pytest.mark.parametrize("name", [n for n in MODULES if n not in PACKAGES])
def test_imports_point_down(name: str) -> None:
    for full in imports(name):
        other = full.removeprefix("twolayer").removeprefix(".")
        if full.split(".")[0] == "twolayer" and other not in PACKAGES:
            assert LEVEL[other] < LEVEL[name], f"{name} imports {other}, which is not below it"


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_hold_no_code(name: str) -> None:
    body = tree_of(name).body
    ours = [full for full in imports(name) if full.startswith("twolayer")]
    assert ours == [], "their names are imported from where they are defined"
    if name:
        assert len(body) == 1  # the docstring


def test_the_checker_sees_imports_inside_functions() -> None:
    """The rule above would be empty if the parser missed them."""
    assert "twolayer.solving" in set(imports("cli.solve"))
    assert "twolayer.taskfile" in set(imports("cli.common"))  # inside a function
    assert "twolayer.plot" in set(imports("cli.analyse"))
    assert all(
        not full.startswith("twolayer") for full in imports("")
    )  # the root names its parts to type checkers only


def test_everything_imported_is_declared() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {re.split(r"[<>=!~\[ ;]", line)[0].lower().replace("-", "_") for line in lines}
    for name in MODULES:
        for full in imports(name):
            top = full.split(".")[0]
            assert top == "twolayer" or top in sys.stdlib_module_names or top.lower() in declared, f"{name}: {full}"


def test_heavy_modules_wait_until_they_are_used() -> None:
    """What `twolayer --help` loads has no third-party import at its top."""
    for name in ("", "__main__", "errors", "files", "cli", *(n for n in MODULES if n.startswith("cli."))):
        for node in tree_of(name).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                tops = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                for top in tops:
                    light = top in ("twolayer.errors", "twolayer.files") or top.startswith("twolayer.cli")
                    assert light or top.split(".")[0] in sys.stdlib_module_names, f"{name} imports {top} at once"


@pytest.mark.parametrize("name", MODULES)
def test_text_is_never_run(name: str) -> None:
    text = MODULES[name].read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])(eval|exec|compile|__import__)\(", text)
    assert not re.search(r"\bimport (pickle|marshal|shelve)\b", text), "files are data, not programs"


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
    assert public == sorted(public, key=lambda word: (not word.isupper(), not word[0].isupper(), word)) or not public
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
            assert getattr(importlib.import_module(f"twolayer.{tl._HOME[word]}"), word) is thing
    assert dir(tl) == sorted(tl.__all__)
    assert set(tl._HOME) | {"gallery", "plot"} == set(tl.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Solve'"):
        _ = tl.Solve


def test_the_root_tells_type_checkers_the_same() -> None:
    seen = {
        alias.name: node.module
        for node in ast.walk(tree_of(""))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("twolayer")
        for alias in node.names
    }
    assert {name: f"twolayer.{home}" for name, home in tl._HOME.items()} | dict.fromkeys(
        ("gallery", "plot"), "twolayer"
    ) == seen


def test_files_hold_one_idea_each() -> None:
    lengths = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES.values())
    assert lengths[len(lengths) // 2] < 200
    assert lengths[-1] <= 600
