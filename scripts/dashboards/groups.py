"""How consumer groups keep up, share groups, and transactions."""

from typing import Final

from scripts.dashboards.model import Dashboard, Look, Panel, Query, Row, Unit, Variable
from scripts.dashboards.parts import CLUSTER, NAMESPACE, OF_CLUSTER, POD, both, gauge, lines, risen, total

_LAG: Final = "kafscale_consumer_group_lag"
_CHOSEN: Final = 'group=~"$group"'
_GROUP: Final = Variable(name="group", series=f"{_LAG}{{{OF_CLUSTER}}}", label="group", several=True)

_SHARE_LAG: Final = "kafscale_share_group_lag"
_ARCHIVED: Final = "kafscale_share_records_archived_total"
_AT_LAST_DELIVERY: Final = 'reason="deliveries"'

_STABLE_LAG: Final = "kafscale_topic_last_stable_offset_lag"

_KEEPING_UP: Final = Row(
    title="Lag",
    panels=[
        lines("Lag by group", Unit.COUNT, (f"topk(20, {gauge(_LAG, 'group', _CHOSEN)})", "{{group}}")),
        lines(
            "Lag by group and topic",
            Unit.COUNT,
            (f"topk(20, {gauge(_LAG, 'group, topic', _CHOSEN)})", "{{group}} {{topic}}"),
        ),
        Panel(
            title="The partitions that are furthest behind",
            queries=[Query(expression=f"topk(50, {gauge(_LAG, 'group, topic, partition', _CHOSEN)} > 0)")],
            look=Look.TABLE,
            width=24,
            height=10,
        ),
        lines(
            "Partitions of groups whose lag is followed",
            Unit.COUNT,
            (gauge("kafscale_consumer_group_lag_series"), "followed"),
            (gauge("kafscale_consumer_group_lag_series_omitted"), "left out"),
        ),
        lines("Offsets committed", Unit.PER_SECOND, (total("kafscale_offset_commits_total"), "commits")),
    ],
)

_COORDINATION: Final = Row(
    title="Coordination",
    panels=[
        lines("Groups", Unit.COUNT, (gauge("kafscale_groups", "state"), "{{state}}"), stacked=True),
        lines(
            "Groups by protocol",
            Unit.COUNT,
            (gauge("kafscale_groups_by_type", "type"), "{{type}}"),
            (gauge("kafscale_groups_overdue"), "do not become stable"),
        ),
        lines("Members", Unit.COUNT, (gauge("kafscale_group_members", "pod"), "{{pod}}"), stacked=True),
        lines(
            "Rebalances in an hour",
            Unit.COUNT,
            (risen("kafscale_group_rebalance_duration_seconds_count", "pod, type"), "{{pod}} {{type}}"),
        ),
        lines(
            "Time of a rebalance", Unit.SECONDS, *both("kafscale_group_rebalance_duration_seconds", "type")
        ),
        lines(
            "Target assignments computed in an hour",
            Unit.COUNT,
            (risen("kafscale_group_assignment_duration_seconds_count", "pod"), "{{pod}}"),
        ),
        lines(
            "Time to compute a target assignment",
            Unit.SECONDS,
            *both("kafscale_group_assignment_duration_seconds"),
        ),
        lines("Time of a commit", Unit.SECONDS, *both("kafscale_offset_commit_duration_seconds")),
        lines(
            "Memory of groups",
            Unit.SHARE,
            (
                f"{gauge('kafscale_group_memory_used_bytes', 'pod')}"
                f" / {gauge('kafscale_group_memory_limit_bytes', 'pod')}",
                "{{pod}}",
            ),
            most=1,
            warn_at=0.9,
        ),
    ],
)

_SHARES: Final = Row(
    title="Share groups",
    panels=[
        lines(
            "Records that are not finished, by group",
            Unit.COUNT,
            (f"topk(20, {gauge(_SHARE_LAG, 'group')})", "{{group}}"),
        ),
        Panel(
            title="The partitions with the most that is not finished",
            queries=[Query(expression=f"topk(50, {gauge(_SHARE_LAG, 'group, topic, partition')} > 0)")],
            look=Look.TABLE,
            width=24,
            height=10,
        ),
        lines(
            "Records acquired",
            Unit.PER_SECOND,
            (f"topk(20, {total('kafscale_share_records_acquired_total', 'group')})", "{{group}}"),
        ),
        lines(
            "Records acknowledged",
            Unit.PER_SECOND,
            (total("kafscale_share_records_acknowledged_total", "type"), "{{type}}"),
            (total("kafscale_share_records_timed_out_total"), "lock timed out"),
        ),
        lines(
            "Records archived at their last delivery, in an hour",
            Unit.COUNT,
            (f"topk(20, {risen(_ARCHIVED, 'group', _AT_LAST_DELIVERY)})", "{{group}}"),
        ),
        lines("Records archived, in an hour", Unit.COUNT, (risen(_ARCHIVED, "reason"), "{{reason}}")),
        lines(
            "Share sessions",
            Unit.COUNT,
            (gauge("kafscale_share_sessions", "pod"), "{{pod}}"),
            (gauge("kafscale_share_sessions_limit", "pod"), "limit of {{pod}}"),
        ),
        lines(
            "Partitions that share groups read",
            Unit.COUNT,
            (gauge("kafscale_share_partitions_open", "pod"), "{{pod}}"),
            stacked=True,
        ),
        lines(
            "Partitions of share groups whose lag is followed",
            Unit.COUNT,
            (gauge("kafscale_share_group_lag_series"), "followed"),
            (gauge("kafscale_share_group_lag_series_omitted"), "left out"),
        ),
        lines(
            "Records in flight that a broker remembers, as runs",
            Unit.COUNT,
            (gauge("kafscale_share_runs", "pod"), "{{pod}}"),
            (gauge("kafscale_share_runs_limit", "pod"), "limit of {{pod}}"),
        ),
        lines(
            "Partitions refused for lack of room in the metadata store, in an hour",
            Unit.COUNT,
            (risen("kafscale_share_partitions_refused_total", "pod"), "{{pod}}"),
        ),
    ],
)

_TRANSACTIONS: Final = Row(
    title="Transactions",
    panels=[
        lines(
            "Transactions that are open",
            Unit.COUNT,
            (gauge("kafscale_transactions_open", "state"), "{{state}}"),
            stacked=True,
        ),
        lines(
            "Age of the oldest",
            Unit.SECONDS,
            (gauge("kafscale_transactions_oldest_seconds", "state", how="max"), "{{state}}"),
        ),
        lines(
            "Transactions decided",
            Unit.PER_SECOND,
            (total("kafscale_transactions_ended_total", "result"), "{{result}}"),
            stacked=True,
        ),
        lines(
            "Time from the decision to the last marker",
            Unit.SECONDS,
            *both("kafscale_transaction_completion_seconds"),
        ),
        lines(
            "Transactional ids",
            Unit.COUNT,
            (gauge("kafscale_transactional_ids", "pod"), "{{pod}}"),
            stacked=True,
        ),
        lines(
            "Offsets that committed reads wait for",
            Unit.COUNT,
            (f"topk(20, {gauge(_STABLE_LAG, 'topic', how='max')})", "{{topic}}"),
        ),
    ],
)

DASHBOARD: Final = Dashboard(
    name="groups",
    title="Kafscale: consumer groups",
    description="Lag, commits and rebalances of the consumer groups of one cluster; its share groups and "
    "transactions.",
    variables=[NAMESPACE, CLUSTER, POD, _GROUP],
    rows=[_KEEPING_UP, _COORDINATION, _SHARES, _TRANSACTIONS],
)
