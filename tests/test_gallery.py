"""The gallery: every figure in its quick version through the command line, and what is refused."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from chance import sigmas
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.cli import main
from twolayer.files.catalogue import gallery
from twolayer.files.papers import PAPERS
from twolayer.gallery import mediocrity, trajectories
from twolayer.gallery.shared import judging, measuring, records, registry
from twolayer.gallery.shared.parts import part
from twolayer.numerics.significance import LEVEL, limit_of
from twolayer.numerics.verdict import OUTCOMES

NAMES = tuple(registry.figures())
DOCS = Path(__file__).parents[1] / "docs"
ONE_OF_EACH = (
    "mediocrity",
    "specialisation",
    "last-mile-angles",
    "corrections",
    "staircases",
    "three-blocks",
)


COMPUTING = {
    "solve",
    "solve_stages",
    "compare",
    "moments",
    "escape_time",
    "part",
    "follow",
    "recovered",
    "measured",
}
"""Names that compute: no drawing may lead to one of them."""


def empty(_: xr.Dataset) -> Figure:
    """A drawing of nothing."""
    return Figure()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All figures with ``--every-figure``, one of each group without."""
    if metafunc.function is test_every_figure_writes_its_files_and_its_verdict:
        metafunc.parametrize(
            "name",
            NAMES if metafunc.config.getoption("--every-figure") else ONE_OF_EACH,
        )


def test_the_figures_drawn_stand_for_all_groups() -> None:
    assert [registry.figures()[name].group for name in ONE_OF_EACH] == list(
        registry.GROUPS
    )


