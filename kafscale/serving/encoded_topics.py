"""Topics as Metadata describes them, encoded once and kept until their sources have changed.

All clients request all their topics every few minutes, and at once after a broker is gone: 10,000 partitions are
20 ms of work each time. An encoded topic is kept with its sources, so it is never out of date: the topic's record,
and the generation of the brokers and of the topic's leaders in the view.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafscale.cache.lru import ByteLimitedLru
from kafscale.cluster.new_topic import INTERNAL_TOPICS
from kafscale.cluster.view import ClusterView
from kafscale.metadata.model import ListenerName, TopicRecord
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.metadata import MetadataTopic, encode_topic
from kafscale.serving.authorized_operations import NOT_ASKED_FOR, TOPIC_OPERATIONS
from kafscale.serving.placement import ReachableBrokers, place_partitions, reachable_brokers
from kafscale.serving.read_replicas import ReadReplicas

ENCODED_TOPICS_BYTES: Final = 16 * 1024 * 1024
"""Of all topics, for all versions and listeners: 500,000 partitions for one of each."""

PARTITIONS_AT_ONCE: Final = 2_000
"""About four milliseconds' worth of partitions to encode."""

_ENTRY_OVERHEAD_BYTES = 400
_FIRST_VERSION_WITH_LISTENER_NOT_FOUND: Final = 6


class Asked(NamedTuple):
    """The parts of a Metadata request that the topics in its answer depend on."""

    version: int
    listener: ListenerName
    with_operations: bool


class _Encoded(NamedTuple):
    record: TopicRecord
    generation: tuple[int, int]
    data: bytes


class EncodedTopics:
    """The topics of a view, as one broker describes them to its clients."""

    def __init__(
        self, view: ClusterView, read_replicas: ReadReplicas, limit_bytes: int = ENCODED_TOPICS_BYTES
    ) -> None:
        self._view = view
        self._read_replicas = read_replicas
        self._kept: ByteLimitedLru[tuple[str, str], _Encoded] = ByteLimitedLru(limit_bytes, lambda _: None)

    @property
    def used_bytes(self) -> int:
        """About how much memory the encoded topics take."""
        return self._kept.used_bytes

    async def prepare(self, topics: Iterable[TopicRecord], asked: Asked) -> None:
        """Encode the topics that are not kept; other tasks run after each `PARTITIONS_AT_ONCE`."""
        part: list[TopicRecord] = []
        partition_count = 0
        for record in topics:
            part.append(record)
            partition_count += 1 + record.partition_count
            if partition_count >= PARTITIONS_AT_ONCE:
                self.encode(part, asked)
                part, partition_count = [], 0
                await asyncio.sleep(0)

    def encode(self, topics: Iterable[TopicRecord], asked: Asked) -> list[bytes]:
        """The topics, which must be those of the view as it is now, with their partitions."""
        kept, generation = self._kept, self._view.generation
        variant = f"{asked.version} {asked.listener} {asked.with_operations}"
        brokers: ReachableBrokers | None = None
        encoded = []
        for record in topics:
            key, now = (variant, record.name), generation(record.name)
            found = kept.get(key)
            if found is None or found.record is not record or found.generation != now:
                brokers = brokers or _reachable(self._view, asked)
                nearby = self._read_replicas.all(record)
                data = encode_topic(_describe(self._view, brokers, nearby, record, asked), asked.version)
                found = _Encoded(record, now, data)
                kept.put(key, found, len(data) + _ENTRY_OVERHEAD_BYTES)
            encoded.append(found.data)
        return encoded


def _describe(
    view: ClusterView,
    brokers: ReachableBrokers,
    nearby: Mapping[str, Sequence[int]],
    record: TopicRecord,
    asked: Asked,
) -> MetadataTopic:
    return MetadataTopic(
        ErrorCode.NONE,
        record.name,
        record.topic_id,
        record.name in INTERNAL_TOPICS,
        place_partitions(view, brokers, nearby, record, range(record.partition_count)),
        TOPIC_OPERATIONS if asked.with_operations else NOT_ASKED_FOR,
    )


def _reachable(view: ClusterView, asked: Asked) -> ReachableBrokers:
    if asked.version >= _FIRST_VERSION_WITH_LISTENER_NOT_FOUND:
        return reachable_brokers(view, asked.listener)
    return reachable_brokers(view, asked.listener, ErrorCode.LEADER_NOT_AVAILABLE)
