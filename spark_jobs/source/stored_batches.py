"""Record batches as they lie in a segment, checked, on their way to those who look at records."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatches:
    """Whole record batches, checked against a CRC that covers them, and which of their offsets are wanted.

    `name` says in errors which object they are of. Whether the memory stays theirs says who gives them.
    """

    name: str
    data: memoryview
    first_offset: int
    next_offset: int
