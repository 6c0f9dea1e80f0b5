"""The checks of access that handlers share: Kafka's error for what a client must not do."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import RequestContext

_NONE: Final[frozenset[str]] = frozenset()

_REFUSALS: Final = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}


def check_access(
    request: "RequestContext",
    operation: Operation,
    resource_type: ResourceType = ResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
) -> None:
    """Raises `KafkaError` with the error code of the resource's type unless the client may do this with it."""
    if not request.access.allows(operation, resource_type, name):
        raise KafkaError(*_REFUSALS[resource_type])


async def denied(
    request: "RequestContext",
    operation: Operation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    quiet: bool = False,
) -> frozenset[str]:
    """Those of the named resources with which the client must not do this; other tasks run in between.

    `quiet`: as of `Access.allows`.
    """
    access = request.access
    if not access.is_restricted:
        return _NONE
    return frozenset(
        [
            name
            async for name in in_turns(dict.fromkeys(names))
            if not access.allows(operation, resource_type, name, quiet=quiet)
        ]
    )
