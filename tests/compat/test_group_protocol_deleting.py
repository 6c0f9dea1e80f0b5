"""DeleteGroups and OffsetDelete over a raw connection."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_apis import (
    NEVER_COMMITTED,
    Committed,
    commit,
    committed,
    delete_groups,
    delete_offsets,
    list_groups,
)
from tests.support.group_wire import (
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    NONE,
    UNKNOWN_MEMBER_ID,
    RawGroup,
    raw_group,
    subscription,
)
from tests.support.topics import unique_name

UNKNOWN_TOPIC_OR_PARTITION = 3
GROUP_SUBSCRIBED_TO_TOPIC = 86


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


# --- DeleteGroups


@pytest.mark.parametrize("version", range(3))
def test_an_empty_group_is_deleted_with_its_offsets(
    group: RawGroup, new_topic: NewTopic, version: int
) -> None:
    topic = new_topic()
    (member,) = group.stable(1)
    member.commit({(topic, 0): 5})
    assert member.leave() == NONE
    assert delete_groups(group.wire, [group.name], version) == {group.name: NONE}
    assert group.name not in list_groups(group.wire)
    assert group.describe().group_state == "Dead"
    assert committed(group.wire, group.name) == {}
    assert committed(group.wire, group.name, [(topic, 0)]) == {(topic, 0): NEVER_COMMITTED}
    assert delete_groups(group.wire, [group.name], version) == {group.name: GROUP_ID_NOT_FOUND}
    # a group made again under that name begins again
    again = group.member()
    again.enter()
    assert again.generation == 1
    assert committed(group.wire, group.name) == {}


def test_a_group_of_offsets_only_is_deleted(group: RawGroup, new_topic: NewTopic) -> None:
    topic = new_topic()
    commit(group.wire, group.name, {(topic, 0): 5})
    assert delete_groups(group.wire, [group.name]) == {group.name: NONE}
    assert group.name not in list_groups(group.wire)
    assert committed(group.wire, group.name) == {}


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_group_with_members_is_not_deleted(group: RawGroup, new_topic: NewTopic, state: str) -> None:
    topic = new_topic()
    commit(group.wire, group.name, {(topic, 0): 5})
    (member,) = group.joined(1)
    if state != "CompletingRebalance":
        group.sync_together([member])
    if state == "PreparingRebalance":
        group.member().register()
        member.send_join()
    group.await_state(state)
    assert delete_groups(group.wire, [group.name]) == {group.name: NON_EMPTY_GROUP}
    assert group.describe().group_state == state
    assert committed(group.wire, group.name) == {(topic, 0): Committed(offset=5)}


def test_of_several_groups_each_has_its_own_result(group: RawGroup, broker: Peer) -> None:
    group.stable(1)
    with raw_group(broker) as empty:
        (member,) = empty.stable(1)
        assert member.leave() == NONE
        absent = unique_name("absent")
        assert delete_groups(group.wire, [absent, group.name, empty.name]) == {
            absent: GROUP_ID_NOT_FOUND,
            group.name: NON_EMPTY_GROUP,
            empty.name: NONE,
        }
    assert group.describe().group_state == "Stable"
    assert delete_groups(group.wire, []) == {}


def test_a_member_of_a_deleted_group_is_unknown(group: RawGroup) -> None:
    (member,) = group.stable(1)
    member.leave()
    delete_groups(group.wire, [group.name])
    assert member.heartbeat() == UNKNOWN_MEMBER_ID
    assert member.join().error_code == UNKNOWN_MEMBER_ID
    assert group.name not in list_groups(group.wire)


# --- OffsetDelete


def test_named_offsets_of_empty_group_are_deleted(group: RawGroup, new_topic: NewTopic) -> None:
    first, second = new_topic(partitions=3), new_topic()
    offsets = {(first, 0): 1, (first, 1): 2, (second, 0): 3}
    commit(group.wire, group.name, offsets)
    named = [(first, 0), (first, 2), (second, 0)]  # of which one was never committed
    assert delete_offsets(group.wire, group.name, named) == (NONE, dict.fromkeys(named, NONE))
    assert committed(group.wire, group.name) == {(first, 1): Committed(offset=2)}
    assert delete_offsets(group.wire, group.name, named) == (NONE, dict.fromkeys(named, NONE))


def test_partitions_that_do_not_exist_have_no_offsets_to_delete(group: RawGroup, new_topic: NewTopic) -> None:
    topic, absent = new_topic(), unique_name("absent")
    commit(group.wire, group.name, {(topic, 0): 1})
    assert delete_offsets(group.wire, group.name, [(topic, 0), (topic, 1), (absent, 0)]) == (
        NONE,
        {(topic, 0): NONE, (topic, 1): UNKNOWN_TOPIC_OR_PARTITION, (absent, 0): UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert committed(group.wire, group.name) == {}


def test_offsets_of_topics_that_the_members_read_are_not_deleted(
    group: RawGroup, new_topic: NewTopic
) -> None:
    read, also_read, left = new_topic(), new_topic(), new_topic()
    offsets = dict.fromkeys([(read, 0), (also_read, 0), (left, 0)], 5)
    commit(group.wire, group.name, offsets)
    members = [
        group.member(protocols={"range": subscription(read)}),
        group.member(protocols={"range": subscription(also_read, user_data=b"more")}),
    ]
    group.join_together(members)
    group.sync_together(members)
    assert delete_offsets(group.wire, group.name, offsets) == (
        NONE,
        {(read, 0): GROUP_SUBSCRIBED_TO_TOPIC, (also_read, 0): GROUP_SUBSCRIBED_TO_TOPIC, (left, 0): NONE},
    )
    assert committed(group.wire, group.name) == {
        (read, 0): Committed(offset=5),
        (also_read, 0): Committed(offset=5),
    }
    for member in members:
        assert member.leave() == NONE
    assert group.await_state("Empty")
    assert delete_offsets(group.wire, group.name, offsets) == (NONE, dict.fromkeys(offsets, NONE))
    assert committed(group.wire, group.name) == {}


def test_unreadable_subscription_counts_as_every_topic(group: RawGroup, new_topic: NewTopic) -> None:
    topic = new_topic()
    commit(group.wire, group.name, {(topic, 0): 5})
    group.stable(1, protocols={"range": b"\x00"})
    assert delete_offsets(group.wire, group.name, [(topic, 0)]) == (
        NONE,
        {(topic, 0): GROUP_SUBSCRIBED_TO_TOPIC},
    )


def test_non_consumer_offsets_are_deleted_only_when_empty(group: RawGroup, new_topic: NewTopic) -> None:
    topic = new_topic()
    (member,) = group.stable(1, protocol_type="connect")
    member.commit({(topic, 0): 5})
    assert delete_offsets(group.wire, group.name, [(topic, 0)]) == (NON_EMPTY_GROUP, {})
    assert member.leave() == NONE
    assert delete_offsets(group.wire, group.name, [(topic, 0)]) == (NONE, {(topic, 0): NONE})


def test_groups_that_do_not_exist_have_no_offsets_to_delete(group: RawGroup, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert delete_offsets(group.wire, group.name, [(topic, 0)]) == (GROUP_ID_NOT_FOUND, {})
    assert delete_offsets(group.wire, "", [(topic, 0)]) == (INVALID_GROUP_ID, {})
