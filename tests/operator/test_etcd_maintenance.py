"""The calls of etcd's upkeep on a real cluster of three members, carried out as the plan says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.errors import StoreIndeterminateError
from kafscale.operator.etcd import upkeep_plan as etcd_upkeep_plan
from kafscale.operator.etcd.maintenance import EtcdMaintenance
from kafscale.operator.etcd.seen import EtcdSeen, MemberSeen
from kafscale.operator.etcd.upkeep_plan import Defragment, DefragmentRules, Done, MoveLeader
from tests.operator.etcd_clusters import (
    fragmented,
    maintenance,
    settled,
)
from tests.support.etcd_server import EtcdCluster, EtcdServer, etcd_cluster
from tests.support.waiting import wait_until_async

EAGER = DefragmentRules(min_free_bytes=2**20, min_free_share=0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path) as started:
        yield started


def member_of(cluster: EtcdCluster, name: str) -> EtcdServer:
    return next(each for each in cluster.members if each.name == name)


def sizes(seen: EtcdSeen) -> dict[str, int]:
    return {each.name: each.status.size_bytes for each in seen.members if each.status}


async def carry_out(keeper: EtcdMaintenance, step: etcd_upkeep_plan.Step, done: Done) -> Done:
    """As the operator does it."""
    match step:
        case Defragment(member=member) if member.status:
            await keeper.defragment(member.name)
            return Done(members=done.members | {member.status.member_id}, compacted=done.compacted)
        case MoveLeader(leader=leader, successor=MemberSeen(status=status)) if status:
            await keeper.move_leader(leader.name, status.member_id)
        case _:
            raise AssertionError(f"not to be carried out: {step}")
    return done


async def test_a_look_shows_members_and_their_leader(cluster: EtcdCluster) -> None:
    keeper = maintenance(cluster)
    seen = await settled(keeper)
    assert seen.silent == ()
    assert seen.name_of(seen.statuses[0].leader_id) == cluster.leader().name
    assert {each.name for each in seen.listed or ()} == {each.name for each in cluster.members}
    assert seen.alarms == ()
    cluster.members[1].kill9()
    later = await keeper.look()
    assert [each.name for each in later.silent] == [cluster.members[1].name]
    assert "UNAVAILABLE" in later.silent[0].problem
    assert later.has_majority or later.listed is None  # while the others elect
    cluster.members[0].kill9()

    async def majority_is_gone() -> bool:
        return not (await keeper.look()).has_majority

    await wait_until_async(majority_is_gone, "nobody tells what takes a majority")


async def test_members_are_defragmented_one_by_one_and_none_as_leader(cluster: EtcdCluster) -> None:
    keeper = maintenance(cluster)
    seen = await fragmented(keeper, cluster, free_bytes=4 * 2**20)
    before, leader = sizes(seen), cluster.leader().name
    done, steps = Done(), []
    while (step := etcd_upkeep_plan.next_to_defragment(seen, done.members, EAGER)) is not None:
        if isinstance(step, Defragment):
            assert step.member.status is not None
            assert step.member.status.leader_id != step.member.status.member_id
        steps.append(step)
        done = await carry_out(keeper, step, done)
        seen = await settled(keeper)
    assert [type(step) for step in steps] == [Defragment, Defragment, MoveLeader, Defragment]
    assert isinstance(steps[-1], Defragment)
    assert steps[-1].member.name == leader
    assert all(size < before[name] / 2 for name, size in sizes(seen).items())


async def test_none_is_defragmented_while_one_is_down(cluster: EtcdCluster) -> None:
    keeper = maintenance(cluster)
    await fragmented(keeper, cluster, free_bytes=2 * 2**20)
    gone = next(each for each in cluster.members if each is not cluster.leader())
    gone.stop()
    step = etcd_upkeep_plan.next_to_defragment(await keeper.look(), frozenset(), EAGER)
    assert isinstance(step, etcd_upkeep_plan.Wait)
    assert gone.name in step.why
    gone.start()
    step = etcd_upkeep_plan.next_to_defragment(await settled(keeper), frozenset(), EAGER)
    assert isinstance(step, Defragment)


async def test_stalled_member_leaves_the_outcome_indeterminate(
    cluster: EtcdCluster,
) -> None:
    keeper = maintenance(cluster)
    await settled(keeper)
    paused = cluster.members[2]
    paused.pause()
    try:
        seen = await keeper.look()
        assert [each.name for each in seen.silent] == [paused.name]
        assert "no answer within 2 s" in seen.silent[0].problem
        with pytest.raises(StoreIndeterminateError, match=f"{paused.name}: hand over the lead"):
            await keeper.move_leader(paused.name, 1)
    finally:
        paused.resume()
