"""Brokers that start without loading their modules: forks of a process that has (`broker_template`).

They are processes as any other: own session, own environment, killed, paused and stopped by signal.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# Read when a process starts or loads a library: a broker that has another value there is a new process.
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_")

cpu_of_reaped = 0.0
"""Processor seconds of the brokers that have ended: they are children of the template, not of this process."""


class ForkedBroker:
    """A fork, with what tests use of `subprocess.Popen`."""

    def __init__(self, template: "Template", pid: int) -> None:
        self.pid = pid
        self._template = template
        self._descriptor = os.pidfd_open(pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative after a signal; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended. Raises `subprocess.TimeoutExpired` after that many seconds."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"broker {self.pid}", timeout or 0)
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def _ended(self, timeout: float | None) -> int | None:
        if self._code is None:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            if poll.poll(None if timeout is None else timeout * 1000):
                self._code = self._template.reap(self.pid)
                os.close(self._descriptor)
        return self._code


class Template:
    """The loaded process. It ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._environment = dict(os.environ)
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.broker_template", str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        self._socket = ours
        self._answers = ours.makefile("r")

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, program: Path, environment: Mapping[str, str], folder: Path, log: Path) -> ForkedBroker:
        """A process that runs `kafscale serve`; its output goes to the end of the log."""
        asked = {
            "program": str(program),
            "environment": dict(environment),
            "folder": str(folder.absolute()),
            "log": str(log.absolute()),
        }
        return ForkedBroker(self, self._ask({"start": asked})["pid"])

    def serves(self, environment: Mapping[str, str]) -> bool:
        """False if a process with this environment would load other things than the template has."""
        names = {name for name in (*environment, *self._environment) if name.startswith(_READ_AT_START)}
        return all(environment.get(name) == self._environment.get(name) for name in names)

    def reap(self, pid: int) -> int:
        """The exit code of a fork that has ended."""
        global cpu_of_reaped
        ended = self._ask({"reap": pid})
        cpu_of_reaped += ended["cpu"]
        return os.waitstatus_to_exitcode(ended["status"])

    def close(self) -> None:
        """End it; brokers that still run stay."""
        self._answers.close()
        self._socket.close()
        self._process.wait()

    def _ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        with self._lock:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._answers.readline()
        assert line, f"the template of brokers ended with {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer


@cache
def template() -> Template:
    """This process's own, started at the first call."""
    started = Template()
    atexit.register(started.close)
    return started
