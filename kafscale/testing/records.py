"""The records that a test reads, and the places of those that it writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Text = bytes | str
Headers = Mapping[str, Text | None] | Iterable[tuple[str, Text | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic. `timestamp_ms`: Unix milliseconds. None is Kafka's null."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The place of a record that was produced, as Kafka's producers return it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


def to_bytes(what: str, value: object) -> bytes | None:
    """The bytes of a key, a value or a header; text is UTF-8. Raises `TypeError`, naming `what`."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{what} must be bytes, str or None, not {type(value).__name__}: {value!r:.100}")


def to_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Headers in their order. Raises `TypeError`."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, to_bytes(f"header {name!r}", value)) for name, value in pairs]
