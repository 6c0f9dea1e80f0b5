"""Access rules and users by librdkafka's administrator, for tests that are not about administrators."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.waiting import PATIENCE_SEC, wait_until

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
CLUSTER_NAME = "kafka-cluster"


def rule(
    kind: Any,
    name: str,
    operation: Any,
    principal: str = "User:alice",
    *,
    pattern: Any = ResourcePatternType.LITERAL,
    host: str = "*",
    permission: Any = AclPermissionType.ALLOW,
) -> Any:
    """One rule; it allows unless `permission` says otherwise."""
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def add_rules(admin: AdminClient, *rules: Any) -> None:
    """Add rules, and wait until the broker has them.

    A store that did not answer in time, as on a loaded machine, is asked again: a rule may be there already.
    """

    def are_added() -> bool:
        try:
            for future in admin.create_acls(list(rules)).values():
                future.result(PATIENCE_SEC)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.REQUEST_TIMED_OUT:
                raise
            return False
        return True

    wait_until(are_added, "the rules are added")


def remove_rules(admin: AdminClient, *rules: Any) -> None:
    """Remove rules."""
    filters = [
        AclBindingFilter(
            one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation,
            one.permission_type,
        )
        for one in rules
    ]  # fmt: skip
    for future in admin.delete_acls(filters).values():
        future.result(PATIENCE_SEC)


@contextmanager
def rules(admin: AdminClient, *added: Any) -> Iterator[None]:
    """Rules for the time of the block."""
    add_rules(admin, *added)
    try:
        yield
    finally:
        remove_rules(admin, *added)


def allow_prefix(admin: AdminClient, prefix: str, principal: str = "User:alice") -> None:
    """Let a principal do everything with topics, groups and transactional ids whose names begin so."""
    add_rules(
        admin,
        *(
            rule(kind, prefix, AclOperation.ALL, principal, pattern=ResourcePatternType.PREFIXED)
            for kind in (TOPIC, GROUP, TRANSACTIONAL_ID)
        ),
    )
