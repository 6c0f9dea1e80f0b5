"""Carries repairs out. Each looks at the stores again, and does only what is safe then.

Objects are deleted only when garbage.py says that nothing can ever refer to them. Records are changed only
while no broker is registered, and only if they are as they were read: a leader whose record changes under it
would lose its place.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kafscale import clocks
from kafscale.errors import (
    CorruptDataError,
    KafscaleError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
)
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import encode_checkpoint
from kafscale.formats.features import LEGACY_LEVEL, SEGMENT_FORMAT, decode_level
from kafscale.formats.index import index_version_at
from kafscale.formats.partition_record import SegmentReference, encode_partition_record
from kafscale.log.journal.end_journal import JournalEnding, StoredJournal
from kafscale.log.life.garbage import candidates, garbage
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER
from kafscale.metadata.store import Compare, Put
from kafscale.objects.object_store import ObjectInfo
from kafscale.tools.fsck.dropping import without_segments
from kafscale.tools.fsck.findings import Standing
from kafscale.tools.fsck.partition_state import PartitionState, read_partition
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.repair_plan import Repair, RepairAction
from kafscale.tools.fsck.topic_rest import TopicRest
from kafscale.tools.fsck.verification import inspect_segment
from kafscale.tools.recovery.end_journals import FewRetries
from kafscale.tools.recovery.rebuild import patiently

OBJECTS_PER_DELETE = 1000


class NotRepairedError(KafscaleError):
    """A repair is not, or not wholly, carried out; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOutcome:
    """The outcome of a repair. `problem` is empty when all of it was done; `detail` says what was."""

    repair: Repair
    detail: str = ""
    problem: str = ""


