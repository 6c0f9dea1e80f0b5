"""Metrics of consumer groups: states and members, rebalances, commits, and how far they are behind."""

from collections.abc import Callable, Iterator

import pytest

from kafscale.groups.states import GroupState
from tests.integration.conftest import StartBroker
from tests.support import librdkafka, wire
from tests.support.broker import KafscaleBroker
from tests.support.group_apis import commit, committed, delete_groups, delete_offsets
from tests.support.group_wire import RawGroup, raw_group
from tests.support.metrics_page import MetricsPage, scrape
from tests.support.topics import create_topic, delete_topic
from tests.support.waiting import wait_until

TOPIC = "orders"
INITIAL_DELAY_MS = 200
SETTINGS = {"flush_interval_ms": 0, "group_initial_rebalance_delay_ms": INITIAL_DELAY_MS}

Lag = dict[tuple[str, ...], float]


@pytest.fixture
def broker(start_broker: StartBroker) -> KafscaleBroker:
    return with_topic(start_broker(**SETTINGS))


@pytest.fixture
def group(broker: KafscaleBroker) -> Iterator[RawGroup]:
    with raw_group(broker) as group:
        yield group


def with_topic(broker: KafscaleBroker) -> KafscaleBroker:
    """A topic of three partitions with ten records in each."""
    create_topic(broker, TOPIC, 3)
    for partition in range(3):
        produce(broker, 10, partition)
    return broker


def produce(broker: KafscaleBroker, count: int, partition: int = 0) -> None:
    with wire.connect(broker) as connection:
        assert wire.produce(connection, TOPIC, partition, wire.batch([b"x"] * count)).error_code == 0


def commit_as(broker: KafscaleBroker, group_id: str, *offsets: int) -> None:
    """Commit these offsets of the first partitions, as a consumer does that only assigns."""
    with wire.connect(broker) as connection:
        partitions = {(TOPIC, index): offset for index, offset in enumerate(offsets)}
        assert set(commit(connection, group_id, partitions).values()) == {0}


def lag(broker: KafscaleBroker) -> Lag:
    """The lag by group and partition."""
    return scrape(broker).by_label("kafscale_consumer_group_lag", "group", "partition")


def await_lag(broker: KafscaleBroker, expected: Lag) -> None:
    wait_until(lambda: lag(broker) == expected, f"a lag of {expected}")


def groups_by_state(broker: KafscaleBroker) -> dict[str, float]:
    """The states in which there are groups."""
    counts = scrape(broker).by_label("kafscale_groups", "state")
    return {state: count for (state,), count in counts.items() if count}


def test_groups_are_counted_by_state_and_their_members(broker: KafscaleBroker, group: RawGroup) -> None:
    assert set(scrape(broker).by_label("kafscale_groups", "state")) == {
        (state.value,) for state in GroupState
    }
    assert groups_by_state(broker) == {}
    first, second = group.stable(2)
    page = scrape(broker)
    assert (groups_by_state(broker), page.value("kafscale_group_members")) == ({"Stable": 1}, 2)
    memory = page.value("kafscale_group_memory_used_bytes")
    assert 0 < memory < page.value("kafscale_group_memory_limit_bytes")
    commit_as(broker, "assigning", 1)
    second.leave()
    assert groups_by_state(broker) == {"PreparingRebalance": 1, "Empty": 1}
    first.enter()
    assert groups_by_state(broker) == {"CompletingRebalance": 1, "Empty": 1}
    assert scrape(broker).value("kafscale_group_members") == 1
    first.leave()
    assert groups_by_state(broker) == {"Empty": 2}
    with wire.connect(broker) as connection:
        assert set(delete_groups(connection, [group.name, "assigning"]).values()) == {0}
    assert groups_by_state(broker) == {}
    page = scrape(broker)
    assert page.value("kafscale_group_members") == page.value("kafscale_group_memory_used_bytes") == 0


def test_completed_rebalances_are_counted_with_their_duration(
    broker: KafscaleBroker, group: RawGroup
) -> None:
    name = "kafscale_group_rebalance_duration_seconds"
    first, second = group.joined(2)
    before = scrape(broker)
    group.sync_together([first, second])
    page = scrape(broker)
    # Two members come one after the other: the first generation has one, the second has both.
    assert (before.value(f"{name}_count", type="classic"), page.value(f"{name}_count", type="classic")) == (
        1,
        2,
    )
    took = page.value(f"{name}_sum", type="classic")
    assert took >= INITIAL_DELAY_MS / 1000
    assert first.heartbeat() == 0
    assert scrape(broker).value(f"{name}_count", type="classic") == 2
    second.leave()
    first.enter()
    group.sync_together([first])
    page = scrape(broker)
    assert (
        page.value(f"{name}_count", type="classic")
        == page.value(f"{name}_bucket", type="classic", le="+Inf")
        == 3
    )
    assert page.value(f"{name}_sum", type="classic") >= took


def test_durable_commits_are_counted_with_their_duration(broker: KafscaleBroker, group: RawGroup) -> None:
    def counted() -> tuple[float, float]:
        page = scrape(broker)
        count = page.value("kafscale_offset_commit_duration_seconds_count")
        return page.value("kafscale_offset_commits_total"), count

    assert counted() == (0, 0)
    commit_as(broker, "assigning", 1, 2, 3)
    assert counted() == (3, 1)
    page = scrape(broker)
    assert 0 < page.value("kafscale_offset_commit_duration_seconds_sum") < 15
    (member,) = group.stable(1)
    assert set(member.commit({(TOPIC, 0): 5}).values()) == {0}
    assert counted() == (4, 2)
    assert set(member.commit({(TOPIC, 0): 6}, generation=member.generation + 1).values()) != {0}
    assert counted() == (4, 2)


