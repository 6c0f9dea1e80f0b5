"""A minimal synchronous Kafka client for the harness: topics, metadata, and prebuilt Produce frames."""

import socket
import struct
import time
from types import TracebackType
from typing import Any

from kafka.protocol.admin.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record.default_records import DefaultRecordBatchBuilder

_CLIENT_ID = "kafscale-bench"
_API_VERSIONS_VERSION = 0
_METADATA_VERSION = 4
_CREATE_TOPICS_VERSION = 4
_DELETE_TOPICS_VERSION = 4
PRODUCE_VERSION = 7
_UNKNOWN_TOPIC = 3
_TIMEOUT_MS = 60_000
_LENGTH = struct.Struct(">i")


class WireError(Exception):
    """The broker answered with an error code, or not at all."""


class Client:
    """One blocking connection; requests are answered one at a time."""

    def __init__(self, host: str, port: int, timeout_seconds: float = 60.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """API key -> (lowest, highest version served)."""
        reply = self._request(ApiVersionsRequest(), ApiVersionsResponse, _API_VERSIONS_VERSION)
        _raise_for(reply.error_code, "ApiVersions")
        return {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}

    def partitions_with_leader(self, topic: str) -> int:
        """How many partitions of `topic` have a leader; 0 when the topic is not known (yet)."""
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        (described,) = self._request(request, MetadataResponse, _METADATA_VERSION).topics
        if described.error_code == _UNKNOWN_TOPIC:
            return 0
        return sum(1 for partition in described.partitions if partition.leader_id >= 0)

    def create_topic(self, topic: str, partitions: int) -> None:
        """Creates the topic and returns once every partition has a leader."""
        new = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[new], timeout_ms=_TIMEOUT_MS, validate_only=False)
        (created,) = self._request(request, CreateTopicsResponse, _CREATE_TOPICS_VERSION).topics
        _raise_for(created.error_code, f"CreateTopics {topic}")
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while self.partitions_with_leader(topic) < partitions:
            if time.monotonic() > deadline:
                raise WireError(f"topic {topic} has no leader for all its {partitions} partitions")
            time.sleep(0.01)

    def delete_topic(self, topic: str) -> None:
        """Deletes the topic; its data may go in the background."""
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=_TIMEOUT_MS)
        (deleted,) = self._request(request, DeleteTopicsResponse, _DELETE_TOPICS_VERSION).responses
        _raise_for(deleted.error_code, f"DeleteTopics {topic}")

    def exchange(self, frame: bytes) -> bytes:
        """Sends one whole frame and returns the reply's frame, length included."""
        self._socket.sendall(frame)
        length = self._receive(_LENGTH.size)
        return length + self._receive(_LENGTH.unpack(length)[0])

    def _request(self, request: Any, response_class: Any, version: int) -> Any:
        frame = _encode(request, version, correlation_id=1)
        reply = self.exchange(frame)
        return response_class.decode(reply, version=version, header=True, framed=True)

    def _receive(self, count: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < count:
            piece = self._socket.recv(count - len(pieces))
            if not piece:
                raise WireError("the broker closed the connection")
            pieces += piece
        return bytes(pieces)


def produce_frame(topic: str, partition: int, values: list[bytes], correlation_id: int) -> bytes:
    """A Produce v7 frame with one uncompressed batch of `values`, acks=all, no producer id."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**31 - 1,
    )
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=1_750_000_000_000, key=None, value=value, headers=[])
    topic_data = ProduceRequest.TopicProduceData
    batch = topic_data.PartitionProduceData(index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[topic_data(name=topic, partition_data=[batch])],
    )
    return _encode(request, PRODUCE_VERSION, correlation_id)


def produce_reply(correlation_id: int) -> bytes:
    """The Produce v7 reply's frame that the no-op server sends: one partition, no error."""
    answered = ProduceResponse.TopicProduceResponse
    partition = answered.PartitionProduceResponse(
        index=0, error_code=0, base_offset=0, log_append_time_ms=-1, log_start_offset=0
    )
    response = ProduceResponse(
        responses=[answered(name="noop", partition_responses=[partition])], throttle_time_ms=0
    )
    return _encode(response, PRODUCE_VERSION, correlation_id)


def produce_error_position(reply: bytes) -> int:
    """Where the error code stands in this Produce v7 reply's frame (length included).

    Raises WireError when the reply carries an error or answers other than one partition of one topic.
    """
    decoded = ProduceResponse.decode(reply, version=PRODUCE_VERSION, header=True, framed=True)
    if len(decoded.responses) != 1 or len(decoded.responses[0].partition_responses) != 1:
        raise WireError("the Produce reply does not answer exactly one partition")
    _raise_for(decoded.responses[0].partition_responses[0].error_code, "Produce")
    length, correlation_id, array, name_length, index = 4, 4, 4, 2, 4
    name = len(decoded.responses[0].name.encode())
    return length + correlation_id + array + name_length + name + array + index


def _encode(message: Any, version: int, correlation_id: int) -> bytes:
    message.API_VERSION = version
    if message.is_request():
        message.with_header(correlation_id=correlation_id, client_id=_CLIENT_ID)
    else:
        message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True, framed=True))


def _raise_for(code: int, what: str) -> None:
    if code:
        raise WireError(f"{what}: the broker answered error code {code}")
