"""The check of what was read of a segment, against its partition's record and its index.

Pure, and done before any client is served a byte of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_walk import BatchWalk, BrokenChainError, Chain, epochs_agree
from kafscale.formats.index import DEFAULT_INTERVAL, LARGE_VERSION, SparseIndex
from kafscale.formats.partition_record import (
    UNDEFINED_EPOCH,
    EpochStart,
    PartitionRecord,
    SegmentReference,
    epoch_of,
)
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, body_crc, parse_footer, parse_header
from kafscale.formats.segment_layout import ChunkRange
from kafscale.memory.pieces import Pieces
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE


class OtherTopicError(CorruptDataError):
    """The batches carry leader epochs that the record does not know.

    A replica holds an older topic's object, or this broker's record is that of an older topic.
    """


class UncertainChunkError(CorruptDataError):
    """Nothing is wrong, but only the CRC of the whole body can vouch for some offset or leader epoch."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A segment as the partition's record has it. `name` says in errors which object this is.

    `compares_epochs`: whether leader epochs that the record does not know are an error, in the primary as well.
    """

    name: str
    reference: SegmentReference
    record: PartitionRecord
    compares_epochs: bool = False

    @property
    def body_end(self) -> int:
        """The position after the last batch."""
        return self.reference.size_bytes - FOOTER_SIZE

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the batch with the offset, `UNDEFINED_EPOCH` if it is not remembered."""
        epoch = epoch_of(self.record, offset)
        if epoch == UNDEFINED_EPOCH and not self.reference.object_key:
            return self.reference.leader_epoch
        return epoch

    def check_length(self, count: int, length: int) -> None:
        """Raise `CorruptDataError` when fewer bytes came than there should be."""
        if count != length:
            raise CorruptDataError(
                self.name, f"{count} bytes where the partition record says there are {length}"
            )

    def check_header(self, header: memoryview) -> int:
        """The message count of the file's header, which must begin with the right offset."""
        parsed = parse_header(self.name, header)
        if parsed.base_offset != self.reference.base_offset:
            raise CorruptDataError(
                self.name,
                f"begins with offset {parsed.base_offset}, the partition record says "
                f"{self.reference.base_offset}",
            )
        return parsed.message_count

    def check_footer(self, footer: memoryview) -> int:
        """The body's CRC by the file's footer, which must end with the right offset."""
        parsed = parse_footer(self.name, footer)
        if parsed.last_offset != self.reference.last_offset:
            raise CorruptDataError(
                self.name,
                f"ends with offset {parsed.last_offset}, the partition record says "
                f"{self.reference.last_offset}",
            )
        return parsed.body_crc


def check_whole(expected: Expected, file: Pieces, *, is_from_replica: bool) -> SparseIndex:
    """Check a whole file; returns the index of its batches. Raises `CorruptDataError`, `OtherTopicError`."""
    name, reference, end = expected.name, expected.reference, expected.body_end
    message_count = expected.check_header(file.contiguous(0, HEADER_SIZE))
    crc = expected.check_footer(file.contiguous(end, file.end))
    if body_crc(file.slices(HEADER_SIZE, end)) != crc:
        raise CorruptDataError(name, "the CRC of the body does not match the footer's")
    walk = BatchWalk(name, HEADER_SIZE, reference.base_offset, interval=DEFAULT_INTERVAL)
    walk.walk(file, end)
    chain = walk.chain
    found = (chain.next_position, chain.next_offset - 1, chain.record_count)
    if found != (end, reference.last_offset, message_count):
        raise BrokenChainError(
            name,
            f"its batches hold {chain.record_count} records up to offset {chain.next_offset - 1} and position "
            f"{chain.next_position}; header and footer say {message_count}, {reference.last_offset} and {end}",
        )
    if (is_from_replica or expected.compares_epochs) and not epochs_agree(chain, expected.epoch_of):
        raise OtherTopicError(name, "its leader epochs are not those of the partition")
    return _index_of(name, chain)


