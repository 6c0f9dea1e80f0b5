"""The journal of this broker under one registration, and which of its entries have reached the partitions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafscale.log.journal.progress import JournalProgress
from kafscale.log.journal.writer import JournalWriter, SealedEntry


class BrokerJournal:
    """One journal, from its record to its end. `ended` is called once, when it takes no more entries.

    `applied_through`: the newest entry whose slices are all in the state of their partitions, like those of every
    entry before it; -1 for none.
    """

    def __init__(self, journal_id: str, writer: JournalWriter, progress: JournalProgress) -> None:
        self.journal_id = journal_id
        self.writer = writer
        self._progress = progress
        self.applied_through = -1
        self.is_over = False
        # Those that are applied and were not collected yet, and what each declares to be committed.
        self.entries: dict[int, int] = {}
        self._next_gathered = 0
        self._gathering: set[int] = set()

    @contextmanager
    def gathering(self) -> Iterator[int]:
        """The block stores a gathered object and the records that name it; gives its number."""
        sequence = self._next_gathered
        self._next_gathered += 1
        self._gathering.add(sequence)
        try:
            yield sequence
        finally:
            self._gathering.remove(sequence)

    @property
    def gathered_before(self) -> int:
        """No record will ever name another of the gathered objects with smaller numbers than now."""
        return min(self._gathering, default=self._next_gathered)

    @property
    def progress_lag(self) -> int:
        """Committed entries that the journal's record does not show yet."""
        return max(0, self.writer.committed_through - self._progress.reported)

    async def settled(self) -> int:
        """Wait until all that is sealed by now is committed or refused; returns the newest committed sequence."""
        await self.writer.settled()
        return self.writer.committed_through

    async def begin(self) -> None:
        """Create the journal's record. Retries while the metadata store is away."""
        await self._progress.begin()

    def applied(self, entry: SealedEntry) -> None:
        """All slices of this entry, which is committed, are in the state of their partitions."""
        self.applied_through = entry.sequence
        self.entries[entry.sequence] = entry.committed_through
        self._progress.committed(entry.sequence)

    async def close(self) -> None:
        """Stop reporting its progress."""
        await self._progress.close()


MakeJournal = Callable[[str, Callable[[bool], None]], BrokerJournal]
"""Makes the journal of an id; the function is called at its end (see `JournalWriter`)."""


class BrokerJournals:
    """The journals of this process: each registration begins one."""

    def __init__(self, make: MakeJournal) -> None:
        self._make = make
        self._current: BrokerJournal | None = None
        self._old: list[BrokerJournal] = []
        self._listeners: list[Callable[[BrokerJournal, bool], None]] = []

    @property
    def current(self) -> BrokerJournal:
        """That of the present registration; there must have been one."""
        assert self._current is not None
        return self._current

    @property
    def in_flight_count(self) -> int:
        """Entries in flight, of all journals."""
        return sum(one.writer.in_flight_count for one in self._all())

    @property
    def progress_lag(self) -> int:
        """See `BrokerJournal`; of the present journal."""
        return 0 if self._current is None else self._current.progress_lag

    @property
    def stored_count(self) -> int:
        """Entries that were not collected yet, of all journals of this process."""
        return sum(len(one.entries) for one in self._all())

    @property
    def unended_ms(self) -> int | None:
        """See `JournalWriter`; of the present journal."""
        return None if self._current is None else self._current.writer.unended_ms

    def _all(self) -> tuple[BrokerJournal, ...]:
        return (*self._old, *([] if self._current is None else [self._current]))

    def subscribe_ended(self, listener: Callable[[BrokerJournal, bool], None]) -> None:
        """Call `listener` with a journal that takes no more entries.

        Also with True if what was in flight does not count for certain.
        """
        self._listeners.append(listener)

    def find(self, journal_id: str) -> BrokerJournal:
        """One that was begun."""
        return next(one for one in (self.current, *self._old) if one.journal_id == journal_id)

    async def begin(self, journal_id: str) -> None:
        """Begin the journal of a new registration: claims name it from now on."""
        journal = self._make(journal_id, lambda is_certain: self._ended(journal, is_certain))
        await journal.begin()
        if self._current is not None:
            self._old.append(self._current)
        self._current = journal

    def _ended(self, journal: BrokerJournal, is_certain: bool) -> None:
        if journal.is_over:
            return
        journal.is_over = True
        for listener in self._listeners:
            listener(journal, is_certain)

    async def close(self) -> None:
        """Stop reporting the progress of all."""
        for journal in self._all():
            await journal.close()
