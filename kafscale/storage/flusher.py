"""When and how the buffers of all partitions become segments: one flush at a time for each, many at once."""

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from kafscale.ops.metrics import FlushOutcome, Metrics
from kafscale.protocol.error_codes import ErrorCode
from kafscale.storage.memory_budget import MemoryBudget
from kafscale.storage.partition import Partition
from kafscale.storage.publisher import FencedError, Publisher
from kafscale.storage.segment_buffer import SegmentBuffer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """When a buffer is due: at its topic's segment size or at this age; 0 means as soon as nothing is in flight.

    While the memory budget has no room every buffer is due.
    """

    interval_ms: int
    concurrency: int


class Flusher:
    """Runs flushes. A partition without buffered records costs nothing here."""

    def __init__(
        self,
        publisher: Publisher,
        policy: FlushPolicy,
        budget: MemoryBudget,
        now_ms: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        self._publisher = publisher
        self._policy = policy
        self._budget = budget
        self._now_ms = now_ms
        self._metrics = metrics
        self._slots = asyncio.Semaphore(policy.concurrency)
        self._due: list[tuple[int, int, Partition]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._draining = False
        self.on_lost: Callable[[Partition], None] = lambda partition: None
        budget.on_shortage = self._flush_scheduled

    def appended(self, partition: Partition) -> None:
        """Something was appended: flush now, or see to it that a flush comes in time."""
        if partition.flush_task is not None:
            return
        log = partition.log
        # A flush that was ended half way cannot be gone on with: its partition is about to be given up.
        buffer = log.waiting if log is not None and not log.is_being_flushed else None
        if buffer is None:
            return
        if self._is_due(partition, buffer):
            self._start(partition)
        elif not partition.flush_scheduled:
            self._schedule(partition, buffer.first_append_ms + self._policy.interval_ms)

    def _is_due(self, partition: Partition, buffer: SegmentBuffer) -> bool:
        return (
            self._draining
            or not partition.is_led
            or not self._budget.has_room
            or buffer.size_bytes >= partition.rules.segment_bytes
            or self._has_come(buffer.first_append_ms + self._policy.interval_ms)
        )

    def _has_come(self, due_ms: int) -> bool:
        """Whether the time is over; also when the clock was set back, so that nothing waits until it is again."""
        return not 0 < due_ms - self._now_ms() <= self._policy.interval_ms

    def _schedule(self, partition: Partition, due_ms: int) -> None:
        partition.flush_scheduled = True
        self._sequence += 1
        heapq.heappush(self._due, (due_ms, self._sequence, partition))
        if self._due[0][2] is partition:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = min(max(0, self._due[0][0] - self._now_ms()), self._policy.interval_ms)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        while self._due and self._has_come(self._due[0][0]):
            partition = heapq.heappop(self._due)[2]
            partition.flush_scheduled = False
            self.appended(partition)
        if self._due and self._timer is None:
            self._arm()

    def _start(self, partition: Partition) -> None:
        partition.flush_task = asyncio.create_task(self._run(partition), name=f"flush {partition.id}")

    async def _run(self, partition: Partition) -> None:
        try:
            while partition.log is not None and partition.log.waiting is not None:
                if not self._is_due(partition, partition.log.waiting):
                    break
                async with self._slots:
                    await self._flush(partition)
        except FencedError as fenced:
            logger.warning(
                "lost the leadership of a partition",
                extra={"partition": str(partition.id), "why": str(fenced)},
            )
            self.abandon(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads this partition")
        except Exception:
            # A defect, after which nobody knows what the last attempt left behind: the next epoch starts from
            # what is published, and skips what is not.
            logger.exception("could not flush a partition", extra={"partition": str(partition.id)})
            self.abandon(partition, ErrorCode.KAFKA_STORAGE_ERROR, "the records could not be stored")
        finally:
            partition.flush_task = None
        self.appended(partition)

    async def _flush(self, partition: Partition) -> None:
        log = partition.log
        buffer = log.waiting if log is not None else None
        if log is None or buffer is None:
            return
        log_end_offset = log.record.log_end_offset
        started = time.perf_counter()
        outcome = FlushOutcome.FAILED
        size_bytes = 0
        try:
            await self._publisher.flush(partition, log)
            outcome, size_bytes = FlushOutcome.PUBLISHED, buffer.size_bytes
        except FencedError:
            outcome = FlushOutcome.FENCED
            raise
        finally:
            self._metrics.flushes.observe(size_bytes, time.perf_counter() - started, outcome)
            if log.record.log_end_offset > log_end_offset:
                self._budget.release(buffer.charged_bytes)

    def abandon(self, partition: Partition, error_code: ErrorCode, message: str) -> None:
        """Refuse what waits in the partition and stop leading it; `on_lost` is told."""
        partition.is_led = False
        self._close_log(partition, error_code, message)
        self.on_lost(partition)
        partition.notify_closed()

    def _close_log(self, partition: Partition, error_code: ErrorCode, message: str) -> None:
        log, partition.log = partition.log, None
        if log is not None:
            for buffer in log.fail(error_code, message):
                self._budget.release(buffer.charged_bytes)

    async def drained(self, partition: Partition, timeout_sec: float) -> bool:
        """Publish what was appended to a partition that is not led any more; False when the time is over."""
        try:
            async with asyncio.timeout(timeout_sec):
                while True:
                    self.appended(partition)
                    if partition.flush_task is None:
                        return True
                    await asyncio.wait([partition.flush_task])
        except TimeoutError:
            return False

    async def settle(self, partition: Partition, timeout_sec: float) -> None:
        """Wait for the flush that is under way; end it when it takes longer than `timeout_sec`."""
        task = partition.flush_task
        if task is not None:
            await asyncio.wait([task], timeout=timeout_sec)
            task.cancel()
            await asyncio.wait([task])

    def drain(self) -> None:
        """From now on every buffer is due at once: the broker is stopping."""
        self._draining = True
        self._flush_scheduled()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush_scheduled(self) -> None:
        """Flush what waits for its time."""
        scheduled, self._due = self._due, []
        for _, _, partition in scheduled:
            partition.flush_scheduled = False
            self.appended(partition)
