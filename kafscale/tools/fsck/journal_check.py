"""Checks the journals of a cluster and its gathered objects, beside running brokers: looks twice before it complains.

The order of reading, and what follows from it: journal_facts.py.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.journal_entry import EntryHead, Fence, body_bytes
from kafscale.formats.journal_keys import (
    EntryKey,
    entry_key,
    gathered_of_journal_prefix,
    gathered_prefix,
    is_unsealed_key,
    journal_prefix,
    journals_prefix,
    parse_entry_key,
    parse_gathered_key,
)
from kafscale.formats.journal_record import JournalRecord, decode_journal_record
from kafscale.formats.partition_record import SegmentReference, decode_partition_record
from kafscale.formats.topic_record import decode_broker_record
from kafscale.log.journal.heads import read_gathered_head, read_head
from kafscale.log.journal.needs import EntrySummary, Needs
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER
from kafscale.objects.object_store import ObjectInfo
from kafscale.tasks.bounded import map_bounded
from kafscale.tools.fsck.findings import Finding, FindingKind, JournalReport, JournalStanding
from kafscale.tools.fsck.journal_facts import (
    Gap,
    JournalFacts,
    findings_of,
    gaps,
    head_problem,
    joined,
    needless,
    reference_problem,
    refused,
)
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.slice_check import check_slices
from kafscale.tools.recovery.rebuild import patiently

JOURNALS_AT_ONCE: Final = 4


@dataclass(slots=True)
class _Records:
    """The partitions' records as journals see them."""

    needs: Needs = field(default_factory=Needs)
    positions: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    references: dict[str, list[tuple[str, int, SegmentReference]]] = field(
        default_factory=lambda: defaultdict(list)
    )


@dataclass(slots=True)
class _Listed:
    """The objects of one journal, by sequence."""

    entries: dict[int, ObjectInfo] = field(default_factory=dict)
    gathered: dict[int, ObjectInfo] = field(default_factory=dict)


