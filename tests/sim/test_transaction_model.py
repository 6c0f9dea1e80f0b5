"""The protocol of transactions in every state of small scopes: no promise is broken, each planted mistake is found.

`make nightly` visits larger scopes, of up to a million states.
"""

import pytest

from tests.sim.transactions.mistakes import Mistake
from tests.sim.transactions.model import stuck, walk
from tests.sim.transactions.states import Scope

TWO_TRANSACTIONS = Scope()
TWO_COORDINATORS = Scope((1,), (2,), claims=0, timeouts=0, coordinators=1)
THERE_AND_BACK = Scope((1,), (1,), claims=2)
OLD_PROTOCOL = Scope((1,), (2,))
TWO_PARTITIONS = Scope((2,), (1,), partitions=2)
GROUP = Scope((2,), (1,), group=True)
OFFSETS = Scope((1,), (2,), partitions=0, group=True)
IN_PIECES = Scope((2,), (1,), in_pieces=True, reloads=1)
ZOMBIE = Scope((1, 1), (1, 1))
SCOPES = [
    pytest.param(Scope((2,), (2,), timeouts=0), id="two transactions"),
    pytest.param(Scope((1,), (2,), timeouts=0), id="two of the old protocol"),
    pytest.param(Scope((2,), (1,)), id="a time-out"),
    pytest.param(TWO_COORDINATORS, id="two coordinators of the old protocol"),
    pytest.param(TWO_PARTITIONS, id="two partitions", marks=pytest.mark.nightly),
    pytest.param(TWO_TRANSACTIONS, id="two and a time-out", marks=pytest.mark.nightly),
    pytest.param(OLD_PROTOCOL, id="two of the old protocol and a time-out", marks=pytest.mark.nightly),
    pytest.param(Scope((2,), (2,), epochs_left=0), id="epochs used up", marks=pytest.mark.nightly),
    pytest.param(OFFSETS, id="offsets of the old protocol"),
    pytest.param(Scope((2,), (1,), in_pieces=True, reloads=1, timeouts=0), id="marker keys in pieces"),
    pytest.param(IN_PIECES, id="marker keys in pieces, and a time-out", marks=pytest.mark.nightly),
    pytest.param(ZOMBIE, id="two instances", marks=pytest.mark.nightly),
    pytest.param(Scope((2, 2), (1, 1)), id="two instances of the new protocol", marks=pytest.mark.nightly),
    pytest.param(Scope((1, 2), (1, 1)), id="an upgraded instance", marks=pytest.mark.nightly),
    pytest.param(GROUP, id="records and offsets", marks=pytest.mark.nightly),
    pytest.param(
        Scope((1,), (1,), partitions=2, group=True), id="everything at once", marks=pytest.mark.nightly
    ),
    pytest.param(
        Scope((2,), (3,), claims=2), id="three transactions, three leaders", marks=pytest.mark.nightly
    ),
    pytest.param(
        Scope((1,), (1,), partitions=2, claims_all=True),
        id="every leader replaced",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        Scope((2,), (1,), partitions=2, in_pieces=True, reloads=1),
        id="two partitions in pieces",
        marks=pytest.mark.nightly,
    ),
]
WHERE = {
    Mistake.MARKERS_BEFORE_THE_DECISION: TWO_TRANSACTIONS,
    Mistake.COMPLETE_UNSTORED: IN_PIECES,
    Mistake.NO_BUMP_AT_END: TWO_TRANSACTIONS,
    Mistake.END_WITHOUT_EPOCH: ZOMBIE,
    Mistake.ENDED_BY_A_REPLACED_COORDINATOR: TWO_COORDINATORS,
    Mistake.ADD_AFTER_DECISION: TWO_TRANSACTIONS,
    Mistake.ADD_WITHOUT_COMPARE: TWO_TRANSACTIONS,
    Mistake.VERIFIED_WITHOUT_PARTITION: TWO_PARTITIONS,
    Mistake.VERIFIED_AFTER_DECISION: TWO_TRANSACTIONS,
    Mistake.VERIFICATION_OUTLIVES_TERM: THERE_AND_BACK,
    Mistake.GROUP_WITHOUT_SHARD: OFFSETS,
    Mistake.GROUP_VERIFICATION_OUTLIVES_MARKER: OFFSETS,
    Mistake.GROUP_DELETES_FIRST: OFFSETS,
    Mistake.GROUP_SHOWS_AT_ONCE: GROUP,
}
"""The scope that shows a mistake. The others show in that of the old protocol, whose epochs say least."""


@pytest.mark.parametrize("scope", SCOPES)
def test_no_promise_is_broken_in_any_state(scope: Scope) -> None:
    found = walk(scope)
    assert found.violation is None, "\n".join((found.violation, *found.way))
    assert found.states > 500
    print(f"{found.states} states")


@pytest.mark.parametrize("mistake", Mistake, ids=lambda mistake: mistake.name.lower())
def test_it_finds(mistake: Mistake) -> None:
    found = walk(WHERE.get(mistake, OLD_PROTOCOL), mistake, limit=100_000)
    assert found.violation is not None, f"not found: {mistake}"
    print(found.violation, *found.way, sep="\n")


@pytest.mark.parametrize("scope", [Scope((2,), (1,), claims=0), OFFSETS])
def test_every_transaction_can_be_completed_from_every_state(scope: Scope) -> None:
    assert stuck(scope) is None
