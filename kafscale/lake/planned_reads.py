"""Plans the reads that bring some offsets of a topic, for readers in one process."""

from collections.abc import Mapping

from kafscale.lake.ranges import Ranges
from kafscale.objects.object_store import ListingReader
from kafscale.reader.shared_splits import AnySplit, PlannedPartition, divide
from kafscale.reader.splits import Piece, plan_pieces
from kafscale.reader.topic_state import PartitionLog, TopicStates
from kafscale.tasks.bounded import map_bounded

SPLIT_BYTES = 64 * 1024 * 1024
_PARTITIONS_AT_ONCE = 16


async def plan_reads(
    states: TopicStates, objects: ListingReader, namespace: str, topic: str, ranges: Mapping[int, Ranges]
) -> list[AnySplit]:
    """The reads that bring these offsets, by partition, in splits of about `SPLIT_BYTES`.

    Raises `UnknownTopicError`, `StoreError`, `CorruptDataError`.
    """
    wanted = {partition: some for partition, some in ranges.items() if some}
    if not wanted:
        return []

    async def planned(log: PartitionLog) -> PlannedPartition:
        pieces: list[Piece] = []
        for first, following in wanted[log.partition]:
            pieces += await plan_pieces(log, objects, namespace, first, following)
        return log, pieces

    needed = {partition: some[-1][1] for partition, some in wanted.items()}
    logs = await states.partitions(topic, sorted(wanted), needed)
    return divide(await map_bounded(planned, logs, _PARTITIONS_AT_ONCE), SPLIT_BYTES)