@pytest.mark.long
def test_every_figure_writes_its_files_and_its_verdict(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "gallery",
                "run",
                name,
                "--quick",
                "--out",
                str(tmp_path / "new"),
                "--json",
            ]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    entry = records.read(DOCS / "gallery.json")[name]["quick"]
    assert said["outcome"] == entry["outcome"], said["verdict"]
    assert not re.search(r"\bnan\b", said["verdict"])
    # every check has numbers, and a threshold or what is expected
    assert said["claim"]
    assert said["checks"]
    for check in said["checks"]:
        assert re.search(r"\d", check["text"]), check
        words = "threshold|expected|predicted|allowed|tolerance|at least|at most|claimed|resolution|every|all|none|no "
        assert re.search(words, check["text"]), check
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(
        Path(f).name for f in said["files"]
    )
    assert {f"{name}.nc", f"{name}.png"} <= {Path(f).name for f in said["files"]}
    assert (tmp_path / "new" / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    data = tl.load(tmp_path / "new" / f"{name}.nc")
    assert (data.attrs["verdict"], data.attrs["outcome"]) == (
        said["verdict"],
        said["outcome"],
    )
    assert set(json.loads(data.attrs["settings"])) == {
        *registry.figures()[name].settings,
        "seed",
    }
    assert all(PAPERS[key] in tl.cite(data) for key in registry.figures()[name].papers)
    # drawn from its file, with nothing computed, it is the same picture; and no text leaves it
    again = tmp_path / "again.png"
    assert (
        main(["plot", str(tmp_path / "new" / f"{name}.nc"), "--out", str(again)]) == 0
    )
    assert again.read_bytes() == (tmp_path / "new" / f"{name}.png").read_bytes()
    assert (
        main(
            [
                "plot",
                str(tmp_path / "new" / f"{name}.nc"),
                "--out",
                str(tmp_path / "again.pdf"),
            ]
        )
        == 0
    )
    drawn = tl.gallery.draw(data)
    assert drawn.verdict.text == said["verdict"]
    title = drawn.figure._suptitle
    assert title.get_window_extent().x1 <= drawn.figure.bbox.x1
    assert data.attrs["task"].split("\n")[0][:20] in title.get_text()
    # what is recorded is what these data say
    assert (
        records.fingerprint(data) != entry["data"] or said["verdict"] == entry["text"]
    )


def reached(module: Any, start: str) -> set[str]:
    """Names that a function of a file may call, through the other functions of the file."""
    source = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    functions = {
        node.name: node for node in source.body if isinstance(node, ast.FunctionDef)
    }
    seen: set[str] = set()
    queue = [start]
    while queue:
        for node in ast.walk(functions[queue.pop()]):
            name = (
                node.id
                if isinstance(node, ast.Name)
                else node.attr
                if isinstance(node, ast.Attribute)
                else None
            )
            if name is not None and name not in seen:
                seen.add(name)
                queue += [name] if name in functions else []
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_drawing_uses_the_data_only(name: str) -> None:
    """Drawings take the data and nothing else, and lead to nothing that computes; what computes leads to it."""
    entry = registry.figures()[name]
    module = sys.modules[entry.compute.__module__]
    for word in ("draw", "animate") if entry.animate else ("draw",):
        function = getattr(module, word)
        assert list(inspect.signature(function).parameters) == ["data"]
        names = reached(module, word)
        assert not names & COMPUTING
        assert "tl" not in names and "default_rng" not in names
    assert reached(module, entry.compute.__name__) & {
        "tl",
        "measured",
        "jax",
    }  # so that the test can fail


def test_every_figure_is_described_with_its_command() -> None:
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    sections = {part.split("\n")[0]: part for part in text.split("\n## ")[1:]}
    assert [
        name
        for name in NAMES
        if f"`twolayer gallery run {name}`" not in sections.get(name, "")
    ] == []


@pytest.mark.parametrize("name", NAMES)
def test_recorded_verdicts_are_those_of_the_figures_as_they_are(name: str) -> None:
    """Settings are today's, versions and hash are there, and the page shows these verdicts word by word and no other."""
    entries = records.read(DOCS / "gallery.json")[name]
    assert "quick" in entries and set(entries) <= set(records.VERSIONS)
    for version, entry in entries.items():
        assert entry["settings"] == records.settings_of(
            registry.figures()[name], version
        )
        assert entry["outcome"] in OUTCOMES
        # the outcome is that of its checks, each of which has its own in the text
        told = re.findall(rf"\[({'|'.join(OUTCOMES)})\]", entry["text"])
        assert entry["outcome"] == min(told, key=OUTCOMES.index)
        assert entry["versions"].keys() >= {"twolayer", "jax", "numpy"}
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", entry["data"])
    section = (
        (DOCS / "gallery.md")
        .read_text(encoding="utf-8")
        .split(f"\n## {name}\n")[1]
        .split("\n## ")[0]
    )
    lines = re.findall(r"^Verdict.*$", section, re.M)
    assert lines == [
        records.line_of(version, entries[version])
        for version in records.VERSIONS
        if version in entries
    ]


def test_there_are_no_other_records() -> None:
    entries = records.read(DOCS / "gallery.json")
    assert sorted(entries) == sorted(NAMES)
    every = [
        entry["data"] for versions in entries.values() for entry in versions.values()
    ]
    assert len(set(every)) == len(every)
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^Verdict", page, re.M)) == len(every)
    assert not re.search(
        r"\): (agree|differ|undecided)\.", re.sub(r"(?m)^Verdict.*$", "", page)
    )


def test_a_figure_is_recorded_with_its_settings_versions_and_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compute(*, seed: int = 0, sizes: tuple[int, ...] = (3, 4)) -> registry.Finding:
        data = xr.Dataset({"x": ("i", np.arange(sizes[0]) + seed)})
        check = judging.near("x", 1.0, 1.1, 0.01, resolution=0.2)
        return registry.Finding(data, judging.verdict("x is 1.1", [check]), "a task")

    entry_ = registry.Entry("one", "a figure", compute, empty, {"sizes": (5, 6)})
    monkeypatch.setitem(registry._ENTRIES, "one", entry_)
    page, file = tmp_path / "g.md", tmp_path / "g.json"
    old = (
        "# G\n\n## none\n\nVerdict (quick, x): agree. no\n\n## one\n\ntext\n\n# more\n"
    )
    page.write_text(old)
    command = ["gallery", "run", "one", "--out", str(tmp_path), "--record", str(file)]
    assert main([*command, "--seed", "2", "--quick"]) == 1
    entry = records.read(file)["one"]["quick"]
    assert (entry["settings"], entry["seed"]) == ({"sizes": [5, 6]}, 2)
    assert entry["outcome"] == "differ"
    assert entry["versions"]["twolayer"] == tl.__version__
    assert entry["data"] == records.fingerprint(
        tl.load(tmp_path / "one.nc")
    )  # the file's own
    line = records.line_of("quick", entry)
    assert line.startswith("Verdict (quick, ")
    assert page.read_text() == old.replace("text\n", f"text\n\n{line}\n")
    assert main(command) == 1
    entries = records.read(file)["one"]
    assert entries["quick"] == entry
    assert entries["full"]["data"] != entry["data"]
    both = [records.line_of("full", entries["full"]), line]
    assert page.read_text() == old.replace(
        "text\n", "text\n\n" + "\n\n".join(both) + "\n"
    )
    assert main([*command, "--quick"]) == 1  # again, with another seed
    entries = records.read(file)["one"]
    assert entries["quick"]["seed"] == 0
    both[1] = records.line_of("quick", entries["quick"])
    assert page.read_text() == old.replace(
        "text\n", "text\n\n" + "\n\n".join(both) + "\n"
    )
    # a changed figure is neither version
    assert main([*command, "--set", "sizes=7,8"]) == 2
    assert "--set changes it" in capsys.readouterr().err
    with pytest.raises(tl.InputError, match="its settings were changed"):
        records.record(registry.run("one", sizes=(7, 8)), file, "full", "1 s")
    file.write_text("not JSON")
    assert main(command) == 2
    assert "must be JSON" in capsys.readouterr().err


def test_hashes_see_values_names_and_dimensions() -> None:
    one = xr.Dataset({"x": ("i", [1.0, 2.0]), "word": ("i", ["a", "b"])})
    others = [
        one.rename(x="y"),
        one.rename(i="j"),
        one.assign(word=("i", ["a", "c"])),
        one.assign(x=("i", [1.0, 2.5])),
    ]
    assert len({records.fingerprint(x) for x in [one, *others]}) == 5
    assert records.fingerprint(one[["word", "x"]]) == records.fingerprint(one)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_checks_have_three_outcomes() -> None:
    assert judging.near("x", 1.0, 1.0, 0.01, resolution=0.1).outcome == "agree"
    assert judging.near("x", 1.2, 1.0, 0.01, resolution=0.1).outcome == "differ"
    assert judging.near("x", 4.05, 1.0, 1.01, resolution=0.25).outcome == "undecided"
    assert (
        judging.near("x", np.nan, 1.0, np.nan, resolution=0.25).outcome == "undecided"
    )
    assert judging.near("x", 1.03, (1.0, 2.0), 0.01, resolution=0.1).outcome == "agree"
    assert judging.near("x", 0.9, (1.0, 2.0), 0.01, resolution=0.1).outcome == "differ"
    gaps, errors = np.array([0.01, 0.0, -0.02]), np.array([0.01, 0.0, 0.01])
    assert judging.largest("x", gaps, errors, resolution=0.1).outcome == "agree"
    assert judging.largest("x", gaps, errors, resolution=0.05).outcome == "undecided"
    assert judging.largest("x", 10 * gaps, errors, resolution=1.0).outcome == "differ"
    assert (
        judging.largest("x", [0.1], [0.0], resolution=1.0).outcome == "differ"
    )  # without an error, nor allowed
    assert judging.largest("x", [], [], resolution=1.0).outcome == "undecided"


def test_a_verdict_is_as_good_as_its_worst_check() -> None:
    yes, no, open_ = (
        judging.holds(True, "a"),
        judging.holds(False, "b"),
        judging.unknown("c"),
    )
    assert judging.verdict("x", [yes, yes]).agrees
    assert judging.verdict("x", [yes, open_]).outcome == "undecided"
    assert judging.verdict("x", [yes, open_, no]).outcome == "differ"
    assert judging.verdict("x", []).outcome == "undecided"
    assert (
        judging.verdict("x", [yes, no], "more").text == "x: a [agree]; b [differ]. more"
    )


def test_one_chance_of_a_false_alarm_for_all_numbers_of_a_check() -> None:
    """10 000 checks of 50 correct numbers with 15 degrees of freedom: 1 is expected, P(7 or more) < 1e-4."""
    rng = np.random.default_rng(0)
    t = rng.standard_t(15, size=(10_000, 50))
    assert (np.abs(t).max(axis=1) > limit_of(50, 15)).sum() < 7
    assert (
        np.abs(t).max(axis=1) > limit_of(50, 15, level=0.1)
    ).mean() == pytest.approx(0.1, abs=0.02)
    assert limit_of(50, 15) > limit_of(1, 15) > limit_of(1) > 3.8
    assert LEVEL == 1e-4


def test_the_list_names_every_figure_and_imports_no_jax() -> None:
    commands = [
        ["gallery", "list"],
        ["gallery", "show", "mediocrity"],
        ["gallery", "run", "all", "--dry-run"],
    ]
    code = f"import sys; from twolayer.cli import main; [main(c) for c in {commands}]; assert 'jax' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    first = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert [word for word in first if word in NAMES] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_of_a_figure_without_running_it_is_what_it_is(name: str) -> None:
    read, entry = gallery()[name], registry.figures()[name]
    assert (read.title, read.group, read.papers) == (
        entry.title,
        entry.group,
        entry.papers,
    )
    assert read.fixed == entry.fixed
    assert read.settings == records.settings_of(entry, "full")
    assert read.quick_settings == records.settings_of(entry, "quick")


@pytest.mark.parametrize("name", NAMES)
def test_target_activation_and_geometry_are_settings_or_it_is_said_why_not(
    name: str,
) -> None:
    entry = registry.figures()[name]
    settings = {
        "targets": "target",
        "activations": "activation",
        "geometries": "geometry",
    }
    offered = {settings.get(key, key) for key in entry.settings}
    assert {"target", "activation", "geometry"} - offered == set(entry.fixed)
    assert all(
        10 < len(why) < 100 and not why.endswith(".") for why in entry.fixed.values()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tiny", "other", "told"),
    [
        (
            "recovery-trajectories",
            {"exponents": (1,), "dim": 20, "seeds": 2},
            {"geometry": "projected"},
            "projected",
        ),
        (
            "sgd-to-ode",
            {
                "dims": (20,),
                "widths": (2,),
                "rates": (0.25, 0.5),
                "seeds": 2,
                "time": 0.1,
            },
            {"target": "He2(z1) + z2", "activation": "He2", "geometry": "spherical"},
            "target He2(z1) + z2   student He2, width p, a = 1   Δ = 0.1\nlr = γ/d, batch 1, fresh samples, spherical",
        ),
    ],
)
def test_a_changed_setting_reaches_the_data_and_the_title(
    name: str, tiny: dict[str, Any], other: dict[str, Any], told: str
) -> None:
    compute = registry.figures()[name].compute
    usual, changed = compute(**tiny), compute(**tiny, **other)
    assert records.fingerprint(usual.data) != records.fingerprint(changed.data)
    assert told in changed.task
    assert told not in usual.task


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        (
            "escape-dimension",
            {"geometry": "free"},
            "`geometry` must be one of 'projected', 'spherical'",
        ),
        (
            "second-layer",
            {"geometry": "free"},
            "`geometry` must be one of 'projected', 'spherical'",
        ),
        (
            "schedules-plateau",
            {"geometry": "free"},
            "`geometry` must be one of 'projected', 'spherical'",
        ),
        (
            "plateaus",
            {"geometry": "free"},
            "`geometry` must be one of 'projected', 'spherical'",
        ),
        (
            "recovery-times",
            {"geometry": "free"},
            "`geometry` must be one of 'spherical', 'projected'",
        ),
        (
            "specialisation",
            {"geometry": "round"},
            "`geometry` must be one of 'free', 'projected', 'spherical'",
        ),
        ("optimal-schedules", {"activation": "reluu"}, "did you mean 'relu'"),
        (
            "classification-error",
            {"target": "tanh(z1)"},
            "with values ±1, such as 'sign(z1)'",
        ),
        ("heavy-tails", {"target": "z1*z2"}, "a function of z1 alone"),
        ("ode-to-mean-field", {"activations": ("erf",)}, "two names"),
    ],
)
def test_choices_that_a_figure_does_not_cover_are_refused(
    name: str, setting: dict[str, Any], words: str
) -> None:
    with pytest.raises(tl.InputError, match=re.escape(words)):
        registry.figures()[name].compute(**setting)


