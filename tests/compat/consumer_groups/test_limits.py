"""A broker that limits consumer groups: their size, and changes between the protocols."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import Peer
from tests.compat.consumer_groups.conftest import consumer_group_peer, running
from tests.support.consumer_group_members import (
    RawConsumerGroup,
    accepted,
    outcome,
    raw_consumer_group,
    refused,
)
from tests.support.group_apis import list_groups
from tests.support.group_wire import GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, NONE, Member, subscription


@pytest.fixture(scope="module")
def limited(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Two members at most, and no change of protocol while there are members."""
    limits = {"group_consumer_max_size": 2, "group_consumer_migration_policy": "disabled"}
    yield from running(consumer_group_peer(peer_kind, tmp_path_factory, **limits))


@pytest.fixture
def group(limited: Peer) -> Iterator[RawConsumerGroup]:
    """A group without members on that broker."""
    with raw_consumer_group(limited) as made:
        yield made


def test_group_that_is_full_takes_no_more(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(4)
    first, _ = group.joined("A", topic), group.joined("B", topic)
    third = group.member("C")
    assert outcome(third.join(topic)) == refused(GROUP_MAX_SIZE_REACHED)
    assert group.epochs() == ("Reconciling", 2, 2)
    first.leave()
    assert outcome(third.join(topic))[:3] == accepted(third, 4)[:3]


def test_classic_group_with_members_stays_classic(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    old = Member(wire=group.wire, group=group.name, protocols={"range": subscription(topic)})
    old.enter()
    old.sync({old.id: b""})
    member = group.member("A")
    assert outcome(member.join(topic)) == refused(GROUP_ID_NOT_FOUND)
    assert list_groups(group.wire)[group.name].group_type == "classic"
    assert old.heartbeat() == NONE
    old.leave()
    # an empty one changes all the same
    assert outcome(member.join(topic)) == accepted(member, 1, {topic_id: range(2)})
    assert list_groups(group.wire)[group.name].group_type == "consumer"
