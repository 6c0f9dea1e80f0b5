"""A hung event loop is noticed from outside."""

import asyncio
import threading

from kafscale.ops.health import loop_probe


async def test_a_running_loop_answers() -> None:
    probe = loop_probe(asyncio.get_running_loop(), timeout_sec=30)
    assert await asyncio.to_thread(probe) is None


async def test_a_hung_loop_is_reported() -> None:
    probe = loop_probe(asyncio.get_running_loop(), timeout_sec=0.05)
    reasons: list[str | None] = []
    thread = threading.Thread(target=lambda: reasons.append(probe()))
    thread.start()
    thread.join()  # blocks the loop, which is what the probe is to find
    assert reasons == ["the event loop has not answered for 0.05 s"]


def test_a_closed_loop_is_reported() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert loop_probe(loop)() == "the event loop is closed"
