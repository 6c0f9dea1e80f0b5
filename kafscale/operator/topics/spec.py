"""A KafscaleTopic's specification."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafscale.cluster.topic_configs import TOPIC_CONFIGS, canonical_text, validate
from kafscale.formats.object_keys import topic_name_problem
from kafscale.operator.errors import SpecError
from kafscale.operator.times import duration_ms
from kafscale.protocol.error_codes import KafkaError

_ROWS = {row.name: row for row in TOPIC_CONFIGS}


class DeletionPolicy(StrEnum):
    """Fate of the topic when its resource is deleted."""

    DELETE = "Delete"
    RETAIN = "Retain"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """The desired state of one topic. `configs`: Kafka's names, values in canonical form."""

    cluster: str
    name: str
    partition_count: int
    configs: Mapping[str, str]
    deletion_policy: DeletionPolicy


def topic_spec(resource_name: str, spec: Mapping[str, Any], segment_format: int) -> TopicSpec:
    """Parses a resource's name and `spec`, with defaults filled in. Raises `SpecError`.

    `segment_format`: the cluster's level of kafscale.segment.format, on which some values depend.
    """
    name = spec.get("topicName") or resource_name
    problem = topic_name_problem(name)
    if problem is not None:
        raise SpecError(f"topicName={name!r} is not a topic's name: {problem}")
    texts = {key: _text(value) for key, value in spec.get("config", {}).items()}
    if "retention" in spec:
        texts["retention.ms"] = str(duration_ms("retention", spec["retention"]))
    if "compression" in spec:
        texts["compression.type"] = spec["compression"]
    try:
        validate(texts, segment_format)
    except KafkaError as refusal:
        raise SpecError(f"config: {refusal.message}") from refusal
    return TopicSpec(
        cluster=spec["clusterRef"]["name"],
        name=name,
        partition_count=spec.get("partitions", 1),
        configs={key: canonical_text(_ROWS[key], value) for key, value in texts.items()},
        deletion_policy=DeletionPolicy(spec.get("deletionPolicy", DeletionPolicy.DELETE)),
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
