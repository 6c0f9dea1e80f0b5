"""10,000 partitions and 1,000 groups: a page has as many rows as ever, and costs the event loop little."""

import time
from collections.abc import AsyncIterator

import pytest

from kafscale.pages import collector
from kafscale.pages.parts import ROWS_PER_PAGE
from kafscale.pages.snapshots import GroupSnapshot
from tests.pages.shown_broker import ShownBroker, shown_broker

PARTITIONS, GROUPS = 10_000, 1_000
LONGEST_PAGE_BYTES = 150_000
SERIES = 20_000


@pytest.fixture
async def shown() -> AsyncIterator[ShownBroker]:
    """One topic with all partitions, as many groups, each with offsets in 10 of them."""
    async with shown_broker(consumer_lag_max_series=SERIES, offsets_commit_timeout_ms=60_000) as shown:
        await shown.broker.create_topic("wide", PARTITIONS)
        for number in range(GROUPS):
            offsets = {("wide", (number * 10 + index) % PARTITIONS): 0 for index in range(10)}
            await shown.commit(f"group-{number:04}", offsets)
        yield shown


async def test_pages_have_bounded_rows_and_bytes(shown: ShownBroker) -> None:
    sizes: dict[str, int] = {}
    for target in (
        "/",
        "/topics",
        "/topic?name=wide",
        "/topic?name=wide&page=100",
        "/groups",
        "/groups?sort=lag&page=10",
        "/group?name=group-0001",
        "/stores",
        "/requests",
    ):
        began, busy = time.perf_counter(), time.thread_time()
        answer = await shown.answer(target)
        assert answer.status == 200, target
        sizes[target] = len(answer.body)
        took_ms, loop_ms = (time.perf_counter() - began) * 1000, (time.thread_time() - busy) * 1000
        print(
            f"{target}: {len(answer.body)} bytes, {took_ms:.0f} ms, {loop_ms:.1f} ms of them on the event loop"
        )
    assert max(sizes.values()) < LONGEST_PAGE_BYTES, sizes
    parts = shown.broker.process.shown()
    assert parts is not None
    state = collector.topic_state(parts, "wide", 50)
    assert state is not None
    assert [one.index for one in state.partitions] == list(range(4900, 5000))
    last = collector.topic_state(parts, "wide", 10**6)
    assert last is not None
    assert len(last.partitions) == ROWS_PER_PAGE
    group = collector.group_state(parts, "group-0001", 1)
    assert isinstance(group, GroupSnapshot)
    assert group.members == ()
