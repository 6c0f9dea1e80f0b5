"""Findings of a check: each kind of damage by its name, each orphan with its reason, nothing where all is well."""

import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from kafscale.cluster.marker import encode_marker
from kafscale.errors import CorruptDataError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import EpochStart, PartitionRecord
from kafscale.metadata import keys
from kafscale.metadata.model import TopicState
from kafscale.tools.fsck.check import UnknownTopicError
from kafscale.tools.fsck.findings import FindingKind, OrphanReason, Severity, Standing
from tests.tools.fsck.two_stores import (
    CLUSTER_ID,
    NAMESPACE,
    TwoStores,
    first_position,
    kinds,
    orphans,
    problems,
    reasons,
)

_INDEX_HEADER = 16


async def healthy() -> TwoStores:
    """Topic t with a checkpoint, a merged segment, two leaders and newer segments; offsets 0 to 19."""
    stores = await TwoStores.new()
    await stores.create_topic("t")
    await stores.append(3, 3, 3, 3)
    await stores.new_leader()
    await stores.append(2)
    await stores.merge(0, 1)
    await _delete_segment(stores, 0)
    await _delete_segment(stores, 3)
    await stores.append(3, 3)
    return stores


async def _delete_segment(stores: TwoStores, base: int) -> None:
    key = object_keys.segment_key(NAMESPACE, "t", 0, base)
    await stores.objects.delete([key, object_keys.index_key_of(key)])


@pytest.mark.parametrize("verify", [False, True])
async def test_nothing_is_found_where_all_is_well(verify: bool) -> None:
    stores = await healthy()
    report = await stores.check(verify=verify)
    [partition] = report.partitions
    assert (partition.findings, partition.orphans) == ((), ())
    assert report.findings == () and report.foreign_objects == 0
    assert (partition.log_start_offset, partition.log_end_offset) == (0, 20)
    assert (partition.segment_count, partition.record_count) == (6, 20)
    assert partition.size_bytes == sum(reference.size_bytes for reference in await stores.references())
    assert (report.cluster_id, report.is_verified, report.broker_ids) == (CLUSTER_ID, verify, ())


# --- objects


async def _segment_gone(stores: TwoStores) -> str:
    key = object_keys.segment_key(NAMESPACE, "t", 0, 9)
    await stores.objects.delete([key])
    return key


async def _segment_cut(stores: TwoStores) -> str:
    key = object_keys.segment_key(NAMESPACE, "t", 0, 9)
    await stores.change(key, (await stores.objects.get(key))[:-1])
    return key


async def _index_gone(stores: TwoStores) -> str:
    key = object_keys.merged_index_key(NAMESPACE, "t", 0, 0, 5)
    await stores.objects.delete([key])
    return key


async def _index_cut(stores: TwoStores) -> str:
    key = object_keys.index_key(NAMESPACE, "t", 0, 14)
    await stores.change(key, (await stores.objects.get(key))[:-1])
    return key


async def _checkpoint_gone(stores: TwoStores) -> str:
    key = (await stores.record()).checkpoint_key
    await stores.objects.delete([key])
    return key


async def _checkpoint_flipped(stores: TwoStores) -> str:
    key = (await stores.record()).checkpoint_key
    await stores.flip(key, 30)
    return key


Damage = Callable[[TwoStores], Awaitable[str]]


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (_segment_gone, FindingKind.SEGMENT_MISSING),
        (_segment_cut, FindingKind.SEGMENT_SIZE),
        (_index_gone, FindingKind.INDEX_MISSING),
        (_index_cut, FindingKind.INDEX_DAMAGED),
        (_checkpoint_gone, FindingKind.CHECKPOINT_MISSING),
        (_checkpoint_flipped, FindingKind.CHECKPOINT_DAMAGED),
    ],
)
@pytest.mark.parametrize("verify", [False, True])
async def test_findings_of_a_listing(damage: Damage, kind: FindingKind, verify: bool) -> None:
    stores = await healthy()
    key = await damage(stores)
    report = await stores.check(verify=verify)
    assert problems(report) == [(kind, key)]
    # The index of a segment that is gone is still that of a published segment.
    assert orphans(report) == {}


