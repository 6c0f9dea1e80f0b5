"""Conditional writes that become ready at about the same time share one store transaction.

docs/decisions/0034-shared-publications.md says why. Theory of operation. While fewer than `transactions_at_once` are
in flight, a write has a store transaction of its own, at once. Later ones wait, and share the next as soon as one
ends. Each gets the result that it would have got alone: if the condition of one fails, the transaction did nothing,
that one fails, and the others are sent again at once. What shares, and what a result says of each, is decided in
`write_batch`.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from kafscale.errors import StoreIndeterminateError
from kafscale.metadata.store import MetadataStore, TransactionResult
from kafscale.metadata.write_batch import MAX_TRANSACTION_BYTES, Write, WriteBatch, answers, joined_compares
from kafscale.tasks.owner import TaskOwner

TRANSACTIONS_AT_ONCE: Final = 2
"""With more, fewer writes share; with one, a write would wait for all of the transaction in flight."""


class _Waiting:
    """A write that waits for its transaction; `outcome` is done early if its waiter was cancelled."""

    __slots__ = ("outcome", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
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
        """As many as may share a transaction. After one that may not, the others wait, too: it must get its turn."""
        batch = WriteBatch(self._store.max_operations, MAX_TRANSACTION_BYTES)
        taken = []
        while self._waiting:
            one = self._waiting[0]
            if not one.outcome.done():
                if not batch.takes(one.write):
                    break
                taken.append(one)
            self._waiting.popleft()
        return taken

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
        try:
            each = await self._answers([one.write for one in group])
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
        again = []
        for one, answer in zip(group, each, strict=True):
            if answer is None:
                again.append(one)
            else:
                one.resolve(answer)
        return [again]

    async def _answers(self, writes: Sequence[Write]) -> list[TransactionResult | None]:
        compares = joined_compares(writes)
        operations = [operation for one in writes for operation in one.operations]
        return answers(writes, compares, await self._store.transact(compares, operations))
