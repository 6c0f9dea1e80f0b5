"""Brokers that coordinate groups over one store that a test controls, in virtual time, and members of groups."""

import asyncio
import inspect
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kafscale.cluster.coordination import Coordination
from kafscale.cluster.view import ClusterView
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.topic_record import encode_topic_record
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.effects import Joined, Left, Synced
from kafscale.groups.events import LeavingMember, Protocol
from kafscale.groups.expiry import OffsetExpiry
from kafscale.groups.group import Group
from kafscale.groups.marker_watch import MarkerWatch
from kafscale.groups.shards import GroupShards
from kafscale.groups.share.starts_in_store import StartsInStore
from kafscale.groups.states import GroupState
from kafscale.groups.transactional_commits import Committer
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Delete, MetadataStore, Put
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings
from tests.groups.controlled_metadata import Metadata
from tests.groups.transactions import PRODUCER_ID, OpenTransactions
from tests.support.owners import end_leases
from tests.support.virtual_time import run_virtually

START_MS = 1_700_000_000_000
INITIAL_DELAY_MS = 100
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 30_000
TOPIC = "orders"
TOPIC_ID = UUID(int=1)
RANGE = (Protocol("range", b"subscription"),)
GROUP = "billing"
NEIGHBOUR, STRANGER = itertools.islice(
    (
        name
        for name in map("other-{}".format, itertools.count())
        if keys.shard_of(name) == keys.shard_of(GROUP)
    ),
    2,
)
"""Groups of the same shard."""

SETTINGS = replace(
    Settings(), group_initial_rebalance_delay_ms=INITIAL_DELAY_MS, group_min_session_timeout_ms=1
)


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0, without user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def now_ms() -> int:
    """Unix milliseconds by the loop's clock."""
    return START_MS + round(asyncio.get_running_loop().time() * 1000)


def committed(
    offset: int,
    *,
    topic_id: UUID = TOPIC_ID,
    metadata: str = "",
    age_ms: int = 0,
    expire_timestamp_ms: int | None = None,
) -> CommittedOffset:
    """An offset that is committed now, or was `age_ms` ago."""
    return CommittedOffset(
        topic_id=topic_id,
        offset=offset,
        metadata=metadata,
        commit_timestamp_ms=now_ms() - age_ms,
        expire_timestamp_ms=expire_timestamp_ms,
    )