async def _body_flipped(stores: TwoStores) -> str:
    key = object_keys.merged_segment_key(NAMESPACE, "t", 0, 0, 5)
    await stores.flip(key, 150)
    return key


async def _header_flipped(stores: TwoStores) -> str:
    key = object_keys.segment_key(NAMESPACE, "t", 0, 6)
    await stores.flip(key, 1)
    return key


async def _footer_flipped(stores: TwoStores) -> str:
    key = object_keys.segment_key(NAMESPACE, "t", 0, 6)
    await stores.flip(key, -16)
    return key


async def _another_segment(stores: TwoStores) -> str:
    """One of the same size, under its key."""
    key = object_keys.segment_key(NAMESPACE, "t", 0, 6)
    await stores.change(key, await stores.objects.get(object_keys.segment_key(NAMESPACE, "t", 0, 9)))
    return key


async def _index_of_nothing(stores: TwoStores) -> str:
    key = object_keys.index_key(NAMESPACE, "t", 0, 14)
    await stores.flip(key, 0)
    return key


async def _index_lies(stores: TwoStores) -> str:
    """Its second entry points one byte too far."""
    key = object_keys.index_key(NAMESPACE, "t", 0, 14)
    data = bytearray(await stores.objects.get(key))
    at = _INDEX_HEADER + 12 + 8
    (position,) = struct.unpack_from(">i", data, at)
    assert position == first_position(await stores.objects.get(object_keys.segment_key_of(key)))
    struct.pack_into(">i", data, at, position + 1)
    await stores.change(key, bytes(data))
    return key


async def _index_beyond(stores: TwoStores) -> str:
    """Its last entry lies behind the segment's end."""
    key = object_keys.index_key(NAMESPACE, "t", 0, 14)
    data = bytearray(await stores.objects.get(key))
    struct.pack_into(">i", data, len(data) - 4, 1_000_000)
    await stores.change(key, bytes(data))
    return key


async def _index_of_the_future(stores: TwoStores) -> str:
    key = object_keys.index_key(NAMESPACE, "t", 0, 14)
    data = bytearray(await stores.objects.get(key))
    data[5] = 9
    await stores.change(key, bytes(data))
    return key


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (_body_flipped, FindingKind.SEGMENT_DAMAGED),
        (_header_flipped, FindingKind.SEGMENT_DAMAGED),
        (_footer_flipped, FindingKind.SEGMENT_DAMAGED),
        (_another_segment, FindingKind.SEGMENT_DAMAGED),
        (_index_of_nothing, FindingKind.INDEX_DAMAGED),
        (_index_lies, FindingKind.INDEX_LIES),
        (_index_beyond, FindingKind.INDEX_LIES),
        (_index_of_the_future, FindingKind.INDEX_VERSION),
    ],
)
async def test_findings_of_reading_every_byte(damage: Damage, kind: FindingKind) -> None:
    stores = await healthy()
    key = await damage(stores)
    assert problems(await stores.check()) == []
    report = await stores.check(verify=True)
    assert problems(report) == [(kind, key)]


@pytest.mark.parametrize(
    "change",
    [{"record_count": 2}, {"leader_epoch": 0}, {"max_timestamp_ms": 5}],
)
async def test_a_record_that_says_something_else_than_a_sound_segment(change: dict[str, Any]) -> None:
    stores = await healthy()
    record = await stores.record()
    newest = record.segments[-1]._replace(**change)
    await stores.save("t", 0, replace(record, segments=(*record.segments[:-1], newest)))
    found = problems(await stores.check(verify=True))
    assert FindingKind.SEGMENT_DIFFERS in {kind for kind, _ in found}
    assert {key for kind, key in found if kind is FindingKind.SEGMENT_DIFFERS} == {
        object_keys.segment_key(NAMESPACE, "t", 0, 17)
    }


