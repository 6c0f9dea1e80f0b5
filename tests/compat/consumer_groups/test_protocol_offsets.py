"""Offsets of consumer groups: which member of which epoch may commit, fetch and delete them."""

from collections.abc import Iterable
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from tests.support.consumer_group_members import (
    STALE_MEMBER_EPOCH,
    UNSUPPORTED_VERSION,
    ConsumerMember,
    RawConsumerGroup,
)
from tests.support.group_apis import commit as commit_raw
from tests.support.group_apis import committed, delete_offsets, find_coordinator, list_groups
from tests.support.group_wire import GROUP_ID_NOT_FOUND, ILLEGAL_GENERATION, NONE, UNKNOWN_MEMBER_ID
from tests.support.waiting import wait_until

UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN_SERVER_ERROR = -1
GROUP_SUBSCRIBED_TO_TOPIC = 86
CONSUMER_VERSION = 9
"""The first of OffsetCommit and OffsetFetch that knows of member epochs."""


def commit(
    group: RawConsumerGroup,
    topic: str,
    member_id: str,
    epoch: int,
    version: int = CONSUMER_VERSION,
    **fields: Any,
) -> int:
    """The error of committing 5 for partition 0."""
    found = commit_raw(
        group.wire,
        group.name,
        {(topic, 0): 5},
        generation=epoch,
        member_id=member_id,
        version=version,
        **fields,
    )
    return found[topic, 0]


