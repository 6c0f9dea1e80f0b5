"""Every key of the metadata store, relative to the cluster's prefix. Layout: docs/format/metadata.md."""

import uuid
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

CLUSTER = "cluster"
PRODUCER_IDS = "producer-ids"

BROKERS = "brokers/"
TOPICS = "topics/"
RETIRED = "retired/"
PARTITIONS = "partitions/"
LEADERS = "leaders/"
COORDINATORS = "coordinators/"
FEATURES = "features/"
GROUP_SHARDS = "group-shards/"
GROUPS = "groups/"
GROUP_MEMBERS = "group-members/"
GROUP_OFFSETS = "group-offsets/"
EXPORTS = "exports/"
JOURNALS = "journals/"
USERS = "users/"
QUOTAS = "quotas/"
GROUP_CONFIGS = "group-configs/"
ACLS = "acls/"
TRANSACTIONS = "transactions/"
PARTITION_MARKERS = "partition-markers/"
GROUP_MARKERS = "group-markers/"
PENDING_OFFSETS = "pending-offsets/"
SHARE_STARTS = "share-starts/"
SHARE_STATES = "share-states/"

_DEFAULT_ENTITY: Final = "<default>"
_SHARE_PARTS: Final = 4

GROUP_SHARD_COUNT: Final = 64
"""Groups and transactional ids are spread over so many shards, each with one coordinator.

Part of the stored format: never change it.
"""


def broker(broker_id: int) -> str:
    """A live broker's registration; bound to its lease."""
    return f"{BROKERS}{broker_id}"


def topic(name: str) -> str:
    """A topic's record."""
    return f"{TOPICS}{name}"


def retired(name: str) -> str:
    """The highest leader epoch that a deleted topic of this name ever had."""
    return f"{RETIRED}{name}"


def partitions(topic_name: str) -> str:
    """The prefix of a topic's partition records. `/` is not legal in a topic name."""
    return f"{PARTITIONS}{topic_name}/"


def partition(topic_name: str, index: int) -> str:
    """A partition's record."""
    return f"{PARTITIONS}{topic_name}/{index}"


def journal(journal_id: str) -> str:
    """A journal's record: its progress, or where it has ended."""
    return f"{JOURNALS}{journal_id}"


def leader(topic_name: str, index: int) -> str:
    """The leader of a partition; bound to the leading broker's lease."""
    return f"{LEADERS}{topic_name}/{index}"


def topic_and_partition(key: str) -> tuple[str, int]:
    """The inverse of `partition` and `leader`."""
    _, name, index = key.split("/")
    return name, int(index)


def feature(name: str) -> str:
    """The finalized level of a feature."""
    return f"{FEATURES}{name}"


def feature_name(key: str) -> str:
    """The inverse of `feature`."""
    return key.removeprefix(FEATURES)


def shard_of(group_or_transactional_id: str) -> int:
    """The shard of a group or of a transactional id. Part of the stored format."""
    return zlib.crc32(group_or_transactional_id.encode()) % GROUP_SHARD_COUNT


def coordinator(shard: int) -> str:
    """The coordinator of a shard's groups and transactional ids; bound to that broker's lease."""
    return f"{COORDINATORS}{shard}"


def group_shard(shard: int) -> str:
    """The shard's record, which every write of its coordinator compares and replaces."""
    return f"{GROUP_SHARDS}{shard}"


def groups(shard: int) -> str:
    """The prefix of the records of a shard's groups."""
    return f"{GROUPS}{shard}/"


def group(group_id: str) -> str:
    """A group's record. A group id may be anything: it is percent-encoded."""
    return f"{GROUPS}{shard_of(group_id)}/{quote(group_id, safe='')}"


def group_id(key: str) -> str:
    """The inverse of `group`."""
    return unquote(key.split("/")[2])


def shard_members(shard: int) -> str:
    """The prefix of the members of a shard's consumer groups."""
    return f"{GROUP_MEMBERS}{shard}/"


def group_members(group_id: str) -> str:
    """The prefix of a consumer group's members."""
    return f"{shard_members(shard_of(group_id))}{quote(group_id, safe='')}/"


def group_member(group_id: str, member_id: str) -> str:
    """A member of a consumer group. A member id may be anything: it is percent-encoded."""
    return f"{group_members(group_id)}{quote(member_id, safe='')}"


