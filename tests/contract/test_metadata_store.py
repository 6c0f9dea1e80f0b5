"""The contract of every metadata store. Revisions are compared by order only: others may use some up."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from kafscale.errors import LeaseEndedError
from kafscale.metadata.store import (
    ABSENT,
    Changes,
    Compare,
    Delete,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    Snapshot,
)
from tests.contract.metadata_backends import BACKENDS
from tests.support.waiting import PATIENCE_SEC

Event = Snapshot | Changes
# Long enough for any machine; what is waited for normally takes milliseconds, or a lease's time.


@pytest.fixture(params=sorted(BACKENDS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with BACKENDS[request.param](tmp_path) as opened:
        yield opened


async def put(store: MetadataStore, key: str, value: bytes = b"value", lease: int = 0) -> int:
    result = await store.transact([], [Put(key, value, lease)])
    assert result.succeeded
    return result.revision


async def values(store: MetadataStore, prefix: str = "") -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.range(prefix)).items}


class Mirror:
    """A watcher's picture of its prefix; checks what the events promise as it takes them."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.items: dict[str, KeyValue] = {}
        self.revision = 0
        self.snapshots = 0
        self.history: list[KeyValue | Delete] = []

    def take(self, event: Event) -> None:
        assert event.revision >= self.revision
        if isinstance(event, Snapshot):
            keys = [item.key for item in event.items]
            assert keys == sorted(set(keys))
            assert all(key.startswith(self.prefix) for key in keys)
            self.items = {item.key: item for item in event.items}
            self.snapshots += 1
        else:
            assert self.snapshots, "changes came before the first snapshot"
            assert event.revision > self.revision, "a change came twice"
            assert event.puts_and_deletes
            for change in event.puts_and_deletes:
                self._change(change)
        self.revision = event.revision

    def _change(self, change: KeyValue | Delete) -> None:
        assert change.key.startswith(self.prefix)
        self.history.append(change)
        if isinstance(change, Delete):
            assert self.items.pop(change.key, None) is not None, "a delete of a key that was not there"
        else:
            assert change.mod_revision > self.revision, "a put that was seen before"
            self.items[change.key] = change

    async def follow(self, events: AsyncGenerator[Event, None], until: int) -> None:
        """Take events until the revision has been seen."""
        async with asyncio.timeout(PATIENCE_SEC):
            while self.revision < until:
                self.take(await anext(events))


async def gone(store: MetadataStore, key: str) -> None:
    """Return when a watcher has seen that the key is not there."""
    async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch(key)) as events:
        mirror = Mirror(key)
        async for event in events:
            mirror.take(event)
            if key not in mirror.items:
                return


