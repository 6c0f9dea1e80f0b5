"""Mistakes in writes of partition records that share a transaction, put in on purpose (see cluster_mistakes.py)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafscale.metadata import shared_writes
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import Compare, TransactionResult
from kafscale.metadata.write_batch import Write, answers
from tests.sim.links import Conditions
from tests.sim.simulated_producers import Load

Plant = Callable[[pytest.MonkeyPatch], None]

SHARING: dict[str, Any] = {
    "topics": {"t": 9},
    "brokers": 2,
    "transactions_at_once": 1,
    "flush_interval_ms": 0,
    "lease_ttl": 2,
    "kinds": ("late upload", "pause", "add broker"),
    "troubles": 8,
    "longest_calm": 2.0,
    "idempotent_producers": 1,
    "plain_producers": 0,
    "consumers": 1,
    "metadata": Conditions(longest_delay=0.3, fault_rate=0.35, latest_effect=1.0, timeout=0.3),
    "objects": Conditions(longest_delay=0.02),
    "load": Load(batches=6, longest_pause=0.1),
    "stops_well": False,
}
"""A plan in which most records share a transaction, and some of those transactions fail for a part of them."""


def others_taken_for_published(patch: pytest.MonkeyPatch) -> None:
    """The condition of one does not hold: that one is told, and the others as if they had been written."""

    def hopeful(
        writes: Sequence[Write], compares: Sequence[Compare], result: TransactionResult
    ) -> list[TransactionResult | None]:
        written = TransactionResult(succeeded=True, revision=result.revision)
        return [answer or written for answer in answers(writes, compares, result)]

    patch.setattr(shared_writes, "answers", hopeful)


def condition_of_the_first_alone(patch: pytest.MonkeyPatch) -> None:
    """A shared transaction compares the record of one of its partitions only."""

    async def careless(self: SharedWrites, writes: Sequence[Write]) -> list[TransactionResult | None]:
        compares = writes[0].compares
        operations = [operation for one in writes for operation in one.operations]
        result = await self._store.transact(compares, operations)
        return answers(writes[:1], compares, result) + [
            result if result.succeeded else None for _ in writes[1:]
        ]

    patch.setattr(SharedWrites, "_answers", careless)


SHARING_MISTAKES: dict[Plant, dict[str, Any]] = {
    others_taken_for_published: SHARING,
    condition_of_the_first_alone: SHARING,
}
"""Every mistake, and the plan that lets it show."""
