"""Rules that the stores must never break, checked with every change that is made to them.

Nothing here believes the brokers: what is published is taken from the bucket at the moment of publication, and
held against every later record, checkpoint, acknowledgement and read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, takewhile

from kafscale.errors import CorruptDataError
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT, Checkpoint, decode_checkpoint
from kafscale.formats.journal_keys import is_unsealed_key
from kafscale.formats.partition_record import PartitionRecord, ProducerRecord, SegmentReference
from kafscale.formats.producer_batches import REMEMBERED_BATCHES, ProducerBatch
from kafscale.log.producer_state import joined
from kafscale.protocol.records import Record, decode_records
from tests.formats.segments import Segment, parse_segment, verify_segment

Fail = Callable[[str], None]
Bucket = Callable[[str], bytes | None]


@dataclass(slots=True)
class _Producer:
    """All that it published without a gap in its newest epoch."""

    epoch: int
    run: tuple[ProducerBatch, ...]

    def kept(self, base_offset: int = 0) -> tuple[ProducerBatch, ...]:
        """As it is to be stored, of the batches from that offset on: those before the newest five as one."""
        run = tuple(batch for batch in self.run if batch.base_offset >= base_offset)
        older, newest = run[:-REMEMBERED_BATCHES], run[-REMEMBERED_BATCHES:]
        if not older:
            return newest
        return ProducerBatch(older[0].first_sequence, older[-1].last_sequence, older[0].base_offset), *newest


@dataclass(slots=True)
class PublishedLog:
    """One partition from its creation to its deletion, as it was published.

    `topic` has the number of its incarnation: names come back. `values` by offset, `offsets` ascending, those of
    deleted records too. `newest`: the newest offset of each key; `removed`: offsets that compaction took, and that
    brokers with an older picture may still serve. `end_offset`: of what is committed. `may_start_at`: up to where
    deletion was asked for.
    """

    name: str
    topic: str
    index: int
    namespace: str
    bucket: Bucket
    fail: Fail
    record: PartitionRecord
    end_offset: int = 0
    values: dict[int, bytes] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)
    references: list[SegmentReference] = field(default_factory=list)
    bodies: dict[SegmentReference, bytes] = field(default_factory=dict)
    claimed_by: dict[int, str] = field(default_factory=dict)
    is_deleted: bool = False
    may_start_at: int = 0
    newest: dict[bytes, int] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    merges: int = 0
    compactions: int = 0
    deletions: int = 0
    _producers: dict[int, _Producer] = field(default_factory=dict)
    _transactional: set[int] = field(default_factory=set)

    @property
    def place(self) -> tuple[str, int]:
        """Its name in histories."""
        return self.topic, self.index

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def published_from(self, position: int) -> Iterator[int]:
        """The published offsets from `position` on."""
        return islice(self.offsets, bisect_left(self.offsets, position), None)

    def removed_between(self, position: int, offset: int) -> list[int]:
        """The published offsets from `position` to before `offset`, as long as compaction has removed them."""
        passed = takewhile(lambda one: one < offset and one in self.removed, self.published_from(position))
        return list(passed)

    # --- what is committed

    def committed(self, reference: SegmentReference, data: bytes) -> None:
        """A slice of the log was committed; `data`: its bytes."""
        where = f"{self} [{reference.base_offset}, {reference.last_offset}]"
        if reference.base_offset != self.end_offset:
            self.fail(f"{where} is committed where the log ends at {self.end_offset}")
        if reference.leader_epoch != self.record.leader_epoch:
            self.fail(f"{where} has epoch {reference.leader_epoch}, the record {self.record.leader_epoch}")
        self.end_offset = reference.last_offset + 1
        self.references.append(reference)
        self.bodies[reference] = data
        try:
            self._take_segment(reference, data)
        except CorruptDataError as problem:
            self.fail(f"{where} is committed and damaged: {problem}")

    # --- changes of the record

    def claimed(self, after: PartitionRecord, origin: str) -> None:
        """`origin` leads from now on: it must know all that is committed."""
        before = self.record
        if after.leader_epoch != before.leader_epoch + 1:
            self.fail(f"{self}: leader epoch {after.leader_epoch} follows {before.leader_epoch}")
        if after.log_start_offset != before.log_start_offset or after.checkpoint_key != before.checkpoint_key:
            self.fail(f"{self}: the claim of epoch {after.leader_epoch} by {origin} changed the record")
        if after.log_end_offset != self.end_offset:
            self.fail(
                f"{self}: {origin} claims it with the end {after.log_end_offset}, committed is {self.end_offset}"
            )
        if after.leader_epoch in self.claimed_by:
            self.fail(f"{self}: epoch {after.leader_epoch} is claimed twice")
        self.claimed_by[after.leader_epoch] = origin
        self.record = after
        self._check_references(after, thoroughly=False)

    def stored(self, after: PartitionRecord, origin: str) -> None:
        """`origin` wrote the record that it leads with."""
        before = self.record
        self.record = after
        if self.claimed_by.get(after.leader_epoch) != origin:
            owner = self.claimed_by.get(after.leader_epoch)
            self.fail(f"{self}: {origin} wrote the record of epoch {after.leader_epoch}, which is {owner}'s")
        if not before.log_end_offset <= after.log_end_offset <= self.end_offset:
            self.fail(
                f"{self}: the log end went from {before.log_end_offset} to {after.log_end_offset}, committed is "
                f"{self.end_offset}"
            )
        if after.log_start_offset != before.log_start_offset:
            self._start_later(before.log_start_offset, after.log_start_offset)
        self._take_merged(after, before.checkpoint_key != after.checkpoint_key)
        if after.journal is None and after.log_end_offset != self.end_offset:
            self.fail(
                f"{self}: {origin} released it at {after.log_end_offset}, committed is {self.end_offset}"
            )
        self._check_references(after, before.checkpoint_key != after.checkpoint_key)

    def _start_later(self, before: int, after: int) -> None:
        if not before < after <= self.may_start_at:
            self.fail(
                f"{self}: the log start went from {before} to {after}, asked was for {self.may_start_at}"
            )
        while self.references and self.references[0].last_offset < after:
            del self.bodies[self.references.pop(0)]
        self.deletions += 1

    def _take_merged(self, after: PartitionRecord, is_checkpoint_new: bool) -> None:
        """The record and a new checkpoint may name merged and sealed segments in the place of their sources."""
        checkpoint = self.checkpoint(after) if is_checkpoint_new else EMPTY_CHECKPOINT
        known = set(self.references)
        for reference in () if checkpoint is None else self._named_by(after, checkpoint):
            if reference not in known:
                self._swap(reference)

    def _swap(self, merged: SegmentReference) -> None:
        where = f"{self} merged [{merged.base_offset}, {merged.last_offset}]"
        sources = [
            one for one in self.references if merged.base_offset <= one.base_offset <= merged.last_offset
        ]
        if not sources or (sources[0].base_offset, sources[-1].last_offset) != (
            merged.base_offset,
            merged.last_offset,
        ):
            self.fail(f"{where} is published in the place of {sources}")
            return
        key = self._key(merged)
        data = self.bucket(key)
        if data is None:
            self.fail(f"{where} is published, and there is no {key}")
            return
        if is_unsealed_key(key):
            data = data[merged.start : merged.start + merged.size_bytes]
        try:
            whole = parse_segment(key, data)
            verify_segment(whole)
        except CorruptDataError as problem:
            self.fail(f"{where} is published and damaged: {problem}")
            return
        parts = [parse_segment("", self.bodies.pop(source)) for source in sources]
        if object_keys.compaction_of(merged) is not None:
            self._compacted(where, whole, parts)
        elif bytes(whole.body) != b"".join(bytes(part.body) for part in parts):
            self.fail(f"{where} does not hold the batches of its sources, verbatim")
        at = self.references.index(sources[0])
        self.references[at : at + len(sources)] = [merged]
        self.bodies[merged] = data
        self.merges += 1

    def _compacted(self, where: str, whole: Segment, parts: Sequence[Segment]) -> None:
        """Only what a newer record of its key replaces may be gone."""
        before = {record.offset: record for part in parts for record in _records_of(part)}
        after = {record.offset: record for record in _records_of(whole)}
        for offset, record in after.items():
            if before.get(offset) != record:
                self.fail(f"{where} has {record}, its sources {before.get(offset)}")
        for offset in before.keys() - after.keys():
            key = before[offset].key or b""
            if self.newest[key] <= offset:
                self.fail(f"{where} lost the newest record of {key!r}, at offset {offset}")
            self.removed.add(offset)
        headers = [header for _, header in verify_segment(whole)]
        if any(one.last_offset + 1 != two.base_offset for one, two in pairwise(headers)):
            self.fail(f"{where} has gaps between its batches")
        self.compactions += 1

    def _key(self, reference: SegmentReference) -> str:
        return reference.object_key or object_keys.segment_key(
            self.namespace, self.name, self.index, reference.base_offset
        )

    def _take_segment(self, reference: SegmentReference, data: bytes) -> None:
        key = self._key(reference)
        segment = parse_segment(key, data)
        if (segment.header.base_offset, segment.footer.last_offset, len(data)) != (
            reference.base_offset,
            reference.last_offset,
            reference.size_bytes,
        ):
            self.fail(f"{key} is not what the record says: {reference}")
        for position, header in verify_segment(segment):
            if header.partition_leader_epoch != reference.leader_epoch:
                self.fail(f"{key}: a batch has epoch {header.partition_leader_epoch}")
            for record in decode_records(segment.data[position : position + header.size_bytes], 1 << 20):
                if record.offset in self.values:
                    self.fail(f"{self}: offset {record.offset} is published twice")
                self.values[record.offset] = record.value or b""
                if record.key is not None:
                    self.newest[record.key] = record.offset
                self.offsets.append(record.offset)
            if header.is_transactional:
                # Their markers and epochs are looked at in `committed_log`.
                self._transactional.add(header.producer_id)
            elif header.producer_id >= 0:
                self._remember(
                    header.producer_id,
                    header.producer_epoch,
                    ProducerBatch(header.base_sequence, header.last_sequence, header.base_offset),
                )

    def _remember(self, producer_id: int, epoch: int, batch: ProducerBatch) -> None:
        known = self._producers.get(producer_id)
        earlier = known.run if known is not None and known.epoch == epoch else ()
        if earlier and earlier[-1].last_sequence + 1 != batch.first_sequence:
            earlier = ()
        self._producers[producer_id] = _Producer(epoch, (*earlier, batch))

    # --- what a reader of the record finds

    def _check_references(self, after: PartitionRecord, thoroughly: bool) -> None:
        """The record alone, or with its checkpoint, names everything that was ever published."""
        is_newest = after.log_end_offset == self.end_offset
        due = [one for one in self.references if one.base_offset < after.log_end_offset]
        if not thoroughly:
            if list(after.segments) != due[len(due) - len(after.segments) :]:
                self.fail(f"{self}: the record does not end with what was committed: {after.segments}")
            if is_newest:
                self._check_producers(after.producers, complete=False)
            return
        checkpoint = self.checkpoint(after)
        if checkpoint is None:
            return
        if self._named_by(after, checkpoint) != due:
            self.fail(
                f"{self}: checkpoint {after.checkpoint_key} and its record do not name what is committed"
            )
        if is_newest:
            self._check_producers(joined((*checkpoint.producers, *after.producers)), complete=True)

    @staticmethod
    def _named_by(record: PartitionRecord, checkpoint: Checkpoint) -> list[SegmentReference]:
        start = record.log_start_offset
        return [one for one in (*checkpoint.segments, *record.segments) if one.last_offset >= start]

    def checkpoint(self, record: PartitionRecord) -> Checkpoint | None:
        """The record's value; None is a mistake and was reported."""
        if not record.checkpoint_key:
            return EMPTY_CHECKPOINT
        data = self.bucket(record.checkpoint_key)
        if data is None:
            self.fail(f"{self}: the record names checkpoint {record.checkpoint_key}, which is not there")
            return None
        return decode_checkpoint(record.checkpoint_key, data)

    def _check_producers(self, stored: Sequence[ProducerRecord], *, complete: bool) -> None:
        stored = [one for one in stored if one.producer_id not in self._transactional]
        for one in stored:
            known = self._producers.get(one.producer_id)
            # The record may have only what was written since the checkpoint.
            since = 0 if complete else one.batches[0].base_offset
            due = () if known is None else known.kept(since)
            if known is None or (known.epoch, due) != (one.producer_epoch, one.batches):
                self.fail(f"{self}: producer {one.producer_id} is stored as {one}, published is {known}")
        if complete and len(stored) != len(self._producers):
            self.fail(f"{self}: {len(stored)} of {len(self._producers)} producers are stored")

    def check_end(self) -> None:
        """At the end: everything that was committed can be found, and is what it was."""
        checkpoint = self.checkpoint(self.record)
        if checkpoint is None:
            return
        named = self._named_by(self.record, checkpoint)
        if named != [one for one in self.references if one.base_offset < self.record.log_end_offset]:
            self.fail(f"{self}: the record and its checkpoint do not name what was committed")
        for reference, data in self.bodies.items():
            stored = self.bucket(self._key(reference))
            found = (
                None if stored is None else stored[reference.start : reference.start + reference.size_bytes]
            )
            if found != data:
                self.fail(f"{self}: {self._key(reference)} is not what was committed")

    def needed_keys(self) -> set[str]:
        """The objects with something that is committed, and is in no other object."""
        return {self._key(reference) for reference in self.bodies}

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Offsets and values, in order."""
        return ((offset, self.values[offset]) for offset in self.offsets)


def _records_of(segment: Segment) -> Iterator[Record]:
    for position, header in verify_segment(segment):
        yield from decode_records(segment.data[position : position + header.size_bytes], 1 << 20)