def test_lag_rises_without_consumer_and_falls_with_commits(broker: KafscaleBroker) -> None:
    with librdkafka.assigned_consumer(broker, TOPIC, group_id="billing") as consumer:
        assert lag(broker) == {}
        librdkafka.take(consumer, 10)
        consumer.commit(asynchronous=False)
        assert lag(broker) == {("billing", "0"): 0}
        produce(broker, 5)
        assert lag(broker) == {("billing", "0"): 5}
    produce(broker, 2)
    assert lag(broker) == {("billing", "0"): 7}
    commit_as(broker, "billing", 15, 4)
    assert lag(broker) == {("billing", "0"): 2, ("billing", "1"): 6}
    labels = {"group": "billing", "topic": TOPIC, "partition": "1"}
    assert scrape(broker).value("kafscale_consumer_group_lag", **labels) == 6


def test_the_lag_of_what_is_deleted_disappears(broker: KafscaleBroker) -> None:
    commit_as(broker, "billing", 1, 2)
    commit_as(broker, "shipping", 3)
    create_topic(broker, "other")
    with wire.connect(broker) as connection:
        assert commit(connection, "billing", {("other", 0): 0}) == {("other", 0): 0}
        assert scrape(broker).value("kafscale_consumer_group_lag_series") == 4
        delete_topic(broker, "other")
        await_lag(broker, {("billing", "0"): 9, ("billing", "1"): 8, ("shipping", "0"): 7})
        assert delete_offsets(connection, "billing", [(TOPIC, 1)]) == (0, {(TOPIC, 1): 0})
        assert lag(broker) == {("billing", "0"): 9, ("shipping", "0"): 7}
        assert delete_groups(connection, ["billing"]) == {"billing": 0}
        assert lag(broker) == {("shipping", "0"): 7}
    delete_topic(broker, TOPIC)
    await_lag(broker, {})
    create_topic(broker, TOPIC)
    produce(broker, 4)
    assert lag(broker) == {}
    assert scrape(broker).value("kafscale_consumer_group_lag_series") == 0


def test_the_limit_is_kept_and_what_is_left_out_is_counted(start_broker: StartBroker) -> None:
    broker = with_topic(start_broker(consumer_lag_max_series=3, **SETTINGS))
    commit_as(broker, "billing", 1, 2)
    commit_as(broker, "shipping", 3, 4)
    expected = {("billing", "0"): 9, ("billing", "1"): 8, ("shipping", "0"): 7}
    assert lag(broker) == expected
    assert followed(scrape(broker)) == (3, 1)
    broker.restart()
    wait_until(lambda: followed(scrape(broker)) == (3, 1), "the limit is reached again")
    with wire.connect(broker) as connection:
        assert delete_groups(connection, ["billing"]) == {"billing": 0}
    commit_as(broker, "shipping", 3, 4, 5)
    assert lag(broker) == {("shipping", "0"): 7, ("shipping", "1"): 6, ("shipping", "2"): 5}
    assert followed(scrape(broker)) == (3, 0)


def followed(page: MetricsPage) -> tuple[float, float]:
    """How many partitions of groups are followed, and how many are left out."""
    series = page.value("kafscale_consumer_group_lag_series")
    return series, page.value("kafscale_consumer_group_lag_series_omitted")


def test_switched_off_there_is_no_lag_and_groups_work(start_broker: StartBroker) -> None:
    broker = with_topic(start_broker(consumer_lag_max_series=0, **SETTINGS))
    commit_as(broker, "billing", 1)
    with wire.connect(broker) as connection:
        assert delete_offsets(connection, "billing", [(TOPIC, 0)]) == (0, {(TOPIC, 0): 0})
        commit_as(broker, "billing", 2)
        assert committed(connection, "billing", [(TOPIC, 0)])[TOPIC, 0].offset == 2
    broker.restart()
    page = scrape(broker)
    for name in ("", "_series", "_series_omitted"):
        assert page.by_label(f"kafscale_consumer_group_lag{name}") == {}
    assert page.by_label("kafscale_groups", "state")["Empty",] == 1
    with wire.connect(broker) as connection:
        assert delete_groups(connection, ["billing"]) == {"billing": 0}


@pytest.mark.parametrize("end", [KafscaleBroker.stop, KafscaleBroker.kill9], ids=["SIGTERM", "SIGKILL"])
def test_the_lag_of_idle_groups_is_there_after_a_restart(
    broker: KafscaleBroker, end: Callable[[KafscaleBroker], object]
) -> None:
    commit_as(broker, "billing", 1, 2)
    commit_as(broker, "shipping", 3)
    before = lag(broker)
    assert before == {("billing", "0"): 9, ("billing", "1"): 8, ("shipping", "0"): 7}
    end(broker)
    broker.start()
    await_lag(broker, before)
    produce(broker, 1)
    assert lag(broker) == {("billing", "0"): 10, ("billing", "1"): 8, ("shipping", "0"): 8}
    assert groups_by_state(broker) == {"Empty": 2}
