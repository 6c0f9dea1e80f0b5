"""The end of a transaction: the decision, its repetitions, its completion; and the end of a transactional id.

Kafka's endTransaction (4.1). With TV1 the epoch stays, so a late EndTxn may decide the next transaction of the same
producer (KAFKA-17754); with TV2 each end bumps the epoch (KIP-890), and a late one is fenced.
"""

from dataclasses import replace

from kafscale.formats.transaction_record import TransactionRecord, TransactionState
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import NO_PRODUCER_ID
from kafscale.transactions.decisions import Decision, Ignore, NeedProducerId, Refuse, Remove, Reply, Store
from kafscale.transactions.epochs import CONCURRENT, LAST_USABLE_EPOCH, TV2, UNKNOWN_ID, fenced, is_exhausted
from kafscale.transactions.events import (
    NO_PRODUCER,
    End,
    Expire,
    MarkersGone,
    MarkersStored,
    ProducerIdAndEpoch,
)

_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def refuse_unknown(record: TransactionRecord | None, event: End) -> Decision:
    """There is no such transactional id."""
    return UNKNOWN_ID


def _is_repetition(record: TransactionRecord, event: End) -> bool:
    """True for the client's last EndTxn of TV2: it has the epoch, or the id, from before the bump."""
    producer = event.producer
    after_overflow = (
        producer == (record.previous_producer_id, LAST_USABLE_EPOCH) and record.producer_epoch == 0
    )
    return after_overflow or producer == (record.producer_id, record.producer_epoch - 1)


def _invalid(record: TransactionRecord, event: End) -> Refuse:
    wish = "commit" if event.commit else "abort"
    return Refuse(ErrorCode.INVALID_TXN_STATE, f"cannot {wish} in state {record.state.name}")


def end(record: TransactionRecord, event: End) -> Decision:
    """Decide an ongoing transaction."""
    if event.producer.producer_id != record.producer_id:
        return UNKNOWN_ID
    if event.producer.epoch != record.producer_epoch:
        return fenced(event.producer, record)
    state = TransactionState.PREPARE_COMMIT if event.commit else TransactionState.PREPARE_ABORT
    decided = replace(
        record,
        previous_producer_id=record.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=state,
        transaction_version=event.transaction_version,
        markers_stored=False,
        updated_ms=event.now_ms,
    )
    if event.transaction_version < TV2:
        return Store(decided)
    next_id = NO_PRODUCER_ID
    if is_exhausted(record.producer_epoch):
        if event.new_producer_id is None:
            return NeedProducerId()
        next_id = event.new_producer_id
    bumped = replace(
        decided,
        next_producer_id=next_id,
        producer_epoch=record.producer_epoch + 1,
        last_producer_epoch=record.producer_epoch,
    )
    return Store(bumped, Reply(producer_after(bumped)))


def producer_after(record: TransactionRecord) -> ProducerIdAndEpoch:
    """The producer that a client of TV2 is once this transaction has ended."""
    if record.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(record.next_producer_id, 0)
    return ProducerIdAndEpoch(record.producer_id, record.producer_epoch)


def end_again(record: TransactionRecord, event: End) -> Decision:
    """EndTxn while the decision is carried out: its repetition waits, another decision is refused."""
    if event.producer.producer_id != record.producer_id:
        return UNKNOWN_ID
    expected = record.producer_epoch - 1 if event.transaction_version >= TV2 else record.producer_epoch
    if event.producer.epoch != expected:
        return fenced(event.producer, record)
    return CONCURRENT if event.commit == (record.state in _COMMITTED) else _invalid(record, event)


def end_complete(record: TransactionRecord, event: End) -> Decision:
    """EndTxn without a transaction, after one: a repetition, or TV2's abort of a transaction without contents."""
    is_same = event.commit == (record.state in _COMMITTED)
    if event.transaction_version < TV2:
        refusal = _refuse_unequal(record, event)
        return refusal or (Reply() if is_same else _invalid(record, event))
    if _is_repetition(record, event):
        return Reply(producer_after(record)) if is_same else _invalid(record, event)
    return _refuse_unequal(record, event) or _abort_nothing(record, event)


def end_empty(record: TransactionRecord, event: End) -> Decision:
    """EndTxn of a producer without any transaction so far."""
    refusal = _refuse_unequal(record, event)
    if refusal is not None or event.transaction_version < TV2:
        return refusal or _invalid(record, event)
    return _abort_nothing(record, event)


def _refuse_unequal(record: TransactionRecord, event: End) -> Refuse | None:
    if event.producer.producer_id != record.producer_id:
        return UNKNOWN_ID
    return None if event.producer.epoch == record.producer_epoch else fenced(event.producer, record)


def _abort_nothing(record: TransactionRecord, event: End) -> Decision:
    """The client cannot know that nothing of its transaction arrived. No marker is due, so it is complete at once."""
    if event.commit:
        return _invalid(record, event)
    aborted = replace(
        record,
        previous_producer_id=record.producer_id,
        producer_epoch=record.producer_epoch + 1,
        last_producer_epoch=record.producer_epoch,
        state=TransactionState.COMPLETE_ABORT,
        transaction_version=event.transaction_version,
        started_ms=event.now_ms,
        updated_ms=event.now_ms,
    )
    if is_exhausted(record.producer_epoch):
        if event.new_producer_id is None:
            return NeedProducerId()
        aborted = replace(aborted, producer_id=event.new_producer_id, producer_epoch=0)
    return Store(aborted, Reply(producer_after(aborted)))


def markers_stored(record: TransactionRecord, event: MarkersStored) -> Decision:
    """From now on a marker key that is not there is one that was dealt with."""
    return Ignore() if record.markers_stored else Store(replace(record, markers_stored=True))


def complete(record: TransactionRecord, event: MarkersGone) -> Decision:
    """Every partition and group has its marker; the next transaction may begin."""
    is_commit = record.state in _COMMITTED
    after = producer_after(record)
    completed = replace(
        record,
        producer_id=after.producer_id,
        previous_producer_id=record.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=after.epoch,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        markers_stored=False,
        updated_ms=event.now_ms,
        topics=(),
        groups=(),
    )
    return Store(completed, Reply(NO_PRODUCER))


def expire(record: TransactionRecord, event: Expire) -> Decision:
    """Forget the transactional id, if it was unused for long."""
    return Remove() if event.now_ms - record.updated_ms >= event.expiration_ms else Ignore()
