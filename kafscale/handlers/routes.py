"""The APIs that are served, their versions and handlers: the only such table.

ApiVersions and docs/supported-apis.md derive from this table.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kafscale.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
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
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from kafscale.handlers.needs import (
    Need,
    Needs,
    Open,
    cluster,
    config_resource,
    group,
    topic,
    transactional_id,
)
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.api_messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    AlterShareGroupOffsetsRequest,
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeShareGroupOffsetsRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    EndTxnRequest,
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
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    Request,
    Response,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    ShareAcknowledgeRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    UpdateFeaturesRequest,
    WriteTxnMarkersRequest,
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

    `needs`: what the client's access must allow; the handler asks, for each resource. Raises `ValueError` without.

    `waits_for_clients`: other clients of the group decide when it is answered, within times that the client chose.
    What such a request keeps meanwhile counts in the memory for groups, and its bytes are released.
    """

    api: ApiKey
    min_version: int
    max_version: int
    needs: Needs
    message_handler: MessageHandler[Any] | None = None
    body_handler: BodyHandler | None = None
    waits_for_clients: bool = False

    def __post_init__(self) -> None:
        if not self.needs:
            raise ValueError(f"the route of {self.api.name} says nothing of what a client must be allowed")


def _cold(
    request: type[R],
    min_version: int,
    max_version: int,
    handler: MessageHandler[R],
    *needs: Need | Open,
    waits_for_clients: bool = False,
) -> Route:
    """An API whose requests are decoded by their schema, into what the handler takes."""
    return Route(
        api=ApiKey(request.API_KEY),
        min_version=min_version,
        max_version=max_version,
        needs=_needs(needs),
        message_handler=handler,
        waits_for_clients=waits_for_clients,
    )


def _hot(api: ApiKey, min_version: int, max_version: int, handler: BodyHandler, *needs: Need | Open) -> Route:
    return Route(
        api=api,
        min_version=min_version,
        max_version=max_version,
        needs=_needs(needs),
        body_handler=handler,
    )


def _needs(given: Sequence[Need | Open]) -> Needs:
    if len(given) == 1 and isinstance(given[0], Open):
        return given[0]
    return tuple(need for need in given if isinstance(need, Need))


def _api_versions(
    broker: Broker, request: RequestContext, message: ApiVersionsRequest
) -> ApiVersionsResponse:
    return api_versions.handle(map(version_range, ROUTES), broker, request, message)


def version_range(route: Route) -> api_versions.VersionRange:
    """The route's entry in ApiVersions."""
    return api_versions.VersionRange(int(route.api), route.min_version, route.max_version)


_TO_AUTHENTICATE: Final = "a client authenticates itself with it"
_TO_CREATE: Final = "to create a topic that is not there"
_OR_CREATE: Final = "to create it, if the cluster's is not allowed"

