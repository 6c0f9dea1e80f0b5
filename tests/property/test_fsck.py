"""A check finds whatever is damaged, and nothing else; repairs take nothing that anybody refers to."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.metadata import keys
from kafscale.tools.fsck.findings import FindingKind, OrphanReason
from tests.support.nightly import by_day
from tests.tools.fsck.two_stores import NAMESPACE, TwoStores, orphans, problems

PARTITIONS = 3
Expected = set[tuple[FindingKind, str]]


@dataclass(frozen=True)
class Target:
    """A published segment to damage."""

    stores: TwoStores
    index: int
    reference: SegmentReference

    @property
    def key(self) -> str:
        return object_keys.key_of_reference(NAMESPACE, "t", self.index, self.reference)

    @property
    def index_key(self) -> str:
        return object_keys.index_key_of(self.key)


async def lose_segment(target: Target) -> Expected:
    await target.stores.objects.delete([target.key])
    return {(FindingKind.SEGMENT_MISSING, target.key)}


async def lose_both(target: Target) -> Expected:
    await target.stores.objects.delete([target.key, target.index_key])
    return {(FindingKind.SEGMENT_MISSING, target.key)}


async def cut_segment(target: Target) -> Expected:
    await target.stores.change(target.key, (await target.stores.objects.get(target.key))[:-3])
    return {(FindingKind.SEGMENT_SIZE, target.key)}


async def lengthen_segment(target: Target) -> Expected:
    await target.stores.change(target.key, await target.stores.objects.get(target.key) + b"!")
    return {(FindingKind.SEGMENT_SIZE, target.key)}


async def flip_body(target: Target) -> Expected:
    await target.stores.flip(target.key, 40 + target.reference.size_bytes // 3)
    return {(FindingKind.SEGMENT_DAMAGED, target.key)}


async def flip_base_offset(target: Target) -> Expected:
    await target.stores.flip(target.key, 15)
    return {(FindingKind.SEGMENT_DAMAGED, target.key)}


async def lose_index(target: Target) -> Expected:
    await target.stores.objects.delete([target.index_key])
    return {(FindingKind.INDEX_MISSING, target.index_key)}


async def empty_index(target: Target) -> Expected:
    await target.stores.change(target.index_key, b"")
    return {(FindingKind.INDEX_DAMAGED, target.index_key)}


async def scramble_index(target: Target) -> Expected:
    await target.stores.flip(target.index_key, 27)
    return {(FindingKind.INDEX_DAMAGED, target.index_key)}


SegmentDamage = Callable[[Target], Awaitable[Expected]]
OF_SEGMENTS: list[SegmentDamage] = [
    lose_segment,
    lose_both,
    cut_segment,
    lengthen_segment,
    flip_body,
    flip_base_offset,
    lose_index,
    empty_index,
    scramble_index,
]


@dataclass(frozen=True)
class History:
    """The history of a partition: runs of segments of these sizes, one leader each, and what came after."""

    runs: list[list[int]]
    has_checkpoint: bool
    merge: tuple[int, int] | None
    removes_sources: bool
    leftovers: bool


HISTORIES = st.builds(
    History,
    runs=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=3),
    has_checkpoint=st.booleans(),
    merge=st.none() | st.tuples(st.integers(0, 2), st.integers(1, 3)),
    removes_sources=st.booleans(),
    leftovers=st.booleans(),
)


async def live(stores: TwoStores, index: int, history: History) -> dict[str, OrphanReason]:
    """Let leaders do it; gives the orphans that they leave behind."""
    left: dict[str, OrphanReason] = {}
    for number, run in enumerate(history.runs):
        passed_over = 0
        if number and history.leftovers:
            end_offset = (await stores.record("t", index)).log_end_offset
            left |= dict.fromkeys(
                await stores.leave_behind(end_offset, 3, index=index), OrphanReason.LEFTOVER
            )
            passed_over = 1
        await stores.new_leader("t", index)
        await stores.append(*run, index=index, passed_over=passed_over)
    if history.has_checkpoint:
        await stores.checkpoint("t", index)
    references = await stores.references("t", index)
    if history.merge is not None and sum(history.merge) < len(references):
        first, length = history.merge
        sources = references[first : first + length + 1]
        superseded = (await stores.record("t", index)).checkpoint_key
        await stores.merge(first, first + length, index=index)
        if superseded:
            await stores.objects.delete([superseded])
        for source in sources:
            key = object_keys.key_of_reference(NAMESPACE, "t", index, source)
            both = [key, object_keys.index_key_of(key)]
            if history.removes_sources:
                await stores.objects.delete(both)
            else:
                left |= dict.fromkeys(both, OrphanReason.SUPERSEDED)
        merged_from, merged_to = sources[0].base_offset, sources[-1].last_offset
        for key, reason in left.items():
            parsed = object_keys.parse_segment_key(key) or object_keys.parse_index_key(key)
            assert parsed is not None
            if reason is OrphanReason.LEFTOVER and merged_from <= parsed.base_offset <= merged_to:
                # Once it is merged over, nothing tells a leftover from a source.
                left[key] = OrphanReason.SUPERSEDED
    return left


async def cluster_of(histories: list[History]) -> tuple[TwoStores, dict[str, OrphanReason]]:
    stores = await TwoStores.new()
    await stores.create_topic("t", len(histories))
    left: dict[str, OrphanReason] = {}
    for index, history in enumerate(histories):
        left |= await live(stores, index, history)
    return stores, left


async def referenced(stores: TwoStores) -> dict[str, bytes]:
    """The segments that readers are sent to, as far as they are there."""
    there = set(await stores.all_keys())
    found = {}
    for index in range(PARTITIONS):
        for reference in await stores.references("t", index):
            key = object_keys.key_of_reference(NAMESPACE, "t", index, reference)
            if key in there:
                found[key] = await stores.objects.get(key)
    return found


CLUSTERS = st.lists(HISTORIES, min_size=PARTITIONS, max_size=PARTITIONS)


@settings(max_examples=by_day(12, by_night=300), deadline=None)
@given(CLUSTERS)
def test_a_healthy_cluster_is_clean_and_stays_so(histories: list[History]) -> None:
    async def play() -> None:
        stores, left = await cluster_of(histories)
        report = await stores.check(verify=True)
        assert problems(report) == []
        assert orphans(report) == left
        before = await referenced(stores)
        await stores.repair(drop_missing=True)
        assert await referenced(stores) == before
        after = await stores.check(verify=True)
        assert problems(after) == [] and orphans(after) == {}

    asyncio.run(play())


@settings(max_examples=by_day(24, by_night=600), deadline=None)
@given(CLUSTERS, st.data())
def test_every_damage_is_found_and_nothing_else(histories: list[History], data: st.DataObject) -> None:
    async def play() -> None:
        stores, left = await cluster_of(histories)
        targets = [
            Target(stores, index, reference)
            for index in range(PARTITIONS)
            for reference in await stores.references("t", index)
        ]
        chosen = data.draw(
            st.lists(st.sampled_from(targets), unique_by=lambda target: target.key, max_size=6)
        )
        expected: Expected = set()
        for target in chosen:
            expected |= await data.draw(st.sampled_from(OF_SEGMENTS))(target)
        report = await stores.check(verify=True)
        assert set(problems(report)) == expected
        assert orphans(report) == left

        sound = await referenced(stores)
        await stores.repair(verify=True, drop_missing=True)
        assert await referenced(stores) == sound
        healed = (FindingKind.SEGMENT_MISSING, *INDEX_DAMAGE)
        stays = {(kind, key) for kind, key in expected if kind not in healed}
        found = set(problems(await stores.check(verify=True)))
        assert {one for one in found if one[0] is not FindingKind.HOLE_UNEXPLAINED} == stays

    asyncio.run(play())


INDEX_DAMAGE = (FindingKind.INDEX_MISSING, FindingKind.INDEX_DAMAGED)


async def lose_record(stores: TwoStores, index: int) -> Expected:
    await stores.remove(keys.partition("t", index))
    return {(FindingKind.RECORD_MISSING, "")}


async def scramble_record(stores: TwoStores, index: int) -> Expected:
    held = await stores.metadata.get(keys.partition("t", index))
    assert held is not None
    await stores.put(held.key, held.value[:-1])
    return {(FindingKind.RECORD_UNREADABLE, "")}


async def lose_checkpoint(stores: TwoStores, index: int) -> Expected:
    key = await stores.checkpoint("t", index)
    await stores.objects.delete([key])
    return {(FindingKind.CHECKPOINT_MISSING, key)}


async def scramble_checkpoint(stores: TwoStores, index: int) -> Expected:
    key = await stores.checkpoint("t", index)
    await stores.flip(key, -1)
    return {(FindingKind.CHECKPOINT_DAMAGED, key)}


async def forget_segment(stores: TwoStores, index: int) -> Expected:
    """Two leaders' worth of segments in the middle of the log, so that no change of leaders explains it."""
    record = await stores.record("t", index)
    await stores.append(9, 9, index=index)
    after = await stores.record("t", index)
    segments = (*after.segments[:-2], after.segments[-1])
    await stores.save("t", index, replace(after, segments=segments))
    assert record.log_end_offset + 18 == after.log_end_offset
    return {(FindingKind.HOLE_UNEXPLAINED, "")}


@settings(max_examples=by_day(10, by_night=250), deadline=None)
@given(
    CLUSTERS,
    st.dictionaries(
        st.integers(0, PARTITIONS - 1),
        st.sampled_from([lose_record, scramble_record, lose_checkpoint, scramble_checkpoint, forget_segment]),
    ),
)
def test_damaged_records_are_found_and_objects_kept(
    histories: list[History], damages: dict[int, Callable[[TwoStores, int], Awaitable[Expected]]]
) -> None:
    async def play() -> None:
        stores, _ = await cluster_of(histories)
        before = await referenced(stores)
        expected: Expected = set()
        for index, damage in damages.items():
            expected |= await damage(stores, index)
        report = await stores.check(verify=True)
        assert set(problems(report)) == expected
        await stores.repair(drop_missing=True)
        assert before.keys() <= set(await stores.all_keys())

    asyncio.run(play())