# --- holes and overlaps


async def test_orphan_and_the_offset_skipped_for_it_are_explained() -> None:
    stores = await healthy()
    left = await stores.leave_behind(20, 4)
    await stores.new_leader()
    await stores.append(2, passed_over=1)
    report = await stores.check(verify=True)
    [hole] = report.all_findings
    assert (hole.kind, hole.first_offset, hole.last_offset) == (FindingKind.HOLE_PASSED_OVER, 20, 20)
    assert hole.severity is Severity.NOTE
    assert orphans(report) == dict.fromkeys(left, OrphanReason.LEFTOVER)
    # The garbage collector removes it one day; the leader's change explains the hole still.
    await stores.objects.delete(left)
    report = await stores.check(verify=True)
    assert kinds(report) == {FindingKind.HOLE_PASSED_OVER} and orphans(report) == {}


async def test_a_leader_that_is_replaced_leaves_two_uploads_at_most() -> None:
    stores = await healthy()
    left = [*await stores.leave_behind(20), *await stores.leave_behind(21)]
    await stores.new_leader()
    await stores.append(2, passed_over=2)
    assert orphans(await stores.check()) == dict.fromkeys(left, OrphanReason.LEFTOVER)
    await stores.objects.delete(left)
    assert kinds(await stores.check()) == {FindingKind.HOLE_PASSED_OVER}
    await stores.merge(0, 1)
    await stores.merge(0, 1)
    assert kinds(await stores.check(verify=True)) == {FindingKind.HOLE_PASSED_OVER}
    await stores.new_leader()
    await stores.append(2, passed_over=3)
    assert FindingKind.HOLE_UNEXPLAINED in kinds(await stores.check())


async def test_orphans_explain_a_hole_where_no_epochs_do() -> None:
    stores = await healthy()
    left = [*await stores.leave_behind(20), *await stores.leave_behind(21)]
    await stores.append(2, passed_over=2)
    report = await stores.check()
    assert kinds(report) == {FindingKind.HOLE_PASSED_OVER}
    assert orphans(report) == dict.fromkeys(left, OrphanReason.LEFTOVER)


async def test_a_hole_that_nothing_explains() -> None:
    stores = await healthy()
    record = await stores.record()
    await stores.save("t", 0, replace(record, segments=record.segments[1:]))
    report = await stores.check()
    [hole] = report.all_findings
    assert (hole.kind, hole.first_offset, hole.last_offset) == (FindingKind.HOLE_UNEXPLAINED, 14, 16)
    key = object_keys.segment_key(NAMESPACE, "t", 0, 14)
    assert orphans(report) == {
        key: OrphanReason.LEFT_OUT,
        object_keys.index_key_of(key): OrphanReason.LEFT_OUT,
    }


@pytest.mark.parametrize("kept", [slice(0, 1), slice(0, 0)])
async def test_a_hole_at_the_end_is_never_explained(kept: slice) -> None:
    stores = await healthy()
    for _ in range(10):
        await stores.new_leader()
    record = await stores.record()
    await stores.save("t", 0, replace(record, segments=record.segments[kept]))
    report = await stores.check()
    assert [one.kind for one in report.all_findings] == [FindingKind.HOLE_UNEXPLAINED]
    assert report.all_findings[0].last_offset == 19


