"""The events of every group whose coordinator assigns the partitions. See `kafscale/groups/events.py`."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafscale.groups.modern.assignment import Assignment

LEAVES = -1
JOINS = 0


@dataclass(frozen=True, slots=True)
class TopicIdAndCount:
    """A topic as an assignment sees it."""

    topic_id: uuid.UUID
    partition_count: int


Topics = Mapping[str, TopicIdAndCount]
"""By name; only those that exist."""


def topic_ids(topics: Topics, names: Iterable[str]) -> frozenset[uuid.UUID]:
    """The ids of those of the topics that exist."""
    return frozenset(topics[name].topic_id for name in names if name in topics)


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


ModernEvent = TopicsChanged | Assigned | Loaded
