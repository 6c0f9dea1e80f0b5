"""A share partition, step by step: the rules that a reader of KIP-932 looks for."""

import pytest

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.share.partition.acknowledging import AcknowledgedBatch, AcknowledgeType, acknowledge
from kafscale.share.partition.acquiring import Acquired, AcquireMode, LogBatch, Wanted, acquire
from kafscale.share.partition.releasing import end_locks, release_member
from kafscale.share.partition.runs import RecordState, Run
from kafscale.share.partition.share_partition import DurableState, ShareLimits, SharePartition

ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)
LOG = [LogBatch(0, 9), LogBatch(10, 19), LogBatch(20, 29)]


def opened(start: int = 0, **limits: int) -> SharePartition:
    return SharePartition.of(DurableState(start), ShareLimits(**limits))


def take(
    partition: SharePartition, member: str = "a", most: int = 500, *, now_ms: int = 0, size: int = 500
) -> list[Acquired]:
    """Acquire records, once all that was said is durable."""
    partition.stored(partition.version)
    offset = partition.next_fetch_offset()
    log = [batch for batch in LOG if batch.last >= offset]
    return acquire(partition, Wanted(member, most, size), offset, log, now_ms)


def say(
    partition: SharePartition,
    first: int,
    last: int,
    *types: AcknowledgeType,
    member: str = "a",
    now_ms: int = 0,
) -> None:
    acknowledge(partition, member, [AcknowledgedBatch(first, last, types)], now_ms)


def refusal(partition: SharePartition, first: int, last: int, member: str = "a") -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        say(partition, first, last, ACCEPT, member=member)
    return refused.value.code


def test_the_number_of_records_is_met_by_whole_batches() -> None:
    assert take(opened(), most=11) == [Acquired(0, 19, 1)]


def test_ranges_end_with_batches_at_the_batch_size() -> None:
    assert take(opened(), size=20) == [Acquired(0, 19, 1), Acquired(20, 29, 1)]
    assert take(opened(), size=5) == [Acquired(0, 9, 1), Acquired(10, 19, 1), Acquired(20, 29, 1)]


def test_records_given_back_in_two_batches_stay_whole() -> None:
    """A batch that begins within them left a run of no records, which could not be stored."""
    partition = opened()
    take(partition)
    say(partition, 0, 4, RELEASE)
    partition.stored(partition.version)
    say(partition, 5, 29, RELEASE)
    acquired = acquire(partition, Wanted("b", 500, 500), 0, LOG, 0)
    assert acquired == [Acquired(0, 4, 2)]
    runs = partition.durable_state().runs
    assert [(run.first, run.last, run.delivery_count) for run in runs] == [(0, 4, 2), (5, 29, 1)]


def test_a_record_limit_cuts_a_batch() -> None:
    partition = opened()
    wanted = Wanted("a", 13, 500, AcquireMode.RECORD_LIMIT)
    assert acquire(partition, wanted, 0, LOG, 0) == [Acquired(0, 12, 1)]
    assert take(partition, "b", 1) == [Acquired(13, 19, 1)]


def test_no_record_is_given_to_two_members() -> None:
    partition = opened()
    assert take(partition, "a", 5) == [Acquired(0, 9, 1)]
    assert take(partition, "b", 5) == [Acquired(10, 19, 1)]
    say(partition, 0, 9, ACCEPT)
    assert refusal(partition, 10, 19) is ErrorCode.INVALID_RECORD_STATE
    assert partition.start_offset == 10


def test_accept_moves_the_start_over_what_is_finished() -> None:
    partition = opened()
    take(partition)
    say(partition, 10, 29, ACCEPT)
    assert partition.start_offset == 0
    say(partition, 0, 9, ACCEPT)
    assert (partition.start_offset, partition.end_offset, len(partition.runs)) == (30, 30, 0)


def test_released_records_are_given_again_and_counted() -> None:
    partition = opened()
    take(partition)
    say(partition, 0, 9, ACCEPT, ACCEPT, RELEASE, RELEASE, ACCEPT, REJECT, ACCEPT, ACCEPT, ACCEPT, ACCEPT)
    assert partition.start_offset == 2
    assert take(partition, "b") == [Acquired(2, 3, 2)]
    assert (partition.counts.accepted, partition.counts.released, partition.counts.rejected) == (7, 2, 1)


def test_after_its_deliveries_a_record_is_archived() -> None:
    partition = opened(max_deliveries=3)
    take(partition, most=1)
    say(partition, 0, 9, *[RELEASE if offset == 4 else ACCEPT for offset in range(10)])
    assert take(partition, "b", most=1) == [Acquired(4, 4, 2)]
    end_locks(partition, 10**9)
    assert take(partition, "c", most=1) == [Acquired(4, 4, 3)]
    end_locks(partition, 10**9)
    assert partition.start_offset == 10
    assert partition.counts.archived == 1


