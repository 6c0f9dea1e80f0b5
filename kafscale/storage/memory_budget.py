"""One limit for everything that producers make the broker hold, and who waits when it is reached."""

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Counts bytes against a limit. Not thread-safe: the event loop owns it.

    What has been received must be kept, so `charge` may pass the limit by what is at hand; what is still to
    be received asks `try_charge` first and, refused, waits in line for `when_free`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing more should be read from producers."""
        return self.used_bytes >= self.limit_bytes

    def charge(self, size_bytes: int) -> None:
        """Count bytes that are held already."""
        self.used_bytes += size_bytes

    def try_charge(self, size_bytes: int) -> bool:
        """Count bytes that are about to be held, unless they do not fit.

        With nothing else held they always fit: a limit below one frame must not stop it for ever.
        """
        if self.used_bytes and self.used_bytes + size_bytes > self.limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Bytes are not held any more; who waits is called in line, while there is room."""
        self.used_bytes -= size_bytes
        for _ in range(len(self._waiting)):
            if self.is_exhausted or not self._waiting:
                return
            self._waiting.popleft()()

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back once when there is room again, in the order of asking. The caller then tries anew."""
        self._waiting.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """The callback is no longer wanted; no error when it does not wait."""
        if callback in self._waiting:
            self._waiting.remove(callback)
