"""Brokers that follow one another as the leader of a shared partition, over bad networks, and members who crash.

Two brokers share a partition; each believes that it leads until it is fenced or hears otherwise. What must hold:
what was answered as accepted or rejected is not given again by a leader that can still write; a record is finished
only by a member's word, or after all its deliveries; a leader's delivery counts are no lower than those before; in
the end every record is finished.
"""

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from kafscale.errors import StoreError
from kafscale.metadata.memory_store import MemoryStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.protocol.error_codes import KafkaError
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.partition.acknowledging import AcknowledgedBatch, AcknowledgeType
from kafscale.share.partition.acquiring import AcquireMode, LogBatch, Wanted
from kafscale.share.partition.share_partition import ShareLimits
from kafscale.share.share_partitions import LogListener, SharedLog, SharePartitions, SharePolicy
from kafscale.share.state.opened import Led
from kafscale.share.state.starts import ShareStarts
from kafscale.share.state.writer import ShareStateWriter
from tests.share.state.partitions import TOPIC, elect, initialized, partition
from tests.sim.unreliable import Network, UnreliableMetadata
from tests.support.virtual_time import run_virtually

PLACE = partition(0)
MEMBERS = 4
STEPS = 60
LOCK_MS = 2_000
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


@dataclass(slots=True, eq=False)
class WalkedLog:
    """The partition at a broker that was elected."""

    led: Led | None
    leader_epoch: int
    topic: str = TOPIC
    log_start_offset: int = 0
    listeners: list[LogListener] = field(default_factory=list)

    def listen(self, listener: LogListener) -> None:
        self.listeners.append(listener)

    def forget(self, listener: LogListener) -> None:
        self.listeners.remove(listener)


class Broker:
    """The part of a broker that shares, over a network of its own."""

    def __init__(self, store: MemoryStore, network: Network, limits: ShareLimits) -> None:
        loop = asyncio.get_running_loop()
        unreliable = UnreliableMetadata(store, network)
        failures = ItemFailures(next(iter(BackgroundWork)))
        self.writer = ShareStateWriter(unreliable)  # type: ignore[arg-type]
        self.partitions = SharePartitions(
            self.writer, ShareStarts(store, failures), lambda _: SharePolicy(limits), _from_the_beginning,
            lambda: int(loop.time() * 1000), failures,
        )  # fmt: skip
        self.log: WalkedLog | None = None

    async def close(self) -> None:
        await self.partitions.close()
        await self.writer.close()


async def _from_the_beginning(group_id: str, log: SharedLog) -> int:
    return 0


