"""Every broker that serves a partition knows its last stable offset and aborted transactions, whatever happens.

Histories of a few producers over brokers that seal, store records and checkpoints, delete records, stop and die,
against a plain walk over the batches.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from kafscale.formats.partition_transactions import BatchKind, TransactionEvent
from kafscale.log import partition_log
from kafscale.log.partition import Partition
from tests.formats.test_partition_transactions import plain_walk
from tests.log.brokers import PROGRESS_SEC, TTL_SEC, BrokerParts, Cluster, cluster_scenario
from tests.support.log_transactions import Writer
from tests.support.nightly import by_day

TOPIC = "orders"
STEPS = 60
SEEDS = by_day(4, by_night=400)
ACTIONS = {
    "write": 8,
    "open": 8,
    "end": 10,
    "seal": 2,
    "store": 2,
    "checkpoint": 2,
    "delete": 1,
    "follow": 2,
    "forget": 1,
    "hand over": 1,
    "kill": 1,
}


@pytest.fixture(autouse=True)
def _small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that records, journals and checkpoints share the transactions."""
    monkeypatch.setattr(partition_log, "CHECKPOINT_ABORTED", 3)
    monkeypatch.setattr(partition_log, "MOST_RECORD_ABORTED", 6)


@dataclass
class History:
    """One partition of a cluster, and all of its batches."""

    cluster: Cluster
    chance: random.Random
    events: list[TransactionEvent] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    log_start_offset: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)

    @property
    def leader(self) -> BrokerParts:
        (leader,) = [one for one in self.cluster.brokers if one.led()]
        return leader

    @property
    def partition(self) -> Partition:
        return self.leader.partition(TOPIC)

    async def happens(self, action: str) -> None:
        self.happened[action] += 1
        await self._writer()
        match action:
            case "write":
                await self._append(self.chance.randint(5, 6), BatchKind.PLAIN)
            case "open":
                await self._append(self.chance.randint(1, 4), BatchKind.TRANSACTIONAL)
            case "end":
                await self._end()
            case "seal":
                await self.leader.seal(TOPIC)
            case "store":
                await self.leader.store_record(TOPIC)
            case "checkpoint":
                await self._checkpoint()
            case "delete":
                await self._delete_records()
            case "follow":
                for broker in self.cluster.brokers:
                    await self._served_by(broker)
            case "forget":
                for broker in self.cluster.brokers:
                    broker.logs._followed.drop(TOPIC, 0)
            case "hand over" | "kill":
                await self._change_leader(dies=action == "kill")

    async def _writer(self) -> Writer:
        leader = self.leader
        assert await leader.logs.open(self.partition) is not None
        return Writer(leader.logs, self.partition, self.sequences, self.epochs)

    async def _append(self, producer_id: int, kind: BatchKind) -> None:
        write = await self._writer()
        values = [b"x"] * self.chance.randint(1, 3)
        is_transactional = kind is BatchKind.TRANSACTIONAL
        offset = await write.append(producer_id, values, is_transactional=is_transactional)
        self.events.append(TransactionEvent(kind, producer_id, 0, offset))

    async def _end(self) -> None:
        opened, _ = plain_walk(self.events)
        if opened:
            producer_id = self.chance.choice(list(opened))
            commits, bumps = self.chance.random() < 0.3, self.chance.random() < 0.5
            offset = await (await self._writer()).end(producer_id, commits=commits, bumps=bumps)
            kind = BatchKind.COMMIT if commits else BatchKind.ABORT
            self.events.append(TransactionEvent(kind, producer_id, 0, offset))

    async def _checkpoint(self) -> None:
        """As a merge does: a checkpoint of all that is there, named by the next record."""
        partition, checkpointer = self.partition, self.leader.checkpointer
        log, references = partition.log, partition.references
        assert log is not None
        assert references is not None
        async with checkpointer.alone(partition):
            log.waiting_checkpoint = await checkpointer.write(partition, log, references)
        if self.chance.random() < 0.5:
            await self.leader.store_record(TOPIC)

    async def _delete_records(self) -> None:
        offset = self.chance.randint(self.log_start_offset, self.partition.high_watermark)
        deletion = self.leader.parts.segment_life.record_deletion
        self.log_start_offset = await deletion.delete_before(self.partition, offset)

    async def _change_leader(self, *, dies: bool) -> None:
        leader = self.leader
        self.cluster.brokers.remove(leader)
        if dies:
            await leader.kill()
            await asyncio.sleep(2 * TTL_SEC)
        else:
            await leader.stop()
        await self.cluster.start(leader.broker_id)
        assert self.leader is not leader

    # --- what brokers know

    async def check(self, *, settled: bool) -> None:
        """Whatever a broker knows of the log, it knows the transactions of that; `settled`: a moment later, all."""
        if settled:
            await asyncio.sleep(PROGRESS_SEC)
        for broker in self.cluster.brokers:
            partition = await self._served_by(broker)
            if settled:
                assert partition.high_watermark == self.partition.high_watermark
                assert partition.record.log_start_offset == self.log_start_offset
            self._check_transactions(partition)
            is_behind = partition.high_watermark < self.partition.high_watermark
            self.checked["leader" if partition.is_led else "behind" if is_behind else "follower"] += 1

    async def _served_by(self, broker: BrokerParts) -> Partition:
        partition = broker.logs.readable(TOPIC, 0) or await broker.logs.follow(TOPIC, 0)
        assert partition is not None
        await broker.logs.load(partition)
        return partition

    def _check_transactions(self, partition: Partition) -> None:
        record, known = partition.record, partition.aborted
        assert known is not None
        opened, aborted = plain_walk([event for event in self.events if event.offset < record.log_end_offset])
        assert {one.producer_id: one.first_offset for one in record.transactions.open} == opened
        first_open = min(opened.values(), default=record.log_end_offset)
        start = record.log_start_offset
        assert partition.last_stable_offset == max(first_open, start)
        for _ in range(4):
            begin, end = sorted(self.chance.choices(range(start, record.log_end_offset + 1), k=2))
            wanted = sorted(
                (one for one in aborted if one[2] >= begin and one[1] < end), key=lambda one: one[1]
            )
            found = known.between(begin, end)
            assert [(one.producer_id, one.first_offset, one.last_offset) for one in found] == wanted
            self.checked["aborted"] += len(wanted)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_broker_knows_open_and_aborted_transactions(seed: int) -> None:
    @cluster_scenario(flush_interval_ms=0)
    async def play(cluster: Cluster) -> None:
        history = History(cluster, random.Random(seed))
        await cluster.start(1, 2, 3)
        await cluster.create_topic(TOPIC)
        actions = history.chance.choices(list(ACTIONS), weights=list(ACTIONS.values()), k=STEPS)
        for number, action in enumerate(actions):
            await history.happens(action)
            await history.check(settled=number % 5 == 4)
        assert history.checked["aborted"] > 10
        assert min(history.checked[who] for who in ("leader", "follower", "behind")) > 10

    play()
