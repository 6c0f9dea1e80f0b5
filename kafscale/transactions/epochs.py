"""Producers of a transactional id: new ones, bumped epochs, and the fencing of an ongoing transaction.

As Kafka's TransactionCoordinator and TransactionMetadata (4.1) do it, except where a comment says otherwise.
"""

from dataclasses import replace
from typing import Final

from kafscale.formats.transaction_record import NOT_STARTED, TransactionRecord, TransactionState
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafscale.transactions.decisions import Decision, Ignore, NeedProducerId, Refuse, Reply, Store
from kafscale.transactions.events import InitProducer, ProducerIdAndEpoch, TimePassed

MAX_EPOCH: Final = 2**15 - 1
LAST_USABLE_EPOCH: Final = MAX_EPOCH - 1
"""Clients never have a higher one, so that the coordinator can always fence."""

TV2: Final = 2

CONCURRENT: Final = Refuse(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before is not complete yet")
UNKNOWN_ID: Final = Refuse(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is not known, or has another producer id"
)


def is_exhausted(epoch: int) -> bool:
    """True if no epoch follows that a client may have."""
    return epoch >= LAST_USABLE_EPOCH


def fenced(producer: ProducerIdAndEpoch, record: TransactionRecord) -> Refuse:
    """The refusal of a producer whose epoch is not the current one."""
    return Refuse(
        ErrorCode.PRODUCER_FENCED,
        f"producer {producer.producer_id} has epoch {producer.epoch}, the current one is {record.producer_epoch}",
    )


def create(_: TransactionRecord | None, event: InitProducer) -> Decision:
    """The first producer of a transactional id, whatever the client has been elsewhere."""
    if event.new_producer_id is None:
        return NeedProducerId()
    record = TransactionRecord(
        producer_id=event.new_producer_id,
        producer_epoch=0,
        timeout_ms=event.timeout_ms,
        updated_ms=event.now_ms,
    )
    return Store(record, Reply(ProducerIdAndEpoch(record.producer_id, 0)))


def bump(record: TransactionRecord, event: InitProducer) -> Decision:
    """A new epoch for a transactional id without an ongoing transaction, or the answer to a repeated request."""
    expected = event.expected
    if expected is not None and not _may_be(expected, record):
        return fenced(expected, record)
    is_current = expected is None or expected.epoch == record.producer_epoch
    if is_exhausted(record.producer_epoch) and is_current:
        if event.new_producer_id is None:
            return NeedProducerId()
        last_epoch = NO_PRODUCER_EPOCH if expected is None else record.producer_epoch
        return _empty(record, event, ProducerIdAndEpoch(event.new_producer_id, 0), last_epoch)
    if expected is None:
        bumped = ProducerIdAndEpoch(record.producer_id, record.producer_epoch + 1)
        return _empty(record, event, bumped, NO_PRODUCER_EPOCH)
    if is_current:
        bumped = ProducerIdAndEpoch(record.producer_id, record.producer_epoch + 1)
        return _empty(record, event, bumped, record.producer_epoch)
    if expected.epoch == record.last_producer_epoch:
        # A repeated request. A new producer would have set the last epoch to -1.
        current = ProducerIdAndEpoch(record.producer_id, record.producer_epoch)
        return _empty(record, event, current, record.last_producer_epoch)
    return fenced(expected, record)


def _may_be(expected: ProducerIdAndEpoch, record: TransactionRecord) -> bool:
    """True if the client can be the current producer, or be the one before, which has not heard of the new id."""
    return expected.producer_id == record.producer_id or (
        expected.producer_id == record.previous_producer_id and is_exhausted(expected.epoch)
    )


def _empty(
    record: TransactionRecord, event: InitProducer, producer: ProducerIdAndEpoch, last_epoch: int
) -> Store:
    emptied = replace(
        record,
        producer_id=producer.producer_id,
        previous_producer_id=record.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=producer.epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=event.timeout_ms,
        state=TransactionState.EMPTY,
        markers_stored=False,
        started_ms=NOT_STARTED,
        updated_ms=event.now_ms,
        topics=(),
        groups=(),
    )
    return Store(emptied, Reply(producer))


def fence(record: TransactionRecord, event: InitProducer) -> Decision:
    """A producer that begins while a transaction is ongoing: it is aborted first, and the client asks again.

    Differs from Kafka's: a producer with an old epoch is fenced itself, instead of fencing the current one.
    """
    expected = event.expected
    if expected is not None and (
        not _may_be(expected, record)
        or (expected.producer_id == record.producer_id and expected.epoch < record.producer_epoch)
    ):
        return fenced(expected, record)
    return _fence(record, event, CONCURRENT)


def wait(record: TransactionRecord, event: InitProducer) -> Decision:
    """The decision is still being carried out: the client asks again."""
    if event.expected is not None and not _may_be(event.expected, record):
        return fenced(event.expected, record)
    return CONCURRENT


def time_out(record: TransactionRecord, event: TimePassed) -> Decision:
    """Abort the transaction and fence its producer, if its time is over."""
    if event.now_ms <= record.started_ms + record.timeout_ms:
        return Ignore()
    return _fence(record, event, Reply())


def _fence(record: TransactionRecord, event: InitProducer | TimePassed, then: Refuse | Reply) -> Decision:
    """One bump, as Kafka does since KAFKA-19367. With TV2 the fenced client can go on with the new epoch."""
    next_id = NO_PRODUCER_ID
    if event.transaction_version >= TV2 and is_exhausted(record.producer_epoch):
        if event.new_producer_id is None:
            return NeedProducerId()
        next_id = event.new_producer_id
    aborting = replace(
        record,
        previous_producer_id=record.producer_id,
        next_producer_id=next_id,
        producer_epoch=min(record.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=record.producer_epoch if event.transaction_version >= TV2 else NO_PRODUCER_EPOCH,
        state=TransactionState.PREPARE_ABORT,
        transaction_version=event.transaction_version,
        markers_stored=False,
        updated_ms=event.now_ms,
    )
    return Store(aborting, then)
