"""Kafka's Java consumer with group.protocol=consumer."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.compat.conftest import Peer
from tests.support.consumer_group_members import RawConsumerGroup
from tests.support.java import JavaServer
from tests.support.java_groups import (
    CLASSIC_ONLY,
    CONSUMER_PROTOCOL,
    Committed,
    JavaGroups,
    JavaMember,
    groups_on,
    partitions_of,
)
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

Join = Callable[..., JavaMember]
SESSION_MS = 1_000


@pytest.fixture
def groups(group_jvm: JavaServer, peer: Peer) -> Iterator[JavaGroups]:
    """Java consumers in groups on `peer`."""
    with groups_on(group_jvm, peer.bootstrap) as made:
        yield made


@pytest.fixture
def join(groups: JavaGroups, group: RawConsumerGroup) -> Join:
    """Starts a member of `group`, by topics or by regex."""

    def start(*topics: str, config: Mapping[str, object] | None = None, **options: object) -> JavaMember:
        merged = {**CONSUMER_PROTOCOL, **(config or {})}
        return groups.member(group.name, topics, config=merged, without=CLASSIC_ONLY, **options)  # type: ignore[arg-type]

    return start


def static(instance: str) -> dict[str, object]:
    return {"group.instance.id": instance}


def test_records_are_processed_once_with_changing_members(
    groups: JavaGroups, join: Join, group: RawConsumerGroup
) -> None:
    topic, _ = group.new_topic(6)
    partitions = partitions_of(topic, 6)
    with groups.flow(topic, 6) as sent:
        first = join(topic)
        groups.wait_shared([first], partitions)
        others = [join(topic) for _ in range(2)]
        groups.wait_shared([first, *others], partitions)
        first.close()
        groups.wait_shared(others, partitions)
        late = join(topic)
        groups.wait_shared([*others, late], partitions)
        groups.close(*others)
        groups.wait_shared([late], partitions)
    groups.wait_processed(sent)
    groups.check_owners()
    # what a member had processed it committed when it was told to give the partition up
    assert {key: one.offset for key, one in late.committed(*partitions).items()} == {
        key: len(values) for key, values in sent.items()
    }
    assert not [event for member in groups.members for event in member.events("lost", "error")]


def test_members_are_described(groups: JavaGroups, join: Join, group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(2)
    member = join(topic, config=static("instance-1") | {"group.remote.assignor": "range"})
    member.wait_owned(partitions_of(topic, 2))
    listed = groups.admin.list_groups(types=["Consumer"])[group.name]
    assert (listed["state"], listed["type"], listed["protocol_type"]) == ("Stable", "Consumer", "consumer")
    described = groups.admin.describe(group.name)[group.name]
    assert (described["state"], described["type"], described["assignor"]) == ("Stable", "Consumer", "range")
    (row,) = described["members"]
    assert (row["instance_id"], row["client_id"]) == ("instance-1", member.name)
    assert row["member_id"] == member.group_metadata()["member_id"]
    assert sorted(map(tuple, row["partitions"])) == partitions_of(topic, 2)


def test_member_goes_on_from_the_committed_offset(
    groups: JavaGroups, join: Join, group: RawConsumerGroup
) -> None:
    topic, _ = group.new_topic()
    groups.produce(topic, [(0, str(number)) for number in range(10)])
    first = join(topic, commit=False)
    wait_until(lambda: len(groups.processed().get((topic, 0), [])) == 10, "ten records")
    first.commit({(topic, 0): Committed(offset=4, metadata="so far")})
    first.commit_async({(topic, 0): Committed(offset=5, metadata="so far")})
    wait_until(lambda: first.events("committed"), "the commit's callback")
    assert "error" not in first.events("committed")[0]
    assert first.committed((topic, 0)) == {(topic, 0): Committed(offset=5, metadata="so far")}
    first.close()
    second = join(topic, commit=False)
    wait_until(lambda: second.events("records"), "records")
    assert second.events("records")[0]["records"][0][2] == 5
    second.seek((topic, 0), 2)
    wait_until(lambda: second.events("records")[-1]["records"][0][2] == 2, "records from 2 on again")


def test_static_member_returns_and_no_partition_moves(
    groups: JavaGroups, join: Join, group: RawConsumerGroup
) -> None:
    topic, _ = group.new_topic(4)
    first, second = (join(topic, config=static(f"instance-{number}")) for number in range(2))
    groups.wait_shared([first, second], partitions_of(topic, 4))
    had, epochs = first.owned(), group.epochs()
    first.close()
    again = join(topic, config=static("instance-0"))
    again.wait_owned(had)
    assert group.epochs() == epochs
    assert [event["kind"] for event in second.events("revoked", "lost")].count("lost") == 0
    thief = join(topic, config=static("instance-0"))
    thief.wait_error("UnreleasedInstanceIdException")
    groups.check_owners()


def test_regex_is_resolved_by_the_broker(groups: JavaGroups, join: Join, group: RawConsumerGroup) -> None:
    prefix = unique_name("regex")
    for name in ("a", "b", "b-more"):
        create_topic(group.broker, f"{prefix}-{name}")
    member = join(regex=f"{prefix}-[a-z]")
    member.wait_owned([(f"{prefix}-a", 0), (f"{prefix}-b", 0)])
    broken = join(regex="[")
    assert "[" in broken.wait_error("InvalidRegularExpression")


def test_topic_that_grows_or_comes_later(groups: JavaGroups, join: Join, group: RawConsumerGroup) -> None:
    topic, later = group.new_topic(1)[0], unique_name("later")
    member = join(topic, later)
    member.wait_owned([(topic, 0)])
    groups.admin.grow_topic(topic, 3)
    member.wait_owned(partitions_of(topic, 3))
    create_topic(group.broker, later, 2)
    member.wait_owned([*partitions_of(topic, 3), *partitions_of(later, 2)])


def test_subscription_changes(groups: JavaGroups, join: Join, group: RawConsumerGroup) -> None:
    left, right = group.new_topic(2)[0], group.new_topic(2)[0]
    first, second = join(left, right), join(left, right)
    groups.wait_shared([first, second], [*partitions_of(left, 2), *partitions_of(right, 2)])
    first.subscribe(left)
    second.subscribe(right)
    first.wait_owned(partitions_of(left, 2))
    second.wait_owned(partitions_of(right, 2))
    first.unsubscribe()
    group.await_members(1)
    groups.check_owners()


def test_vanished_members_partitions_go_to_others(
    groups: JavaGroups, join: Join, group: RawConsumerGroup
) -> None:
    group.set_config("consumer.session.timeout.ms", SESSION_MS)
    topic, _ = group.new_topic(4)
    first, second = join(topic), join(topic)
    groups.wait_shared([first, second], partitions_of(topic, 4))
    first.vanish()
    second.wait_owned(partitions_of(topic, 4))
    group.await_members(1)


@pytest.mark.nightly
def test_member_that_does_not_poll_leaves(groups: JavaGroups, join: Join, group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(4)
    slow, other = join(topic, config={"max.poll.interval.ms": 3_000}), join(topic)
    groups.wait_shared([slow, other], partitions_of(topic, 4))
    slow.hold()
    other.wait_owned(partitions_of(topic, 4))
    slow.resume()
    groups.wait_shared([slow, other], partitions_of(topic, 4))


@pytest.mark.nightly
def test_regex_finds_a_topic_that_comes_later(
    groups: JavaGroups, join: Join, group: RawConsumerGroup
) -> None:
    prefix = unique_name("regex")
    create_topic(group.broker, f"{prefix}-a")
    member = join(regex=f"{prefix}-.*")
    member.wait_owned([(f"{prefix}-a", 0)])
    create_topic(group.broker, f"{prefix}-b")
    member.wait_owned([(f"{prefix}-a", 0), (f"{prefix}-b", 0)])
