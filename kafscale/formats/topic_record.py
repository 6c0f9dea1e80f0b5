"""Stored bytes of the small records: brokers, topics, leaders, coordinators, the epochs of retired names.

Stored format: docs/format/topic-record.md. Each is a JSON object with a `version`.
"""

import json
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.metadata import keys
from kafscale.metadata.model import (
    NO_BROKER,
    BrokerRecord,
    BrokerState,
    CoordinatorRecord,
    Endpoint,
    FeatureRange,
    GroupShardRecord,
    LeaderRecord,
    ListenerName,
    TopicRecord,
    TopicState,
)

VERSION = 1

# Far more than a topic may be given: a reader that believed a number without a bound would walk it for hours.
_MOST_PARTITIONS = 1_000_000


def encode_topic_record(record: TopicRecord) -> bytes:
    """The topic record's stored bytes."""
    fields: dict[str, Any] = {
        "name": record.name,
        "topic_id": str(record.topic_id),
        "partition_count": record.partition_count,
        "configs": dict(sorted(record.configs.items())),
        "state": record.state.value,
    }
    if record.state is TopicState.DELETING:
        fields["deleting_broker_id"] = record.deleting_broker_id
    return encode_fields(fields)


def decode_topic_record(name: str, data: bytes) -> TopicRecord:
    """The topic. `name` says which record in errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    fields = decode_fields(name, data)
    configs = _field(name, fields, "configs", dict)
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in configs.items()):
        raise CorruptDataError(name, "'configs' holds something other than text")
    try:
        topic_id = uuid.UUID(_field(name, fields, "topic_id", str))
        state = TopicState(_field(name, fields, "state", str))
    except ValueError as problem:
        raise CorruptDataError(name, str(problem)) from problem
    deleting = state is TopicState.DELETING
    topic, partition_count = _field(name, fields, "name", str), _field(name, fields, "partition_count", int)
    if name.startswith(keys.TOPICS) and name != keys.topic(topic):
        raise CorruptDataError(name, f"it describes a topic {topic!r}")
    if not 0 <= partition_count <= _MOST_PARTITIONS:
        raise CorruptDataError(
            name, f"'partition_count' is {partition_count}, legal are 0 to {_MOST_PARTITIONS}"
        )
    return TopicRecord(
        name=topic,
        topic_id=topic_id,
        partition_count=partition_count,
        configs=configs,
        state=state,
        deleting_broker_id=_field(name, fields, "deleting_broker_id", int) if deleting else NO_BROKER,
    )


def encode_broker_record(record: BrokerRecord) -> bytes:
    """The broker registration's stored bytes."""
    fields: dict[str, Any] = {
        "broker_id": record.broker_id,
        "host": record.host,
        "port": record.port,
        "rack": record.rack,
        "state": record.state.value,
    }
    if record.external is not None:
        fields["external"] = list(record.external)
    if record.listeners:
        fields["listeners"] = {name: list(endpoint) for name, endpoint in record.listeners.items()}
    if record.features:
        fields["features"] = {name: list(levels) for name, levels in sorted(record.features.items())}
    if record.journal_id:
        fields["journal_id"] = record.journal_id
    return encode_fields(fields)


