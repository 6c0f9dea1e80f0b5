"""franz-go: its default producer, groups with each of its balancers, static members, kadm."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka.record.memory_records import MemoryRecords

from tests.compat import tools
from tests.compat.conftest import NewTopic, Peer
from tests.support import wire
from tests.support.franz_go import FranzMember, Partitions, Row, ask, franz
from tests.support.group_apis import committed
from tests.support.topics import unique_name
from tests.support.waiting import NotInTimeError, wait_until

PARTITIONS = 4
BALANCERS = ["range", "roundrobin", "sticky", "cooperative-sticky"]

Join = Callable[..., FranzMember]


@pytest.fixture(autouse=True)
def franz_is_built() -> None:
    """For tests that run tests/compat/go."""
    reason = tools.franz_missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(partitions=PARTITIONS)


@pytest.fixture
def group() -> str:
    return unique_name("group")


@pytest.fixture
def join(broker: Peer, group: str, topic: str, tmp_path: Path) -> Iterator[Join]:
    """Starts a member: flags as arguments. Those that still run leave at the end."""
    with ExitStack() as members:

        def start(**flags: object) -> FranzMember:
            return members.enter_context(FranzMember(tmp_path, broker, group, topic, **flags))

        yield start


def all_of(topic: str) -> Partitions:
    return frozenset((topic, index) for index in range(PARTITIONS))


def share(topic: str, *members: FranzMember) -> None:
    """Wait until those members have all partitions among them, each some, none twice."""

    def is_shared() -> bool:
        parts = [member.assignment for member in members]
        return (
            all(parts)
            and sum(map(len, parts)) == PARTITIONS
            and frozenset[tuple[str, int]]().union(*parts) == all_of(topic)
        )

    try:
        wait_until(is_shared, f"{len(members)} members share {PARTITIONS} partitions")
    except NotInTimeError as problem:
        raise AssertionError([moves(member) for member in members]) from problem


def moves(member: FranzMember) -> list[Row]:
    """Its lines about partitions that came or went."""
    return [row for row in member.events() if row.get("partitions")]


def produce(broker: Peer, topic: str, count: int, prefix: str = "value") -> dict[int, list[str]]:
    """Produces, and gives the values of each partition in their order."""
    rows = franz(broker, "produce", "-topic", topic, "-count", str(count), "-prefix", prefix)
    produced = sorted(
        (row["partition"], row["offset"], row["value"]) for row in rows if row["event"] == "produced"
    )
    assert len(produced) == count
    return {
        index: [value for partition, _, value in produced if partition == index]
        for index in range(PARTITIONS)
    }


def consumed(member: FranzMember) -> dict[int, list[str]]:
    """The values of each partition in the order in which they came."""
    rows = member.events("record")
    return {index: [row["value"] for row in rows if row["partition"] == index] for index in range(PARTITIONS)}


# --- producing


def test_its_default_producer_is_idempotent(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    *rows, producer = franz(broker, "produce", "-topic", topic, "-count", "50")
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, n) for n in range(50)]
    assert producer["id"] >= 0
    with wire.connect(broker) as connection:
        assert wire.read_all(connection, topic, 0) == [(n, b"value-%d" % n) for n in range(50)]
        batches = MemoryRecords(bytes(wire.fetch(connection, topic, {0: 0})[0].records))
        first = batches.next_batch()
        assert (first.producer_id, first.producer_epoch, first.base_sequence) == (
            producer["id"],
            producer["epoch"],
            0,
        )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_it_produces_it_consumes(broker: Peer, join: Join, topic: str, codec: str) -> None:
    rows = franz(broker, "produce", "-topic", topic, "-count", "100", "-codec", codec)
    sent = sorted(row["value"] for row in rows if row["event"] == "produced")
    member = join()
    wait_until(lambda: sorted(member.values) == sent, "all is consumed")


# --- sharing the work


@pytest.mark.parametrize("balancer", BALANCERS)
def test_two_members_share_the_partitions_and_the_records(
    broker: Peer, join: Join, topic: str, balancer: str
) -> None:
    first = join(balancers=balancer)
    wait_until(lambda: first.assignment == all_of(topic), "the first has all")
    second = join(balancers=balancer)
    share(topic, first, second)
    sent = produce(broker, topic, 200)
    wait_until(lambda: len(first.values) + len(second.values) == 200, "all is consumed")
    for index, values in sent.items():
        owner, other = (first, second) if (topic, index) in first.assignment else (second, first)
        assert consumed(owner)[index] == values
        assert consumed(other)[index] == []


def test_a_cooperative_member_keeps_what_it_may_keep(join: Join, topic: str) -> None:
    first = join(balancers="cooperative-sticky")
    wait_until(lambda: first.assignment == all_of(topic), "the first has all")
    second = join(balancers="cooperative-sticky")
    share(topic, first, second)
    revoked = [set(row["partitions"].get(topic, ())) for row in first.events("revoked")]
    assert set().union(*revoked) == {index for _, index in second.assignment}
    assert sum(map(len, revoked)) == PARTITIONS // 2


@pytest.mark.parametrize("balancer", ["range", "sticky"])
def test_an_eager_member_gives_all_up_before_it_joins_again(join: Join, topic: str, balancer: str) -> None:
    first = join(balancers=balancer)
    wait_until(lambda: first.assignment == all_of(topic), "the first has all")
    share(topic, first, join(balancers=balancer))
    assert set(first.events("revoked")[0]["partitions"][topic]) == set(range(PARTITIONS))


def test_upgrade_to_cooperative_uses_common_protocol(
    broker: Peer, join: Join, group: str, topic: str
) -> None:
    # The old member first: were the new one alone for a moment, its group would be cooperative, and it could not
    # go back (KIP-429; the client warns, and keeps partitions that it has no more).
    old = join(balancers="range")
    wait_until(lambda: old.assignment == all_of(topic), "the old member has all")
    share(topic, old, join(balancers="cooperative-sticky,range"))
    (described,) = ask(broker, "describe", group)
    assert described["protocol"] == "range"


@pytest.mark.parametrize("balancer", ["range", "cooperative-sticky"])
def test_when_one_leaves_the_other_takes_over(broker: Peer, join: Join, topic: str, balancer: str) -> None:
    staying, leaving = join(balancers=balancer), join(balancers=balancer)
    share(topic, staying, leaving)
    leaving.stop()
    wait_until(lambda: staying.assignment == all_of(topic), "the other has all")
    sent = produce(broker, topic, 40)
    wait_until(lambda: consumed(staying) == sent, "all is consumed")


def test_partitions_of_killed_member_move_after_its_session(join: Join, topic: str) -> None:
    staying, killed = join(), join(session="1s")
    share(topic, staying, killed)
    killed.kill9()
    wait_until(lambda: staying.assignment == all_of(topic), "the other has all")


# --- commits


def test_a_new_member_goes_on_where_the_last_one_committed(
    broker: Peer, join: Join, group: str, topic: str
) -> None:
    sent = produce(broker, topic, 40, "before")
    first = join()
    wait_until(lambda: consumed(first) == sent, "all is consumed")
    ends = {index: len(values) for index, values in sent.items() if values}
    assert first.commit() == {topic: {str(index): end for index, end in ends.items()}}
    later = produce(broker, topic, 40, "after")
    wait_until(lambda: len(first.values) == 80, "all is consumed")
    first.stop()  # without a commit of what came after
    with wire.connect(broker) as connection:
        found = committed(connection, group)
    assert {index: one.offset for (_, index), one in found.items()} == ends
    second = join()
    wait_until(lambda: consumed(second) == later, "what was not committed is consumed again")


def test_manually_committing_member_loses_and_repeats_none(broker: Peer, join: Join, topic: str) -> None:
    sent = [produce(broker, topic, 40, str(round_)) for round_ in range(3)]
    first = join(autocommit="true")
    wait_until(lambda: len(first.values) == 120, "all is consumed")
    first.stop()
    sent.append(produce(broker, topic, 40, "last"))
    second = join(autocommit="true")
    wait_until(lambda: consumed(second) == sent[-1], "the rest is consumed, and nothing else")
    ask_again = join(autocommit="true")
    share(topic, second, ask_again)
    assert ask_again.values == []


# --- static members


def test_a_static_member_comes_back_without_a_rebalance(join: Join, topic: str) -> None:
    staying, restarted = join(instance="staying"), join(instance="restarted")
    share(topic, staying, restarted)
    owned, generation = restarted.assignment, restarted.generation
    moved = moves(staying)
    restarted.stop()
    again = join(instance="restarted")
    wait_until(lambda: again.assignment == owned, "it has its partitions again")
    assert again.generation == generation
    assert moves(staying) == moved


def test_an_administrator_removes_a_static_member(broker: Peer, join: Join, group: str, topic: str) -> None:
    staying, stopped = join(instance="staying"), join(instance="stopped")
    share(topic, staying, stopped)
    stopped.stop()
    assert ask(broker, "remove", group, "stopped") == [{"instance": "stopped", "error": ""}]
    wait_until(lambda: staying.assignment == all_of(topic), "the other has all")


# --- kadm


def test_it_lists_and_describes_groups(broker: Peer, join: Join, group: str, topic: str) -> None:
    members = [join(instance="first"), join()]
    share(topic, *members)
    expected = {"group": group, "protocol_type": "consumer", "state": "Stable"}
    assert expected in ask(broker, "list")
    assert expected in ask(broker, "list", "Stable")
    assert group not in [row["group"] for row in ask(broker, "list", "Empty")]
    (described,) = ask(broker, "describe", group)
    assert (described["state"], described["protocol_type"], described["error"]) == ("Stable", "consumer", "")
    assert described["protocol"] == "cooperative-sticky"  # its default
    assert {row["client"] for row in described["members"]} == {"franz"}
    assert {row["host"] for row in described["members"]} == {"/127.0.0.1"}
    assert [row["topics"] for row in described["members"]] == [[topic], [topic]]
    assert [row["instance"] for row in described["members"] if "instance" in row] == ["first"]
    assigned = {frozenset(row["partitions"][topic]) for row in described["members"]}
    assert assigned == {frozenset(index for _, index in member.assignment) for member in members}


def test_it_shows_the_lag_of_a_group(broker: Peer, join: Join, group: str, topic: str) -> None:
    sent = produce(broker, topic, 40)
    member = join()
    wait_until(lambda: consumed(member) == sent, "all is consumed")
    member.commit()
    later = produce(broker, topic, 20)
    rows = {row["partition"]: row for row in ask(broker, "lag", group)}
    assert rows.keys() == set(range(PARTITIONS))
    for index, row in rows.items():
        before, after = len(sent[index]), len(later[index])
        assert (row["committed"], row["end"], row["lag"]) == (before or -1, before + after, after)
        assert row["member"].startswith("franz-")
    member.stop()
    assert {row["partition"]: row["lag"] for row in ask(broker, "lag", group)} == {
        index: len(values) for index, values in later.items()
    }


def test_it_commits_offsets_for_a_group_without_members(
    broker: Peer, join: Join, group: str, topic: str
) -> None:
    sent = produce(broker, topic, 40)
    ask(broker, "commit", group, topic, *(str(len(sent[index])) for index in range(PARTITIONS)))
    rows = ask(broker, "offsets", group)
    assert {row["partition"]: row["committed"] for row in rows} == {
        index: len(values) for index, values in sent.items()
    }
    member = join()
    later = produce(broker, topic, 20, "later")
    wait_until(lambda: consumed(member) == later, "what comes after the commit is consumed")


def test_it_deletes_groups_and_offsets_without_readers(
    broker: Peer, join: Join, group: str, topic: str
) -> None:
    member = join()
    wait_until(lambda: member.assignment == all_of(topic), "it has all")
    assert ask(broker, "delete", group) == [{"group": group, "error": "NON_EMPTY_GROUP"}]
    assert ask(broker, "delete-offsets", group, topic) == [
        {"topic": topic, "partition": 0, "error": "GROUP_SUBSCRIBED_TO_TOPIC"}
    ]
    member.stop()
    ask(broker, "commit", group, topic, "7", "8")
    assert ask(broker, "delete-offsets", group, topic) == []
    assert [(row["partition"], row["committed"]) for row in ask(broker, "offsets", group)] == [(1, 8)]
    absent = unique_name("absent")
    assert {row["group"]: row["error"] for row in ask(broker, "delete", group, absent)} == {
        group: "",
        absent: "GROUP_ID_NOT_FOUND",
    }
    assert ask(broker, "offsets", group) == []
    assert group not in [row["group"] for row in ask(broker, "list")]
