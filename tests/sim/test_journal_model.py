"""The journal's protocol in every state of small scopes: no promise is broken, and each planted mistake is found.

`make nightly` visits larger scopes, of up to some million states.
"""

import pytest

from tests.sim.journal.mistakes import Mistake
from tests.sim.journal.model import stuck, walk
from tests.sim.journal.states import Scope

ONE = Scope(2, (2, 1))
OWN_OBJECTS = Scope(2, (1, 1), own_objects=True, hand_overs=0, reads_elsewhere=False)
SEALING = Scope(2, (1, 1), seals=True, hand_overs=0, reads_elsewhere=False)
TWO_PARTITIONS = Scope(1, (1, 0), partitions=2, in_flight=1, hand_overs=0, reads_elsewhere=False)
SCOPES = [
    pytest.param(Scope(2, (2, 0)), id="a leader and a reader"),
    pytest.param(OWN_OBJECTS, id="objects of their own"),
    pytest.param(SEALING, id="sealing"),
    pytest.param(TWO_PARTITIONS, id="two partitions"),
    pytest.param(Scope(2, (1, 1), hand_overs=2), id="there and back", marks=pytest.mark.nightly),
    pytest.param(ONE, id="two leaders", marks=pytest.mark.nightly),
    pytest.param(
        Scope(2, (2, 1), seals=True, hand_overs=0, reads_elsewhere=False),
        id="more sealing",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        Scope(1, (1, 1), partitions=2, in_flight=1, hand_overs=0, reads_elsewhere=False),
        id="two partitions of two leaders",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        Scope(2, (1, 0), partitions=2, in_flight=1, reads_elsewhere=False),
        id="one of two partitions handed over",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        Scope(1, (1, 1, 1), in_flight=1, hand_overs=0, reads_elsewhere=False),
        id="three leaders",
        marks=pytest.mark.nightly,
    ),
]


@pytest.mark.parametrize("scope", SCOPES)
def test_no_promise_is_broken_in_any_state(scope: Scope) -> None:
    found = walk(scope)
    assert found.violation is None, "\n".join((found.violation, *found.way))
    assert found.states > 1_000
    print(f"{found.states} states")


@pytest.mark.parametrize("mistake", Mistake, ids=lambda mistake: mistake.name.lower())
def test_it_finds(mistake: Mistake) -> None:
    scope = OWN_OBJECTS if mistake in (Mistake.LEFTOVER_FOR_OWN, Mistake.INDEX_EARLY) else ONE
    found = walk(scope, mistake, limit=100_000)
    assert found.violation is not None, f"not found: {mistake}"
    print(found.violation, *found.way, sep="\n")


def test_from_every_state_partitions_can_be_led_again() -> None:
    assert stuck(Scope(2, (2, 0), reads_elsewhere=False)) is None