class Coordinating:
    """One broker's groups."""

    def __init__(
        self, store: Metadata, settings: Settings, lease: int, seen: MetadataStore | None = None
    ) -> None:
        """`seen`: the store as this broker sees it."""
        metrics = Metrics().groups
        self.store = store
        seen = seen or store
        self.lease = lease
        self.transactions = OpenTransactions()
        self.view = ClusterView("test")
        self.lost: list[int] = []
        self.shards = GroupShards(
            seen,
            Coordination(seen, 0, lambda: self.lease),
            settings,
            metrics,
            now_ms,
            on_lost=self.lost.append,
            share_starts=StartsInStore(seen, now_ms),
            known_topic=self.view.topic,
        )
        self.coordinator = GroupCoordinator(
            self.shards, seen, self.view, settings, metrics, now_ms, self.transactions
        )
        self.marker_watch = MarkerWatch(seen, self.shards.markers_put)
        self.expiry = OffsetExpiry(self.shards, store, self.view, settings, now_ms)

    @property
    def totals(self) -> tuple[int, int, int]:
        """Groups, members, bytes."""
        totals = self.shards.totals
        return sum(totals.by_state.values()), totals.members, totals.memory_bytes

    def group(self, group_id: str) -> Group:
        """The group, which must be there."""
        group = self.coordinator.describe(group_id)
        assert group is not None
        return group

    def is_in(self, group_id: str, state: GroupState) -> bool:
        """True if the group is there and in this state."""
        return self.group(group_id).state is state

    async def commit(self, group_id: str, offset: int, partitions: int = 1, **given: Any) -> ErrorCode:
        """Commit the offset in the first partitions of `TOPIC`, as somebody outside the group."""
        offsets = {(TOPIC, index): committed(offset, **given) for index in range(partitions)}
        return await self.commit_all(group_id, offsets)

    async def commit_partition(self, group_id: str, index: int, offset: int) -> ErrorCode:
        """Commit the offset in one partition of `TOPIC`, as somebody outside the group."""
        return await self.commit_all(group_id, {(TOPIC, index): committed(offset)})

    async def commit_all(
        self, group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset]
    ) -> ErrorCode:
        """Commit as somebody outside the group."""
        return await self.coordinator.commit(
            group_id, member_id="", group_instance_id=None, generation=-1, offsets=offsets
        )

    async def commit_in_transaction(
        self,
        group_id: str,
        offsets: Mapping[int, int],
        *,
        producer_id: int = PRODUCER_ID,
        producer_epoch: int = 0,
        adds: bool = False,
        member: tuple[str, str | None, int] = ("", None, -1),
        transactional_id: str | None = None,
        **given: Any,
    ) -> ErrorCode:
        """TxnOffsetCommit of offsets by partition of `TOPIC`. `member`: id, instance id and generation."""
        member_id, instance_id, generation = member
        committer = Committer(
            transactional_id=transactional_id or f"copier-{producer_id}",
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            generation=generation,
            adds_group=adds,
            knows_abortable=True,
        )
        values = {(TOPIC, index): committed(offset, **given) for index, offset in offsets.items()}
        return await self.coordinator.commit_in_transaction(group_id, committer, values)

    async def unstable(self, group_id: str) -> set[int]:
        """The partitions of `TOPIC` for which OffsetFetch with `require_stable` finds an offset pending."""
        found = await self.coordinator.fetch_offsets(group_id, require_stable=True)
        return {index for topic, index in found.unstable if topic == TOPIC}

    async def fetch(self, group_id: str, *, require_stable: bool = False) -> dict[tuple[str, int], int]:
        """OffsetFetch."""
        found = await self.coordinator.fetch_offsets(group_id, require_stable=require_stable)
        return {partition: one.offset for partition, one in found.committed.items()}

    async def tell_topics(self) -> None:
        """Let this broker's picture of the topics show what the store has."""
        self.view.apply(keys.TOPICS, await MemoryStore.range(self.store, keys.TOPICS))


class Brokers:
    """One broker after the other on the same store; each coordinates every group from its start on."""

    def __init__(self, settings: Settings) -> None:
        self.store = Metadata()
        self._settings = settings
        self._started: list[Coordinating] = []

    async def prepare(self) -> Coordinating:
        """A broker that has not claimed anything yet, and may: the one before has lost its lease."""
        await end_leases(self.store, keys.COORDINATORS)
        return await self.beside()

    async def beside(self, seen: MetadataStore | None = None) -> Coordinating:
        """A broker that has not claimed anything yet, beside those that coordinate. `seen`: see `Coordinating`."""
        await self.make_topic(TOPIC, TOPIC_ID)
        broker = Coordinating(self.store, self._settings, await self.store.grant_lease(10**9), seen)
        await broker.tell_topics()
        self._started.append(broker)
        return broker

    async def start(self) -> Coordinating:
        """A broker that coordinates every group; the one before has not heard of it."""
        broker = await self.prepare()
        await broker.shards.claim(range(keys.GROUP_SHARD_COUNT))
        return broker

    async def make_topic(self, topic: str, topic_id: UUID, partitions: int = 1000) -> None:
        """Make the topic, or another of the same name, as far as the store goes."""
        record = TopicRecord(name=topic, topic_id=topic_id, partition_count=partitions)
        await MemoryStore.transact(self.store, [], [Put(keys.topic(topic), encode_topic_record(record))])

    async def delete_topic(self, topic: str) -> None:
        """Delete it, as far as the store goes."""
        await MemoryStore.transact(self.store, [], [Delete(keys.topic(topic))])

    async def close(self) -> None:
        """Stop every broker; nothing may be left of it."""
        self.store.is_away = False
        for broker in self._started:
            await broker.marker_watch.close()
            await broker.expiry.close()
            await broker.shards.close()
            assert broker.totals == (0, 0, 0)
        await self.store.close()


