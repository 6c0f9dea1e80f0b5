"""Requests to the lake benchmark's Spark process and its answers; both travel as one line of JSON."""

from collections.abc import Mapping
from dataclasses import dataclass

NOOP, ICEBERG = "noop", "iceberg"
SINKS = (NOOP, ICEBERG)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """One Spark session: `cores` tasks at a time, everything it writes below `folder`."""

    cores: int
    folder: str
    jars: tuple[str, ...]
    memory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpec:
    """Read by `options` through the data source `source`, all columns, into `sink`."""

    source: str
    options: Mapping[str, str]
    sink: str
    broker_pid: int = 0  # 0: no broker takes part


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One read: from the creation of the data frame to the end of the job. CPU of user and system, in seconds."""

    seconds: float
    tasks: int
    jvm_seconds: float  # the JVM, which is driver and executor
    python_seconds: float  # the driver's Python, the workers, and all other child processes that have exited
    broker_seconds: float

    @property
    def spark_seconds(self) -> float:
        """CPU of all Spark processes."""
        return self.jvm_seconds + self.python_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The digest of a read in any order: its rows, and a hash over partition, offset, key, value and headers."""

    rows: int
    hash: int
