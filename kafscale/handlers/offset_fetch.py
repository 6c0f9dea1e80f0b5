"""OffsetFetch (9), versions 1 to 10: the offsets of groups.

v2: null topics request all offsets of the group, and an error is the whole request's (KIP-88). v3: throttle
time. v5: leader epochs (KIP-320). v6: flexible. v7: `require_stable`: UNSTABLE_OFFSET_COMMIT for a partition for
which an offset is pending in a transaction; commits in flight are waited for (KIP-447). v8: several groups (KIP-709).
v9: members of consumer groups, by their epoch (KIP-848). v10: topics by id.
"""

import uuid
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafscale.errors import StoreUnavailableError
from kafscale.formats.committed_offset import NO_LEADER_EPOCH, CommittedOffset
from kafscale.groups.offsets import GroupOffsets
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import OffsetFetchRequest, OffsetFetchResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.store_deadline import store_deadline
from kafscale.serving.topic_ids import names_of
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_GroupWanted = OffsetFetchRequest.OffsetFetchRequestGroup
_WantedTopic = OffsetFetchRequest.OffsetFetchRequestTopic | _GroupWanted.OffsetFetchRequestTopics
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics

# Version 8 has classes of its own, with the same fields.
_T = TypeVar("_T", bound=_WantedTopic)
_K = TypeVar("_K", str, uuid.UUID)
_Partition = TypeVar(
    "_Partition", _Topic.OffsetFetchResponsePartition, _GroupTopic.OffsetFetchResponsePartitions
)

_FIRST_VERSION_WITH_ERROR_OF_REQUEST = 2
_FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_OFFSET = -1
_NO_MEMBER_EPOCH = -1
_NO_TOPIC_ID = uuid.UUID(int=0)
_NO_OFFSETS = GroupOffsets({})

Wanted = dict[str, dict[int, None]] | None
"""Partitions by topic, each once; None: all."""

WantedById = dict[uuid.UUID, dict[int, None]] | None
"""The same by ids of topics."""

Stored = Mapping[tuple[str, int], CommittedOffset]
Found = Mapping[str, Mapping[int, CommittedOffset | None]]

# Consumers before Kafka 3.9 take these for final, and librdkafka never asks again after NOT_COORDINATOR (its issue
# 5586). After COORDINATOR_LOAD_IN_PROGRESS every client does.
_TO_BE_ASKED_AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)


