"""Which topics a group reads, as far as what its members said can be understood."""

import pytest

from kafscale.groups.events import Protocol
from kafscale.groups.group import Group, GroupPolicy, Member
from kafscale.groups.subscription import subscribed_topics
from tests.groups.coordination import subscription


def group_of(*subscriptions: bytes, protocol_type: str = "consumer") -> Group:
    """A group whose members said this under the protocol that was selected."""
    group = Group("billing", GroupPolicy(initial_rebalance_delay_ms=0, max_size=100), 0)
    group.protocol_type = protocol_type
    group.protocol_name = "range"
    for number, metadata in enumerate(subscriptions):
        group.add(
            Member(
                member_id=f"member-{number}",
                group_instance_id=None,
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocols=(Protocol("other", subscription("other")), Protocol("range", metadata)),
            )
        )
    return group


def test_the_topics_of_all_members_count() -> None:
    group = group_of(subscription("a", "b"), subscription("b", "c"), subscription())
    assert subscribed_topics(group) == frozenset({"a", "b", "c"})


def test_what_follows_the_topics_does_not_matter() -> None:
    user_data = b"\0\0\0\3abc"
    later_version = b"\0\3" + subscription("a")[2:-4] + user_data + b"owned partitions and more"
    assert subscribed_topics(group_of(later_version)) == frozenset({"a"})


def test_a_group_without_members_reads_nothing() -> None:
    assert subscribed_topics(group_of()) == frozenset()


def test_only_consumers_have_subscriptions() -> None:
    assert subscribed_topics(group_of(subscription("a"), protocol_type="connect")) is None


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\2" + b"\0\1a",
        b"\0\0\0\0\0\1" + b"\0\5abc",
        b"\0\0\0\0\0\1" + b"\xff\xff",
        b"\0\0\0\0\0\1" + b"\0\1\xff",
        b"\0\0\x7f\xff\xff\xff" + b"\0\1a",
    ],
    ids=[
        "nothing",
        "cut in the count",
        "a negative count",
        "a topic is missing",
        "cut in a topic",
        "a null topic",
        "no text",
        "more topics than bytes",
    ],
)
def test_unreadable_subscription_makes_topics_unknown(metadata: bytes) -> None:
    """Unknown for the group: its other members' topics alone would leave offsets that are needed unprotected."""
    assert subscribed_topics(group_of(subscription("a"), metadata)) is None
