"""The leaders that an answer names after NOT_LEADER_OR_FOLLOWER, and where they are (KIP-951)."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafscale.protocol.wire import compact_string, nullable_compact_string, uvarint

NO_LEADER: Final = -1
NO_LEADER_EPOCH: Final = -1

_INT32 = struct.Struct(">i")


class CurrentLeader(NamedTuple):
    """A partition's leader. -1 and -1: not known."""

    leader_id: int = NO_LEADER
    leader_epoch: int = NO_LEADER_EPOCH


class NodeEndpoint(NamedTuple):
    """Where a leader is that the answer names."""

    node_id: int
    host: str
    port: int
    rack: str | None


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """A compact array of them, each without tagged fields.

    Raises `struct.error` when a value does not fit its field.
    """
    return uvarint(len(endpoints) + 1) + b"".join(map(_endpoint, endpoints))


def _endpoint(endpoint: NodeEndpoint) -> bytes:
    return b"".join(
        (
            _INT32.pack(endpoint.node_id),
            compact_string(endpoint.host),
            _INT32.pack(endpoint.port),
            nullable_compact_string(endpoint.rack),
            b"\x00",
        )
    )
