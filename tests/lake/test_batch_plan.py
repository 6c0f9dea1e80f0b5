"""Batches bring every published offset of the target once, whatever happens to the log in between."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.lake.batch_plan import (
    BatchPlan,
    ExportRefusedError,
    GapPolicy,
    check_compacted,
    plan_batch,
    state_after,
    target_of_backfill,
    target_of_run,
    was_compacted,
)
from kafscale.lake.commit_errors import ExportMismatchError
from kafscale.lake.export_state import ExportState
from kafscale.lake.ranges import difference, intersection, union
from kafscale.reader.topic_state import PartitionLog, TopicLog

TOPIC = "orders"
TOPIC_ID = UUID(int=7)
GIB = 1024**3


def reference(
    base_offset: int, last_offset: int, size_bytes: int, record_count: int | None = None
) -> SegmentReference:
    return SegmentReference(
        base_offset=base_offset,
        last_offset=last_offset,
        record_count=last_offset - base_offset + 1 if record_count is None else record_count,
        leader_epoch=0,
        size_bytes=size_bytes,
        max_timestamp_ms=-1,
    )


def partition_log(index: int, ends: list[int], *, start: int = 0, size_bytes: int = 100) -> PartitionLog:
    """One segment up to each of the ends, which are offsets after its last."""
    bases = [0, *ends[:-1]]
    references = [
        reference(base, end - 1, size_bytes) for base, end in zip(bases, ends, strict=False) if end > start
    ]
    return PartitionLog(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=index,
        log_start_offset=start,
        log_end_offset=ends[-1] if ends else 0,
        references=tuple(references),
    )


def topic_log(*partitions: PartitionLog, topic_id: UUID = TOPIC_ID) -> TopicLog:
    return TopicLog(topic=TOPIC, topic_id=topic_id, partitions=partitions)


def nothing_yet() -> ExportState:
    return ExportState(topic=TOPIC)


def exported(end: int, start: int = 0) -> ExportState:
    return ExportState(
        topic=TOPIC,
        topic_id=str(TOPIC_ID),
        commit_id="c",
        starts={0: start},
        exported={0: ((start, end),)} if end > start else {},
    )


def plan(state: ExportState, log: TopicLog) -> BatchPlan:
    target = target_of_run(state, log, {one.partition: one.log_start_offset for one in log.partitions})
    return plan_batch(target, state, log, gap_policy=GapPolicy.FAIL, max_batch_bytes=GIB)


def test_all_of_a_log_the_first_time_and_what_is_new_the_second() -> None:
    first = plan(nothing_yet(), topic_log(partition_log(0, [5, 10]), partition_log(1, [])))
    assert (first.ranges, first.record_count) == ({0: (0, 10)}, 10)
    assert plan(exported(10), topic_log(partition_log(0, [5, 10]))).is_empty
    assert plan(exported(10), topic_log(partition_log(0, [5, 10, 12]))).ranges == {0: (10, 12)}


def test_references_do_not_count_records_inside_of_segments() -> None:
    assert plan(exported(7), topic_log(partition_log(0, [5, 10]))).record_count is None


def test_what_expired_is_refused_by_name_or_recorded() -> None:
    log = topic_log(partition_log(0, [5, 10], start=7))
    target = target_of_run(exported(3), log, {0: 0})
    with pytest.raises(ExportRefusedError, match=r"orders-0 offsets 3 to 6.*--on-expired record"):
        plan_batch(target, exported(3), log, gap_policy=GapPolicy.FAIL, max_batch_bytes=GIB)
    batch = plan_batch(target, exported(3), log, gap_policy=GapPolicy.RECORD, max_batch_bytes=GIB)
    assert (batch.gaps, batch.ranges) == ({0: ((3, 7),)}, {0: (7, 10)})


def test_records_expired_before_the_first_export_are_no_loss() -> None:
    assert plan(nothing_yet(), topic_log(partition_log(0, [5, 10], start=7))).ranges == {0: (7, 10)}


def test_a_partition_added_later_begins_at_zero() -> None:
    log = topic_log(partition_log(0, [10]), partition_log(1, [4]))
    target = target_of_run(exported(10), log, {0: 10, 1: 4})
    assert target.ranges[1] == ((0, 4),)


def test_a_topic_that_was_created_again_is_refused() -> None:
    with pytest.raises(ExportRefusedError, match="an earlier topic"):
        plan(exported(5), topic_log(partition_log(0, [10]), topic_id=UUID(int=8)))


def test_a_log_that_ends_before_the_table_is_refused() -> None:
    with pytest.raises(ExportRefusedError, match="up to offset 11, but the log ends at 10"):
        plan(exported(11), topic_log(partition_log(0, [10])))


def test_a_backfill_brings_what_is_missing_and_begins_nothing() -> None:
    state = exported(20, start=10)
    log = topic_log(partition_log(0, [5, 15, 25]))
    target = target_of_backfill(state, log, {0: (3, 40)})
    assert (target.ranges, target.starts) == ({0: ((3, 10), (20, 25))}, {})
    batch = plan_batch(target, state, log, gap_policy=GapPolicy.FAIL, max_batch_bytes=GIB)
    assert batch.ranges == {0: (3, 10)}


def test_a_backfill_into_a_new_table_leaves_the_rest_to_a_run() -> None:
    log = topic_log(partition_log(0, [5, 15, 25]))
    target = target_of_backfill(nothing_yet(), log, {0: (5, 15)})
    batch = plan_batch(target, nothing_yet(), log, gap_policy=GapPolicy.FAIL, max_batch_bytes=GIB)
    after = state_after(nothing_yet(), batch, "c1", str(TOPIC_ID), target.starts)
    assert target_of_run(after, log, {0: 0}).ranges == {0: ((0, 5), (15, 25))}


ends = st.lists(st.integers(1, 300), max_size=12, unique=True).map(sorted)


@given(
    st.lists(ends, min_size=1, max_size=3),
    st.integers(1, 2000),
    st.integers(0, 350),
    st.sampled_from(GapPolicy),
    st.data(),
)
def test_batches_until_nothing_is_left(
    partitions: list[list[int]], max_batch_bytes: int, start: int, policy: GapPolicy, data: st.DataObject
) -> None:
    logs = [partition_log(index, some, size_bytes=200) for index, some in enumerate(partitions)]
    target = target_of_run(nothing_yet(), topic_log(*logs), dict.fromkeys(range(len(logs)), 0))
    state, commits, held, turn = nothing_yet(), 0, topic_log(*logs), 0
    while True:
        batch = plan_batch(
            target, state, held, gap_policy=policy, max_batch_bytes=max_batch_bytes, begins_at=turn
        )
        if batch.is_empty:
            break
        turn = batch.next_turn
        largest = max((one.size_bytes for log in logs for one in log.references), default=0)
        assert batch.size_bytes <= max_batch_bytes + largest * len(batch.ranges)
        for partition, wanted in batch.ranges.items():
            assert not intersection((wanted,), state.done(partition))
        commits += 1
        state = state_after(state, batch, f"c{commits}", str(TOPIC_ID), target.starts)
        if policy is GapPolicy.RECORD and data.draw(st.booleans()):
            # Retention goes on meanwhile.
            held = topic_log(
                *(
                    partition_log(
                        log.partition, partitions[log.partition], start=min(start, log.log_end_offset)
                    )
                    for log in logs
                )
            )
    for log in logs:
        assert state.done(log.partition) == union(((0, log.log_end_offset),))
        assert not intersection(state.exported.get(log.partition, ()), state.gaps.get(log.partition, ()))
        lost = state.gaps.get(log.partition, ())
        assert not difference(lost, ((0, start),))


COMPACTED_KEY = (
    "default/orders/0/segment-00000000000000000000-00000000000000000009-00000000000000000010-0-t1.kfs"
)


def test_a_topic_is_compacted_by_its_policy_or_by_a_segment() -> None:
    plain = partition_log(0, [10, 20])
    assert not plan(nothing_yet(), topic_log(plain)).is_compacted
    assert plan(nothing_yet(), replace(topic_log(plain), compacts=True)).is_compacted
    first, second = plain.references
    compacted = replace(plain, references=(first._replace(record_count=3, object_key=COMPACTED_KEY), second))
    batch = plan(nothing_yet(), topic_log(partition_log(1, [4]), compacted))
    assert batch.is_compacted
    assert batch.offset_count == 24


def test_a_compacted_batch_has_as_many_rows_as_were_read() -> None:
    plain = topic_log(partition_log(0, [10, 20]))
    batch = plan(nothing_yet(), replace(plain, compacts=True))
    for count in (0, 7, 20):
        check_compacted(batch, TOPIC, count)
    with pytest.raises(ExportMismatchError) as problem:
        check_compacted(batch, TOPIC, 21)
    other = plan(nothing_yet(), plain)
    assert was_compacted(problem.value, other, replace(plain, compacts=True))
    assert not was_compacted(problem.value, batch, replace(plain, compacts=True))
    assert not was_compacted(problem.value, other, plain)
    assert not was_compacted(ValueError(), other, replace(plain, compacts=True))
