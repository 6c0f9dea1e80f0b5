"""Produce (API 0): append in the order of arrival, reply when everything is published.

v0-2 carry message sets of magic 0 or 1, which are converted. v3: record batches (KIP-98), transactional id.
v7: zstd (KIP-110). v8: error messages (KIP-467). v9: flexible. acks=1 waits like acks=all, since there is one
kind of acknowledgement, but not by the request's timeout. A partition gets one batch by a request (decision 0041).
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress

from kafscale.cluster.leadership import TopicPartition
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_gap_guard import OUT_OF_TURN, SENT_AGAIN
from kafscale.log.producer_state import MOST_PRODUCERS
from kafscale.log.writing.segment_buffer import AppendWaiter
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.produce import ProduceRequest, decode_produce_request
from kafscale.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header, validate_batch
from kafscale.protocol.record_density import check_claim, claims_unlikely_count
from kafscale.serving import store_deadline
from kafscale.serving.batch_opener import opened_limit_bytes
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.lasting_body import LASTING_BODY_BYTES, lasting
from kafscale.serving.leader_changes import MAX_WAIT_SEC
from kafscale.serving.partition_lookup import unknown_partition
from kafscale.serving.pending_produce import PartitionAppend, PendingProduce, Unanswered

logger = logging.getLogger(__name__)

_Uncounted = tuple[str, memoryview, BatchHeader, int, PartitionAppend]
"""Topic, batch, its header, the topic's max.message.bytes, and where the outcome goes."""

# A body with more partitions, or above `LASTING_BODY_BYTES`, is appended with pauses in which others are served.
LARGE_PARTITION_COUNT = 1000

_FIRST_VERSION_WITH_BATCHES = 3
_FIRST_VERSION_WITH_ZSTD = 7
_MAGIC_POSITION = 16
_MAGIC_WITH_BATCHES = 2
_LEGAL_ACKS = (-1, 0, 1)
_UNANSWERED = Unanswered()


