"""A broker's tenure, lease after lease: registered again at once when one ends, while it resigns beside that.

A broker whose lease has ended resigns from all that it owned, which takes seconds when the object store is away, too:
accepted records are published as long as no other broker leads. Clients must not miss it meanwhile: those that see
a cluster without a broker drop what they have in flight to it. So the broker registers under a new lease
beside resigning, and claims nothing under it before it has resigned: otherwise what it resigns and what it claims
could be taken for one another.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from kafscale.cluster.registration import Registration
from kafscale.metadata.store import NO_LEASE

logger = logging.getLogger(__name__)


async def _nothing() -> None:
    """After a registration that nothing waits for."""


class OwningService(Protocol):
    """Owns items of one kind: partitions, or group shards."""

    async def resign_all(self) -> None:
        """Resign from everything: the lease has ended. Nothing is claimed until this has returned."""

    def reconsider(self) -> None:
        """Compare what this broker owns with what it should own, under the lease that it has now."""


class Tenure:
    """One broker's. `on_lease_ended` is called each time before the broker resigns."""

    def __init__(self, registration: Registration, on_lease_ended: Callable[[], None] = lambda: None) -> None:
        self._registration = registration
        self._on_lease_ended = on_lease_ended
        self._is_resigning = False
        self._is_beginning = False
        self._must_end = asyncio.Event()

    @property
    def lease(self) -> int:
        """The lease that claims are bound to now; `NO_LEASE` while nothing may be claimed."""
        return NO_LEASE if self._is_resigning or self._is_beginning else self._registration.lease

    def end(self) -> None:
        """End the lease, and go on under a new one: this broker cannot write under it any more."""
        self._must_end.set()

    async def run(
        self,
        *services: OwningService,
        on_registered: Callable[[], Awaitable[None]] = _nothing,
        on_unanswered: Callable[[], None] = lambda: None,
    ) -> None:
        """Renew the lease; when it has ended all the same, resign, and go on under a new one. Ends by failures only.

        `on_registered` is awaited after each registration but the first, before anything is claimed under it.
        `on_unanswered`: as of `Registration.keep_alive`. Raises what `Registration.register_again` does, in an
        `ExceptionGroup`.
        """
        async with asyncio.TaskGroup() as tasks:
            resigning: asyncio.Task[None] | None = None
            while True:
                await self._kept_alive(on_unanswered)
                self._on_lease_ended()
                logger.error(
                    "the lease of this broker has ended: others may lead its partitions and groups by now"
                )
                if resigning is None or resigning.done():
                    # Before the new lease is there. A resignation in progress leaves nothing to resign from.
                    self._is_resigning = True
                    resigning = tasks.create_task(self._resign(services), name="resign")
                self._is_beginning = True
                await self._registration.register_again()
                # What asked for an end meant the lease before.
                self._must_end.clear()
                await on_registered()
                self._is_beginning = False
                logger.info("registered again")
                self._reconsider(services)

    async def _kept_alive(self, on_unanswered: Callable[[], None]) -> None:
        """Return when the lease has ended, or is to end."""
        keeping = asyncio.create_task(self._registration.keep_alive(on_unanswered), name="keep the lease")
        ending = asyncio.create_task(self._must_end.wait(), name="end of the lease")
        try:
            await asyncio.wait({keeping, ending}, return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                keeping.result()
            else:
                self._must_end.clear()
                await self._registration.give_up()
        finally:
            for task in (keeping, ending):
                task.cancel()
            await asyncio.gather(keeping, ending, return_exceptions=True)

    async def _resign(self, services: tuple[OwningService, ...]) -> None:
        await asyncio.gather(*(service.resign_all() for service in services))
        self._is_resigning = False
        self._reconsider(services)

    def _reconsider(self, services: tuple[OwningService, ...]) -> None:
        """Let the services claim again, once the broker has both resigned and a new lease."""
        if self.lease != NO_LEASE:
            for service in services:
                service.reconsider()
