"""The slices that count in journals and gathered objects, by partition: what a rebuild has beside sealed segments.

Rules: docs/format/journal.md, "From the bucket alone".
"""

import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.journal_entry import NOTHING_COMMITTED, EntryHead
from kafscale.formats.journal_keys import (
    deleted_prefix,
    entry_key,
    gathered_prefix,
    journals_prefix,
    parse_entry_key,
    parse_gathered_key,
)
from kafscale.formats.journal_record import JournalRecord
from kafscale.formats.partition_record import SegmentReference
from kafscale.journal.collection import counted_through
from kafscale.journal.partition_state import slice_reference
from kafscale.journal.replay import PlacedSlice
from kafscale.log.journal.heads import read_gathered_head, read_head
from kafscale.objects.object_store import ListingReader
from kafscale.tasks.bounded import map_bounded

PartitionName = tuple[str, int]
HEADS_AT_ONCE = 32


@dataclass(slots=True)
class FoundJournals:
    """`slices`: references by topic and partition, of the topic that had the name last.

    `records`: of every journal, ended behind what counts. `problems`: entries and gathered objects that cannot be
    read; what lay in them is not known.
    """

    slices: dict[PartitionName, list[SegmentReference]] = field(default_factory=dict)
    records: dict[str, JournalRecord] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


async def find_slices(
    objects: ListingReader,
    namespace: str,
    topics: Collection[str],
    patiently: Callable[[Callable[[], Awaitable[object]]], Awaitable[object]],
) -> FoundJournals:
    """Read the heads of all entries and gathered objects; of `topics` alone, or of all. Raises `StoreError`."""
    found = FoundJournals()
    sequences: dict[str, list[int]] = defaultdict(list)
    async for info in objects.list(journals_prefix(namespace)):
        key = parse_entry_key(info.key)
        if key is not None:
            sequences[key.journal_id].append(key.sequence)
    deleted = {
        info.key.removeprefix(deleted_prefix(namespace))
        async for info in objects.list(deleted_prefix(namespace))
    }
    by_topic: dict[PartitionName, dict[uuid.UUID, list[SegmentReference]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for journal_id, there in sorted(sequences.items()):
        heads, unreadable = await _heads(objects, namespace, journal_id, there, patiently)
        found.problems += [unreadable[one] for one in sorted(unreadable)]
        # An entry that cannot be read was stored nevertheless: what follows it counts.
        declared = dict.fromkeys(unreadable, NOTHING_COMMITTED)
        declared.update((one, head.committed_through) for one, (head, _) in heads.items())
        through = counted_through(declared)
        broker_id = next((head.broker_id for head, _ in heads.values()), 0)
        found.records[journal_id] = JournalRecord(broker_id=broker_id, progress=through, ended_at=through + 1)
        for sequence, (head, size) in sorted(heads.items()):
            if sequence > through:
                continue
            for row in head.slices:
                if (topics and row.topic not in topics) or str(row.topic_id) in deleted:
                    continue
                placed = PlacedSlice(sequence, size, head.created_ms, row)
                reference = slice_reference(namespace, journal_id, placed)
                by_topic[row.topic, row.partition][row.topic_id].append(reference)
    # What is gathered was committed.
    for object_key, head, size in await _gathered_heads(objects, namespace, found.problems, patiently):
        for row in head.slices:
            if (not topics or row.topic in topics) and str(row.topic_id) not in deleted:
                placed = PlacedSlice(head.sequence, size, head.created_ms, row._replace(object_key=""))
                reference = slice_reference(namespace, head.journal_id, placed)._replace(
                    object_key=object_key
                )
                by_topic[row.topic, row.partition][row.topic_id].append(reference)
    for name, candidates in by_topic.items():
        found.slices[name] = _of_the_last_topic(candidates)
    return found


def _of_the_last_topic(candidates: Mapping[uuid.UUID, list[SegmentReference]]) -> list[SegmentReference]:
    """Of several topics that had a name, the one with the highest leader epoch: epochs go on for a name."""
    return max(candidates.values(), key=lambda slices: max(one.leader_epoch for one in slices))


async def _gathered_heads(
    objects: ListingReader,
    namespace: str,
    problems: list[str],
    patiently: Callable[[Callable[[], Awaitable[object]]], Awaitable[object]],
) -> list[tuple[str, EntryHead, int]]:
    heads: list[tuple[str, EntryHead, int]] = []

    async def read(key: str) -> None:
        try:
            found = await patiently(lambda: read_gathered_head(objects, key))
        except ObjectNotFoundError:
            return
        except CorruptDataError as problem:
            problems.append(str(problem))
            return
        assert isinstance(found, tuple)
        heads.append((key, *found))

    there = [info.key async for info in objects.list(gathered_prefix(namespace))]
    await map_bounded(read, [key for key in there if parse_gathered_key(key) is not None], HEADS_AT_ONCE)
    return sorted(heads, key=lambda one: one[0])


async def _heads(
    objects: ListingReader,
    namespace: str,
    journal_id: str,
    sequences: Collection[int],
    patiently: Callable[[Callable[[], Awaitable[object]]], Awaitable[object]],
) -> tuple[dict[int, tuple[EntryHead, int]], dict[int, str]]:
    """The entries' heads, without fences, and what is wrong with those that cannot be read."""
    heads: dict[int, tuple[EntryHead, int]] = {}
    unreadable: dict[int, str] = {}

    async def read(sequence: int) -> None:
        key = entry_key(namespace, journal_id, sequence)
        try:
            cell = await patiently(lambda: read_head(objects, key))
        except ObjectNotFoundError:
            return
        except CorruptDataError as problem:
            unreadable[sequence] = str(problem)
            return
        assert isinstance(cell, tuple)
        head, size = cell
        if isinstance(head, EntryHead):
            heads[sequence] = head, size

    await map_bounded(read, list(sequences), HEADS_AT_ONCE)
    return heads, unreadable