async def handle(
    broker: "Broker", request: "RequestContext", message: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Each group and partition once, however often it is named: an answer is longer than its request."""
    if request.api_version >= _FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return await _answer_groups(broker, request, message)
    return await _answer_single(broker, request, message)


async def _answer_groups(
    broker: "Broker", request: "RequestContext", message: OffsetFetchRequest
) -> OffsetFetchResponse:
    members = {group.group_id: _Member(group.member_id, group.member_epoch) for group in message.groups}
    groups = [(group.group_id, group.topics) for group in message.groups]
    if request.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        by_id = _wanted(groups, lambda topic: topic.topic_id or _NO_TOPIC_ID)
        answers = await for_each(
            ((group_id, members[group_id], topics) for group_id, topics in by_id.items()),
            partial(_answer_group_by_id, broker, request, message.require_stable),
        )
    else:
        by_name = _wanted(groups, _name_of)
        answers = await for_each(
            ((group_id, members[group_id], topics) for group_id, topics in by_name.items()),
            partial(_answer_group, broker, request, message.require_stable),
        )
    return OffsetFetchResponse(throttle_time_ms=0, groups=answers)


def _name_of(topic: _WantedTopic) -> str:
    return topic.name


def _wanted(
    groups: Iterable[tuple[str, Iterable[_T] | None]], key: Callable[[_T], _K]
) -> dict[str, dict[_K, dict[int, None]] | None]:
    """The partitions to answer for, by group and by name or id of their topics."""
    wanted: dict[str, dict[_K, dict[int, None]] | None] = {}
    for group_id, topics in groups:
        known = wanted.setdefault(group_id, {})
        if topics is None or known is None:
            wanted[group_id] = None
            continue
        for topic in topics:
            known.setdefault(key(topic), {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


class _Member(NamedTuple):
    """Who asks for the offsets of a consumer group; any client may that does not say."""

    member_id: str | None = None
    member_epoch: int = _NO_MEMBER_EPOCH


async def _answer_group(
    broker: "Broker", request: "RequestContext", require_stable: bool, asked: tuple[str, _Member, Wanted]
) -> _Group:
    group_id, member, wanted = asked
    code, stored = await _fetch(broker, request, group_id, require_stable, member)
    topics = {} if code is not ErrorCode.NONE else _found(wanted, stored.committed)
    topics, hidden = await _visible(request, topics, wanted)
    answers = await _partitions(
        _GroupTopic.OffsetFetchResponsePartitions, topics, _Codes(hidden, stored.unstable)
    )
    return _Group(
        group_id=group_id,
        error_code=code,
        topics=[_GroupTopic(name=name, partitions=partitions) for name, partitions in answers.items()],
    )


async def _answer_group_by_id(
    broker: "Broker", request: "RequestContext", require_stable: bool, asked: tuple[str, _Member, WantedById]
) -> _Group:
    """The same for topics by id. An offset has the id of its topic, so that a view that lags hides none."""
    group_id, member, wanted = asked
    code, stored = await _fetch(broker, request, group_id, require_stable, member)
    if code is not ErrorCode.NONE:
        return _Group(group_id=group_id, error_code=code, topics=[])
    names = {offset.topic_id: name for (name, _), offset in stored.committed.items()}
    found = _found_by_id(wanted, stored.committed)
    names.update(await names_of(broker, [topic_id for topic_id in found if topic_id not in names]))
    is_for_all = wanted is None
    seen = [names[topic_id] for topic_id in found if topic_id in names]
    hidden_names = await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, seen, quiet=is_for_all)
    hidden = {topic_id for topic_id, name in names.items() if name in hidden_names}
    if is_for_all and hidden:
        found = {topic_id: indexes for topic_id, indexes in found.items() if topic_id not in hidden}
    unstable = {
        (topic_id, index)
        for topic_id, indexes in found.items()
        for index in indexes
        if (names.get(topic_id), index) in stored.unstable
    }
    codes = _Codes(hidden, unstable, unknown=found.keys() - names.keys())
    answers = await _partitions(_GroupTopic.OffsetFetchResponsePartitions, found, codes)
    return _Group(
        group_id=group_id,
        error_code=code,
        topics=[_GroupTopic(topic_id=one, partitions=partitions) for one, partitions in answers.items()],
    )


def _found_by_id(
    wanted: WantedById, stored: Stored
) -> Mapping[uuid.UUID, Mapping[int, CommittedOffset | None]]:
    by_id: dict[uuid.UUID, dict[int, CommittedOffset | None]] = {}
    for (_, index), committed in stored.items():
        by_id.setdefault(committed.topic_id, {})[index] = committed
    if wanted is None:
        return by_id
    return {
        topic_id: {index: by_id.get(topic_id, {}).get(index) for index in indexes}
        for topic_id, indexes in wanted.items()
    }


async def _answer_single(
    broker: "Broker", request: "RequestContext", message: OffsetFetchRequest
) -> OffsetFetchResponse:
    ((group_id, wanted),) = _wanted([(message.group_id, message.topics)], _name_of).items()
    code, stored = await _fetch(broker, request, group_id, message.require_stable, _Member())
    failed = code is not ErrorCode.NONE
    if failed and request.api_version >= _FIRST_VERSION_WITH_ERROR_OF_REQUEST:
        return OffsetFetchResponse(throttle_time_ms=0, error_code=code, topics=[])
    topics, hidden = await _visible(request, _found(wanted, stored.committed), wanted)
    answers = await _partitions(
        _Topic.OffsetFetchResponsePartition, topics, _Codes(hidden, stored.unstable, code)
    )
    return OffsetFetchResponse(
        throttle_time_ms=0,
        error_code=code,
        topics=[_Topic(name=name, partitions=partitions) for name, partitions in answers.items()],
    )


class _Codes(NamedTuple):
    """The codes of partitions, whose topics are named by name or by id.

    `other`: of those that have no error of their own. `unknown`: ids of topics that are not there.
    """

    hidden: Container[object]
    unstable: Container[tuple[object, int]]
    other: ErrorCode = ErrorCode.NONE
    unknown: Container[object] = ()

    def of(self, topic: object, index: int) -> ErrorCode:
        """The code of a partition."""
        if topic in self.unknown:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if topic in self.hidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNSTABLE_OFFSET_COMMIT if (topic, index) in self.unstable else self.other


async def _visible(request: "RequestContext", found: Found, wanted: Wanted) -> tuple[Found, Container[str]]:
    """The topics to answer for, and those of them whose offsets the client must not see.

    Of a request for all topics, those are left out.
    """
    is_for_all = wanted is None
    hidden = await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, found, quiet=is_for_all)
    if is_for_all and hidden:
        found = {name: indexes for name, indexes in found.items() if name not in hidden}
    return found, hidden


async def _fetch(
    broker: "Broker", request: "RequestContext", group_id: str, require_stable: bool, member: _Member
) -> tuple[ErrorCode, GroupOffsets]:
    try:
        check_access(request, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        async with store_deadline():
            return ErrorCode.NONE, await broker.groups.fetch_offsets(
                group_id,
                require_stable=require_stable,
                member_id=member.member_id,
                member_epoch=member.member_epoch,
            )
    except StoreUnavailableError:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, _NO_OFFSETS
    except KafkaError as refusal:
        if refusal.code in _TO_BE_ASKED_AGAIN:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, _NO_OFFSETS
        return refusal.code, _NO_OFFSETS


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


async def _partitions(
    partition_class: type[_Partition],
    found: Mapping[_K, Mapping[int, CommittedOffset | None]],
    codes: _Codes,
) -> dict[_K, list[_Partition]]:
    """The answers by topic, in the class of the version."""
    topics: dict[_K, list[_Partition]] = {name: [] for name in found}
    partitions = ((name, index, one) for name, indexes in found.items() for index, one in indexes.items())
    async for name, index, offset in in_turns(partitions):
        code = codes.of(name, index)
        committed = offset if code is codes.other else None
        topics[name].append(
            partition_class(
                partition_index=index,
                committed_offset=_NO_OFFSET if committed is None else committed.offset,
                committed_leader_epoch=NO_LEADER_EPOCH if committed is None else committed.leader_epoch,
                metadata="" if committed is None else committed.metadata,
                error_code=code,
            )
        )
    return topics