def test_a_bad_record_is_isolated_from_its_neighbours() -> None:
    """The member that has record 5 dies with all that it has; the others accept. Only the bad one is archived."""
    partition, deaths = opened(), 0
    while partition.start_offset < 10:
        (acquired, *others) = take(partition, most=10)
        if acquired.delivery_count > 3:
            assert not others
        if acquired.first <= 5 <= acquired.last:
            release_member(partition, "a")
            deaths += 1
        else:
            for one in (acquired, *others):
                say(partition, one.first, one.last, ACCEPT)
    assert deaths == 5
    assert (partition.counts.archived, partition.counts.accepted) == (1, 9)


def test_records_that_came_back_often_are_given_in_smaller_parts() -> None:
    partition = opened()
    sizes = []
    for _ in range(3):
        assert take(partition, most=10)[0].last == 9
        release_member(partition, "a")
    for _ in range(6):
        (one,) = take(partition, most=10)
        sizes.append((one.last - one.first + 1, one.delivery_count))
    assert sizes == [(5, 4), (2, 4), (1, 4), (1, 4), (1, 4), (10, 1)]


def test_a_lock_ends_and_a_renewed_one_later() -> None:
    partition = opened(lock_duration_ms=100)
    take(partition)
    assert partition.next_deadline_ms() == 100
    say(partition, 0, 9, RENEW, now_ms=50)
    end_locks(partition, 100)
    assert [(run.first, run.state) for run in partition.runs] == [
        (0, RecordState.ACQUIRED),
        (10, RecordState.AVAILABLE),
    ]
    assert partition.next_deadline_ms() == 150
    assert refusal(partition, 10, 10) is ErrorCode.INVALID_RECORD_STATE


def test_nothing_of_a_wrong_acknowledgement_is_done() -> None:
    partition = opened()
    take(partition, most=10)
    version = partition.version
    assert refusal(partition, 5, 12) is ErrorCode.INVALID_REQUEST
    twice = [AcknowledgedBatch(0, 5, [ACCEPT]), AcknowledgedBatch(5, 6, [ACCEPT])]
    with pytest.raises(KafkaError):
        acknowledge(partition, "a", twice, 0)
    assert partition.version == version
    assert partition.counts.accepted == 0
    say(partition, 0, 9, ACCEPT)


def test_what_is_finished_may_be_acknowledged_again() -> None:
    partition = opened()
    take(partition)
    say(partition, 0, 9, ACCEPT)
    version = partition.version
    say(partition, 0, 9, ACCEPT)
    assert partition.version == version
    assert partition.counts.accepted == 10


def test_a_closed_session_gives_back_and_the_delivery_counts() -> None:
    partition = opened()
    take(partition)
    release_member(partition, "another")
    assert partition.version == 0
    release_member(partition, "a")
    assert take(partition, "b", most=1) == [Acquired(0, 9, 2)]


def test_the_limit_of_records_in_flight() -> None:
    partition = opened(max_in_flight=15)
    assert take(partition) == [Acquired(0, 19, 1)]
    assert not partition.can_acquire()
    assert take(partition, "b") == []
    say(partition, 0, 5, ACCEPT)
    assert partition.can_acquire()
    assert take(partition, "b") == [Acquired(20, 29, 1)]


def test_a_batch_above_the_limit_is_taken_in_parts() -> None:
    partition = opened(max_in_flight=4)
    assert take(partition) == [Acquired(0, 3, 1)]
    say(partition, 0, 3, ACCEPT)
    assert take(partition) == [Acquired(4, 7, 1)]


def test_gaps_and_markers_are_finished_at_once() -> None:
    partition = opened()
    log = [LogBatch(5, 9), LogBatch(10, 10, has_records=False), LogBatch(15, 19)]
    assert acquire(partition, Wanted("a", 100, 100), 0, log, 0) == [Acquired(5, 9, 1), Acquired(15, 19, 1)]
    assert partition.start_offset == 5
    say(partition, 5, 9, ACCEPT)
    assert partition.start_offset == 15


def test_deleted_records_are_finished_whoever_has_them() -> None:
    partition = opened()
    take(partition, most=1)
    partition.log_starts_at(5)
    say(partition, 0, 9, ACCEPT)
    assert partition.start_offset == 10
    partition.log_starts_at(100)
    assert (partition.start_offset, partition.next_fetch_offset()) == (100, 100)


def test_the_next_leader_delivers_again_with_the_count() -> None:
    partition = opened(max_deliveries=2)
    take(partition)
    say(partition, 10, 19, ACCEPT)
    say(partition, 20, 24, RELEASE)
    state = partition.durable_state()
    assert state == DurableState(
        0,
        (
            Run(0, 9, RecordState.AVAILABLE, 1),
            Run(10, 19, RecordState.ACKNOWLEDGED, 1),
            Run(20, 29, RecordState.AVAILABLE, 1),
        ),
    )
    after = SharePartition.of(state, partition.limits)
    assert take(after, "b") == [Acquired(0, 9, 2), Acquired(20, 29, 2)]
    # It was the last delivery, and how it ended is not known.
    last = SharePartition.of(after.durable_state(), partition.limits)
    assert take(last, "c") == [Acquired(0, 9, 2), Acquired(20, 29, 2)]
