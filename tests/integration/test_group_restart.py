"""A group's coordinator stops, or is killed, in each state of the group: nothing committed or agreed is lost.

KAFSCALE_TEST_PEER=kafka runs the same on Apache Kafka.
"""

import contextlib
import select
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer import LeaveGroupRequest, LeaveGroupResponse

from tests.compat.tools import java_missing
from tests.support import wire
from tests.support.group_apis import Committed, commit, committed, describe
from tests.support.group_autopilot import Autopilot, Phase, assignment_for, fly
from tests.support.group_chaos import MemberProcess, Scenario
from tests.support.group_journal import Assigned, Event, Processed, Revoked
from tests.support.group_member_process import CLIENTS
from tests.support.group_peer import Peer, group_peer, peer_kind
from tests.support.group_wire import (
    ILLEGAL_GENERATION,
    LEAVE_VERSION,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    RawGroup,
    await_coordinator,
    raw_group,
    unique_instance,
)
from tests.support.nightly import nightly_but
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

Restart = Callable[[], None]

# Long enough to come back in: Kafka has its groups again long before it takes connections after a kill -9.
SHORT_SESSION_MS = 3000 if peer_kind() == "kafscale" else 15_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """One broker that the tests of this file restart."""
    settings = {"group_initial_rebalance_delay_ms": 50, "group_min_session_timeout_ms": 500}
    with group_peer(tmp_path_factory.mktemp("broker"), **settings) as peer:
        yield peer


@pytest.fixture(params=["SIGTERM", "SIGKILL"])
def restart(broker: Peer, request: pytest.FixtureRequest) -> Restart:
    """Restarts the broker in one of the two ways."""
    end: Callable[[], Any] = broker.stop if request.param == "SIGTERM" else broker.kill9

    def end_and_start() -> None:
        end()
        broker.start()

    return end_and_start


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


@pytest.fixture
def topic(broker: Peer) -> str:
    name = unique_name()
    create_topic(broker, name, 3)
    return name


def come_back(group: RawGroup, members: Sequence[Member] = ()) -> None:
    """New connections after a restart, once the coordinator answers."""
    group.wire = group.connection()
    await_coordinator(group.wire, group.name)
    for member in members:
        member.wire = group.connection()


def stable(group: RawGroup, count: int, **options: Any) -> list[Member]:
    """A stable group whose members know each other's place: the assignments are those of autopilots."""
    members = group.joined(count, **options)
    leader = members[0]
    plan = {one.id: assignment_for(one.generation, leader.id, one.id) for one in members}
    assert leader.sync(plan).error_code == NONE
    for member in members[1:]:
        assert bytes(member.sync().assignment) == plan[member.id]
    return members


def offsets_of(group: RawGroup, topic: str) -> dict[int, int]:
    """Partition -> committed offset."""
    found = committed(group.wire, group.name, [(topic, index) for index in range(3)])
    return {index: one.offset for (_, index), one in found.items()}


def picture(group: RawGroup) -> tuple[Any, ...]:
    """All that DescribeGroups says."""
    one = group.describe()
    members = {
        member.member_id: (
            member.group_instance_id,
            member.client_id,
            member.client_host,
            bytes(member.member_metadata),
            bytes(member.member_assignment),
        )
        for member in one.members
    }
    return one.error_code, one.group_state, one.protocol_type, one.protocol_data, members


