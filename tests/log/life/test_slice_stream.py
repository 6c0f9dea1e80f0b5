"""Segments made of slices in memory: byte by byte the same as those that are made of whole slices."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError
from kafscale.formats.index import build_index, interval_for
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.log.life.combined_slice import SliceBody, combine, places_of_batches
from kafscale.log.life.slice_stream import CHUNK_BYTES, SliceStream, chunks_of
from tests.support.wire import batch

KEY = "default/t/0/segment.kfs"
INDEX_VERSION = 2


def slice_of(base_offset: int, counts: list[int]) -> SliceBody:
    """A slice with batches of so many records."""
    body, offset = bytearray(), base_offset
    for count in counts:
        one = bytearray(batch([b"value %d" % number for number in range(count)]))
        one[:8] = offset.to_bytes(8, "big")
        body += one
        offset += count
    reference = SegmentReference(
        base_offset=base_offset,
        last_offset=offset - 1,
        record_count=offset - base_offset,
        leader_epoch=len(counts),
        size_bytes=HEADER_SIZE + len(body) + FOOTER_SIZE,
        max_timestamp_ms=base_offset,
    )
    return SliceBody(reference, bytes(body))


def slices_of(counts: list[list[int]]) -> list[SliceBody]:
    found: list[SliceBody] = []
    for one in counts:
        found.append(slice_of(found[-1].reference.last_offset + 1 if found else 7, one))
    return found


@given(st.lists(st.lists(st.integers(1, 120), min_size=1, max_size=4), min_size=1, max_size=5), st.data())
def test_bytes_and_index_are_those_of_whole_slices(counts: list[list[int]], data: st.DataObject) -> None:
    bodies = slices_of(counts)
    stream = SliceStream(KEY, [one.reference for one in bodies], 5)
    views = [memoryview(one.batches) for one in bodies]
    added = []
    for chunk in data.draw(st.sampled_from([iter(views), chunks_of(views)])):
        stream.add(chunk)
        added.append(bytes(chunk))
    whole = combine(bodies, 5)
    assert (stream.header, b"".join(added), stream.footer) == whole.parts
    assert stream.reference.size_bytes == whole.reference.size_bytes == len(b"".join(whole.parts))
    interval = interval_for(whole.reference.size_bytes, whole.reference.record_count)
    places = places_of_batches(KEY, whole.body)
    assert stream.index(INDEX_VERSION) == build_index(places, interval, version=INDEX_VERSION)


@pytest.mark.parametrize("cut", [1, 61, 70])
def test_batches_that_do_not_end_are_refused(cut: int) -> None:
    (one,) = slices_of([[1, 1]])
    stream = SliceStream(KEY, [one.reference], 5)
    with pytest.raises(CorruptDataError, match="does not end there"):
        stream.add(one.batches[:-cut])


@given(st.lists(st.integers(0, CHUNK_BYTES), max_size=12))
def test_small_views_are_joined_and_large_ones_stay(sizes: list[int]) -> None:
    whole = random.Random(1).randbytes(CHUNK_BYTES)
    views = [memoryview(whole)[:size] for size in sizes]
    chunks = list(chunks_of(views))
    assert b"".join(chunks) == b"".join(views)
    large = [view for view in views if len(view) >= CHUNK_BYTES // 4]
    assert [chunk for chunk in chunks if isinstance(chunk, memoryview)] == large
    joined = [len(chunk) for chunk in chunks if isinstance(chunk, bytes)]
    assert all(size < 2 * CHUNK_BYTES for size in joined)