def test_colours_of_figures_are_those_of_the_style() -> None:
    """So that readers of all kinds tell curves apart, and that figures can be read on dark paper."""
    folder = Path(registry.__file__).parents[1]
    own = {
        f.name: re.findall(r"[\"\']#[0-9a-f]{6}|color=\"k\"|\"k[*o.-]", f.read_text())
        for f in folder.glob("*.py")
    }
    assert {name for name, colours in own.items() if colours} == {
        "mediocrity.py"
    }  # marks on a map of colours


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
    settings = {
        "dims": (10,),
        "lr": 0.1,
        "seeds": 4,
        "target": "z1",
        "targets": ("z1",),
    }
    assert registry.read_setting("target=He2(z1)", settings) == ("target", "He2(z1)")
    assert registry.read_setting("targets=z1,He2(z1)", settings) == (
        "targets",
        ("z1", "He2(z1)"),
    )
    assert registry.read_setting("dims=7", settings) == ("dims", (7,))
    assert registry.read_setting("dims=7,100", settings) == ("dims", (7, 100))
    assert registry.read_setting("lr=1", settings) == ("lr", 1.0)
    assert registry.read_setting("seeds=1e3", settings) == ("seeds", 1000)


def test_a_negative_verdict_is_written_and_ends_with_code_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compute(*, seed: int = 0, size: int = 3) -> registry.Finding:
        data = xr.Dataset({"x": ("i", np.arange(size) + seed)})
        return registry.Finding(
            data,
            judging.verdict("2 is 3", [judging.holds(False, "2 is not 3")]),
            "a task",
        )

    monkeypatch.setitem(
        registry._ENTRIES,
        "wrong",
        registry.Entry("wrong", "a wrong one", compute, empty, {"size": 2}),
    )
    assert (
        main(
            [
                "gallery",
                "run",
                "wrong",
                "--out",
                str(tmp_path),
                "--seed",
                "5",
                "--quick",
            ]
        )
        == 1
    )
    assert "DIFFER: 2 is 3\n  [differ] 2 is not 3\n" in capsys.readouterr().out
    assert tl.load(tmp_path / "wrong.nc").x.values.tolist() == [5, 6]
    assert (
        main(["gallery", "run", "wrong", "--out", str(tmp_path), "--set", "size=4"])
        == 1
    )
    assert tl.load(tmp_path / "wrong.nc").x.values.tolist() == [0, 1, 2, 3]


