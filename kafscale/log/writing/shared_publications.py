"""Publications of different partitions that become ready at about the same time share one transaction.

docs/decisions/0034-shared-publications.md says why. Theory of operation. While fewer than
`TRANSACTIONS_AT_ONCE` are in flight, a publication has a transaction of its own, at once. Later ones wait, and share
the next transaction as soon as one ends. Each gets the result that it would have got alone: if the condition of one
fails, the transaction did nothing, that one fails, and the others are sent again at once.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from kafscale.errors import StoreIndeterminateError
from kafscale.log.writing.publication_batch import Publication, answers, next_batch
from kafscale.metadata.store import MetadataStore, TransactionResult
from kafscale.tasks.owner import TaskOwner

TRANSACTIONS_AT_ONCE = 2
"""With more, fewer publications share; with one, a publication would wait for all of the transaction in flight."""

MAX_BATCH_BYTES = 512 * 1024
"""A third of what etcd takes in one request by default."""


class _Waiting:
    """A publication that waits for its transaction; `outcome` is done early if its waiter was cancelled."""

    __slots__ = ("outcome", "publication")

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.outcome: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: TransactionResult | Exception) -> None:
        if self.outcome.done():
            return
        if isinstance(answer, Exception):
            self.outcome.set_exception(answer)
        else:
            self.outcome.set_result(answer)


class SharedPublications:
    """Makes publications, several with one transaction while enough transactions are in flight."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._waiting: list[_Waiting] = []
        self._in_flight = 0
        self._tasks = TaskOwner()

    async def publish(self, publication: Publication) -> TransactionResult:
        """Make the publication, and return the result that a transaction with it alone would have had.

        Raises as `MetadataStore.transact`. After a cancellation the outcome is unknown.
        """
        if self._in_flight >= TRANSACTIONS_AT_ONCE:
            waiting = _Waiting(publication)
            self._waiting.append(waiting)
            return await waiting.outcome
        self._in_flight += 1
        try:
            return await self._metadata.transact([publication.compare], [publication.put])
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
            self._tasks.spawn(self._send(batch), "shared publications")

    def _take(self) -> list[_Waiting]:
        waiting = [one for one in self._waiting if not one.outcome.done()]
        places = next_batch(
            (one.publication for one in waiting), self._metadata.max_operations, MAX_BATCH_BYTES
        )
        batch = [waiting[place] for place in places]
        taken = set(places)
        self._waiting = [one for place, one in enumerate(waiting) if place not in taken]
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
                    StoreIndeterminateError(f"the transaction with {one.publication.key} was cancelled")
                )
            self._ended()

    async def _transact(self, group: Sequence[_Waiting]) -> list[Sequence[_Waiting]]:
        """Send one transaction, resolve its publications, and return those to be sent again, in groups."""
        try:
            found = await self._answers([one.publication for one in group])
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
        for one, answer in zip(group, found, strict=True):
            if answer is None:
                again.append(one)
            else:
                one.resolve(answer)
        return [again]

    async def _answers(self, publications: Sequence[Publication]) -> list[TransactionResult | None]:
        compares = [publication.compare for publication in publications]
        puts = [publication.put for publication in publications]
        return answers(publications, await self._metadata.transact(compares, puts))