class Repairer:
    """Carries out repairs of one cluster. `new_token`: letters and digits, new for every checkpoint's key.

    `before_ms`: objects that changed since then, Unix milliseconds, are not deleted.
    """

    def __init__(
        self, reading: Reading, *, before_ms: int, new_token: Callable[[], str], topic_rest: TopicRest
    ) -> None:
        self._reading = reading
        self._before_ms = before_ms
        self._new_token = new_token
        self._topic_rest = topic_rest

    async def carry_out(self, repairs: Iterable[Repair]) -> list[RepairOutcome]:
        """Do all of it, one after the other; what one cannot do keeps none of the others from being done."""
        outcomes = []
        for repair in repairs:
            try:
                outcomes.append(RepairOutcome(repair=repair, detail=await self._do(repair)))
            except KafscaleError as problem:
                outcomes.append(RepairOutcome(repair=repair, problem=str(problem)))
        return outcomes

    async def _do(self, repair: Repair) -> str:
        if repair.needs_no_brokers:
            await self._check_no_brokers()
        match repair.action:
            case RepairAction.REWRITE_INDEX:
                return await self._rewrite_indexes(repair)
            case RepairAction.DELETE_ORPHANS:
                return await self._delete_orphans(repair)
            case RepairAction.DELETE_TOPIC_REST:
                return await self._topic_rest.delete(repair.topic, self._before_ms)
            case RepairAction.DROP_MISSING:
                return await self._drop_missing(repair)

    async def _check_no_brokers(self) -> None:
        brokers = await self._reading.broker_ids()
        if brokers:
            raise NotRepairedError(f"brokers are registered (ids {_joined(brokers)}): stop them first")

    async def _state(self, repair: Repair) -> tuple[PartitionState, Sequence[SegmentReference]]:
        """The partition as it is now, and everything that is published of it. Raises `NotRepairedError`."""
        state = await read_partition(self._reading, repair.topic, repair.partition)
        references = state.references
        if references is None:
            raise NotRepairedError("what is published of the partition is not known any more: run fsck again")
        return state, references

    # --- indexes

    async def _rewrite_indexes(self, repair: Repair) -> str:
        problems = []
        written = 0
        for index_key in repair.keys:
            try:
                written += await self._rewrite_index(repair, index_key)
            except (CorruptDataError, ObjectNotFoundError) as problem:
                problems.append(f"{index_key}: its segment cannot be read ({problem})")
            except StoreError:
                raise
            except KafscaleError as problem:
                problems.append(f"{index_key}: {problem}")
        if problems:
            raise NotRepairedError(
                f"{written} of {len(repair.keys)} indexes written: {'; '.join(problems[:3])}"
            )
        return f"{written} indexes written"

    async def _rewrite_index(self, repair: Repair, index_key: str) -> bool:
        """False when nothing refers to the segment any more."""
        _, references = await self._state(repair)
        key = object_keys.segment_key_of(index_key)
        named = {self._key_of(repair, reference): reference for reference in references}
        if key not in named:
            return False
        _, table = await inspect_segment(self._reading, key, named[key])
        data = table.build(index_version_at(await self._segment_format()))
        try:
            await patiently(lambda: self._reading.objects.put_if_absent(index_key, [data]))
        except ObjectExistsError:
            stored = await self._reading.get(index_key)
            if table.problem_of(index_key, stored) is not None:
                await patiently(lambda: self._reading.objects.put(index_key, [data]))
        return True

    async def _segment_format(self) -> int:
        (held,) = await self._reading.read_metadata(keys.feature(SEGMENT_FORMAT))
        return LEGACY_LEVEL if held is None else decode_level(held.key, held.value)

    def _key_of(self, repair: Repair, reference: SegmentReference) -> str:
        return object_keys.key_of_reference(
            self._reading.namespace, repair.topic, repair.partition, reference
        )

    # --- orphans

    async def _delete_orphans(self, repair: Repair) -> str:
        """The order is the garbage collector's: list, read the record, decide, delete."""
        wanted = set(repair.keys)
        listed = [
            info
            for info in (
                *await self._reading.list_partition(repair.topic, repair.partition),
                *await self._reading.list_checkpoints(repair.topic, repair.partition),
            )
            if info.key in wanted and info.modified_ms < self._before_ms
        ]
        deleted = 0
        for start in range(0, len(listed), OBJECTS_PER_DELETE):
            doomed = await self._doomed(repair, listed[start : start + OBJECTS_PER_DELETE])
            if doomed:
                await self._reading.objects.delete(doomed)
                deleted += len(doomed)
        if deleted < len(listed):
            raise NotRepairedError(
                f"{deleted} objects deleted; {len(listed) - deleted} may still be referred to one day: "
                "the partition's leader decides"
            )
        return f"{deleted} objects deleted"

    async def _doomed(self, repair: Repair, listed: Sequence[ObjectInfo]) -> list[str]:
        """Those of the listed objects that are to be deleted as things are now."""
        state = await read_partition(self._reading, repair.topic, repair.partition)
        if repair.needs_no_brokers:
            await self._check_no_brokers()
            if state.standing is Standing.NO_PARTITION:
                return [info.key for info in listed]
        record, references = state.record, state.references
        if record is None or references is None:
            raise NotRepairedError("what is published of the partition is not known any more: run fsck again")
        # The leader, if there is one, may be about to publish a compacted segment.
        ended_epoch = record.leader_epoch if repair.needs_no_brokers else record.leader_epoch - 1
        old = candidates(listed, record.log_end_offset, self._before_ms)
        doomed = garbage(old, references, ended_epoch)
        for info in listed:
            parsed = object_keys.parse_checkpoint_key(info.key)
            if parsed is None or info.key == record.checkpoint_key:
                continue
            # One that ends later may be about to be named, if there is a broker to name it.
            if parsed.log_end_offset < record.checkpoint_end_offset or repair.needs_no_brokers:
                doomed.append(info.key)
        return doomed

    # --- segments that are gone

    async def _drop_missing(self, repair: Repair) -> str:
        state, references = await self._state(repair)
        if state.record is not None and state.record.journal is not None:
            # What its broker committed and did not report is behind the record: the changed one must have it, too.
            await self._end_journal(state.record.journal.journal_id)
            state, references = await self._state(repair)
        record, checkpoint = state.record, state.checkpoint
        assert record is not None and checkpoint is not None
        suspected = [one for one in references if self._key_of(repair, one) in repair.keys]
        sizes = await self._reading.sizes([self._key_of(repair, one) for one in suspected])
        lost = {one.base_offset for one in suspected if sizes[self._key_of(repair, one)] is None}
        if not lost:
            return "nothing is missing any more"
        leader_epoch = max(record.leader_epoch, 0)

        def checkpoint_key(end_offset: int) -> str:
            place = self._reading.namespace, repair.topic, repair.partition
            return object_keys.checkpoint_key(*place, end_offset, leader_epoch, self._new_token())

        changed, whole = without_segments(record, checkpoint, lost, checkpoint_key)
        await self._reading.objects.put_if_absent(changed.checkpoint_key, [encode_checkpoint(whole)])
        await self._check_no_brokers()
        key = keys.partition(repair.topic, repair.partition)
        result = await self._reading.metadata.transact(
            [Compare(key, state.revision)], [Put(key, encode_partition_record(changed))]
        )
        if not result.succeeded:
            raise NotRepairedError(
                "the partition's record changed meanwhile: nothing was done, run fsck again"
            )
        return f"{len(lost)} segments dropped"

    async def _end_journal(self, journal_id: str) -> None:
        """That of a broker which is not registered any more."""
        reading = self._reading
        journal = StoredJournal(reading.metadata, journal_id)
        await JournalEnding(
            reading.objects, journal, reading.namespace, journal_id, NO_BROKER, FewRetries(), clocks.now_ms
        ).end()


def _joined(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
