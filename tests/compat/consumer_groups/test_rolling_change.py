"""Java members move one by one from the classic protocol to group.protocol=consumer, and back, under load.

No record may be missed, none processed twice, and no partition may have two owners at any time, by the members' own
rebalance listeners.
"""

from collections.abc import Iterator, Mapping

import pytest

from tests.compat.conftest import Peer
from tests.support.consumer_group_members import RawConsumerGroup
from tests.support.java import JavaServer
from tests.support.java_groups import (
    CLASSIC_ONLY,
    STRATEGY,
    JavaGroups,
    JavaMember,
    groups_on,
    partitions_of,
)

COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
FEW, MANY = 4, 10


@pytest.fixture
def groups(group_jvm: JavaServer, peer: Peer) -> Iterator[JavaGroups]:
    """Java consumers in groups on `peer`."""
    with groups_on(group_jvm, peer.bootstrap) as made:
        yield made


class RollingGroup:
    """The members of one group, of either protocol. `is_static`: they have instance ids, which they keep."""

    def __init__(
        self, groups: JavaGroups, group: RawConsumerGroup, size: int, strategy: str, *, is_static: bool
    ) -> None:
        self.groups = groups
        self.name = group.name
        self.strategy = strategy
        self.is_static = is_static
        self.topic, _ = group.new_topic(2 * size)
        self.partitions = partitions_of(self.topic, 2 * size)
        self.members = [self._start(number, "classic") for number in range(size)]
        self.share()

    def _start(self, number: int, protocol: str) -> JavaMember:
        config: dict[str, object] = {"group.protocol": protocol}
        if self.is_static:
            config["group.instance.id"] = f"{self.name}-{number}"
        if protocol == "classic":
            config[STRATEGY] = self.strategy
        without = CLASSIC_ONLY if protocol == "consumer" else ()
        return self.groups.member(self.name, [self.topic], config=config, without=without)

    def share(self) -> None:
        """Wait until the members have all partitions, two each."""
        self.groups.wait_shared(self.members, self.partitions)

    def change(self, number: int, protocol: str) -> None:
        """One member ends, and another takes its place, which uses this protocol."""
        self.members[number].close()
        self.members[number] = self._start(number, protocol)
        self.share()

    @property
    def type(self) -> str:
        """As the admin client sees it."""
        listed: Mapping[str, str] = self.groups.admin.list_groups()[self.name]
        return listed["type"]


def roll(rolling: RollingGroup) -> None:
    """To the consumer protocol and back. The group is of that type while one member uses it."""
    size = len(rolling.members)
    with rolling.groups.flow(rolling.topic, len(rolling.partitions)) as sent:
        for number in range(size):
            rolling.change(number, "consumer")
            assert rolling.type == "Consumer"
        for number in range(size):
            rolling.change(number, "classic")
            assert rolling.type == ("Classic" if number == size - 1 else "Consumer")
    rolling.groups.wait_processed(sent)
    rolling.groups.check_owners()


def test_four_members_change_to_the_consumer_protocol_and_back(
    groups: JavaGroups, group: RawConsumerGroup
) -> None:
    roll(RollingGroup(groups, group, FEW, RANGE, is_static=False))


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", [RANGE, COOPERATIVE], ids=["range", "cooperative"])
def test_ten_members_change_to_the_consumer_protocol_and_back(
    groups: JavaGroups, group: RawConsumerGroup, strategy: str
) -> None:
    roll(RollingGroup(groups, group, MANY, strategy, is_static=False))


@pytest.mark.nightly
def test_static_members_change_to_the_consumer_protocol_and_back(
    groups: JavaGroups, group: RawConsumerGroup
) -> None:
    roll(RollingGroup(groups, group, FEW, COOPERATIVE, is_static=True))
