"""The lines of a dump for each key of a group."""

import uuid

import pytest

from kafscale.errors import CorruptDataError
from kafscale.formats.committed_offset import CommittedOffset, encode_committed_offset
from kafscale.formats.consumer_group_record import ConsumerGroupRecord, encode_consumer_group
from kafscale.formats.consumer_member_record import ConsumerMember, encode_consumer_member
from kafscale.formats.group_record import GroupRecord, MemberRecord, encode_group_record
from kafscale.formats.pending_offsets import PendingOffset, PendingOffsets, encode_pending_offsets
from kafscale.formats.share_group_record import ShareGroupRecord, encode_share_group
from kafscale.formats.share_member_record import ShareMember, encode_share_member
from kafscale.formats.share_start_record import ShareStartRecord, encode_share_start
from kafscale.formats.share_state_record import (
    ShareStateRecord,
    StoredShareRun,
    StoredShareState,
    encode_share_state,
)
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.tools.dump.group_items import fields_of, line_of, prefixes, shard_prefixes

TOPIC_ID = uuid.UUID(int=5)
GROUP = "a/b \x07"
PLACE = SharePartitionId(GROUP, TOPIC_ID, 2)
OFFSET = encode_committed_offset(
    CommittedOffset(topic_id=TOPIC_ID, offset=12, metadata="text", commit_timestamp_ms=7)
)
MEMBER = MemberRecord(
    member_id="m",
    group_instance_id=None,
    client_id="c",
    client_host="/h",
    session_timeout_ms=1,
    rebalance_timeout_ms=2,
    protocols=(("range", b"x"),),
    assignment=b"four",
)
STATE = ShareStateRecord(
    state_epoch=3,
    leader_epoch=4,
    start_offset=7,
    runs=(
        StoredShareRun(7, 7, StoredShareState.AVAILABLE, 2),
        StoredShareRun(8, 9, StoredShareState.ARCHIVED, 5),
    ),
)

ITEMS = {
    keys.group(GROUP): (
        encode_group_record(
            GroupRecord(generation=3, state_since_ms=8, protocol_type="consumer", members=(MEMBER,))
        ),
        "group: group: <a/b \x07> kind: <classic> generation: 3 stateSinceMs: 8 protocolType: <consumer> members: "
        "[{member: <m>, instance: None, clientId: <c>, clientHost: </h>, sessionTimeoutMs: 1, rebalanceTimeoutMs: 2, "
        "protocols: [<range>], assignmentSize: 4}]",
    ),
    keys.group("c"): (
        encode_consumer_group(ConsumerGroupRecord(4, 9)),
        "group: group: <c> kind: <consumer> groupEpoch: 4 stateSinceMs: 9",
    ),
    keys.group("s"): (
        encode_share_group(ShareGroupRecord(5, 10)),
        "group: group: <s> kind: <share> groupEpoch: 5 stateSinceMs: 10",
    ),
    keys.group_member(GROUP, "m/1"): (
        encode_share_member(
            ShareMember(
                member_id="m/1",
                subscribed_topic_names=frozenset({"t"}),
                member_epoch=2,
                assigned={TOPIC_ID: frozenset({1, 0})},
            )
        ),
        "member: group: <a/b \x07> member: <m/1> kind: <share> memberEpoch: 2 previousMemberEpoch: 0 clientId: <> "
        f"clientHost: <> topics: [<t>] assigned: {{{TOPIC_ID}: [0, 1]}}",
    ),
    keys.group_member("c", "m"): (
        encode_consumer_member(ConsumerMember(member_id="m", member_epoch=4)),
        "member: group: <c> member: <m> kind: <consumer> memberEpoch: 4 previousMemberEpoch: 0 state: <stable> "
        "clientId: <> clientHost: <> rebalanceTimeoutMs: -1 topics: [] assigned: {} pendingRevocation: {}",
    ),
    keys.group_offset(GROUP, "t", 1): (
        OFFSET,
        f"offset: group: <a/b \x07> topic: <t> partition: 1 topicId: <{TOPIC_ID}> offset: 12 leaderEpoch: -1 "
        "metadata: <text> commitMs: 7",
    ),
    keys.pending_offsets(GROUP, 9): (
        encode_pending_offsets(
            PendingOffsets(
                transactional_id="id", producer_epoch=1, offsets={("t", 0): PendingOffset(1, OFFSET)}
            )
        ),
        "pendingOffsets: group: <a/b \x07> producerId: 9 producerEpoch: 1 transactionalId: <id> offsets: "
        "[{topic: <t>, partition: 0, offset: 12}]",
    ),
    keys.share_start(PLACE): (
        encode_share_start(
            ShareStartRecord(state_epoch=3, start_offset=7, changed_ms=9, changed_by="User:a")
        ),
        f"shareStart: group: <a/b \x07> topicId: <{TOPIC_ID}> partition: 2 stateEpoch: 3 startOffset: 7 changedMs: 9 "
        "changedBy: <User:a>",
    ),
    keys.share_state(PLACE): (
        encode_share_state(STATE),
        f"shareState: group: <a/b \x07> topicId: <{TOPIC_ID}> partition: 2 stateEpoch: 3 leaderEpoch: 4 "
        "startOffset: 7 runs: [{first: 7, last: 7, state: <available>, deliveryCount: 2}, "
        "{first: 8, last: 9, state: <archived>, deliveryCount: 5}]",
    ),
}


@pytest.mark.parametrize("key", ITEMS)
def test_each_kind_of_key_has_a_line(key: str) -> None:
    value, line = ITEMS[key]
    assert line_of(fields_of(key, value), lambda text: f"<{text}>") == line


@pytest.mark.parametrize("key", ITEMS)
def test_a_value_cut_off_is_a_problem(key: str) -> None:
    with pytest.raises(CorruptDataError):
        fields_of(key, ITEMS[key][0][:-1])


@pytest.mark.parametrize(
    "key", ["share-starts/1/g/no-uuid/0", "group-members/1/g", "group-offsets/1/g/t", "groups/1"]
)
def test_a_key_that_no_broker_writes_is_a_problem(key: str) -> None:
    with pytest.raises(CorruptDataError):
        fields_of(key, encode_share_start(ShareStartRecord(state_epoch=0, changed_ms=0)))


def test_all_keys_of_a_group_are_found() -> None:
    of_group = prefixes(GROUP)
    of_shard = shard_prefixes(keys.shard_of(GROUP))
    for key in (keys.group_member(GROUP, "m/1"), keys.group_offset(GROUP, "t", 1)):
        assert sum(key.startswith(one) for one in of_group) == 1
        assert sum(key.startswith(one) for one in of_shard) == 1
    for key in (keys.pending_offsets(GROUP, 9), keys.share_start(PLACE), keys.share_state(PLACE)):
        assert sum(key.startswith(one) for one in of_group) == 1
        assert sum(key.startswith(one) for one in of_shard) == 1
