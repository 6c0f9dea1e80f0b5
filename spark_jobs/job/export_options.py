"""The options of an export, as values behind the command line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafscale.commands.config_options import ConfigOptions
from kafscale.lake.batch_plan import GapPolicy
from kafscale.lake.dead_letter_limit import DeadLetterLimit
from kafscale.lake.export_mode import ExportMode
from kafscale.lake.offset_points import OffsetPoint
from kafscale.lake.routes import Routes
from kafscale.lake.topic_export import TopicScope
from kafscale.reader.topic_state import Freshness
from kafscale.settings.broker import Settings
from kafscale.settings.kinds import Address
from spark_jobs.cli_options import SparkOptions
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.registry_options import RegistryOptions
from spark_jobs.tables.table_options import TableOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions(TopicScope):
    """The export of one topic by Spark: its scope, the decoding of its values, and the layout of its tables.

    `flattens`: the fields of values are columns of the table (`flat_rows`).
    """

    dead_letter_table: str
    value: ValueOptions
    routes: Routes | None = None
    dead_letter_limit: DeadLetterLimit = field(default_factory=DeadLetterLimit)
    table_options: TableOptions = field(default_factory=TableOptions)
    write_options: Mapping[str, str] = field(default_factory=dict)
    flattens: bool = False
    mode: ExportMode = ExportMode.APPEND


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand:
    """The parsed command line; docs/lake-export.md describes each option.

    `is_atomic`: commits have no transaction by half. `interval_sec`: None for a run that ends.
    """

    topics: Sequence[str]
    topic_pattern: re.Pattern[str] | None
    table: str
    dead_letter_table: str
    settings: Settings
    spark: SparkOptions
    values: ValueOptions
    registry: RegistryOptions | None
    routes: Routes | None
    dead_letter_limit: DeadLetterLimit
    replays_dead_letters: bool
    is_atomic: bool
    flattens: bool
    mode: ExportMode
    upserts_any_topic: bool
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
    row_ttl_days: int | None
    maintenance_interval_sec: float
    interval_sec: float | None
    lease_ttl_sec: int
    wait_sec: float
    metrics_addr: Address | None
    metrics_file: Path | None
    as_json: bool
    is_quiet: bool
    config_options: ConfigOptions