class TestTransactions:
    async def test_get_of_an_absent_key_is_none(self, store: MetadataStore) -> None:
        assert await store.get("topics/orders") is None

    async def test_a_put_is_read_back_with_its_revision(self, store: MetadataStore) -> None:
        revision = await put(store, "topics/orders", b"\x00\xff")
        assert await store.get("topics/orders") == KeyValue(
            key="topics/orders", value=b"\x00\xff", mod_revision=revision
        )

    async def test_an_empty_value_is_a_value(self, store: MetadataStore) -> None:
        await put(store, "k", b"")
        found = await store.get("k")
        assert found is not None
        assert found.value == b""

    async def test_revisions_grow(self, store: MetadataStore) -> None:
        revisions = [await put(store, key) for key in ("a", "b", "a")]
        revisions.append((await store.transact([], [Delete("a")])).revision)
        assert revisions == sorted(set(revisions))
        assert revisions[0] > 0
        assert (await store.range("")).revision >= revisions[-1]

    async def test_all_puts_of_a_transaction_share_its_revision(self, store: MetadataStore) -> None:
        result = await store.transact([], [Put("a", b"1"), Put("b", b"2")])
        assert {item.mod_revision for item in (await store.range("")).items} == {result.revision}

    async def test_absent_holds_only_without_the_key(self, store: MetadataStore) -> None:
        first = await store.transact([Compare("k", ABSENT)], [Put("k", b"first")])
        second = await store.transact([Compare("k", ABSENT)], [Put("k", b"second")])
        assert first.succeeded
        assert first.found == ()
        assert not second.succeeded
        assert second.found == (KeyValue(key="k", value=b"first", mod_revision=first.revision),)
        assert await values(store) == {"k": b"first"}

    async def test_a_revision_holds_until_the_next_put(self, store: MetadataStore) -> None:
        old = await put(store, "k", b"0")
        new = await store.transact([Compare("k", old)], [Put("k", b"1")])
        late = await store.transact([Compare("k", old)], [Put("k", b"2")])
        assert new.succeeded
        assert not late.succeeded
        assert await values(store) == {"k": b"1"}

    async def test_a_put_of_the_same_value_is_a_change(self, store: MetadataStore) -> None:
        old = await put(store, "k", b"same")
        await put(store, "k", b"same")
        assert not (await store.transact([Compare("k", old)], [])).succeeded

    async def test_a_key_that_was_deleted_and_came_back_is_another(self, store: MetadataStore) -> None:
        old = await put(store, "k")
        await store.transact([], [Delete("k")])
        absent = await store.transact([Compare("k", old)], [])
        assert not absent.succeeded
        assert absent.found == (None,)
        await put(store, "k")
        assert not (await store.transact([Compare("k", old)], [])).succeeded

    async def test_one_failed_compare_of_several_stops_everything(self, store: MetadataStore) -> None:
        a = await put(store, "a", b"a")
        b = await put(store, "b", b"b")
        compares = [Compare("a", a), Compare("none", ABSENT), Compare("b", a), Compare("none", b)]
        result = await store.transact(compares, [Put("a", b"new"), Put("c", b"new"), Delete("b")])
        assert not result.succeeded
        held = (await store.get("a"), None, await store.get("b"), None)
        assert result.found == held
        assert await values(store) == {"a": b"a", "b": b"b"}

    async def test_several_compares_that_hold(self, store: MetadataStore) -> None:
        a = await put(store, "a")
        compares = [Compare("a", a), Compare("b", ABSENT), Compare("a", a)]
        assert (await store.transact(compares, [Put("b", b"b"), Delete("a")])).succeeded
        assert await values(store) == {"b": b"b"}

    async def test_a_transaction_of_compares_only_reads(self, store: MetadataStore) -> None:
        revision = await put(store, "k")
        result = await store.transact([Compare("k", revision)], [])
        assert result.succeeded
        assert await store.get("k") == KeyValue(key="k", value=b"value", mod_revision=revision)

    async def test_a_delete_of_an_absent_key_is_no_error(self, store: MetadataStore) -> None:
        revision = await put(store, "k")
        result = await store.transact([], [Delete("none")])
        assert result.succeeded
        assert result.revision >= revision
        assert await values(store) == {"k": b"value"}

    async def test_a_key_named_twice_is_refused(self, store: MetadataStore) -> None:
        twice: list[list[Operation]] = [[Put("k", b"1"), Put("k", b"2")], [Put("k", b"1"), Delete("k")]]
        for operations in twice:
            with pytest.raises(ValueError, match="'k'"):
                await store.transact([], operations)
        assert await values(store) == {}

    async def test_the_empty_key_is_refused(self, store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="empty"):
            await store.transact([], [Put("", b"value")])

    async def test_a_transaction_of_the_largest_size(self, store: MetadataStore) -> None:
        keys = [f"k{index:06d}" for index in range(store.max_operations)]
        compares = [Compare(key, ABSENT) for key in keys]
        assert (await store.transact(compares, [Put(key, b"v") for key in keys])).succeeded
        assert list(await values(store)) == keys
        assert (await store.transact([], [Delete(key) for key in keys])).succeeded
        assert await values(store) == {}

    async def test_a_larger_transaction_is_refused(self, store: MetadataStore) -> None:
        keys = [f"k{index:06d}" for index in range(store.max_operations + 1)]
        with pytest.raises(ValueError, match=str(len(keys))):
            await store.transact([], [Put(key, b"v") for key in keys])
        with pytest.raises(ValueError, match=str(len(keys))):
            await store.transact([Compare(key, ABSENT) for key in keys], [])
        assert await values(store) == {}

    async def test_large_values(self, store: MetadataStore) -> None:
        large = bytes(range(256)) * 2000
        await put(store, "k", large)
        assert await values(store) == {"k": large}


