"""Request headers against kio's, and every way to break one; response headers."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeaderV1

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.header import (
    RequestHeader,
    has_flexible_response_header,
    parse_request_header,
    response_header,
)
from kafscale.protocol.message_classes import REQUEST_CLASSES
from kafscale.protocol.wire import MalformedRequestError
from tests.protocol import oracle

VERSIONS = [(ApiKey(key), version) for key in REQUEST_CLASSES for version in oracle.kio_versions(ApiKey(key))]
EARLIER_VERSIONS = [(ApiKey.PRODUCE, 0), (ApiKey.LIST_OFFSETS, 0), (ApiKey.CREATE_TOPICS, 0)]


def test_headers_are_flexible_in_the_oracles_versions() -> None:
    for api_key, version in VERSIONS:
        request_type: Any = load_request_schema(api_key, version)
        header_type = request_type.__header_schema__
        header = header_type(
            request_api_key=api_key, request_api_version=version, correlation_id=77, client_id="café"
        )
        frame = oracle.encode(header) + b"body"
        parsed = parse_request_header(memoryview(frame))
        assert parsed == RequestHeader(api_key, version, 77, "café", len(frame) - 4), (api_key, version)

        response_type: Any = load_response_schema(api_key, version)
        flexible = response_type.__header_schema__ is ResponseHeaderV1
        assert has_flexible_response_header(api_key, version) == flexible, (api_key, version)


@settings(max_examples=50, deadline=None)
@given(
    header=oracle.entities(RequestHeaderV1) | oracle.entities(RequestHeaderV2),
    api_and_version=st.sampled_from(VERSIONS + EARLIER_VERSIONS),
)
def test_a_header_of_the_oracle_reads_the_same(header: Any, api_and_version: tuple[ApiKey, int]) -> None:
    api_key, version = api_and_version
    known = [pair for pair in VERSIONS if pair == api_and_version]
    request_type: Any = load_request_schema(api_key, version) if known else None
    header_type: Any = request_type.__header_schema__ if known else RequestHeaderV1
    sent = header_type(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
    )
    frame = oracle.encode(sent)
    assert parse_request_header(memoryview(frame)) == RequestHeader(
        api_key, version, header.correlation_id, header.client_id, len(frame)
    )


def test_the_client_id_is_a_copy() -> None:
    frame = bytearray(b"\x00\x00\x00\x07\x00\x00\x00\x01\x00\x03abc")
    parsed = parse_request_header(memoryview(frame))
    frame[:] = bytes(len(frame))
    assert parsed.client_id == "abc"


def test_a_null_client_id_is_none_and_an_empty_one_is_empty() -> None:
    start = b"\x00\x00\x00\x07\x00\x00\x00\x01"
    assert parse_request_header(memoryview(start + b"\xff\xff")).client_id is None
    assert parse_request_header(memoryview(start + b"\x00\x00")).client_id == ""


def test_tagged_fields_of_a_flexible_header_are_stepped_over() -> None:
    frame = b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01c" + b"\x01\x05\x02hi" + b"body"
    assert parse_request_header(memoryview(frame)).body_offset == len(frame) - 4


def test_unknown_api_versions_version_has_a_flexible_header() -> None:
    """KIP-511: so that the broker can answer with the versions it does know."""
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x05\x00\x01c\x00\x01\x02"
    assert parse_request_header(memoryview(frame)) == RequestHeader(18, 99, 5, "c", len(frame) - 2)


def test_an_unknown_api_still_has_a_header() -> None:
    frame = b"\x47\x45\x00\x01\x00\x00\x00\x05\x00\x01c"
    assert parse_request_header(memoryview(frame)) == RequestHeader(0x4745, 1, 5, "c", len(frame))


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"", "empty"),
        (b"\x00\x00\x00\x07\x00\x00\x00", "ends in the correlation id"),
        (b"\x00\x00\x00\x07\x00\x00\x00\x01", "no client id"),
        (b"\x00\x00\x00\x07\x00\x00\x00\x01\x00\x05abc", "client id past the end"),
        (b"\x00\x00\x00\x07\x00\x00\x00\x01\xff\xfe", "client id of length -2"),
        (b"\x00\x00\x00\x07\x00\x00\x00\x01\x00\x01\xff", "client id not UTF-8"),
        (b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00", "no tagged fields"),
        (b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00\x01\x00\x09a", "tagged field past the end"),
        (b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00\xff\xff\xff\xff\x07", "2^31 - 1 tagged fields"),
        (b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00\x41" + b"\x00\x00" * 65, "65 tagged fields"),
        (b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00\x01\x00\x80\x20" + bytes(4096), "tagged fields of 4 KiB"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_malformed_headers_are_refused(frame: bytes, problem: str) -> None:
    with pytest.raises(MalformedRequestError):
        parse_request_header(memoryview(frame))


def test_response_headers() -> None:
    assert response_header(0x01020304, flexible=False) == b"\x01\x02\x03\x04"
    assert response_header(-1, flexible=True) == b"\xff\xff\xff\xff\x00"
