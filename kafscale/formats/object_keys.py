"""Every key of the object store: how it is built, how it is read back, and which names may be part of one.

Layout: docs/format/object-keys.md. Folders sort like offsets, because offsets are 20 zero-padded digits.
"""

import re
from dataclasses import dataclass

from kafscale.formats.partition_record import SegmentReference
from kafscale.protocol.quoting import quoted

MAX_TOPIC_NAME_LENGTH = 249
MAX_NAMESPACE_LENGTH = 249
MAX_KEY_BYTES = 1024
SYSTEM_FOLDER = "_kafscale"

_MAX_PARTITION = 2**31 - 1
_MAX_LEADER_EPOCH = 2**31 - 1
_MAX_OFFSET = 2**63 - 1
_DASHES_OF_COMPACTED = 5

_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LEGAL_NAMESPACE = re.compile(r"(?![_.])[a-zA-Z0-9._-]+")
_LEGAL_TOKEN = re.compile(r"[a-zA-Z0-9]+")

_NUMBER = r"0|[1-9][0-9]{0,9}"
_OFFSET = r"[0-9]{20}"
_SEGMENT = re.compile(
    rf"([^/]+)/([^/]+)/({_NUMBER})/segment-({_OFFSET})"
    rf"(?:-({_OFFSET})(?:-({_OFFSET})-({_NUMBER})-([a-zA-Z0-9]+))?)?\.(kfs|index)",
    re.ASCII,
)
_CHECKPOINT = re.compile(
    rf"{SYSTEM_FOLDER}/([^/]+)/checkpoints/([^/]+)/({_NUMBER})/({_OFFSET})-({_NUMBER})-([a-zA-Z0-9]+)\.ckpt",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class Compaction:
    """The origin of a compacted segment; of two with the same offsets the greater one knows more.

    `map_end_offset`: records below it have had their say, so that none is left in the segment that one of them
    replaces. `leader_epoch`: that of the leader that made it. `token`: new for every attempt.
    """

    map_end_offset: int
    leader_epoch: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKey:
    """The parts of a `.kfs` or `.index` key.

    `last_offset` is None unless the segment is a merged one, `compaction` unless it is a compacted one besides.
    """

    namespace: str
    topic: str
    partition: int
    base_offset: int
    last_offset: int | None
    compaction: Compaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointKey:
    """The parts of a checkpoint's key. `token` distinguishes attempts at the same offset and epoch."""

    namespace: str
    topic: str
    partition: int
    log_end_offset: int
    leader_epoch: int
    token: str


def topic_name_problem(name: str) -> str | None:
    """Why Kafka would refuse the name, in Kafka's words; None for a legal name (`Topic.validate`)."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return (
            f"Topic name is invalid: the length of '{quoted(name)}' is longer than the max allowed length "
            f"{MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL_TOPIC_NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{quoted(name)}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def namespace_problem(namespace: str) -> str | None:
    """Why the namespace cannot be the first part of keys; None for a legal one.

    It starts with neither `_` nor `.`, so that it never meets `_kafscale` or a store's own dot-folders.
    """
    if len(namespace) > MAX_NAMESPACE_LENGTH or not _LEGAL_NAMESPACE.fullmatch(namespace):
        return (
            f"namespace {namespace!r} is not legal: 1 to {MAX_NAMESPACE_LENGTH} of a-z A-Z 0-9 . _ -, "
            "not starting with _ or ."
        )
    return None


def object_key_problem(key: str) -> str | None:
    """Why no store may take the key; None for a legal one. Holds for every backend, so that all act alike."""
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError:
        return f"object key {key!r} is not encodable as UTF-8"
    if not 0 < size_bytes <= MAX_KEY_BYTES:
        return f"object key {key[:80]!r} has {size_bytes} bytes; legal are 1 to {MAX_KEY_BYTES}"
    if "\0" in key:
        return f"object key {key!r} contains a NUL"
    if any(name in ("", ".", "..") for name in key.split("/")):
        return f"object key {key!r} is absolute, or has an empty, '.' or '..' name between its slashes"
    return None


def namespace_prefix(namespace: str) -> str:
    """The prefix of every segment and index of a namespace."""
    return f"{namespace}/"


def topic_prefix(namespace: str, topic: str) -> str:
    """The prefix of every segment and index of a topic."""
    return f"{namespace}/{topic}/"


def partition_prefix(namespace: str, topic: str, partition: int) -> str:
    """The prefix of every segment and index of a partition."""
    return f"{namespace}/{topic}/{partition}/"


def segment_key(namespace: str, topic: str, partition: int, base_offset: int) -> str:
    """A segment as it was flushed."""
    return f"{namespace}/{topic}/{partition}/segment-{base_offset:020d}.kfs"


def index_key(namespace: str, topic: str, partition: int, base_offset: int) -> str:
    """The index of a segment as it was flushed."""
    return f"{namespace}/{topic}/{partition}/segment-{base_offset:020d}.index"


def merged_segment_key(namespace: str, topic: str, partition: int, base_offset: int, last_offset: int) -> str:
    """A merged segment: the last offset keeps it from ever sharing a key with one of its sources."""
    return f"{namespace}/{topic}/{partition}/segment-{base_offset:020d}-{last_offset:020d}.kfs"


def merged_index_key(namespace: str, topic: str, partition: int, base_offset: int, last_offset: int) -> str:
    """The index of a merged segment."""
    return f"{namespace}/{topic}/{partition}/segment-{base_offset:020d}-{last_offset:020d}.index"


def compacted_segment_key(
    namespace: str, topic: str, partition: int, base_offset: int, last_offset: int, compaction: Compaction
) -> str:
    """A compacted segment: its bytes depend on more than its offsets, so its key says on what.

    Raises `ValueError` for a token that is not made of letters and digits.
    """
    if not _LEGAL_TOKEN.fullmatch(compaction.token):
        raise ValueError(f"compaction token {compaction.token!r} is not made of ASCII letters and digits")
    return (
        f"{namespace}/{topic}/{partition}/segment-{base_offset:020d}-{last_offset:020d}"
        f"-{compaction.map_end_offset:020d}-{compaction.leader_epoch}-{compaction.token}.kfs"
    )


def compaction_of(reference: SegmentReference) -> Compaction | None:
    """The origin of the reference's segment, None if it is not a compacted one."""
    if reference.object_key.count("-", reference.object_key.rfind("/") + 1) < _DASHES_OF_COMPACTED:
        return None
    parsed = parse_segment_key(reference.object_key)
    return None if parsed is None else parsed.compaction


def key_of_reference(namespace: str, topic: str, partition: int, reference: SegmentReference) -> str:
    """The object that holds a published segment."""
    return reference.object_key or segment_key(namespace, topic, partition, reference.base_offset)


def has_index(key: str) -> bool:
    """True for a `.kfs` key. What else a reference names, a journal's entry, has no index."""
    return key.endswith(".kfs")


def shares_its_object(reference: SegmentReference) -> bool:
    """True if other segments may lie in the object of this one, which must then outlive it."""
    return bool(reference.object_key) and parse_segment_key(reference.object_key) is None


def index_key_of(key: str) -> str:
    """The index that belongs to a `.kfs` key. Raises `ValueError` for another key."""
    if not key.endswith(".kfs"):
        raise ValueError(f"{key!r} is not the key of a segment: it does not end in '.kfs'")
    return key.removesuffix(".kfs") + ".index"


def segment_key_of(key: str) -> str:
    """The segment that belongs to an `.index` key. Raises `ValueError` for another key."""
    if not key.endswith(".index"):
        raise ValueError(f"{key!r} is not the key of an index: it does not end in '.index'")
    return key.removesuffix(".index") + ".kfs"


def parse_segment_key(key: str) -> SegmentKey | None:
    """The parts of a `.kfs` key; None for any other key, also one that this module would not have built."""
    return _parse_segment_or_index(key, "kfs")


def parse_index_key(key: str) -> SegmentKey | None:
    """The parts of an `.index` key; None for any other key, also one that this module would not have built."""
    return _parse_segment_or_index(key, "index")


def _parse_segment_or_index(key: str, suffix: str) -> SegmentKey | None:
    match = _SEGMENT.fullmatch(key)
    if match is None or match[9] != suffix:
        return None
    namespace, topic = match[1], match[2]
    partition, base_offset = int(match[3]), int(match[4])
    last_offset = None if match[5] is None else int(match[5])
    highest_offset = base_offset if last_offset is None else last_offset
    if partition > _MAX_PARTITION or not base_offset <= highest_offset <= _MAX_OFFSET:
        return None
    if namespace_problem(namespace) or topic_name_problem(topic):
        return None
    compaction = None
    if match[6] is not None:
        compaction = Compaction(int(match[6]), int(match[7]), match[8])
        if compaction.map_end_offset > _MAX_OFFSET or compaction.leader_epoch > _MAX_LEADER_EPOCH:
            return None
    return SegmentKey(
        namespace=namespace,
        topic=topic,
        partition=partition,
        base_offset=base_offset,
        last_offset=last_offset,
        compaction=compaction,
    )


def topic_of_key(namespace: str, key: str) -> str | None:
    """The topic that a key, or a prefix of keys, belongs to; None for one that belongs to none or to several.

    Only for keys that this module built: the rest of the key is not looked at.
    """
    folder, _, rest = key.partition("/")
    if folder == SYSTEM_FOLDER:
        checkpoints = f"{namespace}/checkpoints/"
        if not rest.startswith(checkpoints):
            return None
        rest = rest[len(checkpoints) :]
    elif folder != namespace:
        return None
    topic, slash, _ = rest.partition("/")
    return topic if slash and topic else None


def cluster_marker_key(namespace: str) -> str:
    """The object that says which cluster the namespace belongs to."""
    return f"{SYSTEM_FOLDER}/{namespace}/cluster"


def probe_prefix(namespace: str, token: str) -> str:
    """The prefix of what one start-up probe of conditional writes leaves behind when it is interrupted."""
    return f"{SYSTEM_FOLDER}/{namespace}/probe-{token}/"


def probe_key(namespace: str, token: str, number: int) -> str:
    """One object of such a probe. `token`: letters and digits, new for every probe.

    Raises `ValueError` for another token.
    """
    if not _LEGAL_TOKEN.fullmatch(token):
        raise ValueError(f"probe token {token!r} is not made of ASCII letters and digits")
    return f"{probe_prefix(namespace, token)}{number}"


def checkpoints_prefix(namespace: str) -> str:
    """The prefix of every checkpoint of a namespace."""
    return f"{SYSTEM_FOLDER}/{namespace}/checkpoints/"


def checkpoints_topic_prefix(namespace: str, topic: str) -> str:
    """The prefix of every checkpoint of a topic."""
    return f"{SYSTEM_FOLDER}/{namespace}/checkpoints/{topic}/"


def checkpoints_partition_prefix(namespace: str, topic: str, partition: int) -> str:
    """The prefix of every checkpoint of a partition."""
    return f"{SYSTEM_FOLDER}/{namespace}/checkpoints/{topic}/{partition}/"


def checkpoint_key(
    namespace: str, topic: str, partition: int, log_end_offset: int, leader_epoch: int, token: str
) -> str:
    """A checkpoint. `token`, letters and digits, is new for every attempt, so that no key is written twice.

    Raises `ValueError` for another token.
    """
    if not _LEGAL_TOKEN.fullmatch(token):
        raise ValueError(f"checkpoint token {token!r} is not made of ASCII letters and digits")
    folder = checkpoints_partition_prefix(namespace, topic, partition)
    return f"{folder}{log_end_offset:020d}-{leader_epoch}-{token}.ckpt"


def parse_checkpoint_key(key: str) -> CheckpointKey | None:
    """The parts of a checkpoint's key; None for any other key."""
    match = _CHECKPOINT.fullmatch(key)
    if match is None:
        return None
    namespace, topic, token = match[1], match[2], match[6]
    partition, log_end_offset, leader_epoch = int(match[3]), int(match[4]), int(match[5])
    if partition > _MAX_PARTITION or log_end_offset > _MAX_OFFSET or leader_epoch > _MAX_LEADER_EPOCH:
        return None
    if namespace_problem(namespace) or topic_name_problem(topic):
        return None
    return CheckpointKey(
        namespace=namespace,
        topic=topic,
        partition=partition,
        log_end_offset=log_end_offset,
        leader_epoch=leader_epoch,
        token=token,
    )


def health_key(namespace: str, broker_id: int) -> str:
    """The object that a broker writes and reads to find out whether the store does what it is asked."""
    return f"{SYSTEM_FOLDER}/{namespace}/health/broker-{broker_id}"


def schema_cache_key(namespace: str, name: str) -> str:
    """An object of the exports' cache of schemas: `name` is its path there (docs/format/schema-cache.md)."""
    return f"{SYSTEM_FOLDER}/{namespace}/exports/schemas/{name}"
