"""Repairs, and what is left alone: afterwards a check is clean, and nothing that a record may refer to is gone."""

from dataclasses import replace
from typing import Any

import pytest

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import decode_checkpoint
from kafscale.formats.features import LARGE_SEGMENTS_LEVEL, SEGMENT_FORMAT, encode_level
from kafscale.formats.index import LARGE_VERSION, LEGACY_VERSION, parse_index
from kafscale.formats.partition_record import ProducerRecord
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.formats.topic_record import decode_topic_record, encode_broker_record
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, TopicState
from kafscale.tools.fsck.findings import FindingKind, OrphanReason
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.repair_plan import RepairAction, plan_repairs
from tests.tools.fsck.two_stores import NAMESPACE, NOW_MS, TwoStores, kinds, orphans, problems


def flushed(base: int, topic: str = "t", index: int = 0) -> str:
    return object_keys.segment_key(NAMESPACE, topic, index, base)


def flushed_index(base: int) -> str:
    return object_keys.index_key(NAMESPACE, "t", 0, base)


async def with_segments(*record_counts: int) -> TwoStores:
    stores = await TwoStores.new()
    await stores.create_topic("t")
    await stores.append(*record_counts)
    return stores


async def register_broker(stores: TwoStores) -> None:
    record = BrokerRecord(broker_id=4, host="host", port=9092)
    await stores.put(keys.broker(4), encode_broker_record(record))


async def referenced(stores: TwoStores, topic: str = "t") -> set[str]:
    found = set()
    for reference in await stores.references(topic):
        key = object_keys.key_of_reference(NAMESPACE, topic, 0, reference)
        found |= {key, object_keys.index_key_of(key)}
    return found


async def test_nothing_is_planned_where_all_is_well() -> None:
    stores = await with_segments(2, 3)
    before = await stores.all_keys()
    assert await stores.repair(verify=True, drop_missing=True) == []
    assert await stores.all_keys() == before


# --- indexes


@pytest.mark.parametrize(
    ("level", "version"), [(None, LEGACY_VERSION), (LARGE_SEGMENTS_LEVEL, LARGE_VERSION)]
)
async def test_indexes_are_rebuilt_in_the_version_of_the_cluster(level: int | None, version: int) -> None:
    stores = await with_segments(5, 5, 5, 5)
    if level is not None:
        await stores.put(keys.feature(SEGMENT_FORMAT), encode_level(level))
    await stores.objects.delete([flushed_index(0)])
    await stores.flip(flushed_index(5), 0)
    await stores.flip(flushed_index(10), 16 + 12 + 11)
    await register_broker(stores)
    [outcome] = await stores.repair(verify=True)
    assert (outcome.repair.action, outcome.detail) == (RepairAction.REWRITE_INDEX, "3 indexes written")
    assert kinds(await stores.check(verify=True)) == set()
    for base in (0, 5, 10):
        index = parse_index("i", await stores.objects.get(flushed_index(base)), base)
        assert index.version == version
    untouched = parse_index("i", await stores.objects.get(flushed_index(15)), 15)
    assert untouched.version == LEGACY_VERSION


async def test_index_of_damaged_segment_or_unknown_version_stays() -> None:
    stores = await with_segments(5, 5, 5)
    await stores.objects.delete([flushed_index(0), flushed_index(5)])
    await stores.flip(flushed(0), 100)
    await stores.flip(flushed_index(10), 5)
    data = bytearray(await stores.objects.get(flushed_index(10)))
    data[5] = 9
    await stores.change(flushed_index(10), bytes(data))
    [outcome] = await stores.repair()
    assert "1 of 2 indexes written" in outcome.problem and flushed_index(0) in outcome.problem
    assert await stores.objects.get(flushed_index(10)) == bytes(data)
    # Of the damaged segment nothing more is said than that it is.
    assert problems(await stores.check(verify=True)) == [
        (FindingKind.INDEX_MISSING, flushed_index(0)),
        (FindingKind.SEGMENT_DAMAGED, flushed(0)),
        (FindingKind.INDEX_VERSION, flushed_index(10)),
    ]


