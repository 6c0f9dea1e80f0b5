"""The bucket store beyond the contract: memory, slots, large objects, long listings, and a server that goes away."""

import asyncio
import mmap
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kafscale.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreIndeterminateError,
    StoreUnavailableError,
)
from kafscale.objects.bucket.config import open_bucket
from kafscale.objects.bucket.requests import Kind, Patience, RequestSlots
from kafscale.objects.bucket.store import BucketStore
from kafscale.settings.broker import load_settings
from tests.support.damaging_relay import damaging_relay
from tests.support.s3_server import S3Server, s3_server
from tests.support.scripted_s3 import Answer, How, ScriptedS3, error, scripted_s3
from tests.support.waiting import PATIENCE_SEC, wait_until_async

MIB = 2**20
IMPATIENCE = Patience(attempt_sec=0.3, call_sec=0.6, bytes_per_sec=1000 * MIB, first_pause_sec=0.01)
WAITS_FOR_ANSWERS = replace(IMPATIENCE, attempt_sec=PATIENCE_SEC)
"""For a server that answers, as late as a busy machine lets it: what it answers is asked about again but briefly."""


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedS3]:
    async with scripted_s3() as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path) as running:
        yield running


def store_of(server: ScriptedS3 | S3Server, **overrides: str) -> BucketStore:
    return open_bucket(load_settings(server.settings | overrides))


def impatient_store_of(server: ScriptedS3 | S3Server) -> BucketStore:
    return open_bucket(load_settings(server.settings), IMPATIENCE)


def soon_tired_store_of(server: ScriptedS3 | S3Server) -> BucketStore:
    """It waits for each answer, and does not try again for long."""
    return open_bucket(load_settings(server.settings), WAITS_FOR_ANSWERS)


class TestMemory:
    """The library reads a large payload where it lies; the caller may use that memory again afterwards."""

    @pytest.mark.parametrize("is_new", [True, False])
    async def test_after_a_put_the_parts_are_free(self, scripted: ScriptedS3, is_new: bool) -> None:
        store, memory = store_of(scripted), bytearray(random.Random(1).randbytes(3 * MIB))
        body = bytes(memory)
        parts = [memoryview(memory)[:MIB], memoryview(memory)[MIB:]]
        await (store.put_if_absent("n/a", parts) if is_new else store.put("n/a", parts))
        del parts
        memory.clear()  # refused, with BufferError, while anybody has a view of it
        assert scripted.objects["n/a"] == body

    @pytest.mark.parametrize("is_new", [True, False])
    async def test_cancelled_caller_returns_once_its_parts_are_unread(
        self, scripted: ScriptedS3, is_new: bool
    ) -> None:
        store, memory = store_of(scripted), bytearray(64 * MIB)
        scripted.script.append(Answer(how=How.HOLD))
        put = store.put_if_absent if is_new else store.put
        task = asyncio.create_task(put("n/a", [memory]))
        await scripted.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        memory.clear()

    async def test_after_a_timeout_the_parts_are_free(self, scripted: ScriptedS3) -> None:
        store, memory = impatient_store_of(scripted), bytearray(64 * MIB)
        scripted.script.append(Answer(how=How.HOLD))
        with pytest.raises(StoreIndeterminateError):
            await store.put_if_absent("n/a", [memory])
        memory.clear()

    async def test_a_put_that_is_tried_again_sends_the_same(self, scripted: ScriptedS3) -> None:
        store, body = store_of(scripted), random.Random(2).randbytes(3 * MIB)
        scripted.script += [error(503, "SlowDown")] * 2
        await store.put_if_absent("n/a", [memoryview(body)[:MIB], memoryview(body)[MIB:]])
        assert [request.body == body for request in scripted.requests] == [True] * 3


