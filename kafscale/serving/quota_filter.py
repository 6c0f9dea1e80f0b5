"""Which entities DescribeClientQuotas names: Kafka's filter (`ClientQuotasImage`). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from kafscale.formats.quota_record import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

_TYPES: Final = (USER, CLIENT_ID, IP)

_NO_NAME: Final = "\ud800"
"""No entity has it: it is not UTF-8. In place of an empty name, which is the default's here."""


class MatchType(IntEnum):
    """How a component matches, by Kafka's numbers (`DescribeClientQuotasRequest`)."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class Component(Protocol):
    """A component of a request's filter."""

    @property
    def entity_type(self) -> str:
        """The type that it is about."""

    @property
    def match_type(self) -> int:
        """A `MatchType`, or any other number."""

    @property
    def match(self) -> str | None:
        """The name, for an exact match."""


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """`names`: the name that each type must have, None for any. `is_strict`: no other types beside them."""

    names: Mapping[str, str | None]
    is_strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        """True if the entity is one of those that were asked for."""
        parts = dict(entity.parts())
        if self.is_strict and len(parts) != len(self.names):
            return False
        return all(
            kind in parts and (name is None or parts[kind] == name) for kind, name in self.names.items()
        )


def quota_filter(components: Sequence[Component], is_strict: bool) -> QuotaFilter:
    """The filter of a request. Raises `KafkaError` INVALID_REQUEST, UNSUPPORTED_VERSION."""
    names: dict[str, str | None] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in names:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {quoted(kind)}")
        names[kind] = _name(component)
    if IP in names and len(names) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return QuotaFilter(names, is_strict)


def _name(component: Component) -> str | None:
    match component.match_type:
        case MatchType.EXACT:
            if component.match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            return component.match or _NO_NAME
        case MatchType.DEFAULT | MatchType.SPECIFIED as match_type:
            if component.match is not None:
                raise _invalid(
                    f"Request specified MATCH_TYPE_{MatchType(match_type).name}, but also specified a match string."
                )
            return DEFAULT if match_type == MatchType.DEFAULT else None
    raise _invalid(f"Unknown match type {component.match_type}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
