"""OffsetCommit and OffsetFetch over a raw connection: who may commit, what is refused, what comes back."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetFetchResponse

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_apis import (
    NEVER_COMMITTED,
    Committed,
    commit,
    committed,
    delete_groups,
    fetch_offsets_request,
    list_groups,
    offsets_in,
)
from tests.support.group_wire import (
    ILLEGAL_GENERATION,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    RawGroup,
    raw_group,
)
from tests.support.topics import create_topic, delete_topic, unique_name
from tests.support.waiting import wait_until

UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
METADATA_LIMIT = 4096  # Kafka's default


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    """Three partitions."""
    return new_topic(partitions=3)


# --- who may commit


def test_a_group_without_members_takes_commits_of_any_client(group: RawGroup, topic: str) -> None:
    """So commit consumers that assign their partitions themselves, and `--reset-offsets`."""
    assert commit(group.wire, group.name, {(topic, 0): 5}) == {(topic, 0): NONE}
    assert committed(group.wire, group.name) == {(topic, 0): Committed(offset=5)}
    row = list_groups(group.wire)[group.name]
    assert (row.protocol_type, row.group_state) == ("", "Empty")
    # also when they say who they are, as long as they name no generation
    assert commit(group.wire, group.name, {(topic, 0): 6}, member_id="somebody") == {(topic, 0): NONE}
    assert committed(group.wire, group.name) == {(topic, 0): Committed(offset=6)}


def test_a_group_that_does_not_exist_has_no_generation(group: RawGroup, topic: str) -> None:
    for generation in (0, 1, 2**31 - 1):
        for member_id in ("", "somebody"):
            result = commit(
                group.wire, group.name, {(topic, 0): 5}, generation=generation, member_id=member_id
            )
            assert result == {(topic, 0): ILLEGAL_GENERATION}
    assert group.name not in list_groups(group.wire)


def test_a_group_with_members_takes_only_their_commits(group: RawGroup, topic: str) -> None:
    (member,) = group.stable(1)
    partition = (topic, 0)
    assert commit(group.wire, group.name, {partition: 5}) == {partition: UNKNOWN_MEMBER_ID}
    assert commit(group.wire, group.name, {partition: 5}, member_id="invented") == {
        partition: UNKNOWN_MEMBER_ID
    }
    assert commit(group.wire, group.name, {partition: 5}, generation=1) == {partition: UNKNOWN_MEMBER_ID}
    pending = group.member()
    pending.register()
    assert pending.commit({partition: 5}) == {partition: UNKNOWN_MEMBER_ID}
    assert committed(group.wire, group.name) == {}
    assert member.commit({partition: 7}) == {partition: NONE}
    assert committed(group.wire, group.name) == {partition: Committed(offset=7)}


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_commit_of_another_generation_is_refused(group: RawGroup, topic: str, difference: int) -> None:
    leader, other = group.stable(2)
    stale = {"generation": leader.generation + difference}
    assert other.commit({(topic, 0): 5, (topic, 2): 6}, **stale) == {
        (topic, 0): ILLEGAL_GENERATION,
        (topic, 2): ILLEGAL_GENERATION,
    }
    assert other.commit({(topic, 0): 5}, generation=-1) == {(topic, 0): ILLEGAL_GENERATION}
    assert committed(group.wire, group.name) == {}


def test_members_commit_in_preparing_but_not_completing_state(group: RawGroup, topic: str) -> None:
    leader, other = group.stable(2)
    leader.send_join()
    group.await_state("PreparingRebalance")
    assert other.commit({(topic, 0): 5}) == {(topic, 0): NONE}
    other.send_join()
    group.all_joined([leader, other])
    assert other.commit({(topic, 0): 6}) == {(topic, 0): REBALANCE_IN_PROGRESS}
    assert other.commit({(topic, 0): 6}, generation=other.generation - 1) == {(topic, 0): ILLEGAL_GENERATION}
    assert committed(group.wire, group.name) == {(topic, 0): Committed(offset=5)}
    group.sync_together([leader, other])
    assert other.commit({(topic, 0): 7}) == {(topic, 0): NONE}


def test_offsets_outlive_the_members_that_committed_them(group: RawGroup, topic: str) -> None:
    (member,) = group.stable(1)
    assert member.commit({(topic, 1): 7}) == {(topic, 1): NONE}
    assert member.leave() == NONE
    assert member.commit({(topic, 1): 8}) == {(topic, 1): UNKNOWN_MEMBER_ID}
    assert committed(group.wire, group.name) == {(topic, 1): Committed(offset=7)}
    # now that nobody is there, anybody may commit
    assert commit(group.wire, group.name, {(topic, 1): 3}) == {(topic, 1): NONE}
    group.stable(1)
    assert committed(group.wire, group.name) == {(topic, 1): Committed(offset=3)}


def test_the_group_without_a_name_keeps_offsets(broker: Peer, group: RawGroup, topic: str) -> None:
    """Old clients that assign partitions and name no group commit to it; it cannot have members."""
    assert commit(group.wire, "", {(topic, 0): 5}) == {(topic, 0): NONE}
    assert committed(group.wire, "", [(topic, 0)]) == {(topic, 0): Committed(offset=5)}
    assert delete_groups(group.wire, [""]) == {"": NONE}


# --- what is committed


def test_commit_replaces_earlier_one_even_with_lower_offset(group: RawGroup, topic: str) -> None:
    for offset in (5, 900, 0, 2**63 - 1, 1):
        assert commit(group.wire, group.name, {(topic, 0): offset}) == {(topic, 0): NONE}
        assert committed(group.wire, group.name) == {(topic, 0): Committed(offset=offset)}


def test_an_offset_comes_back_with_its_leader_epoch_and_metadata(group: RawGroup, topic: str) -> None:
    offsets = {
        (topic, 0): Committed(offset=1, leader_epoch=0, metadata="plain"),
        (topic, 1): Committed(offset=2, leader_epoch=2**31 - 1, metadata="äöü 你好 \U0001f980 \x00"),
        (topic, 2): Committed(offset=3, leader_epoch=-1, metadata=""),
    }
    assert set(commit(group.wire, group.name, offsets).values()) == {NONE}
    assert committed(group.wire, group.name) == offsets
    # a new commit replaces all of it
    assert commit(group.wire, group.name, {(topic, 0): 9}) == {(topic, 0): NONE}
    assert committed(group.wire, group.name, [(topic, 0)]) == {(topic, 0): Committed(offset=9)}


def test_no_metadata_is_empty_metadata(group: RawGroup, topic: str) -> None:
    offsets = {(topic, 0): Committed(offset=1, metadata=None)}
    assert commit(group.wire, group.name, offsets) == {(topic, 0): NONE}
    assert committed(group.wire, group.name) == {(topic, 0): Committed(offset=1, metadata="")}


def test_oversized_metadata_is_refused_for_its_partition(group: RawGroup, topic: str) -> None:
    """The limit counts characters, whatever the setting is called."""
    offsets = {
        (topic, 0): Committed(offset=1, metadata="x" * METADATA_LIMIT),
        (topic, 1): Committed(offset=2, metadata="x" * (METADATA_LIMIT + 1)),
        (topic, 2): Committed(offset=3, metadata="ä" * METADATA_LIMIT),
    }
    assert commit(group.wire, group.name, offsets) == {
        (topic, 0): NONE,
        (topic, 1): OFFSET_METADATA_TOO_LARGE,
        (topic, 2): NONE,
    }
    assert committed(group.wire, group.name) == {key: offsets[key] for key in [(topic, 0), (topic, 2)]}


def test_unknown_partitions_are_refused_and_others_stored(group: RawGroup, topic: str) -> None:
    absent = unique_name("absent")
    offsets = {(topic, 0): 1, (topic, 3): 2, (topic, -1): 3, (absent, 0): 4, (topic, 2): 5}
    assert commit(group.wire, group.name, offsets) == {
        (topic, 0): NONE,
        (topic, 3): UNKNOWN_TOPIC_OR_PARTITION,
        (topic, -1): UNKNOWN_TOPIC_OR_PARTITION,
        (absent, 0): UNKNOWN_TOPIC_OR_PARTITION,
        (topic, 2): NONE,
    }
    assert committed(group.wire, group.name) == {
        (topic, 0): Committed(offset=1),
        (topic, 2): Committed(offset=5),
    }


def test_a_commit_of_nothing_is_answered_with_nothing(group: RawGroup) -> None:
    assert commit(group.wire, group.name, {}) == {}


def test_many_partitions_of_many_topics_are_committed_at_once(group: RawGroup, new_topic: NewTopic) -> None:
    topics = [new_topic(partitions=10) for _ in range(3)]
    offsets = {(name, index): Committed(offset=index) for name in topics for index in range(10)}
    assert commit(group.wire, group.name, offsets) == dict.fromkeys(offsets, NONE)
    assert committed(group.wire, group.name) == offsets


# --- what is fetched


def test_what_was_never_committed_is_minus_one_and_no_error(group: RawGroup, topic: str) -> None:
    wanted = [(topic, 0), (topic, 99), (unique_name("absent"), 0)]
    # of a group that does not exist, of which the question makes none
    assert committed(group.wire, group.name, wanted) == dict.fromkeys(wanted, NEVER_COMMITTED)
    assert group.name not in list_groups(group.wire)
    # and of one that does
    commit(group.wire, group.name, {(topic, 1): 5})
    assert committed(group.wire, group.name, wanted) == dict.fromkeys(wanted, NEVER_COMMITTED)


@pytest.mark.parametrize("version", range(2, 9))
def test_no_topics_is_none_and_null_topics_are_all(group: RawGroup, topic: str, version: int) -> None:
    assert committed(group.wire, group.name, None, version) == {}
    offsets = {(topic, index): Committed(offset=index) for index in range(2)}
    commit(group.wire, group.name, offsets)
    assert committed(group.wire, group.name, None, version) == offsets
    assert committed(group.wire, group.name, [], version) == {}


def test_version_8_fetches_for_several_groups(group: RawGroup, broker: Peer, topic: str) -> None:
    with raw_group(broker) as other:
        commit(group.wire, group.name, {(topic, 0): 1, (topic, 1): 2})
        commit(group.wire, other.name, {(topic, 0): 3})
        absent = unique_name("absent")
        wanted = {group.name: None, other.name: [(topic, 0), (topic, 1)], absent: [(topic, 0)]}
        reply = group.wire.call(fetch_offsets_request(wanted, 8), OffsetFetchResponse, 8)
        found: dict[str, Any] = {one.group_id: (one.error_code, offsets_in(one, 8)) for one in reply.groups}
        assert found == {
            group.name: (NONE, {(topic, 0): Committed(offset=1), (topic, 1): Committed(offset=2)}),
            other.name: (NONE, {(topic, 0): Committed(offset=3), (topic, 1): NEVER_COMMITTED}),
            absent: (NONE, {(topic, 0): NEVER_COMMITTED}),
        }


@pytest.mark.parametrize("version", [7, 8])
def test_without_transactions_every_offset_is_stable(group: RawGroup, topic: str, version: int) -> None:
    commit(group.wire, group.name, {(topic, 0): 5})
    found = committed(group.wire, group.name, [(topic, 0)], version, require_stable=True)
    assert found == {(topic, 0): Committed(offset=5)}


# --- topics that go


def test_recreated_topic_has_no_offsets_of_the_old_one(broker: Peer, group: RawGroup) -> None:
    name, other = unique_name(), unique_name()
    create_topic(broker, name)
    create_topic(broker, other)
    commit(group.wire, group.name, {(name, 0): 5, (other, 0): 6})
    delete_topic(broker, name)
    wait_until(lambda: (name, 0) not in committed(group.wire, group.name), "the topic's offset is gone")
    create_topic(broker, name)
    assert committed(group.wire, group.name, [(name, 0)]) == {(name, 0): NEVER_COMMITTED}
    assert committed(group.wire, group.name) == {(other, 0): Committed(offset=6)}
    assert commit(group.wire, group.name, {(name, 0): 1}) == {(name, 0): NONE}
    assert committed(group.wire, group.name, [(name, 0)]) == {(name, 0): Committed(offset=1)}
