"""A member as clients behave: it gives up before it says so, and counts as its own what it was told.

It may be slow, stuck in a callback, or lose answers; whatever it does is legal in the consumer protocol (KIP-848).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from kafscale.groups.consumer.events import LEAVES_FOR_A_WHILE, ConsumerHeartbeatReceived
from kafscale.groups.effects import Heartbeated
from kafscale.groups.modern.assignment import Assignment, TopicIdPartition, partitions_of
from kafscale.groups.modern.events import JOINS, LEAVES
from kafscale.protocol.error_codes import ErrorCode

ANSWERED_WITHIN_MS = 5000


class Phase(Enum):
    """The next thing that a client does."""

    TO_JOIN = auto()
    MEMBER = auto()
    GONE = auto()


def as_assignment(partitions: set[TopicIdPartition]) -> Assignment:
    """The partitions, by topic id."""
    return {
        topic_id: frozenset(index for topic, index in partitions if topic == topic_id)
        for topic_id, _ in partitions
    }


@dataclass(slots=True, eq=False)
class WalkingMember:
    """One client. `has`: what it was told to have, and has not given up. `numbers` gives ids that nobody else has."""

    numbers: Iterator[int] = field(repr=False)
    member_id: str
    instance_id: str | None
    names: frozenset[str] | None
    regex: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    is_stuck: bool = False
    phase: Phase = Phase.TO_JOIN
    epoch: int = 0
    has: set[TopicIdPartition] = field(default_factory=set)
    target: set[TopicIdPartition] = field(default_factory=set)
    reply_id: int | None = None
    sent_ms: int = 0
    heard_ms: int = 0
    give_up_by_ms: int | None = None
    needs_full: bool = True
    reported: set[TopicIdPartition] = field(default_factory=set)
    errors: list[ErrorCode] = field(default_factory=list, repr=False)

    def next_request(self, now_ms: int) -> ConsumerHeartbeatReceived | None:
        """The next heartbeat, unless an answer is awaited."""
        if self.phase is Phase.GONE or self.reply_id is not None:
            return None
        if self.phase is Phase.TO_JOIN:
            self._give_up_all()
            return self._request(now_ms, JOINS, is_full=True)
        return self._request(now_ms, self.epoch, is_full=self.needs_full)

    def leave(self, now_ms: int) -> ConsumerHeartbeatReceived:
        """Give up all, and say so. A static member leaves for a while."""
        self._give_up_all()
        epoch = LEAVES if self.instance_id is None else LEAVES_FOR_A_WHILE
        request = self._request(now_ms, epoch, is_full=False)
        self.phase = Phase.GONE
        return request

    def _request(self, now_ms: int, epoch: int, *, is_full: bool) -> ConsumerHeartbeatReceived:
        self.reply_id, self.sent_ms = next(self.numbers), now_ms
        says_what_it_has = is_full or self.has != self.reported
        if says_what_it_has:
            self.reported = set(self.has)
        return ConsumerHeartbeatReceived(
            now_ms=now_ms,
            reply_id=self.reply_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=self.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=self.names if is_full else None,
            subscribed_topic_regex=self.regex if is_full else None,
            resolved=None,
            server_assignor=None,
            owned=as_assignment(self.has) if says_what_it_has else None,
            client_id="client",
            client_host="/127.0.0.1",
        )

    def answered(self, answer: Heartbeated) -> None:
        """Hear the answer to the newest request."""
        self.reply_id = None
        if self.phase is Phase.GONE:
            return
        self.errors.append(answer.error_code)
        match answer.error_code:
            case ErrorCode.NONE:
                self._told(answer)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH:
                self.start_again()
            case ErrorCode.FENCED_INSTANCE_ID:
                self._give_up_all()
                self.phase = Phase.GONE
            case ErrorCode.UNRELEASED_INSTANCE_ID:
                assert self.phase is Phase.TO_JOIN
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self.needs_full = True
            case unexpected:
                raise AssertionError(f"{self.member_id} met {unexpected!r}: {answer.message}")

    def _told(self, answer: Heartbeated) -> None:
        if self.phase is Phase.MEMBER:
            assert answer.member_epoch >= self.epoch, "the epoch went back"
        self.phase, self.epoch, self.heard_ms = Phase.MEMBER, answer.member_epoch, self.sent_ms
        self.needs_full = False
        if answer.assignment is not None:
            self.target = set(partitions_of(answer.assignment))
            if not self.has <= self.target and self.give_up_by_ms is None:
                self.give_up_by_ms = self.sent_ms + self.rebalance_timeout_ms
            self.has |= self.target

    def reconcile(self) -> None:
        """Give up what it is not to have any more; a client that is stuck does not come to it."""
        if self.phase is Phase.MEMBER and not self.is_stuck:
            self.has &= self.target
            self.give_up_by_ms = None

    def lose_answer(self) -> None:
        """Wait for no answer any more: the next heartbeat says all."""
        self.reply_id, self.needs_full = None, True

    def time_is(self, now_ms: int) -> None:
        """Give up what it was asked to too long ago, or all that it had before it lost the coordinator.

        One that is stuck knows nothing of the time: the coordinator has to.

        The coordinator answers each request in time, if only to say that the store is away.
        """
        if self.reply_id is not None and now_ms >= self.sent_ms + ANSWERED_WITHIN_MS:
            self.lose_answer()
        if self.phase is Phase.MEMBER:
            by_ms = None if self.is_stuck else self.give_up_by_ms
            is_late = by_ms is not None and now_ms >= by_ms
            if is_late or now_ms >= self.heard_ms + self.session_timeout_ms:
                self.start_again()

    def start_again(self) -> None:
        """Give up all and join."""
        self._give_up_all()
        self.phase, self.reply_id = Phase.TO_JOIN, None

    def _give_up_all(self) -> None:
        self.has, self.target, self.reported = set(), set(), set()
        self.epoch, self.needs_full, self.give_up_by_ms = 0, True, None
