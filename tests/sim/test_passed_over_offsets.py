"""Where leaders pass leftovers over, fsck knows it again by the leader epochs: on random walks of the protocol.

Nearly always: one walk in a thousand has a hole with the second upload of an older leader in it, too (decision
0021). The walks are the same in every run.
"""

import random
from itertools import pairwise

from kafscale.tools.fsck.record_check import may_be_passed_over
from tests.sim.publication_states import Record, Scope, first_state, steps
from tests.sim.test_recovery_states import weight

WALKS = 100
STEPS = 120
SHORT_SEGMENTS = Scope(epochs=6, attempts=14, lengths=(1,) * 8 + (2,) * 4, offsets=24)


def walk(seed: int) -> Record:
    """The record at the end of one walk of two brokers."""
    chance, state = random.Random(seed), first_state(2)
    for _ in range(STEPS):
        following = list(steps(state, SHORT_SEGMENTS))
        if not following:
            break
        [state] = chance.choices(following, [weight(state, after) for after in following])
    return state.record


def test_holes_that_leaders_leave_are_explained_by_their_epochs() -> None:
    holes = []
    for seed in range(WALKS):
        for before, after in pairwise(walk(seed).references):
            if after.base > before.end:
                epochs_passed = after.pieces[0].epoch - before.pieces[-1].epoch
                holes.append((after.base - before.end, epochs_passed))
    assert len(holes) > WALKS / 2, "the walks are to meet leftovers"
    assert [hole for hole in holes if not may_be_passed_over(*hole)] == []
    assert any(offsets > epochs_passed for offsets, epochs_passed in holes), "two leftovers of one leader"
