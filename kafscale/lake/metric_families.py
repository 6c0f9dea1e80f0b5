"""Every metric of the exporter: one row each, from which the export and its documentation derive."""

from typing import Final

from kafscale.ops.metric_families import Family, MetricType


def _family(type_: MetricType, name: str, documentation: str, *labels: str) -> Family:
    return Family(name=name, type=type_, labels=labels, documentation=documentation)


ROWS: Final = _family(
    MetricType.COUNTER, "kafscale_export_rows_total", "Rows appended to the topic's table.", "topic"
)
DEAD_LETTERS: Final = _family(
    MetricType.COUNTER,
    "kafscale_export_dead_letters_total",
    "Rows appended to the dead-letter table: their value or key did not decode, or their timestamp did not fit.",
    "topic",
)
COMMIT_DURATION: Final = _family(
    MetricType.HISTOGRAM,
    "kafscale_export_commit_duration_seconds",
    "Time from planning a batch to its commit; its count is the number of commits.",
    "topic",
)
GAPS: Final = _family(
    MetricType.COUNTER,
    "kafscale_export_gaps_total",
    "Ranges of offsets that expired before they were exported, and were recorded as gaps.",
    "topic",
)
GAP_OFFSETS: Final = _family(
    MetricType.COUNTER, "kafscale_export_gap_offsets_total", "Offsets in such gaps.", "topic"
)
FAILURES: Final = _family(
    MetricType.COUNTER,
    "kafscale_export_failures_total",
    "How often the topic was given up for a run, or for a round of a job that keeps going.",
    "topic",
)
LAST_COMMIT: Final = _family(
    MetricType.GAUGE,
    "kafscale_export_last_commit_timestamp_seconds",
    "When something was last committed, in Unix time.",
    "topic",
)
LAST_SUCCESS: Final = _family(
    MetricType.GAUGE,
    "kafscale_export_last_success_timestamp_seconds",
    "When all that a run or a round was to export was last in the table, in Unix time; also when there was "
    "nothing to do.",
    "topic",
)
BATCH_ROWS: Final = _family(
    MetricType.GAUGE,
    "kafscale_export_batch_rows",
    "Rows that the running batch has read so far; 0 while none runs.",
    "topic",
)
TOPIC_LAG: Final = _family(
    MetricType.GAUGE,
    "kafscale_export_topic_lag",
    "Offsets between what is exported and the log end offsets, of all partitions, as of the last look at them.",
    "topic",
)
TOPIC_LAG_SECONDS: Final = _family(
    MetricType.GAUGE,
    "kafscale_export_topic_lag_seconds",
    "Time since the newest moment of which the table has everything that was published until then; until there is "
    "one, since the first look at the topic. It grows between rounds, too.",
    "topic",
)
COMPLETE: Final = _family(
    MetricType.GAUGE,
    "kafscale_export_complete_timestamp_seconds",
    "That moment, in Unix time.",
    "topic",
)
LAG: Final = _family(
    MetricType.GAUGE,
    "kafscale_export_lag",
    "The lag in offsets by partition, for 1,000 partitions at most.",
    "topic",
    "partition",
)
LAG_SERIES_OMITTED: Final = _family(
    MetricType.GAUGE,
    "kafscale_export_lag_series_omitted",
    "Partitions without a kafscale_export_lag because there are too many.",
)

FAMILIES: Final[tuple[Family, ...]] = (
    ROWS,
    DEAD_LETTERS,
    COMMIT_DURATION,
    GAPS,
    GAP_OFFSETS,
    FAILURES,
    LAST_COMMIT,
    LAST_SUCCESS,
    BATCH_ROWS,
    TOPIC_LAG,
    TOPIC_LAG_SECONDS,
    COMPLETE,
    LAG,
    LAG_SERIES_OMITTED,
)
