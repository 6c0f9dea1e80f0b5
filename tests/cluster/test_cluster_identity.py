"""Which cluster a broker belongs to: two stores must agree before anything is written."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafscale.cluster.cluster_record import ensure_cluster_id, read_cluster_id
from kafscale.cluster.identity import establish_cluster
from kafscale.cluster.marker import read_marker
from kafscale.errors import StartupError, StoreIndeterminateError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import KeyValue, Put
from tests.support.controlled_store import ControlledStore
from tests.support.faults import ERRORS, Fault, Fuse, FusedMetadataStore, Interruption

NAMESPACE = "records"
SEGMENT = object_keys.segment_key(NAMESPACE, "orders", 0, 0)


async def test_two_new_stores_become_one_cluster() -> None:
    metadata, objects = MemoryStore(), ControlledStore()
    cluster_id = await establish_cluster(metadata, objects, NAMESPACE)
    assert await read_cluster_id(metadata) == cluster_id
    assert await read_marker(objects, NAMESPACE) == cluster_id
    await objects.put_if_absent(SEGMENT, [b"segment"])
    assert await establish_cluster(metadata, objects, NAMESPACE) == cluster_id


async def test_a_metadata_store_that_was_lost_is_not_begun_again() -> None:
    objects = ControlledStore()
    cluster_id = await establish_cluster(MemoryStore(), objects, NAMESPACE)
    empty = MemoryStore()
    with pytest.raises(StartupError, match=f"belongs to cluster {cluster_id}.*kafscale recover"):
        await establish_cluster(empty, objects, NAMESPACE)
    assert (await empty.range("")).items == ()


async def test_segments_without_a_marker_are_another_clusters_too() -> None:
    metadata, objects = MemoryStore(), ControlledStore()
    await objects.put_if_absent(SEGMENT, [b"segment"])
    with pytest.raises(StartupError, match=r"'records' of the object store holds segments.*kafscale recover"):
        await establish_cluster(metadata, objects, NAMESPACE)
    assert await read_cluster_id(metadata) is None
    assert await objects.keys() == [SEGMENT]


async def test_other_namespaces_and_probes_objects_are_ignored() -> None:
    objects = ControlledStore()
    await establish_cluster(MemoryStore(), objects, "other")
    for key in (
        object_keys.segment_key("other", "orders", 0, 0),
        object_keys.segment_key(NAMESPACE + "-2", "orders", 0, 0),
        object_keys.health_key(NAMESPACE, 1),
        object_keys.probe_key(NAMESPACE, "token", 0),
    ):
        await objects.put(key, [b"x"])
    metadata = MemoryStore()
    cluster_id = await establish_cluster(metadata, objects, NAMESPACE)
    assert await read_marker(objects, NAMESPACE) == cluster_id


async def test_stores_of_two_clusters_are_named() -> None:
    first, second = MemoryStore(), MemoryStore()
    objects = ControlledStore()
    marked = await establish_cluster(first, objects, NAMESPACE)
    other = await ensure_cluster_id(second)
    with pytest.raises(StartupError) as refusal:
        await establish_cluster(second, objects, NAMESPACE)
    for part in (marked, other, NAMESPACE, "KAFSCALE_S3_NAMESPACE"):
        assert part in str(refusal.value)
    assert await read_marker(objects, NAMESPACE) == marked


async def test_a_cluster_from_before_there_were_markers_gets_one() -> None:
    """A metadata store that knows its cluster may have segments without a marker beside it."""
    metadata, objects = MemoryStore(), ControlledStore()
    cluster_id = await ensure_cluster_id(metadata)
    await objects.put_if_absent(SEGMENT, [b"segment"])
    assert await establish_cluster(metadata, objects, NAMESPACE) == cluster_id
    assert await read_marker(objects, NAMESPACE) == cluster_id


async def put_partition(metadata: MemoryStore, record: PartitionRecord) -> None:
    await metadata.transact([], [Put(keys.partition("orders", 0), encode_partition_record(record))])


async def test_a_bucket_without_the_records_is_not_claimed() -> None:
    """Found: a typing error in the bucket's name, and the brokers forgot every record that they could not find."""
    metadata, records = MemoryStore(), ControlledStore()
    cluster_id = await establish_cluster(metadata, records, NAMESPACE)
    await records.put_if_absent(SEGMENT, [b"segment"])
    await put_partition(metadata, PartitionRecord(leader_epoch=1, log_end_offset=4))
    wrong = ControlledStore()
    with pytest.raises(StartupError, match=r"'records' of the object store is empty.*partitions/orders/0"):
        await establish_cluster(metadata, wrong, NAMESPACE)
    assert await wrong.keys() == []
    assert await establish_cluster(metadata, records, NAMESPACE) == cluster_id


