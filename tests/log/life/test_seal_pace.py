"""The pace of sealing: slow beside clients, fast enough in the end, and changed while it is used."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kafscale.log.life.pace import LEAST_BYTES_PER_SEC, SPREAD_SEC, Pace, seal_bytes_per_sec
from tests.support.virtual_time import run_virtually


def test_little_debt_has_the_least_pace() -> None:
    assert seal_bytes_per_sec(0) == seal_bytes_per_sec(1024) == LEAST_BYTES_PER_SEC


@given(st.integers(0, 1 << 50))
def test_a_debt_is_paid_in_a_minute(debt_bytes: int) -> None:
    assert debt_bytes / seal_bytes_per_sec(debt_bytes) <= SPREAD_SEC * 1.001


@given(st.integers(1, 1 << 32))
def test_debt_does_not_grow_without_limit(written_bytes_per_sec: int) -> None:
    """However fast a broker is written to, there is a debt at which as much is sealed."""
    debt_bytes = 0.0
    for _ in range(20 * int(SPREAD_SEC)):
        debt_bytes = max(0.0, debt_bytes + written_bytes_per_sec - seal_bytes_per_sec(int(debt_bytes)))
    assert debt_bytes <= written_bytes_per_sec * SPREAD_SEC


def test_changed_pace_counts_from_the_next_use_on() -> None:
    async def spend() -> list[float]:
        pace, times_sec = Pace(10.0), []
        for rate in (10.0, 100.0, 10.0):
            pace.units_per_sec = rate
            await pace.spend(100)
            times_sec.append(asyncio.get_running_loop().time())
        return [round(after - before, 6) for before, after in zip([0.0, *times_sec], times_sec, strict=False)]

    assert run_virtually(spend())[1:] == [1.0, 10.0]


def test_work_without_a_pace_waits_for_nothing() -> None:
    async def spend() -> float:
        began_sec = asyncio.get_running_loop().time()
        await Pace().spend(1 << 60)
        return asyncio.get_running_loop().time() - began_sec

    assert run_virtually(spend()) == 0.0