async def test_a_hole_inside_a_merged_segment() -> None:
    stores = await TwoStores.new()
    await stores.create_topic("t")
    await stores.append(2, 2, 2)
    references = await stores.references()
    await stores.append(2)
    record = await stores.record()
    # A merge that lost a source, and says that it did not.
    await stores.save("t", 0, replace(record, segments=(references[0], references[2], record.segments[3])))
    key = await stores.merge(0, 1)
    await _delete_segment(stores, 2)
    assert problems(await stores.check()) == []
    report = await stores.check(verify=True)
    assert problems(report) == [(FindingKind.HOLE_UNEXPLAINED, key)]
    assert (report.all_findings[0].first_offset, report.all_findings[0].last_offset) == (2, 3)


async def test_segments_that_overlap() -> None:
    stores = await healthy()
    record = await stores.record()
    first, second = record.segments
    await stores.save("t", 0, replace(record, segments=(first._replace(last_offset=18), second)))
    report = await stores.check()
    assert [one[0] for one in problems(report)] == [FindingKind.OVERLAP]
    [overlap] = report.all_findings
    assert (overlap.first_offset, overlap.last_offset) == (17, 18)


# --- records


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda record: replace(record, log_start_offset=21), "starts at 21 and ends at 20"),
        (lambda record: replace(record, checkpoint_end_offset=21), "the checkpoint ends at 21"),
        (
            lambda record: replace(record, epochs=(EpochStart(1, 0), EpochStart(1, 12))),
            "leader epoch 1 from offset 12 on follows epoch 1",
        ),
        (lambda record: replace(record, epochs=(EpochStart(9, 0),)), "beyond the current epoch 1"),
        (lambda record: replace(record, log_end_offset=19), "the log ends at 19"),
        (
            lambda record: replace(record, segments=(record.segments[0]._replace(record_count=4),)),
            "4 records at 3 offsets",
        ),
        (
            lambda record: replace(record, segments=(record.segments[0]._replace(leader_epoch=0),)),
            "leader epoch 0 follows one of 1",
        ),
        (lambda record: replace(record, leader_epoch=0, epochs=()), "the partition is at 0"),
        (
            lambda record: replace(
                record,
                segments=(
                    record.segments[0]._replace(
                        object_key=object_keys.merged_segment_key(NAMESPACE, "t", 0, 0, 5),
                    ),
                ),
            ),
            "in an object of others",
        ),
    ],
)
async def test_a_record_that_contradicts_itself(
    change: Callable[[PartitionRecord], PartitionRecord], says: str
) -> None:
    stores = await healthy()
    await stores.save("t", 0, change(await stores.record()))
    found = [
        one
        for one in (await stores.check()).all_findings
        if one.kind in (FindingKind.RECORD_INCONSISTENT, FindingKind.CHECKPOINT_INCONSISTENT)
    ]
    assert any(says in one.detail for one in found), found


async def test_a_checkpoint_that_ends_elsewhere() -> None:
    stores = await healthy()
    record = await stores.record()
    await stores.save("t", 0, replace(record, checkpoint_end_offset=13))
    found = [one.detail for one in (await stores.check()).all_findings]
    assert "it ends at offset 14, the record says 13" in found


async def test_objects_below_unreadable_checkpoint_are_no_orphans() -> None:
    stores = await healthy()
    await _checkpoint_gone(stores)
    [partition] = (await stores.check()).partitions
    assert partition.unjudged_objects == 2 * 4 and partition.orphans == ()


async def test_a_topic_that_lacks_a_record() -> None:
    stores = await TwoStores.new()
    await stores.create_topic("t", 3)
    await stores.append(2, index=1)
    await stores.remove(keys.partition("t", 1))
    report = await stores.check()
    assert problems(report) == [(FindingKind.RECORD_MISSING, "")]
    assert [one.subject for one in report.all_findings] == ["t-1"]
    assert report.partitions[1].unjudged_objects == 2 and orphans(report) == {}


