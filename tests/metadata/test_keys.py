"""Keys of transactions and share groups: each reads back as it was made, under its prefix, and no two are one."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.metadata import keys

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PRODUCER_IDS = st.integers(0, 2**63 - 1)


@given(TEXTS)
def test_transactional_id_reads_back_from_its_key(transactional_id: str) -> None:
    key = keys.transaction(transactional_id)
    assert keys.transactional_id(key) == transactional_id
    assert key.startswith(keys.transactions(keys.shard_of(transactional_id)))


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True), st.integers(0, 2**31 - 1), PRODUCER_IDS)
def test_marked_partition_reads_back_from_its_key(topic: str, partition: int, producer_id: int) -> None:
    key = keys.partition_marker(topic, partition, producer_id)
    assert keys.marked_partition(key) == (topic, partition, producer_id)
    assert key.startswith(keys.partition_markers(topic, partition))


@given(TEXTS, PRODUCER_IDS)
def test_group_and_producer_read_back_from_both_keys(group_id: str, producer_id: int) -> None:
    marker, pending = keys.group_marker(group_id, producer_id), keys.pending_offsets(group_id, producer_id)
    assert keys.group_and_producer(marker) == keys.group_and_producer(pending) == (group_id, producer_id)
    shard = keys.shard_of(group_id)
    assert marker.startswith(keys.group_markers(shard))
    assert pending.startswith(keys.shard_pending_offsets(shard))
    assert marker != pending


@given(TEXTS, st.uuids(), st.integers(0, 2**31 - 1))
def test_share_partition_reads_back_from_both_keys(group_id: str, topic_id: uuid.UUID, index: int) -> None:
    partition = keys.SharePartitionId(group_id, topic_id, index)
    start, state = keys.share_start(partition), keys.share_state(partition)
    assert keys.share_partition(start) == keys.share_partition(state) == partition
    shard = keys.shard_of(group_id)
    assert start.startswith(keys.group_share_starts(group_id))
    assert keys.group_share_starts(group_id).startswith(keys.shard_share_starts(shard))
    assert state.startswith(keys.group_share_states(group_id))
    assert keys.group_share_states(group_id).startswith(keys.shard_share_states(shard))


@pytest.mark.parametrize(
    "key",
    [
        "share-starts/",
        "share-starts/1/g/00000000-0000-0000-0000-000000000001",
        "share-starts/1/g/00000000-0000-0000-0000-000000000001/0/0",
        "share-starts/99/g/00000000-0000-0000-0000-000000000001/0",
        "share-states/1/g/orders/0",
        "share-states/1/%ff/00000000-0000-0000-0000-000000000001/0",
        "group-offsets/1/g/00000000-0000-0000-0000-000000000001/0",
        keys.share_state(keys.SharePartitionId("g", uuid.UUID(int=1), 5)) + " ",
        keys.share_state(keys.SharePartitionId("g", uuid.UUID(int=1), 5)).replace("/5", "/05"),
    ],
)
def test_key_that_no_broker_writes_is_no_share_partition(key: str) -> None:
    with pytest.raises(ValueError, match=r"share|UUID|decode"):
        keys.share_partition(key)
