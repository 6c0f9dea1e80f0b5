"""Placement as clients see it on one listener: reachable brokers, leaders and replicas, and the log directory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafscale.cluster.view import ClusterView
from kafscale.metadata.model import BrokerRecord, Endpoint, ListenerName, TopicRecord
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.metadata import MetadataPartition
from kafscale.settings.broker import Settings

# Plain numbers, because there may be 10,000 partitions to describe.
_NO_ERROR = int(ErrorCode.NONE)
_LEADER_NOT_AVAILABLE = int(ErrorCode.LEADER_NOT_AVAILABLE)
_NO_LEADER = -1
_NO_LEADER_EPOCH = -1


def reachable(
    brokers: Iterable[BrokerRecord], listener: ListenerName
) -> Iterator[tuple[BrokerRecord, Endpoint]]:
    """The brokers that have the client's listener, with its address (KIP-103)."""
    for broker in brokers:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield broker, endpoint


class ReachableBrokers(NamedTuple):
    """The brokers that the client can reach, by id with their racks, and the error for any other leader."""

    racks: Mapping[int, str | None]
    otherwise: int


def reachable_brokers(
    view: ClusterView, listener: ListenerName, otherwise: ErrorCode = ErrorCode.LISTENER_NOT_FOUND
) -> ReachableBrokers:
    """The live brokers that have the listener; `otherwise`: for a partition that another broker leads."""
    racks = {live.broker_id: live.rack for live, _ in reachable(view.brokers(), listener)}
    return ReachableBrokers(racks=racks, otherwise=int(otherwise))


def place_partitions(
    view: ClusterView,
    brokers: ReachableBrokers,
    nearby: Mapping[str, Sequence[int]],
    record: TopicRecord,
    indexes: Iterable[int],
) -> list[MetadataPartition]:
    """The topic's partitions of these indexes. `nearby`: what `ReadReplicas.all` gives for the topic."""
    leaders = view.leaders(record.name)
    racks = brokers.racks
    partitions = []
    for index in indexes:
        leader = leaders.get(index)
        if leader is None or view.broker(leader.broker_id) is None:
            partition = MetadataPartition(_LEADER_NOT_AVAILABLE, index, _NO_LEADER, _NO_LEADER_EPOCH, (), ())
        elif leader.broker_id not in racks:
            partition = MetadataPartition(brokers.otherwise, index, _NO_LEADER, _NO_LEADER_EPOCH, (), ())
        else:
            led_in = racks[leader.broker_id]
            elsewhere = [chosen[index] for rack, chosen in nearby.items() if rack != led_in]
            replicas = (leader.broker_id, *elsewhere)
            partition = MetadataPartition(
                _NO_ERROR, index, leader.broker_id, leader.leader_epoch, replicas, replicas
            )
        partitions.append(partition)
    return partitions


def log_directory(settings: Settings) -> str:
    """The one log directory that brokers show to clients: the namespace in the object store, as an absolute path."""
    return f"/{settings.s3_namespace}"
