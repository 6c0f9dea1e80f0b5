"""Messages for failures inside of Spark: the error of the failed task, not the stack above it."""

import re
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafscale.errors import KafscaleError

# py4j does not wrap the errors of a connection that the JVM does not accept any more.
SPARK_ERRORS: Final = (PySparkException, Py4JError, ConnectionError, EOFError)


class SparkGoneError(KafscaleError):
    """Spark's JVM has ended, and with it every statement of this process."""

    def __init__(self) -> None:
        super().__init__(
            "Spark's JVM has ended: what is committed stays, and another run continues from there. If it was killed "
            "for its memory, --conf spark.driver.memory=... is what it may have; what it printed is above"
        )


def is_spark_gone(spark: SparkSession) -> bool:
    """True if the session's JVM does not answer any more."""
    try:
        spark._jsparkSession.hashCode()
    except (Py4JError, ConnectionError, EOFError):
        return True
    return False


_PYTHON_ERROR = re.compile(r"^(?:\w+\.)+(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_JAVA_ERROR = re.compile(r"^(?:Caused by: |: )?((?:\w+\.)+\w*(?:Error|Exception)): (.+)$", re.MULTILINE)


def short_message(problem: BaseException) -> str:
    """One line. The error of a Python task keeps its own words, without the text that Spark wraps it in."""
    text = str(problem)
    python = _PYTHON_ERROR.findall(_worker_part(text))
    if python:
        return str(python[-1][1]).strip()
    if isinstance(problem, Py4JError):
        java = _JAVA_ERROR.findall(text)
        if java:
            name, message = java[-1]
            return f"{message.strip()} ({name.rpartition('.')[2]})"
    return next((line.strip() for line in text.splitlines() if line.strip()), type(problem).__name__)


def _worker_part(text: str) -> str:
    """The traceback of a Python task, which Spark quotes."""
    _, found, rest = text.partition("Traceback (most recent call last):")
    return rest if found else ""
