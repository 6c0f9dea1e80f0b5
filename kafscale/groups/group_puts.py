"""Puts of a group's own record, of any type."""

from kafscale.formats.group_record import (
    MAX_GROUP_RECORD_BYTES,
    GroupRecord,
    GroupRecordTooLargeError,
    encode_group_record,
)
from kafscale.groups.group import Group
from kafscale.groups.modern.stored_group import encode_modern_group
from kafscale.groups.running_group import InStore, RunningGroup
from kafscale.groups.stored_bytes import stored_size
from kafscale.metadata import keys
from kafscale.metadata.store import Operation, Put
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted


def encode_checked(group_id: str, record: GroupRecord) -> bytes:
    """The encoded record. Raises `KafkaError` UNKNOWN_SERVER_ERROR, as Kafka does, if it is too large."""
    try:
        data = encode_group_record(record)
    except GroupRecordTooLargeError as problem:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"group '{quoted(group_id)}': {problem}"
        ) from problem
    if len(data) > MAX_GROUP_RECORD_BYTES:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"group '{quoted(group_id)}' with {len(record.members)} members takes {len(data)} bytes, "
            f"at most {MAX_GROUP_RECORD_BYTES} can be stored",
        )
    return data


def record_put(running: RunningGroup) -> list[Operation]:
    """The put of the group's record, for its first commit.

    Also for a commit after an indeterminate write of the record: offsets must not be stored without it.
    """
    if running.in_store is InStore.YES:
        return []
    group = running.group
    if not isinstance(group, Group):
        return [Put(keys.group(group.group_id), encode_modern_group(group.record()))]
    # Without members: those that have joined are stored with the generation, once it has assignments.
    record = GroupRecord(
        generation=group.generation,
        state_since_ms=group.state_since_ms,
        protocol_type=group.protocol_type,
    )
    put = Put(keys.group(group.group_id), encode_group_record(record))
    running.stored.set_record(max(running.stored.record_bytes, stored_size(put.key, put.value)))
    return [put]
