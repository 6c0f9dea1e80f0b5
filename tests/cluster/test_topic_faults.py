"""Creation and deletion with a fault at every single call to a store: crashes and unknown outcomes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafscale.cluster.new_topic import NewTopic
from kafscale.formats.object_keys import checkpoint_key, index_key, segment_key
from kafscale.formats.partition_record import decode_partition_record
from kafscale.formats.topic_record import decode_retired_epoch
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.error_codes import KafkaError
from tests.support.control_plane import (
    NAMESPACE,
    TIMEOUT_MS,
    ControlPlane,
    control_plane,
    memory_stores,
    put_segment,
)
from tests.support.faults import CRASHES, ERRORS, Fault, Fuse, FusedMetadataStore, FusedObjectStore

PARTITIONS = 5
SMALL_TRANSACTIONS = 5
"""Operations per transaction: a topic of five partitions takes several."""
MOST_CALLS = 60


async def check_whole(plane: ControlPlane, epoch: int | None = None) -> None:
    """A topic that is there has all its partitions, led under `epoch` if that is given."""
    topic = plane.view.topic("t")
    assert topic is not None
    assert topic.partition_count == PARTITIONS
    await plane.view.wait_until(lambda: len(plane.view.leaders("t")) == PARTITIONS)
    items = (await plane.store.range(keys.partitions("t"))).items
    assert [item.key for item in items] == [keys.partition("t", index) for index in range(PARTITIONS)]
    epochs = [decode_partition_record(item.key, item.value).leader_epoch for item in items]
    assert epochs == [plane.view.leaders("t")[index].leader_epoch for index in range(PARTITIONS)]
    assert epoch is None or set(epochs) == {epoch}


async def check_gone(plane: ControlPlane, epoch: int) -> None:
    """Nothing is left but the highest epoch."""
    for prefix in (keys.TOPICS, keys.PARTITIONS, keys.LEADERS):
        assert await plane.keys_under(prefix) == []
    assert await plane.topic_objects() == []
    held = await plane.store.get(keys.retired("t"))
    assert held is not None
    assert decode_retired_epoch(held.key, held.value) == epoch


async def put_objects(plane: ControlPlane) -> None:
    for key in (
        segment_key(NAMESPACE, "t", 0, 0),
        index_key(NAMESPACE, "t", 0, 0),
        checkpoint_key(NAMESPACE, "t", 1, 5, 0, "abc"),
    ):
        await put_segment(plane, key)


async def until_crash(fuse: Fuse, action: Awaitable[object]) -> bool:
    """Run the action until it ends or the fuse blows, then end the process; whether it blew."""
    task = asyncio.ensure_future(action)
    blown = asyncio.ensure_future(fuse.blown.wait())
    await asyncio.wait({task, blown}, return_when=asyncio.FIRST_COMPLETED)
    for one in (task, blown):
        one.cancel()
    await asyncio.gather(task, blown, return_exceptions=True)
    return fuse.blown.is_set()


async def create(plane: ControlPlane) -> None:
    await plane.topics.create(NewTopic(name="t", partition_count=PARTITIONS), timeout_ms=TIMEOUT_MS)


async def at_every_call(run: Callable[[Fuse], Awaitable[None]], fault: Fault) -> None:
    """Run with the fault at the first call, the second, and so on, until a run is over before it comes."""
    for at in range(1, MOST_CALLS):
        fuse = Fuse(at, fault)
        await run(fuse)
        if not fuse.blown.is_set():
            assert at > 5
            return
    pytest.fail(f"the fuse still blew at call {MOST_CALLS - 1}")


def fused(
    fuse: Fuse,
) -> tuple[Callable[[MetadataStore], MetadataStore], Callable[[ObjectStore], ObjectStore]]:
    return lambda store: FusedMetadataStore(store, fuse), lambda objects: FusedObjectStore(objects, fuse)


@pytest.mark.parametrize("fault", CRASHES)
async def test_a_crash_during_creation(fault: Fault) -> None:
    async def run(fuse: Fuse) -> None:
        store, objects = memory_stores(SMALL_TRANSACTIONS)
        faulty_store, _ = fused(fuse)
        async with control_plane(store, objects, faulty_store=faulty_store) as plane:
            await until_crash(fuse, create(plane))
        async with control_plane(store, objects) as plane:
            if plane.view.topic("t") is None:
                await create(plane)
            else:
                with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
                    await create(plane)
            await check_whole(plane)

    await at_every_call(run, fault)


@pytest.mark.parametrize("fault", ERRORS)
async def test_an_error_during_creation(fault: Fault) -> None:
    async def run(fuse: Fuse) -> None:
        faulty_store, _ = fused(fuse)
        async with control_plane(*memory_stores(SMALL_TRANSACTIONS), faulty_store=faulty_store) as plane:
            await create(plane)
            await check_whole(plane, 0)

    await at_every_call(run, fault)


@pytest.mark.parametrize("fault", ERRORS)
async def test_an_error_during_growth(fault: Fault) -> None:
    async def run(fuse: Fuse) -> None:
        store, objects = memory_stores(SMALL_TRANSACTIONS)
        faulty_store, _ = fused(fuse)
        async with control_plane(store, objects) as plane:
            await plane.topics.create(NewTopic(name="t", partition_count=1), timeout_ms=TIMEOUT_MS)
            plane.topics._store = faulty_store(store)
            await plane.topics.create_partitions("t", PARTITIONS, timeout_ms=TIMEOUT_MS)
            await check_whole(plane, 0)

    await at_every_call(run, fault)


@pytest.mark.parametrize("fault", CRASHES)
async def test_a_crash_during_deletion(fault: Fault) -> None:
    async def run(fuse: Fuse) -> None:
        store, objects = memory_stores(SMALL_TRANSACTIONS)
        async with control_plane(store, objects) as plane:
            await create(plane)
            await put_objects(plane)
        faulty_store, faulty_objects = fused(fuse)
        async with control_plane(
            store, objects, faulty_store=faulty_store, faulty_objects=faulty_objects
        ) as plane:
            await until_crash(fuse, plane.topics.delete("t", timeout_ms=TIMEOUT_MS))
            highest = plane.logs.highest_epoch
        async with control_plane(store, objects) as plane:
            highest = max(highest, plane.logs.highest_epoch)
            if plane.view.topic("t") is not None:  # the crash came before the mark: nothing had happened
                assert len(await plane.topic_objects()) == 3
                await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
            await plane.view.wait_until(lambda: plane.view.topic("t", include_deleting=True) is None)
            await check_gone(plane, highest)
            await create(plane)
            await check_whole(plane, highest + 2)

    await at_every_call(run, fault)


@pytest.mark.parametrize("fault", ERRORS)
async def test_an_error_during_deletion(fault: Fault) -> None:
    async def run(fuse: Fuse) -> None:
        store, objects = memory_stores(SMALL_TRANSACTIONS)
        async with control_plane(store, objects) as plane:
            await create(plane)
            await put_objects(plane)
            faulty_store, faulty_objects = fused(fuse)
            plane.topics._store = faulty_store(store)
            plane.deletion._store = faulty_store(store)
            plane.deletion._objects = faulty_objects(objects)
            await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
            await check_gone(plane, 0)
            await create(plane)
            await check_whole(plane, 2)

    await at_every_call(run, fault)