class TestRanges:
    async def test_a_prefix_ends_where_its_keys_end(self, store: MetadataStore) -> None:
        keys = ["topic", "topics", "topics/", "topics/a", "topics/a/0", "topics0", "topics.", "u"]
        for key in keys:
            await put(store, key)
        assert list(await values(store, "topics/")) == ["topics/", "topics/a", "topics/a/0"]
        assert list(await values(store, "topics/a")) == ["topics/a", "topics/a/0"]
        assert list(await values(store, "topics/b")) == []
        assert list(await values(store, "v")) == []
        assert list(await values(store)) == sorted(keys)

    async def test_a_prefix_at_the_end_of_all_characters(self, store: MetadataStore) -> None:
        keys = ["\U0010ffff", "\U0010ffffa", "\uffff", "é", "z"]
        for key in keys:
            await put(store, key)
        assert list(await values(store, "\U0010ffff")) == ["\U0010ffff", "\U0010ffffa"]
        assert list(await values(store)) == ["z", "é", "\uffff", "\U0010ffff", "\U0010ffffa"]

    async def test_deleted_keys_leave_the_range(self, store: MetadataStore) -> None:
        for key in ("a", "b", "c"):
            await put(store, key)
        await store.transact([], [Delete("b")])
        assert list(await values(store)) == ["a", "c"]


class TestConcurrency:
    async def test_compare_and_increment_loses_no_update(self, store: MetadataStore) -> None:
        async def increment(times: int) -> None:
            for _ in range(times):
                while True:
                    found = await store.get("counter")
                    count = int(found.value) if found else 0
                    compare = Compare("counter", found.mod_revision if found else ABSENT)
                    if (await store.transact([compare], [Put("counter", str(count + 1).encode())])).succeeded:
                        break

        async with asyncio.timeout(PATIENCE_SEC), asyncio.TaskGroup() as tasks:
            for _ in range(16):
                tasks.create_task(increment(10))
        assert await values(store) == {"counter": b"160"}

    async def test_of_many_creators_at_once_one_wins(self, store: MetadataStore) -> None:
        results = await asyncio.gather(
            *(store.transact([Compare("k", ABSENT)], [Put("k", b"%d" % index)]) for index in range(50))
        )
        winners = [index for index, result in enumerate(results) if result.succeeded]
        assert len(winners) == 1
        item = await store.get("k")
        assert item is not None
        assert item.value == b"%d" % winners[0]
        assert all(result.found == (item,) for result in results if not result.succeeded)

    async def test_what_one_was_answered_all_read(self, store: MetadataStore) -> None:
        async def write(key: str) -> None:
            for count in range(20):
                revision = await put(store, key, b"%d" % count)
                item = await store.get(key)
                assert item == KeyValue(key=key, value=b"%d" % count, mod_revision=revision)

        async with asyncio.timeout(PATIENCE_SEC), asyncio.TaskGroup() as tasks:
            for index in range(10):
                tasks.create_task(write(f"k{index}"))


