"""Decisions of a rebuild: which segments are kept, why the others are not, and what the record says then."""

from collections.abc import Sequence

import pytest

from kafscale.formats.checkpoint import Checkpoint, decode_checkpoint
from kafscale.formats.object_keys import parse_checkpoint_key
from kafscale.formats.partition_record import EpochStart, ProducerRecord
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.log.reading.segment_inspection import InspectedSegment
from kafscale.tools.recovery.overlaps import DropReason
from kafscale.tools.recovery.plan import (
    PASSED_OVER_EPOCHS,
    DamagedObject,
    FoundCheckpoint,
    Hole,
    HoleReason,
    PartitionContents,
    PartitionPlan,
    empty_partition,
    plan_partition,
)
from tests.tools.recovery.recovery_bucket import NAMESPACE, NOW_MS, TOPIC, batch, inspected, key_of

DAY_MS = 24 * 60 * 60 * 1000


def plan(
    *segments: InspectedSegment,
    damaged: Sequence[DamagedObject] = (),
    checkpoint: FoundCheckpoint | None = None,
) -> PartitionPlan:
    return plan_partition(
        PartitionContents(
            namespace=NAMESPACE,
            topic=TOPIC,
            partition=0,
            segments=segments,
            damaged=damaged,
            checkpoint=checkpoint,
        )
    )


def bases(found: PartitionPlan) -> list[int]:
    return [reference.base_offset for reference in found.record.segments]


def reasons(found: PartitionPlan) -> dict[int, DropReason]:
    return {one.segment.base_offset: one.reason for one in found.dropped}


def flushed(
    base: int, count: int, epoch: int, producer: tuple[int, int, int] | None = None
) -> InspectedSegment:
    return inspected(batch(base, count, epoch, producer=producer))


def damaged_at(base: int, last: int) -> DamagedObject:
    key = key_of([batch(base, 1, 0)])
    return DamagedObject(key=key, base_offset=base, last_offset=last, is_merged=False, problem="bad CRC")


# --- the record


def test_an_undisturbed_log_comes_back_as_it_was() -> None:
    found = plan(flushed(0, 3, 0), flushed(3, 2, 0), flushed(5, 4, 2))
    assert bases(found) == [0, 3, 5]
    assert (found.segment_count, found.record_count) == (3, 9)
    assert not found.dropped and not found.holes and not found.problems
    record = found.record
    assert (record.log_start_offset, record.log_end_offset) == (0, 9)
    assert record.epochs == (EpochStart(0, 0), EpochStart(2, 5))
    first = record.segments[0]
    assert (first.last_offset, first.record_count, first.leader_epoch, first.object_key) == (2, 3, 0, "")
    assert first.size_bytes + sum(other.size_bytes for other in record.segments[1:]) == found.size_bytes
    assert first.max_timestamp_ms == NOW_MS + 2


def test_next_epoch_is_above_all_that_was_or_may_have_been_seen() -> None:
    leftover, published = flushed(3, 5, 6), flushed(4, 1, 9)
    found = plan(flushed(0, 3, 2), leftover, published)
    assert found.highest_epoch == 9
    assert found.record.leader_epoch == 9 + PASSED_OVER_EPOCHS
    assert plan(leftover).record.leader_epoch == 6 + PASSED_OVER_EPOCHS
    assert empty_partition(TOPIC, 3).record.leader_epoch == PASSED_OVER_EPOCHS - 1


def test_the_log_starts_at_the_first_segment_that_is_left() -> None:
    found = plan(flushed(100, 3, 4))
    assert (found.record.log_start_offset, found.record.log_end_offset) == (100, 103)
    assert found.record.epochs == (EpochStart(4, 100),)


def test_a_partition_without_objects_is_empty() -> None:
    record = empty_partition(TOPIC, 3).record
    assert (record.log_start_offset, record.log_end_offset, record.segments) == (0, 0, ())


def test_segments_without_epoch_are_adopted_without_history() -> None:
    found = plan(flushed(0, 3, -1), flushed(3, 3, 0), flushed(6, 3, -1), flushed(9, 1, 1))
    assert bases(found) == [0, 3, 6, 9]
    assert found.record.epochs == (EpochStart(0, 3), EpochStart(1, 9))


def test_the_order_in_which_segments_are_listed_does_not_matter() -> None:
    segments = [flushed(0, 3, 0), flushed(3, 5, 0), flushed(4, 1, 1), flushed(5, 2, 1)]
    assert plan(*segments) == plan(*reversed(segments))


