"""Where consumer lag is counted from when the partition is led by another broker."""

from collections.abc import AsyncIterator

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.groups.log_end_offsets import LogEndOffsets
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from tests.support.faults import Fault, Fuse, FusedMetadataStore
from tests.support.in_process_broker import until

PARTITIONS = [("orders", index) for index in range(10)]


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(max_operations=4)
    for index in range(10):
        await publish(store, index, 100 + index)
    yield store
    await store.close()


async def publish(store: MemoryStore, index: int, log_end_offset: int) -> None:
    record = PartitionRecord(leader_epoch=0, log_end_offset=log_end_offset)
    await store.transact([], [Put(keys.partition("orders", index), encode_partition_record(record))])


def led_here(topic: str, index: int) -> int | None:
    return 5000 if index == 3 else None


async def test_what_is_led_elsewhere_is_read_from_its_record(store: MemoryStore) -> None:
    offsets = LogEndOffsets(store, led_here, lambda: PARTITIONS)
    assert offsets.get("orders", 0) is None
    await offsets.refresh()
    expected = [5000 if index == 3 else 100 + index for index in range(10)]
    assert [offsets.get(*one) for one in PARTITIONS] == expected


async def test_only_what_is_wanted_is_kept(store: MemoryStore) -> None:
    wanted = set(PARTITIONS)
    offsets = LogEndOffsets(store, led_here, lambda: wanted)
    await offsets.refresh()
    wanted = {("orders", 1), ("gone", 0)}
    await offsets.refresh()
    assert [offsets.get(*one) for one in (("orders", 0), ("orders", 1), ("gone", 0))] == [None, 101, None]


async def test_a_record_that_cannot_be_read_does_not_hide_the_others(store: MemoryStore) -> None:
    await store.transact([], [Put(keys.partition("orders", 2), b"not a record")])
    offsets = LogEndOffsets(store, led_here, lambda: PARTITIONS)
    await offsets.refresh()
    assert (offsets.get("orders", 2), offsets.get("orders", 1)) == (None, 101)


async def test_a_store_that_is_away_leaves_the_older_ones(store: MemoryStore) -> None:
    offsets = LogEndOffsets(
        FusedMetadataStore(store, Fuse(4, Fault.UNAVAILABLE)), led_here, lambda: PARTITIONS
    )
    await offsets.refresh()
    await publish(store, 0, 999)
    with pytest.raises(StoreUnavailableError):
        await offsets.refresh()
    assert offsets.get("orders", 0) == 100


async def test_it_asks_again_and_again(store: MemoryStore) -> None:
    offsets = LogEndOffsets(store, led_here, lambda: PARTITIONS, refresh_sec=0.001)
    offsets.start()
    await until(lambda: offsets.get("orders", 0) == 100, "the first answer")
    await publish(store, 0, 999)
    await until(lambda: offsets.get("orders", 0) == 999, "the next answer")
    await offsets.close()


async def test_defect_in_a_refresh_does_not_end_the_asking(store: MemoryStore) -> None:
    wanted = iter([ValueError("a defect")])

    def failing_once() -> list[tuple[str, int]]:
        for problem in wanted:
            raise problem
        return PARTITIONS

    offsets = LogEndOffsets(store, led_here, failing_once, refresh_sec=0.001)
    offsets.start()
    await until(lambda: offsets.get("orders", 0) == 100, "the answer after the defect")
    await offsets.close()
