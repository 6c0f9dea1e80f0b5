"""The export command in a process of its own: killed, paused, and stopped at points of its work."""

import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from tests.spark_jobs.support.gated_export import Point, open_file, reached_file
from tests.spark_jobs.support.plain_files import plain_files
from tests.support.java import UNVERIFIED
from tests.support.process import ServerProcess, clean_environment, is_stopped
from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[3]
TIMEOUT_SEC = 600.0
_numbers = itertools.count(1)


def spark_home(folder: Path) -> Path:
    """A home for Spark that is PySpark's: what Spark's executors leave behind lies below `folder`."""
    folder.mkdir(parents=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


class ExportProcess(ServerProcess):
    """`python -m spark_jobs.export` with a small Spark, everything of it below `folder`.

    `points`: where it waits; see `gated_export`. `spark`: more of Spark's settings.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        *,
        points: Sequence[Point] = (),
        environment: Mapping[str, str] | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        name = f"export-{next(_numbers)}"
        super().__init__(name, folder / name)
        self._arguments = tuple(arguments)
        self._points = tuple(points)
        self._environment = dict(environment or {})
        self._spark = dict(spark or {})

    def start(self) -> "ExportProcess":
        """Start it without waiting."""
        module = "tests.spark_jobs.support.gated_export" if self._points else "spark_jobs.export"
        gates = [str(self.folder), *(point.name for point in self._points), "--"] if self._points else []
        self._write_spark_defaults()
        environment = clean_environment() | {
            "PYTHONPATH": str(REPOSITORY),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self._temporary()),
            # For executors as well, and whatever the command gives its JVM.
            "JDK_JAVA_OPTIONS": (
                "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
                f" {' '.join(UNVERIFIED)} -Djava.io.tmpdir={self._temporary()}"
            ),
            **self._environment,
        }
        self.launch([sys.executable, "-m", module, *gates, *self._arguments], environment)
        return self

    def wait_at(self, point: Point) -> None:
        """Wait until it waits at the point."""
        wait_until(lambda: self._is_at(point), f"{self.name} is at: {point}", TIMEOUT_SEC)

    def go_on(self, point: Point) -> None:
        """Let it pass the point, now and whenever it comes to it again."""
        open_file(self.folder, point).touch()

    def pause(self) -> None:
        """Stop every process of it."""
        os.killpg(self.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(self.pid), f"{self.name} is stopped")

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def kill_all(self) -> None:
        """SIGKILL the driver, its JVM, and the Python workers."""
        os.killpg(self.pid, signal.SIGKILL)
        self._running().wait()
        self._forget()

    def finish(self, timeout_s: float = TIMEOUT_SEC) -> int:
        """Its exit code, once it has ended by itself."""
        return self.wait_exit(timeout_s)

    def close(self) -> None:
        """Nothing of it is left, whatever the test did."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        super().close()

    def _is_at(self, point: Point) -> bool:
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        return reached_file(self.folder, point).exists()

    def _temporary(self) -> Path:
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        return temporary

    def _write_spark_defaults(self) -> None:
        temporary = self._temporary()
        settings = {
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(temporary),
            "spark.sql.warehouse.dir": str(temporary / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            **plain_files(),
            **self._spark,
        }
        lines = (f"{name} {value}\n" for name, value in settings.items())
        (self.folder / "spark-defaults.conf").write_text("".join(lines))


@contextlib.contextmanager
def export_process(
    folder: Path,
    arguments: Sequence[str],
    *,
    points: Sequence[Point] = (),
    environment: Mapping[str, str] | None = None,
    spark: Mapping[str, str] | None = None,
) -> Iterator[ExportProcess]:
    """A started export; nothing of it is left after the block."""
    process = ExportProcess(folder, arguments, points=points, environment=environment, spark=spark)
    try:
        yield process.start()
    finally:
        process.close()
