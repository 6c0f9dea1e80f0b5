"""Walks the batches of a segment, or of a part of one, and finds out whether they can be what was written.

Pure. A batch's CRC covers neither its base offset nor its leader epoch. The CRC of a whole body covers both;
for a part of a body there is only what holds a chain together: each batch starts with the offset after the
last one of the batch before, unless there is a gap, which somebody has to vouch for.
"""

import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from kafscale.errors import CorruptDataError
from kafscale.formats.partition_record import UNDEFINED_EPOCH, EpochStart
from kafscale.memory.pieces import Pieces
from kafscale.protocol.record_batch import ATTRIBUTES_POSITION, HEADER_SIZE, LOG_OVERHEAD, MAGIC

# Base offset, length, leader epoch, magic, CRC, last offset delta, max timestamp, record count.
_BATCH = Struct(">qiibI2xi8xq14xi")
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD


class BrokenChainError(CorruptDataError):
    """Where a batch should start there is none, or not the one that should follow."""


@dataclass(slots=True)
class Chain:
    """What a walk has found so far. Offsets and positions are those of a sparse index's entries.

    `epochs`: where each run of batches with one leader epoch starts. `gaps`: the base offsets of the batches
    that do not follow the one before them at once. `cuts`: where new chunks start, as the offset after the batch
    before, and the position of the batch. The next batch starts at `next_position`, with `next_offset` or behind it.
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


class ChainWalk:
    """A walk from a batch's start onwards, in as many steps as the bytes come in.

    `interval`: records between the entries that it keeps. The first batch must have the base offset
    `first_offset`, or with `may_begin_later` that or a higher one. `checks_crcs`: whether each batch is held
    against its own CRC, too. `chunk_bytes`: how large a chunk may become, unless one batch is larger.
    """

    def __init__(
        self,
        name: str,
        position: int,
        first_offset: int,
        *,
        interval: int,
        checks_crcs: bool = False,
        may_begin_later: bool = False,
        chunk_bytes: int = sys.maxsize,
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

    def walk(self, pieces: Pieces, end: int) -> None:
        """Take every batch into the chain whose header ends by `end`.

        The last of them may itself end behind it, unless CRCs are checked. Raises `BrokenChainError`, and
        `CorruptDataError` for a CRC.
        """
        chain, position, next_offset = self.chain, self.chain.next_position, self.chain.next_offset
        epoch_now = chain.epochs[-1].leader_epoch if chain.epochs else None
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
                or length < _MIN_LENGTH
                or not 0 <= count <= delta + 1
                or delta < 0
                or (base_offset != next_offset and epoch_now is None and not self._may_begin_later)
            ):
                raise BrokenChainError(
                    self._name,
                    f"the batch at position {position} cannot be: base offset {base_offset} where "
                    f"{next_offset} is next, magic {magic}, length {length}, last offset delta {delta}, "
                    f"{count} records",
                )
            following = position + LOG_OVERHEAD + length
            if self._checks_crcs:
                self._check_crc(pieces, position, following, end, crc)
            if following - self._chunk_start > self._chunk_bytes and position > self._chunk_start:
                chain.cuts.append((next_offset, position))
                self._chunk_start = position
            if self._passed >= self._interval:
                chain.offsets.append(base_offset)
                chain.positions.append(position)
                self._passed = 0
            self._passed += count
            chain.batch_count += 1
            chain.record_count += count
            if base_offset != next_offset:
                chain.gaps.append(base_offset)
            if epoch != epoch_now:
                chain.epochs.append(EpochStart(epoch, base_offset))
                epoch_now = epoch
            if timestamp_ms > chain.max_timestamp_ms:
                chain.max_timestamp_ms = timestamp_ms
            next_offset, position = base_offset + delta + 1, following
        chain.next_offset, chain.next_position = next_offset, position

    def _check_crc(self, pieces: Pieces, position: int, following: int, end: int, crc: int) -> None:
        if following > end:
            raise BrokenChainError(
                self._name, f"the batch at position {position} ends at {following}, behind {end}"
            )
        computed = 0
        for part in pieces.slices(position + ATTRIBUTES_POSITION, following):
            computed = crc32c(part, computed)
        if computed != crc:
            raise CorruptDataError(
                self._name,
                f"batch at position {position}: CRC-32C is {computed:#010x}, the header says {crc:#010x}",
            )


def epochs_agree(chain: Chain, epoch_of: Callable[[int], int]) -> bool:
    """Whether the batches carry the leader epochs that `epoch_of` gives for their offsets, where it gives any.

    It gives `UNDEFINED_EPOCH` where none is remembered; higher offsets never have lower epochs.
    """
    ends = [run.start_offset for run in chain.epochs[1:]] + [chain.next_offset]
    gaps = set(chain.gaps)
    return all(
        epoch_of(offset) in (run.leader_epoch, UNDEFINED_EPOCH)
        for run, end in zip(chain.epochs, ends, strict=True)
        # Before a gap the last offset is that of a leftover, which the next leader has passed over.
        for offset in ((run.start_offset,) if end in gaps else (run.start_offset, end - 1))
    )
