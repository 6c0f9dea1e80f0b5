"""Sequence errors of idempotent producers, which only a broker that certainly leads may answer.

A leader that was replaced and does not know it yet has outdated producer states. A client that returns to it with a
later sequence would take its refusal for final, as a leader's refusals are.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kafscale.errors import CorruptDataError, StoreError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.store_deadline import store_deadline

logger = logging.getLogger(__name__)

BY_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The errors that depend on the state of the producer."""

Refuse = Callable[[bool], None]
"""Called with whether this broker leads."""


class SequenceErrorCheck:
    """One read of the metadata store at a time for each partition, shared by all refusals of it."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._waiting: dict[Partition, list[Refuse]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def after_leader_check(self, partition: Partition, refuse: Refuse) -> None:
        """Call `refuse` when the store has answered; while it is away this broker does not count as leader."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.append(refuse)
            return
        self._waiting[partition] = [refuse]
        task = asyncio.create_task(self._answer(partition), name=f"leader of {partition.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, partition: Partition) -> None:
        try:
            # A refusal that arrives during a read needs another read: that one may show an older state.
            while self._waiting[partition]:
                refusals, self._waiting[partition] = self._waiting[partition], []
                leads = False
                try:
                    leads = await self._leads(partition)
                finally:
                    for refuse in refusals:
                        refuse(leads)
        finally:
            for refuse in self._waiting.pop(partition):
                refuse(False)

    async def _leads(self, partition: Partition) -> bool:
        try:
            async with store_deadline():
                return await self._logs.is_leader_still(partition)
        except (StoreError, CorruptDataError) as problem:
            logger.warning(
                "could not check the leader of a partition",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
            return False

    async def close(self) -> None:
        """Refuse the requests that wait."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
