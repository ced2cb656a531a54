"""The server of the page: a few routes, and who may use them.

    GET  /                  the page, its files, and the playground
    GET  /api/catalogue     what the page starts with: presets, words, bounds,
         the task of the command line
    POST /api/KIND          {"task": …, "options": …}  →
        JSON, or a stream of events for runs and families
    DELETE /api/jobs/N      withdraw a question

It listens to this machine only, unless told otherwise, and then asks for a token.
Requests that name another host in Host or Origin are refused: a page from elsewhere
cannot reach the server through a name that it points here. Answers carry a policy that
lets the page load nothing but its own files. No route reads or writes a file that a
request names.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import gzip
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, ValidationError

from twolayer.explorer import connections
from twolayer.explorer.limits import LIMITS, check_family, check_size
from twolayer.explorer.pool import Busy, Inquiry, Pool
from twolayer.explorer.presets import catalogue
from twolayer.explorer.worker import KINDS
from twolayer.files.taskfile import task_from
from twolayer.numerics.arguments import Json, Variables
from twolayer.numerics.errors import InputError, short

__all__ = ["LOOPBACK", "Guard", "create_app"]

STATIC = Path(__file__).parent / "static"
FILES = {path.name: path for path in STATIC.iterdir()} if STATIC.exists() else {}
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".txt": "text/plain",
    ".woff2": "font/woff2",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
STREAMS = ("run", "family")
PIECE = (
    3 * 2**18
)  # bytes of a file at a time: of threes, which base64 writes without a rest
TOKEN = "x-twolayer-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self' data:;"
    " img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action"
    " 'none'; frame-ancestors 'self' http://localhost:* http://127.0.0.1:*"
)
PLAYGROUND = (
    POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
    + "; worker-src blob:"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}
CLOSING = {**HEADERS, "connection": "close"}
"""For refusals before the body is read: what is left of it is not waited for."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Options(BaseModel):
    """What a question may say beside the task."""

    model_config = ConfigDict(extra="forbid", strict=True)

    method: str | None = None
    methods: list[str] | None = None
    key: str | None = None
    values: list[str | float | int] | None = None
    threshold: float | None = None
    alpha: float | None = None
    ahead: bool = False


