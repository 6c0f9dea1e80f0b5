"""Refusals of produce for a producer's sequence, which are only told by a broker that is sure that it leads.

A leader that was replaced and does not know it yet has an old picture of the producers. A client that has come back
to it with a later sequence would take its refusal for final, as those of a leader are.
"""

import logging
from collections.abc import Callable
from typing import Final

from kafscale.errors import CorruptDataError, StoreError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

BY_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})
"""What a leader answers by what it knows of the producer."""

Refuse = Callable[[bool], None]
"""Called with whether this broker leads."""


class SequenceRefusals:
    """One question to the metadata store at a time for each partition, for all whose refusal depends on it."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._waiting: dict[Partition, list[Refuse]] = {}
        self._tasks = TaskOwner()

    def when_sure(self, partition: Partition, refuse: Refuse) -> None:
        """Call `refuse` once the store has told; while it is away this broker does not count as leader."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.append(refuse)
            return
        self._waiting[partition] = [refuse]
        self._tasks.spawn(self._answer(partition), f"leader of {partition.id}")

    async def _answer(self, partition: Partition) -> None:
        try:
            # Who comes while a question is on its way needs another: that one may tell how things were before.
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
                "could not make sure of leading",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
            return False

    async def close(self) -> None:
        """Refuse what waits."""
        await self._tasks.close()
