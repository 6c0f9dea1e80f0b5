"""A raw connection to a broker with kafka-python's codecs, for requests that clients never send."""

import contextlib
import select
import socket
import ssl
import struct
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from tests.support.ledger import Sent
from tests.support.waiting import PATIENCE_MS, PATIENCE_SEC, wait_until

READ_ALL_TIMEOUT_S = PATIENCE_SEC
KAFKA_STORAGE_ERROR = 56
RETRY_PAUSE_S = 0.05
PRODUCE_VERSION = 9
FETCH_VERSION = 11  # the highest that names topics
LIST_OFFSETS_VERSION = 7
INIT_PRODUCER_ID_VERSION = 4
INTRODUCTION_VERSION = 3

COORDINATOR_LOAD_IN_PROGRESS = 14

# instead of a time, in ListOffsets
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class ConnectionEndedError(Exception):
    """The broker closed the connection (or reset it) where a reply was read."""


def _secured(plain: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except OSError as problem:
        # `SSLSocket._create` leaves its socket open if the peer reset the connection before the handshake begins.
        for frame, _ in traceback.walk_tb(problem.__traceback__):
            left = frame.f_locals.get("self")
            if isinstance(left, ssl.SSLSocket):
                left.close()
        raise


class Wire:
    """A blocking socket. Replies are read in the order in which requests were sent."""

    def __init__(
        self, host: str, port: int, timeout_s: float = PATIENCE_SEC, tls: ssl.SSLContext | None = None
    ) -> None:
        plain = socket.create_connection((host, port), timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = plain if tls is None else _secured(plain, tls, host)
        self._correlation_id = 0

    def close(self) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, request: Any, version: int) -> int:
        """Send a request and do not wait. Returns its correlation id."""
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation_id, client_id="tests")
        self.send_bytes(request.encode(framed=True, header=True))
        return self._correlation_id

    def receive(self, response: Any, version: int) -> tuple[int, Any]:
        """The next reply, decoded as that message and version, with its correlation id."""
        decoded = response.decode(self.receive_frame(), version=version, header=True)
        return decoded.header.correlation_id, decoded

    def call(self, request: Any, response: Any, version: int) -> Any:
        """Send, wait, decode."""
        sent = self.send(request, version)
        received, decoded = self.receive(response, version)
        assert received == sent, f"reply to request {received} where that to {sent} was due"
        return decoded

    def has_reply(self) -> bool:
        """True if bytes wait to be read."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def receive_frame(self) -> bytes:
        """The next frame without its length. Raises `ConnectionEndedError`."""
        (length,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(length)

    def assert_closed_by_peer(self) -> None:
        """Wait until the broker has closed the connection; bytes that come before that are an error."""
        try:
            data = self.socket.recv(1)
        except ConnectionError:
            return
        assert data == b"", f"the broker answered {data!r}... instead of closing the connection"

    def _receive_exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            try:
                chunk = self.socket.recv(count - len(received))
            except ConnectionError as error:
                raise ConnectionEndedError(str(error)) from error
            if not chunk:
                raise ConnectionEndedError(f"closed after {len(received)} of {count} bytes")
            received += chunk
        return bytes(received)


@contextlib.contextmanager
def connect(broker: Any, timeout_s: float = PATIENCE_SEC) -> Iterator[Wire]:
    """A connection to a broker (anything with `host` and `port`, maybe `tls`) for the time of the block."""
    wire = Wire(broker.host, broker.port, timeout_s, getattr(broker, "tls", None))
    try:
        yield wire
    finally:
        wire.close()


def introduce(connection: Wire, name: str = "librdkafka") -> None:
    """Name the client's software. By default one that reads every codec, so that it gets batches as stored."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    reply = connection.call(request, ApiVersionsResponse, INTRODUCTION_VERSION)
    assert reply.error_code == 0, reply


