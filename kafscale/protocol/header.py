"""Request headers read and response headers written, by hand because every request pays for them."""

import struct
from typing import Final, NamedTuple

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.message_classes import is_flexible
from kafscale.protocol.wire import (
    MAX_TAGGED_FIELDS,
    UNDERRUN_ERRORS,
    MalformedRequestError,
    read_nullable_string,
    skip_tagged_fields,
)

# Kafka defines no tagged field of a request header so far.
MAX_TAG_SECTION_BYTES: Final = 4 * 1024

_FIXED_PART = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """A request's header. `api_key` may be one that Kafka does not have; the body starts at `body_offset`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Read the header of a request frame (without its 4-byte length).

    The client id has an int16 length even in the flexible header, so that a broker can read the header of an
    ApiVersions request of any version (KIP-511).

    Its size is bounded: a client id has 32 KiB at most, the tagged fields together `MAX_TAG_SECTION_BYTES`.

    Raises `MalformedRequestError`.
    """
    try:
        api_key, api_version, correlation_id = _FIXED_PART.unpack_from(frame)
        client_id, pos = read_nullable_string(frame, _FIXED_PART.size)
        if is_flexible(api_key, api_version):
            if frame[pos]:
                pos, _ = skip_tagged_fields(frame[: pos + MAX_TAG_SECTION_BYTES], pos, MAX_TAGGED_FIELDS)
            else:  # as every client sends
                pos += 1
    except UNDERRUN_ERRORS as error:
        raise MalformedRequestError(f"request header in a frame of {len(frame)} bytes: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, pos)


def response_header(correlation_id: int, flexible: bool) -> bytes:
    """Write a response header: version 1 (with tagged fields) if `flexible`, else version 0."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + b"\x00" if flexible else header


def has_flexible_response_header(api_key: int, api_version: int) -> bool:
    """True if the response header has tagged fields: as the body, but never for ApiVersions (KIP-511)."""
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, api_version)
