"""Requests that are too early: they wait here until the transaction before is complete.

A decided transaction takes as long as its markers, some ten milliseconds. If the client got CONCURRENT_TRANSACTIONS
instead, it would ask again and again, and each question costs a read of the metadata store: many of them together
would take the time that the markers need.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kafscale.transactions.markers import PREPARING
from kafscale.transactions.record_driver import StoredRecord

WAIT_SEC: Final = 0.5
"""How long a request waits; after that the client asks again. Less than any client waits for an answer."""


class AwaitedEnds:
    """By transactional id. `known`: the record as this broker knows it, None if it does not coordinate it."""

    def __init__(self, known: Callable[[str], StoredRecord | None], wait_sec: float = WAIT_SEC) -> None:
        self._known = known
        self._wait_sec = wait_sec
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def deadline(self) -> float:
        """Until when a request that comes now waits, in the event loop's time."""
        return asyncio.get_running_loop().time() + self._wait_sec

    def is_ending(self, transactional_id: str) -> bool:
        """True if this broker coordinates the transactional id, and its transaction is decided and not complete."""
        stored = self._known(transactional_id)
        return stored is not None and stored.record is not None and stored.record.state in PREPARING

    async def ended(self, transactional_id: str, deadline: float) -> None:
        """Return once no transaction of the id is being ended, as far as this broker knows, or at the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                while self.is_ending(transactional_id):
                    await self._changed(transactional_id)
        except TimeoutError:
            return

    async def _changed(self, transactional_id: str) -> None:
        waiting = self._waiting.setdefault(transactional_id, set())
        changed = asyncio.get_running_loop().create_future()
        waiting.add(changed)
        try:
            await changed
        finally:
            waiting.discard(changed)
            if not waiting and self._waiting.get(transactional_id) is waiting:
                del self._waiting[transactional_id]

    def record_changed(self, transactional_id: str) -> None:
        """Wake the requests that wait for this transactional id: each looks again."""
        for changed in self._waiting.pop(transactional_id, ()):
            if not changed.done():
                changed.set_result(None)
