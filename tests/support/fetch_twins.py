"""One broker's fetch handler with and without the memory of idle consumers' answers, side by side."""

import dataclasses
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafscale.handlers import fetch
from kafscale.metadata.store import NO_LEASE
from kafscale.protocol.types import Buffer
from kafscale.serving.context import Broker, ClientSoftware, Held, RequestContext
from kafscale.serving.deadlines import Deadlines
from kafscale.serving.idle_answers import Asked, IdleAnswer, IdleAnswers
from kafscale.serving.request_times import RequestTimes
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, until

TOPIC = "orders"
PARTITIONS = 4
VERSIONS = (4, 6, 7, 10, 11, 12, 13)


class SpiedAnswers(IdleAnswers):
    """Counts the requests whose answer was known."""

    found = 0

    def find(self, asked: Asked) -> IdleAnswer | None:
        answer = super().find(asked)
        self.found += answer is not None
        return answer


class SteadyDeadlines(Deadlines):
    """Waits that start between two calls of `tick` end together: on uvloop the time advances at any timer."""

    now_ms = 0.0

    def tick(self) -> None:
        self.now_ms = super()._now_ms()

    def _now_ms(self) -> float:
        return self.now_ms


@dataclass
class Recorded:
    """A reply that is not sent: the part of a `Reply` without a connection."""

    frame: bytes | None = None
    error_code: int = 0
    ended: bool = False
    abandoned: Callable[[], None] | None = None
    times: RequestTimes | None = None
    connected_for_ms: int = 0

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        assert self.frame is None, "a request is answered twice"
        self.frame, self.error_code = b"".join(buffers), error_code
        if held is not None:
            held.release()

    def drop(self) -> None:
        raise AssertionError("every fetch has a reply")

    def end_connection(self) -> None:
        self.ended = True

    @property
    def answer(self) -> tuple[bytes, int] | None:
        """All but the correlation id."""
        if self.frame is None:
            return None
        assert struct.unpack_from(">i", self.frame)[0] == len(self.frame) - 4
        return self.frame[:4] + self.frame[8:], self.error_code

    @property
    def correlation_id(self) -> int:
        assert self.frame is not None
        return int(struct.unpack_from(">i", self.frame, 4)[0])


@dataclass
class Twins:
    """The handlers of one broker, one with remembered answers and one without."""

    broker: InProcessBroker
    fast: Broker = field(init=False)
    slow: Broker = field(init=False)
    answers: SpiedAnswers = field(init=False)
    deadlines: SteadyDeadlines = field(init=False)
    _correlation_id: int = 0

    def __post_init__(self) -> None:
        services = self.broker.process.serving.services
        self.answers = SpiedAnswers(services.view, services.logs)
        self.deadlines = SteadyDeadlines()
        services = dataclasses.replace(services, deadlines=self.deadlines)
        self.fast = dataclasses.replace(services, idle_answers=self.answers)
        none = IdleAnswers(services.view, services.logs, limit_bytes=0)
        self.slow = dataclasses.replace(services, idle_answers=none)

    def ask(self, services: Broker, body: bytes, version: int) -> Recorded:
        self._correlation_id += 1
        reply = Recorded()
        context = RequestContext(
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=None,
            client_host="test",
            software=ClientSoftware(),
        )
        fetch.handle(services, context, memoryview(body), reply)
        if reply.frame is not None:
            assert reply.correlation_id == self._correlation_id
        return reply

    async def poll(self, body: bytes, version: int) -> Recorded:
        """One request to the fast one, to its end."""
        self.deadlines.tick()
        reply = self.ask(self.fast, body, version)
        await until(lambda: reply.frame is not None, "the answer")
        assert reply.correlation_id == self._correlation_id
        return reply

    def is_fenced(self) -> bool:
        """Another broker has ended its journal, and it knows: it resigns, and has no new one yet."""
        return self.broker.process.serving.log_parts.journals.current.is_over

    def leads_its_own(self) -> bool:
        """Under the lease that it has now, it leads whatever is known to be its own."""
        basics = self.broker.process.basics
        if self.is_fenced() or basics.tenure.lease == NO_LEASE:
            return False
        leaders = self.fast.view.leaders(TOPIC)
        own = [index for index, leader in leaders.items() if leader.broker_id == basics.settings.broker_id]
        return all(self.believes_it_leads(index) for index in own)

    def believes_it_leads(self, index: int) -> bool:
        """Rightly, or it has not heard yet that another broker took the partition over."""
        partition = self.broker.process.serving.logs.partition(TOPIC, index)
        return partition is not None and partition.is_led

    def nobody_waits(self) -> bool:
        logs = self.broker.process.serving.logs
        partitions = (logs.readable(TOPIC, index) for index in range(PARTITIONS))
        return not len(self.fast.deadlines) and not any(one.has_listeners for one in partitions if one)


def body_of(request: Any, version: int) -> bytes:
    request.API_VERSION = version
    return bytes(request.encode(header=False, framed=False))


def fetch_body(offsets: dict[int, int], version: int = 11, rack: str = "", **limits: int) -> bytes:
    request = wire.fetch_request(TOPIC, offsets, **limits)
    request.rack_id = rack
    return body_of(request, version)