async def test_records_that_cannot_be_read() -> None:
    stores = await TwoStores.new()
    for name in ("a", "b"):
        await stores.create_topic(name)
        await stores.append(2, topic=name)
    await stores.put(keys.partition("a", 0), b"\0\1")
    await stores.put(keys.topic("b"), b"{}")
    report = await stores.check()
    assert [(one.kind, one.subject) for one in report.all_findings] == [
        (FindingKind.TOPIC_UNREADABLE, "b"),
        (FindingKind.RECORD_UNREADABLE, "a-0"),
    ]
    assert [one.standing for one in report.partitions] == [Standing.UNJUDGED] * 2
    assert orphans(report) == {}


async def test_partition_records_without_a_topic_are_a_warning() -> None:
    stores = await healthy()
    await stores.save("unborn", 0, PartitionRecord(leader_epoch=-1))
    report = await stores.check()
    assert [(one.kind, one.subject, one.severity) for one in report.findings] == [
        (FindingKind.RECORD_WITHOUT_TOPIC, "unborn", Severity.WARNING)
    ]


async def test_committed_offsets_beyond_the_end() -> None:
    stores = await TwoStores.new()
    older = await stores.create_topic("t")
    topic = await stores.create_topic("t", 2)
    await stores.append(5)
    await stores.commit("at the end", topic, 0, 5)
    await stores.commit("beyond/it", topic, 0, 6)
    await stores.commit("of an older topic", older, 0, 99)
    await stores.commit("of none", replace(topic, name="gone"), 0, 99)
    [finding] = (await stores.check()).findings
    assert (finding.kind, finding.severity) == (FindingKind.OFFSET_BEYOND_END, Severity.WARNING)
    assert finding.subject == "group 'beyond/it', t-0"
    assert finding.detail == "offset 6; the log ends at 5"


# --- orphans


async def test_every_orphan_of_a_partition_has_its_reason() -> None:
    stores = await healthy()
    expected: dict[str, OrphanReason] = {}

    def expect(reason: OrphanReason, *segment_keys: str) -> None:
        for key in segment_keys:
            expected[key] = reason
            expected[object_keys.index_key_of(key)] = reason

    def flushed(base: int) -> str:
        return object_keys.segment_key(NAMESPACE, "t", 0, base)

    def merged(base: int, last: int) -> str:
        return object_keys.merged_segment_key(NAMESPACE, "t", 0, base, last)

    superseded = (await stores.record()).checkpoint_key
    await stores.merge(0, 1)  # 0 to 8, of a merged and a flushed segment
    expect(OrphanReason.SUPERSEDED, merged(0, 5), flushed(6))
    expect(OrphanReason.UNPUBLISHED_MERGE, await stores.merge(0, 1, publish=False))
    await stores.leave_behind(10, 3)
    expect(OrphanReason.LEFTOVER, flushed(10))
    await stores.leave_behind(20)
    expect(OrphanReason.ABOVE_LOG_END, flushed(20))
    alone = object_keys.index_key(NAMESPACE, "t", 0, 13)
    about_to_come = object_keys.index_key(NAMESPACE, "t", 0, 21)
    unnamed = object_keys.checkpoint_key(NAMESPACE, "t", 0, 20, 1, "x")
    for key in (alone, about_to_come, unnamed):
        await stores.change(key, b"")
    expected |= {
        alone: OrphanReason.INDEX_WITHOUT_SEGMENT,
        about_to_come: OrphanReason.ABOVE_LOG_END,
        unnamed: OrphanReason.UNNAMED_CHECKPOINT,
        superseded: OrphanReason.OLD_CHECKPOINT,
    }
    report = await stores.check()
    found = orphans(report)
    assert found == expected
    assert problems(report) == []
    because = {one.key: one.because for one in report.all_orphans}
    assert because[flushed(6)] == merged(0, 8) and because[flushed(20)] == ""


async def test_what_lies_below_the_start_has_expired() -> None:
    stores = await healthy()
    record = await stores.record()
    await stores.save("t", 0, replace(record, log_start_offset=10))
    report = await stores.check(verify=True)
    assert problems(report) == []
    assert reasons(report) == {OrphanReason.EXPIRED}
    assert {key.rpartition("/")[2] for key in orphans(report) if key.endswith(".kfs")} == {
        f"segment-{0:020d}-{5:020d}.kfs",
        f"segment-{6:020d}.kfs",
    }


