"""Actions of other brokers and of group members, done by a test: a fence in a journal, a rebalance."""

import asyncio
import random
from collections.abc import Callable

from kafscale.broker.process import BrokerProcess
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.events import NO_MEMBER_ID, LeavingMember
from kafscale.groups.states import GroupState
from kafscale.log.journal.end_journal import JournalEnding, StoredJournal
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata.model import NO_BROKER
from kafscale.metadata.store import MetadataStore
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.error_codes import ErrorCode
from kafscale.testing.requests import RequestError

_VISITOR = "kafscale.testing"


async def fence(
    process: BrokerProcess, metadata: MetadataStore, objects: ObjectStore, now_ms: Callable[[], int]
) -> None:
    """End the broker's journal, as another broker does that takes it for dead.

    It finds that out by itself, at its next flush: it gives its lease up and registers again.
    """
    settings, journal_id = process.basics.settings, process.basics.registration.broker.journal_id
    await JournalEnding(
        objects,
        StoredJournal(metadata, journal_id),
        settings.s3_namespace,
        journal_id,
        NO_BROKER,
        StoreRetries(random.Random()),
        now_ms,
    ).end()


async def rebalance(groups: GroupCoordinator, group_id: str) -> None:
    """Let all members join again, as after a member that joined and left at once.

    A group that is rebalancing goes on with that. Raises `RequestError` for a group without members, or of the
    consumer protocol, whose members never join again together, and `KafkaError` for one of another coordinator.
    """
    group = groups.describe(group_id)
    if group is None or not group.members:
        raise RequestError(
            ErrorCode.GROUP_ID_NOT_FOUND.name,
            f"group {group_id!r} has no members of the classic protocol, which could join again",
        )
    if group.state is GroupState.PREPARING_REBALANCE:
        return
    present = next(iter(group.members.values()))
    others = set(group.members)
    joining = asyncio.ensure_future(
        groups.classic.join(
            group_id,
            member_id=NO_MEMBER_ID,
            group_instance_id=None,
            client_id=_VISITOR,
            client_host="127.0.0.1",
            session_timeout_ms=present.session_timeout_ms,
            rebalance_timeout_ms=present.rebalance_timeout_ms,
            protocol_type=group.protocol_type or "",
            protocols=present.protocols,
            member_id_required=False,
            reason="a test asked for a rebalance",
        )
    )
    await asyncio.sleep(0)
    visitors = tuple(LeavingMember(member_id) for member_id in group.members if member_id not in others)
    if not visitors:
        refused = await joining
        raise RequestError(refused.error_code.name, f"group {group_id!r} takes no further member")
    await groups.classic.leave(group_id, visitors)
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