class TestWatches:
    async def test_a_snapshot_comes_first(self, store: MetadataStore) -> None:
        await put(store, "a/2", b"2")
        await put(store, "a/1", b"1")
        await put(store, "b", b"b")
        async with aclosing(store.watch("a/")) as events:
            first = await anext(events)
        assert isinstance(first, Snapshot)
        assert [(item.key, item.value) for item in first.items] == [("a/1", b"1"), ("a/2", b"2")]

    async def test_an_empty_prefix_has_a_snapshot_too(self, store: MetadataStore) -> None:
        async with aclosing(store.watch("none/")) as events:
            first = await anext(events)
        assert isinstance(first, Snapshot)
        assert first.items == ()

    async def test_changes_follow_in_order(self, store: MetadataStore) -> None:
        mirror = Mirror("a/")
        async with aclosing(store.watch("a/")) as events:
            mirror.take(await anext(events))
            one = await put(store, "a/1", b"1")
            await put(store, "b/1", b"not watched")
            two = (await store.transact([], [Put("a/2", b"2"), Put("b/2", b"2"), Delete("a/1")])).revision
            await store.transact([], [Delete("a/1")])
            three = await put(store, "a/1", b"3")
            await mirror.follow(events, three)
        changed = [
            KeyValue(key="a/1", value=b"1", mod_revision=one),
            KeyValue(key="a/2", value=b"2", mod_revision=two),
            Delete("a/1"),
            KeyValue(key="a/1", value=b"3", mod_revision=three),
        ]
        assert mirror.history == changed
        assert list(mirror.items) == ["a/2", "a/1"]

    async def test_the_watch_of_a_key_sees_no_other(self, store: MetadataStore) -> None:
        await put(store, "partitions/orders/1", b"first")
        await put(store, "partitions/orders/10", b"another")
        async with aclosing(store.watch_key("partitions/orders/1")) as events:
            first = await anext(events)
            assert isinstance(first, Snapshot)
            assert [(item.key, item.value) for item in first.items] == [("partitions/orders/1", b"first")]
            await put(store, "partitions/orders/10", b"changed")
            await put(store, "partitions/orders/", b"new")
            result = await store.transact([], [Put("partitions/orders/1", b"second")])
            changes = await anext(events)
            assert isinstance(changes, Changes)
            assert changes.revision == result.revision
            (change,) = changes.puts_and_deletes
            assert isinstance(change, KeyValue)
            assert (change.key, change.value) == ("partitions/orders/1", b"second")
            await store.transact([], [Delete("partitions/orders/1")])
            gone = await anext(events)
            assert isinstance(gone, Changes)
            assert gone.puts_and_deletes == (Delete("partitions/orders/1"),)

    async def test_the_watch_of_an_absent_key_begins_with_nothing(self, store: MetadataStore) -> None:
        await put(store, "key/below")
        async with aclosing(store.watch_key("key")) as events:
            first = await anext(events)
            assert isinstance(first, Snapshot)
            assert first.items == ()

    async def test_a_waiting_watcher_is_woken(self, store: MetadataStore) -> None:
        async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("k")) as events:
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            assert not waiting.done()
            revision = await put(store, "k")
            put_event = KeyValue(key="k", value=b"value", mod_revision=revision)
            assert await waiting == Changes(puts_and_deletes=(put_event,), revision=revision)

    async def test_a_transaction_is_never_split(self, store: MetadataStore) -> None:
        async def write() -> None:
            for count in range(100):
                value = b"%d" % count
                await store.transact([], [Put("k/a", value), Put("k/b", value), Put("k/c", value)])
            await store.transact([], [Delete("k/a"), Delete("k/b"), Delete("k/c")])

        async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("k/")) as events:
            mirror = Mirror("k/")
            mirror.take(await anext(events))
            writer = asyncio.ensure_future(write())
            while Delete("k/c") not in mirror.history:
                mirror.take(await anext(events))
                assert len({item.value for item in mirror.items.values()}) <= 1
                assert len(mirror.items) in (0, 3)
            await writer

    async def test_every_change_of_concurrent_writers_exactly_once(self, store: MetadataStore) -> None:
        written: dict[int, KeyValue] = {}

        async def write(key: str) -> None:
            for count in range(40):
                revision = await put(store, key, b"%d" % count)
                written[revision] = KeyValue(key=key, value=b"%d" % count, mod_revision=revision)

        async def watch(mirror: Mirror, ready: asyncio.Event) -> None:
            async with aclosing(store.watch(mirror.prefix)) as events:
                mirror.take(await anext(events))
                ready.set()
                await mirror.follow(events, await last)

        mirrors = [Mirror(), Mirror("k/"), Mirror("k/3"), Mirror("k/")]
        ready = [asyncio.Event() for _ in mirrors]
        last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(PATIENCE_SEC), asyncio.TaskGroup() as watchers:
            for mirror, event in zip(mirrors, ready, strict=True):
                watchers.create_task(watch(mirror, event))
            for event in ready:
                await event.wait()
            async with asyncio.TaskGroup() as writers:
                for index in range(8):
                    writers.create_task(write(f"k/{index}"))
            # One that every watcher sees, so that each knows when it has everything.
            last.set_result(await put(store, "k/3", b"last"))
            written[last.result()] = KeyValue(key="k/3", value=b"last", mod_revision=last.result())
        for mirror in mirrors:
            assert mirror.snapshots == 1
            expected = [written[revision] for revision in sorted(written)]
            assert mirror.history == [item for item in expected if item.key.startswith(mirror.prefix)]

    async def test_watchers_that_join_during_writes_miss_nothing(self, store: MetadataStore) -> None:
        async def write(key: str) -> None:
            for count in range(30):
                await put(store, key, b"%d" % count)
                if count % 7 == 0:
                    await store.transact([], [Delete(key)])

        async def join(mirror: Mirror) -> None:
            async with aclosing(store.watch("")) as events:
                mirror.take(await anext(events))
                await mirror.follow(events, await last)

        last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        mirrors: list[Mirror] = []
        async with asyncio.timeout(PATIENCE_SEC), asyncio.TaskGroup() as watchers:
            async with asyncio.TaskGroup() as writers:
                for index in range(5):
                    writers.create_task(write(f"k/{index}"))
                for _ in range(20):
                    mirrors.append(Mirror())
                    watchers.create_task(join(mirrors[-1]))
                    await put(store, "joined")
            last.set_result(await put(store, "last"))
        expected = {item.key: item for item in (await store.range("")).items}
        assert all(mirror.items == expected for mirror in mirrors)

    async def test_a_watcher_that_falls_far_behind_ends_with_the_truth(self, store: MetadataStore) -> None:
        mirror = Mirror()
        async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("")) as events:
            mirror.take(await anext(events))
            await put(store, "old", b"goes while the watcher is away")
            for count in range(60):
                value = bytes([count]) * 40_000
                await store.transact([], [Put(f"k/{index}", value) for index in range(8)])
            await store.transact([], [Delete("old"), Delete("k/0")])
            await mirror.follow(events, await put(store, "last"))
        assert mirror.items == {item.key: item for item in (await store.range("")).items}

    async def test_a_cancelled_watcher_leaves_the_others(self, store: MetadataStore) -> None:
        async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("k")) as others:
            await anext(others)
            events = store.watch("k")
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await events.aclose()
            await put(store, "k")
            assert isinstance(await anext(others), Changes)

    async def test_close_ends_the_watches(self, store: MetadataStore) -> None:
        async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("k")) as events:
            await anext(events)
            waiting = asyncio.ensure_future(anext(events, None))
            await asyncio.sleep(0)
            await store.close()
            assert await waiting is None


