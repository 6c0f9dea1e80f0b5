"""This broker among the live ones: its registration, the lease it is bound to, and how both are kept."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from kafscale.clocks import SYSTEM
from kafscale.errors import LeaseEndedError, StartupError, StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.topic_record import encode_broker_record
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER, BrokerRecord, BrokerState
from kafscale.metadata.store import ABSENT, NO_LEASE, Compare, KeyValue, MetadataStore, Put

logger = logging.getLogger(__name__)

# Renewed so often that one lost attempt, with its timeout, costs nothing.
_RENEWALS_PER_TTL = 4


class Registration:
    """A broker's key among the live brokers, under a lease to which all it leads and coordinates is bound."""

    def __init__(
        self,
        store: MetadataStore,
        lease_ttl_sec: int,
        retry_delay_sec: float = 0.2,
        *,
        new_journal_id: Callable[[], str] = lambda: "",
        boot_ms: Callable[[], int] = SYSTEM.boot_ms,
    ) -> None:
        """`new_journal_id` gives an id that no journal ever had. `boot_ms`: see `Clocks`."""
        self._boot_ms = boot_ms
        self._new_journal_id = new_journal_id
        self._store = store
        self._broker = BrokerRecord(broker_id=NO_BROKER, host="", port=0)
        self._lease_ttl_sec = lease_ttl_sec
        self._retry_delay_sec = retry_delay_sec
        self._lease = NO_LEASE
        self._renewed_ms = self._boot_ms()
        self._granted: set[int] = set()
        self._is_registered = False
        self._revision = ABSENT
        self._cluster_revision: int | None = None
        # Why the broker is not registered yet, for people; None when nothing is known to be in its way.
        self.obstacle: str | None = None
        # What is announced while a registration is in progress could be lost between the two.
        self._at_once = asyncio.Lock()

    @property
    def broker(self) -> BrokerRecord:
        """The record announced last for this broker, whether it is stored now or not."""
        return self._broker

    @property
    def lease(self) -> int:
        """The lease that the registration, and everything the broker owns, is bound to.

        `NO_LEASE` while it is not registered: no lease is renewed before that, so what it claimed then could be
        lost without its notice.
        """
        return self._lease if self._is_registered else NO_LEASE

    async def register(self, broker: BrokerRecord) -> None:
        """Register the broker under a new lease.

        Waits for a store that is away, and for an earlier run of the broker to time out. Raises `StartupError`
        when a broker of this id stays registered for longer than a dead one would.
        """
        self._broker = broker
        self._cluster_revision = None
        await self.register_again()

    async def register_again(self) -> None:
        """The same, after the lease has ended, with what was announced last.

        Raises `StartupError` also when the store was emptied or rebuilt since: what this broker knows of it is
        of another life, and what it wrote now would be in the way of `kafscale recover`.
        """
        async with self._at_once:
            await self._register()

    async def _register(self) -> None:
        loop = asyncio.get_running_loop()
        give_up_at: float | None = None
        self._granted.clear()
        # Of each registration another one: what is written under it is ended before its partitions are led again.
        self._broker = replace(self._broker, journal_id=self._new_journal_id())
        while True:
            asked_ms = self._boot_ms()
            try:
                if await self._try_register():
                    self._is_registered = True
                    self._renewed_ms = asked_ms
                    self.obstacle = None
                    return
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                self.obstacle = str(problem)
                logger.warning("could not register, trying again", extra={"problem": str(problem)})
            else:
                self.obstacle = "a broker with this id is registered, perhaps an earlier run of this one"
                if give_up_at is None:
                    logger.warning(
                        "a broker with this id is registered; waiting until it is gone, as it is soon when it "
                        "is an earlier run of this broker",
                        extra={"broker_id": self._broker.broker_id},
                    )
                    give_up_at = loop.time() + 2 * self._lease_ttl_sec
                elif loop.time() > give_up_at:
                    raise StartupError(
                        f"broker id {self._broker.broker_id} is in use by a live broker: "
                        "set KAFSCALE_BROKER_ID to another one"
                    )
            await asyncio.sleep(self._retry_delay_sec)

    async def _try_register(self) -> bool:
        key = keys.broker(self._broker.broker_id)
        found = await self._store.get(key)
        if found is not None:
            # Ours, if an earlier attempt had landed whose outcome is unknown, perhaps not the last one.
            if found.lease not in self._granted:
                return False
            self._lease, self._revision = found.lease, found.mod_revision
            return True
        if self._cluster_revision is None:
            self._cluster_revision = _revision_of(await self._store.get(keys.CLUSTER))
        self._lease = await self._store.grant_lease(self._lease_ttl_sec)
        self._granted.add(self._lease)
        result = await self._store.transact(
            [Compare(key, ABSENT), Compare(keys.CLUSTER, self._cluster_revision)],
            [Put(key, encode_broker_record(self._broker), self._lease)],
        )
        if result.succeeded:
            self._revision = result.revision
        elif _revision_of(result.found[1]) != self._cluster_revision:
            raise StartupError(
                "the metadata store was emptied or rebuilt while this broker ran: stop all brokers, rebuild it "
                "with `kafscale recover` if that was not done, and start them again"
            )
        return result.succeeded

    async def announce(self, state: BrokerState) -> None:
        """Announce the broker's state to the others. Waits for a store that is away.

        If the lease has ended, the next registration announces it.
        """
        self._broker = replace(self._broker, state=state)
        async with self._at_once:
            await self._announce(state)

    async def _announce(self, state: BrokerState) -> None:
        key, value = keys.broker(self._broker.broker_id), encode_broker_record(self._broker)
        while True:
            try:
                result = await self._store.transact(
                    [Compare(key, self._revision)], [Put(key, value, self._lease)]
                )
            except LeaseEndedError:
                return
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                logger.warning(
                    "could not announce a change of state, trying again",
                    extra={"state": str(state), "problem": str(problem)},
                )
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if result.succeeded:
                self._revision = result.revision
                return
            found = result.found[0]
            if found is None or found.lease != self._lease:
                return
            self._revision = found.mod_revision
            if found.value == value:
                return

    def unrenewed_ms(self) -> int:
        """For how long the lease was not renewed, the time included in which this machine was suspended."""
        return self._boot_ms() - self._renewed_ms

    async def keep_alive(self, on_unanswered: Callable[[], None] = lambda: None) -> None:
        """Renew the lease; returns when it has ended: the broker then leads and coordinates nothing.

        `on_unanswered` is called after each renewal that the store did not answer.
        """
        while True:
            await asyncio.sleep(self._lease_ttl_sec / _RENEWALS_PER_TTL)
            try:
                asked_ms = self._boot_ms()
                if not await self._store.renew_lease(self._lease):
                    self._is_registered = False
                    return
                self._renewed_ms = asked_ms
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                logger.warning("could not renew the lease", extra={"problem": str(problem)})
                on_unanswered()

    async def give_up(self) -> None:
        """End the lease as `close` does; if the store does not answer, it ends by itself."""
        try:
            await self.close()
        except (StoreUnavailableError, StoreIndeterminateError) as problem:
            logger.warning("could not end the lease, it will end by itself", extra={"problem": str(problem)})

    async def close(self) -> None:
        """End the lease, and with it the registration and everything that is bound to it."""
        self._is_registered = False
        lease, self._lease = self._lease, NO_LEASE
        # An attempt without an answer may still register the broker, under the lease that it was to be bound to.
        others = sorted(self._granted - {lease})
        self._granted.clear()
        for one in [lease, *others] if lease != NO_LEASE else others:
            await self._store.revoke_lease(one)


def _revision_of(found: KeyValue | None) -> int:
    return ABSENT if found is None else found.mod_revision
