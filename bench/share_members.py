"""The raw driver of share groups: each member fetches, says how it is done with what it got, and fetches again."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from bench.framed import Crowd, Framed
from bench.group_wire import alter_group_config, await_coordinator, join_share_group, topic_id
from bench.meter import Meter
from bench.share_wire import (
    ACCEPT,
    RELEASE,
    AcquiredRange,
    ShareLimits,
    ShareSession,
    acquired_ranges,
    batch,
    check_acknowledged,
)
from bench.specs import Shared, ShareGroupSpec
from bench.wire import Client, WireError

_MAX_WAIT_MS = 500
_MAX_BYTES = 50 * 1024 * 1024
_STALL_SECONDS = 60.0
_REST = 0.02
"""The window closes when so much of the topic is left: members that find nothing would be measured."""
_MOST_WARM_UP = 0.4
"""So much of the topic may be read before the window."""

Acknowledger = Callable[[AcquiredRange], tuple[bytes, int]]
"""The batch that acknowledges a range, and how many records it accepts."""


def _all(one: AcquiredRange) -> tuple[bytes, int]:
    return batch(one.first, one.last, bytes((ACCEPT,))), one.last - one.first + 1


def _every_other(one: AcquiredRange) -> tuple[bytes, int]:
    """Every second record is released when it is delivered first: it comes back by itself, between two others."""
    if one.delivery_count > 1:
        return _all(one)
    records = one.last - one.first + 1
    return batch(one.first, one.last, _alternating(records)), (records + 1) // 2


@cache
def _alternating(records: int) -> bytes:
    return (bytes((ACCEPT, RELEASE)) * ((records + 1) // 2))[:records]


@dataclass(slots=True, kw_only=True)
class _Member:
    connection: Framed
    session: ShareSession
    partitions: Sequence[int]
    epoch: int = 0
    accepting: int = 0
    sent_at: float = 0.0
    acknowledges: bool = field(default=False)

    def fetch(self) -> None:
        self.acknowledges = False
        added = () if self.epoch else self.partitions
        self.connection.send(self.session.fetch(self.epoch, added))
        self.epoch += 1

    def acknowledge(self, acquired: Sequence[AcquiredRange], how: Acknowledger) -> None:
        said: dict[int, list[bytes]] = {}
        self.accepting = 0
        for one in acquired:
            packed, accepted = how(one)
            said.setdefault(one.partition, []).append(packed)
            self.accepting += accepted
        self.acknowledges = True
        self.sent_at = time.monotonic()
        self.connection.send(self.session.acknowledge(self.epoch, said))
        self.epoch += 1


def drive_share_group(spec: ShareGroupSpec) -> Shared:
    """Reads a topic from its beginning until the window is over, or nearly all records are accepted."""
    names = [f"{spec.group}-member-{number}" for number in range(spec.members)]
    with Client(spec.host, spec.port) as client:
        alter_group_config(client, spec.group, "share.auto.offset.reset", "earliest")
        await_coordinator(client, spec.group)
        topic = topic_id(client, spec.topic)
        assigned = join_share_group(client, spec.group, spec.topic, names, spec.partitions)
    limits = ShareLimits(max_wait_ms=_MAX_WAIT_MS, max_bytes=_MAX_BYTES, max_records=spec.max_records)
    with Crowd(spec.host, spec.port, spec.members) as crowd:
        members = [
            _Member(
                connection=connection,
                session=ShareSession(group=spec.group, member=name, topic_id=topic, limits=limits),
                partitions=assigned[name],
            )
            for name, connection in zip(names, crowd.connections, strict=True)
        ]
        return _Run(spec, crowd, members).run()


class _Run:
    """All members at work. What is in flight at the end is left."""

    def __init__(self, spec: ShareGroupSpec, crowd: Crowd, members: Sequence[_Member]) -> None:
        self._spec = spec
        self._crowd = crowd
        self._members = members
        self._how = _every_other if spec.releases_every_other else _all
        self._accepted = self._acknowledgements = self._requests_before = 0
        self._opens = float("inf")
        self._measured: list[float] = []

    def run(self) -> Shared:
        """The warm-up begins with the first acknowledgement: Kafka loads share partitions at their first fetch.

        It ends early for a broker that would have no records left by its end.
        """
        spec, meter = self._spec, Meter(self._spec.broker_pids)
        moved = time.monotonic()
        enough = spec.records * (1 - _REST)
        for member in self._members:
            member.fetch()
        while (now := time.monotonic()) < self._opens + spec.seconds and self._accepted < enough:
            if meter.never_opened and (now >= self._opens or self._accepted >= enough * _MOST_WARM_UP):
                self._opens = now
                meter.open(self._accepted)
                self._requests_before = self._acknowledgements
            before = self._acknowledgements
            for number, reply in self._crowd.replies(0.1):
                self._answered(self._members[number], reply)
            if self._acknowledgements > before:
                moved = now
                self._opens = min(self._opens, now + spec.warmup_seconds)
            if now - moved > _STALL_SECONDS:
                raise WireError(f"share group: nothing was acknowledged for {_STALL_SECONDS:.0f} s")
        if meter.never_opened:
            raise WireError(f"all {self._accepted} records were accepted before the window opened")
        meter.close(self._accepted)
        return Shared(
            window=meter.window(spec.record_bytes, total_records=self._accepted),
            acknowledgements=self._acknowledgements - self._requests_before,
            milliseconds=sorted(self._measured),
        )

    def _answered(self, member: _Member, reply: bytes) -> None:
        if not member.acknowledges:
            acquired = acquired_ranges(reply)
            if acquired:
                member.acknowledge(acquired, self._how)
            else:
                member.fetch()
            return
        check_acknowledged(reply)
        if member.sent_at >= self._opens:
            self._measured.append((time.monotonic() - member.sent_at) * 1000)
        self._acknowledgements += 1
        self._accepted += member.accepting
        member.fetch()
