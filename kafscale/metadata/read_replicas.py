"""Which broker of each rack the consumers of a partition read from, if not from its leader (KIP-392).

Every broker can serve every partition. One of each rack is named, always the same for a partition, whose cache
then has what the rack's consumers read. Metadata lists them as the partition's replicas: Java consumers read
only from replicas that they were told of, and would ask the leader in vain again and again.
"""

from collections.abc import Sequence
from functools import lru_cache

from kafscale.metadata.model import NO_BROKER, TopicRecord
from kafscale.metadata.preferred import preferred_brokers
from kafscale.metadata.view import ClusterView

# Of so many topics the choice is kept; what it depends on seldom changes.
_REMEMBERED_TOPICS = 1024


def read_replica(view: ClusterView, topic: str, index: int, rack: str) -> int:
    """The broker of the rack that the partition's consumers there read from; `NO_BROKER` if it has none."""
    record = view.topic(topic)
    nearby = tuple(live.broker_id for live in view.brokers_to_read_from() if live.rack == rack)
    if record is None or not nearby or index >= record.partition_count:
        return NO_BROKER
    return _chosen(topic, record.partition_count, nearby)[index]


def read_replicas(view: ClusterView, topic: TopicRecord) -> dict[str, Sequence[int]]:
    """Rack -> for each partition of the topic the broker that `read_replica` gives."""
    racks: dict[str, list[int]] = {}
    for live in view.brokers_to_read_from():
        if live.rack:
            racks.setdefault(live.rack, []).append(live.broker_id)
    return {rack: _chosen(topic.name, topic.partition_count, tuple(nearby)) for rack, nearby in racks.items()}


@lru_cache(_REMEMBERED_TOPICS)
def _chosen(topic: str, partition_count: int, nearby: tuple[int, ...]) -> Sequence[int]:
    return preferred_brokers(topic, partition_count, nearby)
