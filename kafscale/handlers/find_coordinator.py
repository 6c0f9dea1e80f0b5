"""FindCoordinator (10), versions 0 to 4: the broker that coordinates a group.

v1: key types (KIP-98), throttle time. v3: flexible. v4: several keys (KIP-699). A transactional id is refused
with an error that clients take for final: there are no transactions (docs/skipped.md).
"""

from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import FindCoordinatorResponse

from kafscale.metadata.keys import shard_of
from kafscale.metadata.model import Endpoint, ListenerName
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Coordinator = FindCoordinatorResponse.Coordinator

_GROUP = 0
_TRANSACTION = 1

_FIRST_VERSION_WITH_SEVERAL_KEYS = 4
_NO_NODE = -1


async def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """The address of each key's coordinator, if the cluster has one now."""
    if request.api_version < _FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(
            throttle_time_ms=0, **_answer(broker, request, message.key_type, message.key)
        )
    coordinators = [
        _Coordinator(key=key, **_answer(broker, request, message.key_type, key))
        async for key in in_turns(message.coordinator_keys)
    ]
    return FindCoordinatorResponse(throttle_time_ms=0, coordinators=coordinators)


def _answer(broker: "Broker", request: "RequestContext", key_type: int, key: str) -> dict[str, Any]:
    try:
        broker_id, endpoint = _find(broker, request.listener, key_type, key)
    except KafkaError as refusal:
        return _fields(_NO_NODE, "", _NO_NODE, refusal.code, refusal.message)
    return _fields(broker_id, *endpoint, ErrorCode.NONE, None)


def _fields(node_id: int, host: str, port: int, code: ErrorCode, problem: str | None) -> dict[str, Any]:
    return {"node_id": node_id, "host": host, "port": port, "error_code": code, "error_message": problem}


def _find(broker: "Broker", listener: ListenerName, key_type: int, key: str) -> tuple[int, Endpoint]:
    if key_type == _TRANSACTION:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactions are not supported (docs/skipped.md)",
        )
    if key_type != _GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not here")
    broker_id = broker.view.coordinator(shard_of(key))
    found = None if broker_id is None else broker.view.broker(broker_id)
    endpoint = None if found is None else found.endpoint(listener)
    if found is None or endpoint is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group has no coordinator at the moment")
    return found.broker_id, endpoint
