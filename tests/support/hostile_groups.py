"""Requests about groups in hand-made bytes: as long, and as many, as the protocol allows."""

import struct
from collections.abc import Iterable

JOIN_GROUP = 11
OFFSET_COMMIT = 8
JOIN_VERSION = 3  # the last that accepts a new member at its first request
COMMIT_VERSION = 7  # the last that is not flexible

LONGEST_TEXT = "x" * 32_700
"""The longest text that a member id can be made of: a string has 32,767 bytes at most."""


def string(text: str) -> bytes:
    """Kafka's STRING: its length in 2 bytes, and UTF-8."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def sized(data: bytes) -> bytes:
    """Kafka's BYTES: the length in 4 bytes, and the bytes."""
    return struct.pack(">i", len(data)) + data


def frame(api_key: int, version: int, client_id: str, body: bytes, correlation_id: int = 1) -> bytes:
    """A request with header version 1, with its length."""
    return sized(struct.pack(">hhi", api_key, version, correlation_id) + string(client_id) + body)


def join_group(
    group: str, member_id: str = "", metadata: bytes = b"", *, client_id: str = "c", protocol: str = "p"
) -> bytes:
    """JoinGroup version 3 of a consumer with one protocol and a session of a minute."""
    body = string(group) + struct.pack(">ii", 60_000, 60_000) + string(member_id) + string("consumer")
    body += struct.pack(">i", 1) + string(protocol) + sized(metadata)
    return frame(JOIN_GROUP, JOIN_VERSION, client_id, body)


def offset_commit(group: str, topic: str, partitions: Iterable[int], offset: int, text: str = "") -> bytes:
    """OffsetCommit version 7 of a client outside the group: one offset and text in each partition."""
    indexes = list(partitions)
    rest = struct.pack(">qi", offset, -1) + string(text)
    rows = b"".join(struct.pack(">i", index) + rest for index in indexes)
    body = string(group) + struct.pack(">i", -1) + string("") + struct.pack(">h", -1)
    body += struct.pack(">i", 1) + string(topic) + struct.pack(">i", len(indexes)) + rows
    return frame(OFFSET_COMMIT, COMMIT_VERSION, "c", body)


def joined_member_id(reply: bytes) -> tuple[int, str]:
    """Error code and member id of a reply to `join_group`, without its length."""
    (error_code,) = struct.unpack_from(">h", reply, 8)
    position = 14
    for _ in range(2):  # protocol and leader
        (length,) = struct.unpack_from(">h", reply, position)
        position += 2 + length
    (length,) = struct.unpack_from(">h", reply, position)
    return error_code, reply[position + 2 : position + 2 + length].decode()


def committed_codes(reply: bytes) -> list[int]:
    """The error code of each partition of a reply to `offset_commit` of one topic, without its length."""
    _, topics, length = struct.unpack_from(">iih", reply, 4)
    assert topics == 1
    (count,) = struct.unpack_from(">i", reply, 14 + length)
    return [code for _, code in struct.iter_unpack(">ih", reply[18 + length : 18 + length + 6 * count])]
