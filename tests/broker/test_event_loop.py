"""The loop of the broker with and without uvloop, and its signals."""

import asyncio
import signal
import sys

import pytest

from kafscale.broker import event_loop


async def running_loop() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_uvloop_runs_the_broker() -> None:
    assert event_loop.run(running_loop()) == "uvloop"


def test_without_uvloop_asyncios_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(running_loop()) == "asyncio"


@pytest.mark.parametrize("has_signal_handlers", [True, False])
def test_stop_signal_calls_back(has_signal_handlers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows' loop has no signal handlers."""

    def refuse(self: object, *arguments: object) -> None:
        raise NotImplementedError

    async def stopped_by(number: int) -> None:
        stop = asyncio.Event()
        event_loop.on_stop_signal(asyncio.get_running_loop(), stop.set)
        signal.raise_signal(number)
        async with asyncio.timeout(10):
            await stop.wait()

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if not has_signal_handlers:
        monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", refuse)
    try:
        for number in before:
            asyncio.run(stopped_by(number))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
