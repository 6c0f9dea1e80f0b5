"""Retries a request until the store does it, with growing pauses, and logs that once a second at most."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

FIRST_RETRY_SEC = 0.05
LAST_RETRY_SEC = 2.0
LOG_INTERVAL_SEC = 1.0


class StoreRetries:
    """The retries of everything that one broker publishes."""

    def __init__(self, jitter: random.Random) -> None:
        self._jitter = jitter
        self._silent_until_sec = 0.0
        self._unlogged = 0

    async def until_done(self, attempt: Callable[[], Awaitable[Result]], key: str) -> Result:
        """Returns what `attempt` returns in the end; `key` is for the log. Raises what no retry would change."""
        delay_sec = FIRST_RETRY_SEC
        while True:
            try:
                return await attempt()
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                self._log_retry(key, problem)
            await asyncio.sleep(delay_sec * self._jitter.uniform(0.5, 1.0))
            delay_sec = min(delay_sec * 2, LAST_RETRY_SEC)

    def _log_retry(self, key: str, problem: Exception) -> None:
        """Log one line a second at most: while a store is away, every partition that is written to retries."""
        now_sec = asyncio.get_running_loop().time()
        if now_sec < self._silent_until_sec:
            self._unlogged += 1
            return
        logger.warning(
            "a store did not answer, trying again",
            extra={"key": key, "problem": str(problem), "unlogged_before": self._unlogged},
        )
        self._silent_until_sec = now_sec + LOG_INTERVAL_SEC
        self._unlogged = 0
