"""The rest of a transaction, as a group's coordinator meets it: who is in it, and how it ends."""

import asyncio
from contextlib import aclosing
from typing import Final

from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.groups.participation import Participation
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import KafkaError
from tests.support.waiting import PATIENCE_SEC

PRODUCER_ID: Final = 7
Asked = tuple[str, int, int, str | None, bool]


class OpenTransactions:
    """A `Participation` that agrees unless it is told otherwise.

    `asked`: transactional id, producer id, epoch, group, and whether the group is to be added. `refusal`: raised
    from now on. `hold`: the answer waits for it; `reached` is set meanwhile. `real`: asked instead, if there is one.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.refusal: KafkaError | None = None
        self.hold: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.real: Participation | None = None

    async def check(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        group_id: str | None = None,
        adds: bool,
        knows_abortable: bool = False,
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, group_id, adds))
        if self.hold is not None:
            self.reached.set()
            await self.hold.wait()
        if self.refusal is not None:
            raise self.refusal
        if self.real is not None:
            await self.real.check(
                transactional_id,
                producer_id,
                producer_epoch,
                group_id=group_id,
                adds=adds,
                knows_abortable=knows_abortable,
            )


def marker(commit: bool, *, epoch: int = 0) -> MarkerRecord:
    """The end of a transaction."""
    return MarkerRecord(
        transactional_id=f"copier-{PRODUCER_ID}",
        commit=commit,
        producer_epoch=epoch,
        coordinator_epoch=1,
        transaction_version=1,
        decided_ms=1_700_000_000_000,
    )


async def end(
    store: MemoryStore,
    group_id: str,
    *,
    commit: bool,
    producer_id: int = PRODUCER_ID,
    epoch: int = 0,
) -> None:
    """Put the marker, as the transaction's coordinator does with its decision; whatever state the store is in."""
    value = encode_marker_record(marker(commit, epoch=epoch))
    await MemoryStore.transact(store, [], [Put(keys.group_marker(group_id, producer_id), value)])


async def until_gone(store: MemoryStore, prefix: str) -> None:
    """Return once there is no key with the prefix."""
    async with aclosing(MemoryStore.watch(store, prefix)) as events, asyncio.timeout(PATIENCE_SEC):
        async for _ in events:
            if not (await MemoryStore.range(store, prefix)).items:
                return
