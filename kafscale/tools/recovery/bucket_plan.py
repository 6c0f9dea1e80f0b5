"""The plan of a whole rebuild: topic by topic, and what a snapshot adds. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafscale.formats.features import LARGE_SEGMENTS_LEVEL, LEGACY_LEVEL, MAX_LEGACY_SEGMENT_BYTES
from kafscale.formats.journal_record import JournalRecord
from kafscale.formats.marker_record import MarkerRecord
from kafscale.metadata.model import TopicRecord
from kafscale.tools.recovery.plan import PASSED_OVER_PRODUCER_IDS, PartitionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic of the bucket. `partitions` has all of them, those of which nothing was found as well.

    `record`: as a snapshot has it, with the number of partitions that it is to have; None without one, or when
    what lies in the bucket is of another topic. `problem` says why it cannot be rebuilt; empty when it can.
    """

    name: str
    partitions: tuple[PartitionPlan, ...]
    record: TopicRecord | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The entries that a snapshot adds to the metadata store, beside the topics.

    `created_ms` and `revision` are the snapshot's. `next_producer_id`: as the snapshot says. `levels`: of
    features, by name. `entries`: values by key. `journals`: their records then, by id. `problems`: why this
    snapshot cannot be used here. `notes`: what is not as it was in the snapshot. `markers`: those of transactions
    that had been decided, by key, which partitions' logs did not have then.
    """

    key: str
    created_ms: int
    revision: int
    next_producer_id: int
    levels: Mapping[str, int]
    entries: Mapping[str, bytes]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    journals: Mapping[str, JournalRecord] = field(default_factory=dict)
    markers: Mapping[str, MarkerRecord] = field(default_factory=dict)

    def count(self, prefix: str) -> int:
        """The number of entries whose keys start so."""
        return sum(key.startswith(prefix) for key in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan:
    """The plan of a rebuild. `cluster_id`: from the bucket's marker or the snapshot, None without both.

    `is_narrowed`: only some topics were asked for. `foreign_objects`: under the namespace, and neither
    segments nor indexes. `journals`: their records, by id: each ends behind what counts of it. `problems`: entries
    and gathered objects that cannot be read. `restored`: what a snapshot adds, None without one.
    """

    namespace: str
    cluster_id: str | None
    topics: tuple[TopicPlan, ...]
    is_narrowed: bool
    foreign_objects: int
    restored: Restored | None = None
    journals: Mapping[str, JournalRecord] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id in any batch or checkpoint; -1 for none."""
        partitions = (partition for topic in self.topics for partition in topic.partitions)
        return max((partition.highest_producer_id for partition in partitions), default=-1)

    @property
    def next_producer_id(self) -> int:
        """Well above all that were given out, as far as that is known.

        Also when none is known: a producer that was given the first one, and has written nothing, may live on.
        """
        known = 0 if self.restored is None else self.restored.next_producer_id
        return max(self.highest_producer_id + 1, known) + PASSED_OVER_PRODUCER_IDS

    @property
    def has_transactions(self) -> bool:
        """True if a partition's log has batches of transactions, as far as that is remembered."""
        partitions = (partition for topic in self.topics for partition in topic.partitions)
        return any(one.endings or one.record.transactions for one in partitions)

    @property
    def segment_format(self) -> int:
        """The level of the feature `SEGMENT_FORMAT` that the largest segment needs."""
        partitions = (partition for topic in self.topics for partition in topic.partitions)
        largest = max((partition.largest_segment_bytes for partition in partitions), default=0)
        return LARGE_SEGMENTS_LEVEL if largest > MAX_LEGACY_SEGMENT_BYTES else LEGACY_LEVEL
