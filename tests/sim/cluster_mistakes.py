"""Mistakes for a broker to have, put in on purpose: a simulation that does not find them proves nothing."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafscale.cluster import keeper, topic_deletion
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.followed_partitions import FollowedPartitions
from kafscale.log.leadership.events import Event
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_state import ProducerStates
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.stored_records import StoredRecords
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.record_writer import RecordWriter
from kafscale.metadata import keys
from kafscale.metadata.store import Compare, Operation, Put, TransactionResult
from kafscale.protocol.error_codes import ErrorCode
from tests.sim.links import Conditions
from tests.sim.simulated_metadata import LinkedMetadata
from tests.sim.simulated_producers import Load

Plant = Callable[[pytest.MonkeyPatch], None]
SEARCH: dict[Plant, dict[str, Any]] = {}
"""Every mistake, and what plan lets it show soon where a usual one would take long."""

_GOOD = Conditions(longest_delay=0.02)
_SMALL: dict[str, Any] = {"brokers": 2, "topics": {"t": 1}, "plain_producers": 0, "stops_well": False}
_SLOW = Conditions(longest_delay=0.5)
_SEALING: dict[str, Any] = {
    **_SMALL,
    "flush_interval_ms": 0,
    "flushes_per_sec": 1000,
    "seal_interval_ms": 50,
    "seal_max_age_ms": 0,
    "merge_min_segments": 1000,
    "idempotent_producers": 1,
    "consumers": 0,
}
"""Flushed slices become a segment at once, so that there is much to make checkpoints of."""


def mistake(**special: Any) -> Callable[[Plant], Plant]:
    """One of `SEARCH`."""

    def add(plant: Plant) -> Plant:
        SEARCH[plant] = {"hedged_percent": 30, "paces_flushes": False, **special}
        return plant

    return add


@mistake()
def record_written_without_its_compare(patch: pytest.MonkeyPatch) -> None:
    """The record is replaced, whoever wrote it last."""

    async def put(self: RecordWriter, partition: Partition, record: PartitionRecord) -> int:
        key = keys.partition(partition.id.topic, partition.id.index)
        write = Put(key, encode_partition_record(record))
        result = await self._retries.until_done(lambda: self._metadata.transact([], [write]), key)
        return result.revision

    patch.setattr(RecordWriter, "_put", put)


@mistake()
def entry_that_overwrites(patch: pytest.MonkeyPatch) -> None:
    """An entry is put where it belongs, whatever lies there."""

    async def put(self: ConditionalPut, key: str, parts: Sequence[Any], *_: Any) -> bool:
        await self._retries.until_done(lambda: self._objects.put(key, parts), key)
        return True

    patch.setattr(ConditionalPut, "put", put)


@mistake()
def fence_taken_for_ones_own(patch: pytest.MonkeyPatch) -> None:
    """Whatever lies under an entry's key is believed to be an earlier attempt's."""

    async def lies_there(self: ConditionalPut, key: str, parts: Sequence[Any]) -> bool:
        return True

    patch.setattr(ConditionalPut, "_lies_there", lies_there)


@mistake(
    brokers=2,
    topics={"t": 4},
    kinds=("add broker", "end lease"),
    lease_ttl=2,
    seal_interval_ms=50,
    metadata=Conditions(longest_delay=0.1, fault_rate=0.35, latest_effect=0.5),
    objects=_GOOD,
    load=Load(batches=20, longest_pause=0.1),
)
def unknown_outcome_taken_for_success(patch: pytest.MonkeyPatch) -> None:
    """A write of a record without an answer is believed to have happened."""

    async def read_back(self: RecordWriter, partition: Partition, key: str, value: bytes) -> int:
        return partition.revision

    patch.setattr(RecordWriter, "_read_back", read_back)


def _claim_without(patch: pytest.MonkeyPatch, prefix: str) -> None:
    transact = LinkedMetadata.transact

    async def without(
        self: LinkedMetadata, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if any(isinstance(one, Put) and one.key.startswith(keys.LEADERS) for one in operations):
            compares = [compare for compare in compares if not compare.key.startswith(prefix)]
        return await transact(self, compares, operations)

    patch.setattr(LinkedMetadata, "transact", without)


@mistake(
    brokers=3,
    topics={"t": 4},
    kinds=("add broker", "stop", "end lease"),
    troubles=10,
    longest_calm=1.0,
    lease_ttl=2,
    flush_interval_ms=0,
    flushes_per_sec=1000,
    flushes_in_flight=4,
    seal_interval_ms=4_000,
    metadata=Conditions(longest_delay=0.3, fault_rate=0.2, break_rate=0.5),
    objects=_GOOD,
    load=Load(batches=20, longest_pause=0.1),
    stops_well=False,
)
def claim_that_does_not_compare_the_leader(patch: pytest.MonkeyPatch) -> None:
    """A partition is claimed although somebody leads it."""
    _claim_without(patch, keys.LEADERS)


@mistake(
    **_SMALL,
    kinds=("end lease",),
    troubles=4,
    longest_calm=1.5,
    consumers=0,
    flush_interval_ms=0,
    lease_ttl=4,
    metadata=Conditions(longest_delay=0.15),
    objects=_GOOD,
    load=Load(batches=30, longest_pause=0.2),
)
def claim_that_does_not_compare_the_record(patch: pytest.MonkeyPatch) -> None:
    """A claim goes back to the record as it was read, whatever was published since."""
    _claim_without(patch, keys.PARTITIONS)


@mistake(
    **{**_SEALING, "brokers": 3, "topics": {"t": 3}},
    kinds=("pause", "late upload", "end lease"),
    troubles=8,
    longest_calm=4.0,
    lease_ttl=2,
    checkpoint_segments=2,
    superseded_grace_ms=0,
    metadata=_GOOD,
    # A checkpoint's upload may take longer than its leader leads.
    objects=Conditions(longest_delay=0.15, timeout=20.0),
    load=Load(batches=60, longest_pause=0.5),
)
def cleanup_that_knows_only_its_own_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """A leader removes every checkpoint that its own picture of the record does not name."""

    async def remove(self: Checkpointer, held: Partition, end_offset: int) -> None:
        prefix = object_keys.checkpoints_partition_prefix(self._namespace, held.id.topic, held.id.index)
        log = held.log
        waiting = log.waiting_checkpoint if log is not None else None
        kept = {held.record.checkpoint_key, waiting.key if waiting is not None else ""}
        found = [info.key async for info in self._objects.list(prefix) if info.key not in kept]
        if found:
            await self._objects.delete(found)

    patch.setattr(Checkpointer, "remove_superseded", remove)


@mistake()
def acknowledgement_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Producers hear of their records as soon as these are sealed."""
    seal = PartitionLog.seal

    def told_early(self: PartitionLog, *arguments: Any) -> SealedSegment:
        sealed = seal(self, *arguments)
        for waiter, relative_offset in sealed.buffer.waiters:
            waiter.published(sealed.reference.base_offset + relative_offset, self.record.log_start_offset)
        return sealed

    patch.setattr(PartitionLog, "seal", told_early)


