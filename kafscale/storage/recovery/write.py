"""Carries a rebuild's plan out: every write is conditional, and all of it may be done again.

Order: the checkpoints, the producer ids, the feature level that segments beyond 2 GiB need, topic by topic its
partition records and with the last of them the topic's own, and the cluster's id at the end. Until that is there
brokers refuse to start on the bucket.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kafscale.errors import CorruptDataError, KafscaleError, ObjectExistsError
from kafscale.metadata import keys
from kafscale.metadata.cluster import adopt_cluster_id, kafka_uuid_text, read_cluster_id
from kafscale.metadata.feature_updates import raise_level
from kafscale.metadata.features import LEGACY_LEVEL, SEGMENT_FORMAT
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.partition_record import encode_partition_record
from kafscale.metadata.producer_ids import pass_over
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put
from kafscale.metadata.topic_record import decode_topic_record, encode_topic_record
from kafscale.storage.bounded import map_bounded
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.recovery.plan import PASSED_OVER_PRODUCER_IDS, PartitionPlan
from kafscale.storage.recovery.rebuild import BucketPlan, Progress, TopicPlan, patiently

TRANSACTION_BYTES: Final = 512 * 1024
"""How much one transaction carries at most: etcd takes 1.5 MiB."""

_CONCURRENT_CHECKPOINTS = 16


class RecoveryRefusedError(KafscaleError):
    """The plan is not carried out; each of `reasons` says why and what to do."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was done. `already_there`: topics that an earlier run had rebuilt from the same objects."""

    cluster_id: str
    written: tuple[str, ...]
    already_there: tuple[str, ...]


class _Held(Enum):
    """What the metadata store holds of a topic."""

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
    """Writes one plan. `configs` are set on every topic that is written."""

    def __init__(
        self,
        metadata: MetadataStore,
        objects: ObjectStore,
        plan: BucketPlan,
        *,
        configs: Mapping[str, str],
        new_uuid: Callable[[], uuid.UUID],
        progress: Progress,
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._plan = plan
        self._configs = configs
        self._new_uuid = new_uuid
        self._progress = progress

    async def refusals(self, *, skip_damaged: bool) -> list[str]:
        """Why the plan may not be carried out now; empty when it may. Nothing is written."""
        reasons = await self._of_brokers()
        reasons += await self._of_cluster()
        damaged = [d for topic in self._plan.topics for p in topic.partitions for d in p.damaged]
        if damaged and not skip_damaged:
            reasons.append(
                f"{len(damaged)} damaged objects, the first is {damaged[0].key}: restore them, or leave their "
                "records out with --skip-damaged"
            )
        for topic in self._plan.topics:
            if topic.problem:
                reasons.append(f"topic {topic.name!r} cannot be rebuilt: {topic.problem}")
                continue
            found = await self._look(topic)
            if found.held is _Held.OTHER:
                reasons.append(
                    f"the metadata store {found.problem}: nothing is overwritten; "
                    "name the topics that are to be rebuilt with --topic"
                )
        return reasons

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

    async def write(self, *, skip_damaged: bool) -> Rebuilt:
        """Carry the plan out. Raises `RecoveryRefusedError`, `StoreError`, `CorruptDataError`.

        After an error all of it may be done again, from a new plan.
        """
        reasons = await self.refusals(skip_damaged=skip_damaged)
        if reasons:
            raise RecoveryRefusedError(reasons)
        partitions = [p for topic in self._plan.topics for p in topic.partitions if p.checkpoint_data]
        await map_bounded(self._put_checkpoint, partitions, _CONCURRENT_CHECKPOINTS)
        highest_id = self._plan.highest_producer_id
        if highest_id >= 0:
            await patiently(lambda: pass_over(self._metadata, highest_id + 1 + PASSED_OVER_PRODUCER_IDS))
        if self._plan.segment_format > LEGACY_LEVEL:
            await patiently(lambda: raise_level(self._metadata, SEGMENT_FORMAT, self._plan.segment_format))
        written, already_there = [], []
        for topic in self._plan.topics:
            if await self._write_topic(topic):
                written.append(topic.name)
            else:
                already_there.append(topic.name)
            self._progress.written(topic.name)
        cluster_id = self._plan.cluster_id or kafka_uuid_text(self._new_uuid())
        cluster_id = await patiently(lambda: adopt_cluster_id(self._metadata, cluster_id))
        return Rebuilt(cluster_id=cluster_id, written=tuple(written), already_there=tuple(already_there))

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
        """What the store holds under the topic's name, compared with the plan."""
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
        return (record.partition_count, record.state, dict(record.configs)) == (
            len(topic.partitions),
            TopicState.ACTIVE,
            dict(self._configs),
        )

    def _records(self, topic: TopicPlan) -> Iterator[tuple[str, bytes]]:
        for partition in topic.partitions:
            key = keys.partition(topic.name, partition.partition)
            yield key, encode_partition_record(partition.record)

    async def _put_topic(self, topic: TopicPlan, present: Mapping[str, KeyValue]) -> bool:
        """Put the records that are missing, the topic's own with the last; False when a compare failed."""
        record = TopicRecord(
            name=topic.name,
            topic_id=self._new_uuid(),
            partition_count=len(topic.partitions),
            configs=dict(self._configs),
        )
        topic_key = keys.topic(topic.name)
        unchanged = [Compare(topic_key, ABSENT), Compare(keys.retired(topic.name), ABSENT)]
        missing = [Put(key, value) for key, value in self._records(topic) if key not in present]
        chunks = list(_chunks(missing, self._metadata.max_operations - len(unchanged)))
        for number, chunk in enumerate(chunks):
            puts = [*chunk]
            if number == len(chunks) - 1:
                puts.append(Put(topic_key, encode_topic_record(record)))
            compares = [*unchanged, *(Compare(put.key, ABSENT) for put in chunk)]
            if not (await self._metadata.transact(compares, puts)).succeeded:
                return False
        return True


def _chunks(puts: Sequence[Put], most: int) -> Iterator[list[Put]]:
    """The puts in transactions of at most `most` and `TRANSACTION_BYTES`; at least one, which may be empty."""
    chunk: list[Put] = []
    size_bytes = 0
    for put in puts:
        if chunk and (len(chunk) == most or size_bytes + len(put.value) > TRANSACTION_BYTES):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(put)
        size_bytes += len(put.value)
    yield chunk
