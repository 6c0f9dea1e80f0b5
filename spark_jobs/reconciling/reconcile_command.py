"""The options of a reconciliation, as values behind the command line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.settings.broker import Settings
from spark_jobs.cli_options import SparkOptions
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.registry_options import RegistryOptions

DEFAULT_RANGE_SIZE: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileCommand:
    """The parsed command line. Tables may be rules (see `table_names`); `except_columns` are not compared."""

    topics: Sequence[str]
    topic_pattern: re.Pattern[str] | None
    table: str
    dead_letter_table: str
    settings: Settings
    spark: SparkOptions
    values: ValueOptions
    registry: RegistryOptions | None
    range_size: int
    except_columns: Sequence[str]
    skips_expired: bool
    shows_all_ranges: bool
    as_json: bool
    is_quiet: bool
