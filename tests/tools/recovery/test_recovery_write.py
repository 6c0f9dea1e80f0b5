"""Carrying a rebuild out: what is written, what stands in its way, and that all of it may be done again."""

import asyncio
import dataclasses
import random
import uuid
from collections.abc import Collection, Mapping

import pytest

from kafscale.cluster.cluster_record import ensure_cluster_id, new_kafka_uuid, read_cluster_id
from kafscale.cluster.marker import claim_marker
from kafscale.cluster.producer_ids import ProducerIds
from kafscale.errors import CorruptDataError, KafscaleError
from kafscale.formats.features import SEGMENT_FORMAT, decode_level
from kafscale.formats.partition_record import (
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.topic_record import (
    decode_topic_record,
    encode_broker_record,
    encode_retired_epoch,
    encode_topic_record,
)
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, TopicRecord, TopicState
from kafscale.metadata.store import MetadataStore, Put
from kafscale.objects.object_store import ObjectStore
from kafscale.tools.recovery import rebuild as planning
from kafscale.tools.recovery import write_entries
from kafscale.tools.recovery.plan import PASSED_OVER_PRODUCER_IDS
from kafscale.tools.recovery.rebuild import plan_rebuild
from kafscale.tools.recovery.write import Rebuilt, RecoveryRefusedError, RecoveryWriter
from tests.support.faults import CRASHES, STRIDE, Fault, Fuse, FusedMetadataStore, Interruption
from tests.tools.recovery.recovery_bucket import NAMESPACE, Silence, batch, memory_bucket, put

TOPIC_ID = uuid.UUID(int=7)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "FIRST_RETRY_SEC", 0.0)


