"""Mistakes around transactions, put in on purpose: a simulation that does not find them proves nothing."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kafscale.formats.aborted_transactions import AbortedTransactions
from kafscale.formats.marker_record import decode_marker_record
from kafscale.formats.partition_transactions import PartitionTransactions
from kafscale.groups import group_markers
from kafscale.log import partition
from kafscale.log.producer_state import ProducerStates
from kafscale.metadata.store import Operation
from kafscale.transactions.awaited_markers import AwaitedMarkers
from kafscale.transactions.record_driver import RecordDriver
from tests.sim.links import Conditions
from tests.sim.transaction_plans import TRANSACTIONS

Plant = Callable[[pytest.MonkeyPatch], None]


def decision_without_a_compare(patch: pytest.MonkeyPatch) -> None:
    """A record is replaced, whatever it is by then."""

    async def write(self: Any, key: str, revision: int, operations: tuple[Operation, ...], owner: Any) -> int:
        result = await self._store.transact([], operations)
        return int(result.revision)

    patch.setattr(RecordDriver, "_write", write)


def completed_before_its_markers(patch: pytest.MonkeyPatch) -> None:
    """A transaction is complete as soon as it is decided."""
    patch.setattr(AwaitedMarkers, "is_done", lambda self, transactional_id: True)


def no_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    """Consumers that read committed see what is open."""
    patch.setattr(PartitionTransactions, "last_stable_offset", lambda self, start, end: end)


def aborted_transactions_kept_back(patch: pytest.MonkeyPatch) -> None:
    """Consumers do not receive the list of what was aborted."""
    patch.setattr(AbortedTransactions, "between", lambda self, first_offset, end_offset: [])


def open_transactions_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not know what is open in its log."""
    patch.setattr(partition, "ProducerStates", lambda records=(), opened=(): ProducerStates(records))


def aborted_offsets_made_visible(patch: pytest.MonkeyPatch) -> None:
    """A group's coordinator takes each end of a transaction for a commit."""
    truly = decode_marker_record
    patch.setattr(
        group_markers,
        "decode_marker_record",
        lambda name, data: dataclasses.replace(truly(name, data), commit=True),
    )


_SMALL: dict[str, Any] = {**TRANSACTIONS, "topics": {"t": 1}, "brokers": 2, "outputs": 1, "stops_well": False}
TRANSACTION_MISTAKES: dict[Plant, dict[str, Any]] = {
    decision_without_a_compare: {**_SMALL, "metadata": Conditions(longest_delay=0.3, timeout=1.0)},
    completed_before_its_markers: _SMALL,
    no_last_stable_offset: _SMALL,
    aborted_transactions_kept_back: _SMALL,
    open_transactions_forgotten: _SMALL,
    aborted_offsets_made_visible: _SMALL,
}
"""The model (tests/sim/transactions) finds those that take a rare order of events."""
