"""The metrics of share groups (see `metric_families`), by group: none has a series for each partition."""

from kafscale.ops.metric_family import Family, FamilyTable

_rows = FamilyTable()
_counter, _gauge = _rows.counter, _rows.gauge

LAG = _gauge(
    "kafscale_share_group_lag",
    "Records of a partition that a share group has not finished, of groups that this broker coordinates, read every "
    "30 s; of partitions led elsewhere up to the end in their records, which may be KAFSCALE_SEAL_INTERVAL_MS old. "
    "Series and omitted ones are as those of kafscale_consumer_group_lag.",
    "group",
    "topic",
    "partition",
)
LAG_SERIES = _gauge(
    "kafscale_share_group_lag_series", "Partitions of share groups that are followed for their lag."
)
LAG_SERIES_OMITTED = _gauge(
    "kafscale_share_group_lag_series_omitted",
    "Partitions of share groups that are not followed, because KAFSCALE_CONSUMER_LAG_MAX_SERIES others are.",
)
SESSIONS = _gauge(
    "kafscale_share_sessions",
    "Share sessions of this broker: one for each member of a share group that fetches from it.",
)
SESSIONS_LIMIT = _gauge(
    "kafscale_share_sessions_limit", "How many it may have; members beyond them are refused."
)
PARTITIONS_OPEN = _gauge(
    "kafscale_share_partitions_open",
    "Partitions led by this broker that members of share groups read, counted for each group.",
)
RUNS = _gauge(
    "kafscale_share_runs",
    "Neighbouring records in one state, of all partitions that members of share groups read here: what this broker "
    "remembers of records in flight.",
)
RUNS_LIMIT = _gauge(
    "kafscale_share_runs_limit",
    "From here on a partition has at most 100 records in flight for a group, so that memory and the metadata store "
    "stay bounded.",
)
RECORDS_ACQUIRED = _counter(
    "kafscale_share_records_acquired_total",
    "Deliveries of records to members of the share group at this broker; a record that comes back counts again.",
    "group",
)
RECORDS_ACKNOWLEDGED = _counter(
    "kafscale_share_records_acknowledged_total",
    "What members said of records: `accept`, `release`, `reject`, `renew`. `release` is also what a member still had "
    "when its share session ended.",
    "group",
    "type",
)
RECORDS_TIMED_OUT = _counter(
    "kafscale_share_records_timed_out_total",
    "Records of which the member said nothing before their lock ended.",
    "group",
)
RECORDS_ARCHIVED = _counter(
    "kafscale_share_records_archived_total",
    "Records that the share group will not receive any more, and has not accepted, by reason. `rejected`: by a "
    "member. `deliveries`: they came back from their last delivery (KAFSCALE_GROUP_SHARE_DELIVERY_COUNT_LIMIT). "
    "`gap`: there is no record at the offset for a member: compaction has removed it, it is a marker of a "
    "transaction, or it was aborted.",
    "group",
    "reason",
)

FAMILIES: tuple[Family, ...] = tuple(_rows)
