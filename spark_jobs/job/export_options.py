"""What an export of a topic is asked to do: the values behind the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_jobs.decoding.options import ValueOptions
from spark_jobs.job.batch_plan import GapPolicy
from spark_jobs.source.offset_points import LogEdge, OffsetPoint
from spark_jobs.tables.iceberg_table import TableOptions

GIB: Final = 1024 * 1024 * 1024
DEFAULT_BATCH_BYTES: Final = 4 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """How one topic is exported.

    `start`: where the export of a topic begins that has none. `backfill`: what to bring instead of what is new, from
    the first point to before the second. `max_batch_bytes`: how much of the log one commit takes, as it is stored.
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
