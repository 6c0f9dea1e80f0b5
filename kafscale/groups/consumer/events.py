"""The events of a consumer group that a classic group does not have. See `kafscale/groups/events.py`."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.groups.consumer.assignment import Assignment
from kafscale.groups.effects import Answer

LEAVES = -1
LEAVES_FOR_A_WHILE = -2
JOINS = 0


@dataclass(frozen=True, slots=True)
class TopicIdAndCount:
    """A topic as an assignment sees it."""

    topic_id: uuid.UUID
    partition_count: int


Topics = Mapping[str, TopicIdAndCount]
"""By name; only those that exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReceived:
    """ConsumerGroupHeartbeat, checked for itself. Fields that the client left out are None, or -1.

    `owned`: what the member says it has. `resolved`: the topics of its regular expression, if it names one.
    """

    now_ms: int
    reply_id: int
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: frozenset[str] | None
    subscribed_topic_regex: str | None
    resolved: frozenset[str] | None
    server_assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """True if the answer has the assignment, changed or not."""
        return self.member_epoch == JOINS or (
            self.rebalance_timeout_ms != -1
            and (self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexResolved:
    """The topics that a regular expression matches now."""

    now_ms: int
    regex: str
    topic_names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """Topics were created, deleted, or grew. `topics`: those of the group that exist."""

    now_ms: int
    topics: Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The target assignment of this group epoch, by member id. `topics`: those that it was computed with."""

    now_ms: int
    epoch: int
    target: Mapping[str, Assignment]
    topics: Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The group was read as the coordinator before has stored it."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The group was a classic group with members until now. `answers`: to what waited there."""

    now_ms: int
    answers: tuple[Answer, ...]


ConsumerEvent = ConsumerHeartbeatReceived | Loaded | Converted | RegexResolved | TopicsChanged | Assigned
