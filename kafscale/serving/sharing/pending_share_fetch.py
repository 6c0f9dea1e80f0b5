"""A share fetch between its request and its reply: waits until there is something to acquire."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.context import Broker
from kafscale.serving.sharing.partition_read import SharedRead, partition_fetch, read_shared
from kafscale.serving.sharing.service import ShareService
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.partition.acquiring import AcquireMode, Wanted
from kafscale.share.sessions import SessionKey, SharedPartition
from kafscale.tasks.concurrently import for_each

PARTITION_MAX_BYTES: Final = 1024 * 1024
"""Of one partition in one answer, as `max.partition.fetch.bytes` has it by default."""


_FETCH_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Those that Kafka's share consumer knows; with any other one `poll` throws, and the consumer ends."""


def as_fetch_error(problem: KafkaError) -> KafkaError:
    """The error of a partition in an answer: one after which clients fetch again, where they do not know it."""
    if problem.code in _FETCH_ERRORS:
        return problem
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem.message)


@dataclass(frozen=True, slots=True)
class Asked:
    """The wishes of a share fetch; `partitions` in the order in which they are read."""

    key: SessionKey
    partitions: Sequence[SharedPartition]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode


@dataclass(slots=True)
class Fetched:
    """The news of each partition. The caller releases the reads."""

    reads: dict[SharedPartition, SharedRead] = field(default_factory=dict)
    errors: dict[SharedPartition, KafkaError] = field(default_factory=dict)

    def release(self) -> None:
        """The reads are not answered."""
        for one in self.reads.values():
            one.read.release()


class PendingShareFetch:
    """One fetch, as a task of its own runs it."""

    def __init__(
        self,
        broker: Broker,
        service: ShareService,
        asked: Asked,
        denied: Mapping[SharedPartition, KafkaError],
    ) -> None:
        self._broker = broker
        self._service = service
        self._asked = asked
        self._reads_committed = service.policy(asked.key.group_id).reads_committed
        self._changed = asyncio.Event()
        self._fetched = Fetched(errors=dict(denied))
        self._opened: dict[SharedPartition, tuple[Partition, LedSharePartition]] = {}

    def available(self) -> None:
        """One of the partitions may have something."""
        self._changed.set()

    async def run(self) -> Fetched:
        """Returns when the member has something, an error is to be answered, or its wait is over."""
        loop = asyncio.get_running_loop()
        deadline_sec = loop.time() + max(self._asked.max_wait_ms, 0) / 1000
        left = [
            one
            for one in self._asked.partitions
            if one not in self._fetched.errors and not self._is_open(one)
        ]
        if left:
            await for_each(left, self._open)
        try:
            while True:
                self._changed.clear()
                is_over = loop.time() >= deadline_sec
                if is_over or self._fetched.errors or self._has_enough():
                    await self._acquire()
                if is_over or self._fetched.errors or self._fetched.reads:
                    return self._fetched
                try:
                    async with asyncio.timeout_at(deadline_sec):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        except BaseException:
            self._fetched.release()
            raise
        finally:
            for _, led in self._opened.values():
                led.forget(self)

    def _is_open(self, place: SharedPartition) -> bool:
        """Listen to the partition if it is open, as nearly always; True also for one that is refused."""
        try:
            partition = self._service.led(place)
            led = self._service.open_now(self._asked.key.group_id, place, partition)
            if led is None:
                return False
            led.listen(self)
        except KafkaError as refusal:
            self._refuse(place, refusal)
        else:
            self._opened[place] = partition, led
        return True

    async def _open(self, place: SharedPartition) -> None:
        try:
            partition = self._service.led(place)
            led = await self._service.shared(self._asked.key.group_id, place, partition)
            led.listen(self)
            self._opened[place] = partition, led
        except KafkaError as refusal:
            self._refuse(place, refusal)

    def _refuse(self, place: SharedPartition, refusal: KafkaError) -> None:
        self._fetched.errors[place] = as_fetch_error(refusal)

    def _has_enough(self) -> bool:
        """True if there is as much to acquire as the member wants at least, by whole segments."""
        min_bytes = max(self._asked.min_bytes, 1)
        found = 0
        for partition, led in self._opened.values():
            if led.machine.can_acquire():
                offset = max(led.machine.next_fetch_offset(), partition.record.log_start_offset)
                fetch = partition_fetch(partition, offset, min_bytes, self._reads_committed)
                found += fetch.available_bytes(min_bytes)
                if found >= min_bytes:
                    return True
        return self._asked.min_bytes <= 0

    async def _acquire(self) -> None:
        """Read one partition after the other until the member has as much as it wants."""
        asked = self._asked
        left_records, left_bytes = (
            asked.max_records,
            min(asked.max_bytes, self._broker.settings.fetch_max_bytes),
        )
        for place, (partition, led) in self._opened.items():
            if left_records <= 0 or left_bytes <= 0:
                break
            wanted = Wanted(asked.key.member_id, left_records, asked.batch_size, asked.mode)
            max_bytes = min(left_bytes, PARTITION_MAX_BYTES)
            try:
                read = await read_shared(
                    self._broker, partition, led, wanted, max_bytes, reads_committed=self._reads_committed
                )
            except KafkaError as problem:
                self._refuse(place, problem)
                continue
            if read.acquired:
                self._fetched.reads[place] = read
                left_records -= sum(one.last - one.first + 1 for one in read.acquired)
                left_bytes -= read.read.size_bytes
