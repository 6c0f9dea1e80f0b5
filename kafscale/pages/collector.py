"""Copies what a page shows from the structures of the event loop. Runs on it, for a bounded time.

Names and counts that any thread may read are in `figures`; here each call looks at no more than a page's rows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.formats.consumer_member_record import ConsumerMember, MemberState
from kafscale.formats.stored_assignment import Assignment
from kafscale.groups.any_group import AnyGroup
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.events import LEAVES_FOR_A_WHILE
from kafscale.groups.group import Group
from kafscale.groups.service import GroupService
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.log.manager import LogManager
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, TopicState
from kafscale.pages.parts import ROWS_PER_PAGE, first_row
from kafscale.pages.snapshots import (
    BrokerSnapshot,
    ClusterSnapshot,
    GroupElsewhere,
    GroupSnapshot,
    GroupSummary,
    MemberSnapshot,
    PartitionSnapshot,
    TopicLeaders,
    TopicSnapshot,
)
from kafscale.protocol.error_codes import KafkaError
from kafscale.serving.metadata_brokers import MetadataBrokers

MAX_BROKERS: Final = 100
MAX_CONFIGS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBroker:
    """The parts of a broker that serves. `is_registered`, `unrenewed_ms`: of its lease."""

    view: ClusterView
    logs: LogManager
    groups: GroupService
    brokers: MetadataBrokers
    is_registered: Callable[[], bool]
    unrenewed_ms: Callable[[], int]


def cluster_state(broker: ServingBroker) -> ClusterSnapshot:
    """The cluster and up to `MAX_BROKERS` brokers."""
    named = broker.brokers.brokers()
    return ClusterSnapshot(
        cluster_id=broker.view.cluster_id,
        controller_id=broker.brokers.controller_id(),
        brokers=tuple(_broker_state(record) for record in named[:MAX_BROKERS]),
        brokers_omitted=max(0, len(named) - MAX_BROKERS),
        features={name: found.level for name, found in broker.view.finalized_features().items()},
        is_registered=broker.is_registered(),
        unrenewed_ms=broker.unrenewed_ms(),
    )


def _broker_state(record: BrokerRecord) -> BrokerSnapshot:
    return BrokerSnapshot(
        broker_id=record.broker_id,
        state=record.state.value,
        endpoints=tuple(f"{name}://{at.host}:{at.port}" for name, at in record.endpoints().items()),
        rack=record.rack,
        features=tuple(
            f"{name} {levels.min_level}-{levels.max_level}" for name, levels in record.features.items()
        ),
    )


def topic_leaders(broker: ServingBroker, names: Iterable[str]) -> dict[str, TopicLeaders]:
    """Those of the topics that are there."""
    found = {}
    for name in names:
        record = broker.view.topic(name, include_deleting=True)
        if record is not None:
            found[name] = TopicLeaders(
                partition_count=record.partition_count,
                led_anywhere=len(broker.view.leaders(name)),
                is_deleting=record.state is not TopicState.ACTIVE,
            )
    return found


def topic_state(broker: ServingBroker, name: str, page: int) -> TopicSnapshot | None:
    """The topic with the partitions of that page; None if there is none of this name."""
    record = broker.view.topic(name, include_deleting=True)
    if record is None:
        return None
    start = first_row(page, record.partition_count)
    indexes = range(start, min(start + ROWS_PER_PAGE, record.partition_count))
    return TopicSnapshot(
        name=record.name,
        topic_id=record.topic_id,
        partition_count=record.partition_count,
        is_deleting=record.state is not TopicState.ACTIVE,
        configs=dict(islice(record.configs.items(), MAX_CONFIGS)),
        partitions=tuple(_partition_state(broker, name, index) for index in indexes),
    )


def _partition_state(broker: ServingBroker, name: str, index: int) -> PartitionSnapshot:
    leader = broker.view.leader(name, index)
    known = PartitionSnapshot(
        index=index,
        leader=None if leader is None else leader.broker_id,
        leader_epoch=None if leader is None else leader.leader_epoch,
    )
    partition = broker.logs.readable(name, index)
    if partition is None:
        return known
    references = partition.references
    return PartitionSnapshot(
        index=index,
        leader=known.leader,
        leader_epoch=known.leader_epoch,
        is_led_here=partition.is_led,
        log_start_offset=partition.record.log_start_offset,
        log_end_offset=partition.record.log_end_offset,
        size_bytes=None if references is None else references.size_bytes,
        segments=None if references is None else len(references),
    )


def group_summaries(broker: ServingBroker, group_ids: Iterable[str]) -> dict[str, GroupSummary]:
    """Those of the groups that this broker serves."""
    found = {}
    for group_id in group_ids:
        try:
            group = broker.groups.coordinator.any_group(group_id)
        except KafkaError:
            continue  # Its shard is resigned, or being loaded.
        if group is not None and group.state is not GroupState.DEAD:
            found[group_id] = _summary(group)
    return found


def _summary(group: AnyGroup) -> GroupSummary:
    return GroupSummary(
        group_id=group.group_id,
        state=group.state.value,
        group_type=group.GROUP_TYPE,
        protocol_type=group.protocol_type or "",
        members=len(group.members),
    )


def group_state(broker: ServingBroker, group_id: str, page: int) -> GroupSnapshot | GroupElsewhere | None:
    """The group with the members of that page; None if its coordinator, this broker, has none of this id."""
    try:
        group = broker.groups.coordinator.any_group(group_id)
    except KafkaError as refusal:
        coordinator = broker.view.coordinator(keys.shard_of(group_id))
        return GroupElsewhere(coordinator=coordinator, reason=refusal.message)
    if group is None or group.state is GroupState.DEAD:
        return None
    start = (page - 1) * ROWS_PER_PAGE
    if isinstance(group, ConsumerGroup):
        return _consumer_group(broker.view, group, start)
    if isinstance(group, ShareGroup):
        return _share_group(broker.view, group, start)
    return _classic_group(group, start)


def _classic_group(group: Group, start: int) -> GroupSnapshot:
    members = islice(group.members.values(), start, start + ROWS_PER_PAGE)
    return GroupSnapshot(
        summary=_summary(group),
        generation=group.generation,
        protocol_name=group.protocol_name or "",
        leader=group.leader,
        members=tuple(
            MemberSnapshot(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=member.assignment,
            )
            for member in members
        ),
    )


def _consumer_group(view: ClusterView, group: ConsumerGroup, start: int) -> GroupSnapshot:
    members = islice(group.members.values(), start, start + ROWS_PER_PAGE)
    return GroupSnapshot(
        summary=_summary(group),
        generation=group.group_epoch,
        protocol_name=group.assignor,
        leader=None,
        members=tuple(
            MemberSnapshot(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_by_name(view, member.assigned),
                progress=_progress(member),
            )
            for member in members
        ),
    )


def _share_group(view: ClusterView, group: ShareGroup, start: int) -> GroupSnapshot:
    members = islice(group.members.values(), start, start + ROWS_PER_PAGE)
    return GroupSnapshot(
        summary=_summary(group),
        generation=group.group_epoch,
        protocol_name=group.ASSIGNOR,
        leader=None,
        members=tuple(
            MemberSnapshot(
                member_id=member.member_id,
                group_instance_id=None,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_by_name(view, member.assigned),
                progress=f"epoch {member.member_epoch}",
            )
            for member in members
        ),
    )


def _by_name(view: ClusterView, assignment: Assignment) -> dict[str, Sequence[int]]:
    """The partitions by their topic's name, or its id if it was deleted."""
    named: dict[str, Sequence[int]] = {}
    for topic_id, partitions in assignment.items():
        record = view.topic_by_id(topic_id)
        named[str(topic_id) if record is None else record.name] = sorted(partitions)
    return named


def _progress(member: ConsumerMember) -> str:
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            revoked = sum(map(len, member.pending_revocation.values()))
            return f"epoch {member.member_epoch}, is to give up {revoked}"
        case MemberState.UNRELEASED_PARTITIONS:
            return f"epoch {member.member_epoch}, waits for partitions of others"
        case MemberState.STABLE if member.member_epoch == LEAVES_FOR_A_WHILE:
            return "away, its partitions wait for it"
        case MemberState.STABLE:
            return f"epoch {member.member_epoch}"
