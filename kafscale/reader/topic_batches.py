"""Reads a planned topic: partition after partition, each in the order of its offsets, ahead of the caller."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from kafscale.errors import CorruptDataError, ObjectNotFoundError, OffsetsGoneError
from kafscale.memory.slab import SlabPool
from kafscale.reader.piece_check import PieceCheck
from kafscale.reader.reads_ahead import POOL_BYTES, Arrival, ByteRange, reads_ahead
from kafscale.reader.sources import ReadSource
from kafscale.reader.split_reader import split_batches
from kafscale.reader.splits import Piece, Split
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.stored_batches import StoredBatches
from kafscale.reader.topic_plan import TopicPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProgress:
    """How far a read has come: `partition` is read up to `next_offset`.

    `offsets_total` and `bytes_total` are known from the beginning; gaps count as offsets. Bytes are stored ones.
    """

    topic: str
    partition: int
    next_offset: int
    offsets_done: int
    offsets_total: int
    bytes_done: int
    bytes_total: int


OnProgress = Callable[[ReadProgress], None]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A piece of a split: the one with the number `number`, or all from it on where they are to be read with care."""

    split: Split
    number: int

    @property
    def piece(self) -> Piece:
        return self.split.pieces[self.number]


def topic_batches(
    source: ReadSource, plan: TopicPlan, on_progress: OnProgress | None = None
) -> Generator[StoredBatches, None, None]:
    """The planned batches, as stored. Their memory is used again once the next ones are requested.

    The stores are open from the first request to the end of the generator. Every byte was checked against a
    checksum. Raises `CorruptDataError`, `OffsetsGoneError` if records expired meanwhile, `StoreError`,
    `StartupError`.
    """
    if not plan.splits:
        return
    with (
        StoreThread(source) as stores,
        closing(planned_batches(source.settings.s3_namespace, plan, stores, SlabPool(POOL_BYTES))) as found,
    ):
        yield from _reported(found, plan, on_progress)


def _reported(
    found: Iterator[StoredBatches], plan: TopicPlan, on_progress: OnProgress | None
) -> Iterator[StoredBatches]:
    """Calls back when a part was taken, before the next one is read."""
    if on_progress is None:
        yield from found
        return
    starts = {one.partition: one.first_offset for one in plan.ranges}
    ends = {one.partition: one.next_offset for one in plan.ranges}
    total, size_bytes = plan.offset_count, plan.size_bytes
    before = bytes_done = 0
    last: StoredBatches | None = None
    for batches in found:
        if last is not None and last.partition != batches.partition:
            before += ends[last.partition] - starts[last.partition]
        yield batches
        last = batches
        bytes_done += len(batches.data)
        on_progress(
            ReadProgress(
                topic=plan.topic,
                partition=batches.partition,
                next_offset=batches.next_offset,
                offsets_done=min(total, before + batches.next_offset - starts[batches.partition]),
                offsets_total=total,
                bytes_done=min(bytes_done, size_bytes),
                bytes_total=size_bytes,
            )
        )


def planned_batches(
    namespace: str, plan: TopicPlan, stores: StoreThread, pool: SlabPool
) -> Generator[StoredBatches, None, None]:
    """The same from stores that are open. The memory is the pool's."""
    wanted = (
        (_Wanted(split, number), _range_of(namespace, split, piece))
        for split in plan.splits
        for number, piece in enumerate(split.pieces)
    )
    with closing(reads_ahead(stores, pool, wanted)) as reads:
        taken_over: Split | None = None
        for one, arrival in reads:
            if one.split is taken_over:
                continue
            found = None if arrival is None else _checked(namespace, one, arrival)
            if found is not None:
                yield found
                continue
            # It takes more reads, or the objects are others by now: the rest of the partition is read by itself.
            taken_over = one.split
            yield from _rest_of(namespace, _from(one), stores, pool)


def _rest_of(namespace: str, split: Split, stores: StoreThread, pool: SlabPool) -> Iterator[StoredBatches]:
    """The split by itself, with offsets in the errors."""
    position = split.first_offset
    try:
        with closing(split_batches(namespace, split, stores, pool)) as found:
            for batches in found:
                yield batches
                position = batches.next_offset
    except CorruptDataError as problem:
        said = _offsets_at(split, position)[2]
        raise CorruptDataError(problem.name, f"{problem.problem} ({said})") from problem
    except ObjectNotFoundError as problem:
        first_offset, next_offset, said = _offsets_at(split, position)
        raise OffsetsGoneError(
            f"{said} are gone: there is no object {problem.key!r}, which the partition's record still names; "
            "`kafscale fsck` says what else is missing",
            split.topic,
            split.partition,
            first_offset,
            next_offset,
        ) from problem


def _offsets_at(split: Split, position: int) -> tuple[int, int, str]:
    """The first offset of the piece that is read from `position` on, the one after its last, and both in words."""
    piece = next((one for one in split.pieces if one.next_offset > position), split.pieces[-1])
    first_offset = max(piece.first_offset, position)
    partition = f"partition {split.partition} of topic {split.topic!r}"
    said = f"offsets {first_offset} to {piece.next_offset - 1} of {partition}"
    return first_offset, piece.next_offset, said


def _range_of(namespace: str, split: Split, piece: Piece) -> ByteRange | None:
    if piece.is_undivided:
        return None
    check = PieceCheck(namespace, split, piece)
    return ByteRange(check.object_key, check.start, check.length)


def _checked(namespace: str, one: _Wanted, arrival: Arrival) -> StoredBatches | None:
    """The piece's batches; None if they are damaged or gone."""
    try:
        return PieceCheck(namespace, one.split, one.piece, one.split.aborted).batches(arrival.bytes())
    except (CorruptDataError, ObjectNotFoundError):
        return None


def _from(one: _Wanted) -> Split:
    pieces = one.split.pieces[one.number :]
    return replace(one.split, pieces=pieces, size_bytes=sum(piece.size_bytes for piece in pieces))