class Member:
    """A client that is a member of a group, or wants to be."""

    def __init__(
        self,
        broker: Coordinating,
        group_id: str,
        *,
        instance_id: str | None = None,
        protocols: tuple[Protocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        member_id_required: bool = False,
    ) -> None:
        self.broker = broker
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.member_id_required = member_id_required
        self.member_id = ""
        self.generation = -1
        self.joined = Joined()

    @property
    def _who(self) -> dict[str, Any]:
        return {"member_id": self.member_id, "group_instance_id": self.instance_id}

    async def join(self) -> Joined:
        """JoinGroup; what it says is kept."""
        self.joined = await self.broker.coordinator.classic.join(
            self.group_id,
            **self._who,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type=self.protocol_type,
            protocols=self.protocols,
            member_id_required=self.member_id_required,
        )
        if self.joined.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = self.joined.member_id, self.joined.generation
        return self.joined

    async def sync(self, assignment: bytes = b"part of ") -> Synced:
        """SyncGroup; the leader assigns `assignment` and the member's id to each."""
        return await self.broker.coordinator.classic.sync(
            self.group_id,
            **self._who,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocols[0].name,
            assignments={one.member_id: assignment + one.member_id.encode() for one in self.joined.members},
        )

    def heartbeat(self) -> ErrorCode:
        """Heartbeat."""
        return self.broker.coordinator.classic.heartbeat(
            self.group_id, **self._who, generation=self.generation
        )

    async def commit(self, offset: int, partitions: int = 1) -> ErrorCode:
        """OffsetCommit, for the first partitions of `TOPIC`."""
        offsets = {(TOPIC, index): committed(offset) for index in range(partitions)}
        return await self.broker.coordinator.commit(
            self.group_id, **self._who, generation=self.generation, offsets=offsets
        )

    async def leave(self) -> Left:
        """LeaveGroup."""
        return await self.broker.coordinator.classic.leave(
            self.group_id, (LeavingMember(self.member_id, self.instance_id),)
        )


async def joined(*members: Member) -> None:
    """All of them join the next generation."""
    for answer in await asyncio.gather(*(member.join() for member in members)):
        assert answer.error_code is ErrorCode.NONE


async def stable(*members: Member) -> None:
    """All of them join and get their assignments."""
    await joined(*members)
    for answer in await asyncio.gather(*(member.sync() for member in members)):
        assert answer.error_code is ErrorCode.NONE


async def empty(broker: Coordinating, group_id: str) -> None:
    """A group that had a member, which left."""
    member = Member(broker, group_id)
    await stable(member)
    await member.leave()
    assert broker.is_in(group_id, GroupState.EMPTY)


@contextmanager
def refused(error_code: ErrorCode) -> Iterator[pytest.ExceptionInfo[KafkaError]]:
    """Everything done inside is refused as a whole with this error."""
    with pytest.raises(KafkaError) as problem:
        yield problem
    assert problem.value.code is error_code


Scenario = Callable[..., Coroutine[Any, Any, None]]


def scenario(**settings: Any) -> Callable[[Scenario], Callable[..., None]]:
    """A test over `Brokers` with these settings, in virtual time; nothing may still run after it."""

    def decorate(body: Scenario) -> Callable[..., None]:
        async def play(arguments: Mapping[str, Any]) -> None:
            brokers = Brokers(replace(SETTINGS, **settings))
            try:
                await body(brokers, **arguments)
            finally:
                await brokers.close()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"still running: {[task.get_name() for task in left]}"

        def test(**arguments: Any) -> None:
            run_virtually(play(arguments))

        _, *parameters = inspect.signature(body).parameters.values()
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        test.__name__, test.__qualname__ = body.__name__, body.__qualname__
        test.__module__, test.__doc__ = body.__module__, body.__doc__
        return test

    return decorate