def handle(broker: Broker, request: RequestContext, body: memoryview, reply: Reply) -> Awaitable[None] | None:
    """Append everything that `body` carries; the reply goes to `reply` when it is published.

    What is returned must be awaited before the connection's next request is looked at. A body larger than
    `LASTING_BODY_BYTES` must stay as it is until then, a smaller one only during the call.
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
        held = memoryview(lasting(body))
        return _open_and_handle(broker, request, held, reply, unopened, claimed)
    appender = _Appender(broker, request, produce, reply)
    if len(body) > LASTING_BODY_BYTES:
        return appender.append_with_pauses()
    return appender.append_all()


async def _open(broker: Broker, partition: Partition) -> None:
    async with store_deadline.store_deadline():
        await broker.logs.open(partition)


def _claimed(broker: Broker, produce: ProduceRequest) -> list[TopicPartition]:
    return list(
        dict.fromkeys(
            (name, index)
            for name, partitions in produce.topics
            for index, _ in partitions
            if (name, index) in broker.logs.claims
        )
    )


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


async def _open_and_handle(
    broker: Broker,
    request: RequestContext,
    body: memoryview,
    reply: Reply,
    unopened: list[Partition],
    claimed: list[TopicPartition],
) -> None:
    if claimed:
        unopened = [*unopened, *await _wait_for_claims(broker, claimed)]
    unopened = list(dict.fromkeys(unopened))
    opened = await asyncio.gather(
        *(_open(broker, partition) for partition in unopened), return_exceptions=True
    )
    for partition, problem in zip(unopened, opened, strict=True):
        if isinstance(problem, BaseException):
            # Its log is left closed: the partition is refused below, and the next request tries again.
            logger.warning(
                "could not open a log", extra={"partition": str(partition.id), "problem": str(problem)}
            )
    produce = decode_produce_request(body, request.api_version)
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
        self._uncounted: list[_Uncounted] = []
        self._now_ms = broker.now_ms()
        self._pending = PendingProduce(
            request.api_version,
            request.correlation_id,
            reply,
            self._now_ms + _wait_ms(produce),
            broker.purgatory,
            broker.sequence_refusals,
        )

    def append_all(self) -> Awaitable[None] | None:
        """Append every partition's batch, but for those whose records are to be counted: what is returned does."""
        for name, partitions in self._produce.topics:
            appends = self._pending.topic(name, len(partitions))
            for index, records in partitions:
                self._append(name, index, records, appends)
        if self._uncounted:
            return self._count_and_finish()
        self._finish()
        return None

    async def append_with_pauses(self) -> None:
        """Append every partition's batch, letting others run between the partitions."""
        for name, partitions in self._produce.topics:
            appends = self._pending.topic(name, len(partitions))
            for index, records in partitions:
                if self._version < _FIRST_VERSION_WITH_BATCHES:
                    self._append(name, index, await self._converted(name, index, records), appends)
                else:
                    self._append(name, index, records, appends)
                await self._append_uncounted()
                await asyncio.sleep(0)
        self._finish()

    async def _count_and_finish(self) -> None:
        await self._append_uncounted()
        self._finish()

    async def _append_uncounted(self) -> None:
        """Count the records of what `_append` has put aside, and append what holds as many as it claims."""
        uncounted, self._uncounted = self._uncounted, []
        for name, batch, header, max_message_bytes, append in uncounted:
            try:
                await self._broker.batch_opener.count(batch, header, max_message_bytes)
                partition, log = self._led(name, append.partition)
                _check_room(log, header)
            except KafkaError as refusal:
                self._refuse_batch(name, append, refusal, batch)
            else:
                self._append_to(log, partition, batch, header, append)

    async def _converted(
        self, name: str, index: int, records: memoryview | None
    ) -> memoryview | KafkaError | None:
        """The batch in place of a message set, or what is wrong with it."""
        partition = self._broker.logs.partition(name, index)
        if partition is None or not records or not _is_message_set(records):
            return records
        try:
            return await self._broker.batch_opener.convert(records, partition.config.max_message_bytes)
        except KafkaError as refusal:
            # Without what it was raised with: that refers to the request's bytes.
            return KafkaError(refusal.code, refusal.message)

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
            batch, header = self._validated(records, partition)
            _check_room(log, header)
            if claims_unlikely_count(header):
                max_message_bytes = partition.config.max_message_bytes
                check_claim(header, opened_limit_bytes(max_message_bytes))
                # The request's body may be gone when it is counted.
                copy = memoryview(bytes(batch))
                self._uncounted.append((name, copy, header, max_message_bytes, append))
                return
        except KafkaError as refusal:
            self._refuse_batch(name, append, refusal, records)
            return
        self._append_to(log, partition, batch, header, append)

    def _append_to(
        self,
        log: PartitionLog,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        append: PartitionAppend,
    ) -> None:
        guard = self._broker.gap_guard
        if guard and self._produce.acks:
            place = (partition.id.topic, partition.id.index)
            if guard.refuses(place, header, log.producers):
                append.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, OUT_OF_TURN)
                return
        append.led = partition
        if partition.rules.log_append_time:
            append.log_append_time_ms = self._now_ms
        waiter: AppendWaiter = append if self._produce.acks else _UNANSWERED
        logs = self._broker.logs
        grown = log.append(batch, header, partition.rules, self._now_ms, logs.pool, waiter)
        if grown:
            logs.budget.charge(grown)
            logs.flusher.appended(partition)
            counters = self._broker.metrics.topic(partition.id.topic)
            counters.bytes_in += len(batch)
            counters.records_in += header.record_count
            counters.batches_in += 1

    def _refuse_batch(
        self, name: str, append: PartitionAppend, refusal: KafkaError, records: memoryview | KafkaError | None
    ) -> None:
        if refusal.code in SENT_AGAIN and self._produce.acks:
            self._remember_refused((name, append.partition), records)
        self._refuse(name, append, refusal)

    def _remember_refused(self, partition: TopicPartition, records: memoryview | KafkaError | None) -> None:
        if self._version < _FIRST_VERSION_WITH_BATCHES:
            return  # without sequence numbers
        if isinstance(records, memoryview) and len(records) >= HEADER_SIZE:
            header = read_header(records, 0)
            if header.producer_id >= 0:
                self._broker.gap_guard.refused_on_arrival(partition, header)

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
            log = partition.log if partition.leadership.rights.appends else None
            if log is None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the partition's log could not be opened")
            if log.is_held_up:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    "the partition takes nothing until a checkpoint of it is stored (decision 0044)",
                )
            return partition, log
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")

    def _validated(
        self, records: memoryview | KafkaError | None, partition: Partition
    ) -> tuple[memoryview, BatchHeader]:
        if isinstance(records, KafkaError):
            # Another one: raised itself, it would refer to this frame, which refers to it, and both to the request.
            raise KafkaError(records.code, records.message)
        if not records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch for the partition")
        header = validate_batch(records, 0, len(records), partition.config.max_message_bytes)
        self._check_batch(header, partition)
        return records, header

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


def _wait_ms(produce: ProduceRequest) -> int:
    """How long the request waits for its records to be published.

    In Kafka the timeout bounds the wait for other replicas, which acks=1 does not know: it is answered once the
    records are in the log. Here that takes a flush, whatever the timeout.
    """
    least_ms = int(store_deadline.STORE_DEADLINE_SEC * 1000) if produce.acks == 1 else 0
    return max(least_ms, produce.timeout_ms)


def _is_message_set(records: memoryview) -> bool:
    return len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] < _MAGIC_WITH_BATCHES


def _check_room(log: PartitionLog, header: BatchHeader) -> None:
    if header.producer_id >= 0 and log.producers.has_no_room_for(header.producer_id):
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{MOST_PRODUCERS} idempotent producers wait for their records to be stored in the partition",
        )


def _no_transactions() -> KafkaError:
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "transactions are not supported: unset transactional.id (docs/skipped.md)",
    )
