"""A standalone Spark cluster on this machine: a master and workers, and executors that are processes of their own."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.spark_jobs.support.export_process import spark_home
from tests.spark_jobs.support.processes import command_of, descendants_of
from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import wait_until

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_DEPLOY = "org.apache.spark.deploy"


class _Daemon(ServerProcess):
    """A master or a worker; it is dead together with what it started."""

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        super().close()


class StandaloneCluster:
    """`home`: Spark's. Nothing of Kafscale is on the workers' Python path."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.home = spark_home(folder / "home")
        self._port = free_port()
        self._master = _Daemon("spark-master", folder / "master")
        self._workers = [_Daemon(f"spark-worker-{one}", folder / f"worker-{one}") for one in range(workers)]

    @property
    def master(self) -> str:
        """The URL."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> "StandaloneCluster":
        """Start all of it, and wait until the workers are registered."""
        self._launch(
            self._master, f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(self._port),
            "--webui-port", str(free_port()),
        )  # fmt: skip
        wait_until(lambda: "I have been elected leader" in self._text(self._master), "Spark's master leads")
        for one in self._workers:
            self._launch(
                one, f"{_DEPLOY}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
                "--work-dir", str(one.folder / "work"), "--webui-port", str(free_port()), self.master,
            )  # fmt: skip
        wait_until(
            lambda: all("Successfully registered" in self._text(one) for one in self._workers),
            "Spark's workers are registered",
        )
        return self

    def executors(self) -> list[int]:
        """The process ids of the executors that run now."""
        return [
            pid for one in self._workers for pid in descendants_of(one.pid) if EXECUTOR in command_of(pid)
        ]

    def close(self) -> None:
        """Kill all of it."""
        for one in (*self._workers, self._master):
            one.close()

    @staticmethod
    def _text(daemon: _Daemon) -> str:
        assert daemon.exit_code is None, daemon.log_tail()
        return daemon.log_text()

    def _launch(self, daemon: _Daemon, *arguments: str) -> None:
        environment = clean_environment() | {
            "SPARK_HOME": str(self.home),
            "SPARK_CONF_DIR": str(daemon.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(daemon.folder / "local"),
            "JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
        }
        environment.pop("PYTHONPATH", None)
        # What the workers would find without an environment of the job's own.
        environment["PYSPARK_PYTHON"] = sys._base_executable  # type: ignore[attr-defined]
        daemon.launch([str(self.home / "bin" / "spark-class"), *arguments], environment)


@contextlib.contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[StandaloneCluster]:
    """A running cluster; nothing of it is left after the block."""
    cluster = StandaloneCluster(folder, workers)
    try:
        yield cluster.start()
    finally:
        cluster.close()
