"""When a slow request gets a second one beside it: later than most take, and only so many of them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from kafscale.tasks.owner import TaskOwner

Result = TypeVar("Result")

USUAL_PERCENT: Final = 10
PERCENT_AT_ONCE: Final = 100
"""Where entries are written at once and several are in flight: each is acknowledged after the slowest before it."""

FIRST_DELAY_SEC: Final = 0.1
LEAST_DELAY_SEC: Final = 0.005
MOST_DELAY_SEC: Final = 5.0
LOSER_SEC: Final = 1.0
"""How long the request that was not needed may go on."""
MOST_REQUESTS: Final = 16
"""While more are in flight it may not go on at all: a store that hangs must not keep others out."""

_STEP: Final = 0.05
_MOST_TOKENS: Final = 10.0


class Hedge:
    """Learns after how long a given share of requests have not been answered. Not thread-safe.

    Of each request only whether it took longer than the delay is looked at: what a request that was hedged would
    have taken by itself is not known.
    """

    def __init__(self, share: float) -> None:
        """`share`: of all requests, this many are to get a second one; above 0, and with 1 all do at once."""
        self._share = share
        self._tokens = _MOST_TOKENS
        self._least_delay_sec = LEAST_DELAY_SEC if share < 1 else 0.0
        self.delay_sec = FIRST_DELAY_SEC if share < 1 else 0.0

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
        self.delay_sec = min(MOST_DELAY_SEC, max(self._least_delay_sec, self.delay_sec * factor))


async def hedged(
    attempt: Callable[[], Coroutine[Any, Any, Result]], hedge: Hedge, requests: TaskOwner
) -> Result:
    """The result of `attempt`, made a second time when the first is late; whichever succeeds first counts.

    The other one has up to `LOSER_SEC` to end by itself, as a task of `requests`, and may be carried out long after
    this has returned: only for what may be done twice, from memory that stays as it is. When both fail, the failure
    of the one that ended last. When this is cancelled neither runs any more.
    """
    attempts = [requests.spawn(attempt(), "request", is_awaited=True)]
    try:
        done, pending = await asyncio.wait(attempts, timeout=hedge.delay_sec)
        if pending or not _has_failed(attempts[0]):
            # How fast a request fails, while the store is away, says nothing of how long its answers take.
            hedge.observe(was_late=bool(pending))
        if pending and hedge.take():
            attempts.append(requests.spawn(attempt(), "second request", is_awaited=True))
            pending.add(attempts[1])
        while pending and all(map(_has_failed, done)):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        for one in attempts:
            one.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        raise
    for loser in pending:
        # Not cancelled at once: that would close its connection, and the next request would have to open another.
        asyncio.get_running_loop().call_later(
            LOSER_SEC if len(requests) <= MOST_REQUESTS else 0, loser.cancel
        )
    return min(done, key=_has_failed).result()


def _has_failed(attempt: "asyncio.Future[Result]") -> bool:
    return attempt.cancelled() or attempt.exception() is not None
