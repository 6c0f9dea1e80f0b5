"""A rebuild with a snapshot of the metadata store: what comes from it, what does not, and what it must not break."""

import asyncio
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.cluster_record import adopt_cluster_id, new_kafka_uuid
from kafscale.cluster.marker import claim_marker
from kafscale.cluster.producer_ids import ProducerIds
from kafscale.errors import CorruptDataError, KafscaleError, UnknownFormatVersionError
from kafscale.formats.acl_record import STORED_ACL
from kafscale.formats.any_group_record import decode_any_group
from kafscale.formats.committed_offset import (
    CommittedOffset,
    decode_committed_offset,
    encode_committed_offset,
)
from kafscale.formats.consumer_group_record import (
    ConsumerGroupRecord,
    encode_consumer_group,
)
from kafscale.formats.consumer_member_record import ConsumerMember, encode_consumer_member
from kafscale.formats.export_records import ExportRecord, decode_export_record, encode_export_record
from kafscale.formats.features import SEGMENT_FORMAT, decode_level, encode_level
from kafscale.formats.group_record import GroupRecord, MemberRecord, decode_group_record, encode_group_record
from kafscale.formats.partition_record import (
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.quota_record import QuotaEntity, encode_quotas, quota_key
from kafscale.formats.share_group_record import ShareGroupRecord, encode_share_group
from kafscale.formats.share_start_record import ShareStartRecord, encode_share_start
from kafscale.formats.share_state_record import ShareStateRecord, encode_share_state
from kafscale.formats.snapshot_file import SnapshotHeader, lasting
from kafscale.formats.topic_record import (
    decode_group_shard_record,
    decode_retired_epoch,
    decode_topic_record,
    encode_broker_record,
    encode_fields,
    encode_group_shard_record,
    encode_retired_epoch,
    encode_topic_record,
)
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, GroupShardRecord, TopicRecord, TopicState
from kafscale.metadata.store import MetadataStore, Put
from kafscale.objects.object_store import ObjectStore
from kafscale.tools.recovery import rebuild as planning
from kafscale.tools.recovery.overlaps import DropReason
from kafscale.tools.recovery.plan import (
    PASSED_OVER_EPOCHS,
    PASSED_OVER_PRODUCER_IDS,
    KnownPartition,
    PartitionContents,
    plan_partition,
)
from kafscale.tools.recovery.rebuild import plan_rebuild
from kafscale.tools.recovery.restored import with_snapshot
from kafscale.tools.recovery.snapshot_contents import SnapshotContents, read_contents
from kafscale.tools.recovery.write import Rebuilt, RecoveryRefusedError, RecoveryWriter
from tests.support.faults import CRASHES, STRIDE, Fault, Fuse, FusedMetadataStore
from tests.tools.recovery.recovery_bucket import (
    NAMESPACE,
    NOW_MS,
    TOPIC,
    Silence,
    batch,
    inspected,
    memory_bucket,
    put,
)

CLUSTER = "the-cluster"
ORDERS = TopicRecord(
    name=TOPIC, topic_id=uuid.UUID(int=7), partition_count=2, configs={"retention.ms": "86400000"}
)
SNAPSHOT_MS = NOW_MS - 3_600_000
MEMBER = MemberRecord(
    member_id="m-1",
    group_instance_id=None,
    client_id="c",
    client_host="h",
    session_timeout_ms=1,
    rebalance_timeout_ms=1,
    protocols=(("range", b""),),
    assignment=b"",
)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "FIRST_RETRY_SEC", 0.0)


def topic_puts(topic: TopicRecord, *records: PartitionRecord) -> list[Put]:
    """A topic and its partitions, as brokers leave them."""
    return [
        Put(keys.topic(topic.name), encode_topic_record(topic)),
        *(
            Put(keys.partition(topic.name, index), encode_partition_record(record))
            for index, record in enumerate(records)
        ),
    ]


def offset_put(
    offset: int, *, group: str = "g", topic: TopicRecord = ORDERS, expires_ms: int | None = None
) -> Put:
    committed = CommittedOffset(
        topic_id=topic.topic_id,
        offset=offset,
        commit_timestamp_ms=SNAPSHOT_MS - 1000,
        expire_timestamp_ms=expires_ms,
    )
    return Put(keys.group_offset(group, topic.name, 0), encode_committed_offset(committed))


