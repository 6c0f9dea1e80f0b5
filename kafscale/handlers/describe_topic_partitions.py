"""DescribeTopicPartitions (75), version 0: topics and where their partitions are, a page at a time (KIP-966).

As in Kafka topics are in the order of their names, and a page ends with the partition limit; its cursor names the
first partition of the next page. There are no eligible leader replicas: any broker can lead any partition.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence
from itertools import dropwhile
from typing import TYPE_CHECKING, Final

from kafscale.cluster.new_topic import INTERNAL_TOPICS
from kafscale.formats.object_keys import topic_name_problem
from kafscale.metadata.model import TopicRecord
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.authorization import denied
from kafscale.serving.authorized_operations import NOT_ASKED_FOR, topic_operations
from kafscale.serving.placement import place_partitions, reachable_brokers
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

MOST_PARTITIONS: Final = 2000
"""On a page, whatever the client asks for: Kafka's default of `max.request.partition.size.limit`."""

MOST_TOPICS: Final = 2000
"""On a page: names of unknown topics count no partitions."""

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """The page that begins at the cursor; INVALID_REQUEST for each topic if the cursor is not in the request."""
    cursor = message.cursor
    names = dict.fromkeys(topic.name for topic in message.topics)
    if cursor is not None and not _is_legal(cursor, names):
        return DescribeTopicPartitionsResponse(
            topics=[
                _failed(ErrorCode.INVALID_REQUEST, name, NOT_ASKED_FOR) async for name in in_turns(names)
            ],
            next_cursor=None,
        )
    hidden = await _hidden(broker, request, names)
    first = "" if cursor is None else cursor.topic_name
    if not names:
        await broker.read_replicas.prepare()
    # No await from here on: the page is of one state of the view.
    wanted: Iterable[tuple[str, TopicRecord | None]]
    if names:
        after = (name for name in names if name >= first and name not in hidden)
        wanted = ((name, broker.view.topic(name)) for name in heapq.nsmallest(MOST_TOPICS + 1, after))
    else:
        records = dropwhile(lambda record: record.name < first, broker.view.topics())
        wanted = (
            (record.name, record)
            for record in records
            # Asked again: a topic may have come since.
            if record.name not in hidden
            and request.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, record.name, quiet=True)
        )
    page = _Page(broker, request, min(max(message.response_partition_limit, 1), MOST_PARTITIONS))
    for name, record in wanted:
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if not page.add(name, record, start):
            break
    if names:
        # As in Kafka after the others, and on each page.
        refused = (name for name in hidden if name >= first)
        page.topics += [
            _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, NOT_ASKED_FOR)
            async for name in in_turns(refused)
        ]
    return DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.next_cursor)


async def _hidden(broker: "Broker", request: "RequestContext", names: Collection[str]) -> frozenset[str]:
    """The topics, of `names` or without names of all, that the client must not see."""
    every = names or [record.name for record in broker.view.topics()]
    return await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, every, quiet=not names)


def _is_legal(cursor: DescribeTopicPartitionsRequest.Cursor, names: Iterable[str]) -> bool:
    return cursor.partition_index >= 0 and (not names or cursor.topic_name in names)


class _Page:
    """One answer, filled topic by topic."""

    def __init__(self, broker: "Broker", request: "RequestContext", partitions_left: int) -> None:
        self.topics: list[_Topic] = []
        self.next_cursor: _Cursor | None = None
        self._view = broker.view
        self._access = request.access
        self._read_replicas = broker.read_replicas
        self._brokers = reachable_brokers(broker.view, request.listener)
        self._partitions_left = partitions_left

    def add(self, name: str, record: TopicRecord | None, start: int) -> bool:
        """Add the topic, its partitions from `start` on; False when the page ends with it or before it."""
        if self._partitions_left == 0 or len(self.topics) == MOST_TOPICS:
            self.next_cursor = _Cursor(topic_name=name, partition_index=0)
            return False
        if record is None:
            is_legal = topic_name_problem(name) is None
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            self.topics.append(_failed(code, name, topic_operations(self._access, name)))
            return True
        end = min(start + self._partitions_left, record.partition_count)
        self.topics.append(
            _Topic(
                error_code=ErrorCode.NONE,
                name=name,
                topic_id=record.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=self._partitions(record, range(start, end)),
                topic_authorized_operations=topic_operations(self._access, name),
            )
        )
        self._partitions_left -= max(0, end - start)
        if end < record.partition_count:
            self.next_cursor = _Cursor(topic_name=name, partition_index=end)
        return self.next_cursor is None

    def _partitions(self, record: TopicRecord, indexes: Sequence[int]) -> list[_Partition]:
        nearby = self._read_replicas.all(record)
        return [
            _Partition(
                error_code=ErrorCode.NONE,  # as in Kafka, of a partition without a leader, too
                partition_index=placed.partition,
                leader_id=placed.leader_id,
                leader_epoch=placed.leader_epoch,
                replica_nodes=list(placed.replicas),
                isr_nodes=list(placed.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=list(placed.offline_replicas),
            )
            for placed in place_partitions(self._view, self._brokers, nearby, record, indexes)
        ]


def _failed(code: ErrorCode, name: str, operations: int) -> _Topic:
    return _Topic(
        error_code=code,
        name=name,
        topic_id=None,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations,
    )
