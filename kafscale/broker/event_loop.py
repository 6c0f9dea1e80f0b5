"""The broker's event loop: uvloop where it is installed, else asyncio's own; and the signals that stop the broker."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

# SIGBREAK is Ctrl-Break, and the only one that one process of Windows can send to another.
_STOP_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGBREAK")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine on a loop of its own; returns its result."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(main)
    return uvloop.run(main)


def on_stop_signal(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call back in the loop for each signal that asks the process to stop. For the main thread."""

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)

    for name in _STOP_SIGNALS:
        number = getattr(signal, name, None)
        if number is None:
            continue
        try:
            loop.add_signal_handler(number, callback)
        except NotImplementedError:  # Windows
            signal.signal(number, handle)
