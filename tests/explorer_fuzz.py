"""Random requests to a server of the explorer, most of them wrong in one way or another.

    python tests/explorer_fuzz.py 10000 [SEED]       starts a server, asks, and tells how it answered

Every answer has to be JSON with a status that is not 500, and the server has to be there at the end.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx

TASK: dict[str, Any] = {
    "problem": {"target": "He2(z1)", "activation": "He2", "width": 2, "noise": 0.1},
    "algorithm": {"lr": "0.2/d", "batch": 1, "geometry": "projected"},
    "start": {"Q": [[1.0, 0.1], [0.1, 1.0]], "M": [[0.3], [0.2]]},
    "run": {"dim": 64, "time": 0.25, "save": 4, "seeds": 3},
}
KEYS = {
    "problem": (
        "target",
        "activation",
        "width",
        "noise",
        "gram",
        "second_layer",
        "directions",
        "normalisation",
        "flips",
        "inputs",
    ),
    "algorithm": (
        "lr",
        "batch",
        "loss",
        "geometry",
        "momentum",
        "dataset",
        "sampling",
        "repeat",
        "rule",
        "average",
    ),
    "start": ("Q", "M", "a", "random", "seed"),
    "run": (
        "dim",
        "time",
        "steps",
        "alpha",
        "save",
        "seeds",
        "seed",
        "methods",
        "until",
    ),
    "method": ("ode", "chain", "nothing"),
}
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2, 3, 7, 1e308, 1e-308, 2**70, -0.5, 0.3, "", "z1", "z1 + z1*z2", "He3(z1)", "He99(z1)", "z1**",
    "((((z1", "exp(exp(z1))", "1/z1", "z" * 3000, "relu", "erf", "tanh(z + 1)", "0.1/d", "d**400", "4*d", "0.2/d * cosine(5)",
    "clip(0.25)", "adam()", "__import__('os')", "../../etc/passwd", "\x00", "∞", "projected", "spherical", "correlation",
    [], [1], [[1.0]], [[1.0, 0.5], [0.5, 1.0]], [[None]], [["x"]], {}, {"teacher": "erf", "k": 2}, {"k": -1}, [0.1] * 2000,
    {"kind": "power_law", "exponent": 1.0, "dim": 64}, {"kind": "power_law", "exponent": 1, "dim": 10**12},
    {"variances": [2.0, 0.5], "fractions": [0.5, 0.5]}, {"variances": [-1], "dims": [2**70]},
    {"quantity": "risk", "value": 0.1}, "gaussian", "signs", "log", ["ode"], ["nothing"],
)  # fmt: skip
CHEAP = (
    "formula",
    "support",
    "text",
    "formula",
    "support",
    "text",
    "analysis",
    "escape",
    "phases",
    "landscape",
)
DEAR = ("theory", "run", "family", "netcdf", "best")
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"method": "ode"}, {"method": "chain"}, {"method": "nothing"}, {"method": 3}, {"values": [1, 2]}, {"key": "run.dim"},
    {"key": "algorithm.lr", "values": ["0.1/d", "0.2/d"]}, {"key": "__class__.x", "values": [1]}, {"values": list(range(99))},
    {"threshold": -1.0}, {"threshold": "x"}, {"methods": ["ode", "x"]}, {"alpha": 1e300}, {"extra": 1},
)  # fmt: skip


class Ask(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    patience: float


def _task(rng: random.Random) -> Any:
    task = copy.deepcopy(TASK)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        table = rng.choice(list(KEYS))
        if rng.random() < 0.05:
            task[table] = rng.choice(VALUES)
        elif isinstance(task.setdefault(table, {}), dict):
            task[table][rng.choice(KEYS[table])] = rng.choice(VALUES)
    return rng.choice(VALUES) if rng.random() < 0.02 else task


def requests(count: int, seed: int = 0, dear: float = 0.02) -> Iterator[Ask]:
    """That many requests; the share ``dear`` of them may make a worker compile and run."""
    rng = random.Random(seed)
    for _ in range(count):
        kind = (
            rng.choice(DEAR) if rng.random() < dear else rng.choice((*CHEAP, "nothing"))
        )
        # what would be dear is asked with tasks that change its data only, or withdrawn after a moment
        body = json.dumps(
            {
                "task": _task(rng),
                "options": rng.choice(OPTIONS) if rng.random() < 0.4 else {},
            }
        ).encode()
        odd = rng.random()
        headers = {"content-type": "application/json"}
        if odd < 0.03:
            body = rng.randbytes(rng.randrange(200))
        elif odd < 0.05:
            body = body[: rng.randrange(len(body))]
        elif odd < 0.06:
            body = b" " * 70_000
        elif odd < 0.07:
            body = b"[" * 20_000
        elif odd < 0.09:
            headers |= rng.choice(
                (
                    {"origin": "http://evil.example"},
                    {"host": "evil.example"},
                    {"content-type": "text/plain"},
                )
            )
        path, method = f"/api/{kind}", "POST"
        if rng.random() < 0.08:
            method = rng.choice(("GET", "PUT", "DELETE", "HEAD", "OPTIONS"))
            path = rng.choice(
                (
                    "/",
                    "/api/catalogue",
                    "/..%2f..%2fetc/passwd",
                    "/explorer.js",
                    "/api/jobs/9",
                    "/api/jobs/x",
                    "//",
                    "/%00",
                )
            )
            body = b""
        yield Ask(method, path, headers, body, 0.3 if rng.random() < 0.02 else 120.0)


async def fuzz(
    base: str, count: int, seed: int = 0, together: int = 8, dear: float = 0.02
) -> collections.Counter[int]:
    """Ask all of them, some at a time; the statuses that came back. Withdrawn ones count as 0."""
    seen: collections.Counter[int] = collections.Counter()
    asks = requests(count, seed, dear)
    async with httpx.AsyncClient(base_url=base, timeout=120) as client:

        async def one(ask: Ask) -> None:
            try:
                sent = client.request(
                    ask.method, ask.path, headers=ask.headers, content=ask.body
                )
                answer = await asyncio.wait_for(sent, ask.patience)
            except TimeoutError:
                seen[0] += 1
                return
            seen[answer.status_code] += 1
            assert answer.status_code != 500, (ask, answer.text)
            if (
                answer.headers.get("content-type", "").startswith("application/json")
                and ask.method != "HEAD"
            ):
                said = answer.json()
                sentence = (
                    said.get("refused", "It is answered.")
                    if answer.status_code == 200
                    else said["error"]
                )
                assert sentence.endswith((".", "…")), (ask, said)
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                assert '"status": 500' not in answer.text, (ask, answer.text[-500:])

        async def many() -> None:
            for ask in asks:
                await one(ask)

        await asyncio.gather(*(many() for _ in range(together)))
    return seen


def main() -> None:
    from twolayer.explorer.launch import explore
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem

    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server = explore(Problem("He2(z1)", "He2"), SGD(lr="0.1/d"), browser=False)
    began = time.monotonic()
    seen = asyncio.run(fuzz(server.url, count, seed))
    there = httpx.get(f"{server.url}api/catalogue").status_code
    server.stop()
    print(
        f"{count} requests in {time.monotonic() - began:.0f} s: {dict(sorted(seen.items()))}; at the end {there}"
    )


if __name__ == "__main__":
    main()
