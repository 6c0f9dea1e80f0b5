"""The protocol's frame: what is advertised, what is unknown, what is no request at all."""

import struct
from collections.abc import Iterator

import pytest
from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from tests.compat.conftest import NewTopic, Peer
from tests.support import wire
from tests.support.wire import Wire

API_VERSIONS = 18
SECURITY_DISABLED = 54
UNSUPPORTED_VERSION = 35
NEVER_AN_API = 31_000


@pytest.fixture
def connection(broker: Peer) -> Iterator[Wire]:
    with wire.connect(broker) as opened:
        yield opened


def assert_serves(broker: Peer) -> None:
    """The broker answers another connection."""
    with wire.connect(broker) as opened:
        opened.call(api_versions(), ApiVersionsResponse, 0)


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1")


def frame(api_key: int, version: int, body: bytes = b"", correlation_id: int = 7) -> bytes:
    """A request with header v1."""
    client = b"tests"
    header = struct.pack(">hhih", api_key, version, correlation_id, len(client)) + client
    return struct.pack(">i", len(header) + len(body)) + header + body


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_api_versions_lists_what_clients_need(connection: Wire, version: int) -> None:
    reply = connection.call(api_versions(), ApiVersionsResponse, version)
    assert reply.error_code == 0
    ranges = {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys}
    assert ranges[0][0] == 0, "librdkafka switches features on by the least version of Produce"
    needed = {0: (3, 9), 1: (4, 13), 2: (1, 7), 3: (0, 12), 18: (0, 3), 19: (2, 7), 20: (1, 6), 22: (0, 4)}
    for key, (low, high) in needed.items():
        assert ranges[key][0] <= low, f"API {key}: lowest version {ranges[key][0]}"
        assert ranges[key][1] >= high, f"API {key}: highest version {ranges[key][1]}"


@pytest.mark.parametrize("version", [5, 99, 32_767])
def test_future_api_versions_request_is_answered_in_v0(connection: Wire, version: int) -> None:
    connection.send_bytes(frame(API_VERSIONS, version, body=b"\x00" + b"garbage"))
    reply = connection.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", reply)
    assert (correlation_id, error_code) == (7, UNSUPPORTED_VERSION)
    rows = [struct.unpack_from(">hhh", reply, 10 + 6 * n) for n in range(count)]
    assert len(reply) == 10 + 6 * count
    ranges = {key: (low, high) for key, low, high in rows}
    assert ranges[API_VERSIONS][1] >= 3
    # and the connection goes on in a version that was offered
    assert connection.call(api_versions(), ApiVersionsResponse, 3).error_code == 0


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        pytest.param(NEVER_AN_API, 0, id="an API that never was"),
        pytest.param(-1, 0, id="a negative API"),
        pytest.param(3, 500, id="a version of Metadata that never was"),
        pytest.param(0, -1, id="a negative version of Produce"),
    ],
)
def test_what_is_not_served_ends_the_connection(
    broker: Peer, connection: Wire, api_key: int, version: int
) -> None:
    connection.send_bytes(frame(api_key, version))
    connection.assert_closed_by_peer()
    assert_serves(broker)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", id="an HTTP request"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), id="a TLS hello"),
        pytest.param(struct.pack(">i", 2**31 - 1) + bytes(100), id="a frame of 2 GiB"),
        pytest.param(struct.pack(">i", -1) + bytes(100), id="a frame of a negative length"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="a frame too short for a header"),
        pytest.param(frame(3, 1, body=b"\x7f\xff\xff\xff"), id="a list of two billion topics"),
        pytest.param(frame(0, 9, body=b"\x00" * 3), id="half a produce request"),
        pytest.param(frame(1, 11, body=b"\xff" * 400), id="a fetch request of ones"),
    ],
)
def test_bytes_that_are_no_request_end_only_their_connection(
    broker: Peer, connection: Wire, data: bytes
) -> None:
    with wire.connect(broker) as bystander:
        connection.send_bytes(data)
        connection.assert_closed_by_peer()
        assert bystander.call(api_versions(), ApiVersionsResponse, 0).error_code == 0


def test_acls_are_disabled_not_empty(connection: Wire) -> None:
    request = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    assert connection.call(request, DescribeAclsResponse, 2).error_code == SECURITY_DISABLED


def test_replies_come_in_the_order_of_their_requests(connection: Wire, new_topic: NewTopic) -> None:
    """A quick request behind a slow one waits for it."""
    topic = new_topic()
    sent = []
    for _ in range(10):
        sent.append(
            connection.send(wire.produce_request(topic, {0: wire.batch([b"x"])}), wire.PRODUCE_VERSION)
        )
        sent.append(connection.send(api_versions(), 0))
    received = []
    for _ in range(10):
        received.append(wire.receive_produce(connection)[0])
        received.append(connection.receive(ApiVersionsResponse, 0)[0])
    assert received == sent
