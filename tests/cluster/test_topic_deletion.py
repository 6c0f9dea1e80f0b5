"""Deletion: what is gone, what stays, when the name is free, and who carries on after a crash."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest

from kafscale.cluster.new_topic import NewTopic
from kafscale.cluster.topic_deletion import OBJECTS_PER_DELETE
from kafscale.errors import StoreIndeterminateError
from kafscale.formats.journal_keys import deleted_key
from kafscale.formats.object_keys import (
    checkpoint_key,
    index_key,
    merged_segment_key,
    segment_key,
    topic_prefix,
)
from kafscale.formats.topic_record import decode_retired_epoch, decode_topic_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER, TopicRecord, TopicState
from kafscale.metadata.store import Compare, Put
from kafscale.objects.object_store import ObjectInfo
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings
from tests.support.control_plane import (
    NAMESPACE,
    TIMEOUT_MS,
    TOPIC_KEYS,
    ControlPlane,
    control_plane,
    memory_stores,
    put_segment,
)
from tests.support.faults import Fault, Fuse, FusedMetadataStore, FusedObjectStore, Interruption
from tests.support.waiting import wait_until_async


async def make_topic(plane: ControlPlane, name: str, partitions: int = 3) -> TopicRecord:
    record = await plane.topics.create(NewTopic(name=name, partition_count=partitions), timeout_ms=TIMEOUT_MS)
    for key in (
        segment_key(NAMESPACE, name, 0, 0),
        index_key(NAMESPACE, name, 0, 0),
        merged_segment_key(NAMESPACE, name, 2, 0, 99),
        checkpoint_key(NAMESPACE, name, 1, 5, 0, "abc"),
    ):
        await put_segment(plane, key)
    return record


async def test_markers_of_the_topic_go_with_it() -> None:
    """Its logs will never get them; those of another topic stay."""
    async with control_plane(*memory_stores(max_operations=3)) as plane:
        await make_topic(plane, "t")
        await make_topic(plane, "tt")
        other = keys.partition_marker("tt", 0, 7)
        wanted = [
            other,
            *(keys.partition_marker("t", index, 7) for index in (0, 1, 2)),
            keys.partition_marker("t", 0, 8),
        ]
        await plane.store.transact([], [Put(wanted[0], b""), Put(wanted[1], b""), Put(wanted[2], b"")])
        await plane.store.transact([], [Put(wanted[3], b""), Put(wanted[4], b"")])
        await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        assert await plane.keys_under(keys.PARTITION_MARKERS) == [other]


async def retired_epoch(plane: ControlPlane, name: str) -> int:
    held = await plane.store.get(keys.retired(name))
    assert held is not None
    return decode_retired_epoch(held.key, held.value)


async def test_everything_of_the_topic_is_gone_and_nothing_else() -> None:
    async with control_plane() as plane:
        await make_topic(plane, "ab")
        await make_topic(plane, "a")
        others = [await plane.keys_under(prefix) for prefix in TOPIC_KEYS]
        deleted = plane.view.topic("a")
        assert deleted is not None
        await plane.topics.delete("a", timeout_ms=TIMEOUT_MS)
        assert plane.view.topic("a", include_deleting=True) is None
        # Entries of journals may have slices of it, which a rebuild leaves out.
        await plane.objects.size_bytes(deleted_key(NAMESPACE, deleted.topic_id))
        assert plane.logs.closed == ["a"]
        for prefix, before in zip(TOPIC_KEYS, others, strict=True):
            own = (f"{prefix}a", f"{prefix}a/")
            left = [key for key in before if key != own[0] and not key.startswith(own[1])]
            assert await plane.keys_under(prefix) == left
            assert len(left) > 0
        assert all("/ab/" in key for key in await plane.topic_objects())
        assert len(await plane.topic_objects()) == 4


async def test_a_topic_of_more_objects_than_one_call_deletes() -> None:
    async with control_plane() as plane:
        await make_topic(plane, "t")
        for offset in range(1, 2 * OBJECTS_PER_DELETE + 1):
            await put_segment(plane, segment_key(NAMESPACE, "t", 0, offset))
        await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        assert await plane.topic_objects() == []


async def test_the_name_comes_back_with_a_new_id_and_higher_epochs() -> None:
    async with control_plane() as plane:
        first = await make_topic(plane, "t")
        await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        assert await retired_epoch(plane, "t") == 0
        second = await make_topic(plane, "t", partitions=1)
        assert second.topic_id != first.topic_id
        leader = plane.view.leader("t", 0)
        assert leader is not None
        assert leader.leader_epoch == 2
        await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        assert await retired_epoch(plane, "t") == 2


async def test_topic_being_deleted_is_unknown_and_its_name_taken() -> None:
    async with control_plane() as plane:
        await make_topic(plane, "t")
        closing, proceed = asyncio.Event(), asyncio.Event()

        async def slow_close(name: str) -> None:
            closing.set()
            await proceed.wait()

        plane.logs.close_topic = slow_close  # type: ignore[method-assign]
        deletion = asyncio.create_task(plane.topics.delete("t", timeout_ms=TIMEOUT_MS))
        await closing.wait()
        assert plane.view.topic("t") is None
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            await plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS)
        assert len(await plane.topic_objects()) == 4
        proceed.set()
        await deletion
        await plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS)


async def test_a_deletion_goes_on_after_its_requests_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.cluster.topics.MIN_TIMEOUT_MS", 50)
    async with control_plane() as plane:
        await make_topic(plane, "t")
        proceed = asyncio.Event()

        async def slow_close(name: str) -> None:
            await proceed.wait()

        plane.logs.close_topic = slow_close  # type: ignore[method-assign]
        with pytest.raises(KafkaError) as timeout:
            await plane.topics.delete("t", timeout_ms=0)
        assert timeout.value.code is ErrorCode.REQUEST_TIMED_OUT
        proceed.set()
        await plane.view.wait_until(lambda: plane.view.topic("t", include_deleting=True) is None)
        assert await plane.topic_objects() == []


async def test_another_topic_of_the_name_is_not_deleted() -> None:
    async with control_plane() as plane:
        await make_topic(plane, "t")
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_ID"):
            await plane.topics.delete("t", topic_id=uuid.UUID(int=5), timeout_ms=TIMEOUT_MS)
        assert plane.view.topic("t") is not None


async def mark(plane: ControlPlane, name: str, broker_id: int) -> None:
    """A topic as a broker leaves it that stopped right after it began to delete."""
    key = keys.topic(name)
    held = await plane.store.get(key)
    assert held is not None
    record = decode_topic_record(key, held.value)
    marked = TopicRecord(
        name=name,
        topic_id=record.topic_id,
        partition_count=record.partition_count,
        state=TopicState.DELETING,
        deleting_broker_id=broker_id,
    )
    await plane.store.transact([Compare(key, held.mod_revision)], [Put(key, encode_topic_record(marked))])


@pytest.mark.parametrize("broker_id", [0, 7])
async def test_what_a_stop_cut_short_is_taken_up_at_the_start(broker_id: int) -> None:
    """Broker 0 is the one that starts; 7 is one that no longer lives."""
    store, objects = memory_stores()
    async with control_plane(store, objects) as plane:
        await make_topic(plane, "t")
        await plane.deletion.close()
        await mark(plane, "t", broker_id)
    async with control_plane(store, objects) as plane:
        await plane.view.wait_until(lambda: plane.view.topic("t", include_deleting=True) is None)
        assert await plane.topic_objects() == []
        assert await plane.keys_under(keys.PARTITIONS) == []


@pytest.mark.parametrize("broker_id", [0, 7])
async def test_name_of_a_taken_over_deletion_is_not_free_at_once(broker_id: int) -> None:
    """A request of the broker before, or of this one before its restart, may be in flight.

    It would delete what a new topic of the name has.
    """
    store, objects = memory_stores()
    async with control_plane(store, objects) as plane:
        await make_topic(plane, "t")
        await plane.deletion.close()
        await mark(plane, "t", broker_id)
    async with control_plane(store, objects, grace_sec=3600) as plane:

        async def nothing_is_left() -> bool:
            return not await plane.topic_objects()

        await wait_until_async(nothing_is_left, "the objects are gone")
        assert plane.view.topic("t", include_deleting=True) is not None
        assert plane.view.topic("t") is None


async def test_a_deletion_that_was_not_begun_is_in_no_doubt() -> None:
    """The operator marks topics while no broker runs."""
    store, objects = memory_stores()
    async with control_plane(store, objects) as plane:
        await make_topic(plane, "t")
        await plane.deletion.close()
        await mark(plane, "t", NO_BROKER)
    async with control_plane(store, objects, grace_sec=3600) as plane:
        await plane.view.wait_until(lambda: plane.view.topic("t", include_deleting=True) is None)
        assert await plane.topic_objects() == []


async def test_name_is_not_free_while_a_delete_may_be_in_flight() -> None:
    store, objects = memory_stores()
    answers = [StoreIndeterminateError("no answer")]

    class Silent(FusedObjectStore):
        async def delete(self, keys: Sequence[str]) -> None:
            if answers:
                raise answers.pop()
            await super().delete(keys)

    async with control_plane(store, Silent(objects, Fuse(0, Fault.UNAVAILABLE)), grace_sec=3600) as plane:
        await make_topic(plane, "t")
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await plane.topics.delete("t", timeout_ms=1)
        assert not answers
        assert await plane.topic_objects() == []
        assert plane.view.topic("t", include_deleting=True) is not None


async def test_a_live_brokers_deletion_is_left_to_it_until_it_ends() -> None:
    store, objects = memory_stores()
    async with control_plane(store, objects) as here:
        await make_topic(here, "t")
        async with control_plane(store, objects, settings=Settings(broker_id=7)) as other:
            await here.view.wait_until(lambda: here.view.broker(7) is not None)
            await other.deletion.close()
            await mark(here, "t", 7)
            await here.view.wait_until(lambda: here.view.topic("t") is None)
            assert here.logs.closed == []
            assert len(await here.topic_objects()) == 4
        await here.view.wait_until(lambda: here.view.topic("t", include_deleting=True) is None)
        assert here.logs.closed == ["t"]
        assert await here.topic_objects() == []


async def test_a_deletion_that_another_broker_took_over_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could delete the objects of the next topic of the name."""
    monkeypatch.setattr("kafscale.cluster.topics.MIN_TIMEOUT_MS", 100)
    async with control_plane() as plane:
        await make_topic(plane, "t")
        closing, proceed = asyncio.Event(), asyncio.Event()

        async def slow_close(name: str) -> None:
            closing.set()
            await proceed.wait()

        plane.logs.close_topic = slow_close  # type: ignore[method-assign]
        deletion = asyncio.create_task(plane.topics.delete("t", timeout_ms=100))
        await closing.wait()
        async with control_plane(plane.store, plane.objects, settings=Settings(broker_id=7)) as other:
            await other.deletion.close()
            await plane.view.wait_until(lambda: plane.view.broker(7) is not None)
            await mark(plane, "t", 7)
            proceed.set()
            with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                await deletion
            assert len(await plane.topic_objects()) == 4
            assert await plane.keys_under(keys.PARTITIONS) != []


