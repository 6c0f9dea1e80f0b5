"""The metrics of share groups (see `metric_families`), by group: none has a series for each partition."""

from kafscale.ops.metric_family import Family, FamilyTable

_rows = FamilyTable()
_counter, _gauge = _rows.counter, _rows.gauge

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
    "Records that came back from their last delivery (KAFSCALE_GROUP_SHARE_DELIVERY_COUNT_LIMIT): the group does not "
    "receive them any more, and has not processed them.",
    "group",
)

FAMILIES: tuple[Family, ...] = tuple(_rows)
