"""Static membership (KIP-345) over a raw connection: the table of scenarios, and what needs a broker."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import Peer
from tests.support.group_apis import committed
from tests.support.group_wire import FENCED_INSTANCE_ID, NONE, RawGroup, raw_group
from tests.support.static_membership import SCENARIOS, Scenario, static_members, successor


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


@pytest.mark.parametrize("play", SCENARIOS.values(), ids=SCENARIOS)
def test_static_membership(group: RawGroup, play: Scenario) -> None:
    play(group)


def test_a_fenced_members_commit_is_not_stored(group: RawGroup) -> None:
    partition = (group.new_topic(), 0)
    (former,) = static_members(group, 1)
    successor(group, former).enter()
    assert former.commit({partition: 5}) == {partition: FENCED_INSTANCE_ID}
    assert committed(group.wire, group.name) == {}


def test_one_instance_may_be_in_several_groups(group: RawGroup) -> None:
    (member,) = static_members(group, 1)
    with raw_group(group.broker) as other:
        same = other.member(instance=member.instance)
        same.enter()
        assert same.heartbeat() == NONE
    assert member.heartbeat() == NONE
