"""Valid requests of every API and version that is served, as payloads: what a frame has after its length."""

import random
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from kafscale.handlers.routes import ROUTES
from kafscale.protocol.compression import Codec
from kafscale.protocol.message_classes import REQUEST_CLASSES, is_flexible
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from kafscale.protocol.wire import compact_string, string, uvarint
from tests.golden.test_frames import FRAMES
from tests.support import wire

TOPICS: Final = tuple(f"fuzz-{number}" for number in range(4))
GROUPS: Final = tuple(f"fuzz-group-{number}" for number in range(8))
CLIENT_ID: Final = "fuzz"
EMPTY_HEADER_TAGS: Final = b"\x00"
MOST_ELEMENTS: Final = 3

_FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}
_EXTREMES: Final = {
    "int8": (-128, -1, 127),
    "int16": (-(1 << 15), -1, (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), -1, 100_000, (1 << 31) - 1),
    "int64": (-(1 << 63), -1, 1 << 40, (1 << 63) - 1),
}
STRANGE_TEXTS: Final = (
    "",
    ".",
    "..",
    "a/../b",
    "x" * 249,
    "x" * 3_000,
    "\0",
    "\n{}%s",
    "ü" * 100,
    "-1",
    "__consumer_offsets",
)
_STRANGE_CHANCE: Final = 0.02
_WAITS: Final = ("max_wait", "timeout")
_SMALL: Final = {"int8": 4, "int16": 4, "uint16": 4, "int32": 4, "int64": 10}


def golden_payloads() -> list[bytes]:
    """Requests as real clients sent them."""
    return [
        bytes.fromhex(line.split()[2])
        for path in sorted(FRAMES.glob("*.txt"))
        for line in path.read_text().splitlines()
    ]


class ValidFrames:
    """Makes requests by the schemas of the routes. Everything depends on the chances alone."""

    def __init__(self, chances: random.Random) -> None:
        self._chances = chances
        self._batches = [
            # Not by a client's builder: Python's gzip writes the time into what it compresses.
            encode_batch(
                [Record(offset=one, timestamp_ms=1, key=None, value=b"value") for one in range(count)],
                codec=codec,
            )
            for count in (1, 20)
            for codec in (Codec.NONE, Codec.GZIP)
        ]
        self._batches.append(
            wire.batch([b"in order"], producer_id=1, producer_epoch=0, sequence=0, timestamp=1)
        )
        self._encoders = {
            (int(route.api), version): self._struct(
                REQUEST_CLASSES[route.api]._struct, version, is_flexible(route.api, version)
            )
            for route in ROUTES
            for version in range(route.min_version, route.max_version + 1)
        }
        self.kinds: Final = tuple(self._encoders)

    def payload(self, api_key: int, version: int) -> bytes:
        """One request of this API and version."""
        header = struct.pack(">hhi", api_key, version, 0) + string(CLIENT_ID)
        tags = EMPTY_HEADER_TAGS if is_flexible(api_key, version) else b""
        return header + tags + self._encoders[api_key, version]()

    # --- encoders by schema, made once

    def _struct(self, schema: Any, version: int, flexible: bool) -> Callable[[], bytes]:
        parts = [self._field(field, version, flexible) for field in schema.untagged_fields(version)]
        end = b"\x00" if flexible else b""
        return lambda: b"".join([part() for part in parts]) + end

    def _field(self, field: Any, version: int, flexible: bool) -> Callable[[], bytes]:
        nullable = field.nullable_for_version_q(version)
        if field.is_array():
            element = field.array_of
            if element.is_struct():
                encode = self._struct(element, version, flexible)
            else:
                encode = self._simple(element.type_str, field.name, flexible, nullable=False)
            return self._array(encode, flexible, nullable)
        if field.is_struct():
            encode = self._struct(field, version, flexible)
            return (lambda: b"\x01" + encode()) if nullable else encode
        return self._simple(field.type_str, field.name, flexible, nullable)

    def _array(self, encode: Callable[[], bytes], flexible: bool, nullable: bool) -> Callable[[], bytes]:
        def array() -> bytes:
            if nullable and self._chances.random() < 0.2:
                return b"\x00" if flexible else b"\xff\xff\xff\xff"
            count = self._chances.randint(0, MOST_ELEMENTS)
            start = uvarint(count + 1) if flexible else struct.pack(">i", count)
            return start + b"".join([encode() for _ in range(count)])

        return array

    def _simple(self, type_name: str, name: str, flexible: bool, nullable: bool) -> Callable[[], bytes]:
        if type_name == "uuid":
            return lambda: uuid.UUID(int=self._chances.getrandbits(128)).bytes
        if type_name == "string":
            text = compact_string if flexible else string
            null = b"\x00" if flexible else b"\xff\xff"
            return lambda: null if nullable and self._chances.random() < 0.3 else text(self._text(name))
        if type_name in ("bytes", "records"):
            return lambda: self._bytes(name, flexible)
        layout = struct.Struct(">" + _FIXED[type_name])
        return lambda: layout.pack(self._number(type_name, name))

    # --- values by name: such as let a request get beyond its first check

    def _text(self, name: str) -> str:
        if self._chances.random() < _STRANGE_CHANCE:
            return self._chances.choice(STRANGE_TEXTS)
        if "group" in name or name in ("key", "coordinator_keys"):
            return self._chances.choice(GROUPS)
        if "topic" in name or name in ("name", "resource_name"):
            return self._chances.choice(TOPICS)
        if "protocol" in name:
            return self._chances.choice(("consumer", "range"))
        return self._chances.choice(("", "a", "max.message.bytes", "1000", "fuzz"))

    def _bytes(self, name: str, flexible: bool) -> bytes:
        value = (
            self._chances.choice(self._batches)
            if name == "records"
            else self._chances.randbytes(self._chances.randint(0, 20))
        )
        return (uvarint(len(value) + 1) if flexible else struct.pack(">i", len(value))) + value

    def _number(self, type_name: str, name: str) -> Any:
        chances = self._chances
        if type_name == "bool":
            return chances.random() < 0.5
        if type_name == "float64":
            return chances.random()
        if chances.random() < _STRANGE_CHANCE:
            return chances.choice(_EXTREMES[type_name])
        if name == "acks":
            return chances.choice((-1, -1, 1, 0))
        if name == "session_timeout_ms":
            return chances.choice((0, 6_000, 45_000))
        if any(part in name for part in _WAITS):
            return chances.randint(0, 20)
        if name == "validate_only":
            return 1
        if name == "resource_type":
            return 2
        return chances.randint(-2 if type_name != "uint16" else 0, _SMALL[type_name])
