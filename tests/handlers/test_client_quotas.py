"""DescribeClientQuotas and AlterClientQuotas: filters, validation, what is written, and what is bounded."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from kafscale.formats.quota_record import QuotaEntity, encode_quotas, quota_key
from kafscale.handlers import alter_client_quotas, describe_client_quotas
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol import api_messages
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.security.principal import Principal
from kafscale.serving.context import ClientSoftware, RequestContext
from tests.support.control_plane import ControlPlane, ask, control_plane
from tests.support.faults import ERRORS, Fault, Fuse, FusedMetadataStore

pytestmark = pytest.mark.parametrize("version", [0, 1])

Names = Mapping[str, str | None]
Changes = Mapping[str, float | None]
Entry = AlterClientQuotasRequest.EntryData
Component = DescribeClientQuotasRequest.ComponentData
EXACT, DEFAULT, ANY = 0, 1, 2
ALICE: Names = {"user": "alice"}


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as made:
        yield made


def entry(
    names: Names | list[tuple[str, str | None]], changes: Changes | list[tuple[str, float | None]]
) -> Any:
    pairs = names.items() if isinstance(names, Mapping) else names
    ops = changes.items() if isinstance(changes, Mapping) else changes
    return Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in pairs],
        ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


async def alter(plane: ControlPlane, version: int, *entries: Any, validate_only: bool = False) -> list[Any]:
    message = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    reply = await ask(plane, alter_client_quotas.handle, version, message)
    return [(one.error_code, one.error_message) for one in reply.entries]


async def describe(
    plane: ControlPlane, version: int, *components: tuple[str, int, str | None], strict: bool = False
) -> Any:
    wanted = [
        Component(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    message = DescribeClientQuotasRequest(components=wanted, strict=strict)
    return await ask(plane, describe_client_quotas.handle, version, message)


async def described(plane: ControlPlane, version: int, *components: Any, strict: bool = False) -> list[Any]:
    reply = await describe(plane, version, *components, strict=strict)
    assert (reply.error_code, reply.error_message) == (ErrorCode.NONE, None)
    return [
        (
            {part.entity_type: part.entity_name for part in one.entity},
            {value.key: value.value for value in one.values},
        )
        for one in reply.entries
    ]


OK = (ErrorCode.NONE, None)


async def test_quotas_are_set_changed_and_removed(plane: ControlPlane, version: int) -> None:
    changes: Changes = {"producer_byte_rate": 1024.0, "request_percentage": 0.5}
    assert await alter(plane, version, entry(ALICE, changes)) == [OK]
    assert await described(plane, version) == [(ALICE, changes)]
    changes = {"producer_byte_rate": 2048.0, "request_percentage": None, "consumer_byte_rate": None}
    assert await alter(plane, version, entry(ALICE, changes)) == [OK]
    assert await described(plane, version) == [(ALICE, {"producer_byte_rate": 2048.0})]
    assert await alter(plane, version, entry(ALICE, {"producer_byte_rate": None})) == [OK]
    assert await described(plane, version) == []
    assert await plane.keys_under(keys.QUOTAS) == []


async def test_validate_only_changes_nothing(plane: ControlPlane, version: int) -> None:
    good, bad = (
        entry(ALICE, {"producer_byte_rate": 1.0}),
        entry({"ip": "x"}, {"connection_creation_rate": 1.0}),
    )
    results = await alter(plane, version, good, bad, validate_only=True)
    assert [code for code, _ in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert await plane.keys_under(keys.QUOTAS) == []


ENTITIES: list[Names] = [
    {"client-id": None},
    {"client-id": "app"},
    {"ip": "10.0.0.1"},
    {"user": None},
    {"user": None, "client-id": "app"},
    {"user": "alice"},
    {"user": "alice", "client-id": None},
    {"user": "alice", "client-id": "app"},
]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((), False, [0, 1, 2, 3, 4, 5, 6, 7]),
        ((), True, []),
        ((("user", ANY, None),), False, [3, 4, 5, 6, 7]),
        ((("user", ANY, None),), True, [3, 5]),
        ((("user", EXACT, "alice"),), False, [5, 6, 7]),
        ((("user", EXACT, "alice"),), True, [5]),
        ((("user", DEFAULT, None),), False, [3, 4]),
        ((("user", EXACT, "alice"), ("client-id", DEFAULT, None)), False, [6]),
        ((("user", ANY, None), ("client-id", ANY, None)), True, [4, 6, 7]),
        ((("client-id", EXACT, ""),), False, []),
        ((("ip", EXACT, "10.0.0.1"),), True, [2]),
        ((("ip", DEFAULT, None),), False, []),
    ],
)
async def test_filter_finds_what_it_names(
    plane: ControlPlane, version: int, components: Any, strict: bool, expected: list[int]
) -> None:
    quota = {False: "producer_byte_rate", True: "connection_creation_rate"}
    entries = [entry(names, {quota["ip" in names]: number}) for number, names in enumerate(ENTITIES, 1)]
    assert await alter(plane, version, *entries) == [OK] * len(ENTITIES)
    found = await described(plane, version, *components, strict=strict)
    assert sorted(int(*values.values()) - 1 for _, values in found) == expected
    assert all(names == ENTITIES[int(*values.values()) - 1] for names, values in found)


@pytest.mark.parametrize(
    ("components", "code", "problem"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([("user", ANY, None)] * 2, ErrorCode.INVALID_REQUEST, "cannot appear more than once"),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST, "set match string to null"),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST, "also specified a match string"),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST, "also specified a match string"),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 7"),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST, "IP filter component"),
    ],
)
async def test_filter_that_is_not_legal_is_refused(
    plane: ControlPlane, version: int, components: Any, code: ErrorCode, problem: str
) -> None:
    reply = await describe(plane, version, *components)
    assert (reply.error_code, reply.entries) == (code, None)
    assert problem in reply.error_message


@pytest.mark.parametrize(
    ("names", "changes", "problem"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ([("user", "a"), ("user", "b")], {}, "duplicate entity entry"),
        (ALICE, [("producer_byte_rate", 1.0)] * 2, "Duplicate quota key producer_byte_rate"),
        (ALICE, {"unheard_of": 1.0}, "Invalid configuration key unheard_of"),
        (ALICE, {"producer_byte_rate": 0.0}, "must be greater than 0"),
        ({"ip": "a.example"}, {"connection_creation_rate": 1.0}, "not a valid IP"),
    ],
)
async def test_one_refused_entity_leaves_the_others(
    plane: ControlPlane, version: int, names: Any, changes: Any, problem: str
) -> None:
    good = entry({"user": "good"}, {"producer_byte_rate": 1.0})
    (code, message), other = await alter(plane, version, entry(names, changes), good)
    assert code == ErrorCode.INVALID_REQUEST
    assert problem in message
    assert other == OK
    assert [names for names, _ in await described(plane, version)] == [{"user": "good"}]


async def test_entity_named_twice_is_changed_once(plane: ControlPlane, version: int) -> None:
    names: Names = {"user": "alice", "client-id": "app"}
    swapped = dict(reversed(list(names.items())))
    first, second = entry(names, {"producer_byte_rate": 1.0}), entry(swapped, {"producer_byte_rate": 2.0})
    assert await alter(plane, version, first, second) == [
        (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity")
    ]
    assert await described(plane, version) == [(names, {"producer_byte_rate": 1.0})]


async def test_request_with_too_many_quotas_changes_nothing(plane: ControlPlane, version: int) -> None:
    entries = [entry({"user": str(number)}, []) for number in range(alter_client_quotas.MAX_CHANGES)]
    results = await alter(plane, version, entry(ALICE, {"producer_byte_rate": 1.0}), *entries)
    assert {code for code, _ in results} == {ErrorCode.INVALID_REQUEST}
    assert await plane.keys_under(keys.QUOTAS) == []


async def test_entities_are_bounded_in_number(plane: ControlPlane, version: int) -> None:
    for number in range(10):
        assert await alter(plane, version, entry({"user": str(number)}, {"producer_byte_rate": 1.0})) == [OK]
    ((code, _),) = await alter(plane, version, entry(ALICE, {"producer_byte_rate": 1.0}))
    assert code == ErrorCode.POLICY_VIOLATION
    assert await alter(plane, version, entry({"user": "3"}, {"producer_byte_rate": 2.0})) == [OK]


async def test_damaged_record_is_replaced(plane: ControlPlane, version: int) -> None:
    key = quota_key(QuotaEntity(user="alice"))
    await plane.store.transact([], [Put(key, b"?")])
    assert await alter(plane, version, entry(ALICE, {"producer_byte_rate": 1.0})) == [OK]
    assert await described(plane, version) == [(ALICE, {"producer_byte_rate": 1.0})]


async def test_record_of_a_later_release_is_left_alone(plane: ControlPlane, version: int) -> None:
    key = quota_key(QuotaEntity(user="alice"))
    await plane.store.transact([], [Put(key, b'{"version":2}')])
    ((code, _),) = await alter(plane, version, entry(ALICE, {"producer_byte_rate": 1.0}))
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    found = await plane.store.get(key)
    assert found is not None
    assert found.value == b'{"version":2}'


async def test_quota_of_a_later_release_stays(plane: ControlPlane, version: int) -> None:
    result = await plane.store.transact(
        [], [Put(quota_key(QuotaEntity(user="alice")), encode_quotas({"of_the_future": 7.0}))]
    )
    await plane.view.wait_for(result.revision, keys.QUOTAS)
    assert await alter(plane, version, entry(ALICE, {"producer_byte_rate": 1.0})) == [OK]
    assert await described(plane, version) == [(ALICE, {"of_the_future": 7.0, "producer_byte_rate": 1.0})]


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("fault", ERRORS)
async def test_change_survives_a_failing_store(version: int, fault: Fault, step: int) -> None:
    fuse = Fuse(step, fault)
    async with control_plane(faulty_store=lambda store: FusedMetadataStore(store, fuse)) as plane:
        assert await alter(plane, version, entry(ALICE, {"producer_byte_rate": 1.0})) == [OK]
        assert await described(plane, version) == [(ALICE, {"producer_byte_rate": 1.0})]
        assert fuse.blown.is_set()


class Refused:
    """A client that may do nothing."""

    principal = Principal("User", "mallory")
    is_restricted = True

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False
    ) -> bool:
        return False

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return 0

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return False

    def in_request(self, api: ApiKey) -> "Refused":
        return self


async def test_client_without_the_right_sees_and_changes_nothing(plane: ControlPlane, version: int) -> None:
    await alter(plane, version, entry(ALICE, {"producer_byte_rate": 1.0}))
    request = RequestContext(version, 1, "test", "127.0.0.1", ClientSoftware(), access=Refused())
    seen = await describe_client_quotas.handle(
        plane.broker, request, api_messages.DescribeClientQuotasRequest(components=[], strict=False)
    )
    assert (seen.error_code, seen.entries) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    changes: Any = AlterClientQuotasRequest(
        entries=[entry(ALICE, {"producer_byte_rate": 2.0})], validate_only=False
    )
    changed = await alter_client_quotas.handle(plane.broker, request, changes)
    assert [one.error_code for one in changed.entries] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert await described(plane, version) == [(ALICE, {"producer_byte_rate": 1.0})]