def wanted_bytes(expected: Expected, chunk: ChunkRange) -> tuple[int, int]:
    """The position and the number of bytes to read for a chunk, with what vouches for its ends.

    That is the file's header before the first chunk, the footer behind the last one, and the next batch's header
    behind any other; nothing where the chunk's CRC is known.
    """
    start, end = chunk.start, chunk.end
    if chunk.crc is None:
        start = 0 if start == HEADER_SIZE else start
        end += FOOTER_SIZE if chunk.is_last else BATCH_HEADER_SIZE
    return start, min(end, expected.reference.size_bytes) - start


def check_chunk(
    expected: Expected, chunk: ChunkRange, file: Pieces, *, is_from_replica: bool
) -> tuple[SparseIndex, int]:
    """Check what `wanted_bytes` says was read; returns the batches' index, and their largest timestamp.

    Raises `BrokenChainError` where the index may be wrong, `OtherTopicError` only for a replica,
    `UncertainChunkError`, and `CorruptDataError` for everything else.
    """
    is_vouched_for = chunk.crc is not None
    if is_vouched_for and body_crc(file.slices(chunk.start, chunk.end)) != chunk.crc:
        raise CorruptDataError(
            expected.name, f"the chunk at position {chunk.start} has changed since it was verified"
        )
    walk = BatchWalk(
        expected.name,
        chunk.start,
        chunk.first_offset,
        interval=DEFAULT_INTERVAL,
        checks_crcs=not is_vouched_for,
        may_begin_later=is_vouched_for,
    )
    walk.walk(file, chunk.end)
    chain = walk.chain
    index, max_timestamp_ms = _index_of(expected.name, chain), chain.max_timestamp_ms
    if chain.next_position != chunk.end or chain.next_offset > chunk.next_offset:
        raise BrokenChainError(
            expected.name,
            f"the batches from position {chunk.start} on reach position {chain.next_position} and offset "
            f"{chain.next_offset - 1}; the next one should start at {chunk.end} with {chunk.next_offset}",
        )
    if not is_vouched_for:
        following = _check_ends(expected, chunk, file)
        _check_certain(expected, chunk, chain, following, is_from_replica)
    return index, max_timestamp_ms


def _check_ends(expected: Expected, chunk: ChunkRange, file: Pieces) -> list[EpochStart]:
    """Check what was read beside the chunk; returns the epoch of the next batch, if there is one."""
    if file.start == 0:
        expected.check_header(file.contiguous(0, HEADER_SIZE))
    if chunk.is_last:
        expected.check_footer(file.contiguous(chunk.end, file.end))
        return []
    walk = BatchWalk(expected.name, chunk.end, chunk.next_offset, interval=DEFAULT_INTERVAL)
    walk.walk(file, file.end)
    if not walk.chain.epochs:
        raise BrokenChainError(
            expected.name, f"no batch has room at position {chunk.end}, where the next one should start"
        )
    return walk.chain.epochs


def _check_certain(
    expected: Expected,
    chunk: ChunkRange,
    chain: Chain,
    following: Sequence[EpochStart],
    is_from_replica: bool,
) -> None:
    """Raise unless every offset and leader epoch in the chunk follows from what others say."""
    knows_epochs = epochs_agree(chain, expected.epoch_of)
    if (is_from_replica or expected.compares_epochs) and not knows_epochs:
        raise OtherTopicError(expected.name, "its leader epochs are not those of the partition")
    # Without a memory, batches can only be each other's witnesses.
    agree = len({run.leader_epoch for run in (*chain.epochs, *following)}) == 1
    agree = agree and chain.batch_count + len(following) > 1
    remembers = all(expected.epoch_of(run.start_offset) != UNDEFINED_EPOCH for run in chain.epochs)
    has_gap = bool(chain.gaps) or chain.next_offset != chunk.next_offset
    if has_gap or not knows_epochs or not (remembers or agree):
        raise UncertainChunkError(
            expected.name,
            f"the chunk at position {chunk.start} has gaps between offsets, or leader epochs that no record "
            "remembers: the whole body has to be verified",
        )


def _index_of(name: str, chain: Chain) -> SparseIndex:
    return SparseIndex(
        name=name,
        version=LARGE_VERSION,
        interval=DEFAULT_INTERVAL,
        offsets=chain.offsets,
        positions=chain.positions,
    )
