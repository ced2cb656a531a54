"""Where batches run: in this process, in a pool of processes, on a Dask cluster, or
wherever ``submit`` sends them.

    local              one batch after the other, here
    processes[:N]      N fresh processes (spawned, never forked),
                       one for each core by default
    dask://HOST:PORT   the workers of a Dask scheduler

Workers hand their results back; only the process that called `sweep` writes to the
store. A batch lost with its worker is sent again; one that kills its worker three times
is split into its units, and a unit that still does is a failure.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import signal
import socket
import threading
import time as wall
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from twolayer.numerics.errors import InputError, RunFailed, positive_integer, reject

__all__ = ["Executor", "engine_for"]

Tag = TypeVar("Tag")
Value = TypeVar("Value")
Done: TypeAlias = queue.Queue[tuple[Tag, concurrent.futures.Future[Value]]]
"""Where calls are put when they end, each with its tag."""

PATIENCE = 8.0  # seconds to wait for a scheduler


class Executor(Protocol):
    """Runs functions somewhere."""

    @property
    def workers(self) -> int:
        """How many batches can run at once."""

    @property
    def remote(self) -> bool:
        """Whether batches leave this process."""

    def submit(
        self,
        done: Done[Tag, Value],
        tag: Tag,
        function: Callable[..., Value],
        *arguments: object,
    ) -> None:
        """Start a call; when it ends, put (tag, future) into the queue."""

    def lost(self, error: BaseException) -> bool:
        """Whether an error means that the worker went away, not that the call
        failed.
        """

    def close(self) -> None:
        """Let go of the workers."""


class Local:
    """In this process, at once."""

    workers, remote = 1, False

    def submit(
        self,
        done: Done[Tag, Value],
        tag: Tag,
        function: Callable[..., Value],
        *arguments: object,
    ) -> None:
        """Run it now."""
        future: concurrent.futures.Future[Value] = concurrent.futures.Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        done.put((tag, future))

    def lost(self, error: BaseException) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Nothing to do."""


class Processes:
    """A pool of spawned processes, made anew when one of them dies."""

    remote = True

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._sent: set[concurrent.futures.Future[Any]] = set()

    def submit(
        self,
        done: Done[Tag, Value],
        tag: Tag,
        function: Callable[..., Value],
        *arguments: object,
    ) -> None:
        """Send it to the pool."""
        import multiprocessing

        for attempt in range(3):
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = concurrent.futures.ProcessPoolExecutor(
                    self.workers, context, _end_with_parent
                )
            try:
                with _deaf():
                    future = self._pool.submit(function, *arguments)
                break
            except BrokenProcessPool:
                self._pool = None
                if attempt == 2:
                    raise
        self._sent = {*(x for x in self._sent if not x.done()), future}
        future.add_done_callback(lambda f: done.put((tag, f)))

    def lost(self, error: BaseException) -> bool:
        """The pool broke: begin a new one."""
        if isinstance(error, BrokenProcessPool):
            self._pool = None
            return True
        return False

    def close(self) -> None:
        """End the processes, in the middle of a batch where the sweep was
        interrupted.
        """
        if self._pool is not None:
            if any(not future.done() for future in self._sent):
                for process in list(self._pool._processes.values()):
                    process.terminate()
            self._pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here hear no Ctrl-C, which is for the one that starts
    them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    # which would open our ears when it is started by the first process
    resource_tracker.ensure_running()
    old = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _end_with_parent() -> None:
    """Let this process of a pool go when the one that made it has gone, however that
    was.
    """
    import multiprocessing

    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Submitter:
    """Anything with ``submit``: a Dask client, or an executor of the standard library's
    kind.
    """

    remote = True

    def __init__(self, target: Any, owned: bool = False) -> None:
        self._target, self._owned = target, owned
        self._is_dask = hasattr(target, "scheduler_info")

    @property
    def workers(self) -> int:
        """How many, as far as it says."""
        if self._is_dask:
            return max(1, len(self._target.scheduler_info()["workers"]))
        return int(getattr(self._target, "_max_workers", None) or 1)

    def submit(
        self,
        done: Done[Tag, Value],
        tag: Tag,
        function: Callable[..., Value],
        *arguments: object,
    ) -> None:
        """Send it."""
        options = {"pure": False} if self._is_dask else {}
        future = self._target.submit(function, *arguments, **options)
        future.add_done_callback(lambda f: done.put((tag, f)))

    def lost(self, error: BaseException) -> bool:
        """Whether the worker went away; of a scheduler that did, nothing more is to be
        expected.
        """
        until = wall.monotonic() + PATIENCE / 2
        while self._is_dask and self._target.status != "running":
            if wall.monotonic() > until:
                raise RunFailed(
                    "The Dask scheduler went away; cells that are in the store are"
                    " safe: start it again and resume."
                )
            wall.sleep(0.1)
        return type(error).__name__ in (
            "KilledWorker",
            "FutureCancelledError",
            "CancelledError",
            "BrokenProcessPool",
        )

    def close(self) -> None:
        """Disconnect, if the connection was ours."""
        if self._owned:
            self._target.close(timeout=PATIENCE / 2)


def _dask(address: str) -> Submitter:
    """A client of the scheduler at dask://HOST:PORT."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "A Dask cluster needs the package distributed: pip install"
            " 'twolayer[cluster]'."
        ) from None
    parts = urlsplit(address)
    try:
        host, port = parts.hostname, parts.port or 8786
    except ValueError:
        host = None
    if not host:
        raise InputError(
            f"Argument `executor` must be dask://HOST:PORT, but got {address!r}."
        )
    # a plain connection tells within seconds whether anybody listens, before a client
    # begins to retry
    try:
        socket.create_connection((host, port), timeout=PATIENCE / 2).close()
        client: Any = Client(
            f"tcp://{host}:{port}", timeout=PATIENCE / 2, set_as_default=False
        )  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"No Dask scheduler answers at {address!r}"
            f" ({error or type(error).__name__})."
        ) from None
    return Submitter(client, owned=True)


def engine_for(executor: object) -> Executor:
    """The engine that an argument ``executor`` asks for.

    Examples
    --------
    >>> engine_for("processes:2").workers
    2
    """
    if hasattr(executor, "submit"):
        return Submitter(executor)
    if not isinstance(executor, str):
        reject(
            "executor",
            executor,
            "'local', 'processes', 'processes:N', 'dask://HOST:PORT' or an object with"
            " submit",
        )
    if executor == "local":
        return Local()
    if executor.startswith("dask://"):
        return _dask(executor)
    name, _, count = executor.partition(":")
    if name == "processes":
        if not count:
            return Processes(
                len(os.sched_getaffinity(0))
                if hasattr(os, "sched_getaffinity")
                else os.cpu_count() or 1
            )
        if count.isdigit():
            return Processes(positive_integer("executor", int(count)))
    reject(
        "executor",
        executor,
        "'local', 'processes', 'processes:N' or 'dask://HOST:PORT'",
    )
