"""Flushes what was appended: one entry of the journal for all partitions of the broker, and one PUT.

Theory of operation. `FlushPacer` decides when an entry begins. A flush takes the oldest open buffer of each partition
that has one, seals them as slices, and seals the entry; both happen under one lock, so that a partition's slices have
the order of their entries. Entries are put side by side, and are committed in their order. The slices of a committed
entry are applied to their partitions, in turns of `SLICES_PER_TURN`, also in the order of the entries.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from kafscale.clocks import Clocks
from kafscale.log.journal.broker_journal import BrokerJournal
from kafscale.log.journal.writer import JournalBrokenError, JournalEndedError, SealedEntry, SliceImage
from kafscale.log.leadership.events import Event
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_gap_guard import ProducerGapGuard
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing.flush_pacer import FlushPacer, FlushPolicy, Waiting
from kafscale.log.writing.flush_times import EntryUpload
from kafscale.log.writing.taken_slice import TakenSlice
from kafscale.log.writing.waiting_partitions import WaitingPartitions
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.ops.metrics import FlushOutcome, Metrics
from kafscale.protocol.error_codes import ErrorCode
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

SLICES_PER_TURN = 200
_IDLE_STEP_SEC = 0.005
_SHOWN = 5
MOST_SLICES = 20_000
"""Of one entry. Partitions beyond are in the next one."""

MakeRoom = Callable[[Partition, PartitionLog], Awaitable[None]]
OnPublished = Callable[[Partition, SealedSegment], None]


class Flusher:
    """Flushes for all partitions that this broker leads. One without buffered records costs nothing here.

    `make_room` is awaited before a flush whose partition's record has none: see `PartitionLog.has_room`.
    `on_published` is called with each segment that was committed, once its producers are acknowledged.
    """

    def __init__(
        self,
        policy: FlushPolicy,
        budget: MemoryBudget,
        clocks: Clocks,
        metrics: Metrics,
        gap_guard: ProducerGapGuard,
        make_room: MakeRoom,
        on_published: OnPublished,
    ) -> None:
        self._policy = policy
        self._budget = budget
        self._now_ms, self._steady_sec = clocks.now_ms, clocks.steady_sec
        self._metrics = metrics
        self._gap_guard = gap_guard
        self._make_room = make_room
        self._on_published = on_published
        self._pacer = FlushPacer(policy, self._steady_sec())
        self._waiting = WaitingPartitions()
        self._is_urgent = False
        self._timer: asyncio.TimerHandle | None = None
        self._flushes = TaskOwner()
        # Those whose buffers a flush will seal that has begun: what is appended until then goes with it.
        self._unsealed: set[Partition] = set()
        # What is in entries whose outcome is not known yet, by the entry.
        self._in_flight: dict[tuple[BrokerJournal, int], list[TakenSlice]] = {}
        self._room_makers = TaskOwner()
        self._sealing = asyncio.Lock()
        self._applying = asyncio.Lock()
        self._draining = False
        self._is_closed = False
        self._listeners: list[Callable[[Partition, Event], None]] = []
        budget.subscribe_shortage(self._consider)

    def subscribe(self, listener: Callable[[Partition, Event], None]) -> None:
        """Call `listener` with what the outcome of a flush means for the partition's leadership."""
        self._listeners.append(listener)

    # --- what waits

    def appended(self, partition: Partition) -> None:
        """Begin or schedule a flush, after something was appended."""
        log = partition.log
        if log is None or not log.may_seal or partition in self._room_makers or partition in self._unsealed:
            return
        buffer = log.waiting
        if buffer is None:
            return
        size_bytes, waiting = buffer.size_bytes, self._waiting
        waited = waiting.count(partition, size_bytes, len(buffer.waiters))
        if not partition.is_led or size_bytes >= partition.rules.segment_bytes or buffer.is_full:
            self._is_urgent = True
        elif (waited or len(waiting) > 1) and not self._pacer.may_be_due(waiting.size_bytes, waiting.batches):
            return  # It or another one waits already, and not for more.
        if len(self._flushes) < self._policy.in_flight:  # else when one of them has ended
            self._consider()

    def _consider(self) -> None:
        """Begin entries as long as they are due, and set the timer for the next one."""
        while self._waiting and not self._is_closed:
            delay_sec = self._delay_sec()
            if delay_sec == 0:
                self._begin()
                continue
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if delay_sec is not None:
                self._timer = asyncio.get_running_loop().call_later(delay_sec, self._on_timer)
            return

    def _on_timer(self) -> None:
        self._timer = None
        self._consider()

    def _delay_sec(self) -> float | None:
        first = self._waiting.first
        buffer = None if first.log is None else first.log.waiting
        waiting = Waiting(
            since_ms=0 if buffer is None else buffer.first_append_ms,
            size_bytes=self._waiting.size_bytes,
            batches=self._waiting.batches,
            is_urgent=self._is_urgent or self._draining or not self._budget.has_room,
        )
        return self._pacer.delay_sec(waiting, len(self._flushes), self._steady_sec(), self._now_ms())

    # --- one flush

    def _begin(self) -> None:
        self._is_urgent = False
        taken = self._take()
        if taken:
            self._metrics.journal.waited_for_budget(self._pacer.began(self._steady_sec()))
            flush = self._flushes.spawn(self._run(*taken), "flush")
            # After the owner's own: there is a place for another one by then.
            flush.add_done_callback(self._ended)

    def _ended(self, flush: asyncio.Task[int]) -> None:
        """The flush ended, with so many batches that were acknowledged."""
        if not flush.cancelled() and flush.exception() is None:
            self._pacer.ended(flush.result(), self._waiting.batches, self._steady_sec())
        self._consider()

    def _take(self) -> tuple[BrokerJournal, list[tuple[Partition, PartitionLog]]] | None:
        """The partitions of the next entry, and its journal; those of another journal stay for the one after."""
        journal: BrokerJournal | None = None
        taken: list[tuple[Partition, PartitionLog]] = []
        size_bytes = 0
        for partition, counted_bytes in self._waiting.with_bytes():
            log = partition.log
            if log is None or not log.may_seal or log.waiting is None:
                self._waiting.forget(partition)
                continue
            if journal is not None and partition.journal is not journal:
                continue
            if taken and (size_bytes >= self._policy.entry_bytes or len(taken) == MOST_SLICES):
                break
            self._waiting.forget(partition)
            if not log.has_room:
                self._wait_for_room(partition, log)
                continue
            journal = partition.journal
            assert journal is not None, "what is led has a journal"
            taken.append((partition, log))
            self._unsealed.add(partition)
            size_bytes += counted_bytes
        return None if journal is None else (journal, taken)

    def _wait_for_room(self, partition: Partition, log: PartitionLog) -> None:
        """That partition waits, and the others do not."""

        async def make_room() -> None:
            # What is in flight counts, and only what is published can be moved.
            await self.settle(partition, None)
            if not log.has_room:
                await self._make_room(partition, log)

        making = self._room_makers.spawn(make_room(), f"make room in {partition.id}", key=partition)
        making.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(self.appended, partition))

    async def _run(self, journal: BrokerJournal, partitions: list[tuple[Partition, PartitionLog]]) -> int:
        """One flush. Returns how many batches it has acknowledged."""
        started_sec = time.perf_counter()
        outcome, size_bytes = FlushOutcome.FAILED, 0
        taken: list[TakenSlice] = []
        upload = EntryUpload()
        entry: SealedEntry | None = None
        try:
            entry = await self._seal(journal, partitions, taken, upload)
            if entry is not None:
                self._in_flight[journal, entry.sequence] = taken
                began_sec = self._steady_sec()
                await journal.writer.put(
                    entry, upload.attempted, lambda: self._pacer.put_took(self._steady_sec() - began_sec)
                )
                uploaded_sec = time.perf_counter()
                async with self._applying:
                    size_bytes = await self._apply(entry, taken, uploaded_sec)
                    journal.applied(entry)
            outcome = FlushOutcome.PUBLISHED
        except JournalEndedError as ended:
            outcome = FlushOutcome.FENCED
            for one in taken:
                one.refuse()
            logger.warning("the journal of this broker was ended", extra={"why": str(ended)})
        except JournalBrokenError as broken:
            logger.warning("the journal cannot go on", extra={"why": str(broken)})
        except Exception:
            # A defect, or what no retry changes: what was taken may count or not.
            logger.exception("a flush failed")
            for partition, log in partitions:
                if partition.log is log:
                    self._report(partition, Event.FLUSH_FAILED)
        finally:
            if entry is not None:
                del self._in_flight[journal, entry.sequence]
            if outcome is not FlushOutcome.PUBLISHED:
                for partition, log in partitions:
                    if partition.log is log:
                        self._report(partition, Event.FLUSH_STOPPED)
            self._metrics.flushes.observe(size_bytes, time.perf_counter() - started_sec, outcome)
        return sum(one.batches for one in taken) if outcome is FlushOutcome.PUBLISHED else 0

    async def _seal(
        self,
        journal: BrokerJournal,
        partitions: list[tuple[Partition, PartitionLog]],
        taken: list[TakenSlice],
        upload: EntryUpload,
    ) -> SealedEntry | None:
        """Seal the buffers and the entry; `taken` gets those that are in it. None if nothing is left to flush."""
        images: list[SliceImage] = []
        sealed_count = 0
        try:
            async with self._sealing:
                for number, (partition, log) in enumerate(partitions, 1):
                    if partition.log is log and log.may_seal and log.waiting is not None:
                        sealed = await self._seal_one(log)
                        sealed.buffer.times.upload = upload
                        taken.append(TakenSlice(partition, log, sealed))
                        images.append(taken[-1].image())
                    self._unsealed.discard(partition)
                    sealed_count = number
                    if number % SLICES_PER_TURN == 0:
                        await asyncio.sleep(0)
                    self.appended(partition)  # what came since into another buffer
                return journal.writer.seal(images) if images else None
        finally:
            self._unsealed.difference_update(partition for partition, _ in partitions[sealed_count:])

    async def _seal_one(self, log: PartitionLog) -> SealedSegment:
        buffer, base_offset = log.start_seal()
        buffer.times.sealed_sec = time.perf_counter()
        if buffer.is_costly_to_seal:
            return await asyncio.to_thread(log.seal, buffer, base_offset, self._now_ms())
        return log.seal(buffer, base_offset, self._now_ms())

    async def _apply(self, entry: SealedEntry, taken: list[TakenSlice], uploaded_sec: float) -> int:
        """Publish the slices of a committed entry, and return their bytes."""
        size_bytes = 0
        for first in range(0, len(taken), SLICES_PER_TURN):
            if first:
                await asyncio.sleep(0)
            published: list[tuple[Partition, int]] = []
            for one in taken[first : first + SLICES_PER_TURN]:
                try:
                    published.append((one.partition, self._publish(entry, one, uploaded_sec)))
                except Exception:
                    # Its record is not written any more by this broker: who claims it reads the entry.
                    logger.exception("could not publish", extra={"partition": str(one.partition.id)})
                    self._report(one.partition, Event.FLUSH_FAILED)
            # Only now: a fetch of several of these partitions is answered once, with all that is new.
            for partition, slice_bytes in published:
                size_bytes += slice_bytes
                partition.notify_grown(slice_bytes)
        return size_bytes

    def _publish(self, entry: SealedEntry, one: TakenSlice, uploaded_sec: float) -> int:
        """Publish one slice and acknowledge it. Returns its bytes, 0 if it is too late for it."""
        partition, log, sealed = one.partition, one.log, one.sealed
        if not log.in_flight_count:
            return 0  # The log was closed meanwhile: its waiters were answered that the outcome is unknown.
        start = entry.starts[partition.topic_id, partition.id.index]
        sealed.reference = sealed.reference.at(entry.key, start)
        buffer = sealed.buffer
        buffer.times.uploaded_sec = uploaded_sec
        buffer.times.published_sec = time.perf_counter()
        partition.publish(log.published(sealed, sealed.reference), sealed.reference, entry.sequence)
        size_bytes = buffer.size_bytes
        self._budget.release(buffer.charged_bytes)
        self._metrics.flushed(partition.id.topic)
        self._on_published(partition, sealed)
        return size_bytes

    # --- the end of a journal, of a partition, of the broker

    def journal_ended(self, journal: BrokerJournal) -> None:
        """Before logs are closed: note what is certain not to count, of entries whose requests are in flight."""
        for (its_journal, sequence), taken in self._in_flight.items():
            if its_journal is journal and journal.writer.is_refused(sequence):
                for one in taken:
                    one.refuse()

    def _report(self, partition: Partition, event: Event) -> None:
        for listener in self._listeners:
            listener(partition, event)

    def close_log(self, partition: Partition, error_code: ErrorCode, message: str) -> None:
        """Close the partition's log, if it was opened: refuse what waits in it, and release its memory."""
        log, partition.log = partition.log, None
        self._waiting.forget(partition)
        if log is not None:
            for batch in log.unpublished_batches():
                self._gap_guard.refused_unpublished((partition.id.topic, partition.id.index), batch)
            for buffer in log.fail(error_code, message):
                self._budget.release(buffer.charged_bytes)

    async def drained(self, partition: Partition, timeout_sec: float) -> bool:
        """Publish what was appended to a partition that is not led any more; False if the time is over first."""
        try:
            async with asyncio.timeout(timeout_sec):
                while (log := partition.log) is not None and not log.is_empty:
                    self.appended(partition)
                    await self._step()
        except TimeoutError:
            return False
        return True

    async def _step(self) -> None:
        """Wait until another flush or making of room that is in progress now has ended."""
        tasks = [
            task
            for task in (*self._flushes.tasks, *self._room_makers.tasks)
            if task is not asyncio.current_task()
        ]
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Without one it depends on others, such as a claim: not a reason to keep the loop busy.
        await asyncio.sleep(0 if tasks else _IDLE_STEP_SEC)

    async def settle(self, partition: Partition, timeout_sec: float | None) -> None:
        """Wait for what is in flight of a partition, at most so long. No more of its flushes may begin."""
        try:
            async with asyncio.timeout(timeout_sec):
                while (log := partition.log) is not None and log.in_flight_count:
                    await self._step()
        except TimeoutError:
            logger.debug("left in flight", extra={"partition": str(partition.id)})

    async def drain(self) -> None:
        """Flush everything that is buffered, and return when all of it is published or refused.

        From now on every buffer is due at once: the broker is stopping.
        """
        self._draining = True
        self._consider()
        while self._waiting or self._flushes or self._room_makers:
            await self._step()

    def unfinished(self) -> dict[str, object]:
        """The reasons why `drain` does not return, for the log: a few of each."""
        entries = [
            f"{journal.journal_id}/{sequence} of {len(taken)} partitions"
            for (journal, sequence), taken in self._in_flight.items()
        ]
        waiting = [
            f"{partition.id} (may seal: {log is not None and log.may_seal}, in flight: "
            f"{0 if log is None else log.in_flight_count}, led: {partition.is_led})"
            for partition in self._waiting
            for log in (partition.log,)
        ]
        return {
            "flushes": len(self._flushes),
            "entries_in_flight": entries[:_SHOWN],
            "waiting": waiting[:_SHOWN],
            "making_room": [task.get_name() for task in self._room_makers.tasks][:_SHOWN],
        }

    async def close(self) -> None:
        """Cancel what is in flight: its outcome is not known."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._room_makers.close()
        await self._flushes.close()
