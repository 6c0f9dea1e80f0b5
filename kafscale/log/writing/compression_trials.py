"""When to try to compress a partition's batches that come uncompressed: not right after one that did not shrink."""

from typing import Final

SKIPPED: Final = 15
"""As many times its bytes as did not shrink are stored untried afterwards."""


class CompressionTrials:
    """Of one partition. Records that do not compress, encrypted ones for one, cost a sixteenth of the trials."""

    __slots__ = ("_skipped_bytes",)

    def __init__(self) -> None:
        self._skipped_bytes = 0

    def is_due(self, size_bytes: int) -> bool:
        """Whether to try a batch of this size: one larger than all that was to be skipped always is tried."""
        if size_bytes > self._skipped_bytes:
            return True
        self._skipped_bytes -= size_bytes
        return False

    def tried(self, size_bytes: int, *, shrank: bool) -> None:
        """What came of it."""
        self._skipped_bytes = 0 if shrank else SKIPPED * size_bytes
