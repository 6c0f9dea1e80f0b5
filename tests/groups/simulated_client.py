"""A group member as clients behave: it answers each reply with the request that Kafka's protocol has next."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from kafscale.groups.effects import Content, Decided, Joined, Left, Synced
from kafscale.groups.events import Event, Heartbeat, Join, LeavingMember, Protocol, Sync
from kafscale.protocol.error_codes import ErrorCode


class Phase(Enum):
    """A client's next step, or what it waits for."""

    TO_JOIN = auto()
    JOINING = auto()
    TO_SYNC = auto()
    SYNCING = auto()
    MEMBER = auto()
    GONE = auto()


@dataclass(slots=True)
class SimulatedClient:
    """One client. `reply_id`: of its newest request; it has given up what it asked before.

    `numbers` gives ids that nobody else has.
    """

    numbers: Iterator[int]
    instance_id: str | None
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 30_000
    member_id_required: bool = True
    can_skip_assignment: bool = True
    member_id: str = ""
    generation: int = -1
    phase: Phase = Phase.TO_JOIN
    reply_id: int | None = None
    assignment: bytes = b""
    joined: Joined = field(default_factory=Joined)

    def next_request(self, now_ms: int) -> Event | None:
        """The next request, if it is this client's turn."""
        match self.phase:
            case Phase.TO_JOIN:
                return self.join(now_ms)
            case Phase.TO_SYNC:
                return self.sync(now_ms)
            case Phase.MEMBER:
                return self.heartbeat(now_ms)
            case _:
                return None

    def join(self, now_ms: int) -> Join:
        """Join, again if need be."""
        self.phase, self.reply_id = Phase.JOINING, next(self.numbers)
        return Join(
            now_ms=now_ms,
            reply_id=self.reply_id,
            member_id=self.member_id,
            new_member_id=f"member-{self.reply_id}",
            group_instance_id=self.instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocol_type="consumer",
            protocols=self.protocols,
            member_id_required=self.member_id_required,
            can_skip_assignment=self.can_skip_assignment,
        )

    def sync(self, now_ms: int) -> Sync:
        """Ask for the assignment; the leader says what everybody's is, different each time it is asked."""
        self.phase, self.reply_id = Phase.SYNCING, next(self.numbers)
        return Sync(
            now_ms=now_ms,
            reply_id=self.reply_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation=self.generation,
            protocol_type=self.joined.protocol_type,
            protocol_name=self.joined.protocol_name,
            assignments=self.assignments(self.reply_id),
        )

    def assignments(self, attempt: int) -> Mapping[str, bytes]:
        """A leader's assignment: something that no other member, generation or attempt has."""
        return {
            one.member_id: f"{one.member_id} of {self.generation}, {attempt}".encode()
            for one in self.joined.members
        }

    def heartbeat(self, now_ms: int) -> Heartbeat:
        """Say that it lives."""
        self.reply_id = next(self.numbers)
        return Heartbeat(
            now_ms=now_ms,
            reply_id=self.reply_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation=self.generation,
        )

    def leaving(self) -> LeavingMember:
        """Itself, in a LeaveGroup."""
        return LeavingMember(self.member_id, self.instance_id)

    def lose_connection(self) -> None:
        """Whatever it waited for does not come any more."""
        self.reply_id = None
        if self.phase in (Phase.JOINING, Phase.SYNCING):
            self.phase = Phase.TO_JOIN

    def answered(self, content: Content) -> None:
        """Take the reply in."""
        match content:
            case Joined(error_code=ErrorCode.NONE):
                self.joined, self.phase = content, Phase.TO_SYNC
                self.member_id, self.generation = content.member_id, content.generation
            case Joined(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id, self.phase = content.member_id, Phase.TO_JOIN
            case Synced(error_code=ErrorCode.NONE):
                self.assignment, self.phase = content.assignment, Phase.MEMBER
            case Decided(error_code=ErrorCode.NONE) | Left():
                pass
            case Joined() | Synced() | Decided():
                self._refused(content.error_code)

    def _refused(self, error_code: ErrorCode) -> None:
        if error_code in (
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ):
            self.phase = Phase.GONE
            return
        if error_code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = -1
        self.phase = Phase.TO_JOIN
