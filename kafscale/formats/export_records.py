"""The owner of a topic's export, and the progress of its exports: values and stored bytes.

Stored format: docs/format/metadata.md. The table's snapshots are the truth about what is exported; these records are
for people who watch, and keep exporters of one topic apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kafscale.errors import CorruptDataError
from kafscale.formats.topic_record import decode_fields, encode_fields

MAX_ERROR_CHARACTERS: Final = 2000
_MAX_OFFSET: Final = 2**63 - 1


class ExportState(StrEnum):
    """The state of an export."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRecord:
    """An exporter that holds a topic, or the last one that did.

    `epoch`: grows by one whenever an exporter takes the hold of the topic. `acquired_ms`: when, Unix milliseconds.
    """

    epoch: int
    holder: str
    acquired_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress:
    """The progress of a topic's export into a table.

    `positions`: per partition the first offset that is not exported yet. `log_end_offsets`: what the log end
    offsets of the same partitions were then. `rows` and `dead_letters`: written so far to the table and to the
    dead-letter table. `error`: why it failed. `complete_ms`: the newest moment, in Unix milliseconds, of which the
    table has everything that was published until then; None if no run has come that far.
    """

    topic: str
    table: str
    positions: Mapping[int, int]
    log_end_offsets: Mapping[int, int]
    rows: int
    dead_letters: int
    updated_ms: int
    state: ExportState = ExportState.RUNNING
    error: str = ""
    complete_ms: int | None = None


def encode_export_record(record: ExportRecord) -> bytes:
    """The stored bytes, of the record as of the holder."""
    return encode_fields({"epoch": record.epoch, "holder": record.holder, "acquired_ms": record.acquired_ms})


def decode_export_record(name: str, data: bytes) -> ExportRecord:
    """The record. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    fields = decode_fields(name, data)
    return ExportRecord(
        epoch=_count(name, fields, "epoch"),
        holder=_text(name, fields, "holder"),
        acquired_ms=_count(name, fields, "acquired_ms"),
    )


def encode_export_progress(progress: ExportProgress) -> bytes:
    """The stored bytes; the key holds the topic and the table. An error that is too long is cut.

    At most 50 bytes a partition: 10,000 of them are a third of what etcd takes. Raises `ValueError` for offsets
    that are not legal and for partitions that have a position or a log end offset only.
    """
    partitions = sorted(progress.positions)
    if partitions != sorted(progress.log_end_offsets):
        raise ValueError(
            f"the export of {progress.topic!r} has positions in the partitions {partitions} and log end offsets"
            f" in {sorted(progress.log_end_offsets)}: they must be the same ones"
        )
    complete = {} if progress.complete_ms is None else {"complete_ms": progress.complete_ms}
    columns = {
        "partitions": partitions,
        "positions": [progress.positions[partition] for partition in partitions],
        "log_end_offsets": [progress.log_end_offsets[partition] for partition in partitions],
    }
    counts = {
        "rows": progress.rows,
        "dead_letters": progress.dead_letters,
        "updated_ms": progress.updated_ms,
        **complete,
    }
    for column, values in (*columns.items(), *((name, [value]) for name, value in counts.items())):
        for value in values:
            if not 0 <= value <= _MAX_OFFSET:
                raise ValueError(f"{column} of the export of {progress.topic!r} hold {value}")
    error = progress.error
    if len(error) > MAX_ERROR_CHARACTERS:
        error = error[: MAX_ERROR_CHARACTERS - 1] + "…"
    # A message may quote bytes of a record, which need not be UTF-8.
    error = error.encode(errors="replace").decode()
    return encode_fields({**counts, "state": progress.state.value, "error": error, **columns})


def decode_export_progress(name: str, topic: str, table: str, data: bytes) -> ExportProgress:
    """The progress of the topic's export into the table, which the key says.

    `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    fields = decode_fields(name, data)
    partitions, positions, log_end_offsets = (
        _counts(name, fields, column) for column in ("partitions", "positions", "log_end_offsets")
    )
    if not len(partitions) == len(positions) == len(log_end_offsets):
        raise CorruptDataError(name, "its columns have different lengths")
    try:
        state = ExportState(_text(name, fields, "state"))
    except ValueError as problem:
        raise CorruptDataError(name, str(problem)) from problem
    return ExportProgress(
        topic=topic,
        table=table,
        positions=dict(zip(partitions, positions, strict=True)),
        log_end_offsets=dict(zip(partitions, log_end_offsets, strict=True)),
        rows=_count(name, fields, "rows"),
        dead_letters=_count(name, fields, "dead_letters"),
        updated_ms=_count(name, fields, "updated_ms"),
        state=state,
        error=_text(name, fields, "error"),
        complete_ms=_count(name, fields, "complete_ms") if "complete_ms" in fields else None,
    )


def _text(name: str, fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise CorruptDataError(name, f"{key!r} is {value!r}, not text")
    return value


def _count(name: str, fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    if not _is_count(value):
        raise CorruptDataError(name, f"{key!r} is {value!r}, not a number from 0 to 2^63-1")
    return int(value)  # type: ignore[arg-type]


def _counts(name: str, fields: Mapping[str, Any], key: str) -> list[int]:
    values = fields.get(key)
    if not isinstance(values, list) or not all(map(_is_count, values)):
        raise CorruptDataError(name, f"{key!r} is no list of numbers from 0 to 2^63-1")
    return values


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_OFFSET
