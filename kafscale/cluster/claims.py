"""Gaining what one broker at a time may hold: the next epoch in its record and its holder's key, at once.

What is held, a partition or a group shard, has a *record*, which every write of its holder compares, and a
*holder key*, bound to the holder's lease. It is gained only while nobody holds it; from then on whoever held
it before can write nothing, because the record is another one. It is given up by the holder key's removal.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafscale.errors import CorruptDataError, LeaseEndedError, StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.read_many import read_many
from kafscale.metadata.store import ABSENT, NO_LEASE, Compare, Delete, KeyValue, MetadataStore, Put
from kafscale.ops.item_failures import BackgroundWork, ItemFailures

logger = logging.getLogger(__name__)

MAX_TRANSACTION_BYTES = 1024 * 1024
"""What the values of one transaction may add up to: etcd takes up to 1.5 MiB unless told otherwise."""

REFUSED_AGAIN_SEC = 30.0
"""When a record that the store refused for its size is tried again, unless it has changed before."""

_CLAIMS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that may be held."""

    record_key: str
    holder_key: str


@dataclass(frozen=True, slots=True)
class Holding:
    """Something that this broker holds: its record's value and the revision of both keys."""

    claim: Claim
    record: bytes
    revision: int


NextRecord = Callable[[str, bytes | None], tuple[bytes, bytes] | None]
"""Of a record's key and value (None: it is absent) makes the next record's value and the holder key's.

None: it is not to be held. Raises `CorruptDataError`.
"""


