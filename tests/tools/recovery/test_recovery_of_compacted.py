"""A rebuild where compacted segments lie beside what they were made of, and beside older ones."""

from collections.abc import Iterable, Sequence

from kafscale.formats import object_keys
from kafscale.formats.object_keys import Compaction, parse_segment_key
from kafscale.log.compaction.cleaner import Cleaner, CleaningRules
from kafscale.log.compaction.offset_map import OffsetMap
from kafscale.log.reading.segment_inspection import InspectedSegment, SegmentInspection
from kafscale.tools.recovery.overlaps import Chosen, DropReason, choose
from tests.formats.segments import segment_of
from tests.log.compaction.logs_of_keys import Sent, batch_of, headers_in

FOLDER = ("default", "topic", 0)


def inspected(batches: bytes, compaction: Compaction | None = None) -> InspectedSegment:
    """The segment of these batches, as a rebuild reads it."""
    headers = headers_in(batches)
    data = segment_of([batches[start:end] for start, end in places(batches)])
    first, last = headers[0].base_offset, headers[-1].last_offset
    key = object_keys.merged_segment_key(*FOLDER, first, last)
    if compaction is not None:
        key = object_keys.compacted_segment_key(*FOLDER, first, last, compaction)
    inspection = SegmentInspection(key, parse_segment_key(key), len(data))
    inspection.feed(data)
    return inspection.finish()


def places(batches: bytes) -> Iterable[tuple[int, int]]:
    """Where each batch begins and ends."""
    position = 0
    for header in headers_in(batches):
        yield position, position + header.size_bytes
        position += header.size_bytes


def updates(first: int, last: int, leader_epoch: int = 1) -> bytes:
    """A batch for each update of one key."""
    return b"".join(
        batch_of([Sent(b"key", b"%d" % offset)], offset, leader_epoch=leader_epoch)
        for offset in range(first, last + 1)
    )


def compacted(batches: bytes, map_end_offset: int, token: str = "token") -> InspectedSegment:
    """The rest of them; with a map that ends behind them nothing is left but an empty batch."""
    rules = CleaningRules(
        now_ms=0, delete_retention_ms=0, first_dirty_offset=0, last_batches={}, opened_limit_bytes=1 << 20
    )
    cleaner = Cleaner(OffsetMap(1 << 16, 100, b""), rules)
    last = headers_in(batches)[-1].last_offset
    cleaner.map_batches(memoryview(batches + updates(last + 1, map_end_offset - 1)))
    kept = cleaner.clean(memoryview(batches)) + cleaner.end_object()[0]
    return inspected(kept, Compaction(map_end_offset, 1, token))


def kept(chosen: Chosen) -> list[str]:
    return [one.key for one in chosen.kept]


def test_a_compacted_segment_is_kept_beside_its_sources() -> None:
    sources = [inspected(updates(0, 4)), inspected(updates(5, 9))]
    newest = inspected(updates(10, 14))
    whole = compacted(updates(0, 9), 15)
    chosen = choose([*sources, whole, newest])
    assert kept(chosen) == [whole.key, newest.key]
    assert {one.segment.key: (one.reason, one.because) for one in chosen.dropped} == {
        source.key: (DropReason.COMPACTED, whole.key) for source in sources
    }


def test_its_sources_are_kept_where_it_is_gone() -> None:
    sources = [inspected(updates(0, 4)), inspected(updates(5, 9))]
    assert kept(choose(sources)) == [one.key for one in sources]


def test_of_two_compacted_ones_the_one_that_knew_more_is_kept() -> None:
    older = [compacted(updates(0, 4), 10, "a"), compacted(updates(5, 9), 10, "b")]
    newer = compacted(updates(0, 9), 20)
    assert kept(choose([*older, newer])) == [newer.key]
    same = compacted(updates(0, 4), 30, "z")
    assert kept(choose([older[0], same])) == [same.key]


def test_an_unpublished_merge_does_not_win_over_compacted_ones() -> None:
    first, second = compacted(updates(0, 9), 20), compacted(updates(10, 19), 20)
    # It lies across both; its epochs are theirs.
    across = inspected(updates(5, 14))
    assert kept(choose([first, across, second])) == [first.key, second.key]


def test_a_later_topic_of_the_name_wins_over_compacted_ones() -> None:
    old = compacted(updates(0, 9), 20)
    later: Sequence[InspectedSegment] = [inspected(updates(0, 4, leader_epoch=5))]
    assert kept(choose([old, *later])) == [later[0].key]
