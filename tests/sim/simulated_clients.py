"""Clients of a simulated cluster, who behave as Kafka's do and note what they were told: consumers, and any."""

import asyncio
import random
import uuid
from dataclasses import dataclass, field
from typing import Protocol

from kafscale.protocol.error_codes import ErrorCode
from tests.sim.client_frames import fetch_frame, fetched
from tests.sim.invariants import Invariants
from tests.sim.links import Conditions, Link
from tests.sim.published_log import PublishedLog
from tests.sim.simulated_broker import SimulatedBroker
from tests.sim.simulated_connection import ClientConnection, DisconnectedError
from tests.sim.trace import Trace
from tests.support.history import History

STALE_LEADER_RATE = 0.05
NO_LEADER_EPOCH = -1

FETCH_RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


class Surroundings(Protocol):
    """The simulated cluster as a client needs it."""

    rng: random.Random
    trace: Trace
    invariants: Invariants
    history: History
    client_conditions: Conditions
    keys: int

    def broker(self, broker_id: int) -> SimulatedBroker | None:
        """The broker that listens under that id now, if it can be reached."""

    def brokers_up(self) -> list[SimulatedBroker]:
        """Those that clients can reach, in order."""

    def fail(self, message: str) -> None:
        """Something that must never happen has happened."""


class Client:
    """Looks up leaders and keeps one connection for each broker."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        self.name = name
        self.around = surroundings
        self.rng = surroundings.rng
        self.link = Link(name, surroundings.rng, surroundings.client_conditions, surroundings.trace)
        self._connections: dict[SimulatedBroker, ClientConnection] = {}

    def leader(self, topic: str, index: int) -> tuple[SimulatedBroker | None, int]:
        """Who leads the partition, and in which epoch, as some broker tells it; sometimes simply any broker."""
        up = self.around.brokers_up()
        if not up:
            return None, NO_LEADER_EPOCH
        asked = self.rng.choice(up)
        if self.rng.random() < STALE_LEADER_RATE:
            return self.rng.choice(up), NO_LEADER_EPOCH
        leader = asked.view.leader(topic, index)
        if leader is None:
            return None, NO_LEADER_EPOCH
        return self.around.broker(leader.broker_id), leader.leader_epoch

    def connection(self, broker: SimulatedBroker) -> ClientConnection:
        """The one that is open, or a new one."""
        held = self._connections.get(broker)
        if held is None or not held.is_open:
            held = self._connections[broker] = ClientConnection(self.name, broker, self.link)
        return held

    async def ask(self, broker: SimulatedBroker, frame: bytes, timeout_sec: float) -> bytes:
        """The reply. Raises `DisconnectedError` also when it does not come in time."""
        connection = self.connection(broker)
        try:
            return await asyncio.wait_for(connection.request(frame), timeout_sec)
        except TimeoutError:
            connection.close()
            raise DisconnectedError from None

    async def rest(self, longest_sec: float) -> None:
        """A while."""
        await asyncio.sleep(self.rng.random() * longest_sec)


@dataclass(eq=False)
class Consumer(Client):
    """Reads one partition of one topic, from its leader or from any broker, as long as the topic is there."""

    name: str
    around: Surroundings
    log: PublishedLog
    topic_id: uuid.UUID
    rack: str
    hop_rate: float
    position: int = 0
    max_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        super().__init__(self.name, self.around)
        self.max_bytes = self.rng.choice((1, 300, 1 << 20))
        self._journal = self.around.history.reader(self.name)
        self._journal.begin(self.log.place, 0)
        self._preferred: int | None = None

    async def run(self) -> None:
        """Until its topic is deleted."""
        while not self.log.is_deleted:
            broker, leader_epoch = self._choose()
            if broker is None:
                await self.rest(0.5)
                continue
            frame = fetch_frame(
                self.topic_id,
                self.log.index,
                self.position,
                leader_epoch=leader_epoch,
                max_wait_ms=2_000,
                max_bytes=self.max_bytes,
                rack=self.rack,
            )
            try:
                answer = fetched(await self.ask(broker, frame, 12))
            except DisconnectedError:
                self._preferred = None
                await self.rest(0.2)
                continue
            await self._take(broker, answer.error_code, answer.preferred_read_replica, answer.records)
            self._pass_removed(answer.next_offset)

    def _choose(self) -> tuple[SimulatedBroker | None, int]:
        if self._preferred is not None:
            return self.around.broker(self._preferred), NO_LEADER_EPOCH
        up = self.around.brokers_up()
        if up and self.rng.random() < self.hop_rate:
            return self.rng.choice(up), NO_LEADER_EPOCH
        return self.leader(self.log.name, self.log.index)

    async def _take(
        self, broker: SimulatedBroker, error_code: int, preferred: int, records: list[tuple[int, bytes]]
    ) -> None:
        if error_code or self.rng.random() < self.hop_rate:
            self._preferred = None
        if error_code:
            await self._handle(broker, error_code)
        if preferred >= 0:
            self._preferred = preferred
        for offset, value in records:
            if offset >= self.position:
                self._pass_removed(offset)
                self.around.trace.add(self.name, f"reads {self.log} offset {offset} at {broker.name}:", value)
                self.around.invariants.seen(self.name, self.log, self.position, offset, value)
                self._journal.see(self.log.place, offset, value)
                self.position = offset + 1

    def _pass_removed(self, offset: int) -> None:
        """Records before the offset that compaction removed count as seen: newer ones of their keys are there."""
        for removed in self.log.removed_between(self.position, offset):
            self._journal.see(self.log.place, removed, self.log.values[removed])
            self.position = removed + 1

    async def _handle(self, broker: SimulatedBroker, error_code: int) -> None:
        name = ErrorCode(error_code).name
        self.around.trace.add(self.name, f"at {self.position} hears", name, "from", broker.name)
        if error_code not in FETCH_RETRIABLE and not self.log.is_deleted:
            self.around.fail(f"{self.name} heard {name} from {broker.name} for {self.log} at {self.position}")
        await self.rest(0.3)
