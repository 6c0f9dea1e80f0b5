"""The state of a topic at one moment: the metadata store's records, their checkpoints, and the leaders' journals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from kafscale.errors import ObjectNotFoundError, TopicReplacedError
from kafscale.errors import UnknownTopicError as UnknownTopicError
from kafscale.formats import object_keys
from kafscale.formats.aborted_transactions import AbortedTransactions
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT, Checkpoint, decode_checkpoint
from kafscale.formats.partition_record import EpochStart, PartitionRecord, SegmentReference
from kafscale.formats.topic_record import decode_topic_record
from kafscale.log.journal.partition_states import PartitionStates, Versioned
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader, ObjectReader
from kafscale.reader.aborted_batches import NONE_ABORTED, AbortedRanges, IsolationLevel
from kafscale.tasks.bounded import map_bounded

PartitionKey = tuple[str, int]
"""A topic's name and a partition's index."""

Positions = Mapping[PartitionKey, int]
"""An offset for each partition: the first one to read, or the one after the last."""

_CONCURRENCY = 16
_CLEANUP_POLICY, _COMPACT = "cleanup.policy", "compact"


class Freshness(StrEnum):
    """How much of a topic is read: all that is published, or what the partitions' records say.

    Records follow what is published at an interval of the brokers (KAFSCALE_SEAL_INTERVAL_MS). To know more, the
    heads of the entries are read that their journals have behind the records.
    """

    PUBLISHED = "published"
    CONSOLIDATED = "consolidated"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """Start and end of one partition's log, without its references. `last_stable_offset`: as in `PartitionLog`."""

    topic: str
    topic_id: UUID
    partition: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int | None = None

    @property
    def end_offset(self) -> int:
        """The end of what is read."""
        return self.log_end_offset if self.last_stable_offset is None else self.last_stable_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """One partition as published: all references with an offset from `log_start_offset` on, ascending.

    Gaps between references are legal. An object without a reference is not published. `last_stable_offset`, and
    `aborted`, the transactions that reads leave out: None and no transaction for `read_uncommitted`.
    """

    topic: str
    topic_id: UUID
    partition: int
    log_start_offset: int
    log_end_offset: int
    references: tuple[SegmentReference, ...] = field(repr=False)
    epochs: tuple[EpochStart, ...] = ()
    last_stable_offset: int | None = None
    aborted: AbortedRanges = field(default=NONE_ABORTED, repr=False, compare=False)

    @property
    def end_offset(self) -> int:
        """The end of what is read: all below it is decided, unless the isolation level is `read_uncommitted`."""
        return self.log_end_offset if self.last_stable_offset is None else self.last_stable_offset


Logs = Mapping[PartitionKey, PartitionLog]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLog:
    """A topic and its partitions, by index. `compacts`: the topic's own `cleanup.policy` has `compact`."""

    topic: str
    topic_id: UUID
    partitions: tuple[PartitionLog, ...]
    compacts: bool = False

    @property
    def is_compacted(self) -> bool:
        """True if records may go from between others: by the policy, or because there were compactions before.

        Those show a policy that was changed, and one that is a broker's default.
        """
        return self.compacts or any(
            object_keys.compaction_of(reference) is not None
            for partition in self.partitions
            for reference in partition.references
        )


async def list_topics(metadata: MetadataReader) -> list[TopicRecord]:
    """The topics that are not being deleted, by name. Raises `StoreError`, `CorruptDataError`."""
    found = (await metadata.range(keys.TOPICS)).items
    records = [decode_topic_record(item.key, item.value) for item in found]
    return [record for record in records if record.state is TopicState.ACTIVE]


