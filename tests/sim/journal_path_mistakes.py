"""Mistakes in what a cluster does with its journals, put in on purpose (see cluster_mistakes.py)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafscale.cluster.leadership import Leadership
from kafscale.formats.journal_entry import EntryHead
from kafscale.formats.partition_record import JournalPosition, PartitionRecord, SegmentReference
from kafscale.journal.own_journal import OwnJournal, found_own
from kafscale.journal.replay import Replay
from kafscale.log.journal import writer
from kafscale.log.journal.broker_journal import BrokerJournal
from kafscale.log.journal.needs import Needs
from kafscale.log.journal.replays import JournalReplays
from kafscale.log.journal.writer import JournalWriter, SealedEntry
from kafscale.log.leadership.events import Event
from kafscale.log.life import seal_swap
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_service import PartitionService
from kafscale.log.writing import record_writer
from kafscale.log.writing.flusher import Flusher
from kafscale.log.writing.record_writer import RecordWriter
from tests.sim.links import Conditions
from tests.sim.simulated_producers import Load

Plant = Callable[[pytest.MonkeyPatch], None]

_GOOD = Conditions(longest_delay=0.02)
_LATE = Conditions(longest_delay=0.3, fault_rate=0.3, latest_effect=6.0)
_BUSY: dict[str, Any] = {
    "brokers": 2,
    "topics": {"t": 2},
    "kinds": ("end lease", "kill", "pause"),
    "troubles": 6,
    "longest_calm": 1.0,
    "flush_interval_ms": 0,
    "flushes_per_sec": 1000,
    "flushes_in_flight": 4,
    "seal_interval_ms": 4_000,
    "metadata": _GOOD,
    "objects": _LATE,
    "load": Load(batches=20, longest_pause=0.1),
    "stops_well": False,
}
_COLLECTING: dict[str, Any] = {
    **_BUSY,
    "objects": _GOOD,
    "garbage_grace": 1,
    "garbage_interval": 1,
    "seal_max_age_ms": 3_600_000,
    "merge_min_segments": 1000,
}

_GATHERING: dict[str, Any] = {**_COLLECTING, "seal_interval_ms": 500}
_SLOW_RECORDS: dict[str, Any] = {
    **_COLLECTING,
    "lease_ttl": 4,
    "consumers": 0,
    "plain_producers": 0,
    "idempotent_producers": 1,
    "longest_calm": 2.0,
    # A write may take seconds, while the collector's reads do not.
    "metadata": Conditions(longest_delay=0.02, timeout=20.0),
    "load": Load(batches=40, longest_pause=0.2),
}


def acknowledgement_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """An entry that is there commits all below it."""

    def hasty(journal: OwnJournal, sequence: int) -> OwnJournal:
        journal = found_own(journal, sequence)
        while journal.committed_through < sequence:
            journal = found_own(journal, journal.committed_through + 1)
        return journal

    patch.setattr(writer, "found_own", hasty)


def entries_that_return_as_answers_come(patch: pytest.MonkeyPatch) -> None:
    """Who learns that its entry is committed goes on at once, before those of earlier entries had their turn."""
    truly = JournalWriter._put

    async def hasty(self: JournalWriter, entry: SealedEntry, attempted: Callable[[], None]) -> None:
        await truly(self, entry, attempted)
        self._tell_committed()

    patch.setattr(JournalWriter, "_put", hasty)


def claim_without_an_end(patch: pytest.MonkeyPatch) -> None:
    """The old leader's journal is read as it is, without a fence behind what was read."""

    async def as_it_is(self: JournalReplays, journal_id: str) -> int:
        return max(await self._entries_there(journal_id, 0, 1 << 60), default=-1) + 1

    patch.setattr(JournalReplays, "end", as_it_is)


