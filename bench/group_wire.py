"""Groups over the harness's own connection: coordinators, their configs, and the members of share groups."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from bench.wire import Client, WireError, encode
from kafscale.protocol.api_messages import ShareGroupHeartbeatRequest
from kafscale.protocol.share_group_messages import ShareGroupHeartbeatResponse

NOT_YET = (14, 15, 16)
"""Errors of a coordinator that is being made, elected or loaded."""

_GROUP_RESOURCE = 32
_ALTER_VERSION, _FIND_VERSION, _METADATA_VERSION, _SHARE_HEARTBEAT_VERSION = 1, 2, 12, 1
_ASK_AGAIN_SECONDS = 0.05
_PATIENCE_SECONDS = 60.0


def topic_id(client: Client, topic: str) -> uuid.UUID:
    """The id of a topic that is there."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=topic)],
        allow_auto_topic_creation=False,
    )
    (found,) = _asked(client, request, MetadataResponse, _METADATA_VERSION).topics
    _raise_for(found.error_code, f"Metadata of {topic}")
    return uuid.UUID(str(found.topic_id))


def alter_group_config(client: Client, group: str, name: str, value: str) -> None:
    """Set one config of a group."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    row = resource.AlterableConfig(name=name, config_operation=0, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=[row])],
        validate_only=False,
    )
    (answer,) = _asked(client, request, IncrementalAlterConfigsResponse, _ALTER_VERSION).responses
    _raise_for(answer.error_code, f"{name}={value} of group {group}")


def await_coordinator(client: Client, group: str) -> None:
    """Return once the group has a coordinator: Kafka makes its topic when the first one is requested."""
    request = FindCoordinatorRequest(key=group, key_type=0)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while code := _asked(client, request, FindCoordinatorResponse, _FIND_VERSION).error_code:
        if code not in NOT_YET or time.monotonic() > deadline:
            _raise_for(code, f"FindCoordinator of {group}")
        time.sleep(_ASK_AGAIN_SECONDS)


def join_share_group(
    client: Client, group: str, topic: str, members: Sequence[str], partitions: int
) -> Mapping[str, Sequence[int]]:
    """The partitions of each member, once all have some and all partitions have a member."""
    epochs = dict.fromkeys(members, 0)
    assigned: dict[str, list[int]] = {}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        for member in members:
            answer = _share_heartbeat(client, group, member, epochs[member], [topic])
            if answer.error_code in NOT_YET:
                continue
            _raise_for(answer.error_code, f"ShareGroupHeartbeat of {member}")
            epochs[member] = answer.member_epoch
            if answer.assignment is not None:
                assigned[member] = [
                    index for one in answer.assignment.topic_partitions for index in one.partitions
                ]
        everything = {index for indexes in assigned.values() for index in indexes}
        if len(set(epochs.values())) == 1 and len(everything) == partitions and all(assigned.values()):
            return assigned
        if time.monotonic() > deadline:
            raise WireError(f"the members of {group} have {assigned} at the epochs {epochs}")
        time.sleep(_ASK_AGAIN_SECONDS)


def _share_heartbeat(client: Client, group: str, member: str, epoch: int, topics: list[str]) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, rack_id=None, subscribed_topic_names=topics
    )
    return _asked(client, request, ShareGroupHeartbeatResponse, _SHARE_HEARTBEAT_VERSION)


def _asked(client: Client, request: Any, response_class: Any, version: int) -> Any:
    reply = client.exchange(encode(request, version, correlation_id=1))
    return response_class.decode(reply, version=version, header=True, framed=True)


def _raise_for(code: int, what: str) -> None:
    if code:
        raise WireError(f"{what}: the broker answered error code {code}")