def orders_puts(*, epoch: int = 4, start: int = 0, end: int = 20) -> list[Put]:
    """The topic `orders`, of whose first partition something is known."""
    first = PartitionRecord(leader_epoch=epoch, log_start_offset=start, log_end_offset=end)
    return topic_puts(ORDERS, first, PartitionRecord(leader_epoch=epoch))


def snapshot_of(
    puts: Sequence[Put], *, namespace: str = NAMESPACE, cluster_id: str = CLUSTER
) -> SnapshotContents:
    """A snapshot that holds these."""
    header = SnapshotHeader(
        cluster_id=cluster_id, namespace=namespace, revision=9, created_ms=SNAPSHOT_MS, keys=len(puts)
    )
    return read_contents("s.kfsnap", header, {put.key: put.value for put in puts})


async def bucket() -> ObjectStore:
    """`orders` has 20 records of epoch 4 (the snapshot's) and 10 of epoch 6 (later), in its first partition."""
    store = memory_bucket()
    await claim_marker(store, NAMESPACE, CLUSTER)
    await put(store, batch(0, 10, 4, producer=(40, 0, 0)))
    await put(store, batch(10, 10, 4, producer=(40, 0, 10)))
    await put(store, batch(20, 10, 6, producer=(41, 0, 0)))
    return store


async def writer(
    metadata: MetadataStore, objects: ObjectStore, contents: SnapshotContents, *, now_ms: int = NOW_MS
) -> RecoveryWriter:
    plan = await plan_rebuild(objects, NAMESPACE, known=contents.known(), concurrency=4, progress=Silence())
    return RecoveryWriter(
        metadata,
        objects,
        with_snapshot(plan, contents, now_ms),
        configs={"cleanup.policy": "delete"},
        new_uuid=new_kafka_uuid,
        progress=Silence(),
    )


async def rebuild(
    metadata: MetadataStore, objects: ObjectStore, contents: SnapshotContents, *, now_ms: int = NOW_MS
) -> Rebuilt:
    return await (await writer(metadata, objects, contents, now_ms=now_ms)).write(skip_damaged=False)


async def restored(puts: Sequence[Put], objects: ObjectStore | None = None) -> MemoryStore:
    """The metadata store after a rebuild of the bucket with a snapshot of these."""
    metadata = MemoryStore()
    await rebuild(metadata, objects or await bucket(), snapshot_of(puts))
    return metadata


async def value(metadata: MetadataStore, key: str) -> bytes:
    held = await metadata.get(key)
    assert held is not None, key
    return held.value


async def record_of(metadata: MetadataStore, topic: str = TOPIC, index: int = 0) -> PartitionRecord:
    key = keys.partition(topic, index)
    return decode_partition_record(key, await value(metadata, key))


async def topic_of(metadata: MetadataStore, name: str = TOPIC) -> TopicRecord:
    return decode_topic_record(name, await value(metadata, keys.topic(name)))


# --- topics and their partitions


async def test_a_topic_comes_back_as_itself_with_what_the_bucket_holds() -> None:
    metadata = await restored(orders_puts())
    assert await topic_of(metadata) == ORDERS
    first, second = await record_of(metadata), await record_of(metadata, index=1)
    assert (first.log_start_offset, first.log_end_offset) == (0, 30)
    assert [one.base_offset for one in first.segments] == [0, 10, 20]
    assert (second.log_start_offset, second.log_end_offset, second.segments) == (0, 0, ())


@pytest.mark.parametrize(("known", "highest"), [(2, 6), (6, 6), (70, 70)])
async def test_leader_epochs_go_on_above_all_that_either_knows(known: int, highest: int) -> None:
    metadata = await restored(orders_puts(epoch=known, end=0))
    assert (await record_of(metadata)).leader_epoch == highest + PASSED_OVER_EPOCHS
    assert (await record_of(metadata, index=1)).leader_epoch == known + PASSED_OVER_EPOCHS