# --- orphans


async def garbage(stores: TwoStores) -> dict[str, OrphanReason]:
    """Of every kind that a leader would remove, all old. The log ends at 24."""
    await stores.merge(0, 2)
    await stores.checkpoint()
    await stores.leave_behind(22, 1)
    await stores.new_leader()
    await stores.append(1, passed_over=1)
    await stores.checkpoint()
    record = await stores.record()
    await stores.save("t", 0, replace(record, log_start_offset=1))
    await stores.change(flushed_index(17), b"")
    unpublished = object_keys.merged_segment_key(NAMESPACE, "t", 0, 7, 22)
    await stores.change(unpublished, b"")
    return orphans(await stores.check())


async def test_only_garbage_is_deleted_beside_running_brokers() -> None:
    stores = await with_segments(5, 5, 5, 7)
    found = await garbage(stores)
    above = await stores.leave_behind(30)
    unnamed = object_keys.checkpoint_key(NAMESPACE, "t", 0, 99, 1, "x")
    await stores.change(unnamed, b"")
    await register_broker(stores)
    before = set(await stores.all_keys())
    assert {reason.name for reason in found.values()} >= {"SUPERSEDED", "LEFTOVER", "OLD_CHECKPOINT"}
    outcomes = await stores.repair()
    after = set(await stores.all_keys())
    assert before - after == found.keys()
    assert await referenced(stores) <= after
    assert {unnamed, *above} <= after
    [online] = [one for one in outcomes if not one.repair.needs_no_brokers]
    assert online.detail == f"{len(found)} objects deleted"
    [offline] = [one for one in outcomes if one.repair.needs_no_brokers]
    assert "brokers are registered (ids 4)" in offline.problem


async def test_young_garbage_is_left() -> None:
    stores = await with_segments(5, 5, 5, 7)
    stores.now_ms = NOW_MS - 1000
    await garbage(stores)
    before = await stores.all_keys()
    await stores.repair()
    left = set(await stores.all_keys())
    sources = {name(base) for base in (0, 5, 10) for name in (flushed, flushed_index)}
    assert set(before) - left == sources  # superseded just now, and written long ago


async def test_a_merge_that_may_still_be_published_is_left() -> None:
    stores = await with_segments(5, 5, 5, 7)
    merged = await stores.merge(0, 1, publish=False)
    [outcome] = await stores.repair()
    assert "2 may still be referred to one day" in outcome.problem
    assert merged in await stores.all_keys()


async def test_objects_that_may_be_needed_are_left_without_brokers() -> None:
    """An upload above the log's end, and what lies in a hole that nothing explains."""
    stores = await with_segments(5, 5, 5)
    record = await stores.record()
    await stores.save("t", 0, replace(record, segments=(record.segments[0], record.segments[2])))
    await stores.leave_behind(15, 3)
    before = await stores.all_keys()
    assert await stores.repair(drop_missing=True) == []
    assert await stores.all_keys() == before


async def test_without_brokers_more_is_deleted() -> None:
    stores = await with_segments(5)
    unnamed = object_keys.checkpoint_key(NAMESPACE, "t", 0, 5, 1, "x")
    await stores.change(unnamed, b"")
    beyond = await stores.leave_behind(0, index=3)
    await stores.repair()
    assert not {unnamed, *beyond} & set(await stores.all_keys())
    assert orphans(await stores.check()) == {}


