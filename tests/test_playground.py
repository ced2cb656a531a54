"""The playground: a page that stands by itself, numbers that both languages agree on, Python that can be copied."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import twolayer as tl

ROOT = Path(__file__).parent.parent
PAGE = Path(tl.__file__).parent / "explorer" / "static"
REFERENCE = ROOT / "explorer" / "tests" / "reference"


def read(name: str) -> Any:
    return json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "reference", ROOT / "explorer" / "reference.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_stands_by_itself() -> None:
    own = [
        path
        for path in PAGE.iterdir()
        if "explorer" not in path.name and path.suffix != ".woff2"
    ]  # the explorer's
    files = {path.name: path.read_text(encoding="utf-8") for path in own}
    assert set(files) == {
        "playground.html",
        "playground.css",
        "playground.js",
        "third-party.txt",
    }
    assert sum(len(text.encode()) for text in files.values()) < 400_000
    asked = re.findall(r'(?:src|href)="([^"]*)"', files["playground.html"])
    assert [word for word in asked if not word.startswith("data:")] == [
        "playground.css",
        "playground.js",
    ]
    styles = re.findall(r"url\(([^)]{0,9})|@import", files["playground.css"])
    assert styles and all(word.strip('"').startswith("data:") for word in styles)
    assert not re.search(
        r"\b(fetch|eval|importScripts)\(|XMLHttpRequest|new Function",
        files["playground.js"],
    )
    addresses = set(
        re.findall(
            r"https?://[^\s\"'`<>)]*", files["playground.html"] + files["playground.js"]
        )
    )
    assert addresses <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1998/Math/MathML",
    }, "names, not places"


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry", read("copied"), ids=lambda entry: entry["link"][:30] or "default"
)
def test_copied_python_gives_the_numbers_of_the_page(entry: dict[str, Any]) -> None:
    code = "\n".join(
        line for line in entry["code"].splitlines() if not line.startswith("runs =")
    )
    assert ("tl.Chain(" in entry["code"]) == (
        code.count("\n") < entry["code"].rstrip().count("\n")
    )
    names: dict[str, Any] = {}
    exec(compile(code, "copied", "exec"), names)
    last = names["theory"].isel(seed=0, time=-1)
    p, k = last.M.shape
    assert np.abs(last.M.values - np.reshape(entry["M"], (p, k))).max() < 1e-6
    assert np.abs(last.Q.values - np.reshape(entry["Q"], (p, p))).max() < 1e-6
    assert abs(float(last.risk) - entry["risk"]) < 1e-6


def test_reference_runs_are_still_those_of_the_chain(reference: ModuleType) -> None:
    path = next(
        path for path in read("chain")["paths"] if path["name"] == "He2, one neuron"
    )
    task, rows = path["task"], np.array(path["rows"])
    start = tl.Overlaps(rows @ rows.T, rows[:, :1], task["P"], path["a"])
    problem, algorithm = (
        reference.problem_of(task, path["a"]),
        reference.algorithm_of(task),
    )
    result = tl.solve(
        problem,
        algorithm,
        tl.Chain(path["dim"]),
        start,
        steps=100,
        save=path["steps"],
        seeds=3,
        seed=path["seed"],
    )
    assert np.abs(result.M.values - path["M"]).max() < 1e-9


def test_reference_numbers_are_still_those_of_the_generator(
    reference: ModuleType,
) -> None:
    held, made = read("random"), reference.numbers()
    for part, word in (
        ("normals", "values"),
        ("quantiles", "values"),
        ("starts", "Q"),
        ("starts", "M"),
    ):
        for old, new in zip(held[part], made[part], strict=True):
            np.testing.assert_allclose(new[word], old[word], rtol=1e-11, atol=1e-14)
