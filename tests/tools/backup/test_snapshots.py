"""Snapshots of the metadata store: what they hold, that they are whole, and which are removed."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.cluster_record import ensure_cluster_id
from kafscale.errors import CorruptDataError, StoreUnavailableError
from kafscale.formats.features import NEW_CLUSTER
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import Delete, Put, Snapshot
from kafscale.tools.backup.snapshot_keys import StoredSnapshot, expired, key_of, snapshot_of
from kafscale.tools.backup.snapshots import NothingToBackUpError, Snapshots
from tests.support.controlled_store import ControlledStore

DAY_MS = 86_400_000
NOW_MS = int(datetime(2026, 11, 22, 2, tzinfo=UTC).timestamp()) * 1000


class Clock:
    """Of which a test says how late it is."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def objects() -> ControlledStore:
    return ControlledStore()


@pytest.fixture
def snapshots(objects: ControlledStore, clock: Clock) -> Snapshots:
    return Snapshots(objects, "backups/prod", "default", clock)


@pytest.fixture
async def metadata() -> MemoryMetadata:
    store = MemoryMetadata()
    await ensure_cluster_id(store)
    lease = await store.grant_lease(60)
    await store.transact(
        [],
        [
            Put(keys.topic("t"), b"topic"),
            Put(keys.broker(1), b"here now", lease),
            Put("group-offsets/g", b"7"),
        ],
    )
    return store


async def test_it_holds_what_lasts_as_of_one_revision(snapshots: Snapshots, metadata: MemoryMetadata) -> None:
    taken = await snapshots.take(metadata)
    named = f"20261122T020000Z-{taken.header.revision:016d}-{taken.header.cluster_id}.kfsnap"
    assert taken.stored.key == f"backups/prod/default/{named}"
    header, entries = await snapshots.read(taken.stored.key)
    assert header == taken.header
    of_new_clusters = {keys.feature(name) for name in NEW_CLUSTER}
    assert entries.keys() == {keys.CLUSTER, keys.topic("t"), "group-offsets/g", *of_new_clusters}
    assert entries["group-offsets/g"] == b"7"
    assert header.cluster_id
    assert await snapshots.find() == [taken.stored]


async def test_it_is_taken_again_when_nothing_changed(snapshots: Snapshots, metadata: MemoryMetadata) -> None:
    first = await snapshots.take(metadata)
    assert await snapshots.take(metadata) == first
    assert len(await snapshots.find()) == 1


async def test_an_empty_store_is_not_backed_up(snapshots: Snapshots) -> None:
    """It would push good snapshots out, and look like one."""
    with pytest.raises(NothingToBackUpError):
        await snapshots.take(MemoryMetadata())
    assert await snapshots.find() == []


