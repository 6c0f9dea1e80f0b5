"""The throttle time in responses that are encoded by hand: written into the frame, wherever the API has it."""

import struct
from collections.abc import Sequence
from typing import Final

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.header import has_flexible_response_header
from kafscale.protocol.message_classes import is_flexible
from kafscale.protocol.types import Buffer

_INT32: Final = struct.Struct(">i")
_LENGTH_AND_CORRELATION_BYTES: Final = 8
_NO_TAGS_BYTES: Final = 1

_FIRST_FIELD_SINCE: Final = {
    ApiKey.FETCH: 1,
    ApiKey.SHARE_FETCH: 1,
    ApiKey.METADATA: 3,
    ApiKey.DESCRIBE_CONFIGS: 0,
}
"""The first version of an API whose response begins with its throttle time."""

_FIRST_PRODUCE_VERSION: Final = 1


def with_throttle_time(
    api: ApiKey, version: int, buffers: Sequence[Buffer], throttle_time_ms: int
) -> Sequence[Buffer]:
    """The frame with this throttle time: itself where its API or version has none, or nothing is sent."""
    if not buffers:
        return buffers
    if api is ApiKey.PRODUCE and version >= _FIRST_PRODUCE_VERSION:
        after_bytes = _NO_TAGS_BYTES if is_flexible(api, version) else 0
        last = buffers[-1]
        return [*buffers[:-1], _replaced(last, len(last) - after_bytes - _INT32.size, throttle_time_ms)]
    since = _FIRST_FIELD_SINCE.get(api)
    if since is None or version < since:
        return buffers
    tags_bytes = _NO_TAGS_BYTES if has_flexible_response_header(api, version) else 0
    position = _LENGTH_AND_CORRELATION_BYTES + tags_bytes
    return [_replaced(buffers[0], position, throttle_time_ms), *buffers[1:]]


def _replaced(buffer: Buffer, position: int, value: int) -> bytes:
    changed = bytearray(buffer)
    _INT32.pack_into(changed, position, value)
    return bytes(changed)
