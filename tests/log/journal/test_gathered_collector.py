"""Gathered objects are deleted once no record names them, and never while one may begin to."""

import random
import uuid

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.journal_keys import gathered_key, parse_gathered_key
from kafscale.formats.partition_record import JournalPosition, PartitionRecord, SegmentReference
from kafscale.log.journal.broker_journal import BrokerJournal, BrokerJournals
from kafscale.log.journal.gathered_collector import GatheredCollector
from kafscale.log.journal.needs import Needs
from kafscale.log.journal.progress import JournalProgress
from kafscale.log.journal.writer import JournalWriter
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata.memory_store import MemoryStore
from tests.support.controlled_store import ControlledStore
from tests.support.virtual_time import run_virtually
from tests.support.watched_loop import in_virtual_time, watched

NAMESPACE = "default"
OWN, OTHER, DEAD = "1-own", "2-other", "3-dead"
GRACE_MS = 1_000


class Scene:
    """A broker with a journal, and the collector of its gathered objects. Nothing names any at first."""

    def __init__(self) -> None:
        self.objects = ControlledStore()
        self.metadata = MemoryStore()
        self.own = BrokerJournals(self._make)
        self.collector = GatheredCollector(self.objects, NAMESPACE, self.own, GRACE_MS)
        self.live: set[str] = {OTHER}
        self.is_first = True
        self.named: set[tuple[str, int]] = set()
        self.positions: set[str] = set()
        self.now_ms = 0

    def _make(self, journal_id: str, ended: object) -> BrokerJournal:
        retries = StoreRetries(random.Random(1))
        writer = JournalWriter(
            self.objects,
            ConditionalPut(self.objects, retries, None),
            retries,
            NAMESPACE,
            journal_id,
            1,
            now_ms=lambda: 0,
            ended=lambda is_certain: None,
        )
        progress = JournalProgress(self.metadata, journal_id, 1, random.Random(1), lambda _: None)
        return BrokerJournal(journal_id, writer, progress)

    async def begin(self, journal_id: str = OWN) -> None:
        await self.own.begin(journal_id)

    async def store(self, journal_id: str, *sequences: int) -> None:
        for sequence in sequences:
            await self.objects.inner.put(gathered_key(NAMESPACE, journal_id, sequence), [b"slices"])

    async def gathered(self, count: int = 1) -> None:
        """This broker has stored so many objects, and the records that were to name them."""
        for _ in range(count):
            with self.own.current.gathering() as sequence:
                await self.store(OWN, sequence)

    def needs(self) -> Needs:
        """Of records that name `named`, and of others that go on in `positions`."""
        needs = Needs()
        for journal_id, sequence in self.named:
            needs.add(0, PartitionRecord(leader_epoch=0, segments=(reference(journal_id, sequence),)))
        for journal_id in self.positions:
            position = JournalPosition(journal_id=journal_id, sequence=5, topic_id=uuid.UUID(int=1))
            needs.add(0, PartitionRecord(leader_epoch=0, journal=position))
        return needs

    async def look(self) -> int:
        listed = await self.collector.list(all_journals=self.is_first)
        return await self.collector.collect(listed, self.live, self.needs(), self.now_ms)

    async def look_twice(self) -> int:
        """At once, and when the grace is over."""
        deleted = await self.look()
        self.now_ms += GRACE_MS
        return deleted + await self.look()

    async def left(self) -> set[tuple[str, int]]:
        parsed = [parse_gathered_key(key) for key in await self.objects.keys("*.gathered")]
        return {(one.journal_id, one.sequence) for one in parsed if one is not None}


def reference(journal_id: str, sequence: int) -> SegmentReference:
    return SegmentReference(
        base_offset=0,
        last_offset=0,
        record_count=1,
        leader_epoch=0,
        size_bytes=60,
        max_timestamp_ms=-1,
        object_key=gathered_key(NAMESPACE, journal_id, sequence),
        start=100,
    )


@in_virtual_time
async def test_what_no_record_names_is_deleted_after_the_grace() -> None:
    scene = Scene()
    await scene.begin()
    await scene.gathered(3)
    scene.named = {(OWN, 1)}
    assert await scene.look() == 0
    scene.now_ms += GRACE_MS - 1
    assert await scene.look() == 0
    scene.now_ms += 1
    assert await scene.look() == 2
    assert await scene.left() == {(OWN, 1)}


@in_virtual_time
async def test_an_object_about_to_be_named_stays() -> None:
    """It may be stored long before the records name it: the metadata store may be away."""
    scene = Scene()
    await scene.begin()
    with scene.own.current.gathering() as first, scene.own.current.gathering() as second:
        await scene.store(OWN, first, second)
        assert await scene.look_twice() == 0
    assert await scene.look_twice() == 2


@in_virtual_time
async def test_objects_behind_one_about_to_be_named_wait_with_it() -> None:
    scene = Scene()
    await scene.begin()
    await scene.gathered()
    with scene.own.current.gathering() as number:
        await scene.store(OWN, number)
        await scene.gathered()
        assert await scene.look_twice() == 1
        assert await scene.left() == {(OWN, 1), (OWN, 2)}


