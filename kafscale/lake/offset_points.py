"""The start and the end of a query, as its options name them: independent of the log. Pure."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from kafscale.errors import SettingError
from kafscale.lake.ranges import Ranges, union
from kafscale.reader.topic_state import PartitionKey

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2

_MAX_PARTITION = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_KAFKA_ID_LENGTH = 22


class SourceOptionError(SettingError):
    """An option of the Spark source cannot be used; the message names it, its value and what is legal."""


class LogEdge(Enum):
    """The beginning or the end of every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition; `EARLIEST_OFFSET` and `LATEST_OFFSET` stand for the log's edges."""

    offsets: Mapping[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class TimestampForAll:
    """In each partition the first record that is not older."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """In each partition the first record that is not older, with a time for each partition."""

    timestamps_ms: Mapping[PartitionKey, int]


OffsetPoint = LogEdge | SpecificOffsets | TimestampForAll | SpecificTimestamps


def parse_offsets(option: str, text: str) -> OffsetPoint:
    """`earliest`, `latest` or `{"topic":{"0":23,"1":-2}}`. Raises `SourceOptionError`."""
    edge = text.strip().lower()
    if edge in (LogEdge.EARLIEST.value, LogEdge.LATEST.value):
        return LogEdge(edge)
    legal = (
        'earliest, latest or JSON such as {"events":{"0":23,"1":-2}}, where -2 is earliest and -1 is latest'
    )
    return SpecificOffsets(_by_partition(option, text, legal, lowest=EARLIEST_OFFSET))


def parse_timestamp(option: str, text: str) -> OffsetPoint:
    """Unix milliseconds, the same for every partition. Raises `SourceOptionError`."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and int(digits) <= _MAX_INT64):
        raise SourceOptionError(f"option {option}={text!r} is not legal: it must be Unix milliseconds")
    return TimestampForAll(int(digits))


def parse_timestamps(option: str, text: str) -> OffsetPoint:
    """`{"topic":{"0":1700000000000}}`. Raises `SourceOptionError`."""
    legal = 'JSON such as {"events":{"0":1700000000000}}, in Unix milliseconds'
    return SpecificTimestamps(_by_partition(option, text, legal, lowest=0))


def parse_assignment(option: str, text: str) -> Mapping[str, tuple[int, ...]]:
    """`{"topic":[0,1]}`: partitions by topic, ascending. Raises `SourceOptionError`."""
    legal = 'JSON such as {"events":[0,1]}'
    found = _json(option, text, legal)
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not partitions:
            raise _illegal(option, text, legal)
        if not all(_is_whole(one, 0, _MAX_PARTITION) for one in partitions):
            raise _illegal(option, text, legal)
        assigned[topic] = tuple(sorted(set(partitions)))
    return assigned


def parse_ranges(option: str, text: str) -> Mapping[PartitionKey, Ranges]:
    """`{"topic":{"0":[[17,20]]}}`: ranges of offsets by partition. Raises `SourceOptionError`."""
    legal = 'JSON such as {"events":{"0":[[17,20],[31,32]]}}, each range with the offset after its last'
    found: dict[PartitionKey, Ranges] = {}
    for topic, partitions in _json(option, text, legal).items():
        if not isinstance(partitions, dict):
            raise _illegal(option, text, legal)
        for partition, ranges in partitions.items():
            if not _is_partition(partition) or not isinstance(ranges, list):
                raise _illegal(option, text, legal)
            for one in ranges:
                is_pair = isinstance(one, list) and len(one) == 2
                if not is_pair or not all(_is_whole(end, 0, _MAX_INT64) for end in one) or one[0] >= one[1]:
                    raise _illegal(option, text, legal)
            found[topic, int(partition)] = union((first, following) for first, following in ranges)
    return found


def parse_topic_ids(option: str, text: str) -> Mapping[str, UUID]:
    """`{"topic":"b2c1f1e6-..."}`: ids by topic, also as Kafka's tools show them. Raises `SourceOptionError`."""
    legal = 'JSON such as {"events":"b2c1f1e6-7d0c-4b57-9d4f-0a8f6a3c1f10"}'
    ids: dict[str, UUID] = {}
    for topic, found in _json(option, text, legal).items():
        try:
            in_base64 = len(found) == _KAFKA_ID_LENGTH
            ids[topic] = UUID(bytes=urlsafe_b64decode(f"{found}==")) if in_base64 else UUID(found)
        except (ValueError, TypeError, AttributeError):
            raise _illegal(option, text, legal) from None
    return ids


def _by_partition(option: str, text: str, legal: str, *, lowest: int) -> dict[PartitionKey, int]:
    values: dict[PartitionKey, int] = {}
    for topic, partitions in _json(option, text, legal).items():
        if not isinstance(partitions, dict) or not partitions:
            raise _illegal(option, text, legal)
        for partition, value in partitions.items():
            if not _is_partition(partition) or not _is_whole(value, lowest, _MAX_INT64):
                raise _illegal(option, text, legal)
            values[topic, int(partition)] = value
    return values


def _json(option: str, text: str, legal: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_without_repetition)
    except ValueError:
        raise _illegal(option, text, legal) from None
    if not isinstance(found, dict) or not found:
        raise _illegal(option, text, legal)
    return found


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _is_partition(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= _MAX_PARTITION


def _is_whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _illegal(option: str, text: str, legal: str) -> SourceOptionError:
    return SourceOptionError(f"option {option}={text!r} is not legal: it must be {legal}")