def claim_without_a_replay(patch: pytest.MonkeyPatch) -> None:
    """A new leader begins where the old one's record ends."""
    truly = Replay.__init__

    def forgetful(
        self: Replay, journal_id: str, heads: Mapping[int, tuple[EntryHead, int]], **rest: Any
    ) -> None:
        truly(self, journal_id, {}, **{**rest, "progress": 1 << 60})

    patch.setattr(Replay, "__init__", forgetful)


def position_ahead_of_the_record(patch: pytest.MonkeyPatch) -> None:
    """A record says that it has what was sealed by then."""
    truly = record_writer._position

    def ahead(partition: Partition) -> JournalPosition | None:
        position = truly(partition)
        journal = partition.journal
        if position is None or journal is None:
            return position
        sequence = journal.writer._journal.next_sequence - 1
        return JournalPosition(journal_id=position.journal_id, sequence=sequence, topic_id=position.topic_id)

    patch.setattr(record_writer, "_position", ahead)


def release_before_all_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A partition is handed over while entries with its slices are in flight."""

    async def at_once(self: Flusher, partition: Partition, timeout_sec: float) -> bool:
        return True

    patch.setattr(Flusher, "drained", at_once)


def release_without_the_record(patch: pytest.MonkeyPatch) -> None:
    """A partition is released with the record as it was stored last."""
    truly = RecordWriter.release

    async def stale(self: RecordWriter, partition: Partition) -> None:
        log, record = partition.log, partition.record
        if log is not None:
            partition.log = None
            held = [one for one in record.segments if one.base_offset < log._stored_end_offset]
            partition.record = replace(record, log_end_offset=log._stored_end_offset, segments=tuple(held))
        await truly(self, partition)

    patch.setattr(RecordWriter, "release", stale)


def hand_over_that_is_not_finished(patch: pytest.MonkeyPatch) -> None:
    """Records that could not be published in time stay in the journal of a broker that lives on."""

    async def not_at_all(self: Leadership, partitions: Iterable[tuple[str, int]]) -> None:
        """Another broker may wait without end."""

    patch.setattr(Leadership, "release_records", not_at_all)


def change_that_forgets_what_came_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """Records that are published while a record is written are lost with its change."""
    truly = RecordWriter.write

    async def forgetful(self: RecordWriter, partition: Partition, log: Any, change: Any) -> PartitionRecord:
        record = change(log.record)
        return await truly(self, partition, log, lambda _: record)

    patch.setattr(RecordWriter, "write", forgetful)


def seal_without_a_look_at_the_record(patch: pytest.MonkeyPatch) -> None:
    """Slices are replaced by their segment wherever they were, also if they have expired."""

    def blindly(record: PartitionRecord, sources: Sequence[SegmentReference]) -> bool:
        return True

    def sealed(
        record: PartitionRecord, sources: Sequence[SegmentReference], segment: SegmentReference
    ) -> PartitionRecord:
        rest = [one for one in record.segments if one.base_offset > segment.last_offset]
        before = [one for one in record.segments if one.last_offset < segment.base_offset]
        return replace(record, segments=(*before, *rest))

    patch.setattr(seal_swap, "_are_there", blindly)
    patch.setattr(seal_swap, "_swapped", sealed)


def collection_of_what_records_name(patch: pytest.MonkeyPatch) -> None:
    """Only what lies behind a record's position keeps an entry."""
    patch.setattr(Needs, "named", lambda self, journal_id: frozenset())


def collection_behind_positions(patch: pytest.MonkeyPatch) -> None:
    """Only what a record names keeps an entry."""
    patch.setattr(Needs, "kept_from", lambda self, journal_id, but=frozenset(): math.inf)


def collection_of_what_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    """A broker takes what it has published for stored."""
    truly = Partition.publish

    def forgetful(
        self: Partition, record: PartitionRecord, reference: SegmentReference, sequence: int
    ) -> None:
        truly(self, record, reference, sequence)
        self.unstored_from = None

    patch.setattr(Partition, "publish", forgetful)


def collection_of_gathered_objects_that_records_name(patch: pytest.MonkeyPatch) -> None:
    """Gathered objects are deleted while partitions have slices there."""
    patch.setattr(Needs, "needs_gathered", lambda self, key: False)


