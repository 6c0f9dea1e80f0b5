"""Members of both protocols that follow what their coordinator says, and note what they have."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar
from uuid import UUID

from kafscale.groups.consumer.requests import ConsumerHeartbeat
from kafscale.groups.consumer_protocol import (
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.effects import Joined
from kafscale.groups.events import LeavingMember, Protocol
from kafscale.groups.modern.assignment import Assignment
from kafscale.protocol.error_codes import ErrorCode, KafkaError

Place = tuple[str, int]
GROUP = "billing"
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000


class Ownership:
    """Who has which partition now. A second owner is an error."""

    def __init__(self) -> None:
        self.owners: dict[Place, str] = {}
        self.problems: list[str] = []

    def take(self, name: str, places: set[Place]) -> None:
        for place in places:
            owner = self.owners.setdefault(place, name)
            if owner != name:
                self.problems.append(f"{place} is {owner}'s, and {name} takes it")
                self.owners[place] = name

    def release(self, name: str, places: set[Place]) -> None:
        for place in places:
            if self.owners.get(place) == name:
                del self.owners[place]

    def of(self, name: str) -> set[Place]:
        return {place for place, owner in self.owners.items() if owner == name}


class RollingMember(ABC):
    """One client. `coordinator` finds the broker that coordinates now; `topics`: ids by the names that it reads."""

    def __init__(
        self,
        name: str,
        coordinator: Callable[[], GroupCoordinator],
        ownership: Ownership,
        topics: Mapping[str, UUID],
        rng: random.Random,
        instance_id: str | None = None,
    ) -> None:
        self.name = name
        self.coordinator = coordinator
        self.ownership = ownership
        self.topics = topics
        self.rng = rng
        self.instance_id = instance_id
        self.member_id = ""
        self.is_over = False
        self.fenced = False

    async def live(self) -> None:
        """Go on until the end, or until another client has the instance id."""
        while not self.is_over and not self.fenced:
            try:
                await self.step()
            except KafkaError as refusal:
                self.refused(refusal.code)
            await asyncio.sleep(self.rng.choice((0.01, 0.3, 1, 2)))
        if self.fenced:
            self.lose_all()

    @abstractmethod
    async def step(self) -> None: ...

    @abstractmethod
    def refused(self, error_code: ErrorCode) -> None: ...

    @abstractmethod
    async def leave(self) -> None: ...

    @property
    def has(self) -> set[Place]:
        return self.ownership.of(self.name)

    def lose_all(self) -> None:
        self.ownership.release(self.name, self.has)

    async def change_to(self, places: set[Place]) -> bool:
        """Give up what is not among them, then take what is new; False if the client is over by then."""
        self.ownership.release(self.name, self.has - places)
        await asyncio.sleep(self.rng.choice((0, 0.01, 0.2)))
        if self.is_over:
            return False
        self.ownership.take(self.name, places)
        return True


class ConsumerProtocolMember(RollingMember):
    """A client of the consumer protocol (KIP-848)."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.member_id = f"id-of-{self.name}"
        self.epoch = 0

    async def heartbeat(self, epoch: int) -> None:
        joins = epoch == 0
        names = {topic_id: name for name, topic_id in self.topics.items()}
        owned: dict[UUID, set[int]] = {}
        for topic, index in set() if joins else self.has:
            owned.setdefault(self.topics[topic], set()).add(index)
        answer = await self.coordinator().consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                rack_id=None,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
                subscribed_topic_names=tuple(self.topics) if joins else None,
                subscribed_topic_regex=None,
                server_assignor=None,
                owned={topic_id: frozenset(indexes) for topic_id, indexes in owned.items()},
                client_id=self.name,
                client_host="/127.0.0.1",
                may_describe=lambda topic: True,
            )
        )
        if epoch < 0:
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None and not self.is_over:
            given: Assignment = answer.assignment
            await self.change_to(
                {(names[topic_id], index) for topic_id, indexes in given.items() for index in indexes}
            )

    async def step(self) -> None:
        await self.heartbeat(self.epoch)

    def refused(self, error_code: ErrorCode) -> None:
        match error_code:
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced = True
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.GROUP_ID_NOT_FOUND:
                self.lose_all()
                self.epoch = 0

    async def leave(self) -> None:
        self.lose_all()
        await self.heartbeat(-1 if self.instance_id is None else -2)


