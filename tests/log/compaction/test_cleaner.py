"""The records that compaction keeps, by Kafka's rules: single cases, and random logs against a dictionary."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafscale.log.compaction.cleaner import Cleaner, CleaningRules, CleaningTotals
from kafscale.log.compaction.offset_map import OffsetMap
from kafscale.protocol.record_batch import ATTRIBUTES_POSITION, HEADER_SIZE
from tests.log.compaction.logs_of_keys import (
    Sent,
    batch_of,
    headers_in,
    newest_values,
    records_in,
)

NOW_MS = 1_700_000_000_000
RETENTION_MS = 60_000
SECRET = b"secret"


def cleaner(
    *,
    first_dirty_offset: int = 0,
    now_ms: int = NOW_MS,
    last_batches: Mapping[int, int] | None = None,
    keys: int = 1000,
    opened_limit_bytes: int = 1 << 20,
) -> Cleaner:
    rules = CleaningRules(
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        first_dirty_offset=first_dirty_offset,
        last_batches=last_batches or {},
        opened_limit_bytes=opened_limit_bytes,
    )
    return Cleaner(OffsetMap(1 << 20, keys, SECRET), rules)


def compact(log: bytes, one: Cleaner | None = None) -> tuple[bytes, CleaningTotals]:
    """The whole log in one object."""
    one = one or cleaner()
    one.map_batches(memoryview(log))
    kept = one.clean(memoryview(log))
    rest, totals = one.end_object()
    return kept + rest, totals


def check_chain(batches: bytes, first_offset: int, end_offset: int) -> None:
    """Every offset lies in exactly one batch, and every batch has its CRC."""
    position = 0
    for header in headers_in(batches):
        assert header.base_offset == first_offset
        first_offset = header.last_offset + 1
        assert 0 <= header.record_count <= header.last_offset_delta + 1
        covered = batches[position + ATTRIBUTES_POSITION : position + header.size_bytes]
        assert crc32c(covered) == header.crc
        position += header.size_bytes
    assert first_offset == end_offset


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    log = batch_of([Sent(b"a", b"1"), Sent(b"b", b"1"), Sent(b"a", b"2")]) + batch_of(
        [Sent(b"c", b"1"), Sent(b"b", b"2")], 3
    )
    kept, totals = compact(log)
    assert [(one.offset, one.key, one.value) for one in records_in(kept)] == [
        (2, b"a", b"2"),
        (3, b"c", b"1"),
        (4, b"b", b"2"),
    ]
    assert (totals.records, totals.removed_records, totals.changed_batches) == (5, 2, 1)
    check_chain(kept, 0, 5)


def test_a_batch_that_loses_nothing_stays_byte_for_byte() -> None:
    kept_whole = batch_of([Sent(b"b", b"1"), Sent(b"c", b"1")], 1, codec="zstd", producer=(7, 0, 0))
    log = batch_of([Sent(b"a", b"1")]) + kept_whole + batch_of([Sent(b"a", b"2")], 3)
    kept, _ = compact(log)
    assert kept_whole in kept
    assert kept.endswith(log[-len(batch_of([Sent(b"a", b"2")], 3)) :])


def test_what_is_gone_leaves_an_empty_batch_for_each_epoch() -> None:
    log = b"".join(
        batch_of([Sent(b"a", b"%d" % offset)], offset, leader_epoch=epoch)
        for offset, epoch in enumerate((1, 1, 2, 2, 2))
    )
    kept, totals = compact(log)
    assert [
        (one.base_offset, one.last_offset, one.record_count, one.partition_leader_epoch)
        for one in headers_in(kept)
    ] == [(0, 1, 0, 1), (2, 3, 0, 2), (4, 4, 1, 2)]
    assert totals.removed_records == 4
    # A later compaction finds nothing to do.
    again, totals = compact(kept)
    assert again == kept
    assert not totals.has_changes


def test_neighbouring_empty_batches_become_one() -> None:
    first, _ = compact(batch_of([Sent(b"a", b"1")]) + batch_of([Sent(b"a", b"2")], 1))
    log = first + batch_of([Sent(b"a", b"3")], 2)
    kept, _ = compact(log)
    assert [(one.base_offset, one.last_offset, one.record_count) for one in headers_in(kept)] == [
        (0, 1, 0),
        (2, 2, 1),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_rest_of_a_batch_has_its_codec_and_its_producer(codec: str) -> None:
    sent = [Sent(b"key-%d" % (number % 3), b"value" * 50, NOW_MS + number) for number in range(10)]
    log = batch_of(sent, 5, codec=codec, producer=(7, 2, 100))
    one = cleaner(first_dirty_offset=5)
    kept, _ = compact(log, one)
    (before,), (after,) = headers_in(log), headers_in(kept)
    assert after._replace(batch_length=0, crc=0) == before._replace(batch_length=0, crc=0, record_count=3)
    assert [(record.offset, record.timestamp_ms) for record in records_in(kept)] == [
        (12, NOW_MS + 7),
        (13, NOW_MS + 8),
        (14, NOW_MS + 9),
    ]
    assert all(record.headers == (("name", b"header"),) for record in records_in(kept))


def test_a_tombstone_stays_for_its_time() -> None:
    log = batch_of([Sent(b"a", b"1", NOW_MS - 5), Sent(b"b", b"1", NOW_MS - 4), Sent(b"a", None, NOW_MS - 3)])
    kept, totals = compact(log)
    (header,) = headers_in(kept)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert [(one.offset, one.value, one.timestamp_ms) for one in records_in(kept)] == [
        (1, b"1", NOW_MS - 4),
        (2, None, NOW_MS - 3),
    ]
    assert header.max_timestamp == NOW_MS - 3
    # Too early: the batch is what it was, and its horizon, too.
    early, totals = compact(kept, cleaner(now_ms=NOW_MS + RETENTION_MS - 1))
    assert early == kept
    late, totals = compact(kept, cleaner(now_ms=NOW_MS + RETENTION_MS))
    assert [(one.offset, one.value, one.timestamp_ms) for one in records_in(late)] == [(1, b"1", NOW_MS - 4)]
    assert totals.removed_tombstones == 1
    check_chain(late, 0, 3)


def test_a_tombstone_that_the_map_does_not_reach_stays() -> None:
    """It has not had its say: what is older of its key may be there still."""
    log = batch_of([Sent(b"a", None)])
    dated, _ = compact(log)
    beyond = dated + batch_of([Sent(b"b", b"1")], 1)
    one = cleaner(now_ms=NOW_MS + 2 * RETENTION_MS, first_dirty_offset=0)
    # Nothing is mapped.
    assert one.clean(memoryview(beyond)) + one.end_object()[0] == beyond


def test_the_newest_batch_of_a_known_producer_stays_empty() -> None:
    log = batch_of([Sent(b"a", b"1")], producer=(7, 1, 0)) + batch_of(
        [Sent(b"a", b"2")], 1, producer=(8, 0, 0)
    )
    kept, _ = compact(log, cleaner(last_batches={7: 0, 8: 1}))
    first, _ = headers_in(kept)
    assert (first.record_count, first.producer_id, first.producer_epoch, first.base_sequence) == (0, 7, 1, 0)
    assert first.size_bytes == HEADER_SIZE
    check_chain(kept, 0, 2)
    # Forgotten, or with a newer batch, it goes.
    gone, totals = compact(kept, cleaner(last_batches={8: 1}))
    assert headers_in(gone)[0].producer_id == -1
    assert totals.has_changes


def test_records_without_a_key_go() -> None:
    """As in Kafka: the topic had another policy when they were written."""
    kept, totals = compact(batch_of([Sent(None, b"1"), Sent(b"a", b"1")]))
    assert [one.key for one in records_in(kept)] == [b"a"]
    assert totals.removed_records == 1


def test_what_cannot_be_read_stays_as_it_is() -> None:
    unreadable = bytearray(batch_of([Sent(b"a", b"1" * 100)], codec="gzip"))
    unreadable[HEADER_SIZE + 20] ^= 0xFF
    bomb = batch_of([Sent(b"a", b"0" * 100_000)], 1, codec="zstd")
    log = bytes(unreadable) + bomb + batch_of([Sent(b"a", b"2")], 2)
    kept, totals = compact(log, cleaner(opened_limit_bytes=10_000))
    assert kept == log
    assert totals.unreadable_batches == 2


def test_a_full_map_ends_between_two_batches() -> None:
    log = b"".join(batch_of([Sent(b"%d-%d" % (n, k), b"1") for k in range(5)], 5 * n) for n in range(10))
    one = cleaner(keys=20)
    one.map_batches(memoryview(log))
    assert one.is_full
    assert one.map_end_offset % 5 == 0
    assert 0 < one.map_end_offset < 50
    one.map_batches(memoryview(log))
    assert one.is_full


KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"key", b"k" * 200])
VALUES = st.one_of(st.none(), st.binary(max_size=5))
CODECS = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])
BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6), CODECS), min_size=1, max_size=8
)


def written(batches: Iterable[tuple[Sequence[tuple[bytes, bytes | None]], str]], offset: int) -> bytes:
    log = b""
    for records, codec in batches:
        log += batch_of([Sent(key, value, NOW_MS) for key, value in records], offset, codec=codec)
        offset += len(records)
    return log


@given(rounds=st.lists(st.tuples(BATCHES, st.integers(0, 2 * RETENTION_MS)), min_size=1, max_size=4))
def test_a_log_compacted_again_and_again_equals_a_dictionary(
    rounds: list[tuple[list[tuple[list[tuple[bytes, bytes | None]], str]], int]],
) -> None:
    log, end_offset, now_ms = b"", 0, NOW_MS
    expected: dict[bytes, bytes] = {}
    for batches, passed_ms in rounds:
        fresh = written(batches, end_offset)
        first_dirty_offset = end_offset
        for records, _ in batches:
            end_offset += len(records)
            for key, value in records:
                if value is None:
                    expected.pop(key, None)
                else:
                    expected[key] = value
        now_ms += passed_ms
        before = records_in(log + fresh)
        one = cleaner(first_dirty_offset=first_dirty_offset, now_ms=now_ms)
        one.map_batches(memoryview(fresh))
        assert one.map_end_offset == end_offset
        log = one.clean(memoryview(log + fresh)) + one.end_object()[0]
        after = records_in(log)
        assert newest_values(after) == expected
        assert len({record.key for record in after}) == len(after), "one record a key"
        assert [record for record in before if record in after] == after, "nothing new, nothing changed"
        check_chain(log, 0, end_offset)


@given(batches=BATCHES, cuts=st.lists(st.integers(0, 7), max_size=3))
def test_how_the_batches_are_divided_makes_no_difference(
    batches: list[tuple[list[tuple[bytes, bytes | None]], str]], cuts: list[int]
) -> None:
    log = written(batches, 0)
    whole, _ = compact(log)
    starts = [0]
    for header in headers_in(log):
        starts.append(starts[-1] + header.size_bytes)
    places = sorted({0, len(starts) - 1, *(min(cut, len(starts) - 1) for cut in cuts)})
    one = cleaner()
    pieces = [log[starts[a] : starts[b]] for a, b in pairwise(places)]
    for piece in pieces:
        one.map_batches(memoryview(piece))
    parts = [one.clean(memoryview(piece)) for piece in pieces]
    assert b"".join(parts) + one.end_object()[0] == whole
