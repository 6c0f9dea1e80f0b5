"""The contents of a transaction: partitions and groups that are added to it, or looked for in it."""

from dataclasses import replace

from kafscale.formats.transaction_record import (
    MAX_TRANSACTION_RECORD_BYTES,
    TransactionRecord,
    TransactionState,
    TransactionTopic,
    encode_transaction_record,
)
from kafscale.protocol.error_codes import ErrorCode
from kafscale.transactions.decisions import Decision, Refuse, Reply, Store
from kafscale.transactions.epochs import CONCURRENT, UNKNOWN_ID, fenced
from kafscale.transactions.events import Add, ProducerIdAndEpoch, Verify

_ENDING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def refuse_unknown(record: TransactionRecord | None, event: Add | Verify) -> Decision:
    """There is no such transactional id."""
    return UNKNOWN_ID


def refuse_producer(record: TransactionRecord, producer: ProducerIdAndEpoch) -> Refuse | None:
    """The refusal of a producer that is not the record's, or comes before its last transaction is complete."""
    if record.state in _ENDING and producer == (record.next_producer_id, 0):
        # The client has its new id from the answer to EndTxn. Kafka answers INVALID_PRODUCER_ID_MAPPING, which
        # no client survives.
        return CONCURRENT
    if producer.producer_id != record.producer_id:
        return UNKNOWN_ID
    if producer.epoch != record.producer_epoch:
        return fenced(producer, record)
    return CONCURRENT if record.state in _ENDING else None


def refuse_ending(record: TransactionRecord, event: Add | Verify) -> Decision:
    """Nothing of a producer begins before its last transaction is complete."""
    return refuse_producer(record, event.producer) or CONCURRENT


def begin(record: TransactionRecord, event: Add) -> Decision:
    """The first partitions or groups of a transaction: it begins."""
    refusal = refuse_producer(record, event.producer)
    return refusal or _with(replace(record, started_ms=event.now_ms, topics=(), groups=()), event)


def add(record: TransactionRecord, event: Add) -> Decision:
    """More partitions or groups; those that are in it already cost nothing."""
    refusal = refuse_producer(record, event.producer)
    if refusal is None and _has(record, event):
        return Reply()
    return refusal or _with(record, event)


def verify(record: TransactionRecord, event: Verify) -> Decision:
    """The answer whether all of it is in the producer's transaction."""
    refusal = refuse_producer(record, event.producer)
    if refusal is None and not _has(record, event):
        return Refuse(ErrorCode.TRANSACTION_ABORTABLE, "it is not in the producer's transaction")
    return refusal or Reply()


def _has(record: TransactionRecord, event: Add | Verify) -> bool:
    topics = {topic.name: topic for topic in record.topics}
    for wanted in event.topics:
        topic = topics.get(wanted.name)
        if topic is None or topic.topic_id != wanted.topic_id:
            return False
        if not set(wanted.partitions).issubset(topic.partitions):
            return False
    return set(event.groups).issubset(record.groups)


def _with(record: TransactionRecord, event: Add) -> Decision:
    extended = replace(
        record,
        previous_producer_id=record.producer_id,
        state=TransactionState.ONGOING,
        transaction_version=event.transaction_version,
        updated_ms=event.now_ms,
        topics=_union(record.topics, event.topics),
        groups=tuple(sorted({*record.groups, *event.groups})),
    )
    size = len(encode_transaction_record(extended))
    if size > MAX_TRANSACTION_RECORD_BYTES:
        # As Kafka answers when the record is larger than its log takes.
        return Refuse(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the transaction's record would have {size} bytes, at most {MAX_TRANSACTION_RECORD_BYTES} are stored",
        )
    return Store(extended)


def _union(
    before: tuple[TransactionTopic, ...], added: tuple[TransactionTopic, ...]
) -> tuple[TransactionTopic, ...]:
    topics = {topic.name: topic for topic in before}
    for topic in added:
        known = topics.get(topic.name)
        # A topic that was deleted and created again has nothing of the transaction any more.
        partitions = known.partitions if known is not None and known.topic_id == topic.topic_id else ()
        topics[topic.name] = replace(topic, partitions=tuple(sorted({*partitions, *topic.partitions})))
    return tuple(topics[name] for name in sorted(topics))
