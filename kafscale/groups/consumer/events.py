"""The events of a consumer group that a classic group does not have. See `kafscale/groups/events.py`."""

from dataclasses import dataclass

from kafscale.groups.effects import Answer
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.events import JOINS, ModernEvent

LEAVES_FOR_A_WHILE = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReceived:
    """ConsumerGroupHeartbeat, checked for itself. Fields that the client left out are None, or -1.

    `owned`: what the member says it has. `resolved`: the topics of its regular expression, if it names one.
    """

    now_ms: int
    reply_id: int
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: frozenset[str] | None
    subscribed_topic_regex: str | None
    resolved: frozenset[str] | None
    server_assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """True if the answer has the assignment, changed or not."""
        return self.member_epoch == JOINS or (
            self.rebalance_timeout_ms != -1
            and (self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexResolved:
    """The topics that a regular expression matches now."""

    now_ms: int
    regex: str
    topic_names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The group was a classic group with members until now. `answers`: to what waited there."""

    now_ms: int
    answers: tuple[Answer, ...]


OnlyConsumerEvent = ConsumerHeartbeatReceived | Converted | RegexResolved
ConsumerEvent = OnlyConsumerEvent | ModernEvent
