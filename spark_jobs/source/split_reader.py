"""Reads one split in a Spark task: from the object store into Arrow record batches."""

import logging
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, closing
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from kafscale.broker.stores import open_for_reading, open_objects_for_reading
from kafscale.errors import CorruptDataError, KafscaleError, ObjectNotFoundError
from kafscale.formats.segment_check import OtherTopicError
from kafscale.memory.slab import Slab, SlabPool
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ObjectReader
from kafscale.settings.broker import Settings
from spark_jobs.source.piece_check import Located, PieceCheck
from spark_jobs.source.piece_reader import read_piece
from spark_jobs.source.splits import Piece, Split, plan_pieces, references_between
from spark_jobs.source.store_thread import StoreThread
from spark_jobs.source.stored_batches import StoredBatches
from spark_jobs.source.topic_state import PartitionLog, UnknownTopicError, read_partition

logger = logging.getLogger(__name__)

MIB = 1024 * 1024

# Reads that are in flight or wait to be checked. A store takes 15 ms or more for a request: enough of them must be in
# flight that small segments do not come one after the other, and large ones are not waited for. Not more: data
# should still be in the processor's cache when it is checked.
_AHEAD_BYTES = 16 * MIB
_AHEAD_REQUESTS = 32

# The last read may take as much again as the others. Memory for large ones comes in few sizes, so that one segment's
# can be used for the next one, which is a little larger.
_POOL_BYTES = 2 * _AHEAD_BYTES
_LARGE_STEP_BYTES = 4 * MIB


# The next task of the process reads into the memory of the last one: new pages would cost more than the read.
_spare_pools: deque[SlabPool] = deque(maxlen=1)


class ExpiredRangeError(KafscaleError):
    """Offsets of a split are gone: they expired, or their topic was deleted, before they were read."""

    def __init__(self, split: Split, first_offset: int, next_offset: int, reason: str) -> None:
        super().__init__(
            f"offsets {first_offset} to {next_offset - 1} of partition {split.partition} of topic {split.topic!r} "
            f"are gone since the read was planned: {reason}"
        )
        self.topic = split.topic
        self.partition = split.partition
        self.first_offset = first_offset
        self.next_offset = next_offset


def read_split(settings: Settings, split: Split, *, include_headers: bool) -> Iterator[pa.RecordBatch]:
    """The split's records, in order, in batches of the schema `arrow_schema(include_headers)`.

    Every byte was checked against a checksum. Raises `CorruptDataError`, `ExpiredRangeError`,
    `StoreError`, `StartupError`.
    """
    # Imported here: its code is compiled when it is loaded, which only tasks use.
    from spark_jobs.source.record_columns import record_columns

    pool = _spare_pools.pop() if _spare_pools else SlabPool(_POOL_BYTES)
    with (
        StoreThread(_OpenedStores(settings)) as stores,
        closing(split_batches(settings.s3_namespace, split, stores, pool)) as stored,
    ):
        yield from record_columns(stored, split.topic, split.partition, include_headers=include_headers)
    _spare_pools.append(pool)


def split_batches(
    namespace: str, split: Split, stores: StoreThread, pool: SlabPool
) -> Generator[StoredBatches, None, None]:
    """All of the split, in order, as stored. The memory is the pool's, and used again at the next request.

    Raises as `read_split` does.
    """
    return _SplitReader(namespace, split, stores, pool).batches()


class _OpenedStores:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def open_objects(self, stack: AsyncExitStack) -> ObjectReader:
        # Not a replica: only the primary could tell which topic its objects are of.
        return open_objects_for_reading(self._settings, stack)

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        return (await open_for_reading(self._settings, stack))[0]


class _Read(NamedTuple):
    """A piece in flight into the slab; without one if it is too large for that. `arrived`: the number of bytes."""

    piece: Piece
    check: PieceCheck
    slab: Slab | None
    arrived: Future[int] | None

    @property
    def size_bytes(self) -> int:
        return 0 if self.slab is None else self.slab.capacity_bytes


