"""Mistakes about idempotent producers, put in on purpose: part of what the simulation must find."""

from collections.abc import Callable
from typing import Any

import pytest

from kafscale.log import producer_state
from kafscale.log.producer_gap_guard import ProducerGapGuard
from kafscale.log.producer_state import ProducerStates
from tests.sim.links import Conditions
from tests.sim.simulated_producers import Load

Plant = Callable[[pytest.MonkeyPatch], None]

_GOOD = Conditions(longest_delay=0.02)
_SLOW = Conditions(longest_delay=0.5)
_FIRST: dict[str, Any] = {
    "topics": {"t": 4},
    "plain_producers": 0,
    "consumers": 0,
    "stops_well": False,
    "metadata": _GOOD,
    "objects": _GOOD,
    "clients": _SLOW,
}
_OVERTAKEN: dict[str, Any] = {
    **_FIRST,
    "brokers": 3,
    "kinds": ("late answers",),
    "troubles": 6,
    "longest_calm": 8.0,
    "lease_ttl": 4,
    "flush_interval_ms": 0,
    "in_flight": (5,),
    "drain_rate": 0.0,
    "objects": _SLOW,
    "clients": _GOOD,
    # Waits for an answer while others begin to lead, and not until the one that slept tells it.
    "load": Load(batches=200, longest_pause=0.6, timeout=4.5),
}
"""Answers that come late from a broker that sleeps, while the next leader goes on."""


def _guard_only(patch: pytest.MonkeyPatch, *, known_producers: bool) -> None:
    refuses = ProducerGapGuard.refuses

    def of_some(self: Any, place: Any, header: Any, producers: ProducerStates) -> bool:
        is_known = producers.newest_sequence(header.producer_id) is not None
        return is_known is known_producers and refuses(self, place, header, producers)

    patch.setattr(ProducerGapGuard, "refuses", of_some)


def later_batch_taken_for_the_first(patch: pytest.MonkeyPatch) -> None:
    """A leader that refused a producer's first batch takes the next one in its place (once in the code)."""
    _guard_only(patch, known_producers=True)
    producer_that_begins_in_the_middle(patch)


def producer_that_begins_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    """A leader takes an unknown producer's batch while earlier ones are at the last leader (once in the code)."""
    patch.setattr(ProducerGapGuard, "refuses_beginning", lambda self, place, header: False)


def later_batch_out_of_order_behind_a_refused_one(patch: pytest.MonkeyPatch) -> None:
    """A leader tells of a gap that it has made itself, by refusing what comes before (once in the code)."""
    _guard_only(patch, known_producers=False)


def overtaken_batch_is_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """A leader has forgotten a batch that many later ones have overtaken (KAFKA-14359; once in the code)."""
    patch.setattr(producer_state, "is_older", lambda batches, first, last: False)


def everything_before_the_newest_is_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    """A leader takes each earlier sequence number for one that is stored."""
    producer_that_begins_in_the_middle(patch)
    patch.setattr(producer_state, "is_older", lambda batches, first, last: last < batches[0].first_sequence)


PRODUCER_MISTAKES: dict[Plant, dict[str, Any]] = {
    later_batch_taken_for_the_first: {
        **_FIRST,
        "brokers": 1,
        "kinds": ("end lease",),
        "troubles": 4,
        "longest_calm": 0.5,
        "flush_interval_ms": 500,
        "load": Load(batches=6, longest_pause=0.1),
    },
    # So slow that the first batches are still being sent when the next leader is there.
    producer_that_begins_in_the_middle: {
        **_FIRST,
        "brokers": 2,
        "kinds": ("pause",),
        "troubles": 3,
        "longest_calm": 0.3,
        "load": Load(batches=8, longest_pause=1.0),
    },
    later_batch_out_of_order_behind_a_refused_one: {
        **_FIRST,
        "brokers": 1,
        "kinds": ("end lease",),
        "troubles": 4,
        "longest_calm": 2.0,
        "flush_interval_ms": 500,
        "load": Load(batches=20, longest_pause=0.1),
    },
    overtaken_batch_is_out_of_order: _OVERTAKEN,
    everything_before_the_newest_is_a_duplicate: {
        **_FIRST,
        "brokers": 2,
        "kinds": ("pause",),
        "troubles": 3,
        "longest_calm": 0.3,
        "load": Load(batches=20, longest_pause=1.0),
    },
}
