"""Findings of a check in what the metadata store has of groups, and what is none while brokers are at work."""

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

from kafscale.formats.consumer_group_record import ConsumerGroupRecord, encode_consumer_group
from kafscale.formats.consumer_member_record import ConsumerMember, encode_consumer_member
from kafscale.formats.group_record import GroupRecord, encode_group_record
from kafscale.formats.share_group_record import ShareGroupRecord, encode_share_group
from kafscale.formats.share_member_record import ShareMember, encode_share_member
from kafscale.formats.share_start_record import ShareStartRecord, encode_share_start
from kafscale.formats.share_state_record import (
    ShareStateRecord,
    StoredShareRun,
    StoredShareState,
    encode_share_state,
)
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Snapshot
from kafscale.tools.fsck.check import check_cluster
from kafscale.tools.fsck.findings import Finding, FindingKind, Severity
from kafscale.tools.fsck.reading import Reading
from tests.tools.fsck.two_stores import NAMESPACE, NOW_MS, Nobody, TwoStores

SHARE, CONSUMER, CLASSIC = "workers", "readers", "old"
START = ShareStartRecord(state_epoch=2, start_offset=0, changed_ms=NOW_MS)
STATE = ShareStateRecord(
    state_epoch=2,
    leader_epoch=1,
    start_offset=1,
    runs=(StoredShareRun(1, 1, StoredShareState.AVAILABLE, 1),),
)


class Groups:
    """A cluster with a topic of three records and a group of each type, of which each partition is sound."""

    def __init__(self, stores: TwoStores, topic_id: uuid.UUID) -> None:
        self.stores = stores
        self.place = SharePartitionId(SHARE, topic_id, 0)
        self.start, self.state = keys.share_start(self.place), keys.share_state(self.place)

    async def findings(
        self, *topics: str, before_again: Callable[[], Awaitable[None]] | None = None
    ) -> list[Finding]:
        metadata = self.stores.metadata
        reading = Reading(metadata, self.stores.objects, NAMESPACE, 4)
        if before_again is not None:
            reading.metadata = _ChangedBetween(metadata, before_again)  # type: ignore[assignment]
        report = await check_cluster(reading, Nobody(), topics=topics, now_ms=lambda: NOW_MS)
        return list(report.findings)

    async def kinds(self) -> dict[FindingKind, str]:
        return {one.kind: one.key for one in await self.findings()}


