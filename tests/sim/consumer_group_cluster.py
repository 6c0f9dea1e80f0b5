"""Members of a consumer group (KIP-848) in the world of group_cluster.py, where brokers coordinate in turn."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from kafscale.formats.committed_offset import CommittedOffset
from kafscale.groups.consumer.events import LEAVES_FOR_A_WHILE
from kafscale.groups.consumer.requests import ConsumerHeartbeat, HeartbeatAnswer
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.events import JOINS, LEAVES
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from tests.sim.group_cluster import GROUP, HEARTBEAT_SEC, REBALANCE_MS, SESSION_MS, TOPIC, TOPIC_ID, World


@dataclass
class ConsumerWorld(World):
    """The same, for members of the consumer protocol."""

    consumers: "list[SimulatedConsumer]" = field(default_factory=list)

    def check_owners(self) -> None:
        """No partition has two owners. A member that hears a coordinator of before only cannot know."""
        owners: dict[int, str] = {}
        for one in self.consumers:
            for index in one.has if one.hears_newest else ():
                other = owners.setdefault(index, one.name)
                assert other == one.name, f"{index} has two owners: {other}, {one.name}"


class SimulatedConsumer:
    """A consumer: joins, takes what it is given, commits what it processed, gives up what it is asked to."""

    def __init__(self, world: ConsumerWorld, name: str, instance_id: str | None = None) -> None:
        self._world = world
        self.name = name
        self.instance_id = instance_id
        self._coordinator = world.coordinator()
        self._member_id = f"{name}-{world.rng.randrange(2**32)}"
        self.epoch = JOINS
        self.has: set[int] = set()
        self.target: set[int] = set()
        self.hears_newest = True
        self.fenced = False
        self._position: dict[int, int] = {}
        self._says: set[int] | None = None
        self._is_full = True
        self._heard_sec = 0.0
        world.consumers.append(self)

    async def run(self) -> None:
        """Until cancelled, or fenced by another member with its instance id."""
        while not self.fenced:
            try:
                await self._beat()
                await self._reconcile()
                await asyncio.sleep(self._world.rng.uniform(0.2, HEARTBEAT_SEC))
                await self._process()
            except KafkaError as problem:
                await self._handle(problem.code)
        self._give_up_all()

    async def leave(self) -> None:
        """Give up, and tell the coordinator."""
        joined = self.epoch != JOINS
        self._give_up_all()
        epoch = LEAVES if self.instance_id is None else LEAVES_FOR_A_WHILE
        if joined:
            with contextlib.suppress(KafkaError):
                await self._send(epoch, owned=None)

    def end(self) -> None:
        """It consumes nothing any more."""
        self._give_up_all()
        self._world.consumers.remove(self)

    def _give_up_all(self) -> None:
        self.has, self.target, self._says = set(), set(), None
        self._position.clear()
        self.epoch, self._is_full = JOINS, True

    async def _send(self, epoch: int, owned: set[int] | None) -> HeartbeatAnswer:
        is_full = self._is_full
        assigned: Assignment | None = None
        if owned is not None:
            assigned = {TOPIC_ID: frozenset(owned)} if owned else {}
        return await self._coordinator.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=self._member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                rack_id=None,
                rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
                subscribed_topic_names=(TOPIC,) if is_full else None,
                subscribed_topic_regex=None,
                server_assignor=None,
                owned=assigned,
                client_id=self.name,
                client_host="host",
                may_describe=lambda topic: True,
            )
        )

    async def _beat(self) -> None:
        sent_sec = asyncio.get_running_loop().time()
        if self.epoch != JOINS and sent_sec > self._heard_sec + SESSION_MS / 1000:
            self._give_up_all()
        says = set(self.has) if self._is_full or self._says != self.has else None
        answer = await self._send(self.epoch, says)
        self._heard_sec, self._is_full = sent_sec, False
        self.hears_newest = self._coordinator is self._world.coordinators[-1]
        if says is not None:
            self._says = says
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.target = set(answer.assignment.get(TOPIC_ID, ()))
            self.has |= self.target
            self._world.check_owners()

    async def _reconcile(self) -> None:
        revoked = self.has - self.target
        if revoked:
            await self._commit({index: self._position[index] for index in revoked if index in self._position})
            for index in revoked:
                self._position.pop(index, None)
            self.has -= revoked
        added = self.has - self._position.keys()
        if added:
            found = await self._coordinator.fetch_offsets(GROUP, require_stable=False)
            for index in added:
                committed = found.committed.get((TOPIC, index))
                self._position[index] = 0 if committed is None else committed.offset

    async def _process(self) -> None:
        for index in self._position:
            self._position[index] += self._world.rng.randrange(1, 10)
        await self._commit(dict(self._position))

    async def _commit(self, position: dict[int, int]) -> None:
        if not position:
            return
        error_code = await self._coordinator.commit(
            GROUP,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            generation=self.epoch,
            offsets={
                (TOPIC, index): CommittedOffset(
                    topic_id=TOPIC_ID, offset=offset, commit_timestamp_ms=self._world.now_ms()
                )
                for index, offset in position.items()
            },
            knows_member_epochs=True,
        )
        if error_code is not ErrorCode.NONE:
            raise KafkaError(error_code, "refused")
        for index, offset in position.items():
            self._world.acknowledged[index] = max(offset, self._world.acknowledged.get(index, 0))

    async def _handle(self, error_code: ErrorCode) -> None:
        match error_code:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.GROUP_ID_NOT_FOUND:
                self._give_up_all()
                await asyncio.sleep(0.3)
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced = True
            case ErrorCode.STALE_MEMBER_EPOCH | ErrorCode.UNRELEASED_INSTANCE_ID:
                await asyncio.sleep(0.3)
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._is_full = True
                await asyncio.sleep(self._world.rng.uniform(0.05, 0.5))
                self._coordinator = self._world.coordinator()
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._is_full = True
                await asyncio.sleep(0.1)
            case _:
                raise AssertionError(f"{self.name} met {error_code!r}")
