"""Writes the replies of one connection: in order, small ones joined, and released when they have left."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from kafscale.server.connection_host import ConnectionHost
from kafscale.server.reply_queue import ReplyQueue, ReplySlot

JOINED_MAX_BYTES: Final = 64 * 1024
"""Replies that leave together are joined up to this size: many small buffers cost more to write than their copy."""


class ReplyWriter:
    """`is_paused`: the client takes its replies more slowly than they are made, and nothing more is written.

    `on_written` is called after each write.
    """

    __slots__ = (
        "_host",
        "_loop",
        "_on_written",
        "_peer_host",
        "_queue",
        "_transport",
        "_unsent",
        "_writes_soon",
        "_writes_together",
        "is_paused",
    )

    def __init__(self, queue: ReplyQueue, host: ConnectionHost, on_written: Callable[[], None]) -> None:
        self._queue = queue
        self._host = host
        self._on_written = on_written
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._peer_host = ""
        self._unsent: list[ReplySlot] = []
        self._writes_soon = False
        self._writes_together = True
        self.is_paused = False

    def start(self, transport: asyncio.Transport, peer_host: str) -> None:
        """The client is connected."""
        self._transport = transport
        self._peer_host = peer_host
        # With no buffer allowed, `pause_writing` says that not everything has left, `resume_writing` that it has.
        transport.set_write_buffer_limits(high=0)
        # In Python 3.12.0 to 3.12.8 and 3.13.0 and 3.13.1 asyncio's own `writelines` does not say so (gh-127655).
        self._writes_together = not type(transport).__module__.startswith("asyncio.")

    def ready(self, slot: ReplySlot) -> None:
        """A reply may leave when those before it have."""
        self._queue.ready(slot)
        if not (slot.is_produce and slot.size_bytes):
            self.write()
        elif not self._writes_soon:
            # A flush answers many requests of a connection, one after the other: in one write.
            self._writes_soon = True
            self._loop.call_soon(self._write_together)

    def _write_together(self) -> None:
        self._writes_soon = False
        self.write()

    def write(self) -> None:
        """Write the replies that may leave now, in order."""
        if self.is_paused or self._transport is None:
            return
        ready = self._queue.take_ready()
        if not ready:
            return
        self._unsent += ready
        buffers = [buffer for slot in ready for buffer in slot.buffers or ()]
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        elif sum(slot.size_bytes for slot in ready) <= JOINED_MAX_BYTES:
            if buffers:
                self._transport.write(b"".join(buffers))
        elif self._writes_together:
            self._transport.writelines(buffers)
        else:
            for buffer in buffers:
                self._transport.write(buffer)
        self._after_write(ready)
        self._on_written()

    def _after_write(self, written: list[ReplySlot]) -> None:
        if not self.is_paused:
            self._release_sent()
            return
        for slot in written:
            slot.buffers = ()  # The transport has them, some as a joined copy.

    def pause(self) -> None:
        """The client takes its replies more slowly than they are made."""
        self.is_paused = True

    def resume(self) -> None:
        """Everything that was written has left."""
        self.is_paused = False
        self._release_sent()
        self.write()

    def stop(self) -> None:
        """Write nothing more."""
        self._transport = None

    def close(self) -> None:
        """The connection is gone."""
        self.stop()
        self._release_sent()

    def _release_sent(self) -> None:
        sent, self._unsent = self._unsent, []
        left_sec = time.perf_counter()
        for slot in sent:
            if slot.held is not None:
                slot.held.release()
        # Many Produce, or one request of any other API: what a connection has in flight is of one kind.
        counted = [slot for slot in sent if slot.times is not None]
        if counted:
            self._count(counted, left_sec)

    def _count(self, sent: list[ReplySlot], left_sec: float) -> None:
        first = sent[0].times
        assert first is not None
        for slow in first.finish(sent, left_sec, self._host.slow_request_sec):
            if slow.times is not None:
                self._host.log_slow(self._peer_host, slow.times.describe(slow, left_sec))
