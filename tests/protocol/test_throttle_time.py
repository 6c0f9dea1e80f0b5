"""The throttle time in every response that can carry one."""

import uuid

import pytest
from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import ProduceResponse

from kafscale.handlers.routes import ROUTES, ROUTES_BY_KEY
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.fetch import FetchedPartition, FetchedTopic, encode_fetch_response
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from kafscale.protocol.messages import encode_response
from kafscale.protocol.metadata import encode_metadata_response
from kafscale.protocol.produce import PartitionProduceResponse, encode_produce_response
from kafscale.protocol.throttle_time import with_throttle_time
from kafscale.protocol.types import Buffer

BY_HAND = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS}

WITHOUT = {ApiKey.WRITE_TXN_MARKERS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""As in Kafka: a client is not throttled before it is known."""


def versions(api: ApiKey) -> list[int]:
    route = ROUTES_BY_KEY[int(api)]
    return list(range(route.min_version, route.max_version + 1))


def shown(api: ApiKey, version: int, buffers: list[Buffer], response: type, expected: object) -> None:
    """The frame with and without the time differs in nothing else."""
    marked = with_throttle_time(api, version, buffers, 12_345)
    before = response.decode(b"".join(buffers), version=version, header=True, framed=True)  # type: ignore[attr-defined]
    after = response.decode(b"".join(marked), version=version, header=True, framed=True)  # type: ignore[attr-defined]
    assert after.throttle_time_ms == expected
    after.throttle_time_ms = before.throttle_time_ms
    assert repr(after) == repr(before)


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce_response_has_it(version: int) -> None:
    partition = PartitionProduceResponse(0, 0, 7, -1, 0, "message")
    frame = encode_produce_response(3, version, [("topic", [partition])])
    if version == 0:
        assert with_throttle_time(ApiKey.PRODUCE, version, [frame], 12_345) == [frame]
    else:
        shown(ApiKey.PRODUCE, version, [frame], ProduceResponse, 12_345)


@pytest.mark.parametrize("records", [b"", b"records"])
@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch_response_has_it(version: int, records: bytes) -> None:
    partition = FetchedPartition(0, 0, 5, 5, 0, [memoryview(records)], len(records))
    topic = FetchedTopic("topic", uuid.UUID(int=7).bytes, [partition])
    buffers = encode_fetch_response(3, version, 0, 0, [topic])
    shown(ApiKey.FETCH, version, buffers, FetchResponse, 12_345)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_response_has_it(version: int) -> None:
    frame = encode_metadata_response(3, version, [], "cluster", 0, [])
    if version < 3:
        assert with_throttle_time(ApiKey.METADATA, version, [frame], 12_345) == [frame]
    else:
        shown(ApiKey.METADATA, version, [frame], MetadataResponse, 12_345)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_describe_configs_response_has_it(version: int) -> None:
    frame = encode_response(DescribeConfigsResponse(results=[]), version, 3)
    shown(ApiKey.DESCRIBE_CONFIGS, version, [frame], DescribeConfigsResponse, 12_345)


def test_no_response_stays_none() -> None:
    assert with_throttle_time(ApiKey.PRODUCE, 9, (), 12_345) == ()


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (route.api, version)
        for route in ROUTES
        if route.api not in BY_HAND | WITHOUT
        for version in range(route.min_version, route.max_version + 1)
    ],
)
def test_every_other_response_has_its_field(api: ApiKey, version: int) -> None:
    response = RESPONSE_CLASSES[api]
    answer = response()
    assert hasattr(answer, "throttle_time_ms")
    answer.throttle_time_ms = 12_345
    decoded = response.decode(encode_response(answer, version, 3), version=version, header=True, framed=True)
    assert decoded.throttle_time_ms == 12_345 or version < 3  # The last to get the field got it in version 3.
