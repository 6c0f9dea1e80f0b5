"""Conditions: since when, and what is worth telling."""

from datetime import UTC, datetime

from kafscale.operator import conditions
from kafscale.operator.conditions import Condition

THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
READY = Condition(type="Ready", is_so=True, reason="BrokersReady", message="All.")


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = conditions.merged((), [READY], 1, THEN)
    assert first[0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    other = Condition(type="Ready", is_so=True, reason="Other", message="Still.")
    second = conditions.merged(first, [other], 2, NOW)
    assert second[0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert (second[0]["reason"], second[0]["observedGeneration"]) == ("Other", 2)
    turned = conditions.merged(second, [Condition(type="Ready", is_so=None, reason="R", message="")], 2, NOW)
    assert (turned[0]["status"], turned[0]["lastTransitionTime"]) == ("Unknown", "2026-01-02T03:04:06Z")


def test_what_says_the_same_is_not_told_again() -> None:
    told = conditions.merged((), [READY], 1, THEN)
    assert conditions.changed(told, [READY]) == []
    more = Condition(type="Ready", is_so=True, reason="BrokersReady", message="In other words.")
    assert conditions.changed(told, [more]) == []
    other = Condition(type="Ready", is_so=False, reason="PodsFail", message="")
    assert conditions.changed(told, [other]) == [other]
    assert conditions.changed((), [READY]) == [READY]


def test_a_message_is_cut_before_kubernetes_refuses_it() -> None:
    long = Condition(type="Ready", is_so=False, reason="R", message="x" * 40_000)
    assert len(conditions.merged((), [long], 1, NOW)[0]["message"]) == conditions.MAX_MESSAGE
