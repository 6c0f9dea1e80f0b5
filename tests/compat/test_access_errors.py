"""The table of tests/security/access_table.py, asked of a whole broker: Kafka and Kafscale give its error codes."""

import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from kafscale.protocol import api_messages as m
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from tests.security.access_requests import TEAM, Target, offset_commit
from tests.security.access_table import TABLE, Row, Rule
from tests.support.group_peer import Peer, group_peer, peer_kind
from tests.support.topics import create_topic
from tests.support.waiting import wait_until
from tests.support.wire import Wire, connect

ANONYMOUS = "User:ANONYMOUS"
TOPIC = "orders"
LITERAL, ALLOW = 3, 3

# Kafka's broker speaks with its controller as ANONYMOUS too. Its table of rows has that rule for a client.
OF_BROKERS: Rule = (ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)

# Kafka 4.1 answers none of them without a feature.
OF_SHARE_GROUPS = [row for row in TABLE if "SHARE" in row.api.name]

WITHOUT_RULES = [
    row
    for row in TABLE
    if row not in OF_SHARE_GROUPS
    and not row.given(TOPIC)
    and not any(OF_BROKERS in rules for rules in row.enough(TOPIC))
]
DELETING = (ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE)
# Of a transaction that is not made here.
TRANSACTIONS = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
)
# Kafka has configs of groups.
_OTHERWISE = ("transaction", "transactional id", "of a group")
WITH_RULES = [
    row
    for row in TABLE
    if row not in OF_SHARE_GROUPS
    and not row.form.endswith(_OTHERWISE)
    and row.api not in (*DELETING, *TRANSACTIONS)
]


def settings(*, is_super: bool) -> dict[str, Any]:
    super_users = ANONYMOUS if is_super else "User:admin"
    if peer_kind() == "kafka":
        return {
            "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super_users": super_users,
        }
    return {"authorizer": "acl", "super_users": super_users}


def allow(wire: Wire, rules: Collection[Rule]) -> None:
    creations = [
        m.CreateAclsRequest.AclCreation(
            resource_type=int(kind),
            resource_name=name,
            resource_pattern_type=LITERAL,
            principal=ANONYMOUS,
            host="*",
            operation=int(operation),
            permission_type=ALLOW,
        )
        for kind, name, operation in dict.fromkeys(rules)
    ]
    reply = wire.call(m.CreateAclsRequest(creations=creations), RESPONSE_CLASSES[int(ApiKey.CREATE_ACLS)], 3)
    assert {result.error_code for result in reply.results} == {0}


def prepared(folder: Path, rules: Collection[Rule]) -> Iterator[tuple[Peer, Target]]:
    """A broker whose anonymous clients have these rules, a topic, and a group with an offset in it."""
    with group_peer(folder, **settings(is_super=True)) as peer:
        create_topic(peer, TOPIC)
        with connect(peer) as wire:
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
            (topic,) = wire.call(request, MetadataResponse, 12).topics
            broker_id = 1 if peer_kind() == "kafka" else 0
            target = Target(TOPIC, uuid.UUID(str(topic.topic_id)), broker_id)

            def committed() -> bool:
                # With the first of these Kafka creates its topic of offsets.
                wire.call(
                    m.FindCoordinatorRequest(key_type=0, coordinator_keys=[TEAM]),
                    RESPONSE_CLASSES[int(ApiKey.FIND_COORDINATOR)],
                    4,
                )
                response = RESPONSE_CLASSES[int(ApiKey.OFFSET_COMMIT)]
                reply = wire.call(offset_commit(target), response, 8)
                return {one.error_code for each in reply.topics for one in each.partitions} == {0}

            wait_until(committed, "the group has an offset")
            allow(wire, [OF_BROKERS, *rules])
        peer.stop()
        for name, value in settings(is_super=False).items():
            (peer._properties if peer_kind() == "kafka" else peer.settings)[name] = value  # type: ignore[union-attr]
        if peer_kind() == "kafka":
            properties = peer.folder / "server.properties"
            properties.write_text(
                properties.read_text().replace(f"super.users={ANONYMOUS}", "super.users=User:admin")
            )
        peer.start()
        yield peer, target


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Target]]:
    """A broker whose clients may do nothing."""
    yield from prepared(tmp_path_factory.mktemp("closed"), ())


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Target]]:
    """A broker whose clients may do what the rows need."""
    rules = [
        rule for row in WITH_RULES for rule in [*row.given(TOPIC), *[r for e in row.enough(TOPIC) for r in e]]
    ]
    yield from prepared(tmp_path_factory.mktemp("opened"), rules)


def answer(made: tuple[Peer, Target], row: Row) -> set[int]:
    peer, target = made
    with connect(peer) as wire:
        return set(row.codes(wire.call(row.make(target), RESPONSE_CLASSES[int(row.api)], row.version)))


@pytest.mark.parametrize("row", WITHOUT_RULES, ids=lambda row: row.id)
def test_client_without_rules_is_refused(closed: tuple[Peer, Target], row: Row) -> None:
    assert answer(closed, row) == {row.denied}


@pytest.mark.parametrize("row", WITH_RULES, ids=lambda row: row.id)
def test_client_with_the_needed_rules_passes(opened: tuple[Peer, Target], row: Row) -> None:
    codes: set[int] = set()

    def settled() -> bool:
        codes.clear()
        codes.update(answer(opened, row))
        return codes <= set(row.allowed)

    wait_until(settled, f"{row.id} is answered as to a client that may")
