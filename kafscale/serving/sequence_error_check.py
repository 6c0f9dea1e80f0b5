"""Sequence errors of idempotent producers, which only a broker that certainly leads may answer.

A leader that was replaced and does not know it yet has outdated producer states. A client that returns to it with a
later sequence would take its refusal for final, as a leader's refusals are.
"""

import logging
from collections.abc import Callable
from typing import Final

from kafscale.errors import CorruptDataError, StoreError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.keyed_wait import KeyedWait

logger = logging.getLogger(__name__)

BY_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The errors that depend on the state of the producer."""

Refuse = Callable[[bool], None]
"""Called with whether this broker leads."""


class SequenceErrorCheck:
    """One read of the metadata store at a time for each partition, shared by all refusals of it."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        # A callback that is added during a question needs another: the answer may show how things were before.
        self._questions: KeyedWait[Partition, bool] = KeyedWait("leader of", self._leads, False, joins=False)

    def after_leader_check(self, partition: Partition, refuse: Refuse) -> None:
        """Call `refuse` when the store has answered; while it is away this broker does not count as leader."""
        self._questions.add(partition, refuse)

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
        await self._questions.close()
