"""Writes of groups, in every metadata store: conditional on topics, within limits, counted by the next broker."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafscale.cluster.coordination import Coordination
from kafscale.cluster.view import ClusterView
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.marker_record import encode_marker_record
from kafscale.formats.topic_record import encode_topic_record
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.marker_watch import MarkerWatch
from kafscale.groups.shards import GroupShards
from kafscale.groups.transactional_commits import Committer
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Changes, Delete, MetadataStore, Put, Snapshot
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings
from tests.contract.metadata_backends import BACKENDS
from tests.groups.transactions import PRODUCER_ID, OpenTransactions, marker
from tests.support.in_process_broker import until
from tests.support.waiting import PATIENCE_SEC

SETTINGS = replace(Settings(), group_offsets_max_bytes=1 << 20)
GROUP = "billing"
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture(params=sorted(BACKENDS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with BACKENDS[request.param](tmp_path) as opened:
        yield opened


class Coordinating:
    """A broker that coordinates every group; its view is what it is told."""

    def __init__(self, store: MetadataStore, lease: int) -> None:
        metrics = Metrics().groups
        self.view = ClusterView("test")
        self.shards = GroupShards(
            store, Coordination(store, 0, lambda: lease), SETTINGS, metrics, lambda: 1_700_000_000_000
        )
        self.coordinator = GroupCoordinator(
            self.shards,
            store,
            self.view,
            SETTINGS,
            metrics,
            lambda: 1_700_000_000_000,
            OpenTransactions(),
        )
        self.marker_watch = MarkerWatch(store, self.shards.markers_put)

    async def commit(
        self, offset: int, partitions: int, *, topic: str = "t", topic_id: uuid.UUID = OLD, text: str = ""
    ) -> ErrorCode:
        committed = CommittedOffset(
            topic_id=topic_id, offset=offset, metadata=text, commit_timestamp_ms=1_700_000_000_000
        )
        return await self.coordinator.commit(
            GROUP,
            member_id="",
            group_instance_id=None,
            generation=-1,
            offsets={(topic, index): committed for index in range(partitions)},
        )

    async def commit_in_transaction(self, offset: int, partitions: int) -> ErrorCode:
        committer = Committer(
            transactional_id="copier",
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            member_id="",
            group_instance_id=None,
            generation=-1,
            adds_group=True,
            knows_abortable=True,
        )
        committed = CommittedOffset(topic_id=OLD, offset=offset, commit_timestamp_ms=1_700_000_000_000)
        offsets = {("t", index): committed for index in range(partitions)}
        return await self.coordinator.commit_in_transaction(GROUP, committer, offsets)

    async def unstable(self) -> int:
        """The number of partitions with a pending offset."""
        return len((await self.coordinator.fetch_offsets(GROUP, require_stable=True)).unstable)

    async def fetch(self) -> dict[tuple[str, int], int]:
        found = await self.coordinator.fetch_offsets(GROUP, require_stable=True)
        return {partition: one.offset for partition, one in found.committed.items()}


async def put_topic(store: MetadataStore, topic_id: uuid.UUID, name: str = "t") -> None:
    record = TopicRecord(name=name, topic_id=topic_id, partition_count=1000)
    await store.transact([], [Put(keys.topic(name), encode_topic_record(record))])


@pytest.fixture
async def broker(store: MetadataStore) -> AsyncIterator[Coordinating]:
    await put_topic(store, OLD)
    async with coordinating(store) as made:
        made.view.apply(keys.TOPICS, await store.range(keys.TOPICS))
        yield made


@asynccontextmanager
async def coordinating(store: MetadataStore) -> AsyncIterator[Coordinating]:
    """A broker that has claimed every shard, for the time of the block."""
    lease = await store.grant_lease(60)
    broker = Coordinating(store, lease)
    await broker.shards.claim(range(keys.GROUP_SHARD_COUNT))
    try:
        yield broker
    finally:
        await broker.marker_watch.close()
        await broker.shards.close()
        await store.revoke_lease(lease)


async def test_an_offset_belongs_to_the_topic_that_is_stored(
    store: MetadataStore, broker: Coordinating
) -> None:
    assert await broker.commit(1, 300) is ErrorCode.NONE
    await put_topic(store, OLD)  # its configs changed, say
    assert await broker.commit(2, 300) is ErrorCode.NONE
    assert await broker.fetch() == {("t", index): 2 for index in range(300)}
    await put_topic(store, NEW)  # the view still shows the old one
    assert await broker.fetch() == {}
    assert await broker.commit(3, 300) is ErrorCode.NONE
    assert await broker.fetch() == {("t", index): 3 for index in range(300)}


async def test_a_topic_of_which_the_view_has_not_heard(store: MetadataStore, broker: Coordinating) -> None:
    await put_topic(store, NEW, "u")
    assert await broker.commit(7, 2, topic="u", topic_id=NEW) is ErrorCode.NONE
    assert await broker.fetch() == {("u", 0): 7, ("u", 1): 7}


async def test_refused_commit_leaves_nothing_for_the_next_broker(
    store: MetadataStore, broker: Coordinating
) -> None:
    assert await broker.commit(1, 200, text="x" * 4000) is ErrorCode.NONE
    before = await store.range(keys.GROUP_OFFSETS)
    for partitions in (300, 1000, 10_000):
        with pytest.raises(KafkaError) as refusal:
            await broker.commit(2, partitions, text="x" * 4000)
        assert refusal.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert (await store.range(keys.GROUP_OFFSETS)).items == before.items
    counted = broker.shards.totals.stored.all_bytes
    await broker.shards.resign(range(keys.GROUP_SHARD_COUNT))
    async with coordinating(store) as following:
        stored = following.shards.totals.stored
        await until(lambda: stored.all_bytes == counted, "the offsets are counted")
        assert await following.commit(3, 200, text="x" * 4000) is ErrorCode.NONE
        with pytest.raises(KafkaError):
            await following.commit(4, 300, text="x" * 4000)
        await asyncio.gather(*(following.commit(number, 100) for number in range(5)))
        assert await following.coordinator.delete(GROUP) is ErrorCode.NONE
        assert stored.all_bytes == 0
    assert (await store.range(keys.GROUP_OFFSETS)).items == ()


async def until_gone(store: MetadataStore, key: str) -> None:
    async with aclosing(store.watch_key(key)) as events, asyncio.timeout(PATIENCE_SEC):
        async for event in events:
            if event == Snapshot(items=(), revision=event.revision):
                return
            if isinstance(event, Changes) and isinstance(event.puts_and_deletes[-1], Delete):
                return


async def test_offsets_in_transactions_one_after_the_other(
    store: MetadataStore, broker: Coordinating
) -> None:
    """Each marker is applied once, to the offsets of its own transaction, in as many writes as it takes."""
    broker.marker_watch.start()
    key = keys.group_marker(GROUP, PRODUCER_ID)
    visible: dict[tuple[str, int], int] = {}
    for offset, commits in enumerate((True, False, True, True), 1):
        assert await broker.commit_in_transaction(offset, 300) is ErrorCode.NONE
        assert await broker.unstable() == 300
        assert await broker.fetch() == visible
        await store.transact([], [Put(key, encode_marker_record(marker(commits)))])
        await until_gone(store, key)
        visible = {("t", index): offset for index in range(300)} if commits else visible
        assert await broker.fetch() == visible
        assert await broker.unstable() == 0
    assert (await store.range(keys.PENDING_OFFSETS)).items == ()


async def test_marker_that_waited_is_applied_by_the_next_broker(store: MetadataStore) -> None:
    await put_topic(store, OLD)
    async with coordinating(store) as first:
        assert await first.commit_in_transaction(5, 300) is ErrorCode.NONE
    await store.transact([], [Put(keys.group_marker(GROUP, PRODUCER_ID), encode_marker_record(marker(True)))])
    async with coordinating(store) as second:
        await second.shards.markers_settled()
        assert await second.fetch() == {("t", index): 5 for index in range(300)}
        assert await second.unstable() == 0
