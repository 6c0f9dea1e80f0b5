"""Carries a rebuild's plan out: every write is conditional, and all of it may be done again.

Order: the ends of all journals, the checkpoints, the producer ids, the feature levels (that which segments beyond
2 GiB need, and the snapshot's), topic by topic its partition records and with the last of them the topic's own, the
markers that end open transactions, what else a snapshot brings, and the cluster's id at the end. Until that is there
brokers refuse to start on the bucket.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from kafscale import clocks
from kafscale.cluster.cluster_record import adopt_cluster_id, kafka_uuid_text, read_cluster_id
from kafscale.cluster.feature_updates import raise_level
from kafscale.cluster.producer_ids import pass_over
from kafscale.errors import CorruptDataError, KafscaleError, ObjectExistsError
from kafscale.formats.features import (
    LEGACY_LEVEL,
    NEW_CLUSTER,
    SEGMENT_FORMAT,
    TRANSACTION_VERSION,
    TRANSACTIONS_LEVEL,
    level_before,
)
from kafscale.formats.partition_record import encode_partition_record
from kafscale.formats.topic_record import decode_topic_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put
from kafscale.objects.object_store import ObjectStore
from kafscale.tasks.bounded import map_bounded
from kafscale.tools.recovery.bucket_plan import BucketPlan, TopicPlan
from kafscale.tools.recovery.end_journals import end_journals
from kafscale.tools.recovery.markers import endings_of_all, markers_of
from kafscale.tools.recovery.plan import PartitionPlan
from kafscale.tools.recovery.rebuild import Progress, patiently
from kafscale.tools.recovery.write_entries import problem_of_entries, put_chunks, put_entries
from kafscale.tools.recovery.write_markers import put_markers

_CONCURRENT_CHECKPOINTS: Final = 16
_ANY_ID: Final = uuid.UUID(int=0)


class RecoveryRefusedError(KafscaleError):
    """The plan is not carried out; each of `reasons` says why and what to do."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The outcome. `already_there`: topics that an earlier run had rebuilt from the same objects."""

    cluster_id: str
    written: tuple[str, ...]
    already_there: tuple[str, ...]


class _Held(Enum):
    """The state of a topic in the metadata store."""

    NOTHING_ELSE = "nothing, or some of the partition records that are planned"
    ALL = "the topic as it is planned"
    OTHER = "something else"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The store's state of a topic, and which of its planned partition records it holds, by key."""

    held: _Held
    present: Mapping[str, KeyValue] = field(default_factory=dict)
    problem: str = ""


