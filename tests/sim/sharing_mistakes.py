"""Mistakes in publications that share a transaction, put in on purpose (see cluster_mistakes.py)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafscale.log.writing import shared_publications
from kafscale.log.writing.publication_batch import Publication, answers
from kafscale.log.writing.shared_publications import SharedPublications
from kafscale.metadata.store import TransactionResult
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
"""A plan in which most publications share a transaction, and some of those transactions fail for a part of them."""


def others_taken_for_published(patch: pytest.MonkeyPatch) -> None:
    """The condition of one does not hold: that one is told, and the others as if they had been published."""

    def hopeful(batch: Sequence[Publication], result: TransactionResult) -> list[TransactionResult | None]:
        published = TransactionResult(succeeded=True, revision=result.revision)
        return [answer or published for answer in answers(batch, result)]

    patch.setattr(shared_publications, "answers", hopeful)


def condition_of_the_first_alone(patch: pytest.MonkeyPatch) -> None:
    """A shared transaction compares the record of one of its partitions only."""

    async def careless(
        self: SharedPublications, publications: Sequence[Publication]
    ) -> list[TransactionResult | None]:
        puts = [publication.put for publication in publications]
        result = await self._metadata.transact([publications[0].compare], puts)
        return answers(publications[:1], result) + [
            result if result.succeeded else None for _ in publications[1:]
        ]

    patch.setattr(SharedPublications, "_answers", careless)


SHARING_MISTAKES: dict[Plant, dict[str, Any]] = {
    others_taken_for_published: SHARING,
    condition_of_the_first_alone: SHARING,
}
"""Every mistake, and the plan that lets it show."""
