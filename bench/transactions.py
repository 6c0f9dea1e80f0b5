"""The raw driver of transactions (KIP-890): each connection is one producer, its transactions follow one another.

A transaction is one Produce of one record, which adds its partition, and one EndTxn.
"""

import heapq
import select
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import crc32c
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.record.default_records import DefaultRecordBatchBuilder

from bench.meter import Meter
from bench.payloads import record_pool
from bench.specs import Transacted, TransactionsSpec
from bench.wire import Client, WireError, encode, introduce

_PRODUCE_VERSION, _END_TXN_VERSION, _INIT_VERSION, _FIND_VERSION = 12, 5, 4, 3
_NOT_YET = (14, 15, 16, 51)
"""A coordinator that loads or is elected; CONCURRENT_TRANSACTIONS: markers of the last one are being written."""
_ASK_AGAIN_SECONDS = 0.001
_STALL_SECONDS = 30.0
_TIMEOUT_MS = 60_000
_RECEIVE_BYTES = 64 * 1024
_LENGTH = struct.Struct(">i")
_EPOCH = struct.Struct(">h")
_CRC = struct.Struct(">I")
_CRC_AT, _ATTRIBUTES_AT, _EPOCH_AT = 17, 21, 51


@dataclass(slots=True, kw_only=True)
class _Producer:
    """A producer: its frames, and where it is in its transaction. `began`: when its first request was sent."""

    transactional_id: str
    producer_id: int
    epoch: int
    topic: str
    partition: int
    value: bytes
    socket: socket.socket
    began: float = 0.0
    has_sent: bool = False
    received: bytearray = field(default_factory=bytearray)
    _frame: bytearray = field(default_factory=bytearray)
    _batch_at: int = 0

    def produce_frame(self) -> bytes:
        """A Produce of one record, the first of its epoch."""
        if not self._frame:
            self._build()
        at = self._batch_at
        _EPOCH.pack_into(self._frame, at + _EPOCH_AT, self.epoch)
        _CRC.pack_into(self._frame, at + _CRC_AT, crc32c.crc32c(self._frame[at + _ATTRIBUTES_AT : self._end]))
        return bytes(self._frame)

    @property
    def _end(self) -> int:
        (length,) = _LENGTH.unpack_from(self._frame, self._batch_at + 8)
        return self._batch_at + 12 + int(length)

    def _build(self) -> None:
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=0, is_transactional=True, producer_id=self.producer_id,
            producer_epoch=self.epoch, base_sequence=0, batch_size=1 << 20,
        )  # fmt: skip
        builder.append(0, timestamp=1_750_000_000_000, key=None, value=self.value, headers=[])
        records = bytes(builder.build())
        rows = ProduceRequest.TopicProduceData
        row = rows.PartitionProduceData(index=self.partition, records=records)
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=_TIMEOUT_MS,
            topic_data=[rows(name=self.topic, partition_data=[row])],
        )  # fmt: skip
        self._frame[:] = encode(request, _PRODUCE_VERSION, correlation_id=1)
        self._batch_at = self._frame.index(records)

    def end_frame(self) -> bytes:
        """The EndTxn that commits."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.producer_id,
            producer_epoch=self.epoch, committed=True,
        )  # fmt: skip
        return encode(request, _END_TXN_VERSION, correlation_id=2)

    def reply(self) -> bytes | None:
        """The frame that has come, or None while it is not whole."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise WireError("the broker closed the connection")
        self.received += data
        if len(self.received) < _LENGTH.size:
            return None
        if len(self.received) < _LENGTH.size + _LENGTH.unpack_from(self.received)[0]:
            return None
        frame = bytes(self.received)
        self.received.clear()
        return frame


def _code(frame: bytes, producer: _Producer) -> int:
    """The error code of the reply that the producer waits for. An EndTxn's gives the producer its next epoch."""
    if producer.has_sent:
        ended = EndTxnResponse.decode(frame, version=_END_TXN_VERSION, header=True, framed=True)
        if not ended.error_code:
            producer.producer_id, epoch = ended.producer_id, ended.producer_epoch
            if epoch <= producer.epoch:
                raise WireError(f"EndTxn left the epoch at {epoch}: the cluster has no transaction.version 2")
            producer.epoch = epoch
        return int(ended.error_code)
    produced = ProduceResponse.decode(frame, version=_PRODUCE_VERSION, header=True, framed=True)
    return int(produced.responses[0].partition_responses[0].error_code)


