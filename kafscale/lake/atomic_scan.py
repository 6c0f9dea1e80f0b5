"""Reads what an atomic cut has to know: which batches of which transactions lie where. By their headers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Protocol

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_kind import kind_of_batch
from kafscale.formats.marker_record import decode_marker_record
from kafscale.formats.partition_transactions import BatchKind
from kafscale.lake.atomic_cut import AtomicCut, Decided, SeenBatch
from kafscale.lake.ranges import Ranges
from kafscale.memory.slab import SlabPool
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue
from kafscale.protocol.control_records import decision_of
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import iterate_records
from kafscale.reader.opened_stores import OpenedStores
from kafscale.reader.reads_ahead import POOL_BYTES
from kafscale.reader.shared_splits import AnySplit
from kafscale.reader.split_reader import split_batches
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.stored_batches import StoredBatches
from kafscale.reader.topic_state import PartitionKey, TopicLog
from kafscale.settings.broker import Settings

_MOST_MARKER_BYTES = 64 * 1024


class PlansReads(Protocol):
    """A topic whose reads can be planned: `HeldExport`."""

    @property
    def topic(self) -> str: ...

    def splits(self, ranges: Mapping[int, Ranges]) -> list[AnySplit]: ...


def unmarked_of(markers: Sequence[KeyValue], logs: Sequence[TopicLog]) -> set[Decided]:
    """The transactions that wait for a marker in one of these topics. Raises `CorruptDataError`."""
    ids = {log.topic: log.topic_id for log in logs}
    found = set()
    for item in markers:
        topic, _, producer_id = keys.marked_partition(item.key)
        if topic not in ids:
            continue
        record = decode_marker_record(item.key, item.value)
        if record.topic_id == ids[topic]:
            found.add(Decided(producer_id, record.decision_revision or item.mod_revision))
    return found


class HeaderScan:
    """Reads batches from the stores while it is open; one topic after another."""

    def __init__(self, settings: Settings, stores: StoreThread) -> None:
        self._namespace = settings.s3_namespace
        self._stores = stores
        self._pool = SlabPool(POOL_BYTES)
        self.bytes_read = 0

    def add_tails(
        self, cut: AtomicCut, held: PlansReads, log: TopicLog, earlier_ends: Mapping[int, int]
    ) -> None:
        """Of each partition what is not stable, and what is new. `earlier_ends`: of the logs, by partition."""
        for one in log.partitions:
            # What expired meanwhile, and partitions that were not there, are new as far as anyone knows.
            earlier_end = max(earlier_ends.get(one.partition, 0), one.log_start_offset)
            ranges: Ranges = ((min(one.end_offset, earlier_end), one.log_end_offset),)
            cut.add_tail(
                (log.topic, one.partition),
                self._seen(held, one.partition, ranges),
                earlier_end=earlier_end,
                stable_end=one.end_offset,
            )

    def add_bodies(self, cut: AtomicCut, held: PlansReads, log: TopicLog, left: Mapping[int, Ranges]) -> None:
        """Of each partition what is left to export, below its last stable offset."""
        for one in log.partitions:
            cut.add_body(
                (log.topic, one.partition), self._seen(held, one.partition, left.get(one.partition, ()))
            )

    def _seen(self, held: PlansReads, partition: int, ranges: Ranges) -> Iterator[SeenBatch]:
        wanted = tuple(one for one in ranges if one[0] < one[1])
        if not wanted:
            return
        for split in held.splits({partition: wanted}):
            with closing(split_batches(self._namespace, split, self._stores, self._pool)) as found:
                for batches in found:
                    self.bytes_read += len(batches.data)
                    yield from seen_in(batches)


def opened_scan(settings: Settings) -> StoreThread:
    """The stores for a `HeaderScan`, a context manager."""
    return StoreThread(OpenedStores(settings))


def seen_in(batches: StoredBatches) -> Iterator[SeenBatch]:
    """The transactional batches and markers among the wanted offsets. Raises `CorruptDataError`."""
    for position, header in walk(batches.data, 0, len(batches.data), batches.name):
        if header.base_offset >= batches.next_offset:
            return
        if not header.is_transactional or header.last_offset < batches.first_offset:
            continue
        if not header.is_control:
            yield SeenBatch(
                BatchKind.TRANSACTIONAL, header.producer_id, header.base_offset, header.last_offset
            )
            continue
        data = batches.data[position : position + header.size_bytes]
        try:
            kind = kind_of_batch(header, data)
            decision = _decision(data) if kind.is_marker else 0
        except CorruptDataError as problem:
            raise CorruptDataError(
                batches.name, f"the batch at byte {position}: {problem.problem}"
            ) from problem
        if kind is not BatchKind.PLAIN:
            yield SeenBatch(kind, header.producer_id, header.base_offset, header.last_offset, decision)


def _decision(batch: memoryview) -> int:
    for record in iterate_records(batch, _MOST_MARKER_BYTES):
        return decision_of(record.headers)
    return 0


def is_quiet(before: Sequence[TopicLog], after: Sequence[TopicLog]) -> bool:
    """True if no transaction was open and nothing was published while the logs were read twice.

    Then there was a moment at which all logs were so, and nothing is in them by half.
    """
    return all(
        one.end_offset == one.log_end_offset == again.log_end_offset == again.end_offset
        for log, later in zip(before, after, strict=True)
        for one, again in zip(log.partitions, later.partitions, strict=False)
    ) and _places(before) == _places(after)


def _places(logs: Sequence[TopicLog]) -> list[PartitionKey]:
    return [(log.topic, one.partition) for log in logs for one in log.partitions]
