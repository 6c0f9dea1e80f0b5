"""Conditional writes that become ready at about the same time share one store transaction.

As publications of partitions do (docs/decisions/0034-shared-publications.md), but a write may have several compares
and several operations. While fewer than `transactions_at_once` are in flight, a write has a store transaction of its
own, at once. Later ones wait, and share the next as soon as one ends. Each gets the result that it would have got
alone: if the condition of one fails, nothing was done, that one fails, and the others are sent again.
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


def _compares_bytes(compares: Sequence[Compare]) -> int:
    """An upper estimate of what the compares add: each is read where one fails."""
    return sum(_OVERHEAD_BYTES + 2 * len(one.key.encode()) for one in compares)


@dataclass(frozen=True, slots=True)
class Write:
    """The operations, if all compares hold. No key is named twice among the compares, nor among the operations."""

    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]


class _Waiting:
    """A write that waits for its transaction; `outcome` is done early if its waiter was cancelled."""

    __slots__ = ("outcome", "size_bytes", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.size_bytes = request_bytes(write.operations) + _compares_bytes(write.compares)
        self.outcome: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: TransactionResult | Exception) -> None:
        if self.outcome.done():
            return
        if isinstance(answer, Exception):
            self.outcome.set_exception(answer)
        else:
            self.outcome.set_result(answer)


class _Batch:
    """Writes that go into one transaction."""

    def __init__(self, max_operations: int, max_bytes: int) -> None:
        self.writes: list[_Waiting] = []
        self._max_operations = max_operations
        self._max_bytes = max_bytes
        self._compares: set[Compare] = set()
        self._compared: set[str] = set()
        self._changed: set[str] = set()
        self._size_bytes = 0

    def has_room(self, waiting: _Waiting) -> bool:
        """True if the transaction stays within the limits; the first write always does."""
        write = waiting.write
        new_compares = sum(one not in self._compares for one in write.compares)
        return not self.writes or (
            len(self._changed) + len(write.operations) <= self._max_operations
            and len(self._compares) + new_compares <= self._max_operations
            and self._size_bytes + waiting.size_bytes <= self._max_bytes
        )

    def is_independent(self, write: Write) -> bool:
        """True if neither changes what the other compares or changes."""
        return all(
            one.key not in self._changed and one.key not in self._compared for one in write.operations
        ) and all(one.key not in self._changed for one in write.compares)

    def add(self, waiting: _Waiting) -> None:
        write = waiting.write
        self.writes.append(waiting)
        self._compares.update(write.compares)
        self._compared.update(one.key for one in write.compares)
        self._changed.update(one.key for one in write.operations)
        self._size_bytes += waiting.size_bytes


class SharedWrites:
    """Makes writes, several with one store transaction while enough transactions are in flight."""

    def __init__(
        self,
        store: MetadataStore,
        transactions_at_once: int = TRANSACTIONS_AT_ONCE,
        name: str = "shared writes",
    ) -> None:
        """`name`: of the tasks, in the log."""
        self._store = store
        self._transactions_at_once = transactions_at_once
        self._name = name
        self._waiting: deque[_Waiting] = deque()
        self._in_flight = 0
        self._tasks = TaskOwner()

    @property
    def max_operations(self) -> int:
        """How many operations a write may have, and how many compares."""
        return self._store.max_operations

    async def write(self, write: Write) -> TransactionResult:
        """Make the write, and return the result that a store transaction with it alone would have had.

        Raises as `MetadataStore.transact`. After a cancellation the outcome is unknown.
        """
        if self._in_flight >= self._transactions_at_once:
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
        while self._in_flight < self._transactions_at_once and (batch := self._take()):
            self._in_flight += 1
            self._tasks.spawn(self._send(batch), self._name)

    def _take(self) -> list[_Waiting]:
        """Take as many writes as fit into one transaction, which names no key twice; the first always does."""
        batch = _Batch(self._store.max_operations, MAX_TRANSACTION_BYTES)
        while self._waiting:
            one = self._waiting[0]
            if not one.outcome.done():
                # After one that does not fit, the others wait, too: a large write must get its turn.
                if not batch.has_room(one) or not batch.is_independent(one.write):
                    break
                batch.add(one)
            self._waiting.popleft()
        return batch.writes

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        groups = deque([batch])
        try:
            while groups:
                group = [one for one in groups.popleft() if not one.outcome.done()]
                if group:
                    groups.extendleft(await self._transact(group))
        finally:
            for one in batch:
                key = one.write.operations[0].key if one.write.operations else "no operations"
                one.resolve(StoreIndeterminateError(f"the transaction with {key} was cancelled"))
            self._ended()

    async def _transact(self, group: Sequence[_Waiting]) -> list[Sequence[_Waiting]]:
        """Send one transaction, resolve its writes, and return those to be sent again, in groups."""
        # Several may have the same compare, such as the owner of one shard.
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
            f"the metadata store refused a transaction of {len(compares)} compares, and every one holds"
        )
    return failed
