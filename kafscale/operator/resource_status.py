"""The status of a KafscaleTopic or a KafscaleUser: its phase, its Ready condition, what it owns. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from kafscale.operator import conditions
from kafscale.operator.conditions import Condition

READY: Final = "Ready"


class Phase(StrEnum):
    """The Ready condition in one word."""

    PENDING = "Pending"
    READY = "Ready"
    FAILED = "Failed"
    DELETING = "Deleting"


class Owned(Protocol):
    """The objects that a resource owns, as its status names them."""

    def fields(self) -> dict[str, Any]:
        """The status fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of a pass. `reason`: one of the kind's `Reason` or `NotReadyError`'s; `message`: for people."""

    phase: Phase
    reason: str
    message: str

    @property
    def condition(self) -> Condition:
        """The Ready condition."""
        return Condition(
            type=READY, is_so=self.phase is Phase.READY, reason=self.reason, message=self.message
        )


def status(
    verdict: Verdict, known: Owned, before: Mapping[str, Any], generation: int, now: datetime
) -> dict[str, Any]:
    """The whole status; equal to `before` if nothing changed."""
    return {
        "phase": verdict.phase.value,
        "observedGeneration": generation,
        "conditions": conditions.merged(before.get("conditions", ()), [verdict.condition], generation, now),
        **known.fields(),
    }


def status_of_intent(before: Mapping[str, Any], intent: Owned) -> dict[str, Any]:
    """Written before a topic or user is touched: after a crash, partial work is known to be this resource's."""
    kept = {name: before[name] for name in ("observedGeneration", "conditions") if name in before}
    return {"phase": before.get("phase", Phase.PENDING.value), **kept, **intent.fields()}