def batch(
    values: Sequence[bytes | None],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    codec: str = "none",
    timestamp: int | Sequence[int] | None = None,
    is_transactional: bool = False,
) -> bytes:
    """A record batch v2 with these values, keys null. `timestamp`: of all or of each, in ms; else now."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        batch_size=1 << 30,
    )
    stamps = int(time.time() * 1000) if timestamp is None else timestamp
    if isinstance(stamps, int):
        stamps = [stamps] * len(values)
    for offset, (value, stamp) in enumerate(zip(values, stamps, strict=True)):
        builder.append(offset, stamp, None, value, [])
    return bytes(builder.build())


def produce_request(
    topic: str, partitions: dict[int, bytes], *, acks: int = -1, timeout_ms: int = PATIENCE_MS
) -> Any:
    """A Produce request with the given bytes as the records of each partition."""
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            data(
                name=topic,
                partition_data=[
                    data.PartitionProduceData(index=index, records=records)
                    for index, records in partitions.items()
                ],
            )
        ],
    )


def produce(wire: Wire, topic: str, partition: int, records: bytes, *, acks: int = -1) -> Any:
    """Produce to one partition; returns its part of the reply (`error_code`, `base_offset`, ...)."""
    request = produce_request(topic, {partition: records}, acks=acks)
    reply = wire.call(request, ProduceResponse, PRODUCE_VERSION)
    return reply.responses[0].partition_responses[0]


def receive_produce(wire: Wire) -> tuple[int, Any]:
    """The next reply to a Produce of one partition: its correlation id and its part."""
    correlation_id, reply = wire.receive(ProduceResponse, PRODUCE_VERSION)
    return correlation_id, reply.responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offsets: dict[int, int],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
) -> Any:
    """A Fetch request outside a session: partition -> offset."""
    fetch_topic = FetchRequest.FetchTopic
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            fetch_topic(
                topic=topic,
                partitions=[
                    fetch_topic.FetchPartition(
                        partition=partition,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        log_start_offset=-1,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


def fetch(wire: Wire, topic: str, offsets: dict[int, int], **limits: int) -> dict[int, Any]:
    """One Fetch; returns partition -> its part (`error_code`, `high_watermark`, `records`, ...)."""
    reply = wire.call(fetch_request(topic, offsets, **limits), FetchResponse, FETCH_VERSION)
    return {part.partition_index: part for one in reply.responses for part in one.partitions}


def batches_in(data: Any) -> Iterator[Any]:
    """Every batch in fetched bytes, CRCs checked."""
    batches = MemoryRecords(bytes(data or b""))
    while batches.has_next():
        one = batches.next_batch()
        assert one.validate_crc(), f"batch at {one.base_offset} has a bad CRC"
        yield one


def records_in(data: Any) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record in fetched bytes, CRCs checked."""
    return [(record.offset, record.value) for batch in batches_in(data) for record in batch]


def read_all(wire: Wire, topic: str, partition: int, offset: int = 0) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record from an offset to the high watermark."""
    return [(one.offset, one.value) for one in read_all_sent(wire, topic, partition, offset)]


def read_all_sent(wire: Wire, topic: str, partition: int, offset: int = 0) -> list[Sent]:
    """The same with producer ids and sequences."""
    found: list[Sent] = []
    deadline = time.monotonic() + READ_ALL_TIMEOUT_S
    while True:
        part = fetch(wire, topic, {partition: offset}, max_wait_ms=200, partition_max_bytes=8 << 20)[
            partition
        ]
        # As every client does: a segment may be replaced again and again while a busy machine reads it.
        may_retry = part.error_code == KAFKA_STORAGE_ERROR and time.monotonic() < deadline
        assert may_retry or part.error_code == 0, f"error {part.error_code} at offset {offset}"
        if may_retry:
            time.sleep(RETRY_PAUSE_S)
            continue
        new = [one for batch in batches_in(part.records) for one in _sent(batch) if one.offset >= offset]
        found += new
        if new:
            offset = new[-1].offset + 1
        if offset >= part.high_watermark:
            return found
        # Bytes from a slow store may take longer than the fetch waits.
        assert new or time.monotonic() < deadline, f"nothing at {offset} of {part.high_watermark}"


def _sent(batch: Any) -> Iterator[Sent]:
    for record in batch:
        sequence = batch.base_sequence + record.offset - batch.base_offset if batch.producer_id >= 0 else -1
        yield Sent(record.offset, record.value, batch.producer_id, batch.producer_epoch, sequence)


def list_offset(wire: Wire, topic: str, partition: int, timestamp: int) -> Any:
    """The partition's part of a ListOffsets reply (`error_code`, `offset`, `timestamp`, `leader_epoch`)."""
    one_topic = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            one_topic(
                name=topic,
                partitions=[
                    one_topic.ListOffsetsPartition(
                        partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
                    )
                ],
            )
        ],
    )
    return wire.call(request, ListOffsetsResponse, LIST_OFFSETS_VERSION).topics[0].partitions[0]


def init_producer_id(wire: Wire) -> tuple[int, int]:
    """A new producer id and its epoch."""

    def ask() -> tuple[int, int] | None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        reply = wire.call(request, InitProducerIdResponse, INIT_PRODUCER_ID_VERSION)
        if reply.error_code == COORDINATOR_LOAD_IN_PROGRESS:  # Kafka, before it has its first block of ids
            return None
        assert reply.error_code == 0, f"InitProducerId: error {reply.error_code}"
        return reply.producer_id, reply.producer_epoch

    return wait_until(ask, "a producer id") or (-1, -1)
