"""How a cluster is: traffic, requests and brokers."""

from typing import Final

from scripts.dashboards.model import Dashboard, Row, Unit
from scripts.dashboards.parts import (
    CLUSTER,
    NAMESPACE,
    OF_CLUSTER,
    OF_POD,
    POD,
    cluster_gauge,
    figure,
    gauge,
    lines,
    process,
    quantile,
    risen,
    total,
)
from scripts.dashboards.security import SECURITY

_WAITING: Final = 'api="PRODUCE", error=~"NOT_ENOUGH_REPLICAS|REQUEST_TIMED_OUT"'
_REQUEST: Final = "kafscale_request_duration_seconds"
_STAGE: Final = "kafscale_request_stage_seconds"

_NOW: Final = Row(
    title="Now",
    panels=[
        figure("Brokers", cluster_gauge("kafscale_brokers")),
        figure(
            "Partitions without a leader",
            cluster_gauge("kafscale_partitions_offline"),
            alarm_at=1,
        ),
        figure(
            "Object store",
            cluster_gauge("kafscale_object_store_health"),
            words={0: "healthy", 1: "degraded", 2: "unavailable"},
            warn_at=1,
            alarm_at=2,
        ),
        figure(
            "Metadata store: failed calls",
            total("kafscale_metadata_store_errors_total", within=OF_CLUSTER),
            Unit.PER_SECOND,
            alarm_at=0.01,
        ),
        figure(
            "Acknowledged within (99%)",
            quantile(0.99, _REQUEST, more='api="PRODUCE"', within=OF_CLUSTER),
            Unit.SECONDS,
            warn_at=2,
            alarm_at=5,
        ),
        figure(
            "Producers held up",
            total("kafscale_request_errors_total", more=_WAITING, within=OF_CLUSTER),
            Unit.PER_SECOND,
            alarm_at=0.01,
        ),
        figure("Topics", cluster_gauge("kafscale_topics")),
        figure("Partitions led", gauge("kafscale_partitions_led", within=OF_CLUSTER)),
        figure("Clients connected", gauge("kafscale_connections", within=OF_CLUSTER)),
        figure("Groups", gauge("kafscale_groups", within=OF_CLUSTER)),
        figure(
            "Leases ended in an hour",
            risen("kafscale_leases_ended_total", within=OF_CLUSTER),
            warn_at=1,
            alarm_at=3,
        ),
        figure(
            "Segments missing, in an hour",
            risen("kafscale_segments_lost_total", more='outcome="kept"', within=OF_CLUSTER),
            alarm_at=0.01,
        ),
    ],
)

_TRAFFIC: Final = Row(
    title="Traffic",
    panels=[
        lines(
            "Bytes of records",
            Unit.BYTES_PER_SECOND,
            (total("kafscale_topic_bytes_in_total"), "in"),
            (total("kafscale_topic_bytes_out_total"), "out"),
            (total("kafscale_fetch_decompressed_bytes_total"), "decompressed for clients without the codec"),
        ),
        lines(
            "Records",
            Unit.PER_SECOND,
            (total("kafscale_topic_records_in_total"), "in"),
            (total("kafscale_topic_records_out_total"), "out"),
        ),
        lines(
            "Batches decompressed for clients without the codec",
            Unit.PER_SECOND,
            (total("kafscale_fetch_decompressed_batches_total"), "batches"),
            width=24,
        ),
        lines(
            "Bytes in: the ten largest topics",
            Unit.BYTES_PER_SECOND,
            (f"topk(10, {total('kafscale_topic_bytes_in_total', 'topic')})", "{{topic}}"),
            stacked=True,
        ),
        lines(
            "Bytes out: the ten largest topics",
            Unit.BYTES_PER_SECOND,
            (f"topk(10, {total('kafscale_topic_bytes_out_total', 'topic')})", "{{topic}}"),
            stacked=True,
        ),
        lines(
            "Records in a batch: the ten topics with the fewest",
            Unit.COUNT,
            (
                f"bottomk(10, {total('kafscale_topic_records_in_total', 'topic')}"
                f" / {total('kafscale_topic_batches_in_total', 'topic')})",
                "{{topic}}",
            ),
            width=24,
        ),
    ],
)

