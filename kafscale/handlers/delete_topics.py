"""DeleteTopics (20), versions 0 to 6.

v1: throttle time. v4: flexible. v5: error messages, quota errors (KIP-599). v6: topics may be named by id (KIP-516).
"""

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Final

from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import DeleteTopicsRequest, DeleteTopicsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.audit import changed
from kafscale.serving.authorization import denied
from kafscale.serving.mutations import counted_mutations
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_STRICT_SINCE: Final = 5

_Result = DeleteTopicsResponse.DeletableTopicResult
_NOT_ALLOWED = "Topic authorization failed."


async def handle(
    broker: "Broker", request: "RequestContext", message: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete each topic; answered when its objects are deleted, or the timeout is over."""
    names: Counter[str] = Counter(message.topic_names)
    ids: Counter[uuid.UUID] = Counter()
    results = []
    async for asked in in_turns(message.topics):
        if asked.name is not None and asked.topic_id is not None:
            problem = "You may not specify both topic name and topic id."
        elif asked.name is not None:
            names[asked.name] += 1
            continue
        elif asked.topic_id is not None:
            ids[asked.topic_id] += 1
            continue
        else:
            problem = "Neither topic name nor id were specified."
        results.append(_result(asked.name, asked.topic_id, ErrorCode.INVALID_REQUEST, problem))
    for name in [name for name, count in names.items() if count > 1]:
        del names[name]
        results.append(_result(name, None, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
    for topic_id in [topic_id for topic_id, count in ids.items() if count > 1]:
        del ids[topic_id]
        results.append(_result(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
    results += await _refused(broker, request, names, ids)
    topics, failed = await _resolve(broker, names, ids)
    results += failed
    deleted = await for_each(
        topics.items(), lambda topic: _delete(broker, request, topic[1], topic[0], message.timeout_ms)
    )
    done = [result.name or "" for result in deleted if result.error_code == ErrorCode.NONE]
    changed(request.access.principal, request.client_host, "topics deleted", done)
    return DeleteTopicsResponse(responses=[*results, *deleted])


async def _refused(
    broker: "Broker", request: "RequestContext", names: Counter[str], ids: Counter[uuid.UUID]
) -> list[_Result]:
    """Take the topics that the client must not delete out of `names` and `ids`; the answers for them.

    As in Kafka the answer for an id has the topic's name only if the client may describe the topic.
    """
    if request.access.allows(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return []
    by_id = {topic_id: record.name for topic_id in ids if (record := broker.view.topic_by_id(topic_id))}
    asked = [*names, *by_id.values()]
    refused = await denied(request, Operation.DELETE, ResourceType.TOPIC, asked)
    hidden = await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, asked, quiet=True)
    results = []
    # Only clients that may describe a topic learn that it does not exist.
    for name in [
        name for name in names if name in hidden or (name in refused and broker.view.topic(name) is not None)
    ]:
        del names[name]
        results.append(_result(name, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NOT_ALLOWED))
    for topic_id, name in by_id.items():
        if name in refused:
            del ids[topic_id]
            shown = None if name in hidden else name
            results.append(_result(shown, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NOT_ALLOWED))
    return results


async def _resolve(
    broker: "Broker", names: Counter[str], ids: Counter[uuid.UUID]
) -> tuple[dict[uuid.UUID, str], list[_Result]]:
    """The topics to delete, and the answers for those that do not exist or are repeated."""
    topics: dict[uuid.UUID, str] = {}
    failed = []
    async for topic_id in in_turns(ids):
        record = broker.view.topic_by_id(topic_id)
        if record is None:
            failed.append(_result(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, None))
        else:
            topics[topic_id] = record.name
    async for name in in_turns(names):
        record = broker.view.topic(name)
        if record is None:
            failed.append(_result(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
        elif record.topic_id in topics:
            del topics[record.topic_id]
            problem = "The provided topic name maps to an ID that was already supplied."
            failed.append(_result(name, record.topic_id, ErrorCode.INVALID_REQUEST, problem))
        else:
            topics[record.topic_id] = name
    return topics, failed


async def _delete(
    broker: "Broker", request: "RequestContext", name: str, topic_id: uuid.UUID, timeout_ms: int
) -> _Result:
    record = broker.view.topic(name)
    partition_count = 0 if record is None else record.partition_count
    try:
        with counted_mutations(request, partition_count, _STRICT_SINCE):
            await broker.topics.delete(name, topic_id=topic_id, timeout_ms=timeout_ms)
    except KafkaError as error:
        return _result(name, topic_id, error.code, error.message or None)
    return _result(name, topic_id, ErrorCode.NONE, None)


def _result(name: str | None, topic_id: uuid.UUID | None, code: ErrorCode, message: str | None) -> _Result:
    return _Result(name=name, topic_id=topic_id, error_code=code, error_message=message)
