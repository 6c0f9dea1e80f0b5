"""The offsets of a stream as Spark keeps them in its checkpoint: the JSON of Spark's Kafka source, and ids. Pure.

`{"$topicIds":{"events":"b2c1f1e6-..."},"events":{"0":23,"1":5}}` has the next offset of each partition, and the ids
of their topics: offsets of a topic that was deleted and created again mean other records. The first micro-batch's end
also has the stream's start: a stream that is killed during its first micro-batch requests its start again, and
"latest" means something else by then. No topic can have names like these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafscale.reader.topic_state import PartitionKey, Positions

STARTED_AT = "$startedAt"
TOPIC_IDS = "$topicIds"

StreamOffset = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPositions:
    """The next offset of each partition. `topic_ids`: of the topics, none in checkpoints of older versions."""

    positions: Positions
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)

    def replaced_in(self, later: "StreamPositions") -> dict[str, UUID]:
        """The topics that are other ones in `later`, with their ids here."""
        return {
            topic: found
            for topic, found in self.topic_ids.items()
            if later.topic_ids.get(topic, found) != found
        }

    def without(self, topics: Mapping[str, object]) -> Positions:
        """The positions in other topics than these."""
        return {key: offset for key, offset in self.positions.items() if key[0] not in topics}


def to_offset(at: StreamPositions, started_at: StreamPositions | None = None) -> StreamOffset:
    """The JSON's value; equal positions give equal text, because Spark compares that."""
    offset: StreamOffset = {}
    if at.topic_ids:
        offset[TOPIC_IDS] = {topic: str(found) for topic, found in sorted(at.topic_ids.items())}
    offset |= _by_topic(at.positions)
    if started_at is not None:
        offset[STARTED_AT] = _by_topic(started_at.positions)
    return offset


def positions_of(offset: Mapping[str, Any]) -> StreamPositions:
    """The next offset of each partition, and the topics' ids."""
    topics = {
        topic: partitions for topic, partitions in offset.items() if topic not in (STARTED_AT, TOPIC_IDS)
    }
    return StreamPositions(positions=_by_key(topics), topic_ids=_topic_ids_of(offset))


def started_at_of(offset: Mapping[str, Any]) -> StreamPositions | None:
    """The stream's start, if this is the end of its first micro-batch."""
    if STARTED_AT not in offset:
        return None
    return StreamPositions(positions=_by_key(offset[STARTED_AT]), topic_ids=_topic_ids_of(offset))


def _topic_ids_of(offset: Mapping[str, Any]) -> dict[str, UUID]:
    return {topic: UUID(found) for topic, found in offset.get(TOPIC_IDS, {}).items()}


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
