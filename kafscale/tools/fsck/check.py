"""Checks a cluster: its two stores are held against each other, partition by partition. Nothing is written.

Memory is bounded by the largest partitions that are checked at the same time, and by what is found.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from typing import Final

from kafscale import clocks
from kafscale.errors import KafscaleError
from kafscale.formats import object_keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.objects.object_store import ObjectInfo
from kafscale.tasks.bounded import map_bounded, map_stream_bounded
from kafscale.tools.fsck.cluster_check import (
    OffsetsCheck,
    check_identity,
    check_topicless_records,
    read_topics,
)
from kafscale.tools.fsck.findings import FsckReport, PartitionReport, Severity, Standing
from kafscale.tools.fsck.group_check import GroupCheck
from kafscale.tools.fsck.journal_check import JournalCheck
from kafscale.tools.fsck.partition_check import PartitionCheck, Progress
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.transaction_check import LONGEST_MS, TransactionCheck

PARTITIONS_AT_ONCE: Final = 8
FOREIGN_EXAMPLES: Final = 20

PartitionName = tuple[str, int]


class UnknownTopicError(KafscaleError):
    """A topic was named of which there is neither a record nor an object."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic!r}, and no object of one")
        self.topic = topic


async def check_cluster(
    reading: Reading,
    progress: Progress,
    *,
    topics: Collection[str] = (),
    verify: bool = False,
    now_ms: Callable[[], int] = clocks.now_ms,
    longest_transaction_ms: int = LONGEST_MS,
) -> FsckReport:
    """Check everything, or `topics` alone; `verify` reads every byte of what is published.

    `now_ms`: Unix milliseconds. `longest_transaction_ms`: the longest time-out that the brokers allow.

    Raises `StoreError`, `UnknownTopicError`; `CorruptDataError` when the cluster's identity cannot be read.
    """
    return await _Check(
        reading,
        progress,
        sorted(set(topics)),
        verify,
        TransactionCheck(reading, now_ms, longest_transaction_ms),
    ).run()


class _Check:
    """One pass over a cluster."""

    def __init__(
        self,
        reading: Reading,
        progress: Progress,
        topics: Sequence[str],
        verify: bool,
        transaction_check: TransactionCheck,
    ) -> None:
        self._reading = reading
        self._transaction_check = transaction_check
        self._topics = topics
        self._verify = verify
        self._partition_check = PartitionCheck(reading, progress, verifies=verify)
        self._foreign_objects = 0
        self._foreign_examples: list[str] = []
        self._seen: set[PartitionName] = set()

    async def run(self) -> FsckReport:
        reading = self._reading
        cluster_id, findings = await check_identity(reading)
        broker_ids = await reading.broker_ids()
        if any(finding.severity is Severity.PROBLEM for finding in findings):
            return FsckReport(
                namespace=reading.namespace,
                cluster_id=cluster_id,
                is_verified=self._verify,
                was_checked=False,
                broker_ids=broker_ids,
                findings=tuple(findings),
            )
        topics, unreadable_topics = await read_topics(reading, self._topics)
        findings += unreadable_topics
        unreadable = {finding.subject for finding in unreadable_topics}
        partitions = await self._check_partitions(topics)
        found = {*topics, *unreadable, *(partition.topic for partition in partitions)}
        for name in self._topics:
            if name not in found:
                raise UnknownTopicError(name)
        findings += await check_topicless_records(reading, self._topics)
        log_ends = {
            (one.topic, one.partition): one.log_end_offset
            for one in partitions
            if one.standing is Standing.ACTIVE
        }
        findings += await OffsetsCheck(reading, topics, log_ends).check()
        if not self._topics:
            findings += await GroupCheck(reading, log_ends).check()
        findings += await self._transaction_check.check(partitions)
        journal_check = JournalCheck(reading, verifies=self._verify, topics=self._topics)
        journals = await journal_check.check()
        for info in journal_check.foreign:
            self._add_foreign(info)
        return FsckReport(
            namespace=reading.namespace,
            cluster_id=cluster_id,
            is_verified=self._verify,
            broker_ids=broker_ids,
            findings=tuple(findings),
            partitions=tuple(sorted(partitions, key=lambda one: (one.topic, one.partition))),
            journals=journals,
            foreign_objects=self._foreign_objects,
            foreign_examples=tuple(self._foreign_examples),
        )

    async def _check_partitions(self, topics: dict[str, TopicRecord]) -> list[PartitionReport]:
        checkpoints = await self._list_checkpoints()

        async def check(found: tuple[PartitionName, list[ObjectInfo]]) -> PartitionReport:
            (topic, partition), listed = found
            return await self._partition_check.check(
                topic, partition, listed, checkpoints.get((topic, partition), ())
            )

        async with aclosing(self._listed_partitions()) as partitions:
            reports = await map_stream_bounded(check, partitions, PARTITIONS_AT_ONCE)
        names = {
            (topic.name, partition)
            for topic in topics.values()
            if topic.state is TopicState.ACTIVE
            for partition in range(topic.partition_count)
        }
        unseen = sorted((names | checkpoints.keys()) - self._seen)
        reports += await map_bounded(check, [(name, []) for name in unseen], PARTITIONS_AT_ONCE)
        # Of a topic that was deleted meanwhile nothing may be left to report.
        return [one for one in reports if one.standing is Standing.ACTIVE or one.is_remarkable]

    async def _list_checkpoints(self) -> dict[PartitionName, list[ObjectInfo]]:
        namespace = self._reading.namespace
        checkpoints: dict[PartitionName, list[ObjectInfo]] = defaultdict(list)
        prefixes = [object_keys.checkpoints_topic_prefix(namespace, name) for name in self._topics]
        for prefix in prefixes or [object_keys.checkpoints_prefix(namespace)]:
            async for info in self._reading.objects.list(prefix):
                parsed = object_keys.parse_checkpoint_key(info.key)
                if parsed is None:
                    self._add_foreign(info)
                else:
                    checkpoints[parsed.topic, parsed.partition].append(info)
        return dict(checkpoints)

    async def _listed_partitions(self) -> AsyncGenerator[tuple[PartitionName, list[ObjectInfo]], None]:
        """Each partition with its segments and indexes; the order of keys keeps a partition's together."""
        namespace = self._reading.namespace
        name: PartitionName | None = None
        infos: list[ObjectInfo] = []
        prefixes = [object_keys.topic_prefix(namespace, topic) for topic in self._topics]
        for prefix in prefixes or [object_keys.namespace_prefix(namespace)]:
            async for info in self._reading.objects.list(prefix):
                parsed = object_keys.parse_segment_key(info.key) or object_keys.parse_index_key(info.key)
                if parsed is None:
                    self._add_foreign(info)
                    continue
                if name != (parsed.topic, parsed.partition):
                    if name is not None:
                        yield self._take(name), infos
                    name, infos = (parsed.topic, parsed.partition), []
                infos.append(info)
        if name is not None:
            yield self._take(name), infos

    def _take(self, name: PartitionName) -> PartitionName:
        self._seen.add(name)
        return name

    def _add_foreign(self, info: ObjectInfo) -> None:
        self._foreign_objects += 1
        if len(self._foreign_examples) < FOREIGN_EXAMPLES:
            self._foreign_examples.append(info.key)
