"""Writes the markers of decided transactions into the partitions that this broker leads.

The decision puts a key for each partition (docs/format/transaction-record.md#markers). The leader sees it by a watch,
appends the marker like any batch, and deletes the key once the marker is committed.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.marker_record import MarkerRecord, decode_marker_record
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.transactions.marker_deletions import MarkerDeletion, MarkerDeletions
from kafscale.log.transactions.marker_keys import MarkerKeys, TopicPartition
from kafscale.log.transactions.marker_step import MarkerStep, next_step
from kafscale.log.transactions.verifications import Verifications
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataStore, read_many
from kafscale.ops.item_failures import ItemFailures
from kafscale.protocol.control_records import EndOfTransaction
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_RETRY_SEC: Final = 0.5


class Markers:
    """The markers of one broker. `verifications`: the questions that a marker ends. `now_ms`: Unix milliseconds."""

    def __init__(
        self,
        store: MetadataStore,
        logs: LogManager,
        now_ms: Callable[[], int],
        failures: ItemFailures,
        retry_sec: float = _RETRY_SEC,
    ) -> None:
        self.verifications = Verifications()
        self._store = store
        self._logs = logs
        self._now_ms = now_ms
        self._failures = failures
        self._retry_sec = retry_sec
        self._keys = MarkerKeys()
        self._deletions = MarkerDeletions(store, retry_sec)
        # Keys of these partitions and producers are being deleted.
        self._deleting: set[tuple[TopicPartition, int]] = set()
        self._handling = TaskOwner()
        self._again: set[Partition] = set()
        logs.subscribe_led(self.reconsider)

    # --- watching

    async def run(self) -> None:
        """Watch the markers' keys until cancelled."""
        while True:
            try:
                async with aclosing(self._store.watch(keys.PARTITION_MARKERS)) as events:
                    async for event in events:
                        for place in self._keys.apply(event):
                            partition = self._logs.partition(*place)
                            if partition is not None:
                                self.reconsider(partition)
            except StoreError as problem:
                logger.warning("the watch of markers broke, beginning it again: %s", problem)
            await asyncio.sleep(self._retry_sec)

    def reconsider(self, partition: Partition) -> None:
        """Handle the keys of a partition that is led here, soon."""
        if not self._keys.of(_place(partition)):
            return
        if partition in self._handling:
            self._again.add(partition)
            return
        self._again.discard(partition)
        task = self._handling.spawn(self._handle(partition), f"markers of {partition.id}", key=partition)
        task.add_done_callback(lambda _: self._handled(partition))

    def _handled(self, partition: Partition) -> None:
        if partition in self._again:
            # After the owner's own callback: there is a place for the next task by then.
            asyncio.get_running_loop().call_soon(self.reconsider, partition)

    def _consider_later(self, partition: Partition) -> None:
        asyncio.get_running_loop().call_later(self._retry_sec, self.reconsider, partition)

    # --- handling

    async def _handle(self, partition: Partition) -> None:
        try:
            log = await self._logs.open(partition)
            if log is None or not partition.is_led:
                return
            unconfirmed = [
                found
                for producer_id, found in list(self._keys.of(_place(partition)).items())
                if not self._take_step(partition, log, producer_id, found, is_read_back=False)
            ]
            most = self._store.max_operations
            for first in range(0, len(unconfirmed), most):
                await self._read_back(partition, log, unconfirmed[first : first + most])
        except StoreError as problem:
            logger.info(
                "could not look at markers, trying again later",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
            self._consider_later(partition)
        except CorruptDataError as problem:
            self._failures.report(partition.id, problem)
            self._consider_later(partition)

    async def _read_back(self, partition: Partition, log: PartitionLog, found: list[KeyValue]) -> None:
        stored = await read_many(self._store, [one.key for one in found])
        for one in found:
            producer_id = keys.marked_partition(one.key)[2]
            now = stored.get(one.key)
            if now is None or now.mod_revision != one.mod_revision:
                continue  # The watch will show it.
            if self._keys.get(_place(partition), producer_id) is one:
                self._take_step(partition, log, producer_id, one, is_read_back=True)

    def _take_step(
        self,
        partition: Partition,
        log: PartitionLog,
        producer_id: int,
        found: KeyValue,
        *,
        is_read_back: bool,
    ) -> bool:
        """Do what is to be done next with a key; False if it must be read back first."""
        place = _place(partition)
        if (place, producer_id) in self._deleting or partition.log is not log:
            return True
        if not partition.leadership.rights.appends:
            # It is being handed over, perhaps with all that it has: the next leader finds the key.
            return True
        try:
            marker = decode_marker_record(found.key, found.value)
        except CorruptDataError as problem:
            self._failures.report(f"{partition.id} of producer {producer_id}", problem)
            return True
        if marker.topic_id != partition.topic_id:
            return True  # Of an earlier topic of this name: the coordinator removes it.
        step = next_step(
            marker_epoch=marker.producer_epoch,
            revision=found.mod_revision,
            led_since_revision=partition.led_since_revision,
            is_read_back=is_read_back,
            is_in_flight=log.has_marker_in_flight(producer_id),
            open_epoch=log.producers.open_transactions.get(producer_id),
        )
        match step:
            case MarkerStep.READ_BACK:
                return False
            case MarkerStep.WAIT:
                pass  # `_Waiter` considers the partition again.
            case MarkerStep.APPEND:
                self._append(partition, _end(producer_id, marker, found.mod_revision), None)
            case MarkerStep.DELETE:
                self.verifications.invalidate(partition.number, producer_id)
                self._delete(partition, producer_id, found)
        return True

    def _append(
        self, partition: Partition, end: EndOfTransaction, answer: "asyncio.Future[None] | None"
    ) -> None:
        self.verifications.invalidate(partition.number, end.producer_id)
        waiter = _Waiter(lambda: self.reconsider(partition), answer)
        self._logs.append_marker(partition, end, self._now_ms(), waiter)

    def _delete(self, partition: Partition, producer_id: int, found: KeyValue) -> None:
        place = _place(partition)
        self._deleting.add((place, producer_id))

        def ended(is_gone: bool) -> None:
            self._deleting.discard((place, producer_id))
            led = self._logs.partition(*place)
            if is_gone:
                self._keys.handled(place, producer_id, found.mod_revision)
                if led is not None:
                    self.reconsider(led)  # The key may have been put again.
            elif led is not None:
                # Another broker leads, which this one will hear of; or this one leads again.
                self._consider_later(led)

        self._deletions.add(
            MarkerDeletion(
                key=found.key,
                revision=found.mod_revision,
                leader_key=keys.leader(*place),
                leader_revision=partition.led_since_revision,
                ended=ended,
            )
        )

    # --- for an operator

    async def end_transaction(self, partition: Partition, end: EndOfTransaction) -> None:
        """Append a marker that no decision asks for (`kafka-transactions.sh abort`); returns once it is committed.

        Where nothing is open, nothing is appended. Raises `KafkaError`: INVALID_PRODUCER_EPOCH for an epoch below
        that of the open transaction, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT if the outcome is not known.
        """
        log = await self._logs.open(partition)
        if log is None or not partition.leadership.rights.appends:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
        open_epoch = log.producers.open_transactions.get(end.producer_id)
        if open_epoch is None:
            return
        if end.producer_epoch < open_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {end.producer_epoch} of producer {end.producer_id} is below {open_epoch}",
            )
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._append(partition, end, answer)
        await answer

    async def close(self) -> None:
        """Cancel what is in progress: who leads next begins again with it."""
        await self._handling.close()
        await self._deletions.close()


class _Waiter:
    """Waits for a marker's commit: only then the key may go, which is seen when it is considered again."""

    def __init__(self, consider: Callable[[], None], answer: "asyncio.Future[None] | None") -> None:
        self._consider = consider
        self._answer = answer

    def published(self, base_offset: int, log_start_offset: int) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
        # After the log has taken note of all that was committed with it.
        asyncio.get_running_loop().call_soon(self._consider)

    def refused(self, error_code: int, message: str) -> None:
        # The log is closed: who leads next finds the key.
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(KafkaError(ErrorCode(error_code), message))


def _place(partition: Partition) -> TopicPartition:
    return partition.id.topic, partition.id.index


def _end(producer_id: int, marker: MarkerRecord, revision: int) -> EndOfTransaction:
    return EndOfTransaction(
        producer_id=producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        is_commit=marker.commit,
        decision=marker.decision_revision or revision,
    )
