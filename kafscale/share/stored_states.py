"""Between the state machine of a share partition and what is stored of it."""

from kafscale.formats.share_state_record import ShareStateRecord, StoredShareRun, StoredShareState
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.share.partition.runs import RecordState, Run
from kafscale.share.partition.share_partition import DurableState
from kafscale.share.state.opened import OpenShareState, ShareWriteResult
from kafscale.share.state.writer import ShareStateWriter


def durable_state(record: ShareStateRecord) -> DurableState:
    """The state that was stored. Between its runs are records that were never acquired."""
    runs: list[Run] = []
    expected = record.start_offset
    for run in record.runs:
        if expected < run.first:
            runs.append(Run(expected, run.first - 1, RecordState.AVAILABLE))
        runs.append(Run(run.first, run.last, RecordState(run.state), run.delivery_count))
        expected = run.last + 1
    return DurableState(record.start_offset, tuple(runs))


def stored_record(state: DurableState, state_epoch: int, leader_epoch: int) -> ShareStateRecord:
    """The record to store. Of records that are Acquired there are none in a durable state."""
    return ShareStateRecord(
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=state.start_offset,
        runs=tuple(
            StoredShareRun(run.first, run.last, StoredShareState(run.state), run.delivery_count)
            for run in state.runs
        ),
    )


class StoredState:
    """The states of one share partition in the store, as its driver writes them."""

    def __init__(self, states: ShareStateWriter, opened: OpenShareState, leader_epoch: int) -> None:
        self._states = states
        self._opened = opened
        self._leader_epoch = leader_epoch

    @property
    def start_revision(self) -> int:
        """At which the group's coordinator has set the start that all this belongs to."""
        return self._opened.compares.start.mod_revision

    async def write(self, state: DurableState) -> None:
        """Return once it is durable. Raises `KafkaError` NOT_LEADER_OR_FOLLOWER."""
        record = stored_record(state, self._opened.start.state_epoch, self._leader_epoch)
        check(await self._states.write(self._opened, record))

    def abandon(self) -> None:
        """Write no more."""
        self._states.abandon(self._opened)


def check(result: ShareWriteResult) -> None:
    """Raise the `KafkaError` of a write that was not written."""
    if result is ShareWriteResult.FENCED:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads the share partition")
    if result is ShareWriteResult.START_CHANGED:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the offsets of the share group were altered")