ROUTES: Final = (
    # From 0: librdkafka switches features on by the advertised minimum.
    _hot(
        ApiKey.PRODUCE,
        0,
        12,
        produce.handle,
        topic(Operation.WRITE),
        transactional_id(Operation.WRITE, "with a transactional id"),
    ),
    _hot(ApiKey.FETCH, 4, 13, fetch.handle, topic(Operation.READ)),
    _cold(
        ShareGroupHeartbeatRequest,
        1,
        1,
        share_group_heartbeat.handle,
        group(Operation.READ),
        topic(Operation.DESCRIBE),
    ),
    _cold(
        ShareGroupDescribeRequest,
        1,
        1,
        share_group_describe.handle,
        group(Operation.DESCRIBE, "with Describe of every topic that its members have"),
    ),
    _hot(ApiKey.SHARE_FETCH, 1, 2, share_fetch.handle, group(Operation.READ), topic(Operation.READ)),
    _cold(
        ShareAcknowledgeRequest,
        1,
        2,
        share_acknowledge.handle,
        group(Operation.READ),
        topic(Operation.READ),
    ),
    _cold(
        DescribeShareGroupOffsetsRequest,
        0,
        1,
        describe_share_group_offsets.handle,
        group(Operation.DESCRIBE),
        topic(Operation.DESCRIBE),
    ),
    _cold(
        AlterShareGroupOffsetsRequest,
        0,
        0,
        alter_share_group_offsets.handle,
        group(Operation.READ),
        topic(Operation.READ),
    ),
    _cold(
        DeleteShareGroupOffsetsRequest,
        0,
        0,
        delete_share_group_offsets.handle,
        group(Operation.DELETE),
        topic(Operation.READ),
    ),
    _cold(ListOffsetsRequest, 0, 7, list_offsets.handle, topic(Operation.DESCRIBE)),
    _cold(
        MetadataRequest,
        0,
        12,
        metadata.handle,
        topic(Operation.DESCRIBE),
        cluster(Operation.CREATE, _TO_CREATE),
        topic(Operation.CREATE, _OR_CREATE),
        cluster(Operation.DESCRIBE, "for the authorized operations of the cluster"),
    ),
    _cold(OffsetCommitRequest, 2, 10, offset_commit.handle, group(Operation.READ), topic(Operation.READ)),
    _cold(
        OffsetFetchRequest, 1, 10, offset_fetch.handle, group(Operation.DESCRIBE), topic(Operation.DESCRIBE)
    ),
    _cold(
        FindCoordinatorRequest,
        0,
        4,
        find_coordinator.handle,
        group(Operation.DESCRIBE, "of a group"),
        transactional_id(Operation.DESCRIBE, "of a transactional id"),
    ),
    _cold(JoinGroupRequest, 0, 9, join_group.handle, group(Operation.READ), waits_for_clients=True),
    _cold(HeartbeatRequest, 0, 4, heartbeat.handle, group(Operation.READ)),
    _cold(LeaveGroupRequest, 0, 5, leave_group.handle, group(Operation.READ)),
    _cold(SyncGroupRequest, 0, 5, sync_group.handle, group(Operation.READ), waits_for_clients=True),
    _cold(DescribeGroupsRequest, 0, 6, describe_groups.handle, group(Operation.DESCRIBE)),
    _cold(
        ListGroupsRequest,
        0,
        5,
        list_groups.handle,
        cluster(Operation.DESCRIBE, "for all groups"),
        group(Operation.DESCRIBE, "else for each group"),
    ),
    _cold(SaslHandshakeRequest, 0, 1, sasl_handshake.handle, Open(_TO_AUTHENTICATE)),
    _cold(
        ApiVersionsRequest,
        0,
        4,
        _api_versions,
        Open("a client must know the versions before it can authenticate itself"),
    ),
    _cold(
        CreateTopicsRequest,
        0,
        7,
        create_topics.handle,
        cluster(Operation.CREATE),
        topic(Operation.CREATE, "if the cluster's is not allowed"),
        topic(Operation.DESCRIBE_CONFIGS, "for the configs in the answer"),
    ),
    _cold(
        DeleteTopicsRequest,
        0,
        6,
        delete_topics.handle,
        cluster(Operation.DELETE),
        topic(Operation.DELETE, "if the cluster's is not allowed"),
        topic(Operation.DESCRIBE, "to learn of a topic that it is not there"),
    ),
    _cold(DeleteRecordsRequest, 0, 2, delete_records.handle, topic(Operation.DELETE)),
    _cold(
        InitProducerIdRequest,
        0,
        5,
        init_producer_id.handle,
        transactional_id(Operation.WRITE, "with a transactional id"),
        cluster(Operation.IDEMPOTENT_WRITE, "else"),
        topic(Operation.WRITE, "else with any topic"),
    ),
    _cold(
        OffsetForLeaderEpochRequest,
        2,
        4,
        offset_for_leader_epoch.handle,
        cluster(Operation.CLUSTER_ACTION),
        topic(Operation.DESCRIBE, "if the cluster's is not allowed"),
    ),
    _cold(
        AddPartitionsToTxnRequest,
        0,
        3,
        add_partitions_to_txn.handle,
        transactional_id(Operation.WRITE),
        topic(Operation.WRITE),
    ),
    _cold(
        AddOffsetsToTxnRequest,
        0,
        4,
        add_offsets_to_txn.handle,
        transactional_id(Operation.WRITE),
        group(Operation.READ),
    ),
    _cold(EndTxnRequest, 0, 5, end_txn.handle, transactional_id(Operation.WRITE)),
    _cold(
        WriteTxnMarkersRequest,
        1,
        1,
        write_txn_markers.handle,
        cluster(Operation.ALTER),
        cluster(Operation.CLUSTER_ACTION, "if it is not allowed to alter the cluster"),
    ),
    _cold(
        TxnOffsetCommitRequest,
        0,
        5,
        txn_offset_commit.handle,
        transactional_id(Operation.WRITE),
        group(Operation.READ),
        topic(Operation.READ),
    ),
    _cold(DescribeAclsRequest, 1, 3, describe_acls.handle, cluster(Operation.DESCRIBE)),
    _cold(CreateAclsRequest, 1, 3, create_acls.handle, cluster(Operation.ALTER)),
    _cold(DeleteAclsRequest, 1, 3, delete_acls.handle, cluster(Operation.ALTER)),
    _cold(
        DescribeConfigsRequest,
        1,
        4,
        describe_configs.handle,
        *config_resource(Operation.DESCRIBE_CONFIGS),
    ),
    _cold(
        AlterConfigsRequest,
        0,
        2,
        alter_configs.handle,
        *config_resource(Operation.ALTER_CONFIGS),
    ),
    _cold(AlterReplicaLogDirsRequest, 1, 2, alter_replica_log_dirs.handle, cluster(Operation.ALTER)),
    _cold(DescribeLogDirsRequest, 1, 4, describe_log_dirs.handle, cluster(Operation.DESCRIBE)),
    _cold(SaslAuthenticateRequest, 0, 2, sasl_authenticate.handle, Open(_TO_AUTHENTICATE)),
    _cold(CreatePartitionsRequest, 0, 3, create_partitions.handle, topic(Operation.ALTER)),
    _cold(DeleteGroupsRequest, 0, 2, delete_groups.handle, group(Operation.DELETE)),
    _cold(ElectLeadersRequest, 0, 2, elect_leaders.handle, cluster(Operation.ALTER)),
    _cold(
        IncrementalAlterConfigsRequest,
        0,
        1,
        incremental_alter_configs.handle,
        *config_resource(Operation.ALTER_CONFIGS),
    ),
    _cold(
        AlterPartitionReassignmentsRequest,
        0,
        1,
        alter_partition_reassignments.handle,
        cluster(Operation.ALTER),
    ),
    _cold(
        ListPartitionReassignmentsRequest,
        0,
        0,
        list_partition_reassignments.handle,
        cluster(Operation.DESCRIBE),
    ),
    _cold(OffsetDeleteRequest, 0, 0, offset_delete.handle, group(Operation.DELETE), topic(Operation.READ)),
    _cold(
        DescribeClientQuotasRequest, 0, 1, describe_client_quotas.handle, cluster(Operation.DESCRIBE_CONFIGS)
    ),
    _cold(AlterClientQuotasRequest, 0, 1, alter_client_quotas.handle, cluster(Operation.ALTER_CONFIGS)),
    _cold(
        DescribeUserScramCredentialsRequest,
        0,
        0,
        describe_user_scram_credentials.handle,
        cluster(Operation.DESCRIBE),
    ),
    _cold(
        AlterUserScramCredentialsRequest,
        0,
        0,
        alter_user_scram_credentials.handle,
        cluster(Operation.ALTER),
    ),
    _cold(UpdateFeaturesRequest, 0, 2, update_features.handle, cluster(Operation.ALTER)),
    _cold(
        DescribeClusterRequest,
        0,
        1,
        describe_cluster.handle,
        cluster(Operation.DESCRIBE, "for the authorized operations of the cluster"),
    ),
    _cold(DescribeProducersRequest, 0, 0, describe_producers.handle, topic(Operation.READ)),
    _cold(
        ConsumerGroupHeartbeatRequest,
        0,
        1,
        consumer_group_heartbeat.handle,
        group(Operation.READ),
        topic(Operation.DESCRIBE, "for each topic that it subscribes to"),
    ),
    _cold(
        ConsumerGroupDescribeRequest,
        0,
        1,
        consumer_group_describe.handle,
        group(Operation.DESCRIBE, "with Describe of every topic that its members have"),
    ),
    _cold(
        ListConfigResourcesRequest, 0, 1, list_config_resources.handle, cluster(Operation.DESCRIBE_CONFIGS)
    ),
    _cold(
        DescribeTransactionsRequest,
        0,
        0,
        describe_transactions.handle,
        transactional_id(Operation.DESCRIBE),
        topic(Operation.DESCRIBE, "for the partitions of a topic"),
    ),
    _cold(
        ListTransactionsRequest,
        0,
        1,
        list_transactions.handle,
        transactional_id(Operation.DESCRIBE, "for each transactional id"),
    ),
    _cold(DescribeTopicPartitionsRequest, 0, 0, describe_topic_partitions.handle, topic(Operation.DESCRIBE)),
)

ROUTES_BY_KEY: Final = {int(route.api): route for route in ROUTES}
