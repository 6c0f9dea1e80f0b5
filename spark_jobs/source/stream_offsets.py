"""The offsets of a stream as Spark keeps them in its checkpoint: the JSON of Spark's own Kafka source. Pure.

`{"events":{"0":23,"1":5}}` has the next offset of each partition. The first micro-batch's end also has the stream's
start, under a name that no topic can have: a stream that is killed during its first micro-batch requests its start
again, and "latest" means something else by then.
"""

from collections.abc import Mapping
from typing import Any

from kafscale.reader.topic_state import PartitionKey, Positions

STARTED_AT = "$startedAt"

StreamOffset = dict[str, Any]


def to_offset(positions: Positions, started_at: Positions | None = None) -> StreamOffset:
    """The JSON's value; equal positions give equal text, because Spark compares that."""
    offset: StreamOffset = _by_topic(positions)
    if started_at is not None:
        offset[STARTED_AT] = _by_topic(started_at)
    return offset


def positions_of(offset: Mapping[str, Any]) -> dict[PartitionKey, int]:
    """The next offset of each partition."""
    return _by_key({topic: partitions for topic, partitions in offset.items() if topic != STARTED_AT})


def started_at_of(offset: Mapping[str, Any]) -> dict[PartitionKey, int] | None:
    """The stream's start, if this is the end of its first micro-batch."""
    return _by_key(offset[STARTED_AT]) if STARTED_AT in offset else None


def _by_topic(positions: Positions) -> StreamOffset:
    topics: StreamOffset = {}
    for (topic, partition), offset in sorted(positions.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def _by_key(topics: Mapping[str, Mapping[str, int]]) -> dict[PartitionKey, int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }
