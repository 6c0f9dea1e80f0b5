"""The marker keys of a decision: which there are, and what is put under them. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.formats.transaction_record import TransactionRecord, TransactionState
from kafscale.metadata import keys
from kafscale.metadata.store import Put

PREPARING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def marker_keys(record: TransactionRecord) -> list[str]:
    """The keys of everything in the transaction."""
    return [
        *(keys.partition_marker(topic, index, record.producer_id) for topic, index in record.partitions()),
        *(keys.group_marker(group, record.producer_id) for group in record.groups),
    ]


def marker_puts(
    transactional_id: str, record: TransactionRecord, coordinator_epoch: int, decision_revision: int = 0
) -> list[Put]:
    """The marker of everything in a transaction that was decided.

    `decision_revision`: of the record, where the markers are put later than that; see `MarkerRecord`.
    """
    group_marker = MarkerRecord(
        transactional_id=transactional_id,
        commit=record.state is TransactionState.PREPARE_COMMIT,
        producer_epoch=record.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_version=record.transaction_version,
        decided_ms=record.updated_ms,
        decision_revision=decision_revision,
    )
    return list(chain(_partition_puts(record, group_marker), _group_puts(record, group_marker)))


def _partition_puts(record: TransactionRecord, marker: MarkerRecord) -> Iterator[Put]:
    for topic in record.topics:
        value = encode_marker_record(replace(marker, topic_id=topic.topic_id))
        for index in topic.partitions:
            yield Put(keys.partition_marker(topic.name, index, record.producer_id), value)


def _group_puts(record: TransactionRecord, marker: MarkerRecord) -> Iterator[Put]:
    value = encode_marker_record(marker)
    return (Put(keys.group_marker(group, record.producer_id), value) for group in record.groups)
