"""Notes on the loads of one fetch, cache hits and reads, for the log line of a slow request.

The notes travel with the asyncio context, so that they reach the tasks that read for a fetch without a parameter in
every signature between. A load that another fetch started is noted there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class LoadNotes:
    """`gets`: reads of the object store. `checked`: when the last check of a load began and ended.

    Times are `time.perf_counter`'s.
    """

    segments_cached: int = 0
    segments_missing: int = 0
    indexes_cached: int = 0
    indexes_missing: int = 0
    gets: int = 0
    checked: tuple[float, float] = (0.0, 0.0)

    def check_sec(self, began_sec: float, ended_sec: float) -> float:
        """The seconds of the last check between two times."""
        began, ended = self.checked
        return max(0.0, min(ended, ended_sec) - max(began, began_sec))


_current: ContextVar[LoadNotes | None] = ContextVar("load_notes", default=None)


@contextmanager
def noted(notes: LoadNotes) -> Iterator[None]:
    """Note in `notes` the loads of tasks that are created in this block."""
    token = _current.set(notes)
    try:
        yield
    finally:
        _current.reset(token)


def note_get() -> None:
    """Note a read of the object store."""
    notes = _current.get()
    if notes is not None:
        notes.gets += 1


def note_index(*, is_cached: bool) -> None:
    """Note a lookup of a large segment's layout in the L2 cache."""
    notes = _current.get()
    if notes is not None:
        if is_cached:
            notes.indexes_cached += 1
        else:
            notes.indexes_missing += 1


def note_check(began_sec: float, ended_sec: float) -> None:
    """Note the check of a read."""
    notes = _current.get()
    if notes is not None:
        notes.checked = began_sec, ended_sec