def decode_broker_record(name: str, data: bytes) -> BrokerRecord:
    """The broker. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    fields = decode_fields(name, data)
    try:
        state = BrokerState(_field(name, fields, "state", str))
    except ValueError as problem:
        raise CorruptDataError(name, str(problem)) from problem
    return BrokerRecord(
        broker_id=_field(name, fields, "broker_id", int),
        host=_field(name, fields, "host", str),
        port=_field(name, fields, "port", int),
        external=_external(name, fields),
        rack=None if fields.get("rack") is None else _field(name, fields, "rack", str),
        state=state,
        features=_features(name, fields),
        journal_id=_field(name, fields, "journal_id", str) if "journal_id" in fields else "",
        listeners=_listeners(name, fields),
    )


def _external(name: str, fields: Mapping[str, Any]) -> Endpoint | None:
    """None in the record of a broker without that listener, or one that is older than it."""
    found = fields.get("external")
    return None if found is None else _endpoint(name, "external", found)


def _listeners(name: str, fields: Mapping[str, Any]) -> Mapping[ListenerName, Endpoint]:
    """Empty in the record of a broker with PLAINTEXT and EXTERNAL alone, or one that is older than listeners."""
    if "listeners" not in fields:
        return {}
    listeners = {}
    for text, endpoint in _field(name, fields, "listeners", dict).items():
        try:
            listener = ListenerName.parse(text)
        except ValueError as problem:
            raise CorruptDataError(name, str(problem)) from problem
        listeners[listener] = _endpoint(name, f"listeners.{listener}", endpoint)
    return listeners


def _endpoint(name: str, key: str, found: object) -> Endpoint:
    match found:
        case [str() as host, int() as port] if not isinstance(port, bool):
            return Endpoint(host, port)
        case other:
            raise CorruptDataError(name, f"{key!r} is {other!r}, not a host and a port")


def _features(name: str, fields: Mapping[str, Any]) -> Mapping[str, FeatureRange]:
    """Empty in the record of a broker that is older than features."""
    if "features" not in fields:
        return {}
    features = {}
    for feature, levels in _field(name, fields, "features", dict).items():
        match levels:
            case [int() as low, int() as high] if 0 <= low <= high and bool not in (type(low), type(high)):
                features[feature] = FeatureRange(low, high)
            case _:
                raise CorruptDataError(name, f"'features' holds {levels!r} for {feature!r}, not two levels")
    return features


@lru_cache(maxsize=1024)  # A broker that is elected writes the same thousands of times.
def encode_leader_record(record: LeaderRecord) -> bytes:
    """The leader key's stored bytes."""
    return encode_fields({"broker_id": record.broker_id, "leader_epoch": record.leader_epoch})


def decode_leader_record(name: str, data: bytes) -> LeaderRecord:
    """The leader. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    fields = decode_fields(name, data)
    return LeaderRecord(
        broker_id=_field(name, fields, "broker_id", int),
        leader_epoch=_field(name, fields, "leader_epoch", int),
    )


def encode_coordinator_record(record: CoordinatorRecord) -> bytes:
    """The coordinator key's stored bytes."""
    return encode_fields({"broker_id": record.broker_id, "coordinator_epoch": record.coordinator_epoch})


def decode_coordinator_record(name: str, data: bytes) -> CoordinatorRecord:
    """The coordinator. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    fields = decode_fields(name, data)
    return CoordinatorRecord(
        broker_id=_field(name, fields, "broker_id", int),
        coordinator_epoch=_field(name, fields, "coordinator_epoch", int),
    )


def encode_group_shard_record(record: GroupShardRecord) -> bytes:
    """The shard record's stored bytes."""
    return encode_fields(
        {
            "broker_id": record.broker_id,
            "coordinator_epoch": record.coordinator_epoch,
            "sequence": record.sequence,
        }
    )


def decode_group_shard_record(name: str, data: bytes) -> GroupShardRecord:
    """The shard's record. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    fields = decode_fields(name, data)
    return GroupShardRecord(
        broker_id=_field(name, fields, "broker_id", int),
        coordinator_epoch=_field(name, fields, "coordinator_epoch", int),
        sequence=_field(name, fields, "sequence", int),
    )


def encode_retired_epoch(leader_epoch: int) -> bytes:
    """The stored bytes of a retired name's highest leader epoch."""
    return encode_fields({"leader_epoch": leader_epoch})


def decode_retired_epoch(name: str, data: bytes) -> int:
    """The highest leader epoch. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    return int(_field(name, decode_fields(name, data), "leader_epoch", int))


def encode_fields(fields: Mapping[str, Any], version: int = VERSION) -> bytes:
    """A JSON object of a format version with `fields`, without spaces, in their order."""
    return json.dumps({"version": version, **fields}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_fields(name: str, data: bytes, newest_version: int = VERSION) -> dict[str, Any]:
    """The object's fields, its `version` among them. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    try:
        fields = json.loads(data)
    except ValueError as problem:
        raise CorruptDataError(name, f"not JSON: {problem}") from problem
    if not isinstance(fields, dict):
        raise CorruptDataError(name, "not a JSON object")
    version = _field(name, fields, "version", int)
    if not VERSION <= version <= newest_version:
        legal = ", ".join(map(str, range(VERSION, newest_version + 1)))
        raise UnknownFormatVersionError(name, version, legal)
    return fields


def _field(name: str, fields: Mapping[str, Any], key: str, kind: type) -> Any:
    value = fields.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CorruptDataError(name, f"{key!r} is {value!r}, not {kind.__name__}")
    return value
