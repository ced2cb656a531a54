"""The explorer without its processes: bounds, presets, what is given away as text, and who is let in."""

from __future__ import annotations

import json
import re
import socket
import tomllib
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import twolayer as tl
from twolayer.cli import main
from twolayer.explorer import describing, solving
from twolayer.explorer.copying import _start, as_python, as_shell, as_toml
from twolayer.explorer.launch import _server, tables_of
from twolayer.explorer.limits import LIMITS, check_cost, check_size
from twolayer.explorer.pool import Busy, Inquiry
from twolayer.explorer.presets import catalogue, classics
from twolayer.explorer.server import create_app
from twolayer.explorer.speaking import Cancelled, Voice
from twolayer.explorer.worker import answer
from twolayer.files.catalogue import gallery
from twolayer.files.taskfile import task_from

TASK: dict[str, Any] = {
    "problem": {"target": "He2(z1)", "activation": "He2", "width": 2, "noise": 0.1},
    "algorithm": {"lr": "0.2/d", "geometry": "projected"},
    "start": {"Q": [[1.0, 0.1], [0.1, 1.0]], "M": [[0.3], [0.2]]},
    "run": {"dim": 64, "time": 0.25, "save": 4, "seeds": 6},
}


def silent() -> Voice:
    return Voice(lambda event, data: None)


def changed(**tables: dict[str, Any]) -> dict[str, Any]:
    return {
        **TASK,
        **{name: {**TASK.get(name, {}), **table} for name, table in tables.items()},
    }


def test_every_figure_of_the_gallery_opens_a_preset() -> None:
    homes = [figure for preset in classics() for figure in preset["figures"]]
    assert sorted(homes) == sorted(gallery()) and len(homes) == len(set(homes))
    assert {preset["group"] for preset in classics()} == set(catalogue()["sources"])


def test_six_examples_come_first() -> None:
    """Each has a sentence, and no two say the same."""
    cards = [preset["card"] for preset in catalogue()["presets"] if "card" in preset]
    assert len(cards) == len(set(cards)) == 6
    assert all(card.endswith(".") and 40 < len(card) < 100 for card in cards)


@pytest.mark.parametrize("preset", classics(), ids=lambda preset: preset["name"])
def test_presets_are_tasks_that_some_method_follows(preset: dict[str, Any]) -> None:
    task = task_from(preset["task"], preset["name"])
    check_size(task)
    problem = task.problem()
    task.start(problem)
    task.run_arguments()
    found = tl.support(problem, task.algorithm()).methods
    named = task.table.run.methods or ["ode", "chain"]
    assert {word.lower() for word in found} >= set(named), (
        "what the preset shows applies to it"
    )


def test_published_setups_are_tasks() -> None:
    assert len(catalogue()["zoo"]) > 20
    for setup in catalogue()["zoo"]:
        task_from(setup["task"], setup["name"])


@pytest.mark.parametrize(
    "tables",
    [
        {"problem": {"width": 65}}, {"problem": {"directions": 9}}, {"run": {"seeds": 401}}, {"run": {"save": 1001}},
        {"run": {"dim": 10**10}}, {"run": {"time": [0.1] * 1001}}, {"start": {"Q": [[1.0] * 70]}},
        {"problem": {"target": {"teacher": "erf", "k": 9}}},
        {"problem": {"inputs": {"kind": "power_law", "exponent": 1.0, "dim": 10**7}}},
        {"problem": {"inputs": {"variances": [1.0] * 300, "fractions": [1 / 300] * 300}}},
    ],
)  # fmt: skip
def test_sizes_are_bounded_before_any_work(tables: dict[str, Any]) -> None:
    with pytest.raises(tl.InputError, match="at most"):
        check_size(task_from(changed(**tables), "page"))
    check_size(task_from(TASK, "page"))


def test_runs_are_bounded_by_their_cost() -> None:
    with pytest.raises(tl.InputError, match="at most 256 MiB"):
        check_cost(1.0, 2**40)
    long = changed(run={"dim": 10**8, "time": 3.0})
    event, data = answer("run", long, {}, silent())
    assert (
        event == "error" and "at most 10 min" in data["error"] and data["status"] == 422
    )


@pytest.mark.parametrize(
    "word, text, place",
    [("target", "z1 ^ 2", 3), ("target", "z1 + foo(z2)", 5), ("target", "z1 +", 4), ("target", "(z1", 3),
     ("activation", "z + q", 4), ("target", "z1 z2", 3)],
)  # fmt: skip
def test_formulas_are_wrong_at_a_character(word: str, text: str, place: int) -> None:
    task = task_from(changed(problem={word: text}), "page")
    found = describing.formula(task, {}, silent())
    assert found[word]["position"] == place and text in found[word]["error"]
    other = "activation" if word == "target" else "target"
    assert "latex" in found[other]


