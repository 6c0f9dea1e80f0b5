"""The ends of the transactions that a rebuild finds open: markers for their partitions' leaders to write. Pure.

Their coordinators went with the metadata store, so nothing else would end them, and consumers with `read_committed`
would wait at them. An open transaction is aborted, unless it is known that it was decided otherwise. While
it is open in one partition its producer began no other one, so that a marker of a higher epoch decides it wherever it
was found: in the log of another partition, or among those that a snapshot has.
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.formats.partition_transactions import OpenTransaction
from kafscale.metadata import keys
from kafscale.tools.recovery.bucket_plan import TopicPlan
from kafscale.tools.recovery.plan import PASSED_OVER_EPOCHS, HoleReason, PartitionPlan
from kafscale.tools.recovery.transactions import Ending

_MAX_EPOCH: Final = 2**15 - 1

NO_ID: Final = ""
"""The transactional id of a marker that a rebuild writes: the log does not say it."""


def endings_of_all(topics: Iterable[TopicPlan]) -> Mapping[int, Ending]:
    """The last marker of each producer whose transaction is open in some partition, in any other one."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    wanted = {one.producer_id for partition in partitions for one in partition.record.transactions.open}
    newest: dict[int, Ending] = {}
    for partition in partitions:
        for producer_id in wanted & partition.endings.keys():
            ending = partition.endings[producer_id]
            if producer_id not in newest or ending.producer_epoch > newest[producer_id].producer_epoch:
                newest[producer_id] = ending
    return newest


def markers_of(
    topic: TopicPlan,
    topic_id: uuid.UUID,
    endings: Mapping[int, Ending],
    known: Mapping[str, MarkerRecord],
    now_ms: int,
) -> dict[str, bytes]:
    """The values for a topic's open transactions, by key. `known`: a snapshot's markers, by key, none without one."""
    markers = {}
    for partition in topic.partitions:
        for one in partition.record.transactions.open:
            key = keys.partition_marker(topic.name, partition.partition, one.producer_id)
            marker = known.get(key)
            if marker is None or marker.topic_id != topic_id or marker.producer_epoch <= one.producer_epoch:
                marker = _marker(partition, one, endings.get(one.producer_id), topic_id, now_ms)
            markers[key] = encode_marker_record(marker)
    return markers


def _marker(
    partition: PartitionPlan, one: OpenTransaction, ending: Ending | None, topic_id: uuid.UUID, now_ms: int
) -> MarkerRecord:
    epoch, commits = min(one.producer_epoch + 1, _MAX_EPOCH), False
    if ending is not None and ending.producer_epoch > one.producer_epoch:
        # Its marker may lie in what is lost here: then the one that was found is another transaction's.
        epoch, commits = ending.producer_epoch, ending.is_commit and not _has_losses(partition)
    return MarkerRecord(
        transactional_id=NO_ID,
        commit=commits,
        producer_epoch=epoch,
        coordinator_epoch=PASSED_OVER_EPOCHS,
        transaction_version=1,
        decided_ms=now_ms,
        topic_id=topic_id,
    )


def _has_losses(partition: PartitionPlan) -> bool:
    return bool(partition.damaged) or any(hole.reason is not HoleReason.SKIPPED for hole in partition.holes)
