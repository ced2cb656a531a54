"""The explorer with its processes: answers, streams, cancelling, crowds, crashes, random requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import explorer_fuzz
import httpx
import numpy as np
import pytest

import twolayer as tl
from twolayer.explorer import connections, solving
from twolayer.explorer import pool as pool_module
from twolayer.explorer.launch import Explorer, explore
from twolayer.explorer.limits import LIMITS
from twolayer.explorer.pool import Pool
from twolayer.explorer.server import _body
from twolayer.explorer.speaking import Voice
from twolayer.files.taskfile import task_from

TASK = explorer_fuzz.TASK
LONG = {**TASK, "run": {"dim": 300_000, "time": 40.0, "seeds": 8}}


@pytest.fixture(scope="module")
def server() -> Iterator[Explorer]:
    running = explore(tl.Problem("He2(z1)", "He2"), tl.SGD(lr="0.1/d"), browser=False)
    yield running
    running.stop()


@pytest.fixture
def client(server: Explorer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as opened:
        yield opened


def ask(
    client: httpx.Client, kind: str, task: Any = TASK, **options: Any
) -> httpx.Response:
    return client.post(f"/api/{kind}", json={"task": task, "options": options})


def workers(server: Explorer) -> list[Any]:
    return server._server.config.app.state.pool.workers


@pytest.mark.slow
def test_a_description_is_answered(client: httpx.Client) -> None:
    assert ask(client, "formula").json()["k"] == 1
    found = ask(client, "analysis").json()
    assert (found["information"], found["leap"], found["chain"]) == (2, 2, [[2, 1]])
    listed = ask(client, "support").json()
    assert "ODE" in listed["methods"] and "batch" in listed["reasons"]["GiantSteps"]
    assert (
        ask(client, "text", methods=["ode", "chain"]).json()["bibtex"].startswith("@")
    )


@pytest.mark.long
def test_curves_are_those_of_solve(client: httpx.Client) -> None:
    shown = ask(client, "theory").json()
    solved = solving.theory(
        task_from(TASK, "the task"), {}, Voice(lambda event, data: None)
    )
    assert (
        shown["risk"] == solved["risk"].tolist() and shown["M"] == solved["M"].tolist()
    )
    assert "is simulated" in ask(client, "theory", method="chain").json()["refused"]
    assert (
        "Methods that can"
        in ask(client, "theory", method="giantsteps").json()["refused"]
    )


@pytest.mark.long
def test_everything_known_about_a_task(client: httpx.Client) -> None:
    single = {
        **TASK,
        "problem": {"target": "z1**2", "activation": "square"},
        "start": {"Q": [[1.0]], "M": [[0.1]]},
    }
    single |= {
        "run": {"dim": 1000, "time": 1.0},
        "algorithm": {"lr": "0.08/d", "geometry": "projected"},
    }
    times = ask(client, "escape", single).json()["times"]
    assert times["annealed"] < times["quenched"]
    hill = ask(client, "landscape", single).json()
    assert hill["phi"][100] == max(hill["phi"]) and hill["phi"][0] == pytest.approx(
        0.0, abs=1e-9
    )
    plane = ask(client, "phases", single).json()
    assert (
        plane["ell"] == 2
        and len(plane["cells"]) == len(plane["delta"])
        and plane["here"]["regime"] in plane["regimes"]
    )
    best = ask(client, "best", single, alpha=2.0).json()
    assert (
        best["threshold"] == pytest.approx(0.5, abs=1e-6) and best["alpha"][-1] == 2.0
    )
    known = tl.best_possible("z1**2", [best["alpha"][30]]).excess_risk[0]
    assert best["excess_risk"][30] == pytest.approx(known, rel=1e-6) and best[
        "excess_risk"
    ][0] == pytest.approx(1.0)
    assert "one neuron" in ask(client, "landscape").json()["refused"], (
        "two neurons have no φ(m)"
    )
    file = ask(client, "netcdf", method="chain").json()
    assert file["name"].endswith(".nc") and len(file["base64"]) > 1000


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    event = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: "):
            yield event, json.loads(line[6:])


@pytest.mark.long
def test_runs_stream_and_end(client: httpx.Client) -> None:
    body = {
        "task": {**TASK, "run": {**TASK["run"], "seeds": 8}},
        "options": {"method": "chain"},
    }
    with client.stream("POST", "/api/run", json=body) as response:
        names = [event for event, _ in events(response) if event != "progress"]
    assert (
        names[:2] == ["job", "start"]
        and names[-1] == "done"
        and names.count("band") == 2
        and "verdict" in names
    )
    body = {
        "task": TASK,
        "options": {"key": "algorithm.lr", "values": ["0.1/d", "0.3/d", "-1"]},
    }
    with client.stream("POST", "/api/family", json=body) as response:
        curves = [data for event, data in events(response) if event == "curve"]
    assert (
        len(curves) == 3
        and curves[0]["risk"] != curves[1]["risk"]
        and "must be" in curves[2]["error"]
    )


@pytest.mark.slow
def test_a_run_is_withdrawn_within_a_moment(
    client: httpx.Client, server: Explorer
) -> None:
    with client.stream(
        "POST", "/api/run", json={"task": LONG, "options": {}}
    ) as response:
        said = events(response)
        _, number = next(said)
        assert next(said)[0] == "start"
        with httpx.Client(base_url=server.url) as other:
            assert other.delete(f"/api/jobs/{number}").json() == {"withdrawn": True}
        event, data = list(said)[-1]
    assert event == "error" and data["status"] == 499
    deadline = time.monotonic() + 5
    while any(w.job is not None and w.job.number == number for w in workers(server)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_one_tab_does_not_wait_for_another(
    client: httpx.Client, server: Explorer
) -> None:
    with client.stream(
        "POST", "/api/run", json={"task": LONG, "options": {}}
    ) as response:
        said = events(response)
        next(said)
        with httpx.Client(base_url=server.url, timeout=60) as other:
            assert ask(other, "support").status_code == 200, "while the first tab runs"


@pytest.mark.slow
def test_a_crowd_is_answered_or_refused(server: Explorer) -> None:
    async def crowd() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=250)
        async with httpx.AsyncClient(
            base_url=server.url, timeout=120, limits=limits
        ) as client:
            body = {"task": TASK, "options": {}}
            return await asyncio.gather(
                *(client.post("/api/formula", json=body) for _ in range(200))
            )

    answers = asyncio.run(crowd())
    statuses = {answer.status_code for answer in answers}
    assert statuses <= {200, 429} and 200 in statuses
    assert all(
        "retry-after" in answer.headers
        for answer in answers
        if answer.status_code == 429
    )


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(client: httpx.Client, server: Explorer) -> None:
    with client.stream(
        "POST", "/api/run", json={"task": LONG, "options": {}}
    ) as response:
        said = events(response)
        _, number = next(said)
        assert next(said)[0] == "start"
        busy = next(
            w for w in workers(server) if w.job is not None and w.job.number == number
        )
        os.kill(busy.process.pid, signal.SIGSEGV)
        event, data = list(said)[-1]
    assert (
        event == "error"
        and "ended unexpectedly" in data["error"]
        and data["status"] == 503
    )
    assert ask(client, "support").status_code == 200


def test_a_question_survives_its_worker_once() -> None:
    """Without processes: the first worker ends under a question, which goes to the second."""

    class Dead:
        stdin = None

        def kill(self) -> None: ...

    async def crash() -> tuple[list[int], str]:
        pool = Pool(workers=2)
        asked: list[int] = []
        for worker in pool.workers:
            worker.process, worker.ready = Dead(), True  # type: ignore[assignment]
            worker.write = lambda message, worker=worker: asked.append(worker.number)  # type: ignore[method-assign,misc]
        job = pool.submit("support", TASK, {})
        for worker in (job.worker, pool.workers[1]):
            assert worker is not None
            worker.kill()
            assert pool._free(job) is not worker, (
                "what is being ended takes no question"
            )
            pool._lost(worker, -11)
        event, data = [x async for x in job.stream()][-1]
        for task in pool._later:
            task.cancel()
        return asked, f"{event} {data['status']}"

    assert asyncio.run(crash()) == ([0, 1], "error 503")


STRANGE = """
import json, pathlib, sys
print(json.dumps({"job": 0, "event": "ready", "data": 1}), flush=True)
for line in sys.stdin:
    job = json.loads(line)["job"]
    once = pathlib.Path(sys.argv[1])
    if not once.exists():
        once.touch()
        SAY
        sys.stdin.read()
    print(json.dumps({"job": job, "event": "done", "data": {"number": job}}), flush=True)
