"""Conditions as Kubernetes keeps them: what is so and what is not, since when, and why. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

ConditionMap = Mapping[str, Any]

MAX_MESSAGE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One of them. `is_so` None: not known. `reason`: one word in CamelCase; `message`: for people."""

    type: str
    is_so: bool | None
    reason: str
    message: str

    @property
    def status(self) -> str:
        """Kubernetes' word."""
        return {True: "True", False: "False", None: "Unknown"}[self.is_so]


def merged(
    before: Iterable[ConditionMap], wanted: Sequence[Condition], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The wanted ones as a status has them; the time is kept where the status is the same as before."""
    known = {each["type"]: each for each in before}
    found = []
    for condition in wanted:
        old = known.get(condition.type)
        is_same = old is not None and old["status"] == condition.status
        found.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message[:MAX_MESSAGE],
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"]
                if old is not None and is_same
                else now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
    return found


def changed(before: Iterable[ConditionMap], wanted: Sequence[Condition]) -> list[Condition]:
    """Those whose status or reason is another than before: worth an event."""
    known = {each["type"]: (each["status"], each["reason"]) for each in before}
    return [each for each in wanted if known.get(each.type) != (each.status, each.reason)]


def find(conditions: Iterable[ConditionMap], kind: str) -> ConditionMap | None:
    """The one of that type."""
    return next((each for each in conditions if each["type"] == kind), None)
