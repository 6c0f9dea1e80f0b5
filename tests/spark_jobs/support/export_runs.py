"""The export command in the test's own process, over the Spark session that is there."""

import json
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession

from kafscale.lake.export_state import ExportState, decode_state, property_of
from kafscale.settings.broker import SETTINGS, Settings
from kafscale.settings.stores import StoreSettings
from spark_jobs.export import main
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.read_back import WrittenTable, read_table

_STORE_FIELDS = set(StoreSettings.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The result of a run. `output`: both streams."""

    exit_code: int
    output: str


def store_environment(settings: Settings) -> dict[str, str]:
    """The stores' settings as environment variables, secrets and all."""
    given = {}
    for row in SETTINGS:
        value = getattr(settings, row.field)
        if row.field in _STORE_FIELDS and value is not None:
            given[row.variable] = ",".join(value) if isinstance(value, tuple) else str(value).lower()
    given["KAFSCALE_DATA_DIR"] = str(settings.data_dir)
    return given


class Exporter:
    """Runs the command again and again with the same stores, topic and table.

    The catalog is one that the session knows. `more`: further options of every run.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        topic: str,
        catalog: IcebergCatalog,
        table: str,
        *more: str,
    ) -> None:
        self._spark = spark
        self.settings = settings
        self._more = more
        self.topic = topic
        self.catalog = catalog
        self.table = table

    @property
    def dead_letter_table(self) -> str:
        """The name that dead letters go to unless another is given."""
        return f"{self.table}_dead_letters"

    def arguments(self, *more: str) -> list[str]:
        """The command line without what says where the stores are."""
        return ["--topic", self.topic, "--table", self.table, *self._more, *more]

    def environment(self) -> dict[str, str]:
        """The options that locate the stores."""
        return store_environment(self.settings)

    def run(self, *more: str) -> ExportResult:
        """One run, whatever it comes to."""
        with _process_as_before():
            done = CliRunner().invoke(main, self.arguments(*more), env=self.environment())
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return ExportResult(exit_code=done.exit_code, output=done.output)

    def export(self, *more: str) -> WrittenTable:
        """One run that must succeed; what the table then holds."""
        done = self.run(*more)
        assert done.exit_code == 0, done.output
        return self.read()

    def read(self) -> WrittenTable:
        """The table as it is now."""
        return read_table(self.catalog, self.table)

    def dead_letters(self) -> WrittenTable:
        """The dead-letter table as it is now."""
        return read_table(self.catalog, self.dead_letter_table)

    def state(self) -> ExportState:
        """The export state in the table's newest snapshot."""
        return state_in(self.read().history[-1].summary, self.topic)


def state_in(stored: Mapping[str, str], topic: str) -> ExportState:
    """The export state in a snapshot's summary, or in a table's properties."""
    return decode_state(topic, stored[property_of(topic)])


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows by partition and offset; two of the same coordinates stay two."""
    return sorted((dict(row) for row in rows), key=lambda row: (row["partition"], row["offset"]))


def summary_of(path: Path) -> dict[str, Any]:
    """The summary that a run left in a file."""
    fields = json.loads(path.read_text())
    assert isinstance(fields, dict)
    return fields


@contextmanager
def _process_as_before() -> Iterator[None]:
    """A command takes its process over: signals, logging."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    loggers = [logging.getLogger(name) for name in ("", "kafscale", "spark_jobs", "py4j")]
    before = [(logger, list(logger.handlers), logger.level) for logger in loggers]
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        logging.captureWarnings(False)
        for logger, of_logger, level in before:
            logger.handlers[:] = of_logger
            logger.setLevel(level)
