"""Memory of replies is released when they have left, on asyncio's own transports too."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafscale.protocol.types import Buffer
from kafscale.server.reply_writer import JOINED_MAX_BYTES, ReplyWriter


class SilentTransport:
    """Takes nothing yet. As in Python 3.12.1 and 3.13.0, only `write` reports that (gh-127655)."""

    def __init__(self) -> None:
        self.writer: ReplyWriter
        self.unsent: list[Buffer] = []

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def write(self, data: Buffer) -> None:
        self.unsent.append(data)
        self.writer.pause()

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        self.unsent += buffers


class Held:
    """A reply's memory."""

    def __init__(self) -> None:
        self.is_released = False

    def release(self) -> None:
        self.is_released = True


@pytest.mark.parametrize("sizes", [(1,), (10, 20), (JOINED_MAX_BYTES, 1), (1, JOINED_MAX_BYTES, 1)])
async def test_reply_is_held_until_asyncios_transport_sent_it(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SilentTransport, "__module__", "asyncio.selector_events")
    buffers, held, transport = [bytes(size) for size in sizes], Held(), SilentTransport()
    slot = SimpleNamespace(buffers=buffers, size_bytes=sum(sizes), held=held, times=None)
    replies = [[slot], []]
    queue = SimpleNamespace(take_ready=lambda: replies.pop(0))
    transport.writer = ReplyWriter(cast(Any, queue), cast(Any, None), lambda: None)
    transport.writer.start(cast(Any, transport), "192.0.2.1")
    transport.writer.write()
    assert b"".join(transport.unsent) == b"".join(buffers)
    assert not held.is_released
    transport.writer.resume()
    assert held.is_released
