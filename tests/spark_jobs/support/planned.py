"""One partition as it is published now, and the splits that a query of it alone would have."""

from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader, ObjectReader
from kafscale.reader.shared_splits import divide
from kafscale.reader.splits import DEFAULT_SPLIT_BYTES, Split, plan_pieces
from kafscale.reader.topic_state import PartitionLog, TopicStates


async def partition_log(
    metadata: MetadataReader,
    objects: ListingReader,
    topic: str,
    partition: int,
    *,
    namespace: str = "default",
) -> PartitionLog:
    """The partition now."""
    (log,) = (await TopicStates(metadata, objects, namespace).topic(topic, [partition])).partitions
    return log


async def plan_splits(
    log: PartitionLog,
    objects: ObjectReader,
    namespace: str,
    first_offset: int,
    next_offset: int,
    *,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
) -> list[Split]:
    """Splits, ascending, that have every published record from `first_offset` to before `next_offset`."""
    pieces = await plan_pieces(log, objects, namespace, first_offset, next_offset)
    splits = divide([(log, pieces)], split_bytes)
    return [split for split in splits if isinstance(split, Split)]
