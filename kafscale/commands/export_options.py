"""The options of `kafscale export`, as values behind the command line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafscale.commands.config_options import ConfigOptions
from kafscale.lake.batch_plan import GapPolicy
from kafscale.lake.dead_letter_limit import DeadLetterLimit
from kafscale.lake.offset_points import OffsetPoint
from kafscale.reader.topic_state import Freshness
from kafscale.settings.kinds import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The parsed command line; docs/export-without-spark.md describes each option.

    `topic`: empty for all that `config_options` choose. `table`, `dead_letter_table`: None for those that are made of
    the topic's name. `is_atomic`: commits have no transaction by half. `interval_sec`: None for a run that ends.
    """

    topic: str
    to: str
    table: str | None
    dead_letter_table: str | None
    catalog: str
    catalog_properties: Sequence[str]
    value_format: str
    key_format: str
    start: OffsetPoint
    backfill: tuple[OffsetPoint, OffsetPoint] | None
    freshness: Freshness
    gap_policy: GapPolicy
    dead_letter_limit: DeadLetterLimit = field(default_factory=DeadLetterLimit)
    partition_by: Sequence[str]
    properties: Mapping[str, str]
    adds_columns: bool
    target_file_bytes: int
    max_batch_bytes: int
    lease_ttl_sec: int
    wait_sec: float
    as_json: bool
    is_quiet: bool
    config_options: ConfigOptions
    topic_pattern: re.Pattern[str] | None
    is_atomic: bool = False
    interval_sec: float | None
    metrics_addr: Address | None
    metrics_file: Path | None
