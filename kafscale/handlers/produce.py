"""Produce (API 0): append in the order of arrival, reply when everything is published.

v0-2 carry message sets of magic 0 or 1, which are converted. v3: record batches (KIP-98), transactional id.
v7: zstd (KIP-110). v8: error messages (KIP-467). v9: flexible. acks=1 waits like acks=all: there is one
kind of acknowledgement. Several batches of one partition get consecutive offsets.
"""

import asyncio
from collections.abc import Awaitable

from kafscale.handlers.context import Broker, Reply, RequestContext
from kafscale.handlers.pending_produce import PartitionAppend, PendingProduce, Unanswered
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.produce import ProduceRequest, decode_produce_request
from kafscale.protocol.record_batch import BatchHeader, validate_batch
from kafscale.storage.partition import Partition
from kafscale.storage.partition_log import PartitionLog
from kafscale.storage.segment_buffer import AppendWaiter

# A body above this is appended with pauses in which other connections are served.
LARGE_BODY_BYTES = 1024 * 1024

_FIRST_VERSION_WITH_BATCHES = 3
_FIRST_VERSION_WITH_ZSTD = 7
_MAGIC_POSITION = 16
_MAGIC_WITH_BATCHES = 2
_LEGAL_ACKS = (-1, 0, 1)
# How much larger than one message an old compressed set may become when it is opened.
_CONVERSION_GROWTH = 16
_UNANSWERED = Unanswered()

_Batches = list[tuple[memoryview, BatchHeader]]


def handle(broker: Broker, request: RequestContext, body: memoryview, reply: Reply) -> Awaitable[None] | None:
    """Append everything that `body` carries; the reply goes to `reply` when it is published.

    What is returned must be awaited before the connection's next request is looked at. A body larger than
    `LARGE_BODY_BYTES` must stay as it is until then, a smaller one only during the call.
    """
    produce = decode_produce_request(body, request.api_version)
    unopened = [
        partition
        for name, partitions in produce.topics
        for index, _ in partitions
        if (partition := broker.logs.partition(name, index)) is not None
        and partition.is_led
        and broker.logs.open_now(partition) is None
    ]
    if unopened:
        return _open_and_handle(broker, request, bytes(body), reply, unopened)
    appender = _Appender(broker, request, produce, reply)
    if len(body) > LARGE_BODY_BYTES:
        return appender.append_with_pauses()
    appender.append_all()
    return None


async def _open_and_handle(
    broker: Broker, request: RequestContext, body: bytes, reply: Reply, unopened: list[Partition]
) -> None:
    # A log that cannot be opened is left closed; its partition is refused below.
    await asyncio.gather(*(broker.logs.open(partition) for partition in unopened), return_exceptions=True)
    appender = _Appender(
        broker, request, decode_produce_request(memoryview(body), request.api_version), reply
    )
    await appender.append_with_pauses()


class _Appender:
    """One request on its way into the logs."""

    def __init__(
        self, broker: Broker, request: RequestContext, produce: ProduceRequest, reply: Reply
    ) -> None:
        self._broker = broker
        self._version = request.api_version
        self._produce = produce
        self._reply = reply
        self._now_ms = broker.now_ms()
        self._pending = PendingProduce(
            request.api_version,
            request.correlation_id,
            reply,
            self._now_ms + max(0, produce.timeout_ms),
            broker.purgatory,
        )

    def append_all(self) -> None:
        """Append every partition's batches."""
        for name, partitions in self._produce.topics:
            appends = self._pending.topic(name, len(partitions))
            for index, records in partitions:
                self._append(name, index, records, appends)
        self._finish()

    async def append_with_pauses(self) -> None:
        """The same, letting others run between the partitions."""
        for name, partitions in self._produce.topics:
            appends = self._pending.topic(name, len(partitions))
            for index, records in partitions:
                self._append(name, index, records, appends)
                await asyncio.sleep(0)
        self._finish()

    def _finish(self) -> None:
        if self._produce.acks == 0:
            self._reply.drop()
        else:
            self._pending.all_appended()

    def _append(
        self, name: str, index: int, records: memoryview | None, appends: list[PartitionAppend]
    ) -> None:
        append = PartitionAppend(self._pending, index)
        appends.append(append)
        try:
            self._check_request()
            partition, log = self._led(name, index)
            batches = self._validated(records, partition)
        except KafkaError as refusal:
            append.refused(refusal.code, refusal.message)
            return
        if partition.rules.log_append_time:
            append.log_append_time_ms = self._now_ms
        waiter: AppendWaiter = append if self._produce.acks else _UNANSWERED
        logs = self._broker.logs
        grown = log.append(batches, partition.rules, self._now_ms, logs.pool, waiter)
        if grown:
            logs.budget.charge(grown)
            logs.flusher.appended(partition)
            counters = self._broker.metrics.topic(name)
            for batch, header in batches:
                counters.bytes_in += len(batch)
                counters.records_in += header.record_count
            counters.batches_in += len(batches)

    def _check_request(self) -> None:
        if self._produce.acks not in _LEGAL_ACKS:
            raise KafkaError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {self._produce.acks}, legal are -1 (all), 0 and 1"
            )
        if self._produce.transactional_id is not None:
            raise _no_transactions()

    def _led(self, name: str, index: int) -> tuple[Partition, PartitionLog]:
        partition = self._broker.logs.partition(name, index)
        if partition is None:
            topic = self._broker.view.topic(name)
            if topic is None or not 0 <= index < topic.partition_count:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"this server does not host partition {name}-{index}",
                )
        elif partition.log is not None:
            return partition, partition.log
        elif partition.is_led:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name}-{index} could not be opened")
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {name}-{index}")

    def _validated(self, records: memoryview | None, partition: Partition) -> _Batches:
        if not records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch for the partition")
        max_message_bytes = partition.config.max_message_bytes
        if self._version < _FIRST_VERSION_WITH_BATCHES and _is_message_set(records):
            records = memoryview(convert_message_set(records, _CONVERSION_GROWTH * max_message_bytes))
        batches: _Batches = []
        position, end = 0, len(records)
        while position < end:
            header = validate_batch(records, position, end, max_message_bytes)
            self._check_batch(header, partition)
            following = position + header.size_bytes
            batches.append((records[position:following], header))
            position = following
        return batches

    def _check_batch(self, header: BatchHeader, partition: Partition) -> None:
        if header.is_transactional:
            raise _no_transactions()
        if self._version < _FIRST_VERSION_WITH_ZSTD and header.codec == Codec.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"zstd needs Produce v{_FIRST_VERSION_WITH_ZSTD} or later, this request is v{self._version}",
            )
        latest_ms = self._now_ms + partition.config.message_timestamp_after_max_ms
        if header.max_timestamp > latest_ms and not partition.rules.log_append_time:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms "
                f"({partition.config.message_timestamp_after_max_ms}) after the broker's time {self._now_ms}",
            )


def _is_message_set(records: memoryview) -> bool:
    return len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] < _MAGIC_WITH_BATCHES


def _no_transactions() -> KafkaError:
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "transactions are not supported: unset transactional.id (docs/skipped.md)",
    )
