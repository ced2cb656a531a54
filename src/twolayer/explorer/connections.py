"""Connections that may not stay half open: requests arrive within `PATIENCE` seconds,
or are given up.

    nothing → part of the headers → headers → part of the body → request
        → answer or stream

uvicorn bounds the time between two requests and the size of headers, but not how long
the headers of one may take: a stranger who sends half of them, and then nothing, would
hold a connection for ever, and with some hundreds of them the whole server. Bodies are
bounded by `Guard`, which counts their bytes as they come. An answer may take as long as
it does.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PATIENCE", "Bounded"]

PATIENCE = 10.0  # seconds for the headers of a request, and as many for its body
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Bounded(H11Protocol):
    """HTTP as uvicorn speaks it, with a clock for headers."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has called: their first request is awaited."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Some bytes: they end the headers of a request, or belong to headers that are
        still to end.
        """
        super().data_received(data)
        cycle = self.cycle  # of the last request whose headers are complete
        if cycle is None or cycle.response_complete:
            self._await_headers()
        else:
            self._stop_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        self._stop_clock()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        # further bytes of the same headers do not set the clock back
        if self._clock is None:
            self._clock = self.loop.call_later(PATIENCE, self._give_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _give_up(self) -> None:
        self._clock = None
        if not self.transport.is_closing():
            self.transport.write(LATE)
            self.transport.close()
