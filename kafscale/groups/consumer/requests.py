"""The requests of the consumer protocol and their answers, as the coordinator takes and gives them."""

from collections.abc import Callable
from dataclasses import dataclass

from kafscale.groups.modern.assignment import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A member's ConsumerGroupHeartbeat. None: as in the member's last heartbeat.

    `member_epoch`: that of the member, or one of the epochs in `request_checks` with which it joins or leaves.
    `rebalance_timeout_ms`: -1 for "as before". `owned`: the partitions that the member has.
    `may_describe` says of a topic's name if the client may know of the topic.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str
    may_describe: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to a heartbeat that was accepted. `assignment`: the partitions to have; None: as before."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerMember:
    """A member as ConsumerGroupDescribe shows it. `assignment`: what it has; `target_assignment`: is to have.

    `is_classic`: it speaks the classic protocol.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: frozenset[str]
    subscribed_topic_regex: str | None
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    """A consumer group as ConsumerGroupDescribe shows it. `state`: by the name that Kafka's tools print."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedConsumerMember, ...]
