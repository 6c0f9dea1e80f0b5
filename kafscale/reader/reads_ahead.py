"""Reads ranges of objects in order, some of them ahead, into memory that is used again and again."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from kafscale.memory.slab import Slab, SlabPool
from kafscale.reader.store_thread import StoreThread

Item = TypeVar("Item")

MIB = 1024 * 1024

# Reads that are in flight or wait to be checked. A store takes 15 ms or more for a request: enough of them must be in
# flight that small segments do not come one after the other, and large ones are not waited for. Not more: data
# should still be in the processor's cache when it is checked.
_AHEAD_BYTES = 16 * MIB
_AHEAD_REQUESTS = 32

# The last read may take as much again as the others. Memory for large ones comes in few sizes, so that one segment's
# can be used for the next one, which is a little larger.
POOL_BYTES = 2 * _AHEAD_BYTES
_LARGE_STEP_BYTES = 4 * MIB


class ByteRange(NamedTuple):
    """Bytes of an object."""

    object_key: str
    start: int
    length: int


class Arrival(NamedTuple):
    """A range in flight into the slab. `arrived`: the number of bytes, or why there are none."""

    slab: Slab
    arrived: Future[int]

    def bytes(self) -> memoryview:
        """The bytes read, valid until the next range is requested. Raises the store's errors."""
        return self.slab.view[: self.arrived.result()]


def reads_ahead(
    stores: StoreThread, pool: SlabPool, wanted: Iterable[tuple[Item, ByteRange | None]]
) -> Generator[tuple[Item, Arrival | None], None, None]:
    """The items in order, each with its range, read as early as there is room; without one for None.

    A slab is used again once the next item is requested.
    """
    reads: deque[tuple[Item, Arrival | None]] = deque()
    remaining = iter(wanted)
    upcoming = next(remaining, None)
    ahead_bytes = 0
    try:
        while upcoming is not None or reads:
            while upcoming is not None and (
                not reads or (ahead_bytes < _AHEAD_BYTES and len(reads) < _AHEAD_REQUESTS)
            ):
                item, one = upcoming
                arrival = None if one is None else _begun(stores, pool, one)
                reads.append((item, arrival))
                upcoming = next(remaining, None)
                ahead_bytes += 0 if arrival is None else arrival.slab.capacity_bytes
            yield reads[0]
            _, arrival = reads.popleft()
            if arrival is not None:
                ahead_bytes -= arrival.slab.capacity_bytes
                pool.release(arrival.slab)
    finally:
        for _, arrival in reads:
            if arrival is not None:
                arrival.arrived.cancel()


def _begun(stores: StoreThread, pool: SlabPool, one: ByteRange) -> Arrival:
    steps = -(-one.length // _LARGE_STEP_BYTES)
    slab = pool.acquire(one.length if steps == 1 else steps * _LARGE_STEP_BYTES)
    call = stores.objects.read_into(one.object_key, one.start, one.length, [slab.view[: one.length]])
    return Arrival(slab, stores.start(call))
