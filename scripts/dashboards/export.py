"""How the lake export keeps up."""

from typing import Final

from scripts.dashboards.model import Dashboard, Row, Unit, Variable
from scripts.dashboards.parts import gauge, lines, quantile, risen, total

_TOPIC: Final = Variable(
    name="topic", series="kafscale_export_last_success_timestamp_seconds", label="topic", several=True
)
_CHOSEN: Final = 'topic=~"$topic"'


def _age(metric: str) -> str:
    return f"time() - {gauge(metric, 'topic', how='max', within=_CHOSEN)}"


_EXPORT: Final = Row(
    title="Export",
    panels=[
        lines(
            "Since the last complete export",
            Unit.SECONDS,
            (_age("kafscale_export_last_success_timestamp_seconds"), "{{topic}}"),
            warn_at=7200,
        ),
        lines(
            "Behind: since the table had everything",
            Unit.SECONDS,
            (
                gauge("kafscale_export_topic_lag_seconds", "topic", how="max", within=_CHOSEN),
                "{{topic}}",
            ),
            (_age("kafscale_export_complete_timestamp_seconds"), "{{topic}}: by the last run"),
            warn_at=7200,
        ),
        lines(
            "Since the last commit",
            Unit.SECONDS,
            (_age("kafscale_export_last_commit_timestamp_seconds"), "{{topic}}"),
        ),
        lines(
            "Offsets not exported yet",
            Unit.COUNT,
            (gauge("kafscale_export_topic_lag", "topic", how="max", within=_CHOSEN), "{{topic}}"),
        ),
        lines(
            "Offsets not exported yet: the twenty partitions with the most",
            Unit.COUNT,
            (
                f"topk(20, {gauge('kafscale_export_lag', 'topic, partition', how='max', within=_CHOSEN)})",
                "{{topic}} {{partition}}",
            ),
        ),
        lines(
            "Rows",
            Unit.PER_SECOND,
            (total("kafscale_export_rows_total", "topic", within=_CHOSEN), "{{topic}}"),
        ),
        lines(
            "Rows of the running batch",
            Unit.COUNT,
            (gauge("kafscale_export_batch_rows", "topic", how="max", within=_CHOSEN), "{{topic}}"),
        ),
        lines(
            "Time of a commit (99%)",
            Unit.SECONDS,
            (quantile(0.99, "kafscale_export_commit_duration_seconds", "topic", within=_CHOSEN), "{{topic}}"),
        ),
        lines(
            "Given up, in an hour",
            Unit.COUNT,
            (risen("kafscale_export_failures_total", "topic", within=_CHOSEN), "{{topic}}"),
        ),
        lines(
            "Dead letters, in an hour",
            Unit.COUNT,
            (risen("kafscale_export_dead_letters_total", "topic", within=_CHOSEN), "{{topic}}"),
        ),
        lines(
            "Expired before they were exported, in an hour",
            Unit.COUNT,
            (risen("kafscale_export_gap_offsets_total", "topic", within=_CHOSEN), "{{topic}}: offsets"),
            (risen("kafscale_export_gaps_total", "topic", within=_CHOSEN), "{{topic}}: ranges"),
        ),
        lines(
            "Partitions without a lag of their own",
            Unit.COUNT,
            (gauge("kafscale_export_lag_series_omitted", how="max", within=""), "left out"),
        ),
    ],
)

DASHBOARD: Final = Dashboard(
    name="lake-export",
    title="Kafscale: lake export",
    description="The export of topics to Iceberg tables. Its series are there where its metrics are collected.",
    variables=[_TOPIC],
    rows=[_EXPORT],
)