async def bucket() -> ObjectStore:
    """Two topics: one with a checkpoint's worth of segments and two producers, one with a gap in its partitions."""
    store = memory_bucket()
    for n in range(130):
        await put(store, batch(n, 1, n // 50, producer=(40 + n % 2, 0, n // 2)))
    await put(store, batch(0, 4, 0), topic="small", partition=3)
    return store


async def writer(
    metadata: MetadataStore,
    objects: ObjectStore,
    *,
    topics: Collection[str] = (),
    configs: Mapping[str, str] | None = None,
) -> RecoveryWriter:
    plan = await plan_rebuild(objects, NAMESPACE, topics=topics, concurrency=4, progress=Silence())
    return RecoveryWriter(
        metadata, objects, plan, configs=configs or {}, new_uuid=new_kafka_uuid, progress=Silence()
    )


async def rebuild(
    metadata: MetadataStore, objects: ObjectStore, *, topics: Collection[str] = (), skip_damaged: bool = False
) -> Rebuilt:
    return await (await writer(metadata, objects, topics=topics)).write(skip_damaged=skip_damaged)


async def contents(metadata: MetadataStore) -> dict[str, object]:
    """The store's contents, without what is random: the ids of topics and of the cluster."""
    found: dict[str, object] = {}
    for item in (await metadata.range("")).items:
        if item.key.startswith(keys.TOPICS):
            topic = decode_topic_record(item.key, item.value)
            found[item.key] = (topic.name, topic.partition_count, dict(topic.configs), topic.state)
        elif item.key == keys.CLUSTER:
            found[item.key] = "an id"
        else:
            found[item.key] = item.value
    return found


async def refused(metadata: MetadataStore, objects: ObjectStore, *, topics: Collection[str] = ()) -> str:
    """Why the rebuild is refused; it must not have written anything."""
    before = await contents(metadata)
    with pytest.raises(RecoveryRefusedError) as raised:
        await rebuild(metadata, objects, topics=topics)
    assert await contents(metadata) == before
    return str(raised.value)


async def test_the_records_are_those_of_the_plan() -> None:
    metadata, objects = MemoryStore(), await bucket()
    rebuilt = await rebuild(metadata, objects)
    assert (rebuilt.written, rebuilt.already_there) == (("orders", "small"), ())
    assert rebuilt.cluster_id == await read_cluster_id(metadata)
    small = await metadata.get(keys.topic("small"))
    assert small is not None
    record = decode_topic_record(small.key, small.value)
    assert (record.partition_count, record.configs, record.state) == (4, {}, TopicState.ACTIVE)
    ends = {}
    for item in (await metadata.range(keys.PARTITIONS)).items:
        ends[item.key] = decode_partition_record(item.key, item.value).log_end_offset
    assert ends == {
        "partitions/orders/0": 130,
        "partitions/small/0": 0,
        "partitions/small/1": 0,
        "partitions/small/2": 0,
        "partitions/small/3": 4,
    }
    orders = await metadata.get(keys.partition("orders", 0))
    assert orders is not None
    assert await objects.size_bytes(decode_partition_record("", orders.value).checkpoint_key) > 0


@pytest.mark.parametrize(("largest", "level"), [(2**31 - 1, None), (2**31, 2)])
async def test_segments_beyond_2_gib_bring_their_feature_level_back(largest: int, level: int | None) -> None:
    metadata, objects = MemoryStore(), await bucket()
    plan = await plan_rebuild(objects, NAMESPACE, concurrency=4, progress=Silence())
    (orders, small) = plan.topics
    assert orders.partitions[0].largest_segment_bytes == max(
        [item.size_bytes async for item in objects.list(f"{NAMESPACE}/orders/") if item.key.endswith(".kfs")]
    )
    large = dataclasses.replace(orders.partitions[0], largest_segment_bytes=largest)
    orders = dataclasses.replace(orders, partitions=(large, *orders.partitions[1:]))
    plan = dataclasses.replace(plan, topics=(orders, small))
    for _ in range(2):  # and all of it may be done again
        writer = RecoveryWriter(
            metadata, objects, plan, configs={}, new_uuid=new_kafka_uuid, progress=Silence()
        )
        await writer.write(skip_damaged=False)
        found = await metadata.get(keys.feature(SEGMENT_FORMAT))
        assert (None if found is None else decode_level(found.key, found.value)) == level


async def test_no_new_producer_gets_an_id_that_the_bucket_knows() -> None:
    metadata, objects = MemoryStore(), await bucket()
    await rebuild(metadata, objects)
    assert await ProducerIds(metadata).next_producer_id() == 42 + PASSED_OVER_PRODUCER_IDS
    await rebuild(metadata, objects)
    assert await ProducerIds(metadata).next_producer_id() == 42 + PASSED_OVER_PRODUCER_IDS + 1000


async def test_the_cluster_gets_its_id_back_from_the_marker() -> None:
    metadata, objects = MemoryStore(), await bucket()
    await claim_marker(objects, NAMESPACE, "the-cluster")
    assert (await rebuild(metadata, objects)).cluster_id == "the-cluster"
    assert await read_cluster_id(metadata) == "the-cluster"


async def test_the_cluster_id_comes_last() -> None:
    """Until it is there, brokers refuse to start beside a bucket that is not empty."""
    metadata, objects = MemoryStore(), await bucket()
    await rebuild(metadata, objects)
    items = (await metadata.range("")).items
    assert max(items, key=lambda item: item.mod_revision).key == keys.CLUSTER


async def test_a_second_run_changes_nothing() -> None:
    metadata, objects = MemoryStore(), await bucket()
    first = await rebuild(metadata, objects)
    before = (await metadata.range("")).revision
    second = await rebuild(metadata, objects)
    assert (second.written, second.already_there) == ((), ("orders", "small"))
    assert second.cluster_id == first.cluster_id
    assert (await metadata.range("")).revision == before


async def test_topics_may_be_rebuilt_one_after_the_other() -> None:
    metadata, objects = MemoryStore(), await bucket()
    assert (await rebuild(metadata, objects, topics=["small"])).written == ("small",)
    assert await metadata.get(keys.topic("orders")) is None
    assert (await rebuild(metadata, objects, topics=["orders"])).written == ("orders",)
    whole = MemoryStore()
    await rebuild(whole, objects)
    assert await contents(metadata) == await contents(whole)


async def test_configs_are_set_on_every_topic() -> None:
    metadata, objects = MemoryStore(), await bucket()
    rebuilder = await writer(metadata, objects, configs={"retention.ms": "-1"})
    await rebuilder.write(skip_damaged=False)
    for item in (await metadata.range(keys.TOPICS)).items:
        assert decode_topic_record(item.key, item.value).configs == {"retention.ms": "-1"}
    assert "another topic" in await refused(metadata, objects)


async def test_transactions_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = memory_bucket()
    for partition in range(40):
        await put(objects, batch(0, 1, 0), partition=partition)
    metadata = MemoryStore(max_operations=16)
    assert (await rebuild(metadata, objects)).written == ("orders",)
    assert len((await metadata.range(keys.PARTITIONS)).items) == 40
    monkeypatch.setattr(write_entries, "TRANSACTION_BYTES", 200)
    metadata = MemoryStore()
    assert (await rebuild(metadata, objects)).written == ("orders",)
    revisions = {item.mod_revision for item in (await metadata.range(keys.PARTITIONS)).items}
    assert len(revisions) > 13


# --- refusals


async def test_it_is_refused_while_brokers_are_registered() -> None:
    metadata, objects = MemoryStore(), await bucket()
    lease = await metadata.grant_lease(60)
    broker = BrokerRecord(broker_id=4, host="h", port=1)
    await metadata.transact([], [Put(keys.broker(4), encode_broker_record(broker), lease)])
    reason = await refused(metadata, objects)
    assert "ids 4" in reason and "stop them first" in reason
    await metadata.revoke_lease(lease)
    assert (await rebuild(metadata, objects)).written == ("orders", "small")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        pytest.param(
            keys.topic("orders"),
            encode_topic_record(TopicRecord(name="orders", topic_id=TOPIC_ID, partition_count=1)),
            "a topic 'orders' that lacks partitions",
            id="a topic without the records",
        ),
        pytest.param(
            keys.partition("orders", 0),
            encode_partition_record(PartitionRecord(leader_epoch=3)),
            "another record under 'partitions/orders/0'",
            id="a partition's record",
        ),
        pytest.param(
            keys.partition("small", 9),
            encode_partition_record(PartitionRecord(leader_epoch=-1)),
            "another record under 'partitions/small/9'",
            id="a record of more partitions",
        ),
        pytest.param(keys.retired("small"), encode_retired_epoch(5), "was deleted", id="a deleted topic"),
    ],
)
async def test_nothing_is_overwritten(key: str, value: bytes, says: str) -> None:
    metadata, objects = MemoryStore(), await bucket()
    await metadata.transact([], [Put(key, value)])
    assert says in await refused(metadata, objects)
    held = await metadata.get(key)
    assert held is not None and held.value == value


