"""Publications of different partitions that become ready at about the same time share one transaction.

docs/decisions/0034-shared-publications.md says why. Theory of operation. While fewer than a few transactions are
under way a publication has one of its own, at once. Those that come meanwhile wait together, and go together as
soon as a transaction ends. Each is told what it would have been told alone: when the condition of one does not
hold, nothing was done, the one hears so, and the others are sent again at once.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from kafscale.errors import StoreIndeterminateError
from kafscale.log.writing.publication_batch import Publication, answers, next_batch
from kafscale.metadata.store import MetadataStore, TransactionResult
from kafscale.tasks.owner import TaskOwner

TRANSACTIONS_AT_ONCE = 2
"""More would share less; with one, whoever comes while it is under way waits for all of the rest of it."""

MAX_BATCH_BYTES = 512 * 1024
"""A third of what etcd takes in one request by default."""


class _Waiting:
    """A publication and who waits for its outcome: nobody any more once that is cancelled."""

    __slots__ = ("outcome", "publication")

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.outcome: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()

    def tell(self, answer: TransactionResult | Exception) -> None:
        if self.outcome.done():
            return
        if isinstance(answer, Exception):
            self.outcome.set_exception(answer)
        else:
            self.outcome.set_result(answer)


class SharedPublications:
    """Makes publications with as few transactions as come together by themselves."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._waiting: list[_Waiting] = []
        self._under_way = 0
        self._tasks = TaskOwner()

    async def publish(self, publication: Publication) -> TransactionResult:
        """The result of a transaction with this publication alone, of which it may be a part.

        Raises as `MetadataStore.transact`. After a cancellation nobody knows whether it was made.
        """
        if self._under_way >= TRANSACTIONS_AT_ONCE:
            waiting = _Waiting(publication)
            self._waiting.append(waiting)
            return await waiting.outcome
        self._under_way += 1
        try:
            return await self._metadata.transact([publication.compare], [publication.put])
        finally:
            self._ended()

    async def close(self) -> None:
        """End what is under way, whether done or not."""
        await self._tasks.close()

    def _ended(self) -> None:
        """A transaction has ended: those that waited for one go."""
        self._under_way -= 1
        while self._under_way < TRANSACTIONS_AT_ONCE and (batch := self._take()):
            self._under_way += 1
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
                one.tell(StoreIndeterminateError(f"the transaction with {one.publication.key} was given up"))
            self._ended()

    async def _transact(self, group: Sequence[_Waiting]) -> list[Sequence[_Waiting]]:
        """One transaction; tells what came of it, and returns those that are to be sent again, in groups."""
        try:
            told = await self._answers([one.publication for one in group])
        except ValueError as refusal:
            # Nothing was done, of all together: of some of them it may be.
            if len(group) > 1:
                middle = len(group) // 2
                return [group[middle:], group[:middle]]
            group[0].tell(refusal)
            return []
        except Exception as problem:  # noqa: BLE001 - each of them raises it
            for one in group:
                one.tell(problem)
            return []
        again = []
        for one, answer in zip(group, told, strict=True):
            if answer is None:
                again.append(one)
            else:
                one.tell(answer)
        return [again]

    async def _answers(self, publications: Sequence[Publication]) -> list[TransactionResult | None]:
        compares = [publication.compare for publication in publications]
        puts = [publication.put for publication in publications]
        return answers(publications, await self._metadata.transact(compares, puts))
