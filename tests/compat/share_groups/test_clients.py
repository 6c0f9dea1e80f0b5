"""Each client in a share group: every kind of acknowledgement, in both modes, of several partitions."""

from collections import Counter

import pytest

from tests.compat.conftest import Peer
from tests.compat.share_groups.conftest import Join, ShareGroupOfClients, new_topic
from tests.support.nightly import nightly_but
from tests.support.share_clients import CLIENTS, ShareClient, all_deliveries, produce
from tests.support.waiting import wait_until

MAX_DELIVERIES = 5
PARTITIONS = 3


def wait_accepted(members: list[ShareClient], values: set[str]) -> None:
    """Wait until each of these values was received. Each but once: nothing of them comes again."""

    def received() -> bool:
        for member in members:
            member.is_running()
        return values <= {one.value for one in all_deliveries(members)}

    wait_until(received, f"{len(values)} records")


@pytest.mark.parametrize("client", nightly_but(CLIENTS, "franz", "librdkafka"))
def test_every_kind_of_acknowledgement(peer: Peer, topic: str, join: Join, client: str) -> None:
    """The poison record is archived after its last delivery, and does not take its neighbours with it."""
    goods = [f"good-{number}" for number in range(20)]
    values = [*goods[:7], "poison-0", *goods[7:14], "bad-0", "again-0", *goods[14:]]
    produce(peer, topic, values)
    member = join(client, topic)

    def poison_is_through() -> bool:
        member.is_running()
        return sum(one.value == "poison-0" for one in member.deliveries) >= MAX_DELIVERIES

    wait_until(poison_is_through, "the last delivery of the poison record")
    produce(peer, topic, ["good-last"])
    wait_accepted([member], {*values, "good-last"})
    counts = [one.deliveries for one in member.deliveries if one.value == "poison-0"]
    assert counts == [1, 2, 3, 4, 5]
    assert [one.deliveries for one in member.deliveries if one.value == "again-0"] == [1, 2]
    others = Counter(one.value for one in member.deliveries if one.value not in ("poison-0", "again-0"))
    assert others == Counter([*goods, "bad-0", "good-last"])
    member.stop()
    assert member.errors == []
    assert member.acknowledged > 0


@pytest.mark.parametrize("client", nightly_but(CLIENTS, "java"))
def test_polling_again_acknowledges(peer: Peer, join: Join, client: str) -> None:
    """Implicit acknowledgement, of several partitions: also of what was polled last, by closing."""
    topic = new_topic(peer, PARTITIONS)
    values = {f"good-{number}" for number in range(60)}
    produce(peer, topic, sorted(values), PARTITIONS)
    member = join(client, topic, mode="implicit")
    wait_accepted([member], values)
    wait_until(lambda: member.acknowledged > 0, "an acknowledgement is answered")
    member.stop()
    assert member.errors == []
    assert {one.partition for one in member.deliveries} == set(range(PARTITIONS))
    produce(peer, topic, ["good-last"])
    other = join("franz" if client != "franz" else "librdkafka", topic)
    wait_accepted([other], {"good-last"})
    assert Counter(one.value for one in all_deliveries([member, other])) == Counter([*values, "good-last"])


def test_java_renews_and_is_called_back(peer: Peer, join: Join) -> None:
    """The renewed record is polled again without another delivery; the callback has every offset."""
    topic = new_topic(peer, PARTITIONS)
    values = ["good-0", "renew-0", "bad-0", "again-0", "good-1", "renew-1"]
    produce(peer, topic, values, PARTITIONS)
    member = join("java", topic)
    # by partition: 0: good, again; 1: renew, good; 2: bad, renew
    wanted = {0: Counter({0: 1, 1: 2}), 1: Counter({0: 2, 1: 1}), 2: Counter({0: 1, 1: 2})}

    def told() -> dict[int, Counter[int]]:
        member.is_running()
        found: dict[int, Counter[int]] = {}
        for row in member.events("acknowledged"):
            found.setdefault(row["partition"], Counter()).update(row["offsets"])
        return found

    wait_until(lambda: told() == wanted, "all callbacks")
    renewed = [one for one in member.deliveries if one.value.startswith("renew")]
    assert sorted(Counter(one.value for one in renewed).values()) == [2, 2]
    assert {one.deliveries for one in renewed} == {1}
    member.stop()
    assert member.errors == []


@pytest.mark.parametrize("client", nightly_but(CLIENTS, "librdkafka"))
def test_records_of_a_killed_member_come_to_another(
    peer: Peer, group: ShareGroupOfClients, topic: str, join: Join, client: str
) -> None:
    """Its connection ends: what it held is free at once, and counts as delivered."""
    values = {f"good-{number}" for number in range(20)}
    produce(peer, topic, sorted(values))
    member = join(client, topic, hold=True)
    held = member.wait_holding()
    other = join("franz" if client != "franz" else "librdkafka", topic)
    group.await_members(2)
    assert not held & {one.value for one in other.deliveries}
    member.kill9()
    wait_accepted([other], values)
    counts = {one.value: one.deliveries for one in other.deliveries}
    assert {counts[value] for value in held} == {2}
    assert len(other.deliveries) == len(values)