def test_an_interrupted_figure_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def compute(*, seed: int = 0, size: int = 3) -> registry.Finding:
        def piece(i: int) -> dict[str, int]:
            computed.append(i)
            if i == 2 and len(computed) == 3:
                raise KeyboardInterrupt
            return {"x": 10 * i + seed}

        values = [int(part(f"piece {i}", lambda i=i: piece(i)).x) for i in range(size)]
        return registry.Finding(
            xr.Dataset({"x": ("i", values)}), judging.verdict("fine", []), "a task"
        )

    def animate(data: xr.Dataset) -> FuncAnimation:
        figure = Figure()
        dot = figure.subplots().plot([0], [0])
        return FuncAnimation(figure, lambda i: dot[0].set_data([i], [i]), frames=2)

    entry = registry.Entry("broken", "stops once", compute, empty, {}, animate=animate)
    monkeypatch.setitem(registry._ENTRIES, "broken", entry)
    with pytest.raises(KeyboardInterrupt):
        registry.run("broken", out=tmp_path)
    plate = registry.run("broken", out=tmp_path)
    assert computed == [0, 1, 2, 2]
    assert plate.data.x.values.tolist() == [0, 10, 20]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "broken.gif",
        "broken.nc",
        "broken.png",
    ]
    assert (tmp_path / "broken.gif").read_bytes()[:4] == b"GIF8"
    assert registry.run("broken", out=tmp_path, seed=1).data.x.values.tolist() == [
        1,
        11,
        21,
    ]  # nothing old is taken


