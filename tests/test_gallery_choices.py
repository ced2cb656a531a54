"""Figures of batches, reuse and inputs with another target, activation or geometry: it is computed, named or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import twolayer as tl
from twolayer.gallery.shared import registry

SMALL: dict[str, Any] = {
    "dims": (100, 200, 400),
    "time": 0.05,
    "names": ("norm", "ratio"),
}  # corrections in a second


class Asked(Exception):
    """The first task that a figure sets itself."""


@pytest.fixture
def first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(problem: tl.Problem, algorithm: tl.SGD, *_: object, **__: object) -> None:
        raise Asked(problem.target.name, problem.activation.name, algorithm.geometry)

    for solver in ("solve", "weak_recovery"):
        monkeypatch.setattr(tl, solver, stop)


KEYS = ("target", "activation", "geometry")
BOTH = {"target": "z1 + z1*z2", "activation": "tanh"}
ONE = {"target": "He2(z1)", "activation": "relu"}


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("corrections", {**BOTH, "geometry": "free"}),
        ("three-regimes", {**BOTH, "geometry": "spherical"}),
        ("ode-regimes", {**ONE, "geometry": "spherical"}),
        ("three-blocks", {**ONE, "geometry": "projected"}),
        pytest.param(
            "large-batches", {**ONE, "geometry": "spherical"}, marks=pytest.mark.slow
        ),
        ("giant-step", {"geometry": "spherical"}),
        ("multi-index", {**BOTH, "geometry": "spherical"}),
        ("layerwise", {**BOTH, "geometry": "free"}),
        ("passes", {**ONE, "geometry": "projected"}),
        pytest.param(
            "reuse-minibatch",
            {"activation": "erf", "geometry": "projected"},
            marks=pytest.mark.slow,
        ),
        ("reuse-or-fresh", {"activation": "relu", "geometry": "projected"}),
        ("reuse-patterns", {**BOTH, "geometry": "spherical"}),
        ("reuse-variants", BOTH),
        ("reused-samples", {**BOTH, "geometry": "projected"}),
    ],
)
@pytest.mark.usefixtures("first_task")
def test_what_is_chosen_is_what_is_solved(name: str, chosen: dict[str, str]) -> None:
    with pytest.raises(Asked) as usual:
        registry.run(name, quick=True)
    with pytest.raises(Asked) as other:
        registry.run(name, quick=True, **chosen)
    given = [
        chosen.get(key, default)
        for key, default in zip(KEYS, usual.value.args, strict=True)
    ]
    assert list(other.value.args) == given != list(usual.value.args)


@pytest.mark.slow
def test_what_is_chosen_reaches_the_numbers_and_the_title() -> None:
    compute = registry.figures()["corrections"].compute
    small = {**SMALL, "names": ("norm",)}
    usual, other = compute(**small), compute(**small, **BOTH)
    assert not np.allclose(usual.data.norm, other.data.norm, rtol=0.01)
    assert "target z1 + z1*z2   student tanh" in other.task
    assert "teacher erf, k = 2, a* = 1   student erf" in usual.task


@pytest.mark.slow
@pytest.mark.parametrize("geometry", ["free", "spherical"])
def test_a_correction_of_projected_steps_is_left_out_for_others(geometry: str) -> None:
    compute = registry.figures()["corrections"].compute
    found = compute(**SMALL, geometry=geometry)
    assert "ratio" not in found.data and not any(
        "ratio" in check.text for check in found.verdict.checks
    )
    with pytest.raises(
        tl.InputError, match=f"`names` must be more than 'ratio' for {geometry} steps"
    ):
        compute(**{**SMALL, "names": ("ratio",)}, geometry=geometry)


def test_a_correction_that_plays_no_part_is_not_judged() -> None:
    """Free linear networks have overlaps that no norm enters."""
    chosen = {**SMALL, "names": ("norm",), "activation": "linear", "geometry": "free"}
    assert (
        registry.figures()["corrections"].compute(**chosen).verdict.outcome
        == "undecided"
    )


@pytest.mark.parametrize(
    ("name", "chosen", "words"),
    [
        (
            "corrections",
            {"target": "z1*z2*z3"},
            "`target` must be 'teacher' or a function of z1 and z2 alone",
        ),
        (
            "three-regimes",
            {"target": "z1"},
            "`target` must be 'teacher' or a function of z1 and z2 alone",
        ),
        (
            "ode-regimes",
            {"target": "z1*z2"},
            "`target` must be 'teacher' or a function of z1 alone",
        ),
        (
            "ode-regimes",
            {"geometry": "free"},
            "`geometry` must be one of 'projected', 'spherical'",
        ),
        (
            "three-blocks",
            {"target": "z1*z2"},
            "`target` must be 'teacher' or a function of z1 alone",
        ),
        ("three-blocks", {"activation": "erff"}, "erff"),
        (
            "giant-step",
            {"geometry": "free"},
            "`geometry` must be one of 'projected', 'spherical'",
        ),
        (
            "large-batches",
            {"target": "h3(z1)", "activation": "h3"},
            "`target` must be of information exponent 2",
        ),
        ("large-batches", {"geometry": "free"}, "must be projected or spherical"),
        ("large-batches", {"gamma": 5.0}, "`gamma` must be so small that h2 learns"),
        (
            "best-possible",
            {"targets": ("z1", "z1*z2")},
            "`targets` must be functions of z1 alone, but got 'z1",
        ),
        (
            "passes",
            {"target": "z1*z2"},
            "`target` must be 'teacher' or a function of z1 alone",
        ),
        (
            "reuse-minibatch",
            {"activation": "linear"},
            "`activation` must be one that learns z4 from reused samples",
        ),
        (
            "reuse-patterns",
            {"target": "z1"},
            "`target` must be 'teacher' or a function of z1 and z2 alone",
        ),
        (
            "reuse-variants",
            {"target": "z1"},
            "`target` must be 'teacher' or a function of z1 and z2 alone",
        ),
        ("reused-samples", {"geometry": "round"}, "`geometry` must be one of"),
        ("correlation-loss", {"ell": 1}, "`ell` must be an integer of at least 2"),
    ],
)
def test_what_a_figure_does_not_cover_is_refused_before_any_work(
    name: str, chosen: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_work(*_: object, **__: object) -> None:
        raise AssertionError("work was begun")

    monkeypatch.setattr(tl, "solve", no_work)
    monkeypatch.setattr(tl, "best_possible", no_work)
    with pytest.raises(tl.InputError, match=words):
        registry.run(name, quick=True, **chosen)
