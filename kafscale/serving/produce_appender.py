"""Appends the batches of one produce request to the logs of their partitions, in the order of the request."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Final

from kafscale.cluster.leadership import TopicPartition
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_gap_guard import BEGINS_LATER, OUT_OF_TURN, SENT_AGAIN
from kafscale.log.writing.segment_buffer import AppendWaiter
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.keyed_records import KeylessRecordsError, check_keys
from kafscale.protocol.produce import ProduceRequest
from kafscale.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header
from kafscale.protocol.record_density import check_claim, claims_unlikely_count
from kafscale.security.access import Access
from kafscale.serving import store_deadline
from kafscale.serving.batch_checks import (
    FIRST_VERSION_WITH_BATCHES,
    check_request,
    check_room,
    checked_batch,
    is_message_set,
)
from kafscale.serving.batch_opener import opened_limit_bytes
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.partition_lookup import unknown_partition
from kafscale.serving.pending_produce import PartitionAppend, PendingProduce, Unanswered
from kafscale.serving.transaction_batches import (
    TransactionalBatch,
    begin,
    check_transactional,
    ended,
    needs_verification,
    verify,
)

_Unopened = tuple[str, memoryview, BatchHeader, Partition, PartitionAppend]
"""Topic, batch, its header, the partition, and where the outcome goes."""

_Unverified = tuple[memoryview, PartitionAppend, TransactionalBatch]
"""A batch, where the outcome goes, and the question about it."""

# The keys of so few bytes are looked at at once: another thread takes longer to begin.
_OPENED_AT_ONCE_BYTES: Final = 4096

_UNANSWERED = Unanswered()
_DENIED: Final = "Topic authorization failed."


class ProduceAppender:
    """One request between its decoding and its wait for the flushes."""

    def __init__(
        self, broker: Broker, request: RequestContext, produce: ProduceRequest, reply: Reply
    ) -> None:
        self._broker = broker
        self._version = request.api_version
        self._produce = produce
        self._reply = reply
        self._refused = False
        self._access = request.access if request.access.is_restricted else None
        self._unopened: list[_Unopened] = []
        self._unverified: list[_Unverified] = []
        self._may_use_id: bool | None = None
        self._now_ms = broker.now_ms()
        self._pending = PendingProduce(
            request,
            reply,
            self._now_ms + _wait_ms(produce),
            broker.view,
            broker.purgatory,
            broker.sequence_error_check,
            broker.metrics.produce_stages,
        )

    def append_all(self) -> Awaitable[None] | None:
        """Append every partition's batch. Those that are to be checked further are appended by the awaitable."""
        for name, partitions in self._produce.topics:
            appends = self._pending.topic(name, len(partitions))
            if self._access is not None and not self._may_write(self._access, name):
                self._deny(name, partitions, appends)
                continue
            for index, records in partitions:
                self._append(name, index, records, appends)
        if self._unopened or self._unverified:
            return self._append_waiting_and_finish()
        self._finish()
        return None

    async def append_with_pauses(self) -> None:
        """Append every partition's batch; other tasks run between the partitions."""
        for name, partitions in self._produce.topics:
            appends = self._pending.topic(name, len(partitions))
            if self._access is not None and not self._may_write(self._access, name):
                self._deny(name, partitions, appends)
                partitions = []
            if not partitions:
                await asyncio.sleep(0)
            for index, records in partitions:
                if self._version < FIRST_VERSION_WITH_BATCHES:
                    self._append(name, index, await self._converted(name, index, records), appends)
                else:
                    self._append(name, index, records, appends)
                await self._append_unopened()
                await asyncio.sleep(0)
        await self._append_unverified()
        self._finish()

    def _may_write(self, access: Access, topic: str) -> bool:
        return access.allows(Operation.WRITE, ResourceType.TOPIC, topic)

    def _may_use_transactional_id(self) -> bool:
        """Asked of the access rules once for a request."""
        if self._may_use_id is None:
            transactional_id = self._produce.transactional_id
            self._may_use_id = (
                self._access is None
                or transactional_id is None
                or self._access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            )
        return self._may_use_id

    def _deny(
        self,
        name: str,
        partitions: Iterable[tuple[int, memoryview | None]],
        appends: list[PartitionAppend],
    ) -> None:
        for index, _ in partitions:
            append = PartitionAppend(self._pending, index)
            appends.append(append)
            self._refuse(name, append, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _DENIED))

    async def _append_waiting_and_finish(self) -> None:
        await self._append_unopened()
        await self._append_unverified()
        self._finish()

    async def _append_unopened(self) -> None:
        """Look into the batches that `_append` put aside, and append those that hold what they should."""
        unopened, self._unopened = self._unopened, []
        for name, batch, header, before, append in unopened:
            max_message_bytes, opener = before.config.max_message_bytes, self._broker.batch_opener
            try:
                if before.rules.requires_keys:
                    await opener.check_keys(batch, header, max_message_bytes)
                else:
                    await opener.count(batch, header, max_message_bytes)
                partition, log = self._led(name, append.partition)
                check_room(log, header)
            except KafkaError as refusal:
                self._refuse_batch(name, append, refusal, batch)
            else:
                self._verify_and_append(name, log, partition, batch, header, append)

    def _verify_and_append(
        self,
        name: str,
        log: PartitionLog,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        append: PartitionAppend,
    ) -> None:
        """Append the batch, or put it aside if it begins a transaction in the partition."""
        if header.is_transactional and needs_verification(log, header):
            # The request's body may be gone by then.
            copy = memoryview(bytes(batch))
            question = begin(self._broker.markers.verifications, (name, append.partition), header, partition)
            self._unverified.append((copy, append, question))
        else:
            self._append_to(log, partition, batch, header, append)

    async def _append_unverified(self) -> None:
        """Ask for the transactions that begin here, and append the batches that belong to them."""
        unverified, self._unverified = self._unverified, []
        if not unverified:
            return
        verifications, transactional_id = self._broker.markers.verifications, self._produce.transactional_id
        assert transactional_id is not None, "a transactional batch without an id is refused before"
        questions = [question for _, _, question in unverified]
        try:
            await verify(
                self._broker.participation, verifications, transactional_id, self._version, questions
            )
        except BaseException:
            for question in questions:
                verifications.end(question.verification)
            raise
        for batch, append, question in unverified:
            name, header = question.place[0], question.header
            try:
                ended(verifications, question)
                partition, log = self._led(*question.place)
                if partition is not question.partition:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader has changed")
                check_room(log, header)
            except KafkaError as refusal:
                self._refuse_batch(name, append, refusal, batch)
            else:
                self._append_to(log, partition, batch, header, append)

    async def _converted(
        self, name: str, index: int, records: memoryview | None
    ) -> memoryview | KafkaError | None:
        """The batch in place of a message set, or its refusal."""
        partition = self._broker.logs.partition(name, index)
        if partition is None or not records or not is_message_set(records):
            return records
        try:
            return await self._broker.batch_opener.convert(records, partition.config.max_message_bytes)
        except KafkaError as refusal:
            # Without its traceback, which refers to the request's bytes.
            return KafkaError(refusal.code, refusal.message)

    def _finish(self) -> None:
        if self._produce.acks:
            self._pending.all_appended()
        elif self._refused:
            # As in Kafka: the end of its connection shows the client its mistake, such as a stale leader.
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
            check_request(self._produce)
            partition, log = self._led(name, index)
            batch, header = checked_batch(records, partition, self._version, self._now_ms)
            if header.is_transactional:
                check_transactional(header, self._produce.transactional_id, self._may_use_transactional_id())
            check_room(log, header)
            if self._must_be_opened(partition, batch, header):
                # The request's body may be gone by then.
                copy = memoryview(bytes(batch))
                self._unopened.append((name, copy, header, partition, append))
                return
        except KafkaError as refusal:
            self._refuse_batch(name, append, refusal, records)
            return
        self._verify_and_append(name, log, partition, batch, header, append)

    def _must_be_opened(self, partition: Partition, batch: memoryview, header: BatchHeader) -> bool:
        """True if a thread is to look into the batch. Raises `KafkaError` for what is wrong at first sight."""
        max_message_bytes = partition.config.max_message_bytes
        if claims_unlikely_count(header):
            check_claim(header, opened_limit_bytes(max_message_bytes))
            return True
        if not partition.rules.requires_keys:
            return False
        if header.codec is not Codec.NONE or header.size_bytes > _OPENED_AT_ONCE_BYTES:
            return True
        check_keys(batch, header, opened_limit_bytes(max_message_bytes))
        return False

    def _append_to(
        self,
        log: PartitionLog,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        append: PartitionAppend,
    ) -> None:
        if self._produce.acks and (header.base_sequence > 0 or self._broker.gap_guard):
            refusal = self._out_of_turn(partition, log, header)
            if refusal:
                append.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, refusal)
                return
        append.led = partition
        if partition.rules.log_append_time:
            append.log_append_time_ms = self._now_ms
        waiter: AppendWaiter = append if self._produce.acks else _UNANSWERED
        append.flush = self._broker.logs.append(partition, batch, header, self._now_ms, waiter)

    def _out_of_turn(self, partition: Partition, log: PartitionLog, header: BatchHeader) -> str:
        """Why an idempotent producer should send earlier batches first; empty if the log decides."""
        guard, place = self._broker.gap_guard, (partition.id.topic, partition.id.index)
        if guard and guard.refuses(place, header, log.producers):
            return OUT_OF_TURN
        if header.producer_id in log.producers or not guard.refuses_beginning(place, header):
            return ""
        return BEGINS_LATER

    def _refuse_batch(
        self, name: str, append: PartitionAppend, refusal: KafkaError, records: memoryview | KafkaError | None
    ) -> None:
        if refusal.code in SENT_AGAIN and self._produce.acks:
            self._remember_refused((name, append.partition), records)
        self._refuse(name, append, refusal)

    def _remember_refused(self, partition: TopicPartition, records: memoryview | KafkaError | None) -> None:
        if self._version < FIRST_VERSION_WITH_BATCHES:
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
        elif isinstance(refusal, KeylessRecordsError):
            append.refused(code, *_keyless(name, append.partition, refusal))
        else:
            append.refused(code, message)

    def _led(self, name: str, index: int) -> tuple[Partition, PartitionLog]:
        partition = self._broker.logs.partition(name, index)
        if partition is None:
            topic = self._broker.view.topic(name)
            if topic is None or not 0 <= index < topic.partition_count:
                raise unknown_partition()
        elif partition.is_led:
            if self._broker.object_store_health.refuses_produce:
                # Appended now it would only wait, in memory that records need that can be stored.
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


def _keyless(topic: str, index: int, refusal: KeylessRecordsError) -> tuple[str, list[tuple[int, str]]]:
    """Kafka's words for records without a key: of all of them, and of each."""
    text = f"Compacted topic cannot accept message without key in topic partition {topic}-{index}."
    shown = ", ".join(f"RecordError(batchIndex={place}, message='{text}')" for place in refusal.indexes[:3])
    message = (
        f"One or more records have been rejected due to {refusal.count} record errors in total, and only showing "
        f"the first three errors at most: [{shown}]"
    )
    return message, [(place, text) for place in refusal.indexes]


def _wait_ms(produce: ProduceRequest) -> int:
    """The time that the request waits for its records to be published.

    In Kafka the timeout bounds the wait for other replicas, which acks=1 does not have: it is answered once the
    records are in the leader's log. Here that takes a flush, whatever the timeout.
    """
    least_ms = int(store_deadline.STORE_DEADLINE_SEC * 1000) if produce.acks == 1 else 0
    return max(least_ms, produce.timeout_ms)