async def test_a_store_that_is_emptied_meanwhile_is_not_backed_up(
    snapshots: Snapshots, metadata: MemoryMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was read of it before: what would be copied is empty."""
    read = metadata.range

    async def emptied(prefix: str) -> Snapshot:
        await metadata.transact([], [Delete(item.key) for item in (await read("")).items])
        return await read(prefix)

    monkeypatch.setattr(metadata, "range", emptied)
    with pytest.raises(NothingToBackUpError, match=r"no cluster.*kafscale recover"):
        await snapshots.take(metadata)
    assert await snapshots.find() == []


async def test_snapshots_below_the_folder_are_of_another_namespace(
    objects: ControlledStore, metadata: MemoryMetadata, clock: Clock
) -> None:
    """Of the same cluster's id: a copy, beside which retention runs."""
    await Snapshots(objects, "backups/prod/default", "eu", clock).take(metadata)
    assert await Snapshots(objects, "backups/prod", "default", clock).find() == []


async def test_one_that_is_not_read_back_as_written_is_no_success(
    snapshots: Snapshots, metadata: MemoryMetadata, objects: ControlledStore
) -> None:
    objects.lie("*.kfsnap", lambda content: content[:-1])
    with pytest.raises(CorruptDataError, match=r"\.kfsnap: .*checksum"):
        await snapshots.take(metadata)


async def test_a_store_that_is_away_is_reported(
    snapshots: Snapshots, metadata: MemoryMetadata, objects: ControlledStore
) -> None:
    objects.fail("put_if_absent", "*.kfsnap", StoreUnavailableError("away"))
    with pytest.raises(StoreUnavailableError):
        await snapshots.take(metadata)


async def test_old_ones_go_and_nothing_else_does(
    snapshots: Snapshots, metadata: MemoryMetadata, objects: ControlledStore, clock: Clock
) -> None:
    await objects.put_if_absent("backups/prod/default/notes.txt", [b"mine"])
    await objects.put_if_absent(
        "backups/prod/other/20200101T000000Z-0000000000000001-c.kfsnap", [b"another's"]
    )
    for day in range(5):
        clock.now_ms = NOW_MS + day * DAY_MS
        await metadata.transact([], [Put("k", b"%d" % day)])
        taken = await snapshots.take(metadata)
    await metadata.transact([], [Delete("k")])
    gone = await snapshots.remove_expired(taken, keep=2, keep_for_ms=2 * DAY_MS)
    assert [one.created_ms for one in gone] == [NOW_MS, NOW_MS + DAY_MS]
    assert len(await snapshots.find()) == 3
    left = [info.key async for info in objects.list("backups/prod/")]
    assert "backups/prod/default/notes.txt" in left
    assert any(key.startswith("backups/prod/other/") for key in left)


async def test_clusters_of_one_namespace_keep_each_others_snapshots(
    snapshots: Snapshots, metadata: MemoryMetadata, clock: Clock
) -> None:
    """Found: two clusters with all defaults, buckets of their own and one backup bucket."""
    other = MemoryMetadata()
    await ensure_cluster_id(other)
    kept = await snapshots.take(other)
    for day in range(3):
        clock.now_ms = NOW_MS + day * DAY_MS
        taken = await snapshots.take(metadata)
    gone = await snapshots.remove_expired(taken, keep=1, keep_for_ms=0)
    assert len(gone) == 2
    assert await snapshots.find(kept.header.cluster_id) == [kept.stored]
    assert await snapshots.find(taken.header.cluster_id) == [taken.stored]


async def test_two_that_are_taken_at_once_do_not_remove_each_other(
    snapshots: Snapshots, metadata: MemoryMetadata, clock: Clock
) -> None:
    first = await snapshots.take(metadata)
    clock.now_ms += 5000
    await metadata.transact([], [Put("k", b"")])
    second = await snapshots.take(metadata)
    clock.now_ms += 5000
    assert await snapshots.remove_expired(first, keep=1, keep_for_ms=0) == []
    assert await snapshots.remove_expired(second, keep=1, keep_for_ms=0) == [first.stored]
    assert await snapshots.find() == [second.stored]


@given(st.integers(0, 4_000_000_000).map(lambda second: second * 1000), st.integers(0, 10**15))
def test_a_key_names_its_time_and_its_cluster(created_ms: int, revision: int) -> None:
    found = snapshot_of(key_of("p/q", "n", created_ms, revision, "-c_1-"), 5)
    assert found is not None
    assert (found.created_ms, found.revision, found.size_bytes) == (created_ms, revision, 5)
    assert found.cluster_id == "-c_1-"


@pytest.mark.parametrize(
    "key",
    ["p/n/x.kfsnap", "p/n/20261322T020000Z-0000000000000001-c.kfsnap", "20261122T020000Z-1-c.kfsnap", ""],
)
def test_other_keys_are_none(key: str) -> None:
    assert snapshot_of(key, 1) is None


@given(
    st.lists(st.integers(0, 100), unique=True), st.integers(1, 10), st.integers(0, 100), st.integers(0, 100)
)
def test_snapshots_new_enough_by_count_or_age_stay(
    ages: list[int], keep: int, keep_for_ms: int, at: int
) -> None:
    """`at`: how old what was just taken seems; by a clock that was ahead, others may seem to be newer."""
    all_of_them = [
        StoredSnapshot(key=str(age), created_ms=1000 - age, revision=1, cluster_id="c", size_bytes=1)
        for age in ages
    ]
    taken = StoredSnapshot(key="now", created_ms=1000 - at, revision=2, cluster_id="c", size_bytes=1)
    expired_ones = expired(
        [*all_of_them, taken], taken=taken, keep=keep, keep_for_ms=keep_for_ms, now_ms=1000
    )
    newest = sorted([*all_of_them, taken], key=lambda one: (-one.created_ms, -one.revision))[:keep]
    assert {one.key for one in expired_ones} == {
        one.key for one in all_of_them if one not in newest and one.created_ms < 1000 - keep_for_ms
    }