# --- leftovers


def test_where_ranges_overlap_the_higher_epoch_wins() -> None:
    found = plan(flushed(0, 3, 0), flushed(3, 5, 0), flushed(4, 2, 1), flushed(6, 2, 1))
    assert bases(found) == [0, 4, 6]
    [dropped] = found.dropped
    assert (dropped.segment.base_offset, dropped.reason) == (3, DropReason.LEFTOVER)
    assert dropped.because == key_of([batch(4, 2, 1)])
    assert found.holes == (Hole(first_offset=3, last_offset=3, reason=HoleReason.SKIPPED),)


def test_an_orphan_that_was_beaten_still_beats() -> None:
    """Two leaders failed one after the other; the second had seen that the first did not publish."""
    found = plan(flushed(0, 2, 0), flushed(1, 5, 1), flushed(2, 3, 2))
    assert bases(found) == [2]
    assert set(reasons(found)) == {0, 1}


def test_of_the_same_epoch_the_higher_base_offset_was_published() -> None:
    found = plan(flushed(0, 10, 3), flushed(1, 1, 3))
    assert bases(found) == [1]


def test_a_single_record_that_may_have_been_published_is_kept() -> None:
    found = plan(flushed(0, 3, 0), flushed(3, 1, 0), flushed(4, 2, 1))
    assert bases(found) == [0, 3, 4]


def test_an_orphan_at_the_end_is_kept() -> None:
    found = plan(flushed(0, 3, 0), flushed(3, 4, 1))
    assert found.record.log_end_offset == 7


def test_single_record_written_again_is_an_orphan() -> None:
    found = plan(
        flushed(0, 3, 0, (9, 0, 0)),
        flushed(3, 1, 0, (9, 0, 3)),
        flushed(4, 2, 1, (8, 0, 0)),
        flushed(6, 1, 1, (9, 0, 3)),
    )
    assert bases(found) == [0, 4, 6]
    assert reasons(found) == {3: DropReason.REPEATED}
    assert found.dropped[0].because == key_of([batch(6, 1, 1)])
    [nine] = [producer for producer in found.record.producers if producer.producer_id == 9]
    assert nine.batches == (ProducerBatch(0, 2, 0), ProducerBatch(3, 3, 6))


@pytest.mark.parametrize(
    "again",
    [
        pytest.param((9, 0, 4), id="the next batch"),
        pytest.param((9, 1, 3), id="another producer epoch"),
        pytest.param((10, 0, 3), id="another producer"),
    ],
)
def test_only_the_very_same_batch_proves_an_orphan(again: tuple[int, int, int]) -> None:
    found = plan(flushed(3, 1, 0, (9, 0, 3)), flushed(4, 1, 1, again))
    assert bases(found) == [3, 4]


def test_a_segment_of_which_only_a_part_comes_again_is_kept() -> None:
    mixed = inspected(batch(0, 1, 0, producer=(9, 0, 0)), batch(1, 1, 0, producer=(8, 0, 0)))
    assert bases(plan(mixed, flushed(2, 1, 1, (9, 0, 0)))) == [0, 2]
    both = plan(mixed, flushed(2, 1, 1, (9, 0, 0)), flushed(3, 1, 1, (8, 0, 0)))
    assert bases(both) == [2, 3]


def test_a_writer_that_stamps_nothing_and_repeats_is_believed() -> None:
    found = plan(flushed(0, 1, -1, (9, 0, 0)), flushed(1, 1, -1, (9, 0, 0)))
    assert bases(found) == [0, 1]


def test_segment_of_an_older_topic_far_above_is_an_orphan() -> None:
    found = plan(flushed(0, 3, 4), flushed(500, 3, 2), flushed(3, 2, 5))
    assert bases(found) == [0, 3]
    assert reasons(found) == {500: DropReason.OLD_LEADER}
    assert found.record.log_end_offset == 5


def test_overlaps_without_epochs_keep_the_most_from_the_end() -> None:
    found = plan(flushed(100, 50, -1), flushed(120, 51, -1), flushed(150, 50, -1), flushed(171, 40, -1))
    assert bases(found) == [120, 171]
    assert reasons(found) == {100: DropReason.UNDECIDED, 150: DropReason.UNDECIDED}


# --- merged segments

A, B, C, D = batch(0, 3, 0), batch(3, 2, 1), batch(6, 2, 2), batch(8, 1, 2)
SOURCES = [inspected(one) for one in (A, B, C, D)]


