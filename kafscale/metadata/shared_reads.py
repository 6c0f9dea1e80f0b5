"""Reads of a few keys each that become ready at about the same time share one request to the store."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from kafscale.errors import StoreIndeterminateError
from kafscale.metadata.store import KeyValue, MetadataStore, read_many
from kafscale.tasks.owner import TaskOwner

_Answer = asyncio.Future[Mapping[str, KeyValue]]


class SharedReads:
    """One request in flight; what is asked for meanwhile goes into the next ones, together."""

    def __init__(self, store: MetadataStore, name: str = "shared reads") -> None:
        """`name`: of the task, in the log."""
        self._store = store
        self._name = name
        self._waiting: deque[tuple[Sequence[str], _Answer]] = deque()
        self._is_running = False
        self._tasks = TaskOwner()

    async def read(self, keys: Sequence[str]) -> Mapping[str, KeyValue]:
        """The entries of `keys`, and perhaps others, as of one moment after this call; absent keys are left out.

        At most `max_operations` keys. Raises as `MetadataStore.get`.
        """
        if len(keys) > self._store.max_operations:
            raise ValueError(f"{len(keys)} keys in one read; at most {self._store.max_operations} are legal")
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((keys, answer))
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), self._name)
        return await answer

    async def close(self) -> None:
        """Cancel the request in flight: those that wait get `StoreIndeterminateError`."""
        await self._tasks.close()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._read_batch()
        finally:
            self._is_running = False
            _fail(self._waiting, StoreIndeterminateError("the reader was closed"))
            self._waiting.clear()

    async def _read_batch(self) -> None:
        wanted: dict[str, None] = {}
        batch: list[tuple[Sequence[str], _Answer]] = []
        while self._waiting:
            keys, answer = self._waiting[0]
            added = [key for key in keys if key not in wanted]
            if len(wanted) + len(added) > self._store.max_operations:
                break
            self._waiting.popleft()
            if not answer.done():
                wanted.update(dict.fromkeys(added))
                batch.append((keys, answer))
        try:
            found = await read_many(self._store, tuple(wanted)) if wanted else {}
        except asyncio.CancelledError:
            _fail(batch, StoreIndeterminateError("the reader was closed"))
            raise
        except Exception as problem:  # noqa: BLE001 - each of them raises it
            _fail(batch, problem)
            return
        for _, answer in batch:
            if not answer.done():
                answer.set_result(found)


def _fail(waiting: Iterable[tuple[Sequence[str], _Answer]], problem: Exception) -> None:
    for _, answer in waiting:
        if not answer.done():
            answer.set_exception(problem)