class _ChangedBetween:
    """The store, in which something happens before a range of share states is read for the second time."""

    def __init__(self, store: MemoryStore, happens: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._happens = happens
        self._ranges: set[str] = set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def range(self, prefix: str) -> Snapshot:
        if prefix.startswith(keys.SHARE_STATES):
            if prefix in self._ranges:
                await self._happens()
            self._ranges.add(prefix)
        return await self._store.range(prefix)


async def sound() -> Groups:
    stores = await TwoStores.new()
    topic = await stores.create_topic("t")
    await stores.append(3)
    groups = Groups(stores, topic.topic_id)
    await stores.put(keys.group(SHARE), encode_share_group(ShareGroupRecord(3, NOW_MS)))
    await stores.put(keys.group_member(SHARE, "a"), encode_share_member(ShareMember(member_id="a")))
    await stores.put(groups.start, encode_share_start(START))
    await stores.put(groups.state, encode_share_state(STATE))
    await stores.put(keys.group(CONSUMER), encode_consumer_group(ConsumerGroupRecord(3, NOW_MS)))
    member = ConsumerMember(member_id="b")
    await stores.put(keys.group_member(CONSUMER, "b"), encode_consumer_member(member))
    classic = GroupRecord(generation=1, state_since_ms=NOW_MS, protocol_type="consumer")
    await stores.put(keys.group(CLASSIC), encode_group_record(classic))
    return groups


async def test_sound_groups_have_no_findings() -> None:
    assert await (await sound()).findings() == []


async def test_records_that_cannot_be_read_are_problems() -> None:
    groups = await sound()
    await groups.stores.put(keys.group(CLASSIC), b"\0\x09")
    await groups.stores.put(keys.group_member(CONSUMER, "b"), b"\0\x01")
    overlapping = bytearray(encode_share_state(STATE))
    overlapping[2 + 4 + 4 + 8 + 3] = 2  # two runs, and only one follows
    await groups.stores.put(groups.state, bytes(overlapping))
    found = await groups.findings()
    assert {one.kind: one.key for one in found} == {
        FindingKind.GROUP_UNREADABLE: keys.group(CLASSIC),
        FindingKind.MEMBER_UNREADABLE: keys.group_member(CONSUMER, "b"),
        FindingKind.SHARE_UNREADABLE: groups.state,
    }
    assert {one.severity for one in found} == {Severity.PROBLEM}


async def test_what_is_left_over_is_a_warning() -> None:
    groups = await sound()
    stores = groups.stores
    await stores.put(keys.group_member("gone", "c"), encode_share_member(ShareMember(member_id="c")))
    await stores.put(keys.group_member(CLASSIC, "d"), encode_share_member(ShareMember(member_id="d")))
    await stores.remove(groups.start)
    lost = keys.share_start(SharePartitionId(SHARE, uuid.UUID(int=9), 0))
    alone = keys.share_start(SharePartitionId("gone", groups.place.topic_id, 0))
    for key in (lost, alone):
        await stores.put(key, encode_share_start(START))
    found = await groups.findings()
    assert {one.severity for one in found} == {Severity.WARNING}
    assert {(one.kind, one.key) for one in found} == {
        (FindingKind.MEMBER_WITHOUT_GROUP, keys.group_member("gone", "c")),
        (FindingKind.MEMBER_WITHOUT_GROUP, keys.group_member(CLASSIC, "d")),
        (FindingKind.SHARE_STATE_WITHOUT_START, groups.state),
        (FindingKind.SHARE_WITHOUT_TOPIC, lost),
        (FindingKind.SHARE_WITHOUT_GROUP, alone),
    }


async def test_a_state_of_an_earlier_start_is_sound() -> None:
    groups = await sound()
    await groups.stores.put(groups.state, encode_share_state(replace(STATE, state_epoch=1)))
    assert await groups.findings() == []


async def test_a_state_of_a_later_start_is_a_problem() -> None:
    groups = await sound()
    await groups.stores.put(groups.state, encode_share_state(replace(STATE, state_epoch=3)))
    (found,) = await groups.findings()
    assert (found.kind, found.severity) == (FindingKind.SHARE_STATE_INCONSISTENT, Severity.PROBLEM)


async def test_a_group_beyond_the_log_is_a_warning() -> None:
    groups = await sound()
    runs = (StoredShareRun(1, 5, StoredShareState.ACKNOWLEDGED, 1),)
    await groups.stores.put(groups.state, encode_share_state(replace(STATE, runs=runs)))
    (found,) = await groups.findings()
    assert (found.kind, found.severity, found.last_offset) == (
        FindingKind.SHARE_BEYOND_END,
        Severity.WARNING,
        5,
    )
    await groups.stores.append(3)
    assert await groups.findings() == []


async def test_of_a_group_that_cannot_be_read_nothing_is_left_over() -> None:
    groups = await sound()
    await groups.stores.put(keys.group(SHARE), b"\0\x09")
    assert await groups.kinds() == {FindingKind.GROUP_UNREADABLE: keys.group(SHARE)}


async def test_what_is_gone_at_a_second_look_does_not_count() -> None:
    """A group is being deleted: its starts go first."""
    groups = await sound()
    await groups.stores.remove(groups.start)

    async def delete_state() -> None:
        await groups.stores.remove(groups.state)

    assert await groups.findings(before_again=delete_state) == []


async def test_groups_are_not_looked_at_for_one_topic() -> None:
    groups = await sound()
    await groups.stores.put(keys.group(CLASSIC), b"\0\x09")
    assert await groups.findings("t") == []
