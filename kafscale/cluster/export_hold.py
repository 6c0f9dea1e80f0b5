"""Taking hold of a topic for an export, keeping it, and telling how far the export has come.

Theory of operation. Two keys of a topic make its holder: the record, which stays and whose epoch grows with every
new holder, and the holder, which is bound to the exporter's lease. Both are put in one transaction that wants no
holder to be there. Every write of progress compares both: an exporter whose lease has ended, or who was followed by
another one, cannot write, however late its request arrives. Each also compares the progress that it replaces, so
that a request whose outcome was unknown cannot land behind the one that came after it.

None of this decides what is in a table; that the table does (docs/decisions/0022).
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.exports import ExportHeldError, ExportLeaseLostError
from kafscale.errors import LeaseEndedError, StoreError, StoreIndeterminateError
from kafscale.formats.export_records import (
    ExportProgress,
    ExportRecord,
    decode_export_progress,
    decode_export_record,
    encode_export_progress,
    encode_export_record,
)
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put

RETRY_DELAY_SEC: Final = 0.2
PATIENCE_SEC: Final = 30.0
"""How long a request whose outcome is unknown is followed up before its caller gets an error."""


@dataclass(slots=True, kw_only=True)
class _Lease:
    number: int
    renewed_at_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The keys put at the acquisition; `revision`: of both keys from then on, for as long as they are ours."""

    record: ExportRecord
    lease: _Lease
    revision: int


