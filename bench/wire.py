"""A minimal synchronous Kafka client for the harness: topics, metadata, and prebuilt Produce frames."""

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import Any

from kafka.protocol.admin.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
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
_INTRODUCTION_VERSION = 3
_METADATA_VERSION = 4
_CREATE_TOPICS_VERSION = 4
_DELETE_TOPICS_VERSION = 4
_LIST_OFFSETS_VERSION = 1
_LATEST = -1
PRODUCE_VERSION = 7
FETCH_VERSION = 4
_TIMEOUT_MS = 60_000
_LENGTH = struct.Struct(">i")


class WireError(Exception):
    """The broker answered with an error code, or not at all."""


class Client:
    """One blocking connection; requests are answered one at a time."""

    def __init__(self, host: str, port: int, timeout_seconds: float = 60.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        introduce(self._socket)

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

    def partitions_with_leader(self, *topics: str) -> int:
        """The number of these topics' partitions that have a leader; none of a topic that is not known (yet)."""
        reply = self._metadata(*topics)
        return sum(1 for topic in reply.topics for partition in topic.partitions if partition.leader_id >= 0)

    def led_partitions(self, topic: str) -> dict[tuple[str, int], list[int]]:
        """The topic's partitions by the host and port of their leader."""
        reply = self._metadata(topic)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in reply.brokers}
        led: dict[tuple[str, int], list[int]] = {}
        for partition in reply.topics[0].partitions:
            led.setdefault(addresses[partition.leader_id], []).append(partition.partition_index)
        return led

    def create_topic(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Creates the topic and returns once every partition has a leader."""
        new = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[]
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
        """Deletes the topic; its data may be deleted in the background."""
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=_TIMEOUT_MS)
        (deleted,) = self._request(request, DeleteTopicsResponse, _DELETE_TOPICS_VERSION).responses
        _raise_for(deleted.error_code, f"DeleteTopics {topic}")

    def log_end_offset(self, topic: str, partition: int) -> int:
        """The offset that the partition's next record gets."""
        return self.offset_at(topic, partition, _LATEST)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """The offset of the first record that is not older; -1 if there is none."""
        row = ListOffsetsRequest.ListOffsetsTopic
        asked = row.ListOffsetsPartition(partition_index=partition, timestamp=time_ms)
        request = ListOffsetsRequest(replica_id=-1, topics=[row(name=topic, partitions=[asked])])
        reply = self._request(request, ListOffsetsResponse, _LIST_OFFSETS_VERSION)
        answer = reply.topics[0].partitions[0]
        _raise_for(answer.error_code, f"ListOffsets {topic}-{partition}")
        return int(answer.offset)

    def exchange(self, frame: bytes) -> bytes:
        """Sends one whole frame and returns the reply's frame, length included."""
        return self.exchange_all([frame])[0]

    def exchange_all(self, frames: Sequence[bytes]) -> list[bytes]:
        """Sends whole frames and returns the replies' frames in their order, lengths included."""
        for frame in frames:
            self._socket.sendall(frame)
        replies = []
        for _ in frames:
            length = self._receive(_LENGTH.size)
            replies.append(length + self._receive(_LENGTH.unpack(length)[0]))
        return replies

    def _metadata(self, *topics: str) -> Any:
        reply = self.exchange(metadata_frame(topics))
        return MetadataResponse.decode(reply, version=_METADATA_VERSION, header=True, framed=True)

    def _request(self, request: Any, response_class: Any, version: int) -> Any:
        frame = encode(request, version, correlation_id=1)
        reply = self.exchange(frame)
        return response_class.decode(reply, version=version, header=True, framed=True)

    def _receive(self, count: int) -> bytes:
        return _receive(self._socket, count)


def introduce(connected: socket.socket) -> None:
    """Declare, as librdkafka does, that this client reads batches in any codec.

    To others Kafscale sends them decompressed.
    """
    request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="0")
    connected.sendall(encode(request, _INTRODUCTION_VERSION, correlation_id=0))
    _receive(connected, *_LENGTH.unpack(_receive(connected, _LENGTH.size)))


def _receive(connected: socket.socket, count: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < count:
        piece = connected.recv(count - len(pieces))
        if not piece:
            raise WireError("the broker closed the connection")
        pieces += piece
    return bytes(pieces)


def api_versions_frame() -> bytes:
    """An ApiVersions frame."""
    return encode(ApiVersionsRequest(), _API_VERSIONS_VERSION, correlation_id=1)


def metadata_frame(topics: Sequence[str]) -> bytes:
    """A Metadata v4 frame for these topics."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return encode(request, _METADATA_VERSION, correlation_id=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlace:
    """A Fetch request's values for one partition."""

    topic: str
    partition: int
    offset: int


def fetch_frame(
    places: Sequence[FetchPlace], *, max_bytes: int, max_wait_ms: int, correlation_id: int = 1
) -> bytes:
    """A Fetch v4 frame, without a session; places of one topic stand side by side. `max_bytes`: of all, and each."""
    row = FetchRequest.FetchTopic
    topics = [
        row(
            topic=topic,
            partitions=[
                row.FetchPartition(
                    partition=place.partition, fetch_offset=place.offset, partition_max_bytes=max_bytes
                )
                for place in of_topic
            ],
        )
        for topic, of_topic in groupby(places, key=lambda place: place.topic)
    ]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        topics=topics,
    )
    return encode(request, FETCH_VERSION, correlation_id)


