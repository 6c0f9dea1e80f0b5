"""How a managed etcd is."""

from typing import Final

from scripts.dashboards.model import Dashboard, Row, Unit
from scripts.dashboards.parts import (
    CLUSTER,
    NAMESPACE,
    OF_CLUSTER,
    both,
    figure,
    gauge,
    lines,
    process,
    total,
)

_OF_ETCD: Final = f'{OF_CLUSTER}, job="kafscale", component="etcd"'
_SIZE: Final = gauge("etcd_mvcc_db_total_size_in_bytes", "pod", how="max", within=_OF_ETCD)
_QUOTA: Final = gauge("etcd_server_quota_backend_bytes", "pod", how="max", within=_OF_ETCD)

_MEMBERS: Final = Row(
    title="Members",
    panels=[
        figure("Members up", gauge("up", within=_OF_ETCD)),
        figure("Members that know a leader", gauge("etcd_server_has_leader", within=_OF_ETCD)),
        figure("Quota in use", f"max({_SIZE} / {_QUOTA})", Unit.SHARE, warn_at=0.7, alarm_at=0.8),
        lines(
            "Who leads",
            Unit.COUNT,
            (gauge("etcd_server_is_leader", "pod", within=_OF_ETCD), "{{pod}}"),
            most=1,
        ),
        lines(
            "Leaders seen",
            Unit.PER_SECOND,
            (total("etcd_server_leader_changes_seen_total", "pod", within=_OF_ETCD), "{{pod}}"),
        ),
        lines(
            "Size of the file, and how much of it is in use",
            Unit.BYTES,
            (_SIZE, "{{pod}}"),
            (
                gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "pod", how="max", within=_OF_ETCD),
                "{{pod}}: in use",
            ),
            (f"min({_QUOTA})", "quota"),
        ),
        lines(
            "Proposals that failed",
            Unit.PER_SECOND,
            (total("etcd_server_proposals_failed_total", "pod", within=_OF_ETCD), "{{pod}}"),
        ),
        lines(
            "Time of a write to the log",
            Unit.SECONDS,
            *both("etcd_disk_wal_fsync_duration_seconds", "pod", within=_OF_ETCD),
            warn_at=0.1,
        ),
        lines(
            "Time of a commit to the file",
            Unit.SECONDS,
            *both("etcd_disk_backend_commit_duration_seconds", "pod", within=_OF_ETCD),
        ),
        *process(_OF_ETCD),
    ],
)

DASHBOARD: Final = Dashboard(
    name="etcd",
    title="Kafscale: managed etcd",
    description="The members of the etcd that the operator runs for one cluster.",
    variables=[NAMESPACE, CLUSTER],
    rows=[_MEMBERS],
)
