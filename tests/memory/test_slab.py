"""Reused memory."""

import ctypes
import re
import sys
from pathlib import Path

import pytest

from kafscale.memory.slab import LARGE_STEP_BYTES, SLAB_CAPACITIES_BYTES, Slab, SlabPool


@pytest.mark.parametrize("capacity", SLAB_CAPACITIES_BYTES)
def test_the_smallest_slab_that_is_large_enough_is_given(capacity: int) -> None:
    pool = SlabPool(0)
    assert pool.acquire(capacity).capacity_bytes == capacity
    assert pool.acquire(capacity - 1).capacity_bytes == capacity


def test_slab_above_all_capacities_is_reused_for_near_fits() -> None:
    pool = SlabPool(1 << 30)
    slab = pool.acquire(12 * LARGE_STEP_BYTES - 1)
    assert len(slab.view) == slab.capacity_bytes == 12 * LARGE_STEP_BYTES
    pool.release(slab)
    assert pool.acquire(12 * LARGE_STEP_BYTES + 1) is not slab
    assert pool.acquire(8 * LARGE_STEP_BYTES) is not slab
    assert pool.acquire(9 * LARGE_STEP_BYTES) is slab
    assert pool.spare_bytes == 0


def test_a_wish_for_more_gives_the_largest_capacity_within_it() -> None:
    pool = SlabPool(0)
    small, _, large, largest = SLAB_CAPACITIES_BYTES
    assert pool.acquire(10, wanted_bytes=small).capacity_bytes == small
    assert pool.acquire(10, wanted_bytes=large + 5).capacity_bytes == large
    assert pool.acquire(10, wanted_bytes=10 * largest).capacity_bytes == largest
    assert pool.acquire(large, wanted_bytes=10).capacity_bytes == large


def test_a_released_slab_is_given_again_and_is_empty() -> None:
    pool = SlabPool(1 << 20)
    slab = pool.acquire(100)
    slab.used_bytes = 100
    pool.release(slab)
    assert pool.spare_bytes == slab.capacity_bytes
    again = pool.acquire(100)
    assert again is slab
    assert (again.used_bytes, again.room_bytes, pool.spare_bytes) == (0, slab.capacity_bytes, 0)


def test_spare_slabs_are_kept_up_to_the_limit() -> None:
    capacity = SLAB_CAPACITIES_BYTES[0]
    pool = SlabPool(2 * capacity)
    slabs = [pool.acquire(1) for _ in range(3)]
    for slab in slabs:
        pool.release(slab)
    assert pool.spare_bytes == 2 * capacity
    assert [pool.acquire(1), pool.acquire(1)] == [slabs[2], slabs[1]]


def test_what_was_not_wanted_for_longest_makes_room() -> None:
    small, larger = SLAB_CAPACITIES_BYTES[:2]
    pool = SlabPool(larger + small)
    unwanted, wanted = pool.acquire(small), pool.acquire(larger)
    another = pool.acquire(small)
    for slab in (unwanted, wanted, another):
        pool.release(slab)
    assert pool.spare_bytes == larger + small
    assert [pool.acquire(small), pool.acquire(larger)] == [another, wanted]


def test_slabs_together_have_the_size_and_are_spare_ones_first() -> None:
    large, largest = SLAB_CAPACITIES_BYTES[-2:]
    pool = SlabPool(1 << 30)
    made = pool.acquire_together(2 * largest + large + 5)
    assert [slab.capacity_bytes for slab in made] == [largest, largest, largest]
    assert sum(slab.used_bytes for slab in made) == 2 * largest + large + 5
    small = [pool.acquire(large) for _ in range(3)]
    for slab in small:
        pool.release(slab)
    again = pool.acquire_together(2 * large + 1)
    assert set(map(id, again)) == set(map(id, small))
    assert [slab.used_bytes for slab in again] == [large, large, 1]


def test_the_content_is_what_was_filled() -> None:
    slab = Slab(SLAB_CAPACITIES_BYTES[0])
    slab.view[:3] = b"abc"
    slab.used_bytes = 3
    assert bytes(slab.content()) == b"abc"


def resident_at_the_first_byte(slab: Slab) -> int:
    """By how many bytes the process's memory grows when the slab's first byte is written."""

    def resident_bytes() -> int:
        kilobytes = re.search(r"^Rss:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
        assert kilobytes is not None
        return int(kilobytes[1]) * 1024

    before = resident_bytes()
    slab.view[0] = 1
    return resident_bytes() - before


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's /proc")
def test_a_slab_of_which_little_is_wanted_takes_little_memory() -> None:
    """A frame or a buffer just over 1 MiB has a slab of 4: only what it fills may become resident."""
    assert resident_at_the_first_byte(SlabPool(0).acquire(LARGE_STEP_BYTES + 1)) < LARGE_STEP_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's /proc")
def test_a_slab_that_is_filled_soon_comes_in_huge_pages() -> None:
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        pytest.skip("the kernel gives no huge pages")
    slab = SlabPool(0).acquire(1, wanted_bytes=SLAB_CAPACITIES_BYTES[-1])
    begin = ctypes.addressof(ctypes.c_char.from_buffer(slab.view))
    maps = Path("/proc/self/smaps").read_text()
    mappings = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*?^VmFlags: ([^\n]*)", maps, re.MULTILINE | re.DOTALL)
    (flags,) = [told for low, high, told in mappings if int(low, 16) <= begin < int(high, 16)]
    assert "hg" in flags.split()


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's /proc")
def test_what_is_only_announced_takes_no_memory() -> None:
    """Fifty clients that announced 4 MiB each and sent a byte had made 100 MiB resident, two for each."""
    for size_bytes in (SLAB_CAPACITIES_BYTES[-1], 3 * SLAB_CAPACITIES_BYTES[-1]):
        slab = SlabPool(0).acquire(size_bytes, is_at_hand=False)
        assert resident_at_the_first_byte(slab) < LARGE_STEP_BYTES
