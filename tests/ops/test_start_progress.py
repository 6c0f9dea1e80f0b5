"""The step that a start waits for, as `/readyz` and the log show it."""

import asyncio
import logging

import pytest

from kafscale.ops.start_progress import FIRST_LINE_SEC, LONGEST_PAUSE_SEC, StartProgress
from tests.support.virtual_time import run_virtually


def steady_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(record)["waiting_for"] for record in caplog.records]


def test_reason_names_the_step_its_time_and_how_far_it_is() -> None:
    async def play() -> None:
        progress = StartProgress(steady_ms)
        await asyncio.sleep(1)
        assert progress.reason() == "the broker is starting, for 1.0 s"
        led = 0
        with progress.step("claiming partitions", lambda: f"{led} led"):
            await asyncio.sleep(2.5)
            led = 7
            assert (
                progress.reason()
                == "the broker is starting, for 3.5 s: claiming partitions for 2.5 s (7 led)"
            )
        assert progress.reason() == "the broker is starting, for 3.5 s"
        with pytest.raises(ValueError, match="a defect"), progress.step("registering"):
            raise ValueError("a defect")
        assert progress.summary() == "3.5 s: claiming partitions 2.5 s"

    run_virtually(play())


def test_slow_step_is_logged_again_and_again_with_longer_pauses(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        progress = StartProgress(steady_ms)
        logging_steps = asyncio.create_task(progress.log_slow_steps())
        for _ in range(20):
            with progress.step("a quick one"):
                await asyncio.sleep(FIRST_LINE_SEC / 2)
        assert not caplog.records
        with progress.step("registering", lambda: "broker id 3 is registered"):
            await asyncio.sleep(1000)
        with progress.step("claiming partitions"):
            await asyncio.sleep(2 * FIRST_LINE_SEC)
        logging_steps.cancel()
        await asyncio.gather(logging_steps, return_exceptions=True)

    with caplog.at_level(logging.WARNING):
        run_virtually(play())
    told = lines(caplog)
    first, second = told[:2]
    assert first == "registering for 5.0 s (broker id 3 is registered)"
    assert second == "registering for 10.0 s (broker id 3 is registered)"
    of_first = [line for line in told if line.startswith("registering")]
    assert len(of_first) < 1000 / LONGEST_PAUSE_SEC + 6
    assert float(of_first[-1].split()[2]) > 1000 - LONGEST_PAUSE_SEC - FIRST_LINE_SEC
    assert 5.0 <= float(next(line for line in told if line.startswith("claiming")).split()[3]) <= 10.0
