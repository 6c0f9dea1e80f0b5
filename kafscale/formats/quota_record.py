"""Client quotas of an entity: key, stored bytes and values. Stored format: docs/format/metadata.md, "Client quotas".

Which quotas an entity may have, and which one applies to a client, is decided in `kafscale/security`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.formats.topic_record import decode_fields, encode_fields
from kafscale.metadata import keys

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
"""Types of entities, by Kafka's names (`ClientQuotaEntity`)."""

DEFAULT: Final = ""
"""The name of the default entity of a type. No other entity has an empty name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """Whose quotas they are: a name, `DEFAULT`, or None where the entity does not have that type.

    Legal are users, client ids, a user with a client id, and addresses.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> list[tuple[str, str]]:
        """The types that the entity has, with their names, in their stored order."""
        all_parts = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return [(kind, name) for kind, name in all_parts if name is not None]

    @property
    def is_legal(self) -> bool:
        """True for a combination of types that Kafka has."""
        of_client = self.user is not None or self.client_id is not None
        return of_client != (self.ip is not None)


def quota_key(entity: QuotaEntity) -> str:
    """The key of the entity's quotas."""
    return keys.quota((kind, name or None) for kind, name in entity.parts())


def decode_quota_key(key: str) -> QuotaEntity:
    """The entity. Raises `CorruptDataError` for a key that no entity has."""
    try:
        parts = keys.quota_entity(key)
    except ValueError as problem:
        raise CorruptDataError(key, str(problem)) from problem
    names = {kind: DEFAULT if name is None else name for kind, name in parts}
    entity = QuotaEntity(user=names.get(USER), client_id=names.get(CLIENT_ID), ip=names.get(IP))
    if not entity.is_legal or quota_key(entity) != key:
        raise CorruptDataError(key, "it names no user, client id, user with a client id, or address")
    return entity


def encode_quotas(quotas: Mapping[str, float]) -> bytes:
    """The stored bytes. An entity without quotas has no record."""
    return encode_fields({"quotas": dict(sorted(quotas.items()))})


def decode_quotas(key: str, data: bytes) -> Mapping[str, float]:
    """The quotas, by their names; a name that this release does not know stays, for the one that wrote it.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    quotas = decode_fields(key, data).get("quotas")
    if not isinstance(quotas, dict) or not quotas:
        raise CorruptDataError(key, f"'quotas' is {str(quotas)[:80]!r}, not an object with a quota")
    decoded = {}
    for name, value in quotas.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not _is_quota(value):
            raise CorruptDataError(key, f"quota {name[:80]!r} is {str(value)[:80]!r}, not a number above 0")
        decoded[name] = float(value)
    return decoded


def decode_quotas_of_key(key: str, data: bytes) -> tuple[QuotaEntity, Mapping[str, float]]:
    """The entity of a key, and its quotas. Raises as `decode_quota_key` and `decode_quotas`."""
    return decode_quota_key(key), decode_quotas(key, data)


def _is_quota(value: float) -> bool:
    try:
        return math.isfinite(float(value)) and value > 0
    except OverflowError:
        return False
