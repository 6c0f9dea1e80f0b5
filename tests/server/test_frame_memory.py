"""What frames leave behind of the memory that they had."""

from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.server.frames import FrameMemory
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