async def test_a_topic_that_brokers_have_used_since_is_not_overwritten() -> None:
    metadata, objects = MemoryStore(), await bucket()
    await rebuild(metadata, objects)
    key = keys.partition("small", 3)
    held = await metadata.get(key)
    assert held is not None
    used = decode_partition_record(key, held.value)
    claimed = PartitionRecord(leader_epoch=used.leader_epoch + 1, log_end_offset=used.log_end_offset)
    await metadata.transact([], [Put(key, encode_partition_record(claimed))])
    assert "another topic 'small'" in await refused(metadata, objects)
    assert (await rebuild(metadata, objects, topics=["orders"])).already_there == ("orders",)


async def test_the_stores_of_two_clusters_are_not_joined() -> None:
    metadata, objects = MemoryStore(), await bucket()
    own = await ensure_cluster_id(metadata)
    await claim_marker(objects, NAMESPACE, "another")
    reason = await refused(metadata, objects)
    assert own in reason and "another" in reason


async def test_damaged_segments_are_skipped_only_on_request() -> None:
    metadata, objects = MemoryStore(), memory_bucket()
    await put(objects, batch(0, 2, 0))
    key = await put(objects, batch(2, 3, 0))
    data = await objects.get(key)
    await objects.put(key, [data[:-20] + b"!" + data[-19:]])
    reason = await refused(metadata, objects)
    assert key in reason and "--skip-damaged" in reason
    assert (await rebuild(metadata, objects, skip_damaged=True)).written == ("orders",)
    held = await metadata.get(keys.partition("orders", 0))
    assert held is not None
    record = decode_partition_record("", held.value)
    assert ([one.base_offset for one in record.segments], record.log_end_offset) == ([0], 5)
    assert await objects.get(key)


