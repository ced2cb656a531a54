"""What the site is made of: every public name has an entry, every notebook a place, every figure a picture of today.

The site itself is built by .ci/run, with warnings as errors; here is what can be asked without the tools for it.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib
import inspect
import json
import re
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

import twolayer as tl
from twolayer.files.results import save
from twolayer.gallery.shared import pictures, records, registry

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted(
    page for page in (DOCS / "tutorials").glob("*.md") if page.stem != "index"
)
PICTURES = DOCS / pictures.FOLDER
BUILD = "sphinx-build -W --keep-going -q -j 2 docs docs/_build/html"


def public() -> list[str]:
    """twolayer.solve, twolayer.escape.Passage, …; what stands in a namespace too has one entry, at the top."""
    spaces = {
        "twolayer": tl,
        **{f"twolayer.{name}": getattr(tl, name) for name in tl.NAMESPACES},
    }
    every = [
        (f"{space}.{name}", getattr(module, name))
        for space, module in spaces.items()
        for name in module.__all__
    ]
    top = {id(value) for name, value in every if name.count(".") == 1}
    return [
        name
        for name, value in every
        if not inspect.ismodule(value)
        and (name.count(".") == 1 or id(value) not in top)
    ]


def entries() -> list[str]:
    """The names that pages of the reference ask for."""
    found = []
    for page in sorted((DOCS / "reference").glob("*.md")):
        for space, body in re.findall(
            r"^:::\{names\} ([\w.]+)\n(.*?)^:::$",
            page.read_text(encoding="utf-8"),
            re.M | re.S,
        ):
            names = body.split() or [
                name.rpartition(".")[2]
                for name in public()
                if name.rpartition(".")[0] == space
            ]
            found += [f"{space}.{name}" for name in names]
    return found


def test_every_public_name_has_one_entry() -> None:
    assert sorted(entries()) == sorted(public())


def object_of(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def test_every_public_name_has_an_example() -> None:
    """Its own, or for a result that of the function that makes it."""
    docs = {name: inspect.getdoc(object_of(name)) or "" for name in public()}
    shown = {name.rpartition(".")[2] for name, doc in docs.items() if ">>>" in doc}
    bare = [
        name
        for name, doc in docs.items()
        if ">>>" not in doc and not shown.intersection(makers(doc))
    ]
    assert not bare


def makers(doc: str) -> list[str]:
    """The functions or classes that a docstring says an object is made by."""
    named = re.search(r"Made by((?:[,\s]|and|`[\w.]+`)+)", doc)
    return re.findall(r"`(\w+)", named[1]) if named else []


def told(doc: str) -> set[str]:
    """Arguments that the sections of a docstring have words for: ``name : type``, and at least a line below it."""
    found: set[str] = set()
    for section in re.findall(
        r"(?:Parameters|Attributes)\n-+\n(.*?)(?=\n\n|\Z)", doc, re.S
    ):
        for head, text in re.findall(
            r"^(\S.*)\n((?:[ ]+\S.*\n?)*)", section + "\n", re.M
        ):
            found |= (
                {
                    word.strip().lstrip("*")
                    for word in head.partition(" : ")[0].split(",")
                }
                if text
                else set()
            )
    return found


def wordless(name: str, value: Any) -> list[str]:
    """Arguments of a function, of a class and of its methods that nothing is said about.

    Methods may name theirs in the sentence that they have, and need not repeat what a method that they override says.
    """

    def missing(label: str, function: Any, words: set[str]) -> list[str]:
        asked = [
            n
            for n in inspect.signature(function).parameters
            if n not in ("self", "cls") and n[0] != "_"
        ]
        return [f"{label}({argument})" for argument in asked if argument not in words]

    if not inspect.isclass(value):
        return (
            missing(name, value, told(inspect.getdoc(value) or ""))
            if inspect.isroutine(value)
            else []
        )
    found = []
    # nobody makes a result by hand, so its entry has no arguments
    result = name.startswith("twolayer.types.")
    plain_error = issubclass(value, BaseException) and "__init__" not in vars(value)
    if not result and not plain_error:
        found += missing(name, value, told(inspect.getdoc(value) or ""))
    for word, method in vars(value).items():
        if word.startswith("_") or not isinstance(
            method, types.FunctionType | classmethod | staticmethod
        ):
            continue
        docs = [
            inspect.getdoc(vars(base)[word]) or ""
            for base in value.__mro__
            if word in vars(base)
        ]
        words = {
            argument
            for doc in docs
            for argument in (told(doc) | set(re.findall(r"``(\w+)(?:\(\w*\))?``", doc)))
        }
        found += missing(f"{name}.{word}", getattr(value, word), words)
    return found


def test_every_argument_of_a_public_name_has_words() -> None:
    found = [
        argument for name in public() for argument in wordless(name, object_of(name))
    ]
    assert not found, found


ELSEWHERE = {
    "Any",
    "Axes",
    "Callable",
    "Figure",
    "Float",
    "Hashable",
    "Iterable",
    "Mapping",
    "None",
    "Path",
    "Sequence",
}
ELSEWHERE |= {
    "Animation",
    "Registered",  # the class that a decorator was given and gives back
    "jax.Array",
    "np.ndarray",
    "os.PathLike",
    "xr.DataArray",
    "xr.DataTree",
    "xr.Dataset",
}


def types_of(function: Any) -> set[str]:
    """Names in the annotations of a function that are no types of Python, NumPy, JAX, xarray or matplotlib."""
    signature = inspect.signature(function)
    asked = [
        known.annotation
        for known in signature.parameters.values()
        if known.name[0] != "_"
    ]
    texts = [
        getattr(x, "__forward_arg__", x) for x in (*asked, signature.return_annotation)
    ]
    found = {
        word
        for x in texts
        if isinstance(x, str)
        for word in re.findall(r"[A-Za-z_][\w.]*", re.sub("([\"']).*?\\1", "", x))
    }
    return {
        word for word in found if word not in ELSEWHERE and not hasattr(builtins, word)
    }


def test_every_type_in_a_signature_is_explained() -> None:
    """The public ones have their entries; the others stand on two pages, from which Sphinx makes the links."""
    pages = [
        (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
        for page in ("types", "returned")
    ]
    explained = {name.rpartition(".")[2] for name in public()}
    explained |= set(re.findall(r"^:::\{py:type\} (\w+)$", pages[0], re.M))
    explained |= set(re.findall(r"^twolayer\.[\w.]+\.(\w+)$", "\n".join(pages), re.M))
    aliases = re.findall(
        r'"(\w+)"',
        re.search(
            r"^_aliases = \((.*?)\)$", (DOCS / "conf.py").read_text(), re.M | re.S
        )[1],
    )  # type: ignore[index]
    assert set(aliases) <= explained
    values = {name: object_of(name) for name in public()}
    # the entries of results and of exceptions show no arguments
    asked = {
        name: value
        for name, value in values.items()
        if callable(value)
        and not name.startswith("twolayer.types.")
        and not (inspect.isclass(value) and issubclass(value, BaseException))
    }
    unknown = {
        name: found
        for name, value in asked.items()
        if (found := types_of(value) - explained)
    }
    assert not unknown, unknown


def test_arguments_without_words_are_seen() -> None:
    def half(told: int, bare: int, missing: int) -> None:
        """Two of three go without.

        Parameters
        ----------
        told : int
            Something.
        bare : int
        """

    class Base:
        """Nothing to make it of."""

        def method(self, one: int, two: int) -> None:
            """Do something with ``one``."""

    class Child(Base):
        """The same."""

        def method(self, one: int, two: int) -> None:
            """Do something else."""

    assert wordless("half", half) == ["half(bare)", "half(missing)"]
    assert wordless("Child", Child) == ["Child.method(two)"]


def cells(page: Path) -> list[str]:
    return re.findall(
        r"^```\{code-cell\}\n(.*?)^```$",
        page.read_text(encoding="utf-8"),
        flags=re.M | re.S,
    )


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_notebooks_can_be_downloaded_and_read(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("---\nfile_format: mystnb\n")
    assert f"<{page.stem}.ipynb>" in text
    assert len(cells(page)) >= 5
    for cell in cells(page):
        ast.parse(cell)
    index = (DOCS / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert f"]({page.name})" in index and f"\n{page.stem}\n" in index


def test_there_is_a_notebook_on_every_subject() -> None:
    assert len(NOTEBOOKS) >= 9


def kept() -> dict[str, dict[str, Any]]:
    return pictures.known(PICTURES)


def stale(
    name: str, shown: dict[str, Any], recorded: dict[str, Any], folder: Path
) -> list[str]:
    """Why a stored figure is not that of the figure as it is: its settings, its verdict, its picture or its data."""
    picture, data = folder / f"{name}.webp", folder / f"{name}.nc"
    found = []
    if shown["settings"] != records.settings_of(
        registry.figures()[name], shown["version"]
    ):
        found.append("its settings are no longer those of the figure")
    if any(shown[key] != recorded[key] for key in ("settings", "seed", "data")):
        found.append("its verdict was recorded from another run")
    if f"sha256:{hashlib.sha256(picture.read_bytes()).hexdigest()}" != shown["picture"]:
        found.append("its picture is another one")
    if picture.stat().st_size > pictures.LARGEST:
        found.append("its picture is too large")
    if data.exists() and records.fingerprint(tl.load(data)) != shown["data"]:
        found.append("its data are those of another run")
    if data.exists() and data.stat().st_size > pictures.LARGEST_DATA:
        found.append("its data are too large")
    return found


@pytest.mark.parametrize("name", list(kept()))
def test_every_picture_is_that_of_the_figure_as_it_is(name: str) -> None:
    shown = kept()[name]
    assert (
        stale(
            name,
            shown,
            records.read(DOCS / "gallery.json")[name][shown["version"]],
            PICTURES,
        )
        == []
    )


def test_stale_pictures_are_seen(tmp_path: Path) -> None:
    name = "last-mile"
    shown = kept()[name]
    recorded = records.read(DOCS / "gallery.json")[name][shown["version"]]
    for file in (f"{name}.webp", f"{name}.nc"):
        (tmp_path / file).write_bytes((PICTURES / file).read_bytes())
    assert stale(name, shown, recorded, tmp_path) == []
    other = {**shown, "settings": {**shown["settings"], "lr": 0.123}}
    assert (
        len(stale(name, other, recorded, tmp_path)) == 2
    )  # neither those of the figure nor those of the verdict
    assert stale(name, shown, {**recorded, "data": "sha256:0"}, tmp_path) == [
        "its verdict was recorded from another run"
    ]
    save(tl.load(tmp_path / f"{name}.nc") * 1.0000001, tmp_path / f"{name}.nc")
    (tmp_path / f"{name}.webp").write_bytes(b"RIFF")
    assert stale(name, shown, recorded, tmp_path) == [
        "its picture is another one",
        "its data are those of another run",
    ]


def test_no_picture_is_left_over() -> None:
    assert (
        {path.stem for path in PICTURES.glob("*.webp")}
        == set(kept())
        <= set(registry.figures())
    )
    assert {path.stem for path in PICTURES.glob("*.nc")} <= set(kept())
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) < 15_000_000


def test_every_figure_is_shown_in_full_with_its_data() -> None:
    whole = {
        name
        for name, shown in kept().items()
        if shown["version"] == "full" and (PICTURES / f"{name}.nc").exists()
    }
    lacking = set(registry.figures()) - whole
    assert not lacking


@pytest.mark.slow
def test_pictures_are_kept_and_full_ones_stay(tmp_path: Path) -> None:
    plate = tl.gallery.run("mediocrity", quick=True)
    quick, full = (
        {"version": v, "settings": {"n": n}, "seed": 0, "data": ""}
        for v, n in (("quick", 1), ("full", 9))
    )
    assert (
        pictures.keep(plate, tmp_path, quick, {"n": 9}) == tmp_path / "mediocrity.webp"
    )
    assert tl.load(tmp_path / "mediocrity.nc").identical(plate.data)
    small = (tmp_path / "mediocrity.webp").read_bytes()
    assert (
        pictures.redraw("mediocrity", tmp_path).read_bytes() == small
    )  # the same picture from its data
    assert small[:4] == b"RIFF" and len(small) <= pictures.LARGEST
    assert pictures.keep(plate, tmp_path, full, {"n": 9}) is not None
    assert pictures.keep(plate, tmp_path, quick, {"n": 9}) is None
    assert (
        json.loads((tmp_path / "pictures.json").read_text())["mediocrity"]["version"]
        == "full"
    )
    # when the figure has other settings the old one goes
    assert pictures.keep(plate, tmp_path, quick, {"n": 10}) is not None
    assert pictures.known(tmp_path)["mediocrity"]["version"] == "quick"


def test_the_check_of_the_repository_builds_the_site() -> None:
    assert (
        f"uv run --group docs {BUILD}"
        in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    )
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "dependency-groups"
    ]
    assert any(line.startswith("sphinx>") for line in groups["docs"])
    assert not any(
        "sphinx" in line or "myst" in line for line in groups["dev"]
    )  # the tests do without


def test_links_to_the_playground_are_understood() -> None:
    """Every word of a state is a key that the page knows."""
    keys = set(
        re.findall(
            r"^  (\w+): ",
            (ROOT / "explorer/src/playground/state.ts").read_text().split("CODECS")[1],
            re.M,
        )
    )
    source = ast.parse((DOCS / "_ext" / "pictures.py").read_text(encoding="utf-8"))
    texts = [
        n.value
        for n in ast.walk(source)
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    states = [
        text.strip("&") for text in texts if re.fullmatch(r"&?(\w+=[\w.,]+&?)+", text)
    ]
    assert len(states) >= 8
    assert {
        word.partition("=")[0] for state in states for word in state.split("&")
    } <= keys
