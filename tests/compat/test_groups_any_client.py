"""Consumer groups as every client shows them in the same way: librdkafka, kafka-python and aiokafka."""

from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_members import MEMBERS, GroupMember
from tests.support.group_work import (
    CommitWatch,
    RunningProducer,
    assert_handled_once_in_order,
    assert_none_skipped,
    committed_offsets,
    partitions_of,
    send_to_all,
    wait_for_shares,
    wait_until_all_work,
    wait_until_handled,
)
from tests.support.left_sockets import IGNORED_WHILE_THEY_RUN, left_sockets_are_collected
from tests.support.member_process import MemberProcess
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

MANY_PARTITIONS = 300
SHORT_SESSION_MS = 600

pytestmark = [IGNORED_WHILE_THEY_RUN, pytest.mark.parametrize("client", MEMBERS)]
__all__ = ["left_sockets_are_collected"]


@pytest.fixture
def group() -> str:
    return unique_name("group")


@pytest.fixture(scope="module")
def wide_topic(broker: Peer) -> str:
    """A topic of many partitions."""
    name = unique_name("wide")
    create_topic(broker, name, MANY_PARTITIONS)
    return name


def joining(broker: Peer, client: str, group: str, *topics: str, **settings: Any) -> GroupMember:
    return MEMBERS[client](broker.bootstrap, group, *topics, **settings)


# --- sharing the work


