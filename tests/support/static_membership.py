"""Static membership (KIP-345, KIP-814): its rules as scenarios, each with its steps and the answers they get.

A scenario runs on the group machine (tests/groups/test_static_members.py) and over raw sockets, against Kafscale
or Apache Kafka (tests/compat/test_group_protocol_static.py). In a raw group every record is durable at once; what
happens before that is asserted of the machine alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.support.group_wire import (
    FENCED_INSTANCE_ID,
    INCONSISTENT_GROUP_PROTOCOL,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    RawGroup,
    leave,
    subscription,
    unique_instance,
)

Scenario = Callable[[RawGroup], None]
SCENARIOS: dict[str, Scenario] = {}
"""By the rule that each asserts."""

SHORT_MS = 1_500  # long enough for what is done within it, short enough to be waited for


def scenario(play: Scenario) -> Scenario:
    """Add it to the table."""
    SCENARIOS[play.__name__] = play
    return play


def static_members(
    group: RawGroup, count: int, *, follower_session_ms: int = 60_000, **options: Any
) -> list[Member]:
    """Static members in Stable, the leader first; each is assigned its first id, as bytes."""
    members = [group.member(instance=unique_instance(), **options) for _ in range(count)]
    for follower in members[1:]:
        follower.session_timeout_ms = follower_session_ms
    group.join_together(members)
    group.sync_together(members)
    return members


def successor(group: RawGroup, member: Member, **options: Any) -> Member:
    """The same instance after a restart: it does not know its member id."""
    options.setdefault("protocols", member.protocols)
    return group.member(instance=member.instance, **options)


# --- returning to a Stable group


@scenario
def returning_follower_gets_assignment_without_rebalance(group: RawGroup) -> None:
    leader, follower = static_members(group, 2)
    ids = {leader.id, follower.id}
    for version in range(5, 10):
        again = successor(group, follower)
        reply = again.join(version)
        assert (reply.error_code, reply.generation_id) == (NONE, leader.generation)
        assert (reply.leader, list(reply.members)) == (leader.id, [])
        assert (reply.protocol_name, reply.skip_assignment) == ("range", False)
        assert reply.member_id not in ids
        ids.add(again.id)
        assert bytes(again.sync().assignment) == follower.id.encode()
        assert [leader.heartbeat(), again.heartbeat()] == [NONE, NONE]
    described = group.describe()
    assert described.group_state == "Stable"
    assert {(one.group_instance_id, one.member_id) for one in described.members} == {
        (leader.instance, leader.id),
        (again.instance, again.id),
    }


@scenario
def returning_leader_gets_former_leader_and_assigns_nothing(group: RawGroup) -> None:
    """Below version 9 there is no flag to skip the assignment, so it must not take itself for the leader."""
    leader, follower = static_members(group, 2)
    again = successor(group, leader)
    reply = again.join()
    assert (reply.error_code, reply.generation_id) == (NONE, leader.generation)
    assert (reply.leader, list(reply.members)) == (leader.id, [])
    assert bytes(again.sync().assignment) == leader.id.encode()
    # It leads nevertheless: a follower receives its id, and so do all in the next generation.
    assert follower.join().leader == again.id
    again.send_join()
    group.await_state("PreparingRebalance")
    follower.send_join()
    replies = group.all_joined([again, follower])
    assert replies[again.id].leader == again.id
    assert {one.member_id for one in replies[again.id].members} == {again.id, follower.id}


@scenario
def returning_leader_skips_assignment_from_v9_on(group: RawGroup) -> None:
    leader, follower = static_members(group, 2)
    again = successor(group, leader)
    reply = again.join(9)
    assert (reply.error_code, reply.generation_id, reply.skip_assignment) == (NONE, leader.generation, True)
    assert reply.leader == reply.member_id
    assert {one.member_id for one in reply.members} == {again.id, follower.id}
    assert bytes(again.sync().assignment) == leader.id.encode()
    assert follower.heartbeat() == NONE


@scenario
def return_with_new_metadata_needs_no_rebalance(group: RawGroup) -> None:
    leader, follower = static_members(group, 2)
    again = successor(group, follower, protocols={"range": subscription("other", user_data=b"new")})
    assert again.enter().generation_id == follower.generation
    assert again.join().generation_id == follower.generation  # now that it knows its id, as any other member
    assert leader.heartbeat() == NONE
    # the leader learns of it with the next generation
    leader.send_join()
    group.await_state("PreparingRebalance")
    again.send_join()
    told = group.all_joined([leader, again])[leader.id].members
    assert {(one.member_id, one.group_instance_id, bytes(one.metadata)) for one in told} == {
        (member.id, member.instance, member.protocols["range"]) for member in (leader, again)
    }


@scenario
def return_without_selected_protocol_rebalances(group: RawGroup) -> None:
    leader, follower = static_members(group, 2, protocols={"range": b"r", "sticky": b"s"})
    assert leader.protocol_name == "range"
    again = successor(group, follower, protocols={"sticky": b"s"})
    again.start_join()
    group.until(lambda: leader.heartbeat() == REBALANCE_IN_PROGRESS, "the rebalance")
    leader.send_join()
    replies = group.all_joined([leader, again])
    assert {reply.protocol_name for reply in replies.values()} == {"sticky"}


@scenario
def return_that_changes_the_vote_rebalances(group: RawGroup) -> None:
    (member,) = static_members(group, 1, protocols={"range": b"r", "sticky": b"s"})
    reply = successor(group, member, protocols={"sticky": b"s", "range": b"r"}).enter()
    assert (reply.generation_id, reply.protocol_name) == (member.generation + 1, "sticky")


@scenario
def return_without_common_protocol_is_refused_unfenced(group: RawGroup) -> None:
    leader, follower = static_members(group, 2)
    again = successor(group, follower, protocols={"sticky": b""})
    assert again.join().error_code == INCONSISTENT_GROUP_PROTOCOL
    assert [leader.heartbeat(), follower.heartbeat()] == [NONE, NONE]


@scenario
def returned_member_has_a_session_of_its_own(group: RawGroup) -> None:
    """The former self's session ends without effect. Its length remains until the first heartbeat."""
    leader, former = static_members(group, 2, follower_session_ms=SHORT_MS)
    again = successor(group, former, session_timeout_ms=60_000)
    again.enter()
    assert again.heartbeat() == NONE
    group.elapse(SHORT_MS)
    assert [leader.heartbeat(), again.heartbeat()] == [NONE, NONE]


