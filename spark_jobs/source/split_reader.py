"""Reads one split in a Spark task: from the object store into Arrow record batches."""

import logging
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, closing

import pyarrow as pa

from kafscale.broker.stores import open_for_reading, open_objects_for_reading
from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.segment_check import OtherTopicError
from kafscale.memory.slab import SlabPool
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.settings.broker import Settings
from spark_jobs.source.piece_check import Located, PieceCheck
from spark_jobs.source.piece_reader import read_piece
from spark_jobs.source.reads_ahead import POOL_BYTES, Arrival, ByteRange, reads_ahead
from spark_jobs.source.replanning import Rest, logs_now, pieces_now
from spark_jobs.source.shared_reader import shared_batches
from spark_jobs.source.shared_splits import AnySplit, SharedSplit
from spark_jobs.source.splits import Piece, Split
from spark_jobs.source.store_thread import StoreThread
from spark_jobs.source.stored_batches import StoredBatches

logger = logging.getLogger(__name__)

# The next task of the process reads into the memory of the last one: new pages would cost more than the read.
_spare_pools: list[SlabPool] = []


def read_split(settings: Settings, split: AnySplit, *, include_headers: bool) -> Iterator[pa.RecordBatch]:
    """The split's records, each partition's in order, in batches of the schema `arrow_schema(include_headers)`.

    Every byte was checked against a checksum. Raises `CorruptDataError`, `ExpiredRangeError`,
    `StoreError`, `StartupError`.
    """
    # Imported here: its code is compiled when it is loaded, which only tasks use.
    from spark_jobs.source.record_columns import record_columns

    pool = _spare_pools.pop() if _spare_pools else SlabPool(POOL_BYTES)
    with (
        StoreThread(_OpenedStores(settings)) as stores,
        closing(split_batches(settings.s3_namespace, split, stores, pool)) as stored,
    ):
        yield from record_columns(stored, split.topic, include_headers=include_headers)
    _spare_pools[:] = [pool]


def split_batches(
    namespace: str, split: AnySplit, stores: StoreThread, pool: SlabPool
) -> Generator[StoredBatches, None, None]:
    """All of the split, each partition's in order, as stored. The memory is the pool's until the next request.

    Raises as `read_split` does.
    """
    if isinstance(split, SharedSplit):
        return shared_batches(
            namespace, split, stores, pool, lambda part: split_batches(namespace, part, stores, pool)
        )
    return _SplitReader(namespace, split, stores, pool).batches()


class _OpenedStores:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def open_objects(self, stack: AsyncExitStack) -> ListingReader:
        # Not a replica: only the primary could tell which topic its objects are of.
        return open_objects_for_reading(self._settings, stack)

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        return (await open_for_reading(self._settings, stack))[0]


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
        check = PieceCheck(self._namespace, self._located, piece)
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
            self._stores.objects, self._namespace, self._located, piece, any_epoch=self._any_epoch
        )
        try:
            while True:
                batches = self._stores.start(_next(found)).result()
                if batches is None:
                    return
                yield batches
        finally:
            self._stores.start(found.aclose()).result()

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