"""


@pytest.mark.parametrize(
    "say",
    [
        "print('x' * 300_000, flush=True)",
        "print(json.dumps({'job': job, 'event': 'done', 'data': 'x' * 300_000}), flush=True)",
        "print('Segmentation fault', flush=True)",
        "print('[]', flush=True)",
        "print('{}', flush=True)",
        "print('[' * 60_000, flush=True)",
        "sys.exit(0)",
    ],
    ids=[
        "no end of line",
        "a long line",
        "no JSON",
        "no event",
        "an empty event",
        "nested too deeply",
        "a silent end",
    ],
)
@pytest.mark.parametrize("kind", ["netcdf", "support"])
def test_a_worker_that_is_not_understood_is_replaced(
    say: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "LINE", 2**16)
    command = (
        sys.executable,
        "-c",
        STRANGE.replace("SAY", say),
        str(tmp_path / "once"),
    )

    async def asked() -> list[tuple[str, Any]]:
        pool = Pool(workers=2, command=command)
        await pool.start()
        jobs = [pool.submit(kind, TASK, {}) for _ in range(3)]
        said = [[x async for x in job.stream()][-1] for job in jobs]
        await pool.close()
        return said

    first, *others = asyncio.run(asyncio.wait_for(asked(), 60))
    if kind == "netcdf":
        assert first[0] == "error" and first[1]["status"] == 503
    else:
        assert first == ("done", {"number": 1}), (
            "a quick question is given to another worker"
        )
    assert others == [("done", {"number": 2}), ("done", {"number": 3})]


def test_an_answer_that_is_too_long_is_refused_before_it_is_written() -> None:
    said: list[str] = []
    voice = Voice(lambda event, data: said.append(event))
    numbers = np.zeros(LIMITS.numbers)
    voice.send("band", numbers[:-10])
    with pytest.raises(
        tl.InputError,
        match="at most 2500000 numbers at once, but this answer has 5000000",
    ):
        voice.send("band", {"low": numbers, "high": [numbers]})
    assert said == ["band"]
    longest = json.dumps([-1.2345678901234567e-300] * 1000)
    assert len(longest) / 1000 * LIMITS.numbers < pool_module.LINE


LARGE = {
    "problem": {"target": "He2(z1)", "activation": "erf", "width": 16},
    "algorithm": {"lr": "0.1/d", "geometry": "free"},
    "start": {"random": "sphere"},
    "run": {"dim": 100, "steps": 300, "save": 250, "seeds": 100},
}


@pytest.mark.slow
def test_a_large_file_is_downloaded_whole(
    client: httpx.Client, server: Explorer, tmp_path: Path
) -> None:
    """As text it is longer than a line of the pipe between worker and server may be."""
    file = ask(client, "netcdf", LARGE, method="chain").json()
    assert len(file["base64"]) > pool_module.LINE
    path = tmp_path / file["name"]
    path.write_bytes(base64.b64decode(file["base64"], validate=True))
    assert tl.load(path).Q.shape == (100, 251, 16, 16)
    assert ask(client, "netcdf", method="chain").json()["name"].endswith(".nc"), (
        "and its worker is there"
    )
    assert not list(server._server.config.app.state.pool._folder.glob("download-*"))


def address(server: Explorer) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").strip("/").split(":")
    return host, int(port)


def answer_to(server: Explorer, *parts: bytes) -> bytes:
    """What the server says to some bytes until it closes the connection, or nothing where it leaves it open."""
    with socket.create_connection(address(server), timeout=60) as line:
        said = b""
        with contextlib.suppress(ConnectionError):
            for part in parts:
                line.sendall(part)
            while more := line.recv(2**16):
                said += more
        return said


def test_a_body_in_chunks_is_no_way_around_the_bound(server: Explorer) -> None:
    """Whatever length it declares."""
    host, port = address(server)
    head = f"POST /api/formula HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
    chunk = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    for more in ("content-length: 5\r\n", ""):
        begun = f"{head}{more}transfer-encoding: chunked\r\n\r\n".encode()
        said = answer_to(server, begun)
        assert b" 411 " in said.splitlines()[0] and b"connection: close" in said.lower()
        # what is sent all the same meets a closed door, perhaps before the answer could be read
        assert b" 411 " in (answer_to(server, begun, *[chunk] * 3) or said)


def test_bytes_of_a_body_are_counted_as_they_come() -> None:
    """Also where a server in front of this one has taken the words about its length away."""
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b" " * 2**14, "more_body": True}

    assert asyncio.run(_body(receive)) is None
    assert taken == LIMITS.body // 2**14 + 1


def test_half_sent_requests_are_given_up(
    server: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    host, port = address(server)
    named = f"host: {host}:{port}\r\n".encode()
    assert b" 408 " in answer_to(server)
    assert b" 408 " in answer_to(server, b"GET / HTTP/1.1\r\nhos")
    whole = b"GET /api/catalogue HTTP/1.1\r\n" + named + b"\r\n"
    with socket.create_connection(address(server), timeout=60) as line:
        line.sendall(whole)
        said = line.recv(2**20)
        length = int(re.search(rb"content-length: (\d+)", said)[1])  # type: ignore[index]
        while len(said.split(b"\r\n\r\n", 1)[1]) < length:
            said += line.recv(2**20)
        assert said.startswith(b"HTTP/1.1 200 ")
        line.sendall(b"GET / HTTP/1.1\r\nhos")
        assert b" 408 " in line.recv(2**16), "after an answer too"
    question = b"POST /api/formula HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 50\r\n"
    assert b" 408 " in answer_to(server, question + named + b"\r\n{").splitlines()[0]


@pytest.mark.slow
def test_slow_answers_are_no_half_sent_requests(
    client: httpx.Client, server: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    with client.stream(
        "POST", "/api/run", json={"task": LONG, "options": {}}
    ) as response:
        said = events(response)
        _, number = next(said)
        assert next(said)[0] == "start"
        time.sleep(1.0)
        with httpx.Client(base_url=server.url) as other:
            assert other.delete(f"/api/jobs/{number}").json() == {"withdrawn": True}
        assert list(said)[-1][1]["status"] == 499


@pytest.mark.slow
def test_random_requests_never_break_it(client: httpx.Client, server: Explorer) -> None:
    seen = asyncio.run(explorer_fuzz.fuzz(server.url, 60, seed=1, dear=0.0))
    assert (
        sum(seen.values()) == 60
        and 500 not in seen
        and seen[422] > 2
        and seen[200] > 20
    )
    assert client.get("/api/catalogue").status_code == 200


@pytest.mark.slow
def test_the_command_serves_and_ends_at_once(tmp_path: Path) -> None:
    example = Path(__file__).parent.parent / "examples" / "phase_retrieval.toml"
    command = [
        sys.executable,
        "-m",
        "twolayer",
        "explore",
        str(example),
        "--no-browser",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert address is not None
    page = httpx.get(address[0])
    assert page.status_code == 200 and "<title>" in page.text
    assert (
        httpx.get(f"{address[0]}api/catalogue").json()["task"]["problem"]["width"] == 4
    )
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 0
    assert "Traceback" not in process.communicate()[1]
