"""Consumer groups as the Java client forms them: sharing, leaving, being fenced or missed."""

import base64

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.java import JavaError
from tests.support.java_groups import (
    COOPERATIVE_STICKY,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    STRATEGY,
    USER_DATA,
    Committed,
    JavaGroups,
    JavaMember,
    partitions_of,
)
from tests.support.nightly import nightly_but
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

ASSIGNORS = {
    "range": RANGE,
    "roundrobin": ROUND_ROBIN,
    "sticky": STICKY,
    "cooperative-sticky": COOPERATIVE_STICKY,
    "rolling upgrade": f"{COOPERATIVE_STICKY},{RANGE}",
}
SHORT_SESSION = {"session.timeout.ms": 2000}


def generations(*members: JavaMember) -> set[int]:
    return {member.generation() for member in members}


@pytest.mark.parametrize("assignor", nightly_but(ASSIGNORS, "sticky", "rolling upgrade"))
def test_records_are_processed_once_with_changing_members(
    java_groups: JavaGroups, new_topic: NewTopic, assignor: str
) -> None:
    topic, group = new_topic(partitions=6), unique_name("group")
    partitions, config = partitions_of(topic, 6), {STRATEGY: ASSIGNORS[assignor]}
    with java_groups.flow(topic, 6) as sent:
        first = java_groups.member(group, [topic], config=config)
        java_groups.wait_shared([first], partitions)
        others = [java_groups.member(group, [topic], config=config) for _ in range(2)]
        java_groups.wait_shared([first, *others], partitions)
        first.close()  # the leader
        java_groups.wait_shared(others, partitions)
        late = java_groups.member(group, [topic], config=config)
        java_groups.wait_shared([*others, late], partitions)
        java_groups.close(*others)
        java_groups.wait_shared([late], partitions)
    java_groups.wait_processed(sent)
    assert {key: one.offset for key, one in late.committed(*partitions).items()} == {
        key: len(values) for key, values in sent.items()
    }
    assert not [event for member in java_groups.members for event in member.events("lost", "error")]


def test_group_upgrades_to_cooperative_sticky_step_by_step(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=4), unique_name("group")
    partitions = partitions_of(topic, 4)

    def assignor() -> str:
        described = java_groups.admin.describe(group)[group]
        return str(described["assignor"]) if described["state"] == "Stable" else ""

    with java_groups.flow(topic, 4) as sent:
        members = [java_groups.member(group, [topic], config={STRATEGY: RANGE}) for _ in range(2)]
        java_groups.wait_shared(members, partitions)
        chosen = []
        for strategy in (f"{COOPERATIVE_STICKY},{RANGE}", COOPERATIVE_STICKY):
            for index in range(2):
                members[index].close()
                members[index] = java_groups.member(group, [topic], config={STRATEGY: strategy})
                java_groups.wait_shared(members, partitions)
                chosen.append(wait_until(assignor, "the group is stable"))
    java_groups.wait_processed(sent)
    # all that every member can do: what the first of them prefers
    assert chosen == ["range", "cooperative-sticky", "cooperative-sticky", "cooperative-sticky"]


def test_cooperative_members_keep_what_does_not_move(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=4), unique_name("group")
    config = {STRATEGY: COOPERATIVE_STICKY}
    first = java_groups.member(group, [topic], config=config)
    first.wait_owned(partitions_of(topic, 4))
    second = java_groups.member(group, [topic], config=config)
    java_groups.wait_shared([first, second], partitions_of(topic, 4))
    revoked = [event["partitions"] for event in first.events("revoked")]
    assert sorted(tuple(one) for one in revoked[0]) == sorted(second.owned())
    assert len(revoked) == 1
    # one generation to give the partitions up, one to hand them out
    java_groups.wait_shared([first, second], partitions_of(topic, 4))
    wait_until(lambda: first.generation() == second.generation() == 3, "two more generations")


