"""The ceiling: a uvloop server that cuts frames and answers each with a fixed reply.

A Fetch gets a Fetch v4 reply with one batch of about 1 MiB, anything else a Produce v7 reply. Run as
`python -m bench.noop PORT`. It stores nothing and checks nothing; what a broker costs above it is what the broker
does. As `python -m bench.noop PORT FOLDER` it has what came in a file on the disk before it answers.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import uvloop

from bench.wire import batch, fetch_reply, produce_reply
from kafscale.protocol.api_keys import ApiKey

_BUFFER_BYTES = 4 * 1024 * 1024
_ROOM_BYTES = 256 * 1024  # less room than this at the buffer's end, and what waits moves to its front
_HEADER_BYTES = 12  # length, API key, API version, correlation id
_FETCHED_RECORDS, _FETCHED_RECORD_BYTES = 1000, 1024
_KEPT_FILES = 1000  # an older one is deleted: the disk stays free
_FETCH_KEY = ApiKey.FETCH.to_bytes(2, "big")


class _NoOpConnection(asyncio.BufferedProtocol):
    """Receives into one reused buffer; replies to all whole frames of a read leave in one write."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = self._end = 0
        self._reply_start = produce_reply(correlation_id=0)[:4]
        self._reply_end = produce_reply(correlation_id=0)[8:]
        self._fetch_reply = b""  # made for the first Fetch

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass of asyncio's

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        first = self._start
        replies: list[bytes | memoryview] = []
        while self._end - self._start >= _HEADER_BYTES:
            start = self._start
            frame_end = start + 4 + int.from_bytes(self._buffer[start : start + 4], "big")
            if frame_end > self._end:
                break
            if self._buffer[start + 4 : start + 6] == _FETCH_KEY:
                self._answer_fetch(self._buffer[start + 8 : start + 12])
            else:
                replies += (self._reply_start, self._buffer[start + 8 : start + 12], self._reply_end)
            self._start = frame_end
        if replies:
            self._store(self._buffer[first : self._start])
            self._transport.write(b"".join(replies))
        self._make_room()

    def _store(self, frames: memoryview) -> None:
        """All whole frames of a read, before they are answered."""

    def _answer_fetch(self, correlation_id: memoryview) -> None:
        """The records are written from where they are, as a cache's would be."""
        reply = self._fetch_reply
        if not reply:
            values = [b"x" * _FETCHED_RECORD_BYTES] * _FETCHED_RECORDS
            reply = self._fetch_reply = fetch_reply(batch(values))
        self._transport.write(reply[:4] + bytes(correlation_id))
        self._transport.write(memoryview(reply)[8:])

    def _make_room(self) -> None:
        waiting = self._end - self._start
        if not waiting or self._end > _BUFFER_BYTES - _ROOM_BYTES:
            self._buffer[:waiting] = self._buffer[self._start : self._end]
            self._start, self._end = 0, waiting


class _DurableConnection(_NoOpConnection):
    """The floor of what acknowledges from a disk: a new file for all that has come, and its fsync."""

    _numbers = itertools.count()

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def _store(self, frames: memoryview) -> None:
        number = next(self._numbers)
        file = os.open(self._folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.writev(file, [frames])
            os.fsync(file)
        finally:
            os.close(file)
        (self._folder / str(number - _KEPT_FILES)).unlink(missing_ok=True)


async def _serve(port: int, made: Callable[[], _NoOpConnection]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server = await loop.create_server(made, "127.0.0.1", port)
    async with server:
        await ended.wait()


if __name__ == "__main__":
    chosen = partial(_DurableConnection, Path(sys.argv[2])) if sys.argv[2:] else _NoOpConnection
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve(int(sys.argv[1]), chosen))
