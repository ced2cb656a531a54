"""`compare`: the verdict agrees where theory and experiment do, and differs where they must."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import twolayer as tl
from twolayer import d
from twolayer.running import compare as comparison

PROBLEM = tl.Problem(tl.Teacher("erf", 1), "erf", width=2, noise=0.1)
ALGORITHM = tl.SGD(1 / d)
START = tl.Overlaps(0.7 * np.eye(2) + 0.3, [[0.5], [0.2]], dim=800)


@pytest.fixture(scope="module")
def agreed(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, Path]:
    out = tmp_path_factory.mktemp("compare") / "both"
    tree = tl.compare(PROBLEM, ALGORITHM, None, START, time=2, save=20, seeds=24, quiet=True)
    tl.save(tree, out.with_suffix(".nc"))
    return tree, out


def test_all_applicable_methods_agree(agreed: tuple[object, Path]) -> None:
    tree, _out = agreed
    assert set(tree.children) == {"ode", "sde", "chain", "vectors"}
    assert tree.attrs["reference"] == "ode"
    assert set(tree["verdict"].values) == {"agree"}
    assert sorted(set(tree["quantity"].values)) == ["m1", "risk"]
    # the columns say what the verdict rests on
    risk = tree["chain"]["risk"].values[:, -1]
    row = list(zip(tree["method"].values, tree["quantity"].values, strict=True)).index(("chain", "risk"))
    assert float(tree["mean"][row]) == pytest.approx(risk.mean())
    assert float(tree["standard_error"][row]) == pytest.approx(risk.std(ddof=1) / np.sqrt(24))
    assert float(tree["reference"][row]) == pytest.approx(float(tree["ode"]["risk"][0, -1]), rel=1e-9)
    assert float(tree["deviation"][row]) == pytest.approx(float(tree["mean"][row] - tree["reference"][row]))
    assert 0 < float(tree["allowance"][row]) < 0.01
    # all start from the same overlaps and end at the same time
    for child in tree.children.values():
        np.testing.assert_allclose(child["M"].values[:, 0], np.broadcast_to(START.M, (child.sizes["seed"], 2, 1)))
        assert float(child["time"][-1]) == pytest.approx(2.0)


def test_files_are_written_and_read_back(agreed: tuple[object, Path]) -> None:
    tree, out = agreed
    loaded = tl.load(out.with_suffix(".nc"))
    assert loaded.identical(tree)
    assert tl.plot.save_figure(tl.plot.compare(loaded), out.with_suffix(".png")).stat().st_size > 10_000
    assert "Saad" in tl.cite(loaded)


def test_a_wrong_theory_differs() -> None:
    """Half the learning rate in the experiment's noise term is seen: the verdict can fail."""
    tree = tl.compare(PROBLEM, ALGORITHM, [tl.ODE(), tl.Chain(800)], START, time=2, save=20, seeds=24, quiet=True)
    theory = tl.solve(PROBLEM, tl.SGD(0.5 / d), tl.ODE(), START, time=2, save=20)
    rows = comparison._judge(PROBLEM, START, tree["chain"].to_dataset(), theory, None, 800)
    assert any(row["verdict"] == "differ" for row in rows)
    assert all(row["reason"] for row in rows if row["verdict"] == "differ")


def test_what_refuses_is_skipped_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    tree = tl.compare(
        PROBLEM, tl.SGD(0.5, batch=2 * d), [tl.ODE(), tl.Chain(60), tl.Vectors(60)], START, steps=2, save=1, seeds=4
    )
    assert set(tree.children) == {"chain", "vectors"}
    assert "GiantSteps" in json.loads(tree.attrs["skipped"])["ODE"]
    assert "skipped ODE" in " ".join(capsys.readouterr().out.split())


def test_what_is_not_random_is_told_without_a_verdict(agreed: tuple[Any, Path]) -> None:
    tree, _out = agreed
    theory = tree["ode"].to_dataset()
    other = theory.assign(risk=theory.risk + 0.25)
    rows = comparison._judge(PROBLEM, START, other, theory, None, 0, stochastic=False)
    assert [row["quantity"] for row in rows] == ["risk", "m1"]
    assert rows[0]["deviation"] == pytest.approx(0.25)
    assert {(row["verdict"], row["reason"]) for row in rows} == {("no verdict", "deterministic: no standard error")}
    rows += comparison._judge(PROBLEM, START, tree["chain"].to_dataset(), theory, None, 800)
    told = comparison._tree(["ode"], {"ode": theory}, [{"method": "other", **row} for row in rows], {})
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(comparison.verdict_table(told))
    shown = console.export_text()
    assert "+2.5e-01" in shown
    assert shown.count("unknown") == 2  # C/d of the chain, whose pilot was not run
    assert "other: deterministic: no standard error" in shown
    lost = other.assign(outcome=("seed", np.array(["diverged"], dtype=object)))
    (reason,) = {r["reason"] for r in comparison._judge(PROBLEM, START, lost, theory, None, 0, stochastic=False)}
    assert reason.startswith("it ended early, diverged")


def test_two_dimensions_of_one_method() -> None:
    tree = tl.compare(
        PROBLEM, ALGORITHM, [tl.ODE(), tl.Chain(200), tl.Chain(400)], START, time=0.5, save=4, seeds=8, quiet=True
    )
    assert set(tree.children) == {"ode", "chain_200", "chain_400"}


def test_divergence_gives_no_verdict() -> None:
    problem = tl.Problem("He3(z1)", "He3")
    with pytest.warns(tl.DivergenceWarning):
        tree = tl.compare(
            problem,
            tl.SGD(3 / d),
            [tl.ODE(), tl.Chain(100)],
            tl.Overlaps([[1.0]], [[0.4]]),
            time=4,
            seeds=6,
            quiet=True,
        )
    assert set(tree["verdict"].values) <= {"no verdict", "differ"}


def test_bad_input() -> None:
    with pytest.raises(tl.InputError, match="`start`"):
        tl.compare(PROBLEM, ALGORITHM, time=1)
    with pytest.raises(tl.InputError, match="`methods`"):
        tl.compare(PROBLEM, ALGORITHM, [], START, time=1)
    with pytest.raises(tl.Refused, match="GiantSteps"):
        tl.compare(PROBLEM, tl.SGD(0.5, batch=2 * d), [tl.ODE()], START, steps=2)


def test_a_theory_that_gives_up_does_not_lose_the_experiment() -> None:
    tree = tl.compare(
        PROBLEM, ALGORITHM, [tl.ODE(max_steps=2), tl.Chain(100)], START, time=50, save=4, seeds=4, quiet=True
    )
    assert set(tree["verdict"].values) == {"no verdict"}
    assert "max_steps" in str(tree["reason"].values[0])
    assert tree["chain"].sizes["seed"] == 4
