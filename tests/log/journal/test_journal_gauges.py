"""A broker's metrics of its journal and of sealing, while records come and are sealed."""

from typing import Any

from kafscale.ops import journal_metric_families as families
from kafscale.ops import metric_families
from kafscale.ops.metric_family import Family
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, in_process_broker

TOPIC = "orders"
SETTINGS: dict[str, Any] = {
    "seal_interval_ms": 3_600_000,
    "merge_check_interval_ms": 3_600_000,
    "flushes_per_sec": 7,
}


def gauge(broker: InProcessBroker, family: Family) -> float:
    [read] = broker.metrics.readings[family.name].values()
    return read()


async def test_journal_and_sealing_are_exported() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        for number in range(3):
            part = await client.produce(TOPIC, 0, wire.batch([b"value %d" % number]))
            assert part.error_code == 0
        counts = broker.metrics.journal
        assert sum(counts.entry_slices.counts) == counts.entry_slices.total == 3
        assert sum(counts.put.counts) == sum(counts.commit.counts) == 3
        assert gauge(broker, families.ENTRIES_IN_FLIGHT) == 0
        assert gauge(broker, families.STORED_ENTRIES) == 3
        assert gauge(broker, families.SEAL_DEBT_SLICES) == 3
        assert gauge(broker, families.SEAL_DEBT_BYTES) > 0
        assert gauge(broker, families.SEAL_DEBT_AGE) >= 0
        assert gauge(broker, families.SEAL_LATE) == gauge(broker, families.COLLECTION_LATE) == 0
        assert gauge(broker, metric_families.FLUSH_BUDGET) == 7
        await broker.process.serving.segment_life.sealer.seal_some(broker.partition(TOPIC))
        assert gauge(broker, families.SEAL_DEBT_SLICES) == gauge(broker, families.SEAL_DEBT_BYTES) == 0
