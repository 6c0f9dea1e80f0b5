"""Every route, asked by clients without rules, with the needed rules, denied, and by a super user."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kafscale.formats.acl_record import AclBinding
from kafscale.handlers.needs import Need, Open, topic
from kafscale.handlers.route import Route
from kafscale.handlers.routes import ROUTES, ROUTES_BY_KEY
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from kafscale.security.access import Access
from kafscale.security.principal import ANONYMOUS, Principal
from kafscale.settings.broker import AuthorizerKind
from tests.security.access_requests import TEAM, Target
from tests.security.access_table import LEFT_OUT, TABLE, Row, Rule
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker

SUPER, ALICE, MALLORY = (Principal("User", name) for name in ("admin", "alice", "mallory"))
_DELETES = (
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
_MADE_BY = (
    "offset_commit the group",
    "alter_share_group_offsets the group",
    "init_producer_id with a transactional id",
    "add_partitions_to_txn the topic",
)
_LAST = (*_DELETES, ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN)
"""They delete, or end, what the others need."""

Asked = set[tuple[ResourceType, Operation]]


class Recorder:
    """An `Access` that remembers what was asked."""

    is_restricted = True

    def __init__(self, access: Access, asked: Asked) -> None:
        self._access = access
        self._asked = asked
        self.principal = access.principal

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False
    ) -> bool:
        self._asked.add((resource_type, operation))
        return self._access.allows(operation, resource_type, name, quiet=quiet)

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        self._asked.add((resource_type, operation))
        return self._access.allows_any(operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        # Which of them may be seen depends on this one.
        self._asked.add((resource_type, Operation.DESCRIBE))
        return self._access.operations(resource_type, name)

    def in_request(self, api: ApiKey) -> "Recorder":
        return Recorder(self._access.in_request(api), self._asked)


@dataclass
class World:
    """A broker with rules, and what its handlers asked."""

    broker: InProcessBroker
    asked: Asked

    async def allow(self, principal: Principal, rules: Collection[Rule]) -> None:
        await self._create(principal, rules, Permission.ALLOW)

    async def deny(self, principal: Principal, rules: Collection[Rule]) -> None:
        await self._create(principal, rules, Permission.DENY)

    async def _create(self, principal: Principal, rules: Collection[Rule], permission: Permission) -> None:
        acls = self.broker.process.serving.services.acls
        assert acls is not None
        await acls.create(
            [
                AclBinding(kind, PatternType.LITERAL, name, str(principal), "*", operation, permission)
                for kind, name, operation in rules
            ]
        )

    @asynccontextmanager
    async def connect(self, principal: Principal) -> AsyncIterator[Client]:
        basics = self.broker.process.basics
        assert basics.authorizer is not None
        access_of = basics.authorizer.access
        basics.listener.access_of = lambda _, host: Recorder(access_of(principal, host), self.asked)
        async with self.broker.connect() as client:
            yield client

    async def answer(self, principal: Principal, row: Row, target: Target) -> set[int]:
        """The codes that the principal gets."""
        async with self.connect(principal) as client:
            if row.before is not None:
                api, make = row.before
                await client.call(make(target), RESPONSE_CLASSES[int(api)], row.version)
            response = RESPONSE_CLASSES[int(row.api)]
            reply = await client.call(row.make(target), response, row.version)
        return set(row.codes(reply))


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with in_process_broker(
        authorizer=AuthorizerKind.ACL, super_users=frozenset({str(SUPER)})
    ) as broker:
        yield World(broker, set())


async def a_target(made: World) -> Target:
    """A topic, a group with an offset in it, and a transaction with a partition of the topic."""
    async with made.connect(SUPER):
        pass
    name = await made.broker.create_topic("orders")
    record = made.broker.process.serving.view.topic(name)
    assert record is not None
    target = Target(name, record.topic_id)
    by_id = {row.id: row for row in TABLE}
    for row_id in _MADE_BY:
        assert await made.answer(SUPER, by_id[row_id], target) == {0}
    return target


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
async def test_answer_follows_the_rules(row: Row) -> None:
    async with world() as made:
        target = await a_target(made)
        given, alternatives = row.given(target.topic), row.enough(target.topic)
        needed = [rule for rules in alternatives for rule in rules]
        everywhere = [
            (kind, name, Operation.ALL)
            for kind, name in (
                (ResourceType.TOPIC, "*"),
                (ResourceType.GROUP, "*"),
                (ResourceType.TRANSACTIONAL_ID, "*"),
                (ResourceType.CLUSTER, CLUSTER_NAME),
            )
        ]
        await made.allow(ANONYMOUS, given)
        await made.allow(MALLORY, everywhere)
        await made.deny(MALLORY, needed if row.denials is None else row.denials)
        assert await made.answer(ANONYMOUS, row, target) == {row.denied}
        assert await made.answer(MALLORY, row, target) == {row.denied}
        if row.names_topic:
            # A topic that is not there gets the answer of one that must not be seen.
            assert await made.answer(ANONYMOUS, row, Target("nowhere", target.topic_id)) == {row.denied}
        assert row.denied == LEFT_OUT or made.asked or isinstance(ROUTES_BY_KEY[row.api].needs, Open)
        # The last alternative: what it changes may be seen only once.
        for number, rules in enumerate(alternatives):
            client = Principal("User", f"alice-{number}")
            await made.allow(client, [*given, *rules])
            if row.api in _DELETES and number < len(alternatives) - 1:
                continue
            assert await made.answer(client, row, target) <= set(row.allowed)


async def test_super_user_passes() -> None:
    rows = sorted(TABLE, key=lambda row: row.api in _LAST)
    async with world() as made:
        target = await a_target(made)
        everything = [(kind, "*", Operation.ALL) for kind in (ResourceType.TOPIC, ResourceType.GROUP)]
        await made.deny(
            Principal("User", "*"), [*everything, (ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL)]
        )
        answers = [(row, await made.answer(SUPER, row, target)) for row in rows]
    refused = [row.id for row, codes in answers if row.denied in codes and row.denied not in row.allowed]
    assert refused == []


async def test_handlers_ask_for_what_their_routes_declare() -> None:
    wrong = {}
    async with world() as made:
        target = await a_target(made)
        for route in sorted(ROUTES, key=lambda route: route.api in _LAST):
            made.asked.clear()
            for row in [row for row in TABLE if row.api is route.api]:
                client = Principal("User", row.id)
                await made.allow(client, row.given(target.topic))
                await made.answer(ANONYMOUS, row, target)
                await made.answer(client, row, target)
            declared = set() if isinstance(route.needs, Open) else {need[:2] for need in route.needs}
            if made.asked != declared:
                wrong[route.api.name] = made.asked ^ declared
    assert wrong == {}


def test_every_route_has_a_row() -> None:
    assert {route.api.name for route in ROUTES} - {row.api.name for row in TABLE} == set()
    assert len({row.id for row in TABLE}) == len(TABLE)


def test_route_without_a_declaration_cannot_be_made() -> None:
    arguments: dict[str, Any] = {"api": ApiKey.FETCH, "min_version": 0, "max_version": 1}
    with pytest.raises(TypeError, match="needs"):
        Route(**arguments)
    with pytest.raises(ValueError, match="FETCH says nothing of what a client must be allowed"):
        Route(**arguments, needs=())
    assert Route(**arguments, needs=(topic(Operation.READ),)).needs == (
        Need(ResourceType.TOPIC, Operation.READ),
    )


async def test_groups_are_left_out_one_by_one() -> None:
    async with world() as made:
        await a_target(made)
        await made.allow(ALICE, [(ResourceType.GROUP, "other", Operation.DESCRIBE)])
        (row,) = (row for row in TABLE if row.api is ApiKey.LIST_GROUPS)
        target = Target("orders", made.broker.process.serving.view.topic("orders").topic_id)  # type: ignore[union-attr]
        assert await made.answer(ALICE, row, target) == {LEFT_OUT}
        await made.allow(ALICE, [(ResourceType.GROUP, TEAM, Operation.READ)])  # implies DESCRIBE
        assert await made.answer(ALICE, row, target) == {0}