class ClassicMember(RollingMember):
    """A client of the classic protocol. `protocol`: "range" gives all up before it joins, "cooperative" nothing."""

    VERSIONS: ClassVar = {"range": (0, 1, 3), "cooperative": (1, 2, 3)}

    def __init__(self, *args: object, protocol: str, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.protocol = protocol
        self.version = self.rng.choice(self.VERSIONS[protocol])
        self.generation = -1
        self.is_member = False

    def _who(self) -> dict[str, str | None]:
        return {"member_id": self.member_id, "group_instance_id": self.instance_id}

    async def step(self) -> None:
        if not self.is_member:
            await self._join()
            return
        error_code = self.coordinator().classic.heartbeat(GROUP, **self._who(), generation=self.generation)  # type: ignore[arg-type]
        self._answered(error_code)

    async def _join(self) -> None:
        if self.protocol == "range":
            self.lose_all()
        metadata = encode_subscription(
            Subscription(self.version, frozenset(self.topics), _by_topic(self.has), None), self.generation
        )
        joined = await self.coordinator().classic.join(
            GROUP,
            **self._who(),  # type: ignore[arg-type]
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=(Protocol(self.protocol, metadata),),
            member_id_required=True,
        )
        if joined.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        if not self._answered(joined.error_code):
            return
        self.member_id, self.generation = joined.member_id, joined.generation
        await asyncio.sleep(self.rng.choice((0, 0.1)))
        synced = await self.coordinator().classic.sync(
            GROUP,
            **self._who(),  # type: ignore[arg-type]
            generation=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=self._assign(joined) if joined.leader == self.member_id else {},
        )
        if not self._answered(synced.error_code) or self.is_over:
            return
        places = _places(decode_assignment(synced.assignment)) if synced.assignment else set()
        gives_up = bool(self.has - places)
        if await self.change_to(places):
            # Whoever gave something up joins again, so that another member gets it.
            self.is_member = not gives_up

    def _answered(self, error_code: ErrorCode) -> bool:
        self.refused(error_code)
        return error_code is ErrorCode.NONE

    def refused(self, error_code: ErrorCode) -> None:
        match error_code:
            case ErrorCode.NONE:
                return
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced = True
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.lose_all()
                self.member_id, self.generation = "", -1
            case ErrorCode.ILLEGAL_GENERATION:
                self.lose_all()
                self.generation = -1
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL | ErrorCode.UNKNOWN_SERVER_ERROR:
                raise AssertionError(f"{self.name} is refused: {error_code.name}")
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE if self.is_member:
                return  # The client finds the coordinator, and goes on.
        self.is_member = False

    def _assign(self, joined: Joined) -> dict[str, bytes]:
        """As the leader: first what members have and may keep, then what is free; nobody's from whom has it."""
        read = {one.member_id: decode_subscription(one.metadata) for one in joined.members}
        has = {member_id: _places(one.owned) for member_id, one in read.items()}
        places = sorted((topic, index) for topic in self.topics for index in range(PARTITIONS))
        most = -(-len(places) // len(read))
        given: dict[str, set[Place]] = {member_id: set() for member_id in read}
        held: dict[Place, list[str]] = {
            place: [one for one in sorted(has) if place in has[one]] for place in places
        }
        for place in places:
            keepers = [one for one in held[place] if len(given[one]) < most]
            if len(held[place]) == 1 and keepers:
                given[keepers[0]].add(place)
            elif not held[place]:
                given[min(given, key=lambda one: (len(given[one]), one))].add(place)
        return {
            member_id: encode_assignment(read[member_id].version, _by_topic(mine))
            for member_id, mine in given.items()
        }

    async def leave(self) -> None:
        self.lose_all()
        if self.instance_id is None:
            await self.coordinator().classic.leave(GROUP, (LeavingMember(self.member_id),))


PARTITIONS = 4


def _by_topic(places: set[Place]) -> TopicPartitions:
    return {
        topic: frozenset(index for one, index in places if one == topic)
        for topic in {topic for topic, _ in places}
    }


def _places(partitions: TopicPartitions) -> set[Place]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}
