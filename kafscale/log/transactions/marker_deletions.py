"""Deletes the keys of markers that are committed, many with one transaction of the metadata store.

Each deletion compares the key with what its leader saw, and the leader's own key with its claim: a leader that was
replaced and does not know it cannot say that nothing is open any more.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.errors import StoreError
from kafscale.metadata.store import Compare, Delete, KeyValue, MetadataStore
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_RETRY_SEC: Final = 0.5
_MOST_AT_ONCE: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerDeletion:
    """A key to delete. `ended` is called with True once the key is gone or changed, False if another broker leads."""

    key: str
    revision: int
    leader_key: str
    leader_revision: int
    ended: Callable[[bool], None]


class MarkerDeletions:
    """The deletions of one broker, in the order in which they are asked for."""

    def __init__(self, store: MetadataStore, retry_sec: float = _RETRY_SEC) -> None:
        self._store = store
        self._retry_sec = retry_sec
        self._waiting: deque[MarkerDeletion] = deque()
        # Not the owner's word: a task that has ended is the owner's for one more turn of the event loop.
        self._is_running = False
        self._tasks = TaskOwner()

    def add(self, deletion: MarkerDeletion) -> None:
        """Delete the key soon."""
        self._waiting.append(deletion)
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), "marker deletions")

    async def _run(self) -> None:
        most = max(1, min(_MOST_AT_ONCE, self._store.max_operations // 2))
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
                while batch:
                    batch = await self._delete(batch)
        finally:
            self._is_running = False

    async def _delete(self, batch: Sequence[MarkerDeletion]) -> list[MarkerDeletion]:
        """One transaction; returns those that are to be tried again."""
        leaders: dict[str, int] = {}
        for one in batch:
            leaders.setdefault(one.leader_key, one.leader_revision)
        later = [one for one in batch if leaders[one.leader_key] != one.leader_revision]
        batch = [one for one in batch if leaders[one.leader_key] == one.leader_revision]
        compares = [Compare(one.key, one.revision) for one in batch]
        compares += [Compare(key, revision) for key, revision in leaders.items()]
        try:
            result = await self._store.transact(compares, [Delete(one.key) for one in batch])
        except StoreError as problem:
            # Perhaps it was done: then the keys are found to be gone.
            logger.debug("markers were not deleted", extra={"count": len(batch), "problem": str(problem)})
            await asyncio.sleep(self._retry_sec)
            return [*batch, *later]
        if result.succeeded:
            for one in batch:
                one.ended(True)
            return later
        return [*_left(batch, result.found), *later]

    async def close(self) -> None:
        """Cancel the deletions: who leads next makes them."""
        self._waiting.clear()
        await self._tasks.close()


def _left(batch: Sequence[MarkerDeletion], found: Sequence[KeyValue | None]) -> list[MarkerDeletion]:
    """Those of a refused transaction whose conditions hold; the others are ended."""
    revisions = {item.key: item.mod_revision for item in found if item is not None}
    left = []
    for one in batch:
        if revisions.get(one.key) != one.revision:
            one.ended(True)
        elif revisions.get(one.leader_key) != one.leader_revision:
            one.ended(False)
        else:
            left.append(one)
    return left
