"""Memory that frames leave behind."""

import pytest

from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.server.frames import FrameInProgress, FrameMemory
from tests.support.in_process_broker import until
from tests.support.on_uvloop import on_uvloop

MIB = 1024 * 1024
BUDGET_BYTES = 256 * MIB


class Owner:
    takes_replies = True

    def frame_may_go_on(self) -> None:
        raise AssertionError("nothing waits here")

    def frame_overdue(self) -> None:
        raise AssertionError("no time passes here")


@on_uvloop
async def test_frame_too_large_for_reuse_leaves_nothing() -> None:
    """Found: frames of 80 MB, one after the other, each left as much, and took fresh memory all the same."""
    pool = SlabPool(BUDGET_BYTES)
    memory = FrameMemory(pool, MemoryBudget(BUDGET_BYTES))
    memory.begin(80 * MIB, memoryview(b"first bytes"), "peer", Owner()).give_back()
    assert pool.spare_bytes == 0
    memory.begin(20 * MIB, memoryview(b"first bytes"), "peer", Owner()).give_back()
    assert pool.spare_bytes == 20 * MIB


class WaitingOwner:
    takes_replies = True

    def __init__(self) -> None:
        self.went_on = self.overdue = 0

    def frame_may_go_on(self) -> None:
        self.went_on += 1

    def frame_overdue(self) -> None:
        self.overdue += 1


@on_uvloop
async def test_frame_that_has_just_gone_on_has_time_until_next_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: a frame that went on a moment before the check was ended, as if it had not sent for the whole time."""
    monkeypatch.setattr(FrameInProgress, "PROGRESS_SEC", 3600.0)
    memory = FrameMemory(SlabPool(MIB), MemoryBudget(MIB))
    owner = WaitingOwner()
    share = memoryview(bytes(MIB * 3 // 16))
    head, frame = (memory.begin(MIB, share, "peer", owner) for _ in range(2))
    assert frame.waits
    frame._check()
    head.give_back()
    await until(lambda: owner.went_on, "it goes on")
    frame._check()
    assert owner.overdue == 0
    frame._check()
    assert owner.overdue == 1
    frame.give_back()
