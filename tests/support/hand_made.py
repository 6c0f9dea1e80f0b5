"""Requests in hand-made bytes, of versions without compact types: requests that no client library allows."""

import struct
from collections.abc import Iterable

CORRELATION_ID = 7


def string(text: str | bytes | None) -> bytes:
    """A STRING or NULLABLE_STRING: its length in 16 bits, and its bytes."""
    if text is None:
        return b"\xff\xff"
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">h", len(data)) + data


def array(elements: Iterable[bytes]) -> bytes:
    """An ARRAY of encoded elements."""
    parts = list(elements)
    return struct.pack(">i", len(parts)) + b"".join(parts)


def repeated(element: bytes, count: int) -> bytes:
    """An ARRAY of one encoded element, many times."""
    return struct.pack(">i", count) + element * count


def frame(api_key: int, api_version: int, body: bytes, client_id: str | None = "hostile") -> bytes:
    """A whole request with a header of version 1."""
    request = struct.pack(">hhi", api_key, api_version, CORRELATION_ID) + string(client_id) + body
    return struct.pack(">i", len(request)) + request