@mistake()
def out_of_range_from_a_stale_picture(patch: pytest.MonkeyPatch) -> None:
    """A broker refuses an offset above the end that it knows of, without asking the store."""

    async def check(self: StoredRecords, held: Partition, offset: int) -> ErrorCode:
        return ErrorCode.OFFSET_OUT_OF_RANGE

    patch.setattr(StoredRecords, "check_beyond_end", check)


@mistake(
    **_SMALL,
    kinds=("cut",),
    troubles=8,
    longest_calm=2.0,
    flush_interval_ms=500,
    idempotent_producers=2,
    consumers=4,
    hop_rate=0.7,
    metadata=_GOOD,
    objects=_GOOD,
    load=Load(batches=15, longest_pause=0.5),
)
def leader_that_follows_its_successor(patch: pytest.MonkeyPatch) -> None:
    """A leader that hands over takes over the successor's record (a fault that was in the code once)."""
    patch.setattr(Partition, "is_followed", property(lambda self: not self.is_led))
    # Else only what was followed from the beginning is brought up to date.
    patch.setattr(FollowedPartitions, "_is_followed", lambda self, partition: partition.is_followed)


@mistake(
    checkpoint_segments=2,
    hop_rate=0.5,
    consumers=2,
    metadata=Conditions(break_rate=0.3),
    objects=_GOOD,
)
def follower_that_leaves_out_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """A follower that missed some records appends what the record still names, and has a hole."""
    follow = Partition.follow

    def with_a_hole(self: Partition, record: PartitionRecord, revision: int) -> None:
        known = self.references
        follow(self, record, revision)
        if known is not None and self.references is None:
            end = max((one.last_offset for one in known), default=-1)
            for reference in record.segments:
                if reference.base_offset > end:
                    known.append(reference)
            self.references = known

    patch.setattr(Partition, "follow", with_a_hole)


