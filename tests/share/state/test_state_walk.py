"""Random histories of share states over bad networks: leaders that do not know of each other, starts that change.

Two brokers write over networks of their own, which lose requests and answers, and let writes arrive much later. The
store itself is watched: what is put there was allowed at that moment, and never goes back.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.share_start_record import ShareStartRecord, decode_share_start
from kafscale.formats.share_state_record import ShareStateRecord, decode_share_state
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import Compare, KeyValue, Operation, Put, TransactionResult
from kafscale.share.state import operations
from kafscale.share.state.opened import (
    Led,
    OpenShareState,
    ShareCompares,
    ShareWriteResult,
)
from kafscale.share.state.operations import Change, StartChanges, alter, delete, initialize
from kafscale.share.state.writer import ShareStateWriter
from tests.share.state.partitions import CHANGE, TOPIC, apply, elect, partition
from tests.sim.unreliable import Network, UnreliableMetadata
from tests.support.virtual_time import run_virtually

PARTS = [partition(index, group) for index in range(3) for group in ("a", "b")]
STEPS = 300
SEEDS = range(25)


class WatchedStore(MemoryStore):
    """Checks each state as it is put: by the leader of now, for the start of now, and newer than the one before.

    Each record's start offset is its number: those of later writes are higher.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.shared = 0
        self.written: defaultdict[SharePartitionId, list[int]] = defaultdict(list)
        self.since_start: dict[SharePartitionId, int] = {}

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        puts = [one for one in operations if isinstance(one, Put) and one.key.startswith(keys.SHARE_STATES)]
        before = {one.key: await self._context(one.key) for one in puts}
        result = await super().transact(compares, operations)
        self.shared += len(puts) > 1
        if result.succeeded:
            for one in operations:
                if one.key.startswith(keys.SHARE_STARTS):
                    self.since_start.pop(keys.share_partition(one.key), None)
            for put in puts:
                self._check(put, *before[put.key])
        return result

    async def _context(self, key: str) -> tuple[int, ShareStartRecord | None]:
        one = keys.share_partition(key)
        leader, start = (
            await self.get(keys.leader(TOPIC, one.partition)),
            await self.get(keys.share_start(one)),
        )
        epoch = -1 if leader is None else int(leader.value)
        return epoch, None if start is None else decode_share_start(start.key, start.value)

    def _check(self, put: Put, leader_epoch: int, start: ShareStartRecord | None) -> None:
        one = keys.share_partition(put.key)
        record = decode_share_state(put.key, put.value)
        if record.leader_epoch != leader_epoch:
            self.problems.append(f"{one}: written by leader {record.leader_epoch}, and {leader_epoch} leads")
        if start is None or record.state_epoch != start.state_epoch:
            self.problems.append(f"{one}: written for start {record.state_epoch}, and it is {start}")
        written = self.written[one]
        if written and record.start_offset <= written[-1]:
            self.problems.append(f"{one}: {record.start_offset} written after {written[-1]}")
        written.append(record.start_offset)
        self.since_start[one] = record.start_offset


