"""Status conditions in Kubernetes' format. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

ConditionMap = Mapping[str, Any]

MAX_MESSAGE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition. `is_so` None: unknown. `reason`: one CamelCase word; `message`: for people."""

    type: str
    is_so: bool | None
    reason: str
    message: str

    @property
    def status(self) -> str:
        """Kubernetes' name of the state."""
        return {True: "True", False: "False", None: "Unknown"}[self.is_so]


def merged(
    before: Iterable[ConditionMap], wanted: Sequence[Condition], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The conditions as a status stores them; a transition time stays while the condition's status does."""
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
    """Conditions whose status or reason differs from `before`; each deserves an event."""
    known = {each["type"]: (each["status"], each["reason"]) for each in before}
    return [each for each in wanted if known.get(each.type) != (each.status, each.reason)]


def find(conditions: Iterable[ConditionMap], kind: str) -> ConditionMap | None:
    """The condition of that type, or None."""
    return next((each for each in conditions if each["type"] == kind), None)
