"""Plans the reads that bring some offsets of a topic, for readers in one process."""

from collections.abc import Mapping
from uuid import UUID

from kafscale.errors import OffsetsGoneError
from kafscale.lake.ranges import Range, Ranges
from kafscale.objects.object_store import ListingReader
from kafscale.reader.shared_splits import AnySplit, PlannedPartition, divide
from kafscale.reader.splits import Piece, plan_pieces
from kafscale.reader.topic_state import PartitionLog, TopicStates
from kafscale.tasks.bounded import map_bounded

SPLIT_BYTES = 64 * 1024 * 1024
_PARTITIONS_AT_ONCE = 16


async def plan_reads(
    states: TopicStates,
    objects: ListingReader,
    namespace: str,
    topic: str,
    topic_id: UUID,
    ranges: Mapping[int, Ranges],
) -> list[AnySplit]:
    """The reads that bring these offsets of the topic with this id, by partition, in splits of about `SPLIT_BYTES`.

    Raises `OffsetsGoneError` if some of them have expired, `UnknownTopicError`, `TopicReplacedError`, `StoreError`,
    `CorruptDataError`.
    """
    wanted = {partition: some for partition, some in ranges.items() if some}
    if not wanted:
        return []

    async def planned(log: PartitionLog) -> PlannedPartition:
        pieces: list[Piece] = []
        _check_there(log, wanted[log.partition][0])
        for first, following in wanted[log.partition]:
            pieces += await plan_pieces(log, objects, namespace, first, following)
        return log, pieces

    needed = {partition: some[-1][1] for partition, some in wanted.items()}
    logs = await states.partitions(topic, sorted(wanted), needed, topic_id=topic_id)
    return divide(await map_bounded(planned, logs, _PARTITIONS_AT_ONCE), SPLIT_BYTES)


def _check_there(log: PartitionLog, first_range: Range) -> None:
    """References of expired segments are gone: what they had would be left out without a word."""
    first, following = first_range
    if first < log.log_start_offset:
        gone = min(log.log_start_offset, following)
        raise OffsetsGoneError(
            f"offsets {first} to {gone - 1} of partition {log.partition} of topic {log.topic!r} are gone: the "
            f"partition's log starts at {log.log_start_offset} now",
            log.topic,
            log.partition,
            first,
            gone,
        )
