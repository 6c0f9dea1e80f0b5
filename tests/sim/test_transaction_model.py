"""The protocol of transactions in every state of small scopes: no promise is broken, each planted mistake is found.

`make nightly` visits larger scopes, of up to some million states.
"""

import pytest

from tests.sim.transactions.mistakes import Mistake
from tests.sim.transactions.model import stuck, walk
from tests.sim.transactions.states import Scope

TWO_TRANSACTIONS = Scope()
OLD_PROTOCOL = Scope((1,), (2,))
TWO_PARTITIONS = Scope((2,), (1,), partitions=2)
GROUP = Scope((2,), (1,), group=True)
OFFSETS = Scope((1,), (2,), partitions=0, group=True)
IN_PIECES = Scope((2,), (1,), in_pieces=True, reloads=1)
ZOMBIE = Scope((1, 1), (1, 1))
SCOPES = [
    pytest.param(TWO_TRANSACTIONS, id="two transactions"),
    pytest.param(OLD_PROTOCOL, id="two of the old protocol"),
    pytest.param(TWO_PARTITIONS, id="two partitions"),
    pytest.param(OFFSETS, id="offsets of the old protocol"),
    pytest.param(IN_PIECES, id="marker keys in pieces"),
    pytest.param(ZOMBIE, id="two instances", marks=pytest.mark.nightly),
    pytest.param(Scope((2, 2), (1, 1)), id="two instances of the new protocol", marks=pytest.mark.nightly),
    pytest.param(Scope((1, 2), (1, 1)), id="an upgraded instance", marks=pytest.mark.nightly),
    pytest.param(GROUP, id="records and offsets", marks=pytest.mark.nightly),
    pytest.param(
        Scope((1,), (1,), partitions=2, group=True), id="everything at once", marks=pytest.mark.nightly
    ),
    pytest.param(Scope((2,), (3,), claims=2), id="three transactions, three leaders", marks=pytest.mark.nightly),
    pytest.param(
        Scope((1,), (2,), partitions=2, own_claims=False), id="every leader replaced", marks=pytest.mark.nightly
    ),
    pytest.param(
        Scope((2,), (2,), partitions=2, in_pieces=True, reloads=1),
        id="two partitions in pieces",
        marks=pytest.mark.nightly,
    ),
]
WHERE = {
    Mistake.MARKERS_BEFORE_THE_DECISION: TWO_TRANSACTIONS,
    Mistake.COMPLETE_UNSTORED: IN_PIECES,
    Mistake.NO_BUMP_AT_END: TWO_TRANSACTIONS,
    Mistake.END_WITHOUT_EPOCH: ZOMBIE,
    Mistake.ADD_AFTER_DECISION: TWO_TRANSACTIONS,
    Mistake.ADD_WITHOUT_COMPARE: TWO_TRANSACTIONS,
    Mistake.VERIFIED_WITHOUT_PARTITION: TWO_PARTITIONS,
    Mistake.VERIFIED_AFTER_DECISION: TWO_TRANSACTIONS,
    Mistake.DELETE_BESIDE_MARKER: IN_PIECES,
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


@pytest.mark.parametrize("scope", [TWO_PARTITIONS, OFFSETS])
def test_every_transaction_can_be_completed_from_every_state(scope: Scope) -> None:
    assert stuck(scope) is None
