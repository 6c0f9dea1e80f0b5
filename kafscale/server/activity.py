"""The time at which a connection has last moved, for the listener that closes idle ones. Pure."""


class Activity:
    """Bytes came, or the client took some of its replies. Times are those of the event loop's clock, in seconds."""

    __slots__ = ("_last_sec", "_unsent_bytes")

    def __init__(self) -> None:
        self._last_sec = 0.0
        self._unsent_bytes = 0

    def moved(self, now_sec: float) -> None:
        """Bytes have come."""
        self._last_sec = now_sec

    def unsent(self, size_bytes: int, now_sec: float) -> None:
        """So many bytes of replies wait for a slow client: it has moved if they are others than before."""
        if size_bytes != self._unsent_bytes:
            self._unsent_bytes = size_bytes
            self._last_sec = now_sec

    def is_before(self, before_sec: float) -> bool:
        """True if nothing has moved since then."""
        return self._last_sec < before_sec
