"""The raw driver of consumer groups (KIP-848): very many members join at once, then send nothing but heartbeats."""

import heapq
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.framed import Crowd, Framed
from bench.group_wire import NOT_YET, await_coordinator
from bench.meter import Meter
from bench.specs import ConsumerGroupSpec, GroupBeats, Window
from bench.wire import Client, WireError, encode
from kafscale.protocol.api_messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_VERSION: Final = 1
_JOINS, _LEAVES = 0, -1
_REBALANCE_TIMEOUT_MS = 300_000
_ASK_AGAIN_SECONDS = 0.01
_STALL_SECONDS = 60.0
_ERROR_AT = slice(13, 15)
"""Of a heartbeat's reply, after length, correlation id, no tagged fields and throttle time."""

_Owned = dict[uuid.UUID, list[int]]


@dataclass(slots=True, kw_only=True)
class _Member:
    """`owned`: what it was given last. `epoch`: of its last reply."""

    group: str
    id: str
    topic: str
    connection: Framed
    epoch: int = _JOINS
    owned: _Owned = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))

    def join(self) -> None:
        self.connection.send(self._frame(names=[self.topic], owned={}))

    def acknowledge(self) -> None:
        """Say what it has: it has given up all else, at once."""
        self.connection.send(self._frame(owned=self.owned))

    def beat(self) -> None:
        self.connection.send(self.beat_frame())

    def leave(self) -> None:
        self.epoch = _LEAVES
        self.beat()

    def beat_frame(self) -> bytes:
        """A heartbeat of a member that has nothing to say."""
        return self._frame()

    def _frame(self, names: list[str] | None = None, owned: _Owned | None = None) -> bytes:
        row = ConsumerGroupHeartbeatRequest.TopicPartitions
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS if names else -1,
            subscribed_topic_names=names,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=None
            if owned is None
            else [row(topic_id=topic_id, partitions=indexes) for topic_id, indexes in owned.items()],
        )
        return encode(request, _VERSION, correlation_id=1)


def drive_consumer_group(spec: ConsumerGroupSpec) -> GroupBeats:
    """A group that joins, beats and leaves for a warm-up, and one that is measured."""
    with Client(spec.host, spec.port) as client:
        await_coordinator(client, spec.group)
    with Crowd(spec.host, spec.port, spec.members) as crowd:
        warm_up = _members(spec, crowd, "warm-up")
        _join(spec, crowd, warm_up)
        _beat_as_fast_as_may_be(spec, crowd, warm_up, spec.warmup_seconds, Meter(spec.broker_pids))
        _leave(crowd, warm_up)
        members = _members(spec, crowd, spec.group)
        joined, beats_of_joins = _join(spec, crowd, members)
        fast = Meter(spec.broker_pids)
        beats = _beat_as_fast_as_may_be(spec, crowd, members, spec.seconds, fast)
        paced = Meter(spec.broker_pids)
        milliseconds = _beat_in_time(spec, crowd, members, paced)
    return GroupBeats(
        joined=joined,
        beats_of_joins=beats_of_joins,
        fast=fast.window(1, total_records=beats),
        paced=paced.window(1, total_records=len(milliseconds)),
        milliseconds=sorted(milliseconds),
    )


def _members(spec: ConsumerGroupSpec, crowd: Crowd, group: str) -> list[_Member]:
    return [
        _Member(group=group, id=str(uuid.uuid4()), topic=spec.topic, connection=connection)
        for connection in crowd.connections
    ]


def _join(spec: ConsumerGroupSpec, crowd: Crowd, members: Sequence[_Member]) -> tuple[Window, int]:
    """From the first request until all have their targets, and how many heartbeats that took.

    A member beats every `interval_seconds`, and at once when it has a new assignment.
    """
    meter, share = Meter(spec.broker_pids), spec.partitions // len(members)
    due: list[tuple[float, int]] = []
    begin = moved = time.monotonic()
    beats = complete = 0
    meter.open(0)
    for member in members:
        member.join()
    while complete < len(members) or len({member.epoch for member in members}) > 1:
        now = time.monotonic()
        while due and due[0][0] <= now:
            members[heapq.heappop(due)[1]].beat()
        for number, frame in crowd.replies(min(0.1, due[0][0] - now) if due else 0.1):
            member, moved = members[number], now
            beats += 1
            had = member.partitions == share
            wait = _take(member, frame, spec.interval_seconds)
            complete += (member.partitions == share) - had
            if wait:
                heapq.heappush(due, (time.monotonic() + wait, number))
        if now - moved > _STALL_SECONDS or now - begin > spec.join_timeout_seconds:
            raise WireError(
                f"{complete} of {len(members)} members have {share} partitions after {now - begin:.0f} s"
            )
    meter.close(len(members))
    _await_replies(crowd, len(members) - len(due))
    return meter.window(1, total_records=beats), beats


