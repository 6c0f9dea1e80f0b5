"""A shared transaction without an answer: each publication finds out for itself, and not all at the same time."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafscale.cluster.topic_configs import effective
from kafscale.errors import StoreIndeterminateError
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT
from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.log.partition import Partition, PartitionId
from kafscale.log.writing.record_writer import READ_BACKS_AT_ONCE, FencedError, RecordWriter
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, KeyValue, Operation, Put, TransactionResult
from kafscale.settings.broker import Settings
from tests.log.outcome import RULES
from tests.support.virtual_time import run_virtually

COUNT = 60


class ForgetfulStore(MemoryStore):
    """Loses the first answer to each shared transaction, which was applied or not, and counts reads."""

    def __init__(self, *, applies: bool) -> None:
        super().__init__()
        self.lost = 0
        self.reads = 0
        self.most_at_once = 0
        self._applies = applies
        self._reading = 0

    async def get(self, key: str) -> KeyValue | None:
        self.reads += 1
        self._reading += 1
        self.most_at_once = max(self.most_at_once, self._reading)
        try:
            await asyncio.sleep(0.01)
            return await super().get(key)
        finally:
            self._reading -= 1

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        await asyncio.sleep(0.01)
        if len(compares) > 1 and not self.lost:
            self.lost = len(compares)
            if self._applies:
                await super().transact(compares, operations)
            raise StoreIndeterminateError("lost")
        return await super().transact(compares, operations)


async def _publish_all(store: ForgetfulStore, overtaken: int) -> list[int | BaseException]:
    records = RecordWriter(store, random.Random(1))
    record = PartitionRecord(leader_epoch=1)
    partitions = []
    for index in range(COUNT):
        result = await store.transact([], [Put(keys.partition("t", index), encode_partition_record(record))])
        partitions.append(
            Partition(
                PartitionId("t", index),
                index,
                record,
                result.revision,
                effective({}, Settings()),
                RULES,
                result.revision,
            )
        )
    anothers = encode_partition_record(replace(record, leader_epoch=2))
    for index in range(COUNT - overtaken, COUNT):
        await store.transact([], [Put(keys.partition("t", index), anothers)])

    async def write(one: Partition) -> int:
        log = one.open(EMPTY_CHECKPOINT)
        assert log is not None
        await records.write(one, log, lambda state: replace(state, log_end_offset=5))
        return one.revision

    outcomes = await asyncio.gather(*map(write, partitions), return_exceptions=True)
    await records.close()
    return outcomes


@pytest.mark.parametrize("applies", [True, False])
@pytest.mark.parametrize("overtaken", [0, 3])
def test_each_finds_out_for_itself(applies: bool, overtaken: int) -> None:
    async def run() -> ForgetfulStore:
        store = ForgetfulStore(applies=applies)
        outcomes = await _publish_all(store, overtaken)
        for index, outcome in enumerate(outcomes):
            found = await store.get(keys.partition("t", index))
            assert found is not None
            if index >= COUNT - overtaken:
                assert isinstance(outcome, FencedError)
            else:
                assert outcome == found.mod_revision
                assert found.value == encode_partition_record(
                    PartitionRecord(leader_epoch=1, log_end_offset=5)
                )
        return store

    store = run_virtually(run())
    assert store.lost > READ_BACKS_AT_ONCE
    assert store.reads - COUNT == store.lost, "each once"
    assert 1 < store.most_at_once <= READ_BACKS_AT_ONCE
