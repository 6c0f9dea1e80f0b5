"""The state of the cluster: brokers, topics and leaders, as values."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

NO_BROKER = -1


class BrokerState(StrEnum):
    """Only a running broker is given partitions and groups; clients may connect to one that stops, too."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports, both ends included."""

    min_level: int
    max_level: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min_level <= level <= self.max_level


class ListenerName(StrEnum):
    """Which of a broker's addresses a client came to, under Kafka's name for it (KIP-103)."""

    PLAINTEXT = "PLAINTEXT"
    EXTERNAL = "EXTERNAL"


class Endpoint(NamedTuple):
    """The address that clients connect to."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """A live broker as it registered. `host` and `port` are the advertised ones.

    `external` is for clients of the listener EXTERNAL, None where the broker has no such listener.
    `features`: the levels that it supports, by feature; none for a broker older than features.
    """

    broker_id: int
    host: str
    port: int
    external: Endpoint | None = None
    rack: str | None = None
    state: BrokerState = BrokerState.RUNNING
    features: Mapping[str, FeatureRange] = field(default_factory=dict)

    def endpoint(self, listener: ListenerName) -> Endpoint | None:
        """Where clients of that listener reach this broker; None where they cannot."""
        return self.external if listener is ListenerName.EXTERNAL else Endpoint(self.host, self.port)


class TopicState(StrEnum):
    """A topic is `DELETING` from the request until its last object is gone: its name is not free before."""

    ACTIVE = "active"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic. `configs` holds only what was set on the topic; the defaults are in `topic_configs`.

    `deleting_broker_id` is the broker that removes the topic while it is `DELETING`, otherwise `NO_BROKER`.
    """

    name: str
    topic_id: uuid.UUID
    partition_count: int
    configs: Mapping[str, str] = field(default_factory=dict)
    state: TopicState = TopicState.ACTIVE
    deleting_broker_id: int = NO_BROKER


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRecord:
    """A partition's leader, and the leader epoch of its election."""

    broker_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorRecord:
    """The broker that coordinates the groups of a shard, and its coordinator epoch."""

    broker_id: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShardRecord:
    """The fence between coordinators of a shard: every write of one carries the next `sequence` of its epoch."""

    broker_id: int
    coordinator_epoch: int
    sequence: int
