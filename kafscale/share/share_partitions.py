"""The share partitions that a broker leads: opened when a member first asks, lost with the partition or the group."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.share_start_record import AS_CONFIGURED
from kafscale.metadata.keys import SharePartitionId
from kafscale.ops.item_failures import ItemFailures
from kafscale.ops.share_metrics import ShareMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.partition.share_partition import DurableState, ShareLimits, SharePartition
from kafscale.share.run_budget import RunBudget
from kafscale.share.state.opened import Led, OpenShareState, ShareLoadRefusal
from kafscale.share.state.starts import ShareStarts
from kafscale.share.state.writer import ShareStateWriter
from kafscale.share.stored_states import StoredState, durable_state
from kafscale.tasks.owner import TaskOwner

NOT_LEADER: Final = "this broker does not lead the partition"


class LogListener(Protocol):
    """Hears of a partition's log."""

    def grown(self, size_bytes: int, stable_bytes: int) -> None:
        """There is more."""

    def closed(self) -> None:
        """It is not served here any more."""


class SharedLog(Protocol):
    """A partition that this broker leads, as far as a share group needs it."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def led(self) -> Led | None:
        """This broker's claim; None if it does not lead."""

    @property
    def leader_epoch(self) -> int:
        """Of that claim."""

    @property
    def log_start_offset(self) -> int:
        """The first record that is there."""

    def listen(self, listener: LogListener) -> None:
        """Notify the listener from now on."""

    def forget(self, listener: LogListener) -> None:
        """Notify it no more."""


@dataclass(frozen=True, slots=True)
class SharePolicy:
    """The configs of a group and of the broker, as they hold for it."""

    limits: ShareLimits
    reads_committed: bool = False


FirstOffset = Callable[[str, SharedLog], Awaitable[int]]
"""Where a group begins with a partition, by its `share.auto.offset.reset`. Raises `KafkaError`."""


@dataclass(slots=True, eq=False)
class _Opened:
    log: SharedLog
    led: LedSharePartition
    stored: StoredState

    def grown(self, size_bytes: int, stable_bytes: int) -> None:
        """There is more to acquire."""
        self.led.notify()

    def closed(self) -> None:
        """Another broker leads, or the topic was deleted."""
        self.led.lose(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER))