@pytest.mark.parametrize(("told", "first"), [(None, 42), (10, 42), (5000, 5000)])
async def test_producer_ids_go_on_above_all_that_either_knows(told: int | None, first: int) -> None:
    told_put = [] if told is None else [Put(keys.PRODUCER_IDS, encode_fields({"next_producer_id": told}))]
    metadata = await restored([*orders_puts(), *told_put])
    assert await ProducerIds(metadata).next_producer_id() == first + PASSED_OVER_PRODUCER_IDS


async def test_producer_ids_that_neither_side_knows_are_skipped() -> None:
    """Those that were given out after the snapshot, to producers that have not written yet and live on."""
    metadata = await restored(orders_puts(), memory_bucket())
    assert await ProducerIds(metadata).next_producer_id() == PASSED_OVER_PRODUCER_IDS


async def test_producer_ids_of_the_snapshot_are_not_given_again() -> None:
    empty = memory_bucket()
    metadata = await restored([Put(keys.PRODUCER_IDS, encode_fields({"next_producer_id": 3000}))], empty)
    assert await ProducerIds(metadata).next_producer_id() == 3000 + PASSED_OVER_PRODUCER_IDS


@pytest.mark.parametrize(
    ("start", "bases"), [(0, [0, 10, 20]), (5, [0, 10, 20]), (10, [10, 20]), (15, [10, 20]), (20, [20])]
)
async def test_what_was_deleted_stays_deleted(start: int, bases: list[int]) -> None:
    objects = await bucket()
    metadata = await restored(orders_puts(start=start), objects)
    record = await record_of(metadata)
    assert (record.log_start_offset, [one.base_offset for one in record.segments]) == (start, bases)
    assert sum([info.key.endswith(".kfs") async for info in objects.list(f"{NAMESPACE}/")]) == 3


async def test_offsets_that_were_given_are_not_given_again() -> None:
    """The objects at the end are gone, and what a snapshot saw published is not written a second time."""
    metadata = await restored(orders_puts(epoch=6, end=50))
    record = await record_of(metadata)
    assert (record.log_start_offset, record.log_end_offset, len(record.segments)) == (0, 50, 3)


async def test_a_topic_grows_by_the_partitions_that_it_got_since() -> None:
    objects = await bucket()
    await put(objects, batch(0, 1, 3), partition=3)
    metadata = await restored(orders_puts(), objects)
    assert await topic_of(metadata) == replace(ORDERS, partition_count=4)
    assert (await record_of(metadata, index=2)).leader_epoch == 4 + PASSED_OVER_EPOCHS


async def test_a_topic_without_objects_is_back_at_its_end() -> None:
    paid = TopicRecord(name="paid", topic_id=uuid.UUID(int=8), partition_count=1)
    lost = PartitionRecord(leader_epoch=2, log_start_offset=3, log_end_offset=8)
    contents = snapshot_of([*orders_puts(), *topic_puts(paid, lost)])
    metadata, objects = MemoryStore(), await bucket()
    found = with_snapshot(
        await plan_rebuild(objects, NAMESPACE, known=contents.known(), concurrency=4, progress=Silence()),
        contents,
        NOW_MS,
    )
    assert found.restored is not None
    assert ["deleted since, or they are lost" in note for note in found.restored.notes] == [True]
    await rebuild(metadata, objects, contents)
    assert await topic_of(metadata, "paid") == paid
    record = await record_of(metadata, "paid")
    assert (record.log_start_offset, record.log_end_offset) == (8, 8)


async def test_a_topic_of_after_the_snapshot_is_new() -> None:
    objects = await bucket()
    await put(objects, batch(0, 3, 0), topic="later")
    metadata = await restored(orders_puts(), objects)
    later = await topic_of(metadata, "later")
    assert (later.partition_count, later.configs) == (1, {"cleanup.policy": "delete"})
    assert (await record_of(metadata, "later")).log_end_offset == 3


