"""CreatePartitions (37), versions 0 to 3: topics grow.

v2: flexible. v3: quota errors (KIP-599). Validate-only is there from v0.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import CreatePartitionsRequest, CreatePartitionsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.audit import changed
from kafscale.serving.authorization import denied
from kafscale.serving.mutations import counted_mutations
from kafscale.tasks.concurrently import for_each

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_STRICT_SINCE: Final = 3

_Result = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(
    broker: "Broker", request: "RequestContext", message: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Give each topic the requested partitions, or with validate-only check whether it could have them."""
    counts = Counter(asked.name for asked in message.topics)
    asked_once = [asked for asked in message.topics if counts[asked.name] == 1]
    results = [
        _result(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    ]
    hidden = await denied(request, Operation.ALTER, ResourceType.TOPIC, (asked.name for asked in asked_once))
    results += [_result(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for name in hidden]
    allowed = [asked for asked in asked_once if asked.name not in hidden]
    grown = await for_each(allowed, lambda asked: _grow(broker, request, message, asked))
    if not message.validate_only:
        done = [result.name for result in grown if result.error_code == ErrorCode.NONE]
        changed(request.access.principal, request.client_host, "partitions created", done)
    results += grown
    return CreatePartitionsResponse(results=results)


async def _grow(
    broker: "Broker",
    request: "RequestContext",
    message: CreatePartitionsRequest,
    asked: CreatePartitionsRequest.CreatePartitionsTopic,
) -> _Result:
    assignments = None if asked.assignments is None else [one.broker_ids for one in asked.assignments]
    record = broker.view.topic(asked.name)
    present = asked.count if record is None else record.partition_count
    try:
        with counted_mutations(request, max(0, asked.count - present), _STRICT_SINCE):
            await broker.topics.create_partitions(
                asked.name,
                asked.count,
                assignments,
                timeout_ms=message.timeout_ms,
                validate_only=message.validate_only,
            )
    except KafkaError as error:
        return _result(asked.name, error.code, error.message or None)
    return _result(asked.name, ErrorCode.NONE, None)


def _result(name: str, code: ErrorCode, message: str | None) -> _Result:
    return _Result(name=name, error_code=code, error_message=message)
