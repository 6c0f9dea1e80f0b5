"""The real broker in a subprocess, on its own ports and data folder."""

import contextlib
import http.client
import os
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, ClassVar

from tests.support import forked
from tests.support.nightly import IS_NIGHTLY
from tests.support.ports import free_port
from tests.support.process import Process, ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

HOST = "127.0.0.1"
KAFSCALE = Path(sys.executable).parent / "kafscale"


class KafscaleBroker(ServerProcess):
    """`kafscale serve`. Settings are keyword arguments: flush_interval_ms=0 is KAFSCALE_FLUSH_INTERVAL_MS=0.

    `ready_seconds` is the time from the last start to the first positive `/readyz`. `tls`: for raw connections to
    `port`, if that is a TLS listener's. In `make test` most brokers are forks of a process that has loaded the
    modules (`forked`); in `make nightly`, and for tests of the start itself (the fixture `new_processes`), each is a
    new process.
    """

    forks: ClassVar[bool] = not IS_NIGHTLY

    def __init__(self, folder: Path, name: str = "kafscale", **settings: object) -> None:
        super().__init__(name, folder)
        self.host = HOST
        self.port = free_port()
        self.metrics_port = free_port()
        self.data_folder = folder / "data"
        self.tls: ssl.SSLContext | None = None
        self.settings = settings
        self.ready_seconds = 0.0

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def environment(self) -> dict[str, str]:
        """The process's environment: the test's settings over the tests' defaults."""
        ours = {
            "KAFSCALE_BROKER_ADDR": f"{self.host}:{self.port}",
            "KAFSCALE_METRICS_ADDR": f"{self.host}:{self.metrics_port}",
            "KAFSCALE_DATA_DIR": str(self.data_folder),
            # Tests write records with old timestamps, and finish before the default's first check.
            "KAFSCALE_RETENTION_CHECK_INTERVAL_MS": "86400000",
            **{f"KAFSCALE_{name.upper()}": str(value) for name, value in self.settings.items()},
        }
        return clean_environment() | ours

    def start(self, timeout_s: float = PATIENCE_SEC) -> None:
        """Start it and wait until it is ready."""
        began = time.monotonic()
        self.launch_only()
        wait_until(self.ready, f"{self.name} is ready", timeout_s)
        self.ready_seconds = time.monotonic() - began

    def launch_only(self) -> None:
        """Start it without waiting."""
        self.launch([str(KAFSCALE), "serve"], self.environment())

    def _begin(self, command: list[str], environment: dict[str, str], log: IO[bytes]) -> Process:
        if self.forks and command == [str(KAFSCALE), "serve"] and forked.template().serves(environment):
            return forked.template().start(KAFSCALE, environment, self.folder, self.log_path)
        return super()._begin(command, environment, log)

    def restart(self) -> None:
        """Stop it cleanly and start it on the same folder and ports."""
        self.stop()
        self.start()

    def ready(self) -> bool:
        """True once `/readyz` is positive. Raises AssertionError with the log if the process has exited."""
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        try:
            return self.http_get("/readyz")[0] == 200
        except OSError:
            return False

    def http_get(self, path: str) -> tuple[int, str]:
        """Status and body from the metrics listener."""
        connection = http.client.HTTPConnection(self.host, self.metrics_port, timeout=PATIENCE_SEC)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def memory_bytes(self) -> int:
        """Resident memory of the process (Linux)."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_memory_bytes(self) -> int:
        """The peak resident memory of the process (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


@contextlib.contextmanager
def running_broker(folder: Path, name: str = "kafscale", **settings: object) -> Iterator[KafscaleBroker]:
    """A ready broker; at the end it must stop cleanly if it still runs."""
    broker = KafscaleBroker(folder, name, **settings)
    try:
        broker.start()
        yield broker
        if broker.exit_code is None:
            broker.stop()
    finally:
        broker.close()
