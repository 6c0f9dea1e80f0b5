"""Compaction of a broker's partitions: what clients read after it and meanwhile, and what a crash leaves."""

from collections.abc import Sequence
from typing import Any

from kafscale.formats.partition_record import SegmentReference
from kafscale.log.compaction.compactor import Compactor
from kafscale.ops.metrics import CompactionOutcome
from tests.log.compaction.logs_of_keys import Sent, batch_of, newest_values, records_in
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker

SETTINGS: dict[str, Any] = {"merge_check_interval_ms": 3_600_000}
"""Compactions happen when the test says so."""

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TOPIC = "topic"


def compactor(broker: InProcessBroker) -> Compactor:
    return broker.process.serving.log_parts.compactor


async def compact(broker: InProcessBroker) -> bool:
    return await compactor(broker).compact(broker.partition(TOPIC))


async def write(broker: InProcessBroker, client: Client, *segments: Sequence[Sent]) -> None:
    """A segment for each."""
    for records in segments:
        assert (await client.produce(TOPIC, 0, batch_of(records))).error_code == 0
        await broker.seal(TOPIC)


def references(broker: InProcessBroker) -> list[SegmentReference]:
    found = broker.partition(TOPIC).references
    assert found is not None
    return list(found)


async def read_all(client: Client, end_offset: int, *, limit_bytes: int = 1 << 20) -> bytes:
    """The batches from the log's start to its end."""
    found, offset = b"", 0
    while offset < end_offset:
        part = (await client.fetch(TOPIC, {0: offset}, partition_max_bytes=limit_bytes))[0]
        assert part.error_code == 0, part
        fetched = bytes(part.records)
        assert fetched, f"nothing at {offset}"
        found += fetched
        offset = max(header.last_offset for header in headers(fetched)) + 1
    return found


def headers(batches: bytes) -> list[Any]:
    from tests.log.compaction.logs_of_keys import headers_in

    return headers_in(batches)


async def test_a_compacted_partition_has_the_newest_record_of_each_key() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        for number in range(10):
            await write(broker, client, [Sent(b"key-%d" % key, b"%d" % number) for key in range(5)])
        before = newest_values(records_in(await read_all(client, 50)))
        assert await compact(broker)
        broker.forget_cached(TOPIC)
        kept = records_in(await read_all(client, 50))
        assert newest_values(kept) == before
        assert [record.offset for record in kept] == list(range(40, 50))
        # The newest seal is not looked at: its records made nothing redundant.
        assert [(one.base_offset, one.last_offset, one.record_count) for one in references(broker)] == [
            (0, 44, 5),
            (45, 49, 5),
        ]
        assert not await compact(broker)
        counts = broker.metrics.compactions
        assert counts.outcomes[CompactionOutcome.DONE] == 1
        assert counts.removed_records == 40
