"""When a slow request gets a second one beside it: later than most take, and only so many of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

FIRST_DELAY_SEC: Final = 0.1
LEAST_DELAY_SEC: Final = 0.005
MOST_DELAY_SEC: Final = 5.0
_STEP: Final = 0.05
_MOST_TOKENS: Final = 10.0


class Hedge:
    """Learns after how long a given share of requests have not been answered. Not thread-safe.

    Of each request only whether it took longer than the delay is looked at: what a request that was hedged would
    have taken by itself is not known.
    """

    def __init__(self, share: float) -> None:
        """`share`: of all requests, this many are to get a second one; between 0 and 1, neither included."""
        self._share = share
        self._tokens = _MOST_TOKENS
        self.delay_sec = FIRST_DELAY_SEC

    def take(self) -> bool:
        """True if a second request may be sent: while everything is slow, few are."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def observe(self, *, was_late: bool) -> None:
        """A request was answered before the delay was over, or was not."""
        self._tokens = min(_MOST_TOKENS, self._tokens + self._share * 1.2)
        factor = 1 + _STEP * (1 - self._share) if was_late else 1 - _STEP * self._share
        self.delay_sec = min(MOST_DELAY_SEC, max(LEAST_DELAY_SEC, self.delay_sec * factor))


async def hedged(attempt: Callable[[], Awaitable[Result]], hedge: Hedge) -> Result:
    """The result of `attempt`, made a second time when the first is late; whichever succeeds first counts.

    The other is cancelled, and may be carried out all the same: only for what may be done twice. When both fail,
    the failure of the one that ended last. Neither runs any more when this returns or raises.
    """
    attempts = [asyncio.ensure_future(attempt())]
    try:
        done, pending = await asyncio.wait(attempts, timeout=hedge.delay_sec)
        if pending or not _has_failed(attempts[0]):
            # How fast a request fails, while the store is away, says nothing of how long its answers take.
            hedge.observe(was_late=bool(pending))
        if pending and hedge.take():
            attempts.append(asyncio.ensure_future(attempt()))
            pending.add(attempts[1])
        while pending and all(map(_has_failed, done)):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # What they work on may be used for something else afterwards, so this waits, also when it is cancelled.
        for one in attempts:
            one.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
    return min(done, key=_has_failed).result()


def _has_failed(attempt: "asyncio.Future[Result]") -> bool:
    return attempt.cancelled() or attempt.exception() is not None
