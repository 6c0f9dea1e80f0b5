"""A put of which two requests may be on their way: what the one that is not needed does, and with which bytes."""

import asyncio
import random
from collections.abc import Sequence

from kafscale.errors import StoreUnavailableError
from kafscale.log.writing.conditional_put import HEDGED_BYTES, ConditionalPut
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.hedging import LOSER_SEC, Hedge
from kafscale.protocol.types import Buffer
from tests.support.controlled_store import ControlledStore
from tests.support.watched_loop import in_virtual_time

KEY = "default/journal/1-a/0"


class Puts:
    """A put over a store that a test controls. `sent`: requests so far."""

    def __init__(self, share: float = 1.0, store: ControlledStore | None = None) -> None:
        self.store = store or ControlledStore()
        self.put = ConditionalPut(self.store, StoreRetries(random.Random(7)), Hedge(share))
        self.sent = 0

    def count(self) -> None:
        self.sent += 1


@in_virtual_time
async def test_two_requests_at_once_create_one_object_without_a_look() -> None:
    puts = Puts()
    with puts.store.hold("put_if_absent") as both:
        putting = asyncio.create_task(puts.put.put(KEY, [b"an ", b"entry"], puts.count))
        await asyncio.sleep(0.01)  # virtual
        assert both.waiting == 2
    assert await putting
    await asyncio.sleep(LOSER_SEC)
    assert await puts.store.get(KEY) == b"an entry"
    assert (puts.sent, puts.store.count("put_if_absent"), puts.store.count("get")) == (2, 2, 1)


class LateFirstPut(ControlledStore):
    """Its first put goes on half a second later, with what the memory of its parts holds then."""

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        is_first = not self.count("put_if_absent")
        await self._called("put_if_absent", key)
        if is_first:
            await asyncio.sleep(0.5)
        await self.inner.put_if_absent(key, parts)


@in_virtual_time
async def test_late_request_has_the_bytes_that_memory_held_before() -> None:
    puts, memory = Puts(store=LateFirstPut()), bytearray(b"an entry")
    assert await puts.put.put(KEY, [memory], puts.count)
    memory[:] = b"the next"
    await puts.store.delete([KEY])  # as the collector does, when it is no longer needed
    await asyncio.sleep(LOSER_SEC)
    assert await puts.store.get(KEY) == b"an entry"


@in_virtual_time
async def test_what_another_writer_created_is_looked_at() -> None:
    puts = Puts()
    await puts.store.put(KEY, [b"a fence"])
    assert not await puts.put.put(KEY, [b"an entry"])
    assert await puts.store.get(KEY) == b"a fence"
    await puts.put.close()


@in_virtual_time
async def test_one_failure_of_two_is_no_failure() -> None:
    puts = Puts()
    puts.store.fail("put_if_absent", "*", StoreUnavailableError("away"))
    assert await puts.put.put(KEY, [b"an entry"], puts.count)
    assert puts.sent == 2
    await puts.put.close()


@in_virtual_time
async def test_large_entry_is_sent_once_from_where_it_lies() -> None:
    puts = Puts()
    assert await puts.put.put(KEY, [bytes(HEDGED_BYTES), b"1"], puts.count)
    assert puts.sent == 1


@in_virtual_time
async def test_quick_request_is_the_only_one() -> None:
    puts = Puts(0.1)
    assert await puts.put.put(KEY, [b"an entry"], puts.count)
    assert puts.sent == 1
