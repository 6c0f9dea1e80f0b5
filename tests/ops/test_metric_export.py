"""A scrape: every family of the table, in Prometheus' own grammar."""

import threading
from functools import partial

from prometheus_client.parser import text_string_to_metric_families

from kafscale.ops import client_metric_families, journal_metric_families, share_metric_families
from kafscale.ops import metric_families as families
from kafscale.ops.item_failures import BackgroundWork
from kafscale.ops.metric_export import render
from kafscale.ops.metric_families import FAMILIES, MetricType
from kafscale.ops.metrics import FlushOutcome, FrameRefusal, LeadershipChange, Metrics, ProbeOutcome
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode

ODD_NAME = 'a"b\\c\nd'

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(metrics: Metrics) -> Samples:
    """Every sample by name and sorted labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(render(metrics).decode())
        for sample in family.samples
    }


def counted_metrics() -> Metrics:
    """Metrics in which every family of the table has at least one sample, no two counters alike."""
    metrics = Metrics(broker_id=3, version="1.2.3")
    topic = metrics.topic('a"b\\c')
    topic.bytes_in, topic.records_in, topic.batches_in = 11, 12, 13
    topic.bytes_out, topic.records_out, topic.flushes = 14, 15, 16
    costs = metrics.costs('a"b\\c')
    costs.put, costs.get = 0.25, 0.125
    metrics.api(ApiKey.PRODUCE).observe(0.003, ErrorCode.CORRUPT_MESSAGE)
    metrics.api(ApiKey.FETCH).observe(400.0)
    metrics.api(ApiKey.FETCH).errors[9999] += 1
    metrics.flushes.observe(5000, 0.02, FlushOutcome.PUBLISHED)
    metrics.index_rebuilds += 17
    metrics.object_store("put").observe(0.5, ValueError())
    metrics.object_store("put").bytes += 18
    metrics.metadata_store("transact").observe(0.5, TimeoutError())
    cache = metrics.cache("segment")
    cache.hits, cache.misses = 19, 20
    metrics.connections.current, metrics.connections.accepted, metrics.connections.rejected = 21, 22, 23
    authentications = metrics.authentications_at("SASL_SSL")
    authentications.successful["PLAIN"], authentications.failed["PLAIN"] = 61, 62
    authentications.successful_again["PLAIN"], authentications.failed_again["PLAIN"] = 63, 64
    authentications.expired = 65
    metrics.gauge(client_metric_families.USERS, lambda: 66)
    metrics.gauge(client_metric_families.LOGINS_WAITING, lambda: 67)
    metrics.frame_refused(FrameRefusal.TOO_LARGE)
    metrics.authorization_refused("topic", "read")
    metrics.gauge(client_metric_families.ACCESS_RULES, lambda: 43)
    metrics.gauge(families.BUFFER_USED, lambda: 24)
    metrics.gauge(families.BUFFER_LIMIT, lambda: 25)
    metrics.gauge(families.CACHE_USED, lambda: 26, cache="segment")
    metrics.gauge(families.CACHE_LIMIT, lambda: 27, cache="segment")
    metrics.gauge(client_metric_families.TLS_CERTIFICATE_EXPIRY, lambda: 1_800_000_000)
    metrics.gauge(families.MERGE_DEBT_SEGMENTS, lambda: 69)
    metrics.gauge(families.MERGE_DEBT_BYTES, lambda: 70)
    metrics.gauge(families.MERGE_DEBT_AGE, lambda: 71)
    metrics.gauge(families.COMPACTION_DIRTY_RATIO, lambda: 0.5)
    metrics.gauge(families.COMPACTION_OLDEST_DIRTY, lambda: 72)
    metrics.gauge(families.TOPICS, lambda: 28)
    metrics.gauge(families.PARTITIONS_LED, lambda: 29)
    metrics.gauge(families.PARTITIONS_FOLLOWED, lambda: 30)
    metrics.gauge(families.PARTITIONS_OFFLINE, lambda: 31)
    metrics.gauge(families.GROUP_SHARDS, lambda: 32)
    metrics.gauge(families.BROKERS, lambda: 33)
    metrics.gauge(families.PARTITIONS_HELD_UP, lambda: 40)
    metrics.gauge(families.RECORDS_UNREADABLE, lambda: 41, kind="topic")
    metrics.background_failures[BackgroundWork.RETENTION] = 42
    metrics.gauge(families.METADATA_STORE_SILENT, lambda: 33.5)
    metrics.leadership_changes[LeadershipChange.GAINED] = 34
    metrics.leadership_changes[LeadershipChange.HANDED_OVER] = 35
    metrics.leadership_changes[LeadershipChange.LOST] = 36
    metrics.leases_ended = 37
    metrics.garbage_removed = 38
    metrics.object_store_probes[ProbeOutcome.FAILED] = 39
    metrics.gauge(families.OBJECT_STORE_HEALTH, lambda: 2, calls="write")
    metrics.gauge(families.OBJECT_STORE_SLOW_RATIO, lambda: 0.75, calls="write")
    metrics.gauge(families.OBJECT_STORE_FAILED_RATIO, lambda: 0.5, calls="write")
    metrics.gauge(families.OBJECT_STORE_LATENCY, lambda: 1.25, calls="write")
    count_groups(metrics)
    count_share_groups(metrics)
    count_segment_stores(metrics)
    count_costs(metrics)
    return metrics


def count_share_groups(metrics: Metrics) -> None:
    counts = metrics.shares.group("workers")
    counts.acquired, counts.accepted, counts.released, counts.rejected, counts.renewed = (
        171,
        172,
        173,
        174,
        175,
    )
    counts.timed_out, counts.archived, counts.refused, counts.gaps = 176, 177, 181, 182
    metrics.gauge(share_metric_families.SESSIONS, lambda: 178)
    metrics.gauge(share_metric_families.SESSIONS_LIMIT, lambda: 179)
    metrics.gauge(share_metric_families.PARTITIONS_OPEN, lambda: 180)
    metrics.gauge(share_metric_families.RUNS, lambda: 183)
    metrics.gauge(share_metric_families.RUNS_LIMIT, lambda: 184)
    metrics.groups.share_partitions_refused = 185
    metrics.gauge_series(share_metric_families.LAG, lambda: [(("workers", "t", "0"), 186)])
    metrics.gauge(share_metric_families.LAG_SERIES, lambda: 187)
    metrics.gauge(share_metric_families.LAG_SERIES_OMITTED, lambda: 188)


def count_costs(metrics: Metrics) -> None:
    requests = metrics.requests("PutObject")
    requests.count, requests.dollars = 47, 0.5
    metrics.gauge(families.PRICE, lambda: 0.005, unit="1000_puts")
    metrics.gauge(families.JOURNAL_PRICE, lambda: 0.00113, unit="1000_puts")
    metrics.gauge(families.FLUSH_BUDGET, lambda: 4)
    for number, family in enumerate(journal_metric_families.FAMILIES, 72):
        if family.type is MetricType.GAUGE:
            metrics.gauge(family, partial(float, number))
    metrics.gauge(families.FLUSH_INTERVAL, lambda: 0.75)
    metrics.gauge(families.COST_BUDGET, lambda: 50)
    metrics.gauge_series(families.TOPIC_STORED_BYTES, lambda: [(("orders",), 48)])
    metrics.gauge_series(families.TOPIC_PARTITIONS_LED, lambda: [(("orders",), 49)])
    metrics.gauge_series(families.TOPIC_LAST_STABLE_OFFSET_LAG, lambda: [(("orders",), 50)])


def count_segment_stores(metrics: Metrics) -> None:
    replica = metrics.store_reads("replica")
    replica.reads, replica.bytes, replica.misses, replica.passed_over = 40, 41, 42, 43
    replica.errors["TimeoutError"] += 44
    metrics.store_reads("primary").reads = 45
    metrics.gauge(families.REPLICA_PASSED_OVER, lambda: 46)


def count_groups(metrics: Metrics) -> None:
    metrics.groups.commits = 30
    metrics.groups.commit_duration.observe(0.003)
    metrics.groups.rebalanced("classic", 4)
    metrics.groups.rebalanced("consumer", 5)
    metrics.groups.assignment_duration.observe(0.25)
    metrics.gauge(families.GROUPS_BY_TYPE, lambda: 161, type="consumer")
    metrics.gauge(families.GROUPS_OVERDUE, lambda: 162)
    metrics.gauge(families.TRANSACTIONS_OPEN, lambda: 151, state="ongoing")
    metrics.gauge(families.TRANSACTIONS_OLDEST, lambda: 152, state="ending")
    metrics.gauge(families.TRANSACTIONAL_IDS, lambda: 153)
    metrics.transactions.ended["committed"] = 154
    metrics.transactions.completion.observe(0.2)
    metrics.gauge(families.GROUPS, lambda: 31, state="Stable")
    metrics.gauge(families.GROUPS, lambda: 32, state="Empty")
    metrics.gauge(families.GROUP_MEMBERS, lambda: 33)
    metrics.gauge(families.GROUP_MEMORY_USED, lambda: 34)
    metrics.gauge(families.GROUP_MEMORY_LIMIT, lambda: 35)
    metrics.gauge(families.GROUPS_STORED, lambda: 135, kind="offsets")
    metrics.gauge(families.GROUPS_STORED_LIMIT, lambda: 136)
    metrics.gauge(families.CONSUMER_GROUP_LAG_SERIES, lambda: 36)
    metrics.gauge(families.CONSUMER_GROUP_LAG_SERIES_OMITTED, lambda: 37)
    metrics.gauge_series(families.CONSUMER_GROUP_LAG, lambda: [((ODD_NAME, "orders", "7"), 38)])


def test_every_counter_and_gauge_arrives_under_its_name() -> None:
    samples = scrape(counted_metrics())
    replica = (("store", "replica"),)
    topic, cache = (("topic", 'a"b\\c'),), (("cache", "segment"),)
    expected: Samples = {
        ("kafscale_broker_info", (("broker_id", "3"), ("version", "1.2.3"))): 1,
        ("kafscale_topic_bytes_in_total", topic): 11,
        ("kafscale_topic_records_in_total", topic): 12,
        ("kafscale_topic_batches_in_total", topic): 13,
        ("kafscale_topic_bytes_out_total", topic): 14,
        ("kafscale_topic_records_out_total", topic): 15,
        ("kafscale_topic_flushes_total", topic): 16,
        ("kafscale_topic_request_cost_dollars_total", (("class", "put"), *topic)): 0.25,
        ("kafscale_topic_request_cost_dollars_total", (("class", "get"), *topic)): 0.125,
        ("kafscale_object_store_requests_total", (("operation", "PutObject"),)): 47,
        ("kafscale_request_cost_dollars_total", (("operation", "PutObject"),)): 0.5,
        ("kafscale_price_dollars", (("unit", "1000_puts"),)): 0.005,
        ("kafscale_flush_interval_seconds", ()): 0.75,
        ("kafscale_cost_budget_dollars", ()): 50,
        ("kafscale_topic_stored_bytes", (("topic", "orders"),)): 48,
        ("kafscale_topic_partitions_led", (("topic", "orders"),)): 49,
        ("kafscale_request_errors_total", (("api", "PRODUCE"), ("error", "CORRUPT_MESSAGE"))): 1,
        ("kafscale_request_errors_total", (("api", "FETCH"), ("error", "9999"))): 1,
        ("kafscale_object_store_probes_total", (("outcome", "failed"),)): 39,
        ("kafscale_object_store_health", (("calls", "write"),)): 2,
        ("kafscale_object_store_slow_ratio", (("calls", "write"),)): 0.75,
        ("kafscale_object_store_failed_ratio", (("calls", "write"),)): 0.5,
        ("kafscale_object_store_latency_seconds", (("calls", "write"),)): 1.25,
        ("kafscale_flushes_total", (("outcome", "published"),)): 1,
        ("kafscale_flushes_total", (("outcome", "fenced"),)): 0,
        ("kafscale_index_rebuilds_total", ()): 17,
        ("kafscale_object_store_bytes_total", (("operation", "put"),)): 18,
        ("kafscale_object_store_errors_total", (("error", "ValueError"), ("operation", "put"))): 1,
        ("kafscale_metadata_store_errors_total", (("error", "TimeoutError"), ("operation", "transact"))): 1,
        ("kafscale_cache_hits_total", cache): 19,
        ("kafscale_cache_misses_total", cache): 20,
        ("kafscale_connections", ()): 21,
        ("kafscale_connections_accepted_total", ()): 22,
        ("kafscale_connections_rejected_total", ()): 23,
        (
            "kafscale_failed_authentications_total",
            (("listener", "SASL_SSL"), ("mechanism", "PLAIN")),
        ): 62,
        ("kafscale_expired_connections_killed_total", (("listener", "SASL_SSL"),)): 65,
        ("kafscale_frames_refused_total", (("reason", "too_large"),)): 1,
        ("kafscale_frames_refused_total", (("reason", "malformed"),)): 0,
        ("kafscale_produce_buffer_used_bytes", ()): 24,
        ("kafscale_produce_buffer_limit_bytes", ()): 25,
        ("kafscale_cache_used_bytes", cache): 26,
        ("kafscale_cache_limit_bytes", cache): 27,
        ("kafscale_topics", ()): 28,
        ("kafscale_partitions_led", ()): 29,
        ("kafscale_partitions_followed", ()): 30,
        ("kafscale_partitions_offline", ()): 31,
        ("kafscale_group_shards_coordinated", ()): 32,
        ("kafscale_brokers", ()): 33,
        ("kafscale_metadata_store_silent_seconds", ()): 33.5,
        ("kafscale_leadership_changes_total", (("change", "gained"),)): 34,
        ("kafscale_leadership_changes_total", (("change", "handed_over"),)): 35,
        ("kafscale_leadership_changes_total", (("change", "lost"),)): 36,
        ("kafscale_leases_ended_total", ()): 37,
        ("kafscale_partitions_held_up", ()): 40,
        ("kafscale_records_unreadable", (("kind", "topic"),)): 41,
        ("kafscale_background_failures_total", (("work", "retention"),)): 42,
        ("kafscale_garbage_removed_total", ()): 38,
        ("kafscale_offset_commits_total", ()): 30,
        ("kafscale_offset_commit_duration_seconds_count", ()): 1,
        ("kafscale_offset_commit_duration_seconds_sum", ()): 0.003,
        ("kafscale_group_rebalance_duration_seconds_count", (("type", "classic"),)): 1,
        ("kafscale_group_rebalance_duration_seconds_sum", (("type", "classic"),)): 4,
        ("kafscale_group_rebalance_duration_seconds_sum", (("type", "consumer"),)): 5,
        ("kafscale_group_assignment_duration_seconds_sum", ()): 0.25,
        ("kafscale_groups_by_type", (("type", "consumer"),)): 161,
        ("kafscale_groups_overdue", ()): 162,
        ("kafscale_transactions_open", (("state", "ongoing"),)): 151,
        ("kafscale_share_records_acquired_total", (("group", "workers"),)): 171,
        ("kafscale_share_records_acknowledged_total", (("group", "workers"), ("type", "accept"))): 172,
        ("kafscale_share_records_acknowledged_total", (("group", "workers"), ("type", "release"))): 173,
        ("kafscale_share_records_acknowledged_total", (("group", "workers"), ("type", "reject"))): 174,
        ("kafscale_share_records_acknowledged_total", (("group", "workers"), ("type", "renew"))): 175,
        ("kafscale_share_records_timed_out_total", (("group", "workers"),)): 176,
        ("kafscale_share_records_archived_total", (("group", "workers"), ("reason", "deliveries"))): 177,
        ("kafscale_share_records_archived_total", (("group", "workers"), ("reason", "rejected"))): 181,
        ("kafscale_share_records_archived_total", (("group", "workers"), ("reason", "gap"))): 182,
        ("kafscale_share_group_lag", (("group", "workers"), ("partition", "0"), ("topic", "t"))): 186,
        ("kafscale_share_group_lag_series", ()): 187,
        ("kafscale_share_group_lag_series_omitted", ()): 188,
        ("kafscale_share_runs", ()): 183,
        ("kafscale_share_runs_limit", ()): 184,
        ("kafscale_share_partitions_refused_total", ()): 185,
        ("kafscale_share_sessions", ()): 178,
        ("kafscale_share_sessions_limit", ()): 179,
        ("kafscale_share_partitions_open", ()): 180,
        ("kafscale_transactions_oldest_seconds", (("state", "ending"),)): 152,
        ("kafscale_transactional_ids", ()): 153,
        ("kafscale_transactions_ended_total", (("result", "committed"),)): 154,
        ("kafscale_transaction_completion_seconds_count", ()): 1,
        ("kafscale_transaction_completion_seconds_sum", ()): 0.2,
        ("kafscale_groups", (("state", "Stable"),)): 31,
        ("kafscale_groups", (("state", "Empty"),)): 32,
        ("kafscale_group_members", ()): 33,
        ("kafscale_group_memory_used_bytes", ()): 34,
        ("kafscale_group_memory_limit_bytes", ()): 35,
        ("kafscale_groups_stored_bytes", (("kind", "offsets"),)): 135,
        ("kafscale_groups_stored_limit_bytes", ()): 136,
        ("kafscale_segment_store_reads_total", replica): 40,
        ("kafscale_segment_store_bytes_total", replica): 41,
        ("kafscale_segment_store_misses_total", replica): 42,
        ("kafscale_segment_store_passed_over_total", replica): 43,
        ("kafscale_segment_store_errors_total", (("error", "TimeoutError"), ("store", "replica"))): 44,
        ("kafscale_segment_store_reads_total", (("store", "primary"),)): 45,
        ("kafscale_replica_passed_over", ()): 46,
        ("kafscale_consumer_group_lag_series", ()): 36,
        ("kafscale_consumer_group_lag_series_omitted", ()): 37,
        ("kafscale_consumer_group_lag", (("group", ODD_NAME), ("partition", "7"), ("topic", "orders"))): 38,
    }
    assert expected.items() <= samples.items()


def test_histograms_are_cumulative() -> None:
    samples = scrape(counted_metrics())
    name = "kafscale_request_duration_seconds"
    produce = {
        dict(labels)["le"]: value
        for (sample, labels), value in samples.items()
        if sample == f"{name}_bucket" and ("api", "PRODUCE") in labels
    }
    assert produce["0.0025"] == 0
    assert produce["0.005"] == produce["30"] == produce["+Inf"] == 1
    fetch = (("api", "FETCH"), ("le", "30")), (("api", "FETCH"), ("le", "+Inf"))
    assert [samples[f"{name}_bucket", tuple(sorted(labels))] for labels in fetch] == [0, 1]
    assert samples[f"{name}_sum", (("api", "FETCH"),)] == 400
    assert samples[f"{name}_count", (("api", "FETCH"),)] == 1
    assert samples["kafscale_flush_bytes_bucket", (("le", "4096"),)] == 0
    assert samples["kafscale_flush_bytes_bucket", (("le", "16384"),)] == 1


def test_the_export_is_the_table_and_the_process() -> None:
    parsed = {
        family.name: family for family in text_string_to_metric_families(render(counted_metrics()).decode())
    }
    own = {name: family for name, family in parsed.items() if name.startswith("kafscale_")}
    for row in FAMILIES:
        family = own.pop(row.name.removesuffix("_total"))
        assert (family.type, family.documentation) == (row.type.value, row.documentation)
        assert family.samples, f"{row.name} has no sample"
        extra = {"le"} if row.type is MetricType.HISTOGRAM else set()
        assert {label for sample in family.samples for label in sample.labels} == set(row.labels) | extra
    assert not own
    assert "process_resident_memory_bytes" in parsed


def test_a_deleted_topic_is_exported_no_longer() -> None:
    metrics = Metrics()
    metrics.topic("kept").bytes_in += 1
    metrics.topic("gone").bytes_in += 1
    metrics.costs("gone").put += 1
    metrics.forget_topic("gone")
    text = render(metrics).decode()
    assert 'topic="kept"' in text
    assert "gone" not in text


def test_a_series_is_what_is_read_at_the_scrape() -> None:
    metrics = Metrics()
    values: dict[tuple[str, ...], float] = {("billing", "orders", "0"): 5}
    metrics.gauge_series(families.CONSUMER_GROUP_LAG, lambda: values.copy().items())
    billing = ("kafscale_consumer_group_lag", (("group", "billing"), ("partition", "0"), ("topic", "orders")))
    assert scrape(metrics)[billing] == 5
    values["billing", "orders", "0"] = 6
    assert scrape(metrics)[billing] == 6
    del values["billing", "orders", "0"]
    assert billing not in scrape(metrics)


def test_topics_come_and_go_while_a_scrape_runs() -> None:
    metrics = Metrics()
    finished = threading.Event()
    bodies: list[bytes] = []

    def scrape_repeatedly() -> None:
        bodies.extend(render(metrics) for _ in range(3))
        finished.set()

    thread = threading.Thread(target=scrape_repeatedly)
    thread.start()
    count = 0
    while not finished.is_set():
        metrics.topic(f"topic-{count % 500}").records_in += 1
        metrics.api(ApiKey(count % 3)).observe(0.001, count % 7)
        metrics.forget_topic(f"topic-{(count + 250) % 500}")
        count += 1
    thread.join()
    assert len(bodies) == 3


def test_label_values_of_any_length_are_cut_and_stay_distinct() -> None:
    metrics = Metrics()
    groups = ["g" * 32_000 + end for end in "ab"]
    metrics.gauge_series(
        families.CONSUMER_GROUP_LAG, lambda: [((group, "orders", "0"), 1) for group in groups]
    )
    page = render(metrics)
    assert len(page) < len(render(Metrics())) + 2_000
    labels = [dict(key)["group"] for name, key in scrape(metrics) if name == families.CONSUMER_GROUP_LAG.name]
    assert len(set(labels)) == 2
    assert all(len(label) == 249 for label in labels)


def test_longest_topic_name_is_a_whole_label() -> None:
    metrics = Metrics()
    metrics.topic("t" * 249).bytes_in += 1
    assert "t" * 249 in render(metrics).decode()
