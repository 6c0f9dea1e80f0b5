"""A record as a line of `kafscale cat`. Pure."""

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from kafscale.commands.dump_values import shown_bytes
from kafscale.reader.records import PlacedRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NULL = b"null"
"""As Kafka's console consumer prints it."""

Line = Callable[[PlacedRecord], bytes]


class LineFormat(StrEnum):
    """The parts of a record that are printed."""

    JSON = "json"
    KEY_VALUE = "key=value"
    VALUE = "value"


def line_of(line_format: LineFormat, topic: str, *, for_terminal: bool) -> Line:
    """The function that makes the line, without its end, of a record.

    `for_terminal`: text is made harmless, as `kafscale dump` does; otherwise keys and values are as they are.
    """
    raw: Callable[[bytes], bytes] = (lambda data: shown_bytes(data).encode()) if for_terminal else bytes

    def text(data: bytes | None) -> bytes:
        return _NULL if data is None else raw(data)

    match line_format:
        case LineFormat.JSON:
            return lambda placed: _json(placed, topic)
        case LineFormat.KEY_VALUE:
            return lambda placed: text(placed.record.key) + b"=" + text(placed.record.value)
        case LineFormat.VALUE:
            return lambda placed: text(placed.record.value)


def _json(placed: PlacedRecord, topic: str) -> bytes:
    record = placed.record
    fields: dict[str, Any] = {
        "topic": topic,
        "partition": placed.partition,
        "offset": record.offset,
        "timestamp": _time(record.timestamp_ms),
        "timestampType": "LogAppendTime" if placed.is_log_append_time else "CreateTime",
        **_value("key", record.key),
        **_value("value", record.value),
        "headers": [{"key": name, **_value("value", value)} for name, value in record.headers],
    }
    line = json.dumps(fields, ensure_ascii=False)
    # The same object, with escapes for what a terminal would obey.
    return (line if line.isprintable() else json.dumps(fields)).encode()


def _value(name: str, data: bytes | None) -> dict[str, str | None]:
    """Under `name` as text, or under `nameBase64` if it is not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": b64encode(data).decode()}


def _time(timestamp_ms: int) -> str | int:
    """In ISO 8601; in Unix milliseconds for one beyond the years that has."""
    try:
        time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return timestamp_ms
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