class _SplitReader:
    def __init__(self, namespace: str, split: Split, stores: StoreThread, pool: SlabPool) -> None:
        self._namespace = namespace
        self._split = split
        self._stores = stores
        self._pool = pool
        # The partition's record, once it had to be read again.
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
        with closing(self._under_way(pieces)) as reads:
            for read in reads:
                found = self._checked(read)
                if found is not None:
                    yield found
                else:
                    yield from self._read_with_care(read.piece)

    # --- the usual case

    def _under_way(self, pieces: Sequence[Piece]) -> Generator[_Read, None, None]:
        """The reads in order, started as early as there is room; a slab is used again once the next is requested."""
        reads: deque[_Read] = deque()
        remaining = deque(pieces)
        ahead_bytes = 0
        try:
            while remaining or reads:
                while remaining and (
                    not reads or (ahead_bytes < _AHEAD_BYTES and len(reads) < _AHEAD_REQUESTS)
                ):
                    reads.append(self._begin(remaining.popleft()))
                    ahead_bytes += reads[-1].size_bytes
                yield reads[0]
                read = reads.popleft()
                ahead_bytes -= read.size_bytes
                if read.slab is not None:
                    self._pool.release(read.slab)
        finally:
            for read in reads:
                if read.arrived is not None:
                    read.arrived.cancel()

    def _begin(self, piece: Piece) -> _Read:
        check = PieceCheck(self._namespace, self._located, piece)
        if piece.is_undivided:
            return _Read(piece, check, None, None)
        steps = -(-check.length // _LARGE_STEP_BYTES)
        slab = self._pool.acquire(check.length if steps == 1 else steps * _LARGE_STEP_BYTES)
        call = self._stores.objects.read_into(
            check.object_key, check.start, check.length, [slab.view[: check.length]]
        )
        return _Read(piece, check, slab, self._stores.start(call))

    def _checked(self, read: _Read) -> StoredBatches | None:
        """The batches; None if it takes more reads to get them."""
        if read.arrived is None or read.slab is None:
            return None
        try:
            count = read.arrived.result()
            return read.check.batches(read.slab.view[:count], any_epoch=self._any_epoch)
        except OtherTopicError:
            raise
        except CorruptDataError as problem:
            logger.warning("a segment has to be read again", extra={"problem": str(problem)})
            return None

    # --- other cases

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
        left = [piece for piece in pieces if piece.next_offset > self._next_offset]
        log = self._log_now(left[0])
        if left[0].reference in log.references:
            if not isinstance(problem, OtherTopicError):
                raise problem
            # A record that was rebuilt from the bucket alone may know other epochs than its segments carry.
            self._any_epoch = True
        for piece in left:
            self._check_covered(piece, log)
        self._located = log
        first_offset = max(left[0].first_offset, self._next_offset)
        call = plan_pieces(log, self._stores.objects, self._namespace, first_offset, self._split.next_offset)
        return self._stores.start(call).result()

    def _log_now(self, piece: Piece) -> PartitionLog:
        split = self._split
        try:
            log = self._stores.call(partial(read_partition, topic=split.topic, partition=split.partition))
        except UnknownTopicError as problem:
            raise self._expired(piece, "the topic was deleted") from problem
        # Leader epochs never go back, not even if a topic's name is used again.
        if log.epochs and split.epochs and log.epochs[0].leader_epoch > split.epochs[-1].leader_epoch:
            raise self._expired(piece, "the topic was deleted, there is another of its name")
        return log

    def _check_covered(self, piece: Piece, log: PartitionLog) -> None:
        """Raise `ExpiredRangeError` unless one segment's offsets still are in one segment, or in neighbours."""
        offset = piece.first_offset
        for reference in references_between(log.references, piece.first_offset, piece.next_offset):
            if reference.base_offset > offset:
                break
            offset = reference.last_offset + 1
        if offset < piece.next_offset:
            reason = f"the partition's log starts at {log.log_start_offset} now"
            if offset >= log.log_start_offset:
                reason = "no segment of the partition holds them now"
            raise self._expired(piece, reason)

    def _expired(self, piece: Piece, reason: str) -> ExpiredRangeError:
        first_offset = max(piece.first_offset, self._next_offset)
        return ExpiredRangeError(self._split, first_offset, piece.next_offset, reason)


async def _next(found: AsyncIterator[StoredBatches]) -> StoredBatches | None:
    return await anext(found, None)
