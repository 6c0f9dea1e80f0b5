"""The transactional ids of one shard that this broker coordinates, as it knows them. Pure."""

from collections.abc import Iterable

from kafscale.formats.transaction_record import TransactionState
from kafscale.transactions.markers import PREPARING
from kafscale.transactions.record_driver import StoredRecord


class CoordinatedShard:
    """Records by transactional id, each as of the newest revision that was heard of.

    `coordinator_epoch`: of this broker's claim. `is_loaded`: every record was read once.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.coordinator_epoch = 0
        self.is_loaded = False
        self.records: dict[str, StoredRecord] = {}
        self.ongoing: set[str] = set()
        self.ending: set[str] = set()

    def accept(self, transactional_id: str, stored: StoredRecord) -> bool:
        """Take in a record that was read or written; False if a newer one is known."""
        known = self.records.get(transactional_id)
        if known is not None and known.mod_revision >= stored.mod_revision:
            return False
        self.records[transactional_id] = stored
        state = None if stored.record is None else stored.record.state
        _put(self.ongoing, transactional_id, state is TransactionState.ONGOING)
        _put(self.ending, transactional_id, state in PREPARING)
        return True

    def remove(self, transactional_id: str, revision: int) -> bool:
        """Take in a deletion; False if a newer record is known."""
        known = self.records.get(transactional_id)
        if known is None or known.mod_revision > revision:
            return False
        del self.records[transactional_id]
        self.ongoing.discard(transactional_id)
        self.ending.discard(transactional_id)
        return True

    def retain(self, present: Iterable[str], revision: int) -> list[str]:
        """Remove the records that a snapshot at `revision` does not have; returns their ids."""
        gone = self.records.keys() - set(present)
        return [one for one in gone if self.remove(one, revision)]


def _put(members: set[str], item: str, is_member: bool) -> None:
    if is_member:
        members.add(item)
    else:
        members.discard(item)
