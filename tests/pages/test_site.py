"""The page of a broker that serves: what stands there, where links lead, and what it answers when it cannot say."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from kafscale.formats.share_state_record import (
    ShareStateRecord,
    StoredShareRun,
    StoredShareState,
    encode_share_state,
)
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import Put
from kafscale.ops.admin_requests import AdminAnswer, AdminRequest
from kafscale.ops.health import Health
from kafscale.ops.metrics import Metrics
from kafscale.pages.figures import FRESH_SEC
from kafscale.pages.frame import NAVIGATION
from kafscale.pages.site import Site
from kafscale.settings.broker import Settings, load_settings
from tests.groups.consumer.member import ConsumerMember
from tests.groups.share.member import SharingMember
from tests.pages.html import parsed
from tests.pages.shown_broker import PLACES, ShownBroker, shown_broker
from tests.support.in_process_broker import until

NASTY = '</td><script>alert("1")</script>&amp;\u202e\n'


@pytest.fixture
async def shown() -> AsyncIterator[ShownBroker]:
    """A broker with a topic of 3 partitions, a group of one member that has read half, and one without members."""
    async with shown_broker() as shown:
        await shown.broker.create_topic("orders", 3)
        await shown.broker.create_topic("idle", 1)
        await shown.produce("orders", 0, 10)
        await shown.produce("orders", 2, 4)
        await shown.join(NASTY, "<img src=x onerror=alert(2)>", {"orders": [0, 1, 2]})
        await shown.commit("by hand", {("orders", 0): 4, ("orders", 2): 4})
        yield shown


def site_of(
    loop: asyncio.AbstractEventLoop, settings: Settings | None = None, health: Health | None = None
) -> Site:
    return Site(
        settings or Settings(),
        Metrics(),
        health or Health(),
        loop,
        token=None,
        places=PLACES,
        deadline_sec=0.05,
    )


def answer_of(site: Site, path: str = "/", **request: str) -> AdminAnswer:
    answer = site.answer(AdminRequest(path=path, **request))
    assert answer is not None
    return answer


async def test_overview_shows_cluster_topics_and_groups(shown: ShownBroker) -> None:
    document = await shown.page("/")
    view = shown.broker.process.serving.view
    assert view.cluster_id in document.text
    assert f"PLAINTEXT://127.0.0.1:{shown.broker.port}" in document.text
    assert "memory <records>" in document.text
    assert {"/topic?name=orders", "/topic?name=idle", "/group?name=by%20hand"} <= set(document.links)
    assert "alive, no warnings" in document.text


async def test_health_is_that_of_the_health_pages(shown: ShownBroker) -> None:
    health = shown.broker.process.basics.health
    health.add_warning("object_store", lambda: "UNAVAILABLE for <writes>")
    health.add_check("broken", lambda: "is broken")
    text = (await shown.page("/")).text
    assert "object_store: UNAVAILABLE for <writes>" in text
    assert "broken: is broken" in text
    assert "not ready" in text


async def test_rates_are_of_the_time_between_two_looks(shown: ShownBroker) -> None:
    await shown.page("/topics")
    shown.clock.now_sec += 5
    counters = shown.broker.metrics.topic("orders")
    counters.bytes_in += 6 * 2048
    text = (await shown.page("/topics")).text
    assert "2.0 KiB/s" in text
    assert "rates of the last 6 s" in text


async def test_topic_has_offsets_sizes_configs_and_groups(shown: ShownBroker) -> None:
    document = await shown.page("/topic?name=orders")
    partition = shown.broker.partition("orders", 0)
    assert partition.record.log_end_offset == 10
    assert "broker 0 (here)" in document.text
    assert "by hand" in document.text
    topic_id = shown.broker.process.serving.view.topic("orders")
    assert topic_id is not None
    assert str(topic_id.topic_id) in document.text


async def test_group_has_members_and_lag_by_partition(shown: ShownBroker) -> None:
    by_hand = (await shown.page("/group?name=by%20hand")).text
    assert "Empty" in by_hand
    row = "".join(("orders", "0", "4", "10", "6"))
    assert row in by_hand.replace("share of the largest lag", "")
    links = (await shown.page("/groups")).links
    nasty = next(target for target in links if "script" in target)
    page = await shown.page(nasty)
    assert "<img src=x onerror=alert(2)>" in page.text
    assert "orders: 0-2" in page.text
    assert "</td><script>alert" in page.text


async def test_consumer_group_has_its_epoch_and_the_way_of_its_members(shown: ShownBroker) -> None:
    coordinator = shown.broker.process.serving.groups.coordinator
    first, second = (
        ConsumerMember(coordinator, "<of consumers>", ("orders",), instance_id=name)
        for name in ("one", "<two>")
    )
    await first.heartbeat()
    await second.heartbeat()
    # It is to give up a part of what it has.
    await first.heartbeat()
    assert "consumer" in (await shown.page("/groups")).text
    page = (await shown.page("/group?name=%3Cof%20consumers%3E")).text
    assert "Reconciling" in page
    assert "epoch 2, consumer protocol" in page
    assert "epoch 1, is to give up 1" in page
    assert "epoch 2, waits for partitions of others" in page
    assert "orders: 0" in page
    assert "uniform" in page


async def test_every_link_leads_to_a_page(shown: ShownBroker) -> None:
    """From the overview, also those that refresh; every page is well-formed and without scripts."""
    seen, waiting = set[str](), {"/"}
    while waiting:
        target = waiting.pop()
        seen.add(target)
        waiting |= set((await shown.page(target)).links) - seen - {"/metrics", "/healthz", "/readyz"}
    assert {path for path, _ in NAVIGATION} <= seen
    assert len(seen) > 20


async def test_lists_find_and_sort(shown: ShownBroker) -> None:
    found = await shown.page("/topics?find=rder")
    assert "/topic?name=idle" not in found.links
    by_size = [target for target in (await shown.page("/topics?sort=size")).links if "/topic?" in target]
    assert by_size == ["/topic?name=orders", "/topic?name=idle"]
    by_name = [target for target in (await shown.page("/topics?sort=unknown")).links if "/topic?" in target]
    assert by_name == ["/topic?name=idle", "/topic?name=orders"]
    by_lag = [target for target in (await shown.page("/groups?sort=lag")).links if "/group?" in target]
    assert by_lag[0] == "/group?name=by%20hand"
    assert "There is no such topic." in (await shown.page("/topics?find=%3Cb%3E")).text


@pytest.mark.parametrize("target", ["/topic?name=none", "/topic", "/group?name=%3Cb%3E", "/group"])
async def test_what_is_not_there_is_named(shown: ShownBroker, target: str) -> None:
    answer = await shown.answer(target)
    assert answer.status == 404
    assert "There is no" in parsed(answer.body).text


async def test_group_of_another_coordinator_says_where(shown: ShownBroker) -> None:
    shown.broker.process.serving.groups.refuse_requests()
    answer = await shown.page("/group?name=by%20hand")
    assert "Broker 0 at PLAINTEXT://127.0.0.1:" in answer.text


async def test_lag_that_is_not_followed_is_said_to_be() -> None:
    async with shown_broker(consumer_lag_max_series=1) as shown:
        await shown.broker.create_topic("orders", 2)
        await shown.commit("billing", {("orders", 0): 0, ("orders", 1): 0})
        assert "raise KAFSCALE_CONSUMER_LAG_MAX_SERIES" in (await shown.page("/groups")).text
    async with shown_broker(consumer_lag_max_series=0) as shown:
        await shown.broker.create_topic("orders", 1)
        for target in ("/", "/topics", "/topic?name=orders", "/groups", "/stores"):
            await shown.page(target)
        assert "KAFSCALE_CONSUMER_LAG_MAX_SERIES=0" in (await shown.page("/groups")).text


async def test_answers_forbid_scripts_frames_and_storing(shown: ShownBroker) -> None:
    answer = await shown.answer("/")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Cache-Control"] == "no-store"


async def test_parameters_that_cannot_be_read_are_refused(shown: ShownBroker) -> None:
    answer = await shown.answer("/topics?page=last")
    assert (answer.status, b"page is a number" in answer.body) == (400, True)


async def test_name_of_a_web_site_is_misdirected(shown: ShownBroker) -> None:
    answer = await shown.answer("/", host="evil.example:9093")
    assert (answer.status, answer.headers["Cache-Control"]) == (421, "no-store")
    assert b"orders" not in answer.body


async def test_other_paths_are_left_to_the_server(shown: ShownBroker) -> None:
    assert shown.site.answer(AdminRequest(path="/favicon.ico")) is None


def test_names_stay_closed_where_access_rules_apply() -> None:
    loop = asyncio.new_event_loop()
    try:
        answer = answer_of(site_of(loop, load_settings({"KAFSCALE_AUTHORIZER": "acl"})))
    finally:
        loop.close()
    assert answer.status == 403
    assert b"KAFSCALE_METRICS_TOKEN_FILE" in answer.body


def test_a_broker_that_starts_says_at_which_step() -> None:
    health, loop = Health(), asyncio.new_event_loop()
    health.set_starting(lambda: "reading <the view>")
    try:
        answer = answer_of(site_of(loop, health=health))
    finally:
        loop.close()
    assert answer.status == 503
    assert "reading <the view>" in parsed(answer.body).text


async def test_a_hung_loop_gives_a_page_that_says_so(shown: ShownBroker) -> None:
    """The loop that the page reads from hangs in another thread, until the test has its answer."""
    hung, release = asyncio.new_event_loop(), threading.Event()
    thread = threading.Thread(target=hung.run_until_complete, args=(_block(release),))
    thread.start()
    site = site_of(hung)
    site.open(shown.broker.process.shown)
    try:
        answer = await asyncio.to_thread(answer_of, site)
    finally:
        release.set()
        thread.join()
        hung.close()
    assert answer.status == 503
    assert "event_loop: the event loop has not answered for 0.05 s" in parsed(answer.body).text


async def _block(release: threading.Event) -> None:
    release.wait()


async def test_share_group_has_members_starts_and_what_is_not_finished(shown: ShownBroker) -> None:
    serving = shown.broker.process.serving
    member = SharingMember(serving.groups.coordinator, "<of shares>", ("orders",))
    await member.heartbeat()
    (topic_id,) = member.has
    place = SharePartitionId("<of shares>", topic_id, 0)
    runs = (
        StoredShareRun(4, 4, StoredShareState.AVAILABLE, 1),
        StoredShareRun(5, 5, StoredShareState.ACKNOWLEDGED, 1),
        StoredShareRun(6, 6, StoredShareState.ARCHIVED, 5),
    )
    state = ShareStateRecord(state_epoch=0, leader_epoch=0, start_offset=4, runs=runs)
    await shown.broker.metadata.transact([], [Put(keys.share_state(place), encode_share_state(state))])
    lag = serving.groups.share_lag
    assert lag is not None
    await until(lambda: len(serving.sharing.starts), "the broker has seen the starts")
    await lag.refresh()
    shown.clock.now_sec += FRESH_SEC
    assert "share" in (await shown.page("/groups")).text
    page = (await shown.page("/group?name=%3Cof%20shares%3E")).text
    assert "epoch 1, share protocol" in page
    # Topic, partition, start offset, finished, archived, log end, lag.
    assert "".join(("orders", "0", "4", "2", "1", "10", "4")) in page.replace("share of the largest lag", "")
