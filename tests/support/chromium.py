"""A headless Chromium, driven over its DevTools protocol: what a page looks like, requests and complains about.

https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.installing import CannotInstallError, ensure_command
from tests.support.waiting import PATIENCE_SEC, wait_until_async

COMMAND: Final = "chromium"
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    # Nothing of its own over the network.
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-domain-reliability",
)

Event = Mapping[str, Any]


def chromium_missing() -> str | None:
    """The reason why there is no browser to test with, or None."""
    if shutil.which(COMMAND):
        return None
    return (
        f"no {COMMAND} on the PATH (Debian package {COMMAND}; `python -m tests.support.chromium` installs it)"
    )


class Tab:
    """One tab. `events`: all that the browser has reported of it."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self.events: list[Event] = []
        self._connection = connection
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._session: str | None = None
        self._login: tuple[str, str] | None = None
        self._reading = asyncio.create_task(self._read(), name="chromium")
        self._answering: set[asyncio.Task[Any]] = set()

    async def begin(self) -> None:
        """Open the tab and have its events reported."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        attached = await self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{domain}.enable")

    async def close(self) -> None:
        """End the reading of events."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def call(self, method: str, **parameters: object) -> Any:
        """A command of the protocol, and its result. Raises AssertionError if the browser refuses it."""
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        session = {} if self._session is None else {"sessionId": self._session}
        await self._connection.send_json({"id": number, "method": method, "params": parameters, **session})
        async with asyncio.timeout(PATIENCE_SEC):
            reply = await answer
        assert "error" not in reply, f"{method}: {reply['error']}"
        return reply["result"]

    async def _read(self) -> None:
        async for message in self._connection:
            event = json.loads(message.data)
            if "id" in event:
                self._answers.pop(event["id"]).set_result(event)
                continue
            self.events.append(event)
            if event["method"] in ("Fetch.requestPaused", "Fetch.authRequired"):
                task = asyncio.create_task(self._go_on(event), name="chromium request")
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _go_on(self, event: Event) -> None:
        request = event["params"]["requestId"]
        if event["method"] == "Fetch.requestPaused":
            await self.call("Fetch.continueRequest", requestId=request)
        elif self._login is None:
            await self.call(
                "Fetch.continueWithAuth", requestId=request, authChallengeResponse={"response": "CancelAuth"}
            )
        else:
            name, password = self._login
            answer = {"response": "ProvideCredentials", "username": name, "password": password}
            await self.call("Fetch.continueWithAuth", requestId=request, authChallengeResponse=answer)

    async def log_in_as(self, name: str, password: str) -> None:
        """Answer the browser's question for a name and a password as a person would."""
        self._login = (name, password)
        await self.call("Fetch.enable", handleAuthRequests=True)

    async def open(self, url: str) -> int:
        """Go to a page, wait until it is loaded, and return the status of its answer."""
        seen = len(self.events)
        reached = await self.call("Page.navigate", url=url)
        assert "errorText" not in reached, f"{url}: {reached['errorText']}"
        await self.happened("Page.loadEventFired", since=seen)
        answers = (
            event["params"] for event in self.events[seen:] if event["method"] == "Network.responseReceived"
        )
        return next(int(one["response"]["status"]) for one in answers if one["type"] == "Document")

    async def happened(self, method: str, since: int = 0) -> None:
        """Wait for an event."""

        async def is_there() -> bool:
            return any(event["method"] == method for event in self.events[since:])

        await wait_until_async(is_there, method)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page. Works where the page's own scripts do not run."""
        done = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, f"{expression}: {done['exceptionDetails']}"
        return done["result"].get("value")

    async def look_like(self, *, width: int, height: int, scheme: str, mobile: bool = False) -> None:
        """A window of that size in CSS pixels; `scheme`: `light` or `dark`."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme_wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=scheme_wanted)

    async def screenshot(self, *, whole: bool = True) -> bytes:
        """A PNG of the window, or of the whole page."""
        return base64.b64decode(
            (await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole))["data"]
        )

    def requested(self) -> list[str]:
        """The addresses that the tab has requested."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """The lines that the browser has written to its console: blocked styles and scripts, failed requests."""
        logged = [event["params"]["entry"] for event in self.events if event["method"] == "Log.entryAdded"]
        thrown = [event for event in self.events if event["method"] == "Runtime.exceptionThrown"]
        return [f"{entry['source']}: {entry['text']}" for entry in logged] + [str(event) for event in thrown]


@contextlib.asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Callable[[], Any]]:
    """A browser with its profile in `folder`; what it gives opens a tab."""
    profile = folder / "chromium"
    port_file = profile / "DevToolsActivePort"
    process = _begin(folder, profile)

    async def listens() -> bool:
        assert process.poll() is None, (folder / "chromium.log").read_text(errors="replace")[-2000:]
        return port_file.exists() and port_file.read_text().count("\n") > 0

    async with contextlib.AsyncExitStack() as stack:
        stack.callback(_end, process)
        await wait_until_async(listens, "chromium listens")
        port, path = port_file.read_text().splitlines()[:2]
        session = await stack.enter_async_context(aiohttp.ClientSession())
        url = f"ws://127.0.0.1:{port}{path}"

        async def new_tab() -> Tab:
            connection = await stack.enter_async_context(session.ws_connect(url, max_msg_size=0))
            tab = Tab(connection)
            stack.push_async_callback(tab.close)
            await tab.begin()
            return tab

        yield new_tab


def _begin(folder: Path, profile: Path) -> subprocess.Popen[bytes]:
    with (folder / "chromium.log").open("wb") as log:
        return subprocess.Popen(
            [COMMAND, *_FLAGS, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    """Install the browser; tests say so where it cannot be had."""
    try:
        print(f"chromium: {ensure_command(COMMAND, package=COMMAND)}", flush=True)
    except CannotInstallError as error:
        print(f"chromium: not installed: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