class Leader:
    """A broker's part in one partition of one group, until its writes fail or it is given up."""

    def __init__(self, writer: ShareStateWriter, opened: OpenShareState, epoch: int) -> None:
        self.writer = writer
        self.opened = opened
        self.epoch = epoch

    def record(self, number: int) -> ShareStateRecord:
        return ShareStateRecord(
            state_epoch=self.opened.start.state_epoch, leader_epoch=self.epoch, start_offset=number
        )


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = WatchedStore()
        self.networks = [Network(self.rng, 0.3) for _ in range(2)]
        self.writers = [
            ShareStateWriter(UnreliableMetadata(self.store, network))  # type: ignore[arg-type]
            for network in self.networks
        ]
        self.led: dict[int, tuple[int, int, Led]] = {}
        self.leaders: dict[tuple[int, SharePartitionId], Leader] = {}
        self.starts: dict[SharePartitionId, ShareStartRecord] = {}
        self.number = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.results: Counter[str] = Counter()

    async def run(self) -> None:
        for index in range(3):
            await self._elect(index)
        await self._start(PARTS)
        for _ in range(STEPS):
            await self._step()
            await asyncio.sleep(self.rng.choice((0, 0, 0.05, 0.3)))
        for network in self.networks:
            network.heal()
        await asyncio.gather(*self.tasks)
        for network in self.networks:
            await network.settle()
        await self._end()
        for writer in self.writers:
            await writer.close()
        assert self.store.problems == []

    async def _step(self) -> None:
        one = self.rng.choice(PARTS)
        roll = self.rng.random()
        if roll < 0.2:
            # Together, so that they share a transaction.
            broker = self.rng.randrange(2)
            for (of_broker, other), leader in tuple(self.leaders.items()):
                if of_broker == broker:
                    self._spawn(self._write(leader, other))
        elif roll < 0.72:
            found = self.leaders.get((self.rng.randrange(2), one))
            if found is not None:
                self._spawn(self._write(found, one))
            else:
                self._spawn(self._load(one))
        elif roll < 0.82:
            self._spawn(self._load(one))
        elif roll < 0.88:
            await self._elect(one.partition)
        elif roll < 0.95:
            altered = alter({one: self.number}, self.starts, CHANGE)
            self.starts |= altered.starts
            await apply(self.store, altered.operations)
        else:
            await apply(self.store, operations.delete([one]))
            self.starts.pop(one, None)
            await self._start([one])

    async def _start(self, parts: Sequence[SharePartitionId]) -> None:
        initialized = operations.initialize(parts, self.starts, CHANGE)
        self.starts |= initialized.starts
        await apply(self.store, initialized.operations)

    async def _elect(self, index: int) -> None:
        """The one before goes on to write: it does not know."""
        _, epoch, _ = self.led.get(index, (0, 0, None))
        self.led[index] = self.rng.randrange(2), epoch + 1, await elect(self.store, index, epoch + 1)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.create_task(work))

    async def _load(self, one: SharePartitionId) -> None:
        broker, epoch, led = self.led[one.partition]
        try:
            found = await self.writers[broker].load(one, led)
        except StoreError:
            return  # The network.
        if not isinstance(found, OpenShareState):
            return
        written = self.store.written[one]
        if found.state is not None:
            assert found.state.start_offset in written
        before = self.leaders.pop((broker, one), None)
        if before is not None:
            before.writer.abandon(before.opened)
        self.leaders[broker, one] = Leader(self.writers[broker], found, epoch)

    async def _write(self, leader: Leader, one: SharePartitionId) -> None:
        self.number += 1
        number = self.number
        result = await leader.writer.write(leader.opened, leader.record(number))
        self.results[result] += 1
        if result is ShareWriteResult.WRITTEN:
            latest = max(self.store.written[one], default=-1)
            if latest < number:
                self.store.problems.append(f"{one}: {number} was answered, and {latest} is there")

    async def _end(self) -> None:
        """Now that nothing fails, whoever leads reads the newest state of the start of now, and can write."""
        for one in PARTS:
            broker, epoch, led = self.led[one.partition]
            found = await self.writers[broker].load(one, led)
            assert isinstance(found, OpenShareState)
            read = None if found.state is None else found.state.start_offset
            assert read == self.store.since_start.get(one)
            self.number += 1
            leader = Leader(self.writers[broker], found, epoch)
            assert await leader.writer.write(found, leader.record(self.number)) is ShareWriteResult.WRITTEN


def walk(seed: int) -> Walk:
    made: list[Walk] = []

    async def run() -> None:
        made.append(Walk(seed))
        await made[0].run()

    run_virtually(run())
    return made[0]


def test_what_was_answered_is_there_or_later() -> None:
    results: Counter[str] = Counter()
    shared = 0
    for seed in SEEDS:
        try:
            walked = walk(seed)
            results += walked.results
            shared += walked.store.shared
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise
    assert min(results[one] for one in ShareWriteResult) > 100, results
    assert shared > 100


@pytest.mark.nightly
def test_long_walks() -> None:
    for seed in range(100, 800):
        walk(seed)


def without_leader(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareCompares, "all", lambda self: (self.state, self.start))


def without_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareCompares, "all", lambda self: (self.state, self.leader))


def without_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareCompares, "all", lambda self: (self.start, self.leader))


def unknown_taken_for_written(patch: pytest.MonkeyPatch) -> None:
    verdict = ShareCompares.verdict

    def hopeful(
        self: ShareCompares, found: Mapping[str, KeyValue], data: bytes
    ) -> tuple[ShareWriteResult, int]:
        return verdict(self, found, data) or (ShareWriteResult.WRITTEN, self.state.mod_revision)

    patch.setattr(ShareCompares, "verdict", hopeful)


def others_taken_for_written(patch: pytest.MonkeyPatch) -> None:
    """One compare of a shared transaction was lost: the others are answered as if theirs had been done."""
    transact = SharedWrites._transact

    async def hopeful(self: SharedWrites, group: Any) -> Any:
        for again in await transact(self, group):
            for one in again:
                one.resolve(TransactionResult(succeeded=True, revision=one.write.compares[0].mod_revision))
        return []

    patch.setattr(SharedWrites, "_transact", hopeful)


def states_left_behind(patch: pytest.MonkeyPatch) -> None:
    def careless(
        parts: Sequence[SharePartitionId], known: Mapping[SharePartitionId, ShareStartRecord], change: Change
    ) -> StartChanges:
        made = initialize(parts, known, change)
        return StartChanges(tuple(one for one in made.operations if isinstance(one, Put)), made.starts)

    patch.setattr(operations, "delete", lambda parts: operations_of(delete(parts)))
    patch.setattr(operations, "initialize", careless)


def operations_of(deletions: Sequence[Operation]) -> tuple[Operation, ...]:
    """Those of the starts."""
    return tuple(one for one in deletions if one.key.startswith(keys.SHARE_STARTS))


@pytest.mark.parametrize(
    "plant",
    [
        without_leader,
        without_start,
        without_state,
        unknown_taken_for_written,
        others_taken_for_written,
        states_left_behind,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_walk_finds_planted_mistakes(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = 0
    for seed in SEEDS:
        try:
            walk(seed)
        except (AssertionError, CorruptDataError):
            found += 1
            break
    assert found
