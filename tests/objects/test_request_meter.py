"""Requests to a bucket: each is counted once, at its price, and charged to the topics that cause it."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats import object_keys
from kafscale.objects.request_meter import RequestMeter, register_price_gauges, shares
from kafscale.ops.metrics import NO_TOPIC, Metrics
from kafscale.ops.prices import GB_BYTES, PRICE_CLASSES, Operation, PriceClass, Prices
from kafscale.settings.broker import load_settings

SEGMENT = object_keys.segment_key("default", "orders", 0, 0)
ENTRY = "_kafscale/default/journals/j/00000000000000000000.entry"
EXPRESS = Prices(
    per_1000_puts=0.00113, per_1000_gets=0.00003, per_gb_written=0.0032, per_gb_read=0.0006, per_gb_month=0.11
)

SIZES = st.integers(0, 2**40)
SLICES = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), SIZES), min_size=1, max_size=50)
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(list(Operation)),
        st.sampled_from([SEGMENT, ENTRY, "", "_kafscale/default/cluster", "default/bills/"]),
        SIZES,
    )
)
PRICES = st.builds(
    Prices,
    per_1000_puts=st.floats(0, 10),
    per_1000_gets=st.floats(0, 10),
    per_gb_written=st.floats(0, 10),
    per_gb_read=st.floats(0, 10),
)


def metered(prices: Prices | None = None) -> tuple[RequestMeter, Metrics]:
    metrics = Metrics()
    return RequestMeter(metrics, prices or Prices(), "default"), metrics


def dollars_by_topic(metrics: Metrics) -> dict[str, float]:
    return {topic: costs.put + costs.get for topic, costs in metrics.topic_costs.items()}


def dollars_of(metrics: Metrics) -> float:
    return sum(requests.dollars for requests in metrics.store_requests.values())


def test_a_thousand_requests_cost_what_the_settings_say() -> None:
    meter, metrics = metered()
    for operation in Operation:
        for _ in range(1000):
            meter.sent(operation, SEGMENT)
    expected = {PriceClass.PUT: 0.005, PriceClass.GET: 0.0004, PriceClass.FREE: 0.0}
    for operation in Operation:
        requests = metrics.store_requests[operation]
        assert requests.count == 1000
        assert requests.dollars == pytest.approx(expected[PRICE_CLASSES[operation]]), operation


def test_bytes_have_a_price_where_the_provider_says_so() -> None:
    meter, metrics = metered(EXPRESS)
    meter.sent(Operation.PUT_OBJECT, SEGMENT, 3 * GB_BYTES)
    meter.sent(Operation.GET_OBJECT, SEGMENT)
    meter.received(Operation.GET_OBJECT, SEGMENT, 2 * GB_BYTES)
    costs = metrics.topic_costs["orders"]
    assert costs.put == pytest.approx(0.00113 / 1000 + 3 * 0.0032)
    assert costs.get == pytest.approx(0.00003 / 1000 + 2 * 0.0006)


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        (SEGMENT, "orders"),
        (object_keys.merged_index_key("default", "orders", 7, 3, 9), "orders"),
        (object_keys.checkpoint_key("default", "orders", 1, 2, 3, "token"), "orders"),
        (object_keys.partition_prefix("default", "orders", 4), "orders"),
        (object_keys.checkpoints_topic_prefix("default", "orders"), "orders"),
        (object_keys.namespace_prefix("default"), None),
        (object_keys.checkpoints_prefix("default"), None),
        (object_keys.cluster_marker_key("default"), None),
        (object_keys.health_key("default", 3), None),
        (object_keys.probe_key("default", "token", 0), None),
        (object_keys.segment_key("another", "orders", 0, 0), None),
        (ENTRY, None),
        ("", None),
    ],
)
def test_a_key_says_which_topic_pays(key: str, topic: str | None) -> None:
    assert object_keys.topic_of_key("default", key) == topic
    meter, metrics = metered()
    meter.sent(Operation.PUT_OBJECT, key)
    assert list(metrics.topic_costs) == [topic or NO_TOPIC]


def test_listing_a_deleted_topic_does_not_export_it_again() -> None:
    meter, metrics = metered()
    meter.sent(Operation.PUT_OBJECT, SEGMENT)
    meter.sent(Operation.LIST_OBJECTS, "default/orders/")
    assert list(metrics.topic_costs) == ["orders"]
    metrics.forget_topic("orders")
    meter.sent(Operation.LIST_OBJECTS, "default/orders/")
    meter.sent(Operation.DELETE_OBJECTS, "")
    assert list(metrics.topic_costs) == [NO_TOPIC]


def test_an_object_for_several_topics_is_shared() -> None:
    meter, metrics = metered()
    with meter.shared(ENTRY, [("large", 900), ("small", 50), ("small", 25), ("small", 25)]):
        for _ in range(2):  # as with a second request beside a slow one
            meter.sent(Operation.PUT_OBJECT, ENTRY, 1000)
    price = 2 * 0.005 / 1000
    assert dollars_by_topic(metrics) == {
        "large": pytest.approx(price * (0.9 + 1 / 4) / 2),
        "small": pytest.approx(price * (0.1 + 3 / 4) / 2),
    }
    meter.sent(Operation.GET_OBJECT, ENTRY)
    assert metrics.topic_costs[NO_TOPIC].get == pytest.approx(0.0004 / 1000)


def test_bytes_of_a_shared_object_follow_the_bytes_alone() -> None:
    meter, metrics = metered(Prices(per_1000_puts=0, per_gb_written=1.0))
    with meter.shared(ENTRY, [("a", 3), ("b", 1)]):
        meter.sent(Operation.PUT_OBJECT, ENTRY, 4 * GB_BYTES)
    assert dollars_by_topic(metrics) == {"a": pytest.approx(3), "b": pytest.approx(1)}


def test_overlapping_blocks_for_one_key_share_to_the_last() -> None:
    meter, metrics = metered()
    first, second = meter.shared(ENTRY, [("a", 1)]), meter.shared(ENTRY, [("a", 1)])
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    meter.sent(Operation.PUT_OBJECT, ENTRY)
    second.__exit__(None, None, None)
    assert list(metrics.topic_costs) == ["a"]


@given(SLICES)
def test_shares_of_topics_sum_up_to_the_whole(slices: list[tuple[str, int]]) -> None:
    found = shares(slices)
    assert {share.topic for share in found} == {topic for topic, _ in slices}
    assert sum(share.of_request for share in found) == pytest.approx(1)
    assert sum(share.of_bytes for share in found) == pytest.approx(1)
    assert all(share.of_request > 0 and share.of_bytes >= 0 for share in found)


def test_an_object_without_slices_serves_no_topic() -> None:
    meter, metrics = metered()
    with meter.shared(ENTRY, []):
        meter.sent(Operation.PUT_OBJECT, ENTRY)
    assert list(metrics.topic_costs) == [NO_TOPIC]


@given(PRICES, SLICES, REQUESTS)
def test_costs_are_requests_times_prices_and_topics_sum_up(
    prices: Prices, slices: list[tuple[str, int]], requests: list[tuple[Operation, str, int]]
) -> None:
    meter, metrics = metered(prices)
    with meter.shared(ENTRY, slices):
        for operation, key, size_bytes in requests:
            if PRICE_CLASSES[operation] is PriceClass.PUT:
                meter.sent(operation, key, size_bytes)
            else:
                meter.sent(operation, key)
                meter.received(operation, key, size_bytes)
    counted = {operation: found.count for operation, found in metrics.store_requests.items()}
    assert sum(counted.values()) == len(requests)
    expected = sum(count * prices.of_request(Operation(name)) for name, count in counted.items())
    expected += sum(map(prices.of_written, sizes_of(requests, PriceClass.PUT)))
    expected += sum(
        map(prices.of_read, (*sizes_of(requests, PriceClass.GET), *sizes_of(requests, PriceClass.FREE)))
    )
    assert dollars_of(metrics) == pytest.approx(expected)
    assert sum(dollars_by_topic(metrics).values()) == pytest.approx(expected)


def sizes_of(requests: list[tuple[Operation, str, int]], price: PriceClass) -> Iterable[int]:
    return [size_bytes for operation, _, size_bytes in requests if PRICE_CLASSES[operation] is price]


def test_prices_are_exported_and_read_back() -> None:
    metrics = Metrics()
    settings = load_settings({"KAFSCALE_PRICE_PER_1000_GETS": "3e-05", "KAFSCALE_FLUSH_INTERVAL_MS": "250"})
    register_price_gauges(metrics, settings)
    exported = {unit: read() for (unit,), read in metrics.readings["kafscale_price_dollars"].items()}
    assert Prices.from_units(exported) == Prices.from_settings(settings)
    assert exported["1000_gets"] == 0.00003
    assert metrics.readings["kafscale_flush_interval_seconds"][()]() == 0.25
    assert "kafscale_cost_budget_dollars" not in metrics.readings
    register_price_gauges(metrics, load_settings({"KAFSCALE_COST_BUDGET_PER_MONTH": "99.5"}))
    assert metrics.readings["kafscale_cost_budget_dollars"][()]() == 99.5


def test_defaults_are_those_of_s3_standard() -> None:
    assert Prices.from_settings(load_settings({})) == Prices()
    assert Prices().by_unit() == {
        "1000_puts": 0.005,
        "1000_gets": 0.0004,
        "gb_written": 0,
        "gb_read": 0,
        "gb_month": 0.023,
    }
