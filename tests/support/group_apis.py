"""Requests about groups that need no member: offsets, coordinators, lists, descriptions, deletions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from tests.support.wire import Wire

FIND_COORDINATOR_VERSION = 4
OFFSET_COMMIT_VERSION = 8
OFFSET_FETCH_VERSION = 8
DESCRIBE_GROUPS_VERSION = 5
LIST_GROUPS_VERSION = 5
DELETE_GROUPS_VERSION = 2
OFFSET_DELETE_VERSION = 0

GROUP_KEY, TRANSACTION_KEY = 0, 1

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed offset, as it is sent and as it is returned (then with the partition's error code)."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


NEVER_COMMITTED = Committed(offset=-1)


def find_coordinator(
    wire: Wire, keys: list[str], key_type: int = GROUP_KEY, version: int = FIND_COORDINATOR_VERSION
) -> dict[str, Any]:
    """Key -> its coordinator (`error_code`, `node_id`, `host`, `port`). Before v4 for one key."""
    request = FindCoordinatorRequest(
        key=keys[0] if keys else "", key_type=key_type, coordinator_keys=list(keys)
    )
    reply = wire.call(request, FindCoordinatorResponse, version)
    return {keys[0]: reply} if version < 4 else {one.key: one for one in reply.coordinators}


def commit(
    wire: Wire,
    group: str,
    offsets: Mapping[TopicPartition, int | Committed],
    *,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    retention_ms: int = -1,
    version: int = OFFSET_COMMIT_VERSION,
) -> dict[TopicPartition, int]:
    """OffsetCommit; returns the error code of each partition."""
    topic_row = OffsetCommitRequest.OffsetCommitRequestTopic
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=[
            topic_row(
                name=topic,
                partitions=[
                    topic_row.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=one.offset,
                        committed_leader_epoch=one.leader_epoch,
                        committed_metadata=one.metadata,
                    )
                    for (name, partition), value in offsets.items()
                    if name == topic
                    for one in [value if isinstance(value, Committed) else Committed(offset=value)]
                ],
            )
            for topic in dict.fromkeys(topic for topic, _ in offsets)
        ],
    )
    reply = wire.call(request, OffsetCommitResponse, version)
    return {
        (topic.name, part.partition_index): part.error_code
        for topic in reply.topics
        for part in topic.partitions
    }


def fetch_offsets_request(
    wanted: Mapping[str, Iterable[TopicPartition] | None], version: int, *, require_stable: bool = False
) -> Any:
    """OffsetFetch for group -> partitions, or None for all of that group. One group before v8."""
    single, several = OffsetFetchRequest.OffsetFetchRequestTopic, OffsetFetchRequest.OffsetFetchRequestGroup

    def rows(kind: Any, partitions: Iterable[TopicPartition] | None) -> Any:
        if partitions is None:
            return None
        pairs = list(partitions)
        return [
            kind(name=topic, partition_indexes=[index for name, index in pairs if name == topic])
            for topic in dict.fromkeys(topic for topic, _ in pairs)
        ]

    group, partitions = next(iter(wanted.items()), ("", None))
    return OffsetFetchRequest(
        group_id=group,
        topics=rows(single, partitions) if version < 8 else [],
        groups=[
            several(group_id=name, topics=rows(several.OffsetFetchRequestTopics, one))
            for name, one in wanted.items()
        ],
        require_stable=require_stable,
    )


def committed(
    wire: Wire,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    version: int = OFFSET_FETCH_VERSION,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, Committed]:
    """OffsetFetch for one group, all its partitions when none are named. Asserts that the group has no error."""
    request = fetch_offsets_request({group: partitions}, version, require_stable=require_stable)
    reply = wire.call(request, OffsetFetchResponse, version)
    answer = reply.groups[0] if version >= 8 else reply
    error_code = answer.error_code if version >= 2 else 0
    assert error_code == 0, f"fetching offsets of {group}: error {error_code}"
    return offsets_in(answer, version)


def offsets_in(answer: Any, version: int) -> dict[TopicPartition, Committed]:
    """The rows of one group in a reply to OffsetFetch."""
    return {
        (topic.name, part.partition_index): Committed(
            offset=part.committed_offset,
            leader_epoch=part.committed_leader_epoch if version >= 5 else -1,
            metadata=part.metadata,
            error_code=part.error_code,
        )
        for topic in answer.topics
        for part in topic.partitions
    }


def describe(
    wire: Wire, groups: list[str], version: int = DESCRIBE_GROUPS_VERSION, *, operations: bool = False
) -> list[Any]:
    """The descriptions in the order of the reply."""
    request = DescribeGroupsRequest(groups=groups, include_authorized_operations=operations)
    return list(wire.call(request, DescribeGroupsResponse, version).groups)


def list_groups(
    wire: Wire, *, states: Iterable[str] = (), types: Iterable[str] = (), version: int = LIST_GROUPS_VERSION
) -> dict[str, Any]:
    """Group id -> its row. Asserts that there is no error and that no group is listed twice."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    reply = wire.call(request, ListGroupsResponse, version)
    assert reply.error_code == 0, f"listing groups: error {reply.error_code}"
    rows = {one.group_id: one for one in reply.groups}
    assert len(rows) == len(reply.groups), "a group is listed twice"
    return rows


def delete_groups(wire: Wire, groups: list[str], version: int = DELETE_GROUPS_VERSION) -> dict[str, int]:
    """Group id -> error code."""
    reply = wire.call(DeleteGroupsRequest(groups_names=groups), DeleteGroupsResponse, version)
    return {one.group_id: one.error_code for one in reply.results}


def delete_offsets(
    wire: Wire, group: str, partitions: Iterable[TopicPartition]
) -> tuple[int, dict[TopicPartition, int]]:
    """OffsetDelete: the error code of the group, and that of each partition."""
    pairs = list(partitions)
    row = OffsetDeleteRequest.OffsetDeleteRequestTopic
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            row(
                name=topic,
                partitions=[
                    row.OffsetDeleteRequestPartition(partition_index=index)
                    for name, index in pairs
                    if name == topic
                ],
            )
            for topic in dict.fromkeys(topic for topic, _ in pairs)
        ],
    )
    reply = wire.call(request, OffsetDeleteResponse, OFFSET_DELETE_VERSION)
    return reply.error_code, {
        (topic.name, part.partition_index): part.error_code
        for topic in reply.topics
        for part in topic.partitions
    }