def test_an_empty_group_keeps_its_offsets_and_its_generation(
    group: RawGroup, topic: str, restart: Restart
) -> None:
    (member,) = group.stable(1)
    assert set(member.commit({(topic, 0): 10, (topic, 1): 20}).values()) == {NONE}
    row = Committed(offset=15, leader_epoch=0, metadata="fünfzehn")
    assert set(member.commit({(topic, 0): row}).values()) == {NONE}  # type: ignore[dict-item]
    assert member.leave() == NONE
    group.await_state("Empty")
    assert commit(group.wire, group.name, {(topic, 1): 25}) == {(topic, 1): NONE}
    before = member.generation
    restart()
    come_back(group)
    assert group.describe().group_state == "Empty"
    found = committed(group.wire, group.name)
    assert found == {(topic, 0): row, (topic, 1): Committed(offset=25)}
    assert offsets_of(group, topic) == {0: 15, 1: 25, 2: -1}
    assert commit(group.wire, group.name, {(topic, 2): 3}) == {(topic, 2): NONE}
    newcomer = group.member()
    newcomer.enter()
    assert newcomer.generation > before, "a generation came again"
    assert offsets_of(group, topic) == {0: 15, 1: 25, 2: 3}


def answered_leaves(members: Sequence[Member], then: Restart) -> list[Member]:
    """All leave; as soon as the first is told so, the broker is restarted. Gives those who were told."""
    for member in members:
        leaver = LeaveGroupRequest.MemberIdentity(member_id=member.id, group_instance_id=None)
        member.wire.send(LeaveGroupRequest(group_id=member.group, members=[leaver]), LEAVE_VERSION)
    select.select([member.wire.socket for member in members], [], [], 10)
    then()
    told = []
    for member in members:
        with contextlib.suppress(wire.ConnectionEndedError):
            _, reply = member.wire.receive(LeaveGroupResponse, LEAVE_VERSION)
            if reply.error_code == NOT_COORDINATOR:
                continue  # It came too late: the broker had begun to stop.
            assert [one.error_code for one in reply.members] == [NONE]
            told.append(member)
    return told


def test_last_members_that_left_stay_away_after_restart(group: RawGroup, restart: Restart) -> None:
    """LeaveGroup of a last member is answered when the empty group is durable, as in Kafka."""
    members = [group.member(group=f"{group.name}-{number}") for number in range(20)]
    for member in members:
        member.enter()
        assert member.sync({member.id: b"all"}).error_code == NONE
    told = answered_leaves(members, restart)
    assert told
    come_back(group)
    states = {one.group_id: one.group_state for one in describe(group.wire, [one.group for one in told])}
    assert states == {member.group: "Empty" for member in told}


def test_offsets_of_a_group_that_never_had_members_stay(
    group: RawGroup, topic: str, restart: Restart
) -> None:
    assert commit(group.wire, group.name, {(topic, 0): 1, (topic, 1): 2}) == {
        (topic, 0): NONE,
        (topic, 1): NONE,
    }
    restart()
    come_back(group)
    assert offsets_of(group, topic) == {0: 1, 1: 2, 2: -1}
    assert group.describe().group_state == "Empty"


def test_a_stable_group_goes_on_without_a_rebalance(group: RawGroup, topic: str, restart: Restart) -> None:
    members = group.stable(3)
    assert set(members[1].commit({(topic, 0): 7}).values()) == {NONE}
    before = picture(group)
    assert before[1] == "Stable"
    restart()
    come_back(group, members)
    for member in members:
        assert member.heartbeat() == NONE
        reply = member.sync()
        assert (reply.error_code, bytes(reply.assignment)) == (NONE, member.id.encode())
        assert member.heartbeat(generation=member.generation + 1) == ILLEGAL_GENERATION
        assert set(member.commit({(topic, 1): 8}).values()) == {NONE}
    assert picture(group) == before
    assert offsets_of(group, topic) == {0: 7, 1: 8, 2: -1}


def test_stable_group_forms_next_generation_after_restart(group: RawGroup, restart: Restart) -> None:
    members = group.stable(2)
    before = members[0].generation
    restart()
    come_back(group, members)
    newcomer = group.member()
    newcomer.start_join()
    wait_until(lambda: members[0].heartbeat() == REBALANCE_IN_PROGRESS, "the members hear of the newcomer")
    for member in members:
        member.send_join()
    group.all_joined([*members, newcomer])
    assert newcomer.generation == before + 1


