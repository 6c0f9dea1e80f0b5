"""The read of a piece of a split, and the check of the result against the partition's record and the index.

Pure. A segment that is read whole is checked by the CRC of its body; a chunk of one by its batches' CRCs, the chain
of their offsets, its neighbours and the leader epochs, or by its own CRC if it has one.
"""

from typing import Protocol

from kafscale.formats import object_keys
from kafscale.formats.partition_record import EpochStart, PartitionRecord
from kafscale.formats.segment import HEADER_SIZE
from kafscale.formats.segment_check import Expected, check_chunk, check_whole, wanted_bytes
from kafscale.memory.pieces import Pieces
from kafscale.reader.aborted_batches import NONE_ABORTED, AbortedBatches
from kafscale.reader.splits import Piece
from kafscale.reader.stored_batches import StoredBatches


class Located(Protocol):
    """A partition with the leader epochs in its record: a `PartitionLog` or a `Split`."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def epochs(self) -> tuple[EpochStart, ...]: ...


class PieceCheck:
    """One piece's object, the wanted bytes of it, and the check of the read bytes.

    `aborted`: what the readers of its batches leave out.
    """

    def __init__(
        self, namespace: str, located: Located, piece: Piece, aborted: AbortedBatches = NONE_ABORTED
    ) -> None:
        self.piece = piece
        self._aborted = aborted
        self._partition = located.partition
        reference = piece.reference
        self.object_key = object_keys.key_of_reference(namespace, located.topic, located.partition, reference)
        # Only the epochs of the record are used.
        record = PartitionRecord(leader_epoch=reference.leader_epoch, epochs=located.epochs)
        self._expected = Expected(self.object_key, reference, record)
        self._file_start = 0
        self.length = reference.size_bytes
        if piece.chunk is not None:
            self._file_start, self.length = wanted_bytes(self._expected, piece.chunk)

    @property
    def start(self) -> int:
        """The position in the object to read from; `length` bytes follow."""
        return self.piece.reference.start + self._file_start

    def batches(self, read: memoryview, *, any_epoch: bool = False) -> StoredBatches:
        """The batches in `read`, the received bytes, without a copy.

        `any_epoch`: batches may carry leader epochs that the record does not know. Raises `CorruptDataError`:
        `OtherTopicError` for such epochs, and for a chunk `BrokenChainError` if the index may be wrong, and
        `UncertainChunkError`.
        """
        self._expected.check_length(len(read), self.length)
        file = Pieces([read], self._file_start)
        chunk = self.piece.chunk
        if chunk is None:
            check_whole(self._expected, file, is_from_replica=not any_epoch)
            start, end = HEADER_SIZE, self._expected.body_end
        else:
            check_chunk(self._expected, chunk, file, is_from_replica=not any_epoch)
            start, end = chunk.start, chunk.end
        return StoredBatches(
            name=self.object_key,
            partition=self._partition,
            data=file.contiguous(start, end),
            first_offset=self.piece.first_offset,
            next_offset=self.piece.next_offset,
            aborted=self._aborted,
        )
