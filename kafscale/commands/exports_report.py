"""The exports of topics in words: a table for people, an object for programs. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kafscale.cluster.exports import TopicExports
from kafscale.formats.export_records import ExportProgress, ExportRecord, ExportState
from kafscale.ops.report_text import section, table

STARTING: Final = "starting"
"""An exporter has the hold of the topic and has exported nothing yet."""
INTERRUPTED: Final = "interrupted"
"""The exporter has ended without saying so, or exports into another table now."""

_COLUMNS: Final = (
    "TOPIC",
    "TABLE",
    "STATE",
    "HOLDER",
    "PARTITIONS",
    "ROWS",
    "DEAD LETTERS",
    "LAG",
    "LAST COMMIT",
)
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLine:
    """The export of a topic into a table; `progress` is None while the topic only has an owner.

    `log_end_offsets`: those of the topic's partitions now, None when there is no such topic any more.
    """

    topic: str
    last: ExportRecord | None
    holder: ExportRecord | None
    progress: ExportProgress | None
    log_end_offsets: Mapping[int, int] | None

    @property
    def state(self) -> str:
        """`ExportState`'s values, `STARTING` and `INTERRUPTED`."""
        if self.progress is None:
            return STARTING if self.holder is not None else INTERRUPTED
        if self.progress.state is ExportState.RUNNING and not self.is_held:
            return INTERRUPTED
        return self.progress.state.value

    @property
    def is_held(self) -> bool:
        """True if the topic's owner now exports into this table, as far as is known."""
        if self.holder is None:
            return False
        return self.progress is None or self.progress.updated_ms >= self.holder.acquired_ms

    @property
    def lags(self) -> dict[int, int]:
        """Per partition how many offsets the topic is ahead of the table; none without the topic."""
        if self.progress is None or self.log_end_offsets is None:
            return {}
        ends = self.log_end_offsets
        return {
            partition: max(ends[partition] - position, 0)
            for partition, position in self.progress.positions.items()
            if partition in ends
        }


def export_lines(
    exports: Iterable[TopicExports], log_end_offsets: Mapping[str, Mapping[int, int]]
) -> list[ExportLine]:
    """A line for each topic and table, and for each holder that has not come to a table yet.

    `log_end_offsets`: of the topics that there are, by name.
    """
    return [
        line
        for one in sorted(exports, key=lambda one: one.topic)
        for line in _lines_of(one, log_end_offsets.get(one.topic))
    ]


def _lines_of(exports: TopicExports, log_end_offsets: Mapping[int, int] | None) -> list[ExportLine]:
    def line(progress: ExportProgress | None) -> ExportLine:
        return ExportLine(
            topic=exports.topic,
            last=exports.last,
            holder=exports.holder,
            progress=progress,
            log_end_offsets=log_end_offsets,
        )

    lines = [line(progress) for progress in exports.progress]
    if not lines or (exports.holder is not None and not any(one.is_held for one in lines)):
        lines.append(line(None))
    return lines


def as_text(lines: Sequence[ExportLine], now_ms: int) -> str:
    """The lines for people; `now_ms`: Unix milliseconds."""
    if not lines:
        return "There are no exports."
    text = list(table([_COLUMNS, *(_row(line, now_ms) for line in lines)]))
    errors = (
        f"{line.topic} into {line.progress.table}: {line.progress.error}"
        for line in lines
        if line.progress is not None and line.progress.error
    )
    return "\n".join([*text, *section("Errors", errors)])


def as_fields(lines: Sequence[ExportLine], now_ms: int) -> dict[str, Any]:
    """The lines for programs, partition by partition; `now_ms`: Unix milliseconds."""
    return {"exports": [_fields(line, now_ms) for line in lines]}


def _row(line: ExportLine, now_ms: int) -> tuple[str, ...]:
    holder = line.holder.holder if line.holder is not None and line.is_held else "-"
    progress = line.progress
    if progress is None:
        return (line.topic, "-", line.state, holder, "-", "-", "-", "-", "-")
    return (
        line.topic,
        progress.table,
        line.state,
        holder,
        _partitions(line, progress),
        str(progress.rows),
        str(progress.dead_letters),
        "no topic" if line.log_end_offsets is None else str(sum(line.lags.values())),
        _ago(now_ms - progress.updated_ms),
    )


def _partitions(line: ExportLine, progress: ExportProgress) -> str:
    exported, all_of_them = len(progress.positions), len(line.log_end_offsets or progress.positions)
    return str(exported) if exported == all_of_them else f"{exported} of {all_of_them}"


def _ago(age_ms: int) -> str:
    for unit_ms, name in _UNITS:
        if age_ms >= 2 * unit_ms:
            return f"{age_ms // unit_ms} {name} ago"
    return "just now"


def _fields(line: ExportLine, now_ms: int) -> dict[str, Any]:
    progress = line.progress
    fields: dict[str, Any] = {
        "topic": line.topic,
        "table": None if progress is None else progress.table,
        "state": line.state,
        "holder": None if line.holder is None else _record_fields(line.holder),
        "last_holder": None if line.last is None else _record_fields(line.last),
    }
    if progress is None:
        return fields
    ends, lags = line.log_end_offsets, line.lags
    return fields | {
        "rows": progress.rows,
        "dead_letters": progress.dead_letters,
        "error": progress.error or None,
        "committed_at": _instant(progress.updated_ms),
        "complete_at": None if progress.complete_ms is None else _instant(progress.complete_ms),
        "age_ms": max(now_ms - progress.updated_ms, 0),
        "lag": None if ends is None else sum(lags.values()),
        "partition_count": None if ends is None else len(ends),
        "partitions": [
            {
                "partition": partition,
                "position": position,
                "log_end_offset_then": progress.log_end_offsets[partition],
                "log_end_offset": None if ends is None else ends.get(partition),
                "lag": lags.get(partition),
            }
            for partition, position in sorted(progress.positions.items())
        ],
    }


def _record_fields(record: ExportRecord) -> dict[str, Any]:
    return {"name": record.holder, "epoch": record.epoch, "since": _instant(record.acquired_ms)}


def _instant(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
