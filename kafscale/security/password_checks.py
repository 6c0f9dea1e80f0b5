"""Threads for what a login costs in CPU, of their own and few: a flood of logins must not stop anything else."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from kafscale.security.sasl import BusyError

T = TypeVar("T")

THREADS: Final = 2
MAX_WAITING: Final = 1_000
MAX_WAITING_OF_ADDRESS: Final = 50
"""Of one address's logins. They take turns with those of other addresses, so that one address delays itself only."""


class PasswordChecks:
    """Runs work on a bounded number of threads, in turns between addresses. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="password-check")
        self._free = THREADS
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._waiting_count = 0

    @property
    def waiting_count(self) -> int:
        """How many logins wait for a thread. For any thread."""
        return self._waiting_count

    async def run(self, address: str, work: Callable[[], T]) -> T:
        """The result of `work`, called on a thread when it is the address's turn. Raises `BusyError`."""
        await self._turn(address)
        try:
            calling = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            self._next()
            raise
        # Not when this call ends: a cancelled one leaves its thread at work.
        calling.add_done_callback(self._ended)
        return await asyncio.shield(calling)

    def close(self) -> None:
        """End the threads when they have done what they are at."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        queue = self._waiting.setdefault(address, deque())
        if self._waiting_count >= MAX_WAITING or len(queue) >= MAX_WAITING_OF_ADDRESS:
            if not queue:
                del self._waiting[address]
            raise BusyError("too many logins wait to be checked")
        waiter = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        self._waiting_count += 1
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._next()
            raise

    def _ended(self, calling: "asyncio.Future[T]") -> None:
        if not calling.cancelled():
            calling.exception()  # Read here for a call whose caller has gone.
        self._next()

    def _next(self) -> None:
        """Give the thread to the address that has waited longest for its turn."""
        while self._waiting:
            address, queue = self._waiting.popitem(last=False)
            waiter = queue.popleft()
            self._waiting_count -= 1
            if queue:
                self._waiting[address] = queue
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
