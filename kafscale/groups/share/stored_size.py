"""The size of a share group's partition in the metadata store: its start, and the state that follows. Pure."""

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from kafscale.formats.share_start_record import ShareStartRecord, encode_share_start
from kafscale.groups.stored_bytes import KEY_BYTES, stored_size
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.share.state.stored_group import StoredShareGroup

STATE_BYTES: Final = 192
"""For the value of a state: the numbers that each has, and some 50 runs.

One has up to 10 KiB. The leaders bound the runs of all states together (`kafscale/share/run_budget.py`)."""


_TOPIC_BYTES: Final = len(f"{uuid.UUID(int=0)}/")
_VALUE_BYTES: Final = len(encode_share_start(ShareStartRecord(state_epoch=0, changed_ms=0)))


def start_size(start_key: str, start_value: bytes) -> int:
    """The size of a start with its state, whose key is as long and which the partition's leader adds."""
    return stored_size(start_key, start_value) + stored_size(start_key, b"") + STATE_BYTES


def partition_size(place: SharePartitionId, start: ShareStartRecord) -> int:
    """The same by value, without the key: a group has thousands."""
    key_bytes = prefix_bytes(place.group_id) + _TOPIC_BYTES + len(str(place.partition))
    value_bytes = _VALUE_BYTES + (len(start.changed_by.encode()) if start.changed_by else 0)
    return 2 * (KEY_BYTES + key_bytes) + value_bytes + STATE_BYTES


@lru_cache(maxsize=16)
def prefix_bytes(group_id: str) -> int:
    """The length of what the keys of all partitions of the group begin with."""
    return len(keys.group_share_starts(group_id))


def group_size(stored: StoredShareGroup) -> int:
    """That of all partitions of a group."""
    readable = sum(partition_size(place, start) for place, start in stored.starts.items())
    return readable + sum(
        start_size(key, b"") for key in stored.unreadable if key.startswith(keys.SHARE_STARTS)
    )


def fitting(
    wanted: Mapping[SharePartitionId, ShareStartRecord],
    known: Mapping[SharePartitionId, ShareStartRecord],
    room_bytes: int,
) -> tuple[list[SharePartitionId], int]:
    """Those of the new starts that the room is enough for, in order, and by how many bytes they grow the group."""
    fit, growth = [], 0
    for place in sorted(wanted):
        before = known.get(place)
        change = partition_size(place, wanted[place])
        change -= 0 if before is None else partition_size(place, before)
        if change <= 0 or growth + change <= room_bytes:
            fit.append(place)
            growth += change
    return fit, growth
