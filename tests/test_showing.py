"""How objects show themselves: short texts, and pages of well-formed HTML; test_notebook.py looks at them in a notebook."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import twolayer as tl
from twolayer.analysis.recovery import Recovery
from twolayer.analysis.weak_recovery import WeakRecovery
from twolayer.functions.mathml import of_text
from twolayer.numerics.html import table
from twolayer.running.long_names import MEANINGS


def test_results_are_short_in_text(short_results: dict[str, object]) -> None:
    """One line each, with the shapes of arrays and not their numbers."""
    for name, result in short_results.items():
        text = repr(result)
        assert "array(" not in text and "\n" not in text and len(text) < 400, (
            name,
            text,
        )


@pytest.fixture
def short_results() -> dict[str, object]:
    problem, start = tl.Problem("He2(z1)", "He2"), tl.Overlaps([[1.0]], [[0.5]])
    times, steps = np.array([1.0, np.inf]), np.array([10.0, np.inf])
    algorithm = tl.SGD("0.1/d", geometry="projected")
    return {
        "analyse": tl.analyse("z1"),
        "moments": tl.moments(problem, start),
        "rates": tl.rates(problem, algorithm, start),
        "passage": tl.escape.Passage(times, steps, 1, 0, 3.0),
        "landscape": tl.single_index.population_loss(problem),
        "overlaps": start,
    }


def test_results_of_analyses_show_themselves() -> None:
    algorithm = tl.SGD("0.08/d", geometry="projected")
    problem = tl.Problem("z1**2", "square")
    found = Recovery(
        np.array([10.0, 20.0, np.inf]),
        np.array([30.0, np.inf, np.inf]),
        (0.25, 0.75),
        100,
        1,
        500.0,
    )
    weak = WeakRecovery(
        problem,
        algorithm,
        0.5,
        (100, 200),
        np.array([[5.0] * 8, [9.0] * 8]),
        (50, 50),
        ("exact",) * 2,
        "d^1",
    )
    pages = {
        "escape": (tl.escape_time(problem, algorithm, 1000)._repr_html_(), "corrected"),
        "recovery": (found._repr_html_(), "m ≥ 0.25"),
        "weak": (weak._repr_html_(), "d = 200"),
        "landscape": (
            tl.single_index.population_loss(problem)._repr_html_(),
            "information exponent",
        ),
        "moments": (
            tl.moments(problem, tl.Overlaps([[1.0]], [[0.5]]))._repr_html_(),
            "chi",
        ),
    }
    for name, (page, word) in pages.items():
        assert word in page, name
        ElementTree.fromstring(f"<p>{page}</p>")
    assert "&lt;b&gt;" in table(["x"], [["<b>"]]), "text is not a tag"
    for thing in (found, weak):
        assert "array(" not in repr(thing)


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        (
            "z1*z2",
            "<msub><mi>z</mi><mn>1</mn></msub><mo>&#x2062;</mo><msub><mi>z</mi><mn>2</mn></msub>",
        ),
        (
            "-(z1 + 2)",
            "<mo>−</mo><mrow><mo>(</mo><msub><mi>z</mi><mn>1</mn></msub><mo>+</mo><mn>2</mn><mo>)</mo></mrow>",
        ),
        (
            "abs(z1)",
            "<mrow><mo>|</mo><msub><mi>z</mi><mn>1</mn></msub><mo>|</mo></mrow>",
        ),
        ("a teacher & more", "<mtext>a teacher &amp; more</mtext>"),
    ],
)
def test_formulas_as_mathml(formula: str, shown: str) -> None:
    assert of_text(formula) == shown
    ElementTree.fromstring(f"<math>{shown}</math>")


def test_every_variable_says_what_it_is() -> None:
    problem, algorithm = (
        tl.Problem("He2(z1)", "He2"),
        tl.SGD("0.1/d", geometry="projected"),
    )
    run = tl.solve(
        problem,
        algorithm,
        tl.Chain(50),
        tl.Overlaps([[1.0]], [[0.5]]),
        steps=2,
        save=2,
        seeds=2,
    )
    for name, variable in run.variables.items():
        assert (
            variable.attrs["long_name"] == MEANINGS[str(name)]
            and "units" in variable.attrs
        ), name
    assert run.time.attrs["units"] == "" and run.M.attrs["units"] == "1"
    limit = tl.solve(
        problem, algorithm, tl.ODE(), tl.Overlaps([[1.0]], [[0.5]]), time=0.1, save=2
    )
    assert limit.step.attrs == {"units": "d**1", "long_name": MEANINGS["step"]}
