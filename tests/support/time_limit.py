"""A pytest plugin (`-p tests.support.time_limit`): one thread watches the time of all tests of a process.

pytest-timeout by itself starts and joins a thread for each test, a third of what running a small test costs.
A test that exceeds its limit ends the run as pytest-timeout does it, at most `CHECK_SEC` late.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pytest_timeout import timeout_timer

CHECK_SEC = 10.0


class TimeLimit:
    """The limit of the test that runs. `exceeded` is called once for a test that takes longer."""

    def __init__(self, check_sec: float = CHECK_SEC) -> None:
        self._check_sec = check_sec
        self._lock = threading.Lock()
        self._current: tuple[float, Callable[[], object]] | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def begin(self, limit_sec: float, exceeded: Callable[[], object]) -> None:
        """From now on; the first call starts the thread."""
        with self._lock:
            self._current = time.monotonic() + limit_sec, exceeded
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="time limit of tests", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """The test has ended."""
        with self._lock:
            self._current = None

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(self._check_sec):
            with self._lock:
                current = self._current
                if current is None or time.monotonic() < current[0]:
                    continue
                self._current = None
            current[1]()


_LIMIT = TimeLimit()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Instead of pytest-timeout's own, for its method `thread`."""
    if settings.method != "thread":
        return None
    _LIMIT.begin(settings.timeout, lambda: timeout_timer(item, settings))
    return True


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """pytest-timeout goes on with its own, which is none for a test of this plugin."""
    _LIMIT.end()
