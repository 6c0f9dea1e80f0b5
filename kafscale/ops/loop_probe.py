"""Asks from another thread whether an event loop still runs what it is given."""

import asyncio
import threading
from collections.abc import Callable


def loop_probe(loop: asyncio.AbstractEventLoop, timeout_sec: float = 5.0) -> Callable[[], str | None]:
    """A liveness check for `Health`: None once the loop ran a callback, else a reason."""

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