class TestSlots:
    """How many requests are in flight."""

    @pytest.mark.parametrize("total", [1, 2, 3, 8, 64])
    async def test_neither_kind_keeps_the_other_out(self, total: int) -> None:
        for greedy, other in (Kind.WRITE, Kind.READ), (Kind.READ, Kind.WRITE):
            slots, inside = RequestSlots(total), {Kind.READ: 0, Kind.WRITE: 0}
            release = asyncio.Event()

            async def take(kind: Kind) -> None:
                async with slots.take(kind):  # noqa: B023
                    inside[kind] += 1  # noqa: B023
                    await release.wait()  # noqa: B023

            tasks = [asyncio.create_task(take(greedy)) for _ in range(2 * total)]
            for _ in range(10):
                await asyncio.sleep(0)
            assert inside[greedy] == (total if total == 1 else total - max(total // 4, 1))
            tasks += [asyncio.create_task(take(other)) for _ in range(2 * total)]
            for _ in range(10):
                await asyncio.sleep(0)
            assert sum(inside.values()) == total
            release.set()
            await asyncio.gather(*tasks)
            assert inside == {Kind.READ: 2 * total, Kind.WRITE: 2 * total}

    async def test_no_more_requests_than_the_setting_says_reach_the_store(self, scripted: ScriptedS3) -> None:
        store = store_of(scripted, KAFSCALE_S3_CONCURRENCY="5")
        scripted.pause_sec = 0.01
        puts = (store.put_if_absent(f"n/{number}", [b"x"]) for number in range(30))
        reads = (store.get_range("n/none", 0, 1) for _ in range(30))
        await asyncio.gather(*puts, *reads, return_exceptions=True)
        assert scripted.most_under_way == 5
        assert len(scripted.objects) == 30

    async def test_a_read_gets_through_while_uploads_are_held(self, scripted: ScriptedS3) -> None:
        scripted.objects["n/a"] = b"content"
        store = store_of(scripted, KAFSCALE_S3_CONCURRENCY="4")
        scripted.script += [Answer(how=How.HOLD)] * 3
        uploads = [asyncio.create_task(store.put_if_absent(f"n/{number}", [b"x"])) for number in range(10)]

        async def held() -> bool:
            return scripted.under_way == 3

        await wait_until_async(held, "as many uploads are held as may be")
        assert await store.get("n/a") == b"content"
        for upload in uploads:
            upload.cancel()
        await asyncio.gather(*uploads, return_exceptions=True)

    async def test_a_call_that_gets_no_slot_ends_with_nothing_done(self, scripted: ScriptedS3) -> None:
        settings = load_settings(scripted.settings | {"KAFSCALE_S3_CONCURRENCY": "1"})
        store = open_bucket(settings, Patience(attempt_sec=5, call_sec=0.3))
        scripted.script.append(Answer(how=How.HOLD))
        holding = asyncio.create_task(store.put_if_absent("n/held", [b"x"]))
        await scripted.begun.wait()
        with pytest.raises(StoreUnavailableError, match="KAFSCALE_S3_CONCURRENCY"):
            await store.put_if_absent("n/a", [b"x"])
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        await store.put_if_absent("n/a", [b"x"])


class TestLargeObjects:
    """On the real server."""

    async def test_a_large_object_is_created_in_one_conditional_request(self, server: S3Server) -> None:
        store, body = store_of(server), random.Random(3).randbytes(MIB) * 70
        await store.put_if_absent("n/large", [memoryview(body)[: 9 * MIB], memoryview(body)[9 * MIB :]])
        with pytest.raises(ObjectExistsError):
            await store.put_if_absent("n/large", [memoryview(body)[1:]])
        assert await store.get("n/large") == body

    @pytest.mark.parametrize("size_bytes", [4 * MIB, 40 * MIB])
    async def test_a_taken_key_is_known_though_the_server_hangs_up_early(
        self, server: S3Server, size_bytes: int
    ) -> None:
        """The server answers 412 before it has read the body, and the sender sees a broken connection."""
        store, mine = store_of(server), random.Random(5).randbytes(MIB) * (size_bytes // MIB)
        await store.put_if_absent("n/taken", [mine])
        other = bytearray(mine)
        other[-1] ^= 1
        for body in (other, mine[1:]):
            for _ in range(3):
                with pytest.raises(ObjectExistsError):
                    await store.put_if_absent("n/taken", [body])
        assert await store.get("n/taken") == mine

    async def test_a_large_object_is_replaced_in_parts(self, server: S3Server) -> None:
        store, body = store_of(server), random.Random(4).randbytes(MIB) * 70 + b"end"
        await store.put("n/large", [b"small"])
        await store.put("n/large", [memoryview(body)[: 33 * MIB], memoryview(body)[33 * MIB :]])
        assert await store.size_bytes("n/large") == len(body)
        assert await store.get_range("n/large", 16 * MIB - 5, 40 * MIB) == body[16 * MIB - 5 : 56 * MIB - 5]
        memory = memoryview(mmap.mmap(-1, 71 * MIB))
        assert await store.read_into("n/large", 0, 71 * MIB, [memory[:MIB], memory[MIB:]]) == len(body)
        assert memory[: len(body)] == body
        assert server.stored_files() == ["n/large"]

    async def test_more_than_one_request_may_hold_is_refused(self, scripted: ScriptedS3) -> None:
        gib = memoryview(mmap.mmap(-1, 2**30))
        with pytest.raises(ValueError, match="legal are up to"):
            await store_of(scripted).put_if_absent("n/huge", [gib] * 5 + [b"x"])
        assert not scripted.requests


class TestManyObjects:
    """Pages of a thousand."""

    async def test_a_long_listing_and_its_deletion(self, scripted: ScriptedS3) -> None:
        keys = [f"n/t/0/segment-{number:020d}" for number in range(2500)]
        scripted.objects = dict.fromkeys([*keys, "n/t-2/0/x", "m"], b"12")
        store = store_of(scripted)
        found = [info async for info in store.list("n/t/")]
        assert [info.key for info in found] == keys
        assert {info.size_bytes for info in found} == {2}
        await store.delete([*keys, "n/missing"])
        assert sorted(scripted.objects) == ["m", "n/t-2/0/x"]
        assert scripted.methods() == ["GET"] * 3 + ["POST"] * 3

    async def test_a_listing_goes_on_where_it_failed(self, scripted: ScriptedS3) -> None:
        keys = [f"n/{number:04d}" for number in range(2500)]
        scripted.objects = dict.fromkeys(keys, b"")
        found = []
        async for info in store_of(scripted).list("n/"):
            if info.key in ("n/0999", "n/1999"):
                scripted.script += [error(500, "InternalError"), Answer(how=How.DROP), Answer(how=How.CUT)]
            found.append(info.key)
        assert found == keys
        assert len(scripted.requests) == 3 + 2 * 3

    async def test_a_listing_that_breaks_off_raises(self, scripted: ScriptedS3) -> None:
        scripted.objects = dict.fromkeys((f"n/{number:04d}" for number in range(1500)), b"")
        found = []
        with pytest.raises(StoreUnavailableError):
            async for info in soon_tired_store_of(scripted).list("n/"):
                if info.key == "n/0999":
                    scripted.script += [error(500, "InternalError")] * 10_000
                found.append(info.key)
        assert len(found) == 1000

    async def test_a_prefix_asks_for_little_beyond_what_it_names(self, scripted: ScriptedS3) -> None:
        scripted.objects = dict.fromkeys((f"n/{number:05d}" for number in range(20_000)), b"")
        found = [info.key async for info in store_of(scripted).list("n/0999")]
        assert found == [f"n/0999{number}" for number in range(10)]
        assert len(scripted.requests) == 1

    async def test_some_of_many_deletions_is_not_nothing(self, scripted: ScriptedS3) -> None:
        scripted.objects = dict.fromkeys((f"n/{number}" for number in range(1500)), b"")
        scripted.script += [Answer()] + [error(503, "SlowDown")] * 10_000
        with pytest.raises(StoreIndeterminateError, match="only 1000 of 1500"):
            await soon_tired_store_of(scripted).delete(list(scripted.objects))


async def _answers(store: BucketStore, key: str, data: bytes) -> bool:
    try:
        return await store.get(key) == data
    except StoreUnavailableError:
        return False


class TestServerGoesAway:
    """The real server, stopped and started, or paused as a whole."""

    async def test_a_paused_server_costs_a_bounded_time_and_is_used_again(self, server: S3Server) -> None:
        store = impatient_store_of(server)
        patient = soon_tired_store_of(server)
        await patient.put_if_absent("n/before", [b"x"])
        server.pause()
        began = asyncio.get_running_loop().time()
        calls = (
            store.put_if_absent("n/during", [b"x" * 3 * MIB]),
            store.put("n/during-too", [b"x"]),
            store.get("n/before"),
            store.size_bytes("n/before"),
            store.delete(["n/none"]),
        )
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, StoreError) for result in results] == [True] * 5
        assert isinstance(results[0], StoreIndeterminateError)
        assert asyncio.get_running_loop().time() - began < 10
        server.resume()
        await patient.put_if_absent("n/after", [b"y"])
        await wait_until_async(partial(_answers, store, "n/before", b"x"), "the same store is used again")

    async def test_a_server_that_was_away_is_used_again(self, server: S3Server) -> None:
        store = soon_tired_store_of(server)
        await store.put_if_absent("n/before", [b"x"])
        server.kill9()
        with pytest.raises(StoreError):
            await store.put_if_absent("n/during", [b"x"])
        with pytest.raises(StoreUnavailableError):
            await store.get("n/before")
        server.start()
        assert await store.get("n/before") == b"x"
        with pytest.raises(ObjectNotFoundError):
            await store.get("n/during")
        await store.put_if_absent("n/during", [b"x"])

    async def test_damage_on_the_way_to_the_server_is_found(self, server: S3Server) -> None:
        """By the CRC that every put carries: the signature does not cover the body."""
        async with damaging_relay(server.port) as port:
            store = open_bucket(
                load_settings(server.settings | {"KAFSCALE_S3_ENDPOINT": f"http://127.0.0.1:{port}"}),
                WAITS_FOR_ANSWERS,
            )
            await store.put_if_absent("n/harmless", [b"x" * 1000])
            with pytest.raises(StoreUnavailableError, match="400"):
                await store.put_if_absent("n/damaged", [b"x" * 1000 + b"precious" + b"x" * 1000])
            with pytest.raises(StoreUnavailableError, match="400"):
                await store.put_if_absent("n/damaged", [b"x" * MIB + b"precious" + b"x" * MIB])
        assert server.stored_files() == ["n/harmless"]
