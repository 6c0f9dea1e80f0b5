"""Requests that name a topic, a group or nothing, one for each form that is checked for access."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafscale.protocol import api_messages as m
from tests.support import wire

TEAM, QUEUE, TRANSACTION = "team", "queue", "payments"


@dataclass(frozen=True, slots=True)
class Target:
    """The topic and the broker that a request names."""

    topic: str
    topic_id: uuid.UUID
    broker_id: int = 0


def offset_fetch(topics: bool) -> Callable[[Target], Any]:
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup
    return lambda t: m.OffsetFetchRequest(
        groups=[
            group(
                group_id=TEAM,
                topics=[group.OffsetFetchRequestTopics(name=t.topic, partition_indexes=[0])]
                if topics
                else None,
            )
        ]
    )


def offset_commit(t: Target) -> Any:
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    return m.OffsetCommitRequest(
        group_id=TEAM,
        generation_id_or_member_epoch=-1,
        topics=[topic(name=t.topic, partitions=[partition])],
    )


def txn_offset_commit(t: Target) -> Any:
    topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    return m.TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id=TEAM,
        producer_id=7,
        producer_epoch=0,
        topics=[topic(name=t.topic, partitions=[partition])],
    )


def offset_delete(t: Target) -> Any:
    topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition(partition_index=0)
    return m.OffsetDeleteRequest(group_id=TEAM, topics=[topic(name=t.topic, partitions=[partition])])


def describe_producers(t: Target) -> Any:
    topic = m.DescribeProducersRequest.TopicRequest
    return m.DescribeProducersRequest(topics=[topic(name=t.topic, partition_indexes=[0])])


def fetch_by_id(t: Target) -> Any:
    request = wire.fetch_request(t.topic, {0: 0}, max_wait_ms=0)
    for topic in request.topics:
        topic.topic_id = t.topic_id
    return request


def list_offsets(t: Target) -> Any:
    topic = m.ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    return m.ListOffsetsRequest(replica_id=-1, topics=[topic(name=t.topic, partitions=[partition])])


def epoch_end(t: Target) -> Any:
    topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=t.topic, partitions=[partition])])


def metadata(*, by_id: bool = False, every: bool = False, creates: bool = False) -> Callable[[Target], Any]:
    def make(t: Target) -> Any:
        topic = m.MetadataRequest.MetadataRequestTopic
        asked = topic(topic_id=t.topic_id, name=None) if by_id else topic(name=t.topic, topic_id=None)
        return m.MetadataRequest(
            topics=None if every else [asked],
            allow_auto_topic_creation=creates,
            include_topic_authorized_operations=False,
        )

    return make


def create_topics(t: Target) -> Any:
    topic = m.CreateTopicsRequest.CreatableTopic
    asked = topic(name=f"{t.topic}-new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return m.CreateTopicsRequest(topics=[asked], timeout_ms=10_000, validate_only=True)


def delete_topics(*, by_id: bool = False) -> Callable[[Target], Any]:
    def make(t: Target) -> Any:
        state = m.DeleteTopicsRequest.DeleteTopicState
        asked = state(name=None, topic_id=t.topic_id) if by_id else state(name=t.topic, topic_id=None)
        return m.DeleteTopicsRequest(topics=[asked], timeout_ms=10_000)

    return make


def delete_records(t: Target) -> Any:
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic
    partition = topic.DeleteRecordsPartition(partition_index=0, offset=0)
    return m.DeleteRecordsRequest(topics=[topic(name=t.topic, partitions=[partition])], timeout_ms=10_000)


def create_partitions(t: Target) -> Any:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=t.topic, count=2, assignments=None)
    return m.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)


def _name_of(kind: int, t: Target) -> str:
    return {2: t.topic, 4: str(t.broker_id), 32: TEAM}[kind]


def configs(request: Any, resource: Any, kind: int, **extra: Any) -> Callable[[Target], Any]:
    return lambda t: request(
        resources=[resource(resource_type=kind, resource_name=_name_of(kind, t), **extra)], validate_only=True
    )


def described_configs(kind: int) -> Callable[[Target], Any]:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource
    return lambda t: m.DescribeConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=_name_of(kind, t), configuration_keys=None)]
    )


def acl_filter(fields: Any) -> Any:
    return fields(
        resource_type_filter=1,
        resource_name_filter="no such",
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def elect_leaders(t: Target) -> Any:
    asked = m.ElectLeadersRequest.TopicPartitions(topic=t.topic, partitions=[0])
    return m.ElectLeadersRequest(election_type=0, topic_partitions=[asked], timeout_ms=10_000)


def move_log_dirs(t: Target) -> Any:
    directory = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = directory.AlterReplicaLogDirTopic(name=t.topic, partitions=[0])
    return m.AlterReplicaLogDirsRequest(dirs=[directory(path="/elsewhere", topics=[topic])])


def describe_topic_partitions(*, every: bool) -> Callable[[Target], Any]:
    topic = m.DescribeTopicPartitionsRequest.TopicRequest
    return lambda t: m.DescribeTopicPartitionsRequest(
        topics=[] if every else [topic(name=t.topic)], response_partition_limit=100, cursor=None
    )


def create_acls(t: Target) -> Any:
    creation = m.CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="x",
        resource_pattern_type=3,
        principal="User:x",
        host="*",
        operation=3,
        permission_type=3,
    )
    return m.CreateAclsRequest(creations=[creation])


def produce(t: Target, *, acks: int = -1) -> Any:
    return wire.produce_request(t.topic, {0: wire.batch([b"v"])}, acks=acks)


def produce_in_transaction(t: Target) -> Any:
    records = wire.batch([b"v"], producer_id=0, producer_epoch=0, sequence=0, is_transactional=True)
    request = wire.produce_request(t.topic, {0: records})
    request.transactional_id = TRANSACTION
    return request


def add_partitions(t: Target) -> Any:
    """Of the first transactional id of a cluster, as are the other requests of transactions."""
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic(name=t.topic, partitions=[0])],
    )


def add_offsets(t: Target) -> Any:
    return m.AddOffsetsToTxnRequest(
        transactional_id=TRANSACTION, producer_id=0, producer_epoch=0, group_id=TEAM
    )


def end_transaction(t: Target) -> Any:
    return m.EndTxnRequest(transactional_id=TRANSACTION, producer_id=0, producer_epoch=0, committed=False)


def write_markers(t: Target) -> Any:
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker
    return m.WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=77,
                producer_epoch=0,
                transaction_result=False,
                topics=[marker.WritableTxnMarkerTopic(name=t.topic, partition_indexes=[0])],
                coordinator_epoch=0,
            )
        ]
    )


def describe_transactions(t: Target) -> Any:
    return m.DescribeTransactionsRequest(transactional_ids=[TRANSACTION])


def list_transactions(t: Target) -> Any:
    return m.ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1)


def join_group(t: Target) -> Any:
    return m.JoinGroupRequest(
        group_id=TEAM,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def consumer_heartbeat(t: Target) -> Any:
    """A heartbeat that subscribes to the topic, of a member that the group does not have."""
    return m.ConsumerGroupHeartbeatRequest(
        group_id=TEAM,
        member_id="x",
        member_epoch=7,
        rebalance_timeout_ms=-1,
        subscribed_topic_names=[t.topic],
    )


def init_producer_id(transactional_id: str | None) -> Callable[[Target], Any]:
    return lambda t: m.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )


def alter_quotas(target: Target) -> Any:
    request = m.AlterClientQuotasRequest
    entity = [request.EntryData.EntityData(entity_type="user", entity_name="nobody")]
    change = [request.EntryData.OpData(key="producer_byte_rate", value=0.0, remove=True)]
    return request(entries=[request.EntryData(entity=entity, ops=change)], validate_only=True)


def delete_credential(target: Target) -> Any:
    deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="nobody", mechanism=1)
    return m.AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])


def share_heartbeat(t: Target) -> Any:
    """A heartbeat that subscribes to the topic, of a member that the share group does not have."""
    return m.ShareGroupHeartbeatRequest(
        group_id=QUEUE, member_id="x", member_epoch=7, rack_id=None, subscribed_topic_names=[t.topic]
    )


def share_fetch(t: Target) -> Any:
    """It opens a share session."""
    topic = m.ShareFetchRequest.FetchTopic
    partition = topic.FetchPartition(partition_index=0, partition_max_bytes=1000, acknowledgement_batches=[])
    return m.ShareFetchRequest(
        group_id=QUEUE,
        member_id="x",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        max_records=10,
        batch_size=10,
        topics=[topic(topic_id=t.topic_id, partitions=[partition])],
        forgotten_topics_data=[],
    )


def share_acknowledge(t: Target) -> Any:
    """In the session that a share fetch has opened."""
    topic = m.ShareAcknowledgeRequest.AcknowledgeTopic
    batch = topic.AcknowledgePartition.AcknowledgementBatch(
        first_offset=0, last_offset=0, acknowledge_types=[1]
    )
    partition = topic.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    return m.ShareAcknowledgeRequest(
        group_id=QUEUE,
        member_id="x",
        share_session_epoch=1,
        topics=[topic(topic_id=t.topic_id, partitions=[partition])],
    )


def describe_share_offsets(t: Target) -> Any:
    group = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    topic = group.DescribeShareGroupOffsetsRequestTopic(topic_name=t.topic, partitions=[0])
    return m.DescribeShareGroupOffsetsRequest(groups=[group(group_id=QUEUE, topics=[topic])])


def alter_share_offsets(t: Target) -> Any:
    topic = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    partition = topic.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    return m.AlterShareGroupOffsetsRequest(
        group_id=QUEUE, topics=[topic(topic_name=t.topic, partitions=[partition])]
    )


def delete_share_offsets(t: Target) -> Any:
    topic = m.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name=t.topic)
    return m.DeleteShareGroupOffsetsRequest(group_id=QUEUE, topics=[topic])
