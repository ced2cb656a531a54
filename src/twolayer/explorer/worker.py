"""A process that answers the questions of the page, one at a time.

    server → worker   {"job": n, "kind": "theory", "task": {…}, "options": {…}}   or
        {"stop": n}
    worker → server   {"job": n, "event": "progress" | … | "done" | "error", "data": …}

Lines of JSON on its pipes. It imports JAX when it starts, so that the first question
finds it ready, and ends when the server does: then its input ends. A question that
cannot hear "stop" because code is being compiled is ended by the server with the whole
process.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import queue
import sys
import threading
import traceback
from typing import TextIO

from twolayer.explorer.speaking import Cancelled, Voice
from twolayer.files.taskfile import task_from
from twolayer.numerics.arguments import Json
from twolayer.numerics.compilation import expect
from twolayer.numerics.errors import InputError, Interrupted, NotWritten, RunFailed

__all__ = ["KINDS", "LONG", "answer"]

KINDS = {
    "formula": "describing",
    "analysis": "describing",
    "support": "describing",
    "text": "describing",
    "theory": "solving",
    "run": "solving",
    "family": "solving",
    "netcdf": "solving",
    "escape": "reading",
    "phases": "reading",
    "landscape": "reading",
    "best": "reading",
}
"""Questions, and the module of this folder that answers each."""

LONG = ("run", "family", "netcdf")
"""Questions that may take minutes."""


def answer(
    kind: str, document: Json, options: Json, voice: Voice
) -> tuple[str, object]:
    """The last event of an answer: "done" with what is known, or "error" with a
    sentence.

    Examples
    --------
    >>> tables = {
    ...     "problem": {"target": "z1 +", "activation": "erf"},
    ...     "algorithm": {"lr": 0.1},
    ... }
    >>> event, data = answer("formula", tables, {}, Voice(lambda event, data: None))
    >>> event, data["target"]["position"], data["activation"]["name"]
    ('done', 4, 'erf')
    """
    from numpy.linalg import (
        LinAlgError,
    )  # here: the server asks this file for KINDS alone

    try:
        function = getattr(
            importlib.import_module(f"twolayer.explorer.{KINDS[kind]}"), kind
        )
        return "done", function(task_from(document, "the task"), options, voice)
    except InputError as error:
        return "error", {"error": str(error), "position": error.position, "status": 422}
    except RunFailed as error:
        return "error", {"error": str(error), "status": 422}
    except NotWritten as error:
        return "error", {
            "error": (
                "The file could not be written where this computer keeps temporary"
                f" files ({os.strerror(error.errno or errno.EIO)})."
            ),
            "status": 503,
        }
    except MemoryError:
        return "error", {
            "error": (
                "There is not enough memory for this: use fewer neurons or save points."
            ),
            "status": 422,
        }
    except (ArithmeticError, LinAlgError) as error:
        return "error", {
            "error": f"The numbers of this task cannot be computed: {error}.",
            "status": 422,
        }


def _private_output() -> TextIO:
    """The pipe to the server, out of reach of whatever prints to standard output."""
    file = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return file


def _prepare() -> None:
    """What the first questions need, so that they do not wait for it; compiled code is
    kept, and shared by workers.
    """
    expect()
    import jax

    jax.numpy.zeros(1).block_until_ready()
    for name in ("describing", "solving", "reading"):
        importlib.import_module(f"twolayer.explorer.{name}")
    for name in (
        "running.compare",
        "methods.ode",
        "methods.chain",
        "analysis.exponents",
        "files.papers",
    ):
        importlib.import_module(f"twolayer.{name}")


def main() -> None:
    """Answer until the server is gone."""
    out, lock = _private_output(), threading.Lock()
    questions: queue.Queue[Json] = queue.Queue()
    current: Json = {}

    def send(job: int, event: str, data: object) -> None:
        line = json.dumps({"job": job, "event": event, "data": data}, allow_nan=False)
        with lock:
            out.write(line + "\n")

    def listen() -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "stop" not in message:
                questions.put(message)
            elif current.get("job") == message["stop"]:
                current["voice"].stop.set()
        os._exit(0)  # the server has gone

    threading.Thread(target=listen, daemon=True).start()
    _prepare()
    send(0, "ready", os.getpid())
    while True:
        message = questions.get()
        job = message["job"]
        voice = Voice(lambda event, data, job=job: send(job, event, data))  # type: ignore[misc]
        current.update(job=job, voice=voice)
        try:
            event, data = answer(
                message["kind"], message["task"], message["options"], voice
            )
            voice.send(event, data)
        except InputError as error:  # the answer is too long
            send(job, "error", {"error": str(error), "status": 422})
        except (Cancelled, Interrupted):
            send(job, "error", {"error": "The question was withdrawn.", "status": 499})
        except Exception as error:
            traceback.print_exc()
            sentence = (
                "This is an error of the package, please report it:"
                f" {type(error).__name__}: {error}."
            )
            send(job, "error", {"error": sentence, "status": 500})


if __name__ == "__main__":
    main()
