"""Rules, as clients feel them: which error each raises for a topic or a group, and which rule decides."""

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)

from tests.compat.security.clients import Client, Refused
from tests.compat.security.clients.librdkafka import Librdkafka
from tests.compat.security.conftest import CLIENTS, OPEN
from tests.support.access_rules import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, rule, rules
from tests.support.secure_peer import SecurePeer, access
from tests.support.security_plan import PLAIN, SASL_SSL, SSL, Access
from tests.support.topics import unique_name

every_client = pytest.mark.parametrize("client", CLIENTS, indirect=True)
REFUSED = {
    "java": "{}AuthorizationException",
    "librdkafka": "{}_AUTHORIZATION_FAILED",
    "kafka-python": "{}AuthorizationFailedError",
    "aiokafka": "{}AuthorizationFailedError",
    "franz-go": "{}_AUTHORIZATION_FAILED",
    "kafkajs": "{}_AUTHORIZATION_FAILED",
    "kcat": "{} authorization failed",
}
WRITE, READ, DESCRIBE = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE
PREFIXED = ResourcePatternType.PREFIXED
DENY = AclPermissionType.DENY


@pytest.fixture
def bob(secured: SecurePeer) -> Access:
    """bob, to whom no rule allows anything."""
    return access(secured, SASL_SSL, "bob", PLAIN)


@pytest.fixture
def topic(secured: SecurePeer) -> str:
    """A topic with one record."""
    name = unique_name("closed-topic")
    admin = access(secured, SASL_SSL, "admin", PLAIN)
    Librdkafka().create(admin, name)
    assert Librdkafka().produce(admin, name, ["value-0"]) is None
    return name


@every_client
def test_write_to_a_topic_is_refused(client: Client, bob: Access, topic: str) -> None:
    error = client.produce(bob, topic, ["value-0"])
    assert error is not None
    assert expected(client, "Topic") in error


@every_client
def test_read_in_a_group_is_refused(admin: AdminClient, client: Client, bob: Access, topic: str) -> None:
    with rules(admin, rule(TOPIC, topic, READ, "User:bob")), pytest.raises(Refused) as refused:
        client.consume(bob, topic, unique_name("closed-group"), 1)
    # KafkaJS looks for another coordinator instead.
    names = {"KafkaJSGroupCoordinatorNotFound"} if client.name == "kafkajs" else {expected(client, "Group")}
    assert any(name in str(refused.value) for name in names)


@every_client
def test_read_of_a_topic_is_refused(admin: AdminClient, client: Client, bob: Access, topic: str) -> None:
    group = unique_name("closed-group")
    with rules(admin, rule(GROUP, group, READ, "User:bob")), pytest.raises(Refused) as refused:
        client.consume(bob, topic, group, 1)
    assert expected(client, "Topic") in str(refused.value)


def test_write_allowed_by_name_wildcard_prefix(admin: AdminClient, bob: Access, topic: str) -> None:
    for allowing in (
        rule(TOPIC, topic, WRITE, "User:bob"),
        rule(TOPIC, topic, WRITE, "User:*"),
        rule(TOPIC, "*", WRITE, "User:bob"),
        rule(TOPIC, topic[:-1], WRITE, "User:bob", pattern=PREFIXED),
        rule(TOPIC, topic, AclOperation.ALL, "User:bob"),
    ):
        with rules(admin, allowing):
            assert Librdkafka().produce(bob, topic, ["x"]) is None, allowing
        assert Librdkafka().produce(bob, topic, ["x"]) == "TOPIC_AUTHORIZATION_FAILED", allowing


def test_rule_of_another_name_host_user_allows_nothing(admin: AdminClient, bob: Access, topic: str) -> None:
    others = [
        rule(TOPIC, topic[:-1], WRITE, "User:bob"),
        rule(TOPIC, topic + "x", WRITE, "User:bob", pattern=PREFIXED),
        rule(TOPIC, topic, WRITE, "User:bob", host="127.0.0.2"),
        rule(TOPIC, topic, WRITE, "User:bo"),
        rule(TOPIC, topic, WRITE, "Group:bob"),
        rule(GROUP, topic, WRITE, "User:bob"),
        rule(CLUSTER, CLUSTER_NAME, AclOperation.ALL, "User:bob"),
    ]
    with rules(admin, *others[:-2]):
        assert Librdkafka().produce(bob, topic, ["x"]) == "TOPIC_AUTHORIZATION_FAILED"


def test_deny_of_a_host_comes_before_allow(admin: AdminClient, bob: Access, topic: str) -> None:
    allowing = rule(TOPIC, topic, WRITE, "User:bob")
    with rules(admin, allowing, rule(TOPIC, topic, WRITE, "User:bob", host="127.0.0.1", permission=DENY)):
        assert Librdkafka().produce(bob, topic, ["x"]) == "TOPIC_AUTHORIZATION_FAILED"
    with rules(admin, allowing, rule(TOPIC, topic, WRITE, "User:bob", host="127.0.0.2", permission=DENY)):
        assert Librdkafka().produce(bob, topic, ["x"]) is None


def test_deny_of_a_prefix_does_not_bind_super_users(
    secured: SecurePeer, admin: AdminClient, topic: str
) -> None:
    denying = rule(TOPIC, "closed-", AclOperation.ALL, "User:*", pattern=PREFIXED, permission=DENY)
    with rules(admin, denying):
        assert Librdkafka().produce(access(secured, SASL_SSL, "admin", PLAIN), topic, ["x"]) is None


def test_certificate_and_password_are_one_principal(
    secured: SecurePeer, admin: AdminClient, topic: str
) -> None:
    by_certificate = access(secured, SSL, "bob")
    assert Librdkafka().produce(by_certificate, topic, ["x"]) == "TOPIC_AUTHORIZATION_FAILED"
    with rules(admin, rule(TOPIC, topic, WRITE, "User:bob")):
        assert Librdkafka().produce(by_certificate, topic, ["x"]) is None


def test_topics_that_one_may_not_describe_are_not_listed(
    secured: SecurePeer, admin: AdminClient, bob: Access, topic: str
) -> None:
    every = Librdkafka().topics(access(secured, SASL_SSL, "admin", PLAIN))
    assert topic in every
    assert Librdkafka().topics(bob) == []
    alice = access(secured, SASL_SSL, "alice", PLAIN)
    assert Librdkafka().topics(alice) == [name for name in every if name.startswith(OPEN)]
    with rules(admin, rule(TOPIC, topic, DESCRIBE, "User:bob")):
        assert Librdkafka().topics(bob) == [topic]


def expected(client: Client, kind: str) -> str:
    """The client's name for a refused topic or group."""
    form = REFUSED[client.name]
    return form.format(kind.upper() if form.startswith("{}_") else kind)
