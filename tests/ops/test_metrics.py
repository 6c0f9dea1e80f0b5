"""Counting is right, costs next to nothing and stays bounded."""

from collections import Counter
from dataclasses import dataclass

import pytest

from kafscale.ops import metric_families as families
from kafscale.ops import metrics as module
from kafscale.ops import share_metrics
from kafscale.ops.counted import observed, part, readings
from kafscale.ops.histogram import Histogram
from kafscale.ops.metric_families import MetricType
from kafscale.ops.metrics import NO_TOPIC, OTHER_TOPICS, ApiMetrics, MetadataStoreMetrics, Metrics
from kafscale.ops.share_metrics import OTHER_SHARE_GROUPS
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode

GAUGES = {family.name for family in families.FAMILIES if family.type is MetricType.GAUGE}


def one_of_each() -> Metrics:
    """Metrics with one item in each dictionary, and one error in each counter of errors."""
    metrics = Metrics()
    metrics.topic("orders")
    metrics.costs("orders")
    metrics.shares.group("workers")
    metrics.requests("PutObject")
    metrics.api(ApiKey.FETCH).errors[ErrorCode.CORRUPT_MESSAGE] += 1
    metrics.object_store("get").errors["TimeoutError"] += 1
    metrics.metadata_store("get").errors["TimeoutError"] += 1
    metrics.store_reads("primary").errors["TimeoutError"] += 1
    metrics.cache("segment")
    authentications = metrics.authentications_at("SASL_SSL")
    for counter in (
        authentications.successful,
        authentications.failed,
        authentications.successful_again,
        authentications.failed_again,
    ):
        counter["PLAIN"] += 1
    metrics.authorization_refused("topic", "read")
    return metrics


def test_the_same_name_gives_the_same_object() -> None:
    metrics = Metrics()
    assert metrics.topic("orders") is metrics.topic("orders")
    assert metrics.topic("orders") is not metrics.topic("others")
    assert metrics.api(ApiKey.PRODUCE) is metrics.api(ApiKey.PRODUCE)
    assert metrics.object_store("put") is metrics.object_store("put")
    assert metrics.metadata_store("get") is metrics.metadata_store("get")
    assert metrics.object_store("get") is not metrics.object_store("put")
    assert metrics.cache("segment") is metrics.cache("segment")


def test_a_forgotten_topic_starts_again_from_nothing() -> None:
    metrics = Metrics()
    metrics.topic("orders").bytes_in += 100
    metrics.forget_topic("orders")
    metrics.forget_topic("never counted")
    assert metrics.topics == {}
    assert metrics.topic("orders").bytes_in == 0


def test_an_observation_equal_to_a_bound_belongs_to_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 7.5


def test_a_request_is_counted_with_its_errors() -> None:
    api = ApiMetrics()
    api.observe(0.1)
    api.observe(0.2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    api.observe(0.3, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sum(api.duration.counts) == 3
    assert api.errors == {ErrorCode.NOT_LEADER_OR_FOLLOWER: 2}


def test_measured_block_is_counted_and_raises_its_error() -> None:
    operation = MetadataStoreMetrics()
    with operation.measure():
        pass
    with pytest.raises(KeyError), operation.measure():
        raise KeyError
    with pytest.raises(KeyError), operation.measure(KeyError):
        raise KeyError
    assert sum(operation.duration.counts) == 3
    assert operation.errors == {"KeyError": 1}


def test_a_gauge_must_be_in_the_table_with_its_labels() -> None:
    metrics = Metrics()
    metrics.gauge(families.CACHE_USED, lambda: 1, cache="segment")
    with pytest.raises(ValueError, match="labels"):
        metrics.gauge(families.CACHE_USED, lambda: 1)
    with pytest.raises(ValueError, match="not a gauge"):
        metrics.gauge(families.TOPIC_BYTES_IN, lambda: 1, topic="orders")


def test_a_series_is_of_a_gauge_of_the_table() -> None:
    metrics = Metrics()
    metrics.gauge_series(families.CONSUMER_GROUP_LAG, lambda: [(("billing", "orders", "0"), 1)])
    with pytest.raises(ValueError, match="not a gauge"):
        metrics.gauge_series(families.TOPIC_BYTES_IN, lambda: [(("orders",), 1)])


def test_topics_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOPICS", 3)
    metrics = Metrics()
    for index in range(10):
        metrics.topic(f"t{index}").records_in += 1
    assert {name: topic.records_in for name, topic in metrics.topics.items()} == {
        "t0": 1,
        "t1": 1,
        "t2": 1,
        OTHER_TOPICS: 7,
    }
    for name in ("t0", "t1", "t5"):
        metrics.forget_topic(name)
    metrics.topic("t9").records_in += 1
    assert metrics.topic("t9").records_in == 1, "there is room again"


def test_costs_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOPICS", 3)
    metrics = Metrics()
    for name in (*map(str, range(10)), NO_TOPIC):
        metrics.costs(name).put += 1
    costs = {name: topic.put for name, topic in metrics.topic_costs.items()}
    assert costs == {"0": 1, "1": 1, "2": 1, OTHER_TOPICS: 7, NO_TOPIC: 1}


def test_share_groups_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_metrics, "MAX_SHARE_GROUPS", 2)
    shares = Metrics().shares
    for name in "abcda":
        shares.group(name).acquired += 1
    assert {name: counts.acquired for name, counts in shares.groups.items()} == {
        "a": 2,
        "b": 1,
        OTHER_SHARE_GROUPS: 2,
    }
    for name in ("a", "b", "never counted"):
        shares.forget(name)
    shares.group("c").acquired += 1
    assert set(shares.groups) == {"c", OTHER_SHARE_GROUPS}


def test_a_flush_counts_for_a_topic_that_is_still_there() -> None:
    metrics = Metrics()
    metrics.topic("orders")
    metrics.flushed("orders")
    metrics.flushed("deleted")
    assert {name: topic.flushes for name, topic in metrics.topics.items()} == {"orders": 1}


def test_every_counter_is_bound_to_one_row() -> None:
    bound = Counter(reading.family.name for reading in readings(one_of_each()))
    assert set(bound) | GAUGES == {family.name for family in families.FAMILIES}
    counters = {family.name for family in families.FAMILIES if family.type is not MetricType.GAUGE}
    assert counters <= set(bound)


def test_counted_series_have_the_labels_of_their_row() -> None:
    for reading in readings(one_of_each()):
        assert len(reading.labels) == len(reading.family.labels), reading


def test_field_adds_its_own_label() -> None:
    family = families.Family(
        name="x_seconds", type=MetricType.HISTOGRAM, labels=("api", "stage"), documentation="", bounds=(1.0,)
    )

    @dataclass
    class Stages:
        queue: Histogram = observed(family, "queue")  # noqa: RUF009
        send: Histogram = observed(family, "send")  # noqa: RUF009

    @dataclass
    class Requests:
        stages: dict[str, Stages] = part(dict)  # noqa: RUF009

    counts = Requests()
    counts.stages["FETCH"] = Stages()
    counts.stages["FETCH"].send.observe(0.5)
    found = {reading.labels: reading.value for reading in readings(counts)}
    assert found == {
        ("FETCH", "queue"): counts.stages["FETCH"].queue,
        ("FETCH", "send"): counts.stages["FETCH"].send,
    }
