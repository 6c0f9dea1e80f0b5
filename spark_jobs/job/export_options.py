"""The options of an export, as values behind the command line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafscale.reader.topic_state import Freshness
from kafscale.settings.broker import Settings
from kafscale.settings.kinds import Address
from spark_jobs.cli_options import SparkOptions
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.job.batch_plan import GapPolicy
from spark_jobs.source.offset_points import LogEdge, OffsetPoint
from spark_jobs.tables.table_options import TableOptions

GIB: Final = 1024 * 1024 * 1024
DEFAULT_BATCH_BYTES: Final = 4 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """The export of one topic.

    `start`: where the first export of a topic begins. `backfill`: export this range instead of new records, from the
    first point to before the second. `max_batch_bytes`: the size of one commit, as stored in the log.
    """

    table: str
    dead_letter_table: str
    value: ValueOptions
    table_options: TableOptions = field(default_factory=TableOptions)
    write_options: Mapping[str, str] = field(default_factory=dict)
    gap_policy: GapPolicy = GapPolicy.FAIL
    max_batch_bytes: int = DEFAULT_BATCH_BYTES
    start: OffsetPoint = LogEdge.EARLIEST
    backfill: tuple[OffsetPoint, OffsetPoint] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand:
    """The parsed command line; docs/lake-export.md describes each option.

    `interval_sec`: None for a run that ends.
    """

    topics: Sequence[str]
    topic_pattern: re.Pattern[str] | None
    table: str
    dead_letter_table: str
    settings: Settings
    spark: SparkOptions
    values: ValueOptions
    start: OffsetPoint
    backfill: tuple[OffsetPoint, OffsetPoint] | None
    freshness: Freshness
    gap_policy: GapPolicy
    partition_by: Sequence[str]
    sort_by: Sequence[str]
    properties: Mapping[str, str]
    adds_columns: bool
    target_file_bytes: int
    max_batch_bytes: int
    compacts: bool
    expire_snapshots_days: int | None
    interval_sec: float | None
    lease_ttl_sec: int
    wait_sec: float
    metrics_addr: Address | None
    metrics_file: Path | None
    as_json: bool
    is_quiet: bool
