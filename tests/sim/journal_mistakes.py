"""Mistakes in the drivers of journals, put in on purpose: the simulation of a journal's life must find each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafscale.formats.journal_entry import Fence, encode_fence
from kafscale.formats.journal_record import JournalRecord
from kafscale.journal.collection import collectable
from kafscale.journal.ending import Ending, Look, Note
from kafscale.journal.own_journal import OwnJournal, found_own
from kafscale.log.journal import end_journal, writer
from kafscale.log.journal.progress import JournalProgress
from kafscale.metadata.store import Compare, Operation, TransactionResult
from tests.sim import journal_life
from tests.sim.unreliable import UnreliableMetadata

Plant = Callable[[pytest.MonkeyPatch], None]


def fence_that_is_believed_at_once(patch: pytest.MonkeyPatch) -> None:
    """The progress is not read again after a fence was found."""

    def believing(step: Look, record: JournalRecord) -> Ending:
        return Note(step.sequence)

    patch.setattr(end_journal, "looked", believing)
    patch.setattr(end_journal, "note_failed", lambda step, _: Note(step.sequence))


def fence_that_replaces_an_entry(patch: pytest.MonkeyPatch) -> None:
    """A fence is put whatever lies there."""

    async def forcing(self: Any, key: str, sequence: int) -> bool:
        fence = Fence(journal_id=self._journal_id, broker_id=9, sequence=sequence, created_ms=0)
        await self._objects.put(key, [encode_fence(fence)])
        return True

    patch.setattr(end_journal.JournalEnding, "_probe", forcing)


def acknowledgement_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """An entry that is there commits all below it."""

    def hasty(journal: OwnJournal, sequence: int) -> OwnJournal:
        journal = found_own(journal, sequence)
        while journal.committed_through < sequence:
            journal = found_own(journal, journal.committed_through + 1)
        return journal

    patch.setattr(writer, "found_own", hasty)


def progress_ahead_of_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    """The record of the journal has an entry that may still be in flight."""
    truly = JournalProgress.committed
    patch.setattr(JournalProgress, "committed", lambda self, through: truly(self, through + 1))


def collection_past_the_progress(patch: pytest.MonkeyPatch) -> None:
    """A committed entry is deleted before the record of the journal has it."""

    def greedy(record: JournalRecord, through: int, *rest: Any) -> frozenset[int]:
        return collectable(
            replace(record, progress=max(through, record.progress), ended_at=None), through, *rest
        )

    patch.setattr(journal_life, "collectable", greedy)


def collection_of_the_witness(patch: pytest.MonkeyPatch) -> None:
    """Everything up to the progress is deleted, whatever says that it was committed."""

    def greedy(
        record: JournalRecord, _: int, declared: dict[int, int], needed: Sequence[int]
    ) -> frozenset[int]:
        return frozenset(declared) & frozenset(range(record.progress + 1))

    patch.setattr(journal_life, "collectable", greedy)


def end_without_a_compare(patch: pytest.MonkeyPatch) -> None:
    """The end is noted whatever the record of the journal says by then."""
    truly = UnreliableMetadata.transact

    async def careless(
        self: UnreliableMetadata, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        return await truly(self, [], operations)

    patch.setattr(UnreliableMetadata, "transact", careless)


MISTAKES: tuple[Plant, ...] = (
    fence_that_is_believed_at_once,
    fence_that_replaces_an_entry,
    acknowledgement_out_of_order,
    progress_ahead_of_what_is_committed,
    collection_past_the_progress,
    collection_of_the_witness,
    end_without_a_compare,
)
