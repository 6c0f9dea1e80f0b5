"""The effect of a broker's settings on groups: how many members they take, how long they wait for the first."""

from collections.abc import Iterator

import pytest

from tests.compat import tools
from tests.compat.conftest import Peer
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import KafscaleBroker
from tests.support.group_wire import GROUP_MAX_SIZE_REACHED, NONE, RawGroup, raw_group

MAX_SIZE = 3
# Long enough for several members to join within it on a loaded machine, short enough to be waited for.
INITIAL_DELAY_MS = 1_000
SHORT_MS = 1_500


@pytest.fixture(scope="module")
def limited_broker(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("limited")
    peer: Peer
    if peer_kind == "kafka":
        if reason := tools.java_missing():
            pytest.skip(reason)
        peer = ApacheKafka(
            folder,
            group_max_size=MAX_SIZE,
            group_initial_rebalance_delay_ms=INITIAL_DELAY_MS,
            offsets_topic_num_partitions=1,
        )
    else:
        peer = KafscaleBroker(
            folder, group_max_size=MAX_SIZE, group_initial_rebalance_delay_ms=INITIAL_DELAY_MS
        )
    try:
        peer.start()
        yield peer
        peer.stop()
    finally:
        peer.close()


@pytest.fixture
def group(limited_broker: Peer) -> Iterator[RawGroup]:
    with raw_group(limited_broker) as made:
        yield made


def test_joins_within_initial_delay_form_one_generation(group: RawGroup) -> None:
    members = [group.member() for _ in range(MAX_SIZE)]
    for member in members:
        member.start_join()
    replies = group.all_joined(members)
    assert {reply.generation_id for reply in replies.values()} == {1}
    (leader,) = [member for member in members if member.leads]
    assert {one.member_id for one in replies[leader.id].members} == {member.id for member in members}
    group.sync_together(members)


def test_a_full_group_takes_no_more_members(group: RawGroup) -> None:
    leader, other, third = members = group.stable(MAX_SIZE)
    one_more = group.member()
    for version in (3, 7):
        refused = one_more.join(version)
        assert (refused.error_code, refused.member_id) == (GROUP_MAX_SIZE_REACHED, "")
    assert group.member(instance="one more").join().error_code == GROUP_MAX_SIZE_REACHED
    assert [member.heartbeat() for member in members] == [NONE] * MAX_SIZE
    # its members may join again
    leader.send_join()
    group.await_state("PreparingRebalance")
    other.send_join()
    third.send_join()
    group.all_joined(members)
    # and when one leaves another one may come
    assert third.leave() == NONE
    one_more.start_join()
    leader.send_join()
    other.send_join()
    group.all_joined([leader, other, one_more])


def test_pending_members_displace_the_last_rejoining_one(group: RawGroup) -> None:
    """An id may be given to more than there is room for; then those have it that come first."""
    first, second = group.stable(MAX_SIZE - 1, rebalance_timeout_ms=SHORT_MS)
    newcomers = [group.member(rebalance_timeout_ms=SHORT_MS) for _ in range(2)]
    for one in newcomers:
        one.register()
    for one in newcomers:
        one.send_join()
    group.await_members(MAX_SIZE + 1)
    first.send_join()
    second.send_join()
    replies = {member.id: (member, member.receive_join()) for member in (first, second)}
    assert sorted(reply.error_code for _, reply in replies.values()) == [NONE, GROUP_MAX_SIZE_REACHED]
    ((staying, _),) = (one for one in replies.values() if one[1].error_code == NONE)
    for one in newcomers:
        assert one.joined().generation_id == staying.generation
    assert {one.member_id for one in group.describe().members} == {
        member.id for member in (staying, *newcomers)
    }
