"""A server in a subprocess: its log in a file, stopped by signal, shown when a test fails."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from tests.support.waiting import PATIENCE_SEC, wait_until

LOG_TAIL_BYTES = 12_000


class Process(Protocol):
    """The part of `subprocess.Popen` that a `ServerProcess` uses."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...
    def send_signal(self, sig: signal.Signals, /) -> None: ...


class ServerProcess:
    """One server that can be started again after it exited. Base of the brokers that tests start."""

    started: list["ServerProcess"] = []  # those still running, for the report of a failed test

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log_path = folder / f"{name}.log"
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._running().poll()

    def launch(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the command; its output goes to the end of the log."""
        if self._process is not None and self._process.poll() is None:
            raise AssertionError(f"{self.name} runs already")
        with self._log() as log:
            log.write(f"--- {' '.join(command)[-300:]}\n".encode())
            log.flush()
            self._process = self._begin(list(command), dict(environment), log)
        ServerProcess.started.append(self)

    def _begin(self, command: list[str], environment: dict[str, str], log: IO[bytes]) -> Process:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            start_new_session=True,
        )

    def send_signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def wait_exit(self, timeout_s: float) -> int:
        """Its exit code. Raises AssertionError with the log if it does not exit in time."""
        try:
            code = self._running().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout_s} s\n{self.log_tail()}") from None
        self._forget()
        return code

    def pause(self) -> None:
        """SIGSTOP, until no thread runs: the kernel accepts connections, and no process answers."""
        self.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(self.pid), f"{self.name} is stopped")

    def resume(self) -> None:
        """SIGCONT: it goes on where it was."""
        self.send_signal(signal.SIGCONT)

    def kill9(self) -> None:
        """Kill it, as a power cut would."""
        process = self._running()
        process.kill()
        process.wait()
        self._forget()

    def stop(self, timeout_s: float = PATIENCE_SEC) -> float:
        """SIGTERM; asserts exit code 0 and returns the seconds it took."""
        began = time.monotonic()
        self.send_signal(signal.SIGTERM)
        code = self.wait_exit(timeout_s)
        assert code == self.clean_exit_code(), (
            f"{self.name} ended with exit code {code} after SIGTERM\n{self.log_tail()}"
        )
        return time.monotonic() - began

    def clean_exit_code(self) -> int:
        return 0

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        return f"--- log of {self.name}, its end:\n{self.log_text()[-LOG_TAIL_BYTES:]}"

    def _running(self) -> Process:
        if self._process is None:
            raise AssertionError(f"{self.name} was never started")
        return self._process

    def _log(self) -> IO[bytes]:
        return self.log_path.open("ab")

    def _forget(self) -> None:
        with contextlib.suppress(ValueError):
            ServerProcess.started.remove(self)


def is_stopped(pid: int) -> bool:
    """True if every thread of this process is stopped (Linux); a signal takes a moment."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            line = (thread / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False  # it has ended since the folder was listed, so they still run
        # After the command's name in brackets, which may contain anything, comes the state.
        if line.rpartition(")")[2].split()[0] != "T":
            return False
    return True


def clean_environment() -> dict[str, str]:
    """This process's environment without settings of ours, so that no test depends on the caller's."""
    return {key: value for key, value in os.environ.items() if not key.startswith("KAFSCALE_")}