async def test_objects_of_topics_and_partitions_that_are_not_there() -> None:
    stores = await healthy()
    await stores.create_topic("deleting", state=TopicState.DELETING)
    await stores.create_topic("deleted")
    for topic, index in (("deleting", 0), ("deleted", 0), ("never", 0), ("t", 1)):
        await stores.leave_behind(0, topic=topic, index=index)
    await stores.change(object_keys.checkpoint_key(NAMESPACE, "never", 3, 1, 1, "x"), b"")
    await stores.retire("deleted")
    await stores.change(f"{NAMESPACE}/never/notes.txt", b"")
    await stores.change("elsewhere/t/0/segment-00000000000000000000.kfs", b"")
    report = await stores.check()
    assert problems(report) == []
    assert {(one.name, one.standing) for one in report.partitions if one.is_remarkable} == {
        ("deleting-0", Standing.TOPIC_DELETING),
        ("deleted-0", Standing.TOPIC_DELETED),
        ("never-0", Standing.NO_TOPIC),
        ("never-3", Standing.NO_TOPIC),
        ("t-1", Standing.NO_PARTITION),
    }
    assert [one.name for one in report.partitions] == sorted(one.name for one in report.partitions)
    assert reasons(report) == {
        OrphanReason.TOPIC_DELETING,
        OrphanReason.TOPIC_DELETED,
        OrphanReason.NO_TOPIC,
        OrphanReason.NO_PARTITION,
    }
    assert (report.foreign_objects, report.foreign_examples) == (1, (f"{NAMESPACE}/never/notes.txt",))


# --- what is asked for


async def test_one_topic_alone() -> None:
    stores = await healthy()
    await stores.create_topic("other")
    await stores.append(2, topic="other")
    await stores.leave_behind(2, topic="other")
    await _segment_gone(stores)
    report = await stores.check("other")
    assert [one.name for one in report.partitions] == ["other-0"]
    assert problems(report) == [] and reasons(report) == {OrphanReason.ABOVE_LOG_END}
    with pytest.raises(UnknownTopicError, match="'ther'"):
        await stores.check("other", "ther")


@pytest.mark.parametrize("marked", [None, CLUSTER_ID, "another-cluster"])
async def test_a_metadata_store_that_is_not_the_right_one(marked: str | None) -> None:
    """Comparing would call everything an orphan: nothing is compared."""
    stores = TwoStores()
    await stores.create_topic("t")
    await stores.append(2)
    if marked is not None:
        await stores.change(object_keys.cluster_marker_key(NAMESPACE), encode_marker(marked))
    report = await stores.check()
    assert not report.was_checked and report.partitions == ()
    assert [one.kind for one in report.findings] == [FindingKind.CLUSTER_UNKNOWN]


async def test_stores_of_two_clusters_are_not_compared() -> None:
    stores = await healthy()
    await stores.change(object_keys.cluster_marker_key(NAMESPACE), encode_marker("another"))
    report = await stores.check()
    assert not report.was_checked
    assert [one.kind for one in report.findings] == [FindingKind.CLUSTER_DIFFERS]
    await stores.change(object_keys.cluster_marker_key(NAMESPACE), b"?")
    with pytest.raises(CorruptDataError):
        await stores.check()


async def test_namespace_without_marker_is_checked_not_repaired() -> None:
    stores = await healthy()
    await _index_gone(stores)
    await stores.objects.delete([object_keys.cluster_marker_key(NAMESPACE)])
    report = await stores.check()
    assert kinds(report) == {FindingKind.MARKER_MISSING, FindingKind.INDEX_MISSING}
    assert await stores.repair() == []
