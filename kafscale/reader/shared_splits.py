"""Divides what is to be read of one topic into splits: segments by partition, slices of shared objects by object.

An entry of a journal, and a gathered object, has a slice of each of many partitions, and neighbours of one topic lie
side by side. A task reads such a range once, for all partitions that want a part of it. Pure.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafscale.formats.object_keys import shares_its_object
from kafscale.reader.splits import CHUNK_BYTES, REQUEST_BYTES, Piece, Split, group_pieces, split_of
from kafscale.reader.topic_state import PartitionLog

PlannedPartition = tuple[PartitionLog, Sequence[Piece]]
"""A partition, and the pieces to read of it, ascending."""

UNDIVIDED_BYTES = 2**63 - 1
"""The size of splits that are not sent to tasks any more."""

_GAP_BYTES = 64 * 1024
"""Two slices that are not farther apart are read with one request."""


@dataclass(frozen=True, slots=True)
class SharedSlice:
    """A slice in a range of an object: the piece with the number `piece` of the part with the number `part`."""

    part: int
    piece: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRead:
    """One request: a range of an object, and the slices in it, ascending by place."""

    object_key: str
    start: int
    length: int
    slices: tuple[SharedSlice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSplit:
    """The work of one task: slices of several partitions of a topic. Can be pickled.

    `parts`: what each of the partitions has in the split, as a split of its own. `reads` have all of that, in an
    order that keeps each partition's offsets ascending.
    """

    topic: str
    parts: tuple[Split, ...] = field(repr=False)
    reads: tuple[SharedRead, ...] = field(repr=False)
    size_bytes: int


AnySplit = Split | SharedSplit


def parts_of(split: AnySplit) -> tuple[Split, ...]:
    """The split's parts, one for each partition."""
    return (split,) if isinstance(split, Split) else split.parts


def divide(planned: Sequence[PlannedPartition], split_bytes: int) -> list[AnySplit]:
    """Splits of about `split_bytes` that together have all pieces of these partitions of one topic."""
    splits: list[AnySplit] = []
    shared: list[PlannedPartition] = []
    if len(planned) == 1:
        # A partition has one slice in an object.
        return list(_splits_of(*planned[0], split_bytes))
    for log, pieces in planned:
        own: list[Piece] = []
        slices: list[Piece] = []
        for one in pieces:
            (slices if _is_shared(one) else own).append(one)
        splits += _splits_of(log, own, split_bytes)
        if slices:
            shared.append((log, slices))
    for reads in _grouped(_reads(shared), split_bytes):
        split = _shared_split(shared, reads)
        splits.append(split.parts[0] if len(split.parts) == 1 else split)
    return splits


def _is_shared(piece: Piece) -> bool:
    return shares_its_object(piece.reference) and piece.chunk is None and not piece.is_undivided


def _splits_of(log: PartitionLog, pieces: Sequence[Piece], split_bytes: int) -> Iterator[Split]:
    for group in group_pieces(pieces, split_bytes):
        yield split_of(log, group)


@dataclass(frozen=True, slots=True)
class _Placed:
    """The piece with the number `number` of the planned partition with the number `part`."""

    part: int
    number: int
    piece: Piece

    @property
    def start(self) -> int:
        return self.piece.reference.start

    @property
    def end(self) -> int:
        return self.start + self.piece.size_bytes


def _reads(planned: Sequence[PlannedPartition]) -> Iterator[list[_Placed]]:
    """Ranges of objects, each as the slices in it."""
    for slices in _by_object(planned):
        run: list[_Placed] = []
        for one in sorted(slices, key=lambda each: each.start):
            if run and (one.start > run[-1].end + _GAP_BYTES or one.end > run[0].start + CHUNK_BYTES):
                yield run
                run = []
            run.append(one)
        yield run


def _by_object(planned: Sequence[PlannedPartition]) -> Iterator[list[_Placed]]:
    """The slices by object, in an order that keeps those of each partition ascending.

    An object comes when all partitions with a slice in it have been read up to there. Partitions that disagree
    about the order of two objects cost a second visit.
    """
    left = Counter(piece.reference.object_key for _, pieces in planned for piece in pieces)
    heads: dict[str, list[_Placed]] = {}
    complete: deque[str] = deque()

    def add(part: int, number: int) -> None:
        pieces = planned[part][1]
        if number < len(pieces):
            key = pieces[number].reference.object_key
            found = heads.setdefault(key, [])
            found.append(_Placed(part, number, pieces[number]))
            if len(found) == left[key]:
                complete.append(key)

    for part in range(len(planned)):
        add(part, 0)
    while heads:
        key = complete.popleft() if complete else next(iter(heads))
        slices = heads.pop(key)
        left[key] -= len(slices)
        yield slices
        for one in slices:
            add(one.part, one.number + 1)


def _grouped(reads: Iterable[list[_Placed]], split_bytes: int) -> Iterator[list[list[_Placed]]]:
    """Joins neighbours up to about `split_bytes` to read."""
    group: list[list[_Placed]] = []
    room_bytes = split_bytes
    for read in reads:
        cost_bytes = max(read[-1].end - read[0].start, REQUEST_BYTES)
        if group and cost_bytes > room_bytes:
            yield group
            group, room_bytes = [], split_bytes
        group.append(read)
        room_bytes -= cost_bytes
    if group:
        yield group


def _shared_split(planned: Sequence[PlannedPartition], reads: Sequence[Sequence[_Placed]]) -> SharedSplit:
    pieces: dict[int, list[_Placed]] = {}
    for read in reads:
        for one in read:
            pieces.setdefault(one.part, []).append(one)
    places: dict[tuple[int, int], SharedSlice] = {}
    parts = []
    for number, (part, found) in enumerate(sorted(pieces.items())):
        log = planned[part][0]
        found.sort(key=lambda each: each.number)
        places.update({(part, one.number): SharedSlice(number, at) for at, one in enumerate(found)})
        parts.append(split_of(log, [one.piece for one in found]))
    return SharedSplit(
        topic=parts[0].topic,
        parts=tuple(parts),
        reads=tuple(
            SharedRead(
                object_key=read[0].piece.reference.object_key,
                start=read[0].start,
                length=read[-1].end - read[0].start,
                slices=tuple(places[one.part, one.number] for one in read),
            )
            for read in reads
        ),
        size_bytes=sum(part.size_bytes for part in parts),
    )
