"""Published set-ups: every one is whole, described in the words of task files, and cited; the quick ones are compared.

The others are compared by `twolayer zoo --check`, which takes some twenty minutes of one core.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import twolayer as tl
from twolayer.cli import main
from twolayer.files.papers import PAPERS
from twolayer.files.taskfile import TaskTable
from twolayer.files.zoo import FOLDER, Reference
from twolayer.files.zoo_quantities import FORMULAS, Measured, from_run
from twolayer.files.zoo_verdict import ReferenceCheck, judge
from twolayer.gallery import reused_samples

ALL = tl.zoo()
QUICK = [name for name, setup in ALL.items() if setup.seconds <= 8]


def test_there_are_many_of_many_papers() -> None:
    assert len(ALL) >= 25
    papers = {setup.papers[0] for setup in ALL.values()}
    sources = {
        "arnaboldi2023escaping",
        "arnaboldi2023dimensionless",
        "benarous2021",
        "xu2023",
        "arnaboldi2024",
    }
    assert len(papers) >= 15 and sources <= papers
    assert {setup.papers[0] for setup in ALL.values()} <= set(PAPERS)
    assert len(list(FOLDER.glob("*.toml"))) == len(papers)


@pytest.mark.parametrize("name", ALL)
def test_a_set_up_is_whole(name: str) -> None:
    setup = tl.zoo(name)
    assert setup.title and setup.place and setup.reference and setup.cite()
    assert setup.start.p == setup.problem.p and setup.start.k == setup.problem.k
    TaskTable.model_validate(dict(setup.tables))  # a task file, word for word
    for method in setup.methods:
        assert method.refusal(setup.problem, setup.algorithm) is None
    runs = [r for r in setup.reference if r.quantity not in FORMULAS and not r.beyond]
    assert bool(setup.run) == bool(setup.methods) == bool(runs)
    text = str(setup)
    assert setup.title in text and PAPERS[setup.papers[0]] in text
    assert all(r.where in text for r in setup.reference)


@pytest.mark.parametrize("name", ALL)
def test_references_fit_the_run(name: str) -> None:
    """As many values as save points, errors to match, changes of keys that exist."""
    setup = tl.zoo(name)
    for reference in setup.reference:
        task = setup.task(reference.changes)
        problem = task.problem()
        task.algorithm()
        if reference.quantity in FORMULAS or reference.beyond:
            continue
        task.start(problem)
        asked = (
            task.table.run.time
            if task.table.run.steps is None
            else task.table.run.steps
        )
        points = asked if reference.at is None else reference.at
        if isinstance(reference.value, list):
            after = [point for point in points if point > 0]
            assert len(reference.value) == len(after)
            assert isinstance(reference.error, float) or len(reference.error) == len(
                after
            )
            assert not reference.difference or 0 in points
        if reference.at is not None:
            assert set(map(float, reference.at)) <= set(map(float, asked))


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_the_package_gives_what_was_published(name: str) -> None:
    check = tl.zoo(name).check()
    assert check.verdict == "agree", str(check)
    for row, reference in zip(check.rows, tl.zoo(name).reference, strict=True):
        if reference.known:
            assert (
                row.verdict == "differ"
                and row.explained
                and reference.known in str(row)
            )
        else:
            assert row.verdict == ("undecided" if reference.beyond else "agree"), str(
                row
            )


def test_quick_ones_are_of_every_kind() -> None:
    """Formulas, and runs of several methods, so that the reading of results is tested for real."""
    named = {m.name for name in QUICK for m in tl.zoo(name).methods}
    assert {"giantsteps", "population", "dmft"} <= named
    assert sum(not tl.zoo(name).methods for name in QUICK) >= 4


def test_a_wrong_description_differs() -> None:
    """The same numbers asked of another rate: the comparison can fail."""
    setup = tl.zoo("arnaboldi2024-polylog")
    tables: Any = {
        **setup.tables,
        "algorithm": {**setup.tables["algorithm"], "geometry": "spherical"},
    }
    check = dataclasses.replace(
        setup, tables=tables, reference=setup.reference[:1]
    ).check()
    assert check.verdict == "differ" and "times what error and tolerance allow" in str(
        check
    )


def measured(value: Any, error: float = 0.0, spread: float = 0.0) -> Measured:
    x = np.asarray(value, dtype=float)
    return Measured(x, np.full_like(x, error), np.full_like(x, spread))


def published(value: Any, **changes: Any) -> Reference:
    return Reference(quantity="risk", value=value, where="somewhere", **changes)


@pytest.mark.parametrize(
    ("reference", "found", "verdict"),
    [
        (published(2), measured(2.0), "agree"),
        (published(2), measured(2.0 + 1e-12), "differ"),
        (published(True), measured(1.0), "agree"),
        (published(1.0, tolerance=0.1), measured(1.09), "agree"),
        (published(1.0, tolerance=0.1), measured(1.11), "differ"),
        (published(1.0, error=0.02), measured(1.08), "agree"),
        (published(1.0, error=0.02), measured(1.1), "differ"),
        (published(1.0), measured(1.08, error=0.02), "agree"),
        (published(1.0, runs=4), measured(1.08, spread=0.04), "agree"),
        (published(1.0, runs=16), measured(1.08, spread=0.04), "differ"),
        (published([1.0, 2.0], error=[0.02, 0.02]), measured([1.0, 2.12]), "differ"),
        (published([1.0, 2.0], error=[0.02, 0.02]), measured([1.0, 2.09]), "agree"),
        (published([1.0, 2.0]), measured([1.0]), "undecided"),
        (published(1.0, error=0.2), measured(1.1), "undecided"),
        (published(0.0, error=0.01), measured(0.001), "undecided"),
        (published(0.0, error=0.01, scale=1.0), measured(0.001), "agree"),
        (published(1.0), measured(np.nan), "differ"),
    ],
)
def test_verdicts(reference: Reference, found: Measured, verdict: str) -> None:
    row = judge(reference, found)
    assert row.verdict == verdict and row.why


def test_the_allowance_is_wider_where_more_is_looked_at() -> None:
    one, many = published(1.0, error=0.01), published([1.0] * 100, error=[0.01] * 100)
    assert judge(one, measured(1.0)).allowance == pytest.approx(
        0.0442, rel=0.01
    )  # 4.42 deviations: 1e-5
    assert judge(many, measured([1.0] * 100)).allowance == pytest.approx(
        0.0533, rel=0.01
    )  # 1e-7


def test_a_known_error_of_the_publication_is_no_disagreement() -> None:
    off = judge(published(1.0, known="a factor of two"), measured(2.0))
    assert (
        off.verdict == "differ" and off.explained and "explained: 2 for 1" in str(off)
    )
    assert ReferenceCheck("x", (off,)).verdict == "undecided"
    good = judge(published(1.0), measured(1.0))
    assert ReferenceCheck("x", (off, good)).verdict == "agree"
    assert (
        ReferenceCheck("x", (judge(published(1.0), measured(2.0)), good)).verdict
        == "differ"
    )


def test_what_cannot_be_computed_is_undecided_with_its_reason() -> None:
    setup = tl.zoo("arnaboldi2023-formulas")
    odd = Reference(
        quantity="annealed", value=1.0, where="nowhere"
    )  # without a threshold
    row = dataclasses.replace(setup, reference=(odd,)).check().rows[0]
    assert row.verdict == "undecided" and "threshold" in row.why


def test_quantities_of_runs() -> None:
    problem = tl.Problem("He2(z1)", "He2", width=2, noise=0.1)
    start = tl.Overlaps([[1.0, -0.06], [-0.06, 1.0]], [[0.3], [-0.2]])
    run = tl.solve(
        problem,
        tl.SGD(lr=0.02, batch=64),
        tl.Chain(40),
        start,
        steps=[0, 1, 2, 4],
        seeds=8,
    )
    M, Q = run.M.values, run.Q.values
    for quantity, values in {
        "risk": run.risk.values,
        "M[2,1]": M[..., 1, 0],
        "Q[1,2]": Q[..., 0, 1],
        "a[1]": run.a.values[..., 0],
        "overlap[1]": np.sqrt((M[..., 0] ** 2).mean(-1)),
        "cosine[2,1]": abs(M[..., 1, 0]) / np.sqrt(Q[..., 1, 1]),
        "max_overlap": M[..., 0].max(-1),
    }.items():
        found = from_run(run, quantity)
        np.testing.assert_allclose(found.value, values[:, 1:].mean(0), rtol=1e-13)
        np.testing.assert_allclose(
            found.error,
            values[:, 1:].std(0, ddof=1) / np.sqrt(8),
            rtol=1e-12,
            atol=1e-18,
        )
    without_the_start = from_run(run.isel(time=slice(1, None)), "risk")
    np.testing.assert_array_equal(without_the_start.value, from_run(run, "risk").value)
    steps = from_run(run, "risk", difference=True)
    np.testing.assert_allclose(steps.value, np.diff(run.risk.values.mean(0)), rtol=1e-9)
    slope = np.log(run.excess_risk.values[:, -1] / run.excess_risk.values[:, -2])
    np.testing.assert_allclose(
        from_run(run, "log_slope").value, (slope / np.log(2)).mean(), rtol=1e-12
    )
    np.testing.assert_allclose(
        from_run(run, "decay").value, (-slope / (2 * 0.02 / 2)).mean(), rtol=1e-12
    )
    for bad, words in (
        ("M[1]", "two numbers"),
        ("train_risk", "reused"),
        ("rsk", "is none of"),
    ):
        with pytest.raises(tl.InputError, match=words):
            from_run(run, bad)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(tl.InputError, match="did you mean 'saad1995-plateau'"):
        tl.zoo("saad1995-plateu")
    with pytest.raises(tl.InputError, match="Argument `name` must be the name"):
        tl.zoo(7)  # type: ignore[arg-type]


def test_a_set_up_cannot_be_changed() -> None:
    setup = tl.zoo("saad1995-plateau")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setup.name = "mine"
    with pytest.raises(TypeError):
        setup.run["time"] = 1
    changed = setup.task({"algorithm.lr": "1/d"})
    assert (
        str(changed.algorithm().lr) == "1/d" and str(setup.algorithm.lr) == "0.5*d**-2"
    )


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(ALL)
    assert (
        main(["zoo", "abbe2023-leap", "--json", "--out", str(tmp_path / "one.json")])
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert shown.pop("files") == [str(tmp_path / "one.json")]
    assert (
        shown["problem"]["target"] == "z1 + z1*z2 + z1*z2*z3"
        and len(shown["reference"]) == 5
    )
    assert json.loads((tmp_path / "one.json").read_text()) == shown
    assert main(["zoo", "abbe2023-leap", "--check"]) == 0
    answer = capsys.readouterr()
    assert (
        answer.out.startswith("abbe2023-leap: agree\n")
        and "[1/1] abbe2023-leap" in answer.err
    )
    assert main(["zoo", "abbe2023-leap", "--check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["abbe2023-leap"]["verdict"] == "agree"
    assert main(["zoo", "abbe2023-lep"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_the_command_fails_where_numbers_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = tl.zoo("abbe2023-leap")
    wrong = dataclasses.replace(
        setup, reference=(published(7).model_copy(update={"quantity": "leap"}),)
    )
    monkeypatch.setattr(
        "twolayer.files.zoo._all", lambda: {"wrong": wrong, "right": setup}
    )
    assert main(["zoo", "--check"]) == 1
    assert capsys.readouterr().out.endswith("1 agree, 1 differ, 0 undecided\n")


def test_the_gallery_draws_published_numbers_where_the_set_up_is_theirs() -> None:
    setup = tl.zoo("dandi2024-reused")
    found = reused_samples._published(setup.problem, setup.algorithm)
    assert {len(values) for values in found.values()} == {6}
    assert found["m1"][-1] == pytest.approx(
        0.2147, abs=2e-3
    )  # what DMFT and runs at d = 5000 give
    other = dataclasses.replace(
        setup.algorithm, lr=1.5 * setup.algorithm.lr.coefficient
    )
    assert reused_samples._published(setup.problem, other) == {}
    with xr.open_dataset(
        Path(__file__).parents[1] / "docs/images/gallery/reused-samples.nc"
    ) as drawn:
        np.testing.assert_array_equal(drawn.published_m1, found["m1"])