def test_one_member_handles_every_record_once_and_in_order(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topics = [new_topic(3), new_topic(2)]
    for topic, partitions in zip(topics, (3, 2), strict=True):
        send_to_all(broker, topic, partitions, 200)
    with joining(broker, client, group, *topics) as member:
        wait_for_shares([member], partitions_of(topics[0], 3) + partitions_of(topics[1], 2))
        wait_until_handled([member], topics[0], [200] * 3)
        wait_until_handled([member], topics[1], [200] * 2)
    assert_handled_once_in_order([member], topics[0], [200] * 3)
    assert_handled_once_in_order([member], topics[1], [200] * 2)


def test_changing_members_handle_every_record_once(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic(6)
    every = partitions_of(topic, 6)
    watch = CommitWatch(broker, group)

    def another() -> GroupMember:
        return joining(broker, client, group, topic, assignors=["roundrobin"])

    with another() as first, another() as second:
        members = [first, second]
        with RunningProducer(broker, topic, 6) as producer:
            watch.wait_for_shares(members, every)
            producer.wait_for_more()
            with another() as third:
                members.append(third)
                assert {len(share) for share in watch.wait_for_shares(members, every)} == {2}
                wait_until_all_work(members)
                first.leave()
                watch.wait_for_shares([second, third], every)
                producer.wait_for_more()
            watch.wait_for_shares([second], every)
            producer.wait_for_more()
        wait_until_handled(members, topic, producer.counts)
        watch.wait_for(topic, producer.counts)
    assert_handled_once_in_order(members, topic, producer.counts)


def test_idle_member_takes_over_when_the_owner_leaves(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic(1)
    with joining(broker, client, group, topic) as first, joining(broker, client, group, topic) as second:
        wait_until(lambda: first.changes and second.changes, "both are members")
        send_to_all(broker, topic, 1, 5)
        wait_until_handled([first, second], topic, [5])
        # Not before: the first one alone had it too, and kafka-python joins once more after the second one has come.
        owned = wait_for_shares([first, second], [(topic, 0)], fewest=0)
        owner, idle = (first, second) if owned[0] else (second, first)
        handled = idle.offsets_handled(topic, 0)
        owner.leave()
        wait_for_shares([idle], [(topic, 0)])
        send_to_all(broker, topic, 1, 5)
        wait_until_handled([idle], topic, [10])
    assert_handled_once_in_order([first, second], topic, [10])
    assert idle.offsets_handled(topic, 0) == [*handled, *range(5, 10)]


def test_a_pattern_subscription_takes_up_a_topic_created_later(broker: Peer, group: str, client: str) -> None:
    prefix = unique_name("pattern")
    early, late, other = f"{prefix}-early", f"{prefix}-late", f"other-{prefix}"
    create_topic(broker, early)
    create_topic(broker, other)
    with joining(broker, client, group, pattern=f"^{prefix}-.*") as member:
        wait_for_shares([member], [(early, 0)])
        create_topic(broker, late, 2)
        send_to_all(broker, late, 2, 10)
        wait_for_shares([member], [(early, 0), (late, 0), (late, 1)])
        wait_until_handled([member], late, [10, 10])
    assert_handled_once_in_order([member], late, [10, 10])


# --- members that fail


def test_records_of_killed_member_move_after_session_timeout(
    broker: Peer, new_topic: NewTopic, group: str, client: str, tmp_path: Path
) -> None:
    topic = new_topic(4)
    every = partitions_of(topic, 4)
    watch = CommitWatch(broker, group)
    with (
        joining(broker, client, group, topic) as survivor,
        MemberProcess(
            tmp_path, client, broker.bootstrap, group, topic, session_timeout_ms=SHORT_SESSION_MS
        ) as victim,
        RunningProducer(broker, topic, 4) as producer,
    ):
        watch.wait_for_shares([survivor, victim], every)
        wait_until(lambda: victim.handled, "records")
        victim.kill()
        watch.wait_for_shares([survivor], every)
        producer.stop()
        wait_until_handled([survivor, victim], topic, producer.counts)
        watch.wait_for(topic, producer.counts)
    assert_none_skipped([survivor, victim], topic, producer.counts)


def test_member_paused_past_session_loses_partitions_and_rejoins(
    broker: Peer, new_topic: NewTopic, group: str, client: str, tmp_path: Path
) -> None:
    topic = new_topic(4)
    every = partitions_of(topic, 4)
    watch = CommitWatch(broker, group)
    with (
        joining(broker, client, group, topic) as awake,
        MemberProcess(
            tmp_path, client, broker.bootstrap, group, topic, session_timeout_ms=SHORT_SESSION_MS
        ) as sleeper,
        RunningProducer(broker, topic, 4) as producer,
    ):
        watch.wait_for_shares([awake, sleeper], every)
        producer.wait_for_more()
        sleeper.pause()
        watch.wait_for_shares([awake], every)
        producer.wait_for_more()
        before = len(sleeper.handled)
        sleeper.resume()
        wait_until(lambda: len(awake.assignment) == 2, "the partitions are shared again")
        watch.wait_for_shares([awake, sleeper], every)
        wait_until(lambda: len(sleeper.handled) > before, "it handles records again")
        producer.stop()
        wait_until_handled([awake, sleeper], topic, producer.counts)
        watch.wait_for(topic, producer.counts)
        sleeper.stop()
        wait_for_shares([awake], every)
    assert_none_skipped([awake, sleeper], topic, producer.counts)


def test_member_past_poll_interval_loses_partitions_and_rejoins(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic(2)
    every = partitions_of(topic, 2)
    limits = {"session_timeout_ms": SHORT_SESSION_MS, "max_poll_interval_ms": SHORT_SESSION_MS}
    with (
        joining(broker, client, group, topic) as other,
        joining(broker, client, group, topic, **limits) as busy,
    ):
        wait_for_shares([other, busy], every)
        busy.hold()
        wait_until(lambda: other.assignment == frozenset(every), "the other has all")
        send_to_all(broker, topic, 2, 10)
        wait_until_handled([other], topic, [10, 10])
        busy.go_on()
        wait_for_shares([other, busy], every)
    assert busy.handled == []


# --- static members


def test_restarted_static_member_keeps_partitions(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic(4)
    every = partitions_of(topic, 4)

    def static(name: str) -> GroupMember:
        return joining(broker, client, group, topic, group_instance_id=name)

    with static("one") as one, static("two") as two:
        owned = wait_for_shares([one, two], every)
        known = list(two.changes)
        one.leave()  # one of these two was the leader
        with static("one") as one_again:
            assert wait_for_shares([one_again, two], every) == owned
            # kafka-python's leader assigns without waiting for metadata, and joins again if they come after that.
            if client != "kafka-python":
                assert two.changes == known
            known_again = list(one_again.changes)
            two.leave()
            with static("two") as two_again:
                assert wait_for_shares([one_again, two_again], every) == owned
                send_to_all(broker, topic, 4, 5)
                wait_until_handled([one_again, two_again], topic, [5] * 4)
                if client != "kafka-python":
                    assert one_again.changes == known_again
                assert wait_for_shares([one_again, two_again], every) == owned
                assert one_again.handled
                assert two_again.handled


# --- offsets


def test_the_next_member_goes_on_where_the_last_one_stopped(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic(2)
    send_to_all(broker, topic, 2, 10)
    with joining(broker, client, group, topic, auto_commit_interval_ms=60_000) as first:
        wait_until_handled([first], topic, [10, 10])
    assert committed_offsets(broker, group) == {(topic, 0): 10, (topic, 1): 10}  # committed as it closed
    send_to_all(broker, topic, 2, 5)
    with joining(broker, client, group, topic) as second:
        wait_until_handled([second], topic, [15, 15])
    assert_handled_once_in_order([first, second], topic, [15, 15])


def test_offsets_are_auto_committed_at_intervals(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic(1)
    watch = CommitWatch(broker, group)
    with joining(broker, client, group, topic):
        send_to_all(broker, topic, 1, 3)
        watch.wait_for(topic, [3])
        send_to_all(broker, topic, 1, 7)
        watch.wait_for(topic, [10])


def test_without_auto_commit_only_what_is_committed_by_hand_is(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic(2)
    send_to_all(broker, topic, 2, 10)
    with joining(broker, client, group, topic, enable_auto_commit=False) as member:
        wait_until_handled([member], topic, [10, 10])
        assert committed_offsets(broker, group) == {}
        member.commit({(topic, 1): 4})
        assert member.committed((topic, 0), (topic, 1)) == [None, 4]
        member.commit({(topic, 1): 2})  # a member may go back on purpose
        assert member.committed((topic, 1)) == [2]
    assert committed_offsets(broker, group) == {(topic, 1): 2}
    with joining(broker, client, group, topic) as successor:
        wait_until_handled([successor], topic, [10, 10])
    assert successor.offsets_handled(topic, 1) == list(range(2, 10))


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_group_without_offsets_starts_as_configured(
    broker: Peer, new_topic: NewTopic, group: str, client: str, reset: str
) -> None:
    topic = new_topic(1)
    send_to_all(broker, topic, 1, 10)
    with joining(broker, client, group, topic, auto_offset_reset=reset) as member:
        wait_for_shares([member], [(topic, 0)])

        def something_came() -> bool:
            """A consumer finds its place some time after it was assigned: send until something comes."""
            send_to_all(broker, topic, 1, 1)
            return bool(member.handled)

        wait_until(something_came, "a record")
    first = member.offsets_handled(topic, 0)[0]
    assert (first == 0) is (reset == "earliest")
    assert first in (0, *range(10, 1000))


def test_assigned_consumer_commits_and_resumes(
    broker: Peer, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic(2)
    send_to_all(broker, topic, 2, 10)
    partitions = [(topic, 1)]
    with joining(broker, client, group, partitions=partitions, enable_auto_commit=False) as first:
        wait_until(lambda: len(first.handled) == 10, "its records")
        assert first.committed((topic, 1)) == [None]
        first.commit({(topic, 1): 6})
    with joining(broker, client, group, partitions=partitions, enable_auto_commit=False) as second:
        wait_until(lambda: len(second.handled) == 4, "the rest")
        assert second.committed((topic, 1)) == [6]
    assert second.offsets_handled(topic, 1) == [6, 7, 8, 9]
    assert committed_offsets(broker, group) == {(topic, 1): 6}


def test_hundreds_of_partitions_commit_at_once_and_read_back(
    broker: Peer, wide_topic: str, group: str, client: str
) -> None:
    offsets = {(wide_topic, partition): 1000 + partition for partition in range(MANY_PARTITIONS)}
    with joining(broker, client, group, partitions=offsets, enable_auto_commit=False) as member:
        member.commit(offsets)
        samples = (0, 1, 150, MANY_PARTITIONS - 1)
        assert member.committed(*[(wide_topic, one) for one in samples]) == [1000 + one for one in samples]
    assert committed_offsets(broker, group) == offsets
    assert committed_offsets(broker, group, offsets) == offsets