class SharePartitions:
    """Of one broker. `now_ms`: of a clock that never goes back. `policy`: of a group.

    What is counted outlives a share partition that is lost, and goes with its group.
    """

    def __init__(
        self,
        states: ShareStateWriter,
        starts: ShareStarts,
        policy: Callable[[str], SharePolicy],
        first_offset: FirstOffset,
        now_ms: Callable[[], int],
        failures: ItemFailures,
        metrics: ShareMetrics | None = None,
    ) -> None:
        self._metrics = metrics or ShareMetrics()
        self.budget = RunBudget()
        self._states = states
        self._starts = starts
        self._policy = policy
        self._first_offset = first_offset
        self._now_ms = now_ms
        self._failures = failures
        self._opened: dict[SharePartitionId, _Opened] = {}
        self._opening: dict[SharePartitionId, asyncio.Task[LedSharePartition]] = {}
        self._tasks = TaskOwner()
        self._unsubscribe = starts.subscribe(self._start_changed)

    def __len__(self) -> int:
        return len(self._opened)

    def find(self, place: SharePartitionId, log: SharedLog | None = None) -> LedSharePartition | None:
        """The share partition if it is open, with the limits of its group; with `log`, if it is that of this log."""
        opened = self._opened.get(place)
        if opened is None or (log is not None and opened.log != log):
            return None
        opened.led.machine.limits = self._limits(place.group_id)
        return opened.led

    def _limits(self, group_id: str) -> ShareLimits:
        limits = self._policy(group_id).limits
        in_flight = self.budget.in_flight(limits.max_in_flight)
        return limits if in_flight == limits.max_in_flight else replace(limits, max_in_flight=in_flight)

    async def get(self, place: SharePartitionId, log: SharedLog) -> LedSharePartition:
        """The share partition, with the limits that hold for its group now; it is opened if it is not.

        Raises `KafkaError`: NOT_LEADER_OR_FOLLOWER; UNKNOWN_TOPIC_OR_PARTITION if the group does not share the
        partition; COORDINATOR_NOT_AVAILABLE if the metadata store does not answer; UNKNOWN_SERVER_ERROR for records
        that cannot be read.
        """
        led = self.find(place, log)
        if led is not None:
            led.log_starts_at(log.log_start_offset)
            return led
        opening = self._opening.get(place)
        if opening is None:
            opening = self._tasks.spawn(self._open(place, log), "open a share partition", is_awaited=True)
            self._opening[place] = opening
            opening.add_done_callback(partial(self._is_open, place))
        # Several may wait for it: the cancellation of one is not to be that of all.
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Give all up. What members have is available to others when another broker leads, or this one again."""
        self._unsubscribe()
        await self._tasks.close()
        for opened in tuple(self._opened.values()):
            opened.led.lose(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker stops"))

    def _is_open(self, place: SharePartitionId, opening: "asyncio.Task[LedSharePartition]") -> None:
        del self._opening[place]
        if not opening.cancelled():
            opening.exception()  # Those that waited for it have it; perhaps none waits any more.

    async def _open(self, place: SharePartitionId, log: SharedLog) -> LedSharePartition:
        claim = log.led
        if claim is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER)
        try:
            loaded = await self._states.load(place, claim)
        except StoreError as problem:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "the metadata store does not answer"
            ) from problem
        except CorruptDataError as problem:
            self._failures.report(f"{place.group_id[:200]} {log.topic}-{place.partition}", problem)
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the share group's state cannot be read"
            ) from problem
        match loaded:
            case ShareLoadRefusal.FENCED:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER)
            case ShareLoadRefusal.NOT_INITIALIZED:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the group does not share this partition"
                )
            case OpenShareState():
                return await self._begin(place, log, claim, loaded)

    async def _begin(
        self, place: SharePartitionId, log: SharedLog, claim: Led, loaded: OpenShareState
    ) -> LedSharePartition:
        stored = StoredState(self._states, loaded, log.leader_epoch)
        if loaded.state is not None:
            state = durable_state(loaded.state)
        else:
            offset = loaded.start.start_offset
            if offset == AS_CONFIGURED:
                offset = await self._first_offset(place.group_id, log)
            state = DurableState(offset)
            # Before anything is delivered: after a fail-over "latest" would be another offset.
            await stored.write(state)
        before = self._opened.get(place)
        if before is not None:
            before.led.lose(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER))
        if log.led != claim:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER)
        limits, counts = self._limits(place.group_id), self._metrics.group(place.group_id)
        machine = SharePartition.of(state, limits, counts)
        name = f"{place.group_id[:200]} {log.topic}-{place.partition}"
        led = LedSharePartition(name, machine, stored, self._now_ms, partial(self._lost, place), self.budget)
        opened = self._opened[place] = _Opened(log, led, stored)
        log.listen(opened)
        led.log_starts_at(log.log_start_offset)
        start = self._starts.get(place)
        if start is not None and start.revision > stored.start_revision:
            self._start_changed(place)  # Since it was read. A deletion shows itself at the first write.
        return led

    def _lost(self, place: SharePartitionId) -> None:
        opened = self._opened.pop(place)
        opened.stored.abandon()
        opened.log.forget(opened)

    def _start_changed(self, place: SharePartitionId) -> None:
        """The group's coordinator has altered the start, or deleted it."""
        opened, start = self._opened.get(place), self._starts.get(place)
        revision = None if start is None else start.revision
        if opened is not None and (revision is None or revision > opened.stored.start_revision):
            # As in Kafka: the member looks for the leader, and finds this one, which loads the state again.
            altered = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the offsets of the group were altered")
            opened.led.lose(altered)
        if not self._starts.of_group(place.group_id):
            self._metrics.forget(place.group_id)
