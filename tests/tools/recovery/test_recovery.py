"""Reading a bucket: every partition found, every object judged, only so much at once, and nothing written."""

import asyncio
from collections.abc import Collection

import pytest

from kafscale.cluster.marker import claim_marker
from kafscale.errors import CorruptDataError, StoreRefusedError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint, encode_checkpoint
from kafscale.formats.partition_record import ProducerRecord
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.objects.object_store import ObjectStore
from kafscale.tools.recovery import rebuild
from kafscale.tools.recovery.bucket_plan import BucketPlan
from kafscale.tools.recovery.plan import PASSED_OVER_EPOCHS, PartitionPlan
from kafscale.tools.recovery.rebuild import plan_rebuild
from tests.formats.segments import SAMPLE_BUCKET, stored_segments
from tests.support.controlled_store import ControlledStore
from tests.tools.recovery.recovery_bucket import NAMESPACE, NOW_MS, Silence, batch, memory_bucket, put


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "FIRST_RETRY_SEC", 0.0)


async def plan(store: ObjectStore, *, topics: Collection[str] = (), concurrency: int = 4) -> BucketPlan:
    return await plan_rebuild(store, NAMESPACE, topics=topics, concurrency=concurrency, progress=Silence())


def partitions(found: BucketPlan) -> dict[tuple[str, int], PartitionPlan]:
    return {(topic.name, one.partition): one for topic in found.topics for one in topic.partitions}


async def put_checkpoint(
    store: ObjectStore, end_offset: int, epoch: int, token: str, *, producers: Collection[ProducerRecord] = ()
) -> str:
    key = object_keys.checkpoint_key(NAMESPACE, "orders", 0, end_offset, epoch, token)
    checkpoint = Checkpoint(end_offset=end_offset, producers=tuple(producers))
    await store.put_if_absent(key, [encode_checkpoint(checkpoint)])
    return key


async def test_topics_and_partitions_are_those_that_have_objects() -> None:
    store = memory_bucket()
    await put(store, batch(0, 3, 0), topic="b", partition=2)
    await put(store, batch(0, 2, 0), topic="b", partition=10)
    await put(store, batch(0, 1, 0), topic="a-1")
    await put(store, batch(5, 1, 0), topic="a")
    await store.put_if_absent(object_keys.index_key(NAMESPACE, "c", 1, 0), [b"an index alone"])
    await store.put_if_absent("elsewhere/b/0/segment-00000000000000000000.kfs", [b"another namespace"])
    found = await plan(store)
    assert [(topic.name, len(topic.partitions)) for topic in found.topics] == [
        ("a", 1),
        ("a-1", 1),
        ("b", 11),
        ("c", 2),
    ]
    ends = {name: one.record.log_end_offset for name, one in partitions(found).items()}
    assert {name: end for name, end in ends.items() if end} == {
        ("a", 0): 6,
        ("a-1", 0): 1,
        ("b", 2): 3,
        ("b", 10): 2,
    }
    assert not found.is_narrowed


async def test_only_the_topics_that_are_named_are_read() -> None:
    store = ControlledStore()
    for topic in ("a", "b", "b-2", "c"):
        await put(store, batch(0, 1, 0), topic=topic)
    found = await plan(store, topics=["b", "c", "b"])
    assert [topic.name for topic in found.topics] == ["b", "c"]
    assert found.is_narrowed
    assert store.count("get_range", "*") == 2


async def test_objects_that_are_neither_are_counted_and_ignored() -> None:
    store = memory_bucket()
    await put(store, batch(0, 1, 0))
    for key in ("orders/0/segment-5.kfs", "orders/0/note.txt", "orders/00/segment-" + "0" * 20 + ".kfs"):
        await store.put_if_absent(f"{NAMESPACE}/{key}", [b"x"])
    found = await plan(store)
    assert found.foreign_objects == 3
    assert len(partitions(found)) == 1


async def test_an_empty_bucket_has_an_empty_plan() -> None:
    found = await plan(memory_bucket())
    assert (found.topics, found.cluster_id, found.highest_producer_id) == ((), None, -1)


async def test_the_cluster_is_the_one_of_the_marker() -> None:
    store = memory_bucket()
    await claim_marker(store, NAMESPACE, "the-cluster")
    assert (await plan(store)).cluster_id == "the-cluster"
    await store.put(object_keys.cluster_marker_key(NAMESPACE), [b"damaged"])
    with pytest.raises(CorruptDataError, match="cluster"):
        await plan(store)


async def test_a_damaged_segment_is_reported_with_its_problem() -> None:
    store = ControlledStore()
    await put(store, batch(0, 3, 0))
    key = await put(store, batch(3, 4, 0))
    cut = await put(store, batch(7, 2, 0))
    store.lie(key, lambda data: data[:40] + b"!" + data[41:])
    await store.put(cut, [(await store.get(cut))[:50]])
    found = partitions(await plan(store))["orders", 0]
    assert {one.key: one.base_offset for one in found.damaged} == {key: 3, cut: 7}
    assert [one.last_offset for one in found.damaged] == [6, 8]
    assert all(one.problem for one in found.damaged)
    assert found.record.log_end_offset == 9


