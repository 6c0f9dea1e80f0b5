"""Index look-ups agree with a linear scan, and no bytes whatever make the reader fall over."""

import struct
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError
from kafscale.formats.index import LARGE_VERSION, LEGACY_VERSION, build_index, parse_index

Batches = list[tuple[int, int, int]]

versions = st.sampled_from([LEGACY_VERSION, LARGE_VERSION])


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    """(base offset, position, record count) of a segment's batches; offsets may have gaps."""
    base_offset = draw(st.integers(0, 2**62))
    steps = draw(
        st.lists(
            st.tuples(st.integers(1, 300), st.integers(0, 50), st.integers(61, 5000)), min_size=1, max_size=60
        )
    )
    offsets = accumulate((count + gap for count, gap, _ in steps[:-1]), initial=base_offset)
    positions = accumulate((size for _, _, size in steps[:-1]), initial=32)
    return [
        (offset, position, count)
        for offset, position, (count, _, _) in zip(offsets, positions, steps, strict=True)
    ]


@given(batches(), st.integers(1, 400), versions, st.data())
def test_a_look_up_agrees_with_a_linear_scan(
    laid: Batches, interval: int, version: int, data: st.DataObject
) -> None:
    index = parse_index("i", build_index(laid, interval, version=version), laid[0][0])
    entries = list(zip(index.offsets, index.positions, strict=True))
    assert set(entries) <= {(offset, position) for offset, position, _ in laid}

    offset = data.draw(st.integers(laid[0][0], laid[-1][0] + 500))
    assert index.position_for(offset) == [at for first, at in entries if first <= offset][-1]
    limit = data.draw(st.integers(32, laid[-1][1] + 100))
    assert index.position_limit(limit) == [at for _, at in entries if at <= limit][-1]


@given(batches(), st.integers(1, 400))
def test_only_the_header_distinguishes_index_versions(laid: Batches, interval: int) -> None:
    legacy, large = (
        build_index(laid, interval, version=version) for version in (LEGACY_VERSION, LARGE_VERSION)
    )
    assert len(legacy) == len(large)
    assert legacy[:4] + legacy[6:16] == large[:4] + large[6:16]
    read, read_large = (parse_index("i", stored, laid[0][0]) for stored in (legacy, large))
    assert (read.version, read_large.version) == (1, 2)
    assert (read.interval, read.offsets, read.positions) == (
        read_large.interval,
        read_large.offsets,
        read_large.positions,
    )


@given(batches(), st.integers(1, 400), versions)
def test_index_entries_follow_the_interval_and_the_batches(
    laid: Batches, interval: int, version: int
) -> None:
    index = parse_index("i", build_index(laid, interval, version=version), laid[0][0])
    offsets = [offset for offset, _, _ in laid]
    counts = [count for _, _, count in laid]
    indexed = [offsets.index(offset) for offset in index.offsets]
    for entry, following in pairwise(indexed):
        assert sum(counts[entry : following - 1]) < interval <= sum(counts[entry:following])
    assert sum(counts[indexed[-1] : -1]) < interval
    index.check(last_offset=laid[-1][0], body_end=laid[-1][1] + 61)


@given(st.binary(max_size=120), st.integers(0, 2**63 - 1))
def test_random_bytes_are_refused_or_read(data: bytes, base_offset: int) -> None:
    refuses_or_reads(data, base_offset)


@given(
    st.sampled_from([1, 2]),
    st.lists(st.binary(min_size=12, max_size=12), min_size=1, max_size=6),
    st.integers(0, 2**63 - 1),
)
def test_random_entries_are_refused_or_read(version: int, entries: list[bytes], base_offset: int) -> None:
    first = struct.pack(">qi", base_offset, 32) if version == 1 else struct.pack(">iq", 0, 32)
    header = struct.pack(">4sHIIH", b"IDX\0", version, len(entries), 100, 0)
    refuses_or_reads(header + first + b"".join(entries[1:]), base_offset)


@given(batches(), versions, st.data())
def test_a_changed_index_is_refused_or_still_in_order(
    laid: Batches, version: int, data: st.DataObject
) -> None:
    stored = bytearray(build_index(laid, version=version))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    refuses_or_reads(bytes(stored), laid[0][0])


def refuses_or_reads(data: bytes, base_offset: int) -> None:
    """Any error but the format's own gets through; what is read keeps the promises of an index."""
    try:
        index = parse_index("i", data, base_offset)
    except CorruptDataError as problem:
        assert problem.name == "i"
        return
    offsets, positions = list(index.offsets), list(index.positions)
    assert (offsets[0], positions[0]) == (base_offset, 32)
    assert offsets == sorted(set(offsets))
    assert positions == sorted(set(positions))
