"""The options of a maintenance, as values behind the command line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.settings.broker import Settings
from spark_jobs.cli_options import SparkOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainCommand:
    """The parsed command line. `table` may be a rule (see `table_names`), which the topics complete."""

    topics: Sequence[str]
    topic_pattern: re.Pattern[str] | None
    table: str
    dead_letter_table: str
    settings: Settings
    spark: SparkOptions
    compacts: bool
    target_file_bytes: int
    snapshot_age_days: int | None
    orphan_age_days: int | None
    row_ttl_days: int | None
    row_ttl_column: str | None
    as_json: bool
    is_quiet: bool
