"""Answers to producers when another broker has ended the journal: what is certain not to be stored is refused."""

import asyncio
from dataclasses import replace

import pytest

from kafscale.formats.journal_entry import Fence, encode_fence
from kafscale.formats.journal_keys import entry_key
from kafscale.formats.journal_record import decode_journal_record, encode_journal_record
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.log.brokers import NAMESPACE, BrokerParts, Cluster, cluster_scenario
from tests.log.outcome import RefusedError

TOPIC = "orders"


async def leader_of(cluster: Cluster) -> tuple[BrokerParts, str, int]:
    """A broker that leads two partitions, its journal, and the sequence of its next entry."""
    (leader,) = await cluster.start(1)
    await cluster.create_topic(TOPIC, 2)
    for index in range(2):
        await leader.produce(TOPIC, index, b"before")
    await cluster.settle()
    journal = leader.parts.journals.current
    return leader, journal.journal_id, journal.writer.committed_through + 1


async def refusal(told: "asyncio.Future[int]") -> int:
    with pytest.raises(RefusedError) as refused:
        await told
    return refused.value.error_code


@cluster_scenario()
async def test_entries_in_flight_above_a_fence_are_refused(cluster: Cluster) -> None:
    leader, journal_id, following = await leader_of(cluster)
    fenced, above = (entry_key(NAMESPACE, journal_id, following + number) for number in range(2))
    fence = Fence(journal_id=journal_id, broker_id=2, sequence=following, created_ms=0)
    await cluster.objects.inner.put_if_absent(fenced, [encode_fence(fence)])
    with (
        cluster.objects.hold("put_if_absent", fenced) as first,
        cluster.objects.hold("put_if_absent", above) as second,
    ):
        told = [leader.produce(TOPIC, 0, b"at the fence")]
        await first.reached()
        told.append(leader.produce(TOPIC, 1, b"above it"))
        await second.reached()
        first.release()
        assert [await refusal(one) for one in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        assert second.waiting


@cluster_scenario()
async def test_an_end_in_the_record_refuses_what_is_not_below_it(cluster: Cluster) -> None:
    """The journal's record may tell of the end before the answer to any entry does."""
    leader, journal_id, following = await leader_of(cluster)
    below, fenced = (entry_key(NAMESPACE, journal_id, following + number) for number in range(2))
    with (
        cluster.objects.hold("put_if_absent", below) as first,
        cluster.objects.hold("put_if_absent", fenced) as second,
    ):
        told = [leader.produce(TOPIC, 0, b"below the fence")]
        await first.reached()
        told.append(leader.produce(TOPIC, 1, b"at the fence"))
        await second.reached()
        found = await cluster.metadata.get(keys.journal(journal_id))
        assert found is not None
        ended = replace(decode_journal_record(found.key, found.value), ended_at=following + 1)
        await cluster.metadata.transact([], [Put(found.key, encode_journal_record(ended))])
        leader.parts.journals.current._progress.committed(following)  # as if it were: it looks at the record
        assert [await refusal(one) for one in told] == [
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]
        assert first.waiting
        assert second.waiting
