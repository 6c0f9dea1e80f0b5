"""Producer ids: each once, over restarts, brokers and unknown outcomes."""

import asyncio

import pytest

from kafscale.cluster.producer_ids import BLOCK_SIZE, ProducerIds, pass_over
from kafscale.errors import CorruptDataError, StoreUnavailableError, UnknownFormatVersionError
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from tests.support.faults import Fault, Fuse, FusedMetadataStore


async def take(ids: ProducerIds, count: int) -> list[int]:
    return [await ids.next_producer_id() for _ in range(count)]


async def test_ids_count_up_from_zero_over_blocks() -> None:
    assert await take(ProducerIds(MemoryStore()), 2 * BLOCK_SIZE + 1) == list(range(2 * BLOCK_SIZE + 1))


async def test_brokers_and_restarts_never_share_an_id() -> None:
    store = MemoryStore()
    brokers = [ProducerIds(store) for _ in range(5)]
    given = await asyncio.gather(*(take(broker, 1500) for broker in brokers))
    given.append(await take(ProducerIds(store), 10))
    flat = [producer_id for part in given for producer_id in part]
    assert len(set(flat)) == len(flat)


async def test_one_reservation_serves_all_who_wait() -> None:
    store = MemoryStore()
    ids = ProducerIds(store)
    given = await asyncio.gather(*(ids.next_producer_id() for _ in range(100)))
    assert sorted(given) == list(range(100))
    assert (await store.range("")).revision == 1


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE])
async def test_an_unknown_outcome_never_gives_an_id_twice(fault: Fault) -> None:
    store = MemoryStore()
    second_call_is_the_write = 2
    ids = ProducerIds(FusedMetadataStore(store, Fuse(second_call_is_the_write, fault)), retry_delay_sec=0.001)
    first = await take(ids, 10)
    other = await take(ProducerIds(store), 10)
    assert len({*first, *other}) == 20


async def test_a_store_that_is_away_is_reported_and_tried_again() -> None:
    ids = ProducerIds(FusedMetadataStore(MemoryStore(), Fuse(1, Fault.UNAVAILABLE)))
    with pytest.raises(StoreUnavailableError):
        await ids.next_producer_id()
    assert await ids.next_producer_id() == 0


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b'{"version":1}', CorruptDataError),
        (b'{"version":1,"next_producer_id":-1}', CorruptDataError),
        (b'{"version":9,"next_producer_id":0}', UnknownFormatVersionError),
    ],
)
async def test_a_record_that_cannot_be_read_is_refused(value: bytes, error: type[Exception]) -> None:
    store = MemoryStore()
    await store.transact([], [Put(keys.PRODUCER_IDS, value)])
    with pytest.raises(error, match=keys.PRODUCER_IDS):
        await ProducerIds(store).next_producer_id()


async def test_ids_that_are_passed_over_are_never_given() -> None:
    store = MemoryStore()
    await pass_over(store, 5_500)
    assert await ProducerIds(store).next_producer_id() == 5_500
    await pass_over(store, 5_700)  # inside the block that is reserved by now
    assert await ProducerIds(store).next_producer_id() == 5_500 + BLOCK_SIZE


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE])
async def test_passing_over_with_an_unknown_outcome_is_done_in_the_end(fault: Fault) -> None:
    store = MemoryStore()
    write = 2
    await pass_over(FusedMetadataStore(store, Fuse(write, fault)), 5_500, retry_delay_sec=0.001)
    assert await ProducerIds(store).next_producer_id() == 5_500