@mistake()
def producers_forgotten_by_the_next_leader(patch: pytest.MonkeyPatch) -> None:
    """A new leader knows nothing of the producers, and takes their retries for new batches."""

    def forgetful(self: Partition, checkpoint: Checkpoint) -> PartitionLog:
        self.load(checkpoint)
        self.leadership.apply(Event.LOADED)
        self.log = PartitionLog(
            dataclasses.replace(self.record, producers=()), ProducerStates(()), self.leadership
        )
        return self.log

    patch.setattr(Partition, "open", forgetful)


@mistake(
    **_SEALING,
    troubles=0,
    checkpoint_segments=2,
    metadata=_GOOD,
    objects=Conditions(fault_rate=0.4),
    load=Load(batches=40, longest_pause=0.3),
)
def checkpoint_that_is_named_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """The record names a checkpoint whose upload may have failed."""
    write = Checkpointer._write

    async def hopeful(self: Checkpointer, held: Partition) -> None:
        log = held.log
        put = self._objects.put_if_absent

        async def put_hopefully(key: str, parts: Sequence[Any]) -> None:
            try:
                await put(key, parts)
            except Exception:  # noqa: BLE001 - that is the mistake
                return

        class _Hopeful:
            put_if_absent = staticmethod(put_hopefully)
            list = self._objects.list
            delete = self._objects.delete

        patched = Checkpointer(
            _Hopeful,  # type: ignore[arg-type]
            self._metadata,
            self._namespace,
            self._now_ms,
            self._new_token,
        )
        assert log is not None
        await write(patched, held)

    patch.setattr(Checkpointer, "_write", hopeful)


@mistake(
    **{**_SMALL, "brokers": 3},
    kinds=("end lease",),
    troubles=8,
    longest_calm=1.0,
    consumers=0,
    metadata=Conditions(break_rate=0.8, longest_delay=0.1),
    objects=_GOOD,
)
def keeper_that_waits_for_a_change(patch: pytest.MonkeyPatch) -> None:
    """A claim that failed is looked at when its picture changes (a fault that was in the code once)."""
    patch.setattr(keeper, "LOOK_AGAIN_SEC", 1e9)


@mistake(
    **{**_SEALING, "topics": {"t": 4}},
    kinds=("delete topic",),
    troubles=3,
    longest_calm=6.0,
    metadata=_GOOD,
    clients=_GOOD,
    # Segments of few records, so that the next topic of the name has some of the same offsets, under the same keys.
    objects=Conditions(fault_rate=0.4, latest_effect=20.0),
    load=Load(batches=25, longest_pause=2.0),
    # A producer that goes on with the next topic before its answers came is seldom at the same offsets again.
    drain_rate=1.0,
)
def name_that_is_free_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A deleted topic's name is free though a request to delete objects may come (once in the code)."""
    patch.setattr(topic_deletion.TopicDeletion.__init__, "__kwdefaults__", {**_DELETION, "grace_sec": 0.0})


_DELETION = topic_deletion.TopicDeletion.__init__.__kwdefaults__ or {}
