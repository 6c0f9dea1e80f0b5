"""Consumer groups as administrators see them: lists, descriptions, deletion."""

from tests.support.consumer_group_codec import describe_consumer_groups
from tests.support.consumer_group_members import (
    COMES_BACK,
    FENCED_MEMBER_EPOCH,
    RawConsumerGroup,
    outcome,
    refused,
)
from tests.support.group_apis import commit, committed, delete_groups, describe, list_groups
from tests.support.group_wire import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    NONE,
    UNKNOWN_MEMBER_ID,
    Member,
    leave,
    raw_group,
    unique_instance,
)

# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
EVERY_OPERATION = 0xD48
NOT_ASKED = -(1 << 31)


def test_groups_are_listed_with_their_type(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(2)
    member = group.joined("A", topic)
    wire, name = group.wire, group.name

    def listed(**filters: object) -> tuple[str, str, str] | None:
        row = list_groups(wire, **filters).get(name)  # type: ignore[arg-type]
        return row and (row.group_state, row.group_type, row.protocol_type)

    stable = ("Stable", "consumer", "consumer")
    assert listed() == stable
    assert listed(types=["consumer"]) == listed(types=["Consumer"]) == stable
    assert listed(types=["classic"]) is listed(types=["nonsense"]) is None
    assert listed(states=["Stable"]) == listed(states=["stable"]) == stable
    assert listed(states=["Assigning"]) is None
    assert listed(version=4) == ("Stable", "", "consumer")
    assert listed(version=3) == ("", "", "consumer")
    other = group.joined("B", topic)
    assert listed(states=["reconciling"]) == ("Reconciling", "consumer", "consumer")
    other.leave()
    member.leave()
    assert listed() == listed(states=["Empty"]) == ("Empty", "consumer", "consumer")


def test_description_of_what_is_no_consumer_group(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    with raw_group(group.broker) as classic, raw_group(group.broker) as offsets_only:
        classic.stable(1)
        commit(group.wire, offsets_only.name, {(topic, 0): 1})
        names = [classic.name, offsets_only.name, "absent", ""]
        found = describe_consumer_groups(group.wire, names)
    assert {one.group_id: one.error_code for one in found} == {
        classic.name: GROUP_ID_NOT_FOUND,
        offsets_only.name: GROUP_ID_NOT_FOUND,
        "absent": GROUP_ID_NOT_FOUND,
        "": INVALID_GROUP_ID,
    }
    assert all((one.state, one.group_epoch, one.members) == ("", 0, {}) for one in found)
    assert all(one.error_message for one in found if one.group_id)
    assert describe_consumer_groups(group.wire, []) == []


def test_every_group_that_is_asked_for_is_described(group: RawConsumerGroup) -> None:
    """Kafka repeats a group that is named twice; here it is described once."""
    topic, _ = group.new_topic()
    group.joined("A", topic)
    found = describe_consumer_groups(group.wire, [group.name, "absent", group.name])
    assert {(one.group_id, one.state) for one in found} == {(group.name, "Stable"), ("absent", "")}


def test_description_has_operations_if_asked(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    (asked,) = describe_consumer_groups(group.wire, [group.name], operations=True)
    assert asked.authorized_operations == EVERY_OPERATION
    (old,) = describe_consumer_groups(group.wire, [group.name], version=0)
    assert (old.authorized_operations, old.members[member.id].member_type) == (NOT_ASKED, -1)


def test_classic_description_says_that_it_is_none(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    for _ in range(2):
        (old,) = describe(group.wire, [group.name], 5)
        assert (old.error_code, old.group_state, old.members) == (NONE, "Dead", [])
        (new,) = describe(group.wire, [group.name], 6)
        assert (new.error_code, new.group_state, new.members) == (GROUP_ID_NOT_FOUND, "Dead", [])
        assert "is not a classic group" in new.error_message
        member.leave()


def test_group_with_members_is_not_deleted(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    commit(group.wire, group.name, {(topic, 0): 1}, generation=1, member_id=member.id, version=9)
    assert delete_groups(group.wire, [group.name]) == {group.name: NON_EMPTY_GROUP}
    assert member.heartbeat().error_code == NONE
    member.leave()
    assert delete_groups(group.wire, [group.name]) == {group.name: NONE}
    assert delete_groups(group.wire, [group.name]) == {group.name: GROUP_ID_NOT_FOUND}
    assert group.name not in list_groups(group.wire)
    assert group.describe().error_code == GROUP_ID_NOT_FOUND
    assert committed(group.wire, group.name) == {}
    assert outcome(member.heartbeat(epoch=1)) == refused(GROUP_ID_NOT_FOUND)
    assert group.joined("B", topic).epoch == 1


def test_members_are_removed_by_an_administrator(group: RawConsumerGroup) -> None:
    """kafka-consumer-groups.sh and AdminClient.removeMembersFromConsumerGroup send LeaveGroup."""
    topic, _ = group.new_topic(2)
    instance = unique_instance()
    dynamic, static = group.joined("A", topic), group.joined("B", topic, instance_id=instance)
    leavers = [("stranger", None), (dynamic.id, None), ("stranger", instance), ("", "nobody's")]
    reply = leave(group.wire, group.name, leavers, 5)
    assert reply.error_code == NONE
    assert [one.error_code for one in reply.members] == [
        UNKNOWN_MEMBER_ID,
        NONE,
        FENCED_INSTANCE_ID,
        UNKNOWN_MEMBER_ID,
    ]
    assert outcome(dynamic.heartbeat(epoch=1)) == refused(UNKNOWN_MEMBER_ID)
    static.leave(COMES_BACK)
    assert outcome(static.heartbeat(epoch=1)) == refused(FENCED_MEMBER_EPOCH)
    assert [one.error_code for one in leave(group.wire, group.name, [("", instance)], 5).members] == [NONE]
    assert group.epochs()[0] == "Empty"


def test_classic_requests_know_no_consumer_member(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    for member_id in (member.id, "stranger"):
        classic = Member(wire=group.wire, group=group.name, id=member_id, generation=1, protocol_name="range")
        assert classic.heartbeat() == UNKNOWN_MEMBER_ID
        assert classic.sync({}).error_code == UNKNOWN_MEMBER_ID
    assert member.heartbeat().error_code == NONE
