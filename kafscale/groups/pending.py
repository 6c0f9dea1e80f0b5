"""Offsets of one shard's groups that wait for the end of their transactions, in memory as they are stored.

The memory is ahead of the store by the writes that are in flight. A caller that changes it queues the write of the
same before anything else runs, so both change in the same order.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from kafscale.formats.pending_offsets import PendingOffset, PendingOffsets, encode_pending_offsets
from kafscale.groups.stored_bytes import KEY_BYTES, TopicPartition, stored_size
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, Put

Transaction = tuple[str, int]
"""A group, and the producer id whose transaction has offsets of it."""

# Of an offset beside its topic and its own bytes: in the value of its transaction, and the index in its own key.
_ENTRY_BYTES: Final = 18
_INDEX_BYTES: Final = 11


@dataclass(slots=True, eq=False)
class Verification:
    """One TxnOffsetCommit that is in progress. `is_over`: a marker of its producer has come since it began.

    What was asked of the transaction's record then says nothing any more (as Kafka's VerificationStateEntry).
    """

    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction's offsets before and after."""

    transaction: Transaction
    before: PendingOffsets | None
    after: PendingOffsets | None

    def operation(self) -> Put | Delete:
        """The write that stores it."""
        key = keys.pending_offsets(*self.transaction)
        return Delete(key) if self.after is None else Put(key, encode_pending_offsets(self.after))


def reserved_bytes(group_id: str, pending: PendingOffsets | None) -> int:
    """The size that is counted: of the pending offsets, and of what they become, or a little more."""
    if pending is None:
        return 0
    prefix_bytes = KEY_BYTES + len(keys.group_offsets(group_id)) + _INDEX_BYTES
    record = sum(_ENTRY_BYTES + len(topic) + len(one.value) for (topic, _), one in pending.offsets.items())
    committed = sum(prefix_bytes + len(topic) + len(one.value) for (topic, _), one in pending.offsets.items())
    key = keys.pending_offsets(group_id, 0)
    return stored_size(key, pending.transactional_id.encode()) + record + committed


class _Group:
    """`producers`: by partition, those that have an offset of it pending. `last_order`: the highest so far."""

    __slots__ = ("last_order", "producers", "transactions")

    def __init__(self) -> None:
        self.transactions: dict[int, PendingOffsets] = {}
        self.producers: dict[TopicPartition, set[int]] = {}
        self.last_order = 0

    def set(self, producer_id: int, pending: PendingOffsets | None) -> None:
        before = self.transactions.pop(producer_id, None)
        old = {} if before is None else before.offsets
        new = {} if pending is None else pending.offsets
        for place in old.keys() - new.keys():
            self.producers[place].discard(producer_id)
            if not self.producers[place]:
                del self.producers[place]
        for place in new.keys() - old.keys():
            self.producers.setdefault(place, set()).add(producer_id)
        if pending is not None:
            self.transactions[producer_id] = pending
            highest = max((offset.order for offset in new.values()), default=0)
            self.last_order = max(self.last_order, highest)


_NOTHING: Final = _Group()


