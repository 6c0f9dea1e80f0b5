"""Decides on every record of a compaction, as Kafka's log cleaner does, and writes what stays. Pure.

Theory of operation. First the map takes the keys of the *dirty* records, those that no compaction has looked at, each
with its newest offset. Then the log is gone through from its start: a record goes if the map has a newer one of its
key. A tombstone, a record without a value, stays for `delete.retention.ms` more, so that a consumer that is
still reading learns of it: the first compaction that meets it notes in its batch when that time ends, and one that
runs after it removes the tombstone. By then nothing older of its key is left: everything older was gone through
before, or by the same compaction. A batch whose records all stay is kept byte for byte.

Records of aborted transactions have no say and go. A marker stays until nothing else of its transaction is left, and
for `delete.retention.ms` from then on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_kind import kind_of_batch
from kafscale.log.compaction.cleaned_transactions import AbortedRange, CleanedTransactions
from kafscale.log.compaction.offset_map import OffsetMap
from kafscale.log.compaction.written_batches import MOST_OFFSET_DELTA, emptied, empty_batch, reduced
from kafscale.protocol.keyed_records import Walked, records_of, walk_records
from kafscale.protocol.record_batch import BatchHeader, read_header


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """The rules of one compaction. Times are Unix milliseconds.

    `first_dirty_offset`: the map takes no record below it. `last_batches`: the base offset of the newest batch of
    each producer that is still known, which stays, empty if need be, as Kafka keeps it. `opened_limit_bytes`: a
    batch that decompresses to more is left as it is. `aborted`: the aborted transactions of the log, by first offset.
    """

    now_ms: int
    delete_retention_ms: int
    first_dirty_offset: int
    last_batches: Mapping[int, int]
    opened_limit_bytes: int
    aborted: Sequence[AbortedRange] = ()


@dataclass(slots=True)
class CleaningTotals:
    """Counts of what a compaction met. `unreadable_batches`: those whose records are none; they stay as they are.

    `gone_transactions`: aborted transactions of which nothing but the marker is left, by its offset.
    """

    batches: int = 0
    records: int = 0
    removed_records: int = 0
    removed_tombstones: int = 0
    changed_batches: int = 0
    unreadable_batches: int = 0
    gone_transactions: list[int] = field(default_factory=list)

    def as_values(self) -> list[Any]:
        """The values in the order of the fields."""
        return [getattr(self, one.name) for one in fields(self)]

    def add(self, other: "CleaningTotals") -> None:
        """Count what the other one counted, too."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def has_changes(self) -> bool:
        """True if what was written is not what was read."""
        return bool(self.changed_batches)


