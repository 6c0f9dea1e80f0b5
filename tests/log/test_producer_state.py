"""Idempotent producers: gaps refused, retries recognised, as Kafka's ProducerStateManager does."""

import pytest

from kafscale.formats.partition_record import ProducerRecord
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.log import producer_state
from kafscale.log.producer_state import PendingBatch, ProducerStates
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import NO_SEQUENCE

PRODUCER = 42


def append(states: ProducerStates, first: int, last: int, *, epoch: int = 0) -> None:
    assert states.check(PRODUCER, epoch, first, last) is ErrorCode.NONE
    states.append(PRODUCER, PendingBatch(object(), 0, epoch, first, last, 1000))


def published(*batches: tuple[int, int, int], epoch: int = 0) -> ProducerStates:
    record = ProducerRecord(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        last_timestamp_ms=0,
        batches=tuple(ProducerBatch(*batch) for batch in batches),
    )
    return ProducerStates([record])


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().check(PRODUCER, 3, 17, 20) is ErrorCode.NONE


def test_the_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    states = published((0, 4, 100))
    assert states.check(PRODUCER, 0, 5, 9) is ErrorCode.NONE
    assert states.check(PRODUCER, 0, 6, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    states = published((2**31 - 5, 2**31 - 1, 100))
    assert states.check(PRODUCER, 0, 0, 3) is ErrorCode.NONE


def test_a_retry_of_a_published_batch_gets_the_first_answer() -> None:
    states = published((0, 4, 100), (5, 9, 105))
    assert states.check(PRODUCER, 0, 0, 4) == ProducerBatch(0, 4, 100)
    assert states.check(PRODUCER, 0, 0, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_retry_older_than_the_last_five_batches_is_a_duplicate() -> None:
    """A Java client waited for it until its time was over, since later batches had overtaken it (KAFKA-14359)."""
    states = ProducerStates()
    for number in range(8):
        append(states, 10 + 2 * number, 11 + 2 * number)
        states.publish(PRODUCER, 100 + 2 * number)
    for stored in (states, ProducerStates(states.published())):
        for older in ((10, 11), (12, 13), (14, 15), (10, 15)):
            assert stored.check(PRODUCER, 0, *older) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        for newer in range(3, 8):
            batch = ProducerBatch(10 + 2 * newer, 11 + 2 * newer, 100 + 2 * newer)
            assert stored.check(PRODUCER, 0, batch.first_sequence, batch.last_sequence) == batch
        for unknown in ((8, 9), (9, 10), (0, 0), (15, 16), (27, 28), (2**31 - 1, 10)):
            assert stored.check(PRODUCER, 0, *unknown) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert stored.check(PRODUCER, 1, 10, 11) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_of_a_pending_batch_is_that_batch() -> None:
    states = published((0, 4, 100))
    append(states, 5, 9)
    append(states, 10, 14)
    retried = states.check(PRODUCER, 0, 5, 9)
    assert isinstance(retried, PendingBatch)
    assert (retried.first_sequence, retried.last_sequence) == (5, 9)


def test_a_new_epoch_starts_at_zero_and_ends_the_old_one() -> None:
    states = published((0, 4, 100))
    assert states.check(PRODUCER, 1, 5, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(states, 0, 2, epoch=1)
    assert states.check(PRODUCER, 0, 5, 9) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(PRODUCER, 1, 3, 3) is ErrorCode.NONE


def test_a_batch_of_an_old_epoch_is_no_retry_in_the_new_one() -> None:
    states = published((0, 4, 100))
    append(states, 0, 2, epoch=1)
    states.publish(PRODUCER, 105)
    assert states.check(PRODUCER, 1, 0, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_records_have_the_newest_published_batches() -> None:
    states = published(*((5 * i, 5 * i + 4, 100 + 5 * i) for i in range(5)))
    append(states, 25, 29)
    append(states, 30, 34)
    append(states, 35, 39)
    for base_offset in (200, 205):
        states.publish(PRODUCER, base_offset)
    records = states.records([PRODUCER])
    assert list(states.published()) == records
    assert [batch.base_offset for batch in records[0].batches] == [100, 110, 115, 120, 200, 205]


def test_idle_producers_expire_unless_a_batch_is_pending() -> None:
    states = published((0, 4, 100))
    append(states, 5, 9)
    states.expire(before_ms=2000)
    assert len(states) == 1
    states.publish(PRODUCER, 105)
    states.expire(before_ms=1000)
    assert len(states) == 1
    states.expire(before_ms=1001)
    assert len(states) == 0


class ManyProducers:
    """The producers of a partition that remembers three."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(producer_state, "MOST_PRODUCERS", 3)
        self.states = ProducerStates()

    def append(self, producer_id: int, sequence: int = 0) -> None:
        assert not self.states.has_no_room_for(producer_id)
        assert self.states.check(producer_id, 0, sequence, sequence) is ErrorCode.NONE
        self.states.append(producer_id, PendingBatch(object(), 0, 0, sequence, sequence, 1000))

    def knows(self) -> list[int]:
        return [number for number in range(10) if self.states.newest_sequence(number) is not None]


def test_one_producer_too_many_evicts_the_least_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ManyProducers(monkeypatch)
    for number in (1, 2, 3):
        many.append(number)
        many.states.publish(number, number)
    many.append(1, sequence=1)
    for number, left in ((4, [1, 3, 4]), (5, [1, 4, 5])):
        many.append(number)
        assert many.knows() == left
    assert (many.states.take_forgotten(), many.states.take_forgotten()) == (2, 0)
    assert many.states.check(1, 0, 0, 0) == ProducerBatch(0, 0, 1)


def test_producers_with_pending_batches_leave_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ManyProducers(monkeypatch)
    for number in (1, 2, 3):
        many.append(number)
    assert many.states.has_no_room_for(4)
    assert not many.states.has_no_room_for(2)
    many.states.publish(1, 100)
    many.append(4)
    assert many.knows() == [2, 3, 4]


def test_most_recent_of_too_many_stored_producers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MOST_PRODUCERS", 3)
    batches = (ProducerBatch(0, 0, 0),)

    def stored(producer_id: int, last_timestamp_ms: int) -> ProducerRecord:
        return ProducerRecord(
            producer_id=producer_id, producer_epoch=0, last_timestamp_ms=last_timestamp_ms, batches=batches
        )

    of_checkpoint = [stored(1, 50), stored(2, 10), stored(3, 30), stored(4, 40)]
    of_record = [stored(2, 60)]
    kept = [record.producer_id for record in ProducerStates([*of_checkpoint, *of_record]).published()]
    assert kept == [4, 1, 2]


def test_a_stored_marker_alone_does_not_end_the_sequence() -> None:
    """A checkpoint has the producer, and the record only what came since: the marker of its transaction."""

    def stored(epoch: int, timestamp_ms: int, *batches: ProducerBatch) -> ProducerRecord:
        return ProducerRecord(
            producer_id=PRODUCER, producer_epoch=epoch, last_timestamp_ms=timestamp_ms, batches=batches
        )

    marker = ProducerBatch(NO_SEQUENCE, NO_SEQUENCE, 20)
    checkpoint = stored(3, 1000, ProducerBatch(0, 4, 10))
    states = ProducerStates([checkpoint, stored(3, 2000, marker)])
    assert states.newest_sequence(PRODUCER) == (3, 4)
    assert states.check(PRODUCER, 3, 5, 6) is ErrorCode.NONE
    assert states.check(PRODUCER, 3, 0, 4) == ProducerBatch(0, 4, 10)
    assert states.records([PRODUCER])[0].last_timestamp_ms == 2000
    after = stored(3, 3000, marker, ProducerBatch(5, 6, 21))
    assert ProducerStates([checkpoint, after]).check(PRODUCER, 3, 7, 7) is ErrorCode.NONE
    in_a_new_epoch = ProducerStates([checkpoint, stored(4, 2000, marker)])
    assert in_a_new_epoch.check(PRODUCER, 4, 0, 0) is ErrorCode.NONE
