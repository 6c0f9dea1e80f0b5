"""Random commits, transactions and coordinators, against Kafka's rule: of two offsets the later record stays."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from tests.groups.coordination import GROUP, TOPIC, Brokers, Coordinating, scenario
from tests.groups.test_transactional_commits import places
from tests.groups.transactions import end, until_gone

PARTITIONS = range(4)
PRODUCERS = range(7, 10)
STEPS = 40

Records = dict[int, tuple[int, int]]
"""By partition: the place of the record in Kafka's log of offsets, and its offset."""


@dataclass
class Model:
    """The state of Kafka's OffsetMetadataManager after the same requests."""

    length: int = 0
    committed: Records = field(default_factory=dict)
    pending: dict[int, Records] = field(default_factory=dict)

    def commit(self, offsets: dict[int, int], producer_id: int | None) -> None:
        records = self.committed if producer_id is None else self.pending.setdefault(producer_id, {})
        for index, offset in offsets.items():
            self.length += 1
            records[index] = (self.length, offset)

    def end(self, producer_id: int, commit: bool) -> None:
        records = self.pending.pop(producer_id, {})
        if commit:
            for index, record in records.items():
                self.committed[index] = max(record, self.committed.get(index, record))

    def delete(self, indexes: list[int]) -> None:
        for records in (self.committed, *self.pending.values()):
            for index in indexes:
                records.pop(index, None)

    def visible(self) -> dict[tuple[str, int], int]:
        return places({index: offset for index, (_, offset) in self.committed.items()})

    def unstable(self) -> set[int]:
        return {index for records in self.pending.values() for index in records}


async def persistent(commit: Callable[[], Awaitable[ErrorCode]]) -> None:
    """As clients do: again, until it is acknowledged."""
    while True:
        try:
            assert await commit() is ErrorCode.NONE
            return
        except KafkaError as problem:
            assert problem.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def step(
    brokers: Brokers, broker: Coordinating, model: Model, rng: random.Random, *, lossy: bool
) -> Coordinating:
    offsets = {index: rng.randrange(1000) for index in rng.sample(PARTITIONS, rng.randrange(1, 4))}
    producer_id = rng.choice(PRODUCERS)
    if lossy and rng.random() < 0.5:
        brokers.store.lost_requests, brokers.store.lost_answers = rng.randrange(2), rng.randrange(2)
    match rng.choices(("transactional", "plain", "end", "restart", "delete"), (8, 3, 5, 1, 1))[0]:
        case "transactional":
            await persistent(partial(broker.commit_in_transaction, GROUP, offsets, producer_id=producer_id))
            model.commit(offsets, producer_id)
        case "plain":
            for index, offset in offsets.items():
                await persistent(partial(broker.commit_partition, GROUP, index, offset))
                model.commit({index: offset}, None)
        case "end":
            commit = rng.random() < 0.7
            await end(brokers.store, GROUP, commit=commit, producer_id=producer_id)
            await until_gone(brokers.store, keys.GROUP_MARKERS)
            model.end(producer_id, commit)
        case "restart":
            await broker.marker_watch.close()
            broker = await brokers.start()
            broker.marker_watch.start()
        case "delete" if broker.coordinator.describe(GROUP) is not None:
            deleted = [(TOPIC, index) for index in offsets]
            await broker.coordinator.delete_offsets(GROUP, deleted)
            model.delete(list(offsets))
    return broker


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("seed", range(8))
@scenario()
async def test_offsets_are_those_of_kafkas_rule(brokers: Brokers, seed: int, lossy: bool) -> None:
    rng, model = random.Random(seed), Model()
    broker = await brokers.start()
    broker.marker_watch.start()
    for _ in range(STEPS):
        broker = await step(brokers, broker, model, rng, lossy=lossy)
        await broker.shards.markers_settled()
        brokers.store.lost_requests = brokers.store.lost_answers = 0
        assert await broker.fetch(GROUP) == model.visible(), seed
        assert await broker.unstable(GROUP) == model.unstable(), seed
        stored = await brokers.store.pending_of(GROUP)
        held = broker.shards.shard(GROUP).pending.of_group(GROUP)
        assert stored == held, seed