async def test_a_name_that_was_used_again_is_another_topic() -> None:
    """Its leaders have higher epochs and begin below the old topic's end; nothing of the old one applies to it."""
    objects = memory_bucket()
    await put(objects, batch(0, 5, 9))
    metadata = await restored([*orders_puts(epoch=4, start=3, end=20), offset_put(17)], objects)
    topic, record = await topic_of(metadata), await record_of(metadata)
    assert topic.topic_id != ORDERS.topic_id
    assert (topic.partition_count, topic.configs) == (1, {"cleanup.policy": "delete"})
    assert (record.log_start_offset, record.log_end_offset) == (0, 5)
    assert record.leader_epoch == 9 + PASSED_OVER_EPOCHS
    assert (await metadata.range(keys.GROUP_OFFSETS)).items == ()


# --- deleted topics


async def test_a_deleted_topic_does_not_come_back_from_its_rest() -> None:
    metadata = await restored([Put(keys.retired(TOPIC), encode_retired_epoch(6))])
    assert await metadata.get(keys.topic(TOPIC)) is None
    epoch = decode_retired_epoch("", await value(metadata, keys.retired(TOPIC)))
    assert epoch == 6 + PASSED_OVER_EPOCHS


async def test_name_of_a_deleted_topic_used_since_is_a_new_topic() -> None:
    metadata = await restored([Put(keys.retired(TOPIC), encode_retired_epoch(5))])
    assert (await topic_of(metadata)).configs == {"cleanup.policy": "delete"}
    assert (await record_of(metadata)).leader_epoch == 6 + PASSED_OVER_EPOCHS
    assert await metadata.get(keys.retired(TOPIC)) is None


async def test_a_topic_with_a_retired_name_goes_on_above_its_epochs() -> None:
    metadata = await restored([*orders_puts(), Put(keys.retired(TOPIC), encode_retired_epoch(50))])
    assert await topic_of(metadata) == ORDERS
    # The partition's own record says what was used since the name was used again.
    assert (await record_of(metadata)).leader_epoch == 6 + PASSED_OVER_EPOCHS
    objects = await bucket()
    await put(objects, batch(0, 1, 3), partition=2)
    metadata = await restored([*orders_puts(), Put(keys.retired(TOPIC), encode_retired_epoch(50))], objects)
    assert (await record_of(metadata, index=2)).leader_epoch == 50 + PASSED_OVER_EPOCHS


async def test_a_deletion_goes_on() -> None:
    deleting = replace(ORDERS, state=TopicState.DELETING, deleting_broker_id=3)
    records = (PartitionRecord(leader_epoch=6, log_end_offset=30), PartitionRecord(leader_epoch=6))
    metadata = await restored(topic_puts(deleting, *records))
    assert await topic_of(metadata) == deleting


async def test_a_deletion_does_not_take_the_next_topic_of_the_name() -> None:
    deleting = replace(ORDERS, state=TopicState.DELETING, deleting_broker_id=3)
    objects = memory_bucket()
    await put(objects, batch(0, 5, 9))
    metadata = await restored(topic_puts(deleting, PartitionRecord(leader_epoch=6)), objects)
    topic = await topic_of(metadata)
    assert (topic.state, topic.topic_id == ORDERS.topic_id) == (TopicState.ACTIVE, False)
    assert (await record_of(metadata)).log_end_offset == 5


# --- groups, exports, features


async def test_groups_come_back_without_members_in_a_later_generation() -> None:
    group = GroupRecord(
        generation=12,
        state_since_ms=SNAPSHOT_MS,
        protocol_type="consumer",
        protocol_name="range",
        leader="m-1",
        members=(MEMBER,),
    )
    metadata = await restored([*orders_puts(), Put(keys.group("g"), encode_group_record(group))])
    assert decode_group_record("", await value(metadata, keys.group("g"))) == GroupRecord(
        generation=12 + PASSED_OVER_EPOCHS, state_since_ms=NOW_MS, protocol_type="consumer"
    )


async def test_consumer_groups_come_back_empty_at_a_later_epoch() -> None:
    member = ConsumerMember(member_id="m-1", member_epoch=12, assigned={ORDERS.topic_id: frozenset([0])})
    metadata = await restored(
        [
            *orders_puts(),
            Put(keys.group("g"), encode_consumer_group(ConsumerGroupRecord(12, SNAPSHOT_MS))),
            Put(keys.group_member("g", "m-1"), encode_consumer_member(member)),
        ]
    )
    assert decode_any_group("", await value(metadata, keys.group("g"))) == ConsumerGroupRecord(
        group_epoch=12 + PASSED_OVER_EPOCHS, state_since_ms=NOW_MS
    )
    assert (await metadata.range(keys.GROUP_MEMBERS)).items == ()


