"""Transactions in a partition of a broker in this process, without a coordinator: batches, and decisions."""

import asyncio

from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol.record_batch import read_header
from tests.log.outcome import Outcome
from tests.support.in_process_broker import InProcessBroker
from tests.support.waiting import PATIENCE_SEC, wait_until_async

NOW_MS = 1_700_000_000_000


async def append(broker: InProcessBroker, topic: str, batch: bytes, index: int = 0) -> int:
    """Append a batch whose transaction nobody asks for; returns its base offset once it is published."""
    logs, partition = broker.process.serving.logs, broker.partition(topic, index)
    await logs.open(partition)
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    logs.append(partition, memoryview(batch), read_header(batch, 0), NOW_MS, Outcome(told))
    return await asyncio.wait_for(told, PATIENCE_SEC)


async def decide(
    broker: InProcessBroker, topic: str, producer_id: int, *, commits: bool, epoch: int = 0, index: int = 0
) -> None:
    """End the producer's transaction, as its coordinator would; returns when the marker is published."""
    marker = MarkerRecord(
        transactional_id="copier",
        commit=commits,
        producer_epoch=epoch,
        coordinator_epoch=0,
        transaction_version=1,
        decided_ms=NOW_MS,
        topic_id=broker.partition(topic, index).topic_id,
    )
    key = keys.partition_marker(topic, index, producer_id)
    await broker.metadata.transact([], [Put(key, encode_marker_record(marker))])
    await until_decided(broker, topic, index)


async def until_decided(broker: InProcessBroker, topic: str, index: int = 0) -> None:
    """Wait until the partition has no more markers to write."""

    async def is_decided() -> bool:
        return not (await broker.metadata.range(keys.partition_markers(topic, index))).items

    await wait_until_async(is_decided, "the markers are written")