_REQUESTS: Final = Row(
    title="Requests",
    panels=[
        lines("Requests", Unit.REQUESTS, (total(f"{_REQUEST}_count", "api"), "{{api}}"), stacked=True),
        lines(
            "Errors",
            Unit.PER_SECOND,
            (total("kafscale_request_errors_total", "api, error"), "{{api}} {{error}}"),
        ),
        lines(
            "Time of a request (99%); Fetch and JoinGroup wait on purpose",
            Unit.SECONDS,
            (quantile(0.99, _REQUEST, "api"), "{{api}}"),
        ),
        lines(
            "Time of a Produce request (99%)",
            Unit.SECONDS,
            (quantile(0.99, _REQUEST, "pod", 'api="PRODUCE"'), "{{pod}}"),
            warn_at=5,
        ),
        lines(
            "Time of a Fetch request (99%), without deliberate waiting",
            Unit.SECONDS,
            (quantile(0.99, "kafscale_request_active_seconds", "pod", 'api="FETCH"'), "{{pod}}"),
            warn_at=5,
        ),
        lines(
            "Stages of a Fetch request (99%)",
            Unit.SECONDS,
            (quantile(0.99, _STAGE, "stage", 'api="FETCH"'), "{{stage}}"),
        ),
        lines(
            "Stages of a Produce request (99%)",
            Unit.SECONDS,
            (quantile(0.99, _STAGE, "stage", 'api="PRODUCE"'), "{{stage}}"),
        ),
        lines("Connections", Unit.COUNT, (gauge("kafscale_connections", "pod"), "{{pod}}")),
        lines(
            "New connections",
            Unit.PER_SECOND,
            (total("kafscale_connections_accepted_total", "pod"), "{{pod}}"),
        ),
        lines(
            "Brokers by version",
            Unit.COUNT,
            (gauge("kafscale_broker_info", "version", how="count"), "{{version}}"),
            stacked=True,
        ),
        lines(
            "Connections and requests turned away",
            Unit.PER_SECOND,
            (total("kafscale_connections_rejected_total", "pod"), "{{pod}}: too many connections"),
            (total("kafscale_frames_refused_total", "pod, reason"), "{{pod}}: {{reason}}"),
        ),
    ],
)

_BROKERS: Final = Row(
    title="Brokers",
    panels=[
        *process(OF_POD),
        lines("Partitions led", Unit.COUNT, (gauge("kafscale_partitions_led", "pod"), "{{pod}}")),
        lines(
            "Group shards coordinated",
            Unit.COUNT,
            (gauge("kafscale_group_shards_coordinated", "pod"), "{{pod}}"),
        ),
        lines(
            "Leaders that changed",
            Unit.PER_SECOND,
            (total("kafscale_leadership_changes_total", "pod, change"), "{{pod}} {{change}}"),
        ),
        lines(
            "Memory for records that wait to be flushed",
            Unit.SHARE,
            (
                f"{gauge('kafscale_produce_buffer_used_bytes', 'pod')}"
                f" / {gauge('kafscale_produce_buffer_limit_bytes', 'pod')}",
                "{{pod}}",
            ),
            most=1,
            warn_at=0.9,
        ),
        lines(
            "Uptime",
            Unit.SECONDS,
            (f"time() - {gauge('process_start_time_seconds', 'pod', how='max')}", "{{pod}}"),
        ),
        lines(
            "File descriptors in use",
            Unit.SHARE,
            (f"{gauge('process_open_fds', 'pod')} / {gauge('process_max_fds', 'pod')}", "{{pod}}"),
            most=1,
            warn_at=0.85,
        ),
    ],
)

DASHBOARD: Final = Dashboard(
    name="cluster",
    title="Kafscale: cluster",
    description="Traffic, requests and brokers of one cluster.",
    variables=[NAMESPACE, CLUSTER, POD],
    rows=[_NOW, _TRAFFIC, _REQUESTS, _BROKERS, SECURITY],
)
