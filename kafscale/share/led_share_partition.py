"""The driver of one share partition: stores what must be durable, ends locks in time, and tells who waits.

One write is in flight for a partition. What changes meanwhile goes into the next one, so that the writes are as many
as the metadata store takes, and not as many as the members' acknowledgements. An answer waits for the write that has
its change in it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.share.partition.acknowledging import AcknowledgedBatch, acknowledge
from kafscale.share.partition.acquiring import Acquired, LogBatch, Wanted, acquire
from kafscale.share.partition.releasing import end_locks, release_member
from kafscale.share.partition.share_partition import DurableState, SharePartition
from kafscale.share.run_budget import RunBudget
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)


class ShareListener(Protocol):
    """Waits for records that it can acquire, as a share fetch does."""

    def available(self) -> None:
        """There may be some now, or the partition is not shared here any more."""


class StateWriter(Protocol):
    """Stores the states of one share partition."""

    async def write(self, state: DurableState) -> None:
        """Return once it is durable, however long that takes.

        Raises `KafkaError` NOT_LEADER_OR_FOLLOWER if another broker leads, or the group's offsets were altered or
        deleted. Then nothing more can be written.
        """


class _Awaited(NamedTuple):
    version: int
    done: "asyncio.Future[None]"


class LedSharePartition:
    """`name`: for the log. `now_ms`: of a clock that never goes back. `on_lost`: called once, when it is of no use.
    `budget`: of the broker's runs.

    Every method but `stop` raises the `KafkaError` with which it was lost.
    """

    def __init__(
        self,
        name: str,
        machine: SharePartition,
        writer: StateWriter,
        now_ms: Callable[[], int],
        on_lost: Callable[[], None],
        budget: RunBudget | None = None,
    ) -> None:
        self.machine = machine
        self._name = name
        self._writer = writer
        self._now_ms = now_ms
        self._on_lost = on_lost
        self._tasks = TaskOwner()
        self._stored_version = machine.version
        self._awaited: deque[_Awaited] = deque()
        self._listeners: dict[ShareListener, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._is_read = self._is_storing = False
        self._lost: KafkaError | None = None
        self._budget = budget or RunBudget()
        self._counted_runs = 0
        self._count_runs(len(machine.runs))

    def _count_runs(self, runs: int) -> None:
        self._budget.used += runs - self._counted_runs
        self._counted_runs = runs

    # --- reading

    def begin_read(self) -> int | None:
        """Where a fetch is to read; None while another one reads, or too much is in flight.

        A caller that gets an offset calls `end_read` or `give_up_read`.
        """
        self._check()
        if self._is_read or not self.machine.can_acquire():
            return None
        self._is_read = True
        return self.machine.next_fetch_offset()

    def end_read(self, wanted: Wanted, read_from: int, batches: Iterable[LogBatch]) -> list[Acquired]:
        """Give the member what is available of what was read."""
        self.give_up_read()
        self._check()
        acquired = acquire(self.machine, wanted, read_from, batches, self._now_ms())
        self._after_change()
        return acquired

    def give_up_read(self) -> None:
        """The fetch reads no more, and another one may."""
        self._is_read = False

    # --- what members say

    async def acknowledge(self, member_id: str, batches: Sequence[AcknowledgedBatch]) -> None:
        """Do what the member says; returns once it is durable. Raises `KafkaError` as the machine does.

        Where nothing is left to do, because a record is finished, it may not be durable yet that it is.
        """
        self._check()
        acknowledge(self.machine, member_id, batches, self._now_ms())
        if self.machine.version != self._stored_version:
            await self._durable()
        else:
            self._after_change()

    async def release(self, member_id: str) -> None:
        """Take back what the member has; returns once it is durable."""
        self._check()
        before = self.machine.version
        release_member(self.machine, member_id)
        if self.machine.version != before:
            await self._durable()

    def log_starts_at(self, offset: int) -> None:
        """Records below were deleted."""
        before = self.machine.version
        self.machine.log_starts_at(offset)
        if self.machine.version != before:
            self._changed()

    # --- waiting

    def listen(self, listener: ShareListener) -> None:
        """Notify the listener, until it is forgotten."""
        self._check()
        self._listeners[listener] = None

    def forget(self, listener: ShareListener) -> None:
        """Notify it no more."""
        self._listeners.pop(listener, None)

    def notify(self) -> None:
        """The log has grown, or records are available again."""
        for listener in tuple(self._listeners):
            listener.available()

    # --- the end

    def lose(self, problem: KafkaError) -> None:
        """This broker does not share the partition any more: answer what waits."""
        if self._lost is not None:
            return
        self._lost = problem
        self.stop()
        self._count_runs(0)
        for one in self._awaited:
            if not one.done.done():
                one.done.set_exception(problem)
        self._awaited.clear()
        self.notify()
        self._on_lost()

    def stop(self) -> None:
        """Write nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._tasks.tasks:
            task.cancel()

    # --- storing

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    async def _durable(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.append(_Awaited(self.machine.version, done))
        self._changed()
        await done

    def _changed(self) -> None:
        """The durable state is another one, and records may be available."""
        self._after_change()
        # Not by the task: it is there for a moment after its last look at the version.
        if not self._is_storing:
            self._is_storing = True
            self._tasks.spawn(self._store(), f"store {self._name}")
        self.notify()

    async def _store(self) -> None:
        try:
            while self._stored_version < self.machine.version:
                version = self.machine.version
                await self._writer.write(self.machine.durable_state())
                self._stored_version = version
                if self.machine.stored(version):
                    self.notify()
                while self._awaited and self._awaited[0].version <= version:
                    done = self._awaited.popleft().done
                    if not done.done():
                        done.set_result(None)
            self._is_storing = False
        except KafkaError as problem:
            fields = {"share_partition": self._name, "problem": quoted(str(problem), 500)}
            logger.info("a share partition is not led here any more", extra=fields)
            self.lose(problem)
        except Exception:
            # A defect: members must not wait for it, and another attempt begins with what is stored.
            logger.exception("could not store a share partition", extra={"share_partition": self._name})
            self.lose(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the share group's state was not stored"))

    # --- locks

    def _after_change(self) -> None:
        """Of whatever the machine has done."""
        if self._lost is None:
            self._count_runs(len(self.machine.runs))
        self._set_timer()

    def _set_timer(self) -> None:
        deadline_ms = self.machine.next_deadline_ms()
        if self._timer is not None:
            if deadline_ms is not None and self._timer_at_ms <= deadline_ms:
                return  # It fires early, and is set again.
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None and self._lost is None:
            delay_sec = max(deadline_ms - self._now_ms(), 0) / 1000
            self._timer_at_ms = deadline_ms
            self._timer = asyncio.get_running_loop().call_later(delay_sec, self._time_has_passed)

    def _time_has_passed(self) -> None:
        self._timer = None
        before = self.machine.version
        end_locks(self.machine, self._now_ms())
        if self.machine.version != before:
            self._changed()
        else:
            self._after_change()
