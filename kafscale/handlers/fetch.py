"""Fetch (API 1): whole batches, verbatim, as views; waits for `min_bytes` for all partitions together.

Every broker serves published records of any partition.

v4: isolation level. v5: log start offset. v7: sessions, which are refused as KIP-227 allows: every answer has
session id 0, so that clients send full requests. v9: leader epoch check (KIP-320). v11: rack; the leader sends
a consumer to a broker of its zone (KIP-392). v12: flexible. v13: topic ids (KIP-516).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Iterable
from typing import Final

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_response
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.idle_answers import BODY_MAX_BYTES, Asked
from kafscale.serving.idle_fetch import IdleFetch
from kafscale.serving.lasting_body import lasting
from kafscale.serving.leader_epoch import check_leader_epoch
from kafscale.serving.named_once import decode_asked_once
from kafscale.serving.partition_fetch import PartitionFetch, TopicFetch
from kafscale.serving.partition_lookup import check_exists
from kafscale.serving.pending_fetch import PendingFetch
from kafscale.tasks.in_turns import Turns

_NO_SESSION = 0
# Later epochs continue a session; this one requests a new session, and -1 is for none.
_FIRST_EPOCH = 0

LARGE_BODY_BYTES: Final = 32 * 1024
"""A larger request, of a thousand partitions and more, is decoded in a thread and looked up in turns."""


def handle(broker: Broker, request: RequestContext, body: memoryview, reply: Reply) -> Awaitable[None] | None:
    """Answer when there is enough to send, or when the client's wait is over.

    `body` must stay unchanged, as `lasting_body` says, until the returned awaitable has been awaited.
    """
    asked: Asked | None = None
    if len(body) <= BODY_MAX_BYTES:
        asked = request.api_version, bytes(body)
        answer = broker.idle_answers.find(asked)
        if answer is not None and _may_read_all(request, answer.topics):
            IdleFetch(broker, request, answer, reply).start()
            return None
    if len(body) > LARGE_BODY_BYTES:
        return _handle_large(broker, request, memoryview(lasting(body)), reply, asked)
    fetch = decode_asked_once(body, request.api_version)
    if fetch.session_epoch > _FIRST_EPOCH:
        _refuse_session(request, reply)
    else:
        topics = [_topic(broker, request, topic) for topic in fetch.topics]
        PendingFetch(broker, request, fetch, topics, reply, asked).start()
    return None


async def _handle_large(
    broker: Broker, request: RequestContext, body: memoryview, reply: Reply, asked: Asked | None
) -> None:
    async with broker.decoding:
        fetch = await asyncio.to_thread(decode_asked_once, body, request.api_version)
    if fetch.session_epoch > _FIRST_EPOCH:
        _refuse_session(request, reply)
        return
    topics = await _topics_in_turns(broker, request, fetch)
    PendingFetch(broker, request, fetch, topics, reply, asked).start()


async def _topics_in_turns(broker: Broker, request: RequestContext, fetch: FetchRequest) -> list[TopicFetch]:
    topics, turns = [], Turns()
    for asked in fetch.topics:
        name, unknown = _place(broker, asked)
        is_denied = _is_denied(request, name)
        topic = TopicFetch(asked.name, asked.topic_id, [])
        topics.append(topic)
        await turns.part_done()
        for wanted in asked.partitions:
            topic.partitions.append(
                _denied(wanted, unknown) if is_denied else _partition(broker, name, wanted, unknown)
            )
            await turns.part_done()
    return topics


def _refuse_session(request: RequestContext, reply: Reply) -> None:
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    reply.send(
        encode_fetch_response(request.correlation_id, request.api_version, code, _NO_SESSION, []),
        error_code=code,
    )


def _topic(broker: Broker, request: RequestContext, topic: FetchTopic) -> TopicFetch:
    name, unknown = _place(broker, topic)
    if _is_denied(request, name):
        refused = [_denied(wanted, unknown) for wanted in topic.partitions]
        return TopicFetch(topic.name, topic.topic_id, refused)
    return TopicFetch(
        topic.name, topic.topic_id, [_partition(broker, name, wanted, unknown) for wanted in topic.partitions]
    )


def _may_read_all(request: RequestContext, topics: Iterable[str]) -> bool:
    """True if an answer that another client got is this client's, too."""
    access = request.access
    return not access.is_restricted or all(
        access.allows(Operation.READ, ResourceType.TOPIC, topic, quiet=True) for topic in topics
    )


def _is_denied(request: RequestContext, topic: str | None) -> bool:
    access = request.access
    return (
        access.is_restricted
        and topic is not None
        and not access.allows(Operation.READ, ResourceType.TOPIC, topic)
    )


def _denied(wanted: FetchPartition, unknown: ErrorCode) -> PartitionFetch:
    return PartitionFetch(wanted, None, unknown, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _place(broker: Broker, topic: FetchTopic) -> tuple[str | None, ErrorCode]:
    """The topic's name, None if there is no such topic id, and the error for a partition that does not exist."""
    if topic.name is not None:
        return topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.topic_id is not None
    record = broker.view.topic_by_id(uuid.UUID(bytes=topic.topic_id))
    return (record.name if record else None), ErrorCode.UNKNOWN_TOPIC_ID


def _partition(
    broker: Broker, topic: str | None, wanted: FetchPartition, unknown: ErrorCode
) -> PartitionFetch:
    if topic is None:
        return PartitionFetch(wanted, None, unknown, unknown)
    partition = broker.logs.readable(topic, wanted.partition)
    try:
        if partition is None:
            check_exists(broker, topic, wanted.partition)
            return PartitionFetch(wanted, None, unknown, to_follow=topic)
        check_leader_epoch(partition, wanted.current_leader_epoch)
    except KafkaError as refusal:
        return PartitionFetch(wanted, None, unknown, refusal.code)
    return PartitionFetch(wanted, partition, unknown)