async def test_topic_that_cannot_be_rebuilt_stops_unnamed_topics() -> None:
    metadata, objects = MemoryStore(), await bucket()
    await put(objects, batch(0, 1, 0), topic="huge", partition=2_000_000_000)
    assert "'huge' cannot be rebuilt" in await refused(metadata, objects)
    assert (await rebuild(metadata, objects, topics=["small"])).written == ("small",)


async def test_other_object_under_the_checkpoint_key_is_refused() -> None:
    metadata, objects = MemoryStore(), await bucket()
    await rebuild(MemoryStore(), objects)
    [checkpoint] = [info.key async for info in objects.list("_kafscale/")]
    data = await objects.get(checkpoint)
    rebuilder = await writer(metadata, objects)
    await objects.put(checkpoint, [data[:-1] + b"!"])
    with pytest.raises(CorruptDataError, match="something else"):
        await rebuilder.write(skip_damaged=False)
    assert not (await metadata.range("")).items


# --- interruptions


@pytest.mark.parametrize("fault", list(Fault))
async def test_after_any_interruption_the_next_run_ends_in_the_same(fault: Fault) -> None:
    objects = await bucket()
    undisturbed = MemoryStore()
    await rebuild(undisturbed, objects)
    expected = await contents(undisturbed)
    at = random.randrange(STRIDE) + 1 - STRIDE
    while True:
        at += STRIDE
        metadata = MemoryStore()
        fuse = Fuse(at, fault)
        fused = FusedMetadataStore(metadata, fuse)
        rebuilding = asyncio.create_task(rebuild(fused, objects))
        if fault in CRASHES:
            blowing = asyncio.create_task(fuse.blown.wait())
            await asyncio.wait({rebuilding, blowing}, return_when=asyncio.FIRST_COMPLETED)
            rebuilding.cancel()
            blowing.cancel()
        done = (await asyncio.gather(rebuilding, return_exceptions=True))[0]
        assert isinstance(done, Rebuilt | KafscaleError | asyncio.CancelledError), done
        await rebuild(metadata, objects)
        assert await contents(metadata) == expected, f"{fault} at call {at}"
        if not fuse.blown.is_set():
            break
    assert at > 15


async def test_a_broker_that_registers_meanwhile_stops_it() -> None:
    objects = await bucket()
    stopped = 0
    for at in range(1, 30):
        metadata = MemoryStore()

        async def register(metadata: MemoryStore = metadata) -> None:
            value = encode_broker_record(BrokerRecord(broker_id=4, host="h", port=1))
            await metadata.transact([], [Put(keys.broker(4), value, await metadata.grant_lease(60))])

        try:
            await rebuild(FusedMetadataStore(metadata, Interruption(at, register)), objects)
        except RecoveryRefusedError as refusal:
            stopped += 1
            assert "stop them first" in str(refusal)
    assert stopped > 5


async def test_a_topic_that_is_created_meanwhile_is_left_alone() -> None:
    objects = await bucket()
    record = encode_topic_record(TopicRecord(name="small", topic_id=TOPIC_ID, partition_count=1))
    stopped = 0
    for at in range(1, 40):
        metadata = MemoryStore()

        async def create(metadata: MemoryStore = metadata) -> None:
            if await metadata.get(keys.topic("small")) is None:
                await metadata.transact([], [Put(keys.topic("small"), record)])

        try:
            await rebuild(FusedMetadataStore(metadata, Interruption(at, create)), objects)
        except RecoveryRefusedError:
            stopped += 1
            held = await metadata.get(keys.topic("small"))
            assert held is not None and held.value == record
    assert stopped > 10