class ExportHold:
    """A topic that this exporter holds. Use `acquire`; everything belongs to the event loop that called it.

    Nothing is renewed by itself.
    """

    def __init__(
        self,
        store: MetadataStore,
        topic: str,
        ttl_sec: int,
        clock: Callable[[], float],
        held: _Held,
    ) -> None:
        self._store = store
        self._topic = topic
        self._ttl_sec = ttl_sec
        self._clock = clock
        self._held = held
        self._lease = held.lease
        self._lost: str | None = None
        self._progress: dict[str, int] = {}
        self._one_record_at_a_time = asyncio.Lock()

    @classmethod
    async def acquire(
        cls,
        store: MetadataStore,
        topic: str,
        holder: str,
        ttl_sec: int,
        *,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> "ExportHold":
        """Take hold of the topic. `holder`: who that is, for others to read; `now_ms`: Unix milliseconds; `clock`:
        seconds, never going back, for how long ago the lease was renewed.

        Raises `ExportHeldError` when another exporter owns it, `StoreError`.
        """
        acquisition = _Acquisition(store, topic, holder, ttl_sec, now_ms, clock)
        try:
            return await acquisition.run()
        except BaseException:
            await acquisition.release()
            raise

    @property
    def epoch(self) -> int:
        """Of this hold; every later holder has a greater one."""
        return self._held.record.epoch

    def check(self) -> None:
        """Raise `ExportLeaseLostError` unless the topic is still held, as far as is known here, at once.

        It is not when the store said so, nor when the last renewal that succeeded began `ttl_sec` ago: the
        store may have ended the lease by then. Once lost it stays lost.
        """
        if self._lost is None and self._clock() - self._lease.renewed_at_sec >= self._ttl_sec:
            self._lost = f"its lease could not be renewed for {self._ttl_sec} s"
        if self._lost is not None:
            raise ExportLeaseLostError(self._topic, self._lost)

    async def confirm(self) -> None:
        """The same, asking the store. Raises `StoreError`, too."""
        self.check()
        held = await self._store.get(keys.export_holder(self._topic))
        if held is None or held.mod_revision != self._held.revision:
            self._lose(held)

    async def renew(self) -> None:
        """Renew the lease. Raises `ExportLeaseLostError`, `StoreError`."""
        self.check()
        began_at_sec = self._clock()
        if not await self._store.renew_lease(self._lease.number):
            self._lost = "its lease has ended"
            self.check()
        self._lease.renewed_at_sec = began_at_sec

    async def last_progress(self, table: str) -> ExportProgress | None:
        """The progress recorded last for the table, by any exporter. Raises `StoreError`, `CorruptDataError`."""
        key = keys.export_progress(self._topic, table)
        found = await self._store.get(key)
        return None if found is None else decode_export_progress(key, self._topic, table, found.value)

    async def record(self, progress: ExportProgress) -> None:
        """Write the progress, in place of what was there for the table.

        Raises `ExportLeaseLostError`, nothing written, `StoreError`, and `ValueError` for a progress of another
        topic or one that cannot be stored. An unknown outcome is read back and tried again for `PATIENCE_SEC`.
        """
        if progress.topic != self._topic:
            raise ValueError(
                f"the hold of topic {self._topic!r} cannot record progress of {progress.topic!r}"
            )
        async with self._one_record_at_a_time:
            await self._record(progress)

    async def _record(self, progress: ExportProgress) -> None:
        key, value = keys.export_progress(self._topic, progress.table), encode_export_progress(progress)
        if progress.table not in self._progress:
            found = await self._store.get(key)
            self._progress[progress.table] = ABSENT if found is None else found.mod_revision
        give_up_at_sec = self._clock() + PATIENCE_SEC
        while True:
            self.check()
            try:
                if await self._try_record(progress.table, key, value):
                    return
            except StoreIndeterminateError:
                if self._clock() >= give_up_at_sec:
                    raise
                await asyncio.sleep(RETRY_DELAY_SEC)

    async def _try_record(self, table: str, key: str, value: bytes) -> bool:
        compares = [
            Compare(keys.export_record(self._topic), self._held.revision),
            Compare(keys.export_holder(self._topic), self._held.revision),
            Compare(key, self._progress[table]),
        ]
        result = await self._store.transact(compares, [Put(key, value)])
        if result.succeeded:
            self._progress[table] = result.revision
            return True
        record, holder, found = result.found
        if holder is None or holder.mod_revision != self._held.revision:
            self._lose(holder)
        if record is None or record.mod_revision != self._held.revision:
            self._lose(record)
        # An earlier attempt, whose outcome was unknown, has landed: perhaps this one's.
        self._progress[table] = ABSENT if found is None else found.mod_revision
        return found is not None and found.value == value

    async def release(self) -> None:
        """Let others hold the topic; nothing when it is lost. Raises `StoreError`: then the lease ends by itself."""
        if self._lost is None:
            self._lost = "it was released"
            await self._store.revoke_lease(self._lease.number)

    def _lose(self, found: KeyValue | None) -> None:
        if found is None:
            self._lost = "its lease has ended"
        else:
            other = decode_export_record(found.key, found.value)
            self._lost = f"{other.holder} has taken hold of it in epoch {other.epoch}"
        self.check()


class _Acquisition:
    """One attempt after the other to take hold of a topic, until it is known what has become of them."""

    def __init__(
        self,
        store: MetadataStore,
        topic: str,
        holder: str,
        ttl_sec: int,
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._topic = topic
        self._holder = holder
        self._ttl_sec = ttl_sec
        self._now_ms = now_ms
        self._clock = clock
        self._leases: dict[int, _Lease] = {}

    async def run(self) -> ExportHold:
        give_up_at_sec = self._clock() + PATIENCE_SEC
        while True:
            try:
                hold = await self._attempt()
            except (StoreIndeterminateError, LeaseEndedError):
                if self._clock() >= give_up_at_sec:
                    raise
                await asyncio.sleep(RETRY_DELAY_SEC)
                continue
            if hold is not None:
                return hold

    async def release(self) -> None:
        """Revoke the leases that are not needed. Those that cannot be revoked now expire."""
        for lease in self._leases:
            try:
                await self._store.revoke_lease(lease)
            except StoreError:
                return

    async def _attempt(self) -> ExportHold | None:
        """The hold; None when another exporter was faster, even if it is gone again."""
        record_key, holder_key = keys.export_record(self._topic), keys.export_holder(self._topic)
        held = await self._store.get(holder_key)
        if held is not None:
            record = decode_export_record(held.key, held.value)
            # Ours, if an earlier attempt had landed whose outcome is unknown.
            if held.lease not in self._leases:
                raise ExportHeldError(self._topic, record)
            return self._hold(record, self._leases[held.lease], held.mod_revision)
        last = await self._store.get(record_key)
        epoch = 1 if last is None else decode_export_record(last.key, last.value).epoch + 1
        record = ExportRecord(epoch=epoch, holder=self._holder, acquired_ms=self._now_ms())
        granted_at_sec = self._clock()
        number = await self._store.grant_lease(self._ttl_sec)
        lease = self._leases[number] = _Lease(number=number, renewed_at_sec=granted_at_sec)
        value = encode_export_record(record)
        result = await self._store.transact(
            [Compare(record_key, ABSENT if last is None else last.mod_revision), Compare(holder_key, ABSENT)],
            [Put(record_key, value), Put(holder_key, value, number)],
        )
        return self._hold(record, lease, result.revision) if result.succeeded else None

    def _hold(self, record: ExportRecord, lease: _Lease, revision: int) -> ExportHold:
        held = _Held(record=record, lease=lease, revision=revision)
        return ExportHold(self._store, self._topic, self._ttl_sec, self._clock, held)