def test_copied_python_and_toml_are_the_same_task(tmp_path: Path) -> None:
    task = task_from(TASK, "page")
    names: dict[str, Any] = {}
    exec(compile(as_python(task), "copied", "exec"), names)
    shown = solving.theory(task, {"method": "ode"}, silent())
    assert np.array_equal(names["theory"].risk.values[0], shown["risk"])
    assert np.array_equal(names["theory"].M.values[0], shown["M"])
    assert names["runs"].sizes["seed"] == 6
    assert tomllib.loads(as_toml(task)) == TASK
    assert "twolayer compare task.toml --methods ode,chain" in as_shell(task)
    for preset in classics():
        assert (
            tomllib.loads(as_toml(task_from(preset["task"], "page"))) == preset["task"]
        )


@pytest.mark.slow
def test_runs_stream_seed_by_seed_and_are_those_of_solve() -> None:
    heard: list[tuple[str, Any]] = []
    task = task_from(TASK, "page")
    end = solving.run(
        task,
        {"method": "chain"},
        Voice(lambda event, data: heard.append((event, data))),
    )
    assert end == {"seeds": 6}
    bands = [data for event, data in heard if event == "band"]
    assert [band["count"] for band in bands] == [4, 6]
    whole = tl.solve(
        task.problem(),
        task.algorithm(),
        tl.Chain(64),
        task.start(task.problem()),
        time=0.25,
        save=4,
        seeds=6,
    )
    together = np.concatenate([band["risks"] for band in bands])
    assert np.array_equal(together, whole.risk.values), "blocks are runs of one solve"
    assert np.allclose(bands[-1]["M"]["mean"], whole.M.values.mean(axis=0), rtol=1e-14)
    (verdict,) = [data for event, data in heard if event == "verdict"]
    assert verdict["reference"] == "ode" and {
        row["quantity"] for row in verdict["rows"]
    } == {"risk", "M1", "Q"}
    # the twin: another seed gives other runs
    heard.clear()
    other = task_from(changed(run={"seed": 1}), "page")
    solving.run(
        other,
        {"method": "chain"},
        Voice(lambda event, data: heard.append((event, data))),
    )
    assert not np.array_equal(
        np.concatenate([d["risks"] for e, d in heard if e == "band"]), together
    )


def test_a_withdrawn_run_stops() -> None:
    voice = Voice(lambda event, data: voice.stop.set())
    with pytest.raises(Cancelled):
        solving.run(task_from(TASK, "page"), {}, voice)


def test_descriptions_become_tables() -> None:
    problem, algorithm = (
        tl.Problem("z1 + z1*z2", "erf", width=2),
        tl.SGD(lr="0.1/d", loss="correlation"),
    )
    start = tl.Overlaps.random(problem, 500, seed=4)
    task = task_from(tables_of(problem, algorithm, start, time=2.0), "page")
    assert task.problem() == problem and task.algorithm() == algorithm
    again = task.start(problem)
    assert np.array_equal(again.M, start.M) and again.dim == 500
    inputs = tl.Inputs.blocks([1.5, 0.5], [0.5, 0.5])
    problem = tl.Problem("z1", "erf", inputs=inputs)
    start = tl.Overlaps.random(problem, 100, seed=1)
    task = task_from(tables_of(problem, algorithm, start, time=2.0), "page")
    assert task.problem() == problem and np.array_equal(task.start(problem).M, start.M)
    assert eval(_start(task), {"tl": tl, "problem": problem}).blocks == 2
    with pytest.raises(tl.InputError, match="is a function"):
        tables_of(tl.Problem(lambda z: z[0], "erf", directions=1), algorithm)
    with pytest.raises(tl.InputError, match="`start` must be Overlaps, or 'random'"):
        tables_of(problem, algorithm, "nowhere")


class Idle:
    """A pool that keeps what it is given and never answers, or answers at once."""

    def __init__(self, room: int = 99) -> None:
        self.waiting: list[Inquiry] = []
        self.room = room

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def submit(
        self,
        kind: str,
        task: dict[str, Any],
        options: dict[str, Any],
        ahead: bool = False,
    ) -> Inquiry:
        if len(self.waiting) >= self.room:
            raise Busy
        job = Inquiry(len(self.waiting) + 1, kind, task, options)
        self.waiting.append(job)
        job.tell("done", {"kind": kind})
        return job

    def cancel(self, number: int) -> bool:
        return False


def ask(
    path: str,
    *,
    token: str | None = None,
    room: int = 99,
    method: str = "POST",
    body: Any = None,
    **headers: str,
) -> Any:
    """One request to an application without processes; headers with _ for -."""
    import asyncio

    app = create_app(Idle(room), frozenset({"127.0.0.1:8000"}), token)  # type: ignore[arg-type]
    content = (
        json.dumps({"task": TASK} if body is None else body).encode()
        if method == "POST"
        else b""
    )
    given = {
        "content-type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000"
        ) as client:
            return await client.request(method, path, content=content, headers=given)

    return asyncio.run(send())


