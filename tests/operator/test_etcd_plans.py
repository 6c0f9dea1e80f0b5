"""Decisions about an etcd cluster from one look."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.operator.etcd import members_plan as etcd_members_plan
from kafscale.operator.etcd import upkeep_plan as etcd_upkeep_plan
from kafscale.operator.etcd.conditions import HEALTHY, SPACE_HEALTHY, etcd_conditions, lost_data
from kafscale.operator.etcd.members_plan import AddMember, Begin, RemoveMember, may_roll
from kafscale.operator.etcd.rounds import ALARM_ROUND, SETTLED, EtcdRounds
from kafscale.operator.etcd.seen import (
    CORRUPT,
    MAX_LAG_ENTRIES,
    NO_SPACE,
    Alarm,
    EtcdSeen,
    Listed,
    unhealthy_reason,
)
from kafscale.operator.etcd.upkeep_plan import (
    DEFAULT_RULES,
    Compact,
    Defragment,
    Disarm,
    Done,
    MoveLeader,
    Wait,
    is_due,
    next_to_defragment,
)
from kafscale.operator.manifests.etcd_start import NO_DATA, EtcdStart, StartPhase
from tests.operator.etcd_looks import MIB, look, peer_url, status

QUOTA_BYTES = 1000 * MIB
FORMED = EtcdStart(phase=StartPhase.FORMED, members=3, token="t", cluster_id="c1")
URLS = tuple(peer_url(number) for number in range(3))
FULL = Alarm(member_id=2, kind=NO_SPACE)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def well(*free: int) -> EtcdSeen:
    """Three members that answer, the first leads; each with so much to give back."""
    return look(*(status(number + 1, free=each) for number, each in enumerate(free)))


def upkeep(seen: EtcdSeen, done: Done = Done(), **parts: object) -> etcd_upkeep_plan.Step | None:  # noqa: B008
    given_parts = {"quota_bytes": QUOTA_BYTES, "is_due": True, "settled_revision": 400, **parts}
    return etcd_upkeep_plan.next_step(seen, done=done, **given_parts)  # type: ignore[arg-type]


def members_step(
    seen: EtcdSeen,
    start: EtcdStart = FORMED,
    *,
    lost: frozenset[str] = frozenset(),
    given_up: str | None = None,
) -> etcd_members_plan.Step | None:
    return etcd_members_plan.next_step(
        start, seen, peer_urls=URLS, lost=lost, given_up=given_up, new_token="other"
    )


def test_the_follower_with_most_to_give_back_comes_first() -> None:
    step = upkeep(well(90 * MIB, 40 * MIB, 60 * MIB))
    assert isinstance(step, Defragment)
    assert step.member.name == "c-etcd-2"


def test_the_leader_comes_last_and_lets_the_tidiest_lead_before() -> None:
    seen = well(90 * MIB, 5 * MIB, 2 * MIB)
    step = upkeep(seen)
    assert isinstance(step, MoveLeader)
    assert (step.leader.name, step.successor.name) == ("c-etcd-0", "c-etcd-2")


def test_one_that_stands_alone_is_defragmented_as_leader() -> None:
    assert isinstance(upkeep(look(status(1, free=90 * MIB))), Defragment)


@pytest.mark.parametrize("free", [31 * MIB, 0])
def test_what_is_not_worth_it_is_left(free: int) -> None:
    assert upkeep(well(free, free, free)) is None


def test_none_is_defragmented_outside_of_its_time() -> None:
    assert upkeep(well(90 * MIB, 90 * MIB, 90 * MIB), is_due=False) is None


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (look(status(1), status(2, free=90 * MIB), None), "c-etcd-2 does not answer"),
        (look(status(1), status(2, free=90 * MIB, leader_id=3), status(3)), "do not agree on a leader"),
        (
            look(status(1), status(2, free=90 * MIB, applied=1), status(3, applied=MAX_LAG_ENTRIES + 2)),
            "behind",
        ),
        (look(status(1), status(2, free=90 * MIB), replace(status(3), is_learner=True)), "still a learner"),
        (look(status(1), status(2, free=90 * MIB), replace(status(3), cluster_id=7)), "different clusters"),
        (look(status(1), status(2, free=90 * MIB), status(9)), "its member list differs"),
        (look(status(1), status(2, free=90 * MIB), status(3), majority=False), "no majority"),
    ],
)
def test_while_one_is_not_well_none_is_taken_away(seen: EtcdSeen, why: str) -> None:
    step = upkeep(seen)
    assert isinstance(step, Wait)
    assert why in step.why


@given(
    answers=st.lists(st.booleans(), min_size=3, max_size=5),
    free=st.lists(st.integers(0, 100), min_size=5, max_size=5),
    done=st.frozensets(st.integers(1, 5)),
    leader=st.integers(1, 5),
)
def test_never_is_one_taken_away_while_another_is_missed(
    answers: list[bool], free: list[int], done: frozenset[int], leader: int
) -> None:
    statuses = [
        status(number + 1, leader_id=leader, free=free[number] * MIB) if is_there else None
        for number, is_there in enumerate(answers)
    ]
    step = next_to_defragment(look(*statuses), done, DEFAULT_RULES)
    if isinstance(step, Defragment | MoveLeader):
        assert all(answers)
    if isinstance(step, Defragment):
        assert step.member.status is not None
        assert step.member.status.member_id not in done
        assert step.member.status.member_id != leader


def test_a_used_up_quota_is_dealt_with_in_order() -> None:
    seen = look(status(1), status(2), status(3), alarms=(FULL,))
    assert upkeep(seen, is_due=False) == Compact(revision=400)
    assert isinstance(upkeep(seen, Done(compacted=400), is_due=False), Defragment)
    assert upkeep(seen, Done(compacted=400, members=frozenset({1, 2, 3}))) == Disarm(alarm=FULL)


def test_history_that_may_still_be_read_is_not_given_up() -> None:
    assert isinstance(upkeep(look(status(1), status(2), status(3), alarms=(FULL,)), settled_revision=0), Wait)


def test_an_alarm_stays_while_there_is_no_room() -> None:
    full = [status(number, size=950 * MIB) for number in (1, 2, 3)]
    assert upkeep(look(*full, alarms=(FULL,)), Done(compacted=400, members=frozenset({1, 2, 3}))) is None


def test_alarm_stays_while_a_member_is_unknown() -> None:
    seen = look(status(1), status(2), None, alarms=(FULL,))
    assert not isinstance(upkeep(seen, Done(compacted=400, members=frozenset({1, 2}))), Disarm)


def test_corrupt_data_is_left_to_people() -> None:
    seen = look(status(1), status(2), status(3), alarms=(Alarm(member_id=2, kind=CORRUPT),))
    assert upkeep(seen) is None
    (found,) = (
        each
        for each in etcd_conditions(FORMED, seen, frozenset(), QUOTA_BYTES, ())
        if each.type == SPACE_HEALTHY
    )
    assert (found.is_so, found.reason) == (False, "Corrupt")
    assert "c-etcd-1" in found.message


def test_a_scheduled_time_is_acted_on_for_an_hour() -> None:
    assert is_due(NOON, NOON)
    assert is_due(NOON, NOON + timedelta(minutes=59))
    assert not is_due(NOON, NOON + timedelta(hours=1))


def test_a_cluster_has_formed_when_every_member_answers_as_one() -> None:
    forming = EtcdStart(phase=StartPhase.FORMING, members=3, token="t")
    assert members_step(look(status(1), status(2), None), forming) is None
    step = members_step(well(0, 0, 0), forming)
    assert step == Begin(start=replace(forming, phase=StartPhase.FORMED, cluster_id="c1"))


def test_a_lost_member_is_taken_off_put_on_and_let_in() -> None:
    lost = frozenset({"c-etcd-1"})
    seen = look(status(1), None, status(3))
    assert seen.listed is not None
    step = members_step(seen, lost=lost)
    assert isinstance(step, RemoveMember)
    assert step.member.member_id == 2
    without = replace(seen, listed=(seen.listed[0], seen.listed[2]))
    assert members_step(without, lost=lost) == AddMember(peer_url=peer_url(1))
    unstarted = Listed(member_id=9, name="", peer_urls=(peer_url(1),))
    with_new_member = replace(seen, listed=(seen.listed[0], unstarted, seen.listed[2]))
    joining = replace(FORMED, phase=StartPhase.JOINING, joining="c-etcd-1")
    assert members_step(with_new_member, lost=lost) == Begin(start=joining)
    assert members_step(with_new_member, joining, lost=lost) is None
    # Once it has started it has promised something: it must not start without data again.
    assert members_step(look(status(1), None, status(3)), joining, lost=lost) == Begin(start=FORMED)


@pytest.mark.parametrize(
    "seen",
    [
        look(status(1), None, None),
        look(status(1), None, status(3), majority=False),
        look(status(1), status(2), status(3)),
    ],
)
def test_member_stays_without_majority_or_while_it_answers(seen: EtcdSeen) -> None:
    assert members_step(seen, lost=frozenset({"c-etcd-1"})) is None


def test_a_foreign_entry_of_the_list_is_left_alone() -> None:
    seen = look(status(1), None, status(3))
    assert seen.listed is not None
    stranger = Listed(member_id=9, name="mine", peer_urls=("http://elsewhere:2380",))
    assert members_step(replace(seen, listed=(*seen.listed, stranger)), lost=frozenset({"c-etcd-1"})) is None


def test_cluster_is_abandoned_by_id_only_if_none_answers() -> None:
    gone = look(None, None, None)
    anew = replace(FORMED, phase=StartPhase.FORMING, cluster_id=None, token="other")
    assert members_step(gone, given_up="c1") == Begin(start=anew)
    assert members_step(gone, given_up="c2") is None
    assert members_step(gone) is None
    assert members_step(look(status(1), None, None), given_up="c1") is None
    assert members_step(gone, anew, given_up=None) is None


@given(members=st.sampled_from([1, 3, 5]), data=st.data())
def test_a_change_of_pods_never_costs_a_majority_that_there_is(members: int, data: st.DataObject) -> None:
    silent = data.draw(st.frozensets(st.integers(0, members - 1)))
    if not may_roll(silent, members):
        return
    majority = members // 2 + 1
    if members - len(silent) < majority:
        return  # there is nothing to lose
    away = set(silent)
    for number in reversed(range(members)):  # Kubernetes takes them in this order, and waits for each
        assert len(away | {number}) <= max(len(silent), 1)
        away.discard(number)


def test_data_loss_is_read_from_newest_container_exit() -> None:
    ended = {"terminated": {"exitCode": 1, "message": f'"error":"{NO_DATA} \\"c-etcd-1\\" in the ..."'}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}

    def pod(state: Mapping[str, Any], last: Mapping[str, Any]) -> Mapping[str, Any]:
        containers = [{"name": "etcd", "state": state, "lastState": last}]
        return {"metadata": {"name": "c-etcd-1"}, "status": {"containerStatuses": containers}}

    other = {"terminated": {"exitCode": 1, "message": "no space left on device"}}
    assert lost_data([pod(waits, ended)]) == {"c-etcd-1"}
    assert lost_data([pod(ended, {})]) == {"c-etcd-1"}
    assert lost_data([pod({"running": {}}, ended)]) == frozenset()
    assert lost_data([pod(waits, other), pod(other, ended)]) == frozenset()
    assert lost_data([{"metadata": {"name": "c-etcd-1"}}]) == frozenset()


@pytest.mark.parametrize(
    ("seen", "lost", "reason"),
    [
        (well(0, 0, 0), frozenset(), "AllMembersAnswer"),
        (look(status(1), status(2), None), frozenset(), "MemberDown"),
        (look(status(1), status(2), None), frozenset({"c-etcd-2"}), "MemberLostData"),
        (look(status(1), None, None), frozenset({"c-etcd-2"}), "NoMajority"),
        (look(None, None, None), frozenset({"c-etcd-2"}), "NoMajority"),
        (look(None, None, None), frozenset({"c-etcd-0", "c-etcd-1", "c-etcd-2"}), "DataLost"),
        (look(status(1), status(2, leader_id=0), status(3)), frozenset(), "NotSettled"),
    ],
)
def test_the_health_says_what_is_wrong(seen: EtcdSeen, lost: frozenset[str], reason: str) -> None:
    (found,) = (each for each in etcd_conditions(FORMED, seen, lost, QUOTA_BYTES, ()) if each.type == HEALTHY)
    assert found.reason == reason
    assert found.is_so is (reason == "AllMembersAnswer")
    assert (unhealthy_reason(seen) is None) is found.is_so


@pytest.mark.parametrize(("used", "reason"), [(799, "EnoughRoom"), (800, "NearlyFull")])
def test_before_the_quota_is_used_up_it_is_said(used: int, reason: str) -> None:
    seen = look(*(status(number, size=used * MIB) for number in (1, 2, 3)))
    (found,) = (
        each
        for each in etcd_conditions(FORMED, seen, frozenset(), QUOTA_BYTES, ())
        if each.type == SPACE_HEALTHY
    )
    assert found.reason == reason


def test_the_report_does_not_change_with_every_write() -> None:
    """A condition with the number of bytes in it was written at each look, and its writing brought the next look."""
    little, more = (look(*(status(number, size=size) for number in (1, 2, 3))) for size in (MIB, 2 * MIB))
    notes: tuple[str, ...] = ()
    assert etcd_conditions(FORMED, little, frozenset(), QUOTA_BYTES, notes) == etcd_conditions(
        FORMED, more, frozenset(), QUOTA_BYTES, notes
    )


def test_a_revision_is_settled_some_time_after_it_was_seen() -> None:
    rounds = EtcdRounds()
    rounds.looked(10, NOON)
    rounds.looked(11, NOON + SETTLED / 2)
    assert rounds.settled_revision() == 0
    rounds.looked(12, NOON + SETTLED)
    assert rounds.settled_revision() == 10


def test_defragmentation_starts_once_and_again_after_alarm() -> None:
    rounds = EtcdRounds()
    rounds.begin_scheduled(NOON)
    rounds.defragmented(1)
    rounds.begin_scheduled(NOON)
    assert rounds.done.members == {1}
    rounds.begin_scheduled(NOON + timedelta(days=1))
    assert rounds.done == Done()
    now = NOON + timedelta(days=2)
    rounds.begin_alarm(now)
    rounds.compacted(5, now)
    rounds.begin_alarm(now + ALARM_ROUND / 2)
    assert rounds.done.compacted == 5
    assert rounds.is_compacting(now)
    assert not rounds.is_compacting(now + ALARM_ROUND / 2)
    rounds.begin_alarm(now + ALARM_ROUND)
    assert rounds.done == Done()
