"""Liveness and readiness of the broker, with reasons: named checks, each of which may give a reason."""

import asyncio
import threading
from collections.abc import Callable, Mapping

Check = Callable[[], str | None]

STARTING = "the broker is starting"
STOPPING = "the broker is stopping"


class Health:
    """The answers of `/healthz` and `/readyz`.

    Checks return None when all is well and a reason otherwise. They are called from the admin server's
    threads: they may only look at plain values, or wait for a bounded time.
    """

    def __init__(self) -> None:
        self._not_ready: Check = lambda: STARTING
        self._readiness: dict[str, Check] = {}
        self._liveness: dict[str, Check] = {}
        self._warnings: dict[str, Check] = {}

    def set_ready(self) -> None:
        """The broker serves clients from now on."""
        self._not_ready = lambda: None

    def set_not_ready(self, reason: str = STOPPING) -> None:
        """The broker does not serve clients, or not for long any more."""
        self._not_ready = lambda: reason

    def set_starting(self, check: Check) -> None:
        """The broker does not serve clients yet, for the reason that `check` gives."""
        self._not_ready = check

    def add_check(self, name: str, check: Check) -> None:
        """Something without which clients cannot be served. It takes the place of a check of that name."""
        self._readiness[name] = check

    def add_liveness_check(self, name: str, check: Check) -> None:
        """Something that only a restart mends. It takes the place of a check of that name."""
        self._liveness[name] = check

    def add_warning(self, name: str, check: Check) -> None:
        """Something that one should know of, and that takes nothing from the readiness."""
        self._warnings[name] = check

    def readiness_problems(self) -> Mapping[str, str]:
        """Reasons by name; empty when the broker is ready."""
        problems = _problems(self._readiness)
        not_ready = self._not_ready()
        if not_ready is not None:
            problems["broker"] = not_ready
        return problems

    def warnings(self) -> Mapping[str, str]:
        """Reasons by name; empty when there is none."""
        return _problems(self._warnings)

    def liveness_problems(self) -> Mapping[str, str]:
        """Reasons by name; empty when the broker is alive."""
        return _problems(self._liveness)


def _problems(checks: dict[str, Check]) -> dict[str, str]:
    reasons = ((name, check()) for name, check in list(checks.items()))
    return {name: reason for name, reason in reasons if reason is not None}


def loop_probe(loop: asyncio.AbstractEventLoop, timeout_sec: float = 5.0) -> Check:
    """A liveness check: None once the loop has run a callback that another thread gave it, else a reason."""

    def check() -> str | None:
        ran = threading.Event()
        try:
            loop.call_soon_threadsafe(ran.set)
        except RuntimeError:
            return "the event loop is closed"
        if not ran.wait(timeout_sec):
            return f"the event loop has not answered for {timeout_sec:g} s"
        return None

    return check
