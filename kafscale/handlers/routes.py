"""The APIs that are served, their versions and handlers: the only such table.

ApiVersions and docs/supported-apis.md derive from this table.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

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
from kafscale.serving.context import Broker, Reply, RequestContext

MessageHandler = Callable[[Broker, RequestContext, Any], Any]
"""Takes a decoded message and returns the response, or an awaitable of it: a message or a whole frame."""

BodyHandler = Callable[[Broker, RequestContext, memoryview, Reply], Awaitable[None] | None]
"""Takes the request's bytes and replies itself; see `produce.handle` for the value that it may return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One API. Exactly one of the two handlers is set."""

    api: ApiKey
    min_version: int
    max_version: int
    message_handler: MessageHandler | None = None
    body_handler: BodyHandler | None = None


def _cold(api: ApiKey, min_version: int, max_version: int, handler: MessageHandler) -> Route:
    return Route(api=api, min_version=min_version, max_version=max_version, message_handler=handler)


def _hot(api: ApiKey, min_version: int, max_version: int, handler: BodyHandler) -> Route:
    return Route(api=api, min_version=min_version, max_version=max_version, body_handler=handler)


def _api_versions(broker: Broker, request: RequestContext, message: Any) -> Any:
    return api_versions.handle(map(version_range, ROUTES), broker, request, message)


def version_range(route: Route) -> api_versions.VersionRange:
    """The route's entry in ApiVersions."""
    return api_versions.VersionRange(int(route.api), route.min_version, route.max_version)


ROUTES: Final = (
    # From 0: librdkafka switches features on by the advertised minimum.
    _hot(ApiKey.PRODUCE, 0, 9, produce.handle),
    _hot(ApiKey.FETCH, 4, 13, fetch.handle),
    _cold(ApiKey.LIST_OFFSETS, 0, 7, list_offsets.handle),
    _cold(ApiKey.METADATA, 0, 12, metadata.handle),
    _cold(ApiKey.OFFSET_COMMIT, 2, 8, offset_commit.handle),
    _cold(ApiKey.OFFSET_FETCH, 1, 8, offset_fetch.handle),
    _cold(ApiKey.FIND_COORDINATOR, 0, 4, find_coordinator.handle),
    _cold(ApiKey.JOIN_GROUP, 0, 9, join_group.handle),
    _cold(ApiKey.HEARTBEAT, 0, 4, heartbeat.handle),
    _cold(ApiKey.LEAVE_GROUP, 0, 5, leave_group.handle),
    _cold(ApiKey.SYNC_GROUP, 0, 5, sync_group.handle),
    _cold(ApiKey.DESCRIBE_GROUPS, 0, 6, describe_groups.handle),
    _cold(ApiKey.LIST_GROUPS, 0, 5, list_groups.handle),
    _cold(ApiKey.API_VERSIONS, 0, 4, _api_versions),
    _cold(ApiKey.CREATE_TOPICS, 0, 7, create_topics.handle),
    _cold(ApiKey.DELETE_TOPICS, 0, 6, delete_topics.handle),
    _cold(ApiKey.DELETE_RECORDS, 0, 2, delete_records.handle),
    _cold(ApiKey.INIT_PRODUCER_ID, 0, 4, init_producer_id.handle),
    _cold(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, offset_for_leader_epoch.handle),
    _cold(ApiKey.DESCRIBE_ACLS, 1, 3, describe_acls.handle),
    _cold(ApiKey.CREATE_ACLS, 1, 3, create_acls.handle),
    _cold(ApiKey.DELETE_ACLS, 1, 3, delete_acls.handle),
    _cold(ApiKey.DESCRIBE_CONFIGS, 1, 4, describe_configs.handle),
    _cold(ApiKey.ALTER_CONFIGS, 0, 2, alter_configs.handle),
    _cold(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, alter_replica_log_dirs.handle),
    _cold(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, describe_log_dirs.handle),
    _cold(ApiKey.CREATE_PARTITIONS, 0, 3, create_partitions.handle),
    _cold(ApiKey.DELETE_GROUPS, 0, 2, delete_groups.handle),
    _cold(ApiKey.ELECT_LEADERS, 0, 2, elect_leaders.handle),
    _cold(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, incremental_alter_configs.handle),
    _cold(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, alter_partition_reassignments.handle),
    _cold(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, list_partition_reassignments.handle),
    _cold(ApiKey.OFFSET_DELETE, 0, 0, offset_delete.handle),
    _cold(ApiKey.UPDATE_FEATURES, 0, 2, update_features.handle),
    _cold(ApiKey.DESCRIBE_CLUSTER, 0, 1, describe_cluster.handle),
    _cold(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, list_config_resources.handle),
    _cold(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, describe_topic_partitions.handle),
)

ROUTES_BY_KEY: Final = {int(route.api): route for route in ROUTES}
