"""The task that keeps an `Authorizer` equal to the rules in the metadata store, by a watch."""

import asyncio
import logging
from contextlib import aclosing
from typing import Final

from kafscale.errors import StoreError
from kafscale.metadata import keys
from kafscale.metadata.store import Changes, MetadataStore, Snapshot
from kafscale.security.authorizer import Authorizer
from kafscale.security.stored_acls import StoredAcls
from kafscale.tasks.in_turns import in_turns

logger = logging.getLogger(__name__)

RULES_PER_TURN: Final = 100
"""A few milliseconds' worth: a million rules are read while clients are served."""


class AclFeeder:
    """Watches the store. A watch that fails is begun again; until its snapshot is read, the rules stay."""

    def __init__(self, store: MetadataStore, authorizer: Authorizer, *, retry_delay_sec: float = 0.5) -> None:
        self.stored = StoredAcls()
        self._store = store
        self._authorizer = authorizer
        self._retry_delay_sec = retry_delay_sec
        self._revision = -1
        self._waiters: dict[asyncio.Future[None], int] = {}

    async def run(self) -> None:
        """Feed the authorizer until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreError as problem:
                logger.warning("watch of the access rules broke, beginning it again: %s", problem)
            await asyncio.sleep(self._retry_delay_sec)

    async def ready(self) -> None:
        """Wait until the rules have been read once."""
        await self.wait_for(0)

    async def wait_for(self, revision: int) -> None:
        """Wait until decisions are by what a transaction at `revision` changed of the rules."""
        if self._revision >= revision:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = revision
        try:
            await waiter
        finally:
            del self._waiters[waiter]

    async def _follow(self) -> None:
        async with aclosing(self._store.watch(keys.ACLS)) as events:
            async for event in events:
                await self._apply(event)

    async def _apply(self, event: Snapshot | Changes) -> None:
        if isinstance(event, Snapshot):
            stored = StoredAcls()
            async for item in in_turns(event.items, RULES_PER_TURN):
                stored.apply(item)
            self.stored = stored
            self._authorizer.replace(stored.rules, stored.stand_ins)
        else:
            applied = 0
            async for change in in_turns(event.puts_and_deletes, RULES_PER_TURN):
                self.stored.apply(change)
                applied += 1
                if applied % RULES_PER_TURN == 0:
                    self._authorizer.changed()
            self._authorizer.changed()
        self._revision = max(self._revision, event.revision)
        for waiter, revision in self._waiters.items():
            if revision <= self._revision and not waiter.done():
                waiter.set_result(None)
