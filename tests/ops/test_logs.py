"""Log lines: one an event, the same fields as text and as JSON."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest

from kafscale.ops.logs import JsonFormatter, TextFormatter, configure_logging
from kafscale.settings.broker import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("kafscale")
    levels = root.level, own.level
    yield
    logging.captureWarnings(False)
    for handler in [
        each for each in root.handlers if isinstance(each.formatter, (TextFormatter, JsonFormatter))
    ]:
        root.removeHandler(handler)
    root.setLevel(levels[0])
    own.setLevel(levels[1])


def logged(level: LogLevel, form: LogFormat) -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    configure_logging(level, form, stream)
    return logging.getLogger("kafscale.test"), stream


def test_text_carries_time_level_logger_message_and_fields() -> None:
    logger, stream = logged(LogLevel.INFO, LogFormat.TEXT)
    logger.info("listening", extra={"host": "127.0.0.1", "port": 9092, "note": "two words"})
    time, rest = stream.getvalue().split(" ", 1)
    assert rest == 'INFO kafscale.test: listening host=127.0.0.1 port=9092 note="two words"\n'
    assert datetime.fromisoformat(time).utcoffset() is not None
    assert time.endswith("Z")


def test_json_carries_the_same() -> None:
    logger, stream = logged(LogLevel.INFO, LogFormat.JSON)
    logger.warning("flush %s", "failed", extra={"partition": 3, "error": ValueError("x"), "level": "mine"})
    line = json.loads(stream.getvalue())
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {
        "level": "WARNING",
        "logger": "kafscale.test",
        "message": "flush failed",
        "partition": 3,
        "error": "x",
    }


@pytest.mark.parametrize("form", LogFormat)
def test_an_exception_is_part_of_its_event(form: LogFormat) -> None:
    logger, stream = logged(LogLevel.INFO, form)
    try:
        raise KeyError("nothing here")
    except KeyError:
        logger.exception("broke")
    if form is LogFormat.JSON:
        (line,) = stream.getvalue().splitlines()
        assert json.loads(line)["exception"].endswith("KeyError: 'nothing here'")
    else:
        first, *traceback = stream.getvalue().splitlines()
        assert first.endswith("ERROR kafscale.test: broke")
        assert all(line.startswith("    ") for line in traceback)
        assert traceback[-1] == "    KeyError: 'nothing here'"


@pytest.mark.parametrize("form", LogFormat)
def test_text_from_a_client_cannot_forge_a_line(form: LogFormat) -> None:
    logger, stream = logged(LogLevel.INFO, form)
    logger.info("client %s", "a\nERROR b\x1b[2J", extra={"client_id": "c\r\nd"})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_level_is_kafscales_and_libraries_log_warnings() -> None:
    logger, stream = logged(LogLevel.DEBUG, LogFormat.TEXT)
    logger.debug("ours")
    logging.getLogger("library").info("theirs")
    logging.getLogger("library").warning("theirs, loud")
    assert [line.split(": ")[1] for line in stream.getvalue().splitlines()] == ["ours", "theirs, loud"]
    logger, stream = logged(LogLevel.ERROR, LogFormat.TEXT)
    logger.warning("quiet")
    logging.getLogger("library").warning("quiet")
    assert stream.getvalue() == ""


def test_a_second_configuration_takes_the_place_of_the_first() -> None:
    _, first = logged(LogLevel.INFO, LogFormat.TEXT)
    logger, second = logged(LogLevel.INFO, LogFormat.TEXT)
    logger.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


@pytest.mark.parametrize("form", LogFormat)
def test_a_line_that_repeats_is_limited(form: LogFormat) -> None:
    logger, stream = logged(LogLevel.INFO, form)
    for number in range(10_000):
        logger.info("refused %s", f"client {number}", extra={"client": number})
    # A second's worth more for each second that the loop takes on a loaded machine.
    assert 200 <= len(stream.getvalue().splitlines()) < 5_000
    logger.info("another line")
    assert "another line" in stream.getvalue().splitlines()[-1]


def test_audit_lines_of_many_logins_are_complete() -> None:
    _, stream = logged(LogLevel.INFO, LogFormat.JSON)
    audit = logging.getLogger("kafscale.audit")
    for number in range(5_000):
        audit.info("authentication succeeded", extra={"client": str(number)})
        audit.warning("authentication failed", extra={"client": str(number)})
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    succeeded = [line["client"] for line in lines if line["message"] == "authentication succeeded"]
    assert succeeded == [str(number) for number in range(5_000)]
    # A stranger's failures are bounded.
    assert len(lines) - len(succeeded) < 1_000


@pytest.mark.parametrize("form", LogFormat)
def test_texts_of_any_length_leave_a_short_line(form: LogFormat) -> None:
    logger, stream = logged(LogLevel.INFO, form)
    logger.info(
        "joined %s", "g" * 1_000_000, extra={"client": "c" * 1_000_000, "error": ValueError("e" * 99_999)}
    )
    line = stream.getvalue()
    assert len(line) < 7_000
    assert "1000000 characters" in line
