"""Entities and values that AlterClientQuotas takes, as Kafka does."""

from collections.abc import Mapping

import pytest

from kafscale.formats.quota_record import DEFAULT, QuotaEntity
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.quota_rules import changed_quotas, entity_of, plain_address

ALICE, ADDRESS = QuotaEntity(user="alice"), QuotaEntity(ip="10.0.0.1")


@pytest.mark.parametrize(
    ("names", "entity"),
    [
        ({"user": "alice"}, ALICE),
        ({"client-id": None, "user": None}, QuotaEntity(user=DEFAULT, client_id=DEFAULT)),
        ({"ip": "10.0.0.1"}, ADDRESS),
        ({"ip": None}, QuotaEntity(ip=DEFAULT)),
        ({"ip": "fe80::1"}, QuotaEntity(ip="fe80::1")),
    ],
)
def test_entity_is_taken(names: Mapping[str, str | None], entity: QuotaEntity) -> None:
    assert entity_of(names) == entity


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({}, "Invalid empty client quota entity"),
        ({"group": "a"}, "Unhandled client quota entity type: group"),
        ({"user": ""}, "Empty user not supported"),
        ({"user": "a", "ip": "10.0.0.1"}, "Invalid quota entity combination"),
        ({"client-id": None, "ip": None}, "Invalid quota entity combination"),
        ({"ip": "no address"}, "no address is not a valid IP or resolvable host."),
        ({"user": "ü" * 513}, r"\.\.\. \(513 characters\) is longer than 1024 bytes"),
    ],
)
def test_entity_is_refused(names: Mapping[str, str | None], problem: str) -> None:
    with pytest.raises(KafkaError, match=problem) as refusal:
        entity_of(names)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_quotas_are_set_changed_and_removed() -> None:
    before = {"producer_byte_rate": 10.0, "of_the_future": 1.0}
    after = changed_quotas(ALICE, before, {"producer_byte_rate": None, "request_percentage": 0.5})
    assert after == {"of_the_future": 1.0, "request_percentage": 0.5}
    assert changed_quotas(ALICE, {}, {"consumer_byte_rate": None}) == {}


@pytest.mark.parametrize(
    ("entity", "name", "value", "problem"),
    [
        (ALICE, "connection_creation_rate", 1, "Invalid configuration key connection_creation_rate"),
        (ADDRESS, "producer_byte_rate", 1, "Invalid configuration key producer_byte_rate"),
        (ALICE, "producer_byte_rate", 0, "must be greater than 0"),
        (ALICE, "request_percentage", -1.5, "must be greater than 0"),
        (ALICE, "request_percentage", float("nan"), "must be greater than 0"),
        (ALICE, "request_percentage", float("inf"), "too large for a DOUBLE"),
        (ALICE, "producer_byte_rate", 1e19, "too large for a LONG"),
        (ALICE, "producer_byte_rate", 1.5, "cannot be a fractional value"),
        (ADDRESS, "connection_creation_rate", 2**31, "too large for a INT"),
    ],
)
def test_value_is_refused(entity: QuotaEntity, name: str, value: float, problem: str) -> None:
    with pytest.raises(KafkaError, match=problem):
        changed_quotas(entity, {}, {name: value})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("FE80:0::1", "fe80::1"),
        ("unknown", None),
        ("", None),
    ],
)
def test_address_has_one_spelling(text: str, address: str | None) -> None:
    assert plain_address(text) == address
