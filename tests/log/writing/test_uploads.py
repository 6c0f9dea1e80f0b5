"""Uploads of a sealed segment and its index, and the objects that are already under their keys."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from kafscale.errors import StoreIndeterminateError, StoreRefusedError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.index import LEGACY_VERSION
from kafscale.formats.partition_record import PartitionRecord
from kafscale.log.partition import PartitionId
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_state import ProducerStates
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing.conditional_put import HEDGED_BYTES
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.log.writing.uploads import Uploader
from kafscale.memory.slab import SlabPool
from kafscale.objects.hedging import FIRST_DELAY_SEC, Hedge
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from kafscale.protocol.types import Buffer
from tests.sim.cluster import RULES, Outcome
from tests.support.controlled_store import ControlledStore
from tests.support.watched_loop import in_virtual_time

PARTITION = PartitionId("orders", 3)
BASE_OFFSET = 100
SEGMENT = object_keys.segment_key("default", "orders", 3, BASE_OFFSET)
INDEX = object_keys.index_key("default", "orders", 3, BASE_OFFSET)
A_LONG_TIME_SEC = 3600.0


class DefectError(Exception):
    """A failure that no second attempt would change."""


class ForgetfulStore(ControlledStore):
    """Loses the answer to the first put of a segment, which was carried out."""

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        await super().put_if_absent(key, parts)
        if self.count("put_if_absent", SEGMENT) == 1 and key == SEGMENT:
            raise StoreIndeterminateError("the answer was lost")


class SpoiltStore(ControlledStore):
    """Fails a put that is cancelled, as a library may that does not distinguish the two."""

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        try:
            await super().put_if_absent(key, parts)
        except asyncio.CancelledError as cancellation:
            raise DefectError("cancelled") from cancellation


def uploader(store: ControlledStore, hedge: Hedge | None = None) -> Uploader:
    return Uploader(store, "default", StoreRetries(random.Random(1)), hedge)


def sealed_segment(value_bytes: int = 100) -> SealedSegment:
    log = PartitionLog(PartitionRecord(leader_epoch=5, log_end_offset=BASE_OFFSET), ProducerStates())
    batch = memoryview(encode_batch([Record(0, 1, None, bytes(value_bytes))]))
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    log.append(batch, read_header(batch, 0), RULES, 0, SlabPool(0), Outcome(told))
    return log.seal(*log.start_seal(), 0, LEGACY_VERSION)


def content(sealed: SealedSegment) -> bytes:
    return b"".join(sealed.parts)


# --- what lies there


@in_virtual_time
async def test_a_segment_and_its_index_are_created() -> None:
    store, sealed = ControlledStore(), sealed_segment()
    upload = await uploader(store).upload(PARTITION, sealed)
    assert (upload.is_there, upload.sealed) == (True, sealed)
    await upload.index_is_there()
    assert await store.inner.get(SEGMENT) == content(sealed)
    assert await store.inner.get(INDEX) == sealed.index
    assert store.count("put") == store.count("get") == 0


@in_virtual_time
async def test_these_very_bytes_under_the_key_are_ours() -> None:
    store, sealed = ControlledStore(), sealed_segment()
    await store.inner.put_if_absent(SEGMENT, [content(sealed)])
    await store.inner.put_if_absent(INDEX, [sealed.index])
    upload = await uploader(store).upload(PARTITION, sealed)
    assert upload.is_there
    await upload.index_is_there()
    assert store.count("put") == 0


@in_virtual_time
async def test_an_upload_whose_answer_was_lost_is_ours() -> None:
    store, sealed = ForgetfulStore(), sealed_segment()
    upload = await uploader(store).upload(PARTITION, sealed)
    assert upload.is_there
    assert store.count("put_if_absent", SEGMENT) == 2
    await upload.index_is_there()


@pytest.mark.parametrize("leftover", [b"", b"something else"])
@in_virtual_time
async def test_other_bytes_under_the_key_stay_and_are_reported(leftover: bytes) -> None:
    store, sealed = ControlledStore(), sealed_segment()
    await store.inner.put_if_absent(SEGMENT, [leftover])
    upload = await uploader(store).upload(PARTITION, sealed)
    assert not upload.is_there
    await upload.index_is_there()
    assert await store.inner.get(SEGMENT) == leftover


@in_virtual_time
async def test_an_orphan_deleted_while_it_is_read_is_no_obstacle() -> None:
    store, sealed = ControlledStore(), sealed_segment()
    await store.inner.put_if_absent(SEGMENT, [b"a leftover"])
    with store.hold("get", SEGMENT) as hold:
        task = asyncio.create_task(uploader(store).upload(PARTITION, sealed))
        await hold.reached()
        await store.inner.delete([SEGMENT])
    upload = await task
    assert upload.is_there
    assert await store.inner.get(SEGMENT) == content(sealed)
    await upload.index_is_there()


# --- the index


@in_virtual_time
async def test_an_index_is_not_awaited_by_its_segment() -> None:
    store, sealed = ControlledStore(), sealed_segment()
    with store.hold("put_if_absent", INDEX) as hold:
        upload = await uploader(store).upload(PARTITION, sealed)
        assert upload.is_there
        waiting = asyncio.create_task(upload.index_is_there())
        await hold.reached()
        await asyncio.sleep(A_LONG_TIME_SEC)
        assert not waiting.done()
    await waiting
    assert await store.inner.get(INDEX) == sealed.index


@in_virtual_time
async def test_anothers_index_below_a_segment_of_ours_is_replaced() -> None:
    store, sealed = ControlledStore(), sealed_segment()
    await store.inner.put_if_absent(INDEX, [b"another's"])
    with store.hold("put_if_absent", SEGMENT) as hold:
        task = asyncio.create_task(uploader(store).upload(PARTITION, sealed))
        await hold.reached()
        await asyncio.sleep(A_LONG_TIME_SEC)
        assert await store.inner.get(INDEX) == b"another's", "it is not known yet whose the segment is"
    upload = await task
    await upload.index_is_there()
    assert await store.inner.get(INDEX) == sealed.index


@in_virtual_time
async def test_anothers_index_below_anothers_segment_stays() -> None:
    store = ControlledStore()
    await store.inner.put_if_absent(SEGMENT, [b"another's"])
    await store.inner.put_if_absent(INDEX, [b"another's, too"])
    upload = await uploader(store).upload(PARTITION, sealed_segment())
    await upload.index_is_there()
    assert not upload.is_there
    assert store.count("put") == 0
    assert await store.inner.get(INDEX) == b"another's, too"


@in_virtual_time
async def test_a_replacement_is_tried_until_the_store_takes_it() -> None:
    store, sealed = ControlledStore(), sealed_segment()
    await store.inner.put_if_absent(INDEX, [b"another's"])
    store.fail("put", INDEX, StoreUnavailableError("away"), StoreIndeterminateError("no answer"))
    upload = await uploader(store).upload(PARTITION, sealed)
    await upload.index_is_there()
    assert await store.inner.get(INDEX) == sealed.index


@pytest.mark.parametrize("method", ["put_if_absent", "put"])
@in_virtual_time
async def test_an_index_that_is_given_up_is_not_brought_any_more(method: str) -> None:
    store = ControlledStore()
    before = [b"another's"] if method == "put" else []
    for index in before:
        await store.inner.put_if_absent(INDEX, [index])
    with store.hold(method, INDEX) as hold:
        upload = await uploader(store).upload(PARTITION, sealed_segment())
        await hold.reached()
        upload.cancel_index()
        with pytest.raises(asyncio.CancelledError):
            await upload.index_is_there()
        assert hold.waiting == 0
    assert [await store.inner.get(key) for key in await store.keys("*.index")] == before


@in_virtual_time
async def test_a_wait_for_a_failed_index_raises_its_error() -> None:
    store = ControlledStore()
    store.fail("put_if_absent", INDEX, DefectError("index"))
    upload = await uploader(store).upload(PARTITION, sealed_segment())
    assert upload.is_there
    with pytest.raises(DefectError, match="index"):
        await upload.index_is_there()


@in_virtual_time
async def test_a_failed_index_of_a_given_up_upload_is_not_reported() -> None:
    store = ControlledStore()
    store.fail("put_if_absent", INDEX, DefectError("index"))
    with store.hold("put_if_absent", SEGMENT) as hold:
        task = asyncio.create_task(uploader(store).upload(PARTITION, sealed_segment()))
        await hold.reached()
        await asyncio.sleep(A_LONG_TIME_SEC)
    (await task).cancel_index()


@in_virtual_time
async def test_an_index_that_fails_as_it_is_given_up_is_not_reported() -> None:
    store = SpoiltStore()
    with store.hold("put_if_absent", INDEX) as hold:
        upload = await uploader(store).upload(PARTITION, sealed_segment())
        await hold.reached()
        upload.cancel_index()
        await asyncio.sleep(1)
        assert hold.waiting == 0


# --- what the store refuses


@in_virtual_time
async def test_a_refused_upload_is_retried_until_the_store_accepts_it() -> None:
    """An operator who corrects its settings finds the broker where it was."""
    store, sealed = ControlledStore(), sealed_segment()
    refusals = [StoreRefusedError("no such right")] * 5
    store.fail("put_if_absent", SEGMENT, *refusals)
    store.fail("put_if_absent", INDEX, *refusals)
    upload = await uploader(store).upload(PARTITION, sealed)
    assert upload.is_there
    await upload.index_is_there()
    assert store.count("put_if_absent", SEGMENT) == store.count("put_if_absent", INDEX) == 6
    assert await store.inner.get(INDEX) == sealed.index


@pytest.mark.parametrize("index_method", ["put_if_absent", "put"])
@in_virtual_time
async def test_a_failed_segment_cancels_its_index(index_method: str) -> None:
    """Also where the index waits to hear whether the segment is ours."""
    store = ControlledStore()
    if index_method == "put":
        await store.inner.put_if_absent(INDEX, [b"another's"])
    store.fail("put_if_absent", SEGMENT, DefectError("segment"))
    with store.hold("put_if_absent", SEGMENT) as segment, store.hold(index_method, INDEX) as index:
        task = asyncio.create_task(uploader(store).upload(PARTITION, sealed_segment()))
        await segment.reached()
        await asyncio.sleep(A_LONG_TIME_SEC)
        segment.release()
        with pytest.raises(DefectError, match="segment"):
            await task
        assert index.waiting == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert store.count("put") == 0


@in_virtual_time
async def test_if_segment_and_index_fail_the_segments_error_is_raised() -> None:
    store = ControlledStore()
    store.fail("put_if_absent", INDEX, DefectError("index"))
    store.fail("put_if_absent", SEGMENT, DefectError("segment"))
    with store.hold("put_if_absent", SEGMENT) as hold:
        task = asyncio.create_task(uploader(store).upload(PARTITION, sealed_segment()))
        await hold.reached()
        await asyncio.sleep(A_LONG_TIME_SEC)
        hold.release()
        with pytest.raises(DefectError, match="segment"):
            await task


@in_virtual_time
async def test_an_upload_that_is_ended_leaves_nothing_behind() -> None:
    store = ControlledStore()
    with store.hold("put_if_absent") as hold:
        task = asyncio.create_task(uploader(store, Hedge(0.1)).upload(PARTITION, sealed_segment()))
        await asyncio.sleep(A_LONG_TIME_SEC)
        assert hold.waiting == 4
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert hold.waiting == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await store.keys() == []


@in_virtual_time
async def test_close_cancels_the_indexes_in_flight() -> None:
    store = ControlledStore()
    with store.hold("put_if_absent", INDEX) as hold:
        closed = uploader(store)
        await closed.upload(PARTITION, sealed_segment())
        await hold.reached()
        await closed.close()
        assert hold.waiting == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


# --- a second request beside a slow one


@in_virtual_time
async def test_a_slow_put_gets_a_second_one_beside_it() -> None:
    store, sealed = ControlledStore(), sealed_segment()
    with store.hold("put_if_absent") as hold:
        task = asyncio.create_task(uploader(store, Hedge(0.1)).upload(PARTITION, sealed))
        await asyncio.sleep(FIRST_DELAY_SEC * 0.9)
        assert hold.waiting == 2
        await asyncio.sleep(FIRST_DELAY_SEC * 0.2)
        assert hold.waiting == 4
    upload = await task
    assert upload.is_there, "the one that found the other's object has seen that it is ours"
    await upload.index_is_there()
    assert await store.inner.get(SEGMENT) == content(sealed)


@in_virtual_time
async def test_a_large_segment_is_not_sent_twice() -> None:
    """It is slow because it is large. Its index is not."""
    store = ControlledStore()
    hedge = Hedge(0.1)
    with store.hold("put_if_absent") as hold:
        for size_bytes, requests in ((HEDGED_BYTES // 2, 2), (HEDGED_BYTES, 1)):
            task = asyncio.create_task(
                uploader(store, hedge).upload(PARTITION, sealed_segment(value_bytes=size_bytes))
            )
            before = store.count("put_if_absent", SEGMENT)
            await asyncio.sleep(A_LONG_TIME_SEC)
            assert store.count("put_if_absent", SEGMENT) - before == requests
            task.cancel()
            await asyncio.wait([task])
        assert hold.waiting == 0


@in_virtual_time
async def test_without_a_hedge_nothing_is_sent_twice() -> None:
    store = ControlledStore()
    with store.hold("put_if_absent") as hold:
        task = asyncio.create_task(uploader(store).upload(PARTITION, sealed_segment()))
        await asyncio.sleep(A_LONG_TIME_SEC)
        assert hold.waiting == 2
    await (await task).index_is_there()
