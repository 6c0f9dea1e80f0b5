"""Topics for tests, created with raw requests so that a test of one client needs no other's admin code."""

import itertools
import os
from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support.waiting import PATIENCE_MS, wait_until
from tests.support.wire import LATEST, Wire, connect, list_offset

CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 5
METADATA_VERSION = 12

_numbers = itertools.count()


def unique_name(prefix: str = "topic") -> str:
    """A topic name that no other test uses, in this process or another."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def create_topics_request(
    name: str, partitions: int, configs: Mapping[str, object] | None
) -> CreateTopicsRequest:
    """A request for one topic."""
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=-1,
                assignments=[],
                configs=[
                    topic.CreatableTopicConfig(name=key, value=str(value))
                    for key, value in (configs or {}).items()
                ],
            )
        ],
        timeout_ms=PATIENCE_MS,
        validate_only=False,
    )


def create_topic(
    broker: Any, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
) -> None:
    """Create a topic and wait until it has its leaders."""
    request = create_topics_request(name, partitions, configs)
    with connect(broker) as wire:
        reply = wire.call(request, CreateTopicsResponse, CREATE_TOPICS_VERSION).topics[0]
        assert reply.error_code == 0, f"creating {name}: error {reply.error_code} {reply.error_message}"
        wait_until(lambda: _is_led(wire, name, partitions), f"{name} has its leaders")


def delete_topic(broker: Any, name: str) -> None:
    """Delete a topic and wait until it is gone."""
    with connect(broker) as wire:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=PATIENCE_MS)
        reply = wire.call(request, DeleteTopicsResponse, DELETE_TOPICS_VERSION).responses[0]
        assert reply.error_code == 0, f"deleting {name}: error {reply.error_code}"
        wait_until(lambda: describe_topic(wire, name).error_code == 3, f"{name} is gone")


def describe_topic(wire: Wire, name: str, *, auto_create: bool = False) -> Any:
    """The topic's part of a Metadata reply (`error_code`, `topic_id`, `partitions`, ...)."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name)],
        allow_auto_topic_creation=auto_create,
        include_topic_authorized_operations=False,
    )
    return wire.call(request, MetadataResponse, METADATA_VERSION).topics[0]


def _is_led(wire: Wire, name: str, partitions: int) -> bool:
    """True if every partition answers; Kafka names a leader before that leader knows of it."""
    topic = describe_topic(wire, name)
    return (
        topic.error_code == 0
        and len(topic.partitions) == partitions
        and all(list_offset(wire, name, index, LATEST).error_code == 0 for index in range(partitions))
    )
