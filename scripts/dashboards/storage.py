"""The way of records: flushes, the two stores, caches, and the life of segments."""

from typing import Final

from scripts.dashboards.model import Dashboard, Panel, Row, Unit
from scripts.dashboards.parts import (
    CLUSTER,
    NAMESPACE,
    POD,
    both,
    cluster_gauge,
    figure,
    gauge,
    lines,
    quantile,
    risen,
    total,
)

# A month of 30 days; a GB as it is billed.
_MONTH_SEC: Final = 30 * 86_400
_GB_BYTES: Final = 2**30


def _share(part: str, whole: str) -> str:
    return f"{part} / ({part} + {whole})"


def _calls(durations: str) -> list[Panel]:
    """A store's calls, and their time."""
    return [
        lines(
            "Calls", Unit.REQUESTS, (total(f"{durations}_count", "operation"), "{{operation}}"), stacked=True
        ),
        lines(
            "Time of a call (99%)", Unit.SECONDS, (quantile(0.99, durations, "operation"), "{{operation}}")
        ),
    ]


def _failed_calls(errors: str) -> Panel:
    return lines(
        "Failed calls", Unit.PER_SECOND, (total(errors, "operation, error"), "{{operation}} {{error}}")
    )


_FLUSHES: Final = Row(
    title="Flushes",
    panels=[
        lines(
            "Flushes",
            Unit.PER_SECOND,
            (total("kafscale_flushes_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        lines("Time of a flush", Unit.SECONDS, *both("kafscale_flush_duration_seconds")),
        lines("Size of a flush", Unit.BYTES, *both("kafscale_flush_bytes")),
        lines(
            "Bytes flushed",
            Unit.BYTES_PER_SECOND,
            (total("kafscale_flush_bytes_sum", "pod"), "{{pod}}"),
            stacked=True,
        ),
    ],
)

_OBJECT_STORE: Final = Row(
    title="Object store",
    panels=[
        *_calls("kafscale_object_store_duration_seconds"),
        lines(
            "Bytes",
            Unit.BYTES_PER_SECOND,
            (total("kafscale_object_store_bytes_total", "operation"), "{{operation}}"),
        ),
        _failed_calls("kafscale_object_store_errors_total"),
        lines(
            "Health: 0 healthy, 1 degraded, 2 unavailable",
            Unit.COUNT,
            (gauge("kafscale_object_store_health", "pod, calls"), "{{pod}} {{calls}}"),
            most=2,
            warn_at=1,
            alarm_at=2,
        ),
        lines(
            "Slow calls, and those that count as failed",
            Unit.SHARE,
            (gauge("kafscale_object_store_slow_ratio", "pod, calls"), "{{pod}} {{calls}}: slow"),
            (gauge("kafscale_object_store_failed_ratio", "pod, calls"), "{{pod}} {{calls}}: failed"),
            most=1,
        ),
        lines(
            "Latency, by which health is judged",
            Unit.SECONDS,
            (gauge("kafscale_object_store_latency_seconds", "pod, calls", how="max"), "{{pod}} {{calls}}"),
        ),
        lines(
            "Probes",
            Unit.PER_SECOND,
            (total("kafscale_object_store_probes_total", "outcome"), "{{outcome}}"),
        ),
    ],
)

_METADATA_STORE: Final = Row(
    title="Metadata store",
    panels=[
        *_calls("kafscale_metadata_store_duration_seconds"),
        _failed_calls("kafscale_metadata_store_errors_total"),
        lines(
            "Time without an answer",
            Unit.SECONDS,
            (gauge("kafscale_metadata_store_silent_seconds", "pod", how="max"), "{{pod}}"),
        ),
    ],
)

_CACHES: Final = Row(
    title="Reading",
    panels=[
        lines(
            "Reads that a cache answered",
            Unit.SHARE,
            (
                _share(
                    total("kafscale_cache_hits_total", "cache"), total("kafscale_cache_misses_total", "cache")
                ),
                "{{cache}}",
            ),
            most=1,
        ),
        lines(
            "Memory of the caches",
            Unit.SHARE,
            (
                f"{gauge('kafscale_cache_used_bytes', 'pod, cache')}"
                f" / {gauge('kafscale_cache_limit_bytes', 'pod, cache')}",
                "{{pod}} {{cache}}",
            ),
            most=1,
        ),
        lines(
            "Dropped from a cache",
            Unit.PER_SECOND,
            (total("kafscale_cache_evictions_total", "pod, cache"), "{{pod}} {{cache}}"),
        ),
        lines(
            "Partitions read here and led elsewhere",
            Unit.COUNT,
            (gauge("kafscale_partitions_followed", "pod"), "{{pod}}"),
        ),
        lines(
            "Reads of segments where there is a replica",
            Unit.REQUESTS,
            (total("kafscale_segment_store_reads_total", "store"), "{{store}}"),
            (total("kafscale_segment_store_misses_total", "store"), "{{store}}: not there"),
            (total("kafscale_segment_store_errors_total", "store, error"), "{{store}}: {{error}}"),
            (total("kafscale_segment_store_passed_over_total", "store"), "{{store}}: passed over"),
        ),
        lines(
            "Bytes of such reads",
            Unit.BYTES_PER_SECOND,
            (total("kafscale_segment_store_bytes_total", "store"), "{{store}}"),
            stacked=True,
        ),
        lines(
            "Replica passed over",
            Unit.COUNT,
            (gauge("kafscale_replica_passed_over", "pod"), "{{pod}}"),
            most=1,
            warn_at=1,
        ),
    ],
)


def _a_month(metric: str, by: str = "") -> str:
    """The dollars of a month at the present rate."""
    return f"{total(metric, by)} * {_MONTH_SEC}"


def _stored_a_month(by: str = "") -> str:
    price = cluster_gauge("kafscale_price_dollars", more='unit="gb_month"')
    return f"{gauge('kafscale_topic_stored_bytes', by)} / {_GB_BYTES} * scalar({price})"


_COST: Final = Row(
    title="Cost",
    panels=[
        figure("Requests, dollars a month", _a_month("kafscale_request_cost_dollars_total"), Unit.DOLLARS),
        figure("Storage, dollars a month", _stored_a_month(), Unit.DOLLARS),
        figure(
            "Budget, dollars a month",
            cluster_gauge("kafscale_cost_budget_dollars"),
            Unit.DOLLARS,
        ),
        figure("Bytes stored", gauge("kafscale_topic_stored_bytes"), Unit.BYTES),
        figure(
            "Flush interval",
            cluster_gauge("kafscale_flush_interval_seconds"),
            Unit.SECONDS,
        ),
        figure(
            "Flushes a second that may begin before it",
            cluster_gauge("kafscale_flush_budget_per_second"),
            Unit.PER_SECOND,
        ),
        figure(
            "1,000 PUTs to the journal bucket cost",
            cluster_gauge("kafscale_journal_price_dollars", more='unit="1000_puts"'),
            Unit.DOLLARS,
        ),
        figure(
            "1,000 PUTs cost",
            cluster_gauge("kafscale_price_dollars", more='unit="1000_puts"'),
            Unit.DOLLARS,
        ),
        lines(
            "Requests, dollars a month at the present rate",
            Unit.DOLLARS,
            (_a_month("kafscale_request_cost_dollars_total", "operation"), "{{operation}}"),
            stacked=True,
        ),
        lines(
            "Requests, dollars a month: the ten topics that cost most",
            Unit.DOLLARS,
            (f"topk(10, {_a_month('kafscale_topic_request_cost_dollars_total', 'topic')})", "{{topic}}"),
            stacked=True,
        ),
        lines(
            "Requests in an hour, as they are billed",
            Unit.COUNT,
            (risen("kafscale_object_store_requests_total", "operation"), "{{operation}}"),
        ),
        lines(
            "Flushes: the ten topics with the most",
            Unit.PER_SECOND,
            (f"topk(10, {total('kafscale_topic_flushes_total', 'topic')})", "{{topic}}"),
            stacked=True,
        ),
        lines(
            "Storage, dollars a month: the ten largest topics",
            Unit.DOLLARS,
            (f"topk(10, {_stored_a_month('topic')})", "{{topic}}"),
            stacked=True,
        ),
        lines(
            "Partitions: the ten topics with the most",
            Unit.COUNT,
            (f"topk(10, {gauge('kafscale_topic_partitions_led', 'topic')})", "{{topic}}"),
        ),
    ],
)

_JOURNAL: Final = Row(
    title="Journal",
    panels=[
        lines(
            "Slowest 1% of entries: PUT, and until acknowledged",
            Unit.SECONDS,
            (quantile(0.99, "kafscale_journal_entry_put_seconds"), "PUT"),
            (quantile(0.99, "kafscale_journal_entry_commit_seconds"), "committed"),
        ),
        lines(
            "Entries",
            Unit.PER_SECOND,
            (total("kafscale_journal_entry_slices_count", "pod"), "{{pod}}"),
        ),
        lines(
            "Entries of others read for consumers",
            Unit.PER_SECOND,
            (total("kafscale_journal_followed_entries_total", "pod"), "{{pod}}"),
        ),
        lines(
            "Entries that waited for KAFSCALE_FLUSHES_PER_SEC",
            Unit.PER_SECOND,
            (total("kafscale_journal_budget_waits_total", "pod"), "{{pod}}"),
        ),
        lines(
            "Seconds a second that entries waited for it",
            Unit.SECONDS,
            (total("kafscale_journal_budget_wait_seconds_total", "pod"), "{{pod}}"),
        ),
        lines(
            "Entries in flight, and committed ones that others do not know of",
            Unit.COUNT,
            (gauge("kafscale_journal_entries_in_flight", "pod"), "{{pod}} in flight"),
            (gauge("kafscale_journal_progress_lag_entries", "pod"), "{{pod}} not reported"),
        ),
        lines(
            "Slices that wait to be sealed",
            Unit.COUNT,
            (gauge("kafscale_seal_debt_slices", "pod"), "{{pod}}"),
        ),
        lines(
            "Bytes that wait to be sealed",
            Unit.BYTES,
            (gauge("kafscale_seal_debt_bytes", "pod"), "{{pod}}"),
        ),
        lines(
            "Oldest slice that waits to be sealed",
            Unit.SECONDS,
            (gauge("kafscale_seal_debt_oldest_seconds", "pod"), "{{pod}}"),
        ),
        lines(
            "Entries stored; objects collected in an hour",
            Unit.COUNT,
            (gauge("kafscale_journal_stored_entries", "pod"), "{{pod}} stored"),
            (risen("kafscale_journal_collected_objects_total", "pod"), "{{pod}} collected"),
        ),
        lines(
            "Replays, and fences, in an hour",
            Unit.COUNT,
            (risen("kafscale_journal_replay_seconds_count"), "replays"),
            (risen("kafscale_journal_replayed_entries_total"), "entries replayed"),
            (risen("kafscale_journal_fences_total", "event"), "fences {{event}}"),
        ),
    ],
)

_LIFE: Final = Row(
    title="Life of segments, in an hour",
    panels=[
        lines("Merges", Unit.COUNT, (risen("kafscale_merges_total", "outcome"), "{{outcome}}")),
        lines(
            "Waiting to be merged",
            Unit.COUNT,
            (gauge("kafscale_merge_debt_segments", "pod"), "{{pod}}"),
        ),
        lines(
            "Bytes waiting to be merged",
            Unit.BYTES,
            (gauge("kafscale_merge_debt_bytes", "pod"), "{{pod}}"),
        ),
        lines(
            "Oldest merge that waits",
            Unit.SECONDS,
            (gauge("kafscale_merge_debt_oldest_seconds", "pod"), "{{pod}}"),
            warn_at=1800,
        ),
        lines(
            "Segments merged, expired, removed",
            Unit.COUNT,
            (risen("kafscale_merged_segments_total"), "merged"),
            (risen("kafscale_segments_expired_total", "limit"), "expired by {{limit}}"),
            (risen("kafscale_garbage_removed_total"), "garbage removed"),
        ),
        lines(
            "Bytes merged and expired",
            Unit.BYTES,
            (risen("kafscale_merged_bytes_total"), "merged"),
            (risen("kafscale_bytes_expired_total", "limit"), "expired by {{limit}}"),
        ),
        lines(
            "Compactions",
            Unit.COUNT,
            (risen("kafscale_compactions_total", "outcome"), "{{outcome}}"),
            (risen("kafscale_compaction_removed_records_total"), "records removed"),
        ),
        lines(
            "Bytes compacted",
            Unit.BYTES,
            (risen("kafscale_compaction_replaced_bytes_total"), "replaced"),
            (risen("kafscale_compaction_written_bytes_total"), "written"),
        ),
        lines(
            "Dirtiest partition",
            Unit.SHARE,
            (gauge("kafscale_compaction_dirty_ratio", "pod"), "{{pod}}"),
        ),
        lines(
            "Oldest segment to compact, time spent",
            Unit.SECONDS,
            (gauge("kafscale_compaction_oldest_dirty_seconds", "pod"), "oldest of {{pod}}"),
            (risen("kafscale_compaction_seconds_total"), "compacting"),
        ),
        lines(
            "Segments lost, indexes rebuilt",
            Unit.COUNT,
            (risen("kafscale_segments_lost_total", "outcome"), "segments {{outcome}}"),
            (risen("kafscale_index_rebuilds_total"), "indexes"),
        ),
    ],
)

DASHBOARD: Final = Dashboard(
    name="storage",
    title="Kafscale: storage",
    description="Flushes, object store, metadata store, caches, life of segments and cost of one cluster.",
    variables=[NAMESPACE, CLUSTER, POD],
    rows=[_FLUSHES, _JOURNAL, _OBJECT_STORE, _METADATA_STORE, _CACHES, _LIFE, _COST],
)
