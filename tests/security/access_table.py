"""The requests of every route, and Kafka's answers to a client that may, and may not, do what they need.

Read in Apache Kafka's KafkaApis, ControllerApis, AclApis, ConfigHelper and DescribeTopicPartitionsRequestHandler.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from kafscale.protocol import api_messages as m
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_keys import ApiKey
from tests.security.access_requests import (
    QUEUE,
    TEAM,
    TRANSACTION,
    Target,
    acl_filter,
    add_offsets,
    add_partitions,
    alter_quotas,
    alter_share_offsets,
    configs,
    consumer_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_credential,
    delete_records,
    delete_share_offsets,
    delete_topics,
    describe_producers,
    describe_share_offsets,
    describe_topic_partitions,
    describe_transactions,
    described_configs,
    elect_leaders,
    end_transaction,
    epoch_end,
    fetch_by_id,
    init_producer_id,
    join_group,
    list_offsets,
    list_transactions,
    metadata,
    move_log_dirs,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    produce_in_transaction,
    share_acknowledge,
    share_fetch,
    share_heartbeat,
    txn_offset_commit,
    write_markers,
)
from tests.support import wire

Rule = tuple[ResourceType, str, Operation]
"""The subject of a rule: the resource's type, its name, the operation."""

NONE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, UNKNOWN_MEMBER, TOPIC_ALREADY_EXISTS = 0, 3, 5, 25, 36
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED = 29, 30, 31, 53
INVALID_REQUEST, UNKNOWN_PRODUCER_MAPPING, LOG_DIR_NOT_FOUND, MEMBER_ID_REQUIRED = 42, 49, 57, 79
CONCURRENT_TRANSACTIONS = 51
ILLEGAL_SASL_STATE, GROUP_ID_NOT_FOUND, RESOURCE_NOT_FOUND = 34, 69, 91
LEFT_OUT: Final = -2
"""Stands for a resource that an answer does not have."""

CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
READ, WRITE, CREATE, DELETE, ALTER = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
)
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = (
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One form of a request. Each of `enough` is a set of rules that suffices; `given` are rules beside those.

    `denials`: rules that deny it to a client that may do everything else; None: the same as those of `enough`.
    `denied`, `allowed`: the error codes of the resource in question. `names_topic`: a client without rules gets the
    same answer if the topic is not there. `before`: a request of the same version on the same connection.
    """

    api: ApiKey
    form: str = ""
    version: int
    make: Callable[[Target], Any]
    codes: Callable[[Any], Collection[int]]
    enough: Callable[[str], Collection[Collection[Rule]]]
    given: Callable[[str], Collection[Rule]] = lambda topic: ()
    denials: Collection[Rule] | None = None
    denied: int
    allowed: Collection[int] = (NONE,)
    names_topic: bool = False
    before: tuple[ApiKey, Callable[[Target], Any]] | None = None

    @property
    def id(self) -> str:
        return f"{self.api.name.lower()} {self.form}".strip()


def on_topic(operation: Operation) -> Callable[[str], Collection[Collection[Rule]]]:
    return lambda topic: [[(TOPIC, topic, operation)]]


def on_group(operation: Operation) -> Callable[[str], Collection[Collection[Rule]]]:
    return lambda topic: [[(GROUP, TEAM, operation)]]


def on_queue(operation: Operation) -> Callable[[str], Collection[Collection[Rule]]]:
    return lambda topic: [[(GROUP, QUEUE, operation)]]


def queue_given(operation: Operation) -> Callable[[str], Collection[Rule]]:
    return lambda topic: [(GROUP, QUEUE, operation)]


def on_cluster(operation: Operation) -> Callable[[str], Collection[Collection[Rule]]]:
    return lambda topic: [[(CLUSTER, CLUSTER_NAME, operation)]]


def on_transaction(operation: Operation) -> Callable[[str], Collection[Collection[Rule]]]:
    return lambda topic: [[(ResourceType.TRANSACTIONAL_ID, TRANSACTION, operation)]]


def cluster_or_topic(operation: Operation) -> Callable[[str], Collection[Collection[Rule]]]:
    return lambda topic: [[(CLUSTER, CLUSTER_NAME, operation)], [(TOPIC, topic, operation)]]


def group_given(operation: Operation) -> Callable[[str], Collection[Rule]]:
    return lambda topic: [(GROUP, TEAM, operation)]


def group_and_topic_given(topic: str) -> Collection[Rule]:
    return [(GROUP, TEAM, READ), (TOPIC, topic, READ)]


def topic_given(operation: Operation) -> Callable[[str], Collection[Rule]]:
    return lambda topic: [(TOPIC, topic, operation)]


def transaction_given(operation: Operation) -> Callable[[str], Collection[Rule]]:
    return lambda topic: [(ResourceType.TRANSACTIONAL_ID, TRANSACTION, operation)]


def of_added_partitions(reply: Any) -> Collection[int]:
    return [
        one.partition_error_code
        for topic in reply.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]


def of_written_markers(reply: Any) -> Collection[int]:
    return [one.error_code for marker in reply.markers for topic in marker.topics for one in topic.partitions]


def top(reply: Any) -> Collection[int]:
    """The code of the whole request."""
    return [reply.error_code]


def of_partitions(topics: str, partitions: str = "partitions") -> Callable[[Any], Collection[int]]:
    """The codes of all partitions of all topics."""
    return lambda reply: [
        one.error_code for topic in getattr(reply, topics) for one in getattr(topic, partitions)
    ]


def of_each(items: str) -> Callable[[Any], Collection[int]]:
    return lambda reply: [one.error_code for one in getattr(reply, items)]


def listed(
    names: Callable[[Any], Collection[str]], name: str | None = None
) -> Callable[[Any], Collection[int]]:
    """NONE if the name is in the answer (None: any is), `LEFT_OUT` if not."""
    return lambda reply: [NONE if (name in names(reply) if name else names(reply)) else LEFT_OUT]


_ALTER = m.AlterConfigsRequest, m.AlterConfigsRequest.AlterConfigsResource
_INCREMENTAL = m.IncrementalAlterConfigsRequest, m.IncrementalAlterConfigsRequest.AlterConfigsResource


def _config_rows(
    api: ApiKey, version: int, make: Callable[[int], Callable[[Target], Any]], codes: Any, op: Operation
) -> tuple[Row, ...]:
    return (
        Row(
            api=api,
            form="of a topic",
            version=version,
            make=make(2),
            codes=codes,
            enough=on_topic(op),
            denied=TOPIC_DENIED,
            names_topic=True,
        ),
        Row(
            api=api,
            form="of a broker",
            version=version,
            make=make(4),
            codes=codes,
            enough=on_cluster(op),
            denied=CLUSTER_DENIED,
        ),
        Row(
            api=api,
            form="of a group",
            version=version,
            make=make(32),
            codes=codes,
            enough=on_group(op),
            denied=GROUP_DENIED,
        ),
    )


OPENED: Final = (ApiKey.SHARE_FETCH, share_fetch)

TABLE: Final = (
    Row(api=ApiKey.PRODUCE, version=9, make=produce,
        codes=of_partitions("responses", "partition_responses"), enough=on_topic(WRITE), denied=TOPIC_DENIED,
        names_topic=True),
    Row(api=ApiKey.PRODUCE, form="with acks 1", version=3,
        make=lambda t: produce(t, acks=1),
        codes=of_partitions("responses", "partition_responses"), enough=on_topic(WRITE), denied=TOPIC_DENIED,
        names_topic=True),
    Row(api=ApiKey.PRODUCE, form="in a transaction", version=9,
        make=produce_in_transaction,
        codes=of_partitions("responses", "partition_responses"), enough=on_transaction(WRITE),
        given=topic_given(WRITE), denied=TRANSACTION_DENIED),
    Row(api=ApiKey.FETCH, version=11, make=lambda t: wire.fetch_request(t.topic, {0: 0}, max_wait_ms=0),
        codes=of_partitions("responses"), enough=on_topic(READ), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.FETCH, form="by id", version=13, make=fetch_by_id, codes=of_partitions("responses"),
        enough=on_topic(READ), denied=TOPIC_DENIED),
    Row(api=ApiKey.LIST_OFFSETS, version=7, make=list_offsets, codes=of_partitions("topics"),
        enough=on_topic(DESCRIBE), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.METADATA, version=12, make=metadata(), codes=of_each("topics"), enough=on_topic(DESCRIBE),
        denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.METADATA, form="by id", version=12, make=metadata(by_id=True), codes=of_each("topics"),
        enough=on_topic(DESCRIBE), denied=TOPIC_DENIED),
    Row(api=ApiKey.METADATA, form="of all", version=9, make=metadata(every=True),
        codes=listed(lambda reply: [topic.name for topic in reply.topics]), enough=on_topic(DESCRIBE),
        denied=LEFT_OUT),
    Row(api=ApiKey.METADATA, form="with creation", version=9,
        make=lambda t: metadata(creates=True)(Target(f"{t.topic}-new", t.topic_id)), codes=of_each("topics"),
        enough=lambda topic: cluster_or_topic(CREATE)(f"{topic}-new"),
        given=lambda topic: [(TOPIC, f"{topic}-new", DESCRIBE)], denied=TOPIC_DENIED,
        allowed=(LEADER_NOT_AVAILABLE, NONE)),
    Row(api=ApiKey.OFFSET_COMMIT, form="the group", version=8, make=offset_commit, codes=of_partitions("topics"),
        enough=on_group(READ), given=topic_given(READ), denied=GROUP_DENIED),
    Row(api=ApiKey.OFFSET_COMMIT, form="the topic", version=8, make=offset_commit, codes=of_partitions("topics"),
        enough=on_topic(READ), given=group_given(READ), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.OFFSET_FETCH, form="the group", version=8, make=offset_fetch(topics=True),
        codes=of_each("groups"), enough=on_group(DESCRIBE), given=topic_given(DESCRIBE), denied=GROUP_DENIED),
    Row(api=ApiKey.OFFSET_FETCH, form="the topic", version=8, make=offset_fetch(topics=True),
        codes=lambda reply: of_partitions("topics")(reply.groups[0]), enough=on_topic(DESCRIBE),
        given=group_given(DESCRIBE), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.OFFSET_FETCH, form="all topics", version=8, make=offset_fetch(topics=False),
        codes=listed(lambda reply: [topic.name for topic in reply.groups[0].topics]), enough=on_topic(DESCRIBE),
        given=group_given(DESCRIBE), denied=LEFT_OUT),
    Row(api=ApiKey.OFFSET_FETCH, form="of version 5", version=5,
        make=lambda t: m.OffsetFetchRequest(
            group_id=TEAM,
            topics=[m.OffsetFetchRequest.OffsetFetchRequestTopic(name=t.topic, partition_indexes=[0])]),
        codes=top, enough=on_group(DESCRIBE), given=topic_given(DESCRIBE), denied=GROUP_DENIED),
    Row(api=ApiKey.FIND_COORDINATOR, form="of a group", version=4,
        make=lambda t: m.FindCoordinatorRequest(key_type=0, coordinator_keys=[TEAM]), codes=of_each("coordinators"),
        enough=on_group(DESCRIBE), denied=GROUP_DENIED),
    Row(api=ApiKey.FIND_COORDINATOR, form="of a transaction", version=4,
        make=lambda t: m.FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION]),
        codes=of_each("coordinators"), enough=on_transaction(DESCRIBE), denied=TRANSACTION_DENIED),
    Row(api=ApiKey.JOIN_GROUP, version=5,
        make=join_group,
        codes=top, enough=on_group(READ), denied=GROUP_DENIED, allowed=(MEMBER_ID_REQUIRED,)),
    Row(api=ApiKey.SYNC_GROUP, version=3,
        make=lambda t: m.SyncGroupRequest(
            group_id=TEAM, generation_id=1, member_id="x", group_instance_id=None, assignments=[]),
        codes=top, enough=on_group(READ), denied=GROUP_DENIED, allowed=(UNKNOWN_MEMBER,)),
    Row(api=ApiKey.HEARTBEAT, version=3,
        make=lambda t: m.HeartbeatRequest(
            group_id=TEAM, generation_id=1, member_id="x", group_instance_id=None),
        codes=top, enough=on_group(READ), denied=GROUP_DENIED, allowed=(UNKNOWN_MEMBER,)),
    Row(api=ApiKey.LEAVE_GROUP, version=2, make=lambda t: m.LeaveGroupRequest(group_id=TEAM, member_id="x"),
        codes=top, enough=on_group(READ), denied=GROUP_DENIED, allowed=(UNKNOWN_MEMBER,)),
    Row(api=ApiKey.DESCRIBE_GROUPS, version=5,
        make=lambda t: m.DescribeGroupsRequest(groups=[TEAM], include_authorized_operations=True),
        codes=of_each("groups"), enough=on_group(DESCRIBE), denied=GROUP_DENIED),
    Row(api=ApiKey.LIST_GROUPS, version=4, make=lambda t: m.ListGroupsRequest(states_filter=[]),
        codes=listed(lambda reply: [group.group_id for group in reply.groups], TEAM),
        enough=lambda topic: [[(CLUSTER, CLUSTER_NAME, DESCRIBE)], [(GROUP, TEAM, DESCRIBE)]], denied=LEFT_OUT),
    # The group exists, and speaks the classic protocol.
    Row(api=ApiKey.CONSUMER_GROUP_HEARTBEAT, form="the group", version=1, make=consumer_heartbeat, codes=top,
        enough=on_group(READ), given=topic_given(DESCRIBE), denied=GROUP_DENIED, allowed=(GROUP_ID_NOT_FOUND,)),
    Row(api=ApiKey.CONSUMER_GROUP_HEARTBEAT, form="the topic", version=1, make=consumer_heartbeat, codes=top,
        enough=on_topic(DESCRIBE), given=group_given(READ), denied=TOPIC_DENIED, allowed=(GROUP_ID_NOT_FOUND,),
        names_topic=True),
    Row(api=ApiKey.CONSUMER_GROUP_DESCRIBE, version=1,
        make=lambda t: m.ConsumerGroupDescribeRequest(group_ids=[TEAM], include_authorized_operations=True),
        codes=of_each("groups"), enough=on_group(DESCRIBE), denied=GROUP_DENIED, allowed=(GROUP_ID_NOT_FOUND,)),
    # The group exists, without members.
    Row(api=ApiKey.SHARE_GROUP_HEARTBEAT, form="the group", version=1, make=share_heartbeat, codes=top,
        enough=on_queue(READ), given=topic_given(DESCRIBE), denied=GROUP_DENIED, allowed=(UNKNOWN_MEMBER,)),
    Row(api=ApiKey.SHARE_GROUP_HEARTBEAT, form="the topic", version=1, make=share_heartbeat, codes=top,
        enough=on_topic(DESCRIBE), given=queue_given(READ), denied=TOPIC_DENIED, allowed=(UNKNOWN_MEMBER,),
        names_topic=True),
    Row(api=ApiKey.SHARE_GROUP_DESCRIBE, version=1,
        make=lambda t: m.ShareGroupDescribeRequest(group_ids=[QUEUE], include_authorized_operations=True),
        codes=of_each("groups"), enough=on_queue(DESCRIBE), denied=GROUP_DENIED),
    Row(api=ApiKey.SHARE_FETCH, form="the group", version=1, make=share_fetch, codes=top, enough=on_queue(READ),
        given=topic_given(READ), denied=GROUP_DENIED),
    Row(api=ApiKey.SHARE_FETCH, form="the topic", version=1, make=share_fetch, codes=of_partitions("responses"),
        enough=on_topic(READ), given=queue_given(READ), denied=TOPIC_DENIED),
    Row(api=ApiKey.SHARE_ACKNOWLEDGE, form="the group", version=1, make=share_acknowledge, codes=top,
        enough=on_queue(READ), given=topic_given(READ), denied=GROUP_DENIED, before=OPENED),
    Row(api=ApiKey.SHARE_ACKNOWLEDGE, form="the topic", version=1, make=share_acknowledge,
        codes=of_partitions("responses"), enough=on_topic(READ), given=queue_given(READ), denied=TOPIC_DENIED,
        allowed=(INVALID_REQUEST,), before=OPENED),
    Row(api=ApiKey.ALTER_SHARE_GROUP_OFFSETS, form="the group", version=0, make=alter_share_offsets, codes=top,
        enough=on_queue(READ), given=topic_given(READ), denied=GROUP_DENIED),
    Row(api=ApiKey.ALTER_SHARE_GROUP_OFFSETS, form="the topic", version=0, make=alter_share_offsets,
        codes=of_partitions("responses"), enough=on_topic(READ), given=queue_given(READ), denied=TOPIC_DENIED,
        names_topic=True),
    Row(api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, form="the group", version=0, make=describe_share_offsets,
        codes=of_each("groups"), enough=on_queue(DESCRIBE), given=topic_given(DESCRIBE), denied=GROUP_DENIED),
    Row(api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, form="the topic", version=0, make=describe_share_offsets,
        codes=lambda reply: of_partitions("topics")(reply.groups[0]), enough=on_topic(DESCRIBE),
        given=queue_given(DESCRIBE), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.DELETE_SHARE_GROUP_OFFSETS, form="the group", version=0, make=delete_share_offsets, codes=top,
        enough=on_queue(DELETE), given=topic_given(READ), denied=GROUP_DENIED),
    Row(api=ApiKey.DELETE_SHARE_GROUP_OFFSETS, form="the topic", version=0, make=delete_share_offsets,
        codes=of_each("responses"), enough=on_topic(READ), given=queue_given(DELETE), denied=TOPIC_DENIED,
        names_topic=True),
    Row(api=ApiKey.API_VERSIONS, version=0, make=lambda t: m.ApiVersionsRequest(), codes=top,
        enough=lambda topic: [[]], denied=NONE),
    # Without SASL on the listener, both are in an illegal state for every client.
    Row(api=ApiKey.SASL_HANDSHAKE, version=1, make=lambda t: m.SaslHandshakeRequest(mechanism="PLAIN"), codes=top,
        enough=lambda topic: [[]], denied=ILLEGAL_SASL_STATE, allowed=(ILLEGAL_SASL_STATE,)),
    Row(api=ApiKey.SASL_AUTHENTICATE, version=2, make=lambda t: m.SaslAuthenticateRequest(auth_bytes=b"x"),
        codes=top, enough=lambda topic: [[]], denied=ILLEGAL_SASL_STATE, allowed=(ILLEGAL_SASL_STATE,)),
    Row(api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, version=0,
        make=lambda t: m.DescribeUserScramCredentialsRequest(users=None), codes=top,
        enough=on_cluster(DESCRIBE), denied=CLUSTER_DENIED),
    Row(api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version=0, make=delete_credential, codes=of_each("results"),
        enough=on_cluster(ALTER), denied=CLUSTER_DENIED, allowed=(RESOURCE_NOT_FOUND,)),
    Row(api=ApiKey.DESCRIBE_CLIENT_QUOTAS, version=1,
        make=lambda t: m.DescribeClientQuotasRequest(components=[], strict=False), codes=top,
        enough=on_cluster(DESCRIBE_CONFIGS), denied=CLUSTER_DENIED),
    Row(api=ApiKey.ALTER_CLIENT_QUOTAS, version=1, make=alter_quotas, codes=of_each("entries"),
        enough=on_cluster(ALTER_CONFIGS), denied=CLUSTER_DENIED),
    Row(api=ApiKey.CREATE_TOPICS, version=7, make=create_topics, codes=of_each("topics"),
        enough=lambda topic: cluster_or_topic(CREATE)(f"{topic}-new"), denied=TOPIC_DENIED, names_topic=True,
        # An attempt before this one may have created it, and had no answer in time.
        allowed=(NONE, TOPIC_ALREADY_EXISTS)),
    Row(api=ApiKey.CREATE_TOPICS, form="the configs in the answer", version=7, make=create_topics,
        codes=lambda reply: [topic.topic_config_error_code for topic in reply.topics],
        enough=lambda topic: on_topic(DESCRIBE_CONFIGS)(f"{topic}-new"),
        given=lambda topic: [(TOPIC, f"{topic}-new", CREATE)], denied=TOPIC_DENIED),
    Row(api=ApiKey.DELETE_TOPICS, version=6, make=delete_topics(), codes=of_each("responses"),
        enough=cluster_or_topic(DELETE), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.DELETE_TOPICS, form="by id", version=6, make=delete_topics(by_id=True),
        codes=of_each("responses"), enough=cluster_or_topic(DELETE), denied=TOPIC_DENIED),
    Row(api=ApiKey.DELETE_TOPICS, form="that is not there", version=6,
        make=lambda t: delete_topics()(Target("nowhere", t.topic_id)), codes=of_each("responses"),
        enough=lambda topic: [[(TOPIC, "nowhere", DESCRIBE)], [(CLUSTER, CLUSTER_NAME, DELETE)]],
        denied=TOPIC_DENIED, allowed=(UNKNOWN_TOPIC,)),
    Row(api=ApiKey.DELETE_RECORDS, version=2, make=delete_records, codes=of_partitions("topics"),
        enough=on_topic(DELETE), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.INIT_PRODUCER_ID, version=4,
        make=init_producer_id(None),
        codes=top,
        enough=lambda topic: [[(CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE)], [(TOPIC, topic, WRITE)]],
        denials=((CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE), (TOPIC, "*", WRITE)),
        denied=CLUSTER_DENIED),
    Row(api=ApiKey.INIT_PRODUCER_ID, form="with a transactional id", version=4,
        make=init_producer_id(TRANSACTION),
        codes=top, enough=on_transaction(WRITE), denied=TRANSACTION_DENIED, allowed=(CONCURRENT_TRANSACTIONS,)),
    Row(api=ApiKey.ADD_PARTITIONS_TO_TXN, form="the transactional id", version=3, make=add_partitions,
        codes=of_added_partitions, enough=on_transaction(WRITE), given=topic_given(WRITE),
        denied=TRANSACTION_DENIED),
    Row(api=ApiKey.ADD_PARTITIONS_TO_TXN, form="the topic", version=3, make=add_partitions,
        codes=of_added_partitions, enough=on_topic(WRITE), given=transaction_given(WRITE), denied=TOPIC_DENIED,
        names_topic=True),
    Row(api=ApiKey.ADD_OFFSETS_TO_TXN, form="the transactional id", version=4, make=add_offsets, codes=top,
        enough=on_transaction(WRITE), given=group_given(READ), denied=TRANSACTION_DENIED),
    Row(api=ApiKey.ADD_OFFSETS_TO_TXN, form="the group", version=4, make=add_offsets, codes=top,
        enough=on_group(READ), given=transaction_given(WRITE), denied=GROUP_DENIED),
    Row(api=ApiKey.END_TXN, version=5, make=end_transaction, codes=top, enough=on_transaction(WRITE),
        denied=TRANSACTION_DENIED),
    Row(api=ApiKey.WRITE_TXN_MARKERS, version=1, make=write_markers, codes=of_written_markers,
        enough=lambda topic: [[(CLUSTER, CLUSTER_NAME, ALTER)], [(CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)]],
        denied=CLUSTER_DENIED),
    Row(api=ApiKey.DESCRIBE_TRANSACTIONS, version=0, make=describe_transactions,
        codes=of_each("transaction_states"), enough=on_transaction(DESCRIBE), denied=TRANSACTION_DENIED),
    Row(api=ApiKey.DESCRIBE_TRANSACTIONS, form="the topics", version=0, make=describe_transactions,
        codes=listed(lambda reply: reply.transaction_states[0].topics), enough=on_topic(DESCRIBE),
        given=transaction_given(DESCRIBE), denied=LEFT_OUT),
    Row(api=ApiKey.LIST_TRANSACTIONS, version=1, make=list_transactions,
        codes=listed(lambda reply: [one.transactional_id for one in reply.transaction_states], TRANSACTION),
        enough=on_transaction(DESCRIBE), denied=LEFT_OUT),
    Row(api=ApiKey.OFFSET_FOR_LEADER_EPOCH, version=4, make=epoch_end, codes=of_partitions("topics"),
        enough=lambda topic: [[(TOPIC, topic, DESCRIBE)], [(CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)]],
        denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.TXN_OFFSET_COMMIT, form="the transactional id", version=5, make=txn_offset_commit,
        codes=of_partitions("topics"), enough=on_transaction(WRITE), given=group_and_topic_given,
        denied=TRANSACTION_DENIED, allowed=(UNKNOWN_PRODUCER_MAPPING,)),
    Row(api=ApiKey.TXN_OFFSET_COMMIT, form="the group", version=5, make=txn_offset_commit,
        codes=of_partitions("topics"), enough=on_group(READ),
        given=lambda topic: [*topic_given(READ)(topic), *transaction_given(WRITE)(topic)],
        denied=GROUP_DENIED, allowed=(UNKNOWN_PRODUCER_MAPPING,)),
    Row(api=ApiKey.TXN_OFFSET_COMMIT, form="the topic", version=5, make=txn_offset_commit,
        codes=of_partitions("topics"), enough=on_topic(READ),
        given=lambda topic: [*group_given(READ)(topic), *transaction_given(WRITE)(topic)],
        denied=TOPIC_DENIED, allowed=(UNKNOWN_PRODUCER_MAPPING,), names_topic=True),
    Row(api=ApiKey.DESCRIBE_ACLS, version=3, make=lambda t: acl_filter(m.DescribeAclsRequest), codes=top,
        enough=on_cluster(DESCRIBE), denied=CLUSTER_DENIED),
    Row(api=ApiKey.CREATE_ACLS, version=3, make=create_acls, codes=of_each("results"), enough=on_cluster(ALTER),
        denied=CLUSTER_DENIED),
    Row(api=ApiKey.DELETE_ACLS, version=3,
        make=lambda t: m.DeleteAclsRequest(filters=[acl_filter(m.DeleteAclsRequest.DeleteAclsFilter)]),
        codes=of_each("filter_results"), enough=on_cluster(ALTER), denied=CLUSTER_DENIED),
    *_config_rows(ApiKey.DESCRIBE_CONFIGS, 4, described_configs, of_each("results"), DESCRIBE_CONFIGS),
    *_config_rows(ApiKey.ALTER_CONFIGS, 2, lambda kind: configs(*_ALTER, kind, configs=[]), of_each("responses"),
                  ALTER_CONFIGS),
    *_config_rows(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, lambda kind: configs(*_INCREMENTAL, kind, configs=[]),
                  of_each("responses"), ALTER_CONFIGS),
    Row(api=ApiKey.ALTER_REPLICA_LOG_DIRS, version=2, make=move_log_dirs, codes=of_partitions("results"),
        enough=on_cluster(ALTER), denied=CLUSTER_DENIED, allowed=(LOG_DIR_NOT_FOUND,), names_topic=True),
    Row(api=ApiKey.DESCRIBE_LOG_DIRS, version=4, make=lambda t: m.DescribeLogDirsRequest(topics=None), codes=top,
        enough=on_cluster(DESCRIBE), denied=CLUSTER_DENIED),
    Row(api=ApiKey.CREATE_PARTITIONS, version=3, make=create_partitions, codes=of_each("results"),
        enough=on_topic(ALTER), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.DELETE_GROUPS, version=2, make=lambda t: m.DeleteGroupsRequest(groups_names=[TEAM]),
        codes=of_each("results"), enough=on_group(DELETE), denied=GROUP_DENIED),
    Row(api=ApiKey.ELECT_LEADERS, version=2, make=elect_leaders, codes=top, enough=on_cluster(ALTER),
        denied=CLUSTER_DENIED, names_topic=True),
    Row(api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, version=0,
        make=lambda t: m.AlterPartitionReassignmentsRequest(topics=[], timeout_ms=1000), codes=top,
        enough=on_cluster(ALTER), denied=CLUSTER_DENIED),
    Row(api=ApiKey.LIST_PARTITION_REASSIGNMENTS, version=0,
        make=lambda t: m.ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000), codes=top,
        enough=on_cluster(DESCRIBE), denied=CLUSTER_DENIED),
    Row(api=ApiKey.OFFSET_DELETE, form="the group", version=0, make=offset_delete, codes=top,
        enough=on_group(DELETE), given=topic_given(READ), denied=GROUP_DENIED),
    Row(api=ApiKey.OFFSET_DELETE, form="the topic", version=0, make=offset_delete, codes=of_partitions("topics"),
        enough=on_topic(READ), given=group_given(DELETE), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.DESCRIBE_PRODUCERS, version=0, make=describe_producers, codes=of_partitions("topics"),
        enough=on_topic(READ), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.UPDATE_FEATURES, version=1,
        make=lambda t: m.UpdateFeaturesRequest(feature_updates=[], validate_only=True, timeout_ms=1000), codes=top,
        enough=on_cluster(ALTER), denied=CLUSTER_DENIED),
    # Its brokers are for every client, the operations are not.
    Row(api=ApiKey.DESCRIBE_CLUSTER, version=0,
        make=lambda t: m.DescribeClusterRequest(include_cluster_authorized_operations=True),
        codes=lambda reply: [NONE if reply.authorized_operations else LEFT_OUT], enough=on_cluster(DESCRIBE),
        denied=LEFT_OUT),
    Row(api=ApiKey.METADATA, form="operations of the cluster", version=9,
        make=lambda t: m.MetadataRequest(topics=[], include_cluster_authorized_operations=True),
        codes=lambda reply: [NONE if reply.authorized_operations else LEFT_OUT],
        enough=on_cluster(DESCRIBE), denied=LEFT_OUT),
    Row(api=ApiKey.LIST_CONFIG_RESOURCES, version=1, make=lambda t: m.ListConfigResourcesRequest(resource_types=[]),
        codes=top, enough=on_cluster(DESCRIBE_CONFIGS), denied=CLUSTER_DENIED),
    Row(api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, version=0, make=describe_topic_partitions(every=False),
        codes=of_each("topics"), enough=on_topic(DESCRIBE), denied=TOPIC_DENIED, names_topic=True),
    Row(api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, form="of all", version=0,
        make=describe_topic_partitions(every=True),
        codes=listed(lambda reply: [topic.name for topic in reply.topics]), enough=on_topic(DESCRIBE),
        denied=LEFT_OUT),
)  # fmt: skip