async def test_share_groups_come_back_empty_at_a_later_epoch() -> None:
    puts = [*orders_puts(), Put(keys.group("g"), encode_share_group(ShareGroupRecord(12, SNAPSHOT_MS)))]
    metadata = await restored(puts)
    assert decode_any_group("", await value(metadata, keys.group("g"))) == ShareGroupRecord(
        group_epoch=12 + PASSED_OVER_EPOCHS, state_since_ms=NOW_MS
    )


async def test_a_group_of_a_later_format_is_refused_by_name() -> None:
    of_later = b"\x00\x04" + encode_consumer_group(ConsumerGroupRecord(12, SNAPSHOT_MS))[2:]
    with pytest.raises(UnknownFormatVersionError, match=f"{keys.group('g')}.*version 4"):
        snapshot_of([*orders_puts(), Put(keys.group("g"), of_later)])


# Bound to leases, so that no snapshot has them.
_OF_LIVE_BROKERS = {keys.BROKERS, keys.LEADERS, keys.COORDINATORS}
_PREFIXES = sorted(value for name, value in vars(keys).items() if name.isupper() and str(value).endswith("/"))


@pytest.mark.parametrize("prefix", _PREFIXES)
def test_every_prefix_of_the_store_is_known_to_a_rebuild(prefix: str) -> None:
    try:
        contents = snapshot_of([Put(f"{prefix}a/b/c", b"")])
    except CorruptDataError:
        return  # It is known, and its value is none.
    assert bool(contents.unknown) == (prefix in _OF_LIVE_BROKERS)


async def test_restored_offsets_do_not_expire_for_the_time_between() -> None:
    metadata = await restored(
        [*orders_puts(), offset_put(17), offset_put(5, group="h", expires_ms=SNAPSHOT_MS)]
    )
    committed = [
        decode_committed_offset(item.key, item.value)
        for item in (await metadata.range(keys.GROUP_OFFSETS)).items
    ]
    assert sorted((one.offset, one.commit_timestamp_ms, one.topic_id) for one in committed) == [
        (5, NOW_MS, ORDERS.topic_id),
        (17, NOW_MS, ORDERS.topic_id),
    ]
    assert {one.expire_timestamp_ms for one in committed} == {None, NOW_MS + 1000}


async def test_offsets_of_topics_that_were_gone_stay_out() -> None:
    older = replace(ORDERS, topic_id=uuid.UUID(int=70))
    gone = replace(ORDERS, name="gone")
    puts = [*orders_puts(), offset_put(17), offset_put(3, group="h", topic=older), offset_put(4, topic=gone)]
    metadata = await restored(puts)
    assert [item.key for item in (await metadata.range(keys.GROUP_OFFSETS)).items] == [
        keys.group_offset("g", TOPIC, 0)
    ]


async def test_share_groups_come_back_as_they_were() -> None:
    start = encode_share_start(ShareStartRecord(state_epoch=3, start_offset=5, changed_ms=SNAPSHOT_MS))
    state = encode_share_state(ShareStateRecord(state_epoch=3, leader_epoch=4, start_offset=12))
    known = keys.SharePartitionId("g", ORDERS.topic_id, 0)
    gone = keys.SharePartitionId("g", uuid.UUID(int=70), 0)
    entries = {
        key: value
        for one in (known, gone)
        for key, value in ((keys.share_start(one), start), (keys.share_state(one), state))
    }
    metadata = await restored([*orders_puts(), *(Put(key, value) for key, value in entries.items())])
    stored = [
        *(await metadata.range(keys.SHARE_STARTS)).items,
        *(await metadata.range(keys.SHARE_STATES)).items,
    ]
    assert {item.key: item.value for item in stored} == {
        keys.share_start(known): start,
        keys.share_state(known): state,
    }


