"""Decides when to try to compress a partition's uncompressed batches: not right after one that did not shrink."""

from typing import Final

SKIPPED: Final = 15
"""After a batch that did not shrink, this many times its bytes are stored untried."""


class CompressionTrials:
    """Of one partition. Records that do not compress, such as encrypted ones, cost a sixteenth of the trials."""

    __slots__ = ("_skipped_bytes",)

    def __init__(self) -> None:
        self._skipped_bytes = 0

    def is_due(self, size_bytes: int) -> bool:
        """True if a batch of this size is to be tried: always if it is larger than all that was to be skipped."""
        if size_bytes > self._skipped_bytes:
            return True
        self._skipped_bytes -= size_bytes
        return False

    def tried(self, size_bytes: int, *, shrank: bool) -> None:
        """Record the outcome of a trial."""
        self._skipped_bytes = 0 if shrank else SKIPPED * size_bytes