def collection_of_gathered_objects_on_their_way(patch: pytest.MonkeyPatch) -> None:
    """A gathered object that no record names yet is deleted before one does."""
    patch.setattr(BrokerJournal, "gathered_before", property(lambda self: self._next_gathered))


def follower_that_skips_a_slice(patch: pytest.MonkeyPatch) -> None:
    """A follower appends what comes, whether something before it is missing or not."""

    def careless(self: Partition, reference: SegmentReference, sequence: int, events: object = ()) -> int:
        record = self.record
        if record.journal is None or reference.base_offset < record.log_end_offset:
            return 0
        if self.references is not None:
            self.references.append(reference)
        self.record = replace(
            record, log_end_offset=reference.last_offset + 1, segments=(*record.segments, reference)
        )
        return reference.size_bytes

    patch.setattr(Partition, "follow_slice", careless)
    patch.setattr(Partition, "follow", lambda self, record, revision: None)


def fenced_broker_that_leads_on(patch: pytest.MonkeyPatch) -> None:
    """A broker goes on to lead with a journal that was ended.

    Three ways out of that are shut, since each is enough: the journal's end closes its partitions, the lease's end,
    which is behind every fence, resigns from them, and a flush that finds the fence halts them.
    """
    report = Flusher._report

    def unmoved(self: Flusher, partition: Partition, event: Event) -> None:
        if event is not Event.FLUSH_STOPPED:
            report(self, partition, event)

    async def keep_all(self: PartitionService) -> None:
        """The keeper does not claim what is led here already."""

    patch.setattr(LogManager, "_journal_ended", lambda self, journal, is_certain: None)
    patch.setattr(PartitionService, "resign_all", keep_all)
    patch.setattr(Flusher, "_report", unmoved)


JOURNAL_PATH_MISTAKES: dict[Plant, dict[str, Any]] = {
    acknowledgement_out_of_order: _BUSY,
    entries_that_return_as_answers_come: {
        **_BUSY,
        "objects": Conditions(longest_delay=0.3, turn_sec=0.05),
        "kinds": ("pause",),
    },
    claim_without_an_end: _BUSY,
    claim_without_a_replay: _BUSY,
    position_ahead_of_the_record: {**_BUSY, "seal_interval_ms": 50},
    release_before_all_is_committed: {**_BUSY, "kinds": ("add broker", "end lease", "late upload")},
    release_without_the_record: {**_BUSY, "kinds": ("add broker", "end lease")},
    hand_over_that_is_not_finished: {**_BUSY, "kinds": ("add broker", "late upload", "late upload")},
    change_that_forgets_what_came_meanwhile: {**_BUSY, "seal_interval_ms": 50, "metadata": _LATE},
    seal_without_a_look_at_the_record: {**_BUSY, "seal_max_age_ms": 1_000, "objects": _GOOD},
    collection_of_what_records_name: _COLLECTING,
    collection_behind_positions: {
        **_SLOW_RECORDS,
        "topics": {"t": 4},
        "kinds": ("delay", "kill", "add broker", "end lease"),
        "troubles": 8,
    },
    collection_of_what_is_not_stored: _COLLECTING,
    collection_of_gathered_objects_that_records_name: _GATHERING,
    collection_of_gathered_objects_on_their_way: {
        **_SLOW_RECORDS,
        "seal_interval_ms": 500,
        "kinds": ("delay",),
        "troubles": 5,
    },
    follower_that_skips_a_slice: {**_BUSY, "consumers": 3, "hop_rate": 0.7, "racks": True},
    # The lease is renewed seldom, and something is produced until the end: the fence is found.
    fenced_broker_that_leads_on: {
        **_BUSY,
        "kinds": ("end lease",),
        "lease_ttl": 6,
        "load": Load(batches=60, longest_pause=0.2),
    },
}
"""Every mistake, and the plan that lets it show."""
