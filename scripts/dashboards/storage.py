"""The way of records: flushes, the two stores, caches, and the life of segments."""

from typing import Final

from scripts.dashboards.model import Dashboard, Row, Unit
from scripts.dashboards.parts import CLUSTER, NAMESPACE, POD, both, gauge, lines, quantile, risen, total

_OBJECTS: Final = "kafscale_object_store_duration_seconds"
_METADATA: Final = "kafscale_metadata_store_duration_seconds"
_WRITES: Final = 'operation=~"put|put_if_absent|put_if_absent_streamed|list"'
_READS: Final = 'operation=~"get|get_range|read_into|size_bytes"'


def _share(part: str, whole: str) -> str:
    return f"{part} / ({part} + {whole})"


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
        lines(
            "Calls", Unit.REQUESTS, (total(f"{_OBJECTS}_count", "operation"), "{{operation}}"), stacked=True
        ),
        lines("Time of a call (99%)", Unit.SECONDS, (quantile(0.99, _OBJECTS, "operation"), "{{operation}}")),
        lines(
            "Bytes",
            Unit.BYTES_PER_SECOND,
            (total("kafscale_object_store_bytes_total", "operation"), "{{operation}}"),
        ),
        lines(
            "Failed calls",
            Unit.PER_SECOND,
            (total("kafscale_object_store_errors_total", "operation, error"), "{{operation}} {{error}}"),
        ),
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
        lines(
            "Requests in an hour, as they are billed",
            Unit.COUNT,
            (risen(f"{_OBJECTS}_count", more=_WRITES), "PUT and LIST"),
            (risen(f"{_OBJECTS}_count", more=_READS), "GET and HEAD"),
            width=24,
        ),
    ],
)

_METADATA_STORE: Final = Row(
    title="Metadata store",
    panels=[
        lines(
            "Calls", Unit.REQUESTS, (total(f"{_METADATA}_count", "operation"), "{{operation}}"), stacked=True
        ),
        lines(
            "Time of a call (99%)", Unit.SECONDS, (quantile(0.99, _METADATA, "operation"), "{{operation}}")
        ),
        lines(
            "Failed calls",
            Unit.PER_SECOND,
            (total("kafscale_metadata_store_errors_total", "operation, error"), "{{operation}} {{error}}"),
        ),
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

_LIFE: Final = Row(
    title="Life of segments, in an hour",
    panels=[
        lines("Merges", Unit.COUNT, (risen("kafscale_merges_total", "outcome"), "{{outcome}}")),
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
    description="Flushes, object store, metadata store, caches and the life of segments of one cluster.",
    variables=[NAMESPACE, CLUSTER, POD],
    rows=[_FLUSHES, _OBJECT_STORE, _METADATA_STORE, _CACHES, _LIFE],
)