async def test_a_damaged_object_that_says_nothing_counts_as_one_offset() -> None:
    store = memory_bucket()
    key = object_keys.segment_key(NAMESPACE, "orders", 0, 41)
    await store.put_if_absent(key, [b""])
    found = partitions(await plan(store))["orders", 0]
    [damaged] = found.damaged
    assert (damaged.base_offset, damaged.last_offset, damaged.is_merged) == (41, 41, False)
    assert found.record.log_end_offset == 42


async def test_what_only_the_transfer_damaged_is_read_again() -> None:
    store = ControlledStore()
    key = await put(store, batch(0, 3, 0))
    store.lie(key, lambda data: data[:40] + b"!" + data[41:], times=1)
    found = partitions(await plan(store))["orders", 0]
    assert (found.segment_count, found.damaged) == (1, ())


async def test_a_segment_that_goes_while_it_is_read_is_not_there() -> None:
    store = ControlledStore()
    await put(store, batch(0, 3, 0))
    key = await put(store, batch(3, 1, 0))
    with store.hold("get_range", key) as hold:
        planning = asyncio.create_task(plan(store))
        await hold.reached()
        await store.delete([key])
        hold.release()
        found = partitions(await planning)["orders", 0]
    assert (found.segment_count, found.damaged) == (1, ())


async def test_a_segment_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "PIECE_BYTES", 64)
    store = ControlledStore()
    key = await put(store, *(batch(n, 1, 0) for n in range(20)))
    assert partitions(await plan(store))["orders", 0].record_count == 20
    assert store.count("get_range", key) > 20


async def test_no_more_is_read_at_once_than_is_allowed() -> None:
    store = ControlledStore()
    for topic in ("a", "b", "c"):
        for base in range(5):
            await put(store, batch(base, 1, 0), topic=topic)
    with store.hold("get_range") as hold:
        planning = asyncio.create_task(plan(store, concurrency=4))
        await hold.reached()
        for _ in range(200):
            await asyncio.sleep(0)
        assert hold.waiting == 4
        hold.release()
        assert len(partitions(await planning)) == 3


async def test_a_store_that_is_away_for_a_moment_is_asked_again() -> None:
    store = ControlledStore()
    key = await put(store, batch(0, 3, 0))
    store.fail("get_range", key, StoreUnavailableError("away"), StoreUnavailableError("away"))
    assert partitions(await plan(store))["orders", 0].segment_count == 1


async def test_a_store_that_stays_away_or_refuses_ends_the_plan() -> None:
    store = ControlledStore()
    key = await put(store, batch(0, 3, 0))
    store.fail("get_range", key, *[StoreUnavailableError("away")] * rebuild.ATTEMPTS)
    with pytest.raises(StoreUnavailableError):
        await plan(store)
    calls = store.count("get_range")
    store.fail("get_range", key, StoreRefusedError("no such credentials"))
    with pytest.raises(StoreRefusedError):
        await plan(store)
    assert store.count("get_range") == calls + 1


async def test_the_newest_checkpoint_that_can_be_read_is_used() -> None:
    store = memory_bucket()
    known = ProducerRecord(
        producer_id=6, producer_epoch=0, last_timestamp_ms=NOW_MS, batches=(ProducerBatch(0, 1, 3),)
    )
    await put_checkpoint(store, 900, 2, "older")
    await put_checkpoint(store, 30, 5, "good", producers=[known])
    broken = await put_checkpoint(store, 40, 5, "broken")
    await store.put(broken, [b"nonsense"])
    found = partitions(await plan(store))["orders", 0]
    assert found.record.log_end_offset == 30
    assert found.record.producers == (known,)
    assert found.record.leader_epoch == 5 + PASSED_OVER_EPOCHS
    assert broken in found.problems[0]


async def test_a_checkpoint_under_a_wrong_key_is_not_used() -> None:
    store = memory_bucket()
    right = await put_checkpoint(store, 30, 5, "right")
    wrong = object_keys.checkpoint_key(NAMESPACE, "orders", 0, 70, 5, "wrong")
    await store.put_if_absent(wrong, [await store.get(right)])
    found = partitions(await plan(store))["orders", 0]
    assert found.record.log_end_offset == 30
    assert wrong in found.problems[0]


async def test_topic_of_too_many_partitions_is_a_problem() -> None:
    store = memory_bucket()
    await put(store, batch(0, 1, 0), partition=2_000_000_000)
    [topic] = (await plan(store)).topics
    assert len(topic.partitions) == 1
    assert "2000000001 partitions" in topic.problem


async def test_the_bucket_of_another_writer_is_adopted_whole() -> None:
    store = memory_bucket()
    for key, segment, index in stored_segments(SAMPLE_BUCKET):
        await store.put_if_absent(key, [segment])
        await store.put_if_absent(object_keys.index_key_of(key), [index])
    found = await plan(store)
    assert {
        topic.name: (one.record_count, one.record.log_start_offset, one.record.log_end_offset)
        for topic in found.topics
        for one in topic.partitions
    } == {"java-snappy": (600, 0, 600), "java-zstd": (600, 0, 600), "orders": (70, 0, 70)}
    for one in partitions(found).values():
        assert not (one.dropped or one.damaged or one.holes or one.problems)
