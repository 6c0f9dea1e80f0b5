"""The lag of share groups as their coordinator exports it: read now and then, bounded, and not without need."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.formats.share_state_record import (
    ShareStateRecord,
    StoredShareRun,
    StoredShareState,
    encode_share_state,
)
from kafscale.groups.share.lag import SETTLED_MS, ShareLag, ShareLagRow
from kafscale.groups.share.share_group import ShareGroup
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.share.state.starts import ShareStarts
from tests.groups.coordination import GROUP, NEIGHBOUR, Brokers, Coordinating, now_ms, scenario
from tests.groups.share.member import SharingMember

TOPIC, TOPIC_ID = "tasks", uuid.UUID(int=5)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = StoredShareState
RUNS = (
    StoredShareRun(4, 6, AVAILABLE, 1),
    StoredShareRun(7, 8, ACKNOWLEDGED, 1),
    StoredShareRun(9, 9, ARCHIVED, 5),
)


class Lag:
    """The lag of a broker's share groups. `ends`: of the partitions that it leads."""

    def __init__(self, brokers: Brokers, broker: Coordinating, max_series: int) -> None:
        self.brokers = brokers
        self.broker = broker
        self.ends: dict[tuple[str, int], int] = {}
        self.starts = ShareStarts(brokers.store, ItemFailures(BackgroundWork.SHARE_STATES))
        self.lag = ShareLag(
            brokers.store,
            broker.view,
            self.starts,
            self._groups,
            lambda topic, index: self.ends.get((topic, index)),
            max_series,
            now_ms,
        )

    def _groups(self) -> list[ShareGroup]:
        groups = (running.group for _, running in self.broker.shards.all_groups())
        return [group for group in groups if isinstance(group, ShareGroup)]

    async def read(self) -> dict[int, tuple[int, int | None, int | None]]:
        """Start offset, log end offset and lag of each partition, by index."""
        self.starts.apply(await MemoryStore.range(self.brokers.store, keys.SHARE_STARTS))
        await self.broker.tell_topics()
        await self.lag.refresh()
        return {row.partition: (row.start_offset, row.log_end_offset, row.lag) for row in self.lag.rows}

    async def put(self, key: str, value: bytes) -> None:
        await MemoryStore.transact(self.brokers.store, [], [Put(key, value)])

    async def led(self, index: int, start_offset: int, *runs: StoredShareRun, state_epoch: int = 0) -> None:
        """The partition's leader writes how far the group is."""
        record = ShareStateRecord(
            state_epoch=state_epoch, leader_epoch=4, start_offset=start_offset, runs=runs
        )
        await self.put(keys.share_state(SharePartitionId(GROUP, TOPIC_ID, index)), encode_share_state(record))

    async def sealed(self, index: int, end_offset: int) -> None:
        """The record of a partition that another broker leads."""
        record = PartitionRecord(leader_epoch=0, log_end_offset=end_offset)
        await self.put(keys.partition(TOPIC, index), encode_partition_record(record))


@asynccontextmanager
async def shared(brokers: Brokers, max_series: int = 100) -> AsyncIterator[tuple[Lag, SharingMember]]:
    await brokers.make_topic(TOPIC, TOPIC_ID, 4)
    broker = await brokers.start()
    member = SharingMember(broker.coordinator, GROUP, (TOPIC,))
    await member.heartbeat()
    yield Lag(brokers, broker, max_series), member


@scenario()
async def test_the_lag_is_what_is_not_finished(brokers: Brokers) -> None:
    async with shared(brokers) as (lag, _):
        lag.ends = {(TOPIC, 0): 20, (TOPIC, 2): 5}
        await lag.sealed(1, 25)
        await lag.led(0, 4, *RUNS)
        await lag.led(1, 10)
        await lag.led(2, 7, state_epoch=3)  # Of a start that is not that of now.
        await lag.led(3, 2)
        assert await lag.read() == {0: (4, 20, 13), 1: (10, 25, 15), 2: (-1, 5, None), 3: (2, None, None)}
        assert lag.lag.rows[0] == ShareLagRow(GROUP, TOPIC, 0, 4, 20, 3, 1, 13)
        assert dict(lag.lag.samples()) == {(GROUP, TOPIC, "0"): 13, (GROUP, TOPIC, "1"): 15}


@scenario()
async def test_an_end_that_is_older_than_the_state_is_no_lag(brokers: Brokers) -> None:
    async with shared(brokers) as (lag, _):
        await lag.sealed(0, 25)
        await lag.led(0, 30)
        assert (await lag.read())[0] == (30, 25, 0)


@scenario()
async def test_an_idle_group_is_not_read_again(brokers: Brokers) -> None:
    async with shared(brokers) as (lag, member):
        lag.ends[TOPIC, 0] = 20
        await lag.led(0, 4)
        await member.leave()
        assert (await lag.read())[0] == (4, 20, 16)
        await lag.led(0, 5)  # Its last lock has ended.
        assert (await lag.read())[0] == (5, 20, 15)
        await asyncio.sleep(SETTLED_MS / 1000 + 1)
        await lag.read()
        await lag.led(0, 6)
        lag.ends[TOPIC, 0] = 30
        assert (await lag.read())[0] == (5, 30, 25), "nothing of it can have changed but the log's end"
        await lag.broker.coordinator.share_offsets.alter(GROUP, {(TOPIC_ID, 0): 9}, "User:admin")
        assert (await lag.read())[0] == (9, 30, None), "an altered start is seen"


@scenario()
async def test_groups_with_members_come_first_up_to_the_limit(brokers: Brokers) -> None:
    async with shared(brokers, max_series=6) as (lag, member):
        await member.leave()
        other = SharingMember(lag.broker.coordinator, NEIGHBOUR, (TOPIC,))
        await other.heartbeat()
        await lag.read()
        assert [row.group_id for row in lag.lag.rows] == [NEIGHBOUR] * 4 + [GROUP] * 2
        assert lag.lag.omitted_count == 2


@scenario()
async def test_a_deleted_group_or_topic_has_no_lag(brokers: Brokers) -> None:
    async with shared(brokers) as (lag, member):
        assert len(await lag.read()) == 4
        await member.leave()
        await brokers.delete_topic(TOPIC)
        assert await lag.read() == {}
        await brokers.make_topic(TOPIC, uuid.UUID(int=7), 1)
        assert await lag.read() == {}, "of a topic that has the name now the group has read nothing"