@pytest.mark.parametrize("key", [keys.SHARE_STARTS, keys.SHARE_STATES])
def test_share_group_that_cannot_be_read_is_refused_by_name(key: str) -> None:
    start = encode_share_start(ShareStartRecord(state_epoch=3, changed_ms=SNAPSHOT_MS))
    with pytest.raises(CorruptDataError, match=f"{key}7/g/t/0"):
        snapshot_of([Put(f"{key}7/g/t/0", start)])


async def test_what_fences_goes_on_above() -> None:
    shard = GroupShardRecord(broker_id=2, coordinator_epoch=30, sequence=99)
    export = ExportRecord(epoch=6, holder="job-1", acquired_ms=SNAPSHOT_MS)
    metadata = await restored(
        [
            *orders_puts(),
            Put(keys.group_shard(5), encode_group_shard_record(shard)),
            Put(keys.export_record(TOPIC), encode_export_record(export)),
            Put(keys.export_progress(TOPIC, "db.orders"), b"as it was"),
        ]
    )
    shard = decode_group_shard_record("", await value(metadata, keys.group_shard(5)))
    assert (shard.coordinator_epoch, shard.sequence) == (30 + PASSED_OVER_EPOCHS, 0)
    export = decode_export_record("", await value(metadata, keys.export_record(TOPIC)))
    assert (export.epoch, export.holder) == (6 + PASSED_OVER_EPOCHS, "job-1")
    assert await value(metadata, keys.export_progress(TOPIC, "db.orders")) == b"as it was"


async def test_feature_levels_come_back() -> None:
    metadata = await restored([*orders_puts(), Put(keys.feature(SEGMENT_FORMAT), encode_level(2))])
    key = keys.feature(SEGMENT_FORMAT)
    assert decode_level(key, await value(metadata, key)) == 2


async def test_quotas_come_back_as_they_were() -> None:
    key, of_later_release = quota_key(QuotaEntity(user="alice")), quota_key(QuotaEntity(user="bob"))
    quotas = encode_quotas({"producer_byte_rate": 1024.0})
    puts = [*orders_puts(), Put(key, quotas), Put(of_later_release, b'{"version":2}')]
    metadata = await restored(puts)
    assert await value(metadata, key) == quotas
    assert await value(metadata, of_later_release) == b'{"version":2}'


async def test_access_rules_come_back_as_they_were() -> None:
    rule = "acls/topic/literal/orders/User:alice/*/read/allow"
    of_later_release = "acls/topic/literal/orders/User:bob/*/read/deny"
    puts = [*orders_puts(), Put(rule, STORED_ACL), Put(of_later_release, b'{"version":2}')]
    metadata = await restored(puts)
    assert await value(metadata, rule) == STORED_ACL
    assert await value(metadata, of_later_release) == b'{"version":2}'


# --- what it is refused for


async def refused(metadata: MetadataStore, objects: ObjectStore, contents: SnapshotContents) -> str:
    """Why the rebuild is refused; it must not have written anything."""
    before = (await metadata.range("")).items
    with pytest.raises(RecoveryRefusedError) as raised:
        await rebuild(metadata, objects, contents)
    assert (await metadata.range("")).items == before
    return str(raised.value)


async def test_a_snapshot_of_another_cluster_is_refused() -> None:
    contents = snapshot_of(orders_puts(), cluster_id="another")
    reason = await refused(MemoryStore(), await bucket(), contents)
    assert "of cluster another" in reason and CLUSTER in reason


async def test_a_snapshot_of_another_namespace_is_refused() -> None:
    reason = await refused(MemoryStore(), await bucket(), snapshot_of(orders_puts(), namespace="staging"))
    assert "'staging'" in reason and "KAFSCALE_S3_NAMESPACE" in reason


async def test_a_snapshot_of_a_later_release_is_refused() -> None:
    contents = snapshot_of([*orders_puts(), Put("of-the-future/a", b"1")])
    assert "'of-the-future/a'" in await refused(MemoryStore(), await bucket(), contents)