class Cleaner:
    """One compaction of one partition: `map_batches` of the dirty segments, then `clean` of all, oldest first."""

    def __init__(self, offsets: OffsetMap, rules: CleaningRules) -> None:
        self._offsets = offsets
        self._rules = rules
        self._gone: tuple[int, int, int] | None = None
        self._mapped = CleanedTransactions(rules.aborted)
        self._transactions = CleanedTransactions(rules.aborted)
        # As they were where the object began that is written now, and the one before.
        self._at_start = self._before = self._transactions.copy()
        self.is_full = False
        self.map_end_offset = rules.first_dirty_offset
        self.totals = CleaningTotals()

    # --- the map

    def map_batches(self, batches: memoryview) -> None:
        """Take the keys of whole batches; `is_full` once one had no room, and what follows is not looked at."""
        position = 0
        while position < len(batches) and not self.is_full:
            header = read_header(batches, position)
            batch = batches[position : position + header.size_bytes]
            position += header.size_bytes
            if header.last_offset >= self._rules.first_dirty_offset:
                self._map(batch, header)

    def _map(self, batch: memoryview, header: BatchHeader) -> None:
        if header.record_count > self._offsets.room():
            # Whole batches: the map's end lies between two of them.
            self.is_full = True
            return
        is_left_out = header.is_control or self._mapped.is_aborted(header)
        if header.record_count and not is_left_out:
            base_offset, first, put = (
                header.base_offset,
                self._rules.first_dirty_offset,
                self._offsets.put,
            )
            try:
                data = records_of(batch, header, self._rules.opened_limit_bytes)
                for _, _, _, _, offset_delta, key, _ in list(walk_records(header, data)):
                    if key is not None and base_offset + offset_delta >= first:
                        put(key, base_offset + offset_delta)
            except CorruptDataError:
                # Counted when it is cleaned. A batch that cannot be read makes nothing older redundant.
                pass
        self._offsets.latest_offset = header.last_offset
        self.map_end_offset = header.last_offset + 1

    # --- the log

    def clean(self, batches: memoryview) -> bytes:
        """The rest of whole batches; what depends on the next ones comes with these, or with `end_object`."""
        written: list[bytes | memoryview] = []
        position, kept_from = 0, 0
        while position < len(batches):
            header = read_header(batches, position)
            following = position + header.size_bytes
            batch = batches[position:following]
            changed = self._cleaned(batch, header)
            self.totals.batches += 1
            self.totals.records += header.record_count
            if changed is not None or self._gone is not None:
                written.append(batches[kept_from:position])
                kept_from = following
                if changed is None:
                    written += (self._end_gone(), batch)
                elif changed:
                    written += (self._end_gone(), changed)
                else:
                    self._remove(header, written)
            position = following
        written.append(batches[kept_from:])
        return b"".join(written)

    def again(self) -> None:
        """The batches of the object that was ended last come once more."""
        self._at_start, self._transactions = self._before, self._before.copy()

    def end_object(self) -> tuple[bytes, CleaningTotals]:
        """The rest to be written at the end of an object, and what was counted since the last one."""
        totals, self.totals = self.totals, CleaningTotals()
        self._before, self._at_start = self._at_start, self._transactions.copy()
        return self._end_gone(), totals

    def _end_gone(self) -> bytes:
        """The empty batch that has the offsets of what is gone up to here, or nothing."""
        gone, self._gone = self._gone, None
        return b"" if gone is None else empty_batch(*gone)

    def _remove(self, header: BatchHeader, written: list[bytes | memoryview]) -> None:
        gone, epoch = self._gone, header.partition_leader_epoch
        if gone is not None and (gone[2] != epoch or header.last_offset - gone[0] > MOST_OFFSET_DELTA):
            written.append(self._end_gone())
            gone = None
        self._gone = (header.base_offset if gone is None else gone[0], header.last_offset, epoch)

    def _cleaned(self, batch: memoryview, header: BatchHeader) -> bytes | None:
        """The batch in another form, empty if nothing is left of it, None if it stays as it is."""
        rules, totals = self._rules, self.totals
        is_last = rules.last_batches.get(header.producer_id) == header.base_offset
        if header.is_control:
            return self._cleaned_marker(batch, header, is_last) if header.is_transactional else None
        is_aborted = self._transactions.is_aborted(header)
        if not header.record_count:
            return None if is_last else self._emptied(header)
        if is_aborted:
            totals.removed_records += header.record_count
            totals.changed_batches += 1
            return emptied(header) if is_last else b""
        if header.base_offset > self._offsets.latest_offset:
            return None
        try:
            data = records_of(batch, header, rules.opened_limit_bytes)
            records = list(walk_records(header, data))
        except CorruptDataError:
            totals.unreadable_batches += 1
            return None
        kept, has_tombstone = self._kept(header, records)
        horizon_ms = None
        if has_tombstone and not header.has_delete_horizon:
            horizon_ms = rules.now_ms + rules.delete_retention_ms
        removed = len(records) - len(kept)
        if not removed and horizon_ms is None:
            return None
        totals.removed_records += removed
        totals.changed_batches += 1
        if kept:
            return reduced(header, data, kept, horizon_ms)
        return emptied(header) if is_last else b""

    def _cleaned_marker(self, batch: memoryview, header: BatchHeader, is_last: bool) -> bytes | None:
        """A marker goes as a tombstone does, from the compaction on that finds nothing else of its transaction."""
        rules, totals = self._rules, self.totals
        try:
            kind = kind_of_batch(header, batch)
        except CorruptDataError:
            totals.unreadable_batches += 1
            return None
        is_alone, aborted = self._transactions.ends(header, kind)
        if not header.record_count:
            return None if is_last else self._emptied(header)
        if not is_alone:
            return None
        if aborted is not None:
            totals.gone_transactions.append(aborted.last_offset)
        if not header.has_delete_horizon:
            data = records_of(batch, header, rules.opened_limit_bytes)
            totals.changed_batches += 1
            horizon_ms = rules.now_ms + rules.delete_retention_ms
            return reduced(header, data, list(walk_records(header, data)), horizon_ms)
        if header.base_timestamp > rules.now_ms:
            return None
        totals.removed_records += header.record_count
        totals.changed_batches += 1
        return emptied(header) if is_last else b""

    def _emptied(self, header: BatchHeader) -> bytes | None:
        """An empty batch goes where its neighbours go; one alone stays as it is, unless it names a producer."""
        if header.producer_id >= 0:
            self.totals.changed_batches += 1
        return b""

    def _kept(self, header: BatchHeader, records: list[Walked]) -> tuple[list[Walked], bool]:
        """The records that stay, and whether a tombstone is among them."""
        rules, newest, latest = self._rules, self._offsets.get, self._offsets.latest_offset
        base_offset = header.base_offset
        expired = header.has_delete_horizon and header.base_timestamp <= rules.now_ms
        kept, has_tombstone = [], False
        for record in records:
            offset, key, has_value = base_offset + record[4], record[5], record[6]
            if offset <= latest:
                if key is None or offset < newest(key):
                    continue
                if not has_value and expired:
                    self.totals.removed_tombstones += 1
                    continue
            kept.append(record)
            has_tombstone = has_tombstone or not has_value
        return kept, has_tombstone