def test_a_member_without_a_common_assignor_is_refused(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(), unique_name("group")
    first = java_groups.member(group, [topic], config={STRATEGY: RANGE})
    first.wait_owned([(topic, 0)])
    other = java_groups.member(group, [topic], config={STRATEGY: ROUND_ROBIN})
    other.wait_error("InconsistentGroupProtocolException")
    assert first.generation() == 1
    assert first.owned() == {(topic, 0)}


def test_members_without_a_partition_wait_for_one(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(), unique_name("group")
    members = [java_groups.member(group, [topic]) for _ in range(3)]
    java_groups.wait_shared(members, [(topic, 0)])
    [owner] = [member for member in members if member.owned()]
    rest = [member for member in members if member is not owner]
    owner.close()
    java_groups.wait_shared(rest, [(topic, 0)])


def test_each_member_gets_partitions_of_what_it_subscribed(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    left, right, group = new_topic(partitions=2), new_topic(partitions=2), unique_name("group")
    first = java_groups.member(group, [left])
    second = java_groups.member(group, [right])
    both = java_groups.member(group, [left, right])
    java_groups.wait_shared([first, both], [*partitions_of(left, 2), (right, 1)])
    second.wait_owned([(right, 0)])
    both.subscribe(right)
    first.wait_owned(partitions_of(left, 2))
    java_groups.wait_shared([second, both], partitions_of(right, 2))


def test_a_pattern_finds_new_topics_and_new_partitions(java_groups: JavaGroups, broker: Peer) -> None:
    prefix, group = unique_name("pattern"), unique_name("group")
    create_topic(broker, f"{prefix}-one", 1)
    config = {"metadata.max.age.ms": 100}
    member = java_groups.member(group, pattern=f"{prefix}-.*", config=config)
    member.wait_owned([(f"{prefix}-one", 0)])
    create_topic(broker, f"{prefix}-two", 1)
    member.wait_owned([(f"{prefix}-one", 0), (f"{prefix}-two", 0)])
    java_groups.admin.grow_topic(f"{prefix}-two", 2)
    member.wait_owned([(f"{prefix}-one", 0), *partitions_of(f"{prefix}-two", 2)])


def test_a_member_that_unsubscribes_leaves_and_comes_back(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    members = [java_groups.member(group, [topic]) for _ in range(2)]
    java_groups.wait_shared(members, partitions_of(topic, 2))
    members[0].unsubscribe()
    java_groups.wait_shared(members[1:], partitions_of(topic, 2))
    members[0].subscribe(topic)
    members[0].resume()
    java_groups.wait_shared(members, partitions_of(topic, 2))


def test_twenty_members_join_in_one_generation(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=20), unique_name("group")

    def all_joined() -> bool:
        return len(java_groups.admin.describe(group)[group]["members"]) == 20

    first = java_groups.member(group, [topic])
    first.wait_owned(partitions_of(topic, 20))
    first.hold()  # the rebalance waits for it
    others = [java_groups.member(group, [topic]) for _ in range(19)]
    wait_until(all_joined, "all others have joined")
    first.resume()
    java_groups.wait_shared([first, *others], partitions_of(topic, 20))
    assert generations(first, *others) == {2}
    java_groups.close(*others)
    first.wait_owned(partitions_of(topic, 20))


def test_members_know_their_group(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(), unique_name("group")
    member = java_groups.member(group, [topic], config={"group.instance.id": "first"})
    member.wait_owned([(topic, 0)])
    metadata = member.group_metadata()
    assert (metadata["group"], metadata["generation"], metadata["instance_id"]) == (group, 1, "first")
    assert metadata["member_id"].startswith("first-")
    dynamic = java_groups.member(group, [topic])
    dynamic.wait(lambda: dynamic.generation() == 2, "is in the second generation")
    assert dynamic.group_metadata()["member_id"].startswith(f"{dynamic.name}-")
    assert dynamic.group_metadata()["instance_id"] is None


def test_enforce_rebalance_makes_a_new_generation(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    members = [java_groups.member(group, [topic]) for _ in range(2)]
    java_groups.wait_shared(members, partitions_of(topic, 2))
    before, ids = generations(*members), [one.group_metadata()["member_id"] for one in members]
    assert len(before) == 1
    members[1].enforce_rebalance()
    wait_until(lambda: generations(*members) == {max(before) + 1}, "one generation more")
    java_groups.wait_shared(members, partitions_of(topic, 2))
    assert [one.group_metadata()["member_id"] for one in members] == ids


# Static membership


def test_a_static_member_restarts_without_a_rebalance(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=4), unique_name("group")

    def start(instance: str) -> JavaMember:
        return java_groups.member(group, [topic], config={"group.instance.id": instance})

    def restart(instance: str, member: JavaMember, other: JavaMember) -> JavaMember:
        owned, seen = member.owned(), len(other.events("assigned", "revoked", "lost"))
        generation = member.generation()
        member.close()
        again = start(instance)
        again.wait_owned(owned)
        assert again.generation() == other.generation() == generation
        assert again.group_metadata()["member_id"] != member.events("assigned")[-1]["member_id"]
        assert java_groups.admin.describe(group)[group]["state"] == "Stable"
        assert len(other.events("assigned", "revoked", "lost")) == seen
        return again

    with java_groups.flow(topic, 4) as sent:
        leader = start("a")
        leader.wait_owned(partitions_of(topic, 4))
        follower = start("b")
        java_groups.wait_shared([leader, follower], partitions_of(topic, 4))
        follower = restart("b", follower, leader)
        leader = restart("a", leader, follower)
        assert leader.owned() | follower.owned() == set(partitions_of(topic, 4))
    java_groups.wait_processed(sent)


def test_a_duplicate_static_member_fences_the_first(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    config = {"group.instance.id": "twin"}
    first = java_groups.member(group, [topic], config=config)
    first.wait_owned(partitions_of(topic, 2))
    second = java_groups.member(group, [topic], config=config)
    first.wait_error("FencedInstanceIdException")
    second.wait_owned(partitions_of(topic, 2))
    with pytest.raises(JavaError) as refused:
        first.commit({(topic, 0): Committed(offset=1)})
    assert refused.value.kind in ("FencedInstanceIdException", "CommitFailedException")
    second.commit({(topic, 0): Committed(offset=2)})
    assert second.committed((topic, 0))[(topic, 0)].offset == 2


def test_a_static_member_may_leave_for_good(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    static = java_groups.member(group, [topic], config={"group.instance.id": "static"})
    other = java_groups.member(group, [topic])
    java_groups.wait_shared([static, other], partitions_of(topic, 2))
    static.close("LEAVE_GROUP")
    other.wait_owned(partitions_of(topic, 2))  # at once: its session would last 20 s


# Members that go silent


def test_unpolling_member_loses_partitions_and_cannot_commit(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    slow = java_groups.member(group, [topic], commit=False, config={"max.poll.interval.ms": 1500})
    other = java_groups.member(group, [topic])
    java_groups.wait_shared([slow, other], partitions_of(topic, 2))
    [mine] = slow.owned()
    java_groups.produce(topic, [(mine[1], "one")])
    slow.wait(lambda: slow.events("records"), "has its record")
    slow.hold()
    other.wait_owned(partitions_of(topic, 2))
    other.wait(lambda: other.committed(mine), "has processed what the other did not commit")
    with pytest.raises(JavaError) as refused:
        slow.commit()
    assert refused.value.kind == "CommitFailedException"
    slow.resume()
    java_groups.wait_shared([slow, other], partitions_of(topic, 2))
    assert [event["partitions"] for event in slow.events("lost")] == [[list(mine)]]
    assert [one.member for one in java_groups.processed()[mine]] == [slow.name, other.name]


def test_a_member_that_vanishes_is_missed_after_its_session(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    gone = java_groups.member(group, [topic], config=SHORT_SESSION)
    java_groups.wait_shared([gone], partitions_of(topic, 2))
    other = java_groups.member(group, [topic])
    java_groups.wait_shared([gone, other], partitions_of(topic, 2))
    generation = other.generation()
    gone.vanish()
    assert len(java_groups.admin.describe(group)[group]["members"]) == 2  # it did not leave
    other.wait_owned(partitions_of(topic, 2))
    assert other.generation() == generation + 1


def test_rebalance_waits_at_most_the_poll_interval(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    held = java_groups.member(group, [topic], config={"max.poll.interval.ms": 2000})
    held.wait_owned(partitions_of(topic, 2))
    held.hold()
    joining = java_groups.member(group, [topic], config={"max.poll.interval.ms": 2000})
    wait_until(
        lambda: java_groups.admin.describe(group)[group]["state"] == "PreparingRebalance", "a rebalance waits"
    )
    joining.wait_owned(partitions_of(topic, 2))
    assert [one["client_id"] for one in java_groups.admin.describe(group)[group]["members"]] == [joining.name]


def test_a_session_timeout_beyond_the_brokers_limits_is_refused(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    config = {"session.timeout.ms": 499}
    member = java_groups.member(unique_name("group"), [new_topic()], config=config)
    member.wait_error("InvalidSessionTimeoutException")


# What passes through the group


@pytest.mark.parametrize("size", [0, 1, 256, 100_000])
def test_user_data_reaches_leader_and_returns_unchanged(
    java_groups: JavaGroups, new_topic: NewTopic, size: int
) -> None:
    topic, group = new_topic(partitions=3), unique_name("group")
    data = {name: bytes((n + shift) % 256 for n in range(size)) for shift, name in enumerate("abc")}
    members = {
        name: java_groups.member(
            group,
            [topic],
            config={STRATEGY: USER_DATA, "test.user.data": base64.b64encode(one).decode()},
        )
        for name, one in data.items()
    }
    java_groups.wait_shared(list(members.values()), partitions_of(topic, 3))
    ids = {name: member.group_metadata()["member_id"] for name, member in members.items()}
    leads = [event for member in members.values() for event in member.events("leads")]
    last = max(leads, key=lambda event: event["number"])
    assert last["user_data"] == {ids[name]: base64.b64encode(one).decode() for name, one in data.items()}
    for name, member in members.items():
        assignment = member.events("assignment")[-1]
        expected = ids[name].encode() + b"\0" + data[name]
        assert base64.b64decode(assignment["user_data"]) == expected
        assert {(topic, number) for topic, number in assignment["partitions"]} == member.owned()


def test_a_member_without_user_data_sends_none(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(), unique_name("group")
    member = java_groups.member(group, [topic], config={STRATEGY: USER_DATA})
    member.wait_owned([(topic, 0)])
    assert member.events("leads")[-1]["user_data"] == {member.group_metadata()["member_id"]: None}


def test_another_member_leads_when_the_leader_leaves(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=3), unique_name("group")
    config = {STRATEGY: USER_DATA}
    first = java_groups.member(group, [topic], config=config)
    java_groups.wait_shared([first], partitions_of(topic, 3))
    others = [java_groups.member(group, [topic], config=config) for _ in range(2)]
    java_groups.wait_shared([first, *others], partitions_of(topic, 3))
    assert not [event for member in others for event in member.events("leads")]
    first.close()
    java_groups.wait_shared(others, partitions_of(topic, 3))
    leads = [len(member.events("leads")) for member in others]
    assert sorted(leads) == [0, 1]