@pytest.mark.parametrize(
    "key",
    [
        keys.group("other"),
        keys.group_member("other", "m"),
        keys.retired("old"),
        keys.topic("elsewhere"),
        keys.group_shard(3),
    ],
)
async def test_a_snapshot_goes_into_an_empty_store_only(key: str) -> None:
    metadata = MemoryStore()
    await metadata.transact([], [Put(key, b"there")])
    assert repr(key) in await refused(metadata, await bucket(), snapshot_of(orders_puts()))


async def test_a_snapshot_is_refused_while_brokers_are_registered() -> None:
    metadata = MemoryStore()
    lease = await metadata.grant_lease(60)
    broker = encode_broker_record(BrokerRecord(broker_id=4, host="h", port=1))
    await metadata.transact([], [Put(keys.broker(4), broker, lease)])
    assert "stop them first" in await refused(metadata, await bucket(), snapshot_of(orders_puts()))


async def test_cluster_id_is_the_snapshots_if_the_bucket_has_no_marker() -> None:
    rebuilt = await rebuild(MemoryStore(), memory_bucket(), snapshot_of(orders_puts(), cluster_id="its-own"))
    assert rebuilt.cluster_id == "its-own"
    metadata = MemoryStore()
    await adopt_cluster_id(metadata, "not-its-own")
    reason = await refused(metadata, memory_bucket(), snapshot_of(orders_puts(), cluster_id="its-own"))
    assert "not-its-own" in reason


# --- doing it again

SHARD = GroupShardRecord(broker_id=1, coordinator_epoch=2, sequence=3)
EVERYTHING = [
    *orders_puts(),
    Put(keys.PRODUCER_IDS, encode_fields({"next_producer_id": 3000})),
    Put(keys.feature(SEGMENT_FORMAT), encode_level(2)),
    Put(keys.retired("old"), encode_retired_epoch(3)),
    Put(
        keys.group_shard(5),
        encode_group_shard_record(GroupShardRecord(broker_id=1, coordinator_epoch=2, sequence=3)),
    ),
    Put(
        keys.group("g"),
        encode_group_record(GroupRecord(generation=1, state_since_ms=1, protocol_type="consumer")),
    ),
    Put(keys.group("c"), encode_consumer_group(ConsumerGroupRecord(group_epoch=3, state_since_ms=1))),
    Put(keys.group_member("c", "m"), encode_consumer_member(ConsumerMember(member_id="m"))),
    offset_put(17),
    offset_put(3, group="h", expires_ms=SNAPSHOT_MS),
    Put(keys.export_record(TOPIC), encode_export_record(ExportRecord(epoch=6, holder="j", acquired_ms=5))),
]


async def test_later_run_changes_nothing_and_cluster_id_came_last() -> None:
    metadata, objects, contents = MemoryStore(), await bucket(), snapshot_of(EVERYTHING)
    assert (await rebuild(metadata, objects, contents)).written == (TOPIC,)
    items = (await metadata.range("")).items
    assert max(items, key=lambda item: item.mod_revision).key == keys.CLUSTER
    again = await rebuild(metadata, objects, contents, now_ms=NOW_MS + 5000)
    assert (again.written, again.already_there) == ((), (TOPIC,))
    assert (await metadata.range("")).items == items


async def test_a_snapshot_of_the_rebuilt_store_rebuilds_it_again() -> None:
    objects = await bucket()
    first = await restored(EVERYTHING, objects)
    puts = [Put(item.key, item.value) for item in lasting((await first.range("")).items)]
    second = await restored(puts, objects)
    assert await topic_of(second) == ORDERS
    assert (await record_of(second)).segments == (await record_of(first)).segments
    assert (await record_of(second)).leader_epoch > (await record_of(first)).leader_epoch
    committed = await value(second, keys.group_offset("g", TOPIC, 0))
    assert decode_committed_offset("", committed).offset == 17


