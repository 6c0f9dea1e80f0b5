"""Gathering: one object for the small slices of many partitions, and what stays as it is when something fails."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.journal_entry import EntryHead, decode_gathered, head_bytes
from kafscale.formats.journal_keys import gathered_key, is_entry_key, parse_gathered_key
from kafscale.formats.partition_record import SegmentReference, encode_partition_record
from kafscale.journal.partition_state import unsealed
from kafscale.log.journal.broker_journal import BrokerJournal
from kafscale.log.life import gatherer
from kafscale.log.life.entry_reads import EntryReads
from kafscale.log.life.gatherer import Gather, Gatherer
from kafscale.log.life.slice_bodies import SliceBodies
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.tasks.in_turns import Turns
from tests.formats.segments import parse_segment, verify_segment
from tests.log.brokers import NAMESPACE, BrokerParts, Cluster, cluster_scenario

TOPIC = "events"
PARTITIONS = 3


class Scene:
    """A broker whose partitions have small slices, and what gathers them."""

    def __init__(self, cluster: Cluster, broker: BrokerParts) -> None:
        self.cluster, self.broker = cluster, broker
        reads = EntryReads(cluster.objects)
        cluster.closing.push_async_callback(reads.close)
        self.reported: list[tuple[int, Exception]] = []
        self.gatherer = Gatherer(
            cluster.objects,
            broker.logs,
            SliceBodies(broker.reader, reads),
            NAMESPACE,
            broker.broker_id,
            broker.now_ms,
            self.report,
        )

    def report(self, partition: Partition, problem: Exception) -> None:
        self.reported.append((partition.id.index, problem))

    @property
    def journal(self) -> BrokerJournal:
        return self.broker.parts.journals.current

    def gathers(self) -> list[Gather]:
        """Every partition's part, the last partition's first."""
        found = []
        for index in reversed(range(PARTITIONS)):
            partition = self.broker.partition(TOPIC, index)
            assert partition.log is not None
            found.append(Gather(partition, partition.log, unsealed(partition.record.segments)))
        return found

    async def gather(self) -> None:
        await self.gatherer.gather(self.journal, self.gathers())

    async def produce(self, *values: bytes) -> None:
        """A slice of each value in every partition."""
        for value in values:
            for index in range(PARTITIONS):
                await self.broker.produce(TOPIC, index, b"%d %s" % (index, value))

    def forget(self) -> None:
        """The next read comes from the store."""
        for index in range(PARTITIONS):
            self.broker.reader.forget(self.broker.partition(TOPIC, index))

    def references(self, index: int) -> tuple[SegmentReference, ...]:
        """The objects that the partition's readers read, as its record has it."""
        partition = self.broker.partition(TOPIC, index)
        assert partition.references is not None
        assert tuple(partition.references) == partition.record.segments
        return partition.record.segments

    async def object(self, number: int) -> tuple[EntryHead, list[bytes]]:
        """The head of a gathered object, and its slices."""
        key = gathered_key(NAMESPACE, self.journal.journal_id, number)
        data = await self.cluster.objects.inner.get(key)
        head, at = decode_gathered(key, data), head_bytes(key, data)
        slices = [data[at + one.start : at + one.start + one.size_bytes] for one in head.slices]
        assert at + sum(map(len, slices)) == len(data), "nothing is between the slices, or behind them"
        return head, slices


async def scene_with_slices(cluster: Cluster, *values: bytes) -> Scene:
    (broker,) = await cluster.start(0)
    await cluster.create_topic(TOPIC, PARTITIONS)
    scene = Scene(cluster, broker)
    await scene.produce(*values)
    return scene