def group_and_member(key: str) -> tuple[str, str]:
    """The inverse of `group_member`. Raises `ValueError`."""
    _, _, group, member = key.split("/")
    return unquote(group), unquote(member)


def shard_offsets(shard: int) -> str:
    """The prefix of the committed offsets of a shard's groups."""
    return f"{GROUP_OFFSETS}{shard}/"


def group_offsets(group_id: str) -> str:
    """The prefix of a group's committed offsets."""
    return f"{shard_offsets(shard_of(group_id))}{quote(group_id, safe='')}/"


def group_offset(group_id: str, topic_name: str, index: int) -> str:
    """A group's committed offset in a partition."""
    return f"{group_offsets(group_id)}{topic_name}/{index}"


def offset_group_id(key: str) -> str:
    """The group of a `group_offset`."""
    return unquote(key.split("/")[2])


def offset_topic_and_partition(key: str) -> tuple[str, int]:
    """The topic and partition of a `group_offset`."""
    _, _, _, name, index = key.split("/")
    return name, int(index)


def transactions(shard: int) -> str:
    """The prefix of the records of a shard's transactional ids."""
    return f"{TRANSACTIONS}{shard}/"


def transaction(transactional_id: str) -> str:
    """A transactional id's record. The id may be anything: it is percent-encoded."""
    return f"{transactions(shard_of(transactional_id))}{quote(transactional_id, safe='')}"


def transactional_id(key: str) -> str:
    """The inverse of `transaction`."""
    return unquote(key.split("/")[2])


def topic_partition_markers(topic_name: str) -> str:
    """The prefix of the markers that a topic's logs have to get."""
    return f"{PARTITION_MARKERS}{topic_name}/"


def partition_markers(topic_name: str, index: int) -> str:
    """The prefix of the markers that a partition's log has to get."""
    return f"{topic_partition_markers(topic_name)}{index}/"


def partition_marker(topic_name: str, index: int, producer_id: int) -> str:
    """The end of a producer's transaction, which the partition's leader has to write into the log."""
    return f"{partition_markers(topic_name, index)}{producer_id}"


def marked_partition(key: str) -> tuple[str, int, int]:
    """The inverse of `partition_marker`: topic, partition and producer id."""
    _, name, index, producer_id = key.split("/")
    return name, int(index), int(producer_id)


def group_markers(shard: int) -> str:
    """The prefix of the markers of a shard's groups."""
    return f"{GROUP_MARKERS}{shard}/"


def group_marker(group_id: str, producer_id: int) -> str:
    """The end of a producer's transaction, which the group's coordinator has to apply to the pending offsets."""
    return f"{group_markers(shard_of(group_id))}{quote(group_id, safe='')}/{producer_id}"


def marked_shard(key: str) -> int | None:
    """The shard of a `group_marker`; None for a key that no broker writes."""
    shard = key.split("/")[1]
    return int(shard) if shard.isdecimal() else None


def shard_pending_offsets(shard: int) -> str:
    """The prefix of the offsets of a shard's groups that wait for the end of their transaction."""
    return f"{PENDING_OFFSETS}{shard}/"


def group_pending_offsets(group_id: str) -> str:
    """The prefix of a group's offsets that wait for the end of their transaction."""
    return f"{shard_pending_offsets(shard_of(group_id))}{quote(group_id, safe='')}/"


def pending_offsets(group_id: str, producer_id: int) -> str:
    """The offsets of a group that a producer's open transaction has."""
    return f"{group_pending_offsets(group_id)}{producer_id}"


def group_and_producer(key: str) -> tuple[str, int]:
    """The inverse of `group_marker` and `pending_offsets`."""
    _, _, name, producer_id = key.split("/")
    return unquote(name), int(producer_id)


class SharePartitionId(NamedTuple):
    """A partition of a topic, as one share group reads it."""

    group_id: str
    topic_id: uuid.UUID
    partition: int


def shard_share_starts(shard: int) -> str:
    """The prefix of the starts of a shard's share groups."""
    return f"{SHARE_STARTS}{shard}/"


def group_share_starts(group_id: str) -> str:
    """The prefix of the starts of a share group."""
    return f"{shard_share_starts(shard_of(group_id))}{quote(group_id, safe='')}/"


