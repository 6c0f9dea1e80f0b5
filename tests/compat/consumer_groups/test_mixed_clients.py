"""Members of three clients come and go in one group of the consumer protocol, under load."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.compat import tools
from tests.compat.conftest import Peer
from tests.support.consumer_group_members import RawConsumerGroup
from tests.support.consumer_protocol_members import ConsumerProtocolMember, Journal
from tests.support.franz_go import FranzMember
from tests.support.group_apis import committed
from tests.support.group_work import RunningProducer, partitions_of
from tests.support.java import JavaServer
from tests.support.java_groups import CLASSIC_ONLY, CONSUMER_PROTOCOL, JavaGroups, groups_on
from tests.support.waiting import wait_until

PARTITIONS = 8
ROUNDS = 12

Partition = tuple[str, int]

pytestmark = pytest.mark.nightly


class Party:
    """The members of all clients; each is a name that leaves when it is told to."""

    def __init__(
        self, peer: Peer, group: str, topic: str, folder: Path, java: JavaGroups, stack: ExitStack
    ) -> None:
        self._peer, self._group, self._topic, self._folder = peer, group, topic, folder
        self._java, self._stack = java, stack
        self._journal = Journal()
        self._franz: list[FranzMember] = []

    def join(self, client: str) -> tuple[Callable[[], Any], Callable[[], frozenset[Partition]]]:
        """Start a member; how it leaves, and what it has."""
        match client:
            case "java":
                member = self._java.member(
                    self._group, [self._topic], config=CONSUMER_PROTOCOL, without=CLASSIC_ONLY
                )
                return member.close, lambda: frozenset(member.owned())
            case "librdkafka":
                one = ConsumerProtocolMember(self._peer.bootstrap, self._group, [self._topic], self._journal)
                self._stack.enter_context(one)
                return one.leave, lambda: one.owned
            case _:
                other = FranzMember(
                    self._folder,
                    self._peer,
                    self._group,
                    self._topic,
                    protocol="consumer",
                    balancers="sticky",
                    autocommit=True,
                )
                self._stack.enter_context(other)
                self._franz.append(other)
                return other.stop, lambda: other.assignment

    def handled(self) -> Counter[tuple[Partition, int]]:
        """How often each record was handled."""
        found: Counter[tuple[Partition, int]] = Counter()
        for partition, rows in self._java.processed().items():
            found.update((partition, row.offset) for row in rows)
        for partition, offsets in self._journal.records.items():
            found.update((partition, offset) for offset in offsets)
        for member in self._franz:
            found.update(((row["topic"], row["partition"]), row["offset"]) for row in member.events("record"))
        return found


@pytest.fixture
def java(group_jvm: JavaServer, peer: Peer) -> Iterator[JavaGroups]:
    with groups_on(group_jvm, peer.bootstrap) as made:
        yield made


def test_every_record_is_handled_once_by_changing_members(
    peer: Peer, group: RawConsumerGroup, java: JavaGroups, tmp_path: Path
) -> None:
    reason = tools.franz_missing()
    if reason:
        pytest.skip(reason)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    topic, _ = group.new_topic(PARTITIONS)
    with ExitStack() as stack, RunningProducer(peer, topic, PARTITIONS) as producer:
        party = Party(peer, group.name, topic, tmp_path, java, stack)
        members = [party.join(client) for client in ("java", "librdkafka", "franz")]

        def shared() -> bool:
            parts = [owned() for _, owned in members]
            # None leaves before it has joined: franz-go 1.20 would not end.
            return all(parts) and sorted(chain(*parts)) == partitions_of(topic, PARTITIONS)

        for _ in range(ROUNDS):
            wait_until(shared, "the members share the partitions")
            producer.wait_for_more(5)
            leave, _ = members.pop(chance.randrange(len(members)))
            leave()
            members.append(party.join(chance.choice(["java", "librdkafka", "franz"])))
        wait_until(shared, "the members share the partitions")
        producer.stop()
        counts = dict(zip(partitions_of(topic, PARTITIONS), producer.counts, strict=True))
        wanted = Counter((one, offset) for one, count in counts.items() for offset in range(count))
        wait_until(lambda: party.handled() >= wanted, f"{wanted.total()} records are handled")
        assert party.handled() == wanted
        for leave, _ in members:
            leave()
        assert {one: committed(group.wire, group.name, [one])[one].offset for one in counts} == counts
