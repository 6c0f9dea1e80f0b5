"""Merges the segments of the partitions that this broker leads, in the background, several merges side by side.

A look goes once through all partitions and makes at most one merge of each, so that one with a long backlog does
not keep the others waiting; while there is more to merge, looks follow one another. How many merges are made at
a time depends on the debt (merge_debt.py) and on what is free (merge_pressure.py). A large merge is streamed;
such merges have a queue of their own, one at a time, so that small ones do not wait for them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final

from kafscale import clocks
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life.merge_candidates import MergeCandidates
from kafscale.log.life.merge_debt import MergeDebt, merges_at_once
from kafscale.log.life.merge_pressure import MergePressure
from kafscale.log.life.merge_room import MergeRoom
from kafscale.log.life.merge_windows import PlannedMerge, Window, windows
from kafscale.log.life.merge_work import MergeWork, Result
from kafscale.log.life.pace import Pace
from kafscale.log.life.removals import Removals
from kafscale.log.life.segment_merge import MergePaces, SegmentMerge
from kafscale.log.life.segment_swap import SegmentSwap
from kafscale.log.life.source_reads import SourceReads
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.objects.object_store import ObjectStore
from kafscale.ops import metric_families
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import Settings
from kafscale.tasks.bounded import map_bounded
from kafscale.tasks.item_queue import ItemQueue
from kafscale.tasks.owner import TaskOwner

# Partitions without work that are considered before other tasks have their turn on the event loop.
_LOOKS_PER_TURN: Final = 200
# So many partitions are planned before their merges begin: neighbours share reads.
_PARTITIONS_OF_A_BATCH: Final = 256
_PLANS_AT_ONCE: Final = 8
_STREAMS_WAITING: Final = 16
# The stores are taken for away after so many failures without a success in between; the look ends then.
_FAILURES_IN_A_ROW: Final = 3
_AT_ONCE_IN_A_FOLDER: Final = 2
_AT_ONCE_ON_A_BUCKET: Final = 16
# Of the event loop's thread, for the checks of all merges; their requests come on top.
_CPU_SHARE: Final = 0.3

_Planned = PlannedMerge[Partition]


class Merger:
    """Merges segments of the partitions that this broker leads, periodically.

    `index_version` returns the version in which indexes are written. At worst a crash leaves a merged segment as an
    orphan, which the next attempt finds and uses, or the garbage collector deletes.
    """

    def __init__(
        self,
        objects: ObjectStore,
        logs: LogManager,
        checkpointer: Checkpointer,
        removals: Removals,
        settings: Settings,
        metrics: Metrics,
        index_version: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._steady_ms = steady_ms
        self._logs = logs
        self._settings = settings
        default = _AT_ONCE_IN_A_FOLDER if settings.s3_bucket is None else _AT_ONCE_ON_A_BUCKET
        self._most = settings.merge_concurrency or default
        self.debt: MergeDebt[Partition] = MergeDebt()
        self._candidates = MergeCandidates(
            checkpointer, settings, index_version, objects.max_streamed_bytes, self.debt, self._now_sec
        )
        self._reads = SourceReads(objects, 2 * self._most)
        self._pressure = MergePressure(self._most)
        by_bytes = Pace(max(1, settings.merge_bytes_per_sec))
        paces = MergePaces(by_bytes, _CPU_SHARE, clocks.thread_cpu_sec, self._pressure)
        self._merge = SegmentMerge(objects, self._reads, settings.s3_namespace, paces)
        swap = SegmentSwap(logs, checkpointer, steady_ms)
        self._work = MergeWork(self._merge, swap, self._candidates, logs, removals, metrics, index_version)
        self._room = MergeRoom()
        # A partition has at most one merge that is planned, waits or is made.
        self._active: set[Partition] = set()
        self._streaming: set[Partition] = set()
        self._streams: ItemQueue[_Planned] = ItemQueue(
            "merge large segments", self._make_from_queue, self._failed
        )
        self._large_one_ended = asyncio.Event()
        self._lanes = TaskOwner()
        self._lane_ended = asyncio.Event()
        self._lanes_in_use = 0
        self._first_of_look = 0
        self._failures_in_a_row = 0
        self._results: set[Result] = set()
        metrics.gauge(metric_families.MERGE_DEBT_SEGMENTS, lambda: self.debt.segments)
        metrics.gauge(metric_families.MERGE_DEBT_BYTES, lambda: self.debt.size_bytes)
        metrics.gauge(metric_families.MERGE_DEBT_AGE, lambda: self.debt.oldest_sec(self._now_sec()))

    async def run(self) -> None:
        """Merge until cancelled."""
        interval_sec = self._settings.merge_check_interval_ms / 1000
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(interval_sec):
                        # The partition may have another one.
                        await self._large_one_ended.wait()
                self._large_one_ended.clear()
                if self._settings.merge_bytes_per_sec:
                    while await self._look():
                        pass
        finally:
            await self._streams.close()

    async def consider(self, partition: Partition) -> bool:
        """Merge some of the partition's segments if that is worthwhile and possible; returns whether it was."""
        if not self._claim(partition):
            return False
        try:
            planned = await self._plan(partition)
            return planned is not None and Result.MERGED in await self._make_all(Window((planned,)))
        finally:
            self._active.discard(partition)

    def hold(self, partition: Partition) -> bool:
        """Keep the partition from being merged until `let_go`; False if it is being merged."""
        if partition in self._active:
            return False
        self._active.add(partition)
        return True

    def let_go(self, partition: Partition) -> None:
        """End a `hold`."""
        self._active.discard(partition)

    # --- a look through all partitions

    async def _look(self) -> bool:
        """Merge once in each partition where that is worthwhile; True if there was one, and the stores answer."""
        led = tuple(self._logs.partitions())
        self.debt.retain(set(led))
        self._failures_in_a_row = 0
        self._results.clear()
        claimed: list[Partition] = []
        try:
            async with aclosing(self._batches(led, claimed)) as batches:
                async for batch in batches:
                    for window in windows(batch):
                        await self._begin(window)
            await self._lanes.wait()
        finally:
            await self._lanes.close()
            self._active.difference_update(set(claimed) - self._streaming)
        return Result.MERGED in self._results and Result.FAILED not in self._results

    async def _batches(
        self, led: Sequence[Partition], claimed: list[Partition]
    ) -> AsyncGenerator[list[_Planned], None]:
        """The merges to make, those of some partitions at a time; ends early if the stores are away."""
        first = self._first_of_look % max(1, len(led))
        batch: list[Partition] = []
        for number, partition in enumerate((*led[first:], *led[:first])):
            if number % _LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)
            if self._claim(partition):
                claimed.append(partition)
                batch.append(partition)
            if len(batch) == _PARTITIONS_OF_A_BATCH:
                yield await self._plan_all(batch)
                batch = []
            if self._are_stores_away:
                # The next look begins here, so that these partitions do not always come last.
                self._first_of_look = first + number
                return
        yield await self._plan_all(batch)

    def _claim(self, partition: Partition) -> bool:
        """True if the partition may have something to merge; nothing else merges it until the claim ends."""
        if partition in self._active or not self._candidates.is_worth_a_plan(partition):
            return False
        self._active.add(partition)
        return True

    @property
    def _are_stores_away(self) -> bool:
        return self._failures_in_a_row >= _FAILURES_IN_A_ROW

    async def _plan_all(self, partitions: Sequence[Partition]) -> list[_Planned]:
        found = await map_bounded(self._plan, partitions, _PLANS_AT_ONCE)
        return [planned for planned in found if planned is not None]

    async def _plan(self, partition: Partition) -> _Planned | None:
        # Many may be planned without another wait.
        await asyncio.sleep(0)
        try:
            return await self._candidates.plan(partition)
        except Exception as problem:  # noqa: BLE001 - reported
            self._note(self._work.report(partition, problem))
            return None

    # --- windows, side by side

    async def _begin(self, window: Window[Partition]) -> None:
        """Begin to merge when there is a free lane, at once if the merge has the queue of large ones."""
        if window.is_streamed:
            self._stream(window.merges)
            return
        while self._lanes_in_use >= self._at_once():
            self._lane_ended.clear()
            await self._lane_ended.wait()
        if not self._are_stores_away:
            self._lanes_in_use += 1
            self._lanes.spawn(self._in_lane(window), "merge segments")

    def _at_once(self) -> int:
        wanted = merges_at_once(self.debt.segments, self.debt.oldest_sec(self._now_sec()), self._most)
        return min(wanted, self._pressure.allowed)

    async def _in_lane(self, window: Window[Partition]) -> None:
        try:
            await self._make_all(window)
        finally:
            self._lanes_in_use -= 1
            self._lane_ended.set()

    async def _make_all(self, window: Window[Partition]) -> set[Result]:
        """Make the merges one after the other."""
        if window.is_streamed:
            return {await self._make_streamed(planned) for planned in window.merges}
        named = [
            source
            for planned in window.merges
            for source in self._merge.named(planned.owner.id, planned.sources)
        ]
        results: set[Result] = set()
        # Twice: the sources, and the merged segment while it is uploaded.
        async with self._room.take(2 * window.size_bytes), self._reads.window(named) as reads:
            first = 0
            for planned in window.merges:
                results.add(self._note(await self._work.make(planned, reads, first)))
                first += len(planned.sources)
        return results

    def _note(self, result: Result) -> Result:
        self._results.add(result)
        if result is Result.FAILED:
            self._failures_in_a_row += 1
        elif result is Result.MERGED:
            self._failures_in_a_row = 0
        return result

    # --- large merges, one after the other

    def _stream(self, merges: Sequence[_Planned]) -> None:
        room = max(0, _STREAMS_WAITING - len(self._streams))
        self._streaming.update(planned.owner for planned in merges[:room])
        self._streams.add(merges[:room])

    async def _make_from_queue(self, planned: _Planned) -> None:
        try:
            await self._make_streamed(planned)
        finally:
            self._large_one_ended.set()
            self._streaming.discard(planned.owner)
            self._active.discard(planned.owner)

    async def _make_streamed(self, planned: _Planned) -> Result:
        return self._note(await self._work.make(planned))

    def _failed(self, planned: _Planned, problem: Exception) -> None:
        self._note(self._work.report(planned.owner, problem))

    def _now_sec(self) -> float:
        return self._steady_ms() / 1000