def test_a_merged_segment_covers_its_sources_over_a_gap() -> None:
    merged = inspected(A, B, C, merged=True)
    found = plan(*SOURCES, merged)
    assert bases(found) == [0, 8]
    assert found.record.segments[0].object_key == merged.key
    assert found.record.epochs == (EpochStart(0, 0), EpochStart(1, 3), EpochStart(2, 6))
    assert set(reasons(found).values()) == {DropReason.COVERED}
    assert found.holes == (Hole(first_offset=5, last_offset=5, reason=HoleReason.UNKNOWN),)


def test_a_merge_of_merged_segments_covers_them() -> None:
    whole = inspected(A, B, C, D, merged=True)
    found = plan(inspected(A, B, merged=True), inspected(C, D, merged=True), SOURCES[3], whole)
    assert [reference.object_key for reference in found.record.segments] == [whole.key]


def test_overlapping_merged_segments_keep_those_that_cover_all() -> None:
    """One of them was never published, and the other's sources are gone."""
    found = plan(SOURCES[0], SOURCES[1], inspected(A, B, C, merged=True), inspected(C, D, merged=True))
    assert found.record_count == 8
    assert found.record.log_end_offset == 9


def test_unpublished_merged_segment_loses_to_later_segments() -> None:
    """Retention took A and B; the merged segment that still holds them overlaps one that was published."""
    found = plan(inspected(A, B, C, merged=True), inspected(C, D, merged=True))
    assert bases(found) == [6]
    assert reasons(found) == {0: DropReason.OVERLAPPED}
    assert found.record.log_end_offset == 9


def test_an_orphan_in_a_gap_of_a_merged_segment_is_one() -> None:
    found = plan(inspected(A, B, C, merged=True), flushed(5, 1, 1))
    assert bases(found) == [0]
    assert reasons(found) == {5: DropReason.LEFTOVER}


def test_orphan_in_the_place_of_a_removed_source_is_one() -> None:
    found = plan(inspected(A, B, C, merged=True), inspected(batch(3, 2, 1, text="other")), SOURCES[3])
    assert bases(found) == [0, 8]
    assert reasons(found) == {3: DropReason.LEFTOVER}


def test_merged_segment_of_older_topic_loses_to_higher_epochs() -> None:
    found = plan(inspected(A, B, C, merged=True), flushed(0, 1, 5), flushed(1, 1, 5))
    assert bases(found) == [0, 1]
    assert found.record.log_end_offset == 2


# --- damage and holes


def test_damaged_segment_leaves_a_hole_and_uses_its_offsets_up() -> None:
    found = plan(flushed(0, 3, 0), flushed(8, 2, 0), damaged=[damaged_at(3, 7), damaged_at(10, 14)])
    assert bases(found) == [0, 8]
    assert found.record.log_end_offset == 15
    assert found.holes == (
        Hole(first_offset=3, last_offset=7, reason=HoleReason.DAMAGED),
        Hole(first_offset=10, last_offset=14, reason=HoleReason.DAMAGED),
    )


def test_an_orphan_does_not_replace_a_damaged_segment() -> None:
    found = plan(flushed(0, 3, 0), flushed(3, 5, 0), damaged=[damaged_at(4, 6)])
    assert bases(found) == [0]
    assert reasons(found) == {3: DropReason.LEFTOVER}
    assert found.record.log_end_offset == 7


def test_only_damaged_segments_leave_an_empty_log_behind_them() -> None:
    record = plan(damaged=[damaged_at(10, 14)]).record
    assert (record.log_start_offset, record.log_end_offset) == (15, 15)


# --- checkpoints and producers


def checkpoint_of(
    end_offset: int, epoch: int, *segments: InspectedSegment, producers: Sequence[ProducerRecord] = ()
) -> FoundCheckpoint:
    references = plan(*segments).record.segments
    return FoundCheckpoint(
        key="checkpoint",
        leader_epoch=epoch,
        checkpoint=Checkpoint(end_offset=end_offset, segments=references, producers=tuple(producers)),
    )


def producer(number: int, *batches: ProducerBatch, epoch: int = 0, time_ms: int = NOW_MS) -> ProducerRecord:
    return ProducerRecord(
        producer_id=number, producer_epoch=epoch, last_timestamp_ms=time_ms, batches=batches
    )


def test_checkpoint_knows_the_end_of_a_log_without_segments() -> None:
    record = plan(checkpoint=checkpoint_of(500, 7)).record
    assert (record.log_start_offset, record.log_end_offset) == (500, 500)
    assert record.leader_epoch == 7 + PASSED_OVER_EPOCHS