class LeadersWalk:
    """`finished`: offsets of which a member was answered that its word is durable. `said`: of which it was tried."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.limits = ShareLimits(LOCK_MS, self.random.randrange(1, 5), self.random.randrange(4, 40))
        self.store = MemoryStore()
        self.networks = [Network(self.random, 0.2) for _ in range(2)]
        self.batches = self._log()
        self.finished: dict[int, int] = {}
        self.said: set[int] = set()
        self.given: Counter[int] = Counter()
        self.counts: defaultdict[int, list[int]] = defaultdict(list)
        self.elections = 0
        self.problems: list[str] = []

    async def run(self) -> None:
        self.brokers = [Broker(self.store, network, self.limits) for network in self.networks]
        await initialized(self.store, PLACE)
        await self._elect()
        members = [asyncio.create_task(self._member(f"m{number}")) for number in range(MEMBERS)]
        trouble = asyncio.create_task(self._trouble())
        await asyncio.gather(*members)
        trouble.cancel()
        await asyncio.gather(trouble, return_exceptions=True)
        for network in self.networks:
            network.heal()
            await network.settle()
        await self._finish()
        for broker in self.brokers:
            await broker.close()
        assert not self.problems, self.problems

    async def _elect(self) -> None:
        """Another broker leads, or the same one again. The one before may not hear of it."""
        self.elections += 1
        chosen = self.random.choice(self.brokers)
        for broker in self.brokers:
            if broker.log is not None and (broker is chosen or self.random.random() < 0.5):
                for listener in tuple(broker.log.listeners):
                    listener.closed()
                broker.log = None
        led = await elect(self.store, 0, self.elections)
        chosen.log = WalkedLog(led, self.elections)

    async def _trouble(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0, 5))
            await self._elect()

    async def _opened(self) -> tuple[LedSharePartition, int] | None:
        """The share partition at a broker that believes to lead."""
        believers = [broker for broker in self.brokers if broker.log is not None]
        broker = self.random.choice(believers)
        log = broker.log
        assert log is not None
        try:
            return await broker.partitions.get(PLACE, log), log.leader_epoch
        except (KafkaError, StoreError):
            return None

    async def _member(self, name: str) -> None:
        for _ in range(STEPS):
            await asyncio.sleep(self.random.uniform(0, 0.5))
            opened = await self._opened()
            if opened is None:
                continue
            led, epoch = opened
            try:
                await self._use(led, epoch, name)
            except KafkaError:
                continue

    async def _use(self, led: LedSharePartition, epoch: int, name: str) -> None:
        read_from = led.begin_read()
        if read_from is None:
            return
        await asyncio.sleep(self.random.choice((0, 0.01)))
        read = [one for one in self.batches if one.last >= read_from][: self.random.randrange(1, 4)]
        wanted = Wanted(name, self.random.randrange(1, 12), 500, self.random.choice(list(AcquireMode)))
        acquired = led.end_read(wanted, read_from, read)
        known = dict(self.finished)
        offsets = [offset for one in acquired for offset in range(one.first, one.last + 1)]
        for one in acquired:
            for offset in range(one.first, one.last + 1):
                self.given[offset] += 1
                self._count(offset, one.delivery_count, is_leader=epoch == self.elections)
        await asyncio.sleep(self.random.choice((0, 0.1, 1.0, LOCK_MS / 1000 + 0.5)))
        match self.random.randrange(8):
            case 0:
                return  # It forgets them: their locks end.
            case 1:
                await led.release(name)
            case _:
                await self._say(led, name, epoch, offsets, known)

    def _count(self, offset: int, count: int, *, is_leader: bool) -> None:
        """Leaders that were replaced may give records that they have not given before."""
        most = max(self.counts[offset], default=0)
        if is_leader and count < most:
            self.problems.append(f"{offset} had delivery {most}, and then delivery {count}")
        self.counts[offset].append(count)

    async def _say(
        self, led: LedSharePartition, name: str, epoch: int, offsets: list[int], known: dict[int, int]
    ) -> None:
        for offset in offsets:
            kind = self.random.choice((ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT))
            was_below = offset < led.machine.start_offset
            if kind is not RELEASE:
                self.said.add(offset)
            try:
                await led.acknowledge(name, [AcknowledgedBatch(offset, offset, [kind])])
            except KafkaError:
                continue
            if offset in known and not was_below:
                self.problems.append(
                    f"{offset} was finished under {known[offset]} and given again under {epoch}"
                )
            if kind is not RELEASE:
                self.finished.setdefault(offset, epoch)

    async def _finish(self) -> None:
        """One member accepts what is left."""
        await self._elect()
        broker = next(
            one for one in self.brokers if one.log is not None and one.log.leader_epoch == self.elections
        )
        assert broker.log is not None
        led = await broker.partitions.get(PLACE, broker.log)
        left: set[int] = set()
        end = self.batches[-1].last
        for _ in range(3_000):
            read_from = led.begin_read()
            if read_from is None:
                raise AssertionError(f"nothing can be acquired: {list(led.machine.runs)}")
            read = [one for one in self.batches if one.last >= read_from][:3]
            acquired = led.end_read(Wanted("z", 100, 500), read_from, read)
            left.update(offset for one in acquired for offset in range(one.first, one.last + 1))
            batches = [AcknowledgedBatch(one.first, one.last, [ACCEPT]) for one in acquired]
            await led.acknowledge("z", sorted(batches, key=lambda one: one.first))
            if led.machine.start_offset > end:
                break
        else:
            raise AssertionError(f"not finished: {list(led.machine.runs)}")
        again = left & self.finished.keys()
        assert not again, f"{sorted(again)} were finished, and are given again"
        for offset in (one for batch in self.batches for one in range(batch.first, batch.last + 1)):
            if offset not in left and offset not in self.said:
                # Finished by no member's word: it has had its deliveries.
                assert self.given[offset] >= self.limits.max_deliveries, (
                    f"{offset} is lost: {self.given[offset]}"
                )

    def _log(self) -> list[LogBatch]:
        batches, offset = [], 0
        for _ in range(self.random.randrange(5, 25)):
            last = offset + self.random.randrange(1, 9) - 1
            batches.append(LogBatch(offset, last))
            offset = last + 1
        return batches


def walk(seed: int) -> None:
    """A history of some minutes, in virtual time."""
    run_virtually(LeadersWalk(seed).run())