def fetch_reply(records: bytes) -> bytes:
    """The Fetch v4 reply's frame that the no-op server sends: one partition, no error, these record batches."""
    answered = FetchResponse.FetchableTopicResponse
    partition = answered.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=0,
        last_stable_offset=0,
        aborted_transactions=None,
        records=records,
    )
    response = FetchResponse(throttle_time_ms=0, responses=[answered(topic="noop", partitions=[partition])])
    return encode(response, FETCH_VERSION, correlation_id=0)


def check_fetch_reply(reply: bytes) -> None:
    """Raises WireError when this Fetch v4 reply's frame carries an error for any partition."""
    decoded = FetchResponse.decode(reply, version=FETCH_VERSION, header=True, framed=True)
    for topic in decoded.responses:
        for partition in topic.partitions:
            _raise_for(partition.error_code, f"Fetch {topic.topic}-{partition.partition_index}")


def fetched_records(reply: bytes) -> tuple[bytes, int]:
    """The record batches in a Fetch v4 reply's frame to one partition, and where they begin in the frame.

    Raises WireError when the reply carries an error or answers other than one partition.
    """
    decoded = FetchResponse.decode(reply, version=FETCH_VERSION, header=True, framed=True)
    if len(decoded.responses) != 1 or len(decoded.responses[0].partitions) != 1:
        raise WireError("the Fetch reply does not answer exactly one partition")
    partition = decoded.responses[0].partitions[0]
    _raise_for(partition.error_code, "Fetch")
    records = bytes(partition.records or b"")
    return records, len(reply) - len(records)


def batch(values: Sequence[bytes], timestamp_ms: int = 1_750_000_000_000) -> bytes:
    """One uncompressed record batch of these values, without producer id.

    With the default timestamp they are so old that they expire when the broker first looks, after five minutes.
    """
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
        builder.append(offset, timestamp=timestamp_ms, key=None, value=value, headers=[])
    return bytes(builder.build())


def produce_frame(topic: str, partition: int, values: list[bytes], correlation_id: int) -> bytes:
    """A Produce v7 frame with one uncompressed batch of `values`, acks=all, no producer id."""
    return produce_frame_of(topic, {partition: batch(values)}, correlation_id)


def produce_frame_of(topic: str, batches: Mapping[int, bytes], correlation_id: int) -> bytes:
    """A Produce v7 frame with these batches by partition, acks=all."""
    topic_data = ProduceRequest.TopicProduceData
    data = [
        topic_data.PartitionProduceData(index=index, records=records) for index, records in batches.items()
    ]
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[topic_data(name=topic, partition_data=data)],
    )
    return encode(request, PRODUCE_VERSION, correlation_id)


def produce_reply(correlation_id: int) -> bytes:
    """The Produce v7 reply's frame that the no-op server sends: one partition, no error."""
    answered = ProduceResponse.TopicProduceResponse
    partition = answered.PartitionProduceResponse(
        index=0, error_code=0, base_offset=0, log_append_time_ms=-1, log_start_offset=0
    )
    response = ProduceResponse(
        responses=[answered(name="noop", partition_responses=[partition])], throttle_time_ms=0
    )
    return encode(response, PRODUCE_VERSION, correlation_id)


def produce_error_position(reply: bytes) -> int:
    """The position of the error code in this Produce v7 reply's frame (length included).

    Raises WireError when the reply carries an error or answers other than one partition of one topic.
    """
    decoded = ProduceResponse.decode(reply, version=PRODUCE_VERSION, header=True, framed=True)
    if len(decoded.responses) != 1 or len(decoded.responses[0].partition_responses) != 1:
        raise WireError("the Produce reply does not answer exactly one partition")
    _raise_for(decoded.responses[0].partition_responses[0].error_code, "Produce")
    length, correlation_id, array, name_length, index = 4, 4, 4, 2, 4
    name = len(decoded.responses[0].name.encode())
    return length + correlation_id + array + name_length + name + array + index


def encode(message: Any, version: int, correlation_id: int) -> bytes:
    """The frame of a request or a reply of kafka-python's, length included."""
    message.API_VERSION = version
    if message.is_request():
        message.with_header(correlation_id=correlation_id, client_id=_CLIENT_ID)
    else:
        message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True, framed=True))


def _raise_for(code: int, what: str) -> None:
    if code:
        raise WireError(f"{what}: the broker answered error code {code}")