class Question(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    task: Json
    options: Options = Options()


class Guard:
    """Lets in who may come, and bounds what they bring: host, origin, token, size of
    the body.
    """

    def __init__(self, app: Any, hosts: frozenset[str], token: str | None) -> None:
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            status, sentence = refusal
            await JSONResponse({"error": sentence}, status, CLOSING)(
                scope, receive, send
            )
            return
        if scope["method"] == "POST":
            try:
                body = await asyncio.wait_for(_body(receive), connections.PATIENCE)
            except TimeoutError:
                answer = JSONResponse(
                    {"error": "The question did not arrive in time."}, 408, CLOSING
                )
                await answer(scope, receive, send)
                return
            if body is None:
                sentence = (
                    f"A question has at most {LIMITS.body} bytes, but this one has"
                    " more."
                )
                await JSONResponse({"error": sentence}, 413, CLOSING)(
                    scope, receive, send
                )
                return
            receive = _replayed(body, receive)
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.token is None and host not in self.hosts:
            return (
                421,
                (
                    f"This server answers as {', '.join(sorted(self.hosts))}, but was"
                    f" asked as {short(host)}."
                ),
            )
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "The request comes from another page."
        if (
            headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
            and scope["path"] != "/"
        ):
            return 403, "The request comes from another page."
        private = scope["path"] == "/" or scope["path"].startswith("/api/")
        if self.token is not None and private:
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
            given = headers.get(TOKEN) or (query.get("token") or [""])[0]
            if not secrets.compare_digest(given.encode(), self.token.encode()):
                return 401, "The token of the address is missing or wrong."
        if scope["method"] == "POST":
            if (
                headers.get("content-type", "").split(";")[0].strip()
                != "application/json"
            ):
                return 415, "A question is JSON."
            length = headers.get("content-length", "")
            if (
                not (length.isascii() and length.isdecimal())
                or "transfer-encoding" in headers
            ):
                return 411, "A question tells its length."
            if int(length) > LIMITS.body:
                return (
                    413,
                    (
                        f"A question has at most {LIMITS.body} bytes, but this one has"
                        f" {length[:20]}."
                    ),
                )
        return None


async def _body(receive: Receive) -> bytes | None:
    """The body of a request, or None as soon as more has come than a question may have.

    The length that a request declares is no bound: one in chunks goes on for as long as
    it likes, whatever it has declared.
    """
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LIMITS.body:
            return None
        more = message["type"] == "http.request" and message.get("more_body", False)
    return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What the application hears: the body in one piece, and then whatever comes."""
    given: list[MutableMapping[str, Any]] = [
        {"type": "http.request", "body": body, "more_body": False}
    ]

    async def again() -> MutableMapping[str, Any]:
        return given.pop() if given else await receive()

    return again


def create_app(
    pool: Pool,
    hosts: frozenset[str],
    token: str | None = None,
    task: Json | None = None,
) -> FastAPI:
    """The application of a server, with the task that the page opens with."""

    @contextlib.asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        await pool.start()
        yield
        await pool.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    app.state.pool = pool
    app.add_middleware(Guard, hosts=hosts, token=token)

    @app.get("/")
    async def page(request: Request) -> Response:
        return _file("explorer.html", request)

    @app.get("/api/catalogue")
    async def start() -> Response:
        return _json({**catalogue(), "limits": vars(LIMITS), "task": task})

    @app.post("/api/{kind}")
    async def ask(kind: str, request: Request) -> Response:
        if kind not in KINDS:
            return _json(
                {
                    "error": (
                        f"There is no question {short(kind)}; known are"
                        f" {', '.join(KINDS)}."
                    )
                },
                404,
            )
        try:
            question = _read(await request.body())
        except InputError as error:
            return _json({"error": str(error)}, 422)
        try:
            _check(kind, question)
        except InputError as error:
            return _refused({"error": str(error), "position": error.position})
        try:
            job = pool.submit(
                kind,
                question.task,
                question.options.model_dump(exclude_none=True),
                question.options.ahead,
            )
        except Busy:
            sentence = (
                f"{len(pool.waiting)} questions wait already: ask again in a moment."
            )
            return Response(
                json.dumps({"error": sentence}),
                429,
                {**HEADERS, "retry-after": "1"},
                "application/json",
            )
        if kind in STREAMS:
            headers = {**HEADERS, "x-accel-buffering": "no"}
            return StreamingResponse(
                _events(pool, job), media_type="text/event-stream", headers=headers
            )
        return await _answer(pool, job, request)

    @app.delete("/api/jobs/{number}")
    async def withdraw(number: str) -> Response:
        known = number.isdecimal() and len(number) < 16 and pool.cancel(int(number))
        return _json({"withdrawn": bool(known)})

    @app.get("/{name}")
    async def file(name: str, request: Request) -> Response:
        return _file(name, request)

    @app.exception_handler(404)
    async def unknown(request: Request, error: Exception) -> Response:
        return _json({"error": "There is nothing at this address."}, 404)

    @app.exception_handler(405)
    async def unfit(request: Request, error: Exception) -> Response:
        return _json({"error": "This address takes no such request."}, 405)

    return app


def _json(values: Json, status: int = 200) -> Response:
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return Response(text, status, HEADERS, "application/json")


@functools.cache
def _packed(name: str) -> bytes:
    return gzip.compress(FILES[name].read_bytes(), 6, mtime=0)


def _file(name: str, request: Request) -> Response:
    if (
        name not in FILES
    ):  # names of the folder, not paths: nothing else can be asked for
        return _json({"error": f"There is no file {short(name)}."}, 404)
    policy = PLAYGROUND if name.startswith("playground") else POLICY
    headers = {**HEADERS, "content-security-policy": policy, "vary": "accept-encoding"}
    media = TYPES.get(FILES[name].suffix, "application/octet-stream")
    # the pages are packed, once; answers are not: that would take longer than sending
    # them to the same machine
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            _packed(name), 200, {**headers, "content-encoding": "gzip"}, media
        )
    return Response(FILES[name].read_bytes(), 200, headers, media)


def _refused(data: Variables) -> Response:
    """A refusal is an answer like another: the question was understood, and this is
    what is to be said about it.
    """
    return _json({"refused": data["error"], "position": data.get("position")})


def _read(body: bytes) -> Question:
    """The question, if it is one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("A question must be JSON.") from None
    try:
        question = Question.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the question"
        raise InputError(
            f"Key `{where}` of the question: {first['msg'].lower()}."
        ) from None
    return question


def _check(kind: str, question: Question) -> None:
    """Refuse what can be refused without work."""
    check_size(task_from(question.task, "the task"))
    if kind == "family":
        check_family(question.options.values or [])
    for word in [question.options.method, *(question.options.methods or [])]:
        if word is not None and word.lower() != word:
            raise InputError(
                "Option `method` must be a word such as ode or chain, but got"
                f" {short(word)}."
            )


async def _answer(pool: Pool, job: Inquiry, request: Request) -> Response:
    """The last event as the answer; withdrawn when the page has left."""

    async def last() -> Any:
        async for event, data in job.stream():
            if event in ("done", "error"):
                return event, data

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answer, leaving = asyncio.create_task(last()), asyncio.create_task(left())
    try:
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            pool.cancel(job.number)
        event, data = await answer
    finally:
        leaving.cancel()
        pool.cancel(job.number)
    if event == "error" and data["status"] in (422, 504):
        return _refused(data)
    if event == "error":
        return _json(
            {name: value for name, value in data.items() if name != "status"},
            data["status"],
        )
    if job.kind == "netcdf":
        return StreamingResponse(
            _download(data), media_type="application/json", headers=HEADERS
        )
    return _json(data)


def _download(data: Variables) -> Iterator[bytes]:
    """A file that a worker has left, as the JSON that the page reads, piece by piece;
    then it is gone.
    """
    path = Path(data["file"])
    try:
        with path.open("rb") as file:
            yield f'{{"name": {json.dumps(data["name"])}, "base64": "'.encode()
            while piece := file.read(PIECE):
                yield base64.b64encode(piece)
            yield b'"}'
    finally:
        path.unlink(missing_ok=True)


async def _events(pool: Pool, job: Inquiry) -> AsyncIterator[str]:
    """All events as Server-Sent Events; when the page leaves, the generator is closed
    and the job withdrawn.
    """
    try:
        yield f"event: job\ndata: {job.number}\n\n"
        async for event, data in job.stream():
            yield (
                f"event: {event}\ndata:"
                f" {json.dumps(data, ensure_ascii=False, allow_nan=False)}\n\n"
            )
    finally:
        pool.cancel(job.number)
