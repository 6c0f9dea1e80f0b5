"""Turns the buffers of all partitions into segments: a few at a time for each, published in their order."""

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice

from kafscale.log.leadership.events import Event
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_gap_guard import ProducerGapGuard
from kafscale.log.writing.early_flushes import PAUSE_SEC, EarlyFlushes, is_stream
from kafscale.log.writing.publisher import FencedError, KeyTakenError, Publisher
from kafscale.log.writing.segment_buffer import SegmentBuffer
from kafscale.log.writing.uploads import Upload
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.ops.metrics import FlushOutcome, Metrics
from kafscale.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

MOST_TASKS = 4
"""Flush tasks of one partition: those that publish, and those that wait for the index of what they published."""
_LOOKS_AT_ONCE = 100
"""Streams that are checked in one turn of the event loop."""


MakeRoom = Callable[[Partition, PartitionLog], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """When a buffer is due: at its topic's segment size or at this age; 0 means at once.

    It is taken then unless two of its partition are in flight. While the memory budget has no room, all are due.
    While fewer than `early` flushes are in progress, one that is not due may be taken too (`early_flushes`).
    """

    interval_ms: int
    concurrency: int
    early: int = 0


class Flusher:
    """Runs flushes. A partition without buffered records costs nothing here.

    `make_room` is awaited before a flush whose partition's record has none: see `PartitionLog.has_room`.
    """

    def __init__(
        self,
        publisher: Publisher,
        policy: FlushPolicy,
        budget: MemoryBudget,
        now_ms: Callable[[], int],
        metrics: Metrics,
        gap_guard: ProducerGapGuard,
        make_room: MakeRoom,
    ) -> None:
        self._gap_guard = gap_guard
        self._publisher = publisher
        self._make_room = make_room
        self._policy = policy
        self._budget = budget
        self._now_ms = now_ms
        self._metrics = metrics
        self._slots = asyncio.Semaphore(policy.concurrency)
        self._due: list[tuple[int, int, Partition]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight: set[asyncio.Task[None]] = set()
        self._early = EarlyFlushes(policy.early, time.monotonic())
        # The partitions whose early flush is next, and streams with the buffer's size at the last check.
        self._early_waiting: dict[Partition, None] = {}
        self._gathering: dict[Partition, int] = {}
        self._early_timer: asyncio.TimerHandle | None = None
        self._draining = False
        self._listeners: list[Callable[[Partition, Event], None]] = []
        budget.subscribe_shortage(self._flush_scheduled)

    def subscribe(self, listener: Callable[[Partition, Event], None]) -> None:
        """Call `listener` with what the outcome of a flush means for the partition's leadership."""
        self._listeners.append(listener)

    def _report(self, partition: Partition, event: Event) -> None:
        for listener in self._listeners:
            listener(partition, event)

    def appended(self, partition: Partition) -> None:
        """Begin or schedule a flush, after something was appended."""
        log = partition.log
        if log is None or not _may_begin(partition, log):
            return
        buffer = log.waiting
        if buffer is None:
            return
        if self._is_due(partition, buffer) or (
            self._early.are_allowed and self._may_be_early(partition, buffer)
        ):
            self._start(partition, log)
        elif not partition.flush_scheduled:
            self._schedule(partition, buffer.first_append_ms + self._policy.interval_ms)

    def _is_due(self, partition: Partition, buffer: SegmentBuffer) -> bool:
        return (
            self._draining
            or not partition.is_led
            or not self._budget.has_room
            or buffer.size_bytes >= partition.rules.segment_bytes
            or buffer.is_full
            or self._has_come(buffer.first_append_ms + self._policy.interval_ms)
        )

    def _has_come(self, due_ms: int) -> bool:
        """True if the time is over, or the clock was set back: nothing waits until it has caught up."""
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

    def _may_be_early(self, partition: Partition, buffer: SegmentBuffer) -> bool:
        """True if the buffer may be flushed early, now; if not, its partition is flushed as soon as it may be."""
        if is_stream(partition, buffer):
            self._early_waiting.pop(partition, None)
            self._gathering.setdefault(partition, 0)
            self._look_after(PAUSE_SEC)
            return False
        if self._early_waiting or not self._takes_early(buffer):
            self._early_waiting[partition] = None
            return False
        return True

    def _takes_early(self, buffer: SegmentBuffer) -> bool:
        if not self._early.have_place(len(self._in_flight)):
            return False
        wait_sec = self._early.wait_sec(time.monotonic())
        if wait_sec:
            self._look_after(wait_sec)
            return False
        self._early.take(buffer.size_bytes)
        return True

    def _look_after(self, delay_sec: float) -> None:
        if self._early_timer is None:
            self._early_timer = asyncio.get_running_loop().call_later(delay_sec, self._look)

    def _look(self) -> None:
        """Check the streams: one that has paused waits for an early flush like others."""
        self._early_timer = None
        for partition, seen_bytes in list(islice(self._gathering.items(), _LOOKS_AT_ONCE)):
            del self._gathering[partition]
            buffer = _waiting(partition)
            if buffer is None:
                continue
            if buffer.size_bytes == seen_bytes:
                self._early_waiting[partition] = None
            else:
                self._gathering[partition] = buffer.size_bytes
        self._begin_early()
        if self._gathering:
            self._look_after(PAUSE_SEC)

    def _begin_early(self) -> None:
        """Begin as many early flushes as may begin now, those that waited longest first."""
        while self._early_waiting:
            partition = next(iter(self._early_waiting))
            buffer = _waiting(partition)
            if buffer is not None and not self._takes_early(buffer):
                return
            del self._early_waiting[partition]
            if buffer is not None and partition.log is not None:
                self._start(partition, partition.log)

    def _start(self, partition: Partition, log: PartitionLog) -> None:
        self._early_waiting.pop(partition, None)
        self._gathering.pop(partition, None)
        task = asyncio.create_task(self._run(partition, log), name=f"flush {partition.id}")
        partition.flush_starting = task
        partition.flush_tasks = (*partition.flush_tasks, task)
        self._in_flight.add(task)
        task.add_done_callback(partial(self._ended, partition))

    def _ended(self, partition: Partition, ended: asyncio.Task[None]) -> None:
        partition.flush_tasks = tuple(task for task in partition.flush_tasks if task is not ended)
        if partition.flush_starting is ended:  # cancelled before it began
            partition.flush_starting = None
        self._in_flight.discard(ended)
        if not ended.cancelled():
            self.appended(partition)
        self._begin_early()

    async def _run(self, partition: Partition, log: PartitionLog) -> None:
        try:
            if not log.has_room:
                # Without a slot: that partition waits, and the others do not.
                await self._make_room(partition, log)
            async with self._slots:
                upload = await self._flush(partition, log)
            self._published(partition)
            if upload is not None:
                await upload.index_is_there()
        except FencedError as fenced:
            logger.warning(
                "lost the leadership of a partition",
                extra={"partition": str(partition.id), "why": str(fenced)},
            )
            self._report(partition, Event.FENCED)
        except KeyTakenError as taken:
            logger.warning("a partition begins a new epoch", extra={"why": str(taken)})
            self._report(partition, Event.KEY_TAKEN)
        except Exception:
            # A defect, after which the outcome of the last attempt is unknown: the next epoch starts from what is
            # published, and skips what is not.
            logger.exception("could not flush a partition", extra={"partition": str(partition.id)})
            self._report(partition, Event.FLUSH_FAILED)

    def _published(self, partition: Partition) -> None:
        """A flush has published: the next one need not wait for its index."""
        if self._early.are_allowed:
            task = asyncio.current_task()
            assert task is not None
            self._in_flight.discard(task)
            self.appended(partition)
            self._begin_early()

    async def _flush(self, partition: Partition, log: PartitionLog) -> Upload | None:
        """Make a segment of the oldest open buffer, and publish it after those before it."""
        partition.flush_starting = None
        buffer = log.waiting if log.may_seal else None
        if buffer is None:
            return None
        started = buffer.times.sealed_sec = time.perf_counter()
        outcome = FlushOutcome.FAILED
        before = partition.publication
        partition.publication = mine = asyncio.get_running_loop().create_future()
        upload: Upload | None = None
        try:
            upload = await self._publisher.upload(partition, log)
            buffer.times.uploaded_sec = time.perf_counter()
            if before is not None:
                await asyncio.wait([before])
            if not log.may_publish or log.sealed is not upload.sealed:
                return None  # The segment before it was not published: all waiters were refused, or will be.
            upload = await self._publisher.publish(partition, log, upload)
            outcome = FlushOutcome.PUBLISHED
            return upload
        except FencedError:
            outcome = FlushOutcome.FENCED
            raise
        finally:
            mine.set_result(None)
            if partition.publication is mine:
                partition.publication = None
            if outcome is not FlushOutcome.PUBLISHED:
                self._report(partition, Event.FLUSH_STOPPED)
                if upload is not None:
                    upload.cancel_index()
            is_published = log.may_publish and not log.holds(buffer)
            size_bytes = buffer.size_bytes if outcome is FlushOutcome.PUBLISHED else 0
            self._metrics.flushes.observe(size_bytes, time.perf_counter() - started, outcome)
            if is_published:
                self._budget.release(buffer.charged_bytes)

    def close_log(self, partition: Partition, error_code: ErrorCode, message: str) -> None:
        """Close the partition's log, if it was opened: refuse what waits in it, and release its memory."""
        log, partition.log = partition.log, None
        if log is not None:
            for batch in log.unpublished_batches():
                self._gap_guard.refused_unpublished((partition.id.topic, partition.id.index), batch)
            for buffer in log.fail(error_code, message):
                self._budget.release(buffer.charged_bytes)

    async def drained(self, partition: Partition, timeout_sec: float) -> bool:
        """Publish what was appended to a partition that is not led any more; False if the time is over first."""
        try:
            async with asyncio.timeout(timeout_sec):
                while True:
                    self.appended(partition)
                    if not partition.flush_tasks:
                        return True
                    await asyncio.wait(partition.flush_tasks)
        except TimeoutError:
            return False

    async def settle(self, partition: Partition, timeout_sec: float) -> None:
        """Wait for flushes in flight, and cancel those that take longer. The state must allow no new ones."""
        tasks = partition.flush_tasks
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_sec)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def drain(self) -> None:
        """From now on every buffer is due at once: the broker is stopping."""
        self._draining = True
        self._flush_scheduled()
        for timer in (self._timer, self._early_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._early_timer = None

    def _flush_scheduled(self) -> None:
        """Flush the partitions that are scheduled, if they are due."""
        scheduled, self._due = self._due, []
        for _, _, partition in scheduled:
            partition.flush_scheduled = False
            self.appended(partition)


def _waiting(partition: Partition) -> SegmentBuffer | None:
    """The buffer that a flush of the partition would take now; None if there is none or no flush may begin."""
    log = partition.log
    return log.waiting if log is not None and _may_begin(partition, log) else None


def _may_begin(partition: Partition, log: PartitionLog) -> bool:
    return partition.flush_starting is None and len(partition.flush_tasks) < MOST_TASKS and log.may_seal
