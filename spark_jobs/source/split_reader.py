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

# What is on its way or waits to be looked at. A store takes 15 ms or more for a request: enough of them have to be
# under way that small segments do not come one after the other, and large ones are not waited for. Not more: what has
# arrived should still be in the processor's cache when it is looked at.
_AHEAD_BYTES = 16 * MIB
_AHEAD_REQUESTS = 32

# The last read that is begun may take as much again as the others. Memory for large ones comes in few sizes, so that
# one segment's is of use for the next one, which is a little larger.
_POOL_BYTES = 2 * _AHEAD_BYTES
_LARGE_STEP_BYTES = 4 * MIB


# What one task read into the next one of its process reads into: new pages would cost more than what is read.
_spare_pools: deque[SlabPool] = deque(maxlen=1)


class ExpiredRangeError(KafscaleError):
    """Offsets that a split holds are gone: they expired, or their topic was deleted, before they were read."""

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

    Every byte was held against a checksum. Raises `CorruptDataError`, `ExpiredRangeError`,
    `StoreError`, `StartupError`.
    """
    # Here, and not above: its code is compiled when it is loaded, which only tasks have a use for.
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
    """All of the split, in order, as it is stored. The memory, the pool's, is used again once the next are asked for.

    Raises as `read_split` does.
    """
    return _SplitReader(namespace, split, stores, pool).batches()


class _OpenedStores:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def open_objects(self, stack: AsyncExitStack) -> ObjectReader:
        # Not a replica: whether what it holds is of this topic, only the primary could tell.
        return open_objects_for_reading(self._settings, stack)

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        return (await open_for_reading(self._settings, stack))[0]


class _Read(NamedTuple):
    """A piece on its way into the slab; neither for one that is too large for that. `arrived`: how many bytes."""

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
        # What the record says of the partition, once there was a reason to ask again.
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

    # --- what usually happens

    def _under_way(self, pieces: Sequence[Piece]) -> Generator[_Read, None, None]:
        """The reads in order, begun as early as there is room; a slab is used again once the next is asked for."""
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
        """The batches; None when it takes more to read them."""
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

    # --- what else may happen

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
        """What is left of the split as the partition is now: segments were merged perhaps, or they expired.

        Raises `problem` where the partition still is as it was planned, `ExpiredRangeError`.
        """
        left = [piece for piece in pieces if piece.next_offset > self._next_offset]
        log = self._log_now(left[0])
        if left[0].reference in log.references:
            if not isinstance(problem, OtherTopicError):
                raise problem
            # The record knows other epochs than its segments carry, as one may that was made from the bucket alone.
            self._any_epoch = True
        for piece in left:
            self._check_held(piece, log)
        self._located = log
        first_offset = max(left[0].first_offset, self._next_offset)
        call = plan_pieces(log, self._stores.objects, self._namespace, first_offset, self._split.next_offset)
        return self._stores.start(call).result()

    def _log_now(self, piece: Piece) -> PartitionLog:
        split = self._split
        try:
            log = self._stores.ask(partial(read_partition, topic=split.topic, partition=split.partition))
        except UnknownTopicError as problem:
            raise self._expired(piece, "the topic was deleted") from problem
        # Leader epochs never start again, also not where a topic comes back under its name.
        if log.epochs and split.epochs and log.epochs[0].leader_epoch > split.epochs[-1].leader_epoch:
            raise self._expired(piece, "the topic was deleted, there is another of its name")
        return log

    def _check_held(self, piece: Piece, log: PartitionLog) -> None:
        """Raise `ExpiredRangeError` unless what was in one segment is in one segment still, or in neighbours."""
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