def test_member_absent_after_restart_is_removed(group: RawGroup, restart: Restart) -> None:
    members = group.stable(3, session_timeout_ms=SHORT_SESSION_MS)
    restart()
    come_back(group, members)
    gone = members.pop()

    def all_hear_of_it() -> bool:
        codes = [member.heartbeat() for member in members]
        assert set(codes) <= {NONE, REBALANCE_IN_PROGRESS}
        return set(codes) == {REBALANCE_IN_PROGRESS}

    wait_until(all_hear_of_it, "the group notices that a member is gone")
    for member in members:
        member.send_join()
    group.all_joined(members)
    assert gone.heartbeat() == UNKNOWN_MEMBER_ID


def test_static_member_returns_unchanged_after_restart(group: RawGroup, restart: Restart) -> None:
    members = group.joined(1, instance=unique_instance())
    members.append(group.member(instance=unique_instance()))
    group.sync_together(members[:1])
    members[1].start_join()
    group.await_members(2)
    members[0].send_join()
    group.all_joined(members)
    group.sync_together(members)
    restart()
    come_back(group, members)
    again = group.member(instance=members[1].instance)
    again.enter()
    assert again.generation == members[1].generation
    assert again.id != members[1].id
    reply = again.sync()
    assert (reply.error_code, bytes(reply.assignment)) == (NONE, members[1].id.encode())
    assert members[0].heartbeat() == NONE
    assert group.describe().group_state == "Stable"


def test_members_waiting_in_join_become_stable_after_restart(
    broker: Peer, group: RawGroup, topic: str, restart: Restart
) -> None:
    """PreparingRebalance: one of two members and a newcomer wait in JoinGroup."""
    first, second = stable(group, 2)
    assert set(second.commit({(topic, 0): 5}).values()) == {NONE}
    before = first.generation
    newcomer = group.member()
    newcomer.start_join()
    wait_until(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS, "the members hear of the newcomer")
    first.send_join()
    group.await_state("PreparingRebalance")
    assert set(second.commit({(topic, 1): 6}).values()) == {NONE}
    restart()
    pilots = [
        Autopilot(broker, first),
        Autopilot(broker, second, Phase.HEARTBEAT),
        Autopilot(broker, newcomer),
    ]
    assert fly(pilots) > before
    come_back(group)
    assert {member.member_id for member in group.describe().members} == {one.member.id for one in pilots}
    assert offsets_of(group, topic) == {0: 5, 1: 6, 2: -1}


def test_new_joining_group_forms_after_restart(broker: Peer, group: RawGroup, restart: Restart) -> None:
    """PreparingRebalance, before there ever was a generation: one member has an id, one waits."""
    waiting, pending = group.member(), group.member()
    pending.register()
    waiting.start_join()
    group.await_state("PreparingRebalance")
    restart()
    fly([Autopilot(broker, waiting), Autopilot(broker, pending)])
    come_back(group)
    assert {member.member_id for member in group.describe().members} == {waiting.id, pending.id}


@pytest.mark.parametrize("had_a_generation", [False, True], ids=["first generation", "next generation"])
def test_members_waiting_in_sync_become_stable_after_restart(
    broker: Peer, group: RawGroup, topic: str, restart: Restart, *, had_a_generation: bool
) -> None:
    """CompletingRebalance: all have joined, two wait in SyncGroup, and the leader has not synced."""
    members = stable(group, 3) if had_a_generation else group.joined(3)
    if had_a_generation:
        assert set(members[1].commit({(topic, 0): 5}).values()) == {NONE}
        members[0].send_join()
        wait_until(lambda: members[1].heartbeat() == REBALANCE_IN_PROGRESS, "the others hear of it")
        for member in members[1:]:
            member.send_join()
        group.all_joined(members)
    for member in members[1:]:
        member.send_sync()
    group.await_state("CompletingRebalance")
    restart()
    leader, *others = members
    pilots = [
        Autopilot(broker, leader, Phase.SYNC, [one.id for one in members]),
        *(Autopilot(broker, one, Phase.SYNC) for one in others),
    ]
    fly(pilots)
    come_back(group)
    assert {member.member_id for member in group.describe().members} == {one.member.id for one in pilots}
    assert offsets_of(group, topic) == {0: 5 if had_a_generation else -1, 1: -1, 2: -1}


