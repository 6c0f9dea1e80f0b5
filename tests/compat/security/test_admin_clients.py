"""librdkafka's administrator: rules, and the operations that answers say one may do."""

import contextlib
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)

from tests.compat.security.clients.librdkafka import Librdkafka
from tests.support.access_rules import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, add_rules, rule, rules
from tests.support.client_security import librdkafka_config
from tests.support.secure_peer import SecurePeer, access
from tests.support.security_plan import PLAIN, SASL_SSL
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC

ANY, ANY_PERMISSION = AclOperation.ANY, AclPermissionType.ANY
EVERY: Any = None  # in a filter
READ, WRITE, DESCRIBE, ALTER = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER,
)


@pytest.fixture
def bob(secured: SecurePeer) -> AdminClient:
    """The administrator of bob, to whom no rule allows anything."""
    return AdminClient(librdkafka_config(access(secured, SASL_SSL, "bob", PLAIN)))


def found(admin: AdminClient, name: str, match: Any = ResourcePatternType.MATCH) -> set[AclBinding]:
    """The rules about a topic of this name."""
    wanted = AclBindingFilter(TOPIC, name, match, EVERY, EVERY, ANY, ANY_PERMISSION)
    return set(admin.describe_acls(wanted).result(PATIENCE_SEC))


def test_rules_are_created_found_deleted(admin: AdminClient) -> None:
    name = unique_name("ruled")
    literal = rule(TOPIC, name, READ)
    prefix = rule(TOPIC, name[:-1], WRITE, pattern=ResourcePatternType.PREFIXED, host="10.0.0.1")
    denying = rule(TOPIC, name, AclOperation.ALL, "User:bob", permission=AclPermissionType.DENY)
    add_rules(admin, literal, prefix, denying)
    assert found(admin, name) >= {literal, prefix, denying}
    assert found(admin, name, ResourcePatternType.LITERAL) == {literal, denying}
    of_bob = AclBindingFilter(TOPIC, name, ResourcePatternType.ANY, "User:bob", EVERY, ANY, ANY_PERMISSION)
    of_name = AclBindingFilter(
        TOPIC, name, ResourcePatternType.MATCH, "User:alice", EVERY, ANY, ANY_PERMISSION
    )
    deleted = admin.delete_acls([of_bob, of_name])
    assert set(deleted[of_bob].result(PATIENCE_SEC)) == {denying}
    assert set(deleted[of_name].result(PATIENCE_SEC)) == {literal, prefix}
    assert not found(admin, name) & {literal, prefix, denying}


def test_rules_without_rights_are_refused(admin: AdminClient, bob: AdminClient) -> None:
    name = unique_name("ruled")
    of_admin = rule(TOPIC, name, READ)
    of_bob = rule(TOPIC, name, READ, "User:bob")
    wanted = AclBindingFilter(TOPIC, name, ResourcePatternType.ANY, EVERY, EVERY, ANY, ANY_PERMISSION)
    with rules(admin, of_admin):
        with pytest.raises(KafkaException) as refused:
            bob.create_acls([of_bob])[of_bob].result(PATIENCE_SEC)
        assert refused.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"
        # For these the Python binding may give an empty result instead of the error.
        for future in (bob.describe_acls(wanted), bob.delete_acls([wanted])[wanted]):
            with contextlib.suppress(KafkaException):
                assert future.result(PATIENCE_SEC) == []
        assert found(admin, name, ResourcePatternType.LITERAL) == {of_admin}


def test_topic_shows_the_operations_that_are_allowed(
    secured: SecurePeer, admin: AdminClient, bob: AdminClient
) -> None:
    name = unique_name("closed-topic")
    Librdkafka().create(access(secured, SASL_SSL, "admin", PLAIN), name)

    def operations(client: AdminClient) -> set[Any]:
        described = client.describe_topics(TopicCollection([name]), include_authorized_operations=True)
        return set(described[name].result(PATIENCE_SEC).authorized_operations)

    every = {
        READ, WRITE, AclOperation.CREATE, AclOperation.DELETE, ALTER, DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }  # fmt: skip
    assert operations(admin) == every
    with rules(admin, rule(TOPIC, name, WRITE, "User:bob")):
        assert operations(bob) == {WRITE, DESCRIBE}
    with pytest.raises(KafkaException) as refused:
        operations(bob)
    assert refused.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"


def test_cluster_shows_the_operations_that_are_allowed(admin: AdminClient, bob: AdminClient) -> None:
    def operations(client: AdminClient) -> set[Any]:
        described = client.describe_cluster(include_authorized_operations=True).result(PATIENCE_SEC)
        return set(described.authorized_operations or ())

    assert operations(bob) == set()
    with rules(admin, rule(CLUSTER, CLUSTER_NAME, ALTER, "User:bob")):
        assert operations(bob) == {ALTER, DESCRIBE}


def test_group_shows_the_operations_that_are_allowed(
    secured: SecurePeer, admin: AdminClient, bob: AdminClient
) -> None:
    topic, group = unique_name("closed-topic"), unique_name("closed-group")
    way_in = access(secured, SASL_SSL, "admin", PLAIN)
    Librdkafka().create(way_in, topic)
    Librdkafka().produce(way_in, topic, ["x"])
    Librdkafka().consume(way_in, topic, group, 1)

    def operations(client: AdminClient) -> set[Any]:
        described = client.describe_consumer_groups([group], include_authorized_operations=True)
        return set(described[group].result(PATIENCE_SEC).authorized_operations)

    with rules(admin, rule(GROUP, group, READ, "User:bob")):
        assert operations(bob) == {READ, DESCRIBE}
    with pytest.raises(KafkaException) as refused:
        operations(bob)
    assert refused.value.args[0].name() == "GROUP_AUTHORIZATION_FAILED"