# --- two with one instance id


@scenario
def former_self_is_fenced_from_everything(group: RawGroup) -> None:
    partition = (group.new_topic(), 0)
    _, former = static_members(group, 2)
    again = successor(group, former)
    again.enter()
    assert former.heartbeat() == FENCED_INSTANCE_ID
    assert former.sync().error_code == FENCED_INSTANCE_ID
    assert former.leave() == FENCED_INSTANCE_ID
    assert former.commit({partition: 5}) == {partition: FENCED_INSTANCE_ID}
    refused = former.join()
    assert (refused.error_code, refused.member_id) == (FENCED_INSTANCE_ID, former.id)
    # without its instance id it is merely unknown
    former.instance = None
    assert former.heartbeat() == UNKNOWN_MEMBER_ID
    assert again.commit({partition: 7}) == {partition: NONE}
    assert again.heartbeat() == NONE


@scenario
def former_self_waiting_in_join_is_fenced_at_once(group: RawGroup) -> None:
    leader, former = static_members(group, 2)
    leader.send_join()
    group.await_state("PreparingRebalance")
    third = group.member()
    third.register()  # so that the generation does not begin
    former.send_join()
    again = successor(group, former)
    again.send_join()
    refused = former.receive_join()
    assert (refused.error_code, refused.member_id) == (FENCED_INSTANCE_ID, former.id)
    assert list(refused.members) == []
    assert not again.has_reply()
    third.send_join()
    told = group.all_joined([leader, again, third])[leader.id].members
    assert {one.member_id for one in told} == {leader.id, again.id, third.id}


@scenario
def former_self_waiting_in_sync_is_fenced_and_all_rejoin(group: RawGroup) -> None:
    leader, former, waiting = members = [group.member(instance=unique_instance()) for _ in range(3)]
    group.join_together(members)
    former.send_sync()
    waiting.send_sync()
    again = successor(group, former)
    again.send_join()
    assert former.receive_sync().error_code == FENCED_INSTANCE_ID
    assert waiting.receive_sync().error_code == REBALANCE_IN_PROGRESS
    assert leader.heartbeat() == REBALANCE_IN_PROGRESS
    leader.send_join()
    waiting.send_join()
    told = group.all_joined([leader, waiting, again])[leader.id].members
    assert {one.member_id for one in told} == {leader.id, waiting.id, again.id}


@scenario
def instance_with_an_id_that_is_not_its_own_is_fenced(group: RawGroup) -> None:
    first, second = static_members(group, 2)
    partition = (group.new_topic(), 0)
    wrong = group.member(instance=first.instance, id=second.id, generation=second.generation)
    assert wrong.join().error_code == FENCED_INSTANCE_ID
    assert wrong.heartbeat() == FENCED_INSTANCE_ID
    assert wrong.commit({partition: 1}) == {partition: FENCED_INSTANCE_ID}
    assert wrong.leave() == FENCED_INSTANCE_ID
    stranger = group.member(instance=unique_instance(), id=second.id, generation=second.generation)
    assert stranger.join().error_code == UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == UNKNOWN_MEMBER_ID
    assert [first.heartbeat(), second.heartbeat()] == [NONE, NONE]


