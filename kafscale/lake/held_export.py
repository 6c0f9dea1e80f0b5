"""A topic under an export's lease: its published log, and the progress that others can see."""

import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from kafscale.errors import StoreError
from kafscale.formats.export_records import ExportProgress, ExportState
from kafscale.formats.partition_record import SegmentReference
from kafscale.lake.batch_size import Cut
from kafscale.lake.export_lease import ExportLease
from kafscale.lake.planned_reads import plan_reads
from kafscale.lake.ranges import Ranges
from kafscale.lake.segment_cuts import read_cuts
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.shared_splits import AnySplit
from kafscale.reader.timestamp_offsets import offsets_at
from kafscale.reader.topic_state import Freshness, PartitionLog, TopicLog, TopicStates

logger = logging.getLogger(__name__)


def holder_name() -> str:
    """This exporter's name, for people: its machine and process."""
    return f"{socket.gethostname()}/{os.getpid()}"


class HeldExport:
    """One topic and its table, under the lease. `namespace`: of the object store's keys.

    The topic is the one that was read first: once there is another one of its name, everything that reads it raises
    `TopicReplacedError`.
    """

    def __init__(
        self,
        lease: ExportLease,
        namespace: str,
        table: str,
        freshness: Freshness = Freshness.PUBLISHED,
    ) -> None:
        self._lease = lease
        self._namespace = namespace
        self._freshness = freshness
        self._states: TopicStates | None = None
        self._topic_id: UUID | None = None
        # The counts continue from run to run.
        self._progress = lease.last_progress(table) or ExportProgress(
            topic=lease.topic,
            table=table,
            positions={},
            log_end_offsets={},
            rows=0,
            dead_letters=0,
            updated_ms=0,
        )

    def check(self) -> None:
        """Raise `ExportLeaseLostError` if the lease is lost.

        An unavailable metadata store does not prove that, as long as the lease lasts without it: in the end the
        table's own compare decides.
        """
        try:
            self._lease.confirm()
        except StoreError as problem:
            logger.warning(
                "could not ask whether the export of %s is still held: %s", self._lease.topic, problem
            )
            self._lease.check()

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._lease.topic

    @property
    def topic_id(self) -> UUID:
        """The id of the topic, which was read before."""
        assert self._topic_id is not None, "the topic is read first"
        return self._topic_id

    def read_topic(self, exported: Mapping[int, int]) -> TopicLog:
        """The topic as it is now, and nowhere shorter than the table has it: `exported`, by partition.

        Raises `UnknownTopicError`, `TopicReplacedError`, `StoreError`, `CorruptDataError`.
        """
        needed = None if self._freshness is Freshness.PUBLISHED else exported

        async def read(metadata: MetadataReader, objects: ListingReader) -> TopicLog:
            states = self._states_of(metadata, objects)
            return await states.topic(self.topic, None, needed, topic_id=self._topic_id)

        log = self._lease.call(read)
        self._topic_id = log.topic_id
        return log

    def offsets_at(self, timestamp_ms: int, log: TopicLog) -> Mapping[int, int | None]:
        """The first offset of each partition whose record is not older; None if all are older."""
        logs = {(one.topic, one.partition): one for one in log.partitions}

        async def find(
            metadata: MetadataReader, objects: ListingReader
        ) -> Mapping[tuple[str, int], int | None]:
            states = self._states_of(metadata, objects)
            return await offsets_at(dict.fromkeys(logs, timestamp_ms), logs, states, objects, self._namespace)

        return {partition: offset for (_, partition), offset in self._lease.call(find).items()}

    def splits(self, ranges: Mapping[int, Ranges]) -> list[AnySplit]:
        """The reads that bring these offsets, by partition.

        Raises `UnknownTopicError`, `TopicReplacedError`, `StoreError`, `CorruptDataError`.
        """

        async def plan(metadata: MetadataReader, objects: ListingReader) -> list[AnySplit]:
            states = self._states_of(metadata, objects)
            return await plan_reads(states, objects, self._namespace, self.topic, self.topic_id, ranges)

        return self._lease.call(plan)

    def unmarked(self) -> tuple[int, list[KeyValue]]:
        """The metadata store's revision, and the markers that are to be written, of all topics.

        Raises `StoreError`.
        """

        async def read(metadata: MetadataReader, _: ListingReader) -> tuple[int, list[KeyValue]]:
            found = await metadata.range(keys.PARTITION_MARKERS)
            return found.revision, list(found.items)

        return self._lease.call(read)

    def cuts(self, segments: Sequence[tuple[PartitionLog, SegmentReference]]) -> list[Sequence[Cut]]:
        """For each segment where it can be divided; see `read_cuts`. Raises `StoreError`."""
        if not segments:
            return []

        async def read(_: MetadataReader, objects: ListingReader) -> list[Sequence[Cut]]:
            return await read_cuts(objects, self._namespace, segments)

        return self._lease.call(read)

    def _states_of(self, metadata: MetadataReader, objects: ListingReader) -> TopicStates:
        # Kept, because it remembers what it has read of journals.
        if self._states is None:
            topic = self._lease.topic
            self._states = TopicStates(
                metadata, objects, self._namespace, self._freshness, lambda one: one == topic
            )
        return self._states

    def record(
        self, positions: Mapping[int, int], log_end: Mapping[int, int], rows: int, dead_letters: int
    ) -> None:
        """Show the progress of the export; both counts are of one commit."""
        shown = sorted(positions.keys() & log_end.keys())
        self._show(
            replace(
                self._progress,
                positions={partition: positions[partition] for partition in shown},
                log_end_offsets={partition: log_end[partition] for partition in shown},
                rows=self._progress.rows + rows,
                dead_letters=self._progress.dead_letters + dead_letters,
                state=ExportState.RUNNING,
                error="",
            )
        )

    def complete(self, as_of_sec: float) -> None:
        """The table has everything that was published until then, in Unix seconds; shown with what comes next."""
        self._progress = replace(self._progress, complete_ms=round(as_of_sec * 1000))

    def finished(self) -> None:
        """Show that the export has succeeded."""
        self._show(replace(self._progress, state=ExportState.FINISHED, error=""))

    def failed(self, error: str) -> None:
        """Show that the export has failed, and why."""
        self._show(replace(self._progress, state=ExportState.FAILED, error=error))

    def _show(self, progress: ExportProgress) -> None:
        """Best-effort: the state in the table counts, and a failure to show it is logged only."""
        self._progress = replace(progress, updated_ms=time.time_ns() // 1_000_000)
        try:
            self._lease.record(self._progress)
        except StoreError as problem:
            logger.warning("could not show the progress of topic %s: %s", self._lease.topic, problem)
