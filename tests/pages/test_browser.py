"""The page in a real browser: no script runs, nothing comes from elsewhere, and it fits a phone.

By day `test_site.py` reads the same pages with a strict parser: a browser takes half a minute to install.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kafscale.ops.health import Health
from kafscale.ops.http import AdminServer
from kafscale.ops.metrics_token import MetricsToken
from kafscale.pages.site import Site
from kafscale.settings.broker import Settings
from tests.pages.shown_broker import PLACES, ShownBroker, shown_broker
from tests.support.chromium import Tab, chromium, chromium_missing

NASTY = (
    '</td><script>document.title="ran"</script><img src=//evil.example/x onerror=document.title="ran">\u202e'
)
PAGES = ("/", "/topics", "/topic?name=orders", "/groups", "/stores", "/requests")

missing = chromium_missing()
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(missing is not None, reason=f"{missing}"),
]

NewTab = Callable[[], Any]


@pytest.fixture
async def new_tab(tmp_path: Path) -> AsyncIterator[NewTab]:
    async with chromium(tmp_path) as new_tab:
        yield new_tab


@pytest.fixture
async def shown() -> AsyncIterator[ShownBroker]:
    """A broker with a topic that a group of a hostile client reads."""
    async with shown_broker() as shown:
        await shown.broker.create_topic("orders", 6)
        await shown.broker.create_topic("a" * 249, 1)
        await shown.produce("orders", 0, 10)
        await shown.join(NASTY, NASTY, {"orders": range(6)})
        await shown.commit("x" * 500, {("orders", 0): 4})
        yield shown


@pytest.fixture
async def origin(shown: ShownBroker) -> AsyncIterator[str]:
    """Where its page is served."""
    server = AdminServer(shown.broker.metrics, shown.broker.process.basics.health, pages=shown.site)
    yield f"http://127.0.0.1:{server.start('127.0.0.1', 0)}"
    server.stop()


async def targets(tab: Tab) -> list[str]:
    found = await tab.evaluate("[...document.querySelectorAll('a')].map(link => link.href)")
    return [str(target) for target in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
async def test_pages_fit_and_have_their_style(new_tab: NewTab, origin: str, width: int, scheme: str) -> None:
    tab: Tab = await new_tab()
    await tab.look_like(width=width, height=800, scheme=scheme, mobile=width < 700)
    for page in PAGES:
        assert await tab.open(origin + page) == 200
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), page
        background = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(245, 246, 248)", "dark": "rgb(16, 20, 27)"}[scheme]
    assert tab.complaints() == []
    assert all(url.startswith((origin, "data:")) for url in tab.requested())
    assert len(await tab.screenshot()) > 10_000


async def test_names_of_clients_are_text(new_tab: NewTab, origin: str) -> None:
    tab: Tab = await new_tab()
    assert await tab.open(f"{origin}/groups") == 200
    group = next(target for target in await targets(tab) if "script" in target)
    assert await tab.open(group) == 200
    heading = await tab.evaluate("document.querySelector('h1').innerText")
    assert "<script>" in heading
    assert "\u202e" not in heading
    assert await tab.evaluate("document.title") != "ran"
    assert await tab.evaluate("document.scripts.length + document.images.length") == 0
    assert tab.complaints() == []
    assert {urlsplit(url).hostname for url in tab.requested()} <= {"127.0.0.1", None}


async def test_scripts_do_not_run_even_if_one_gets_in(new_tab: NewTab, origin: str) -> None:
    tab: Tab = await new_tab()
    await tab.open(origin)
    await tab.evaluate(
        "document.body.appendChild(document.createElement('script')).text = 'document.title = 1'"
    )
    assert await tab.evaluate("document.title") != "1"
    assert any("Content Security Policy" in complaint for complaint in tab.complaints())


async def test_every_link_leads_to_a_page(new_tab: NewTab, origin: str) -> None:
    """Also without scripts."""
    tab: Tab = await new_tab()
    await tab.call("Emulation.setScriptExecutionDisabled", value=True)
    assert await tab.open(origin) == 200
    for target in sorted(set(await targets(tab))):
        assert target.startswith(origin)
        assert await tab.open(target) == 200, target


async def test_searching_is_a_form(new_tab: NewTab, origin: str) -> None:
    tab: Tab = await new_tab()
    await tab.open(f"{origin}/topics")
    seen = len(tab.events)
    await tab.evaluate(
        "document.querySelector('input').value = 'orde'; document.querySelector('button').click()"
    )
    await tab.happened("Page.loadEventFired", since=seen)
    assert await tab.evaluate("location.search") == "?find=orde"
    assert await tab.evaluate("document.querySelectorAll('tbody tr').length") == 1


async def test_a_refreshed_page_loads_again(new_tab: NewTab, origin: str) -> None:
    tab: Tab = await new_tab()
    await tab.open(f"{origin}/?refresh=5")
    seen = len(tab.events)
    await tab.happened("Page.loadEventFired", since=seen)
    assert await tab.evaluate("location.search") == "?refresh=5"


async def test_a_person_logs_in_with_the_token(new_tab: NewTab, shown: ShownBroker, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    token, metrics = MetricsToken(file), shown.broker.metrics
    loop = shown.broker.running.get_loop()
    site = Site(Settings(), metrics, Health(), loop, token=token, places=PLACES)
    site.open(shown.broker.process.shown)
    server = AdminServer(metrics, Health(), token=token, pages=site)
    origin = f"http://127.0.0.1:{server.start('127.0.0.1', 0)}"
    try:
        tab: Tab = await new_tab()
        await tab.log_in_as("anyone", "secret")
        assert await tab.open(origin) == 200
        assert await tab.open(f"{origin}/topics") == 200
    finally:
        server.stop()
