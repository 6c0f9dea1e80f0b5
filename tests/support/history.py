"""Collects the history of one run: the answers to producers, and the records of each reader, in order."""

import threading
from collections.abc import Mapping, Sequence

from tests.support.history_checker import Evidence, Promise, Run
from tests.support.ledger import Ledger, Place, Record


class ReaderJournal:
    """The records of one reader. One thread writes it, any thread may read its progress."""

    def __init__(self, name: str, group: str | None) -> None:
        self.name = name
        self.group = group
        self._open: dict[Place, tuple[int | None, list[Record]]] = {}
        self._closed: list[Run] = []
        self._last: dict[Place, int] = {}

    def begin(self, place: Place, start: int | None = None) -> None:
        """From now on it reads from this offset, or from an unknown one."""
        self._close(place)
        self._open[place] = (start, [])

    def see(self, place: Place, offset: int, value: bytes | None) -> None:
        """The next record that it received."""
        if place not in self._open:
            self.begin(place)
        self._open[place][1].append((offset, value))
        self._last[place] = max(offset, self._last.get(place, -1))

    def last(self, place: Place) -> int:
        """The highest offset seen; -1 before the first."""
        return self._last.get(place, -1)

    def runs(self) -> list[Run]:
        """All of it. Only after the reader has stopped."""
        for place in list(self._open):
            self._close(place)
        return self._closed

    def _close(self, place: Place) -> None:
        if place in self._open:
            start, records = self._open.pop(place)
            self._closed.append(
                Run(reader=self.name, place=place, start=start, records=records, group=self.group)
            )


class History(Ledger):
    """A ledger that knows its producers and its readers too. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._promises: dict[str, Promise] = {}
        self._unacknowledged: dict[str, list[tuple[Place, bytes]]] = {}
        self._readers: list[ReaderJournal] = []
        self._history_lock = threading.Lock()

    def promise(self, producer: str, promise: Promise) -> None:
        """Add a producer of that name."""
        with self._history_lock:
            self._promises[producer] = promise

    def doubt(self, topic: str, partition: int, value: bytes, reason: str) -> None:
        """No acknowledgement came, and none will: the value may be stored or not."""
        with self._history_lock:
            self._unacknowledged.setdefault(reason, []).append(((topic, partition), value))

    def reader(self, name: str, group: str | None = None) -> ReaderJournal:
        """Add a reader of that name, perhaps a member of a group."""
        journal = ReaderJournal(name, group)
        with self._history_lock:
            self._readers.append(journal)
        return journal

    def reasons(self) -> dict[str, int]:
        """Why values were not acknowledged, and how many."""
        with self._history_lock:
            return {reason: len(values) for reason, values in self._unacknowledged.items()}

    def evidence(self, final: Mapping[Place, Sequence[Record]]) -> Evidence:
        """All of it, after producers and readers have stopped, with a final read of everything."""
        with self._history_lock:
            return Evidence(
                promises=dict(self._promises),
                acknowledged=self.all_acknowledged(final),
                unacknowledged=dict(self._unacknowledged),
                runs=[run for journal in self._readers for run in journal.runs()],
                final=final,
            )