@scenario
def sync_with_the_wrong_instance_is_refused(group: RawGroup) -> None:
    (static,) = group.joined(1, instance=unique_instance())
    assert static.sync(group_instance_id="never heard of").error_code == UNKNOWN_MEMBER_ID
    assert static.sync(member_id="somebody else").error_code == FENCED_INSTANCE_ID
    assert static.sync(group_instance_id=None).error_code == NONE  # the member id is enough


# --- joining and leaving


@scenario
def return_may_be_the_last_join_of_a_rebalance(group: RawGroup) -> None:
    leader, former = static_members(group, 2)
    leader.send_join()
    group.await_state("PreparingRebalance")
    again = successor(group, former)
    again.send_join()
    told = group.all_joined([leader, again])[leader.id]
    assert told.generation_id == former.generation + 1
    assert {one.member_id for one in told.members} == {leader.id, again.id}


@scenario
def static_member_is_removed_by_its_instance_id_alone(group: RawGroup) -> None:
    """As an administrator does it (kafka-consumer-groups, removeMembersFromConsumerGroup)."""
    staying, removed = static_members(group, 2)
    reply = leave(group.wire, group.name, [("", removed.instance)])
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members] == [
        ("", removed.instance, NONE)
    ]
    assert removed.heartbeat() == UNKNOWN_MEMBER_ID
    assert [one.member_id for one in staying.enter().members] == [staying.id]
    again = successor(group, removed)  # its instance is not known any more
    again.start_join()
    group.until(lambda: staying.heartbeat() == REBALANCE_IN_PROGRESS, "the rebalance")
    staying.send_join()
    group.all_joined([staying, again])


def several_members_leave_at_once_each_with_its_own_result(group: RawGroup, version: int) -> None:
    instances = [unique_instance() for _ in range(3)]
    members = [group.member(), *(group.member(instance=one) for one in instances), group.member()]
    group.join_together(members)
    group.sync_together(members)
    dynamic, by_instance, by_both, fenced, staying = members
    pending = group.member()
    pending.register()
    expected = [
        (dynamic.id, None, NONE),
        ("", by_instance.instance, NONE),
        (by_both.id, by_both.instance, NONE),
        (dynamic.id, fenced.instance, FENCED_INSTANCE_ID),
        (pending.id, None, NONE),
        ("invented", None, UNKNOWN_MEMBER_ID),
        ("", unique_instance(), UNKNOWN_MEMBER_ID),
        (staying.id, "never heard of", UNKNOWN_MEMBER_ID),
        (dynamic.id, None, UNKNOWN_MEMBER_ID),
    ]
    reply = leave(group.wire, group.name, [(member, instance) for member, instance, _ in expected], version)
    assert reply.error_code == NONE
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members] == expected
    assert {one.member_id for one in group.describe().members} == {fenced.id, staying.id}
    fenced.send_join()
    staying.send_join()
    group.all_joined([fenced, staying])


for _version in (3, 4, 5):
    SCENARIOS[f"several_members_leave_at_once_v{_version}"] = partial(
        several_members_leave_at_once_each_with_its_own_result, version=_version
    )


# --- timeouts


@scenario
def static_members_that_do_not_rejoin_in_time_stay(group: RawGroup) -> None:
    """They may be restarting: only their sessions end their membership. Another one leads if the leader is absent."""
    leader, late, prompt = static_members(group, 3, rebalance_timeout_ms=SHORT_MS)
    prompt.protocols = {"range": subscription("other")}
    prompt.send_join()
    group.until(prompt.has_reply, "the generation without the absent", after_ms=SHORT_MS)
    told = prompt.joined()
    assert prompt.leads
    assert {one.group_instance_id for one in told.members} == {
        leader.instance, late.instance, prompt.instance,
    }  # fmt: skip
    assert prompt.sync({leader.id: b"still yours", late.id: b"yours, too"}).error_code == NONE
    returned = [successor(group, late), successor(group, leader)]
    for again in returned:
        again.send_join()
    for again, assignment in zip(returned, (b"yours, too", b"still yours"), strict=True):
        assert again.joined().generation_id == prompt.generation
        assert bytes(again.sync().assignment) == assignment


@scenario
def silent_static_member_is_removed_after_its_session(group: RawGroup) -> None:
    """Though its former self, which is fenced, still sends heartbeats."""
    leader, former = static_members(group, 2, follower_session_ms=SHORT_MS)
    silent = successor(group, former, session_timeout_ms=SHORT_MS)
    silent.enter()

    def is_missed() -> bool:
        assert former.heartbeat() in (FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID)
        return leader.heartbeat() == REBALANCE_IN_PROGRESS

    group.until(is_missed, "the silent one is missed", after_ms=SHORT_MS)
    assert silent.heartbeat() == former.heartbeat() == UNKNOWN_MEMBER_ID
    assert [one.member_id for one in leader.enter().members] == [leader.id]
