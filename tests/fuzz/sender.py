"""Sends frames over many connections, several ahead of their replies, and finds out the outcome of each."""

import asyncio
import struct
from collections import deque
from collections.abc import Iterator
from typing import Final, cast

from tests.fuzz.mutations import with_correlation_id
from tests.fuzz.tally import Fate, Tally, decodes, has_no_reply

AHEAD: Final = 12
# No reply for so long: the request waits for something that need not come.
PATIENCE_SEC: Final = 1.0
TORN_EVERY: Final = 997
_LENGTH: Final = struct.Struct(">i")


class Lane(asyncio.Protocol):
    """One place for a connection after the other. What a closed one did not look at goes to the next."""

    def __init__(self, address: tuple[str, int], frames: Iterator[bytes], tally: Tally) -> None:
        self._address = address
        self._frames = frames
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._again: deque[bytes] = deque()
        self._sent: deque[tuple[int, bytes, bool]] = deque()  # correlation id, payload, has no reply
        self._received = bytearray()
        self._correlation_id = 0
        self._ended = self._loop.create_future()
        self._moved_sec = 0.0
        self._gave_up = False
        self._tore = False
        self._ahead = AHEAD

    async def run(self) -> None:
        """Send until there are no frames left."""
        while self._again or self._refill(1):
            self._ended = self._loop.create_future()
            try:
                await self._loop.create_connection(lambda: self, *self._address)
            except OSError:  # no place for one more, or the broker is gone: the watcher tells
                await asyncio.sleep(0.05)
                continue
            self._tally.connections += 1
            await self._ended

    # --- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received.clear()
        self._gave_up = self._tore = False
        self._moved_sec = self._loop.time()
        self._send_more()
        self._look()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._moved_sec = self._loop.time()
        position = 0
        while len(self._received) - position >= 4:
            (length,) = _LENGTH.unpack_from(self._received, position)
            if len(self._received) - position - 4 < length:
                break
            self._answered(_LENGTH.unpack_from(self._received, position + 4)[0])
            position += 4 + length
        del self._received[:position]
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._settle()
        if not self._ended.done():  # cancelled with the run
            self._ended.set_result(None)

    # --- frames

    def _refill(self, count: int) -> bool:
        for _ in range(count):
            frame = next(self._frames, None)
            if frame is None:
                break
            self._again.append(frame)
        return bool(self._again)

    def _send_more(self) -> None:
        assert self._transport is not None
        self._refill(AHEAD - len(self._again))
        if not self._again:
            self._transport.close()
            return
        buffers = []
        ahead, self._ahead = self._ahead, AHEAD
        for _ in range(min(ahead, len(self._again))):
            payload = self._again.popleft()
            self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
            self._sent.append((self._correlation_id, payload, has_no_reply(payload)))
            buffers.append(with_correlation_id(payload, self._correlation_id))
        if self._correlation_id % TORN_EVERY < AHEAD and len(buffers) > 1:
            self._tore = True
            self._tally.count(self._sent.pop()[1], Fate.TORN)
            buffers[-1] = buffers[-1][: len(buffers[-1]) // 2]
        self._transport.write(b"".join(buffers))
        self._next()

    def _next(self) -> None:
        """Go on when no reply is due any more; on a new connection if this one may still be closed."""
        if self._transport is None or self._transport.is_closing() or any(not one[2] for one in self._sent):
            return
        if not self._sent and not self._tore:
            self._send_more()
            return
        for _, payload, _ in self._sent:
            self._tally.count(payload, Fate.SILENT)
        self._sent.clear()
        self._transport.close()

    def _answered(self, correlation_id: int) -> None:
        """A reply: frames before it that have none were taken silently."""
        while self._sent:
            sent_id, payload, _ = self._sent.popleft()
            self._tally.count(payload, Fate.ANSWERED if sent_id == correlation_id else Fate.SILENT)
            if sent_id == correlation_id:
                return
        raise AssertionError(f"a reply to {correlation_id}, which was not sent here")

    def _settle(self) -> None:
        """The connection has ended: the first frame without a reply did it, those behind it were not seen.

        A Produce is not answered when one behind it is malformed: what decodes well is sent again, alone.
        """
        if not self._sent:
            return
        _, payload, _ = self._sent[0]
        if self._gave_up:
            self._tally.count(payload, Fate.WAITED)
        elif len(self._sent) > 1 and decodes(payload):
            self._again.extendleft(payload for _, payload, _ in reversed(self._sent))
            self._sent.clear()
            self._ahead = 1
            return
        else:
            self._tally.closed_by(payload)
        self._sent.popleft()
        self._again.extendleft(payload for _, payload, _ in reversed(self._sent))
        self._sent.clear()

    # --- patience

    def _look(self) -> None:
        if self._transport is None:
            return
        if self._sent and self._loop.time() - self._moved_sec > PATIENCE_SEC:
            self._gave_up = True
            self._transport.abort()
        else:
            self._loop.call_later(PATIENCE_SEC / 2, self._look)


async def send_all(address: tuple[str, int], frames: Iterator[bytes], tally: Tally, connections: int) -> None:
    """Send all frames over so many connections at a time."""
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(Lane(address, frames, tally).run())
