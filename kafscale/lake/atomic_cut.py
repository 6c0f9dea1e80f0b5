"""The cut of an export of several partitions that has no committed transaction by half. Pure.

Theory of operation (decision 0092). First the ends of the logs are read, then a revision R of the metadata store, and
only then the partitions' states. A transaction that was decided by then has had all its records, so each state has
all of them, below its marker, or with the transaction still open. The cut has the offsets below the last stable ones,
without the batches of the committed transactions that are not whole there:

- decided after R, with a marker that was not there before: other partitions may have been read before its records
  came. (Markers that were there may have higher numbers: those of a store that was lost and rebuilt since.)
- with a record at or above a last stable offset;
- still open in a partition, which waits for its marker;
- with a marker that had to be written at R: then a producer that did not wait for its acknowledgements may have
  records that come later.

What is left out stays for a later cut, whatever else is exported. So cuts go on as the last stable offsets do,
however transactions overlap.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafscale.formats.partition_transactions import BatchKind
from kafscale.lake.ranges import Range, Ranges, union
from kafscale.reader.topic_state import PartitionKey


class SeenBatch(NamedTuple):
    """A batch of a producer. `decision`: of a marker, the revision at which it was decided; 0: not known."""

    kind: BatchKind
    producer_id: int
    first_offset: int
    last_offset: int
    decision: int = 0


class Decided(NamedTuple):
    """One transaction, in all partitions. A producer has one at a time."""

    producer_id: int
    decision: int


@dataclass(slots=True)
class _Part:
    """A producer's newest transaction in a partition that may not be whole."""

    decision: int
    ranges: list[Range]


@dataclass(slots=True)
class _Tail:
    """A log from its last stable offset on. `first_markers`: the first one of each producer."""

    open: set[int] = field(default_factory=set)
    first_markers: dict[int, SeenBatch] = field(default_factory=dict)


class AtomicCut:
    """Takes the batches of all partitions: of all of them first the tails, and then the bodies.

    `revision`: R. `unmarked`: the transactions that waited for a marker at R, in one of the partitions.
    """

    def __init__(self, revision: int, unmarked: Collection[Decided] = ()) -> None:
        self._revision = revision
        self._not_whole = set(unmarked)
        self._tails: dict[PartitionKey, _Tail] = defaultdict(_Tail)
        self._open: set[int] = set()
        # Of producers that are open somewhere: their newest decision, and the partitions that have its marker.
        self._newest: dict[int, int] = {}
        self._marked: dict[int, set[PartitionKey]] = defaultdict(set)
        self._parts: dict[int, dict[PartitionKey, _Part]] = defaultdict(dict)
        self._left_out: dict[PartitionKey, list[Range]] = defaultdict(list)

    def add_tail(
        self, place: PartitionKey, batches: Iterable[SeenBatch], *, earlier_end: int, stable_end: int
    ) -> None:
        """All to the end of the log, from the lower one of these on, ascending. Before any `add_body`.

        `earlier_end`: of the log before R was read; `stable_end`: its last stable offset.
        """
        tail = self._tails[place]
        for one in batches:
            is_new = one.kind is BatchKind.COMMIT and one.first_offset >= earlier_end
            if is_new and one.decision > self._revision:
                self._not_whole.add(Decided(one.producer_id, one.decision))
            if one.first_offset < stable_end:
                continue
            if one.kind is BatchKind.TRANSACTIONAL:
                tail.open.add(one.producer_id)
                continue
            tail.first_markers.setdefault(one.producer_id, one)
            if one.producer_id in tail.open:
                tail.open.remove(one.producer_id)
                if one.kind is BatchKind.COMMIT and one.decision:
                    self._not_whole.add(Decided(one.producer_id, one.decision))
            self._note_marker(place, one)
        self._open |= tail.open

    def add_body(self, place: PartitionKey, batches: Iterable[SeenBatch]) -> None:
        """All that is not exported yet below the partition's last stable offset, ascending."""
        running: dict[int, list[Range]] = {}
        for one in batches:
            if one.kind is BatchKind.TRANSACTIONAL:
                _append(running.setdefault(one.producer_id, []), one)
                continue
            self._note_marker(place, one)
            ranges = running.pop(one.producer_id, None)
            if ranges is not None and one.kind is BatchKind.COMMIT:
                # With its marker, so that neighbours become one range.
                _append(ranges, one)
                self._end(place, one, ranges)
        for producer_id, ranges in running.items():
            marker = self._tails[place].first_markers.get(producer_id)
            if marker is not None and marker.kind is BatchKind.COMMIT:
                self._end(place, marker, ranges)

    def left_out(self) -> Mapping[PartitionKey, Ranges]:
        """The offsets below the last stable ones that are not in the cut, by partition."""
        found = {place: list(ranges) for place, ranges in self._left_out.items()}
        for producer_id, parts in self._parts.items():
            # An older one was complete everywhere before the newest one began.
            newest = self._newest[producer_id]
            if self._open_places(producer_id) <= self._marked[producer_id]:
                continue
            for place, part in parts.items():
                if part.decision == newest:
                    found.setdefault(place, []).extend(part.ranges)
        return {place: union(ranges) for place, ranges in found.items()}

    def _open_places(self, producer_id: int) -> set[PartitionKey]:
        return {place for place, tail in self._tails.items() if producer_id in tail.open}

    def _note_marker(self, place: PartitionKey, marker: SeenBatch) -> None:
        newest = self._newest.get(marker.producer_id, -1)
        if marker.decision > newest:
            self._newest[marker.producer_id] = marker.decision
            self._marked[marker.producer_id] = {place}
        elif marker.decision == newest:
            self._marked[marker.producer_id].add(place)

    def _end(self, place: PartitionKey, marker: SeenBatch, ranges: list[Range]) -> None:
        """A committed transaction of the partition's body."""
        if not marker.decision:
            # Of no coordinator of this cluster: nothing tells which other partitions it has.
            return
        one = Decided(marker.producer_id, marker.decision)
        if one in self._not_whole:
            self._left_out[place] += ranges
        elif one.producer_id in self._open:
            self._parts[one.producer_id][place] = _Part(one.decision, ranges)


def _append(ranges: list[Range], one: SeenBatch) -> None:
    """Neighbours become one: a transaction may have any number of batches."""
    if ranges and ranges[-1][1] == one.first_offset:
        ranges[-1] = ranges[-1][0], one.last_offset + 1
    else:
        ranges.append((one.first_offset, one.last_offset + 1))