def drive_transactions(spec: TransactionsSpec) -> Transacted:
    """As many transactions as so many producers make one after the other, each to a partition of its own in turn."""
    values = record_pool(spec.payload, spec.record_bytes)
    with ExitStack() as stack:
        producers = [_open(spec, number, values[number % len(values)]) for number in range(spec.producers)]
        for producer in producers:
            stack.callback(producer.socket.close)
        return _Run(spec, producers).run()


def _open(spec: TransactionsSpec, number: int, value: bytes) -> _Producer:
    transactional_id = f"{spec.topic}-{number}"
    found = FindCoordinatorRequest(key=transactional_id, key_type=1)
    asked = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    deadline = time.monotonic() + _STALL_SECONDS
    with Client(spec.host, spec.port) as client:
        while True:
            client.exchange(encode(found, _FIND_VERSION, correlation_id=1))
            frame = client.exchange(encode(asked, _INIT_VERSION, correlation_id=1))
            reply = InitProducerIdResponse.decode(frame, version=_INIT_VERSION, header=True, framed=True)
            if not reply.error_code:
                break
            if reply.error_code not in _NOT_YET or time.monotonic() > deadline:
                raise WireError(f"InitProducerId: the broker answered error code {reply.error_code}")
            time.sleep(_ASK_AGAIN_SECONDS)
    connected = socket.create_connection((spec.host, spec.port), timeout=_STALL_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    introduce(connected)
    return _Producer(
        transactional_id=transactional_id,
        producer_id=reply.producer_id,
        epoch=reply.producer_epoch,
        topic=spec.topic,
        partition=number % spec.partitions,
        value=value,
        socket=connected,
    )


class _Run:
    """All producers at work until the window closes and their transactions have ended."""

    def __init__(self, spec: TransactionsSpec, producers: list[_Producer]) -> None:
        self._spec = spec
        self._producers = {producer.socket.fileno(): producer for producer in producers}
        self._waiting: list[tuple[float, int]] = []  # when to ask again, and whose turn it is
        self._done = self._again = 0
        self._measured: list[float] = []

    def run(self) -> Transacted:
        spec, meter = self._spec, Meter(self._spec.broker_pids)
        begin = moved = time.monotonic()
        opens, closes = begin + spec.warmup_seconds, begin + spec.warmup_seconds + spec.seconds
        poller = select.epoll()
        with poller:
            for descriptor, producer in self._producers.items():
                poller.register(descriptor, select.EPOLLIN)
                self._begin(producer)
            open_ones = len(self._producers)
            while open_ones:
                now = time.monotonic()
                if meter.never_opened and now >= opens:
                    meter.open(self._done)
                if meter.is_open and now >= closes:
                    meter.close(self._done)
                while self._waiting and self._waiting[0][0] <= now:
                    self._send(self._producers[heapq.heappop(self._waiting)[1]])
                for descriptor, _ in poller.poll(_ASK_AGAIN_SECONDS if self._waiting else 0.1):
                    moved = time.monotonic()
                    if self._answered(self._producers[descriptor], opens):
                        if moved < closes:
                            self._begin(self._producers[descriptor])
                        else:
                            open_ones -= 1
                if time.monotonic() - moved > _STALL_SECONDS:
                    raise WireError(f"transactions: nothing came back for {_STALL_SECONDS:.0f} s")
        window = meter.window(spec.record_bytes, total_records=self._done)
        return Transacted(window=window, milliseconds=sorted(self._measured), asked_again=self._again)

    def _begin(self, producer: _Producer) -> None:
        producer.began, producer.has_sent = time.monotonic(), False
        self._send(producer)

    def _send(self, producer: _Producer) -> None:
        producer.socket.sendall(producer.end_frame() if producer.has_sent else producer.produce_frame())

    def _answered(self, producer: _Producer, opens: float) -> bool:
        """Take what has come; true if the producer's transaction has ended."""
        frame = producer.reply()
        if frame is None:
            return False
        code = _code(frame, producer)
        if code in _NOT_YET:
            self._again += 1
            heapq.heappush(self._waiting, (time.monotonic() + _ASK_AGAIN_SECONDS, producer.socket.fileno()))
            return False
        if code:
            what = "EndTxn" if producer.has_sent else "Produce"
            raise WireError(f"{what} of {producer.transactional_id}: the broker answered error code {code}")
        if not producer.has_sent:
            producer.has_sent = True
            self._send(producer)
            return False
        self._done += 1
        if producer.began >= opens:
            self._measured.append((time.monotonic() - producer.began) * 1000)
        return True