@pytest.mark.parametrize("fault", list(Fault))
async def test_after_any_interruption_the_next_run_ends_in_the_same(fault: Fault) -> None:
    objects, contents = await bucket(), snapshot_of(EVERYTHING)
    undisturbed = MemoryStore()
    await rebuild(undisturbed, objects, contents)
    expected = {item.key: item.value for item in (await undisturbed.range("")).items}
    at = random.randrange(STRIDE) + 1 - STRIDE
    while True:
        at += STRIDE
        metadata = MemoryStore()
        fuse = Fuse(at, fault)
        rebuilding = asyncio.create_task(rebuild(FusedMetadataStore(metadata, fuse), objects, contents))
        if fault in CRASHES:
            blowing = asyncio.create_task(fuse.blown.wait())
            await asyncio.wait({rebuilding, blowing}, return_when=asyncio.FIRST_COMPLETED)
            rebuilding.cancel()
            blowing.cancel()
        done = (await asyncio.gather(rebuilding, return_exceptions=True))[0]
        assert isinstance(done, Rebuilt | KafscaleError | asyncio.CancelledError), done
        await rebuild(metadata, objects, contents)
        assert {item.key: item.value for item in (await metadata.range("")).items} == expected, (
            f"{fault} at call {at}"
        )
        if not fuse.blown.is_set():
            break
    assert at > 20


async def test_entries_come_in_transactions_that_the_store_takes() -> None:
    metadata = MemoryStore(max_operations=16)
    offsets = [offset_put(n, group=f"g{n}") for n in range(100)]
    await rebuild(metadata, await bucket(), snapshot_of([*orders_puts(), *offsets]))
    assert len((await metadata.range(keys.GROUP_OFFSETS)).items) == 100


# --- one partition, however its life went


@given(
    lengths=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=12),
    cut=st.integers(0, 12),
    deleted=st.integers(0, 12),
    trimmed=st.integers(0, 30),
)
def test_snapshot_of_any_moment_only_moves_the_log_start(
    lengths: list[tuple[int, bool]], cut: int, deleted: int, trimmed: int
) -> None:
    """A log of segments, some by new leaders; a snapshot after some of them, then the rest; some are deleted."""
    epoch, end = 0, 0
    segments = []
    states = [(epoch, end)]
    for length, is_new_leader in lengths:
        epoch += is_new_leader
        segments.append(inspected(batch(end, length, epoch)))
        end += length
        states.append((epoch, end))
    known_epoch, known_end = states[min(cut, len(lengths))]
    known_start = min(trimmed, known_end)
    left = segments[min(deleted, len(segments)) :]
    left = [one for one in left if one.last_offset >= 0]
    contents = PartitionContents(namespace=NAMESPACE, topic=TOPIC, partition=0, segments=left)
    known = KnownPartition(leader_epoch=known_epoch, log_start_offset=known_start, log_end_offset=known_end)
    plain, aided = plan_partition(contents), plan_partition(replace(contents, known=known))
    assert not aided.is_of_later_topic
    assert aided.record.log_end_offset == max(plain.record.log_end_offset, known_end)
    assert aided.record.leader_epoch == max(plain.highest_epoch, known_epoch) + PASSED_OVER_EPOCHS
    kept = [one for one in plain.record.segments if one.last_offset >= known_start]
    assert list(aided.record.segments) == kept
    assert aided.record.log_start_offset == (
        max(known_start, kept[0].base_offset) if kept else aided.record.log_end_offset
    )
    assert [one.reason for one in aided.dropped] == [DropReason.DELETED] * (
        len(plain.record.segments) - len(kept)
    )


@given(
    old_end=st.integers(0, 20),
    old_epoch=st.integers(0, 5),
    expired=st.integers(0, 8),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=8),
)
def test_no_record_of_a_later_topic_of_the_name_is_lost(
    old_end: int, old_epoch: int, expired: int, lengths: list[int]
) -> None:
    """Even where it cannot be told that the name was used again: its first segments may have expired."""
    segments, end = [], 0
    for length in lengths:
        segments.append(inspected(batch(end, length, old_epoch + 1)))
        end += length
    left = segments[min(expired, len(segments)) :]
    contents = PartitionContents(namespace=NAMESPACE, topic=TOPIC, partition=0, segments=left)
    known = KnownPartition(leader_epoch=old_epoch, log_start_offset=old_end, log_end_offset=old_end)
    found = plan_partition(replace(contents, known=known))
    assert [one.base_offset for one in found.record.segments] == [one.base_offset for one in left]
    assert found.is_of_later_topic == any(one.base_offset < old_end for one in left)
    assert found.record.log_end_offset >= (end if left else 0)
