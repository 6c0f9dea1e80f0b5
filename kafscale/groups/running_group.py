"""The driver of one group's state machine: carries out its effects on the event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final

from kafscale.formats.group_record import GroupRecord
from kafscale.groups.effects import Answer, Content, RebalanceCompleted, RebalanceStarted, Store
from kafscale.groups.events import Commit, Event, Heartbeat, Stored, StoreFailed, TimePassed
from kafscale.groups.group import Group
from kafscale.groups.line_window import LineWindow
from kafscale.groups.machine import apply
from kafscale.groups.shard_writer import WriteInDoubtError
from kafscale.groups.states import GroupState
from kafscale.groups.stored_bytes import StoredGroup
from kafscale.groups.totals import NOT_COUNTED, Counted, GroupTotals
from kafscale.ops.metrics import GroupMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

StoreGroup = Callable[["RunningGroup", GroupRecord], Awaitable[None]]
"""Makes the record durable. Raises `KafkaError` with the code that the members get."""

# These events only postpone a deadline: the timer fires early then, and is set again.
_SESSION_EVENTS: Final = (Heartbeat, Commit)

# Ten rebalances, or half as many that fail.
_LINES_A_MINUTE: Final = 20
_MS_PER_MINUTE: Final = 60_000


class InStore(Enum):
    """Tells if the store has a record of a group. MAYBE: a write or deletion of it is indeterminate."""

    NO = auto()
    MAYBE = auto()
    YES = auto()


class RunningGroup:
    """A group, its timer, its waiting requests and its stores in flight.

    `in_store`: if it has a record in the store. `commits_in_flight`: which may write one.
    `stored`: the group's bytes in the store. `touched`: during a search for expired offsets, the keys that were
    committed since it began. `expiry_check_at_ms`: none of its offsets can expire before that.
    """

    def __init__(
        self,
        group: Group,
        now_ms: Callable[[], int],
        store: StoreGroup,
        on_unused: Callable[["RunningGroup"], None],
        totals: GroupTotals,
        metrics: GroupMetrics,
        *,
        in_store: InStore,
    ) -> None:
        self.group = group
        self.in_store = in_store
        self.stored = StoredGroup(totals.stored)
        self.commits_in_flight = 0
        self.touched: set[str] | None = None
        self.expiry_check_at_ms = 0
        self._now_ms = now_ms
        self._store = store
        self._on_unused = on_unused
        self._totals = totals
        self._metrics = metrics
        self._waiting: dict[int, asyncio.Future[Content]] = {}
        self._stores: set[asyncio.Task[None]] = set()
        self._next_reply_id = 0
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._counted = NOT_COUNTED
        self._lines = LineWindow(_LINES_A_MINUTE, _MS_PER_MINUTE)
        self._count()
        self._set_timer()

    def next_reply_id(self) -> int:
        """The id of the next request."""
        self._next_reply_id += 1
        return self._next_reply_id

    def decide(self, event: Event, reply_id: int) -> Content:
        """Apply a request that is answered at once, and return its answer."""
        content = self._apply(event, reply_id)
        assert content is not None, f"{event} is answered at once"
        return content

    async def ask(self, event: Event, reply_id: int) -> Content:
        """Apply a request, and return its answer once the group gives it.

        A client that stops waiting stays a member; its answer is discarded.
        """
        content = self._apply(event, reply_id)
        if content is not None:
            return content
        waiting: asyncio.Future[Content] = asyncio.get_running_loop().create_future()
        self._waiting[reply_id] = waiting
        try:
            return await waiting
        finally:
            self._waiting.pop(reply_id, None)

    def notify(self, event: Event) -> None:
        """Apply an event that is no request."""
        self._apply(event, None)

    def stop(self) -> set[asyncio.Task[None]]:
        """Cancel the timer and take the group out of the totals. Returns the stores in flight, which go on.

        One of them may say that the last member has left: the next coordinator must not wait for its session.
        """
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._counted = self._totals.replace(self._counted, NOT_COUNTED)
        self.stored.clear()
        return set(self._stores)

    @property
    def is_unused(self) -> bool:
        """True if nothing is lost when it is removed: it has no members and nothing in the store."""
        group = self.group
        may_have_record = self.in_store is not InStore.NO or self._stores or self.commits_in_flight
        return group.state is GroupState.EMPTY and not group.pending_members and not may_have_record

    def note_indeterminate_record(self) -> None:
        """A write of the record is indeterminate: if there was none, there may be one now."""
        if self.in_store is InStore.NO:
            self.in_store = InStore.MAYBE

    def _apply(self, event: Event, reply_id: int | None) -> Content | None:
        """Apply the event; returns the answer to the request of `reply_id`, if there is one already."""
        own = None
        state = self.group.state
        effects = apply(self.group, event)
        if self.group.state is not state:
            self.expiry_check_at_ms = 0  # In another state other offsets can expire.
        for effect in effects:
            match effect:
                case Answer(reply_id=answered, content=content):
                    if answered == reply_id:
                        own = content
                    else:
                        self._reply(answered, content)
                case Store():
                    task = asyncio.create_task(self._carry_out(effect), name=f"store {self.group.group_id}")
                    self._stores.add(task)
                    task.add_done_callback(self._stores.discard)
                case RebalanceStarted(reason=reason):
                    self._log(logging.INFO, "rebalance", reason=reason)
                case RebalanceCompleted(duration_ms=duration_ms):
                    self._metrics.rebalance_duration.observe(duration_ms / 1000)
                    self._log(logging.INFO, "stable", duration_ms=duration_ms)
        if not isinstance(event, _SESSION_EVENTS) and not self._stopped:
            self._count()
            self._set_timer()
            if self.is_unused:
                self._on_unused(self)
        return own

    def _reply(self, reply_id: int, content: Content) -> None:
        waiting = self._waiting.pop(reply_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(content)

    async def _carry_out(self, store: Store) -> None:
        try:
            await self._store(self, store.record)
        except KafkaError as problem:
            self._log(logging.WARNING, "could not store a group", problem=quoted(str(problem), 500))
            if isinstance(problem, WriteInDoubtError):
                self.note_indeterminate_record()
            self._store_failed(store, problem.code)
        except Exception:
            # A defect: the members must not wait for it.
            logger.exception("could not store a group", extra=self._fields())
            self._store_failed(store, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self.in_store = InStore.YES
            self.notify(Stored(now_ms=self._now_ms(), store_id=store.store_id))

    def _store_failed(self, store: Store, error_code: ErrorCode) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._stores.discard(task)  # It gives the group no record: the group may be unused now.
        self.notify(StoreFailed(now_ms=self._now_ms(), store_id=store.store_id, error_code=error_code))

    def _set_timer(self) -> None:
        deadline_ms = self.group.next_deadline_ms()
        if deadline_ms is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_sec = max(deadline_ms - self._now_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_sec, self._time_has_passed)

    def _time_has_passed(self) -> None:
        self._timer = None
        self.notify(TimePassed(now_ms=self._now_ms()))

    def _count(self) -> None:
        group = self.group
        counted = Counted(group.state, len(group.members), group.memory_bytes)
        self._counted = self._totals.replace(self._counted, counted)

    def _log(self, level: int, message: str, **fields: object) -> None:
        """Log a line unless this group has reached its limit: a client can rebalance as fast as it likes."""
        left_out = self._lines.take(self._now_ms())
        if left_out is None:
            return
        shown = {"left_out_of_group": left_out} if left_out else {}
        logger.log(level, message, extra=self._fields() | fields | shown)

    def _fields(self) -> dict[str, object]:
        group = self.group
        return {
            "group": quoted(group.group_id),
            "generation": group.generation,
            "members": len(group.members),
        }
