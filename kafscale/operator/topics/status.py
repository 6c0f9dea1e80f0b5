"""A KafscaleTopic's status, written and parsed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafscale.cluster.cluster_record import kafka_uuid_text
from kafscale.metadata.model import TopicRecord
from kafscale.operator import cluster_resources


class Reason(StrEnum):
    """The condition's reason. docs/kubernetes-topics.md says what to do about each."""

    AS_DECLARED = "AsDeclared"
    INVALID_SPEC = cluster_resources.INVALID_SPEC
    NAMED_TWICE = "TopicNamedTwice"
    REFUSED = "Refused"
    NOT_DONE_YET = "NotDoneYet"
    BEING_DELETED = "TopicBeingDeleted"
    DELETING = "Deleting"
    CLUSTER_NOT_FOUND = cluster_resources.CLUSTER_NOT_FOUND
    CLUSTER_INVALID = cluster_resources.CLUSTER_INVALID
    CLUSTER_BEING_DELETED = cluster_resources.CLUSTER_BEING_DELETED
    SECRET_MISSING = cluster_resources.SECRET_MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A resource's topic as recorded in its status. `name` None: the resource was never carried out.

    `topic_id`: in Kafka's text form; None while it is created. `configs`: set by the resource.
    """

    name: str | None = None
    topic_id: str | None = None
    partition_count: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> "Known":
        """Parses a status."""
        return cls(
            name=status.get("topicName"),
            topic_id=status.get("topicId"),
            partition_count=status.get("partitions"),
            configs=status.get("appliedConfig", {}),
        )

    @classmethod
    def of_record(cls, record: TopicRecord, configs: Mapping[str, str]) -> "Known":
        """From an existing topic."""
        return cls(
            name=record.name,
            topic_id=kafka_uuid_text(record.topic_id),
            partition_count=record.partition_count,
            configs=configs,
        )

    def fields(self) -> dict[str, Any]:
        """The status fields."""
        found: dict[str, Any] = {} if self.name is None else {"topicName": self.name}
        if self.topic_id is not None:
            found["topicId"] = self.topic_id
        if self.partition_count is not None:
            found["partitions"] = self.partition_count
        if self.name is not None:
            found["appliedConfig"] = dict(self.configs)
        return found
