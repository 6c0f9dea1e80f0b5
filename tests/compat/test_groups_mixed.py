"""One group whose members are librdkafka, kafka-python and aiokafka at once."""

import contextlib
from pathlib import Path

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_members import MEMBERS, GroupMember
from tests.support.group_work import (
    CommitWatch,
    RunningProducer,
    assert_handled_once_in_order,
    assert_none_skipped,
    partitions_of,
    wait_for_shares,
    wait_until_all_work,
    wait_until_handled,
)
from tests.support.left_sockets import IGNORED_WHILE_THEY_RUN, left_sockets_are_collected
from tests.support.member_process import MemberProcess
from tests.support.topics import unique_name
from tests.support.waiting import wait_until

SHORT_SESSION_MS = 600
PARTITIONS = 6

pytestmark = IGNORED_WHILE_THEY_RUN
__all__ = ["left_sockets_are_collected"]


@pytest.fixture
def group() -> str:
    return unique_name("group")


def everyone(broker: Peer, group: str, topic: str, assignor: str = "range") -> list[GroupMember]:
    """A member of each client, not yet started."""
    return [member(broker.bootstrap, group, topic, assignors=[assignor]) for member in MEMBERS.values()]


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_changing_members_of_all_clients_handle_records_once(
    broker: Peer, new_topic: NewTopic, group: str, assignor: str
) -> None:
    topic = new_topic(PARTITIONS)
    every = partitions_of(topic, PARTITIONS)
    watch = CommitWatch(broker, group)
    members = everyone(broker, group, topic, assignor)
    with RunningProducer(broker, topic, PARTITIONS) as producer, contextlib.ExitStack() as opened:
        for count, member in enumerate(members, 1):
            opened.enter_context(member)
            shares = watch.wait_for_shares(members[:count], every)
            assert {len(share) for share in shares} == {PARTITIONS // count}
            wait_until_all_work(members[:count])
        # Each leader in turn leaves, so that each client has assigned partitions to the others.
        members += everyone(broker, group, topic, assignor)[:1]
        members[0].leave()
        watch.wait_for_shares(members[1:3], every)
        producer.wait_for_more()
        members[1].leave()
        opened.enter_context(members[3])
        watch.wait_for_shares(members[2:], every)
        wait_until_all_work(members)
        producer.stop()
        wait_until_handled(members, topic, producer.counts)
        watch.wait_for(topic, producer.counts)
    assert_handled_once_in_order(members, topic, producer.counts)


@pytest.mark.parametrize("victim", MEMBERS)
def test_the_other_clients_take_over_from_one_that_is_killed(
    broker: Peer, new_topic: NewTopic, group: str, tmp_path: Path, victim: str
) -> None:
    topic = new_topic(PARTITIONS)
    every = partitions_of(topic, PARTITIONS)
    watch = CommitWatch(broker, group)
    with (
        # It is the first, so it is the leader: the others wait for its assignment when it is killed.
        MemberProcess(
            tmp_path, victim, broker.bootstrap, group, topic, session_timeout_ms=SHORT_SESSION_MS
        ) as killed,
        RunningProducer(broker, topic, PARTITIONS) as producer,
        contextlib.ExitStack() as opened,
    ):
        wait_until(lambda: killed.handled, "the leader works")
        others = [
            opened.enter_context(MEMBERS[client](broker.bootstrap, group, topic))
            for client in MEMBERS
            if client != victim
        ]
        killed.kill()
        watch.wait_for_shares(others, every)
        wait_until_all_work(others)
        producer.stop()
        wait_until_handled([killed, *others], topic, producer.counts)
        watch.wait_for(topic, producer.counts)
    assert_none_skipped([killed, *others], topic, producer.counts)


@pytest.mark.parametrize("clients", [("librdkafka", "kafka-python"), ("kafka-python", "librdkafka")])
def test_cooperative_members_of_two_clients_keep_consuming(
    broker: Peer, new_topic: NewTopic, group: str, clients: tuple[str, str]
) -> None:
    topic = new_topic(PARTITIONS)
    every = partitions_of(topic, PARTITIONS)
    first, second = (
        MEMBERS[client](broker.bootstrap, group, topic, assignors=["cooperative-sticky"])
        for client in clients
    )
    with first, RunningProducer(broker, topic, PARTITIONS) as producer:
        wait_for_shares([first], every)
        with second:
            kept, given = wait_for_shares([first, second], every, fewest=PARTITIONS // 2)
            wait_until_all_work([first, second])
        wait_for_shares([first], every)
        producer.stop()
        wait_until_handled([first, second], topic, producer.counts)
    assert first.changes_of("assigned") == [frozenset(every), given]
    assert first.changes_of("revoked")[0] == given
    assert not kept & given
    assert_none_skipped([first, second], topic, producer.counts)