async def test_objects_of_the_next_topic_of_the_name_are_not_deleted() -> None:
    """The removal was taken over and finished while it was held up before it deleted."""
    async with control_plane() as plane:
        await make_topic(plane, "t")
        listing, proceed = asyncio.Event(), asyncio.Event()

        class HeldUp(FusedObjectStore):
            async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
                async for item in super().list(prefix):
                    yield item
                if prefix == topic_prefix(NAMESPACE, "t"):
                    listing.set()
                    await proceed.wait()

        plane.deletion._objects = HeldUp(plane.objects, Fuse(0, Fault.UNAVAILABLE))
        await mark(plane, "t", 0)
        await listing.wait()
        async with control_plane(plane.store, plane.objects, settings=Settings(broker_id=7)) as other:
            await plane.view.wait_until(lambda: plane.view.broker(7) is not None)
            await mark(plane, "t", 7)
            await other.view.wait_until(lambda: other.view.topic("t", include_deleting=True) is None)
            await make_topic(other, "t")
            before = await plane.topic_objects()
            proceed.set()
            await plane.deletion._tasks.wait()
            assert await plane.topic_objects() == before
            assert len(before) == 4


async def take_over(plane: ControlPlane, index: int) -> None:
    """The partition gets its next leader."""
    await plane.logs._leadership.release_stale([("t", index)])
    assert len(await plane.logs._leadership.claim([("t", index)])) == 1


async def test_retired_epoch_is_the_highest_and_never_falls() -> None:
    async with control_plane(*memory_stores(max_operations=3)) as plane:
        await make_topic(plane, "t")
        for index, times in ((0, 2), (1, 7), (2, 4)):
            for _ in range(times):
                await take_over(plane, index)
        await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        assert await retired_epoch(plane, "t") == 7
        await make_topic(plane, "t", partitions=3)
        await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        assert await retired_epoch(plane, "t") == 9


async def test_partition_claimed_meanwhile_keeps_its_epoch() -> None:
    """A broker that does not know of the deletion yet gains the partition between read and removal."""
    async with control_plane() as plane:
        await make_topic(plane, "t", partitions=3)
        third_call_reads_the_retired_epoch = 3
        claim = Interruption(third_call_reads_the_retired_epoch, lambda: take_over(plane, 1))
        plane.deletion._store = FusedMetadataStore(plane.store, claim)
        await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        assert claim.blown.is_set()
        assert await retired_epoch(plane, "t") == 1
        assert await plane.keys_under(keys.LEADERS) == []
