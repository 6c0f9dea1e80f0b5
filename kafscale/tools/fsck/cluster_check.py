"""Faults of a cluster beside its partitions: its identity, its topics, the offsets of its groups."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from kafscale.cluster.cluster_record import read_cluster_id
from kafscale.cluster.marker import read_marker
from kafscale.errors import CorruptDataError
from kafscale.formats.committed_offset import CommittedOffset, decode_committed_offset
from kafscale.formats.topic_record import decode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import KeyValue
from kafscale.tools.fsck.findings import Finding, FindingKind
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.recovery.rebuild import patiently


async def check_identity(reading: Reading) -> tuple[str | None, list[Finding]]:
    """The cluster's id, and what is wrong about it. Raises `StoreError`, `CorruptDataError`."""
    cluster_id = await patiently(lambda: read_cluster_id(reading.metadata))
    marked = await patiently(lambda: read_marker(reading.objects, reading.namespace))
    namespace = f"namespace {reading.namespace!r}"
    if cluster_id is None:
        whose = f"belongs to cluster {marked}" if marked is not None else "belongs to no cluster, either"
        detail = f"{namespace} of the object store {whose}; if the metadata store was lost: kafscale recover"
        return None, [Finding(kind=FindingKind.CLUSTER_UNKNOWN, subject="cluster", detail=detail)]
    if marked is None:
        detail = f"no broker of cluster {cluster_id} has run on {namespace} yet: nothing is repaired before one has"
        return cluster_id, [Finding(kind=FindingKind.MARKER_MISSING, subject="cluster", detail=detail)]
    if marked != cluster_id:
        detail = f"the metadata store to {cluster_id}, {namespace} of the object store to {marked}"
        return cluster_id, [Finding(kind=FindingKind.CLUSTER_DIFFERS, subject="cluster", detail=detail)]
    return cluster_id, []


async def read_topics(
    reading: Reading, wanted: Collection[str]
) -> tuple[dict[str, TopicRecord], list[Finding]]:
    """The topics, all or those that are wanted, and findings of records that cannot be read."""
    topics, findings = {}, []
    for item in (await reading.range(keys.TOPICS)).items:
        name = item.key.removeprefix(keys.TOPICS)
        if wanted and name not in wanted:
            continue
        try:
            topics[name] = decode_topic_record(item.key, item.value)
        except CorruptDataError as problem:
            findings.append(Finding(kind=FindingKind.TOPIC_UNREADABLE, subject=name, detail=problem.problem))
    return topics, findings


async def check_topicless_records(reading: Reading, wanted: Collection[str]) -> list[Finding]:
    """Returns the partition records that have no topic, also when they are read again.

    The record of a topic is created after those of its partitions and deleted before them, so each is read again.
    """
    topics = {item.key.removeprefix(keys.TOPICS) for item in (await reading.range(keys.TOPICS)).items}
    without_topic: dict[str, KeyValue] = {}
    for item in (await reading.range(keys.PARTITIONS)).items:
        name = keys.topic_and_partition(item.key)[0]
        if name not in topics and (not wanted or name in wanted):
            without_topic.setdefault(name, item)
    findings = []
    for name, item in sorted(without_topic.items()):
        topic, record = await reading.read_metadata(keys.topic(name), item.key)
        if topic is None and record is not None and record.mod_revision == item.mod_revision:
            findings.append(
                Finding(
                    kind=FindingKind.RECORD_WITHOUT_TOPIC,
                    subject=name,
                    detail="the next topic of this name takes them over",
                )
            )
    return findings


class OffsetsCheck:
    """Looks for committed offsets beyond the end of the log.

    `log_ends`: the log end offsets that were read before, by topic and partition: logs only grow, so what is
    beyond one of them is held against the record as it is now.
    """

    def __init__(
        self,
        reading: Reading,
        topics: Mapping[str, TopicRecord],
        log_ends: Mapping[tuple[str, int], int],
    ) -> None:
        self._reading = reading
        self._topics = topics
        self._log_ends = log_ends

    async def check(self) -> list[Finding]:
        """The findings of all groups; one shard's offsets are in memory at a time. Raises `StoreError`."""
        findings: list[Finding] = []
        for shard in range(keys.GROUP_SHARD_COUNT):
            findings += await self._check((await self._reading.range(keys.shard_offsets(shard))).items)
        return findings

    async def _check(self, items: Iterable[KeyValue]) -> Sequence[Finding]:
        findings = []
        for item in items:
            topic, partition = keys.offset_topic_and_partition(item.key)
            if topic not in self._topics:
                continue  # Of a topic that is gone, or of one that was not asked for.
            try:
                finding = await self._check_one(
                    item, topic, partition, decode_committed_offset(item.key, item.value)
                )
            except CorruptDataError as problem:
                finding = Finding(
                    kind=FindingKind.OFFSET_UNREADABLE, subject=item.key, detail=problem.problem
                )
            if finding is not None:
                findings.append(finding)
        return findings

    async def _check_one(
        self, item: KeyValue, topic: str, partition: int, committed: CommittedOffset
    ) -> Finding | None:
        if committed.topic_id != self._topics[topic].topic_id:
            return None  # It means an older topic of the name, and nothing any more.
        if committed.offset <= self._log_ends.get((topic, partition), committed.offset):
            return None
        key = keys.partition(topic, partition)
        held_topic, held = await self._reading.read_metadata(keys.topic(topic), key)
        if held_topic is None or held is None:
            return None
        now = decode_topic_record(held_topic.key, held_topic.value)
        state = await patiently(lambda: self._reading.state(topic, partition))
        log_end_offset = -1 if state is None else state[0].log_end_offset
        is_same = now.topic_id == committed.topic_id and now.state is TopicState.ACTIVE
        if not is_same or committed.offset <= log_end_offset:
            return None
        return Finding(
            kind=FindingKind.OFFSET_BEYOND_END,
            subject=f"group {keys.group_id(item.key)!r}, {topic}-{partition}",
            detail=f"offset {committed.offset}; the log ends at {log_end_offset}",
            first_offset=committed.offset,
            last_offset=committed.offset,
        )
