"""One limit on the memory that producers' requests take, and the line of requests that wait for it.

Two kinds of bytes are counted: *records* and what else requests keep until they are answered, which are released
as flushes end, and *frame bytes* of requests that have arrived in part, which are released only when their clients
send the rest (`kafscale.server.frame_lanes`). A quarter of the limit is a reserve: whole requests may use it
whatever frames take, so a client that does not finish its frame stops no producer that does.
"""

from collections.abc import Callable
from typing import Final

_RESERVE_DIVISOR: Final = 4


class MemoryBudget:
    """Counts bytes against a limit. Not thread-safe: the event loop owns it.

    What has been received must be kept, so `charge` may pass the limit by what is at hand. A request that finds no
    room waits in line. No request overtakes the line: a large one would otherwise wait as long as small ones come.
    A request that is served has been charged already, so that what is free cannot be given twice, nor be lost when
    that request is gone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.reserve_bytes = limit_bytes // _RESERVE_DIVISOR
        self.used_bytes = 0
        self.frame_bytes = 0
        # Frames that wait for records to be flushed: whole requests leave them all but the reserve.
        self.waiting_frames = 0
        self._waiting: dict[Callable[[], None], int] = {}
        self._shortage_listeners: list[Callable[[], None]] = []
        self._freed_listeners: list[Callable[[], None]] = []

    @property
    def record_bytes(self) -> int:
        """The bytes in use beside frames that have arrived in part."""
        return self.used_bytes - self.frame_bytes

    @property
    def free_bytes(self) -> int:
        """The bytes that may still be taken; 0 at the limit and beyond."""
        return max(0, self.limit_bytes - self.used_bytes)

    @property
    def has_room(self) -> bool:
        """True if more whole requests may be taken from producers."""
        if self._waiting:
            return False
        if self.used_bytes < self.limit_bytes and not self.waiting_frames:
            return True
        return self.record_bytes < self.reserve_bytes

    def charge(self, size_bytes: int) -> None:
        """Count bytes that are in memory already."""
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Bytes are freed: serve the waiting requests that fit now."""
        self.used_bytes -= size_bytes
        self._serve()

    def charge_frame(self, size_bytes: int) -> None:
        """Count bytes of a frame that has arrived in part."""
        self.used_bytes += size_bytes
        self.frame_bytes += size_bytes

    def release_frame(self, size_bytes: int) -> None:
        """The bytes of a frame are freed."""
        self.frame_bytes -= size_bytes
        self.release(size_bytes)

    def subscribe_shortage(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time that a request begins to wait: it may free memory earlier than it would."""
        self._shortage_listeners.append(listener)

    def subscribe_freed(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time that memory is free again, before the waiting requests are served."""
        self._freed_listeners.append(listener)

    def when_free(self, size_bytes: int, callback: Callable[[], None]) -> None:
        """Call back once, when `size_bytes` have been counted for the caller, in the order of asking.

        Only for a caller that was refused. A callback that waits already keeps its place.
        """
        self._waiting.setdefault(callback, size_bytes)
        self.report_shortage()

    def report_shortage(self) -> None:
        """Ask for memory to be freed earlier than it would be."""
        for listener in self._shortage_listeners:
            listener()

    def forget(self, callback: Callable[[], None]) -> None:
        """The callback is no longer wanted; no error when it does not wait."""
        if self._waiting.pop(callback, None) is not None:
            self._serve()

    def _fits(self, size_bytes: int) -> bool:
        # With no records held everything fits: a limit below one request must not stop it until the end of time.
        if not self.record_bytes or self.record_bytes + size_bytes <= self.reserve_bytes:
            return True
        return not self.waiting_frames and self.used_bytes + size_bytes <= self.limit_bytes

    def _serve(self) -> None:
        for freed in self._freed_listeners:
            freed()
        while self._waiting:
            callback, size_bytes = next(iter(self._waiting.items()))
            if not self._fits(size_bytes):
                return
            del self._waiting[callback]
            self.used_bytes += size_bytes
            callback()