class RecoveryWriter:
    """Writes one plan. `configs` are set on every topic that is written and that no snapshot has."""

    def __init__(
        self,
        metadata: MetadataStore,
        objects: ObjectStore,
        plan: BucketPlan,
        *,
        configs: Mapping[str, str],
        new_uuid: Callable[[], uuid.UUID],
        progress: Progress,
        now_ms: Callable[[], int] = clocks.now_ms,
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._plan = plan
        self._configs = configs
        self._new_uuid = new_uuid
        self._progress = progress
        self._now_ms = now_ms

    async def refusals(self, *, skip_damaged: bool) -> list[str]:
        """Why the plan may not be carried out now; empty when it may. Nothing is written."""
        reasons = await self._of_brokers()
        reasons += await self._of_cluster()
        reasons += await self._of_snapshot()
        damaged = [d for topic in self._plan.topics for p in topic.partitions for d in p.damaged]
        if damaged and not skip_damaged:
            reasons.append(
                f"{len(damaged)} damaged objects, the first is {damaged[0].key}: restore them, or leave their "
                "records out with --skip-damaged"
            )
        if self._plan.problems and not skip_damaged:
            reasons.append(
                f"{len(self._plan.problems)} entries of journals or gathered objects cannot be read, the first is "
                f"{self._plan.problems[0]}: restore them, or leave their records out with --skip-damaged"
            )
        for topic in self._plan.topics:
            if topic.problem:
                reasons.append(f"topic {topic.name!r} cannot be rebuilt: {topic.problem}")
                continue
            found = await self._look(topic)
            if found.held is _Held.OTHER:
                reasons.append(f"the metadata store {found.problem}: nothing is overwritten; {self._way_out}")
        return reasons

    @property
    def _way_out(self) -> str:
        """The advice where the store has something else than the plan."""
        if self._plan.restored is not None:
            return "a snapshot goes into an empty metadata store only"
        return "name the topics that are to be rebuilt with --topic"

    async def _of_brokers(self) -> list[str]:
        brokers = (await patiently(lambda: self._metadata.range(keys.BROKERS))).items
        if not brokers:
            return []
        ids = ", ".join(item.key.removeprefix(keys.BROKERS) for item in brokers)
        return [f"brokers are registered (ids {ids}): stop them first"]

    async def _of_cluster(self) -> list[str]:
        held = await patiently(lambda: read_cluster_id(self._metadata))
        if held is None or self._plan.cluster_id in (None, held):
            return []
        return [
            f"the metadata store belongs to cluster {held}, and namespace {self._plan.namespace!r} of the object "
            f"store to cluster {self._plan.cluster_id}: set the metadata store or KAFSCALE_S3_NAMESPACE to the "
            "right one"
        ]

    async def _of_snapshot(self) -> list[str]:
        """A snapshot goes into an empty store, or one that an earlier run of this began to fill."""
        restored = self._plan.restored
        if restored is None:
            return []
        reasons = [*restored.problems, *await problem_of_entries(self._metadata, restored.entries)]
        planned = {topic.name for topic in self._plan.topics}
        held = (await patiently(lambda: self._metadata.range(keys.TOPICS))).items
        others = [item.key for item in held if item.key.removeprefix(keys.TOPICS) not in planned]
        if others:
            reasons.append(
                f"the metadata store holds {len(others)} topics that are neither in the snapshot nor in the bucket "
                f"({others[0]!r} for one): a snapshot goes into an empty metadata store only"
            )
        return reasons

    async def write(self, *, skip_damaged: bool) -> Rebuilt:
        """Carry the plan out. Raises `RecoveryRefusedError`, `StoreError`, `CorruptDataError`.

        After an error all of it may be done again, from a new plan.
        """
        reasons = await self.refusals(skip_damaged=skip_damaged) or await self._end_journals()
        if reasons:
            raise RecoveryRefusedError(reasons)
        partitions = [p for topic in self._plan.topics for p in topic.partitions if p.checkpoint_data]
        await map_bounded(self._put_checkpoint, partitions, _CONCURRENT_CHECKPOINTS)
        await patiently(lambda: pass_over(self._metadata, self._plan.next_producer_id))
        await self._raise_levels()
        written, already_there = [], []
        for topic in self._plan.topics:
            if await self._write_topic(topic):
                written.append(topic.name)
            else:
                already_there.append(topic.name)
            self._progress.written(topic.name)
        await self._end_transactions()
        if self._plan.restored is not None:
            await self._put_entries(self._plan.restored.entries)
        cluster_id = self._plan.cluster_id or kafka_uuid_text(self._new_uuid())
        cluster_id = await patiently(lambda: adopt_cluster_id(self._metadata, cluster_id))
        return Rebuilt(cluster_id=cluster_id, written=tuple(written), already_there=tuple(already_there))

    async def _end_transactions(self) -> None:
        """Put the markers of open transactions, for the partitions' leaders; those that are there stay."""
        restored, now_ms = self._plan.restored, self._now_ms()
        endings = endings_of_all(self._plan.topics)
        for topic in self._plan.topics:
            if not any(partition.record.transactions.open for partition in topic.partitions):
                continue
            key = keys.topic(topic.name)
            held = await patiently(lambda key=key: self._metadata.get(key))  # type: ignore[misc]
            if held is None:
                raise RecoveryRefusedError(
                    [f"topic {topic.name!r} was removed meanwhile: run the command again"]
                )
            topic_id = decode_topic_record(key, held.value).topic_id
            known = {} if restored is None else restored.markers
            markers = markers_of(topic, topic_id, endings, known, now_ms)
            await put_markers(self._metadata, topic.name, topic_id, markers)

    async def _raise_levels(self) -> None:
        levels = dict(NEW_CLUSTER) if self._plan.restored is None else dict(self._plan.restored.levels)
        if self._plan.has_transactions:
            levels[TRANSACTION_VERSION] = max(levels.get(TRANSACTION_VERSION, 0), TRANSACTIONS_LEVEL)
        levels[SEGMENT_FORMAT] = max(levels.get(SEGMENT_FORMAT, LEGACY_LEVEL), self._plan.segment_format)
        for feature, level in levels.items():
            if level > level_before(feature):
                await self._raise_level(feature, level)

    async def _raise_level(self, feature: str, level: int) -> None:
        await patiently(lambda: raise_level(self._metadata, feature, level))

    async def _end_journals(self) -> list[str]:
        """Before anything else: no broker of the lost store acknowledges what the rebuild does not read."""
        restored = self._plan.restored
        return await end_journals(
            self._metadata,
            self._objects,
            self._plan.namespace,
            planned=self._plan.journals,
            known={} if restored is None else restored.journals,
            now_ms=self._now_ms,
        )

    async def _put_entries(self, entries: Mapping[str, bytes]) -> None:
        async def attempt() -> bool:
            reasons = await self._of_brokers()
            reasons += await problem_of_entries(self._metadata, entries)
            if reasons:
                raise RecoveryRefusedError(reasons)
            return await put_entries(self._metadata, entries)

        while not await patiently(attempt):
            pass

    async def _put_checkpoint(self, partition: PartitionPlan) -> None:
        key, data = partition.record.checkpoint_key, partition.checkpoint_data
        try:
            await patiently(lambda: self._objects.put_if_absent(key, [data]))
        except ObjectExistsError:
            # An earlier run's: its key is made from its bytes.
            if await patiently(lambda: self._objects.get(key)) != data:
                raise CorruptDataError(key, "it holds something else than its key says") from None

    async def _write_topic(self, topic: TopicPlan) -> bool:
        """Write what is missing of the topic; False when nothing was."""

        async def attempt() -> bool | None:
            """None when something changed meanwhile, by an earlier attempt that had landed for one."""
            found = await self._look(topic)
            if found.held is _Held.ALL:
                return False
            reasons = await self._of_brokers()
            if found.held is _Held.OTHER:
                reasons.append(f"the metadata store {found.problem}")
            if reasons:
                raise RecoveryRefusedError(reasons)
            return True if await self._put_topic(topic, found.present) else None

        while (written := await patiently(attempt)) is None:
            pass
        return written

    async def _look(self, topic: TopicPlan) -> _Found:
        """Compare what the store has under the topic's name with the plan."""
        retired = await patiently(lambda: self._metadata.get(keys.retired(topic.name)))
        held = await patiently(lambda: self._metadata.get(keys.topic(topic.name)))
        records = (await patiently(lambda: self._metadata.range(keys.partitions(topic.name)))).items
        if retired is not None:
            return _Found(
                held=_Held.OTHER, problem=f"says that a topic {topic.name!r} was deleted ({retired.key})"
            )
        planned = dict(self._records(topic))
        other = [item.key for item in records if planned.get(item.key) != item.value]
        if held is not None and (other or not self._is_planned(held, topic)):
            return _Found(held=_Held.OTHER, problem=f"holds another topic {topic.name!r}")
        if other:
            return _Found(held=_Held.OTHER, problem=f"holds another record under {other[0]!r}")
        if held is not None and len(records) == len(planned):
            return _Found(held=_Held.ALL)
        if held is not None:
            return _Found(held=_Held.OTHER, problem=f"holds a topic {topic.name!r} that lacks partitions")
        return _Found(held=_Held.NOTHING_ELSE, present={item.key: item for item in records})

    def _is_planned(self, held: KeyValue, topic: TopicPlan) -> bool:
        record = decode_topic_record(held.key, held.value)
        if topic.record is not None:
            return record == topic.record
        return replace(record, topic_id=_ANY_ID) == self._new_record(topic, _ANY_ID)

    def _new_record(self, topic: TopicPlan, topic_id: uuid.UUID) -> TopicRecord:
        """Of a topic that only the bucket knows."""
        return TopicRecord(
            name=topic.name,
            topic_id=topic_id,
            partition_count=len(topic.partitions),
            configs=dict(self._configs),
        )

    def _records(self, topic: TopicPlan) -> Iterator[tuple[str, bytes]]:
        for partition in topic.partitions:
            key = keys.partition(topic.name, partition.partition)
            yield key, encode_partition_record(partition.record)

    async def _put_topic(self, topic: TopicPlan, present: Mapping[str, KeyValue]) -> bool:
        """Put the records that are missing, the topic's own with the last; False when a compare failed."""
        record = topic.record or self._new_record(topic, self._new_uuid())
        topic_key = keys.topic(topic.name)
        unchanged = [Compare(topic_key, ABSENT), Compare(keys.retired(topic.name), ABSENT)]
        missing = [Put(key, value) for key, value in self._records(topic) if key not in present]
        chunks = list(put_chunks(missing, self._metadata.max_operations - len(unchanged)))
        for number, chunk in enumerate(chunks):
            puts = [*chunk]
            if number == len(chunks) - 1:
                puts.append(Put(topic_key, encode_topic_record(record)))
            compares = [*unchanged, *(Compare(put.key, ABSENT) for put in chunk)]
            if not (await self._metadata.transact(compares, puts)).succeeded:
                return False
        return True