@cluster_scenario()
async def test_one_object_has_a_slice_of_each_partition(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b", b"c")
    await scene.gather()
    head, slices = await scene.object(0)
    assert cluster.objects.count("put_if_absent", "*.gathered") == 1
    assert [one.partition for one in head.slices] == [0, 1, 2]
    assert (head.sequence, head.broker_id, head.journal_id) == (0, 0, scene.journal.journal_id)
    for row, data in zip(head.slices, slices, strict=True):
        segment = parse_segment("slice", data)
        verify_segment(segment)
        assert (row.base_offset, row.last_offset, row.record_count) == (0, 2, segment.header.message_count)
        assert row.body_crc == segment.footer.body_crc
        assert row.producers == ()


@cluster_scenario()
async def test_records_name_the_object_in_the_place_of_entries(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b")
    await scene.gather()
    head, _ = await scene.object(0)
    for index in range(PARTITIONS):
        (named,) = (await cluster.record(TOPIC, index)).segments
        assert scene.references(index) == (named,)
        found = parse_gathered_key(named.object_key)
        assert found is not None and found.sequence == 0
        assert (named.base_offset, named.last_offset, named.record_count) == (0, 1, 2)
        # Read from the place that the record names, and checked with its checksums.
        expected = {0: b"%d a" % index, 1: b"%d b" % index}
        assert await cluster.published(TOPIC, index) == expected
    assert scene.reported == []
    assert len(head.slices) == PARTITIONS


@cluster_scenario()
async def test_others_run_while_slices_in_memory_are_gathered(cluster: Cluster) -> None:
    """17,000 of 50 partitions kept the broker from everything else for 0.2 s."""
    count = 50
    scene = await scene_with_slices(cluster, *(b"%d" % number for number in range(count)))
    scene.gatherer._bodies._turns = Turns(1)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with cluster.objects.hold("put_if_absent", "*.gathered") as hold:
        gathering = asyncio.create_task(scene.gather())
        counting = asyncio.create_task(count_turns())
        await hold.reached()
        counting.cancel()
    await gathering
    assert turns > count


@cluster_scenario()
async def test_readers_find_gathered_records_in_memory(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b", b"c")
    await scene.gather()
    partition = scene.broker.partition(TOPIC, 1)
    for offset in range(3):
        read = scene.broker.reader.read(partition, offset, 1 << 20, at_least_one=True)
        assert not read.is_missing and read.record_count >= 3 - offset


@cluster_scenario(cache_size_bytes=1)
async def test_what_is_not_in_memory_is_read_with_its_entry(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b")
    scene.forget()
    entries = {one.object_key for index in range(PARTITIONS) for one in scene.references(index)}
    await scene.gather()
    assert cluster.objects.count("get", "*.entry") == len(entries)
    assert [len(scene.references(index)) for index in range(PARTITIONS)] == [1, 1, 1]
    assert await cluster.published(TOPIC, 2) == {0: b"2 a", 1: b"2 b"}


@cluster_scenario()
async def test_what_was_gathered_stays_before_what_came_later(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b")
    with cluster.objects.hold("put_if_absent", "*.gathered") as hold:
        gathering = asyncio.create_task(scene.gather())
        await hold.reached()
        await scene.produce(b"meanwhile")
    await gathering
    for index in range(PARTITIONS):
        gathered, later = scene.references(index)
        assert (gathered.base_offset, gathered.last_offset, later.base_offset) == (0, 1, 2)
        assert is_entry_key(later.object_key)
        # The write of the record that names the object stored this, too.
        assert (await cluster.record(TOPIC, index)).log_end_offset == 3


@cluster_scenario(cache_size_bytes=1)
async def test_a_damaged_slice_leaves_out_its_partition_alone(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b")
    scene.forget()
    damaged = scene.references(1)[0]

    def change(data: bytes) -> bytes:
        at = damaged.start + damaged.size_bytes - 20
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    cluster.objects.lie(damaged.object_key, change)
    await scene.gather()
    assert [index for index, _ in scene.reported] == [1]
    head, _ = await scene.object(0)
    assert [one.partition for one in head.slices] == [0, 2]
    assert len(scene.references(1)) == 2 and len(scene.references(2)) == 1
    cluster.objects.tell_the_truth()
    assert await cluster.published(TOPIC, 1) == {0: b"1 a", 1: b"1 b"}


@pytest.mark.parametrize("is_there", [False, True])
def test_an_object_without_an_answer_is_given_up(is_there: bool) -> None:
    """Its number is not used again, so that no record can name what another attempt has stored."""

    @cluster_scenario()
    async def scenario(cluster: Cluster) -> None:
        scene = await scene_with_slices(cluster, b"a", b"b")
        before = [scene.references(index) for index in range(PARTITIONS)]
        if is_there:
            key = gathered_key(NAMESPACE, scene.journal.journal_id, 0)
            await cluster.objects.inner.put(key, [b"what the attempt has stored"])
        cluster.objects.fail("put_if_absent", "*.gathered", StoreIndeterminateError("no answer"))
        with pytest.raises(StoreIndeterminateError):
            await scene.gather()
        assert [scene.references(index) for index in range(PARTITIONS)] == before
        assert scene.journal.gathered_before == 1
        await scene.gather()
        assert {scene.references(index)[0].object_key for index in range(PARTITIONS)} == {
            gathered_key(NAMESPACE, scene.journal.journal_id, 1)
        }

    scenario()


@cluster_scenario()
async def test_slices_that_are_gone_meanwhile_do_not_come_back(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b")
    gathers = scene.gathers()
    await scene.broker.seal(TOPIC, 1)
    sealed = scene.references(1)
    await scene.gatherer.gather(scene.journal, gathers)
    assert scene.references(1) == sealed
    assert scene.reported == []
    assert len(scene.references(0)) == 1


@cluster_scenario()
async def test_a_partition_that_is_lost_is_reported(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b")
    await scene.broker.store_record(TOPIC, 1)
    successors = replace(await cluster.record(TOPIC, 1), leader_epoch=9)
    await cluster.metadata.transact([], [Put(keys.partition(TOPIC, 1), encode_partition_record(successors))])
    await scene.gather()
    ((index, problem),) = scene.reported
    assert index == 1 and isinstance(problem, FencedError)
    assert await cluster.record(TOPIC, 1) == successors
    assert [len(scene.references(index)) for index in (0, 2)] == [1, 1]


@cluster_scenario()
async def test_an_object_is_pending_until_records_name_it(cluster: Cluster) -> None:
    """The collector asks for this number: what is below it is named by now, or never."""
    scene = await scene_with_slices(cluster, b"a", b"b")
    seen: list[int] = []
    scene.broker.logs.reader.replace_slices = (  # type: ignore[method-assign]
        lambda *arguments: seen.append(scene.journal.gathered_before)
    )
    await scene.gather()
    assert seen == [0, 0, 0]
    assert scene.journal.gathered_before == 1


@given(st.lists(st.integers(1, 60), min_size=PARTITIONS, max_size=PARTITIONS), st.integers(1, 4))
def test_objects_are_bounded_in_bytes_and_slices(sizes: list[int], most_slices: int) -> None:
    """Every partition is in exactly one of them, in order, and one that is too large has one of its own."""

    @cluster_scenario()
    async def scenario(cluster: Cluster) -> None:
        scene = await scene_with_slices(cluster)
        for index, size in enumerate(sizes):
            await scene.broker.produce(TOPIC, index, bytes(size))
            await scene.broker.produce(TOPIC, index, bytes(size))
        most_bytes = 500
        source_bytes = {one.partition.id.index: one.size_bytes for one in scene.gathers()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gatherer, "OBJECT_BYTES", most_bytes)
            patch.setattr(gatherer, "MOST_SLICES", most_slices)
            await scene.gather()
        found = [
            [one.partition for one in (await scene.object(number))[0].slices]
            for number in range(scene.journal.gathered_before)
        ]
        assert [index for some in found for index in some] == [0, 1, 2]
        for some in found:
            assert len(some) <= most_slices
            assert len(some) == 1 or sum(source_bytes[index] for index in some) <= most_bytes
        for some, following in pairwise(found):
            is_full = sum(source_bytes[index] for index in (*some, following[0])) > most_bytes
            assert len(some) == most_slices or is_full, "no more objects than are needed"

    scenario()


@cluster_scenario()
async def test_a_store_that_is_away_leaves_everything_readable(cluster: Cluster) -> None:
    scene = await scene_with_slices(cluster, b"a", b"b")
    cluster.objects.fail("put_if_absent", "*.gathered", StoreUnavailableError("away"))
    with pytest.raises(StoreUnavailableError):
        await scene.gather()
    assert await cluster.published(TOPIC, 0) == {0: b"0 a", 1: b"0 b"}
    assert await cluster.objects.keys("*.gathered") == []
