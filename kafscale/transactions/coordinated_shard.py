"""The transactional ids of one shard that this broker coordinates, as it knows them. Pure."""

from collections.abc import Callable, Iterable

from kafscale.formats.transaction_record import TransactionRecord, TransactionState
from kafscale.transactions.markers import PREPARING
from kafscale.transactions.record_driver import StoredRecord
from kafscale.transactions.shard_owner import ShardOwner


class CoordinatedShard:
    """Records by transactional id, each as of the newest revision that was heard of.

    `owner`: of the shard, as a condition. `coordinator_epoch`: of this broker's claim. `is_loaded`: every record was
    read once. `ongoing`: with the time, by this broker's clock, at which each transaction was seen to begin; of one
    that was loaded, the time in its record. `now_ms`: Unix milliseconds.
    """

    def __init__(self, number: int, broker_id: int, now_ms: Callable[[], int]) -> None:
        self.number = number
        self.owner = ShardOwner(number, broker_id)
        self._now_ms = now_ms
        self.coordinator_epoch = 0
        self.is_loaded = False
        self.records: dict[str, StoredRecord] = {}
        self.ongoing: dict[str, int] = {}
        self.ending: set[str] = set()

    def accept(self, transactional_id: str, stored: StoredRecord) -> bool:
        """Take in a record that was read or written; False if a newer one is known."""
        known = self.records.get(transactional_id)
        if known is not None and known.mod_revision >= stored.mod_revision:
            return False
        self.records[transactional_id] = stored
        record = stored.record
        if record is None or record.state is not TransactionState.ONGOING:
            self.ongoing.pop(transactional_id, None)
        elif transactional_id not in self.ongoing or not _is_same(known, record):
            self.ongoing[transactional_id] = self._now_ms() if self.is_loaded else record.started_ms
        if record is not None and record.state in PREPARING:
            self.ending.add(transactional_id)
        else:
            self.ending.discard(transactional_id)
        return True

    def remove(self, transactional_id: str, revision: int) -> bool:
        """Take in a deletion; False if a newer record is known."""
        known = self.records.get(transactional_id)
        if known is None or known.mod_revision > revision:
            return False
        del self.records[transactional_id]
        self.ongoing.pop(transactional_id, None)
        self.ending.discard(transactional_id)
        return True

    def retain(self, present: Iterable[str], revision: int) -> list[str]:
        """Remove the records that a snapshot at `revision` does not have; returns their ids."""
        gone = self.records.keys() - set(present)
        return [one for one in gone if self.remove(one, revision)]


def _is_same(known: StoredRecord | None, record: TransactionRecord) -> bool:
    """True if the transaction is the one that was known."""
    before = None if known is None else known.record
    return (
        before is not None
        and before.started_ms == record.started_ms
        and (before.producer_id, before.producer_epoch) == (record.producer_id, record.producer_epoch)
    )