def test_a_kill_between_figures_leaves_the_finished_ones_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Stands for a kill: nothing catches it."""

    computed: list[str] = []

    def maker(name: str, dies: bool) -> Callable[..., registry.Finding]:
        def piece(i: int) -> dict[str, int]:
            if dies and i == 1 and computed.count("trajectories 1") == 0:
                computed.append("trajectories 1")
                raise Killed
            computed.append(f"{name} {i}")
            return {"x": i}

        def compute(*, seed: int = 0, size: int = 2) -> registry.Finding:
            values = [
                int(part(f"piece {i}", lambda i=i: piece(i)).x) for i in range(size)
            ]
            return registry.Finding(
                xr.Dataset({"x": ("i", values)}), judging.verdict("fine", []), "a task"
            )

        return compute

    for name, dies in (
        ("mediocrity", False),
        ("trajectories", True),
    ):  # in the place of two that are listed
        entry = registry.Entry(name, "a figure", maker(name, dies), empty, {"size": 2})
        monkeypatch.setitem(registry._ENTRIES, name, entry)
    command = [
        "gallery",
        "run",
        "mediocrity",
        "trajectories",
        "--quick",
        "--out",
        str(tmp_path),
    ]
    with pytest.raises(Killed):
        main(command)
    assert tl.load(tmp_path / "mediocrity.nc").x.values.tolist() == [0, 1]
    assert (tmp_path / "mediocrity.png").read_bytes()[:4] == b"\x89PNG"
    assert not (tmp_path / "trajectories.nc").exists()
    assert main(command) == 0
    assert (
        computed.count("trajectories 0") == 1
    )  # what was finished of the second is taken up
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "mediocrity.nc",
        "mediocrity.png",
        "trajectories.nc",
        "trajectories.png",
    ]


def test_the_expected_hessian_is_the_mean_over_the_sphere() -> None:
    # quadrature over S², where the mean of any polynomial of degree 4 is exact on the product rule
    dim = 3
    height, weight = np.polynomial.legendre.leggauss(6)
    angle = 2 * np.pi * np.arange(8) / 8
    m, phi = (x.ravel() for x in np.meshgrid(height, angle, indexing="ij"))
    w = np.stack(
        [m, np.sqrt(1 - m**2) * np.cos(phi), np.sqrt(1 - m**2) * np.sin(phi)], axis=1
    )
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
        return tl.moments(
            measuring.phase_retrieval(), tl.Overlaps([[1.0]], [[u[0]]])
        ).excess_risk

    curvature = (risk(step) - 2 * risk(0.0) + risk(-step)) / step**2
    assert curvature == pytest.approx(values[0], rel=1e-5)
    assert values[0] == pytest.approx(-4 * (1 - 2 * 0.01))


def test_noisy_starts_have_the_variance_asked_for_and_keep_the_start_first() -> None:
    start = tl.Overlaps.random(measuring.phase_retrieval(2), 1000, seed=1)
    noisy = trajectories._noisy(start, 4e-4, seed=2)
    np.testing.assert_array_equal(noisy.M[0], start.M)
    added = noisy.M[1:] - start.M
    assert abs(added.var() / 4e-4 - 1) < sigmas() * np.sqrt(2 / added.size) < 0.4
    assert measuring.crossing(
        np.arange(4.0), -np.array([8.0, 6.0, 2.0, 1.0]), -4.0
    ) == pytest.approx(1.5)
    assert measuring.crossing(np.arange(2.0), -np.array([8.0, 6.0]), -4.0) == np.inf