def test_missing_segment_of_a_checkpoint_is_a_loss() -> None:
    first, lost, last = flushed(0, 3, 0), flushed(3, 2, 0), flushed(5, 1, 0)
    found = plan(first, last, checkpoint=checkpoint_of(6, 0, first, lost, last))
    assert found.holes == (Hole(first_offset=3, last_offset=4, reason=HoleReason.LOST),)


def test_producers_are_of_the_checkpoint_and_of_later_batches() -> None:
    known = producer(1, ProducerBatch(0, 4, 40), ProducerBatch(5, 9, 45))
    gone = producer(2, ProducerBatch(0, 0, 30))
    found = plan(
        flushed(50, 5, 1, (1, 0, 10)),
        flushed(55, 2, 1, (3, 0, 0)),
        checkpoint=checkpoint_of(50, 0, producers=[known, gone]),
    )
    assert found.record.producers == (
        producer(1, ProducerBatch(0, 4, 40), ProducerBatch(5, 9, 45), ProducerBatch(10, 14, 50)),
        gone,
        producer(3, ProducerBatch(0, 1, 55)),
    )


def test_producer_has_the_newest_batches_of_its_newest_epoch() -> None:
    segments = [flushed(n, 1, 0, (1, 0, n)) for n in range(8)]
    batches = plan(*segments).record.producers[0].batches
    assert batches == (ProducerBatch(0, 2, 0), *(ProducerBatch(n, n, n) for n in range(3, 8)))
    renewed = plan(*segments, flushed(8, 1, 0, (1, 1, 0))).record.producers[0]
    assert (renewed.producer_epoch, renewed.batches) == (1, (ProducerBatch(0, 0, 8),))


def test_producers_that_were_idle_for_a_day_are_left_out() -> None:
    old = inspected(batch(0, 1, 0, producer=(1, 0, 0)), created_ms=NOW_MS - DAY_MS - 1)
    recent = inspected(batch(1, 1, 0, producer=(2, 0, 0)), created_ms=NOW_MS - DAY_MS)
    newest = inspected(batch(2, 1, 0), created_ms=NOW_MS)
    found = plan(old, recent, newest)
    assert [one.producer_id for one in found.record.producers] == [2]
    assert found.highest_producer_id == 2


def test_ids_of_producers_count_wherever_they_are_found() -> None:
    leftover = flushed(0, 5, 0, (77, 0, 0))
    assert plan(leftover, flushed(1, 1, 1)).highest_producer_id == 77
    assert plan(checkpoint=checkpoint_of(5, 0, producers=[producer(99)])).highest_producer_id == 99
    assert plan(flushed(0, 1, 0)).highest_producer_id == -1


def test_a_checkpoint_of_an_older_topic_of_the_name_is_not_used() -> None:
    stale = checkpoint_of(500, 3, producers=[producer(1, ProducerBatch(0, 0, 7))])
    found = plan(flushed(0, 2, 4), checkpoint=stale)
    assert found.record.log_end_offset == 2
    assert found.record.producers == ()
    assert "older topic" in found.problems[0]


def test_what_the_record_has_no_room_for_is_in_one_checkpoint() -> None:
    segments = [flushed(n, 1, 2, (n % 3, 0, n)) for n in range(128)]
    found = plan(*segments)
    record = found.record
    assert not record.segments and not record.producers
    assert record.checkpoint_end_offset == record.log_end_offset == 128
    parsed = parse_checkpoint_key(record.checkpoint_key)
    assert parsed is not None
    assert (parsed.topic, parsed.log_end_offset, parsed.leader_epoch) == (TOPIC, 128, 2)
    checkpoint = decode_checkpoint(record.checkpoint_key, found.checkpoint_data)
    assert (len(checkpoint.segments), len(checkpoint.producers)) == (128, 3)
    assert plan(*segments) == found
    # The checkpoint is part of what the next run finds.
    again = FoundCheckpoint(key=record.checkpoint_key, leader_epoch=2, checkpoint=checkpoint)
    assert plan(*segments, checkpoint=again) == found
    assert not plan(*segments[:127]).checkpoint_data


def test_many_producers_go_to_a_checkpoint_as_well() -> None:
    whole = inspected(*(batch(n, 1, 0, producer=(n, 0, 0)) for n in range(256)))
    found = plan(whole)
    assert found.record.checkpoint_key and not found.record.producers
