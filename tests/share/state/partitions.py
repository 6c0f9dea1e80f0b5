"""Share partitions with a leader and a start in a store, and the records that their leader writes."""

import uuid

from kafscale.formats.share_state_record import ShareStateRecord, StoredShareRun, StoredShareState
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import MetadataStore, Operation, Put
from kafscale.share.state.opened import Led, OpenShareState
from kafscale.share.state.operations import Change, initialize
from kafscale.share.state.writer import ShareStateWriter

GROUP = "billing"
TOPIC = "orders"
TOPIC_ID = uuid.UUID(int=7)
CHANGE = Change(now_ms=1_790_000_060_000)


def partition(index: int, group: str = GROUP) -> SharePartitionId:
    return SharePartitionId(group, TOPIC_ID, index)


async def apply(store: MetadataStore, operations: tuple[Operation, ...]) -> int:
    """Write them as they are, in as many transactions as it takes; the last revision."""
    revision = 0
    for begin in range(0, len(operations), store.max_operations):
        result = await store.transact([], operations[begin : begin + store.max_operations])
        revision = result.revision
    return revision


async def elect(store: MetadataStore, index: int, epoch: int = 1) -> Led:
    """Another leader of the partition, whoever led before."""
    return Led(TOPIC, await apply(store, (Put(keys.leader(TOPIC, index), str(epoch).encode()),)))


async def initialized(store: MetadataStore, *partitions: SharePartitionId) -> None:
    """Starts for these partitions, none of which has one."""
    await apply(store, initialize(partitions, {}, CHANGE).operations)


async def opened(writer: ShareStateWriter, one: SharePartitionId, led: Led) -> OpenShareState:
    found = await writer.load(one, led)
    assert isinstance(found, OpenShareState), found
    return found


def state(start_offset: int, *, epoch: int = 1, state_epoch: int = 0, in_flight: int = 0) -> ShareStateRecord:
    """In flight: so many records, alternately available and acknowledged."""
    runs = tuple(
        StoredShareRun(
            start_offset + number,
            start_offset + number,
            StoredShareState.ACKNOWLEDGED if number % 2 else StoredShareState.AVAILABLE,
            1,
        )
        for number in range(in_flight)
    )
    return ShareStateRecord(state_epoch=state_epoch, leader_epoch=epoch, start_offset=start_offset, runs=runs)
