"""One limit for everything that producers make the broker hold, and who waits when it is reached."""

from collections.abc import Callable


class MemoryBudget:
    """Counts bytes against a limit. Not thread-safe: the event loop owns it.

    What has been received must be kept, so `charge` may pass the limit by what is at hand. What is still to be
    received asks first and, refused, waits in line. Nobody overtakes the line: a large frame would otherwise
    wait as long as small ones come. Whoever is served has been charged already, so that what is free cannot be
    given twice, nor be forgotten when the one who was served has gone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: dict[Callable[[], None], int] = {}
        # Called when somebody begins to wait: whoever can free memory earlier than he would should do it.
        self.on_shortage: Callable[[], None] | None = None

    @property
    def has_room(self) -> bool:
        """Whether more may be read from producers: the limit is not reached and nobody waits."""
        return self.used_bytes < self.limit_bytes and not self._waiting

    def charge(self, size_bytes: int) -> None:
        """Count bytes that are held already."""
        self.used_bytes += size_bytes

    def try_charge(self, size_bytes: int) -> bool:
        """Count bytes that are about to be held, unless they do not fit or somebody waits."""
        if self._waiting or not self._fits(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Bytes are not held any more; those who wait and fit now are served."""
        self.used_bytes -= size_bytes
        self._serve()

    def when_free(self, size_bytes: int, callback: Callable[[], None]) -> None:
        """Call back once, when `size_bytes` have been counted for the caller, in the order of asking.

        Only for a caller that was refused. A callback that waits already keeps its place.
        """
        self._waiting.setdefault(callback, size_bytes)
        if self.on_shortage is not None:
            self.on_shortage()

    def forget(self, callback: Callable[[], None]) -> None:
        """The callback is no longer wanted; no error when it does not wait."""
        if self._waiting.pop(callback, None) is not None:
            self._serve()

    def _fits(self, size_bytes: int) -> bool:
        # With nothing else held everything fits: a limit below one frame must not stop it for ever.
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes

    def _serve(self) -> None:
        while self._waiting:
            callback, size_bytes = next(iter(self._waiting.items()))
            if not self._fits(size_bytes):
                return
            del self._waiting[callback]
            self.used_bytes += size_bytes
            callback()
