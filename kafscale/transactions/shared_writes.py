"""Writes of different transactional ids that become ready at about the same time share one store transaction.

As publications of partitions do (docs/decisions/0034-shared-publications.md), but a write may have several
operations: a decision comes with its marker keys. While fewer than `TRANSACTIONS_AT_ONCE` are in flight, a write has
a store transaction of its own, at once. Later ones wait, and share the next as soon as one ends. Each gets the result
that it would have got alone: if the condition of one fails, nothing was done, that one fails, and the others are sent
again.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.store import Compare, KeyValue, MetadataStore, Operation, Put, TransactionResult
from kafscale.tasks.owner import TaskOwner

TRANSACTIONS_AT_ONCE: Final = 2
"""With more, fewer writes share; with one, a write would wait for all of the transaction in flight."""

MAX_TRANSACTION_BYTES: Final = 1024 * 1024
"""Keys and values of one store transaction: by default etcd takes requests of up to 1.5 MiB."""

# Besides its value an operation costs its key, below a prefix that is not known here, and a few fields around it.
_OVERHEAD_BYTES = 256


def request_bytes(operations: Sequence[Operation]) -> int:
    """An upper estimate of what the operations add to a request."""
    return sum(
        _OVERHEAD_BYTES + 2 * len(one.key.encode()) + (len(one.value) if isinstance(one, Put) else 0)
        for one in operations
    )


@dataclass(frozen=True, slots=True)
class Write:
    """The operations, if `compare` and `also` hold. No key is named twice among the operations."""

    compare: Compare
    operations: tuple[Operation, ...]
    also: Compare | None = None

    @property
    def compares(self) -> list[Compare]:
        """Both, in this order."""
        return [self.compare] if self.also is None else [self.compare, self.also]


class _Waiting:
    """A write that waits for its transaction; `outcome` is done early if its waiter was cancelled."""

    __slots__ = ("outcome", "size_bytes", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.size_bytes = request_bytes(write.operations)
        self.outcome: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: TransactionResult | Exception) -> None:
        if self.outcome.done():
            return
        if isinstance(answer, Exception):
            self.outcome.set_exception(answer)
        else:
            self.outcome.set_result(answer)


class SharedWrites:
    """Makes writes, several with one store transaction while enough transactions are in flight."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._waiting: list[_Waiting] = []
        self._in_flight = 0
        self._tasks = TaskOwner()

    @property
    def max_operations(self) -> int:
        """How many operations a write may have."""
        return self._store.max_operations

    async def write(self, write: Write) -> TransactionResult:
        """Make the write, and return the result that a store transaction with it alone would have had.

        Raises as `MetadataStore.transact`. After a cancellation the outcome is unknown.
        """
        if self._in_flight >= TRANSACTIONS_AT_ONCE:
            waiting = _Waiting(write)
            self._waiting.append(waiting)
            return await waiting.outcome
        self._in_flight += 1
        try:
            return await self._store.transact(write.compares, write.operations)
        finally:
            self._ended()

    async def close(self) -> None:
        """Cancel the shared transactions in flight."""
        await self._tasks.close()

    def _ended(self) -> None:
        """Send those that wait, now that a transaction has ended."""
        self._in_flight -= 1
        while self._in_flight < TRANSACTIONS_AT_ONCE and (batch := self._take()):
            self._in_flight += 1
            self._tasks.spawn(self._send(batch), "shared transaction writes")

    def _take(self) -> list[_Waiting]:
        """Take as many writes as fit into one transaction, which names no key twice; the first always does."""
        batch: list[_Waiting] = []
        rest: list[_Waiting] = []
        named: set[str] = set()
        operations = size_bytes = 0
        for one in self._waiting:
            if one.outcome.done():
                continue
            wanted = {one.write.compare.key, *(operation.key for operation in one.write.operations)}
            fits = (
                operations + len(one.write.operations) <= self._store.max_operations
                # With `also` each may have two compares.
                and 2 * len(batch) + 2 <= self._store.max_operations
                and size_bytes + one.size_bytes <= MAX_TRANSACTION_BYTES
            )
            # After one that does not fit, the others wait, too: a large write must get its turn.
            if batch and (rest or not fits or not named.isdisjoint(wanted)):
                rest.append(one)
                continue
            batch.append(one)
            named |= wanted
            operations += len(one.write.operations)
            size_bytes += one.size_bytes
        self._waiting = rest
        return batch

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        groups = deque([batch])
        try:
            while groups:
                group = [one for one in groups.popleft() if not one.outcome.done()]
                if group:
                    groups.extendleft(await self._transact(group))
        finally:
            for one in batch:
                one.resolve(
                    StoreIndeterminateError(f"the transaction with {one.write.compare.key} was cancelled")
                )
            self._ended()

    async def _transact(self, group: Sequence[_Waiting]) -> list[Sequence[_Waiting]]:
        """Send one transaction, resolve its writes, and return those to be sent again, in groups."""
        # Several may have the same `also`, such as the owner of one shard.
        compares = list(dict.fromkeys(compare for one in group for compare in one.write.compares))
        operations = [operation for one in group for operation in one.write.operations]
        try:
            result = await self._store.transact(compares, operations)
            failed = set() if result.succeeded else _failed(compares, result.found)
        except ValueError as refusal:
            # Refused as a whole, and nothing was done: a part of it may be accepted.
            if len(group) > 1:
                middle = len(group) // 2
                return [group[middle:], group[:middle]]
            group[0].resolve(refusal)
            return []
        except Exception as problem:  # noqa: BLE001 - each of them raises it
            for one in group:
                one.resolve(problem)
            return []
        if result.succeeded:
            for one in group:
                one.resolve(result)
            return []
        found = dict(zip(compares, result.found, strict=True))
        for one in group:
            if not failed.isdisjoint(one.write.compares):
                answer = tuple(found[compare] for compare in one.write.compares)
                one.resolve(TransactionResult(succeeded=False, revision=result.revision, found=answer))
        return [[one for one in group if not one.outcome.done()]]


def _failed(compares: Sequence[Compare], found: Sequence[KeyValue | None]) -> set[Compare]:
    """The compares that did not hold.

    Raises `StoreUnavailableError` if the store says that one failed, and none can have.
    """
    failed = {
        compare
        for compare, item in zip(compares, found, strict=True)
        if (0 if item is None else item.mod_revision) != compare.mod_revision
    }
    if not failed:
        raise StoreUnavailableError(
            f"the metadata store refused a transaction of {len(compares)} writes, and every compare holds"
        )
    return failed
