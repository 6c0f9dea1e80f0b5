"""The rules for a topic that is to be made or to grow: names, partition counts, replicas. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.metadata.model import TopicRecord
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.system import NAMES_ARE_EXACT, can_name_folder

MAX_PARTITIONS: Final = 10_000
"""Partitions that one topic may have: each costs a record, a leader key and a buffer."""

UNSET: Final = -1
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as a client asks for it; `UNSET` asks for the default.

    `assignments`: partition and broker ids, as given, for a manual assignment; otherwise empty.
    """

    name: str
    partition_count: int = UNSET
    replication_factor: int = UNSET
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


def collision_key(name: str) -> str:
    """Equal for two names that differ only by `.` and `_`, as metric names in Kafka do not.

    Also for two that differ only by case where this system's file systems do not tell them apart.
    """
    key = name.replace(".", "_")
    return key if NAMES_ARE_EXACT else key.lower()


def check_storable(name: str) -> None:
    """Refuse a name that this system gives no folder. Raises `KafkaError` INVALID_TOPIC_EXCEPTION."""
    if not can_name_folder(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: '{name}' is no name of a folder on Windows, where this broker runs",
        )


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Refuse a name when another one is among the topics with the same `collision_key`, as Kafka does.

    Raises `KafkaError` INVALID_TOPIC_EXCEPTION.
    """
    other = min((other for other in existing if other != name), default=None)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
        )


def partition_count_of(topic: NewTopic, default: int, broker_ids: Collection[int]) -> int:
    """How many partitions the topic gets.

    Raises `KafkaError` INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR or
    INVALID_PARTITIONS, in Kafka's order and words.
    """
    if topic.assignments:
        _check_manual(topic, broker_ids)
        count = len(topic.assignments)
    elif topic.replication_factor < UNSET or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    elif topic.partition_count < UNSET or topic.partition_count == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    else:
        count = default if topic.partition_count == UNSET else topic.partition_count
    _check_limit(topic.name, count)
    return count


def check_growth(
    topic: TopicRecord, count: int, assignments: Sequence[Sequence[int]] | None, broker_ids: Collection[int]
) -> None:
    """Refuse to give the topic `count` partitions unless that is more than it has.

    Raises `KafkaError` INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT.
    """
    present = topic.partition_count
    if count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {count} would not be an increase.",
        )
    _check_limit(topic.name, count)
    if assignments is None:
        return
    if len(assignments) != count - present:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {count - present} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified.",
        )
    _check_replicas(assignments, broker_ids)


def _check_limit(name: str, count: int) -> None:
    if count > MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {name} cannot have {count} partitions: the most is {MAX_PARTITIONS}.",
        )


def _check_manual(topic: NewTopic, broker_ids: Collection[int]) -> None:
    for value, what in (
        (topic.replication_factor, "replication factor"),
        (topic.partition_count, "numPartitions"),
    ):
        if value != UNSET:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    partitions: set[int] = set()
    for partition, _ in topic.assignments:
        if partition in partitions:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        partitions.add(partition)
    _check_replicas([replicas for _, replicas in topic.assignments], broker_ids)
    if sorted(partitions) != list(range(len(partitions))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )


def _check_replicas(assignments: Sequence[Sequence[int]], broker_ids: Collection[int]) -> None:
    for replicas in assignments:
        if not replicas:
            problem = "includes an empty replica list."
        elif unknown := [broker_id for broker_id in replicas if broker_id not in broker_ids]:
            problem = f"includes broker {unknown[0]}, but no such broker is registered."
        elif len(set(replicas)) < len(replicas):
            problem = f"includes a broker more than once: {', '.join(map(str, replicas))}."
        elif len(replicas) != len(assignments[0]):
            problem = (
                f"includes a partition with {len(replicas)} replica(s), but this is not consistent with "
                f"previous partitions, which have {len(assignments[0])} replica(s)."
            )
        else:
            continue
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {problem}")
