"""franz-go in groups of the consumer protocol."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat import tools
from tests.compat.conftest import Peer
from tests.support.consumer_group_members import RawConsumerGroup, grow_topic
from tests.support.franz_go import FranzMember, franz
from tests.support.group_apis import committed, list_groups
from tests.support.group_work import RunningProducer, partitions_of
from tests.support.nightly import nightly_but
from tests.support.waiting import wait_until

PARTITIONS = 4
ASSIGNORS = {"sticky": "uniform", "range": "range"}
"""franz-go's balancers, and the broker's assignors that they stand for."""

Join = Callable[..., FranzMember]


@pytest.fixture(autouse=True)
def franz_is_built() -> None:
    """For tests that run tests/compat/go."""
    reason = tools.franz_missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def topic(group: RawConsumerGroup) -> str:
    return group.new_topic(PARTITIONS)[0]


@pytest.fixture
def join(peer: Peer, group: RawConsumerGroup, topic: str, tmp_path: Path) -> Iterator[Join]:
    """Starts a member; those that still run leave at the end."""
    with ExitStack() as members:

        def start(**flags: object) -> FranzMember:
            flags = {"protocol": "consumer", "balancers": "sticky", **flags}
            return members.enter_context(FranzMember(tmp_path, peer, group.name, topic, **flags))

        yield start


def wait_shared(members: Sequence[FranzMember], topic: str, count: int = PARTITIONS) -> None:
    def shared() -> bool:
        parts = [member.assignment for member in members]
        sizes = [len(part) for part in parts]
        whole = sorted(one for part in parts for one in part)
        return max(sizes) - min(sizes) <= 1 and whole == partitions_of(topic, count)

    wait_until(shared, f"{len(members)} members share {count} partitions")


@pytest.mark.parametrize("balancer", nightly_but(ASSIGNORS, "sticky"))
def test_records_are_consumed_with_changing_members(
    peer: Peer, join: Join, group: RawConsumerGroup, topic: str, balancer: str
) -> None:
    with RunningProducer(peer, topic, PARTITIONS) as producer:
        first = join(balancers=balancer, autocommit=True)
        wait_shared([first], topic)
        assert list_groups(group.wire)[group.name].group_type == "consumer"
        assert group.describe().assignor == ASSIGNORS[balancer]
        second = join(balancers=balancer, autocommit=True)
        wait_shared([first, second], topic)
        producer.wait_for_more()
        first.stop()
        wait_shared([second], topic)
        producer.wait_for_more()
    wanted = {
        (one, offset)
        for one, count in zip(partitions_of(topic, PARTITIONS), producer.counts, strict=True)
        for offset in range(count)
    }

    def consumed() -> list[tuple[tuple[str, int], int]]:
        rows = first.events("record") + second.events("record")
        return [((row["topic"], row["partition"]), row["offset"]) for row in rows]

    wait_until(lambda: len(consumed()) >= len(wanted), "every record")
    assert sorted(consumed()) == sorted(wanted)  # each by one of them
    second.stop()
    ends = {
        one: committed(group.wire, group.name, [one])[one].offset for one in partitions_of(topic, PARTITIONS)
    }
    assert list(ends.values()) == producer.counts
    errors = [row for member in (first, second) for row in member.events("error")]
    assert errors == []


@pytest.mark.nightly  # waits for a session
def test_static_member_is_replaced_after_its_session(join: Join, group: RawConsumerGroup, topic: str) -> None:
    """franz-go 1.20 does not say that it goes: its successor is refused until then, and asks again."""
    group.set_config("consumer.session.timeout.ms", 1_000)
    first, second = join(instance="instance-0"), join(instance="instance-1")
    wait_shared([first, second], topic)
    first.stop()
    again = join(instance="instance-0")
    wait_shared([again, second], topic)
    assert {row.instance_id for row in group.describe().members.values()} == {"instance-0", "instance-1"}


def test_member_commits_and_another_goes_on(peer: Peer, join: Join, topic: str) -> None:
    franz(peer, "produce", "-topic", topic, "-count", "40")
    first = join()
    wait_until(lambda: len(first.values) == 40, "all is consumed")
    assert sum(first.commit()[topic].values()) == 40
    first.stop()
    second = join()
    wait_shared([second], topic)
    franz(peer, "produce", "-topic", topic, "-count", "20", "-prefix", "more")
    wait_until(lambda: len(second.values) == 20, "the rest")
    assert all(value.startswith("more") for value in second.values)


def test_new_partitions_are_assigned(join: Join, group: RawConsumerGroup, topic: str) -> None:
    member = join()
    wait_shared([member], topic)
    grow_topic(group.wire, topic, PARTITIONS + 2)
    wait_shared([member], topic, PARTITIONS + 2)