def test_requests_from_elsewhere_are_refused() -> None:
    assert ask("/api/formula").json() == {"kind": "formula"}
    assert ask("/api/formula", origin="http://127.0.0.1:8000").status_code == 200
    assert ask("/api/formula", origin="http://evil.example").status_code == 403
    assert ask("/api/formula", origin="null").status_code == 403
    assert ask("/api/formula", host="evil.example").status_code == 421, (
        "a name that was pointed here"
    )
    assert ask("/api/formula", host="127.0.0.1:9").status_code == 421
    assert ask("/api/formula", sec_fetch_site="cross-site").status_code == 403
    assert ask("/api/formula", content_type="text/plain").status_code == 415
    assert ask("/", method="GET", host="evil.example").status_code == 421


def test_other_hosts_need_the_token() -> None:
    assert ask("/api/formula", token="right").status_code == 401
    assert (
        ask("/api/formula", token="right", x_twolayer_token="wrong").status_code == 401
    )
    assert (
        ask("/api/formula", token="right", x_twolayer_token="right").status_code == 200
    )
    assert ask("/", token="right", method="GET").status_code == 401
    assert ask("/?token=right", token="right", method="GET").status_code == 200
    assert (
        ask("/api/catalogue?token=wrong", token="right", method="GET").status_code
        == 401
    )


def test_answers_carry_a_policy_and_nothing_reads_files() -> None:
    page = ask("/", method="GET")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    for path in (
        "/..%2f..%2fserver.py",
        "/%2e%2e/server.py",
        "/etc/passwd",
        "/server.py",
        "/static",
        "/%00",
    ):
        assert ask(path, method="GET").status_code == 404


def test_questions_are_checked_before_they_are_queued() -> None:
    for body, words in (
        ([], "valid dictionary"),
        ({"task": TASK, "options": {"methot": "ode"}}, "methot"),
        ({"options": {}}, "task"),
    ):
        found = ask("/api/theory", body=body)
        assert found.status_code == 422 and words in found.json()["error"], found.text
    for body, words in (
        ({"task": {}}, "`problem` is missing"),
        ({"task": changed(problem={"width": 1000})}, "at most 64 neurons"),
        ({"task": changed(problem={"widht": 1})}, "did you mean 'width'"),
        ({"task": {**TASK, "stages": [{"steps": 1}]}}, "one algorithm"),
    ):
        assert words in ask("/api/theory", body=body).json()["refused"]
    assert ask("/api/nothing").status_code == 404
    assert (
        ask(
            "/api/formula", body={"task": TASK, "options": {"key": "x" * 70_000}}
        ).status_code
        == 413
    )
    assert ask("/api/theory", room=0).status_code == 429
    assert ask(
        "/api/family", body={"task": TASK, "options": {"values": list(range(25))}}
    ).json()["refused"]


def test_the_page_asks_for_nothing_but_its_server() -> None:
    folder = Path(tl.__file__).parent / "explorer" / "static"
    files = {
        name: (folder / f"explorer.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    asked = re.findall(r'(?:src|href)="([^"]*)"', files["html"])
    assert [word for word in asked if not word.startswith("data:")] == [
        "explorer.css",
        "explorer.js",
    ]
    fonts = set(re.findall(r"url\(([^)]*)\)|@import", files["css"]))
    assert fonts and all(
        (folder / font).suffix == ".woff2" and (folder / font).exists()
        for font in fonts
    )
    assert not re.search(
        r"\b(eval|importScripts)\(|XMLHttpRequest|new Function|WebSocket", files["js"]
    )
    common = (
        "KaTeX_Main-Regular.woff2",
        "KaTeX_Math-Italic.woff2",
        "KaTeX_Size1-Regular.woff2",
    )
    assert set(common) < fonts, "the others are for tall brackets"
    assert (
        sum(len(x.encode()) for x in files.values())
        + sum((folder / x).stat().st_size for x in common)
        < 400_000
    )


def test_answers_are_not_held_back() -> None:
    """Of sockets that are declared TCP, asyncio turns off Nagle's algorithm: it costs 40 ms an answer."""
    _, bound, _ = _server(None, "127.0.0.1", 0)
    with bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_the_catalogue_holds_all_the_page_needs() -> None:
    found = ask("/api/catalogue", method="GET").json()
    assert (
        found["limits"]["width"] == LIMITS.width
        and found["task"] is None
        and found["version"] == tl.__version__
    )


def test_the_command_says_no(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wide = tmp_path / "wide.toml"
    wide.write_text(
        '[problem]\ntarget = "z1"\nactivation = "erf"\nwidth = 100\n[algorithm]\nlr = 0.1\n'
    )
    for arguments, words in (
        (["nowhere.toml"], "must exist"),
        ([str(wide)], "at most 64 neurons"),
        (["--port", "70000", "--no-browser"], "at most 65535"),
        (["--host", "no such host", "--no-browser"], "cannot listen"),
        (["--set", "run.dim=3"], "--set has no effect without a task file"),
        (["--figure", "escape-dimensoin"], "did you mean 'escape-dimension'"),
        (
            [str(wide), "--figure", "escape-dimension"],
            "--figure has no effect with a task file",
        ),
    ):
        assert main(["explore", *arguments]) == 2
        assert words in capsys.readouterr().err