class TopicStates:
    """Reads topics. Keeps what it has read of journals, so that each entry's head is read once for all partitions.

    What is returned is of one topic: its record is read again at the end, since a topic may be deleted and created
    again at any time, and partitions' records are found by its name. `wants`: the topics that will be asked for; each
    partition by one caller at a time. All methods raise `UnknownTopicError`, also for a partition that the topic does
    not have, `TopicReplacedError`, `StoreError` and `CorruptDataError`.
    """

    def __init__(
        self,
        metadata: MetadataReader,
        objects: ListingReader,
        namespace: str,
        freshness: Freshness = Freshness.PUBLISHED,
        wants: Callable[[str], bool] = lambda _: True,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self._is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        self._metadata = metadata
        self._objects = objects
        self._freshness = freshness
        self._states = PartitionStates(metadata, objects, namespace, wants=wants, forgets=True)

    async def topic(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        needed: Mapping[int, int] | None = None,
        *,
        topic_id: UUID | None = None,
    ) -> TopicLog:
        """The topic as it is now; `partitions` None for all of them. `needed`: see `partitions`.

        `topic_id`: it must be the topic with this id, as far as the caller knows one.
        """
        record, wanted = await _find_topic(self._metadata, topic, partitions, topic_id)
        logs = await self.partitions(topic, wanted, needed, topic_id=record.topic_id)
        return TopicLog(
            topic=topic,
            topic_id=record.topic_id,
            partitions=tuple(logs),
            compacts=_COMPACT in record.configs.get(_CLEANUP_POLICY, "").split(","),
        )

    async def partitions(
        self,
        topic: str,
        partitions: Sequence[int],
        needed: Mapping[int, int] | None = None,
        *,
        topic_id: UUID,
    ) -> list[PartitionLog]:
        """The partitions as they are now, in this order: all that was acknowledged, unless the freshness is less.

        `needed`: all is wanted before these offsets, by partition, and no more. A journal is read only for a
        partition whose record ends earlier, whatever the freshness. `topic_id`: of the topic as it was read before.
        """

        try:
            logs = await self._logs(topic, topic_id, partitions, needed)
        except (UnknownTopicError, ObjectNotFoundError):
            # The records of another topic may have fewer partitions, or name objects that went with the topic.
            await _find_topic(self._metadata, topic, (), topic_id)
            raise
        await _find_topic(self._metadata, topic, (), topic_id)
        return logs

    async def _logs(
        self, topic: str, topic_id: UUID, partitions: Sequence[int], needed: Mapping[int, int] | None
    ) -> list[PartitionLog]:
        async def records(some: Sequence[int]) -> dict[int, Versioned]:
            if needed is None and self._freshness is Freshness.PUBLISHED:
                return self._complete(topic, some, await self._published(topic, some))
            found = await self._states.records(topic, some)
            return self._complete(topic, some, await self._up_to(topic, found, needed or {}))

        found = await records(partitions)

        async def read(partition: int) -> PartitionLog:
            record, revision = found[partition]
            while True:
                try:
                    checkpoint = await _read_checkpoint(self._objects, record.checkpoint_key)
                    return self._log_of(topic, topic_id, partition, record, checkpoint)
                except ObjectNotFoundError:
                    # Replaced by a newer one and deleted since the record was read; the newer record names that.
                    last_revision = revision
                    record, revision = (await records([partition]))[partition]
                    if revision == last_revision:
                        raise

        return await map_bounded(read, partitions, _CONCURRENCY)

    async def ends(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        known: Mapping[int, int] | None = None,
        *,
        topic_id: UUID | None = None,
        followed: set[str] | None = None,
    ) -> list[PartitionEnds]:
        """Start and end of the topic's partitions now, for callers that poll.

        No object is read but the heads of new entries, once their leader has reported them. `known`: offsets that
        were ends before. `topic_id`: as for `topic`. `followed`: what leaders have not reported is wanted, too, as it
        was when the set was empty: the journals that were read so far, for calls for one topic after another.
        """
        before, wanted = await _find_topic(self._metadata, topic, partitions, topic_id)
        if self._freshness is Freshness.PUBLISHED:
            found = await self._states.read_all(
                topic, wanted, beyond_progress=followed is not None, followed=followed
            )
        else:
            found = await self._states.records(topic, wanted)
        found = self._complete(topic, wanted, await self._up_to(topic, found, known or {}))
        await _find_topic(self._metadata, topic, (), before.topic_id)
        return [
            PartitionEnds(
                topic=topic,
                topic_id=before.topic_id,
                partition=partition,
                log_start_offset=record.log_start_offset,
                log_end_offset=record.log_end_offset,
                last_stable_offset=record.last_stable_offset if self._is_committed else None,
            )
            for partition, (record, _) in found.items()
        ]

    async def _published(self, topic: str, partitions: Sequence[int]) -> dict[int, Versioned]:
        return await self._states.read_all(topic, partitions, beyond_progress=True)

    async def _up_to(
        self, topic: str, found: dict[int, Versioned], needed: Mapping[int, int]
    ) -> dict[int, Versioned]:
        """With the published states of those that end before the needed offsets.

        Above its last stable offset a record does not tell which transactions were aborted.
        """
        short = [one for one, (record, _) in found.items() if self._end(record) < needed.get(one, 0)]
        return found | await self._published(topic, short) if short else found

    def _end(self, record: PartitionRecord) -> int:
        return record.last_stable_offset if self._is_committed else record.log_end_offset

    def _log_of(
        self, topic: str, topic_id: UUID, partition: int, record: PartitionRecord, checkpoint: Checkpoint
    ) -> PartitionLog:
        references = tuple(
            reference
            for reference in (*checkpoint.segments, *record.segments)
            if reference.last_offset >= record.log_start_offset
        )
        return PartitionLog(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            log_start_offset=record.log_start_offset,
            log_end_offset=record.log_end_offset,
            references=references,
            epochs=record.epochs,
            last_stable_offset=record.last_stable_offset if self._is_committed else None,
            aborted=_aborted(record, checkpoint) if self._is_committed else NONE_ABORTED,
        )

    def _complete(
        self, topic: str, partitions: Sequence[int], found: Mapping[int, Versioned]
    ) -> dict[int, Versioned]:
        """The partitions in this order. Raises `UnknownTopicError` if one is missing."""
        missing = [one for one in partitions if one not in found]
        if missing:
            raise UnknownTopicError(f"there is no record of partition {missing[0]} of topic {topic!r}")
        return {partition: found[partition] for partition in partitions}


def _aborted(record: PartitionRecord, checkpoint: Checkpoint) -> AbortedRanges:
    if not checkpoint.aborted and not record.transactions.aborted:
        return NONE_ABORTED
    found = AbortedTransactions(checkpoint.aborted)
    found.add_newer(record.transactions.aborted)
    found.drop_below(record.log_start_offset)
    return found


async def _find_topic(
    metadata: MetadataReader, topic: str, partitions: Sequence[int] | None, topic_id: UUID | None = None
) -> tuple[TopicRecord, list[int]]:
    """The topic's record, and the wanted partitions. `topic_id`: the id that it must have, if one is known."""
    held = await metadata.get(keys.topic(topic))
    record = None if held is None else decode_topic_record(held.key, held.value)
    if record is None or record.state is not TopicState.ACTIVE:
        raise UnknownTopicError(f"there is no topic {topic!r} in the metadata store")
    if topic_id is not None and record.topic_id != topic_id:
        raise TopicReplacedError(topic, topic_id, record.topic_id)
    for partition in partitions or ():
        if not 0 <= partition < record.partition_count:
            raise UnknownTopicError(
                f"topic {topic!r} has no partition {partition}: legal are 0 to {record.partition_count - 1}"
            )
    return record, list(range(record.partition_count)) if partitions is None else sorted(set(partitions))


async def _read_checkpoint(objects: ObjectReader, key: str) -> Checkpoint:
    return decode_checkpoint(key, await objects.get(key)) if key else EMPTY_CHECKPOINT
