"""Reads one split: its checked batches, wherever they lie by now."""

import logging
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import closing

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.segment_check import OtherTopicError
from kafscale.memory.slab import SlabPool
from kafscale.reader.piece_check import Located, PieceCheck
from kafscale.reader.piece_reader import read_piece
from kafscale.reader.reads_ahead import Arrival, ByteRange, reads_ahead
from kafscale.reader.replanning import Rest, logs_now, pieces_now
from kafscale.reader.shared_reader import shared_batches
from kafscale.reader.shared_splits import AnySplit, SharedSplit
from kafscale.reader.splits import Piece, Split
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.stored_batches import StoredBatches

logger = logging.getLogger(__name__)


def split_batches(
    namespace: str, split: AnySplit, stores: StoreThread, pool: SlabPool
) -> Generator[StoredBatches, None, None]:
    """All of the split, each partition's in order, as stored. The memory is the pool's until the next request.

    Every byte was checked against a checksum. Raises `CorruptDataError`, `ExpiredRangeError`, `StoreError`,
    `StartupError`.
    """
    if isinstance(split, SharedSplit):
        return shared_batches(
            namespace, split, stores, pool, lambda part: split_batches(namespace, part, stores, pool)
        )
    return _SplitReader(namespace, split, stores, pool).batches()


class _SplitReader:
    def __init__(self, namespace: str, split: Split, stores: StoreThread, pool: SlabPool) -> None:
        self._namespace = namespace
        self._split = split
        self._stores = stores
        self._pool = pool
        # The partition's state, once it had to be read again.
        self._located: Located = split
        self._any_epoch = False
        self._next_offset = split.first_offset

    def batches(self) -> Generator[StoredBatches, None, None]:
        """See `split_batches`."""
        pieces: Sequence[Piece] = self._split.pieces
        while True:
            try:
                with closing(self._batches_of(pieces)) as found:
                    for batches in found:
                        yield batches
                        self._next_offset = batches.next_offset
                self._check_topic(pieces)
                return
            except (ObjectNotFoundError, CorruptDataError) as problem:
                pieces = self._planned_again(pieces, problem)

    def _batches_of(self, pieces: Sequence[Piece]) -> Generator[StoredBatches, None, None]:
        wanted = [self._wanted(piece) for piece in pieces]
        with closing(reads_ahead(self._stores, self._pool, wanted)) as reads:
            for check, arrival in reads:
                found = None if arrival is None else self._checked(check, arrival)
                if found is not None:
                    yield found
                else:
                    # It takes more reads to get them.
                    yield from self._read_with_care(check.piece)

    def _wanted(self, piece: Piece) -> tuple[PieceCheck, ByteRange | None]:
        check = PieceCheck(self._namespace, self._located, piece, self._split.aborted)
        if piece.is_undivided:
            return check, None
        return check, ByteRange(check.object_key, check.start, check.length)

    def _checked(self, check: PieceCheck, arrival: Arrival) -> StoredBatches | None:
        """The batches; None if they are damaged."""
        try:
            return check.batches(arrival.bytes(), any_epoch=self._any_epoch)
        except OtherTopicError:
            raise
        except CorruptDataError as problem:
            logger.warning("a segment has to be read again", extra={"problem": str(problem)})
            return None

    def _read_with_care(self, piece: Piece) -> Iterator[StoredBatches]:
        found = read_piece(
            self._stores.objects,
            self._namespace,
            self._located,
            piece,
            any_epoch=self._any_epoch,
            aborted=self._split.aborted,
        )
        try:
            while True:
                batches = self._stores.start(_next(found)).result()
                if batches is None:
                    return
                yield batches
        finally:
            self._stores.start(found.aclose()).result()

    def _check_topic(self, pieces: Sequence[Piece]) -> None:
        """Once epochs prove nothing, only the topic's id tells whether an object is of this topic."""
        if self._any_epoch:
            logs_now(self._stores, self._namespace, [Rest(self._split, pieces, pieces[-1].first_offset)])

    def _planned_again(self, pieces: Sequence[Piece], problem: Exception) -> Sequence[Piece]:
        """The rest of the split as the partition is now: segments may have been merged, or have expired.

        Raises `problem` if the partition is still as planned, `ExpiredRangeError`.
        """
        rest = Rest(self._split, pieces, self._next_offset)
        (log,) = logs_now(self._stores, self._namespace, [rest])
        if rest.is_as_planned(log):
            if not isinstance(problem, OtherTopicError):
                raise problem
            # A record that was rebuilt from the bucket alone may know other epochs than its segments carry.
            self._any_epoch = True
        self._located = log
        return pieces_now(self._stores, self._namespace, rest, log)


async def _next(found: AsyncIterator[StoredBatches]) -> StoredBatches | None:
    return await anext(found, None)