def _take(member: _Member, frame: bytes, interval_seconds: float) -> float:
    """Answer what the reply asks for at once; else the time until the next heartbeat."""
    response: Any = ConsumerGroupHeartbeatResponse
    reply = response.decode(frame, version=_VERSION, header=True, framed=True)
    if reply.error_code in NOT_YET and member.epoch == _JOINS:
        time.sleep(_ASK_AGAIN_SECONDS)
        member.join()
        return 0.0
    if reply.error_code:
        raise WireError(f"heartbeat of {member.id}: error code {reply.error_code}, {reply.error_message}")
    member.epoch = reply.member_epoch
    if reply.assignment is None:
        return interval_seconds
    member.owned = {one.topic_id: list(one.partitions) for one in reply.assignment.topic_partitions}
    member.acknowledge()
    return 0.0


def _beat_as_fast_as_may_be(
    spec: ConsumerGroupSpec, crowd: Crowd, members: Sequence[_Member], seconds: float, meter: Meter
) -> int:
    """One heartbeat of each member is in flight all the time. Returns how many were answered."""
    frames = [member.beat_frame() for member in members]
    connections = crowd.connections
    begin = moved = time.monotonic()
    opens, closes = begin + spec.settle_seconds, begin + spec.settle_seconds + seconds
    done, waiting = 0, len(members)
    for connection, frame in zip(connections, frames, strict=True):
        connection.send(frame)
    while waiting:
        now = time.monotonic()
        if meter.never_opened and now >= opens:
            meter.open(done)
        if meter.is_open and now >= closes:
            meter.close(done)
        for number, reply in crowd.replies(0.1):
            moved = now
            _check(reply)
            done += 1
            if now < closes:
                connections[number].send(frames[number])
            else:
                waiting -= 1
        _check_moved(now - moved)
    return done


def _beat_in_time(
    spec: ConsumerGroupSpec, crowd: Crowd, members: Sequence[_Member], meter: Meter
) -> list[float]:
    """The members in turn, so many a second; the milliseconds from when each was due to its reply."""
    frames = [member.beat_frame() for member in members]
    total = int(spec.paced_per_second * spec.seconds)
    due_at = [0.0] * len(members)
    milliseconds: list[float] = []
    sent = 0
    begin = moved = time.monotonic()
    meter.open(0)
    while len(milliseconds) < total:
        now = time.monotonic()
        while sent < total and begin + sent / spec.paced_per_second <= now:
            number = sent % len(members)
            due_at[number] = begin + sent / spec.paced_per_second
            crowd.connections[number].send(frames[number])
            sent += 1
        next_at = begin + sent / spec.paced_per_second if sent < total else now + 0.1
        for number, reply in crowd.replies(next_at - time.monotonic()):
            moved = now
            _check(reply)
            milliseconds.append((time.monotonic() - due_at[number]) * 1000)
        _check_moved(now - moved)
    meter.close(len(milliseconds))
    return milliseconds


def _leave(crowd: Crowd, members: Sequence[_Member]) -> None:
    for member in members:
        member.leave()
    _await_replies(crowd, len(members))


def _await_replies(crowd: Crowd, count: int) -> None:
    moved = time.monotonic()
    while count > 0:
        for _number, reply in crowd.replies(0.1):
            moved = time.monotonic()
            _check(reply)
            count -= 1
        _check_moved(time.monotonic() - moved)


def _check(reply: bytes) -> None:
    if any(reply[_ERROR_AT]):
        raise WireError(f"heartbeat: the broker answered error code {int.from_bytes(reply[_ERROR_AT])}")


def _check_moved(seconds: float) -> None:
    if seconds > _STALL_SECONDS:
        raise WireError(f"heartbeats: nothing came back for {_STALL_SECONDS:.0f} s")
