"""Log lines as text for people or as JSON for programs, with the same fields in both, and within limits."""

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Final, TextIO

from kafscale.masking import without_credentials
from kafscale.ops.line_limit import AUDIT_BURST_LINES, TRACEBACK_LINES, LineLimit
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import LogFormat, LogLevel

MAX_TEXT_CHARACTERS: Final = 2_000
"""The longest message and the longest field of a line: a net below what is cut where it is logged."""

_AUDIT: Final = "kafscale.audit"

_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def configure_logging(level: LogLevel, form: LogFormat, stream: TextIO | None = None) -> None:
    """Send every logger's lines to `stream` (standard error when None), Kafscale's from `level` on.

    Libraries are heard from warnings on. A second call takes the place of the first.
    """
    handler = _LimitedHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each.formatter, (JsonFormatter, TextFormatter))]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(logging.WARNING, _number(level)))
    logging.getLogger("kafscale").setLevel(_number(level))
    logging.captureWarnings(True)


class _LimitedHandler(logging.StreamHandler[TextIO]):
    """Leaves out lines that repeat too often: the next of their kind says in `left_out` how many those were.

    A kind is the logger, the level and the message before its arguments are put in, which is the source's.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._limit = LineLimit()
        self._audit_limit = LineLimit(AUDIT_BURST_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, if there is room for it."""
        lines = TRACEBACK_LINES if record.exc_info else 1
        kind = (record.name, record.levelno, str(record.msg))
        # Warnings are of refused clients, who can cause any number.
        is_audit = record.name == _AUDIT and record.levelno < logging.WARNING
        limit = self._audit_limit if is_audit else self._limit
        left_out = limit.admit(kind, time.monotonic(), lines)
        if left_out is None:
            return
        if left_out:
            record.left_out = left_out
        super().emit(record)


def _number(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.value.upper()]


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message field=value ...`, a traceback below it, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and those of a traceback; credentials in URLs are masked."""
        fields = "".join(f" {name}={_field_text(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {_one_line(_message(record))}{fields}"
        exception = _exception(self, record)
        whole = line if exception is None else "\n    ".join([line, *exception.splitlines()])
        return without_credentials(whole)


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, the fields, and `exception` if any."""

    def format(self, record: logging.LogRecord) -> str:
        """One line. A field never takes the place of one of the object's own names."""
        own = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        exception = _exception(self, record)
        if exception is not None:
            own["exception"] = exception
        line = json.dumps(own | {k: v for k, v in _fields(record).items() if k not in own}, default=str)
        return without_credentials(line)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: _bounded(value) for name, value in vars(record).items() if name not in _OWN_ATTRIBUTES}


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    return text if len(text) <= MAX_TEXT_CHARACTERS else quoted(text, MAX_TEXT_CHARACTERS)


def _bounded(value: object) -> object:
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    text = str(value)
    return quoted(text, MAX_TEXT_CHARACTERS) if len(text) > MAX_TEXT_CHARACTERS else value


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    return formatter.formatException(record.exc_info) if record.exc_info else None


def _one_line(text: str) -> str:
    """Text that comes from clients must not start a line of its own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _field_text(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(' "=') & set(text) else json.dumps(text)
