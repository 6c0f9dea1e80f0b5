"""A broker's claims: each writes the next epoch into an item's record and puts the owner key, in one transaction.

An item, a partition or a group shard, has a *record*, which every write of its owner compares, and an *owner key*,
bound to the owner's lease. A claim succeeds only while there is no owner key. It changes the record, so that the
owner before can write nothing from then on. Deleting the owner key releases the item. A claim may rest on
one more record, its *ground*, which it compares, too: a partition's record names the id of its topic, and by then
another topic may have the name.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafscale.cluster.claim_attempt import Claim, ClaimAttempt, Owned, by_size
from kafscale.errors import CorruptDataError, LeaseEndedError, StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.store import ABSENT, NO_LEASE, Compare, Delete, KeyValue, MetadataStore, read_many
from kafscale.ops.item_failures import BackgroundWork, ItemFailures

logger = logging.getLogger(__name__)

REFUSED_AGAIN_SEC = 30.0
"""When a record that the store refused for its size is tried again, unless it has changed before."""

_CLAIMS_AT_ONCE = 8


NextRecord = Callable[[str, bytes | None, KeyValue | None], tuple[bytes, bytes] | None]
"""Returns the values of the next record and of the owner key, from a record's key and value and the item's ground.

A value is None if it is absent, the ground also if the item has none.

