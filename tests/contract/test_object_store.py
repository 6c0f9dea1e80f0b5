"""The contract of every object store."""

import asyncio
import mmap
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafscale.errors import ObjectExistsError, ObjectNotFoundError
from kafscale.objects.local.store import LocalStore
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.types import Buffer
from tests.contract.object_store_backends import BACKENDS, STREAMING_BACKENDS
from tests.support.waiting import PATIENCE_SEC

MIB = 1024 * 1024


@pytest.fixture(params=sorted(BACKENDS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    async with BACKENDS[request.param](tmp_path) as backend:
        yield backend


@pytest.fixture(params=sorted(STREAMING_BACKENDS))
async def streaming(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    """For tests of streamed objects: a bucket creates them in two ways."""
    async with STREAMING_BACKENDS[request.param](tmp_path) as backend:
        yield backend


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [info.key async for info in store.list(prefix)]


async def test_put_if_absent_joins_the_parts(store: ObjectStore) -> None:
    parts: list[Buffer] = [b"head", bytearray(b"-"), memoryview(b"xbodyx")[1:5], b"", b"-tail"]
    await store.put_if_absent("n/t/0/a", parts)
    assert await store.get("n/t/0/a") == b"head-body-tail"


async def test_put_if_absent_accepts_more_parts_than_one_syscall(store: ObjectStore) -> None:
    parts = [bytes([number % 251]) * 7 for number in range(3000)]
    await store.put_if_absent("n/many", parts)
    assert await store.get("n/many") == b"".join(parts)


async def test_put_if_absent_takes_views_of_wider_items(store: ObjectStore) -> None:
    words = memoryview(bytearray(range(256)) * 1024).cast("Q")
    await store.put_if_absent("n/words", [b"!", words])
    assert await store.get("n/words") == b"!" + bytes(range(256)) * 1024


async def test_put_if_absent_refuses_and_keeps_existing_object(store: ObjectStore) -> None:
    await store.put_if_absent("n/t/0/a", [b"first"])
    with pytest.raises(ObjectExistsError) as caught:
        await store.put_if_absent("n/t/0/a", [b"second"])
    assert caught.value.key == "n/t/0/a"
    assert await store.get("n/t/0/a") == b"first"


async def test_the_caller_may_reuse_its_memory_once_a_put_returned(store: ObjectStore) -> None:
    memory = bytearray(b"a" * 300_000)
    await store.put_if_absent("n/t", [memory])
    memory[:] = b"b" * 300_000
    assert await store.get("n/t") == b"a" * 300_000


@pytest.mark.parametrize("size_bytes", [10, 300_000])
async def test_of_sixteen_concurrent_creators_exactly_one_wins(store: ObjectStore, size_bytes: int) -> None:
    for attempt in range(5):
        key = f"n/t/{attempt}/contested"
        bodies = [bytes([number]) * (size_bytes + number) for number in range(16)]
        results = await asyncio.gather(
            *(store.put_if_absent(key, [body[:5], body[5:]]) for body in bodies), return_exceptions=True
        )
        winners = [number for number, result in enumerate(results) if result is None]
        assert len(winners) == 1
        assert all(isinstance(result, ObjectExistsError) for result in results if result is not None)
        assert await store.get(key) == bodies[winners[0]]


async def chunks_of(*chunks: Buffer, then: BaseException | None = None) -> AsyncIterator[Buffer]:
    """The chunks, each of which is overwritten once the next one is asked for."""
    for chunk in chunks:
        memory = memoryview(bytearray(chunk))
        yield memory
        memory[:] = b"\xa5" * len(memory)
        await asyncio.sleep(0)
    if then is not None:
        raise then


def cut(body: bytes, *sizes: int) -> list[bytes]:
    """The body in pieces of these sizes, and the rest."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [body[start:end] for start, end in zip([0, *ends], [*ends, len(body)], strict=True)]


async def test_a_streamed_object_is_its_chunks_joined(streaming: ObjectStore) -> None:
    for size_bytes in (0, 1, 100, 4096, 128 * 1024 + 1, MIB, 3 * MIB + 17, 9 * MIB + 123):
        body = random.Random(size_bytes).randbytes(size_bytes)
        await streaming.put_if_absent_streamed(
            f"n/{size_bytes}", chunks_of(*cut(body, 0, 1, 30, 70_000, 2 * MIB)), size_bytes
        )
        assert await streaming.get(f"n/{size_bytes}") == body, size_bytes


async def test_streamed_object_accepts_small_chunks_and_wide_views(
    streaming: ObjectStore,
) -> None:
    body = bytes(range(256)) * 8
    await streaming.put_if_absent_streamed("n/many", chunks_of(*cut(body, *[1] * 2000)), len(body))
    assert await streaming.get("n/many") == body

    async def words() -> AsyncIterator[Buffer]:
        yield memoryview(body).cast("Q")

    await streaming.put_if_absent_streamed("n/words", words(), len(body))
    assert await streaming.get("n/words") == body


async def test_a_streamed_object_is_not_created_where_one_lies(streaming: ObjectStore) -> None:
    await streaming.put_if_absent("n/taken", [b"first"])
    with pytest.raises(ObjectExistsError) as caught:
        await streaming.put_if_absent_streamed("n/taken", chunks_of(b"sec", b"ond"), 6)
    assert caught.value.key == "n/taken"
    assert await streaming.get("n/taken") == b"first"


@pytest.mark.parametrize("announced", [0, 8, 9, 11, 5 * MIB])
async def test_streamed_object_of_wrong_size_is_not_created(streaming: ObjectStore, announced: int) -> None:
    with pytest.raises(ValueError, match=f"{announced} were announced"):
        await streaming.put_if_absent_streamed("n/wrong", chunks_of(b"12345", b"67890"), announced)
    assert await keys(streaming, "") == []


async def test_streamed_object_of_invalid_size_is_refused(
    streaming: ObjectStore,
) -> None:
    assert streaming.max_streamed_bytes >= 256 * MIB
    for size_bytes in (-1, streaming.max_streamed_bytes + 1):
        with pytest.raises(ValueError, match="legal are 0 to"):
            await streaming.put_if_absent_streamed("n/none", chunks_of(b"x"), size_bytes)
    assert await keys(streaming, "") == []


async def test_error_in_chunks_propagates_and_creates_nothing(
    streaming: ObjectStore,
) -> None:
    for problem in (ObjectNotFoundError("n/source"), OSError("of the caller's"), KeyError("x")):
        with pytest.raises(type(problem)) as caught:
            await streaming.put_if_absent_streamed("n/t", chunks_of(b"12345", then=problem), 5)
        assert caught.value is problem
    assert await keys(streaming, "") == []
    await streaming.put_if_absent_streamed("n/t", chunks_of(b"12345"), 5)


async def test_cancelled_stream_creates_nothing(streaming: ObjectStore) -> None:
    is_waiting = asyncio.Event()

    async def endless() -> AsyncIterator[Buffer]:
        yield bytes(3 * MIB)
        is_waiting.set()
        await asyncio.Event().wait()

    creating = asyncio.create_task(streaming.put_if_absent_streamed("n/t", endless(), 5 * MIB))
    await asyncio.wait_for(is_waiting.wait(), PATIENCE_SEC)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert await keys(streaming, "") == []
    await streaming.put_if_absent_streamed("n/t", chunks_of(b"12345"), 5)
    assert await streaming.get("n/t") == b"12345"


async def test_of_concurrent_creators_of_both_kinds_exactly_one_wins(streaming: ObjectStore) -> None:
    bodies = [bytes([number]) * (300_000 + number) for number in range(12)]
    results = await asyncio.gather(
        *(
            streaming.put_if_absent("n/contested", [body])
            if number % 3 == 0
            else streaming.put_if_absent_streamed("n/contested", chunks_of(*cut(body, 7, 99_000)), len(body))
            for number, body in enumerate(bodies)
        ),
        return_exceptions=True,
    )
    winners = [number for number, result in enumerate(results) if result is None]
    assert len(winners) == 1
    assert all(isinstance(result, ObjectExistsError) for result in results if result is not None)
    assert await streaming.get("n/contested") == bodies[winners[0]]


async def test_put_creates_and_replaces(store: ObjectStore) -> None:
    await store.put("n/index", [b"a longer first version"])
    await store.put("n/index", [b"sec", b"ond"])
    assert await store.get("n/index") == b"second"


async def test_reader_sees_one_whole_version_during_replacement(store: ObjectStore) -> None:
    bodies = {bytes([number]) * (200_000 + number) for number in range(8)}
    await store.put("n/x", [next(iter(bodies))])
    replacing = asyncio.gather(*(store.put("n/x", [body]) for body in bodies))
    while not replacing.done():
        assert await store.get("n/x") in bodies
        await asyncio.sleep(0)
    await replacing
    assert await store.get("n/x") in bodies


async def test_an_object_is_listed_with_its_whole_size_or_not_at_all(store: ObjectStore) -> None:
    size_bytes = 2 * MIB + 17
    putting = asyncio.gather(
        *(store.put_if_absent(f"n/{number}", [bytes(size_bytes)]) for number in range(4))
    )
    while not putting.done():
        assert {info.size_bytes async for info in store.list("")} <= {size_bytes}
        await asyncio.sleep(0)
    await putting
    assert await keys(store, "") == ["n/0", "n/1", "n/2", "n/3"]


async def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    await store.put_if_absent("n/empty", [])
    await store.put_if_absent("n/empty-part", [b""])
    assert await store.get("n/empty") == b""
    assert await store.get_range("n/empty", 0, 10) == b""
    assert await store.size_bytes("n/empty-part") == 0
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent("n/empty", [b"not"])


# Around what a store may write or read by: blocks, the threshold for direct I/O, its staging memory.
BOUNDARIES = (4096, 128 * 1024, MIB, MIB + 4096, 2 * MIB)
ODD_SIZES = sorted({size + more for size in BOUNDARIES for more in (-4096, -1, 0, 1, 4095)} | {9 * MIB + 123})


async def test_objects_of_any_size_come_back_as_they_went(store: ObjectStore) -> None:
    for size_bytes in ODD_SIZES:
        key = f"n/t/0/{size_bytes}"
        body = random.Random(size_bytes).randbytes(size_bytes)
        await store.put_if_absent(key, [body[:32], memoryview(body)[32:-16], body[-16:]])
        assert await store.get(key) == body, size_bytes
        assert await store.size_bytes(key) == size_bytes
        assert await store.get_range(key, max(size_bytes - 20, 0), 100) == body[-20:]


@pytest.mark.parametrize("aligned", [True, False])
async def test_ranges_are_read_into_given_memory(store: ObjectStore, aligned: bool) -> None:
    memory = memoryview(mmap.mmap(-1, 16 * MIB))[0 if aligned else 100 :]
    divided = [memory[:4096], memory[4096 : 4096 + 2 * MIB], memory[4096 + 2 * MIB :]]
    # Blocks and staging memory are a folder's: of other stores some sizes are enough.
    for size_bytes in ODD_SIZES if isinstance(store, LocalStore) else ODD_SIZES[::4]:
        key = f"n/t/0/{size_bytes}"
        body = random.Random(size_bytes).randbytes(size_bytes)
        await store.put_if_absent(key, [body])
        for start in (0, 1, 4096, max(size_bytes - 20, 0)):
            for targets in ([memory], [memory[: size_bytes + 10]], divided):
                memory[:size_bytes] = b"\xa5" * size_bytes
                count = await store.read_into(key, start, size_bytes, targets)
                assert count == len(body[start:])
                assert memory[:count].tobytes() == body[start:], (size_bytes, start)
    length = 200_000
    assert await store.read_into(key, 4096, length, [memory]) == length
    assert memory[:length] == body[4096 : 4096 + length]
    with pytest.raises(ObjectNotFoundError):
        await store.read_into("n/none", 0, 10, [memory])


async def test_a_range_ends_where_the_object_ends(store: ObjectStore) -> None:
    await store.put_if_absent("n/digits", [b"0123456789"])
    expected = {
        (0, 4): b"0123",
        (3, 4): b"3456",
        (3, 0): b"",
        (8, 4): b"89",
        (10, 4): b"",
        (99, 4): b"",
        (0, 2**62): b"0123456789",
    }
    assert {range_: await store.get_range("n/digits", *range_) for range_ in expected} == expected


async def test_a_negative_range_is_refused(store: ObjectStore) -> None:
    await store.put_if_absent("n/digits", [b"0123456789"])
    for start, length in ((-1, 4), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            await store.get_range("n/digits", start, length)


async def test_what_is_not_there_is_not_found(store: ObjectStore) -> None:
    await store.put_if_absent("n/t/0/a", [b"x"])
    for key in ("n/t/0/b", "n/t/1/a", "elsewhere", "n/t/0", "n"):
        with pytest.raises(ObjectNotFoundError) as caught:
            await store.get(key)
        assert caught.value.key == key
        with pytest.raises(ObjectNotFoundError):
            await store.get_range(key, 0, 1)
        with pytest.raises(ObjectNotFoundError):
            await store.size_bytes(key)


async def test_a_listing_is_in_the_order_of_the_keys_bytes(store: ObjectStore) -> None:
    # "-" and "." come before "/", "0" after it; "é" has two bytes, both above ASCII; "ﬀ" and "𐀀" tell the
    # order of UTF-8 bytes from that of UTF-16.
    expected = sorted(
        ("a-b", "a.b", "a/b", "a/b-c", "a/c/d", "a/c/e", "a/c0", "a0", "a/é", "a/ﬀ", "a/𐀀", "B", "b/0/x"),
        key=str.encode,
    )
    shuffled = list(expected)
    random.Random(1).shuffle(shuffled)
    for key in shuffled:
        await store.put_if_absent(key, [b"x"])
    assert await keys(store, "") == expected


async def test_a_prefix_may_end_anywhere(store: ObjectStore) -> None:
    for key in ("n/t/0/seg-1", "n/t/0/seg-2", "n/t/1/seg-1", "n/t/10/seg-1", "n/t-2/0/seg-1", "m/t/0/seg-1"):
        await store.put_if_absent(key, [b"x"])
    expected = {
        "n/t/": ["n/t/0/seg-1", "n/t/0/seg-2", "n/t/1/seg-1", "n/t/10/seg-1"],
        "n/t": ["n/t-2/0/seg-1", "n/t/0/seg-1", "n/t/0/seg-2", "n/t/1/seg-1", "n/t/10/seg-1"],
        "n/t/1": ["n/t/1/seg-1", "n/t/10/seg-1"],
        "n/t/1/": ["n/t/1/seg-1"],
        "n/t/0/seg-2": ["n/t/0/seg-2"],
        "n/t/0/seg-": ["n/t/0/seg-1", "n/t/0/seg-2"],
        "m": ["m/t/0/seg-1"],
        "n/t/0/seg-1/": [],
        "n/nothing": [],
        "nothing/at/all/": [],
        "../": [],
        "..": [],
        "/": [],
        "n//": [],
        "n/t/../": [],
    }
    assert {prefix: await keys(store, prefix) for prefix in expected} == expected


async def test_a_listing_has_size_and_time(store: ObjectStore) -> None:
    before_ms = time.time_ns() // 1_000_000
    await store.put_if_absent("n/a", [b"12345"])
    after_ms = time.time_ns() // 1_000_000
    [info] = [info async for info in store.list("n/")]
    assert (info.key, info.size_bytes) == ("n/a", 5)
    # File systems stamp with a clock that is behind by up to a tick, S3 with whole seconds.
    assert before_ms - 50 - before_ms % 1000 <= info.modified_ms <= after_ms + 50


async def test_a_listing_goes_on_while_its_objects_are_deleted(store: ObjectStore) -> None:
    expected = [f"n/{folder}/{number}" for folder in range(3) for number in range(3)]
    for key in expected:
        await store.put_if_absent(key, [b"x"])
    listed = []
    async for info in store.list("n/"):
        listed.append(info.key)
        await store.delete([info.key])
    assert listed == expected
    assert await keys(store, "") == []


async def test_delete_removes_what_is_there_and_nothing_else(store: ObjectStore) -> None:
    for key in ("n/t/0/a", "n/t/0/b", "n/t/1/a", "n/t-2/0/a"):
        await store.put_if_absent(key, [b"x"])
    await store.delete(["n/t/0/a", "n/t/0/missing", "n/other/0/a", "n/t/1/a", "n/t/1/a"])
    assert await keys(store, "") == ["n/t-2/0/a", "n/t/0/b"]
    with pytest.raises(ObjectNotFoundError):
        await store.get("n/t/0/a")


async def test_delete_of_a_prefix_of_keys_removes_nothing(store: ObjectStore) -> None:
    await store.put_if_absent("n/t/0/a", [b"x"])
    await store.delete(["n/t/0", "n"])
    await store.delete([])
    assert await keys(store, "") == ["n/t/0/a"]


async def test_a_deleted_key_is_free_again(store: ObjectStore) -> None:
    for body in (b"first", b"second"):
        await store.put_if_absent("n/t/0/a", [body])
        assert await store.get("n/t/0/a") == body
        await store.delete(["n/t/0/a"])


async def test_puts_succeed_while_neighbours_are_deleted(store: ObjectStore) -> None:
    """On a folder: the last object's deletion takes the folder away from under the next put."""

    async def churn(worker: int) -> None:
        for number in range(10):
            key = f"n/t/0/{worker}-{number}"
            await store.put_if_absent(key, [key.encode()])
            assert await store.get(key) == key.encode()
            await store.delete([key])

    await asyncio.gather(*(churn(worker) for worker in range(6)))
    assert await keys(store, "") == []


ILLEGAL_KEYS = ("", "/etc/passwd", "../up", "n/../../up", "n//a", "n/a/", "n/./a", "n/\0", "n/" + "a" * 1025)


async def test_illegal_keys_are_refused_by_every_method(store: ObjectStore) -> None:
    for key in ILLEGAL_KEYS:
        for refused in (
            store.put_if_absent(key, [b"x"]),
            store.put_if_absent_streamed(key, chunks_of(b"x"), 1),
            store.put(key, [b"x"]),
            store.get(key),
            store.get_range(key, 0, 1),
            store.size_bytes(key),
            store.delete([key]),
        ):
            with pytest.raises(ValueError, match="object key"):
                await refused
    assert await keys(store, "") == []
