"""The workers of the server: processes that are started, given one question each,
stopped, and started again.

    job → waiting → worker → events … → done | error

Answers to quick questions have a worker that long runs never take. A question goes to a
worker that has compiled its equations before, if that one is free. Workers start one
after the other, so that the first is ready soon; questions wait for it. A withdrawn
question is told to stop, and its process is ended if it has not stopped after a quarter
of a second; another takes its place. When a process ends by itself, a quick question is
given to another once, and a stream ends with an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from twolayer.explorer.limits import LIMITS, Limits
from twolayer.explorer.worker import LONG
from twolayer.numerics.arguments import Json
from twolayer.numerics.temporary_files import clear_stale, mark, passing

__all__ = ["Busy", "Inquiry", "Pool"]

WORKERS = 3
COMMAND = (sys.executable, "-m", "twolayer.explorer.worker")
PATIENCE = 0.25  # seconds that a question has to stop by itself
LINE = (
    65 * 2**20
)  # bytes of one event at most: the largest answer of `limits.py`, with its frame
AGAIN = 1.0  # seconds until a process is tried again that could not be started
DATA = {
    "problem": ("noise", "flips"),
    "algorithm": ("lr", "momentum", "weight_decay", "second_lr"),
    "run": ("dim", "time", "steps", "alpha", "passes", "seeds", "seed"),
    "start": ("Q", "M", "a", "seed", "random"),
}
"""Keys whose values are data of the equations: changing them compiles nothing new, or
little.
"""


class Busy(Exception):
    """So many questions wait already that another one is refused."""


@dataclass(eq=False)
class Inquiry:
    """A question and the events that answer it."""

    number: int
    kind: str
    task: Json
    options: Json
    ahead: bool = False
    events: asyncio.Queue[tuple[str, object]] = field(default_factory=asyncio.Queue)
    worker: Worker | None = None
    over: bool = False
    again: bool = False

    @property
    def key(self) -> str:
        """What of the question decides about its equations."""
        tables = {
            name: {k: v for k, v in table.items() if k not in DATA.get(name, ())}
            for name, table in self.task.items()
            if isinstance(table, dict)
        }
        return json.dumps([self.options.get("method"), tables], sort_keys=True)

    def tell(self, event: str, data: object) -> None:
        """Pass an event on; "done" and "error" are the last."""
        if not self.over:
            self.over = event in ("done", "error")
            self.events.put_nowait((event, data))

    async def stream(self) -> AsyncIterator[tuple[str, object]]:
        """All events, to the last."""
        while True:
            event, data = await self.events.get()
            yield event, data
            if event in ("done", "error"):
                return


@dataclass(eq=False)
class Worker:
    """A process, with the question it is at."""

    number: int
    process: asyncio.subprocess.Process | None = None
    job: Inquiry | None = None
    ready: bool = False
    known: set[str] = field(default_factory=set)
    reader: asyncio.Task[None] | None = None

    def write(self, message: Json) -> None:
        """One line to the process."""
        assert self.process is not None and self.process.stdin is not None
        with contextlib.suppress(
            OSError, RuntimeError
        ):  # it has just ended: its reader tells
            self.process.stdin.write(json.dumps(message).encode() + b"\n")

    def kill(self) -> None:
        """End the process at once; until its successor is ready, it takes no
        question.
        """
        self.ready = False
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()


class Pool:
    """A few workers, and the questions that wait for them."""

    def __init__(
        self,
        workers: int = WORKERS,
        limits: Limits = LIMITS,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self.command = command
        self.workers = [Worker(number) for number in range(workers)]
        self.limits = limits
        self.waiting: deque[Inquiry] = deque()
        self.jobs: dict[int, Inquiry] = {}
        self._numbers = itertools.count(1)
        self._stack = contextlib.ExitStack()
        self._closing = False
        self._later: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start the first process, which is ready some seconds later; the others follow
        it.
        """
        clear_stale(Path(tempfile.gettempdir()))
        self._folder = self._stack.enter_context(
            passing(Path(tempfile.mkdtemp(prefix=f"twolayer-{mark()}-")))
        )
        await self._launch(self.workers[0])

    async def close(self) -> None:
        """End all processes and forget what waits."""
        self._closing = True
        for job in list(self.jobs.values()):
            job.tell("error", {"error": "The server has been ended.", "status": 503})
        for worker in self.workers:
            worker.kill()
        readers = [
            worker.reader for worker in self.workers if worker.reader is not None
        ]
        await asyncio.gather(*readers, return_exceptions=True)
        for task in self._later:
            task.cancel()
        self._stack.close()

    async def _launch(self, worker: Worker) -> None:
        own = {
            "TMPDIR": str(self._folder)
        }  # a worker may be killed, and its files go with the folder
        worker.process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE,
            # XLA takes preferences of LLVM in code that it kept for abilities that the
            # processor lacks
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **own},
            start_new_session=True,  # Ctrl-C is for the server, which ends them
        )
        if self._closing:  # while it was being started
            worker.kill()
        worker.ready, worker.known = False, set()
        worker.reader = asyncio.create_task(self._read(worker))

    async def _read(self, worker: Worker) -> None:
        """Pass on what a worker says until it ends, and start it again."""
        assert worker.process is not None
        try:
            await self._listen(worker)
        except Exception as error:
            # a line that is too long, or nested too deeply, or says nothing: whatever
            # follows it is not understood either
            logging.getLogger(__name__).error(
                "A worker of the explorer is not understood: %s", error
            )
            worker.kill()
        self._lost(worker, await worker.process.wait())
        await self._insist_on_launch(worker)

    async def _insist_on_launch(self, worker: Worker) -> None:
        while not self._closing:
            try:
                return await self._launch(worker)
            except OSError:  # there is no memory for a process now, or no number
                await asyncio.sleep(AGAIN)

    async def _listen(self, worker: Worker) -> None:
        assert worker.process is not None and worker.process.stdout is not None
        async for line in worker.process.stdout:
            message = json.loads(line)
            event, job = message["event"], worker.job
            if event == "ready":
                worker.ready = True
                self._dispatch()
                following = next((w for w in self.workers if w.process is None), None)
                if following is not None:
                    await self._insist_on_launch(following)
            elif job is None or message["job"] != job.number:
                _forget(message["data"])
            else:
                if job.over:  # it has been withdrawn, and nobody waits for its file
                    _forget(message["data"])
                job.tell(event, message["data"])
                if event in ("done", "error"):
                    self._finished(job)

    def _lost(self, worker: Worker, code: int) -> None:
        """The process has ended: its question goes to another worker, once, if nothing
        of the answer has been told.
        """
        job, worker.job, worker.ready = worker.job, None, False
        if job is None:
            return
        if not (job.over or job.again or job.kind in LONG or self._closing):
            job.again, job.worker = True, None
            self.waiting.append(job)
            self._dispatch()
            return
        self.jobs.pop(job.number, None)
        sentence = (
            f"The worker ended unexpectedly (code {code}) and has been started again."
        )
        job.tell("error", {"error": sentence, "status": 503})

    def _finished(self, job: Inquiry) -> None:
        worker = job.worker
        self.jobs.pop(job.number, None)
        if worker is not None and worker.job is job:
            worker.job = None
            self._dispatch()

    def submit(
        self, kind: str, task: Json, options: Json, ahead: bool = False
    ) -> Inquiry:
        """Queue a question; `Busy` when too many wait."""
        if len(self.waiting) >= self.limits.waiting:
            raise Busy
        job = Inquiry(next(self._numbers), kind, task, options, ahead)
        self.jobs[job.number] = job
        self.waiting.append(job)
        self._dispatch()
        return job

    def _dispatch(self) -> None:
        """Give waiting questions to free workers, those that nobody waits for last."""
        for job in sorted(self.waiting, key=lambda job: (job.ahead, job.number)):
            worker = self._free(job)
            if worker is None:
                continue
            self.waiting.remove(job)
            worker.job, job.worker = job, worker
            worker.known.add(job.key)
            worker.write(
                {
                    "job": job.number,
                    "kind": job.kind,
                    "task": job.task,
                    "options": job.options,
                }
            )
            seconds = self.limits.long if job.kind in LONG else self.limits.quick
            self._soon(self._expire(job, seconds))

    def _free(self, job: Inquiry) -> Worker | None:
        """The best free worker for a question: one that knows its equations, the first
        of all keeping quick ones.
        """
        lasting = job.kind in LONG or job.ahead
        free = [
            w
            for w in self.workers
            if w.ready and w.job is None and not (lasting and w.number == 0)
        ]
        return min(free, key=lambda w: (job.key not in w.known, w.number), default=None)

    def _soon(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _expire(self, job: Inquiry, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not job.over:
            sentence = (
                f"The answer took longer than {seconds:g} s and was given up: ask for"
                " less."
            )
            self._withdraw(job, {"error": sentence, "status": 504})

    def cancel(self, number: int) -> bool:
        """Withdraw a question; whether there was one."""
        job = self.jobs.get(number)
        if job is None or job.over:
            return False
        self._withdraw(job, {"error": "The question was withdrawn.", "status": 499})
        return True

    def _withdraw(self, job: Inquiry, reason: Json) -> None:
        job.tell("error", reason)
        if job in self.waiting:
            self.waiting.remove(job)
            self.jobs.pop(job.number, None)
        elif job.worker is not None and job.worker.job is job:
            job.worker.write({"stop": job.number})
            self._soon(self._insist(job))

    async def _insist(self, job: Inquiry) -> None:
        """End the process of a question that does not stop."""
        process = job.worker.process if job.worker is not None else None
        await asyncio.sleep(PATIENCE)
        if (
            job.worker is not None
            and job.worker.job is job
            and job.worker.process is process
        ):
            job.worker.job = None
            self.jobs.pop(job.number, None)
            job.worker.kill()


def _forget(data: object) -> None:
    """Remove the file of an answer that nobody takes."""
    if isinstance(data, dict) and "file" in data:
        Path(data["file"]).unlink(missing_ok=True)
