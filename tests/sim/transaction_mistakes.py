"""Mistakes around transactions, put in on purpose: a simulation that does not find them proves nothing."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafscale.formats.aborted_transactions import AbortedTransactions
from kafscale.formats.partition_transactions import PartitionTransactions
from kafscale.groups import group_markers, transactional_commits
from kafscale.log import partition
from kafscale.log.producer_state import ProducerStates
from kafscale.log.transactions import marker_deletions, markers
from kafscale.log.transactions.verifications import Verifications
from kafscale.metadata import keys
from kafscale.metadata.store import Compare, MetadataStore, Operation
from kafscale.serving import produce_appender
from kafscale.transactions import epochs
from kafscale.transactions.awaited_markers import AwaitedMarkers
from kafscale.transactions.record_driver import RecordDriver
from tests.sim.links import Conditions
from tests.sim.simulated_producers import Load
from tests.sim.simulated_transactions import TransactionLoad
from tests.sim.transaction_plans import TRANSACTIONS

Plant = Callable[[pytest.MonkeyPatch], None]


class _NoLeaderCompares:
    """A metadata store that does not look at leaders' keys."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @property
    def max_operations(self) -> int:
        return self._store.max_operations

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Any:
        compares = [one for one in compares if not one.key.startswith(keys.LEADERS)]
        return await self._store.transact(compares, operations)


def marker_key_deleted_by_a_former_leader(patch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced says that nothing of a producer is open."""
    truly = marker_deletions.MarkerDeletions.__init__

    def careless(self: Any, store: Any, *rest: Any) -> None:
        truly(self, _NoLeaderCompares(store), *rest)  # type: ignore[arg-type]

    patch.setattr(marker_deletions.MarkerDeletions, "__init__", careless)


def old_marker_key_believed(patch: pytest.MonkeyPatch) -> None:
    """A new leader handles what its watch showed before it was elected."""
    truly = markers.next_step
    patch.setattr(markers, "next_step", lambda **known: truly(**{**known, "is_read_back": True}))


def marker_key_deleted_beside_its_marker(patch: pytest.MonkeyPatch) -> None:
    """A key is deleted as soon as its marker is appended."""
    truly = markers.next_step
    patch.setattr(markers, "next_step", lambda **known: truly(**{**known, "is_in_flight": False}))


def verification_outlives_a_marker(patch: pytest.MonkeyPatch) -> None:
    """A batch is appended though its transaction was ended since the question."""
    patch.setattr(Verifications, "invalidate", lambda self, partition_number, producer_id: None)


def batch_without_verification(patch: pytest.MonkeyPatch) -> None:
    """A batch is appended whatever its transaction is."""
    patch.setattr(produce_appender, "needs_verification", lambda log, header: False)


def decision_without_a_compare(patch: pytest.MonkeyPatch) -> None:
    """A record is replaced, whatever it is by then."""

    async def write(self: Any, key: str, mod_revision: int, operations: tuple[Operation, ...]) -> int:
        result = await self._store.transact([], operations)
        return int(result.revision)

    patch.setattr(RecordDriver, "_write", write)


def completed_before_its_markers(patch: pytest.MonkeyPatch) -> None:
    """A transaction is complete as soon as it is decided."""
    patch.setattr(AwaitedMarkers, "is_done", lambda self, transactional_id: True)


def fence_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    """A transaction that is aborted for its time, or for another instance, leaves its producer the epoch."""
    truly = epochs._fence

    def careless(record: Any, event: Any, then: Any) -> Any:
        decision = truly(record, event, then)
        if not isinstance(decision, epochs.Store):
            return decision
        aborting = dataclasses.replace(decision.record, producer_epoch=record.producer_epoch)
        return epochs.Store(aborting, then)

    patch.setattr(epochs, "_fence", careless)


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
    truly = group_markers.decode_marker_record
    patch.setattr(
        group_markers,
        "decode_marker_record",
        lambda name, data: dataclasses.replace(truly(name, data), commit=True),
    )


def pending_offsets_after_their_marker(patch: pytest.MonkeyPatch) -> None:
    """Offsets are stored as pending though their transaction was ended since the question."""
    patch.setattr(transactional_commits, "_check_verified", lambda verification: None)


_SMALL: dict[str, Any] = {**TRANSACTIONS, "topics": {"t": 1}, "brokers": 2, "outputs": 1, "stops_well": False}
_OLD_PROTOCOL: dict[str, Any] = {
    **_SMALL,
    "jobs": (TransactionLoad(version=1, transactions=12, longest_pause=0.3, timeout=4.0),),
    "load": Load(batches=40, longest_pause=0.3),
}
_GOOD = Conditions(longest_delay=0.02)
_SLOW_WATCHES = Conditions(longest_delay=0.3, timeout=1.0, break_rate=0.05)

TRANSACTION_MISTAKES: dict[Plant, dict[str, Any]] = {
    marker_key_deleted_by_a_former_leader: {
        **_SMALL,
        "kinds": ("pause", "end lease"),
        "troubles": 8,
        "longest_calm": 2.0,
        "metadata": _SLOW_WATCHES,
    },
    old_marker_key_believed: {
        **_OLD_PROTOCOL,
        "kinds": ("stop", "end lease", "add broker"),
        "troubles": 8,
        "longest_calm": 1.0,
        "metadata": _SLOW_WATCHES,
    },
    marker_key_deleted_beside_its_marker: {
        **_SMALL,
        "kinds": ("kill", "late upload", "delay"),
        "troubles": 6,
    },
    verification_outlives_a_marker: {**_SMALL, "metadata": _SLOW_WATCHES},
    batch_without_verification: _SMALL,
    decision_without_a_compare: {**_SMALL, "metadata": _SLOW_WATCHES},
    completed_before_its_markers: _SMALL,
    fence_without_a_new_epoch: _SMALL,
    no_last_stable_offset: _SMALL,
    aborted_transactions_kept_back: _SMALL,
    open_transactions_forgotten: _SMALL,
    aborted_offsets_made_visible: _SMALL,
    pending_offsets_after_their_marker: {**_SMALL, "metadata": _SLOW_WATCHES},
}