async def test_a_topic_that_came_back_meanwhile_keeps_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that was listed as an orphan is a published segment of the new topic by the time that counts."""
    stores = await with_segments(5, 5)
    leftover, _ = await stores.leave_behind(6)
    original = Reading.list_checkpoints

    async def list_checkpoints(reading: Reading, topic: str, partition: int) -> Any:
        if repairing:
            await stores.objects.delete(await stores.all_keys(object_keys.topic_prefix(NAMESPACE, "t")))
            await stores.create_topic("t")
            await stores.append(6, 3)
        return await original(reading, topic, partition)

    repairing = False
    monkeypatch.setattr(Reading, "list_checkpoints", list_checkpoints)
    repairs = plan_repairs(await stores.check(), NOW_MS, drops_missing=False)
    repairing = True
    [outcome] = await stores.carry_out(repairs)
    assert "0 objects deleted" in outcome.problem
    assert leftover in await referenced(stores)
    assert await referenced(stores) <= set(await stores.all_keys())


# --- what is left of deleted topics


async def rest_of_a_topic() -> TwoStores:
    stores = await with_segments(5)
    await stores.create_topic("gone")
    for base in (0, 7):
        await stores.leave_behind(base, topic="gone", index=2)
    await stores.change(object_keys.checkpoint_key(NAMESPACE, "gone", 0, 1, 1, "x"), b"")
    await stores.retire("gone")
    return stores


def of_gone(found: list[str]) -> list[str]:
    return [key for key in found if "/gone/" in key]


async def test_rest_of_a_deleted_topic_goes_and_its_name_is_free() -> None:
    stores = await rest_of_a_topic()
    [outcome] = await stores.repair()
    assert (outcome.repair.action, outcome.detail) == (RepairAction.DELETE_TOPIC_REST, "5 objects deleted")
    assert of_gone(await stores.all_keys()) == []
    assert await stores.metadata.get(keys.topic("gone")) is None
    assert await stores.metadata.get(keys.retired("gone")) is not None
    assert await referenced(stores) <= set(await stores.all_keys())


async def test_brokers_that_run_delete_it() -> None:
    stores = await rest_of_a_topic()
    await register_broker(stores)
    [outcome] = await stores.repair()
    assert "the brokers remove what is left" in outcome.detail
    held = await stores.metadata.get(keys.topic("gone"))
    assert held is not None
    assert decode_topic_record(held.key, held.value).state is TopicState.DELETING


async def test_name_stays_taken_while_a_deletion_may_be_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = await rest_of_a_topic()

    async def delete(keys: Any) -> None:
        raise StoreIndeterminateError("no answer")

    monkeypatch.setattr(stores.objects, "delete", delete)
    [outcome] = await stores.repair()
    assert "the first broker that starts goes on" in outcome.problem
    held = await stores.metadata.get(keys.topic("gone"))
    assert held is not None


@pytest.mark.parametrize("what", ["young", "foreign", "never here"])
async def test_topics_whose_objects_are_left(what: str) -> None:
    stores = await rest_of_a_topic()
    if what == "young":
        stores.now_ms = NOW_MS
        await stores.leave_behind(9, topic="gone")
    elif what == "foreign":
        await stores.change(f"{NAMESPACE}/gone/backup.tar", b"")
    else:
        await stores.remove(keys.retired("gone"))
    before = await stores.all_keys()
    outcomes = await stores.repair()
    assert await stores.all_keys() == before
    assert await stores.metadata.get(keys.topic("gone")) is None
    if what == "foreign":
        assert "gone/backup.tar was not put there by a broker" in outcomes[0].problem
    else:
        assert outcomes == []


# --- segments that are gone


async def lose(stores: TwoStores, *bases: int) -> None:
    await stores.objects.delete([name(base) for base in bases for name in (flushed, flushed_index)])


@pytest.mark.parametrize("has_checkpoint", [False, True])
async def test_missing_segments_are_dropped_where_that_is_asked_for(has_checkpoint: bool) -> None:
    stores = await with_segments(5, 5, 5, 5)
    producer = ProducerRecord(
        producer_id=1, producer_epoch=0, last_timestamp_ms=1, batches=(ProducerBatch(0, 4, 15),)
    )
    await stores.save("t", 0, replace(await stores.record(), producers=(producer,)))
    if has_checkpoint:
        await stores.checkpoint()
        await stores.save("t", 0, replace(await stores.record(), producers=(producer,)))
        await stores.append(5)
    end_offset = (await stores.record()).log_end_offset
    await lose(stores, 5, 10)
    assert await stores.repair() == []
    [outcome] = await stores.repair(drop_missing=True)
    assert (outcome.repair.lost, outcome.detail) == (((5, 14),), "2 segments dropped")
    report = await stores.check(verify=True)
    assert {kind for kind, _ in problems(report)} == {FindingKind.HOLE_UNEXPLAINED}
    [hole] = [one for one in report.all_findings if one.kind is FindingKind.HOLE_UNEXPLAINED]
    assert (hole.first_offset, hole.last_offset) == (5, 14)
    record = await stores.record()
    assert (record.log_start_offset, record.log_end_offset) == (0, end_offset)
    whole = decode_checkpoint("c", await stores.objects.get(record.checkpoint_key))
    assert whole.producers == (producer,)


@pytest.mark.parametrize(("lost", "start"), [((0, 5), 10), ((0, 5, 10), 15), ((0, 10), 5)])
async def test_the_log_starts_after_what_was_lost_at_its_start(lost: tuple[int, ...], start: int) -> None:
    stores = await with_segments(5, 5, 5)
    await lose(stores, *lost)
    await stores.repair(drop_missing=True)
    record = await stores.record()
    assert (record.log_start_offset, record.log_end_offset) == (start, 15)
    # However empty the log is, a rebuild from the bucket knows where it ended.
    assert decode_checkpoint("c", await stores.objects.get(record.checkpoint_key)).end_offset == 15
    left = kinds(await stores.check())
    assert left == ({FindingKind.HOLE_UNEXPLAINED} if lost == (0, 10) else set())


async def test_records_are_not_changed_while_brokers_are_registered() -> None:
    stores = await with_segments(5, 5)
    await lose(stores, 0)
    await register_broker(stores)
    before = await stores.record()
    [outcome] = await stores.repair(drop_missing=True)
    assert "stop them first" in outcome.problem
    assert await stores.record() == before


async def test_a_record_that_changed_meanwhile_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = await with_segments(5, 5)
    await lose(stores, 0)
    original = stores.objects.put_if_absent

    async def put_if_absent(key: str, parts: Any) -> None:
        if key.endswith(".ckpt"):
            await stores.new_leader()
        await original(key, parts)

    monkeypatch.setattr(stores.objects, "put_if_absent", put_if_absent)
    [outcome] = await stores.repair(drop_missing=True)
    assert "changed meanwhile" in outcome.problem
    assert len(await stores.references()) == 2


async def test_what_has_come_back_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = await with_segments(5, 5)
    data = await stores.objects.get(flushed(0))
    await lose(stores, 0)
    original = stores.objects.size_bytes
    asked = 0

    async def size_bytes(key: str) -> int:
        nonlocal asked
        asked += key == flushed(0)
        if asked == 3:
            await stores.change(key, data)
        return await original(key)

    monkeypatch.setattr(stores.objects, "size_bytes", size_bytes)
    [outcome] = await stores.repair(drop_missing=True)
    assert outcome.detail == "nothing is missing any more"
    assert len(await stores.references()) == 2


async def test_repair_that_fails_stops_no_other_repair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = await with_segments(5, 5)
    await stores.objects.delete([flushed_index(0)])
    await stores.leave_behind(6)

    async def put_if_absent(key: str, parts: Any) -> None:
        raise StoreUnavailableError("the disk is full")

    monkeypatch.setattr(stores.objects, "put_if_absent", put_if_absent)
    monkeypatch.setattr("kafscale.tools.recovery.rebuild.FIRST_RETRY_SEC", 0.0)
    written, deleted = await stores.repair()
    assert (written.problem, deleted.problem) == ("the disk is full", "")
    assert deleted.detail == "2 objects deleted"
