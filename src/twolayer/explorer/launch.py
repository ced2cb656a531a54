"""Starting the server: from the command line until Ctrl-C, from Python and notebooks in
the background.

explore(problem, algorithm, start)   →  an address; a frame in a notebook, a tab of the
browser elsewhere
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time as wall
from typing import TYPE_CHECKING

from twolayer.numerics.arguments import ENDS, Json
from twolayer.numerics.errors import InputError, positive_integer, reject
from twolayer.numerics.html import escaped

if TYPE_CHECKING:
    import uvicorn

    from twolayer.task.algorithm import SGD
    from twolayer.task.overlaps import Overlaps
    from twolayer.task.problem import Problem

__all__ = ["Explorer", "explore", "serve", "tables_of"]

HEIGHT = 860  # of the frame in a notebook
READY = 20.0  # seconds that a server may take to listen


class Explorer:
    """A server that runs. In a notebook it shows itself as a frame. Made by `explore`.

    Attributes
    ----------
    url : str
        The address of the page.
    """

    def __init__(
        self, server: uvicorn.Server, url: str, thread: threading.Thread | None = None
    ) -> None:
        self._server, self.url, self._thread = server, url, thread

    def stop(self) -> None:
        """End the server."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(5.0)

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{escaped(self.url)}" title="twolayer explorer" '
            f'style="width:100%;height:{HEIGHT}px;border:1px solid #8884"></iframe>'
        )


def tables_of(
    problem: Problem, algorithm: SGD, start: Overlaps | str = "random", **run: object
) -> Json:
    """The description as the tables of a task file, as the page takes it.

    Examples
    --------
    >>> from twolayer import SGD, Overlaps, Problem
    >>> tables = tables_of(
    ...     Problem("He2(z1)", "He2"),
    ...     SGD(lr="0.1/d"),
    ...     Overlaps([[1.0]], [[0.5]]),
    ...     time=2.0,
    ... )
    >>> tables["algorithm"]["lr"], tables["start"], tables["run"]
    ('0.1/d', {'Q': [[1.0]], 'M': [[0.5]]}, {'time': 2.0, 'dim': 1000})
    """
    from twolayer.running.dataset import describe_problem
    from twolayer.running.support import check_description
    from twolayer.task.overlaps import LAWS, Overlaps

    check_description(problem, algorithm)
    described = {
        "problem": describe_problem(problem),
        "algorithm": algorithm.describe(),
    }
    for name, table in described.items():
        for key, value in table.items():
            if isinstance(value, str) and "<function" in value:
                raise InputError(
                    f"Argument `{name}` must be text that a page can show, but `{key}`"
                    " is a function."
                )
    tables: Json = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in described.items()
    }
    if isinstance(start, Overlaps):
        if start.batch:
            reject("start", start, "one start, not several")
        given = {name: getattr(start, name).tolist() for name in ("Q", "M")}
        tables["start"] = (
            given
            if start.blocks is None
            else {"blocks": {**given, "P": start.P.tolist()}}
        )
        tables["start"] |= {} if start.a is None else {"a": start.a.tolist()}
        run.setdefault("dim", start.dim or 1000)
    elif isinstance(start, str) and start in ("random", *LAWS):
        tables["start"] = {"random": "sphere" if start == "random" else start}
        run.setdefault("dim", 1000)
    else:
        reject("start", start, "Overlaps, or 'random'")
    if not set(ENDS) & set(run):
        run["time"] = 5.0
    tables["run"] = run
    return tables


def _server(
    task: Json | None, host: str, port: int
) -> tuple[uvicorn.Server, socket.socket, str]:
    """A server bound to its port, not yet running, and the address of its page."""
    try:
        import uvicorn

        from twolayer.explorer.connections import Bounded
        from twolayer.explorer.pool import Pool
        from twolayer.explorer.server import LOOPBACK, create_app
    except ImportError as error:
        missing = str(error.name or "").split(".")[0]
        if missing not in ("fastapi", "uvicorn"):
            raise
        raise InputError(
            f"The explorer needs {missing}, which the extra `explore` installs: pip"
            " install 'twolayer[explore]'."
        ) from None

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: object) -> None:
            """End; uvicorn would raise the signal once more afterwards, which is a
            second Ctrl-C to the command.
            """
            self.force_exit = self.should_exit
            self.should_exit = True

    port = positive_integer("port", port, 0)
    if port > 65535:
        reject("port", port, "at most 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm, which would hold answers back for 40 ms,
    # where it reads that this is TCP
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, UnicodeError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"The server cannot listen at {host}, port {port}: {reason}; give another"
            " --port."
        ) from None
    port = bound.getsockname()[1]
    local = host in LOOPBACK
    token = None if local else secrets.token_urlsafe(16)
    names = {f"[{name}]" if ":" in name else name for name in (*LOOPBACK, host)}
    app = create_app(Pool(), frozenset(f"{name}:{port}" for name in names), token, task)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}/" + ("" if token is None else f"?token={token}")
    # a stream that is open does not keep the server alive
    config = uvicorn.Config(
        app,
        http=Bounded,
        log_level="critical",
        timeout_graceful_shutdown=0,
        ws="none",
        access_log=False,
    )
    return Server(config), bound, url


def serve(
    task: Json | None, host: str = "127.0.0.1", port: int = 0, browser: bool = True
) -> None:
    """Serve the page until Ctrl-C; says where as soon as it answers."""
    server, bound, url = _server(task, host, port)

    def announce() -> None:
        while not server.started and not server.should_exit:
            wall.sleep(0.02)
        if server.started:
            print(f"twolayer explorer at {url}   (Ctrl-C ends it)", flush=True)
            if browser:
                import webbrowser

                webbrowser.open(url)

    threading.Thread(target=announce, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[bound])


def explore(
    problem: Problem,
    algorithm: SGD,
    start: Overlaps | str = "random",
    *,
    port: int = 0,
    browser: bool = True,
    **run: object,
) -> Explorer:
    """Open the explorer on a description: in a notebook as a frame, elsewhere in the
    browser.

    Parameters
    ----------
    problem : Problem
        Of text, not of Python functions.
    algorithm : SGD
        The algorithm that the sliders begin with.
    start : Overlaps or str
        Or ``"random"``, ``"sphere"``, ``"hemisphere"``, ``"gaussian"``.
    port : int
        A free one by default.
    browser : bool
        Whether to open a tab where there is no notebook.
    **run
        Keys of the table [run] of task files: ``dim``, ``time``, ``seeds``, …

    Returns
    -------
    Explorer
        With ``.url`` and ``.stop()``. The server ends with Python.

    Examples
    --------
    >>> from twolayer import SGD, Problem
    >>> explore(Problem("He2(z1)", "He2"), SGD(lr="0.1/d"), browser=False, dim=0)
    Traceback (most recent call last):
    twolayer.InputError: Argument `dim` must be a positive integer, but got 0.
    """
    from twolayer.explorer.limits import check_size
    from twolayer.files.taskfile import task_from
    from twolayer.running.progress import in_notebook

    tables = tables_of(problem, algorithm, start, **run)
    task = task_from(tables, "the task")
    check_size(task)
    task.start(problem)
    server, bound, url = _server(tables, "127.0.0.1", port)
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]), daemon=True)
    thread.start()
    began = wall.monotonic()
    while not server.started and thread.is_alive() and wall.monotonic() - began < READY:
        wall.sleep(0.01)
    if browser and not in_notebook():
        import webbrowser

        webbrowser.open(url)
    return Explorer(server, url, thread)