def share_start(read: SharePartitionId) -> str:
    """Where a share group begins to read a partition."""
    return f"{group_share_starts(read.group_id)}{read.topic_id}/{read.partition}"


def shard_share_states(shard: int) -> str:
    """The prefix of the states of a shard's share groups."""
    return f"{SHARE_STATES}{shard}/"


def group_share_states(group_id: str) -> str:
    """The prefix of the states of a share group."""
    return f"{shard_share_states(shard_of(group_id))}{quote(group_id, safe='')}/"


def share_state(read: SharePartitionId) -> str:
    """How far a share group has come in a partition."""
    return f"{group_share_states(read.group_id)}{read.topic_id}/{read.partition}"


def share_partition(key: str) -> SharePartitionId:
    """The inverse of `share_start` and `share_state`. Raises `ValueError` for a key that no broker writes."""
    prefix, *rest = key.split("/")
    if f"{prefix}/" not in (SHARE_STARTS, SHARE_STATES) or len(rest) != _SHARE_PARTS:
        raise ValueError(f"{key[:200]!r} is not 'share-starts/' or 'share-states/' with {_SHARE_PARTS} parts")
    _, group, topic_id, index = rest
    partition = SharePartitionId(unquote(group, errors="strict"), uuid.UUID(topic_id), int(index))
    if key != (share_start if f"{prefix}/" == SHARE_STARTS else share_state)(partition):
        raise ValueError(f"{key[:200]!r} is not how the key of a share group's partition is written")
    return partition


def export_record(topic_name: str) -> str:
    """The last exporter of a topic, and its epoch."""
    return f"{EXPORTS}{topic_name}/record"


def export_holder(topic_name: str) -> str:
    """The current exporter of a topic; bound to the exporter's lease."""
    return f"{EXPORTS}{topic_name}/holder"


def export_progress(topic_name: str, table: str) -> str:
    """The progress of a topic's export into a table. A table's name may be anything: it is percent-encoded."""
    return f"{EXPORTS}{topic_name}/tables/{quote(table, safe='')}"


def export_topic(key: str) -> str:
    """The topic of an `export_record`, an `export_holder` or an `export_progress`."""
    return key.split("/")[1]


def export_table(key: str) -> str | None:
    """The table of an `export_progress`, None for the other keys of an export."""
    _, _, kind, *rest = key.split("/")
    return unquote(rest[0]) if kind == "tables" else None


def user(name: str) -> str:
    """A user's credentials. A user's name may be anything: it is percent-encoded."""
    return f"{USERS}{quote(name, safe='')}"


def user_name(key: str) -> str:
    """The inverse of `user`."""
    return unquote(key.removeprefix(USERS))


def quota(entity: Iterable[tuple[str, str | None]]) -> str:
    """An entity's client quotas. `entity`: types in their stored order, each with a name, None for the default.

    Names may be anything but empty: they are percent-encoded, so that no name is taken for the default.
    """
    parts = (f"{kind}={_DEFAULT_ENTITY if name is None else quote(name, safe='')}" for kind, name in entity)
    return f"{QUOTAS}{'/'.join(parts)}"


def quota_entity(key: str) -> tuple[tuple[str, str | None], ...]:
    """The inverse of `quota`, for any types and order. Raises `ValueError`."""
    entity = []
    for part in key.removeprefix(QUOTAS).split("/"):
        kind, equals, name = part.partition("=")
        if not equals:
            raise ValueError(f"{part[:80]!r} is no type and name of an entity")
        entity.append((kind, None if name == _DEFAULT_ENTITY else unquote(name, errors="strict")))
    return tuple(entity)


def group_configs(group_id: str) -> str:
    """A group's configs. A group id may be anything: it is percent-encoded."""
    return f"{GROUP_CONFIGS}{quote(group_id, safe='')}"


def group_of_configs(key: str) -> str:
    """The inverse of `group_configs`."""
    return unquote(key.removeprefix(GROUP_CONFIGS))


def acl(*parts: str) -> str:
    """An access rule; `parts` as in docs/format/metadata.md. A part may be any text: it is percent-encoded."""
    return ACLS + "/".join(quote(part, safe="*:") for part in parts)


def acl_parts(key: str) -> tuple[str, ...]:
    """The inverse of `acl`."""
    return tuple(unquote(part) for part in key.removeprefix(ACLS).split("/"))
