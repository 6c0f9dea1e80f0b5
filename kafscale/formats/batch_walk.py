"""The walk over the batches of a stored segment, or of a part of one: can they be what a leader wrote?

Pure. A batch's CRC covers neither its base offset nor its leader epoch. The CRC of a whole body covers both. For a
part of a body there is only the chain: each batch starts with the offset after the last one of the batch before,
unless there is a gap, which something else has to explain.
"""

import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from kafscale.errors import CorruptDataError
from kafscale.formats.partition_record import UNDEFINED_EPOCH, EpochStart
from kafscale.formats.segment import body_crc
from kafscale.memory.pieces import Pieces
from kafscale.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
    absurdity,
    crc_problem,
    read_header,
)

# Base offset, length, leader epoch, magic, CRC, last offset delta, max timestamp, record count.
_BATCH = Struct(">qiibI2xi8xq14xi")


class BrokenChainError(CorruptDataError):
    """Where a batch should start there is none, or not the one that should follow."""


@dataclass(slots=True)
class Chain:
    """The batches that a walk has passed. `offsets` and `positions` are those of a sparse index's entries.

    `epochs`: where each run of batches with one leader epoch starts. `gaps`: the base offsets of the batches
    that leave offsets out before them. `cuts`: where new chunks start, as the offset after
    the batch before, and the position of the batch. The next batch starts at `next_position`, with `next_offset` or
    a later one.
    """

    offsets: "array[int]"
    positions: "array[int]"
    epochs: list[EpochStart]
    gaps: list[int]
    cuts: list[tuple[int, int]]
    next_offset: int
    next_position: int
    batch_count: int = 0
    record_count: int = 0
    max_timestamp_ms: int = -1


class BatchWalk:
    """A walk from a batch's start onwards, in as many steps as the bytes arrive in.

    `interval`: records between the index entries that it keeps; by default it keeps the first one alone. The first
    batch must have the base offset `first_offset`, or with `may_begin_later` that or a higher one. `checks_crcs`:
    check each batch against its own CRC, too. `chunk_bytes`: how large a chunk may become, unless one batch is
    larger. `body_end`: the position that no batch may pass, where it is known. `visit` receives the position and
    the header of each batch, in order, after its checks.
    """

    def __init__(
        self,
        name: str,
        position: int,
        first_offset: int,
        *,
        interval: int = sys.maxsize,
        checks_crcs: bool = False,
        may_begin_later: bool = False,
        chunk_bytes: int = sys.maxsize,
        body_end: int = sys.maxsize,
        visit: Callable[[int, BatchHeader], None] | None = None,
    ) -> None:
        self.chain = Chain(
            offsets=array("q"),
            positions=array("q"),
            epochs=[],
            gaps=[],
            cuts=[],
            next_offset=first_offset,
            next_position=position,
        )
        self._name = name
        self._interval = interval
        self._passed = interval
        self._checks_crcs = checks_crcs
        self._may_begin_later = may_begin_later
        self._chunk_bytes = chunk_bytes
        self._chunk_start = position
        self._body_end = body_end
        self._visit = visit

    def walk(self, pieces: Pieces, end: int) -> None:
        """Take every batch into the chain whose header, or with `checks_crcs` all of it, ends by `end`.

        `pieces` has the bytes from the chain's next position on. Raises `BrokenChainError`, and
        `CorruptDataError` for a CRC.
        """
        chain, position, next_offset = self.chain, self.chain.next_position, self.chain.next_offset
        epoch_now = chain.epochs[-1].leader_epoch if chain.epochs else None
        # Locals: at a batch of 1 KiB this loop costs as much as the body's CRC.
        visit, checks_crcs, interval, passed = self._visit, self._checks_crcs, self._interval, self._passed
        chunk_bytes, chunk_start = self._chunk_bytes, self._chunk_start
        last_start = end - HEADER_SIZE
        view, view_start, view_last = memoryview(b""), 0, -1
        while position <= last_start:
            if not view_start <= position <= view_last:
                view, view_start = pieces.around(position, HEADER_SIZE)
                view_last = view_start + len(view) - HEADER_SIZE
            base_offset, length, epoch, magic, crc, delta, timestamp_ms, count = _BATCH.unpack_from(
                view, position - view_start
            )
            if (
                base_offset < next_offset
                or magic != MAGIC
                or length < MIN_BATCH_LENGTH
                or not 0 <= count <= delta + 1
                or delta < 0
                or (base_offset != next_offset and epoch_now is None and not self._may_begin_later)
            ):
                raise self._broken(read_header(view, position - view_start), position, next_offset)
            following = position + LOG_OVERHEAD + length
            if checks_crcs:
                if following > end:
                    if following > self._body_end:
                        raise self._broken(read_header(view, position - view_start), position, next_offset)
                    break
                covered = position - view_start + ATTRIBUTES_POSITION
                if following - view_start <= len(view):
                    computed = crc32c(view[covered : following - view_start])
                else:
                    computed = body_crc(pieces.slices(view_start + covered, following))
                if computed != crc:
                    raise CorruptDataError(
                        self._name, f"batch at position {position}: {crc_problem(computed, crc)}"
                    )
            if following - chunk_start > chunk_bytes and position > chunk_start:
                chain.cuts.append((next_offset, position))
                chunk_start = position
            if passed >= interval:
                chain.offsets.append(base_offset)
                chain.positions.append(position)
                passed = 0
            passed += count
            chain.batch_count += 1
            chain.record_count += count
            if base_offset != next_offset:
                chain.gaps.append(base_offset)
            if epoch != epoch_now:
                chain.epochs.append(EpochStart(epoch, base_offset))
                epoch_now = epoch
            if timestamp_ms > chain.max_timestamp_ms:
                chain.max_timestamp_ms = timestamp_ms
            if visit is not None:
                visit(position, read_header(view, position - view_start))
            next_offset, position = base_offset + delta + 1, following
        chain.next_offset, chain.next_position = next_offset, position
        self._passed, self._chunk_start = passed, chunk_start

    def _broken(self, header: BatchHeader, position: int, next_offset: int) -> BrokenChainError:
        problem = absurdity(header, self._body_end - position)
        if not problem and header.base_offset < next_offset:
            problem = f"base offset {header.base_offset} is before {next_offset}: it follows offset {next_offset - 1}"
        elif not problem:
            problem = f"base offset {header.base_offset} where {next_offset} is due"
        return BrokenChainError(self._name, f"batch at position {position}: {problem}")


def epochs_agree(chain: Chain, epoch_of: Callable[[int], int]) -> bool:
    """True if the batches carry the leader epochs that `epoch_of` gives for their offsets, where it gives any.

    It gives `UNDEFINED_EPOCH` where none is remembered; higher offsets never have lower epochs.
    """
    ends = [run.start_offset for run in chain.epochs[1:]] + [chain.next_offset]
    gaps = set(chain.gaps)
    return all(
        epoch_of(offset) in (run.leader_epoch, UNDEFINED_EPOCH)
        for run, end in zip(chain.epochs, ends, strict=True)
        # Before a gap the last offset is that of an orphan, which the next leader has skipped.
        for offset in ((run.start_offset,) if end in gaps else (run.start_offset, end - 1))
    )
