"""The access that an API needs its client to have: declared with each route, checked by its handler."""

from typing import NamedTuple

from kafscale.protocol.acl_codes import Operation, ResourceType


class Need(NamedTuple):
    """An operation on a resource that the request names, or on the cluster. `when`: for people; empty: always."""

    resource_type: ResourceType
    operation: Operation
    when: str = ""


class Open(NamedTuple):
    """Every client may use the API. `reason`: for people."""

    reason: str


Needs = tuple[Need, ...] | Open


def topic(operation: Operation, when: str = "") -> Need:
    """An operation on a topic."""
    return Need(ResourceType.TOPIC, operation, when)


def group(operation: Operation, when: str = "") -> Need:
    """An operation on a group."""
    return Need(ResourceType.GROUP, operation, when)


def transactional_id(operation: Operation, when: str = "") -> Need:
    """An operation on a transactional id."""
    return Need(ResourceType.TRANSACTIONAL_ID, operation, when)


def cluster(operation: Operation, when: str = "") -> Need:
    """An operation on the cluster."""
    return Need(ResourceType.CLUSTER, operation, when)


def config_resource(operation: Operation) -> tuple[Need, ...]:
    """An operation on whatever has the configs that the request names; `check_config_access` checks it."""
    return topic(operation, "of topics"), cluster(operation, "of brokers"), group(operation, "of groups")