class Claims:
    """Gains and gives up for one broker, under the lease that `lease` tells."""

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
        self._told_of: dict[str, int] = {}
        self._failures = failures or ItemFailures(BackgroundWork.CLAIMS)
        self._refused: dict[str, _Refusal] = {}

    async def gain(
        self,
        claims: Iterable[Claim],
        known: Mapping[str, KeyValue] | None = None,
        tell: Callable[[Holding], None] = lambda holding: None,
    ) -> list[Holding]:
        """Hold what nobody holds; returns what was gained. Tries again while the store is away.

        `known`: records as they were read a moment ago, which saves reading them. `tell` is told of each
        holding as soon as it is known to be gained, before the others are. Raises `LeaseEndedError` when this
        broker's lease has ended, or there is none.
        """
        lease = self._lease()
        if lease == NO_LEASE:
            # A holder's key that is bound to nothing would outlive its holder.
            raise LeaseEndedError(lease)
        outcomes = await asyncio.gather(
            *(self._gain(lease, part, known, tell) for part in self._parts(tuple(claims), keys_each=2)),
            # All come to their end: nothing is gained, and nobody told, after this has returned or raised.
            return_exceptions=True,
        )
        gained: list[Holding] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            gained += outcome
        return gained

    def _parts(self, claims: Sequence[Claim], keys_each: int) -> Iterator[Sequence[Claim]]:
        size = self._store.max_operations // keys_each
        return (claims[start : start + size] for start in range(0, len(claims), size))

    async def _gain(
        self,
        lease: int,
        claims: Sequence[Claim],
        known: Mapping[str, KeyValue] | None,
        tell: Callable[[Holding], None],
    ) -> list[Holding]:
        async with self._at_once:
            if known is None:
                held = await self._read(claims)
            else:
                held = {c.record_key: known[c.record_key] for c in claims if c.record_key in known}
            gained: list[Holding] = []
            parts = deque(_by_size(claims, held))
            while parts:
                part = parts.popleft()
                try:
                    holdings = await self._gain_part(lease, part, held)
                except ValueError as refusal:
                    parts.extendleft(self._divided(part, held, refusal))
                    continue
                for holding in holdings:
                    if self._lease() != lease:
                        # The answer took so long that what it tells of went with the lease.
                        raise LeaseEndedError(lease)
                    tell(holding)
                    gained.append(holding)
            return gained

    def _divided(
        self, claims: Sequence[Claim], held: Mapping[str, KeyValue], refusal: ValueError
    ) -> list[Sequence[Claim]]:
        """What to try in place of claims whose transaction the store refused for its size: halves, then none.

        A store may take less than it does by default, and one record may be too large by itself: that has no
        holder, and is no reason to go without the others.
        """
        if len(claims) > 1:
            middle = len(claims) // 2
            return [claims[middle:], claims[:middle]]
        key = claims[0].record_key
        stored = held.get(key)
        revision = ABSENT if stored is None else stored.mod_revision
        self._refused[key] = _Refusal(revision, asyncio.get_running_loop().time() + REFUSED_AGAIN_SEC)
        self._failures.report(key, refusal)
        return []

    def _is_refused(self, claim: Claim, held: Mapping[str, KeyValue]) -> bool:
        """Whether the store refused this record a moment ago."""
        refusal, stored = self._refused.get(claim.record_key), held.get(claim.record_key)
        if refusal is None:
            return False
        now_sec = asyncio.get_running_loop().time()
        if now_sec >= refusal.until_sec or (stored is not None and stored.mod_revision != refusal.revision):
            del self._refused[claim.record_key]
            return False
        return True

    async def _gain_part(
        self, lease: int, claims: Sequence[Claim], held: Mapping[str, KeyValue]
    ) -> list[Holding]:
        """Attempts until all are held, by whomever. `held` may be out of date; a failed attempt tells.

        What is settled is not looked at again: the next attempt tells nothing of it.
        """
        ours: list[Holding] = []
        tried: dict[Claim, bytes] = {}
        while True:
            claims = [
                claim
                for claim in claims
                if not self._is_settled(claim, held, lease, tried, ours) and not self._is_refused(claim, held)
            ]
            attempt = self._attempt(claims, held, lease)
            if not attempt.holdings:
                return ours
            claims = [holding.claim for holding in attempt.holdings]
            tried.update((holding.claim, holding.record) for holding in attempt.holdings)
            try:
                result = await self._store.transact(attempt.compares, attempt.puts)
            except LeaseEndedError:
                raise
            except ValueError:
                if ours:
                    # Told of now: what is left is looked at again.
                    return ours
                raise
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                # Whatever became of it: the next attempt starts from what the store holds.
                await self._wait(problem)
                held = await self._read(claims)
                continue
            if result.succeeded:
                return ours + [Holding(one.claim, one.record, result.revision) for one in attempt.holdings]
            held = {found.key: found for found in result.found if found is not None}

    def _attempt(self, claims: Sequence[Claim], held: Mapping[str, KeyValue], lease: int) -> "_Attempt":
        attempt = _Attempt()
        for claim in claims:
            stored = held.get(claim.record_key)
            try:
                values = self._next_record(claim.record_key, None if stored is None else stored.value)
            except CorruptDataError as problem:
                # It has no holder until somebody mends it; that is no reason to go without the others.
                self._tell_of(stored, problem)
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report(claim.record_key, problem)
            else:
                if values is not None:
                    attempt.add(claim, stored, *values, lease)
        return attempt

    def _tell_of(self, bad: KeyValue | None, problem: CorruptDataError) -> None:
        # Once: what is not gained is tried again every other second.
        if bad is not None and self._told_of.get(bad.key) != bad.mod_revision:
            self._told_of[bad.key] = bad.mod_revision
            logger.error("cannot hold what is described by a bad record", extra={"problem": str(problem)})

    @staticmethod
    def _is_settled(
        claim: Claim,
        held: Mapping[str, KeyValue],
        lease: int,
        tried: Mapping[Claim, bytes],
        ours: list[Holding],
    ) -> bool:
        """Whether somebody holds it. This broker does, too, if an attempt of unknown outcome had landed.

        What it held before it began to try is not held by that: what it wrote then may be under way yet.
        """
        holder, record = held.get(claim.holder_key), held.get(claim.record_key)
        if holder is None:
            return False
        if (
            holder.lease == lease
            and record is not None
            and record.mod_revision == holder.mod_revision
            and record.value == tried.get(claim)
        ):
            ours.append(Holding(claim, record.value, record.mod_revision))
        return True

    async def _read(self, claims: Sequence[Claim]) -> dict[str, KeyValue]:
        keys = [key for claim in claims for key in (claim.record_key, claim.holder_key)]
        while True:
            try:
                return await read_many(self._store, keys)
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                await self._wait(problem)

    async def give_up(self, revisions: Mapping[str, int]) -> None:
        """Remove the holder keys that still are as this broker put them, at these revisions.

        Tries again while the store is away.
        """
        items = tuple(revisions.items())
        for start in range(0, len(items), self._store.max_operations):
            await self._remove(dict(items[start : start + self._store.max_operations]))

    async def _remove(self, revisions: dict[str, int]) -> None:
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

    async def give_up_strays(self, holder_keys: Iterable[str]) -> None:
        """Remove holder keys that are bound to this broker's lease although it does not hold what they say."""
        keys, lease = tuple(holder_keys), self._lease()
        for start in range(0, len(keys), self._store.max_operations):
            part = keys[start : start + self._store.max_operations]
            while True:
                try:
                    found = await read_many(self._store, part)
                    break
                except (StoreUnavailableError, StoreIndeterminateError) as problem:
                    await self._wait(problem)
            await self._remove({key: item.mod_revision for key, item in found.items() if item.lease == lease})

    async def _wait(self, problem: Exception) -> None:
        logger.warning(
            "the metadata store did not answer a claim, trying again", extra={"problem": str(problem)}
        )
        await asyncio.sleep(self._retry_delay_sec)


class _Refusal(NamedTuple):
    """A record, as it was at `revision`, is too large for the store; `until_sec`: of the event loop's clock."""

    revision: int
    until_sec: float


class _Attempt:
    """One transaction. The revision of its holdings is not known yet."""

    def __init__(self) -> None:
        self.holdings: list[Holding] = []
        self.compares: list[Compare] = []
        self.puts: list[Put] = []

    def add(self, claim: Claim, stored: KeyValue | None, record: bytes, holder: bytes, lease: int) -> None:
        """Hold this one, too, unless the record is another one by then or somebody holds it."""
        self.holdings.append(Holding(claim, record, ABSENT))
        self.compares.append(Compare(claim.record_key, ABSENT if stored is None else stored.mod_revision))
        self.compares.append(Compare(claim.holder_key, ABSENT))
        self.puts.append(Put(claim.record_key, record))
        self.puts.append(Put(claim.holder_key, holder, lease))


def _by_size(claims: Sequence[Claim], held: Mapping[str, KeyValue]) -> Iterator[Sequence[Claim]]:
    """The claims in parts whose records fit into one transaction."""
    part: list[Claim] = []
    size_bytes = 0
    for claim in claims:
        stored = held.get(claim.record_key)
        size = 0 if stored is None else len(stored.value)
        if part and size_bytes + size > MAX_TRANSACTION_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(claim)
        size_bytes += size
    if part:
        yield part
