"""OffsetFetch (9), versions 1 to 8: the offsets of groups.

v2: null topics request all offsets of the group, and an error is the whole request's (KIP-88). v3: throttle
time. v5: leader epochs (KIP-320). v6: flexible. v7: `require_stable`, which changes nothing without
transactions except that commits in flight are waited for (KIP-447). v8: several groups (KIP-709).
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetFetchResponse

from kafscale.errors import StoreUnavailableError
from kafscale.formats.committed_offset import NO_LEADER_EPOCH, CommittedOffset
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Group = OffsetFetchResponse.OffsetFetchResponseGroup

_FIRST_VERSION_WITH_ERROR_OF_REQUEST = 2
_FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
_NO_OFFSET = -1

Wanted = dict[str, dict[int, None]] | None
"""Partitions by topic, each once; None: all."""

# Consumers before Kafka 3.9 take these for final, and librdkafka never asks again after NOT_COORDINATOR (its issue
# 5586). After COORDINATOR_LOAD_IN_PROGRESS every client does.
_TO_BE_ASKED_AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)


async def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """Each group and partition once, however often it is named: an answer is longer than its request."""
    if request.api_version >= _FIRST_VERSION_WITH_SEVERAL_GROUPS:
        wanted = _wanted((group.group_id, group.topics) for group in message.groups)
        answers = await for_each(wanted.items(), partial(_answer_group, broker, message.require_stable))
        return OffsetFetchResponse(throttle_time_ms=0, groups=answers)
    return await _answer_single(broker, request, message)


def _wanted(groups: Iterable[tuple[str, Any]]) -> dict[str, Wanted]:
    wanted: dict[str, Wanted] = {}
    for group_id, topics in groups:
        known = wanted.setdefault(group_id, {})
        if topics is None or known is None:
            wanted[group_id] = None
            continue
        for topic in topics:
            known.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


async def _answer_group(broker: "Broker", require_stable: bool, asked: tuple[str, Wanted]) -> Any:
    group_id, wanted = asked
    code, stored = await _fetch(broker, group_id, require_stable)
    topics = {} if code is not ErrorCode.NONE else _found(wanted, stored)
    return _Group(
        group_id=group_id, error_code=code, topics=await _topics(_Group.OffsetFetchResponseTopics, topics)
    )


async def _answer_single(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    ((group_id, wanted),) = _wanted([(message.group_id, message.topics)]).items()
    code, stored = await _fetch(broker, group_id, message.require_stable)
    failed = code is not ErrorCode.NONE
    if failed and request.api_version >= _FIRST_VERSION_WITH_ERROR_OF_REQUEST:
        return OffsetFetchResponse(throttle_time_ms=0, error_code=code, topics=[])
    topic_class = OffsetFetchResponse.OffsetFetchResponseTopic
    topics = await _topics(topic_class, _found(wanted, stored), code)
    return OffsetFetchResponse(throttle_time_ms=0, error_code=code, topics=topics)


Stored = Mapping[tuple[str, int], CommittedOffset]
Found = Mapping[str, Mapping[int, CommittedOffset | None]]


async def _fetch(broker: "Broker", group_id: str, require_stable: bool) -> tuple[ErrorCode, Stored]:
    try:
        async with store_deadline():
            return ErrorCode.NONE, await broker.groups.fetch_offsets(group_id, require_stable=require_stable)
    except StoreUnavailableError:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {}
    except KafkaError as refusal:
        if refusal.code in _TO_BE_ASKED_AGAIN:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {}
        return refusal.code, {}


def _found(wanted: Wanted, stored: Stored) -> Found:
    if wanted is not None:
        return {
            topic: {index: stored.get((topic, index)) for index in indexes}
            for topic, indexes in wanted.items()
        }
    found: dict[str, dict[int, CommittedOffset | None]] = {}
    for (topic, index), committed in stored.items():
        found.setdefault(topic, {})[index] = committed
    return found


async def _topics(topic_class: Any, found: Found, code: ErrorCode = ErrorCode.NONE) -> list[Any]:
    """The answers in the classes of the version; versions 8 and up have their own, with the same fields."""
    partition_class = _partition_class(topic_class)
    topics = {name: topic_class(name=name, partitions=[]) for name in found}
    partitions = ((name, index, one) for name, indexes in found.items() for index, one in indexes.items())
    async for name, index, committed in in_turns(partitions):
        topics[name].partitions.append(
            partition_class(
                partition_index=index,
                committed_offset=_NO_OFFSET if committed is None else committed.offset,
                committed_leader_epoch=NO_LEADER_EPOCH if committed is None else committed.leader_epoch,
                metadata="" if committed is None else committed.metadata,
                error_code=code,
            )
        )
    return list(topics.values())


def _partition_class(topic_class: Any) -> Any:
    if topic_class is _Group.OffsetFetchResponseTopics:
        return topic_class.OffsetFetchResponsePartitions
    return topic_class.OffsetFetchResponsePartition
