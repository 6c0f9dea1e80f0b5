"""The APIs that are served, their versions and handlers: the only such table.

ApiVersions and docs/supported-apis.md derive from this table.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kafscale.handlers import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    update_features,
)
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.api_messages import (
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    Request,
    Response,
    SyncGroupRequest,
    UpdateFeaturesRequest,
)
from kafscale.serving.context import Broker, Reply, RequestContext

R = TypeVar("R", bound="Request")  # quoted: kafka-python's base class has no truth value

Answer = Response | bytes
"""A message, or a whole frame."""

MessageHandler = Callable[[Broker, RequestContext, R], Answer | Awaitable[Answer]]
"""Takes a decoded message and returns the response, or an awaitable of it."""

BodyHandler = Callable[[Broker, RequestContext, memoryview, Reply], Awaitable[None] | None]
"""Takes the request's bytes and replies itself; see `produce.handle` for the value that it may return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One API. Exactly one of the two handlers is set.

    `waits_for_clients`: other clients of the group decide when it is answered, within times that the client chose.
    What such a request keeps meanwhile counts in the memory for groups, and its bytes are released.
    """

    api: ApiKey
    min_version: int
    max_version: int
    message_handler: MessageHandler[Any] | None = None
    body_handler: BodyHandler | None = None
    waits_for_clients: bool = False


def _cold(
    request: type[R],
    min_version: int,
    max_version: int,
    handler: MessageHandler[R],
    *,
    waits_for_clients: bool = False,
) -> Route:
    """An API whose requests are decoded by their schema, into what the handler takes."""
    return Route(
        api=ApiKey(request.API_KEY),
        min_version=min_version,
        max_version=max_version,
        message_handler=handler,
        waits_for_clients=waits_for_clients,
    )


def _hot(api: ApiKey, min_version: int, max_version: int, handler: BodyHandler) -> Route:
    return Route(api=api, min_version=min_version, max_version=max_version, body_handler=handler)


def _api_versions(
    broker: Broker, request: RequestContext, message: ApiVersionsRequest
) -> ApiVersionsResponse:
    return api_versions.handle(map(version_range, ROUTES), broker, request, message)


def version_range(route: Route) -> api_versions.VersionRange:
    """The route's entry in ApiVersions."""
    return api_versions.VersionRange(int(route.api), route.min_version, route.max_version)


ROUTES: Final = (
    # From 0: librdkafka switches features on by the advertised minimum.
    _hot(ApiKey.PRODUCE, 0, 9, produce.handle),
    _hot(ApiKey.FETCH, 4, 13, fetch.handle),
    _cold(ListOffsetsRequest, 0, 7, list_offsets.handle),
    _cold(MetadataRequest, 0, 12, metadata.handle),
    _cold(OffsetCommitRequest, 2, 8, offset_commit.handle),
    _cold(OffsetFetchRequest, 1, 8, offset_fetch.handle),
    _cold(FindCoordinatorRequest, 0, 4, find_coordinator.handle),
    _cold(JoinGroupRequest, 0, 9, join_group.handle, waits_for_clients=True),
    _cold(HeartbeatRequest, 0, 4, heartbeat.handle),
    _cold(LeaveGroupRequest, 0, 5, leave_group.handle),
    _cold(SyncGroupRequest, 0, 5, sync_group.handle, waits_for_clients=True),
    _cold(DescribeGroupsRequest, 0, 6, describe_groups.handle),
    _cold(ListGroupsRequest, 0, 5, list_groups.handle),
    _cold(ApiVersionsRequest, 0, 4, _api_versions),
    _cold(CreateTopicsRequest, 0, 7, create_topics.handle),
    _cold(DeleteTopicsRequest, 0, 6, delete_topics.handle),
    _cold(DeleteRecordsRequest, 0, 2, delete_records.handle),
    _cold(InitProducerIdRequest, 0, 4, init_producer_id.handle),
    _cold(OffsetForLeaderEpochRequest, 2, 4, offset_for_leader_epoch.handle),
    _cold(DescribeAclsRequest, 1, 3, describe_acls.handle),
    _cold(CreateAclsRequest, 1, 3, create_acls.handle),
    _cold(DeleteAclsRequest, 1, 3, delete_acls.handle),
    _cold(DescribeConfigsRequest, 1, 4, describe_configs.handle),
    _cold(AlterConfigsRequest, 0, 2, alter_configs.handle),
    _cold(AlterReplicaLogDirsRequest, 1, 2, alter_replica_log_dirs.handle),
    _cold(DescribeLogDirsRequest, 1, 4, describe_log_dirs.handle),
    _cold(CreatePartitionsRequest, 0, 3, create_partitions.handle),
    _cold(DeleteGroupsRequest, 0, 2, delete_groups.handle),
    _cold(ElectLeadersRequest, 0, 2, elect_leaders.handle),
    _cold(IncrementalAlterConfigsRequest, 0, 1, incremental_alter_configs.handle),
    _cold(AlterPartitionReassignmentsRequest, 0, 1, alter_partition_reassignments.handle),
    _cold(ListPartitionReassignmentsRequest, 0, 0, list_partition_reassignments.handle),
    _cold(OffsetDeleteRequest, 0, 0, offset_delete.handle),
    _cold(UpdateFeaturesRequest, 0, 2, update_features.handle),
    _cold(DescribeClusterRequest, 0, 1, describe_cluster.handle),
    _cold(ListConfigResourcesRequest, 0, 1, list_config_resources.handle),
    _cold(DescribeTopicPartitionsRequest, 0, 0, describe_topic_partitions.handle),
)

ROUTES_BY_KEY: Final = {int(route.api): route for route in ROUTES}
