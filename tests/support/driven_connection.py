"""A broker's connection without a socket: the test decides what arrives together and what the client reads."""

import asyncio
import struct
from collections.abc import Iterable
from typing import Any, cast

from kafscale.protocol.types import Buffer
from kafscale.server.connection import Connection
from tests.support.in_process_broker import InProcessBroker, until
from tests.support.waiting import PATIENCE_SEC


class DrivenTransport:
    """Like uvloop's: writes what the client reads at once, keeps views of the rest, and reports that."""

    def __init__(self) -> None:
        self.protocol: Connection | None = None
        self.sent = bytearray()
        self.room_bytes: float = float("inf")
        self.reading = True
        self.closed = False
        self.resumed = asyncio.Event()
        self._unsent: list[memoryview] = []
        self._paused_writing = False

    # --- calls of the connection

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 1234) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._unsent))

    def write(self, data: Buffer) -> None:
        self.writelines([data])

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        assert not self._paused_writing, "written although the client does not take what there is"
        self._unsent += [memoryview(buffer) for buffer in buffers if len(buffer)]
        self._move()
        if self._unsent:
            self._paused_writing = True
            self._of().pause_writing()

    def pause_reading(self) -> None:
        self.reading = False
        self.resumed.clear()

    def resume_reading(self) -> None:
        self.reading = True
        self.resumed.set()

    def close(self) -> None:
        if not self._unsent:
            self.abort()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.resumed.set()
            asyncio.get_running_loop().call_soon(self._of().connection_lost, None)

    # --- the client

    def take(self, size_bytes: float = float("inf")) -> None:
        """Let the client read so many more bytes."""
        self.room_bytes += size_bytes
        self._move()
        if self._paused_writing and not self._unsent:
            self._paused_writing = False
            self._of().resume_writing()

    def _move(self) -> None:
        while self._unsent and self.room_bytes:
            first = self._unsent[0]
            count = int(min(len(first), self.room_bytes))
            self.sent += first[:count]
            self.room_bytes -= count
            self._unsent[0] = first[count:]
            if not self._unsent[0]:
                self._unsent.pop(0)

    def _of(self) -> Connection:
        assert self.protocol is not None
        return self.protocol


class DrivenConnection:
    """A client whose bytes arrive exactly as the test says."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.transport = DrivenTransport()
        self.connection = Connection(broker.process.basics.listener)
        self.transport.protocol = self.connection
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))
        self._read_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """Let `data` arrive at once; returns the part that the connection does not read now."""
        while data and self.transport.reading and not self.transport.closed:
            room = self.connection.get_buffer(-1)
            assert len(room), "no room although it reads"
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.connection.buffer_updated(count)
            # The shared buffer belongs to the next connection now: a stale view would see its bytes.
            shared = self.connection._host.receive_buffer
            shared[:] = b"\xa5" * len(shared)
        return data

    async def feed_all(self, data: bytes) -> None:
        """Let `data` arrive as fast as the connection reads."""
        while data := self.feed(data):
            assert not self.transport.closed
            await asyncio.wait_for(self.transport.resumed.wait(), PATIENCE_SEC)

    def frames(self) -> list[bytes]:
        """The whole replies that have come and were not taken yet, without their lengths."""
        frames = []
        while len(self.transport.sent) - self._read_bytes >= 4:
            (length,) = struct.unpack_from(">i", self.transport.sent, self._read_bytes)
            end = self._read_bytes + 4 + length
            if len(self.transport.sent) < end:
                break
            frames.append(bytes(self.transport.sent[self._read_bytes + 4 : end]))
            self._read_bytes = end
        return frames

    async def next_frames(self, count: int) -> list[bytes]:
        """Wait for the next replies."""
        frames: list[bytes] = []

        def enough() -> bool:
            frames.extend(self.frames())
            return len(frames) >= count

        await until(enough, f"{count} replies")
        assert len(frames) == count
        return frames

    async def end(self) -> None:
        """Close the client's side."""
        self.transport.abort()
        await asyncio.sleep(0)
