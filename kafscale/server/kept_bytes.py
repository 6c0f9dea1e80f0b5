"""Bytes of a connection that wait until its next request may be handled."""

from typing import Final

from kafscale.server.frames import FrameMemory

UNCOUNTED_KEPT_BYTES: Final = 4 * 1024
"""The most that a connection may keep without counting in its address's share."""


class KeptBytes:
    """`data`, of one connection. `share_key`: its address's share of the memory, known when it has connected."""

    __slots__ = ("_counted_bytes", "_memory", "data", "share_key")

    def __init__(self, memory: FrameMemory) -> None:
        self._memory = memory
        self.data = b""
        self._counted_bytes = 0
        self.share_key = ""

    def keep(self, data: bytes) -> None:
        """Replace what is kept."""
        counted_bytes = len(data) if len(data) > UNCOUNTED_KEPT_BYTES else 0
        more_bytes = counted_bytes - self._counted_bytes
        self.data, self._counted_bytes = data, counted_bytes
        if more_bytes:
            self._memory.keep(self.share_key, more_bytes)

    def take(self) -> bytes:
        """All of them; none are kept any more."""
        data = self.data
        self.keep(b"")
        return data
