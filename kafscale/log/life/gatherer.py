"""Gathers small slices: what many partitions have in many entries becomes one object with one slice of each.

Format: docs/format/journal.md, "Gathered objects". Its key is never used again, and it is put once: an attempt
without an answer is given up, and what it may have stored is an orphan for the collector.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kafscale.errors import KafscaleError
from kafscale.formats.journal_entry import CellKind, EntryHead, EntrySlice, encode_head
from kafscale.formats.journal_keys import gathered_key
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.journal.broker_journal import BrokerJournal
from kafscale.log.life.combined_slice import CombinedSlice, combine, places_of_slices
from kafscale.log.life.seal_swap import swap_slices
from kafscale.log.life.segment_merge import DamagedSourceError
from kafscale.log.life.slice_bodies import SliceBodies
from kafscale.log.life.source_reads import MissingSourceError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.writing.record_writer import FencedError
from kafscale.objects.object_store import ObjectStore
from kafscale.objects.request_meter import SharedCost, unshared
from kafscale.tasks.bounded import map_bounded

OBJECT_BYTES = 16 * 1024 * 1024
"""Of one object, about: it is in memory while it is made."""
MOST_SLICES = 4096
_READS_AT_ONCE = 16
# Their transactions are shared.
_RECORDS_AT_ONCE = 256

Report = Callable[[Partition, Exception], None]


@dataclass(frozen=True, slots=True)
class Gather:
    """A partition's part: slices in entries, neighbours, the oldest first."""

    partition: Partition
    log: PartitionLog
    sources: tuple[SegmentReference, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of the slices."""
        return sum(one.size_bytes for one in self.sources)


@dataclass(frozen=True, slots=True)
class _Combined:
    gather: Gather
    made: CombinedSlice
    places: list[tuple[int, int, int]]


class Gatherer:
    """`report` is called with a partition that is left out, and why."""

    def __init__(
        self,
        objects: ObjectStore,
        logs: LogManager,
        bodies: SliceBodies,
        namespace: str,
        broker_id: int,
        now_ms: Callable[[], int],
        report: Report,
        shared_cost: SharedCost = unshared,
    ) -> None:
        """`now_ms`: Unix milliseconds."""
        self._objects = objects
        self._logs = logs
        self._bodies = bodies
        self._namespace = namespace
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._report = report
        self._shared_cost = shared_cost

    async def gather(self, journal: BrokerJournal, gathers: Sequence[Gather]) -> None:
        """Combine the slices of each partition and publish the results. All partitions are led under the journal.

        Raises `StoreError` if an object could not be stored: what is not published stays as it is.
        """
        in_order = sorted(gathers, key=lambda one: (one.partition.topic_id, one.partition.id.index))
        for window in _windows(in_order):
            found = await map_bounded(self._combine, window, _READS_AT_ONCE)
            combined = [one for one in found if one is not None]
            if combined:
                with journal.gathering() as sequence:
                    await self._store(journal, sequence, combined)

    async def _combine(self, gather: Gather) -> _Combined | None:
        try:
            bodies = await self._bodies.read(gather.partition, gather.sources)
        except (DamagedSourceError, MissingSourceError) as problem:
            self._report(gather.partition, problem)
            return None
        return _Combined(gather, combine(bodies, self._now_ms()), places_of_slices(bodies))

    async def _store(self, journal: BrokerJournal, sequence: int, combined: Sequence[_Combined]) -> None:
        rows, start = [], 0
        for one in combined:
            rows.append(_row(one, start))
            start += one.made.reference.size_bytes
        head = encode_head(
            EntryHead(
                journal_id=journal.journal_id,
                broker_id=self._broker_id,
                sequence=sequence,
                committed_through=-1,
                created_ms=self._now_ms(),
                slices=tuple(rows),
            ),
            CellKind.GATHERED,
        )
        key = gathered_key(self._namespace, journal.journal_id, sequence)
        parts = [head, *(part for one in combined for part in one.made.parts)]
        with self._shared_cost(key, [(row.topic, row.size_bytes) for row in rows]):
            await self._objects.put_if_absent(key, parts)

        async def publish(number: int) -> None:
            one, row = combined[number], rows[number]
            reference = one.made.reference.at(key, len(head) + row.start)
            await self._publish(one, reference)

        await map_bounded(publish, range(len(combined)), _RECORDS_AT_ONCE)

    async def _publish(self, one: _Combined, reference: SegmentReference) -> None:
        gather = one.gather
        try:
            if await swap_slices(self._logs, gather.partition, gather.log, gather.sources, reference):
                self._logs.reader.replace_slices(
                    gather.partition, gather.sources, reference, one.made.body, one.places
                )
        except (FencedError, KafscaleError) as problem:
            self._report(gather.partition, problem)


def _windows(gathers: Sequence[Gather]) -> Iterator[list[Gather]]:
    window: list[Gather] = []
    size_bytes = 0
    for one in gathers:
        if window and (size_bytes + one.size_bytes > OBJECT_BYTES or len(window) == MOST_SLICES):
            yield window
            window, size_bytes = [], 0
        window.append(one)
        size_bytes += one.size_bytes
    if window:
        yield window


def _row(one: _Combined, start: int) -> EntrySlice:
    partition, reference = one.gather.partition, one.made.reference
    return EntrySlice(
        topic_id=partition.topic_id,
        topic=partition.id.topic,
        partition=partition.id.index,
        leader_epoch=reference.leader_epoch,
        base_offset=reference.base_offset,
        last_offset=reference.last_offset,
        record_count=reference.record_count,
        max_timestamp_ms=reference.max_timestamp_ms,
        size_bytes=reference.size_bytes,
        body_crc=one.made.body_crc,
        start=start,
    )
