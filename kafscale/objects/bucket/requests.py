"""Every request to the bucket goes through here: a slot, a time limit, and attempts until a deadline."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from kafscale.errors import StoreError, StoreIndeterminateError, StoreRefusedError, StoreUnavailableError
from kafscale.objects.bucket.errors import LIBRARY_ERRORS, Failure, Outcome, classify

T = TypeVar("T")

# Asks for the time that so many bytes need, once an attempt knows how many are coming.
Allow = Callable[[int], None]

_MIB = 2**20


class Kind(Enum):
    """The kinds of requests that share slots."""

    READ = auto()
    WRITE = auto()


class FailedError(Exception):
    """NOT_FOUND, EXISTS or PAST_END: what the caller asked about, rather than a failure of the store."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.outcome = failure.outcome


class AttemptError(Exception):
    """An attempt by other means than the library's failed; what that means is known already."""

    def __init__(self, failure: Failure, code: str = "") -> None:
        super().__init__(failure.text)
        self.failure = failure
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The limits of a wait. Both times grow by what the bytes need at `bytes_per_sec`.

    `attempt_sec`: for the answer to one attempt. `call_sec`: no attempt begins later than this.
    """

    attempt_sec: float = 10.0
    call_sec: float = 30.0
    bytes_per_sec: int = _MIB
    first_pause_sec: float = 0.05
    last_pause_sec: float = 2.0


DEFAULT_PATIENCE = Patience()


class RequestSlots:
    """At most `total` requests at once, a quarter of them only for reads and a quarter only for writes.

    So neither uploads that a slow store holds nor many cold reads can keep the other kind out.
    """

    def __init__(self, total: int) -> None:
        reserved = max(total // 4, 1) if total > 1 else 0
        self._all = asyncio.Semaphore(total)
        self._kinds = {kind: asyncio.Semaphore(total - reserved) for kind in Kind}

    @asynccontextmanager
    async def take(self, kind: Kind) -> AsyncIterator[None]:
        """A slot for the block; those of a kind get theirs in the order in which they asked."""
        async with self._kinds[kind], self._all:
            yield


class Requester:
    """Carries requests out: attempts with pauses between them, each in a slot and with a time limit.

    `refusal_hint`: what to add where the store refuses, for another bucket than the records'.
    """

    def __init__(
        self, concurrency: int, patience: Patience, jitter: random.Random, refusal_hint: str = ""
    ) -> None:
        self._slots = RequestSlots(concurrency)
        self._patience = patience
        self._jitter = jitter
        self._refusal_hint = refusal_hint

    async def until_done(
        self,
        attempt: Callable[[Allow], Awaitable[T]],
        kind: Kind,
        size_bytes: int = 0,
        *,
        is_repeatable: bool = True,
    ) -> T:
        """The result of `attempt` in the end.

        A write that is not repeatable is not tried again once an attempt may have been carried out: the next
        one would meet what the one before it did. Raises `FailedError`; `StoreUnavailableError` when nothing
        was done, which of a read is always so; `StoreIndeterminateError` when something may have been.
        """
        patience = self._patience
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience.call_sec + size_bytes / patience.bytes_per_sec
        pause_sec = patience.first_pause_sec
        doubt: Failure | None = None  # the first attempt that may have been carried out
        while True:
            result = await self._attempt(attempt, kind, size_bytes, deadline)
            if not isinstance(result, Failure):
                return result
            if result.outcome is Outcome.UNKNOWN and kind is Kind.WRITE:
                doubt = doubt or result
            is_final = result.outcome not in (Outcome.BUSY, Outcome.UNKNOWN)
            pause = pause_sec * self._jitter.uniform(0.5, 1.0)
            if is_final or (doubt and not is_repeatable) or clock() + pause >= deadline:
                raise _error(result, doubt, self._refusal_hint)
            await asyncio.sleep(pause)
            pause_sec = min(pause_sec * 2, patience.last_pause_sec)

    async def _attempt(
        self, attempt: Callable[[Allow], Awaitable[T]], kind: Kind, size_bytes: int, deadline: float
    ) -> T | Failure:
        patience = self._patience
        clock = asyncio.get_running_loop().time
        has_begun = False
        try:
            async with asyncio.timeout_at(deadline) as limit, self._slots.take(kind):
                has_begun = True
                end = clock() + patience.attempt_sec + size_bytes / patience.bytes_per_sec
                limit.reschedule(end)
                return await attempt(lambda more: limit.reschedule(end + more / patience.bytes_per_sec))
        except TimeoutError:
            if not has_begun:
                text = "no request slot became free (KAFSCALE_S3_CONCURRENCY): the store is too slow"
                return Failure(outcome=Outcome.BUSY, text=text)
            return Failure(outcome=Outcome.UNKNOWN, text="the store did not answer in time")
        except AttemptError as problem:
            return problem.failure
        except LIBRARY_ERRORS as problem:
            return classify(problem)


def _error(failure: Failure, doubt: Failure | None, refusal_hint: str) -> StoreError | FailedError:
    if failure.outcome in (Outcome.NOT_FOUND, Outcome.EXISTS, Outcome.PAST_END):
        return FailedError(failure)
    if doubt is not None:
        return StoreIndeterminateError(doubt.text)
    if failure.outcome is Outcome.REFUSED:
        return StoreRefusedError(failure.text + refusal_hint)
    return StoreUnavailableError(failure.text)
