"""Work on produced bytes that is counted, not timed: what a wide margin of CPU time would not see."""

import crc32c
import pytest

from kafscale.formats import segment
from kafscale.protocol import record_batch
from kafscale.settings.broker import CompressionCodec
from tests.support import wire
from tests.support.in_process_broker import in_process_broker

_RECORD_BYTES = 50_000
_PASSES = 2
"""Over each byte: the batch's own checksum is checked, and the segment's is made."""


async def test_produced_bytes_are_checksummed_no_more_than_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    covered: list[int] = []

    def counted(data: bytes | bytearray | memoryview, value: int = 0) -> int:
        covered.append(len(data))
        return crc32c.crc32c(data, value)

    records = wire.batch([bytes([65 + number]) * _RECORD_BYTES for number in range(4)])
    as_it_comes = CompressionCodec.PRODUCER
    async with (
        in_process_broker(flush_interval_ms=0, compression_codec=as_it_comes) as broker,
        broker.connect() as client,
    ):
        await broker.create_topic("orders")
        for module in (record_batch, segment):
            monkeypatch.setattr(module, "crc32c", counted)
        part = await client.produce("orders", 0, records)
        assert part.error_code == 0
    assert len(records) <= sum(covered) <= _PASSES * len(records)
