"""CreateAcls, DescribeAcls, DeleteAcls; authorized operations; what is logged and counted; shared idle answers."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafscale.formats.acl_record import STORED_ACL, AclBinding, acl_key
from kafscale.handlers import delete_acls, describe_acls
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol import api_messages as m
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from kafscale.security.principal import ANONYMOUS, Principal
from kafscale.serving.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kafscale.settings.broker import AuthorizerKind
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, dispatcher_of, in_process_broker

ADMIN, ALICE, BOB = (Principal("User", name) for name in ("admin", "alice", "bob"))
READ_ORDERS = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    str(ALICE),
    "*",
    Operation.READ,
    Permission.ALLOW,
)
ACL_VERSIONS = (1, 2, 3)


@asynccontextmanager
async def broker_with_rules(**settings: Any) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(
        authorizer=AuthorizerKind.ACL, super_users=frozenset({str(ADMIN)}), **settings
    ) as broker:
        yield broker


@asynccontextmanager
async def client_of(broker: InProcessBroker, principal: Principal) -> AsyncIterator[Client]:
    """A connection whose client is this principal."""
    basics = broker.process.basics
    assert basics.authorizer is not None
    access_of = basics.authorizer.access
    basics.listener.access_of = lambda _, host: access_of(principal, host)
    async with broker.connect() as client:
        # Until then the broker may not have accepted it.
        await ask(client, m.ApiVersionsRequest(), 0)
        yield client


async def ask(client: Client, request: Any, version: int) -> Any:
    return await client.call(request, RESPONSE_CLASSES[int(request.API_KEY)], version)


def creation(rule: AclBinding) -> Any:
    return m.CreateAclsRequest.AclCreation(
        resource_type=int(rule.resource_type),
        resource_name=rule.name,
        resource_pattern_type=int(rule.pattern_type),
        principal=rule.principal,
        host=rule.host,
        operation=int(rule.operation),
        permission_type=int(rule.permission),
    )


def filter_fields(rule: AclBinding | None = None) -> dict[str, Any]:
    """Of one rule; None: of all."""
    if rule is None:
        rule = AclBinding(ResourceType.ANY, PatternType.ANY, "", "", "", Operation.ANY, Permission.ANY)
    return {
        "resource_type_filter": int(rule.resource_type),
        "resource_name_filter": rule.name or None,
        "pattern_type_filter": int(rule.pattern_type),
        "principal_filter": rule.principal or None,
        "host_filter": rule.host or None,
        "operation": int(rule.operation),
        "permission_type": int(rule.permission),
    }


async def described(client: Client, version: int = 3, rule: AclBinding | None = None) -> set[AclBinding]:
    reply = await ask(client, m.DescribeAclsRequest(**filter_fields(rule)), version)
    assert reply.error_code == 0, reply
    return {
        AclBinding(
            ResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            resource.resource_name,
            one.principal,
            one.host,
            Operation(one.operation),
            Permission(one.permission_type),
        )
        for resource in reply.resources
        for one in resource.acls
    }


async def create(client: Client, *rules: AclBinding, version: int = 3) -> list[tuple[int, str | None]]:
    reply = await ask(client, m.CreateAclsRequest(creations=[creation(rule) for rule in rules]), version)
    return [(result.error_code, result.error_message) for result in reply.results]


async def delete(client: Client, *rules: AclBinding | None, version: int = 3) -> Any:
    wanted = [m.DeleteAclsRequest.DeleteAclsFilter(**filter_fields(rule)) for rule in rules]
    return (await ask(client, m.DeleteAclsRequest(filters=wanted), version)).filter_results


@pytest.mark.parametrize("version", ACL_VERSIONS)
async def test_rules_are_created_shown_and_deleted(version: int) -> None:
    prefixed = READ_ORDERS._replace(pattern_type=PatternType.PREFIXED, host="10.0.0.0/8")
    async with broker_with_rules() as broker, client_of(broker, ADMIN) as admin:
        assert await create(admin, READ_ORDERS, prefixed, version=version) == [(0, None)] * 2
        assert await described(admin, version) == {READ_ORDERS, prefixed}
        assert await described(admin, version, prefixed) == {prefixed}
        (one,) = await delete(admin, prefixed, version=version)
        assert (one.error_code, len(one.matching_acls), one.matching_acls[0].host) == (0, 1, "10.0.0.0/8")
        assert await described(admin, version) == {READ_ORDERS}
        (every,) = await delete(admin, None, version=version)
        assert [acl.resource_name for acl in every.matching_acls] == ["orders"]
        assert await described(admin, version) == set()


async def test_illegal_rules_leave_the_legal_ones() -> None:
    illegal = [
        READ_ORDERS._replace(name=""),
        READ_ORDERS._replace(operation=Operation.ANY),
        READ_ORDERS._replace(principal="alice"),
        READ_ORDERS._replace(resource_type=ResourceType.CLUSTER),
        READ_ORDERS._replace(host="10.0.0.1/8"),
    ]
    async with broker_with_rules() as broker, client_of(broker, ADMIN) as admin:
        results = await create(admin, *illegal, READ_ORDERS, READ_ORDERS)
        assert [code for code, _ in results] == [ErrorCode.INVALID_REQUEST] * len(illegal) + [0, 0]
        assert all(text for code, text in results if code)
        assert await described(admin) == {READ_ORDERS}


async def test_unknown_codes_are_refused() -> None:
    unknown = m.CreateAclsRequest(creations=[creation(READ_ORDERS)])
    unknown.creations[0].operation = 77
    describing = m.DescribeAclsRequest(**filter_fields())
    describing.permission_type = 9
    async with broker_with_rules() as broker, client_of(broker, ADMIN) as admin:
        (result,) = (await ask(admin, unknown, 3)).results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert (await ask(admin, describing, 3)).error_code == ErrorCode.INVALID_REQUEST
        wanted = m.DeleteAclsRequest.DeleteAclsFilter(**filter_fields())
        wanted.pattern_type_filter = 9
        every = m.DeleteAclsRequest.DeleteAclsFilter(**filter_fields())
        results = (await ask(admin, m.DeleteAclsRequest(filters=[wanted, every]), 3)).filter_results
        assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST, 0]


async def test_requests_for_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_acls, "MAX_RULES", 5)
    monkeypatch.setattr(delete_acls, "MAX_FILTERS", 5)
    rules = [READ_ORDERS._replace(name=f"orders-{number}") for number in range(6)]
    too_much = ErrorCode.POLICY_VIOLATION
    async with broker_with_rules() as broker, client_of(broker, ADMIN) as admin:
        assert {code for code, _ in await create(admin, *rules)} == {0}
        reply = await ask(admin, m.DescribeAclsRequest(**filter_fields()), 3)
        assert (reply.error_code, reply.resources) == (too_much, [])
        assert await described(admin, rule=rules[0]) == {rules[0]}
        assert [one.error_code for one in await delete(admin, *rules)] == [too_much] * 6
        many = [READ_ORDERS] * 10_001
        assert {code for code, _ in await create(admin, *many)} == {too_much}


async def test_unreadable_rule_is_shown_as_a_denial_and_removed() -> None:
    store = MemoryStore()
    denied = READ_ORDERS._replace(operation=Operation.ALL, permission=Permission.DENY)
    await store.transact([], [Put(acl_key(denied), b'{"version":7}')])
    async with broker_with_rules(metadata=store) as broker, client_of(broker, ADMIN) as admin:
        assert await described(admin) == {denied}
        await delete(admin, denied)
        assert await described(admin) == set()
        assert (await store.range(keys.ACLS)).items == ()


# --- decisions over the wire


async def produce_code(client: Client, topic: str) -> int:
    part = await client.produce(topic, 0, wire.batch([b"v"]))
    return int(part.error_code)


async def test_other_broker_sees_a_revoked_rule_within_a_second() -> None:
    store = MemoryStore()
    write = READ_ORDERS._replace(operation=Operation.WRITE)
    async with broker_with_rules(metadata=store) as one, client_of(one, ADMIN) as admin:
        await create(admin, AclBinding(*_CREATE_TOPICS))
        await one.create_topic("orders")
        await create(admin, write)
        # The second broker is of the same cluster; its clients are sent to the leader otherwise.
        async with (
            broker_with_rules(metadata=store, objects=one.objects, broker_id=1) as other,
            client_of(other, ALICE) as alice,
        ):
            assert await produce_code(alice, "orders") != ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await delete(admin, write)
            revoked = time.monotonic()
            async with asyncio.timeout(60):
                while await produce_code(alice, "orders") != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    pass
            assert time.monotonic() - revoked < 1


_CREATE_TOPICS = (
    ResourceType.CLUSTER,
    PatternType.LITERAL,
    CLUSTER_NAME,
    str(ANONYMOUS),
    "*",
    Operation.CREATE,
    Permission.ALLOW,
)


async def test_idle_answer_of_another_client_is_not_given_out() -> None:
    async with broker_with_rules() as broker, client_of(broker, ADMIN) as admin:
        await create(admin, AclBinding(*_CREATE_TOPICS), READ_ORDERS)
        await broker.create_topic("orders")
        idle = {"max_wait_ms": 1}
        async with client_of(broker, ALICE) as alice, client_of(broker, BOB) as bob:
            for _ in range(3):
                assert (await alice.fetch("orders", {0: 0}, **idle))[0].error_code == 0
            assert len(dispatcher_of(broker)._broker.idle_answers) == 1
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (await bob.fetch("orders", {0: 0}, **idle))[0].error_code == denied
            assert (await alice.fetch("orders", {0: 0}, **idle))[0].error_code == 0
            await delete(admin, READ_ORDERS)
            assert (await alice.fetch("orders", {0: 0}, **idle))[0].error_code == denied


async def test_produce_without_acks_that_is_denied_ends_the_connection() -> None:
    async with broker_with_rules() as broker, client_of(broker, ALICE) as alice:
        await alice.send_produce("orders", {0: wire.batch([b"v"])}, acks=0)
        assert await alice.closed_by_peer()


async def test_large_fetch_is_checked_too() -> None:
    async with broker_with_rules() as broker, client_of(broker, ADMIN) as admin:
        await create(admin, AclBinding(*_CREATE_TOPICS))
        await broker.create_topic("orders")
        async with client_of(broker, ALICE) as alice:
            parts = await alice.fetch("orders", dict.fromkeys(range(3000), 0), max_wait_ms=0)
    assert {part.error_code for part in parts.values()} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", [8, 9, 10, 12])
async def test_metadata_has_the_operations_of_the_client(version: int) -> None:
    request = m.MetadataRequest(
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
        allow_auto_topic_creation=False,
    )

    def bits(operations: Any) -> int:
        return sum(1 << bit for bit in operations)

    async with broker_with_rules() as broker, client_of(broker, ADMIN) as admin:
        await create(
            admin,
            AclBinding(*_CREATE_TOPICS),
            READ_ORDERS,
            READ_ORDERS._replace(operation=Operation.ALTER_CONFIGS),
        )
        await broker.create_topic("orders")
        async with client_of(broker, ALICE) as alice:
            reply = await ask(alice, request, version)
            (topic,) = reply.topics
            allowed = {
                Operation.READ,
                Operation.DESCRIBE,
                Operation.ALTER_CONFIGS,
                Operation.DESCRIBE_CONFIGS,
            }
            assert bits(topic.authorized_operations) == bits(allowed)
            if version <= 10:
                assert bits(reply.authorized_operations) == 0
        async with client_of(broker, ADMIN) as again:
            reply = await ask(again, request, version)
            assert bits(reply.topics[0].authorized_operations) == TOPIC_OPERATIONS
            if version <= 10:
                assert bits(reply.authorized_operations) == CLUSTER_OPERATIONS


# --- audit


async def test_refusals_and_changes_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafscale.audit")
    long_name = "x" * 5000
    async with broker_with_rules() as broker, client_of(broker, ADMIN) as admin:
        await create(admin, AclBinding(*_CREATE_TOPICS), READ_ORDERS)
        await broker.create_topic("orders")
        async with client_of(broker, BOB) as bob:
            for _ in range(3):
                await produce_code(bob, "orders")
            await ask(bob, m.DescribeGroupsRequest(groups=[long_name]), 5)
            await ask(bob, m.MetadataRequest(topics=None), 9)
        await delete(admin, READ_ORDERS)
        counted = broker.metrics.authorization_refusals
        assert counted["topic"].operations == {"write": 3}
        assert counted["group"].operations == {"describe": 1}
    lines = [record for record in caplog.records if record.name == "kafscale.audit"]
    refused = [record for record in lines if record.message == "access denied"]
    assert [(line.principal, line.operation, line.request) for line in refused] == [  # type: ignore[attr-defined]
        ("User:bob", "write", "Produce"),
        ("User:bob", "describe", "DescribeGroups"),
    ]
    assert len(refused[1].resource) < 200  # type: ignore[attr-defined]
    changes = [(line.message, line.principal, line.items) for line in lines if line not in refused]  # type: ignore[attr-defined]
    assert changes == [
        (
            "access rules created",
            "User:admin",
            "allow User:ANONYMOUS create on cluster kafka-cluster from *, "
            "allow User:alice read on topic orders from *",
        ),
        ("topics created", "User:admin", "orders"),
        ("access rules deleted", "User:admin", "allow User:alice read on topic orders from *"),
    ]


async def test_broker_reads_the_rules_before_it_serves() -> None:
    store = MemoryStore()
    await store.transact([], [Put(acl_key(AclBinding(*_CREATE_TOPICS)), STORED_ACL)])
    async with broker_with_rules(metadata=store) as broker:
        feeder = broker.process.serving.acl_feeder
        assert feeder is not None
        assert feeder.stored.rule_count == 1
