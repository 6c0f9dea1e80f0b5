"""DeleteShareGroupOffsets (92), version 0: topics are as new for a share group without members (KIP-932)."""

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

from kafscale.errors import StoreUnavailableError
from kafscale.handlers.share_group_heartbeat import check_protocol
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.metadata import NO_TOPIC_ID
from kafscale.protocol.quoting import quoted
from kafscale.security.audit import changed
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic

_Outcome = tuple[ErrorCode, str | None]

_DENIED: Final[_Outcome] = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
# Kafka's words, and its code for both.
_UNKNOWN: Final[_Outcome] = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "This server does not host this topic-partition.",
)
_NOTHING: Final[_Outcome] = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "There is no offset information to delete.",
)
_DELETED: Final[_Outcome] = (ErrorCode.NONE, None)


async def handle(
    broker: "Broker", request: "RequestContext", message: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """The outcome for each topic."""
    group_id = message.group_id
    try:
        check_protocol(broker)
        check_access(request, Operation.DELETE, ResourceType.GROUP, group_id)
        names = [topic.topic_name for topic in message.topics]
        hidden = await denied(request, Operation.READ, ResourceType.TOPIC, names)
        ids = {
            name: record.topic_id
            async for name in in_turns(dict.fromkeys(names))
            if name not in hidden and (record := broker.view.topic(name)) is not None
        }
        # A deletion in progress goes on, as that of a group does.
        deletion = broker.started.spawn(
            _deleted(broker, group_id, frozenset(ids.values())), f"delete share offsets of {quoted(group_id)}"
        )
        async with store_deadline():
            deleted = await asyncio.shield(deletion)
        if isinstance(deleted, KafkaError):
            return _refused(deleted)
    except StoreUnavailableError as problem:
        return _refused(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)))
    except KafkaError as refusal:
        return _refused(refusal)
    done = [f"{name} of {group_id}" for name, topic_id in ids.items() if topic_id in deleted]
    changed(request.access.principal, request.client_host, "share group offsets deleted", done)
    responses = []
    async for name in in_turns(names):
        topic_id = ids.get(name, NO_TOPIC_ID)
        if name in hidden:
            code, words = _DENIED
        elif name not in ids:
            code, words = _UNKNOWN
        else:
            code, words = _DELETED if topic_id in deleted else _NOTHING
        responses.append(
            _Topic(
                topic_name=name,
                topic_id=NO_TOPIC_ID if code else topic_id,
                error_code=code,
                error_message=words,
            )
        )
    return DeleteShareGroupOffsetsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, responses=responses
    )


async def _deleted(
    broker: "Broker", group_id: str, topic_ids: frozenset[uuid.UUID]
) -> frozenset[uuid.UUID] | KafkaError:
    """The topics of which something was deleted; or the refusal, which may come after the request's end."""
    try:
        return await broker.groups.share_offsets.delete(group_id, topic_ids)
    except KafkaError as refusal:
        return refusal


def _refused(refusal: KafkaError) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(
        throttle_time_ms=0,
        error_code=refusal.code,
        error_message=refusal.message or None,
        responses=[],
    )
