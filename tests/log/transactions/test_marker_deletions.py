"""Deletions of marker keys: each that is asked for is made, whenever it is asked for."""

import asyncio
from collections.abc import Callable

from kafscale.log.transactions.marker_deletions import MarkerDeletion, MarkerDeletions
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from tests.support.waiting import PATIENCE_SEC

LEADER = "leaders/t/0"
KEYS = ("partition-markers/t/0/1", "partition-markers/t/0/2")


async def test_deletion_asked_for_as_the_last_one_ends_is_made() -> None:
    """Found by the simulation of clusters: the task had ended, and its owner did not know it yet."""
    store = MemoryStore()
    revision = (await store.transact([], [Put(key, b"") for key in KEYS])).revision
    leader_revision = (await store.transact([], [Put(LEADER, b"")])).revision
    deletions = MarkerDeletions(store)
    loop = asyncio.get_running_loop()
    all_ended: asyncio.Future[bool] = loop.create_future()

    def deletion(key: str, ended: Callable[[bool], None]) -> MarkerDeletion:
        return MarkerDeletion(
            key=key,
            revision=revision,
            leader_key=LEADER,
            leader_revision=leader_revision,
            ended=ended,
        )

    second = deletion(KEYS[1], all_ended.set_result)

    def first_ended(_: bool) -> None:
        # In the next turn of the loop, before the owner hears in it of the task's end.
        loop.call_soon(deletions.add, second)

    deletions.add(deletion(KEYS[0], first_ended))
    assert await asyncio.wait_for(all_ended, PATIENCE_SEC)
    assert (await store.range("partition-markers/")).items == ()
    await deletions.close()
    await store.close()
