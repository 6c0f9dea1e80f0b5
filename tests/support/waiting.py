"""Waiting for conditions instead of sleeping, and ports that stay ours over a restart."""

import asyncio
import itertools
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02
# Below the range from which the kernel takes ports for outgoing connections: a broker that is stopped and
# started again must find its port free.
FIRST_PORT, LAST_PORT = 20_000, 32_000
SHARES = 8  # of processes that run side by side


class NotInTimeError(AssertionError):
    """What was waited for did not come."""


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 15.0) -> T:
    """Call `condition` until it gives something true, and return that. Raises `NotInTimeError`."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{what}: not within {timeout_s} s")
        time.sleep(POLL_SECONDS)


async def wait_until_async(
    condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 15.0
) -> None:
    """`wait_until` for conditions that must be awaited."""
    deadline = time.monotonic() + timeout_s
    while True:
        if await condition():
            return
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{what}: not within {timeout_s} s")
        await asyncio.sleep(POLL_SECONDS)


def _ports_of_this_process() -> Iterator[int]:
    """A share of the ports, again and again from some place on.

    What was picked is bound a moment later: two processes that pick from the same ports, or one that picks at random,
    give a port twice every now and then.
    """
    size = (LAST_PORT - FIRST_PORT) // SHARES
    first = FIRST_PORT + os.getpid() % SHARES * size
    # Not from `random`: pytest-randomly seeds it alike in every worker.
    begin = random.SystemRandom().randrange(size)
    return itertools.cycle([*range(first + begin, first + size), *range(first, first + begin)])


_ports = _ports_of_this_process()


def free_port() -> int:
    """A port on 127.0.0.1 on which nothing listens."""
    while True:
        port = next(_ports)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