class ShardPending:
    """By group and producer id. `unreadable`: transactions whose stored offsets cannot be read; they stay."""

    def __init__(self) -> None:
        self.unreadable: set[Transaction] = set()
        self._groups: dict[str, _Group] = {}
        self._verifications: dict[Transaction, set[Verification]] = {}

    # What a TxnOffsetCommit asks

    @contextmanager
    def verification(self, transaction: Transaction) -> Iterator[Verification]:
        """For the time of a commit; see `Verification`."""
        verification = Verification()
        running = self._verifications.setdefault(transaction, set())
        running.add(verification)
        try:
            yield verification
        finally:
            running.discard(verification)
            if not running:
                del self._verifications[transaction]

    def marker_came(self, transaction: Transaction) -> None:
        """End the verifications that have begun."""
        for verification in self._verifications.get(transaction, ()):
            verification.is_over = True

    def of(self, transaction: Transaction) -> PendingOffsets | None:
        """The offsets of a transaction, None if there are none."""
        return self.of_group(transaction[0]).get(transaction[1])

    def of_group(self, group_id: str) -> Mapping[int, PendingOffsets]:
        """Those of the group, by producer id."""
        return self._groups.get(group_id, _NOTHING).transactions

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        """True if an offset of the partition is pending."""
        return partition in self._groups.get(group_id, _NOTHING).producers

    def transactions_of(self, group_id: str) -> list[Transaction]:
        """Those that the store has something of, readable or not."""
        readable = [(group_id, producer_id) for producer_id in self.of_group(group_id)]
        return readable + [one for one in self.unreadable if one[0] == group_id]

    # Changes, none of which is made yet

    def added(
        self,
        transaction: Transaction,
        transactional_id: str,
        producer_epoch: int,
        values: Mapping[TopicPartition, bytes],
    ) -> Change:
        """More offsets of a transaction; they replace earlier ones of their partitions."""
        before = self.of(transaction)
        order = 1 + self._groups.get(transaction[0], _NOTHING).last_order
        # An earlier transaction of the producer is complete, and had no marker for these: nothing ends them.
        kept = before.offsets if before is not None and before.producer_epoch == producer_epoch else {}
        offsets = {**kept, **{place: PendingOffset(order, value) for place, value in values.items()}}
        after = PendingOffsets(
            transactional_id=transactional_id, producer_epoch=producer_epoch, offsets=offsets
        )
        return Change(transaction, before, after)

    def overtaken(self, group_id: str, values: Mapping[TopicPartition, bytes]) -> list[Change]:
        """The changes of pending offsets by an OffsetCommit, which is later, and stays when they are committed.

        They get its value, so that their transaction's commit changes nothing: Kafka keeps the one of the two
        whose record is the later one.
        """
        return self._replaced(group_id, values, lambda place, known: values[place])

    def outrun(self, transaction: Transaction, pending: PendingOffsets) -> list[Change]:
        """The same for a transaction that is committed, and older offsets of other transactions."""

        def newer(place: TopicPartition, known: PendingOffset) -> bytes | None:
            offset = pending.offsets[place]
            return offset.value if offset.order > known.order else None

        return self._replaced(transaction[0], pending.offsets, newer)

    def _replaced(
        self,
        group_id: str,
        places: Collection[TopicPartition],
        new_value: Callable[[TopicPartition, PendingOffset], bytes | None],
    ) -> list[Change]:
        changes = []
        for producer_id, shared in self._shared(group_id, places).items():
            pending = self.of_group(group_id)[producer_id]
            replaced = {
                place: replace(pending.offsets[place], value=value)
                for place in shared
                if (value := new_value(place, pending.offsets[place])) is not None
            }
            if replaced:
                after = replace(pending, offsets={**pending.offsets, **replaced})
                changes.append(Change((group_id, producer_id), pending, after))
        return changes

    def without(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[Change]:
        """OffsetDelete: pending offsets of the partitions are gone, too."""
        changes = []
        for producer_id, shared in self._shared(group_id, frozenset(partitions)).items():
            pending = self.of_group(group_id)[producer_id]
            left = {place: one for place, one in pending.offsets.items() if place not in shared}
            after = replace(pending, offsets=left) if left else None
            changes.append(Change((group_id, producer_id), pending, after))
        return changes

    def _shared(
        self, group_id: str, places: Iterable[TopicPartition]
    ) -> defaultdict[int, set[TopicPartition]]:
        """Those of the partitions that have offsets pending, by producer id."""
        producers = self._groups.get(group_id, _NOTHING).producers
        shared: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        if producers:
            for place in places:
                for producer_id in producers.get(place, ()):
                    shared[producer_id].add(place)
        return shared

    # Changes that are made

    def apply(self, changes: Iterable[Change]) -> None:
        """Make the changes, whose writes are queued."""
        for change in changes:
            self._set(change.transaction, change.after)

    def undo(self, changes: Iterable[Change]) -> None:
        """Take back changes whose writes are known to have failed; later changes stay."""
        for change in changes:
            if self.of(change.transaction) is change.after:
                self._set(change.transaction, change.before)

    def remove_group(self, group_id: str) -> None:
        """The group was deleted, with all that was pending."""
        self._groups.pop(group_id, None)
        self.unreadable.difference_update([one for one in self.unreadable if one[0] == group_id])

    def _set(self, transaction: Transaction, pending: PendingOffsets | None) -> None:
        group_id, producer_id = transaction
        group = self._groups.setdefault(group_id, _Group())
        group.set(producer_id, pending)
        if not group.transactions:
            del self._groups[group_id]
