"""Opening of produced batches: how much, and in whose turn."""

import asyncio
import threading

import pytest

from kafscale.protocol.record_batch import BatchHeader, read_header
from kafscale.serving import batch_opener
from kafscale.serving.batch_opener import BatchOpener, opened_limit_bytes
from tests.support import wire
from tests.support.in_process_broker import until
from tests.support.waiting import PATIENCE_SEC

MIB = 1 << 20


@pytest.mark.parametrize(
    ("max_message_bytes", "limit_bytes"),
    [(1, 16), (MIB, 16 * MIB), (4 * MIB, 64 * MIB), (5 * MIB, 64 * MIB), (100 * MIB, 100 * MIB)],
)
def test_opened_bytes_are_bounded(max_message_bytes: int, limit_bytes: int) -> None:
    assert opened_limit_bytes(max_message_bytes) == limit_bytes


async def test_conversion_does_not_wait_for_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    counting, may_end = threading.Event(), threading.Event()

    def count(batch: memoryview, header: BatchHeader, limit_bytes: int) -> None:
        counting.set()
        assert may_end.wait(PATIENCE_SEC)

    monkeypatch.setattr(batch_opener, "count_records", count)
    monkeypatch.setattr(batch_opener, "convert_message_set", lambda *_: b"converted")
    opener, batch = BatchOpener(), memoryview(wire.batch([b"x"]))
    counted = asyncio.create_task(opener.count(batch, read_header(batch, 0), MIB))
    await until(counting.is_set, "the count begins")
    assert bytes(await opener.convert(batch, MIB)) == b"converted"
    assert not counted.done()
    may_end.set()
    await counted
