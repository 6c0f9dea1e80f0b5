"""Runs a short function on the event loop for another thread, which waits until a deadline."""

import asyncio
import concurrent.futures
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

DEADLINE_SEC: Final = 2.0

SHARE_OF_LOOP: Final = 0.05
"""The most of the event loop's time that pages take, however many are requested."""

LONGEST_REST_SEC: Final = 0.25
"""For a function that took long, perhaps because the machine is busy, the loop's share may be larger."""

_TURN_SEC: Final = 10.0


class LoopNotAnsweringError(Exception):
    """The event loop did not run the function in time; the message says how long it was given."""


class LoopReader:
    """Calls from threads beside the loop, one after the other, with rests in between."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline_sec: float = DEADLINE_SEC) -> None:
        self._loop = loop
        self._deadline_sec = deadline_sec
        self._turn = threading.Lock()
        self._free_at_sec = 0.0
        self._gave_up_at_sec = -math.inf
        self._is_closed = False
        self._waiting: concurrent.futures.Future[Any] | None = None

    def close(self) -> None:
        """End the wait in progress, and let nothing wait any more: the loop is about to stop. For any thread."""
        self._is_closed = True
        waiting = self._waiting
        if waiting is not None:
            waiting.cancel()

    def read(self, function: Callable[[], T]) -> T:
        """The result of the function. Raises `LoopNotAnsweringError`, and what the function raises.

        A function whose caller has given up does not run. Of many callers only one waits for a loop that hangs.
        """
        if not self._turn.acquire(timeout=_TURN_SEC):
            raise LoopNotAnsweringError("too many pages wait for the event loop")
        try:
            if time.monotonic() < self._gave_up_at_sec + self._deadline_sec:
                raise LoopNotAnsweringError(self._message())
            time.sleep(max(0.0, self._free_at_sec - time.monotonic()))
            return self._run(function)
        finally:
            self._turn.release()

    def _run(self, function: Callable[[], T]) -> T:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._waiting = future
        if self._is_closed:
            future.cancel()
        try:
            self._loop.call_soon_threadsafe(self._carry_out, future, function)
        except RuntimeError as problem:
            raise LoopNotAnsweringError("the event loop is closed") from problem
        try:
            return future.result(self._deadline_sec)
        except concurrent.futures.CancelledError:
            raise LoopNotAnsweringError("the broker is stopping") from None
        except concurrent.futures.TimeoutError:
            if future.done():
                return future.result()  # Just now, or it raised a TimeoutError of its own.
            # False: it runs at this moment, and its result is not used.
            future.cancel()
            self._gave_up_at_sec = time.monotonic()
            raise LoopNotAnsweringError(self._message()) from None

    def _carry_out(self, future: "concurrent.futures.Future[T]", function: Callable[[], T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        began = time.monotonic()
        try:
            result = function()
        except Exception as problem:  # noqa: BLE001 - raised in the thread that asked
            future.set_exception(problem)
        else:
            future.set_result(result)
        ended = time.monotonic()
        self._free_at_sec = ended + min((ended - began) * (1 / SHARE_OF_LOOP - 1), LONGEST_REST_SEC)

    def _message(self) -> str:
        return f"the event loop has not answered for {self._deadline_sec:g} s"
