"""Metadata (3), versions 0 to 12: brokers, topics, and who leads their partitions.

v0: an empty list of topics means all; from v1 a null list does, and an empty one none. v1: controller, racks,
internal topics. v2: cluster id. v4: the client says whether topics may be created. v5: offline replicas. v7:
leader epochs (KIP-320). v8: authorized operations (KIP-430). v9: flexible. v10: topic ids in answers
(KIP-516). v11: no authorized operations of the cluster (KIP-700). v12: topics may be asked for by id.

A partition's replicas are its leader and, where brokers have racks, the brokers that consumers of other racks
are sent to (KIP-392): the object store replicates.
"""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kafscale.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS
from kafscale.handlers.concurrently import for_each
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.new_topic import INTERNAL_TOPICS, NewTopic
from kafscale.metadata.read_replicas import read_replicas
from kafscale.metadata.view import ClusterView
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataTopic,
    encode_metadata_response,
)
from kafscale.storage.object_keys import topic_name_problem

if TYPE_CHECKING:
    from kafscale.handlers.context import Broker, RequestContext

AUTO_CREATE_TIMEOUT_MS: Final = 10_000
"""How long a first request for a topic waits for its creation before it is told to try again."""

_FIRST_VERSION_WITH_IDS_ASKED: Final = 12
_NO_ID: Final = uuid.UUID(int=0)
_NO_LEADER: Final = -1
_NO_LEADER_EPOCH: Final = -1
# Plain numbers, because there may be 10,000 partitions to pack.
_NO_ERROR: Final = int(ErrorCode.NONE)
_LEADER_NOT_AVAILABLE: Final = int(ErrorCode.LEADER_NOT_AVAILABLE)


async def handle(broker: "Broker", request: "RequestContext", message: Any) -> bytes:
    """The whole response frame."""
    version = request.api_version
    operations = TOPIC_OPERATIONS if message.include_topic_authorized_operations else NOT_ASKED_FOR
    topics: Sequence[MetadataTopic]
    if message.topics is None or (version == 0 and not message.topics):
        topics = [_describe(broker.view, record, operations) for record in broker.view.topics()]
    elif version < _FIRST_VERSION_WITH_IDS_ASKED and any(
        asked.name is None or asked.topic_id is not None for asked in message.topics
    ):
        topics = [_failed(ErrorCode.INVALID_REQUEST, asked.name or "") for asked in message.topics]
    else:
        topics = await _asked_for(broker, message, operations)
    return encode_metadata_response(
        request.correlation_id,
        version,
        [MetadataBroker(live.broker_id, live.host, live.port, live.rack) for live in broker.view.brokers()],
        broker.view.cluster_id,
        broker.view.controller_id(),
        topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if message.include_cluster_authorized_operations
        else NOT_ASKED_FOR,
    )


async def _asked_for(broker: "Broker", message: Any, operations: int) -> Sequence[MetadataTopic]:
    view = broker.view
    ids = dict.fromkeys(asked.topic_id for asked in message.topics if asked.topic_id is not None)
    if ids:  # As in Kafka, names are ignored then.
        found = [(topic_id, view.topic_by_id(topic_id)) for topic_id in ids]
        return [
            MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id, False, ())
            if record is None
            else _describe(view, record, operations)
            for topic_id, record in found
        ]
    names = dict.fromkeys(asked.name for asked in message.topics if asked.name is not None)
    errors: dict[str, ErrorCode] = {}
    if message.allow_auto_topic_creation and broker.settings.auto_create_topics:
        missing = [name for name in names if view.topic(name) is None]
        codes = await for_each(missing, lambda name: _create(broker, name))
        errors = dict(zip(missing, codes, strict=True))
    return [_named(view, name, errors, operations) for name in names]


async def _create(broker: "Broker", name: str) -> ErrorCode:
    """What a client is told about the topic if this broker does not see it afterwards."""
    try:
        await broker.topics.create(NewTopic(name=name), timeout_ms=AUTO_CREATE_TIMEOUT_MS)
    except KafkaError as error:
        match error.code:
            case ErrorCode.TOPIC_ALREADY_EXISTS:  # seen soon, or being deleted
                deleting = broker.view.topic(name, include_deleting=True) is not None
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if deleting else ErrorCode.LEADER_NOT_AVAILABLE
            case ErrorCode.REQUEST_TIMED_OUT:
                return ErrorCode.LEADER_NOT_AVAILABLE
            case code:
                return code
    return ErrorCode.LEADER_NOT_AVAILABLE


def _named(view: ClusterView, name: str, errors: dict[str, ErrorCode], operations: int) -> MetadataTopic:
    record = view.topic(name)
    if record is not None:
        return _describe(view, record, operations)
    if topic_name_problem(name) is not None:
        return _failed(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    return _failed(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)


def _failed(code: ErrorCode, name: str) -> MetadataTopic:
    return MetadataTopic(code, name, _NO_ID, name in INTERNAL_TOPICS, ())


def _describe(view: ClusterView, record: TopicRecord, operations: int) -> MetadataTopic:
    leaders = view.leaders(record.name)
    racks = {live.broker_id: live.rack for live in view.brokers()}
    nearby = read_replicas(view, record)
    partitions = []
    for index in range(record.partition_count):
        leader = leaders.get(index)
        if leader is None or leader.broker_id not in racks:
            partition = MetadataPartition(_LEADER_NOT_AVAILABLE, index, _NO_LEADER, _NO_LEADER_EPOCH, (), ())
        else:
            led_in = racks[leader.broker_id]
            elsewhere = [brokers[index] for rack, brokers in nearby.items() if rack != led_in]
            replicas = (leader.broker_id, *elsewhere)
            partition = MetadataPartition(
                _NO_ERROR, index, leader.broker_id, leader.leader_epoch, replicas, replicas
            )
        partitions.append(partition)
    return MetadataTopic(
        ErrorCode.NONE,
        record.name,
        record.topic_id,
        record.name in INTERNAL_TOPICS,
        partitions,
        operations,
    )
