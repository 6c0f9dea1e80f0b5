"""All that the metadata store has of a share group's partitions: for its coordinator, and to describe it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafscale.errors import CorruptDataError
from kafscale.formats.share_start_record import ShareStartRecord, decode_share_start
from kafscale.formats.share_state_record import ShareStateRecord, decode_share_state
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import KeyValue, MetadataReader

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShareGroup:
    """`starts`, `states`: those that can be read; a state only if it is of its start.

    `start_keys`, `state_keys`: all that are there, for a deletion of the group. `unreadable`: those among them that
    cannot be read. No start may be set in the place of one: what was acknowledged would be delivered again.
    """

    starts: Mapping[SharePartitionId, ShareStartRecord]
    states: Mapping[SharePartitionId, ShareStateRecord]
    start_keys: Sequence[str]
    state_keys: Sequence[str]
    unreadable: Sequence[str]

    def start_offset(self, partition: SharePartitionId) -> int | None:
        """The first record that is not finished; `AS_CONFIGURED` before the first fetch, None without a start."""
        start = self.starts.get(partition)
        if start is None:
            return None
        state = self.states.get(partition)
        return start.start_offset if state is None else state.start_offset


async def read_share_group(store: MetadataReader, group_id: str) -> StoredShareGroup:
    """The group as it is now. Raises `StoreError`."""
    # In this order: a state that is read belongs to the start that is read, or to one before.
    state_items = (await store.range(keys.group_share_states(group_id))).items
    start_items = (await store.range(keys.group_share_starts(group_id))).items
    unreadable: list[str] = []
    starts = _records(start_items, decode_share_start, unreadable)
    states = _records(state_items, decode_share_state, unreadable)
    return StoredShareGroup(
        starts=starts,
        states={
            partition: state
            for partition, state in states.items()
            if partition in starts and state.state_epoch == starts[partition].state_epoch
        },
        start_keys=[item.key for item in start_items],
        state_keys=[item.key for item in state_items],
        unreadable=unreadable,
    )


def _records(
    items: Sequence[KeyValue], decode: Callable[[str, bytes], Record], unreadable: list[str]
) -> dict[SharePartitionId, Record]:
    records = {}
    for item in items:
        try:
            records[keys.share_partition(item.key)] = decode(item.key, item.value)
        except (ValueError, CorruptDataError):
            unreadable.append(item.key)
    return records
