"""DescribeShareGroupOffsets (90), versions 0 to 1: how far share groups are in their partitions (KIP-932).

v1: the lag (KIP-1226).
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafscale.errors import StoreUnavailableError
from kafscale.groups.share.offsets import NOT_STARTED, DescribedStart
from kafscale.handlers.share_group_heartbeat import check_protocol
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.metadata import NO_TOPIC_ID
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
_AskedTopic = _Asked.DescribeShareGroupOffsetsRequestTopic
_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = _Group.DescribeShareGroupOffsetsResponseTopic
_Partition = _Topic.DescribeShareGroupOffsetsResponsePartition

_Described = Mapping[tuple[uuid.UUID, int], DescribedStart]

_NO_ERROR: Final = (ErrorCode.NONE, None)
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Each group, read once however often it is named; all of its topics are answered once."""
    by_group: dict[str, list[_Asked]] = {}
    for asked in message.groups:
        of_group = by_group.setdefault(asked.group_id, [])
        if asked.topics is not None or all(one.topics is not None for one in of_group):
            of_group.append(asked)
    answers = await for_each(by_group.values(), lambda asked: _group(broker, request, asked))
    groups = [one for of_group in answers for one in of_group]
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


async def _group(broker: "Broker", request: "RequestContext", asked: Sequence[_Asked]) -> list[_Group]:
    group_id = asked[0].group_id
    try:
        check_protocol(broker)
        check_access(request, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        described: _Described = {}
        if any(one.topics is None or one.topics for one in asked):
            async with store_deadline():
                described = await broker.groups.share_offsets.describe(group_id)
    except StoreUnavailableError as problem:
        refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem))
        return [_answer(group_id, [], refusal) for _ in asked]
    except KafkaError as refusal:
        return [_answer(group_id, [], refusal) for _ in asked]
    return [
        _answer(
            group_id,
            await _all_topics(broker, request, described)
            if one.topics is None
            else await _named_topics(broker, request, one.topics, described),
        )
        for one in asked
    ]


def _answer(group_id: str, topics: list[_Topic], refusal: KafkaError | None = None) -> _Group:
    return _Group(
        group_id=group_id,
        topics=topics,
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message or None,
    )


async def _all_topics(broker: "Broker", request: "RequestContext", described: _Described) -> list[_Topic]:
    """Topics that the client may not describe, or that are gone, are left out."""
    by_topic: dict[uuid.UUID, list[_Partition]] = {}
    async for (topic_id, index), start in in_turns(sorted(described.items())):
        by_topic.setdefault(topic_id, []).append(_partition(index, start))
    names = {
        topic_id: topic.name
        for topic_id in by_topic
        if (topic := broker.view.topic_by_id(topic_id)) is not None
    }
    hidden = await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, names.values(), quiet=True)
    return [
        _Topic(topic_name=name, topic_id=topic_id, partitions=by_topic[topic_id])
        for topic_id, name in sorted(names.items(), key=lambda item: item[1])
        if name not in hidden
    ]


async def _named_topics(
    broker: "Broker", request: "RequestContext", asked: Sequence[_AskedTopic], described: _Described
) -> list[_Topic]:
    """In the request's order. What the group does not read has no start, and that is no error, as in Kafka."""
    names = [topic.topic_name for topic in asked]
    hidden = await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, names)
    answers = []
    async for topic in in_turns(asked):
        name = topic.topic_name
        record = None if name in hidden else broker.view.topic(name)
        topic_id = NO_TOPIC_ID if record is None else record.topic_id
        error = _DENIED if name in hidden else _NO_ERROR
        partitions = [
            _partition(index, described.get((topic_id, index), NOT_STARTED), error)
            async for index in in_turns(topic.partitions)
        ]
        answers.append(_Topic(topic_name=name, topic_id=topic_id, partitions=partitions))
    return answers


def _partition(
    index: int, start: DescribedStart, error: tuple[ErrorCode, str | None] = _NO_ERROR
) -> _Partition:
    return _Partition(
        partition_index=index,
        start_offset=start.start_offset,
        leader_epoch=start.leader_epoch,
        lag=start.lag,
        error_code=error[0],
        error_message=error[1],
    )