def fetched(
    group: RawConsumerGroup, topic: str, member_id: str | None, epoch: int, *, stable: bool = False
) -> tuple[int, list[int]]:
    """The group's error, and the offset of partition 0."""
    row = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(
        group_id="",
        topics=[],
        groups=[
            row(
                group_id=group.name,
                member_id=member_id,
                member_epoch=epoch,
                topics=[row.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
            )
        ],
        require_stable=stable,
    )
    (found,) = group.wire.call(request, OffsetFetchResponse, CONSUMER_VERSION).groups
    return found.error_code, [part.committed_offset for one in found.topics for part in one.partitions]


def two_epochs(group: RawConsumerGroup) -> tuple[str, ConsumerMember]:
    """A topic, and a member in its epoch 3."""
    topic, _ = group.new_topic(2)
    member, other = group.joined("A", topic), group.joined("B", topic)
    other.leave()
    member.heartbeat()
    assert member.epoch == 3
    return topic, member


def test_member_commits_in_its_epoch(group: RawConsumerGroup) -> None:
    topic, member = two_epochs(group)
    assert commit(group, topic, member.id, 3) == NONE
    for epoch in (1, 2, 4, 0, -1):
        assert commit(group, topic, member.id, epoch) == STALE_MEMBER_EPOCH, epoch
    assert commit(group, topic, "stranger", 3) == UNKNOWN_MEMBER_ID
    assert commit(group, topic, "stranger", -1) == UNKNOWN_MEMBER_ID
    assert committed(group.wire, group.name, [(topic, 0)])[topic, 0].offset == 5


def test_member_that_lags_commits_in_its_own_epoch(group: RawConsumerGroup) -> None:
    """It commits before it revokes, when the group is ahead already."""
    topic, _ = group.new_topic(2)
    first = group.joined("A", topic)
    group.joined("B", topic)
    assert commit(group, topic, first.id, 1) == NONE
    first.heartbeat()
    assert commit(group, topic, first.id, 1) == NONE
    first.acknowledge()
    assert commit(group, topic, first.id, 1) == STALE_MEMBER_EPOCH
    assert commit(group, topic, first.id, 2) == NONE


@pytest.mark.parametrize("version", [2, 5, 7, 8])
def test_old_versions_cannot_commit_for_a_member(group: RawConsumerGroup, version: int) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    for epoch in (1, 2, -1):
        assert commit(group, topic, member.id, epoch, version) == UNSUPPORTED_VERSION
    assert commit(group, topic, "stranger", 1, version) == UNKNOWN_MEMBER_ID
    assert commit(group, topic, "", -1, version) == UNKNOWN_MEMBER_ID


def test_others_commit_only_without_members(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    assert commit(group, topic, "", -1) == UNKNOWN_MEMBER_ID
    assert commit(group, topic, "", 1) == UNKNOWN_MEMBER_ID
    assert commit(group, topic, "", -1, instance="instance") == UNKNOWN_MEMBER_ID
    assert commit(group, topic, member.id, 1, instance="instance") == NONE
    member.leave()
    assert commit(group, topic, member.id, 1) == UNKNOWN_MEMBER_ID
    assert commit(group, topic, "", 1) == UNKNOWN_MEMBER_ID
    for version in (2, 8, 9):
        assert commit(group, topic, "", -1, version) == NONE
    assert commit(group, topic, "stranger", -1) == NONE
    assert list_groups(group.wire)[group.name].group_type == "consumer"


def test_commits_to_a_group_that_does_not_exist(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    assert commit(group, topic, "member", 0) == GROUP_ID_NOT_FOUND
    assert commit(group, topic, "member", 0, 8) == ILLEGAL_GENERATION
    assert group.name not in list_groups(group.wire)
    assert commit(group, topic, "", -1) == NONE
    assert list_groups(group.wire)[group.name].group_type == "classic"


def test_commit_names_unknown_partitions(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    offsets = {(topic, 0): 6, (topic, 9): 6, ("absent", 0): 6}
    found = commit_raw(group.wire, group.name, offsets, generation=1, member_id=member.id, version=9)
    assert found == {
        (topic, 0): NONE,
        (topic, 9): UNKNOWN_TOPIC_OR_PARTITION,
        ("absent", 0): UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_member_fetches_offsets_in_its_epoch(group: RawConsumerGroup) -> None:
    topic, member = two_epochs(group)
    commit(group, topic, member.id, 3)
    found = (NONE, [5])
    assert fetched(group, topic, member.id, 3) == found
    assert fetched(group, topic, member.id, 3, stable=True) == found
    for epoch in (2, 4, 0, -1):
        assert fetched(group, topic, member.id, epoch) == (STALE_MEMBER_EPOCH, [])
    for stranger in ("stranger", ""):
        for epoch in (3, -1):
            assert fetched(group, topic, stranger, epoch) == (UNKNOWN_MEMBER_ID, [])
    assert fetched(group, topic, None, -1) == found
    for version in (1, 5, 8):
        assert committed(group.wire, group.name, [(topic, 0)], version)[topic, 0].offset == 5


def test_offsets_of_an_empty_group_are_fetched_without_a_member(group: RawConsumerGroup) -> None:
    topic, member = two_epochs(group)
    commit(group, topic, member.id, 3)
    member.leave()
    assert fetched(group, topic, None, -1) == (NONE, [5])
    for epoch in (3, -1):
        assert fetched(group, topic, member.id, epoch) == (UNKNOWN_MEMBER_ID, [])


def test_absent_group_has_no_offsets(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    assert fetched(group, topic, "member", 1) == (NONE, [-1])
    assert fetched(group, topic, None, -1) == (NONE, [-1])


def test_offsets_of_subscribed_topics_are_not_deleted(group: RawConsumerGroup) -> None:
    (topic, _), (other, _) = group.new_topic(), group.new_topic()
    member = group.joined("A", topic)
    offsets = {(topic, 0): 1, (other, 0): 2}
    commit_raw(group.wire, group.name, offsets, generation=1, member_id=member.id, version=9)
    assert delete_offsets(group.wire, group.name, offsets) == (
        NONE,
        {(topic, 0): GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): NONE},
    )
    member.leave()
    assert delete_offsets(group.wire, group.name, [(topic, 0)]) == (NONE, {(topic, 0): NONE})
    assert committed(group.wire, group.name) == {}


def commits_in_transaction(
    group: RawConsumerGroup, topic: str, members: Iterable[tuple[str, int]], version: int
) -> list[int]:
    """The error of TxnOffsetCommit for each member id and epoch, all in one transaction."""
    name = f"{group.name}-transaction"
    wire = group.wire
    wait_until(lambda: find_coordinator(wire, [name], 1)[name].error_code == NONE, "a coordinator")
    start = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    producer = wait_until(
        lambda: reply if (reply := wire.call(start, InitProducerIdResponse, 4)).error_code == NONE else None,
        "a producer id",
    )
    assert producer is not None
    identity = {
        "transactional_id": name,
        "group_id": group.name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    assert wire.call(AddOffsetsToTxnRequest(**identity), AddOffsetsToTxnResponse, 3).error_code == NONE
    row = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = row.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    errors = []
    for member_id, epoch in members:
        request = TxnOffsetCommitRequest(
            **identity,
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=None,
            topics=[row(name=topic, partitions=[partition])],
        )
        reply = wire.call(request, TxnOffsetCommitResponse, version)
        errors.append(reply.topics[0].partitions[0].error_code)
    return errors


@pytest.mark.parametrize("version", [3, 4])
def test_commits_in_transactions_need_the_members_epoch(group: RawConsumerGroup, version: int) -> None:
    topic, member = two_epochs(group)
    asked = {
        (member.id, 3): NONE,
        (member.id, 2): ILLEGAL_GENERATION,
        (member.id, 4): ILLEGAL_GENERATION,
        ("stranger", 3): UNKNOWN_MEMBER_ID,
        ("", 3): UNKNOWN_MEMBER_ID,
        ("", -1): NONE,  # as of old: a producer that says nothing of the group
    }
    assert commits_in_transaction(group, topic, asked, version) == list(asked.values())
