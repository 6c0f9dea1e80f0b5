"""What an export of a topic is asked to do: the values behind the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_jobs.decoding.options import ValueOptions
from spark_jobs.job.batch_plan import GapPolicy
from spark_jobs.job.starting_offsets import Start
from spark_jobs.tables.iceberg_table import TableOptions
from spark_jobs.tables.ranges import Range

GIB: Final = 1024 * 1024 * 1024
DEFAULT_BATCH_BYTES: Final = 4 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """How one topic is exported.

    `start`: where the export of a topic begins that has none. `backfill`: the offsets to bring instead of what is
    new, by partition; None for all that is new. `max_batch_bytes`: how much of the log one commit takes, as stored.
    """

    table: str
    dead_letter_table: str
    value: ValueOptions
    table_options: TableOptions = field(default_factory=TableOptions)
    write_options: Mapping[str, str] = field(default_factory=dict)
    gap_policy: GapPolicy = GapPolicy.FAIL
    max_batch_bytes: int = DEFAULT_BATCH_BYTES
    start: Start | Mapping[int, int] = Start.EARLIEST
    backfill: Mapping[int, Range] | None = None