async def test_first_start_goes_on_after_an_end_before_the_marker() -> None:
    """Topics may have been made meanwhile: without records nothing is at stake."""
    metadata, objects = MemoryStore(), ControlledStore()
    cluster_id = await ensure_cluster_id(metadata)
    await put_partition(metadata, PartitionRecord(leader_epoch=1))
    assert await establish_cluster(metadata, objects, NAMESPACE) == cluster_id
    assert await read_marker(objects, NAMESPACE) == cluster_id


async def test_brokers_started_at_once_on_new_stores_are_one_cluster() -> None:
    metadata, objects = MemoryStore(), ControlledStore()
    starts = [establish_cluster(metadata, objects, NAMESPACE) for _ in range(5)]
    assert len(set(await asyncio.gather(*starts))) == 1


@pytest.mark.parametrize("call", [1, 2, 3])
async def test_overtaken_broker_joins_at_its_first_start(call: int) -> None:
    """The other one is done, and has published, right before each of this one's calls of the metadata store."""
    metadata, objects = MemoryStore(), ControlledStore()
    first: list[str] = []

    async def overtake() -> None:
        first.append(await establish_cluster(metadata, objects, NAMESPACE))
        await objects.put_if_absent(SEGMENT, [b"segment"])

    overtaken = FusedMetadataStore(metadata, Interruption(call, overtake))
    assert [await establish_cluster(overtaken, objects, NAMESPACE)] == first


class Overtaken(MemoryStore):
    """Something happens right after the first read."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def get(self, key: str) -> KeyValue | None:
        found = await super().get(key)
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


async def test_overtaken_broker_joins_after_its_first_read() -> None:
    objects = ControlledStore()
    first: list[str] = []

    async def overtake() -> None:
        first.append(await establish_cluster(metadata, objects, NAMESPACE))
        await objects.put_if_absent(SEGMENT, [b"segment"])

    metadata = Overtaken(overtake)
    assert [await establish_cluster(metadata, objects, NAMESPACE)] == first


@pytest.mark.parametrize(
    "waits_at", [("get", object_keys.cluster_marker_key(NAMESPACE)), ("put_if_absent", "*")]
)
async def test_overtaken_broker_joins_at_the_object_store(
    waits_at: tuple[str, str],
) -> None:
    metadata, objects = MemoryStore(), ControlledStore()
    with objects.hold(*waits_at) as hold:
        slow = asyncio.create_task(establish_cluster(metadata, objects, NAMESPACE))
        await hold.reached()
        objects._holds.remove(hold)
        first = await establish_cluster(metadata, objects, NAMESPACE)
        await objects.put_if_absent(SEGMENT, [b"segment"])
        objects._holds.append(hold)
    assert await slow == first


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", [1, 2, 3, 4])
async def test_a_fault_of_the_metadata_store_is_no_emptiness(call: int, fault: Fault) -> None:
    """A failed creation is tried again as a whole, and comes to one cluster."""
    metadata, objects = MemoryStore(), ControlledStore()
    faulty = FusedMetadataStore(metadata, Fuse(call, fault))
    try:
        first = await establish_cluster(faulty, objects, NAMESPACE)
    except (StoreUnavailableError, StoreIndeterminateError):
        first = await establish_cluster(faulty, objects, NAMESPACE)
    assert await read_cluster_id(metadata) == first == await read_marker(objects, NAMESPACE)


@pytest.mark.parametrize("method", ["get", "put_if_absent"])
@pytest.mark.parametrize("error", [StoreUnavailableError, StoreIndeterminateError])
async def test_a_fault_of_the_object_store_is_no_emptiness(
    method: str, error: Callable[[str], Exception]
) -> None:
    objects = ControlledStore()
    cluster_id = await establish_cluster(MemoryStore(), objects, NAMESPACE)
    metadata = MemoryStore()
    objects.fail(method, "*", error("away"))
    for _ in range(2):
        with pytest.raises((StartupError, StoreUnavailableError, StoreIndeterminateError)):
            await establish_cluster(metadata, objects, NAMESPACE)
    assert await metadata.get(keys.CLUSTER) is None
    assert await read_marker(objects, NAMESPACE) == cluster_id
