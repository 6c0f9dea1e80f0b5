"""Two scrapes of each broker become the rates of all of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.ops.prices import Operation, Prices
from kafscale.tools.cost.rates import SECONDS_PER_MONTH, rates
from kafscale.tools.cost.scrape import Scrape, ScrapeError, TopicCounts
from tests.tools.cost.scrapes import STARTED_SEC, scrape, topic

PUT = Operation.PUT_OBJECT.value


def test_rates_are_differences_by_time() -> None:
    before = scrape(
        100, requests={PUT: 1000.0}, dollars={PUT: 5.0}, topics={"a": topic(put_dollars=5.0, flushes=400)}
    )
    after = scrape(
        110,
        requests={PUT: 1100.0},
        dollars={PUT: 7.5},
        topics={"a": topic(put_dollars=7.5, flushes=450, stored_bytes=7, partitions=2)},
        entries=20.0,
        followed_entries=30.0,
    )
    found = rates([before], [after])
    assert found.requests == {PUT: 10}
    assert found.dollars == {PUT: 0.25}
    assert (found.total_requests, found.total_dollars) == ({PUT: 1100}, {PUT: 7.5})
    assert found.topics == {"a": topic(put_dollars=0.25, flushes=5, stored_bytes=7, partitions=2)}
    assert found.followed_entries == 3
    assert [broker.entries for broker in found.brokers] == [2]
    assert [(broker.seconds, broker.restarted) for broker in found.brokers] == [(10, False)]


def test_one_scrape_gives_the_average_since_the_start() -> None:
    found = rates([], [scrape(200, requests={PUT: 1000.0}, dollars={PUT: 5.0})])
    assert found.requests == {PUT: 5}
    assert found.brokers[0].seconds == 200


@pytest.mark.parametrize(
    "after",
    [
        scrape(100, started_sec=STARTED_SEC + 50, requests={PUT: 2000.0}),
        scrape(100, requests={PUT: 10.0}),
    ],
    ids=["another start", "smaller counters"],
)
def test_a_restarted_broker_counts_since_its_start(after: Scrape) -> None:
    found = rates([scrape(40, requests={PUT: 1000.0})], [after])
    seconds = after.at_sec - after.started_sec
    assert found.requests == {PUT: pytest.approx(after.requests[PUT] / seconds)}
    assert found.brokers[0].restarted


def test_a_start_that_moved_with_the_clock_is_the_same() -> None:
    before = scrape(100, requests={PUT: 1000.0})
    after = scrape(110, started_sec=STARTED_SEC + 1, requests={PUT: 1010.0})
    assert rates([before], [after]).requests == {PUT: 1}


def test_brokers_are_added_up_each_with_its_own_time() -> None:
    before = [scrape(100), scrape(100, broker_id="1")]
    after = [
        scrape(110, requests={PUT: 100.0}, topics={"a": topic(flushes=10, partitions=1)}),
        scrape(120, broker_id="1", requests={PUT: 100.0}, topics={"a": topic(flushes=20, partitions=2)}),
        scrape(50, broker_id="2", requests={PUT: 100.0}),
    ]
    found = rates(before, after)
    assert found.requests == {PUT: 10 + 5 + 2}
    assert found.topics == {"a": topic(flushes=2, partitions=3)}
    assert [broker.restarted for broker in found.brokers] == [False, False, False]


def test_a_recreated_topic_counts_since_its_beginning() -> None:
    before = scrape(100, topics={"a": topic(flushes=1000)})
    assert rates([before], [scrape(110, topics={"a": topic(flushes=10)})]).topics == {"a": topic(flushes=1)}


def test_what_a_deleted_topic_cost_is_no_topic_s() -> None:
    before = scrape(100, dollars={PUT: 1.0}, topics={"gone": topic(put_dollars=1.0)})
    after = scrape(110, dollars={PUT: 6.0}, topics={"a": topic(put_dollars=1.25)})
    found = rates([before], [after])
    assert found.topics == {"a": topic(put_dollars=0.125), "(none)": topic(put_dollars=0.375)}


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ([scrape(source="x"), scrape(source="y")], "x and y are both broker 0: name each broker once"),
        ([scrape(), scrape(broker_id="1", prices=Prices(per_gb_month=1))], "different prices"),
        ([scrape(0)], "no time has passed"),
        ([], "no broker"),
    ],
)
def test_scrapes_that_do_not_fit_together_are_refused(after: list[Scrape], problem: str) -> None:
    with pytest.raises(ScrapeError, match=problem):
        rates([], after)


AMOUNTS = st.floats(0, 1e6)
TOPICS = st.dictionaries(
    st.sampled_from(["a", "b", "(none)"]), st.builds(TopicCounts, put_dollars=AMOUNTS, get_dollars=AMOUNTS)
)


@given(st.lists(TOPICS, min_size=1, max_size=4), AMOUNTS)
def test_topics_sum_up_to_what_operations_cost(brokers: list[dict[str, TopicCounts]], deleted: float) -> None:
    scrapes = []
    for number, topics in enumerate(brokers):
        whole = sum(one.put_dollars + one.get_dollars for one in topics.values()) + deleted
        scrapes.append(scrape(100, broker_id=str(number), dollars={PUT: whole}, topics=topics))
    found = rates([replace(one, dollars={}, topics={}, at_sec=STARTED_SEC + 10) for one in scrapes], scrapes)
    explained = sum(one.put_dollars + one.get_dollars for one in found.topics.values())
    assert explained == pytest.approx(found.request_dollars)
    assert sum(broker.dollars for broker in found.brokers) == pytest.approx(found.request_dollars)


def test_a_month_has_thirty_days() -> None:
    assert SECONDS_PER_MONTH == 30 * 24 * 3600
