"""The driver of one group's state machine: carries out its effects on the event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from kafscale.formats.group_record import GroupRecord
from kafscale.groups.any_group import AnyEvent, AnyGroup, apply
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.effects import Downgraded
from kafscale.groups.effects import Answer, Content, Decided, RebalanceCompleted, RebalanceStarted, Store
from kafscale.groups.events import Commit, Heartbeat, Stored, StoreFailed, TimePassed
from kafscale.groups.group import Group
from kafscale.groups.line_window import LineWindow
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.modern.events import Assigned, Loaded
from kafscale.groups.modern.settling import failure
from kafscale.groups.shard_writer import WriteInDoubtError
from kafscale.groups.share.effects import InitializeStarts
from kafscale.groups.share.events import StartsInitialized
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.groups.stored_bytes import StoredGroup
from kafscale.groups.totals import NOT_COUNTED, Counted, GroupTotals
from kafscale.ops.metrics import GroupMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)


class GroupHome(Protocol):
    """The shard, as its groups need it. Each raises `KafkaError` with the code that the members get."""

    async def store_group(self, running: "RunningGroup", record: GroupRecord) -> None:
        """Make the record of a classic group durable."""

    async def store_changes(self, running: "RunningGroup", changes: StoreChanges) -> None:
        """Make the changes of a consumer group, or a share group, durable, however long it takes."""

    async def store_downgraded(self, running: "RunningGroup", downgraded: Downgraded) -> None:
        """Make it durable that a consumer group is a classic group now, however long it takes."""

    async def assign(self, running: "RunningGroup", group: ConsumerGroup | ShareGroup) -> Assigned:
        """Compute the target assignment of the group."""

    async def initialize_starts(self, running: "RunningGroup", partitions: Assignment) -> StartsInitialized:
        """Set the start of each of these partitions of a share group that has none."""

    def remove(self, running: "RunningGroup") -> None:
        """Remove a group that is not used any more."""


# These events only postpone a deadline: the timer fires early then, and is set again.
_SESSION_EVENTS: Final = (Heartbeat, Commit)

# Ten rebalances, or half as many that fail.
_LINES_A_MINUTE: Final = 20
_MS_PER_MINUTE: Final = 60_000
_ASSIGN_AGAIN_SEC: Final = 5.0


class InStore(Enum):
    """Tells if the store has a record of a group. MAYBE: a write or deletion of it is indeterminate."""

    NO = auto()
    MAYBE = auto()
    YES = auto()


class RunningGroup:
    """A group, its timer, its waiting requests and its stores in flight.

    `in_store`: if it has a record in the store. `commits_in_flight`: which may write one. `stored`: the group's bytes
    in the store; `member_bytes`: those of the members' own keys. `touched`: during a search for expired offsets, the
    keys that were committed since it began. `expiry_check_at_ms`: none of its offsets can expire before that.
    `starts_lock`: held from reading a share group's starts until those that follow from them are written.
    """

    def __init__(
        self,
        group: AnyGroup,
        now_ms: Callable[[], int],
        home: GroupHome,
        totals: GroupTotals,
        metrics: GroupMetrics,
        *,
        in_store: InStore,
    ) -> None:
        self.group = group
        self.in_store = in_store
        self.stored = StoredGroup(totals.stored)
        self.member_bytes: dict[str, int] = {}
        self.commits_in_flight = 0
        self.touched: set[str] | None = None
        self.expiry_check_at_ms = 0
        self.starts_lock = asyncio.Lock()
        self._now_ms = now_ms
        self._home = home
        self._totals = totals
        self._metrics = metrics
        self._waiting: dict[int, asyncio.Future[Content]] = {}
        self._stores: set[asyncio.Task[None]] = set()
        self._downgrades = 0
        self._held: list[Answer] = []
        self._tasks = TaskOwner()
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

    def begin(self) -> None:
        """Continue with a group that was loaded."""
        self.notify(Loaded(now_ms=self._now_ms()))

    def replace(self, group: AnyGroup) -> None:
        """Go on with a group of the other type, which has the same id and the same offsets."""
        self.group = group
        self.expiry_check_at_ms = 0
        self._count()
        self._set_timer()

    def decide(self, event: AnyEvent, reply_id: int) -> Content:
        """Apply a request that is answered at once, and return its answer."""
        content = self._apply(event, reply_id)
        assert content is not None, f"{event} is answered at once"
        return content

    async def ask(self, event: AnyEvent, reply_id: int, wait_sec: float | None = None) -> Content:
        """Apply a request, and return its answer once the group gives it.

        A client that stops waiting stays a member; its answer is discarded. Raises TimeoutError after `wait_sec`.
        """
        content = self._apply(event, reply_id)
        if content is not None:
            return content
        waiting: asyncio.Future[Content] = asyncio.get_running_loop().create_future()
        self._waiting[reply_id] = waiting
        try:
            async with asyncio.timeout(wait_sec):
                return await waiting
        finally:
            self._waiting.pop(reply_id, None)

    def notify(self, event: AnyEvent) -> None:
        """Apply an event that is no request."""
        self._apply(event, None)

    def stop(self) -> set[asyncio.Task[None]]:
        """Cancel the timer and take the group out of the totals. Returns the stores in flight, which go on.

        One of them may say that the last member has left: the next coordinator must not wait for its session.
        """
        self._stopped = True
        for task in self._tasks.tasks:
            task.cancel()
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

    def remove_if_unused(self) -> None:
        """Remove the group from its shard if nothing is lost by it."""
        if not self._stopped and self.is_unused:
            self._home.remove(self)

    def note_indeterminate_record(self) -> None:
        """A write of the record is indeterminate: if there was none, there may be one now."""
        if self.in_store is InStore.NO:
            self.in_store = InStore.MAYBE

    def _apply(self, event: AnyEvent, reply_id: int | None) -> Content | None:
        """Apply the event; returns the answer to the request of `reply_id`, if there is one already."""
        own = None
        state = self.group.state
        effects = apply(self.group, event)
        if self.group.state is not state:
            self.expiry_check_at_ms = 0  # In another state other offsets can expire.
        for effect in effects:
            match effect:
                case Answer(content=content) if self._downgrades and not isinstance(content, Decided):
                    # What is decided at once changes nothing that a member has, or is written after the downgrade.
                    self._held.append(effect)
                case Answer(reply_id=answered, content=content):
                    if answered == reply_id:
                        own = content
                    else:
                        self._reply(answered, content)
                case Store() | StoreChanges():
                    self._spawn_store(self._carry_out(effect, self.group))
                case Downgraded():
                    self._downgrades += 1
                    # Before any write of its own, such as the first commit's, comes that of the downgrade.
                    self.in_store = InStore.YES
                    self.replace(effect.group)
                    self._spawn_store(self._store_downgraded(effect))
                case Assign():
                    self._spawn_answer("assign", partial(self._home.assign, self, self._modern_group()))
                case InitializeStarts(partitions=partitions):
                    self._spawn_answer("starts", partial(self._home.initialize_starts, self, partitions))
                case RebalanceStarted(reason=reason):
                    self._log(logging.INFO, "rebalance", reason=reason)
                case RebalanceCompleted(duration_ms=duration_ms):
                    self._metrics.rebalanced(self.group.GROUP_TYPE, duration_ms / 1000)
                    self._log(logging.INFO, "stable", duration_ms=duration_ms)
        if self._stopped:
            return own
        if not isinstance(self.group, Group) or not isinstance(event, _SESSION_EVENTS):
            self._set_timer()
        if not isinstance(event, _SESSION_EVENTS):
            self._count()
            if self.is_unused:
                self._home.remove(self)
        return own

    def _reply(self, reply_id: int, content: Content) -> None:
        waiting = self._waiting.pop(reply_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(content)

    def _modern_group(self) -> ConsumerGroup | ShareGroup:
        assert not isinstance(self.group, Group)
        return self.group

    def _spawn_answer(self, name: str, work: Callable[[], Awaitable[AnyEvent]]) -> None:
        self._tasks.spawn(self._answer_with(work, self.group), f"{name} {self.group.group_id}")

    async def _answer_with(self, work: Callable[[], Awaitable[AnyEvent]], group: AnyGroup) -> None:
        """Notify the group of the event that the work ends with."""
        while self.group is group:
            try:
                event = await work()
            except KafkaError as problem:
                # Only a coordinator that was replaced gives up: the next one assigns.
                self._log(logging.INFO, "no assignment", problem=quoted(str(problem), 500))
                return
            except Exception:
                # A defect, perhaps of these members or topics only: with others the group goes on.
                logger.exception("could not compute an assignment", extra=self._fields())
                await asyncio.sleep(_ASSIGN_AGAIN_SEC)
                continue
            if self.group is group:
                self.notify(event)
            return

    def _spawn_store(self, storing: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(storing, name=f"store {self.group.group_id}")
        self._stores.add(task)
        task.add_done_callback(self._stores.discard)

    async def _store_downgraded(self, downgraded: Downgraded) -> None:
        """Store it, and give the answers that have waited for that."""
        error_code = ErrorCode.NONE
        try:
            await self._home.store_downgraded(self, downgraded)
        except KafkaError as problem:
            self._log(logging.WARNING, "could not store a group", problem=quoted(str(problem), 500))
            error_code = problem.code
        except Exception:
            logger.exception("could not store a group", extra=self._fields())
            error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        self._downgrades -= 1
        if not self._downgrades or error_code is not ErrorCode.NONE:
            held, self._held = self._held, []
            for one in held:
                failed = error_code is not ErrorCode.NONE
                self._reply(one.reply_id, failure(one.content, error_code) if failed else one.content)

    async def _carry_out(self, store: Store | StoreChanges, group: AnyGroup) -> None:
        try:
            if isinstance(store, StoreChanges):
                await self._home.store_changes(self, store)
            else:
                await self._home.store_group(self, store.record)
        except KafkaError as problem:
            self._log(logging.WARNING, "could not store a group", problem=quoted(str(problem), 500))
            if isinstance(problem, WriteInDoubtError):
                self.note_indeterminate_record()
            self._store_failed(store, group, problem.code)
        except Exception:
            # A defect: the members must not wait for it.
            logger.exception("could not store a group", extra=self._fields())
            self._store_failed(store, group, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self.in_store = InStore.YES
            self._notify_of_store(group, Stored(now_ms=self._now_ms(), store_id=store.store_id))

    def _store_failed(self, store: Store | StoreChanges, group: AnyGroup, error_code: ErrorCode) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._stores.discard(task)  # It gives the group no record: the group may be unused now.
        event = StoreFailed(now_ms=self._now_ms(), store_id=store.store_id, error_code=error_code)
        self._notify_of_store(group, event)

    def _notify_of_store(self, group: AnyGroup, event: Stored | StoreFailed) -> None:
        """Tell the group that has stored something. If it was replaced, there are answers that have waited for it."""
        if group is self.group:
            self.notify(event)
            return
        for effect in apply(group, event):
            if isinstance(effect, Answer):
                self._reply(effect.reply_id, effect.content)

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
        counted = Counted(group, group.state, len(group.members), group.memory_bytes)
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
            "generation": group.generation if isinstance(group, Group) else group.group_epoch,
            "members": len(group.members),
        }
