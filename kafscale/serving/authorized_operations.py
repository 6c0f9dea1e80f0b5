"""The operations that a client may do, as bit sets (KIP-430, AclEntry.supportedOperations)."""

from typing import TYPE_CHECKING, Final

from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from kafscale.security.access import Access


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED_FOR: Final = -(1 << 31)

TOPIC_OPERATIONS: Final = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)

GROUP_OPERATIONS: Final = _bits(
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)

CLUSTER_OPERATIONS: Final = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def topic_operations(access: "Access", name: str) -> int:
    """The operations on the topic that the client may do, as bits."""
    return access.operations(ResourceType.TOPIC, name) & TOPIC_OPERATIONS


def group_operations(access: "Access", group_id: str) -> int:
    """The operations on the group that the client may do, as bits."""
    return access.operations(ResourceType.GROUP, group_id) & GROUP_OPERATIONS


def cluster_operations(access: "Access") -> int:
    """The operations on the cluster that the client may do, as bits; as in Kafka none if it must not describe it."""
    allowed = access.operations(ResourceType.CLUSTER, CLUSTER_NAME)
    return allowed & CLUSTER_OPERATIONS if allowed >> Operation.DESCRIBE & 1 else 0


def bits_of(operations: int) -> frozenset[int]:
    """The codes of the operations: kafka-python's own form of such fields."""
    return frozenset(bit for bit in range(31) if operations >> bit & 1)
