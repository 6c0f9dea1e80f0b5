"""Raw requests that matter where a partition's leader changes: leader epochs, deleted records, topics' changes."""

from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.consumer import (
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from tests.support.waiting import PATIENCE_MS
from tests.support.wire import FETCH_VERSION, LIST_OFFSETS_VERSION, Wire, fetch_request

NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75

CREATE_PARTITIONS_VERSION = 3
DELETE_RECORDS_VERSION = 2
EPOCH_VERSION = 4
TOPIC_RESOURCE = 2
TIMEOUT_MS = PATIENCE_MS


def epoch_end(wire: Wire, topic: str, epoch: int, *, partition: int = 0, current: int = -1) -> Any:
    """OffsetForLeaderEpoch of one partition: its part (`error_code`, `leader_epoch`, `end_offset`)."""
    row = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    wanted = row.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[row(topic=topic, partitions=[wanted])])
    return wire.call(request, OffsetForLeaderEpochResponse, EPOCH_VERSION).topics[0].partitions[0]


def fetch_with_epoch(
    wire: Wire, topic: str, epoch: int, *, partition: int = 0, offset: int = 0, rack: str = ""
) -> Any:
    """A Fetch of one partition that names the leader epoch that the client believes in."""
    request = fetch_request(topic, {partition: offset}, max_wait_ms=0)
    request.rack_id = rack
    request.topics[0].partitions[0].current_leader_epoch = epoch
    return wire.call(request, FetchResponse, FETCH_VERSION).responses[0].partitions[0]


def list_with_epoch(wire: Wire, topic: str, epoch: int, *, partition: int = 0) -> Any:
    """ListOffsets of one partition's end, with the leader epoch that the client believes in."""
    row = ListOffsetsRequest.ListOffsetsTopic
    wanted = row.ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[row(name=topic, partitions=[wanted])]
    )
    return wire.call(request, ListOffsetsResponse, LIST_OFFSETS_VERSION).topics[0].partitions[0]


def delete_records(wire: Wire, topic: str, partition: int, offset: int, timeout_ms: int = TIMEOUT_MS) -> Any:
    """DeleteRecords of one partition: its part (`error_code`, `low_watermark`)."""
    row = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = row.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[row(name=topic, partitions=[wanted])], timeout_ms=timeout_ms)
    reply = wire.call(request, DeleteRecordsResponse, DELETE_RECORDS_VERSION)
    return reply.topics[0].partitions[0]


def grow_topic(wire: Wire, topic: str, partitions: int) -> None:
    """CreatePartitions, which must succeed."""
    row = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(
        topics=[row(name=topic, count=partitions, assignments=None)],
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
    result = wire.call(request, CreatePartitionsResponse, CREATE_PARTITIONS_VERSION).results[0]
    assert result.error_code == NONE, f"growing {topic}: error {result.error_code} {result.error_message}"


def set_configs(wire: Wire, topic: str, configs: Mapping[str, object]) -> None:
    """IncrementalAlterConfigs, which must succeed."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    row = resource.AlterableConfig
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic,
                configs=[
                    row(name=name, config_operation=0, value=str(value)) for name, value in configs.items()
                ],
            )
        ],
        validate_only=False,
    )
    result = wire.call(request, IncrementalAlterConfigsResponse, 1).responses[0]
    assert result.error_code == NONE, f"configs of {topic}: error {result.error_code} {result.error_message}"


def configs_of(wire: Wire, topic: str, *names: str) -> dict[str, str]:
    """DescribeConfigs: the values of these configs of a topic."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(names))
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    result = wire.call(request, DescribeConfigsResponse, 4).results[0]
    assert result.error_code == NONE, f"configs of {topic}: error {result.error_code}"
    return {one.name: one.value for one in result.configs}
