"""A snapshot of the metadata store as a rebuild sees it: its keys and values, taken apart. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafscale.cluster.producer_ids import first_free
from kafscale.errors import CorruptDataError
from kafscale.formats.any_group_record import AnyGroupRecord, decode_any_group
from kafscale.formats.committed_offset import CommittedOffset, decode_committed_offset
from kafscale.formats.export_records import ExportRecord, decode_export_record
from kafscale.formats.features import decode_level
from kafscale.formats.journal_record import JournalRecord, decode_journal_record
from kafscale.formats.marker_record import MarkerRecord, decode_marker_record
from kafscale.formats.partition_record import decode_partition_record
from kafscale.formats.share_start_record import decode_share_start
from kafscale.formats.share_state_record import decode_share_state
from kafscale.formats.snapshot_file import SnapshotHeader
from kafscale.formats.topic_record import (
    decode_group_shard_record,
    decode_retired_epoch,
    decode_topic_record,
)
from kafscale.formats.transaction_record import TransactionRecord, decode_transaction_record
from kafscale.metadata import keys
from kafscale.metadata.model import GroupShardRecord, TopicRecord
from kafscale.tools.recovery.plan import KnownPartition

_NO_EPOCH = -1


@dataclass(slots=True, kw_only=True)
class SnapshotContents:
    """A snapshot's values, by their keys where nothing else is said.

    `topics`: by name. `partitions`: by topic and partition, also of topics that were not finished. `retired`:
    the highest leader epoch of a deleted topic, by its name. `next_producer_id`: 0 when none was given out.
    `levels`: of features, by name. `journals`: by id. `export_progress`, `quotas`, `group_configs`, `users`, `acls`
    `pending_offsets`, and of share groups: as stored. `unknown`: keys that this release does not know.
    """

    key: str
    header: SnapshotHeader
    topics: dict[str, TopicRecord] = field(default_factory=dict)
    partitions: dict[tuple[str, int], KnownPartition] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    levels: dict[str, int] = field(default_factory=dict)
    journals: dict[str, JournalRecord] = field(default_factory=dict)
    group_shards: dict[str, GroupShardRecord] = field(default_factory=dict)
    groups: dict[str, AnyGroupRecord] = field(default_factory=dict)
    offsets: dict[str, CommittedOffset] = field(default_factory=dict)
    export_records: dict[str, ExportRecord] = field(default_factory=dict)
    export_progress: dict[str, bytes] = field(default_factory=dict)
    users: dict[str, bytes] = field(default_factory=dict)
    quotas: dict[str, bytes] = field(default_factory=dict)
    group_configs: dict[str, bytes] = field(default_factory=dict)
    acls: dict[str, bytes] = field(default_factory=dict)
    transactions: dict[str, TransactionRecord] = field(default_factory=dict)
    partition_markers: dict[str, MarkerRecord] = field(default_factory=dict)
    group_markers: dict[str, MarkerRecord] = field(default_factory=dict)
    pending_offsets: dict[str, bytes] = field(default_factory=dict)
    share_starts: dict[str, bytes] = field(default_factory=dict)
    share_states: dict[str, bytes] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def highest_epoch(self, topic: str) -> int:
        """The highest leader epoch that the topic's name had, -1 for none."""
        epochs = [known.leader_epoch for (name, _), known in self.partitions.items() if name == topic]
        return max([*epochs, self.retired.get(topic, _NO_EPOCH)])

    def known(self) -> Callable[[str, int], KnownPartition | None]:
        """The partition as the snapshot knows it, by topic and index; None when it does not.

        Offsets are known only of topics that were there: of others only that their epochs were used.
        """
        highest = dict(self.retired)
        for (name, _), known in self.partitions.items():
            highest[name] = max(highest.get(name, _NO_EPOCH), known.leader_epoch)

        def of_partition(topic: str, partition: int) -> KnownPartition | None:
            epoch = highest.get(topic)
            if epoch is None:
                return None
            record = self.partitions.get((topic, partition))
            if record is None or topic not in self.topics:
                return KnownPartition(leader_epoch=epoch)
            return record

        return of_partition


def read_contents(key: str, header: SnapshotHeader, entries: Mapping[str, bytes]) -> SnapshotContents:
    """Take a snapshot apart. Raises `CorruptDataError`, `UnknownFormatVersionError` for a value in it."""
    contents = SnapshotContents(key=key, header=header)
    for entry, value in entries.items():
        _read_entry(contents, entry, value)
    return contents


def _read_entry(contents: SnapshotContents, key: str, value: bytes) -> None:
    prefix = key[: key.find("/") + 1]
    match prefix:
        case keys.TOPICS:
            topic = decode_topic_record(key, value)
            contents.topics[topic.name] = topic
        case keys.PARTITIONS:
            record = decode_partition_record(key, value)
            contents.partitions[keys.topic_and_partition(key)] = KnownPartition(
                leader_epoch=record.leader_epoch,
                log_start_offset=record.log_start_offset,
                log_end_offset=record.log_end_offset,
            )
        case keys.RETIRED:
            contents.retired[key.removeprefix(keys.RETIRED)] = decode_retired_epoch(key, value)
        case keys.FEATURES:
            contents.levels[keys.feature_name(key)] = decode_level(key, value)
        case keys.JOURNALS:
            contents.journals[key.removeprefix(keys.JOURNALS)] = decode_journal_record(key, value)
        case keys.GROUP_SHARDS:
            contents.group_shards[key] = decode_group_shard_record(key, value)
        case keys.GROUPS:
            contents.groups[key] = decode_any_group(key, value)
        case keys.GROUP_MEMBERS:
            pass  # Groups come back without members.
        case keys.GROUP_OFFSETS:
            contents.offsets[key] = decode_committed_offset(key, value)
        case keys.EXPORTS if keys.export_table(key) is not None:
            contents.export_progress[key] = value
        case keys.EXPORTS:
            contents.export_records[key] = decode_export_record(key, value)
        case keys.USERS:
            contents.users[key] = value
        case keys.QUOTAS:
            contents.quotas[key] = value
        case keys.GROUP_CONFIGS:
            contents.group_configs[key] = value
        case keys.ACLS:
            contents.acls[key] = value
        case keys.TRANSACTIONS:
            contents.transactions[key] = decode_transaction_record(key, value)
        case keys.PARTITION_MARKERS:
            contents.partition_markers[key] = decode_marker_record(key, value)
        case keys.GROUP_MARKERS:
            contents.group_markers[key] = decode_marker_record(key, value)
        case keys.PENDING_OFFSETS:
            contents.pending_offsets[key] = value
        case keys.SHARE_STARTS:
            _check_share_key(key)
            decode_share_start(key, value)
            contents.share_starts[key] = value
        case keys.SHARE_STATES:
            _check_share_key(key)
            decode_share_state(key, value)
            contents.share_states[key] = value
        case _ if key == keys.PRODUCER_IDS:
            contents.next_producer_id = first_free(value)
        case _ if key != keys.CLUSTER:
            contents.unknown.append(key)


def _check_share_key(key: str) -> None:
    try:
        keys.share_partition(key)
    except ValueError as problem:
        raise CorruptDataError(key, str(problem)) from problem
