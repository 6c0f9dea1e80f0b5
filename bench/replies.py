"""Replies for raw drivers: counted, with a check of the error code only, without decoding each."""

from bench.wire import WireError, produce_error_position

_LENGTH_BYTES = 4


class ProduceReplies:
    """Replies of one fixed size. `first` is one of them, whole."""

    def __init__(self, first: bytes) -> None:
        self._size = len(first)
        self._error_at = produce_error_position(first)
        self._left = b""

    def count(self, received: bytes) -> int:
        """The number of whole replies; raises WireError if one carries an error code."""
        data = self._left + received
        whole = len(data) // self._size
        end = whole * self._size
        for byte in (self._error_at, self._error_at + 1):
            if any(data[byte : end : self._size]):
                raise WireError("a Produce reply carries an error code")
        self._left = data[end:]
        return whole


class FrameCounter:
    """Frames of any size, counted by their lengths. `last_bytes`: the size of the last whole one, length included."""

    def __init__(self) -> None:
        self.last_bytes = 0
        self._length = b""
        self._size = self._left = 0

    def count(self, received: memoryview) -> int:
        """The number of frames that are complete with these bytes."""
        whole = at = 0
        while at < len(received):
            if len(self._length) < _LENGTH_BYTES:
                missing = _LENGTH_BYTES - len(self._length)
                self._length += received[at : at + missing]
                at += missing
                if len(self._length) < _LENGTH_BYTES:
                    break
                self._left = int.from_bytes(self._length, "big")
                self._size = self._left + _LENGTH_BYTES
            taken = min(self._left, len(received) - at)
            self._left -= taken
            at += taken
            if not self._left:
                whole += 1
                self.last_bytes = self._size
                self._length = b""
        return whole
