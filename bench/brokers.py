"""A broker under test: it starts on free ports with its own data folder, and leaves nothing behind."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.page_cache import drop_page_cache
from bench.process import process_tree_cpu
from bench.tls import TlsListener
from bench.wire import Client, WireError
from tests.support.ports import free_port

HOST = "127.0.0.1"
_START_TIMEOUT_SECONDS = 300.0
_STOP_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.002
ROOT = Path(__file__).resolve().parent.parent


class BrokerError(Exception):
    """A broker under test did not start or stop as it should; the text includes the end of its log."""


class Broker(ABC):
    """One broker process with its data folder. `start` may be called again after `stop`: the data stays."""

    def __init__(self, work_dir: Path, *, with_tls: bool = False) -> None:
        """`with_tls`: a TLS listener beside the other, by which drivers come."""
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="kafscale-bench-", dir=work_dir))
        self.tls = TlsListener(self.folder / "tls") if with_tls else None
        self._process: subprocess.Popen[bytes] | None = None
        self._launched_at = 0.0

    @property
    def speaks_kafka(self) -> bool:
        """True if clients can use it; otherwise it answers prebuilt Produce frames only."""
        return True

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerError("the broker is not running")
        return self._process.pid

    @property
    def host(self) -> str:
        """The host of its listener; see `port`."""
        return HOST

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def driver_bootstrap(self) -> str:
        """Where drivers connect."""
        return self.bootstrap if self.tls is None else f"{HOST}:{self.tls.port}"

    @property
    def driver_properties(self) -> dict[str, str]:
        """Properties by which drivers connect there."""
        return {} if self.tls is None else self.tls.driver_properties()

    def cpu(self) -> float:
        """CPU seconds the broker has used since it started."""
        return process_tree_cpu(self.pid).total

    def client(self, timeout_seconds: float = 60.0) -> Client:
        return Client(HOST, self.port, timeout_seconds)

    def start(self, is_up: Callable[["Broker"], bool] | None = None) -> float:
        """Starts the process and returns the seconds from exec until `is_up` (default: `ready`) is true."""
        self.launch()
        return self.wait_until_up(is_up)

    def launch(self) -> None:
        """Starts the process without waiting."""
        self._launched_at = time.perf_counter()
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                env={**os.environ, **self.environment()},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until_up(self, is_up: Callable[["Broker"], bool] | None = None) -> float:
        """Returns the seconds from the launch until `is_up` (default: `ready`) is true. Raises `BrokerError`."""
        check = is_up or type(self).ready
        while not check(self):
            if self._process is None or self._process.poll() is not None:
                raise BrokerError(f"the broker ended by itself:\n{self._log_end()}")
            if time.perf_counter() - self._launched_at > _START_TIMEOUT_SECONDS:
                self.kill()
                raise BrokerError(f"not ready after {_START_TIMEOUT_SECONDS:.0f} s:\n{self._log_end()}")
            time.sleep(_POLL_SECONDS)
        return time.perf_counter() - self._launched_at

    def stop(self) -> float:
        """Stops the process by SIGTERM and returns how many seconds it took to exit."""
        if self._process is None:
            return 0.0
        begin = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None
        return time.perf_counter() - begin

    def kill(self) -> None:
        """Kills the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        # Not Popen.wait: an interrupt that ended another wait for it may have left its lock locked for good.
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)

    def remove(self) -> None:
        """Stops the process and deletes its data folder, also if an interrupt comes in between."""
        try:
            self.stop()
        finally:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def drop_page_cache(self) -> None:
        """Writes its files to the disk and evicts them from the kernel's memory."""
        drop_page_cache(self.folder)

    def ready(self) -> bool:
        """True if a client can use the broker: it answers ApiVersions and Metadata."""
        try:
            with self.client(timeout_seconds=2.0) as client:
                client.api_versions()
                client.partitions_with_leader("is-anyone-there")
        except (OSError, WireError):
            return False
        return True

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments."""

    def environment(self) -> Mapping[str, str]:
        """Environment variables to add."""
        return {}

    def _log_end(self) -> str:
        return (self.folder / "broker.log").read_text(errors="replace")[-3000:]
