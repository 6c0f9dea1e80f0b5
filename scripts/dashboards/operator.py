"""How the operator is, and what it sees: backups and managed etcds."""

from typing import Final

from scripts.dashboards.model import Dashboard, Row, Unit
from scripts.dashboards.parts import (
    CLUSTER,
    NAMESPACE,
    OF_CLUSTER,
    cluster_gauge,
    figure,
    gauge,
    lines,
    process,
    risen,
)

_OPERATOR: Final = 'job="kafscale", component="operator"'
_AGE: Final = f"time() - {cluster_gauge('kafscale_backup_last_success_timestamp_seconds')}"

_BACKUPS: Final = Row(
    title="Snapshots of the metadata",
    panels=[
        figure("Age of the newest", _AGE, Unit.SECONDS, warn_at=3600, alarm_at=7200),
        figure("Its size", cluster_gauge("kafscale_backup_size_bytes"), Unit.BYTES),
        figure(
            "Failed in an hour",
            risen("kafscale_backup_failures_total", within=OF_CLUSTER),
            warn_at=0.01,
            alarm_at=2,
        ),
        lines("Age of the newest, over time", Unit.SECONDS, (_AGE, "age"), warn_at=7200),
        lines(
            "Attempts in an hour",
            Unit.COUNT,
            (risen("kafscale_backup_attempts_total", within=OF_CLUSTER), "attempts"),
            (risen("kafscale_backup_failures_total", within=OF_CLUSTER), "failed"),
        ),
        lines(
            "Time of an attempt",
            Unit.SECONDS,
            (cluster_gauge("kafscale_backup_duration_seconds"), "newest"),
        ),
    ],
)

_ETCD: Final = Row(
    title="The managed etcd, as the operator sees it",
    panels=[
        lines(
            "Members that answer",
            Unit.COUNT,
            (cluster_gauge("kafscale_etcd_member_up", "member"), "{{member}}"),
            (cluster_gauge("kafscale_etcd_has_majority"), "majority"),
        ),
        lines(
            "Alarms",
            Unit.COUNT,
            (cluster_gauge("kafscale_etcd_alarm", "alarm"), "{{alarm}}"),
            alarm_at=1,
        ),
        lines(
            "Size of the file, and how much of it is in use",
            Unit.BYTES,
            (cluster_gauge("kafscale_etcd_size_bytes", "member"), "{{member}}"),
            (cluster_gauge("kafscale_etcd_in_use_bytes", "member"), "{{member}}: in use"),
            (cluster_gauge("kafscale_etcd_quota_bytes"), "quota"),
        ),
        lines(
            "Defragmentations in an hour",
            Unit.COUNT,
            (risen("kafscale_etcd_defragmentations_total", "outcome", within=OF_CLUSTER), "{{outcome}}"),
        ),
    ],
)

_RESOURCES: Final = Row(
    title="Resources",
    panels=[
        lines(
            "Cluster: 1 where it is ready",
            Unit.COUNT,
            (cluster_gauge("kafscale_cluster_ready"), "ready"),
            most=1,
        ),
        lines(
            "Topics by phase",
            Unit.COUNT,
            (gauge("kafscale_topic_resources", "phase", within=OF_CLUSTER), "{{phase}}"),
            stacked=True,
        ),
        lines(
            "Users by phase",
            Unit.COUNT,
            (gauge("kafscale_user_resources", "phase", within=OF_CLUSTER), "{{phase}}"),
            stacked=True,
        ),
        lines(
            "Exports by phase",
            Unit.COUNT,
            (gauge("kafscale_export_resources", "phase", within=OF_CLUSTER), "{{phase}}"),
            stacked=True,
        ),
        lines(
            "Exports: how far tables are behind",
            Unit.SECONDS,
            (
                gauge("kafscale_export_resource_lag_seconds", "export, topic", how="max", within=OF_CLUSTER),
                "{{export}} {{topic}}",
            ),
            warn_at=7200,
        ),
        lines(
            "Exports: offsets that tables lack",
            Unit.COUNT,
            (
                gauge("kafscale_export_resource_lag", "export, topic", how="max", within=OF_CLUSTER),
                "{{export}} {{topic}}",
            ),
        ),
        lines(
            "Exports: dead letters so far",
            Unit.COUNT,
            (
                gauge("kafscale_export_resource_dead_letters", "export, topic", how="max", within=OF_CLUSTER),
                "{{export}} {{topic}}",
            ),
        ),
    ],
)

_PROCESS: Final = Row(
    title="The operator, of all clusters",
    panels=[
        lines(
            "Who leads",
            Unit.COUNT,
            (gauge("kafscale_operator_leading", "pod", how="max", within=_OPERATOR), "{{pod}}"),
            most=1,
        ),
        lines(
            "Passes in an hour",
            Unit.COUNT,
            (risen("kafscale_operator_passes_total", "part", within=_OPERATOR), "{{part}}"),
            (risen("kafscale_operator_pass_failures_total", "part", within=_OPERATOR), "{{part}}: failed"),
        ),
        lines(
            "Operators that answer",
            Unit.COUNT,
            (gauge("up", "pod", within=_OPERATOR), "{{pod}}"),
            stacked=True,
        ),
        *process(_OPERATOR),
    ],
)

DASHBOARD: Final = Dashboard(
    name="operator",
    title="Kafscale: operator, backups",
    description="The operator, the snapshots that it takes and the etcd that it runs for one cluster.",
    variables=[NAMESPACE, CLUSTER],
    rows=[_RESOURCES, _BACKUPS, _ETCD, _PROCESS],
)