None if the item is not to be claimed. Raises `CorruptDataError`.
"""


class Claims:
    """Claims and releases items for one broker, under the lease that `lease` returns."""

    def __init__(
        self,
        store: MetadataStore,
        lease: Callable[[], int],
        next_record: NextRecord,
        retry_delay_sec: float,
        failures: ItemFailures | None = None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._next_record = next_record
        self._retry_delay_sec = retry_delay_sec
        self._at_once = asyncio.Semaphore(_CLAIMS_AT_ONCE)
        self._reported: dict[str, int] = {}
        self._failures = failures or ItemFailures(BackgroundWork.CLAIMS)
        self._refused: dict[str, _Refusal] = {}

    async def claim(
        self,
        claims: Iterable[Claim],
        known: Mapping[str, KeyValue] | None = None,
        notify: Callable[[Owned], None] = lambda owned: None,
    ) -> list[Owned]:
        """Claim the items that no broker owns, and return those. Retries while the store is away.

        `known`: records as they were read a moment ago, which saves reading them. `notify` is called for each
        item as soon as its claim is known to have succeeded, before the others are done. Raises
        `LeaseEndedError` if this broker's lease has ended, or there is none.
        """
        lease = self._lease()
        if lease == NO_LEASE:
            # An owner key that is bound to nothing would outlive its owner.
            raise LeaseEndedError(lease)
        outcomes = await asyncio.gather(
            *(self._claim_parts(lease, part, known, notify) for part in self._parts(tuple(claims))),
            # All are awaited: nothing is claimed, and nothing notified, after this has returned or raised.
            return_exceptions=True,
        )
        claimed: list[Owned] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            claimed += outcome
        return claimed

    def _parts(self, claims: Iterable[Claim]) -> Iterator[Sequence[Claim]]:
        """The claims in parts with as many keys as a transaction may compare."""
        part: list[Claim] = []
        compared: set[str] = set()
        for claim in claims:
            if part and len(compared | set(claim.keys)) > self._store.max_operations:
                yield part
                part, compared = [], set()
            part.append(claim)
            compared.update(claim.keys)
        if part:
            yield part

    async def _claim_parts(
        self,
        lease: int,
        claims: Sequence[Claim],
        known: Mapping[str, KeyValue] | None,
        notify: Callable[[Owned], None],
    ) -> list[Owned]:
        async with self._at_once:
            if known is None:
                found = await self._read(claims)
            else:
                found = {key: known[key] for claim in claims for key in claim.keys if key in known}
            claimed: list[Owned] = []
            unreadable: dict[str, _Unreadable] = {}
            parts = deque(by_size(claims, found))
            while parts:
                part = parts.popleft()
                try:
                    owned = await self._claim_part(lease, part, found, unreadable)
                except ValueError as refusal:
                    parts.extendleft(self._divided(part, found, refusal))
                    continue
                for one in owned:
                    if self._lease() != lease:
                        # The answer took so long that what was claimed went with the lease.
                        raise LeaseEndedError(lease)
                    notify(one)
                    claimed.append(one)
            await self._report_unreadable(unreadable)
            return claimed

    def _divided(
        self, claims: Sequence[Claim], found: Mapping[str, KeyValue], refusal: ValueError
    ) -> list[Sequence[Claim]]:
        """Returns the parts to try in place of claims whose transaction the store refused for its size.

        First halves, then none: a store may take less than it does by default, and one record may be too large by
        itself. That item has no owner; the others are claimed all the same.
        """
        if len(claims) > 1:
            middle = len(claims) // 2
            return [claims[middle:], claims[:middle]]
        key = claims[0].record_key
        stored = found.get(key)
        revision = ABSENT if stored is None else stored.mod_revision
        self._refused[key] = _Refusal(revision, asyncio.get_running_loop().time() + REFUSED_AGAIN_SEC)
        self._failures.report(key, refusal)
        return []

    def _is_refused(self, claim: Claim, found: Mapping[str, KeyValue]) -> bool:
        """True if the store refused this record a moment ago."""
        refusal, stored = self._refused.get(claim.record_key), found.get(claim.record_key)
        if refusal is None:
            return False
        now_sec = asyncio.get_running_loop().time()
        if now_sec >= refusal.until_sec or (stored is not None and stored.mod_revision != refusal.revision):
            del self._refused[claim.record_key]
            return False
        return True

    async def _claim_part(
        self,
        lease: int,
        claims: Sequence[Claim],
        found: Mapping[str, KeyValue],
        unreadable: "dict[str, _Unreadable]",
    ) -> list[Owned]:
        """Attempt the claims until every item has an owner, and return those that this broker owns.

        `found` may be out of date: a failed attempt returns the current values of the items that it tried. Items
        that are settled are not read again. Those whose record cannot be read are added to `unreadable`.
        """
        ours: list[Owned] = []
        tried: dict[Claim, bytes] = {}
        while True:
            claims = [
                claim
                for claim in claims
                if not self._is_settled(claim, found, lease, tried, ours)
                and not self._is_refused(claim, found)
            ]
            attempt = self._attempt(claims, found, lease, unreadable)
            if not attempt.owned:
                return ours
            claims = [one.claim for one in attempt.owned]
            tried.update((one.claim, one.record) for one in attempt.owned)
            try:
                result = await self._store.transact(attempt.compares, attempt.puts)
            except LeaseEndedError:
                raise
            except ValueError:
                if ours:
                    # Reported now: the keeper looks at the rest again.
                    return ours
                raise
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                # Whatever its outcome: the next attempt starts from what is stored.
                await self._wait(problem)
                found = await self._read(claims)
                continue
            if result.succeeded:
                return ours + [Owned(one.claim, one.record, result.revision) for one in attempt.owned]
            found = {item.key: item for item in result.found if item is not None}

    def _attempt(
        self,
        claims: Sequence[Claim],
        found: Mapping[str, KeyValue],
        lease: int,
        unreadable: "dict[str, _Unreadable]",
    ) -> ClaimAttempt:
        attempt = ClaimAttempt()
        for claim in claims:
            stored = found.get(claim.record_key)
            ground = None if claim.ground_key is None else found.get(claim.ground_key)
            try:
                values = self._next_record(claim.record_key, None if stored is None else stored.value, ground)
            except CorruptDataError as problem:
                # It has no owner until its record is repaired; the others are claimed all the same.
                if stored is not None:
                    unreadable[claim.record_key] = _Unreadable(stored.key, stored.mod_revision, problem)
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report(claim.record_key, problem)
            else:
                if values is not None:
                    attempt.add(claim, stored, ground, *values, lease)
        return attempt

    async def _report_unreadable(self, unreadable: "Mapping[str, _Unreadable]") -> None:
        """Report the records that are still the ones that could not be read, each of them once.

        Another broker may have claimed the item meanwhile, and deleted what only the older record needed.
        """
        # Once: the keeper tries again every other second.
        new = [one for one in unreadable.values() if self._reported.get(one.key) != one.revision]
        if not new:
            return
        try:
            found = await read_many(self._store, [one.key for one in new])
        except (StoreUnavailableError, StoreIndeterminateError):
            return  # What was claimed must not wait: the next attempt reports it.
        for key, revision, problem in new:
            stored = found.get(key)
            if stored is not None and stored.mod_revision == revision:
                self._reported[key] = revision
                logger.error("cannot claim: the record is unreadable", extra={"problem": str(problem)})

    @staticmethod
    def _is_settled(
        claim: Claim,
        found: Mapping[str, KeyValue],
        lease: int,
        tried: Mapping[Claim, bytes],
        ours: list[Owned],
    ) -> bool:
        """True if the item has an owner. An attempt of unknown outcome that succeeded is added to `ours`.

        An item that this broker owned before it began to try is not: its earlier writes may still be in flight.
        """
        owner, record = found.get(claim.owner_key), found.get(claim.record_key)
        if owner is None:
            return False
        if (
            owner.lease == lease
            and record is not None
            and record.mod_revision == owner.mod_revision
            and record.value == tried.get(claim)
        ):
            ours.append(Owned(claim, record.value, record.mod_revision))
        return True

    async def read(self, claims: Sequence[Claim]) -> dict[str, KeyValue]:
        """The records and owner keys of these items. Retries while the store is away."""
        found: dict[str, KeyValue] = {}
        for part in self._parts(claims):
            found |= await self._read(part)
        return found

    async def _read(self, claims: Sequence[Claim]) -> dict[str, KeyValue]:
        keys = list(dict.fromkeys(key for claim in claims for key in claim.keys))
        while True:
            try:
                return await read_many(self._store, keys)
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                await self._wait(problem)

    async def release(self, revisions: Mapping[str, int]) -> None:
        """Delete the owner keys that still have these revisions, at which this broker put them.

        Retries while the store is away.
        """
        items = tuple(revisions.items())
        for start in range(0, len(items), self._store.max_operations):
            await self._delete(dict(items[start : start + self._store.max_operations]))

    async def _delete(self, revisions: dict[str, int]) -> None:
        while revisions:
            try:
                result = await self._store.transact(
                    [Compare(key, revision) for key, revision in revisions.items()],
                    [Delete(key) for key in revisions],
                )
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                await self._wait(problem)
                continue
            if result.succeeded:
                return
            found = {item.key: item.mod_revision for item in result.found if item is not None}
            revisions = {key: at for key, at in revisions.items() if found.get(key) == at}

    async def release_stale(self, owner_keys: Iterable[str]) -> None:
        """Delete the owner keys that are bound to this broker's lease. The caller owns none of the items."""
        keys, lease = tuple(owner_keys), self._lease()
        for start in range(0, len(keys), self._store.max_operations):
            part = keys[start : start + self._store.max_operations]
            while True:
                try:
                    found = await read_many(self._store, part)
                    break
                except (StoreUnavailableError, StoreIndeterminateError) as problem:
                    await self._wait(problem)
            await self._delete({key: item.mod_revision for key, item in found.items() if item.lease == lease})

    async def _wait(self, problem: Exception) -> None:
        logger.warning(
            "the metadata store did not answer a claim, trying again", extra={"problem": str(problem)}
        )
        await asyncio.sleep(self._retry_delay_sec)


class _Refusal(NamedTuple):
    """A record, as it was at `revision`, is too large for the store; `until_sec`: of the event loop's clock."""

    revision: int
    until_sec: float


class _Unreadable(NamedTuple):
    """The record of an item, as it was at `revision`, cannot be read, or does not go with what it names."""

    key: str
    revision: int
    problem: CorruptDataError
