"""Members of different clients in one share group; members that come and go; a broker that is killed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat.conftest import Peer
from tests.compat.share_groups.conftest import (
    Join,
    ShareGroupOfClients,
    new_topic,
    running,
    share_group,
    share_peer,
    skip_without,
)
from tests.support.nightly import by_day
from tests.support.share_clients import CLIENTS, ShareClient, all_deliveries, produce
from tests.support.waiting import wait_until

PARTITIONS = 2
ROUNDS = by_day(6, by_night=100)
MEMBERS = 10
KILLS = 8


def test_three_clients_share_a_queue(peer: Peer, group: ShareGroupOfClients, join: Join) -> None:
    """Each record is processed once; records that one of them releases come again, to any of them."""
    topic = new_topic(peer, PARTITIONS)
    members = [join(client, topic, count=10) for client in CLIENTS]
    group.await_members(len(members))
    values = []
    for number in range(ROUNDS):
        batch = [f"good-{number}-{one}" for one in range(18)] + [f"again-{number}", f"bad-{number}"]
        produce(peer, topic, batch, PARTITIONS)
        values += batch

    def counts() -> Counter[str]:
        for member in members:
            member.is_running()
        return Counter(one.value for one in all_deliveries(members))

    wanted = Counter({value: 2 if value.startswith("again") else 1 for value in values})
    wait_until(lambda: counts().total() >= wanted.total(), "all records")
    for member in members:
        member.stop()
    assert Counter(one.value for one in all_deliveries(members)) == wanted
    assert [member.errors for member in members] == [[], [], []]
    agains = Counter(one.deliveries for one in all_deliveries(members) if one.value.startswith("again"))
    assert agains == {1: ROUNDS, 2: ROUNDS}


def test_ten_members_join_and_leave(peer: Peer, group: ShareGroupOfClients, join: Join) -> None:
    """More members than partitions: each has one at least, and each partition somebody."""
    topic = new_topic(peer, 4)
    members = [join("franz", topic) for _ in range(MEMBERS)]
    group.await_members(MEMBERS)
    found = group.describe()
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    parts = [index for one in group.assignments() for indexes in one.values() for index in indexes]
    assert set(parts) == set(range(4))
    assert len(parts) >= MEMBERS
    values = {f"good-{number}" for number in range(40)}
    produce(peer, topic, sorted(values), 4)
    wait_until(lambda: {one.value for one in all_deliveries(members)} == values, "all records")
    for member in members[1:]:
        member.stop()
    group.await_members(1)
    wait_until(
        lambda: [set(range(4))] == [indexes for one in group.assignments() for indexes in one.values()],
        "the last one has all partitions",
    )
    members[0].stop()
    wait_until(lambda: group.describe().group_state == "Empty", "all have left")
    assert len(all_deliveries(members)) == len(values)


@pytest.fixture
def killable(only_kafscale: None, peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker that only the test of its kill uses."""
    yield from running(share_peer(peer_kind, tmp_path_factory))


@pytest.mark.nightly
def test_broker_is_killed_again_and_again(killable: Peer, tmp_path: Path) -> None:
    """Whatever was being done: what a client was told to be acknowledged is never delivered from then on."""
    skip_without("java")
    topic = new_topic(killable, PARTITIONS)
    values: set[str] = set()
    with share_group(killable) as group:
        name = group.name
    with ExitStack() as stack:
        members = [
            stack.enter_context(ShareClient(tmp_path, client, killable, name, topic, count=10))
            for client in ("librdkafka", "java")
        ]
        for number in range(KILLS):
            batch = {f"good-{number}-{one}" for one in range(200)}
            produce(killable, topic, sorted(batch), PARTITIONS)
            values |= batch
            wanted = len(values) - 100
            wait_until(lambda wanted=wanted: _told(members) >= wanted, "some are acknowledged")  # type: ignore[misc]
            killable.kill9()
            killable.start()

        def processed() -> bool:
            assert all(member.is_running() for member in members)
            return {one.value for one in all_deliveries(members)} == values

        wait_until(processed, "all records")
        for member in members:
            member.stop()
    acknowledged = {
        (row["partition"], offset): row["at"]
        for member in members
        for row in member.events("acknowledged")
        if not row["error"]
        for offset in row["offsets"]
    }
    again = [
        row
        for member in members
        for row in member.events("record")
        if row["at"] > acknowledged.get((row["partition"], row["offset"]), row["at"])
    ]
    assert again == []
    with ShareClient(tmp_path, "librdkafka", killable, name, topic) as after:
        produce(killable, topic, [f"good-last-{one}" for one in range(PARTITIONS)], PARTITIONS)
        wait_until(
            lambda: after.is_running() and sum("last" in one.value for one in after.deliveries) == PARTITIONS,
            "the last records",
        )
    late = {(one.partition, one.offset) for one in after.deliveries}
    assert not late & set(acknowledged)


def _told(members: list[ShareClient]) -> int:
    return sum(member.is_running() and member.acknowledged for member in members)


def test_killed_broker_keeps_what_was_acknowledged(killable: Peer, tmp_path: Path) -> None:
    """After kill -9 the other records come, and none that was acknowledged. Kafka writes to its disk later."""
    client = "librdkafka"
    skip_without(client)
    topic = new_topic(killable, PARTITIONS)
    with share_group(killable) as group:
        name = group.name
        group.set_config("share.session.timeout.ms", 1_000)  # the dead member's partition is another's then
        first = {f"good-{number}" for number in range(40)}
        produce(killable, topic, [*sorted(first), "bad-0", "bad-1"], PARTITIONS)
        with ShareClient(tmp_path, client, killable, name, topic) as member:
            wait_until(
                lambda: member.is_running() and member.acknowledged == len(first) + 2, "all is accepted"
            )
            assert member.errors == []
        second = {f"good-more-{number}" for number in range(20)}
        produce(killable, topic, sorted(second), PARTITIONS)
        holder = ShareClient(tmp_path, client, killable, name, topic, hold=True)
        with holder:
            assert holder.wait_holding()
            killable.kill9()
            holder.kill9()
    killable.start()
    with ShareClient(tmp_path, client, killable, name, topic) as after:

        def received() -> bool:
            return after.is_running() and {one.value for one in after.deliveries} >= second

        wait_until(received, "what was not acknowledged")
    assert Counter(one.value for one in after.deliveries) == Counter(second)
    assert after.errors == []
