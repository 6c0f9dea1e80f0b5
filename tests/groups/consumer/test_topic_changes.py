"""Consumer groups hear of topics that grow, come or go, whatever becomes of another group."""

import asyncio
from collections import Counter
from typing import NoReturn
from uuid import UUID

import pytest

from kafscale.groups.modern.topic_changes import TopicChanges
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from tests.groups.consumer.member import ConsumerMember
from tests.groups.coordination import GROUP, NEIGHBOUR, TOPIC, Brokers, now_ms, scenario


@scenario()
async def test_a_defect_of_one_group_hides_no_topics_from_others(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [ConsumerMember(broker.coordinator, group_id) for group_id in (GROUP, NEIGHBOUR)]
    for member in members:
        await member.heartbeat()
    counts: Counter[str] = Counter()
    failures = ItemFailures(BackgroundWork.GROUP_TOPICS, counts)
    groups = [running for _, running in broker.shards.all_groups()]
    changes = TopicChanges(broker.view, lambda: groups, now_ms, failures)

    def fail(event: object) -> NoReturn:
        raise RuntimeError("a defect")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups[0], "notify", fail)
        await brokers.make_topic(TOPIC, UUID(int=7))
        await broker.tell_topics()
        await asyncio.sleep(1)
    assert counts == {BackgroundWork.GROUP_TOPICS: 1}
    (other,) = (one for one in members if one.group_id == groups[1].group.group_id)
    await other.heartbeat()
    await other.heartbeat()
    assert set(other.owned) == {UUID(int=7)}
    await changes.close()
