"""Any bytes at all, and valid requests that were damaged: decoders refuse or decode, promptly and in bounds."""

import functools
import sys
import tracemalloc
import uuid
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.fetch import decode_fetch_request
from kafscale.protocol.header import parse_request_header
from kafscale.protocol.message_classes import REQUEST_CLASSES
from kafscale.protocol.messages import decode_request
from kafscale.protocol.produce import decode_produce_request
from kafscale.protocol.wire import MalformedRequestError
from tests.protocol import oracle
from tests.support.nightly import by_day

VERSIONS = {ApiKey.PRODUCE: range(10), ApiKey.FETCH: range(4, 14)} | {
    ApiKey(key): range(message_class.max_version + 1)
    for key, message_class in REQUEST_CLASSES.items()
    if key not in (ApiKey.PRODUCE, ApiKey.FETCH)
}
APIS_AND_VERSIONS = st.sampled_from(
    [(key, version) for key, versions in VERSIONS.items() for version in versions]
)
ORACLE_APIS_AND_VERSIONS = st.sampled_from(
    [
        (key, version)
        for key, versions in VERSIONS.items()
        for version in versions
        if version in oracle.kio_versions(key)
    ]
)

REQUEST_PIECES = st.sampled_from(
    [
        b"\x00", b"\x01", b"\x02", b"\x03", b"\x7f", b"\x80", b"\xff", b"\x00\x01", b"\xff\xff", b"\x00\x00\x00\x01",
        b"\x00\x00\x00\x02", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x07",
        b"\x80\x80\x80\x80\x80\x01", b"\x00\x03abc", b"\x04abc", bytes(16), b"\x01\x00\x00",
    ]
)  # fmt: skip
LIKELY_BYTES = st.lists(REQUEST_PIECES | st.binary(max_size=4), max_size=40).map(b"".join)


def decode(api_key: ApiKey, version: int, body: memoryview) -> Any:
    if api_key == ApiKey.PRODUCE:
        return decode_produce_request(body, version)
    if api_key == ApiKey.FETCH:
        return decode_fetch_request(body, version)
    return decode_request(api_key, version, body)


def text_and_bytes(value: Any) -> int:
    """The length of everything in a decoded request that has its length on the wire."""
    match value:
        case str():
            return len(value.encode())
        case bytes() | memoryview():
            return len(value)
        case list() | tuple():
            return sum(map(text_and_bytes, value))
        case uuid.UUID() | None | bool() | int() | float():
            return 0
    return text_and_bytes(oracle.plain_message(value))


def decode_or_refuse(api_key: ApiKey, version: int, data: bytes) -> None:
    """The property itself. Any other exception fails the test."""
    try:
        message = decode(api_key, version, memoryview(data))
    except MalformedRequestError:
        return
    assert text_and_bytes(message) <= len(data)


@settings(max_examples=by_day(60, by_night=4_000), deadline=None)
@given(frame=st.binary(max_size=64) | LIKELY_BYTES)
@example(b"GET /metrics HTTP/1.1\r\nHost: localhost:9092\r\n\r\n")
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40))  # the start of a TLS handshake
def test_any_frame_has_a_header_or_is_refused(frame: bytes) -> None:
    try:
        header = parse_request_header(memoryview(frame))
    except MalformedRequestError:
        return
    assert 10 <= header.body_offset <= len(frame)


@settings(max_examples=by_day(100, by_night=8_000), deadline=None)
@given(api_and_version=APIS_AND_VERSIONS, body=st.binary(max_size=80) | LIKELY_BYTES)
def test_any_body_is_decoded_or_refused(api_and_version: tuple[ApiKey, int], body: bytes) -> None:
    decode_or_refuse(*api_and_version, body)


@st.composite
def valid_bodies(draw: st.DrawFn) -> tuple[ApiKey, int, bytes]:
    api_key, version = draw(ORACLE_APIS_AND_VERSIONS)
    body = oracle.encode(draw(oracle.entities(load_request_schema(api_key, version))))
    return api_key, version, body


@settings(
    max_examples=by_day(40, by_night=2_500), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(valid=valid_bodies(), data=st.data())
def test_a_damaged_body_is_decoded_or_refused(valid: tuple[ApiKey, int, bytes], data: st.DataObject) -> None:
    api_key, version, body = valid
    for _ in range(data.draw(st.integers(1, 3), label="damages")):
        position = data.draw(st.integers(0, len(body)), label="position")
        length = data.draw(st.integers(0, 4), label="bytes replaced")
        body = body[:position] + data.draw(REQUEST_PIECES, label="by") + body[position + length :]
    decode_or_refuse(api_key, version, body)


@settings(
    max_examples=by_day(24, by_night=1_500), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(valid=valid_bodies())
def test_a_body_cut_anywhere_is_refused(valid: tuple[ApiKey, int, bytes]) -> None:
    api_key, version, body = valid
    decode(api_key, version, memoryview(body))
    for end in range(len(body)):
        try:
            message = decode(api_key, version, memoryview(body)[:end])
        except MalformedRequestError:
            continue
        raise AssertionError(f"the first {end} bytes of {body!r} were decoded as {message!r}")


@settings(
    max_examples=by_day(20, by_night=1_000), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(valid=valid_bodies(), extra=st.binary(min_size=1, max_size=3))
def test_bytes_after_a_body_change_nothing(valid: tuple[ApiKey, int, bytes], extra: bytes) -> None:
    """Kafka passes over them, and librdkafka sends some."""
    api_key, version, body = valid
    expected = decode(api_key, version, memoryview(body))
    assert decode(api_key, version, memoryview(body + extra)) == expected


def work_and_memory(api_key: ApiKey, version: int, body: bytes) -> tuple[int, int]:
    """Calls of functions, and bytes allocated at most, while this body is decoded or refused."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    decode_or_refuse(api_key, version, b"")  # builds the decoder, once for all
    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        decode_or_refuse(api_key, version, body)
    finally:
        sys.setprofile(previous)
    tracemalloc.start()
    try:
        decode_or_refuse(api_key, version, body)
        return calls, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@functools.cache
def small_elements(piece: bytes, repeats: int) -> bytes:
    return piece * repeats


@settings(max_examples=by_day(24, by_night=1_500), deadline=None)
@given(
    api_and_version=APIS_AND_VERSIONS,
    start=LIKELY_BYTES,
    piece=REQUEST_PIECES | st.binary(min_size=1, max_size=6),
    repeats=st.integers(1, 400),
)
def test_work_and_memory_are_in_proportion_to_the_body(
    api_and_version: tuple[ApiKey, int], start: bytes, piece: bytes, repeats: int
) -> None:
    body = start + small_elements(piece, repeats)
    calls, allocated_bytes = work_and_memory(*api_and_version, body)
    assert calls <= 300 + 30 * len(body)
    assert allocated_bytes <= 20_000 + 200 * len(body)


def test_tagged_field_sections_cost_no_more_than_their_bytes() -> None:
    """A decoder that copies the rest of the body for each section takes minutes over a larger frame of this kind."""
    topic = b"\x02t\x01\x09\x01z"
    count = 20_000
    body = b"\xa1\x9c\x01" + topic * count + b"\x01\x00\x00\x00"
    assert len(decode(ApiKey.METADATA, 9, memoryview(body)).topics) == count
    calls, allocated_bytes = work_and_memory(ApiKey.METADATA, 9, body)
    assert calls <= 300 + 30 * len(body)
    assert allocated_bytes <= 20_000 + 200 * len(body)
