"""Memory is used again if, and only if, no object made of it exists."""

import gc

import numpy as np
import pyarrow as pa

from kafscale.arrow.reused_memory import Divider, ReusedMemory

SIZE_BYTES = 1 << 20


def memory_of(buffer: pa.Buffer) -> int:
    return int(buffer.address)


def test_what_is_free_is_taken_again() -> None:
    memory = ReusedMemory(SIZE_BYTES, 2)
    first = memory.take(100)
    assert first.size >= 100
    address = memory_of(first)
    second = memory.take(SIZE_BYTES)
    assert memory_of(second) != address
    del first
    assert memory_of(memory.take(5)) == address


def test_an_array_over_a_part_keeps_the_memory() -> None:
    memory = ReusedMemory(SIZE_BYTES, 2)
    buffer = memory.take(800)
    address = memory_of(buffer)
    np.frombuffer(buffer, np.int64, 100)[:] = np.arange(100)
    array = pa.Array.from_buffers(pa.int64(), 50, [None, Divider(buffer).next(800)])
    batch = pa.record_batch([array.slice(10, 5)], names=["number"])
    del buffer, array
    gc.collect()
    assert memory_of(memory.take(5)) != address
    assert batch.column("number").to_pylist() == [10, 11, 12, 13, 14]
    del batch
    assert memory_of(memory.take(5)) == address


def test_buffers_beyond_the_kept_ones_are_available() -> None:
    memory = ReusedMemory(SIZE_BYTES, 1)
    held = [memory.take(10) for _ in range(3)]
    assert len({memory_of(buffer) for buffer in held}) == 3
    assert memory.take(SIZE_BYTES + 1).size == SIZE_BYTES + 1


def test_parts_do_not_overlap_and_are_aligned() -> None:
    buffer = ReusedMemory(SIZE_BYTES, 1).take(SIZE_BYTES)
    divider = Divider(buffer)
    parts = [divider.next(size) for size in (1, 64, 65, 1000)]
    starts = [memory_of(part) - memory_of(buffer) for part in parts]
    assert starts == [0, 64, 128, 256]
    assert [part.size for part in parts] == [1, 64, 65, 1000]
