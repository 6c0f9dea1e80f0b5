"""Bytes that lie in several pieces of memory, addressed as if they lay in one."""

from bisect import bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import Any


class Pieces:
    """Views, one after the other; the first one's first byte has the position `start`."""

    __slots__ = ("_starts", "_views", "end", "start")

    def __init__(self, views: Iterable[memoryview], start: int = 0) -> None:
        self._views = [view for view in views if len(view)]
        self.start = start
        self._starts: list[int] = []
        for view in self._views:
            self._starts.append(start)
            start += len(view)
        self.end = start

    def slices(self, start: int, end: int) -> list[memoryview]:
        """The bytes from `start` to `end`, or to where there are no more, without a copy."""
        views = []
        number = bisect_right(self._starts, start) - 1
        end = min(end, self.end)
        while start < end:
            view, view_start = self._views[number], self._starts[number]
            stop = min(end, view_start + len(view))
            views.append(view[start - view_start : stop - view_start])
            start = stop
            number += 1
        return views

    def contiguous(self, start: int, end: int) -> memoryview:
        """The same as one view: a copy only where pieces meet."""
        slices = self.slices(start, end)
        return slices[0] if len(slices) == 1 else memoryview(b"".join(slices))

    def unpack(self, layout: Struct, position: int) -> tuple[Any, ...]:
        """The fields at `position`. Raises `struct.error` where the bytes end before."""
        number = bisect_right(self._starts, position) - 1
        view, at = self._views[number], position - self._starts[number]
        if at + layout.size <= len(view):
            return layout.unpack_from(view, at)
        return layout.unpack(self.contiguous(position, position + layout.size))

    def around(self, position: int, size_bytes: int) -> tuple[memoryview, int]:
        """A view that holds the `size_bytes` at `position`, and the position of its first byte.

        As much as lies in one piece, without a copy; where pieces meet, a copy of no more than that.
        """
        number = bisect_right(self._starts, position) - 1
        view, start = self._views[number], self._starts[number]
        if position + size_bytes <= start + len(view):
            return view, start
        return self.contiguous(position, position + size_bytes), position

    def clear(self) -> None:
        """Release the views."""
        self._views.clear()
        self._starts.clear()
