"""FindCoordinator (10), versions 0 to 4: the broker that coordinates a group or a transactional id.

v1: key types (KIP-98), throttle time. v3: flexible. v4: several keys (KIP-699). One broker
coordinates the groups and the transactional ids of a shard.
"""

from typing import TYPE_CHECKING

from kafscale.metadata.keys import shard_of
from kafscale.metadata.model import Endpoint
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import FindCoordinatorRequest, FindCoordinatorResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access
from kafscale.serving.transaction_requests import check_transactional
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Coordinator = FindCoordinatorResponse.Coordinator

_GROUP = 0
_TRANSACTION = 1

_FIRST_VERSION_WITH_SEVERAL_KEYS = 4
_NO_NODE = -1


async def handle(
    broker: "Broker", request: "RequestContext", message: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """The address of each key's coordinator, if the cluster has one now."""
    if request.api_version < _FIRST_VERSION_WITH_SEVERAL_KEYS:
        found = _answer(broker, request, message.key_type, message.key)
        return FindCoordinatorResponse(
            throttle_time_ms=0,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
            error_code=found.error_code,
            error_message=found.error_message,
        )
    coordinators = [
        _answer(broker, request, message.key_type, key) async for key in in_turns(message.coordinator_keys)
    ]
    return FindCoordinatorResponse(throttle_time_ms=0, coordinators=coordinators)


def _answer(broker: "Broker", request: "RequestContext", key_type: int, key: str) -> _Coordinator:
    try:
        broker_id, endpoint = _find(broker, request, key_type, key)
    except KafkaError as refusal:
        return _Coordinator(
            key=key,
            node_id=_NO_NODE,
            host="",
            port=_NO_NODE,
            error_code=refusal.code,
            error_message=refusal.message,
        )
    return _Coordinator(
        key=key,
        node_id=broker_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE,
        error_message=None,
    )


def _find(broker: "Broker", request: "RequestContext", key_type: int, key: str) -> tuple[int, Endpoint]:
    if key_type == _TRANSACTION:
        check_transactional(broker, request, key, Operation.DESCRIBE)
    elif key_type == _GROUP:
        check_access(request, Operation.DESCRIBE, ResourceType.GROUP, key)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not here")
    broker_id = broker.view.coordinator(shard_of(key))
    found = None if broker_id is None else broker.view.broker(broker_id)
    endpoint = None if found is None else found.endpoint(request.listener)
    if found is None or endpoint is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no coordinator at the moment")
    return found.broker_id, endpoint
