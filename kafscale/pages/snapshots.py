"""Copies of what a page shows of the structures that belong to the event loop, as values."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """A broker that Metadata names. `endpoints`: `listener://host:port`. `features`: with the levels it supports."""

    broker_id: int
    state: str
    endpoints: tuple[str, ...]
    rack: str | None
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The cluster as this broker sees it. `brokers_omitted`: beyond those that are shown.

    `is_registered`: this broker has a lease. `unrenewed_ms`: since the last renewal that was answered.
    `shards_coordinated`: of the group shards. `features`: finalized levels.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerSnapshot, ...]
    brokers_omitted: int
    features: Mapping[str, int]
    is_registered: bool
    unrenewed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLeaders:
    """A topic's record and how many of its partitions have a leader."""

    partition_count: int
    led_anywhere: int
    is_deleting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """A partition. What follows `leader_epoch` is None unless this broker leads or follows it.

    `size_bytes` and `segments`: None also while its references are not loaded.
    """

    index: int
    leader: int | None
    leader_epoch: int | None
    is_led_here: bool = False
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    size_bytes: int | None = None
    segments: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """A topic, with the partitions of one page."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    is_deleting: bool
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[PartitionSnapshot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """A group in a list."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """A member. `assignment`: as its leader sent it, or, in a consumer group, partitions by topic.

    `progress`: in a consumer group, how far the member has come towards the group's target assignment.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: bytes | Mapping[str, Sequence[int]]
    progress: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """A group, with the members of one page. `generation`: of a consumer group, its epoch."""

    summary: GroupSummary
    generation: int
    protocol_name: str
    leader: str | None
    members: tuple[MemberSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupElsewhere:
    """A group that this broker does not serve: its coordinator, None while it has none, and the reason."""

    coordinator: int | None
    reason: str
