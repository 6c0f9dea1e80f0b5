"""Consumer groups, seen and changed by Java's AdminClient."""

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.java import JavaError
from tests.support.java_groups import (
    ROUND_ROBIN,
    STRATEGY,
    USER_DATA,
    Committed,
    JavaAdmin,
    JavaGroups,
    Partition,
    partition_set,
    partitions_of,
)
from tests.support.topics import unique_name
from tests.support.waiting import wait_until

SOME_OFFSETS = {0: Committed(offset=3, metadata="three"), 1: Committed(offset=0)}


@pytest.fixture
def admin(java_groups: JavaGroups) -> JavaAdmin:
    return java_groups.admin


def offsets_in(topic: str) -> dict[Partition, Committed]:
    return {(topic, partition): one for partition, one in SOME_OFFSETS.items()}


def group_with_offsets(admin: JavaAdmin, topic: str) -> str:
    """A group without members: the topic's partitions 0 and 1 have `SOME_OFFSETS`."""
    group = unique_name("offsets-only")
    assert admin.alter_offsets(group, offsets_in(topic)) == {(topic, 0): None, (topic, 1): None}
    return group


# Listing


def test_groups_are_listed_with_state_type_and_protocol(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    stable, left = unique_name("stable"), unique_name("left")
    java_groups.member(stable, [topic]).wait_owned(partitions_of(topic, 2))
    member = java_groups.member(left, [topic])
    member.wait_owned(partitions_of(topic, 2))
    member.close()
    simple = group_with_offsets(admin, topic)
    ours = {
        stable: {"state": "Stable", "type": "Classic", "protocol_type": "consumer", "simple": False},
        left: {"state": "Empty", "type": "Classic", "protocol_type": "consumer", "simple": False},
        simple: {"state": "Empty", "type": "Classic", "protocol_type": "", "simple": True},
    }

    def listed(**filters: list[str]) -> dict[str, dict[str, object]]:
        groups, consumer_groups = admin.list_groups(**filters), admin.list_consumer_groups(**filters)
        for group in ours.keys() & consumer_groups.keys():
            expected = {key: value for key, value in ours[group].items() if key != "protocol_type"}
            assert consumer_groups[group] == expected
        assert ours.keys() & consumer_groups.keys() == ours.keys() & groups.keys()
        return {group: found for group, found in groups.items() if group in ours}

    assert listed() == ours
    assert listed(states=["Stable"]) == {stable: ours[stable]}
    assert listed(states=["Empty"]) == {left: ours[left], simple: ours[simple]}
    assert listed(states=["Stable", "Empty"]) == ours
    assert listed(states=["PreparingRebalance", "CompletingRebalance", "Dead"]) == {}
    assert listed(types=["Classic"]) == ours
    assert listed(types=["Consumer"]) == {}
    assert listed(types=["Classic"], states=["Stable"]) == {stable: ours[stable]}


def test_a_rebalance_shows_its_states(java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    leader = java_groups.member(group, [topic], config={STRATEGY: USER_DATA, "test.gate": "closed"})
    leader.wait(lambda: leader.events("leads"), "assigns")

    def show(state: str) -> bool:
        return (
            admin.list_groups(states=[state]).get(group, {}).get("state") == state
            and admin.describe(group)[group]["state"] == state
            and admin.describe_classic(group)[group]["state"] == state
        )

    assert show("CompletingRebalance")
    leader.open_gate()
    leader.wait_owned(partitions_of(topic, 2))
    assert show("Stable")
    leader.hold()
    other = java_groups.member(group, [topic], config={STRATEGY: USER_DATA})
    wait_until(lambda: show("PreparingRebalance"), "the group waits for the member that does not poll")
    leader.resume()
    java_groups.wait_shared([leader, other], partitions_of(topic, 2))
    assert show("Stable")
    java_groups.close(leader, other)
    assert show("Empty")


# Describing


def test_a_group_is_described_with_its_members(
    java_groups: JavaGroups, admin: JavaAdmin, broker: Peer, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=4), unique_name("group")
    config = {STRATEGY: ROUND_ROBIN}
    members = [
        java_groups.member(group, [topic], config=config),
        java_groups.member(group, [topic], config={**config, "group.instance.id": "static"}),
    ]
    java_groups.wait_shared(members, partitions_of(topic, 4))
    described = admin.describe(group)[group]
    classic = admin.describe_classic(group)[group]
    for one in (described, classic):
        assert (one["state"], one["coordinator"]) == ("Stable", broker.bootstrap)
        assert "operations" not in one
        rows = {row["client_id"]: row for row in one["members"]}
        assert rows.keys() == {member.name for member in members}
        for member, instance in zip(members, (None, "static"), strict=True):
            row = rows[member.name]
            assert row["member_id"] == member.group_metadata()["member_id"]
            assert row["host"] == "/127.0.0.1"
            assert row["instance_id"] == instance
            assert partition_set(row["partitions"]) == member.owned()
    assert (described["type"], described["assignor"], described["simple"]) == ("Classic", "roundrobin", False)
    assert (classic["protocol_type"], classic["protocol"]) == ("consumer", "roundrobin")


def test_a_group_without_members_is_described(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    member = java_groups.member(group, [topic])
    member.wait_owned(partitions_of(topic, 2))
    member.close()
    simple = group_with_offsets(admin, topic)
    described = admin.describe(group, simple)
    for one in described.values():
        assert (one["state"], one["members"], one["assignor"]) == ("Empty", [], "")
    assert (described[group]["simple"], described[simple]["simple"]) == (False, True)
    classic = admin.describe_classic(group)[group]
    assert (classic["state"], classic["protocol_type"], classic["members"]) == ("Empty", "consumer", [])


def test_the_operations_that_a_client_may_do_are_returned(admin: JavaAdmin, new_topic: NewTopic) -> None:
    group = group_with_offsets(admin, new_topic(partitions=2))
    for described in (admin.describe(group, operations=True), admin.describe_classic(group, operations=True)):
        assert {"READ", "DESCRIBE", "DELETE"} <= set(described[group]["operations"])


def test_several_groups_and_an_unknown_one_are_described(admin: JavaAdmin, new_topic: NewTopic) -> None:
    topic, unknown = new_topic(partitions=2), unique_name("unknown")
    known = [group_with_offsets(admin, topic) for _ in range(3)]
    for described in (admin.describe(*known, unknown), admin.describe_classic(*known, unknown)):
        assert described.keys() == {*known, unknown}
        assert {described[group]["state"] for group in known} == {"Empty"}
        # v6 of DescribeGroups has an error for it (KIP-1043), older versions a dead group
        found = described[unknown]
        assert found.get("state", found.get("error")) in ("Dead", "GroupIdNotFoundException")


# Offsets


def test_offsets_of_several_groups_are_read_in_one_call(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic, other = new_topic(partitions=3), new_topic()
    first, second, active = group_with_offsets(admin, topic), unique_name("group"), unique_name("group")
    elsewhere = {(other, 0): Committed(offset=9, metadata="nine", leader_epoch=0)}
    assert admin.alter_offsets(second, offsets_in(topic) | elsewhere) == dict.fromkeys(
        [*offsets_in(topic), (other, 0)]
    )
    member = java_groups.member(active, [other])
    member.wait_owned([(other, 0)])
    member.commit({(other, 0): Committed(offset=1, metadata="one")})
    unknown = unique_name("unknown")
    assert admin.offsets({first: None, second: None, active: None, unknown: None}) == {
        first: offsets_in(topic),
        second: offsets_in(topic) | elsewhere,
        active: {(other, 0): Committed(offset=1, metadata="one")},
        unknown: {},
    }
    assert admin.offsets({first: [(topic, 0), (topic, 2)], second: [(other, 0)], unknown: [(topic, 0)]}) == {
        first: {(topic, 0): SOME_OFFSETS[0]},
        second: elsewhere,
        unknown: {},
    }


def test_a_group_goes_on_where_its_offsets_were_altered_to(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic, group = new_topic(), unique_name("group")
    partition = (topic, 0)
    java_groups.produce(topic, [(0, str(number)) for number in range(10)])
    member = java_groups.member(group, [topic])
    member.wait(lambda: len(java_groups.processed().get(partition, [])) == 10, "has all")
    member.close()
    assert admin.offsets({group: None})[group][partition].offset == 10
    assert admin.alter_offsets(group, {partition: Committed(offset=4)}) == {partition: None}
    again = java_groups.member(group, [topic])
    again.wait(lambda: again.events("records"), "has records")
    assert again.events("records")[0]["records"][0] == [topic, 0, 4, "4"]


def test_offsets_of_a_group_with_members_are_not_altered(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic, group = new_topic(), unique_name("group")
    member = java_groups.member(group, [topic])
    member.wait_owned([(topic, 0)])
    altered = admin.alter_offsets(group, {(topic, 0): Committed(offset=4)})
    assert altered == {(topic, 0): "UnknownMemberIdException"}
    assert admin.offsets({group: None})[group] == {}


def test_altering_offsets_returns_each_partitions_error(admin: JavaAdmin, new_topic: NewTopic) -> None:
    topic, absent, group = new_topic(), unique_name("absent"), unique_name("group")
    offsets = {
        (topic, 0): Committed(offset=1),
        (topic, 9): Committed(offset=1),
        (absent, 0): Committed(offset=1),
    }
    assert admin.alter_offsets(group, offsets) == {
        (topic, 0): None,
        (topic, 9): "UnknownTopicOrPartitionException",
        (absent, 0): "UnknownTopicOrPartitionException",
    }
    assert admin.offsets({group: None})[group] == {(topic, 0): Committed(offset=1)}


def test_offsets_are_deleted_unless_their_topic_is_subscribed(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic, unused, group = new_topic(partitions=2), new_topic(), unique_name("group")
    offsets = {
        (topic, 0): Committed(offset=1),
        (topic, 1): Committed(offset=2),
        (unused, 0): Committed(offset=3),
    }
    admin.alter_offsets(group, offsets)
    member = java_groups.member(group, [topic])
    member.wait_owned(partitions_of(topic, 2))
    assert admin.delete_offsets(group, (topic, 0), (unused, 0)) == {
        (topic, 0): "GroupSubscribedToTopicException",
        (unused, 0): None,
    }
    assert admin.offsets({group: None})[group].keys() == {(topic, 0), (topic, 1)}
    member.close()
    assert admin.delete_offsets(group, (topic, 0)) == {(topic, 0): None}
    assert admin.offsets({group: None})[group] == {(topic, 1): Committed(offset=2)}


def test_deleting_offsets_names_what_it_does_not_know(admin: JavaAdmin, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    group, absent = group_with_offsets(admin, topic), unique_name("absent")
    assert admin.delete_offsets(group, (topic, 2), (absent, 0)) == {
        (topic, 2): None,  # nothing was committed there
        (absent, 0): "UnknownTopicOrPartitionException",
    }
    assert admin.offsets({group: None})[group] == offsets_in(topic)
    outcome = admin.delete_offsets(unique_name("unknown"), (topic, 0))
    assert outcome == {(topic, 0): "GroupIdNotFoundException"}


# Deleting groups, removing members


def test_groups_without_members_are_deleted_with_their_offsets(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    partitions = partitions_of(topic, 2)
    used, simple, unknown = unique_name("used"), group_with_offsets(admin, topic), unique_name("unknown")
    member = java_groups.member(used, [topic])
    member.wait_owned(partitions)
    member.commit(offsets_in(topic))
    assert admin.delete_groups(used, simple, unknown) == {
        used: "GroupNotEmptyException",
        simple: None,
        unknown: "GroupIdNotFoundException",
    }
    assert admin.offsets({used: None, simple: None}) == {used: offsets_in(topic), simple: {}}
    member.close()
    assert admin.delete_groups(used, simple) == {used: None, simple: "GroupIdNotFoundException"}
    assert not {used, simple} & admin.list_groups().keys()
    again = java_groups.member(used, [topic])
    again.wait_owned(partitions)
    assert again.committed(*partitions) == {}
    assert again.generation() == 1


def test_members_are_removed_by_their_instance_ids(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=3), unique_name("group")
    partitions = partitions_of(topic, 3)
    removed, dynamic, stays = (
        java_groups.member(group, [topic], config={} if instance is None else {"group.instance.id": instance})
        for instance in ("removed", None, "stays")
    )
    java_groups.wait_shared([removed, dynamic, stays], partitions)
    with pytest.raises(JavaError) as unknown:
        admin.remove_members(group, "nobody")
    assert unknown.value.kind == "UnknownMemberIdException"
    removed.close()  # a static member: it stays in the group
    admin.remove_members(group, "removed")
    java_groups.wait_shared([dynamic, stays], partitions)
    described = admin.describe(group)[group]["members"]
    assert {one["client_id"] for one in described} == {dynamic.name, stays.name}


def test_all_members_of_a_group_are_removed_and_join_again(
    java_groups: JavaGroups, admin: JavaAdmin, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    away, dynamic = (
        java_groups.member(group, [topic], config=config) for config in ({"group.instance.id": "away"}, {})
    )
    java_groups.wait_shared([away, dynamic], partitions_of(topic, 2))
    away.close()
    [before] = [event["member_id"] for event in dynamic.events("assigned")[-1:]]
    admin.remove_members(group)
    # It hears of it by its next heartbeat, and joins as a new member.
    dynamic.wait_owned(partitions_of(topic, 2))
    assert dynamic.events("assigned")[-1]["member_id"] != before
    assert dynamic.events("lost")
    assert [one["client_id"] for one in admin.describe(group)[group]["members"]] == [dynamic.name]
