"""One journal on stores behind a bad network: its writer, its collector, and brokers that end it."""

import asyncio
import random
from dataclasses import dataclass, field

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.journal_entry import EntryHead, head_bytes
from kafscale.formats.journal_keys import entry_key, journal_prefix, parse_entry_key
from kafscale.formats.journal_record import JournalRecord, decode_journal_record
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.journal.collection import collectable, counted_through
from kafscale.log.journal.end_journal import JournalEnding, StoredJournal
from kafscale.log.journal.heads import read_heads
from kafscale.log.journal.progress import JournalProgress
from kafscale.log.journal.writer import JournalBrokenError, JournalEndedError, JournalWriter
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.objects.hedging import Hedge
from kafscale.objects.memory_store import MemoryStore as MemoryObjects
from tests.log.journal.slices import image
from tests.sim.unreliable import Network, UnreliableMetadata, UnreliableObjects

JOURNAL_ID = "1-a"
LONGEST_LIFE_SEC = 20.0
PATIENCE_SEC = 300.0  # virtual ones


@dataclass
class Outcome:
    """The outcome of each value: the entry that acknowledged it, or that it was refused for certain."""

    acknowledged: dict[bytes, int] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    collected: set[int] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)


class JournalLife:
    """Everything that a seed lets happen to a journal."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.network = Network(self.rng, self.rng.choice((0.0, 0.1, 0.3)))
        self.objects = MemoryObjects(lambda: 0)
        self.metadata = MemoryMetadata()
        self.outcome = Outcome()
        self.is_fenced = asyncio.Event()
        self._retries = StoreRetries(random.Random(self.rng.random()))
        far = UnreliableObjects(self.objects, self.network)
        self._far_objects = far
        self._far_metadata: object = UnreliableMetadata(self.metadata, self.network)
        hedge = self.rng.choice((None, Hedge(0.05), Hedge(1.0)))
        self._put = ConditionalPut(far, self._retries, hedge)
        self.writer = JournalWriter(
            far,
            self._put,
            self._retries,
            "default",
            JOURNAL_ID,
            1,
            now_ms=lambda: 0,
            ended=lambda is_certain: self.is_fenced.set(),
        )
        self.progress = JournalProgress(
            self._far_metadata,  # type: ignore[arg-type]  # the part of a store that it uses
            JOURNAL_ID,
            1,
            random.Random(self.rng.random()),
            lambda _: self.is_fenced.set(),
        )

    async def run(self) -> Outcome:
        """Live, be ended, and let all that is in flight arrive."""
        await self.progress.begin()
        async with asyncio.timeout(PATIENCE_SEC), asyncio.TaskGroup() as group:
            for number in range(self.rng.randint(1, 4)):
                group.create_task(self._produce(number))
            group.create_task(self._collect())
            for broker_id in range(2, 2 + self.rng.randint(1, 3)):
                group.create_task(self._end(broker_id, self.rng.uniform(0, LONGEST_LIFE_SEC)))
        self.network.heal()
        await self.network.settle()
        await self.progress.close()
        await self._put.close()  # of two requests for an entry, the one that was not needed may still read
        return self.outcome

    async def _produce(self, number: int) -> None:
        count = 0
        while True:
            value = b"%d-%d" % (number, count)
            count += 1
            try:
                entry = self.writer.seal([image(value, 0)])
                await self.writer.put(entry)
            except (JournalEndedError, JournalBrokenError) as problem:
                assert isinstance(problem, JournalEndedError), "nothing gives an entry up here"
                self.outcome.refused.add(value)
                return
            self.outcome.acknowledged[value] = entry.sequence
            self.progress.committed(self.writer.committed_through)
            await asyncio.sleep(self.rng.uniform(0, 0.5))

    async def _collect(self) -> None:
        """As if every slice were consolidated and sealed at once, now and then but for a few."""
        while not self.is_fenced.is_set():
            await asyncio.sleep(self.rng.uniform(0.1, 2))
            through = self.writer.committed_through
            record = await self.record()
            heads = await self.heads()
            needed = [sequence for sequence in heads if self.rng.random() < 0.1]
            declared = {sequence: head.committed_through for sequence, head in heads.items()}
            gone = collectable(record, through, declared, needed)
            try:
                await self._far_objects.delete([entry_key("default", JOURNAL_ID, one) for one in gone])
            except (StoreUnavailableError, StoreIndeterminateError):
                continue
            finally:
                self.outcome.collected |= gone

    async def _end(self, broker_id: int, after_sec: float) -> None:
        await asyncio.sleep(after_sec)
        ending = JournalEnding(
            self._far_objects,
            StoredJournal(self._far_metadata, JOURNAL_ID),  # type: ignore[arg-type]
            "default",
            JOURNAL_ID,
            broker_id,
            self._retries,
            lambda: 0,
        )
        self.outcome.ends.add(await ending.end())

    # --- what is really there

    async def record(self) -> JournalRecord:
        """The journal's record."""
        found = await self.metadata.get(keys.journal(JOURNAL_ID))
        assert found is not None
        return decode_journal_record("record", found.value)

    async def heads(self) -> dict[int, EntryHead]:
        """The entries that are there."""
        infos = [info async for info in self.objects.list(journal_prefix("default", JOURNAL_ID))]
        parsed = [parse_entry_key(info.key) for info in infos]
        sequences = [key.sequence for key in parsed if key is not None]
        assert len(sequences) == len(infos)
        found = await read_heads(self.objects, "default", JOURNAL_ID, sequences, self._retries)
        return {sequence: head for sequence, (head, _) in found.items()}

    async def check(self) -> None:
        """Acknowledged values count, refused ones do not, and the bucket alone says the same."""
        (end,) = self.outcome.ends
        assert (await self.record()).ended_at == end
        heads = await self.heads()
        assert all(sequence < end for sequence in self.outcome.acknowledged.values())
        for sequence in range(end):
            assert sequence in heads or sequence in self.outcome.collected, f"entry {sequence} is lost"
        through = counted_through({one: head.committed_through for one, head in heads.items()})
        assert through == end - 1, f"the bucket says {through}, the fence is at {end}"
        there = {
            sequence: await self._values(sequence, heads[sequence]) for sequence in heads if sequence < end
        }
        for value, sequence in self.outcome.acknowledged.items():
            assert sequence not in there or value in there[sequence]
        for sequence, values in there.items():
            assert not values & self.outcome.refused, f"entry {sequence} counts, and was refused"

    async def _values(self, sequence: int, head: EntryHead) -> set[bytes]:
        key = entry_key("default", JOURNAL_ID, sequence)
        stored = await self.objects.get(key)
        body = memoryview(stored)[head_bytes(key, stored) :]
        return {
            bytes(body[one.start + HEADER_SIZE : one.start + one.size_bytes - FOOTER_SIZE])
            for one in head.slices
        }
