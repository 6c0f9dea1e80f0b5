"""The keys and values of groups in the metadata store, as fields by name. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, assert_never

from kafscale.errors import CorruptDataError
from kafscale.formats.any_group_record import decode_any_group
from kafscale.formats.committed_offset import decode_committed_offset
from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.formats.consumer_member_record import decode_consumer_member
from kafscale.formats.group_record import GroupRecord
from kafscale.formats.pending_offsets import decode_pending_offsets
from kafscale.formats.share_group_record import ShareGroupRecord
from kafscale.formats.share_member_record import decode_share_member, is_share_member
from kafscale.formats.share_start_record import decode_share_start
from kafscale.formats.share_state_record import decode_share_state
from kafscale.formats.stored_assignment import Assignment
from kafscale.metadata import keys

Fields = Mapping[str, Any]


def prefixes(group_id: str) -> tuple[str, ...]:
    """Those of all keys of a group but its record's."""
    return (
        keys.group_members(group_id),
        keys.group_offsets(group_id),
        keys.group_pending_offsets(group_id),
        keys.group_share_starts(group_id),
        keys.group_share_states(group_id),
    )


def shard_prefixes(shard: int) -> tuple[str, ...]:
    """Those of all groups of a shard."""
    return (
        keys.groups(shard),
        keys.shard_members(shard),
        keys.shard_offsets(shard),
        keys.shard_pending_offsets(shard),
        keys.shard_share_starts(shard),
        keys.shard_share_states(shard),
    )


def fields_of(key: str, value: bytes) -> Fields:
    """The type, what the key says, and the value. Raises `CorruptDataError`, also for a key that no broker writes."""
    prefix = f"{key.split('/')[0]}/"
    try:
        return _READERS[prefix](key, value)
    except (ValueError, IndexError) as problem:
        raise CorruptDataError(key, f"the key is none that a broker writes: {problem}") from problem


def _group(key: str, value: bytes) -> Fields:
    record, group_id = decode_any_group(key, value), keys.group_id(key)
    match record:
        case GroupRecord():
            return {
                "type": "group",
                "group": group_id,
                "kind": "classic",
                "generation": record.generation,
                "stateSinceMs": record.state_since_ms,
                "protocolType": record.protocol_type,
                "protocolName": record.protocol_name,
                "leader": record.leader,
                "members": [
                    {
                        "member": one.member_id,
                        "instance": one.group_instance_id,
                        "clientId": one.client_id,
                        "clientHost": one.client_host,
                        "sessionTimeoutMs": one.session_timeout_ms,
                        "rebalanceTimeoutMs": one.rebalance_timeout_ms,
                        "protocols": [name for name, _ in one.protocols],
                        "assignmentSize": len(one.assignment),
                    }
                    for one in record.members
                ],
            }
        case ConsumerGroupRecord() | ShareGroupRecord():
            return {
                "type": "group",
                "group": group_id,
                "kind": "consumer" if isinstance(record, ConsumerGroupRecord) else "share",
                "groupEpoch": record.group_epoch,
                "stateSinceMs": record.state_since_ms,
            }
        case _:
            assert_never(record)


def _member(key: str, value: bytes) -> Fields:
    group_id, member_id = keys.group_and_member(key)
    begin = {"type": "member", "group": group_id, "member": member_id}
    if is_share_member(value):
        share = decode_share_member(key, member_id, value)
        return begin | {
            "kind": "share",
            "memberEpoch": share.member_epoch,
            "previousMemberEpoch": share.previous_member_epoch,
            "rack": share.rack_id,
            "clientId": share.client_id,
            "clientHost": share.client_host,
            "topics": sorted(share.subscribed_topic_names),
            "assigned": _assignment(share.assigned),
        }
    member = decode_consumer_member(key, member_id, value)
    return begin | {
        "kind": "consumer" if member.classic is None else "classic protocol",
        "memberEpoch": member.member_epoch,
        "previousMemberEpoch": member.previous_member_epoch,
        "state": member.state.name.lower(),
        "instance": member.instance_id,
        "rack": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "topics": sorted(member.subscribed_topic_names),
        "regex": member.subscribed_topic_regex,
        "assignor": member.server_assignor,
        "assigned": _assignment(member.assigned),
        "pendingRevocation": _assignment(member.pending_revocation),
    }


def _assignment(assignment: Assignment) -> dict[str, Sequence[int]]:
    return {str(topic_id): sorted(partitions) for topic_id, partitions in sorted(assignment.items())}


def _offset(key: str, value: bytes) -> Fields:
    topic, partition = keys.offset_topic_and_partition(key)
    committed = decode_committed_offset(key, value)
    return {
        "type": "offset",
        "group": keys.offset_group_id(key),
        "topic": topic,
        "partition": partition,
        "topicId": str(committed.topic_id),
        "offset": committed.offset,
        "leaderEpoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "commitMs": committed.commit_timestamp_ms,
        "expireMs": committed.expire_timestamp_ms,
    }


def _pending(key: str, value: bytes) -> Fields:
    group_id, producer_id = keys.group_and_producer(key)
    pending = decode_pending_offsets(key, value)
    return {
        "type": "pendingOffsets",
        "group": group_id,
        "producerId": producer_id,
        "producerEpoch": pending.producer_epoch,
        "transactionalId": pending.transactional_id,
        "offsets": [
            {"topic": topic, "partition": index, "offset": one.committed(key).offset}
            for (topic, index), one in pending.offsets.items()
        ],
    }


def _share_start(key: str, value: bytes) -> Fields:
    start = decode_share_start(key, value)
    return {
        "type": "shareStart",
        **_share_partition(key),
        "stateEpoch": start.state_epoch,
        "startOffset": start.start_offset,
        "changedMs": start.changed_ms,
        "changedBy": start.changed_by,
    }


def _share_state(key: str, value: bytes) -> Fields:
    state = decode_share_state(key, value)
    return {
        "type": "shareState",
        **_share_partition(key),
        "stateEpoch": state.state_epoch,
        "leaderEpoch": state.leader_epoch,
        "startOffset": state.start_offset,
        "runs": [
            {
                "first": run.first,
                "last": run.last,
                "state": run.state.name.lower(),
                "deliveryCount": run.delivery_count,
            }
            for run in state.runs
        ],
    }


def _share_partition(key: str) -> Fields:
    place = keys.share_partition(key)
    return {"group": place.group_id, "topicId": str(place.topic_id), "partition": place.partition}


_READERS: Final[Mapping[str, Callable[[str, bytes], Fields]]] = {
    keys.GROUPS: _group,
    keys.GROUP_MEMBERS: _member,
    keys.GROUP_OFFSETS: _offset,
    keys.PENDING_OFFSETS: _pending,
    keys.SHARE_STARTS: _share_start,
    keys.SHARE_STATES: _share_state,
}


def line_of(fields: Fields, shown: Callable[[str], str]) -> str:
    """The fields on one line; `shown` makes text harmless. What is None is left out."""
    said = (f"{name}: {_text(value, shown)}" for name, value in _told(fields) if value is not None)
    return f"{fields['type']}: {' '.join(said)}"


def _told(fields: Fields) -> Iterable[tuple[str, Any]]:
    return ((name, value) for name, value in fields.items() if name != "type")


def _text(value: Any, shown: Callable[[str], str]) -> str:
    match value:
        case str():
            return shown(value)
        case dict():
            return "{" + ", ".join(f"{name}: {_text(one, shown)}" for name, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_text(one, shown) for one in value) + "]"
        case _:
            return str(value)
