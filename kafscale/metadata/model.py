"""The state of the cluster: brokers, topics and leaders, as values."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from kafscale.protocol.listeners import ListenerName as ListenerName

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


class Endpoint(NamedTuple):
    """The address that clients connect to."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """A live broker as it registered.

    `listeners`: the advertised endpoint of each listener, empty for a broker that has none but PLAINTEXT and
    EXTERNAL, or is older than named listeners. Then `host` and `port` are those of PLAINTEXT, and `external` that of
    EXTERNAL if there is one. Otherwise these three are for older brokers, which know only them.
    `features`: the levels that it supports, by feature; none for a broker older than features. `journal_id`: of the
    journal that it writes under this registration.
    """

    broker_id: int
    host: str
    port: int
    external: Endpoint | None = None
    rack: str | None = None
    state: BrokerState = BrokerState.RUNNING
    features: Mapping[str, FeatureRange] = field(default_factory=dict)
    journal_id: str = ""
    listeners: Mapping[ListenerName, Endpoint] = field(default_factory=dict)

    def endpoints(self) -> Mapping[ListenerName, Endpoint]:
        """Where clients reach this broker, by listener."""
        if self.listeners:
            return self.listeners
        endpoints = {ListenerName.PLAINTEXT: Endpoint(self.host, self.port)}
        if self.external is not None:
            endpoints[ListenerName.EXTERNAL] = self.external
        return endpoints

    def reached_at(self, listeners: Mapping[ListenerName, Endpoint]) -> "BrokerRecord":
        """This broker with these listeners, of which there is one at least; in the old form where that can say it."""
        plaintext, external = listeners.get(ListenerName.PLAINTEXT), listeners.get(ListenerName.EXTERNAL)
        main = plaintext or next(iter(listeners.values()))
        is_old_form = plaintext is not None and listeners.keys() <= {
            ListenerName.PLAINTEXT,
            ListenerName.EXTERNAL,
        }
        return replace(
            self,
            host=main.host,
            port=main.port,
            external=external,
            listeners={} if is_old_form else dict(listeners),
        )

    def endpoint(self, listener: ListenerName) -> Endpoint | None:
        """Where clients of that listener reach this broker; None where they cannot."""
        return self.endpoints().get(listener)


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
