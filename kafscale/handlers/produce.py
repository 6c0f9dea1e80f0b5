"""Produce (API 0): append in the order of arrival, reply when everything is published.

v0-2 carry message sets of magic 0 or 1, which are converted. v3: record batches (KIP-98), transactional id.
v7: zstd (KIP-110). v8: error messages (KIP-467). v9: flexible. acks=1 waits like acks=all: there is one
kind of acknowledgement. Several batches of one partition get consecutive offsets.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress

from kafscale.handlers.context import Broker, Reply, RequestContext
from kafscale.handlers.first_batches import OUT_OF_TURN, SENT_AGAIN
from kafscale.handlers.leader_changes import MAX_WAIT_SEC
from kafscale.handlers.partition_lookup import unknown_partition
from kafscale.handlers.pending_produce import PartitionAppend, PendingProduce, Unanswered
from kafscale.handlers.store_deadline import store_deadline
from kafscale.metadata.leadership import TopicPartition
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.produce import ProduceRequest, decode_produce_request
from kafscale.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header, validate_batch
from kafscale.storage.partition import Partition
from kafscale.storage.partition_log import PartitionLog
from kafscale.storage.segment_buffer import AppendWaiter

logger = logging.getLogger(__name__)

# A body above this, or with more partitions, is appended with pauses in which other connections are served.
LARGE_BODY_BYTES = 1024 * 1024
LARGE_PARTITION_COUNT = 1000

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
        and not broker.object_store_health.refuses_produce
        and broker.logs.open_now(partition) is None
    ]
    claimed = _claimed(broker, produce) if broker.logs.claims.are_any else []
    many = sum(len(partitions) for _, partitions in produce.topics) > LARGE_PARTITION_COUNT
    if unopened or claimed or many or request.api_version < _FIRST_VERSION_WITH_BATCHES:
        return _copy_and_handle(broker, request, bytes(body), reply, unopened, claimed)
    appender = _Appender(broker, request, produce, reply)
    if len(body) > LARGE_BODY_BYTES:
        return appender.append_with_pauses()
    appender.append_all()
    return None


async def _open(broker: Broker, partition: Partition) -> None:
    async with store_deadline():
        await broker.logs.open(partition)


def _claimed(broker: Broker, produce: ProduceRequest) -> list[TopicPartition]:
    return [
        (name, index)
        for name, partitions in produce.topics
        for index, _ in partitions
        if (name, index) in broker.logs.claims
    ]


async def _wait_for_claims(broker: Broker, claimed: list[TopicPartition]) -> list[Partition]:
    """Wait, for a moment, for what this broker is claiming: its clients may know already that it leads.

    Returns what it leads by then.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_WAIT_SEC):
            for item in claimed:
                await broker.logs.claims.ended(item)
    found = (broker.logs.partition(topic, index) for topic, index in claimed)
    return [partition for partition in found if partition is not None]


async def _copy_and_handle(
    broker: Broker,
    request: RequestContext,
    body: bytes,
    reply: Reply,
    unopened: list[Partition],
    claimed: list[TopicPartition],
) -> None:
    if claimed:
        unopened += await _wait_for_claims(broker, claimed)
    opened = await asyncio.gather(
        *(_open(broker, partition) for partition in unopened), return_exceptions=True
    )
    for partition, problem in zip(unopened, opened, strict=True):
        if isinstance(problem, BaseException):
            # Its log is left closed: the partition is refused below, and the next request tries again.
            logger.warning(
                "could not open a log", extra={"partition": str(partition.id), "problem": str(problem)}
            )
    produce = decode_produce_request(memoryview(body), request.api_version)
    await _Appender(broker, request, produce, reply).append_with_pauses()


class _Appender:
    """One request on its way into the logs."""

    def __init__(
        self, broker: Broker, request: RequestContext, produce: ProduceRequest, reply: Reply
    ) -> None:
        self._broker = broker
        self._version = request.api_version
        self._produce = produce
        self._reply = reply
        self._refused = False
        self._now_ms = broker.now_ms()
        self._pending = PendingProduce(
            request.api_version,
            request.correlation_id,
            reply,
            self._now_ms + max(0, produce.timeout_ms),
            broker.purgatory,
            broker.sequence_refusals,
            broker.first_batches,
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
                if self._version < _FIRST_VERSION_WITH_BATCHES:
                    self._append(name, index, await self._converted(name, index, records), appends)
                else:
                    self._append(name, index, records, appends)
                await asyncio.sleep(0)
        self._finish()

    async def _converted(
        self, name: str, index: int, records: memoryview | None
    ) -> memoryview | KafkaError | None:
        """Batches in place of a message set, or what is wrong with it. In a thread: it is opened and read."""
        partition = self._broker.logs.partition(name, index)
        if partition is None or not records or not _is_message_set(records):
            return records
        limit_bytes = _CONVERSION_GROWTH * partition.config.max_message_bytes
        try:
            return memoryview(await asyncio.to_thread(convert_message_set, records, limit_bytes))
        except KafkaError as refusal:
            return refusal

    def _finish(self) -> None:
        if self._produce.acks:
            self._pending.all_appended()
        elif self._refused:
            # As Kafka: the client learns of its mistake, a stale leader for one, by the end of its connection.
            self._reply.end_connection()
        else:
            self._reply.drop()

    def _append(
        self,
        name: str,
        index: int,
        records: memoryview | KafkaError | None,
        appends: list[PartitionAppend],
    ) -> None:
        append = PartitionAppend(self._pending, index)
        appends.append(append)
        try:
            self._check_request()
            partition, log = self._led(name, index)
            batches = self._validated(records, partition)
        except KafkaError as refusal:
            if refusal.code in SENT_AGAIN and self._produce.acks:
                self._remember_first((name, index), records)
            self._refuse(name, append, refusal)
            return
        first = batches[0][1]
        if first.producer_id >= 0 and self._produce.acks and not log.producers.knows(first.producer_id):
            # Rare: every producer's first batch in a log, and what comes too early.
            if self._broker.first_batches.refuses((name, index), first):
                append.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, OUT_OF_TURN)
                return
            self._broker.first_batches.came((name, index), first)
            append.first = ((name, index), first.producer_id)
        append.led = partition
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

    def _remember_first(self, partition: TopicPartition, records: memoryview | KafkaError | None) -> None:
        if self._version < _FIRST_VERSION_WITH_BATCHES:
            return  # without sequence numbers
        if isinstance(records, memoryview) and len(records) >= HEADER_SIZE:
            header = read_header(records, 0)
            if header.producer_id >= 0:
                self._broker.first_batches.came(partition, header)

    def _refuse(self, name: str, append: PartitionAppend, refusal: KafkaError) -> None:
        self._refused = True
        code, message = refusal.code, refusal.message
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._produce.acks:
            self._broker.leader_changes.when_known(
                name, append.partition, lambda: append.refused(code, message)
            )
        else:
            append.refused(code, message)

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
                raise unknown_partition()
        elif partition.is_led:
            if self._broker.object_store_health.refuses_produce:
                # Appended now it would only wait, in memory that is better kept for what can be stored later.
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    "the object store takes no writes at the moment (decision 0014)",
                )
            if partition.log is None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the partition's log could not be opened")
            if partition.log.is_held_up:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    "the partition takes nothing until a checkpoint of it is stored (decision 0044)",
                )
            return partition, partition.log
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")

    def _validated(self, records: memoryview | KafkaError | None, partition: Partition) -> _Batches:
        if isinstance(records, KafkaError):
            raise records
        if not records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch for the partition")
        max_message_bytes = partition.config.max_message_bytes
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