def test_assignment_just_sent_is_kept_for_all_or_none(
    broker: Peer, group: RawGroup, restart: Restart
) -> None:
    """The leader's SyncGroup is sent and not answered when the broker ends: some may have had their answers."""
    members = group.joined(3)
    leader, *others = members
    for member in others:
        member.send_sync()
    leader.send_sync({one.id: assignment_for(leader.generation, leader.id, one.id) for one in members})
    restart()
    fly(
        [
            Autopilot(broker, leader, Phase.SYNC, [one.id for one in members]),
            *(Autopilot(broker, one, Phase.SYNC) for one in others),
        ]
    )


def test_assignment_one_member_has_is_kept_for_all(group: RawGroup, restart: Restart) -> None:
    """The leader's SyncGroup was answered, the others have yet to ask."""
    members = group.joined(3)
    assert members[0].sync({one.id: one.id.encode() for one in members}).error_code == NONE
    restart()
    come_back(group, members)
    for member in members:
        reply = member.sync()
        assert (reply.error_code, bytes(reply.assignment)) == (NONE, member.id.encode())
        assert member.heartbeat() == NONE
    assert group.describe().group_state == "Stable"


def produce(broker: Peer, topic: str) -> None:
    """A record to each partition, once it is led again."""

    def is_stored(connection: wire.Wire, partition: int) -> bool:
        return bool(wire.produce(connection, topic, partition, wire.batch([b"x"])).error_code == NONE)

    with wire.connect(broker) as connection:
        for partition in range(3):
            wait_until(partial(is_stored, connection, partition), f"partition {partition} takes a record")


def changes(member: MemberProcess) -> list[Event]:
    """Partitions assigned to it and revoked from it so far."""
    member.journal.read()
    return [one for one in member.journal.events if isinstance(one, Assigned | Revoked)]


def share(member: MemberProcess) -> tuple[int, ...]:
    """The partitions that it has."""
    found = changes(member)
    return found[-1].owned if found and isinstance(found[-1], Assigned) else ()


def processed(members: Sequence[MemberProcess]) -> list[tuple[int, int]]:
    """Partitions and offsets, sorted."""
    for member in members:
        member.journal.read()
    events = [one for member in members for one in member.journal.events]
    return sorted((one.partition, one.offset) for one in events if isinstance(one, Processed))


@pytest.mark.parametrize("client", nightly_but([*CLIENTS, "java"], "librdkafka", "aiokafka"))
def test_no_client_sees_a_rebalance_through_a_restart(
    broker: Peer, group: RawGroup, topic: str, restart: Restart, client: str, tmp_path: Path
) -> None:
    if client == "java" and (reason := java_missing()):
        pytest.skip(reason)
    scenario = Scenario(
        group=group.name, topic=topic, clients=[client], assignor="range", session_timeout_ms=20_000
    )
    members = [
        MemberProcess(name, tmp_path, client=client, broker=broker, scenario=scenario) for name in ("a", "b")
    ]
    try:
        for member in members:
            member.start()
        wait_until(lambda: sorted(len(share(one)) for one in members) == [1, 2], "both have their share")
        produce(broker, topic)
        wait_until(lambda: offsets_of(group, topic) == dict.fromkeys(range(3), 1), "all is committed")
        before, had = picture(group), [changes(one) for one in members]
        restart()
        produce(broker, topic)
        come_back(group)
        # which only members of the group's generation can commit
        wait_until(lambda: offsets_of(group, topic) == dict.fromkeys(range(3), 2), "all is committed")
        assert processed(members) == [(partition, offset) for partition in range(3) for offset in range(2)]
        assert [changes(one) for one in members] == had
        assert picture(group) == before
    finally:
        for member in members:
            member.close()
