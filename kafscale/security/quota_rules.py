"""Quotas that an entity may have, by Kafka's names and with Kafka's checks (`ClientQuotaControlManager`). Pure."""

import math
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final

from kafscale.formats.quota_record import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quota_kinds import QuotaKind
from kafscale.protocol.quoting import quoted

MAX_NAME_BYTES: Final = 1024
"""Of a user or client id with quotas of its own: every broker keeps every entity."""

_MOST: Final = {"int": 2**31 - 1, "long": 2**63 - 1}
_LEAST_FRACTION: Final = 1e-6


_OF_CLIENTS: Final[Mapping[str, str]] = {
    QuotaKind.PRODUCE: "long",
    QuotaKind.FETCH: "long",
    QuotaKind.REQUEST: "double",
    QuotaKind.MUTATION: "double",
}
_OF_ADDRESSES: Final[Mapping[str, str]] = {QuotaKind.CONNECTION: "int"}
"""Kafka's types of the values."""


def entity_of(names: Mapping[str, str | None]) -> QuotaEntity:
    """The entity of these types and names, None for a default. Raises `KafkaError` INVALID_REQUEST."""
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {quoted(kind)}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name.encode()) > MAX_NAME_BYTES:
            raise _invalid(f"The {kind} {quoted(name)} is longer than {MAX_NAME_BYTES} bytes")
    stored = {kind: DEFAULT if name is None else name for kind, name in names.items()}
    entity = QuotaEntity(user=stored.get(USER), client_id=stored.get(CLIENT_ID), ip=stored.get(IP))
    if not entity.is_legal:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    if entity.ip and plain_address(entity.ip) is None:
        # Kafka takes a host name, too, and resolves it once in each broker.
        raise _invalid(f"{quoted(entity.ip)} is not a valid IP or resolvable host.")
    return entity


def changed_quotas(
    entity: QuotaEntity, before: Mapping[str, float], changes: Mapping[str, float | None]
) -> Mapping[str, float]:
    """The entity's quotas after `changes`, in which None removes one. Raises `KafkaError` INVALID_REQUEST."""
    after = dict(before)
    for name, value in changes.items():
        if value is None:
            after.pop(name, None)
        else:
            _check_value(entity, name, value)
            after[name] = value
    return after


def _check_value(entity: QuotaEntity, name: str, value: float) -> None:
    kind = (_OF_CLIENTS if entity.ip is None else _OF_ADDRESSES).get(name)
    if kind is None:
        raise _invalid(f"Invalid configuration key {quoted(name)}")
    if not value > 0:  # also for what is no number
        raise _invalid(f"Quota {name} must be greater than 0")
    most = _MOST.get(kind)
    if math.isinf(value) or (most is not None and value > most):
        raise _invalid(f"Proposed value for {name} is too large for a {kind.upper()}.")
    if most is not None and value % 1.0 > _LEAST_FRACTION:
        raise _invalid(f"{name} cannot be a fractional value.")


def plain_address(text: str) -> str | None:
    """An address in one spelling, IPv4 as such wherever a socket shows it as IPv6; None for what is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(address if mapped is None else mapped)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
