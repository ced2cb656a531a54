"""Figures are seen where people work: in notebooks, in scripts with a screen, and never left behind elsewhere."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

START = """
import twolayer as tl
seen = tl.analyse("z1 + z1*z2")
draw = lambda: tl.plot.analysis(seen)
"""
CELLS = {  # what is typed, and how many pictures the cell shows
    "the last line": ("draw()", 1),
    "a name as the last line": ("figure = draw()\nfigure", 1),
    "the same figure later": ("figure", 1),
    "a loop": ("for _ in range(3):\n    draw()", 3),
    "a line that is not the last": ("figure = draw()\nprint('done')", 1),
    "show": ("import matplotlib.pyplot as plt\nfigure = draw()\nplt.show()", 1),
    "show in the middle": ("draw()\nplt.show()\nprint('done')", 1),
    "more than matplotlib likes to keep": (
        "for _ in range(22):\n    figure = draw()",
        22,
    ),
    "nothing is left": ("assert plt.get_fignums() == []", 0),
    "pyplot works as before": ("plt.plot([0, 1]);", 1),
    "drawing into one's own axes": (
        "_, ax = plt.subplots()\ntl.plot.analysis(seen, ax=ax);",
        1,
    ),
    "saved and not shown twice": (
        "figure = draw()\ntl.plot.save_figure(figure, 'figure.png')\nfigure",
        1,
    ),
}


OBJECTS = {  # what is typed as the last line of a cell, and what its HTML holds
    "tl.Problem('He2(z1)/2 + abs(z1)', 'tanh(z + 1)', noise=0.1)": (
        "<math>",
        "<mfrac>",
        "<msub><mi>He</mi>",
        "<svg",
        "Δ = 0.1",
    ),
    "tl.Problem('z1*z2', 'relu', width=2, second_layer=[1, -1])": (
        "directions k = 2",
        ">-1<",
        "<svg",
    ),
    "tl.SGD(1 / (12 * tl.d), geometry='projected')": (
        "<math>",
        "0.0833333/d",
        "Saad–Solla",
        "<svg",
        "<circle",
    ),
    "tl.schedules.warmup(1) * tl.schedules.inverse(scale='2*d', after=1)": (
        "2*d",
        "x/horizon",
        "at d = 1000",
        "<svg",
    ),
    "tl.Overlaps([[1.0, 0.25], [0.25, 1.0]], [[0.5], [-0.125]])": (
        ">0.25<",
        ">-0.125<",
        "<rect",
    ),
    "seen": ("<math>", "information exponent", "at step 2", "<rect"),
    "tl.phase_diagram(ell=3, loss='correlation')": (
        "δ = 3/2 − μ",
        "optimum",
        "<rect",
        "in one step",
    ),
    "tl.phase_diagram(ell=3).at(mu=1, delta=0.5)": ("SGD learning", "T ~ d^1"),
    "tl.support(tl.Problem('z1', 'relu'), tl.SGD('1/d'))": (
        "<b>yes</b>",
        "every sample is new",
    ),
    "tl.escape.Passage(__import__('numpy').array([1.0, 2.0]), __import__('numpy').ones(2), 0, 0, 3.0)": (
        "1.5 ± 0.5",
        "<svg",
    ),
    "tl.gallery.Verdict('a is 1', (tl.gallery.Check('agree', 'a is 1.01'),))": (
        "agree: a is 1",
        "a is 1.01",
    ),
}


@pytest.mark.long
def test_a_notebook_shows_every_figure_once(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    new = nbformat.v4
    cells = [
        new.new_code_cell(code)
        for code in (START, *(code for code, _ in CELLS.values()), *OBJECTS)
    ]
    notebook = new.new_notebook(cells=cells)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the machinery that runs notebooks
        asyncio.run(client.async_execute())
    for (code, words), cell in zip(
        OBJECTS.items(), notebook.cells[1 + len(CELLS) :], strict=True
    ):
        (result,) = [
            output.data
            for output in cell.outputs
            if output.output_type == "execute_result"
        ]
        page = result["text/html"]
        assert all(word in page for word in words), (code, page)
        assert "http" not in page.replace(
            "http://www.w3.org/2000/svg", ""
        )  # nothing is fetched
        assert len(page) < 30_000 and "array(" not in result["text/plain"]
        ElementTree.fromstring(
            f"<p>{page.replace('&nbsp;', ' ')}</p>"
        )  # every tag is closed
    for (name, (_, count)), cell in zip(
        CELLS.items(), notebook.cells[1 : 1 + len(CELLS)], strict=True
    ):
        pictures = [
            output.data
            for output in cell.outputs
            if "image/png" in output.get("data", {})
        ]
        assert len(pictures) == count, name
        assert all(len(data["image/png"]) > 1000 for data in pictures)
        assert not [
            output for output in cell.outputs if output.get("name") == "stderr"
        ], name


SCREEN = """
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg


class FigureManager(FigureManagerBase):
    @classmethod
    def pyplot_show(cls, *, block=None):
        import matplotlib.pyplot as plt
        print("shown", plt.get_fignums())


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager
"""
SCRIPT = """
import threading, warnings
warnings.simplefilter("error")
{first}
import twolayer as tl
seen = tl.analyse("z1")
for i in range(25):
    figure = tl.plot.analysis(seen)
tl.plot.save_figure(figure, "figure.png")
aside = threading.Thread(target=tl.plot.analysis, args=(seen,))
aside.start()
aside.join()
import matplotlib.pyplot as plt
print("managed", len(plt.get_fignums()), plt.gcf() is figure if plt.get_fignums() else None)
{last}
"""


def script(tmp_path: Path, backend: str, first: str = "", last: str = "") -> list[str]:
    (tmp_path / "screen.py").write_text(SCREEN)
    (tmp_path / "script.py").write_text(SCRIPT.format(first=first, last=last))
    environment = {**os.environ, "MPLBACKEND": backend, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "script.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "first", ["", pytest.param("import matplotlib.pyplot", marks=pytest.mark.slow)]
)
def test_without_a_screen_nothing_is_left_behind(tmp_path: Path, first: str) -> None:
    assert script(tmp_path, "agg", first) == ["managed 0 None"]


@pytest.mark.slow
def test_with_a_screen_the_last_figures_can_be_shown(tmp_path: Path) -> None:
    lines = script(
        tmp_path, "module://screen", "import matplotlib.pyplot", "plt.show()"
    )
    assert lines[0] == "managed 10 True"
    assert lines[1] == f"shown {list(range(16, 26))}"
    assert (
        script(tmp_path, "module://screen")[0] == "managed 0 None"
    )  # nobody has asked for pyplot
