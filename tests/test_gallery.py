"""The gallery: every figure in its quick version through the command line, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.cli import main
from twolayer.files.papers import PAPERS
from twolayer.gallery import mediocrity, trajectories
from twolayer.gallery.shared import measuring, registry
from twolayer.gallery.shared.parts import part

NAMES = tuple(registry.figures())
ONE_OF_EACH = ("mediocrity", "specialisation", "last-mile-angles", "corrections", "staircases")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All figures with ``--every-figure``, one of each group without."""
    if metafunc.function is test_every_figure_writes_its_files_and_agrees:
        metafunc.parametrize("name", NAMES if metafunc.config.getoption("--every-figure") else ONE_OF_EACH)


def test_the_figures_drawn_stand_for_all_groups() -> None:
    assert [registry.figures()[name].group for name in ONE_OF_EACH] == list(registry.GROUPS)


def test_every_figure_writes_its_files_and_agrees(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gallery", "run", name, "--quick", "--out", str(tmp_path / "new"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["agrees"] is True
    assert "nan" not in said["verdict"]
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(Path(f).name for f in said["files"])
    assert {f"{name}.nc", f"{name}.png"} <= {Path(f).name for f in said["files"]}
    assert (tmp_path / "new" / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    data = tl.load(tmp_path / "new" / f"{name}.nc")
    assert data.attrs["verdict"] == said["verdict"]
    assert set(json.loads(data.attrs["settings"])) == {*registry.figures()[name].settings, "seed"}
    assert all(PAPERS[key] in tl.cite(data) for key in registry.figures()[name].papers)


def test_every_figure_is_described_with_its_command_and_its_verdict() -> None:
    text = (Path(__file__).parents[1] / "docs" / "gallery.md").read_text(encoding="utf-8")
    sections = {part.split("\n")[0]: part for part in text.split("\n## ")[1:]}
    assert [name for name in NAMES if f"`twolayer gallery run {name}`" not in sections.get(name, "")] == []
    assert [name for name in NAMES if not re.search(r"^Verdict \(.+\): agrees", sections[name], re.M)] == []


def test_the_list_names_every_figure_and_imports_no_jax() -> None:
    code = "import sys; from twolayer.cli import main; main(['gallery', 'list']); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(NAMES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "escape-dimensoin"], "did you mean 'escape-dimension'?"),
        (["run"], "needs a NAME"),
        (["run", "mediocrity", "--set", "dims"], "KEY=VALUE"),
        (["run", "mediocrity", "--set", "dms=3"], "did you mean 'dims'?"),
        (["run", "mediocrity", "--set", "starts=2.5"], "a positive integer"),
        (["run", "mediocrity", "--set", "starts=many"], "a number"),
        (["run", "mediocrity", "--set", "dims=1,2"], "at least 2"),
        (["run", "stochasticity", "--set", "seeds=1"], "at least 2"),
        (["run", "escape-dimension", "--set", "lr=0.2"], "for the overlap to grow"),
        (["run", "escape-dimension", "--set", "lr=-0.1"], "a number ≥ 0"),
        (["run", "mediocrity", "--out", __file__], "--out"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gallery", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_settings_take_the_type_of_their_default() -> None:
    settings = {"dims": (10,), "lr": 0.1, "seeds": 4, "target": "z1", "targets": ("z1",)}
    assert registry.read_setting("target=He2(z1)", settings) == ("target", "He2(z1)")
    assert registry.read_setting("targets=z1,He2(z1)", settings) == ("targets", ("z1", "He2(z1)"))
    assert registry.read_setting("dims=7", settings) == ("dims", (7,))
    assert registry.read_setting("dims=7,100", settings) == ("dims", (7, 100))
    assert registry.read_setting("lr=1", settings) == ("lr", 1.0)
    assert registry.read_setting("seeds=1e3", settings) == ("seeds", 1000)


def test_a_negative_verdict_is_written_and_ends_with_code_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(*, seed: int = 0, size: int = 3) -> registry.Plate:
        data = xr.Dataset({"x": ("i", np.arange(size) + seed)})
        return registry.Plate(Figure(), data, registry.Verdict(False, "2 is not 3"))

    monkeypatch.setitem(registry._ENTRIES, "wrong", registry.Entry("wrong", "a wrong figure", draw, {"size": 2}))
    assert main(["gallery", "run", "wrong", "--out", str(tmp_path), "--seed", "5", "--quick"]) == 1
    assert "DISAGREES: 2 is not 3" in capsys.readouterr().out
    assert tl.load(tmp_path / "wrong.nc").x.values.tolist() == [5, 6]
    assert main(["gallery", "run", "wrong", "--out", str(tmp_path), "--set", "size=4"]) == 1
    assert tl.load(tmp_path / "wrong.nc").x.values.tolist() == [0, 1, 2, 3]


def test_an_interrupted_figure_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def draw(*, seed: int = 0, size: int = 3) -> registry.Plate:
        def piece(i: int) -> dict[str, int]:
            computed.append(i)
            if i == 2 and len(computed) == 3:
                raise KeyboardInterrupt
            return {"x": 10 * i + seed}

        values = [int(part(f"piece {i}", lambda i=i: piece(i)).x) for i in range(size)]
        figure = Figure()
        dot = figure.subplots().plot([0], [0])
        moving = FuncAnimation(figure, lambda i: dot[0].set_data([i], [i]), frames=2)
        return registry.Plate(figure, xr.Dataset({"x": ("i", values)}), registry.Verdict(True, "fine"), moving)

    monkeypatch.setitem(registry._ENTRIES, "broken", registry.Entry("broken", "stops once", draw, {}))
    with pytest.raises(KeyboardInterrupt):
        registry.run("broken", out=tmp_path)
    plate = registry.run("broken", out=tmp_path)
    assert computed == [0, 1, 2, 2]
    assert plate.data.x.values.tolist() == [0, 10, 20]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.gif", "broken.nc", "broken.png"]
    assert (tmp_path / "broken.gif").read_bytes()[:4] == b"GIF8"
    assert registry.run("broken", out=tmp_path, seed=1).data.x.values.tolist() == [1, 11, 21]  # nothing old is taken


def test_the_expected_hessian_is_the_mean_over_the_sphere() -> None:
    # quadrature over S², where the mean of any polynomial of degree 4 is exact on the product rule
    dim = 3
    height, weight = np.polynomial.legendre.leggauss(6)
    angle = 2 * np.pi * np.arange(8) / 8
    m, phi = (x.ravel() for x in np.meshgrid(height, angle, indexing="ij"))
    w = np.stack([m, np.sqrt(1 - m**2) * np.cos(phi), np.sqrt(1 - m**2) * np.sin(phi)], axis=1)
    mean = np.average(mediocrity._formula(w), axis=0, weights=np.repeat(weight, 8))
    expected = 4 / (dim + 2) * (np.eye(dim) - dim * np.diag([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(mean, expected, atol=1e-13)


def test_the_risk_behind_the_hessian_falls_along_the_one_negative_direction() -> None:
    w = np.array([[0.1, np.sqrt(0.99), 0.0]])
    hessian = mediocrity._formula(w)[0]
    values, vectors = np.linalg.eigh(hessian)
    step = 1e-3

    def risk(angle: float) -> float:
        u = np.cos(angle) * w[0] + np.sin(angle) * vectors[:, 0]
        return tl.moments(measuring.phase_retrieval(), tl.Overlaps([[1.0]], [[u[0]]])).excess_risk

    curvature = (risk(step) - 2 * risk(0.0) + risk(-step)) / step**2
    assert curvature == pytest.approx(values[0], rel=1e-5)
    assert values[0] == pytest.approx(-4 * (1 - 2 * 0.01))


def test_noisy_starts_have_the_variance_asked_for_and_keep_the_start_first() -> None:
    start = tl.Overlaps.random(measuring.phase_retrieval(2), 1000, seed=1)
    noisy = trajectories._noisy(start, 4e-4, seed=2)
    np.testing.assert_array_equal(noisy.M[0], start.M)
    added = noisy.M[1:] - start.M
    assert abs(added.var() / 4e-4 - 1) < 4 * np.sqrt(2 / added.size) < 0.4
    assert trajectories._crossing(np.arange(4.0), np.array([8.0, 6.0, 2.0, 1.0])) == pytest.approx(1.5)
    assert trajectories._crossing(np.arange(2.0), np.array([8.0, 6.0])) == np.inf
