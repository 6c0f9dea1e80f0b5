"""Reads a split of slices of many partitions: each range of an object once, for all of them."""

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.memory.slab import SlabPool
from kafscale.reader.piece_check import PieceCheck
from kafscale.reader.reads_ahead import ByteRange, reads_ahead
from kafscale.reader.replanning import Rest, logs_now, pieces_now
from kafscale.reader.shared_splits import (
    UNDIVIDED_BYTES,
    AnySplit,
    SharedRead,
    SharedSlice,
    SharedSplit,
    divide,
)
from kafscale.reader.splits import Split
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.stored_batches import StoredBatches

logger = logging.getLogger(__name__)

ReadPart = Callable[[Split], Generator[StoredBatches, None, None]]
"""Reads a split of one partition, also if its objects were replaced since it was planned."""


def shared_batches(
    namespace: str, split: SharedSplit, stores: StoreThread, pool: SlabPool, read_part: ReadPart
) -> Generator[StoredBatches, None, None]:
    """All of the split, each partition's in order, as stored. The memory is the pool's until the next request.

    Where an object is gone, the partitions that it had slices of are looked up again. Raises `CorruptDataError`,
    `ExpiredRangeError`, `StoreError`.
    """
    waiting: list[AnySplit] = [split]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, Split):
            with closing(read_part(one)) as found:
                yield from found
            continue
        reader = _SharedReader(namespace, one, stores, pool, read_part)
        with closing(reader.batches()) as found:
            yield from found
        waiting += reader.planned_again()


class _SharedReader:
    def __init__(
        self, namespace: str, split: SharedSplit, stores: StoreThread, pool: SlabPool, read_part: ReadPart
    ) -> None:
        self._namespace = namespace
        self._split = split
        self._stores = stores
        self._pool = pool
        self._read_part = read_part
        # By part: how many of its pieces were read, and why the next one could not be.
        self._done = [0] * len(split.parts)
        self._lost: dict[int, ObjectNotFoundError] = {}

    def batches(self) -> Generator[StoredBatches, None, None]:
        """The batches that are where they were when the split was planned."""
        wanted = [(read, ByteRange(read.object_key, read.start, read.length)) for read in self._split.reads]
        with closing(reads_ahead(self._stores, self._pool, wanted)) as reads:
            for read, arrival in reads:
                assert arrival is not None, "each of them has a range"
                try:
                    data = arrival.bytes()
                except ObjectNotFoundError as problem:
                    for one in read.slices:
                        self._lost.setdefault(one.part, problem)
                    continue
                for one in read.slices:
                    if one.part not in self._lost:
                        yield from self._slice(read, one, data)
                        self._done[one.part] += 1

    def _slice(self, read: SharedRead, one: SharedSlice, data: memoryview) -> Iterator[StoredBatches]:
        part = self._split.parts[one.part]
        piece = part.pieces[one.piece]
        start = piece.reference.start - read.start
        try:
            check = PieceCheck(self._namespace, part, piece, part.aborted)
            batches = check.batches(data[start : start + piece.reference.size_bytes])
        except CorruptDataError as problem:
            logger.warning("a slice has to be read again", extra={"problem": str(problem)})
            yield from self._read_part(replace(part, pieces=(piece,), size_bytes=piece.size_bytes))
        else:
            yield batches

    def planned_again(self) -> list[AnySplit]:
        """Splits of the rest, where it is now: slices may have been sealed or gathered, or have expired.

        Raises the problem if a partition is still as planned, `ExpiredRangeError`.
        """
        if not self._lost:
            return []
        rests = [self._rest(part) for part in sorted(self._lost)]
        logs = logs_now(self._stores, self._namespace, rests)
        for part, rest, log in zip(sorted(self._lost), rests, logs, strict=True):
            if rest.is_as_planned(log):
                raise self._lost[part]
        planned = [
            (
                replace(log, aborted=rest.split.aborted),
                pieces_now(self._stores, self._namespace, rest, log),
            )
            for rest, log in zip(rests, logs, strict=True)
        ]
        return divide(planned, UNDIVIDED_BYTES)

    def _rest(self, number: int) -> Rest:
        part = self._split.parts[number]
        left = part.pieces[self._done[number] :]
        return Rest(part, left, left[0].first_offset)
