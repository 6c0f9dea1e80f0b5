"""Checked record batches as they are in a segment."""

from dataclasses import dataclass

from kafscale.reader.aborted_batches import NONE_ABORTED, AbortedBatches


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatches:
    """Whole record batches, checked by a CRC that covers them, and their wanted offsets.

    `name`: their object, for errors. `partition`: the index of their partition. `aborted`: the batches among them
    that are not wanted. The function that returns them says how long the memory is theirs.
    """

    name: str
    partition: int
    data: memoryview
    first_offset: int
    next_offset: int
    aborted: AbortedBatches = NONE_ABORTED