@in_virtual_time
async def test_an_object_that_ends_its_way_after_the_listing_stays() -> None:
    scene = Scene()
    await scene.begin()
    with scene.own.current.gathering() as number:
        await scene.store(OWN, number)
        listed = await scene.collector.list(all_journals=True)
    scene.now_ms = 10 * GRACE_MS
    assert await scene.collector.collect(listed, scene.live, scene.needs(), scene.now_ms) == 0
    assert await scene.left() == {(OWN, number)}


@in_virtual_time
async def test_the_grace_begins_when_the_need_ends() -> None:
    """A reader may know the record that named it until then."""
    scene = Scene()
    await scene.begin()
    await scene.gathered()
    assert await scene.look() == 0
    scene.named = {(OWN, 0)}
    scene.now_ms += GRACE_MS
    assert await scene.look() == 0
    scene.named = set()
    scene.now_ms += GRACE_MS
    assert await scene.look() == 0
    scene.now_ms += GRACE_MS
    assert await scene.look() == 1


@in_virtual_time
async def test_those_of_other_live_brokers_are_left_to_them() -> None:
    scene = Scene()
    await scene.begin()
    await scene.store(OTHER, 0, 1)
    await scene.store(DEAD, 0)
    assert await scene.look_twice() == 1
    assert await scene.left() == {(OTHER, 0), (OTHER, 1)}


@in_virtual_time
async def test_a_dead_brokers_stay_while_a_partition_is_its() -> None:
    """It may be alive all the same, and write a record that names the object: until another one has claimed it."""
    scene = Scene()
    await scene.begin()
    await scene.store(DEAD, 0, 1)
    scene.positions = {DEAD}
    assert await scene.look_twice() == 0
    scene.positions, scene.named = set(), {(DEAD, 1)}
    assert await scene.look_twice() == 1
    assert await scene.left() == {(DEAD, 1)}


@in_virtual_time
async def test_partitions_of_this_broker_do_not_keep_its_objects() -> None:
    scene = Scene()
    await scene.begin()
    await scene.gathered()
    scene.positions = {OWN}
    assert await scene.look_twice() == 1


@in_virtual_time
async def test_brokers_but_the_first_look_after_their_own() -> None:
    scene = Scene()
    await scene.begin()
    scene.is_first = False
    await scene.store(DEAD, 0)
    await scene.gathered()
    assert await scene.look_twice() == 1
    assert await scene.left() == {(DEAD, 0)}


@in_virtual_time
async def test_an_older_journal_of_this_broker_is_a_dead_ones() -> None:
    """After a new registration, numbers begin again, and nothing is known of what was in flight before."""
    scene = Scene()
    await scene.begin()
    await scene.gathered(2)
    await scene.begin("1-next")
    with scene.own.current.gathering():
        scene.positions = {OWN}
        assert await scene.look_twice() == 0
        scene.positions = set()
        assert await scene.look_twice() == 2


@in_virtual_time
async def test_other_objects_of_the_folder_are_left_alone() -> None:
    scene = Scene()
    await scene.begin()
    key = f"_kafscale/{NAMESPACE}/gathered/{DEAD}/notes.txt"
    await scene.objects.inner.put(key, [b"something else"])
    assert await scene.look_twice() == 0
    assert await scene.objects.keys("*.txt") == [key]


JOURNALS = (OWN, OTHER, DEAD)
NAMES = st.sets(st.tuples(st.sampled_from(JOURNALS), st.integers(0, 5)), max_size=12)


@given(
    stored=NAMES,
    looks=st.lists(
        st.tuples(
            NAMES,
            st.sets(st.sampled_from(JOURNALS)),
            st.sets(st.sampled_from(JOURNALS[1:])),
            st.integers(0, 6),
        ),
        min_size=1,
        max_size=6,
    ),
    step_ms=st.integers(1, 2 * GRACE_MS),
)
def test_nothing_is_deleted_that_may_be_needed(
    stored: set[tuple[str, int]],
    looks: list[tuple[set[tuple[str, int]], set[str], set[str], int]],
    step_ms: int,
) -> None:
    """Whatever records name, wherever their leaders write, whoever lives, and whatever is in flight at each look."""

    async def play() -> None:
        scene = Scene()
        await scene.begin()
        for journal_id, sequence in stored:
            await scene.store(journal_id, sequence)
        free_since: dict[tuple[str, int], int] = {}
        for named, positions, live, settled in looks:
            journal = scene.own.current
            journal._next_gathered = max(settled, journal._next_gathered)
            scene.named, scene.positions, scene.live = named, positions, live
            before = await scene.left()
            await scene.look()
            for place in before:
                journal_id, sequence = place
                is_settled = sequence < journal.gathered_before
                is_free = place not in named and (
                    is_settled if journal_id == OWN else journal_id not in live | positions
                )
                if is_free:
                    free_since.setdefault(place, scene.now_ms)
                else:
                    free_since.pop(place, None)
            due = {one for one, since_ms in free_since.items() if scene.now_ms - since_ms >= GRACE_MS}
            assert before - await scene.left() == due & before
            scene.now_ms += step_ms

    run_virtually(watched(play()))