class TestLeases:
    async def test_a_key_says_its_lease(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(60)
        revision = await put(store, "k", b"v", lease)
        assert await store.get("k") == KeyValue(key="k", value=b"v", mod_revision=revision, lease=lease)

    async def test_leases_differ(self, store: MetadataStore) -> None:
        assert len({await store.grant_lease(60) for _ in range(10)} - {0}) == 10

    async def test_an_end_removes_the_keys_and_watchers_see_it(self, store: MetadataStore) -> None:
        async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("")) as events:
            mirror = Mirror()
            mirror.take(await anext(events))
            lease = await store.grant_lease(1)
            await store.transact([], [Put("a", b"1", lease), Put("b", b"2", lease), Put("c", b"3")])
            while set(mirror.items) != {"c"}:
                mirror.take(await anext(events))
                assert set(mirror.items) in ({"a", "b", "c"}, {"c"}), "the keys went one after the other"
        assert mirror.history[3:] in ([Delete("a"), Delete("b")], [Delete("b"), Delete("a")])
        assert await values(store) == {"c": b"3"}
        assert not await store.renew_lease(lease)

    async def test_renewals_keep_a_lease(self, store: MetadataStore) -> None:
        renewed = await store.grant_lease(2)
        await put(store, "renewed", b"v", renewed)
        left = await store.grant_lease(2)
        await put(store, "left", b"v", left)

        async def renew() -> None:
            while True:
                assert await store.renew_lease(renewed)
                await asyncio.sleep(0.2)

        renewing = asyncio.ensure_future(renew())
        # The one that was granted later and not renewed ends while the other lives on.
        await gone(store, "left")
        renewing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await renewing
        assert list(await values(store)) == ["renewed"]
        await gone(store, "renewed")

    async def test_revoke_removes_the_keys_at_once(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(60)
        other = await store.grant_lease(60)
        await store.transact([], [Put("a", b"1", lease), Put("b", b"2", lease), Put("c", b"3", other)])
        await store.revoke_lease(lease)
        assert await values(store) == {"c": b"3"}
        assert not await store.renew_lease(lease)
        assert await store.renew_lease(other)

    async def test_revoke_of_an_ended_lease_is_no_error(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(60)
        await store.revoke_lease(lease)
        await store.revoke_lease(lease)

    async def test_a_put_under_an_ended_lease_does_nothing(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(60)
        await store.revoke_lease(lease)
        with pytest.raises(LeaseEndedError):
            await store.transact([], [Put("a", b"1"), Put("k", b"v", lease)])
        assert await values(store) == {}

    async def test_a_failed_compare_comes_before_an_ended_lease(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(60)
        await store.revoke_lease(lease)
        held = await put(store, "k")
        result = await store.transact([Compare("k", ABSENT)], [Put("k", b"v", lease)])
        assert not result.succeeded
        assert result.found == (KeyValue(key="k", value=b"value", mod_revision=held),)

    async def test_a_later_put_unbinds(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(60)
        other = await store.grant_lease(60)
        for key in ("freed", "moved", "gone and back", "stays bound"):
            await put(store, key, b"1", lease)
        await put(store, "freed", b"2")
        await put(store, "moved", b"2", other)
        await store.transact([], [Delete("gone and back")])
        await put(store, "gone and back", b"2")
        await store.revoke_lease(lease)
        assert list(await values(store)) == ["freed", "gone and back", "moved"]
        await store.revoke_lease(other)
        assert list(await values(store)) == ["freed", "gone and back"]

    async def test_a_lease_of_no_time_is_refused(self, store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="0"):
            await store.grant_lease(0)
