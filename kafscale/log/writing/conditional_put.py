"""Creates an object at most once, also if answers are lost: retried, hedged, and read back."""

from collections.abc import Callable, Sequence

from kafscale.errors import ObjectExistsError, ObjectNotFoundError, StoreUnavailableError
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.hedging import Hedge, hedged
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.types import Buffer
from kafscale.tasks.owner import TaskOwner

HEDGED_BYTES = 256 * 1024
"""Up to this size a second request may be sent beside a slow one, which is not slow because of its size."""


def _nothing() -> None:
    """Called at an attempt that is not counted."""


class ConditionalPut:
    """Put-if-absent whose outcome is always known. `hedge`: None where a second request would be of no use."""

    def __init__(self, objects: ObjectStore, retries: StoreRetries, hedge: Hedge | None) -> None:
        self._objects = objects
        self._retries = retries
        self._hedge = hedge
        self._requests = TaskOwner()

    async def put(self, key: str, parts: Sequence[Buffer], attempted: Callable[[], None] = _nothing) -> bool:
        """Create the object; True if it has these very bytes then, also if another writer created it.

        `attempted` is called at each request. Raises what no retry would change.
        """
        hedge = self._hedge
        if hedge is not None and sum(memoryview(part).nbytes for part in parts) > HEDGED_BYTES:
            hedge = None
        if hedge is not None:
            # A copy: the request that was not needed goes on when the caller's memory is used for something else.
            parts = [b"".join(parts)]
        is_there = False

        async def attempt() -> bool:
            nonlocal is_there
            attempted()
            try:
                await self._objects.put_if_absent(key, parts)
            except ObjectExistsError:
                # Not looked at when the other request created it.
                return is_there or await self._lies_there(key, parts)
            is_there = True
            return True

        if hedge is None:
            return await self._retries.until_done(attempt, key)
        return await self._retries.until_done(lambda: hedged(attempt, hedge, self._requests), key)

    async def _lies_there(self, key: str, parts: Sequence[Buffer]) -> bool:
        try:
            return await self._objects.get(key) == b"".join(parts)
        except ObjectNotFoundError as problem:
            # The key was taken a moment ago and is free now: an orphan was deleted. Try the put again.
            raise StoreUnavailableError(f"object {key!r} was removed meanwhile") from problem

    async def close(self) -> None:
        """Cancel the requests that were not needed. No put is in progress."""
        await self._requests.close()