class JournalCheck:
    """One pass. `verifies`: whether every slice of `topics`, or of all, is read.

    `foreign`: objects among the journals that no broker has put there; known once `check` has ended.
    """

    def __init__(self, reading: Reading, *, verifies: bool, topics: Collection[str]) -> None:
        self._reading = reading
        self._verifies = verifies
        self._topics = topics
        self.foreign: list[ObjectInfo] = []

    async def check(self) -> tuple[JournalReport, ...]:
        """A report for each journal of either store. Raises `StoreError`."""
        first = await self._look(None)
        suspects = {one.journal_id for one in first if one.findings}
        if not suspects:
            return tuple(first)
        second = {one.journal_id: one for one in await self._look(suspects)}
        return tuple(
            _confirmed(one, second[one.journal_id]) if one.journal_id in second else one
            for one in first
            if one.journal_id not in suspects or one.journal_id in second
        )

    async def _look(self, only: Collection[str] | None) -> list[JournalReport]:
        records = await self._read_records()
        before = await self._journal_records()
        listed = await self._list(only)
        live = await self._live()
        wanted = {*listed, *before, *records.positions} if only is None else set(only)

        async def look(journal_id: str) -> JournalReport | None:
            return await self._look_at(
                journal_id, before.get(journal_id), listed.get(journal_id, _Listed()), records, live
            )

        reports = await map_bounded(look, sorted(wanted), JOURNALS_AT_ONCE)
        return [one for one in reports if one is not None]

    async def _read_records(self) -> _Records:
        found = _Records()
        for number, item in enumerate((await self._reading.range(keys.PARTITIONS)).items):
            topic, index = keys.topic_and_partition(item.key)
            try:
                record = decode_partition_record(item.key, item.value)
            except CorruptDataError:
                continue  # Told of the partition.
            found.needs.add(index, record)
            if record.journal is not None:
                found.positions[record.journal.journal_id][f"{topic}-{index}"] = record.journal.sequence
            for reference in record.segments:
                if is_unsealed_key(reference.object_key):
                    found.references[reference.object_key].append((topic, index, reference))
            if number % 100 == 0:
                await asyncio.sleep(0)
        return found

    async def _journal_records(self) -> dict[str, JournalRecord]:
        records = {}
        for item in (await self._reading.range(keys.JOURNALS)).items:
            try:
                record = decode_journal_record(item.key, item.value)
            except CorruptDataError:
                record = JournalRecord(broker_id=NO_BROKER)  # Told of it when it is read again.
            records[item.key.removeprefix(keys.JOURNALS)] = record
        return records

    async def _list(self, only: Collection[str] | None) -> dict[str, _Listed]:
        namespace = self._reading.namespace
        found: dict[str, _Listed] = defaultdict(_Listed)
        if only is None:
            prefixes = [journals_prefix(namespace), gathered_prefix(namespace)]
        else:
            prefixes = [journal_prefix(namespace, one) for one in sorted(only)]
            prefixes += [gathered_of_journal_prefix(namespace, one) for one in sorted(only)]
        for prefix in prefixes:
            async for info in self._reading.objects.list(prefix):
                entry, gathered = parse_entry_key(info.key), parse_gathered_key(info.key)
                if entry is not None:
                    found[entry.journal_id].entries[entry.sequence] = info
                elif gathered is not None:
                    found[gathered.journal_id].gathered[gathered.sequence] = info
                elif only is None:
                    self.foreign.append(info)
        return found

    async def _look_at(
        self,
        journal_id: str,
        before: JournalRecord | None,
        listed: _Listed,
        records: _Records,
        live: Collection[str],
    ) -> JournalReport | None:
        """The report of one journal; None for one of which nothing is left."""
        facts = JournalFacts(
            namespace=self._reading.namespace,
            journal_id=journal_id,
            before=before,
            after=None,
            sizes={sequence: info.size_bytes for sequence, info in listed.entries.items()},
            positions=records.positions.get(journal_id, {}),
            is_named=records.needs.is_named(journal_id),
            is_live=journal_id in live,
        )
        more = await self._read_heads(facts, listed, records)
        (item,) = await self._reading.read_metadata(keys.journal(journal_id))
        if item is not None:
            try:
                facts.after = decode_journal_record(item.key, item.value)
            except CorruptDataError as problem:
                more.append(facts.finding(FindingKind.JOURNAL_UNREADABLE, problem.problem))
        found = [*findings_of(facts), *await self._gap_findings(facts), *more]
        if item is None and not listed.entries and not listed.gathered and not found:
            return None
        return self._report(facts, listed, records, found)

    async def _read_heads(self, facts: JournalFacts, listed: _Listed, records: _Records) -> list[Finding]:
        """Reads all heads into the facts; returns what is wrong with slices and references."""
        found: list[Finding] = []

        async def read(key: EntryKey, info: ObjectInfo, is_gathered: bool) -> None:
            try:
                cell, size = await patiently(lambda: self._read_cell(info.key, is_gathered=is_gathered))
                detail = head_problem(key.journal_id, key.sequence, cell.journal_id, cell.sequence)
                if not detail:
                    expected = size + body_bytes(cell) if isinstance(cell, EntryHead) else size
                    wrong = info.size_bytes != expected
                    detail = f"{info.size_bytes} bytes, its head says {expected}" if wrong else ""
            except ObjectNotFoundError:
                return  # Collected since it was listed.
            except CorruptDataError as problem:
                detail = problem.problem
            if detail:
                if is_gathered:
                    finding = facts.finding(FindingKind.ENTRY_DAMAGED, detail)
                    found.append(replace(finding, key=info.key))
                else:
                    facts.damaged[key.sequence] = detail
                return
            if not isinstance(cell, EntryHead):
                facts.fences.add(key.sequence)
                return
            if not is_gathered:
                places = frozenset((row.topic_id, row.partition) for row in cell.slices)
                facts.entries[key.sequence] = EntrySummary(cell.committed_through, places)
                facts.slice_count += len(cell.slices)
            found.extend(_reference_findings(info.key, cell, size, records.references.get(info.key, ())))
            if self._verifies:
                found.extend(
                    await check_slices(self._reading, info.key, cell, size, info.size_bytes, self._topics)
                )

        work = [
            (EntryKey(facts.namespace, facts.journal_id, sequence), info, is_gathered)
            for objects, is_gathered in ((listed.entries, False), (listed.gathered, True))
            for sequence, info in objects.items()
        ]
        await map_bounded(lambda one: read(*one), work, max(1, self._reading.concurrency // 2))
        return found

    async def _read_cell(self, key: str, *, is_gathered: bool) -> tuple[EntryHead | Fence, int]:
        if is_gathered:
            return await read_gathered_head(self._reading.objects, key)
        return await read_head(self._reading.objects, key)

    async def _gap_findings(self, facts: JournalFacts) -> list[Finding]:
        return [
            facts.finding(FindingKind.ENTRY_MISSING, joined(gap), gap.first)
            for gap in gaps(facts)
            if await self._is_missing(facts, gap)
        ]

    async def _is_missing(self, facts: JournalFacts, gap: Gap) -> bool:
        """True if the first of the gap is not there, and by the record read after that was not collected."""
        if (
            await self._reading.size_bytes(entry_key(facts.namespace, facts.journal_id, gap.first))
            is not None
        ):
            return False
        (item,) = await self._reading.read_metadata(keys.journal(facts.journal_id))
        return item is not None and decode_journal_record(item.key, item.value).progress < gap.first

    async def _live(self) -> set[str]:
        found = set()
        for item in (await self._reading.range(keys.BROKERS)).items:
            with suppress(CorruptDataError):
                found.add(decode_broker_record(item.key, item.value).journal_id)
        return found

    def _report(
        self, facts: JournalFacts, listed: _Listed, records: _Records, found: Sequence[Finding]
    ) -> JournalReport:
        record = facts.after
        free = needless(facts, frozenset(records.needs.of(facts.journal_id, facts.entries)))
        gathered = [
            info
            for sequence, info in listed.gathered.items()
            if not records.needs.needs_gathered(EntryKey(facts.namespace, facts.journal_id, sequence))
        ]
        return JournalReport(
            journal_id=facts.journal_id,
            standing=_standing(facts),
            broker_id=None if record is None else record.broker_id,
            progress=None if record is None else record.progress,
            ended_at=None if record is None else record.ended_at,
            entries=len(facts.entries),
            slices=facts.slice_count,
            size_bytes=sum(facts.sizes.values()),
            gathered=len(listed.gathered),
            gathered_bytes=sum(info.size_bytes for info in listed.gathered.values()),
            needless=len(free) + len(gathered),
            needless_bytes=sum(facts.sizes[one] for one in free) + sum(one.size_bytes for one in gathered),
            refused=refused(facts),
            findings=tuple(found),
        )


def _standing(facts: JournalFacts) -> JournalStanding:
    if facts.after is None:
        return JournalStanding.UNKNOWN
    if facts.after.ended_at is not None:
        return JournalStanding.ENDED
    return JournalStanding.LIVE if facts.is_live else JournalStanding.OPEN


def _reference_findings(
    key: str, head: EntryHead, head_bytes: int, references: Iterable[tuple[str, int, SegmentReference]]
) -> Iterable[Finding]:
    for topic, index, reference in references:
        problem = reference_problem(head, head_bytes, topic, index, reference)
        if problem:
            yield Finding(
                kind=FindingKind.REFERENCE_DIFFERS,
                subject=f"{topic}-{index}",
                detail=problem,
                key=key,
                first_offset=reference.base_offset,
                last_offset=reference.last_offset,
            )


def _confirmed(first: JournalReport, second: JournalReport) -> JournalReport:
    """The second look, with only those findings that the first one had, too."""
    known = {finding.identity for finding in first.findings}
    return replace(second, findings=tuple(one for one in second.findings if one.identity in known))
