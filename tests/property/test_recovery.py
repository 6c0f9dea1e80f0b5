"""Whatever lies in a bucket, a rebuild's plan is one that brokers can run on, and loses nothing that stands alone."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import decode_partition_record, encode_partition_record
from kafscale.log.reading.segment_inspection import InspectedSegment
from kafscale.log.references import SegmentReferences
from kafscale.tools.recovery.plan import DamagedObject, PartitionContents, PartitionPlan, plan_partition
from tests.tools.recovery.recovery_bucket import NAMESPACE, TOPIC, batch, inspected, key_of

EPOCHS = st.integers(-1, 3)
PRODUCERS = st.none() | st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3))


@st.composite
def segments(draw: st.DrawFn) -> InspectedSegment:
    """Of one to three batches with gaps and epochs between them, flushed or merged."""
    offset = draw(st.integers(0, 12))
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))
        batches.append(batch(offset, count, draw(EPOCHS), producer=draw(PRODUCERS)))
        offset += count + draw(st.integers(0, 1))
    return inspected(*batches, merged=draw(st.booleans()))


def damaged(base_offset: int) -> DamagedObject:
    return DamagedObject(
        key=key_of([batch(base_offset, 1, 0)]),
        base_offset=base_offset,
        last_offset=base_offset,
        is_merged=False,
        problem="damaged",
    )


BUCKETS = st.lists(segments(), max_size=7, unique_by=lambda segment: segment.key)
DAMAGED = st.sets(st.integers(0, 15), max_size=2)


def plan(found: list[InspectedSegment], broken: set[int]) -> PartitionPlan:
    bases = {segment.base_offset for segment in found if not segment.is_merged}
    return plan_partition(
        PartitionContents(
            namespace=NAMESPACE,
            topic=TOPIC,
            partition=0,
            segments=found,
            damaged=[damaged(base) for base in sorted(broken - bases)],
        )
    )


@given(BUCKETS, DAMAGED)
def test_every_segment_is_kept_or_skipped_and_kept_form_a_log(
    found: list[InspectedSegment], broken: set[int]
) -> None:
    planned = plan(found, broken)
    record = planned.record
    assert decode_partition_record("r", encode_partition_record(record)) == record
    references = SegmentReferences(record.segments)
    assert planned.segment_count == len(references) == len(found) - len(planned.dropped)
    assert record.log_start_offset <= record.log_end_offset
    for reference in references:
        assert record.log_start_offset <= reference.base_offset
        assert reference.last_offset < record.log_end_offset
    for before, after in pairwise(record.epochs):
        assert before.leader_epoch < after.leader_epoch and before.start_offset < after.start_offset
    for one in planned.damaged:
        assert one.last_offset < record.log_end_offset
    assert all(segment.leader_epoch < record.leader_epoch for segment in found)
    for producer in record.producers:
        assert 1 <= len(producer.batches) <= 5


@given(BUCKETS, DAMAGED, st.randoms())
def test_the_order_of_the_listing_does_not_matter(
    found: list[InspectedSegment], broken: set[int], chance: random.Random
) -> None:
    planned = plan(found, broken)
    chance.shuffle(found)
    assert plan(found, broken) == planned


@given(BUCKETS)
def test_segments_without_overlap_or_higher_epoch_are_kept(found: list[InspectedSegment]) -> None:
    planned = plan(found, set())
    repeats = {one.segment.key for one in planned.dropped if one.reason.name == "REPEATED"}
    kept = {reference.object_key or reference.base_offset for reference in planned.record.segments}
    for segment in found:
        others = [other for other in found if other is not segment]
        alone = all(
            other.last_offset < segment.base_offset or other.base_offset > segment.last_offset
            for other in others
        )
        highest = max(
            (other.leader_epoch for other in others if other.last_offset < segment.base_offset), default=-1
        )
        if alone and (segment.leader_epoch >= highest or segment.leader_epoch < 0):
            name = segment.key if segment.is_merged else segment.base_offset
            assert name in kept or segment.key in repeats


@given(BUCKETS)
def test_a_rebuild_of_what_was_kept_keeps_it_all(found: list[InspectedSegment]) -> None:
    planned = plan(found, set())
    left_out = {one.segment.key for one in planned.dropped}
    again = plan([segment for segment in found if segment.key not in left_out], set())
    assert again.record.segments == planned.record.segments
    assert again.record.log_end_offset == planned.record.log_end_offset
    assert again.record.producers == planned.record.producers
