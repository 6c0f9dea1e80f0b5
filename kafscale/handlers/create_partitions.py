"""CreatePartitions (37), versions 0 to 3: topics grow.

v2: flexible. v3: quota errors, which nothing here raises (KIP-599). Validate-only is there from v0.
"""

from collections import Counter
from typing import TYPE_CHECKING

from kafscale.protocol.api_messages import CreatePartitionsRequest, CreatePartitionsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.tasks.concurrently import for_each

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

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
    results += await for_each(asked_once, lambda asked: _grow(broker, message, asked))
    return CreatePartitionsResponse(results=results)


async def _grow(
    broker: "Broker", message: CreatePartitionsRequest, asked: CreatePartitionsRequest.CreatePartitionsTopic
) -> _Result:
    assignments = None if asked.assignments is None else [one.broker_ids for one in asked.assignments]
    try:
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
